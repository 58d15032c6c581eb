/*
 * loader/runner/constants: the constants of a runner: reading, updating, folding and swapping their two buffers.
 *
 * Users include <aoticache/runner.h>.
 */
#ifndef AOTICACHE_LOADER_RUNNER_CONSTANTS_H
#define AOTICACHE_LOADER_RUNNER_CONSTANTS_H

#include "loader/runner/runner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a constant is (ConstantType, torch/csrc/inductor/aoti_runtime/utils.h). */
typedef enum aoticache_constant_type {
    AOTICACHE_CONSTANT_UNKNOWN = 0,
    AOTICACHE_CONSTANT_PARAMETER = 1,
    AOTICACHE_CONSTANT_BUFFER = 2,
    AOTICACHE_CONSTANT_TENSOR_CONSTANT = 3,
    AOTICACHE_CONSTANT_FOLDED = 4,
} aoticache_constant_type;

/* Strings are borrowed from the library. */
typedef struct aoticache_constant {
    const char *name;         /* the library's name: "layer_weight" */
    const char *original_fqn; /* the model's name: "layer.weight"; for a folded constant `name`, or "" */
    int32_t dtype;            /* aoticache_dtype; -1: the library does not say */
    int32_t type;             /* aoticache_constant_type; UNKNOWN: the library does not say */
    bool from_folded;         /* made by constant folding: cannot be updated */
    bool has_bytes;
    uint64_t bytes; /* of the data in the library; valid if has_bytes */
} aoticache_constant;

/* Returns: OK, INVALID (no such position), RUN_FAILED (with the library's own message). */
AOTICACHE_API aoticache_status aoticache_runner_read_constant(const aoticache_runner *runner, size_t position,
                                                              aoticache_constant *ret_constant,
                                                              aoticache_error *ret_error);

typedef struct aoticache_update_options {
    size_t size;
    bool inactive;     /* update the inactive buffer: visible after a swap */
    bool partial;      /* any constant may be left out. Without this, only constants that are optional in PyTorch's
                        * libraries may be: a model's buffers, constants that tracing made, empty parameters */
    bool user_managed; /* do not copy: the tensors' own memory is used as long as they are the constants */
    bool from_cpu;     /* tensors on the CPU are copied to the container's device */
    bool by_fqn;       /* names are original FQNs */
} aoticache_update_options;

#define AOTICACHE_UPDATE_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_update_options)

/*
 * Gives constants new values.
 *
 * options: NULL: the defaults. by_fqn: all constants that share an FQN get the value. from_cpu: if the library has no
 *          function for it (PyTorch before 2.13), tensors are copied to its device first; INVALID together with
 *          user_managed.
 * pairs:   names and tensors, borrowed for the call. With user_managed, the tensors (handles and memory) are borrowed
 *          until another update replaces them in that buffer, or the runner is gone.
 *
 * Checked before anything changes: every name belongs to a constant (the message suggests the nearest name), none is
 * given twice, and none belongs to a folded constant. Every tensor has the constant's dtype, sizes, strides and kind of
 * device (the message has both). A tensor may be part of a larger one; only its elements are read. The stride of a
 * dimension with one element does not matter.
 *
 * Sizes and strides are known from the tensors that the library makes of its own weights or of a blob. If it has
 * neither yet, fewer checks are possible. Before the change: the dtype, that the bytes fit into the constant's memory,
 * and that no elements share memory (user_managed tensors must fill that memory). After the copy: the sizes; if they
 * differ, the constant has no value and the result is INVALID. Strides are trusted. A library of PyTorch 2.6 reports
 * neither bytes nor tensors: only the dtype is checked.
 *
 * Constants that are not named: in the active buffer they keep their values. In the inactive buffer parameters keep
 * theirs; other constants that an update may leave out get a copy of the active buffer's value (as in PyTorch, even if
 * the update is partial or user_managed), or keep their own if the active buffer has none. If neither buffer has a
 * value, the update is INVALID. An update is also INVALID if it names, or would copy, a constant that is not a strided
 * tensor because the compile chose its layout (oneDNN's, in a frozen model): PyTorch would copy the wrong number of
 * bytes.
 *
 * Uses the library's function that takes pairs if there is one; otherwise the one that takes a C++ map, for which
 * libaoticache_cxxbridge.so is loaded.
 *
 * Source: AOTInductorModelContainerUpdateConstantBuffer, ...InactiveConstantBuffer, ...UserManagedConstantBuffer,
 * ...ConstantBufferFromCpu, and their forms with Pairs.
 * Returns: OK; INVALID; UNSUPPORTED (the library has no function for it; it is named); LOAD_FAILED (no
 * libaoticache_cxxbridge.so); RUN_FAILED (the library's own message); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_update_constants(aoticache_runner *runner,
                                                                 const aoticache_update_options *options,
                                                                 const AOTInductorConstantMapEntry *pairs,
                                                                 size_t num_pairs, aoticache_error *ret_error);

/* Returns the size in bytes of the blob that holds all constants that are not folded
 * (AOTInductorModelContainerGetConstantsBlobSize).
 * Returns: OK, UNSUPPORTED, RUN_FAILED. */
