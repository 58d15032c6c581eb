/*
 * eager/python/exchange: imports arrays of other libraries as tensors, without copies, by the buffer protocol and DLPack.
 * Exports are in export.c.
 *
 * Compiled code may write to its inputs, and it is unknown whether it does. So memory that its owner declares read-only is
 * copied first, unless the caller requests otherwise. Compiled code also reads whole elements, so unaligned memory is copied
 * too.
 */
#include "base/names.h"
#include "eager/python/dlpack.h"
#include "eager/python/python_internal.h"

#include <stdlib.h>
#include <string.h>

const char *const runtime_dlpack_names[2][2] = {{"dltensor", "used_dltensor"},
                                                {"dltensor_versioned", "used_dltensor_versioned"}};

const dlpack_dtype runtime_dlpack_dtypes[DLPACK_DTYPE_COUNT] = {
    {AOTICACHE_DTYPE_INT8, 0, 8},
    {AOTICACHE_DTYPE_INT16, 0, 16},
    {AOTICACHE_DTYPE_INT32, 0, 32},
    {AOTICACHE_DTYPE_INT64, 0, 64},
    {AOTICACHE_DTYPE_UINT8, 1, 8},
    {AOTICACHE_DTYPE_UINT16, 1, 16},
    {AOTICACHE_DTYPE_UINT32, 1, 32},
    {AOTICACHE_DTYPE_UINT64, 1, 64},
    {AOTICACHE_DTYPE_FLOAT16, 2, 16},
    {AOTICACHE_DTYPE_FLOAT32, 2, 32},
    {AOTICACHE_DTYPE_FLOAT64, 2, 64},
    {AOTICACHE_DTYPE_BFLOAT16, 4, 16},
    {AOTICACHE_DTYPE_COMPLEX32, 5, 32},
    {AOTICACHE_DTYPE_COMPLEX64, 5, 64},
    {AOTICACHE_DTYPE_COMPLEX128, 5, 128},
    {AOTICACHE_DTYPE_BOOL, 6, 8},
    {AOTICACHE_DTYPE_FLOAT8_E4M3FN, 10, 8},
    {AOTICACHE_DTYPE_FLOAT8_E4M3FNUZ, 11, 8},
    {AOTICACHE_DTYPE_FLOAT8_E5M2, 12, 8},
    {AOTICACHE_DTYPE_FLOAT8_E5M2FNUZ, 13, 8},
    {AOTICACHE_DTYPE_FLOAT8_E8M0FNU, 14, 8},
};

/* ---- other libraries' memory ---- */

typedef struct foreign {
    const char *what; /* for messages */
    void *data;
    int32_t dtype;
    int64_t ndim;
    bool is_read_only;
    int64_t sizes[MAX_DIMS], strides[MAX_DIMS]; /* strides in elements */
} foreign;

/* Gives a contiguous array the strides of its sizes: exporters may use any stride for dimensions of size 1. */
static void settle_strides(foreign *array)
{
    int64_t contiguous[MAX_DIMS] = {0}, numel = 1;
    for (int64_t i = array->ndim - 1; i >= 0; i--) {
        contiguous[i] = numel;
        if (array->sizes[i] > 1 && array->strides[i] != numel)
            return;
        numel *= array->sizes[i] > 0 ? array->sizes[i] : 1;
    }
    memcpy(array->strides, contiguous, (size_t)array->ndim * sizeof *contiguous);
}

static bool check_strides(const foreign *array)
{
    for (int64_t i = 0; i < array->ndim; i++)
        if (array->strides[i] < 0 && array->sizes[i] > 1) {
            PyErr_Format(PyExc_ValueError, "%s: dimension %lld has a negative stride; pass a copy", array->what,
                         (long long)i);
            return false;
        }
    return true;
}

static size_t alignment_of(int32_t dtype)
{
    const size_t size = aoticache_dtype_size(dtype);
    const bool is_complex =
        dtype == AOTICACHE_DTYPE_COMPLEX32 || dtype == AOTICACHE_DTYPE_COMPLEX64 || dtype == AOTICACHE_DTYPE_COMPLEX128;
    return is_complex ? size / 2 : size;
}

