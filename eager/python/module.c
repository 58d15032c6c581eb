/*
 * eager/python/module: the module aoticache._runtime: caches, models and operators. Everything that waits or runs does so
 * without the lock of the interpreter. aoticache.runtime, in Python, makes of it what people use.
 */
#include "eager/python/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 16 }; /* inputs, or outputs, for which a call needs no memory */

/* Frees an object whose type was made from a specification. */
static void free_object(PyObject *self)
{
    PyObject *type = PyObject_Type(self);
    PyObject_Free(self);
    Py_DecRef(type);
    Py_DecRef(type);
}

/* ---- caches ---- */

typedef struct runtime_cache {
    PyObject_HEAD aoticache_cache *cache;
} runtime_cache;

static PyTypeObject *cache_type;

static PyObject *open_cache(PyObject *module, PyObject *arguments)
{
    const char *directory;
    aoticache_error error = {.message = ""};
    aoticache_status status;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "z", &directory))
        return NULL;
    runtime_cache *made = (runtime_cache *)PyType_GenericAlloc(cache_type, 0);
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
    free_object(self);
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

static PyType_Spec cache_spec = {
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

/* ---- arguments and results ---- */

static PyObject *numpy_array, *numpy_scalar, *numpy_asarray; /* once NumPy is in the process */

/* Where NumPy is not imported nobody has an array of its. */
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
    PyErr_Clear(); /* half imported, by another thread */
    return numpy_asarray != NULL;
}

static bool is_numpy(PyObject *object)
{
    return find_numpy() &&
           (PyObject_IsInstance(object, numpy_array) > 0 || PyObject_IsInstance(object, numpy_scalar) > 0);
}

/* The tensors of one call. */
typedef struct array_call {
    Py_ssize_t count;
    runtime_tensor **tensors;
    bool has_numpy;
    runtime_tensor *few[FEW];
} array_call;

static void call_free(array_call *call)
{
    for (Py_ssize_t i = 0; i < call->count; i++)
        Py_DecRef((PyObject *)call->tensors[i]);
    if (call->tensors != call->few)
        free(call->tensors);
}

static bool call_begin(array_call *call, Py_ssize_t count)
{
    *call = (array_call){.count = 0};
    call->tensors = count <= FEW ? call->few : calloc((size_t)count, sizeof *call->tensors);
    if (call->tensors == NULL)
        PyErr_NoMemory();
    return call->tensors != NULL;
}

static bool call_add(array_call *call, PyObject *object, bool share_read_only)
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
 * A result may be an input, or a part of one: then it keeps the inputs, whose memory it is. It always keeps what made it:
 * a model's constants may be results too.
 */
static bool keep_inputs(const array_call *call, runtime_tensor *result, PyObject *maker)
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

/* Takes the handle. */
static PyObject *make_result(const array_call *call, AtenTensorHandle handle, PyObject *maker)
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

/* Takes the handles, and leaves the array to the caller. */
static PyObject *make_results(const array_call *call, AtenTensorHandle *handles, size_t count, PyObject *maker)
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

/* ---- models ---- */

typedef struct runtime_model {
    PyObject_HEAD aoticache_runner *runner;
    PyObject *cache;
    bool share_read_only;
} runtime_model;

static PyTypeObject *model_type;

/* What a process with PyTorch would need, and cannot have from here. */
static aoticache_status check_model(aoticache_runner *runner, const char *device, aoticache_error *ret_error)
{
    const aoticache_library *library = aoticache_runner_library(runner);
    if (strncmp(device, "cpu", 3) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "the model is for the device %s; aoticache.runtime runs models for the CPU", device);
    if (aoticache_library_needs_proxy_executor(library) &&
        aoticache_library_torch_kind(library) == AOTICACHE_TORCH_LIBTORCH)
        return aoticache_error_set(
            ret_error, AOTICACHE_UNSUPPORTED,
            "the model calls operators of PyTorch by way of its proxy executor: in a process with "
            "PyTorch load it with torch._inductor.aoti_load_package()");
    return AOTICACHE_OK;
}

