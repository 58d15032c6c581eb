/*
 * runtime/update: changing and listing constants, as the exported functions need it, in C types alone: what the thin
 * C++ file for the functions with a std::unordered_map calls too.
 *
 * Private. Every function begins with the thread's message cleared and leaves its own where AOTInductorGetLastError()
 * finds it. On failure nothing has changed.
 */
#ifndef AOTICACHE_RUNTIME_UPDATE_H
#define AOTICACHE_RUNTIME_UPDATE_H

#include "runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Combined by |. USER_MANAGED with FROM_CPU is refused. */
enum {
    AOTICACHE_UPDATE_INACTIVE = 1,     /* the inactive buffer; else the active one, which waits for runs to end */
    AOTICACHE_UPDATE_VALIDATE = 2,     /* refuse a list that lacks a constant which the library cannot do without */
    AOTICACHE_UPDATE_USER_MANAGED = 4, /* the tensors' own memory is used, nothing is copied */
    AOTICACHE_UPDATE_FROM_CPU = 8,     /* a kernel of another device accepts tensors in CPU memory, too */
};

/*
 * Sets the named constants. Names are the library's own (GetConstantName); of two pairs with one name the first
 * counts; folded ones are skipped. A tensor must have the constant's device, dtype and sizes; its strides and storage
 * offset are kept. The handles stay the caller's. For the inactive buffer, tensors that tracing made, buffers and empty
 * parameters that the list lacks are copied from the active one. The buffer is folded anew before its next run.
 */
AOTIRuntimeError aoticache_update_constants(AOTInductorModelContainerHandle container,
                                            const AOTInductorConstantMapEntry *pairs, size_t num_pairs, unsigned flags);

/*
 * The constants that a buffer has, folded ones left out, under their original names. The array is the container's,
 * and good until the next call or change of constants; handles are borrowed.
 */
AOTIRuntimeError aoticache_update_extract(AOTInductorModelContainerHandle container, bool use_inactive,
                                          const AOTInductorConstantMapEntry **ret_entries, size_t *ret_num_entries);

/* A model without a container. No pairs: with the library's own weights. Else the handles are taken, on success. */
AOTIRuntimeError aoticache_update_create_model(AOTInductorModelHandle *ret_model,
                                               const AOTInductorConstantMapEntry *pairs, size_t num_pairs);

/* Takes the handles, on success. */
AOTIRuntimeError aoticache_update_model(AOTInductorModelHandle model, const AOTInductorConstantMapEntry *pairs,
                                        size_t num_pairs);

/* Leaves a message for AOTInductorGetLastError() and returns the failure. */
AOTIRuntimeError aoticache_update_fail(const char *message);

#ifdef __cplusplus
}
#endif
#endif
