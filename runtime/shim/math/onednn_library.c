/*
 * shim/math/onednn_library: finds the machine's oneDNN, and hides the differences between its versions 2 and 3.
 *
 * The library is never linked. It is loaded, once, by the first convolution or matrix multiplication large enough to
 * gain from it, with local symbols, as BLAS is (blas.c): they do not collide with those of PyTorch, which contains a
 * oneDNN. Loading it takes 1.3 milliseconds and 5 megabytes. Without it the shim's own C code does the work.
 *
 * Its threads must be those of the process's OpenMP runtime (threads.c), or it must have none: a build with another
 * runtime is not used, because a second thread pool would compete for the same processors.
 */
#include "runtime/shim/math/onednn.h"

#include "base/process/fork_guard.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Names separated by spaces, the first that exists is used; empty: the shim uses none. */
#ifndef AOTICACHE_ONEDNN_LIBRARIES
#define AOTICACHE_ONEDNN_LIBRARIES ""
#endif

enum { ENGINE_CPU = 1 };
enum { RUNTIME_SEQUENTIAL = 1, RUNTIME_OPENMP = 2 }; /* DNNL_RUNTIME_SEQ, DNNL_RUNTIME_OMP */

/*
 * In version 2 descriptors are structs that the caller allocates and its functions fill in: 696 bytes for a memory
 * descriptor, 5976 for a convolution's in 2.6. These sizes are more than any release of it needs.
 */
enum { MEMORY_DESC_BYTES = 696, MEMORY_DESC_ROOM = 1024, OPERATION_DESC_ROOM = 32768 };

struct version { /* the beginning of dnnl_version_t, the same in versions 2 and 3 */
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime;
};

static struct onednn_library onednn;
static bool is_usable, has_threads;

/* Functions of one version; the other's are NULL. */
static struct {
    int (*memory_desc_init_by_strides)(void *descriptor, int ndim, const int64_t *sizes, int dtype,
                                       const int64_t *strides);
    int (*memory_desc_init_by_tag)(void *descriptor, int ndim, const int64_t *sizes, int dtype, int tag);
    int (*convolution_init)(void *operation, int propagation, int algorithm, const void *source, const void *weights,
                            const void *bias, const void *destination, const int64_t *stride, const int64_t *dilation,
                            const int64_t *padding, const int64_t *padding_end);
    int (*deconvolution_init)(void *operation, int propagation, int algorithm, const void *source, const void *weights,
                              const void *bias, const void *destination, const int64_t *stride, const int64_t *dilation,
                              const int64_t *padding, const int64_t *padding_end);
    int (*matmul_init)(void *operation, const void *a, const void *b, const void *bias, const void *out);
    int (*primitive_desc_create)(void **ret, const void *operation, const void *attributes, void *engine,
                                 const void *hint);
    int (*post_ops_append_eltwise)(void *post_ops, float scale, int algorithm, float alpha, float beta);
    int (*post_ops_append_sum)(void *post_ops, float scale);
} v2;

static struct {
    int (*memory_desc_create_with_strides)(void **ret, int ndim, const int64_t *sizes, int dtype,
                                           const int64_t *strides);
    int (*memory_desc_create_with_tag)(void **ret, int ndim, const int64_t *sizes, int dtype, int tag);
    int (*memory_desc_clone)(void **ret, const void *descriptor);
    int (*memory_desc_destroy)(void *descriptor);
    int (*convolution_create)(void **ret, void *engine, int propagation, int algorithm, const void *source,
                              const void *weights, const void *bias, const void *destination, const int64_t *stride,
                              const int64_t *dilation, const int64_t *padding, const int64_t *padding_end,
                              const void *attributes);
    int (*deconvolution_create)(void **ret, void *engine, int propagation, int algorithm, const void *source,
                                const void *weights, const void *bias, const void *destination, const int64_t *stride,
                                const int64_t *dilation, const int64_t *padding, const int64_t *padding_end,
                                const void *attributes);
    int (*matmul_create)(void **ret, void *engine, const void *a, const void *b, const void *bias, const void *out,
                         const void *attributes);
    int (*post_ops_append_eltwise)(void *post_ops, int algorithm, float alpha, float beta);
    int (*post_ops_append_sum)(void *post_ops, float scale, int32_t zero_point, int dtype);
} v3;