/* What a caller asks for, and where it goes. */
typedef struct opening {
    aoticache_cache *cache;
    const char *kind, *what, *model, *weights;
    bool map_weights, ignore_unknown;
    Py_ssize_t num_runners;
    aoticache_runner *runner;
    aoticache_key key;
    char name[256], device[32];
} opening;

static aoticache_status open_package(opening *open, bool by_key, aoticache_error *ret_error)
{
    aoticache_package_options options = AOTICACHE_PACKAGE_OPTIONS_INIT;
    aoticache_package_report report;
    options.model = open->model;
    options.weights = open->weights;
    options.map_weights = open->map_weights;
    options.ignore_unknown_weights = open->ignore_unknown;
    options.num_models = (size_t)open->num_runners;
    aoticache_status status = AOTICACHE_OK;
    if (by_key && aoticache_digest_from_hex(open->what, &open->key) != AOTICACHE_OK)
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.200s is no key", open->what);
    if (status == AOTICACHE_OK && by_key)
        status = aoticache_package_load_key(open->cache, &open->key, &options, &open->runner, &report, ret_error);
    else if (status == AOTICACHE_OK)
        status = aoticache_package_load(open->cache, open->what, &options, &open->runner, &report, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    open->key = report.key;
    snprintf(open->name, sizeof open->name, "%s", report.model);
    snprintf(open->device, sizeof open->device, "%s", report.device);
    return status;
}

static aoticache_status open_stored_model(opening *open, aoticache_error *ret_error)
{
    aoticache_model_options options = AOTICACHE_MODEL_OPTIONS_INIT;
    aoticache_model_report report;
    options.weights = open->weights;
    options.map_weights = open->map_weights;
    options.num_models = (size_t)open->num_runners;
    aoticache_status status =
        aoticache_model_open(open->cache, open->what, &options, &open->runner, &report, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    open->key = report.key;
    snprintf(open->name, sizeof open->name, "%s", report.name);
    snprintf(open->device, sizeof open->device, "%s", report.device);
    return status;
}

static aoticache_status open_runner(opening *open, aoticache_error *ret_error)
{
    aoticache_status status = strcmp(open->kind, "package") == 0 ? open_package(open, false, ret_error)
                              : strcmp(open->kind, "key") == 0   ? open_package(open, true, ret_error)
                                                                 : open_stored_model(open, ret_error);
    if (status == AOTICACHE_OK)
        status = check_model(open->runner, open->device, ret_error);
    return status;
}

/* open_model(cache, kind, what, model, weights, map_weights, ignore_unknown, num_runners, share_read_only) ->
 * (model, name, key) */
static PyObject *open_model(PyObject *module, PyObject *arguments)
{
    PyObject *cache;
    int map_weights, ignore_unknown, share_read_only;
    opening open = {0};
    aoticache_error error = {.message = ""};
    aoticache_status status;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!sszzppnp", cache_type, &cache, &open.kind, &open.what, &open.model,
                          &open.weights, &map_weights, &ignore_unknown, &open.num_runners, &share_read_only))
        return NULL;
    open.map_weights = map_weights != 0;
    open.ignore_unknown = ignore_unknown != 0;
    runtime_model *made = (runtime_model *)PyType_GenericAlloc(model_type, 0);
    if (made == NULL)
        return NULL;
    open.cache = ((runtime_cache *)cache)->cache;
    made->share_read_only = share_read_only != 0;
    Py_IncRef(made->cache = cache);
    Py_BEGIN_ALLOW_THREADS status = open_runner(&open, &error);
    Py_END_ALLOW_THREADS made->runner = open.runner;
    if (status != AOTICACHE_OK) {
        Py_DecRef((PyObject *)made);
        return runtime_raise(&error, status);
    }
    aoticache_digest_to_hex(&open.key, hex);
    PyObject *result = Py_BuildValue("(Oss)", (PyObject *)made, open.name, hex);
    Py_DecRef((PyObject *)made);
    return result;
}

static void model_dealloc(PyObject *self)
{
    runtime_model *model = (runtime_model *)self;
    aoticache_runner *runner = model->runner;
    if (runner != NULL) {
        Py_BEGIN_ALLOW_THREADS aoticache_runner_unref(runner);
        Py_END_ALLOW_THREADS
    }
    Py_DecRef(model->cache);
    free_object(self);
}

