/*
 * shim/tensors/elements: what operators that walk over elements share: copying a tensor's elements in order and in a
 * dtype that is easy to compute with, lanes along one dimension, making and resizing results.
 *
 * An operator reads its operands through aoticache_shim_read(), computes on plain arrays, and writes through
 * aoti_torch_copy_(); so strides, dtypes and broadcasting are handled only there.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_ELEMENTS_H
#define AOTICACHE_RUNTIME_SHIM_ELEMENTS_H

#include "runtime/shim/tensors/tensor.h"

/* Drops a handle when it goes out of scope; NULL is allowed. */
void aoticache_shim_handle_cleanup(AtenTensorHandle *handle);
#define cleanup_tensor __attribute__((cleanup(aoticache_shim_handle_cleanup)))

static inline AtenTensorHandle shim_steal(AtenTensorHandle *handle)
{
    AtenTensorHandle stolen = *handle;
    *handle = NULL;
    return stolen;
}

bool aoticache_shim_is_complex(int32_t dtype);
bool aoticache_shim_is_floating(int32_t dtype);
/* Returns true for integers and bool. */
bool aoticache_shim_is_integral(int32_t dtype);
/* Returns the dtype for computing with elements of `dtype`: int64, float64 or complex128. */
int32_t aoticache_shim_work_dtype(int32_t dtype);
AOTITorchError aoticache_shim_fail_dtype(const char *function, int32_t dtype) __attribute__((cold));

/* Makes a contiguous tensor of fresh memory. */
AOTITorchError aoticache_shim_make(const char *function, int64_t ndim, const int64_t *sizes, int32_t dtype,
                                   AtenTensorHandle *ret_tensor);
/*
 * Makes a tensor of fresh memory with the sizes of `tensor` and the order of its dimensions, like PyTorch's empty_like.
 */
AOTITorchError aoticache_shim_make_like(const char *function, AtenTensorHandle tensor, int32_t dtype,
                                        AtenTensorHandle *ret_tensor);
/* Returns the elements of `tensor` as `dtype`, contiguous: the tensor itself if it is so already. Read only. */
AOTITorchError aoticache_shim_read(const char *function, AtenTensorHandle tensor, int32_t dtype,
                                   AtenTensorHandle *ret_tensor);
/* Returns the same as a copy that may be written. */
AOTITorchError aoticache_shim_read_copy(const char *function, AtenTensorHandle tensor, int32_t dtype,
                                        AtenTensorHandle *ret_tensor);

/* Returns the handle of an optional argument, which is NULL or a pointer to a handle. */
static inline AtenTensorHandle shim_optional(const AtenTensorHandle *argument)
{
    return argument != NULL ? *argument : NULL;
}

/* Resolves a dimension; a negative one counts from the end. */
AOTITorchError aoticache_shim_wrap_dimension(const char *function, int64_t ndim, int64_t dim, int *ret_dim);

/* A contiguous tensor as lanes along one dimension. */
struct shim_lanes {
    int64_t outer, length, inner;
};
struct shim_lanes aoticache_shim_lanes(const struct shim_tensor *tensor, int dim);

/* Finds the sizes that both tensors are broadcast to. */
AOTITorchError aoticache_shim_broadcast(const char *function, const struct shim_tensor *a, const struct shim_tensor *b,
                                        int *ret_ndim, int64_t ret_sizes[SHIM_MAX_NDIM]);
bool aoticache_shim_same_sizes(const struct shim_tensor *a, const struct shim_tensor *b);

/*
 * Gives a tensor new sizes in place, contiguous; its storage grows if it is too small. Tensors that shared the storage
 * then keep the old one.
 */
AOTITorchError aoticache_shim_resize(const char *function, AtenTensorHandle tensor, int64_t ndim, const int64_t *sizes);
/* Copies source to out, which is resized first if its sizes differ. */
AOTITorchError aoticache_shim_write_out(const char *function, AtenTensorHandle out, AtenTensorHandle source);

#define SHIM_TRY(call)              \
    do {                            \
        if ((call) != SHIM_SUCCESS) \
            return SHIM_FAILURE;    \
    } while (0)

#endif
