/*
 * shim/tensors/tensor: what a tensor is in a process without PyTorch.
 *
 * As in PyTorch there are three levels: the handle (one owner's reference, AtenTensorHandle), the tensor that handles
 * share (dtype, sizes, strides, offset), and the storage that tensors share (memory). aoti_torch_new_tensor_handle()
 * shares the tensor; a view shares the storage; aoti_torch_assign_tensors() makes a handle point to another tensor.
 *
 * Thread safety: a tensor and its storage may be used and dropped from any thread; only one thread at a time may use a
 * handle, or change a tensor's data.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_TENSOR_H
#define AOTICACHE_RUNTIME_SHIM_TENSOR_H

#include "base/base.h"
#include "runtime/abi.h"
#include "runtime/shim/tensors/free_lists.h"

#include <stdatomic.h>

/*
 * ---- failures (failure.c) ----
 *
 * The interface returns only a status; the text is stored for the calling thread, for
 * torch_exception_get_what_without_backtrace().
 */

enum { SHIM_SUCCESS = 0, SHIM_FAILURE = 1 };

#define SHIM_MESSAGE_BYTES 512

/* Stores the text and returns SHIM_FAILURE, so that a failure is one statement. */
AOTITorchError aoticache_shim_fail(const char *format, ...) AOTICACHE_PRINTF(1, 2) __attribute__((cold));

/* Fails with "function: out of memory for BYTES bytes". */
AOTITorchError aoticache_shim_fail_memory(const char *function, size_t bytes) __attribute__((cold));

/* Returns the dtype's name, or "dtype 99" written to `buffer`. */
#define SHIM_DTYPE_TEXT_BYTES 32
const char *aoticache_shim_dtype_text(int32_t dtype, char buffer[SHIM_DTYPE_TEXT_BYTES]);

/* ---- handles, tensors, storages ---- */

#define SHIM_MAX_NDIM 64
#define SHIM_INLINE_NDIM 8
#define SHIM_STORAGE_HEADER_BYTES 64

typedef void (*shim_deleter)(void *data, void *context);

struct shim_storage {
    _Atomic uint32_t refs;
    uint32_t list; /* enum shim_free_list: where the block came from */
    void *data;
    size_t bytes;
    shim_deleter deleter; /* NULL: the data is part of this block, or borrowed */
    void *context;
    size_t block_bytes; /* size of a large block */
};

/*
 * Data of a tensor in oneDNN's layout (packed.c). Its elements never change, so an operator may keep a copy in another
 * form.
 */
struct shim_packed {
    _Atomic(void *) prepared;              /* NULL until an operator sets it, once */
    void (*_Atomic free_prepared)(void *); /* set earlier; identifies the operator */
};

/* Returns whether an operator, whose copies `free_prepared` frees, may keep a copy: false if another operator does. */
bool aoticache_shim_packed_claim(struct shim_packed *packed, void (*free_prepared)(void *));
/* Stores a copy, after a claim, and returns the stored one: another thread's if that was first. */
void *aoticache_shim_packed_keep(struct shim_packed *packed, void *made);
/* Frees the copy. No other thread may be using the weight. */
void aoticache_shim_packed_clear(struct shim_packed *packed);

struct shim_tensor {
    _Atomic uint32_t refs;
    int32_t dtype;
    int32_t ndim;
    uint32_t item_bytes;
    int64_t numel;
    int64_t offset; /* position of the first element in the storage, in elements */
    void *data;     /* address of the first element; NULL if there is none */
    struct shim_storage *storage;
    struct shim_packed *packed; /* for a weight in oneDNN's layout; otherwise NULL */
    int64_t *sizes;             /* sizes and strides: inline_dims, or one block of 2 * ndim numbers */
    int64_t *strides;
    int64_t inline_dims[2 * SHIM_INLINE_NDIM];
};

struct AtenTensorOpaque {
    struct shim_tensor *tensor; /* NULL: undefined */
};

_Static_assert(sizeof(struct shim_storage) <= SHIM_STORAGE_HEADER_BYTES, "the data begins after the header");
_Static_assert(sizeof(struct shim_tensor) <= 256, "the free lists' blocks hold a tensor");

/* ---- shapes (shape.c): checked arithmetic over untrusted numbers ---- */

struct shim_extent {
    int64_t numel;
    size_t storage_bytes; /* bytes of a storage for all elements, the offset included */
};

/*
 * Checks a shape and measures it: ndim in 0..64, nothing negative, nothing that overflows. Messages begin with
 * `function`.
 */
