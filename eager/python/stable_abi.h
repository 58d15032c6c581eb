/*
 * eager/python/stable_abi: declares the part of Python's stable ABI that the extension uses, so that the library can be built
 * without Python's headers, once for all versions from 3.10 on.
 *
 * Source: https://docs.python.org/3/c-api/stable.html. The buffer functions are in the limited API since 3.11; 3.10 exports
 * them with the same layout. tests/python/runtime/test_runtime.py includes Python's own headers before this one,
 * so that the compiler compares each declaration with Python's.
 */
#ifndef AOTICACHE_EAGER_PYTHON_STABLE_ABI_H
#define AOTICACHE_EAGER_PYTHON_STABLE_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifndef Py_PYTHON_H

typedef ssize_t Py_ssize_t;
typedef struct _object PyObject;
typedef struct _typeobject PyTypeObject;
typedef struct _ts PyThreadState;
typedef enum { PyGILState_LOCKED, PyGILState_UNLOCKED } PyGILState_STATE;

struct _object {
    Py_ssize_t ob_refcnt;
    PyTypeObject *ob_type;
};
#define PyObject_HEAD PyObject ob_base;

typedef PyObject *(*PyCFunction)(PyObject *self, PyObject *arguments);
typedef PyObject *(*getter)(PyObject *self, void *closure);
typedef int (*setter)(PyObject *self, PyObject *value, void *closure);
typedef void (*PyCapsule_Destructor)(PyObject *capsule);

typedef struct PyMethodDef {
    const char *ml_name;
    PyCFunction ml_meth;
    int ml_flags;
    const char *ml_doc;
} PyMethodDef;

typedef struct PyGetSetDef {
    const char *name;
    getter get;
    setter set;
    const char *doc;
    void *closure;
} PyGetSetDef;

typedef struct PyModuleDef_Base {
    PyObject ob_base;
    PyObject *(*m_init)(void);
    Py_ssize_t m_index;
    PyObject *m_copy;
} PyModuleDef_Base;
#define PyModuleDef_HEAD_INIT {{1, NULL}, NULL, 0, NULL}

typedef struct PyModuleDef {
    PyModuleDef_Base m_base;
    const char *m_name;
    const char *m_doc;
    Py_ssize_t m_size;
    PyMethodDef *m_methods;
    void *m_slots;
    void *m_traverse;
    void *m_clear;
    void *m_free;
} PyModuleDef;

typedef struct {
    int slot;
    void *pfunc;
} PyType_Slot;

typedef struct {
    const char *name;
    int basicsize;
    int itemsize;
    unsigned int flags;
    PyType_Slot *slots;
} PyType_Spec;

typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;

enum {
    METH_VARARGS = 0x0001,
    METH_KEYWORDS = 0x0002,
    METH_NOARGS = 0x0004,
    METH_O = 0x0008,
    Py_bf_getbuffer = 1,
    Py_bf_releasebuffer = 2,
    Py_sq_length = 45,
    Py_tp_dealloc = 52,
    Py_tp_doc = 56,
    Py_tp_methods = 64,
    Py_tp_getset = 73,
    Py_TPFLAGS_DEFAULT = 1 << 18,
    Py_TPFLAGS_DISALLOW_INSTANTIATION = 1 << 7,
    PyBUF_WRITABLE = 0x0001,
    PyBUF_FORMAT = 0x0004,
    PyBUF_ND = 0x0008,
    PyBUF_STRIDES = 0x0010 | PyBUF_ND,
    PyBUF_C_CONTIGUOUS = 0x0020 | PyBUF_STRIDES,
    PyBUF_F_CONTIGUOUS = 0x0040 | PyBUF_STRIDES,
    PyBUF_ANY_CONTIGUOUS = 0x0080 | PyBUF_STRIDES,
    PyBUF_RECORDS_RO = PyBUF_STRIDES | PyBUF_FORMAT,
};

#define Py_None (&_Py_NoneStruct)
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
#define Py_BEGIN_ALLOW_THREADS \
    {                          \
        PyThreadState *_save = PyEval_SaveThread();
#define Py_END_ALLOW_THREADS     \
    PyEval_RestoreThread(_save); \
    }

#endif