static PyObject *run_model(runtime_model *model, const array_call *call, AtenTensorHandle *inputs,
                           AtenTensorHandle *outputs)
{
    aoticache_error error;
    aoticache_status status;
    const size_t num_outputs = aoticache_runner_num_outputs(model->runner);
    for (Py_ssize_t i = 0; i < call->count; i++)
        inputs[i] = call->tensors[i]->handle;
    error.message[0] = '\0';
    Py_BEGIN_ALLOW_THREADS status =
        aoticache_runner_run(model->runner, inputs, (size_t)call->count, outputs, num_outputs, &error);
    Py_END_ALLOW_THREADS if (status != AOTICACHE_OK) return runtime_raise(&error, status);
    return make_results(call, outputs, num_outputs, (PyObject *)model);
}

/* run(inputs: tuple) -> tuple */
static PyObject *model_run(PyObject *self, PyObject *given)
{
    array_call call;
    runtime_model *model = (runtime_model *)self;
    const Py_ssize_t count = PyTuple_Size(given);
    if (count < 0 || !call_begin(&call, count))
        return NULL;
    bool complete = true;
    for (Py_ssize_t i = 0; complete && i < count; i++)
        complete = call_add(&call, PyTuple_GetItem(given, i), model->share_read_only);
    AtenTensorHandle few[2 * FEW] = {NULL}, *handles = few;
    const size_t places = (size_t)count + aoticache_runner_num_outputs(model->runner);
    if (places > 2 * FEW)
        handles = calloc(places, sizeof *handles);
    if (handles == NULL)
        PyErr_NoMemory();
    PyObject *results = complete && handles != NULL ? run_model(model, &call, handles, handles + count) : NULL;
    if (handles != few)
        free(handles);
    call_free(&call);
    return results;
}

static PyObject *model_num_inputs(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong((long long)aoticache_runner_num_inputs(((runtime_model *)self)->runner));
}

static PyObject *model_num_outputs(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong((long long)aoticache_runner_num_outputs(((runtime_model *)self)->runner));
}

/* Two JSON texts, "" where the library has none. */
static PyObject *model_call_spec(PyObject *self, void *closure)
{
    const char *inputs = "", *outputs = "";
    (void)closure;
    if (aoticache_runner_call_spec(((runtime_model *)self)->runner, &inputs, &outputs, NULL) != AOTICACHE_OK)
        inputs = outputs = "";
    return Py_BuildValue("(ss)", inputs, outputs);
}

static PyType_Spec model_spec = {
    .name = "aoticache._runtime.Model",
    .basicsize = sizeof(runtime_model),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots =
        (PyType_Slot[]){
            {Py_tp_dealloc, (void *)model_dealloc},
            {Py_tp_getset, (PyGetSetDef[]){{"num_inputs", model_num_inputs, NULL, NULL, NULL},
                                           {"num_outputs", model_num_outputs, NULL, NULL, NULL},
                                           {"call_spec", model_call_spec, NULL, NULL, NULL},
                                           {0}}},
            {Py_tp_methods, (PyMethodDef[]){{"run", model_run, METH_O, NULL}, {0}}},
            {0, NULL},
        },
};

/* ---- operators ---- */

typedef struct runtime_operator {
    PyObject_HEAD aoticache_context *context;
    aoticache_holder *holder;
    PyObject *cache;
    bool share_read_only;
} runtime_operator;

static PyTypeObject *operator_type;

/* Whose kernels there are: the environment of the entry that was stored last. */
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
                                     "the cache %.400s has no kernel of %.200s%s%.100s that this machine can run",
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
static PyObject *open_operator(PyObject *module, PyObject *arguments)
{
    PyObject *cache;
    const char *name, *schema, *framework;
    int share_read_only;
    aoticache_error error = {.message = ""};
    aoticache_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!sszp", cache_type, &cache, &name, &schema, &framework, &share_read_only))
        return NULL;
    runtime_operator *made = (runtime_operator *)PyType_GenericAlloc(operator_type, 0);
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
    runtime_operator *operator=(runtime_operator *) self;
    Py_BEGIN_ALLOW_THREADS aoticache_holder_unref(operator->holder);
    aoticache_context_free(operator->context);
    Py_END_ALLOW_THREADS Py_DecRef(operator->cache);
    free_object(self);
}

