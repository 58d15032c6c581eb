/*
 * eager/python/python_call: converts the arrays of one call into tensors, and its results into arrays: NumPy's if an argument
 * is.
 */
#include "eager/python/python_internal.h"
#include "loader/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void runtime_free_object(PyObject *self)
{
    PyObject *type = PyObject_Type(self);
    PyObject_Free(self);
    Py_DecRef(type);
    Py_DecRef(type);
}

static PyObject *numpy_array, *numpy_scalar, *numpy_asarray; /* set when NumPy is in the process */

/* Finds NumPy, if it is imported: otherwise no argument is a NumPy array. */
static bool find_numpy(void)
{
    if (numpy_asarray != NULL)
        return true;
    PyObject *name = PyUnicode_FromString("numpy"), *numpy = name != NULL ? PyImport_GetModule(name) : NULL;
    if (numpy != NULL) {
        numpy_array = PyObject_GetAttrString(numpy, "ndarray");
        numpy_scalar = numpy_array != NULL ? PyObject_GetAttrString(numpy, "generic") : NULL;
        numpy_asarray = numpy_scalar != NULL ? PyObject_GetAttrString(numpy, "asarray") : NULL;
    }
    Py_DecRef(name);
    Py_DecRef(numpy);
    PyErr_Clear(); /* another thread is just importing it */
    return numpy_asarray != NULL;
}

static bool is_numpy(PyObject *object)
{
    return find_numpy() &&
           (PyObject_IsInstance(object, numpy_array) > 0 || PyObject_IsInstance(object, numpy_scalar) > 0);
}

void runtime_call_free(runtime_call *call)
{
    for (Py_ssize_t i = 0; i < call->count; i++)
        Py_DecRef((PyObject *)call->tensors[i]);
    if (call->tensors != call->few)
        free(call->tensors);
}

bool runtime_call_begin(runtime_call *call, Py_ssize_t count)
{
    *call = (runtime_call){.count = 0};
    call->tensors = count <= RUNTIME_FEW ? call->few : calloc((size_t)count, sizeof *call->tensors);
    if (call->tensors == NULL)
        PyErr_NoMemory();
    return call->tensors != NULL;
}

bool runtime_call_add(runtime_call *call, PyObject *object, bool share_read_only)
{
    char what[40];
    snprintf(what, sizeof what, "input %zd", call->count);
    call->has_numpy |= !call->has_numpy && is_numpy(object);
    runtime_tensor *tensor = runtime_tensor_from_object(object, -1, share_read_only, what);
    if (tensor != NULL)
        call->tensors[call->count++] = tensor;
    return tensor != NULL;
}

/*
 * Keeps objects alive that may own the memory of a result: its inputs, because a result may be an input or a part of one, and
 * its maker, because a model's constants may be results.
 */
static bool keep_inputs(const runtime_call *call, runtime_tensor *result, PyObject *maker)
{
    bool overlaps = false;
    for (Py_ssize_t i = 0; i < call->count; i++)
        if (runtime_overlap(&call->tensors[i]->view, &result->view)) {
            overlaps = true;
            result->is_read_only |= call->tensors[i]->is_read_only;
        }
    if (!overlaps)
        return true;
    PyObject *keeps = PyTuple_New(call->count + 1);
    if (keeps == NULL)
        return false;
    for (Py_ssize_t i = 0; i <= call->count; i++) {
        PyObject *item = i < call->count ? (PyObject *)call->tensors[i] : maker;
        Py_IncRef(item);
        PyTuple_SetItem(keeps, i, item);
    }
    Py_DecRef(result->keeps);
    result->keeps = keeps;
    return true;
}

/* Makes one result. Owns the handle. */
static PyObject *make_result(const runtime_call *call, AtenTensorHandle handle, PyObject *maker)
{
    if (handle == NULL) {
        Py_IncRef(Py_None);
        return Py_None;
    }
    runtime_tensor *tensor = runtime_tensor_from_handle(handle, maker);
    if (tensor == NULL || !keep_inputs(call, tensor, maker)) {
        Py_DecRef((PyObject *)tensor);
        return NULL;
    }
    if (!call->has_numpy || runtime_buffer_format(tensor->view.dtype) == NULL)
        return (PyObject *)tensor;
    PyObject *array = PyObject_CallFunctionObjArgs(numpy_asarray, (PyObject *)tensor, NULL);
    Py_DecRef((PyObject *)tensor);
    return array;
}

/* Makes a tuple of results. Owns the handles; the caller owns the array. */
PyObject *runtime_make_results(const runtime_call *call, AtenTensorHandle *handles, size_t count, PyObject *maker)
{
    PyObject *results = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; i < count; i++) {
        PyObject *result = results != NULL ? make_result(call, handles[i], maker) : NULL;
        if (results == NULL)
            aoticache_tensor_free(handles[i]);
        else if (result != NULL)
            PyTuple_SetItem(results, (Py_ssize_t)i, result);
        else {
            Py_DecRef(results);
            results = NULL;
        }
    }
    return results;
}
