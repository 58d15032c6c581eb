/*
 * eager/python/tensor: the type aoticache.runtime.Tensor: an array's memory with dtype, sizes and strides.
 */
#include "base/names.h"
#include "eager/python/python_internal.h"
#include "loader/tensor.h"

#include <stdlib.h>
#include <string.h>

static void dealloc(PyObject *self)
{
    runtime_tensor *tensor = (runtime_tensor *)self;
    PyObject *type = PyObject_Type(self);
    aoticache_tensor_free(tensor->handle);
    runtime_release_memory(tensor);
    free(tensor->copy);
    Py_DecRef(tensor->keeps);
    PyObject_Free(self);
    Py_DecRef(type); /* the object's own reference */
    Py_DecRef(type); /* the reference of PyObject_Type() */
}

/* ---- attributes ---- */

static PyObject *make_tuple(const int64_t *numbers, int64_t count, int64_t factor)
{
    PyObject *tuple = PyTuple_New(count);
    for (int64_t i = 0; tuple != NULL && i < count; i++)
        PyTuple_SetItem(tuple, i, PyLong_FromLongLong(numbers[i] * factor));
    return tuple;
}

static const aoticache_tensor_view *view_of(PyObject *self)
{
    return &((runtime_tensor *)self)->view;
}

static PyObject *get_shape(PyObject *self, void *closure)
{
    (void)closure;
    return make_tuple(view_of(self)->sizes, view_of(self)->ndim, 1);
}

static PyObject *get_strides(PyObject *self, void *closure)
{
    (void)closure;
    return make_tuple(view_of(self)->strides, view_of(self)->ndim, (int64_t)aoticache_dtype_size(view_of(self)->dtype));
}

static PyObject *get_dtype(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(aoticache_dtype_name(view_of(self)->dtype));
}

static PyObject *get_ndim(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(view_of(self)->ndim);
}

static PyObject *get_size(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(view_of(self)->numel);
}

static PyObject *get_nbytes(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(view_of(self)->numel * (int64_t)aoticache_dtype_size(view_of(self)->dtype));
}

static PyGetSetDef attributes[] = {
    {"shape", get_shape, NULL, "The sizes of the dimensions.", NULL},
    {"strides", get_strides, NULL, "The bytes from one element to the next, for each dimension.", NULL},
    {"dtype", get_dtype, NULL, "The name of the dtype: \"float32\", \"bfloat16\".", NULL},
    {"ndim", get_ndim, NULL, "The number of dimensions.", NULL},
    {"size", get_size, NULL, "The number of elements.", NULL},
    {"nbytes", get_nbytes, NULL, "The bytes of the elements.", NULL},
    {0},
};

/* ---- elements ---- */

static double read_half(uint16_t bits)
{
    const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double value = fraction * 0x1p-24; /* a subnormal number */
    if (exponent == 31)
        value = fraction != 0 ? (double)__builtin_nanf("") : (double)__builtin_inff();
    else if (exponent > 0)
        value = __builtin_ldexp(1024 + (double)fraction, (int)exponent - 25);
    return (bits & 0x8000) != 0 ? -value : value;
}

static double read_bfloat16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static PyObject *make_element(const void *place, int32_t dtype)
{
#define ELEMENT(name, type, make)            \
    case AOTICACHE_DTYPE_##name: {           \
        type value;                          \
        memcpy(&value, place, sizeof value); \
        return make;                         \
    }
    switch (dtype) {
        ELEMENT(BOOL, uint8_t, PyBool_FromLong(value != 0))
        ELEMENT(UINT8, uint8_t, PyLong_FromLong(value))
        ELEMENT(INT8, int8_t, PyLong_FromLong(value))
        ELEMENT(INT16, int16_t, PyLong_FromLong(value))
        ELEMENT(UINT16, uint16_t, PyLong_FromLong(value))
        ELEMENT(INT32, int32_t, PyLong_FromLong(value))
        ELEMENT(UINT32, uint32_t, PyLong_FromLongLong(value))
        ELEMENT(INT64, int64_t, PyLong_FromLongLong(value))
        ELEMENT(UINT64, uint64_t, PyLong_FromUnsignedLongLong(value))
        ELEMENT(FLOAT16, uint16_t, PyFloat_FromDouble(read_half(value)))
        ELEMENT(BFLOAT16, uint16_t, PyFloat_FromDouble(read_bfloat16(value)))
        ELEMENT(FLOAT32, float, PyFloat_FromDouble(value))
        ELEMENT(FLOAT64, double, PyFloat_FromDouble(value))
    case AOTICACHE_DTYPE_COMPLEX64: {
        float parts[2];
        memcpy(parts, place, sizeof parts);
        return PyComplex_FromDoubles(parts[0], parts[1]);
    }
    case AOTICACHE_DTYPE_COMPLEX128: {
        double parts[2];
        memcpy(parts, place, sizeof parts);
        return PyComplex_FromDoubles(parts[0], parts[1]);
    }
    default:
        return PyErr_Format(PyExc_TypeError, "Python has no numbers for %s; .view() reads the bits",
                            aoticache_dtype_name(dtype));
    }
