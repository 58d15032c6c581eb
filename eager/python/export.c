/*
 * eager/python/export: exports tensors to other libraries, without copies, by the buffer protocol and DLPack.
 */
#include "base/names.h"
#include "eager/python/dlpack.h"
#include "eager/python/python_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- to the buffer protocol ---- */

const char *runtime_buffer_format(int32_t dtype)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_BOOL:
        return "?";
    case AOTICACHE_DTYPE_UINT8:
        return "B";
    case AOTICACHE_DTYPE_INT8:
        return "b";
    case AOTICACHE_DTYPE_INT16:
        return "h";
    case AOTICACHE_DTYPE_UINT16:
        return "H";
    case AOTICACHE_DTYPE_INT32:
        return "i";
    case AOTICACHE_DTYPE_UINT32:
        return "I";
    case AOTICACHE_DTYPE_INT64:
        return "l";
    case AOTICACHE_DTYPE_UINT64:
        return "L";
    case AOTICACHE_DTYPE_FLOAT16:
        return "e";
    case AOTICACHE_DTYPE_FLOAT32:
        return "f";
    case AOTICACHE_DTYPE_FLOAT64:
        return "d";
    case AOTICACHE_DTYPE_COMPLEX64:
        return "Zf";
    case AOTICACHE_DTYPE_COMPLEX128:
        return "Zd";
    default:
        return NULL;
    }
}

static bool fits(const Py_buffer *view, int flags)
{
    const bool is_c = PyBuffer_IsContiguous(view, 'C') != 0;
    if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS || (flags & PyBUF_STRIDES) != PyBUF_STRIDES)
        return is_c;
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS)
        return PyBuffer_IsContiguous(view, 'F') != 0;
    return (flags & PyBUF_ANY_CONTIGUOUS) != PyBUF_ANY_CONTIGUOUS || is_c || PyBuffer_IsContiguous(view, 'F') != 0;
}

int runtime_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    const runtime_tensor *tensor = (runtime_tensor *)self;
    const aoticache_tensor_view *of = &tensor->view;
    const char *format = runtime_buffer_format(of->dtype);
    const size_t item = aoticache_dtype_size(of->dtype);
    view->obj = NULL;
    if (format == NULL)
        return PyErr_Format(PyExc_BufferError,
                            "the buffer protocol does not support %s: use __dlpack__, or .view() for its "
                            "bits",
                            aoticache_dtype_name(of->dtype)),
               -1;
    if ((flags & PyBUF_WRITABLE) != 0 && tensor->is_read_only)
        return PyErr_Format(PyExc_BufferError, "the tensor is read-only"), -1;
    Py_ssize_t *strides = malloc(((size_t)of->ndim + 1) * sizeof *strides);
    if (strides == NULL)
        return PyErr_NoMemory(), -1;
    for (int64_t i = 0; i < of->ndim; i++)
        strides[i] = of->strides[i] * (Py_ssize_t)item;
    *view = (Py_buffer){.buf = of->data,
                        .len = of->numel * (Py_ssize_t)item,
                        .itemsize = (Py_ssize_t)item,
                        .readonly = tensor->is_read_only,
                        .ndim = (int)of->ndim,
                        .format = (char *)format,
                        .shape = (Py_ssize_t *)of->sizes,
                        .strides = strides,
                        .internal = strides};
    if (!fits(view, flags)) {
        free(strides);
        return PyErr_Format(PyExc_BufferError, "the tensor is not contiguous"), -1;
    }
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES)
        view->strides = NULL;
    if ((flags & PyBUF_ND) != PyBUF_ND)
        view->shape = NULL;
    if ((flags & PyBUF_FORMAT) != PyBUF_FORMAT)
        view->format = NULL;
    Py_IncRef(view->obj = self);
    return 0;
}

void runtime_release_buffer(PyObject *self, Py_buffer *view)
{
    (void)self;
    free(view->internal);
}

/* ---- to DLPack ---- */

/* The data of a capsule: one of both structs, and the tensor that owns the memory. */
typedef struct export
{
    union {
        dlpack_managed plain;
        dlpack_versioned versioned;
    } as;
    PyObject *tensor;
}
export;

/* Frees an export. Consumers may call this from any thread, and at the end of the process, when there is no Python any more. */
static void free_export(void *context)
{
    export *made = context;
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DecRef(made->tensor);
        PyGILState_Release(state);
    }
    free(made);
}