AOTITorchError aoticache_shim_measure(const char *function, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                      int64_t offset, size_t item_bytes, struct shim_extent *ret_extent);
bool aoticache_shim_is_contiguous(const struct shim_tensor *tensor);
/* Returns whether the elements fill a range of memory without gaps, each once, in any order of dimensions. */
bool aoticache_shim_is_dense(const struct shim_tensor *tensor);
/* Returns the bytes from the first element to the end of the last. */
size_t aoticache_shim_span_bytes(const struct shim_tensor *tensor);
/*
 * Returns whether both tensors have no gaps and share bytes. With gaps this is slow to find out, and PyTorch does not
 * check it.
 */
bool aoticache_shim_overlap(const struct shim_tensor *a, const struct shim_tensor *b);
/* Computes strides without gaps in the tensor's order of dimensions, as a clone has them. */
void aoticache_shim_dense_strides(const struct shim_tensor *tensor, int64_t ret_strides[SHIM_MAX_NDIM]);

/* Returns the bytes of one element; 0: not a dtype. */
static inline uint32_t shim_item_bytes(int32_t dtype)
{
    static const uint8_t bytes[] = {
#define SHIM_DTYPE_BYTES(upper, lower, number, item_bytes) [number] = item_bytes,
        AOTICACHE_DTYPE_LIST(SHIM_DTYPE_BYTES)
#undef SHIM_DTYPE_BYTES
    };
    return (uint32_t)dtype < sizeof bytes ? bytes[dtype] : 0;
}

/* ---- storages (tensor.c) ---- */

/* ---- tensors (tensor.c) ---- */

/* Makes a view of `tensor`'s storage; fails if it would leave the storage. */
AOTITorchError aoticache_shim_tensor_view(const char *function, const struct shim_tensor *tensor, int32_t dtype,
                                          int64_t ndim, const int64_t *sizes, const int64_t *strides, int64_t offset,
                                          AtenTensorHandle *ret_handle);
/* Fails unless dtype, device (the CPU) and layout (strided) are valid. */
AOTITorchError aoticache_shim_check_options(const char *function, int32_t dtype, int32_t device_type);
AOTITorchError aoticache_shim_check_layout(const char *function, int32_t layout);

/* Makes a tensor of fresh memory. */
AOTITorchError aoticache_shim_tensor_empty(const char *function, int64_t ndim, const int64_t *sizes,
                                           const int64_t *strides, int32_t dtype, AtenTensorHandle *ret_handle);

/* Returns whether the handle belongs to a defined tensor; the message names `function`. */
static inline bool shim_is_defined(AtenTensorHandle handle)
{
    return handle != NULL && handle->tensor != NULL;
}
AOTITorchError aoticache_shim_fail_undefined(const char *function, AtenTensorHandle handle) __attribute__((cold));

#define SHIM_CHECK_TENSOR(handle)                                   \
    do {                                                            \
        if (__builtin_expect(!shim_is_defined(handle), 0))          \
            return aoticache_shim_fail_undefined(__func__, handle); \
    } while (0)

#define SHIM_CHECK_RESULT(pointer)                                            \
    do {                                                                      \
        if (__builtin_expect((pointer) == NULL, 0))                           \
            return aoticache_shim_fail("%s: %s is NULL", __func__, #pointer); \
    } while (0)

/* ---- reference counts ---- */

#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define SHIM_SINGLE_THREADED __libc_single_threaded
#endif
#endif
#ifndef SHIM_SINGLE_THREADED
#define SHIM_SINGLE_THREADED 0
#endif

static inline void shim_ref(_Atomic uint32_t *refs)
{
    /* A locked addition costs as much as the rest of the function; a process with one thread does not need it. */
    if (SHIM_SINGLE_THREADED)
        atomic_store_explicit(refs, atomic_load_explicit(refs, memory_order_relaxed) + 1, memory_order_relaxed);
    else
        atomic_fetch_add_explicit(refs, 1, memory_order_relaxed);
}

/*
 * Drops a reference; returns whether it was the last. No other thread can add a reference while the caller holds the
 * only one.
 */
static inline bool shim_unref(_Atomic uint32_t *refs)
{
    uint32_t count = atomic_load_explicit(refs, memory_order_acquire);
    if (count == 1)
        return true;
    if (SHIM_SINGLE_THREADED) {
        atomic_store_explicit(refs, count - 1, memory_order_relaxed);
        return false;
    }
    return atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}

#endif
