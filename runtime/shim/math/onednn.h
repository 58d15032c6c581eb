/*
 * shim/math/onednn: oneDNN, if the machine has it. onednn_library.c finds the library and hides the differences between
 * its versions 2 and 3; onednn_primitives.c caches primitives, onednn_convolution.c has the convolutions,
 * onednn_matmul.c matrix multiplication of bfloat16, blas.c that of float.
 *
 * Private to runtime/shim/math/. oneDNN's headers are not needed to build: the few functions and numbers of its C
 * interface that are used are declared here.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_ONEDNN_H
#define AOTICACHE_RUNTIME_SHIM_MATH_ONEDNN_H

#include "runtime/shim/math/math_internal.h"

#include <stdatomic.h>
#include <stddef.h>

/* Dimensions of a memory descriptor; of a convolution's weight: groups, outputs, inputs, three of the kernel. */
enum { ONEDNN_MAX_NDIM = 12 };

/* dnnl_data_type_t, dnnl_format_tag_t, dnnl_prop_kind_t, dnnl_alg_kind_t: the same numbers in versions 2 and 3. */
enum { ONEDNN_BFLOAT16 = 2, ONEDNN_FLOAT32 = 3, ONEDNN_INT32 = 4, ONEDNN_INT8 = 5, ONEDNN_UINT8 = 6 };
enum { ONEDNN_TAG_ANY = 1, ONEDNN_INFERENCE = 96 };
enum { ONEDNN_CONVOLUTION_DIRECT = 0x1, ONEDNN_DECONVOLUTION_DIRECT = 0xa };

/* dnnl_query_t. */
enum {
    ONEDNN_QUERY_IMPLEMENTATION = 8,
    ONEDNN_QUERY_SOURCE = 129,
    ONEDNN_QUERY_WEIGHTS = 131,
    ONEDNN_QUERY_DESTINATION = 133,
    ONEDNN_QUERY_SCRATCHPAD = 136
};

/* Numbers of a primitive's arguments (DNNL_ARG_...). */
enum { ONEDNN_SOURCE = 1, ONEDNN_DESTINATION = 17, ONEDNN_WEIGHTS = 33, ONEDNN_BIAS = 41, ONEDNN_SCRATCHPAD = 80 };

struct onednn_argument { /* dnnl_exec_arg_t */
    int name;
    void *memory;
};

