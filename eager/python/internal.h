/*
 * eager/python: the extension module aoticache._runtime, which aoticache.runtime stands on: models and operators of the
 * cache on arrays, in a Python without PyTorch. It uses the public C API, and of Python the stable ABI.
 *
 * memory.c has tensors as handles over memory, exchange.c takes arrays of other libraries (buffer protocol, DLPack), export.c
 * gives them ours, tensor.c is the type that people see, call.c the arrays of a call, model.c and operator.c are what is
 * called, cache.c open caches, module.c the module itself. Everything that waits or runs does so without the lock of the
 * interpreter.
 */
#ifndef AOTICACHE_EAGER_PYTHON_INTERNAL_H
#define AOTICACHE_EAGER_PYTHON_INTERNAL_H

/* Before any other header, as Python's own headers ask for. */
#include "eager/python/stable_abi.h"

#include "eager/holder/holder.h"
#include "eager/model/model.h"
#include "eager/package/package.h"

#define MAX_DIMS 64

/* An array that is given, or a result. The handle is its own, the memory is not always. */
typedef struct runtime_tensor {
    PyObject_HEAD AtenTensorHandle handle;
    aoticache_tensor_view view; /* borrowed from the handle */
    bool is_read_only;
    PyObject *keeps; /* what must live as long as the memory; may be NULL */
    /* Where the memory comes from: at most one of these. */
    Py_buffer buffer; /* of an exporter; obj is NULL where there is none */
    struct dlpack_managed *managed;
    bool is_versioned; /* of managed */
    void *copy;        /* by free() */
} runtime_tensor;

extern PyObject *runtime_error_type; /* AoticacheError */
extern PyTypeObject *runtime_tensor_type;
extern PyType_Spec runtime_tensor_spec;

/* A tensor without a handle yet. NULL with an exception. */
runtime_tensor *runtime_tensor_new(void);
/* Gives the tensor a handle over memory. strides in elements. false with an exception. */
bool runtime_tensor_set_memory(runtime_tensor *tensor, void *data, int32_t dtype, int64_t ndim, const int64_t *sizes,
                               const int64_t *strides);
/* Takes the handle, also on failure. keeps: a new reference is made; may be NULL. NULL with an exception. */
runtime_tensor *runtime_tensor_from_handle(AtenTensorHandle handle, PyObject *keeps);

/* The bytes from the first element to the last, 0 of an empty tensor. */
uint64_t runtime_extent(const aoticache_tensor_view *view);
bool runtime_overlap(const aoticache_tensor_view *one, const aoticache_tensor_view *other);
/* The dtype of a name; -1 with an exception. */
int32_t runtime_dtype_of(PyObject *name);

/*
 * A tensor over what anybody's array has in memory: a tensor of ours, a buffer, DLPack. What is read-only is copied unless
 * share_read_only; so is what is not aligned. dtype: -1, or the dtype that its elements are to be read as. what: for
 * messages ("input 0"). A new reference; NULL with an exception.
 */
runtime_tensor *runtime_tensor_from_object(PyObject *object, int32_t dtype, bool share_read_only, const char *what);
/* Gives back what from_object() took. */
void runtime_release_memory(runtime_tensor *tensor);

/* The format of a dtype in the buffer protocol, NULL where it has none. */
const char *runtime_buffer_format(int32_t dtype);
int runtime_get_buffer(PyObject *self, Py_buffer *view, int flags);
void runtime_release_buffer(PyObject *self, Py_buffer *view);
PyObject *runtime_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *runtime_dlpack_device(PyObject *self, PyObject *arguments);

/* ---- call.c ---- */

enum { RUNTIME_FEW = 16 }; /* inputs, or outputs, for which a call needs no memory */

/* The tensors of one call. */
typedef struct runtime_call {
    Py_ssize_t count;
    runtime_tensor **tensors;
    bool has_numpy;
    runtime_tensor *few[RUNTIME_FEW];
} runtime_call;

/* false with an exception; the call is to be freed if it began. */
bool runtime_call_begin(runtime_call *call, Py_ssize_t count);
bool runtime_call_add(runtime_call *call, PyObject *object, bool share_read_only);
void runtime_call_free(runtime_call *call);
/* A tuple. Takes the handles, and leaves the array to the caller. maker: what the memory of a result may belong to. */
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