struct function {
    const char *name;
    void *place;
};

/* clang-format off */
static const struct function common_functions[] = {
    {"dnnl_engine_create", &onednn.engine_create},
    {"dnnl_stream_create", &onednn.stream_create},
    {"dnnl_stream_wait", &onednn.stream_wait},
    {"dnnl_stream_destroy", &onednn.stream_destroy},
    {"dnnl_memory_create", &onednn.memory_create},
    {"dnnl_memory_destroy", &onednn.memory_destroy},
    {"dnnl_memory_desc_get_size", &onednn.memory_desc_get_size},
    {"dnnl_memory_desc_equal", &onednn.memory_desc_equal},
    {"dnnl_primitive_attr_create", &onednn.primitive_attr_create},
    {"dnnl_primitive_attr_destroy", &onednn.primitive_attr_destroy},
    {"dnnl_primitive_attr_set_scratchpad_mode", &onednn.primitive_attr_set_scratchpad_mode},
    {"dnnl_primitive_attr_set_post_ops", &onednn.primitive_attr_set_post_ops},
    {"dnnl_post_ops_create", &onednn.post_ops_create},
    {"dnnl_post_ops_destroy", &onednn.post_ops_destroy},
    {"dnnl_reorder_primitive_desc_create", &onednn.reorder_primitive_desc_create},
    {"dnnl_primitive_desc_query", &onednn.primitive_desc_query},
    {"dnnl_primitive_desc_query_md", &onednn.primitive_desc_query_md},
    {"dnnl_primitive_desc_destroy", &onednn.primitive_desc_destroy},
    {"dnnl_primitive_create", &onednn.primitive_create},
    {"dnnl_primitive_destroy", &onednn.primitive_destroy},
    {"dnnl_primitive_execute", &onednn.primitive_execute},
    {"dnnl_sgemm", &onednn.sgemm},
};

static const struct function v2_functions[] = {
    {"dnnl_memory_desc_init_by_strides", &v2.memory_desc_init_by_strides},
    {"dnnl_memory_desc_init_by_tag", &v2.memory_desc_init_by_tag},
    {"dnnl_dilated_convolution_forward_desc_init", &v2.convolution_init},
    {"dnnl_dilated_deconvolution_forward_desc_init", &v2.deconvolution_init},
    {"dnnl_matmul_desc_init", &v2.matmul_init},
    {"dnnl_primitive_desc_create", &v2.primitive_desc_create},
    {"dnnl_post_ops_append_eltwise", &v2.post_ops_append_eltwise},
    {"dnnl_post_ops_append_sum", &v2.post_ops_append_sum},
};

static const struct function v3_functions[] = {
    {"dnnl_memory_desc_create_with_strides", &v3.memory_desc_create_with_strides},
    {"dnnl_memory_desc_create_with_tag", &v3.memory_desc_create_with_tag},
    {"dnnl_memory_desc_clone", &v3.memory_desc_clone},
    {"dnnl_memory_desc_destroy", &v3.memory_desc_destroy},
    {"dnnl_convolution_forward_primitive_desc_create", &v3.convolution_create},
    {"dnnl_deconvolution_forward_primitive_desc_create", &v3.deconvolution_create},
    {"dnnl_matmul_primitive_desc_create", &v3.matmul_create},
    {"dnnl_post_ops_append_eltwise", &v3.post_ops_append_eltwise},
    {"dnnl_post_ops_append_sum", &v3.post_ops_append_sum},
};
/* clang-format on */

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool bind_functions(void *library, const struct function *functions, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, functions[i].name);
        if (symbol == NULL)
            return false;
        memcpy(functions[i].place, &symbol, sizeof symbol);
    }
    return true;
}

