/*
 * eager/python: the extension module aoticache._runtime, the base of aoticache.runtime: models and operators of the cache on
 * arrays, in a Python without PyTorch. It uses the public C API, and Python's stable ABI.
 *
 * memory.c has tensors as handles of memory, exchange.c imports arrays of other libraries (buffer protocol, DLPack), export.c
 * exports ours, tensor.c is the public type, python_call.c the arrays of a call, model.c and operator.c are the callable
 * types, cache.c is open caches, module.c the module itself. Everything that waits or runs does so without the interpreter's
 * lock.
 */
#ifndef AOTICACHE_EAGER_PYTHON_INTERNAL_H
#define AOTICACHE_EAGER_PYTHON_INTERNAL_H

/* Before any other header, as Python's own headers require. */
#include "eager/python/stable_abi.h"

#include "eager/holder/holder.h"
#include "eager/model/model.h"
#include "eager/model/package/package.h"

#define MAX_DIMS 64

/* An array that the caller passes, or a result. It owns the handle, but not always the memory. */
typedef struct runtime_tensor {
    PyObject_HEAD AtenTensorHandle handle;
    aoticache_tensor_view view; /* borrowed from the handle */
    bool is_read_only;
    PyObject *keeps; /* object that must live as long as the memory; may be NULL */
    /* The source of the memory: at most one of these. */
    Py_buffer buffer; /* of an exporter; obj is NULL if there is none */
    struct dlpack_managed *managed;
    bool is_versioned; /* version of managed */
    void *copy;        /* freed with free() */
} runtime_tensor;

extern PyObject *runtime_error_type; /* AoticacheError */
extern PyTypeObject *runtime_tensor_type;
extern PyType_Spec runtime_tensor_spec;

/* Creates a tensor without a handle. NULL with an exception. */
runtime_tensor *runtime_tensor_new(void);
/* Gives the tensor a handle of memory. strides in elements. false with an exception. */
bool runtime_tensor_set_memory(runtime_tensor *tensor, void *data, int32_t dtype, int64_t ndim, const int64_t *sizes,
                               const int64_t *strides);
/*
 * Creates a tensor that owns the handle, which is freed on failure. keeps: a reference is taken; may be NULL. NULL with an
 * exception.
 */
runtime_tensor *runtime_tensor_from_handle(AtenTensorHandle handle, PyObject *keeps);

/* Returns the bytes from the first element to the last, 0 for an empty tensor. */
uint64_t runtime_extent(const aoticache_tensor_view *view);
bool runtime_overlap(const aoticache_tensor_view *one, const aoticache_tensor_view *other);
/* Returns the dtype of a name; -1 with an exception. */
int32_t runtime_dtype_of(PyObject *name);

/*
 * Creates a tensor for the memory of an object: one of our tensors, a buffer, DLPack. Read-only memory is copied unless
 * share_read_only; unaligned memory is always copied. dtype: -1, or the dtype as which its elements are read. what: for
 * messages ("input 0"). A new reference; NULL with an exception.
 */
runtime_tensor *runtime_tensor_from_object(PyObject *object, int32_t dtype, bool share_read_only, const char *what);
/* Releases the memory that from_object() acquired. */
void runtime_release_memory(runtime_tensor *tensor);

/* Returns the format of a dtype in the buffer protocol, or NULL. */
const char *runtime_buffer_format(int32_t dtype);
int runtime_get_buffer(PyObject *self, Py_buffer *view, int flags);
void runtime_release_buffer(PyObject *self, Py_buffer *view);
PyObject *runtime_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *runtime_dlpack_device(PyObject *self, PyObject *arguments);

/* ---- python_call.c ---- */

enum { RUNTIME_FEW = 16 }; /* inputs, or outputs, for which a call allocates no memory */

/* The tensors of one call. */
typedef struct runtime_call {
    Py_ssize_t count;
    runtime_tensor **tensors;
    bool has_numpy;
    runtime_tensor *few[RUNTIME_FEW];
} runtime_call;

/* Begins a call. false with an exception. A call that has begun must be freed. */
bool runtime_call_begin(runtime_call *call, Py_ssize_t count);
bool runtime_call_add(runtime_call *call, PyObject *object, bool share_read_only);
void runtime_call_free(runtime_call *call);
/* Makes a tuple of results. Owns the handles; the caller owns the array. maker: object that may own the memory of a result. */
PyObject *runtime_make_results(const runtime_call *call, AtenTensorHandle *handles, size_t count, PyObject *maker);
/* Frees an object whose type was made from a specification. */
void runtime_free_object(PyObject *self);

/* ---- cache.c, model.c, operator.c ---- */

typedef struct runtime_cache {
    PyObject_HEAD aoticache_cache *cache;
} runtime_cache;

extern PyTypeObject *runtime_cache_type, *runtime_model_type, *runtime_operator_type;
extern PyType_Spec runtime_cache_spec, runtime_model_spec, runtime_operator_spec;

PyObject *runtime_open_cache(PyObject *module, PyObject *arguments);
PyObject *runtime_open_model(PyObject *module, PyObject *arguments);
PyObject *runtime_open_operator(PyObject *module, PyObject *arguments);

/* Raises AoticacheError with the library's message. Returns NULL. */
PyObject *runtime_raise(const aoticache_error *error, aoticache_status status);

#endif