extern PyObject _Py_NoneStruct;
extern struct _longobject _Py_TrueStruct;
extern PyTypeObject PyBool_Type, PyFloat_Type, PyList_Type, PyLong_Type, PyTuple_Type, PyUnicode_Type;
extern PyObject *PyExc_BufferError, *PyExc_MemoryError, *PyExc_RuntimeError, *PyExc_TypeError, *PyExc_ValueError;

void Py_IncRef(PyObject *object);
void Py_DecRef(PyObject *object);
int Py_IsInitialized(void);

PyObject *PyBool_FromLong(long value);
PyObject *PyComplex_FromDoubles(double real, double imaginary);
double PyComplex_RealAsDouble(PyObject *object);
PyObject *PyFloat_FromDouble(double value);
double PyFloat_AsDouble(PyObject *object);
PyObject *PyLong_FromLong(long value);
PyObject *PyLong_FromLongLong(long long value);
PyObject *PyLong_FromUnsignedLongLong(unsigned long long value);
long long PyLong_AsLongLong(PyObject *object);
PyObject *PyUnicode_FromString(const char *text);
PyObject *PyUnicode_FromFormat(const char *format, ...);
const char *PyUnicode_AsUTF8AndSize(PyObject *object, Py_ssize_t *ret_size);

PyObject *PyTuple_New(Py_ssize_t size);
Py_ssize_t PyTuple_Size(PyObject *tuple);
PyObject *PyTuple_GetItem(PyObject *tuple, Py_ssize_t position);
int PyTuple_SetItem(PyObject *tuple, Py_ssize_t position, PyObject *item);
PyObject *PyList_New(Py_ssize_t size);
Py_ssize_t PyList_Size(PyObject *list);
PyObject *PyList_GetItem(PyObject *list, Py_ssize_t position);
int PyList_SetItem(PyObject *list, Py_ssize_t position, PyObject *item);
int PyDict_SetItemString(PyObject *dictionary, const char *key, PyObject *item);
PyObject *PyDict_New(void);
PyObject *PyDict_GetItemString(PyObject *dictionary, const char *key);
Py_ssize_t PyDict_Size(PyObject *dictionary);

PyObject *PyObject_Type(PyObject *object);
PyObject *PyObject_GetAttrString(PyObject *object, const char *name);
PyObject *PyObject_Call(PyObject *callable, PyObject *arguments, PyObject *keywords);
PyObject *PyObject_CallFunction(PyObject *callable, const char *format, ...);
PyObject *PyObject_CallFunctionObjArgs(PyObject *callable, ...);
int PyObject_IsInstance(PyObject *object, PyObject *type);
int PyObject_CheckBuffer(PyObject *object);
int PyObject_GetBuffer(PyObject *object, Py_buffer *ret_view, int flags);
void PyBuffer_Release(Py_buffer *view);
int PyBuffer_IsContiguous(const Py_buffer *view, char order);
int PyCallable_Check(PyObject *object);

int PyArg_ParseTuple(PyObject *arguments, const char *format, ...);
PyObject *Py_BuildValue(const char *format, ...);

PyObject *PyCapsule_New(void *pointer, const char *name, PyCapsule_Destructor destructor);
void *PyCapsule_GetPointer(PyObject *capsule, const char *name);
int PyCapsule_IsValid(PyObject *capsule, const char *name);
int PyCapsule_SetName(PyObject *capsule, const char *name);

void PyErr_Clear(void);
int PyErr_ExceptionMatches(PyObject *type);
void PyErr_Fetch(PyObject **ret_type, PyObject **ret_value, PyObject **ret_traceback);
PyObject *PyErr_Format(PyObject *type, const char *format, ...);
PyObject *PyErr_NoMemory(void);
PyObject *PyErr_Occurred(void);
void PyErr_Restore(PyObject *type, PyObject *value, PyObject *traceback);
void PyErr_SetObject(PyObject *type, PyObject *value);
void PyErr_WriteUnraisable(PyObject *object);

PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *state);
PyGILState_STATE PyGILState_Ensure(void);
void PyGILState_Release(PyGILState_STATE state);

PyObject *PyImport_ImportModule(const char *name);
PyObject *PyImport_GetModule(PyObject *name);
PyObject *PyModule_Create2(PyModuleDef *definition, int version);
int PyModule_AddObjectRef(PyObject *module, const char *name, PyObject *object);
PyObject *PyType_FromSpec(PyType_Spec *spec);
PyObject *PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t items);
void *PyType_GetSlot(PyTypeObject *type, int slot);
void PyObject_Free(void *memory);

#endif