static void delete_plain(dlpack_managed *self)
{
    free_export(self->context);
}

static void delete_versioned(dlpack_versioned *self)
{
    free_export(self->context);
}

/* Frees a capsule that was not consumed. */
static void free_capsule(PyObject *capsule)
{
    for (int i = 0; i < 2; i++)
        if (PyCapsule_IsValid(capsule, runtime_dlpack_names[i][0])) {
            void *managed = PyCapsule_GetPointer(capsule, runtime_dlpack_names[i][0]);
            free_export(i == 0 ? ((dlpack_managed *)managed)->context : ((dlpack_versioned *)managed)->context);
        }
}

static bool fill_dlpack(const aoticache_tensor_view *view, dlpack_tensor *ret_tensor)
{
    *ret_tensor = (dlpack_tensor){.data = view->data,
                                  .device = {.type = DLPACK_CPU},
                                  .ndim = (int32_t)view->ndim,
                                  .dtype = {.lanes = 1},
                                  .shape = (int64_t *)view->sizes,
                                  .strides = (int64_t *)view->strides};
    for (size_t i = 0; i < DLPACK_DTYPE_COUNT; i++)
        if (runtime_dlpack_dtypes[i].dtype == view->dtype) {
            ret_tensor->dtype.code = runtime_dlpack_dtypes[i].code;
            ret_tensor->dtype.bits = runtime_dlpack_dtypes[i].bits;
            return true;
        }
    PyErr_Format(PyExc_BufferError, "DLPack does not support %s", aoticache_dtype_name(view->dtype));
    return false;
}

static PyObject *make_capsule(PyObject *self, bool is_versioned)
{
    const runtime_tensor *tensor = (runtime_tensor *)self;
    dlpack_tensor filled;
    if (tensor->is_read_only && !is_versioned)
        return PyErr_Format(PyExc_BufferError, "the tensor is read-only, which DLPack before 1.0 cannot express");
    if (!fill_dlpack(&tensor->view, &filled))
        return NULL;
    export *made = calloc(1, sizeof *made);
    if (made == NULL)
        return PyErr_NoMemory();
    if (is_versioned)
        made->as.versioned = (dlpack_versioned){.major = 1,
                                                .context = made,
                                                .deleter = delete_versioned,
                                                .flags = tensor->is_read_only ? DLPACK_READ_ONLY : 0,
                                                .tensor = filled};
    else
        made->as.plain = (dlpack_managed){.tensor = filled, .context = made, .deleter = delete_plain};
    Py_IncRef(made->tensor = self);
    PyObject *capsule = PyCapsule_New(made, runtime_dlpack_names[is_versioned][0], free_capsule);
    if (capsule == NULL)
        free_export(made);
    return capsule;
}

static bool is_none(PyObject *keywords, const char *name)
{
    PyObject *value = keywords != NULL ? PyDict_GetItemString(keywords, name) : NULL;
    return value == NULL || value == Py_None;
}

/* Implements __dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None), of the array API standard. */
PyObject *runtime_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    int major = 0, minor = 0, device = DLPACK_CPU, id = 0;
    if (PyTuple_Size(arguments) != 0)
        return PyErr_Format(PyExc_TypeError, "__dlpack__() only takes keyword arguments");
    if (!is_none(keywords, "stream"))
        return PyErr_Format(PyExc_BufferError, "CPU memory has no streams");
    if (!is_none(keywords, "max_version") &&
        !PyArg_ParseTuple(PyDict_GetItemString(keywords, "max_version"), "ii", &major, &minor))
        return NULL;
    if (!is_none(keywords, "dl_device") &&
        !PyArg_ParseTuple(PyDict_GetItemString(keywords, "dl_device"), "ii", &device, &id))
        return NULL;
    if (device != DLPACK_CPU)
        return PyErr_Format(PyExc_BufferError, "the tensor is in CPU memory and is not copied to another device");
    if (!is_none(keywords, "copy") && PyDict_GetItemString(keywords, "copy") == (PyObject *)(void *)&_Py_TrueStruct)
        return PyErr_Format(PyExc_BufferError, "__dlpack__() does not copy");
    return make_capsule(self, major >= 1);
}

PyObject *runtime_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("(ii)", DLPACK_CPU, 0);
}
