/*
 * runtime/kernel: what the author of a kernel library in C writes, and the functions that a kernel may call.
 *
 * A library is one description of a kernel and one macro. The macro exports the AOTInductor interface
 * (torch/csrc/inductor/aoti_runtime/interface.h), so that a host cannot tell the library from one that PyTorch made:
 *
 *     static AOTIRuntimeError run(aoticache_kernel_call *call)
 *     {
 *         const float *x;
 *         float *y;
 *         if (aoticache_kernel_data(call, call->inputs[0], &x) != 0 ||
 *             aoticache_kernel_empty_like(call, 0, call->inputs[0], &y) != 0)
 *             return AOTICACHE_KERNEL_FAILURE;
 *         for (int i = 0; i < 6; i++)
 *             y[i] = x[i] < 0 ? -x[i] : x[i];
 *         return AOTICACHE_KERNEL_OK;
 *     }
 *     static const char *const names[] = {"x"}, *const results[] = {"y"};
 *     static const aoticache_kernel kernel = {.size = sizeof kernel, .device = "cpu", .num_inputs = 1,
 *         .input_names = names, .num_outputs = 1, .output_names = results, .run = run};
 *     AOTICACHE_KERNEL_EXPORT(kernel)
 *
 * Compile with -shared -fPIC -fvisibility=hidden. Link libaoticache_runtime.a and then, after -Wl,--no-as-needed,
 * lib/aoticache/libtorch_cpu.so. The latter is an empty library: with it the kernel library names the provider of its
 * aoti_torch_* functions, which stay undefined until it is loaded.
 *
 * Authors of kernel libraries include <runtime/kernel.h>.
 */
#ifndef AOTICACHE_RUNTIME_KERNEL_H
#define AOTICACHE_RUNTIME_KERNEL_H

#include "base/base.h"
#include "runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AOTICACHE_KERNEL_OK 0
#define AOTICACHE_KERNEL_FAILURE 1

/* Source: torch/csrc/inductor/aoti_runtime/constant_type.h. */
typedef enum aoticache_kernel_constant_type {
    AOTICACHE_KERNEL_CONSTANT_UNKNOWN = 0,
    AOTICACHE_KERNEL_CONSTANT_PARAMETER = 1,
    AOTICACHE_KERNEL_CONSTANT_BUFFER = 2,
    AOTICACHE_KERNEL_CONSTANT_TENSOR = 3,
    AOTICACHE_KERNEL_CONSTANT_FOLDED = 4,
} aoticache_kernel_constant_type;

typedef struct aoticache_kernel_constant {
    const char *name;         /* the library's name for it */
    const char *original_fqn; /* the model's name for it: "layer.0.weight" */
    int32_t dtype;            /* aoticache_dtype */
    int32_t ndim;
    const int64_t *sizes;
    const int64_t *strides; /* in elements; not negative */
    int64_t storage_offset; /* in elements */
    size_t data_size;       /* bytes */
    int32_t type;           /* aoticache_kernel_constant_type */
    bool from_folded;       /* `fold` makes it from the other constants; it has no data of its own */
    const void *data;       /* embedded, and used in place, read only; best aligned to 64 bytes. NULL: none */
} aoticache_kernel_constant;

typedef struct aoticache_kernel aoticache_kernel;

/*
 * Functions that the host provides for plain kernels in place of PyTorch's. They are cheaper: all libraries call the same code, so
 * it stays in the CPU's caches. Each returns 0 or an error code. On an error the kernel calls PyTorch's function, and that
 * function's message is reported.
 */
typedef struct aoticache_kernel_host {
    AOTITorchError (*get_data_ptr)(AtenTensorHandle tensor, void **ret_data);
    /*
     * Makes a new tensor on the CPU, not initialised, and returns the address of its first element. strides: not NULL.
     */
    AOTITorchError (*empty_strided)(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                    AtenTensorHandle *ret_tensor, void **ret_data);
} aoticache_kernel_host;

/* One run. Its pointers are valid during the run. */
typedef struct aoticache_kernel_call {
    const aoticache_kernel *kernel;
    /* num_inputs tensors. They are freed after the run; to take one over, set its element to NULL. */
    AtenTensorHandle *inputs;
    /*
     * num_outputs elements, all NULL at first. A run that succeeds stores a new tensor in each; after a run that fails,
     * the tensors in it are freed. In a fold: num_constants elements, of which those with from_folded are set.
     */
    AtenTensorHandle *outputs;
    /* num_constants tensors, borrowed; do not write to them. In a fold, the constants that the fold makes are NULL. */
    const AtenTensorHandle *constants;
    AOTInductorStreamHandle stream;
    AOTIProxyExecutorHandle proxy_executor;
    int32_t device_index; /* -1: the device has no number, or none was requested */
    int32_t device_type;  /* aoticache_device_type */
    size_t model;         /* differs between concurrent calls; less than the container's num_models, and than 960 */
    const aoticache_kernel_host *host; /* NULL: none, as for runs in the container */
} aoticache_kernel_call;