/* Functions that have one type in both versions. All return 0 on success, unless they return a number of bytes. */
struct onednn_library {
    int (*engine_create)(void **engine, int kind, size_t index);
    int (*stream_create)(void **stream, void *engine, unsigned flags);
    int (*stream_wait)(void *stream);
    int (*stream_destroy)(void *stream);
    int (*memory_create)(void **memory, const void *descriptor, void *engine, void *data);
    int (*memory_destroy)(void *memory);
    size_t (*memory_desc_get_size)(const void *descriptor);
    int (*memory_desc_equal)(const void *a, const void *b);
    int (*primitive_attr_create)(void **attributes);
    int (*primitive_attr_destroy)(void *attributes);
    int (*primitive_attr_set_scratchpad_mode)(void *attributes, int mode);
    int (*primitive_attr_set_post_ops)(void *attributes, const void *post_ops);
    int (*post_ops_create)(void **post_ops);
    int (*post_ops_destroy)(void *post_ops);
    int (*reorder_primitive_desc_create)(void **ret, const void *from, void *from_engine, const void *to,
                                         void *to_engine, const void *attributes);
    int (*primitive_desc_query)(const void *primitive_desc, int what, int index, void *ret);
    const void *(*primitive_desc_query_md)(const void *primitive_desc, int what, int index);
    int (*primitive_desc_destroy)(void *primitive_desc);
    int (*primitive_create)(void **primitive, const void *primitive_desc);
    int (*primitive_destroy)(void *primitive);
    int (*primitive_execute)(const void *primitive, void *stream, int count, const struct onednn_argument *arguments);
    /* As cblas_sgemm() for matrices stored by rows; transpose: 'N' or 'T'. */
    int (*sgemm)(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                 int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

    void *engine; /* for the processor */
    int version;  /* 2 or 3 */
};

/*
 * Returns the library, loaded by the first call; NULL: this machine has none that can be used, or this is the child of
 * a fork that the OpenMP runtime's threads do not survive.
 */
const struct onednn_library *aoticache_shim_onednn(void);

/* ---- differences between versions; each returns false on failure, and the caller frees descriptors ---- */

/* Makes a memory descriptor; strides in elements, NULL: the library chooses the format. Returns NULL on failure. */
void *aoticache_shim_onednn_describe(int ndim, const int64_t *sizes, int type, const int64_t *strides);
void *aoticache_shim_onednn_describe_same(const void *descriptor);
void aoticache_shim_onednn_describe_free(void *descriptor);

struct onednn_convolution {
    bool transposed;
    const void *source, *weights, *bias, *destination; /* descriptors; bias may be NULL */
    const int64_t *stride, *dilation;                  /* dilation: 0 means none */
    const int64_t *padding, *padding_end;
    const void *attributes;
};
bool aoticache_shim_onednn_describe_convolution(const struct onednn_convolution *c, void **ret_primitive_desc);
/* Describes out = a b + bias; all are descriptors, bias may be NULL. */
bool aoticache_shim_onednn_describe_matmul(const void *a, const void *b, const void *bias, const void *out,
                                           const void *attributes, void **ret_primitive_desc);

/* Returns true if both versions have the function, or if it is "none". */
bool aoticache_shim_onednn_has_unary(const struct shim_unary *unary);
/* Calls dnnl_post_ops_append_eltwise(); false for functions that the versions do not have. */
bool aoticache_shim_onednn_append_unary(void *post_ops, const struct shim_unary *unary);
/* Makes the primitive add the destination's former elements. */
bool aoticache_shim_onednn_append_sum(void *post_ops);

/* ---- cached primitives (onednn_primitives.c) ---- */

/* Sizes, strides, options: everything that a primitive depends on. The first number is the kind of operation. */
enum { ONEDNN_KEY_NUMBERS = 64 };
enum { ONEDNN_KEY_CONVOLUTION = 1, ONEDNN_KEY_MATMUL = 2 };

struct onednn_key {
    int64_t numbers[ONEDNN_KEY_NUMBERS];
};

/* A primitive and its scratch memory. */
struct onednn_step {
    void *primitive; /* NULL: nothing to do */
    void *scratch;   /* descriptor */
};

/* The beginning of each kind's struct. It never changes once it is cached. */
struct onednn_prepared {
    _Atomic uint32_t refs; /* 1 at first */
    struct onednn_key key;
    uint64_t used;        /* for the table: when it was last found */
    bool usable;          /* false: oneDNN has no fast code for it */
    size_t scratch_bytes; /* the maximum that a step needs */
    void (*free)(const struct onednn_library *onednn, struct onednn_prepared *p);
};

/* Allocates one, `bytes` bytes of zeros, with one reference; `free` frees everything in it. NULL: out of memory. */
struct onednn_prepared *aoticache_shim_onednn_begin(size_t bytes, const struct onednn_key *key,
                                                    void (*free)(const struct onednn_library *onednn,
                                                                 struct onednn_prepared *p));
/* Finds one and adds a reference. NULL: not in the cache. */
struct onednn_prepared *aoticache_shim_onednn_find(const struct onednn_key *key);
/*
 * Adds it to the cache, which holds its own reference. Another thread may have made the same: then both are used, and
 * the later one is cached.
 */
void aoticache_shim_onednn_keep(const struct onednn_library *onednn, struct onednn_prepared *p);
/* Drops a reference. p may be NULL. */
void aoticache_shim_onednn_unref(const struct onednn_library *onednn, struct onednn_prepared *p);

/*
 * Makes a step from a primitive's descriptor, which it frees. The caller provides its scratch memory, so that threads
 * may share the step.
 */
bool aoticache_shim_onednn_make_step(const struct onednn_library *onednn, void *primitive_desc,
                                     struct onednn_prepared *p, struct onednn_step *step);
void aoticache_shim_onednn_free_step(const struct onednn_library *onednn, struct onednn_step *step);
/* Returns whether oneDNN has more than a plain loop for it. */
bool aoticache_shim_onednn_is_fast(const struct onednn_library *onednn, const void *primitive_desc);
/*
 * Makes attributes for primitives that use the caller's scratch memory, with the operations on the result. Returns NULL
 * on failure.
 */
void *aoticache_shim_onednn_make_attributes(const struct onednn_library *onednn, bool adds_output,
                                            const struct shim_unary *unary);

enum { ONEDNN_MOST_ARGUMENTS = 5 };
/* Runs one primitive. `scratch`: scratch_bytes of the onednn_prepared; NULL if 0. */
bool aoticache_shim_onednn_run_step(const struct onednn_library *onednn, const struct onednn_step *step, void *stream,
                                    char *scratch, int count, const int names[], const void *const descriptors[],
                                    void *const data[]);

/*
 * Returns whether there is a oneDNN, and it multiplies bfloat16 on this processor, as in PyTorch: this needs AVX-512.
 */
bool aoticache_shim_onednn_has_bfloat16(void);
/* Returns whether it sums products of bytes without intermediate saturation, which needs VNNI. */
bool aoticache_shim_onednn_has_bytes(void);

/*
 * Multiplies with oneDNN, if the operands are bfloat16. to_float: the result is float32 and so not rounded; then the
 * addend must be one row for all rows, or none. False: nothing was written, and the caller must use another function.
 */
bool aoticache_shim_onednn_multiply(const struct matmul_problem *problem, bool to_float);
/*
 * Sums products of bytes: a rows x depth, b columns x depth, sums rows x columns; all contiguous. False as above, and
 * if aoticache_shim_onednn_has_bytes() is false.
 */
bool aoticache_shim_onednn_multiply_bytes(int64_t rows, int64_t columns, int64_t depth, bool is_unsigned, const void *a,
                                          const int8_t *b, int32_t *sums);
/* Returns whether that works for these sizes; makes the primitives that threads of a parallel region will use. */
bool aoticache_shim_onednn_prepare_bytes(int64_t rows, int64_t columns, int64_t depth, bool is_unsigned);

#endif
