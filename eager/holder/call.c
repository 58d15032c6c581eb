/*
 * eager/holder/call: calls operators by their names. For each name, number of tensors and device the context keeps a holder
 * with a minimal schema: tensors in, a list of tensors out. The schema is not part of a key, so the entries are the same as
 * those of any other caller of the operator with these tensors.
 */
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/options.h"
#include "base/text/stream.h"
#include "eager/holder/call.h"
#include "eager/holder/holder_internal.h"
#include "loader/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the context ---- */

/* Creates the default hook. *ret_hook is NULL, with OK, if this machine has no way to compile. */
static aoticache_status create_default_hook(aoticache_hook **ret_hook, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_hook_create_worker(NULL, ret_hook, ret_error);
    if (status == AOTICACHE_NOT_FOUND || status == AOTICACHE_UNSUPPORTED)
        status = aoticache_hook_create_c(NULL, ret_hook, ret_error);
    if (status != AOTICACHE_NOT_FOUND && status != AOTICACHE_UNSUPPORTED)
        return status;
    *ret_hook = NULL;
    return AOTICACHE_OK;
}

aoticache_status aoticache_context_open(const char *directory, const aoticache_context_options *options,
                                        aoticache_context **ret_context, aoticache_error *ret_error)
{
    aoticache_context_options all;
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_context_options, AOTICACHE_CONTEXT_OPTIONS_INIT, options, &all, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (ret_context == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_context);
    if (all.cache != NULL && directory != NULL)
        return aoticache_error_set(
            ret_error, AOTICACHE_INVALID,
            "aoticache_context_open: directory %s: options->cache is open already; give only one of them", directory);
    aoticache_cache *opened = NULL;
    aoticache_hook *created = NULL;
    aoticache_context *context = NULL;
    if (all.cache == NULL) {
        aoticache_cache_options cache_options = AOTICACHE_CACHE_OPTIONS_INIT;
        cache_options.directory = directory;
        cache_options.logger = all.logger;
        status = aoticache_cache_open(&cache_options, &opened, ret_error);
        all.cache = opened;
    }
    const bool has_default_hook = all.hook == NULL;
    if (status == AOTICACHE_OK && has_default_hook) {
        status = create_default_hook(&created, ret_error);
        all.hook = created;
    }
    if (status == AOTICACHE_OK)
        status = aoticache_context_create(&all, &context, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_hook_free(created);
        aoticache_cache_close(opened);
        return status;
    }
    context->owns_cache_and_hook = true;
    context->has_default_hook = has_default_hook;
    *ret_context = context;
    return AOTICACHE_OK;
}

/* ---- the holder of an operator ---- */

/* Makes "aten::add.Tensor(Tensor a0, Tensor a1) -> Tensor[]" for 2 tensors. The caller frees it; NULL: no memory. */
static char *make_schema(const char *op, size_t num_inputs)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = aoticache_text_stream_open(&text, &size);
    if (out == NULL)
        return NULL;
    fprintf(out, "%s(", op);
    for (size_t i = 0; i < num_inputs; i++)
        fprintf(out, "%sTensor a%zu", i > 0 ? ", " : "", i);
    fputs(") -> Tensor[]", out);
    bool complete = !ferror(out);
    if (fclose(out) == 0 && complete)
        return text;
    free(text);
    return NULL;
}

static aoticache_named_operator *find_operator(aoticache_context *context, const char *op, size_t num_inputs,
                                               aoticache_device device)
{
    for (aoticache_named_operator *one = context->named_operators; one != NULL; one = one->next)
        if (one->num_inputs == num_inputs && strcmp(one->name, op) == 0 && one->holder->device.type == device.type &&
            one->holder->device.index == device.index)
            return one;
    return NULL;
}

