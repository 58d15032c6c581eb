/*
 * runtime/update: changing and listing constants for the exported functions. It uses only C types, since the small C++
 * file for the functions with a std::unordered_map calls it too.
 *
 * Private. Every function first clears the thread's message, and sets the one that AOTInductorGetLastError() returns.
 * On failure nothing has changed.
 */
#ifndef AOTICACHE_RUNTIME_UPDATE_H
#define AOTICACHE_RUNTIME_UPDATE_H

#include "runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Combined with |. USER_MANAGED with FROM_CPU is refused. */
enum {
    AOTICACHE_UPDATE_INACTIVE = 1,     /* the inactive buffer; otherwise the active one, which waits for runs to end */
    AOTICACHE_UPDATE_VALIDATE = 2,     /* refuse a list that lacks a constant that the library needs */
    AOTICACHE_UPDATE_USER_MANAGED = 4, /* the tensors' own memory is used, nothing is copied */
    AOTICACHE_UPDATE_FROM_CPU = 8,     /* a kernel of another device accepts tensors in CPU memory, too */
};

/*
 * Sets the named constants. Names are the library's own (GetConstantName); of two pairs with the same name the first is
 * used; folded constants are skipped. A tensor must have the constant's device, dtype and sizes; its strides and
 * storage offset are kept. The caller keeps the handles. For the inactive buffer, tensors that tracing made, buffers
 * and empty parameters that the list lacks are copied from the active one. The buffer is folded again before its next
 * run.
 */
AOTIRuntimeError aoticache_update_constants(AOTInductorModelContainerHandle container,
                                            const AOTInductorConstantMapEntry *pairs, size_t num_pairs, unsigned flags);

/*
 * Lists the constants that a buffer has, without folded ones, under their original names. The container owns the array,
 * which is valid until the next call or change of constants; handles are borrowed.
 */
AOTIRuntimeError aoticache_update_extract(AOTInductorModelContainerHandle container, bool use_inactive,
                                          const AOTInductorConstantMapEntry **ret_entries, size_t *ret_num_entries);

/*
 * Creates a model without a container. No pairs: it has the library's own weights. Otherwise it takes the handles over,
 * on success.
 */
AOTIRuntimeError aoticache_update_create_model(AOTInductorModelHandle *ret_model,
                                               const AOTInductorConstantMapEntry *pairs, size_t num_pairs);

/* Updates a model. Takes the handles over, on success. */
AOTIRuntimeError aoticache_update_model(AOTInductorModelHandle model, const AOTInductorConstantMapEntry *pairs,
                                        size_t num_pairs);

/* Sets the message for AOTInductorGetLastError() and returns the failure. */
AOTIRuntimeError aoticache_update_fail(const char *message);

#ifdef __cplusplus
}
#endif
#endif