/* Returns whether its threads, if it has any, are those of the process's OpenMP runtime. */
static bool has_right_threads(void *library, unsigned runtime)
{
    has_threads = runtime != RUNTIME_SEQUENTIAL;
    return runtime == RUNTIME_SEQUENTIAL || (runtime == RUNTIME_OPENMP && aoticache_shim_is_openmp_of(library));
}

static bool bind_library(void *library)
{
    void *symbol = dlsym(library, "dnnl_version");
    const struct version *(*get_version)(void);
    memcpy(&get_version, &symbol, sizeof get_version);
    if (symbol == NULL || !bind_functions(library, common_functions, COUNT(common_functions)))
        return false;
    const struct version *version = get_version();
    onednn.version = version->major;
    if (version->major == 2 ? !bind_functions(library, v2_functions, COUNT(v2_functions))
                            : version->major != 3 || !bind_functions(library, v3_functions, COUNT(v3_functions)))
        return false;
    return has_right_threads(library, version->cpu_runtime) && onednn.engine_create(&onednn.engine, ENGINE_CPU, 0) == 0;
}

static void load_library(void)
{
    char names[] = AOTICACHE_ONEDNN_LIBRARIES, *rest = names;
    (void)aoticache_shim_has_threads(); /* takes the fork guard itself */
    aoticache_fork_guard_enter();
    for (char *name; !is_usable && (name = strsep(&rest, " ")) != NULL;) {
        void *library = name[0] != '\0' ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library == NULL)
            continue;
        is_usable = bind_library(library);
        if (!is_usable)
            dlclose(library);
    }
    aoticache_fork_guard_leave();
}

const struct onednn_library *aoticache_shim_onednn(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_library);
    return is_usable && !(has_threads && aoticache_shim_is_forked()) ? &onednn : NULL;
}

/* ---- memory descriptors ---- */

void *aoticache_shim_onednn_describe(int ndim, const int64_t *sizes, int type, const int64_t *strides)
{
    void *descriptor = NULL;
    int status;
    if (onednn.version == 2) {
        descriptor = calloc(1, MEMORY_DESC_ROOM);
        if (descriptor == NULL)
            return NULL;
        status = strides != NULL ? v2.memory_desc_init_by_strides(descriptor, ndim, sizes, type, strides)
                                 : v2.memory_desc_init_by_tag(descriptor, ndim, sizes, type, ONEDNN_TAG_ANY);
    } else {
        status = strides != NULL ? v3.memory_desc_create_with_strides(&descriptor, ndim, sizes, type, strides)
                                 : v3.memory_desc_create_with_tag(&descriptor, ndim, sizes, type, ONEDNN_TAG_ANY);
    }
    if (status == 0)
        return descriptor;
    if (onednn.version == 2)
        free(descriptor);
    return NULL;
}

void *aoticache_shim_onednn_describe_same(const void *descriptor)
{
    void *same = NULL;
    if (onednn.version != 2)
        return v3.memory_desc_clone(&same, descriptor) == 0 ? same : NULL;
    same = calloc(1, MEMORY_DESC_ROOM);
    return same != NULL ? memcpy(same, descriptor, MEMORY_DESC_BYTES) : NULL;
}

void aoticache_shim_onednn_describe_free(void *descriptor)
{
    if (descriptor == NULL)
        return;
    if (onednn.version == 2)
        free(descriptor);
    else
        v3.memory_desc_destroy(descriptor);
}

/* ---- operations ---- */

/* Makes a primitive descriptor in version 2, in which operations are structs, too; frees `operation`. */
static bool describe_v2(void *operation, int status, const void *attributes, void **ret_primitive_desc)
{
    if (status == 0)
        status = v2.primitive_desc_create(ret_primitive_desc, operation, attributes, onednn.engine, NULL);
    free(operation);
    return status == 0;
}

