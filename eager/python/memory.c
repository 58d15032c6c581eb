/*
 * eager/python/memory: tensors as handles of memory, the extent of their memory, and exceptions for failures of the
 * library.
 */
#include "base/names.h"
#include "eager/python/python_internal.h"
#include "loader/tensor.h"

PyObject *runtime_error_type;
PyTypeObject *runtime_tensor_type;

runtime_tensor *runtime_tensor_new(void)
{
    return (runtime_tensor *)PyType_GenericAlloc(runtime_tensor_type, 0); /* zeroed */
}

bool runtime_tensor_set_memory(runtime_tensor *tensor, void *data, int32_t dtype, int64_t ndim, const int64_t *sizes,
                               const int64_t *strides)
{
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_tensor_from_blob(data, dtype, ndim, sizes, strides, &tensor->handle, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_tensor_get_view(tensor->handle, &tensor->view, &error);
    if (status != AOTICACHE_OK)
        runtime_raise(&error, status);
    return status == AOTICACHE_OK;
}

runtime_tensor *runtime_tensor_from_handle(AtenTensorHandle handle, PyObject *keeps)
{
    aoticache_error error = {.message = ""};
    runtime_tensor *tensor = runtime_tensor_new();
    if (tensor == NULL) {
        aoticache_tensor_free(handle);
        return NULL;
    }
    tensor->handle = handle;
    if (keeps != NULL)
        Py_IncRef(tensor->keeps = keeps);
    aoticache_status status = aoticache_tensor_get_view(handle, &tensor->view, &error);
    if (status == AOTICACHE_OK)
        return tensor;
    runtime_raise(&error, status);
    Py_DecRef((PyObject *)tensor);
    return NULL;
}

uint64_t runtime_extent(const aoticache_tensor_view *view)
{
    uint64_t last = 0;
    if (view->numel == 0)
        return 0;
    for (int64_t i = 0; i < view->ndim; i++)
        last += (uint64_t)(view->sizes[i] - 1) * (uint64_t)view->strides[i];
    return (last + 1) * aoticache_dtype_size(view->dtype);
}

bool runtime_overlap(const aoticache_tensor_view *one, const aoticache_tensor_view *other)
{
    const uintptr_t a = (uintptr_t)one->data, b = (uintptr_t)other->data;
    return a < b + runtime_extent(other) && b < a + runtime_extent(one);
}

int32_t runtime_dtype_of(PyObject *name)
{
    int32_t dtype;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (text == NULL)
        return -1;
    if (aoticache_dtype_parse(text, &dtype) == AOTICACHE_OK)
        return dtype;
    PyErr_Format(PyExc_ValueError, "unknown dtype '%s'", text);
    return -1;
}

PyObject *runtime_raise(const aoticache_error *error, aoticache_status status)
{
    if (status == AOTICACHE_NO_MEMORY)
        return PyErr_NoMemory();
    const char *text = error->message[0] != '\0' ? error->message : aoticache_status_text(status);
    PyObject *raised = PyObject_CallFunction(runtime_error_type, "ss", text, aoticache_status_name(status));
    if (raised != NULL)
        PyErr_SetObject(runtime_error_type, raised);
    Py_DecRef(raised);
    return NULL;
}