/*
 * Runs the kernel. Returns AOTICACHE_KERNEL_OK; any other status is a failure, which should set a message with
 * aoticache_kernel_fail(). Called from many threads at the same time. Gradient mode is off during the call.
 */
typedef AOTIRuntimeError (*aoticache_kernel_run_fn)(aoticache_kernel_call *call);

/*
 * Runs the kernel on descriptors (AOTInductorModelRunMinimalArrayrefInterfaceV2). call->inputs and call->outputs are
 * NULL. The caller owns all memory; the kernel writes into the outputs' memory.
 */
typedef AOTIRuntimeError (*aoticache_kernel_run_arrayref_fn)(aoticache_kernel_call *call,
                                                             const AOTInductorArrayRefTensor *inputs,
                                                             AOTInductorArrayRefTensor *outputs);

/*
 * Says where the library finds the data of constants that are not folded and have no `data`. The last three have a
 * blob: the data of all constants that are not folded, in order. Each constant begins at the next multiple of 64 bytes,
 * and the end is padded to such a multiple.
 */
typedef enum aoticache_kernel_weights {
    AOTICACHE_KERNEL_WEIGHTS_EMBEDDED = 0, /* nowhere: an update must give them */
    AOTICACHE_KERNEL_WEIGHTS_APPENDED = 1, /* a blob at the end of the library file (scripts/append-weights) */
    AOTICACHE_KERNEL_WEIGHTS_FILE = 2,     /* a blob in the file `weights_file` */
    AOTICACHE_KERNEL_WEIGHTS_HOST = 3,     /* a blob in the host's memory, AOTInductorModelUpdateConstantsFromBlob */
} aoticache_kernel_weights;

/* The description: static, const, and valid as long as the library is loaded. */
struct aoticache_kernel {
    size_t size;        /* sizeof(aoticache_kernel) */
    const char *device; /* "cpu" or "cuda" */
    size_t num_inputs;
    const char *const *input_names;
    size_t num_outputs;
    const char *const *output_names;
    size_t num_constants;
    const aoticache_kernel_constant *constants;
    const char *in_spec; /* the call specification in PyTorch's form; NULL: "" */
    const char *out_spec;
    aoticache_kernel_run_fn run;
    /* Makes the constants with from_folded: before the first run, and before the first run after each update. */
    aoticache_kernel_run_fn fold;
    void *user;                                    /* for the author's use, as call->kernel->user */
    int32_t weights;                               /* aoticache_kernel_weights */
    const char *weights_file;                      /* a file name, searched in cubin_dir, then next to the library */
    aoticache_kernel_run_arrayref_fn run_arrayref; /* NULL: none */
    /*
     * A host may call `run` without the container, concurrently and from any thread. The author promises that `run`
     * takes no input over, keeps nothing between calls, does not read call->model, and calls nothing that depends on
     * the gradient mode (the functions of this header do not). Only a kernel on the CPU without constants is called in
     * this way.
     */
    bool plain;
};

/* Sets the message that AOTInductorGetLastError() returns on this thread. Returns AOTICACHE_KERNEL_FAILURE. */
AOTIRuntimeError aoticache_kernel_fail(aoticache_kernel_call *call, const char *format, ...) AOTICACHE_PRINTF(2, 3);

/*
 * Sets the message after an aoti_torch_* function failed: "WHAT failed", with the message of PyTorch or the shim if it
 * has one.
 */
AOTIRuntimeError aoticache_kernel_fail_torch(aoticache_kernel_call *call, const char *what);

/* ---- reading tensors ---- */

/* The properties of a tensor; pointers are borrowed from it. */
typedef struct aoticache_kernel_tensor {
    void *data; /* address of the first element, the storage offset included */
    int32_t dtype;
    int64_t ndim;
    int64_t numel;
    const int64_t *sizes;
    const int64_t *strides; /* in elements */
} aoticache_kernel_tensor;

AOTIRuntimeError aoticache_kernel_get_tensor(aoticache_kernel_call *call, AtenTensorHandle tensor,
                                             aoticache_kernel_tensor *ret_tensor);