static bool describe_convolution_v2(const struct onednn_convolution *c, void **ret_primitive_desc)
{
    void *operation = calloc(1, OPERATION_DESC_ROOM);
    if (operation == NULL)
        return false;
    int status = (c->transposed ? v2.deconvolution_init : v2.convolution_init)(
        operation, ONEDNN_INFERENCE, c->transposed ? ONEDNN_DECONVOLUTION_DIRECT : ONEDNN_CONVOLUTION_DIRECT, c->source,
        c->weights, c->bias, c->destination, c->stride, c->dilation, c->padding, c->padding_end);
    return describe_v2(operation, status, c->attributes, ret_primitive_desc);
}

bool aoticache_shim_onednn_describe_matmul(const void *a, const void *b, const void *bias, const void *out,
                                           const void *attributes, void **ret_primitive_desc)
{
    if (onednn.version != 2)
        return v3.matmul_create(ret_primitive_desc, onednn.engine, a, b, bias, out, attributes) == 0;
    void *operation = calloc(1, OPERATION_DESC_ROOM);
    return operation != NULL &&
           describe_v2(operation, v2.matmul_init(operation, a, b, bias, out), attributes, ret_primitive_desc);
}

bool aoticache_shim_onednn_describe_convolution(const struct onednn_convolution *c, void **ret_primitive_desc)
{
    if (onednn.version == 2)
        return describe_convolution_v2(c, ret_primitive_desc);
    return (c->transposed ? v3.deconvolution_create : v3.convolution_create)(
               ret_primitive_desc, onednn.engine, ONEDNN_INFERENCE,
               c->transposed ? ONEDNN_DECONVOLUTION_DIRECT : ONEDNN_CONVOLUTION_DIRECT, c->source, c->weights, c->bias,
               c->destination, c->stride, c->dilation, c->padding, c->padding_end, c->attributes) == 0;
}

/* Finds the dnnl_alg_kind_t of an elementwise function, and its factors. */
static bool find_unary(const struct shim_unary *unary, int *ret_algorithm, float *ret_alpha, float *ret_beta)
{
    bool old = onednn.version == 2;
    *ret_alpha = *ret_beta = 0;
    switch (unary->kind) {
    case SHIM_UNARY_RELU:
        *ret_algorithm = old ? 0x1f : 0x20;
        return true;
    case SHIM_UNARY_LEAKY_RELU:
        *ret_algorithm = old ? 0x1f : 0x20;
        *ret_alpha = (float)unary->scalars[0];
        return true;
    case SHIM_UNARY_SWISH:
        *ret_algorithm = old ? 0xdf : 0x2c;
        *ret_alpha = 1;
        return true;
    case SHIM_UNARY_HARDSWISH: /* version 3 has the factors of x * clamp(x / 6 + 1 / 2, 0, 1) */
        *ret_algorithm = old ? 0x70 : 0x34;
        *ret_alpha = old ? 0 : 1.0F / 6;
        *ret_beta = old ? 0 : 0.5F;
        return true;
    default:
        return false;
    }
}

bool aoticache_shim_onednn_has_unary(const struct shim_unary *unary)
{
    int algorithm;
    float alpha, beta;
    return unary->kind == SHIM_UNARY_NONE || find_unary(unary, &algorithm, &alpha, &beta);
}

bool aoticache_shim_onednn_append_unary(void *post_ops, const struct shim_unary *unary)
{
    int algorithm;
    float alpha, beta;
    if (!find_unary(unary, &algorithm, &alpha, &beta))
        return false;
    return (onednn.version == 2 ? v2.post_ops_append_eltwise(post_ops, 1, algorithm, alpha, beta)
                                : v3.post_ops_append_eltwise(post_ops, algorithm, alpha, beta)) == 0;
}

bool aoticache_shim_onednn_append_sum(void *post_ops)
{
    return (onednn.version == 2 ? v2.post_ops_append_sum(post_ops, 1)
                                : v3.post_ops_append_sum(post_ops, 1, 0, ONEDNN_FLOAT32)) == 0;
}