/* Copies the memory from the first element to the last, for the same strides. */
static void *copy_memory(runtime_tensor *tensor, const foreign *array)
{
    const aoticache_tensor_view view = {
        .dtype = array->dtype, .ndim = array->ndim, .numel = 1, .sizes = array->sizes, .strides = array->strides};
    uint64_t bytes = runtime_extent(&view);
    for (int64_t i = 0; i < array->ndim; i++)
        bytes = array->sizes[i] == 0 ? 0 : bytes;
    tensor->copy = malloc(bytes > 0 ? bytes : 1);
    if (tensor->copy == NULL)
        PyErr_NoMemory();
    else
        memcpy(tensor->copy, array->data, bytes);
    return tensor->copy;
}

/* Gives the tensor a handle of the memory, or of a copy. */
static bool adopt(runtime_tensor *tensor, foreign *array, int32_t dtype, bool share_read_only)
{
    void *data = array->data;
    settle_strides(array);
    if (!check_strides(array))
        return false;
    if (dtype >= 0 && aoticache_dtype_size(dtype) != aoticache_dtype_size(array->dtype)) {
        PyErr_Format(PyExc_ValueError, "%s: an element of %s has %zd bytes, one of %s has %zd", array->what,
                     aoticache_dtype_name(array->dtype), (Py_ssize_t)aoticache_dtype_size(array->dtype),
                     aoticache_dtype_name(dtype), (Py_ssize_t)aoticache_dtype_size(dtype));
        return false;
    }
    if (dtype >= 0)
        array->dtype = dtype;
    for (int64_t i = 0; i < array->ndim; i++)
        array->strides[i] = array->strides[i] < 0 ? 1 : array->strides[i]; /* dimensions of size 1 or 0 */
    if ((array->is_read_only && !share_read_only) || (uintptr_t)data % alignment_of(array->dtype) != 0) {
        data = copy_memory(tensor, array);
        if (data == NULL)
            return false;
    } else {
        tensor->is_read_only = array->is_read_only;
    }
    return runtime_tensor_set_memory(tensor, data, array->dtype, array->ndim, array->sizes, array->strides);
}

/* ---- from the buffer protocol ---- */

/* Returns the dtype of one element's format, in the syntax of the module struct; complex numbers as in NumPy. -1: none. */
static int32_t dtype_of_format(const char *format, Py_ssize_t size)
{
    const char *letter = format;
    if (*letter == '@' || *letter == '=' || *letter == '<')
        letter++;
    else if ((*letter == '>' || *letter == '!') && size == 1) /* one byte has no byte order */
        letter++;
    if (letter[0] == 'Z' && letter[1] != '\0' && letter[2] == '\0')
        return letter[1] == 'f' && size == 8    ? AOTICACHE_DTYPE_COMPLEX64
               : letter[1] == 'd' && size == 16 ? AOTICACHE_DTYPE_COMPLEX128
                                                : -1;
    if (letter[0] == '\0' || letter[1] != '\0')
        return -1;
    if (strchr("bhilqn", *letter) != NULL)
        return size == 1   ? AOTICACHE_DTYPE_INT8
               : size == 2 ? AOTICACHE_DTYPE_INT16
               : size == 4 ? AOTICACHE_DTYPE_INT32
               : size == 8 ? AOTICACHE_DTYPE_INT64
                           : -1;
    if (strchr("BHILQN", *letter) != NULL)
        return size == 1   ? AOTICACHE_DTYPE_UINT8
               : size == 2 ? AOTICACHE_DTYPE_UINT16
               : size == 4 ? AOTICACHE_DTYPE_UINT32
               : size == 8 ? AOTICACHE_DTYPE_UINT64
                           : -1;
    return *letter == '?' && size == 1   ? AOTICACHE_DTYPE_BOOL
           : *letter == 'e' && size == 2 ? AOTICACHE_DTYPE_FLOAT16
           : *letter == 'f' && size == 4 ? AOTICACHE_DTYPE_FLOAT32
           : *letter == 'd' && size == 8 ? AOTICACHE_DTYPE_FLOAT64
                                         : -1;
}