#undef ELEMENT
}

static PyObject *make_list(const aoticache_tensor_view *view, const char *place, int64_t dimension)
{
    if (dimension == view->ndim)
        return make_element(place, view->dtype);
    const int64_t step = view->strides[dimension] * (int64_t)aoticache_dtype_size(view->dtype);
    PyObject *list = PyList_New(view->sizes[dimension]);
    for (int64_t i = 0; list != NULL && i < view->sizes[dimension]; i++) {
        PyObject *item = make_list(view, place + i * step, dimension + 1);
        if (item == NULL) {
            Py_DecRef(list);
            return NULL;
        }
        PyList_SetItem(list, i, item);
    }
    return list;
}

static PyObject *tolist(PyObject *self, PyObject *unused)
{
    (void)unused;
    return make_list(view_of(self), view_of(self)->data, 0);
}

static PyObject *item(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (view_of(self)->numel != 1)
        return PyErr_Format(PyExc_ValueError, "item() is for a tensor of one element; this one has %lld",
                            (long long)view_of(self)->numel);
    return make_element(view_of(self)->data, view_of(self)->dtype);
}

static PyObject *to_numpy(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *asarray = numpy != NULL ? PyObject_GetAttrString(numpy, "asarray") : NULL;
    PyObject *array = NULL;
    if (asarray != NULL && runtime_buffer_format(view_of(self)->dtype) == NULL)
        PyErr_Format(PyExc_TypeError, "NumPy does not support %s; .view() reads the bits as a dtype that it supports",
                     aoticache_dtype_name(view_of(self)->dtype));
    else if (asarray != NULL)
        array = PyObject_CallFunctionObjArgs(asarray, self, NULL);
    Py_DecRef(asarray);
    Py_DecRef(numpy);
    return array;
}

static PyObject *view(PyObject *self, PyObject *name)
{
    const aoticache_tensor_view *from = view_of(self);
    const int32_t dtype = runtime_dtype_of(name);
    if (dtype < 0)
        return NULL;
    if (aoticache_dtype_size(dtype) != aoticache_dtype_size(from->dtype))
        return PyErr_Format(PyExc_ValueError, "an element of %s has %zd bytes, one of %s has %zd",
                            aoticache_dtype_name(from->dtype), (Py_ssize_t)aoticache_dtype_size(from->dtype),
                            aoticache_dtype_name(dtype), (Py_ssize_t)aoticache_dtype_size(dtype));
    runtime_tensor *made = runtime_tensor_new();
    if (made == NULL)
        return NULL;
    Py_IncRef(made->keeps = self);
    made->is_read_only = ((runtime_tensor *)self)->is_read_only;
    if (runtime_tensor_set_memory(made, from->data, dtype, from->ndim, from->sizes, from->strides))
        return (PyObject *)made;
    Py_DecRef((PyObject *)made);
    return NULL;
}

static Py_ssize_t length(PyObject *self)
{
    if (view_of(self)->ndim > 0)
        return view_of(self)->sizes[0];
    PyErr_Format(PyExc_TypeError, "a zero-dimensional tensor has no length");
    return -1;
}

static PyMethodDef methods[] = {
    {"tolist", tolist, METH_NOARGS,
     "The elements as nested lists of Python numbers; a number for a "
     "zero-dimensional tensor."},
    {"item", item, METH_NOARGS, "The only element, as a Python number."},
    {"numpy", to_numpy, METH_NOARGS, "A NumPy array over the same memory."},
    {"view", view, METH_O, "view(dtype): the same memory, read as another dtype with elements of the same size."},
    {"__dlpack__", (PyCFunction)(void (*)(void))runtime_dlpack, METH_VARARGS | METH_KEYWORDS,
     "The memory as a DLPack capsule, for another library."},
    {"__dlpack_device__", runtime_dlpack_device, METH_NOARGS, "The device: the CPU."},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)dealloc},
    {Py_tp_doc, (void *)"An array in memory: a result of a model, or what tensor() makes of an array. "
                        "Supports the buffer protocol and DLPack."},
    {Py_tp_getset, attributes},
    {Py_tp_methods, methods},
    {Py_sq_length, (void *)length},
    {Py_bf_getbuffer, (void *)runtime_get_buffer},
    {Py_bf_releasebuffer, (void *)runtime_release_buffer},
    {0, NULL},
};

PyType_Spec runtime_tensor_spec = {
    .name = "aoticache.runtime.Tensor",
    .basicsize = sizeof(runtime_tensor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
