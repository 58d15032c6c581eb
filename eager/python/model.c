/*
 * eager/python/model: the type of models: packages and stored models, opened and run without the interpreter's lock.
 */
#include "base/names.h"
#include "eager/model/tensors.h"
#include "eager/python/python_internal.h"
#include "loader/runner/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct runtime_model {
    PyObject_HEAD aoticache_runner *runner;
    PyObject *cache;
    bool share_read_only;
} runtime_model;

PyTypeObject *runtime_model_type;

/* Refuses models that need something of PyTorch that this module does not provide. */
static aoticache_status check_model(aoticache_runner *runner, const char *device, aoticache_error *ret_error)
{
    const aoticache_library_info *library = aoticache_library_get_info(aoticache_runner_get_info(runner)->library);
    if (strncmp(device, "cpu", 3) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "the model is for device %s, but aoticache.runtime runs models for the CPU", device);
    if (library->needs_proxy_executor && library->torch_kind == AOTICACHE_TORCH_LIBTORCH)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "the model calls PyTorch operators through its proxy executor: load it in a "
                                   "process with PyTorch, with torch._inductor.aoti_load_package()");
    return AOTICACHE_OK;
}

/* The arguments and results of opening a model. */
typedef struct opening {
    aoticache_cache *cache;
    const char *kind, *what, *model, *weights;
    bool map_weights, ignore_unknown;
    Py_ssize_t num_runners;
    aoticache_runner *runner;
    aoticache_key key;
    char name[256], device[32];
    char *directory;   /* of a stored model: directory of its library's side files */
    bool is_described; /* the runner can check its inputs */
    char numbers[256]; /* positions of results of a package that are numbers: "1,4" */
} opening;

static bool find_inputs(void *user, const char *name, const char *value)
{
    opening *open = user;
    open->is_described |= strcmp(name, "aoticache.inputs") == 0;
    if (strcmp(name, "aoticache.numbers") == 0)
        snprintf(open->numbers, sizeof open->numbers, "%s", value);
    return true;
}

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
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.200s is not a key", open->what);
    if (status == AOTICACHE_OK && by_key)
        status = aoticache_package_load_key(open->cache, &open->key, &options, &open->runner, &report, ret_error);
    else if (status == AOTICACHE_OK)
        status = aoticache_package_load(open->cache, open->what, &options, &open->runner, &report, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    open->key = report.key;
    aoticache_package_read_metadata(open->cache, &open->key, find_inputs, open, NULL);
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
    aoticache_artifact *artifact = NULL;
    aoticache_status status = aoticache_model_lookup(open->cache, open->what, &options, &artifact, &report, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_model_open_artifact(open->cache, artifact, open->what, &options, &open->runner, &report,
                                               ret_error);
    const char *subdirectory = status == AOTICACHE_OK ? aoticache_artifact_get_info(artifact)->directory : NULL;
    open->directory = subdirectory != NULL ? strdup(subdirectory) : NULL;
    open->is_described = true;
    aoticache_artifact_unref(artifact);
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
 * (model, name, key, directory, numbers); numbers: None if the inputs are not described */
PyObject *runtime_open_model(PyObject *module, PyObject *arguments)
{
    PyObject *cache;
    int map_weights, ignore_unknown, share_read_only;
    opening open = {0};
    aoticache_error error = {.message = ""};
    aoticache_status status;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!sszzppnp", runtime_cache_type, &cache, &open.kind, &open.what, &open.model,
                          &open.weights, &map_weights, &ignore_unknown, &open.num_runners, &share_read_only))
        return NULL;
    open.map_weights = map_weights != 0;
    open.ignore_unknown = ignore_unknown != 0;
    runtime_model *made = (runtime_model *)PyType_GenericAlloc(runtime_model_type, 0);
    if (made == NULL)
        return NULL;
    open.cache = ((runtime_cache *)cache)->cache;
    made->share_read_only = share_read_only != 0;
    Py_IncRef(made->cache = cache);
    Py_BEGIN_ALLOW_THREADS status = open_runner(&open, &error);
    Py_END_ALLOW_THREADS made->runner = open.runner;
    if (status != AOTICACHE_OK) {
        free(open.directory);
        Py_DecRef((PyObject *)made);
        return runtime_raise(&error, status);
    }
    aoticache_digest_to_hex(&open.key, hex);
    PyObject *result = Py_BuildValue("(Osszz)", (PyObject *)made, open.name, hex, open.directory,
                                     open.is_described ? open.numbers : NULL);
    free(open.directory);
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
    runtime_free_object(self);
}

static PyObject *run_model(runtime_model *model, const runtime_call *call, AtenTensorHandle *inputs,
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
    return runtime_make_results(call, outputs, num_outputs, (PyObject *)model);
}

/* run(inputs: tuple) -> tuple */
static PyObject *model_run(PyObject *self, PyObject *given)
{
    runtime_call call;
    runtime_model *model = (runtime_model *)self;
    const Py_ssize_t count = PyTuple_Size(given);
    if (count < 0 || !runtime_call_begin(&call, count))
        return NULL;
    bool complete = true;
    for (Py_ssize_t i = 0; complete && i < count; i++)
        complete = runtime_call_add(&call, PyTuple_GetItem(given, i), model->share_read_only);
    AtenTensorHandle few[2 * RUNTIME_FEW] = {NULL}, *handles = few;
    const size_t places = (size_t)count + aoticache_runner_num_outputs(model->runner);
    if (places > 2 * RUNTIME_FEW)
        handles = calloc(places, sizeof *handles);
    if (handles == NULL)
        PyErr_NoMemory();
    PyObject *results = complete && handles != NULL ? run_model(model, &call, handles, handles + count) : NULL;
    if (handles != few)
        free(handles);
    runtime_call_free(&call);
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

/* Returns two JSON texts, "" if the library has none. */
static PyObject *model_call_spec(PyObject *self, void *closure)
{
    const char *inputs = "", *outputs = "";
    (void)closure;
    if (aoticache_runner_call_spec(((runtime_model *)self)->runner, &inputs, &outputs, NULL) != AOTICACHE_OK)
        inputs = outputs = "";
    return Py_BuildValue("(ss)", inputs, outputs);
}

PyType_Spec runtime_model_spec = {
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
