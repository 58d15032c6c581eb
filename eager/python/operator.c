/*
 * eager/python/operator: the type of operators: kernels in the cache, called through a holder that compiles nothing.
 */
#include "cache/entries.h"
#include "cache/request/text.h"
#include "eager/holder/dispatch_holder.h"
#include "eager/python/python_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct runtime_operator {
    PyObject_HEAD aoticache_context *context;
    aoticache_holder *holder;
    PyObject *cache;
    bool share_read_only;
} runtime_operator;

PyTypeObject *runtime_operator_type;

/* Finds the maker of the kernels: the environment of the entry that was stored last. */
typedef struct kernel_search {
    const char *framework; /* NULL: any */
    int64_t newest;
    size_t count;
    char *pairs[256];
} kernel_search;

static void clear_pairs(kernel_search *search)
{
    for (size_t i = 0; i < search->count; i++)
        free(search->pairs[i]);
    memset(search->pairs, 0, sizeof search->pairs);
    search->count = 0;
}

static bool look_at_kernel(void *user, const aoticache_stored *stored)
{
    kernel_search *search = user;
    const char *framework = aoticache_request_get_environment(stored->request, "framework");
    if (stored->entry_id <= search->newest ||
        aoticache_request_device(stored->request).type != AOTICACHE_DEVICE_TYPE_CPU ||
        (search->framework != NULL && (framework == NULL || strcmp(framework, search->framework) != 0)))
        return true;
    clear_pairs(search);
    search->newest = stored->entry_id;
    for (size_t i = 0; i < aoticache_request_environment_count(stored->request) && search->count < 255; i++) {
        const char *name, *value;
        aoticache_request_environment_at(stored->request, i, &name, &value);
        if (strcmp(name, AOTICACHE_SHAPES_NAME) != 0 && strcmp(name, AOTICACHE_RESULTS_NAME) != 0 &&
            strcmp(name, AOTICACHE_NUMBERS_NAME) != 0 &&
            asprintf(&search->pairs[search->count], "%s=%s", name, value) >= 0)
            search->count++;
    }
    return true;
}

static aoticache_status create_holder(runtime_operator *made, const char *name, const char *schema,
                                      const char *framework, aoticache_error *ret_error)
{
    kernel_search search = {.framework = framework};
    aoticache_cache *cache = ((runtime_cache *)made->cache)->cache;
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_holder_options holder_options = AOTICACHE_HOLDER_OPTIONS_INIT;
    aoticache_status status = aoticache_cache_list_stored(cache, name, 0, look_at_kernel, &search, ret_error);
    if (status == AOTICACHE_OK && search.newest == 0)
        status = aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                                     "cache %.400s has no kernel of %.200s%s%.100s that this machine can run",
                                     aoticache_cache_directory(cache), name, framework != NULL ? " of " : "",
                                     framework != NULL ? framework : "");
    options.cache = cache;
    options.miss = AOTICACHE_MISS_NEVER;
    options.fail_calls = true;
    options.environment = (const char *const *)search.pairs;
    holder_options.schema = schema;
    holder_options.device = AOTICACHE_DEVICE_CPU;
    if (status == AOTICACHE_OK)
        status = aoticache_context_create(&options, &made->context, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_holder_create(made->context, &holder_options, &made->holder, ret_error);
    clear_pairs(&search);
    return status;
}

/* open_operator(cache, name, schema, framework, share_read_only) -> operator */
PyObject *runtime_open_operator(PyObject *module, PyObject *arguments)
{
    PyObject *cache;
    const char *name, *schema, *framework;
    int share_read_only;
    aoticache_error error = {.message = ""};
    aoticache_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!sszp", runtime_cache_type, &cache, &name, &schema, &framework,
                          &share_read_only))
        return NULL;
    runtime_operator *made = (runtime_operator *)PyType_GenericAlloc(runtime_operator_type, 0);
    if (made == NULL)
        return NULL;
    made->share_read_only = share_read_only != 0;
    Py_IncRef(made->cache = cache);
    Py_BEGIN_ALLOW_THREADS status = create_holder(made, name, schema, framework, &error);
    Py_END_ALLOW_THREADS if (status == AOTICACHE_OK) return (PyObject *)made;
    Py_DecRef((PyObject *)made);
    return runtime_raise(&error, status);
}

static void operator_dealloc(PyObject *self)
{
    runtime_operator *op = (runtime_operator *)self;
    Py_BEGIN_ALLOW_THREADS aoticache_holder_unref(op->holder);
    aoticache_context_free(op->context);
    Py_END_ALLOW_THREADS Py_DecRef(op->cache);
    runtime_free_object(self);
}

static bool is_of(PyObject *object, PyTypeObject *type)
{
    return PyObject_IsInstance(object, (PyObject *)type) > 0;
}