/*
 * Checks that an input is what the kernel was made for: dtype, number of dimensions, sizes, strides. The stride of a
 * dimension with one element does not count, nor does any stride of a tensor without elements. strides: NULL to accept
 * all. The message of a failure names the input and both sides.
 */
AOTIRuntimeError aoticache_kernel_check_input(aoticache_kernel_call *call, size_t position, int32_t dtype, int64_t ndim,
                                              const int64_t *sizes, const int64_t *strides);

/* Returns the address of a tensor's first element. ret_data: the address of a pointer of any type. */
static inline AOTIRuntimeError aoticache_kernel_data_of(aoticache_kernel_call *call, AtenTensorHandle tensor,
                                                        void **ret_data)
{
    if (call->host != NULL && call->host->get_data_ptr(tensor, ret_data) == 0)
        return AOTICACHE_KERNEL_OK;
    if (aoti_torch_get_data_ptr(tensor, ret_data) == 0)
        return AOTICACHE_KERNEL_OK;
    return aoticache_kernel_fail_torch(call, "aoti_torch_get_data_ptr");
}
#define aoticache_kernel_data(call, tensor, ret_data) aoticache_kernel_data_of(call, tensor, (void **)(ret_data))

/* ---- making outputs ---- */

/*
 * Makes a new tensor, not initialised, as output `position`. strides: NULL for contiguous. ret_data: the address of a
 * pointer of any type; may be NULL.
 */
AOTIRuntimeError aoticache_kernel_empty_strided(aoticache_kernel_call *call, size_t position, int32_t dtype,
                                                int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                                void **ret_data);
/* Makes the same with the host's function if there is one and strides are given. */
static inline AOTIRuntimeError aoticache_kernel_empty_by_host(aoticache_kernel_call *call, size_t position,
                                                              int32_t dtype, int64_t ndim, const int64_t *sizes,
                                                              const int64_t *strides, void **ret_data)
{
    void *data;
    if (call->host == NULL || strides == NULL || call->outputs[position] != NULL ||
        call->host->empty_strided(ndim, sizes, strides, dtype, &call->outputs[position],
                                  ret_data != NULL ? ret_data : &data) != 0)
        return aoticache_kernel_empty_strided(call, position, dtype, ndim, sizes, strides, ret_data);
    return AOTICACHE_KERNEL_OK;
}
#define aoticache_kernel_empty(call, position, dtype, ndim, sizes, strides, ret_data) \
    aoticache_kernel_empty_by_host(call, position, dtype, ndim, sizes, strides, (void **)(ret_data))

/* Makes the same with dtype, sizes and strides of another tensor. */
AOTIRuntimeError aoticache_kernel_empty_as(aoticache_kernel_call *call, size_t position, AtenTensorHandle like,
                                           void **ret_data);
#define aoticache_kernel_empty_like(call, position, like, ret_data) \
    aoticache_kernel_empty_as(call, position, like, (void **)(ret_data))

/* ---- exporting ---- */

/* Returns the description. The macro defines it, and the runtime calls it. */
__attribute__((visibility("hidden"))) const aoticache_kernel *aoticache_kernel_described(void);
/* References to the objects with the exported functions, so that linking the macro's object links them all. */
typedef void (*aoticache_kernel_any_fn)(void);
__attribute__((visibility("hidden"))) extern const aoticache_kernel_any_fn aoticache_kernel_interface[];
/* The same for a kernel on the CPU whose weights are embedded or come from the host. */
__attribute__((visibility("hidden"))) extern const aoticache_kernel_any_fn aoticache_kernel_core[];

/*
 * Returns the description if the container's kernel is plain, has no constants and runs on the CPU; otherwise NULL.
 * Valid as long as the container. Every library exports it, for hosts that know this header. The number in the name
 * changes with the layout of aoticache_kernel_call.
 */
AOTICACHE_ABI_EXPORT const aoticache_kernel *aoticache_plain_kernel_v3(AOTInductorModelContainerHandle container);

#ifdef __cplusplus
#define AOTICACHE_KERNEL_EXTERN extern "C"
#else
#define AOTICACHE_KERNEL_EXTERN
#endif

/* Write this once in a library, at file scope, with the name of its aoticache_kernel. It needs no semicolon. */
#define AOTICACHE_KERNEL_EXPORT(description)                                                    \
    AOTICACHE_KERNEL_EXTERN const aoticache_kernel *aoticache_kernel_described(void)            \
    {                                                                                           \
        return &(description);                                                                  \
    }                                                                                           \
    __attribute__((used)) static const aoticache_kernel_any_fn *const aoticache_kernel_linked = \
        aoticache_kernel_interface;

#ifdef __cplusplus
}
#endif
#endif