static bool is_of(PyObject *object, PyTypeObject *type)
{
    return PyObject_IsInstance(object, (PyObject *)type) > 0;
}

/* A number, a text, None, or a list of whole numbers; everything else is a tensor. false with an exception. */
static bool read_argument(array_call *call, PyObject *object, bool share_read_only, aoticache_value *ret_value)
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
        if (!call_add(call, object, share_read_only))
            return false;
        *ret_value =
            (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &call->tensors[call->count - 1]->view};
    }
    return PyErr_Occurred() == NULL;
}

/* Takes what the operator has put on the stack. */
static PyObject *take_results(const array_call *call, aoticache_stack *stack, PyObject *maker)
{
    AtenTensorHandle handles[FEW * 4];
    size_t count = 0;
    const aoticache_value *list = &stack->values[0];
    if (stack->count == 1 && list->kind == AOTICACHE_VALUE_OUTPUT_LIST) {
        PyObject *results = make_results(call, list->as.outputs, list->count, maker);
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
    return make_results(call, handles, count, maker);
}

static PyObject *call_operator(runtime_operator *operator, const array_call * call, aoticache_value *values,
                               size_t capacity, size_t count)
{
    aoticache_error error = {.message = ""};
    aoticache_status status;
    aoticache_stack stack = {.values = values, .count = count, .capacity = capacity};
    Py_BEGIN_ALLOW_THREADS status = aoticache_holder_push_defaults(operator->holder, count, &stack, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_holder_call(operator->holder, 0, &stack, &error);
    Py_END_ALLOW_THREADS if (status != AOTICACHE_OK) return runtime_raise(&error, status);
    return take_results(call, &stack, (PyObject *)operator);
}

/* run(arguments: tuple) -> tuple */
static PyObject *operator_run(PyObject *self, PyObject *given)
{
    array_call call;
    runtime_operator *operator=(runtime_operator *) self;
    const Py_ssize_t count = PyTuple_Size(given);
    if (count < 0 || !call_begin(&call, count))
        return NULL;
    const size_t capacity = (size_t)count + 64;
    aoticache_value *values = calloc(capacity, sizeof *values);
    bool complete = values != NULL;
    if (values == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; complete && i < count; i++)
        complete = read_argument(&call, PyTuple_GetItem(given, i), operator->share_read_only, &values[i]);
    int64_t *lists[64];
    size_t num_lists = 0;
    for (Py_ssize_t i = 0; values != NULL && i < count && num_lists < 64; i++)
        if (values[i].kind == AOTICACHE_VALUE_INT_LIST)
            lists[num_lists++] = (int64_t *)values[i].as.ints;
    PyObject *results = complete ? call_operator(operator, & call, values, capacity, (size_t)count) : NULL;
    for (size_t i = 0; i < num_lists; i++)
        free(lists[i]);
    free(values);
    call_free(&call);
    return results;
}

static PyType_Spec operator_spec = {
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

/* ---- the module ---- */

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

/* provider() -> "libtorch" or "shim", and its file */
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
    Py_IncRef(runtime_error_type = type); /* as long as the process lives */
    Py_IncRef(Py_None);
    return Py_None;
}

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "aoticache._runtime",
    .m_size = -1,
    .m_methods = (PyMethodDef[]){{"open_cache", open_cache, METH_VARARGS, NULL},
                                 {"open_model", open_model, METH_VARARGS, NULL},
                                 {"open_operator", open_operator, METH_VARARGS, NULL},
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
    cache_type = (PyTypeObject *)PyType_FromSpec(&cache_spec);
    model_type = (PyTypeObject *)PyType_FromSpec(&model_spec);
    operator_type = (PyTypeObject *)PyType_FromSpec(&operator_spec);
    if (runtime_tensor_type == NULL || cache_type == NULL || model_type == NULL || operator_type == NULL)
        return NULL;
    PyObject *module = PyModule_Create2(&definition, ABI_VERSION);
    if (module != NULL)
        PyModule_AddObjectRef(module, "Tensor", (PyObject *)runtime_tensor_type);
    return module;
}