/* Adds an operator. If two threads create a holder each, the first one in the list is used. */
static aoticache_status add_operator(aoticache_context *context, const char *op, size_t num_inputs,
                                     aoticache_device device, aoticache_holder **ret_holder, aoticache_error *ret_error)
{
    cleanup_free char *schema = make_schema(op, num_inputs);
    aoticache_holder_options options = AOTICACHE_HOLDER_OPTIONS_INIT;
    options.schema = schema;
    options.device = device;
    aoticache_named_operator *made = calloc(1, sizeof *made);
    if (made != NULL)
        made->name = strdup(op);
    aoticache_status status = AOTICACHE_OK;
    if (schema == NULL || made == NULL || made->name == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%.200s: out of memory for an operator", op);
    if (status == AOTICACHE_OK)
        status = aoticache_holder_create(context, &options, &made->holder, ret_error);
    aoticache_named_operator *listed = NULL;
    if (status == AOTICACHE_OK) {
        made->num_inputs = num_inputs;
        pthread_mutex_lock(&context->named_lock);
        listed = find_operator(context, op, num_inputs, device);
        if (listed == NULL) {
            made->next = context->named_operators;
            context->named_operators = listed = made;
        }
        *ret_holder = listed->holder;
        pthread_mutex_unlock(&context->named_lock);
    }
    if (listed != made && made != NULL) {
        aoticache_holder_unref(made->holder);
        free(made->name);
        free(made);
    }
    return status;
}

static aoticache_status get_holder(aoticache_context *context, const char *op, size_t num_inputs,
                                   aoticache_device device, aoticache_holder **ret_holder, aoticache_error *ret_error)
{
    pthread_mutex_lock(&context->named_lock);
    aoticache_named_operator *found = find_operator(context, op, num_inputs, device);
    pthread_mutex_unlock(&context->named_lock);
    if (found == NULL)
        return add_operator(context, op, num_inputs, device, ret_holder, ret_error);
    *ret_holder = found->holder;
    return AOTICACHE_OK;
}

/* ---- arguments ---- */

/* One call: its inputs as complete views, and which of their handles it owns. */
typedef struct named_call {
    const char *op;
    size_t num_inputs;
    aoticache_tensor_view *views;
    aoticache_value *values;
    AtenTensorHandle *own;
    aoticache_device device;
} named_call;

static aoticache_status read_input(named_call *call, const aoticache_tensor_view *input, size_t i,
                                   aoticache_error *ret_error)
{
    aoticache_tensor_view *view = &call->views[i];
    *view = *input;
    if (input->layout != AOTICACHE_LAYOUT_STRIDED)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%.200s: input %zu has layout %d; kernels take strided tensors (%d)", call->op, i,
                                   (int)input->layout, AOTICACHE_LAYOUT_STRIDED);
    if (input->handle == NULL) {
        if (input->device.type != AOTICACHE_DEVICE_TYPE_CPU || input->sizes == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.200s: input %zu has no handle, and %s",
                                       call->op, i, input->sizes == NULL ? "no sizes" : "is not on the CPU");
        aoticache_status status = aoticache_tensor_from_blob(input->data, input->dtype, input->ndim, input->sizes,
                                                             input->strides, &call->own[i], ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_tensor_get_view(call->own[i], view, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        view->handle = call->own[i];
    }
    if (call->device.type == AOTICACHE_DEVICE_TYPE_CPU && view->device.type != AOTICACHE_DEVICE_TYPE_CPU)
        call->device = view->device;
    call->values[i] = (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = view};
    return AOTICACHE_OK;
}

static void free_call(named_call *call)
{
    for (size_t i = 0; call->own != NULL && i < call->num_inputs; i++)
        aoticache_tensor_free(call->own[i]);
    free(call->own);
    free(call->values);
    free(call->views);
}

static aoticache_status read_inputs(named_call *call, const aoticache_tensor_view *inputs, aoticache_error *ret_error)
{
    call->views = calloc(call->num_inputs, sizeof *call->views);
    call->values = calloc(call->num_inputs, sizeof *call->values);
    call->own = calloc(call->num_inputs, sizeof *call->own);
    if (call->views == NULL || call->values == NULL || call->own == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%.200s: out of memory for %zu tensors", call->op,
                                   call->num_inputs);
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < call->num_inputs; i++)
        status = read_input(call, &inputs[i], i, ret_error);
    return status;
}

/* ---- results ---- */

/* Passes the tensors of `results` to the caller, or frees them. */
static aoticache_status return_outputs(const named_call *call, aoticache_value *results,
                                       aoticache_tensor_view *ret_outputs, size_t num_outputs,
                                       aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    cleanup_free aoticache_tensor_view *views = calloc(num_outputs + 1, sizeof *views);
    if (views == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%.200s: out of memory for its results", call->op);
    else if (results->count != num_outputs)
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.200s returns %u results; %zu were requested",
                                     call->op, (unsigned)results->count, num_outputs);
    for (size_t i = 0; status == AOTICACHE_OK && i < num_outputs; i++) {
        status = aoticache_tensor_get_view(results->as.outputs[i], &views[i], ret_error);
        views[i].handle = results->as.outputs[i];
    }
    if (status != AOTICACHE_OK) {
        aoticache_stack_drop(&(aoticache_stack){.values = results, .count = 1, .capacity = 1}, 0);
        return status;
    }
    if (num_outputs > 0)
        memcpy(ret_outputs, views, num_outputs * sizeof *views);
    free(results->as.outputs);
    return AOTICACHE_OK;
}

aoticache_status aoticache_call(aoticache_context *context, const char *op, const aoticache_tensor_view *inputs,
                                size_t num_inputs, aoticache_tensor_view *ret_outputs, size_t num_outputs,
                                aoticache_error *ret_error)
{
    if (context == NULL || op == NULL || inputs == NULL || (ret_outputs == NULL && num_outputs > 0))
        return AOTICACHE_REFUSE_NULL(ret_error, context, op, inputs, ret_outputs);
    if (num_inputs == 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_call: %.200s: num_inputs is 0; at least one tensor is required", op);
    named_call call = {.op = op, .num_inputs = num_inputs, .device = AOTICACHE_DEVICE_CPU};
    aoticache_holder *holder = NULL;
    aoticache_status status = read_inputs(&call, inputs, ret_error);
    if (status == AOTICACHE_OK)
        status = get_holder(context, op, num_inputs, call.device, &holder, ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_stack stack = {.values = call.values, .count = num_inputs, .capacity = num_inputs};
        status = aoticache_holder_call(holder, 0, &stack, ret_error);
        if (status == AOTICACHE_OK)
            status = return_outputs(&call, &call.values[0], ret_outputs, num_outputs, ret_error);
    }
    free_call(&call);
    return status;
}
