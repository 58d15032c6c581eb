/*
 * eager/python/cache: the type of open caches.
 */
#include "cache/entries.h"
#include "eager/python/python_internal.h"

PyTypeObject *runtime_cache_type;

PyObject *runtime_open_cache(PyObject *module, PyObject *arguments)
{
    const char *directory;
    aoticache_error error = {.message = ""};
    aoticache_status status;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "z", &directory))
        return NULL;
    runtime_cache *made = (runtime_cache *)PyType_GenericAlloc(runtime_cache_type, 0);
    if (made == NULL)
        return NULL;
    options.directory = directory;
    Py_BEGIN_ALLOW_THREADS status = aoticache_cache_open(&options, &made->cache, &error);
    Py_END_ALLOW_THREADS if (status == AOTICACHE_OK) return (PyObject *)made;
    Py_DecRef((PyObject *)made);
    return runtime_raise(&error, status);
}

static void cache_dealloc(PyObject *self)
{
    aoticache_cache_close(((runtime_cache *)self)->cache);
    runtime_free_object(self);
}

static PyObject *cache_directory(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(aoticache_cache_directory(((runtime_cache *)self)->cache));
}

static PyObject *cache_at_exit(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_BEGIN_ALLOW_THREADS aoticache_cache_at_exit(((runtime_cache *)self)->cache);
    Py_END_ALLOW_THREADS Py_IncRef(Py_None);
    return Py_None;
}

PyType_Spec runtime_cache_spec = {
    .name = "aoticache._runtime.Cache",
    .basicsize = sizeof(runtime_cache),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots =
        (PyType_Slot[]){
            {Py_tp_dealloc, (void *)cache_dealloc},
            {Py_tp_getset, (PyGetSetDef[]){{"directory", cache_directory, NULL, NULL, NULL}, {0}}},
            {Py_tp_methods, (PyMethodDef[]){{"at_exit", cache_at_exit, METH_NOARGS, NULL}, {0}}},
            {0, NULL},
        },
};