AOTICACHE_API aoticache_status aoticache_runner_constants_blob_bytes(const aoticache_runner *runner,
                                                                     uint64_t *ret_bytes, aoticache_error *ret_error);
/*
 * Sets all constants of the active buffer from one blob in the library's own layout: the weights file that
 * package_constants_on_disk_format="binary_blob" makes. May be called again with another blob.
 *
 * blob: borrowed for the call. Every container makes a copy, on the CPU too. To share the pages of a file among
 *       processes, let a user-managed update with tensors over its mapping follow (aoticache_package_load() does that).
 *
 * Source: AOTInductorModelUpdateConstantsFromBlob for constants that have no values yet, since it gives constants
 * memory only once; otherwise AOTInductorModelContainerUpdateConstantBuffer.
 * Returns: OK; INVALID (another size; the message has both sizes; or constants of a library without weights got values
 * by name before the first blob, so that their strides in a blob are unknown); UNSUPPORTED; RUN_FAILED; LOAD_FAILED (no
 * libaoticache_cxxbridge.so); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_update_constants_from_blob(aoticache_runner *runner, const void *blob,
                                                                           uint64_t bytes, aoticache_error *ret_error);

/*
 * Folds the constants of a buffer. In the inactive buffer, PyTorch's libraries first replace the constants that tracing
 * made by copies of the active buffer's.
 *
 * options: stream and proxy executor; may be NULL.
 * Source: AOTInductorModelContainerRunConstantFolding. Returns: OK, UNSUPPORTED, INVALID, NO_MEMORY, RUN_FAILED (with
 * the library's own message; or a constant of that buffer has no value, or one that tracing made has none in the active
 * buffer).
 */
AOTICACHE_API aoticache_status aoticache_runner_fold_constants(aoticache_runner *runner, bool inactive,
                                                               const aoticache_run_options *options,
                                                               aoticache_error *ret_error);
/*
 * Swaps the active and the inactive buffer. Runs fail while the active buffer lacks a constant: one that was never
 * updated, or not since the buffer was freed. (PyTorch's libraries would end the process. A library without
 * AOTInductorModelContainerExtractConstantsMapEntries cannot list its constants, and is trusted.)
 * Source: AOTInductorModelContainerSwapConstantBuffer. Returns: OK, UNSUPPORTED, RUN_FAILED.
 */
AOTICACHE_API aoticache_status aoticache_runner_swap_constants(aoticache_runner *runner, aoticache_error *ret_error);
/*
 * Frees the inactive buffer: it has no values until updates give it new ones. A buffer whose constants have been folded
 * keeps its memory, because PyTorch's libraries would end the process at its next update. User-managed memory is not
 * read any more in either case.
 * Source: AOTInductorModelContainerFreeInactiveConstantBuffer. Returns: OK, UNSUPPORTED, RUN_FAILED, LOAD_FAILED (no
 * libaoticache_cxxbridge.so), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_free_inactive_constants(aoticache_runner *runner,
                                                                        aoticache_error *ret_error);

/*
 * tensor: borrowed until that buffer changes. original_fqn: borrowed for the call. Return false to stop. The callback
 * must not use the runner. Other threads' runs leave the fast path meanwhile.
 */
typedef bool (*aoticache_constant_fn)(void *user, const char *original_fqn, AtenTensorHandle tensor);
/*
 * Lists the constants that have a value in a buffer, without folded ones, by original FQN, in the library's order.
 * Source: AOTInductorModelContainerExtractConstantsMapEntries, ...ExtractConstantsMap.
 * Returns: OK, UNSUPPORTED, LOAD_FAILED (no libaoticache_cxxbridge.so), RUN_FAILED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_extract_constants(aoticache_runner *runner, bool inactive,
                                                                  aoticache_constant_fn callback, void *user,
                                                                  aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif

#endif