static bool read_buffer(const Py_buffer *buffer, foreign *array)
{
    const char *format = buffer->format != NULL ? buffer->format : "B";
    array->data = buffer->buf;
    array->ndim = buffer->ndim;
    array->is_read_only = buffer->readonly != 0;
    array->dtype = dtype_of_format(format, buffer->itemsize);
    if (array->ndim > MAX_DIMS)
        return PyErr_Format(PyExc_ValueError, "%s has %d dimensions; at most %d are allowed", array->what, buffer->ndim,
                            MAX_DIMS) != NULL;
    if (array->dtype < 0 && (format[0] == '>' || format[0] == '!'))
        return PyErr_Format(PyExc_ValueError, "%s has big-endian elements ('%s'); pass native-endian ones", array->what,
                            format) != NULL;
    if (array->dtype < 0)
        return PyErr_Format(PyExc_TypeError, "%s has elements of the format '%s', which no dtype of a tensor has",
                            array->what, format) != NULL;
    for (int64_t i = 0; i < array->ndim; i++) {
        array->sizes[i] = buffer->shape[i];
        if (buffer->strides[i] % buffer->itemsize != 0 && buffer->shape[i] > 1)
            return PyErr_Format(PyExc_ValueError,
                                "%s: dimension %lld has a stride of %zd bytes, which is not a multiple of the "
                                "element size (%zd bytes); pass a copy",
                                array->what, (long long)i, buffer->strides[i], buffer->itemsize) != NULL;
        array->strides[i] = buffer->strides[i] / buffer->itemsize;
    }
    return true;
}

/* Puts "input 0: " before the exporter's message. */
static void prefix_exception(const char *what, PyObject *object)
{
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *kind = PyObject_Type(object), *name = kind != NULL ? PyObject_GetAttrString(kind, "__name__") : NULL;
    if (name == NULL)
        PyErr_Clear();
    else
        PyErr_Format(PyExc_TypeError, "%s (%U) does not give access to its memory: %S", what, name,
                     value != NULL ? value : Py_None);
    if (name == NULL)
        PyErr_Restore(type, value, traceback);
    else {
        Py_DecRef(type);
        Py_DecRef(value);
        Py_DecRef(traceback);
    }
    Py_DecRef(kind);
    Py_DecRef(name);
}

static bool from_buffer(runtime_tensor *tensor, PyObject *object, foreign *array)
{
    if (PyObject_GetBuffer(object, &tensor->buffer, PyBUF_RECORDS_RO) == 0)
        return read_buffer(&tensor->buffer, array);
    tensor->buffer.obj = NULL;
    prefix_exception(array->what, object);
    return false;
}

/* ---- from DLPack ---- */

static bool read_dlpack(const dlpack_tensor *from, bool is_read_only, foreign *array)
{
    array->ndim = from->ndim;
    array->data = from->data != NULL ? (char *)from->data + from->byte_offset : NULL;
    array->is_read_only = is_read_only;
    array->dtype = -1;
    if (from->device.type != DLPACK_CPU && from->device.type != DLPACK_CUDA_HOST)
        return PyErr_Format(PyExc_ValueError, "%s is not in CPU memory (DLPack device %d)", array->what,
                            (int)from->device.type) != NULL;
    if (from->ndim < 0 || from->ndim > MAX_DIMS)
        return PyErr_Format(PyExc_ValueError, "%s has %d dimensions; at most %d are allowed", array->what,
                            (int)from->ndim, MAX_DIMS) != NULL;
    for (size_t i = 0; i < DLPACK_DTYPE_COUNT && from->dtype.lanes == 1; i++)
        if (runtime_dlpack_dtypes[i].code == from->dtype.code && runtime_dlpack_dtypes[i].bits == from->dtype.bits)
            array->dtype = runtime_dlpack_dtypes[i].dtype;
    if (array->dtype < 0)
        return PyErr_Format(PyExc_TypeError,
                            "%s has a dtype that tensors do not have (DLPack code %d, %d bits, %d lanes)", array->what,
                            (int)from->dtype.code, (int)from->dtype.bits, (int)from->dtype.lanes) != NULL;
    int64_t numel = 1;
    for (int64_t i = array->ndim - 1; i >= 0; i--) {
        array->sizes[i] = from->shape[i];
        array->strides[i] = from->strides != NULL ? from->strides[i] : numel;
        numel *= from->shape[i] > 0 ? from->shape[i] : 1;
    }
    return true;
}

