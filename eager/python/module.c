/*
 * eager/python/module: the module aoticache._runtime. aoticache.runtime, in Python, is the public interface to it.
 */
#include "eager/python/python_internal.h"
#include "loader/loader.h"

/* tensor(object, dtype or None, share_read_only) -> Tensor */
static PyObject *make_tensor(PyObject *module, PyObject *arguments)
{
    PyObject *object, *name;
    int share_read_only;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOp", &object, &name, &share_read_only))
        return NULL;
    const int32_t dtype = name == Py_None ? -1 : runtime_dtype_of(name);
    if (name != Py_None && dtype < 0)
        return NULL;
    return (PyObject *)runtime_tensor_from_object(object, dtype, share_read_only != 0, "the array");
}

/* provider() -> ("libtorch" or "shim", its file) */
static PyObject *get_provider(PyObject *module, PyObject *unused)
{
    const aoticache_torch *torch;
    aoticache_error error = {.message = ""};
    (void)module;
    (void)unused;
    aoticache_status status = aoticache_torch_get(&torch, &error);
    if (status != AOTICACHE_OK)
        return runtime_raise(&error, status);
    return Py_BuildValue("(ss)", torch->kind == AOTICACHE_TORCH_LIBTORCH ? "libtorch" : "shim", torch->path);
}

static PyObject *set_error_type(PyObject *module, PyObject *type)
{
    (void)module;
    Py_IncRef(runtime_error_type = type); /* kept as long as the process lives */
    Py_IncRef(Py_None);
    return Py_None;
}

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "aoticache._runtime",
    .m_size = -1,
    .m_methods = (PyMethodDef[]){{"open_cache", runtime_open_cache, METH_VARARGS, NULL},
                                 {"open_model", runtime_open_model, METH_VARARGS, NULL},
                                 {"open_operator", runtime_open_operator, METH_VARARGS, NULL},
                                 {"tensor", make_tensor, METH_VARARGS, NULL},
                                 {"provider", get_provider, METH_NOARGS, NULL},
                                 {"set_error_type", set_error_type, METH_O, NULL},
                                 {0}},
};

PyMODINIT_FUNC PyInit__runtime(void);

PyMODINIT_FUNC PyInit__runtime(void)
{
    enum { ABI_VERSION = 3 };
    runtime_error_type = PyExc_RuntimeError;
    runtime_tensor_type = (PyTypeObject *)PyType_FromSpec(&runtime_tensor_spec);
    runtime_cache_type = (PyTypeObject *)PyType_FromSpec(&runtime_cache_spec);
    runtime_model_type = (PyTypeObject *)PyType_FromSpec(&runtime_model_spec);
    runtime_operator_type = (PyTypeObject *)PyType_FromSpec(&runtime_operator_spec);
    if (runtime_tensor_type == NULL || runtime_cache_type == NULL || runtime_model_type == NULL ||
        runtime_operator_type == NULL)
        return NULL;
    PyObject *module = PyModule_Create2(&definition, ABI_VERSION);
    if (module != NULL)
        PyModule_AddObjectRef(module, "Tensor", (PyObject *)runtime_tensor_type);
    return module;
}