/* Reads a number, a text, None, or a list of integers; everything else is a tensor. false with an exception. */
static bool read_argument(runtime_call *call, PyObject *object, bool share_read_only, aoticache_value *ret_value)
{
    *ret_value = (aoticache_value){.kind = AOTICACHE_VALUE_NONE};
    if (object == Py_None)
        return true;
    if (is_of(object, &PyBool_Type)) {
        ret_value->kind = AOTICACHE_VALUE_BOOL;
        ret_value->as.bool_value = object == (PyObject *)(void *)&_Py_TrueStruct;
    } else if (is_of(object, &PyLong_Type)) {
        ret_value->kind = AOTICACHE_VALUE_INT;
        ret_value->as.int_value = PyLong_AsLongLong(object);
    } else if (is_of(object, &PyFloat_Type)) {
        ret_value->kind = AOTICACHE_VALUE_DOUBLE;
        ret_value->as.double_value = PyFloat_AsDouble(object);
    } else if (is_of(object, &PyUnicode_Type)) {
        ret_value->kind = AOTICACHE_VALUE_STRING;
        ret_value->as.string = PyUnicode_AsUTF8AndSize(object, NULL);
    } else if (is_of(object, &PyTuple_Type)) {
        const Py_ssize_t count = PyTuple_Size(object);
        int64_t *numbers = calloc((size_t)count + 1, sizeof *numbers);
        if (numbers == NULL)
            return PyErr_NoMemory() != NULL;
        for (Py_ssize_t i = 0; i < count; i++)
            numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(object, i));
        *ret_value = (aoticache_value){.kind = AOTICACHE_VALUE_INT_LIST, .count = (uint32_t)count, .as.ints = numbers};
    } else {
        if (!runtime_call_add(call, object, share_read_only))
            return false;
        *ret_value =
            (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &call->tensors[call->count - 1]->view};
    }
    return PyErr_Occurred() == NULL;
}

/* Takes the operator's results from the stack. */
static PyObject *take_results(const runtime_call *call, aoticache_stack *stack, PyObject *maker)
{
    AtenTensorHandle handles[RUNTIME_FEW * 4];
    size_t count = 0;
    const aoticache_value *list = &stack->values[0];
    if (stack->count == 1 && list->kind == AOTICACHE_VALUE_OUTPUT_LIST) {
        PyObject *results = runtime_make_results(call, list->as.outputs, list->count, maker);
        free(list->as.outputs);
        return results;
    }
    for (size_t i = 0; i < stack->count; i++)
        if (stack->values[i].kind != AOTICACHE_VALUE_OUTPUT || count == sizeof handles / sizeof handles[0]) {
            aoticache_stack_drop(stack, 0);
            return PyErr_Format(PyExc_TypeError, "result %zd of the operator is a %s, not a tensor", (Py_ssize_t)i,
                                aoticache_value_kind_name(stack->values[i].kind));
        } else {
            handles[count++] = stack->values[i].as.output;
        }
    return runtime_make_results(call, handles, count, maker);
}

static PyObject *call_operator(runtime_operator *op, const runtime_call *call, aoticache_value *values, size_t capacity,
                               size_t count)
{
    aoticache_error error = {.message = ""};
    aoticache_status status;
    aoticache_stack stack = {.values = values, .count = count, .capacity = capacity};
    Py_BEGIN_ALLOW_THREADS status = aoticache_holder_push_defaults(op->holder, count, &stack, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_holder_call(op->holder, 0, &stack, &error);
    Py_END_ALLOW_THREADS if (status != AOTICACHE_OK) return runtime_raise(&error, status);
    return take_results(call, &stack, (PyObject *)op);
}

/* run(arguments: tuple) -> tuple */
static PyObject *operator_run(PyObject *self, PyObject *given)
{
    runtime_call call;
    runtime_operator *op = (runtime_operator *)self;
    const Py_ssize_t count = PyTuple_Size(given);
    if (count < 0 || !runtime_call_begin(&call, count))
        return NULL;
    const size_t capacity = (size_t)count + 64;
    aoticache_value *values = calloc(capacity, sizeof *values);
    int64_t **lists = calloc((size_t)count + 1, sizeof *lists); /* the call frees values on the stack, not these */
    bool complete = values != NULL && lists != NULL;
    if (!complete)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; complete && i < count; i++) {
        complete = read_argument(&call, PyTuple_GetItem(given, i), op->share_read_only, &values[i]);
        if (values[i].kind == AOTICACHE_VALUE_INT_LIST)
            lists[i] = (int64_t *)values[i].as.ints;
    }
    PyObject *results = complete ? call_operator(op, &call, values, capacity, (size_t)count) : NULL;
    for (Py_ssize_t i = 0; lists != NULL && i < count; i++)
        free(lists[i]);
    free(lists);
    free(values);
    runtime_call_free(&call);
    return results;
}

PyType_Spec runtime_operator_spec = {
    .name = "aoticache._runtime.Operator",
    .basicsize = sizeof(runtime_operator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots =
        (PyType_Slot[]){
            {Py_tp_dealloc, (void *)operator_dealloc},
            {Py_tp_methods, (PyMethodDef[]){{"run", operator_run, METH_O, NULL}, {0}}},
            {0, NULL},
        },
};