static bool take_capsule(runtime_tensor *tensor, PyObject *capsule, foreign *array)
{
    const bool is_versioned = PyCapsule_IsValid(capsule, runtime_dlpack_names[1][0]) != 0;
    void *managed = PyCapsule_GetPointer(capsule, runtime_dlpack_names[is_versioned][0]);
    if (managed == NULL)
        return false;
    const dlpack_versioned *versioned = managed;
    if (is_versioned && versioned->major != 1)
        return PyErr_Format(PyExc_BufferError, "%s uses DLPack %u.%u; expected version 1", array->what,
                            (unsigned)versioned->major, (unsigned)versioned->minor) != NULL;
    tensor->managed = managed;
    tensor->is_versioned = is_versioned;
    PyCapsule_SetName(capsule, runtime_dlpack_names[is_versioned][1]);
    if (is_versioned)
        return read_dlpack(&versioned->tensor, (versioned->flags & DLPACK_READ_ONLY) != 0, array);
    return read_dlpack(&tensor->managed->tensor, false, array);
}

/* Calls __dlpack__ as in version 1 and, if that fails, as in earlier versions, without arguments. */
static PyObject *ask_for_capsule(PyObject *method)
{
    PyObject *arguments = PyTuple_New(0), *keywords = PyDict_New(), *version = Py_BuildValue("(ii)", 1, 0);
    PyObject *capsule = NULL;
    if (arguments != NULL && keywords != NULL && version != NULL &&
        PyDict_SetItemString(keywords, "max_version", version) == 0) {
        capsule = PyObject_Call(method, arguments, keywords);
        if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            capsule = PyObject_Call(method, arguments, NULL);
        }
    }
    Py_DecRef(arguments);
    Py_DecRef(keywords);
    Py_DecRef(version);
    return capsule;
}

static bool from_dlpack(runtime_tensor *tensor, PyObject *object, foreign *array)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    if (method == NULL) {
        PyObject *type = PyObject_Type(object), *name = PyObject_GetAttrString(type, "__name__");
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s is not an array: %S has neither the buffer protocol nor __dlpack__",
                     array->what, name != NULL ? name : Py_None);
        Py_DecRef(type);
        Py_DecRef(name);
        return false;
    }
    PyObject *capsule = ask_for_capsule(method);
    Py_DecRef(method);
    if (capsule == NULL) {
        prefix_exception(array->what, object);
        return false;
    }
    const bool taken = take_capsule(tensor, capsule, array);
    Py_DecRef(capsule);
    return taken;
}

runtime_tensor *runtime_tensor_from_object(PyObject *object, int32_t dtype, bool share_read_only, const char *what)
{
    const int is_ours = PyObject_IsInstance(object, (PyObject *)runtime_tensor_type);
    if (is_ours < 0)
        return NULL;
    if (is_ours && dtype < 0 && (share_read_only || !((runtime_tensor *)object)->is_read_only)) {
        Py_IncRef(object);
        return (runtime_tensor *)object;
    }
    foreign array = {.what = what};
    runtime_tensor *tensor = runtime_tensor_new();
    if (tensor == NULL)
        return NULL;
    const bool is_buffer = !is_ours && PyObject_CheckBuffer(object) != 0;
    if ((is_buffer ? from_buffer(tensor, object, &array) : from_dlpack(tensor, object, &array)) &&
        adopt(tensor, &array, dtype, share_read_only)) {
        if (tensor->copy != NULL)
            runtime_release_memory(tensor); /* everything except the copy */
        return tensor;
    }
    Py_DecRef((PyObject *)tensor);
    return NULL;
}

static void free_managed(runtime_tensor *tensor)
{
    dlpack_versioned *versioned = (dlpack_versioned *)(void *)tensor->managed;
    if (tensor->managed != NULL && tensor->is_versioned && versioned->deleter != NULL)
        versioned->deleter(versioned);
    else if (tensor->managed != NULL && !tensor->is_versioned && tensor->managed->deleter != NULL)
        tensor->managed->deleter(tensor->managed);
    tensor->managed = NULL;
}

void runtime_release_memory(runtime_tensor *tensor)
{
    free_managed(tensor);
    if (tensor->buffer.obj != NULL)
        PyBuffer_Release(&tensor->buffer);
}
