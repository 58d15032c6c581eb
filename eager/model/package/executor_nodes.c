/*
 * eager/model/package/executor_nodes: turns the JSON of a package into nodes that can be run: the operator, the source of each
 * argument, and how many tensors each result has. Tensors and integers that the compiled code will pass are counted here, in
 * the order of the schema, as its generator counts them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/dispatch/eager_face.h"
#include "eager/dispatch/schema/eager_face.h"
#include "eager/model/package/executor.h"

/* The current position, for messages. */
typedef struct reading {
    size_t number;
    const char *op; /* "" until it has been read */
    aoticache_executor_node *node;
    const aoticache_schema_argument *argument;
    aoticache_error *ret_error;
} reading;

/* Returns a text of the file if it is safe in a message, otherwise a substitute. */
static const char *printable(const char *text)
{
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return "(unprintable)";
    return length <= 100 ? text : "(too long)";
}

static aoticache_status fail_node(const reading *at, const char *what)
{
    return aoticache_error_set(at->ret_error, AOTICACHE_INVALID, "node %zu%s%s of the package's operators: %s",
                               at->number, at->op[0] != '\0' ? ", " : "", at->op, what);
}

static aoticache_status fail_memory(const reading *at)
{
    return aoticache_error_set(at->ret_error, AOTICACHE_NO_MEMORY, "out of memory for the package's operators");
}

static aoticache_status fail_argument(const reading *at, const char *kind)
{
    char type[128];
    aoticache_type_format(at->argument->type, type, sizeof type);
    return aoticache_error_set(at->ret_error, AOTICACHE_UNSUPPORTED,
                               "%s: argument %.100s (%s) as %s is not supported without PyTorch: run the model in a "
                               "process with PyTorch",
                               at->op, at->argument->name, type, printable(kind));
}

static aoticache_status fail_value(const reading *at, const char *kind)
{
    return aoticache_error_set(at->ret_error, AOTICACHE_INVALID,
                               "node %zu of the package's operators, %s: argument %.100s: its %s is malformed",
                               at->number, at->op, at->argument->name, kind);
}

/* ---- values ---- */

/* Reads {"as_int": 3}: returns the name and the value of the only member. */
static bool only_member(const json_t *object, const char **ret_kind, const json_t **ret_value)
{
    void *member = json_object_iter((json_t *)(uintptr_t)object);
    if (json_object_size(object) != 1 || member == NULL)
        return false;
    *ret_kind = json_object_iter_key(member);
    *ret_value = json_object_iter_value(member);
    return true;
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Returns whether it is {"as_none": true}. */
static bool is_none(const json_t *object)
{
    const char *kind;
    const json_t *value;
    return only_member(object, &kind, &value) && is(kind, "as_none");
}

/* Reads a double. PyTorch writes numbers that JSON cannot express as text. */
static bool read_double(const json_t *value, double *ret_number)
{
    const char *text = json_string_value(value);
    if (text == NULL) {
        *ret_number = json_number_value(value);
        return json_is_number(value);
    }
    *ret_number = is(text, "Infinity") ? INFINITY : is(text, "-Infinity") ? -INFINITY : NAN;
    return !isnan(*ret_number) || is(text, "NaN");
}

static const aoticache_type *strip_optional(const aoticache_type *type)
{
    return type->kind == AOTICACHE_TYPE_OPTIONAL ? type->elements[0] : type;
}

static bool is_int(const aoticache_type *type)
{
    return type->kind == AOTICACHE_TYPE_INT || type->kind == AOTICACHE_TYPE_SYM_INT;
}

/* Reads a dtype: a number of torch/_export/serde/schema.py, in the order of PyTorch's own numbers. */
static bool read_dtype(const json_t *value, int64_t *ret_dtype)
{
    static const int32_t later[] = {AOTICACHE_DTYPE_UINT16,          AOTICACHE_DTYPE_FLOAT8_E4M3FN,
                                    AOTICACHE_DTYPE_FLOAT8_E5M2,     AOTICACHE_DTYPE_FLOAT8_E4M3FNUZ,
                                    AOTICACHE_DTYPE_FLOAT8_E5M2FNUZ, AOTICACHE_DTYPE_FLOAT8_E8M0FNU,
                                    AOTICACHE_DTYPE_UINT32,          AOTICACHE_DTYPE_UINT64};
    const json_int_t number = json_integer_value(value);
    if (number >= 1 && number <= 12) /* uint8 to bool */
        *ret_dtype = number - 1;
    else if (number == 13)
        *ret_dtype = AOTICACHE_DTYPE_BFLOAT16;
    else if (number >= 28 && number < 28 + (json_int_t)(sizeof later / sizeof later[0]))
        *ret_dtype = later[number - 28];
    else
        return false;
    return json_is_integer(value);
}

static bool read_memory_format(const json_t *value, int64_t *ret_format)
{
    static const int8_t formats[] = {-1, 0, 2, 3, 1}; /* contiguous, channels last, channels last 3d, preserve */
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 1 || number > 4)
        return false;
    *ret_format = formats[number];
    return true;
}

static bool is_cpu(const json_t *device)
{
    const char *type = json_string_value(json_object_get(device, "type"));
    return type != NULL && is(type, "cpu");
}

/* Reads one double, integer, text or property of tensors, whose value is in the file. */
static aoticache_status read_fixed(const reading *at, const char *kind, const json_t *value,
                                   aoticache_executor_argument *argument)
{
    bool reads = false;
    switch (strip_optional(at->argument->type)->kind) {
    case AOTICACHE_TYPE_FLOAT:
    case AOTICACHE_TYPE_SYM_FLOAT:
    case AOTICACHE_TYPE_NUMBER:
        if (!is(kind, "as_float") && !is(kind, "as_int"))
            return fail_argument(at, kind);
        argument->value.kind = AOTICACHE_VALUE_DOUBLE;
        reads = read_double(value, &argument->value.as.double_value);
        break;
    case AOTICACHE_TYPE_BOOL:
    case AOTICACHE_TYPE_SYM_BOOL:
        if (!is(kind, "as_bool"))
            return fail_argument(at, kind);
        argument->value.kind = AOTICACHE_VALUE_BOOL;
        argument->value.as.bool_value = json_is_true(value);
        reads = json_is_boolean(value);
        break;
    case AOTICACHE_TYPE_STRING:
        if (!is(kind, "as_string"))
            return fail_argument(at, kind);
        argument->value.kind = AOTICACHE_VALUE_STRING;
        argument->value.as.string = json_string_value(value);
        reads = json_is_string(value) && strlen(argument->value.as.string) == json_string_length(value);
        break;
    case AOTICACHE_TYPE_DTYPE:
        if (!is(kind, "as_scalar_type"))
            return fail_argument(at, kind);
        argument->value.kind = AOTICACHE_VALUE_DTYPE;
        reads = read_dtype(value, &argument->value.as.int_value);
        break;
    case AOTICACHE_TYPE_DEVICE:
        if (!is(kind, "as_device") || !is_cpu(value))
            return fail_argument(at, kind);
        argument->value.kind = AOTICACHE_VALUE_DEVICE;
        argument->value.as.device = (aoticache_device){.type = AOTICACHE_DEVICE_TYPE_CPU, .index = -1};
        reads = true;
        break;
    case AOTICACHE_TYPE_MEMORY_FORMAT:
        if (!is(kind, "as_memory_format"))
            return fail_argument(at, kind);
        argument->value.kind = AOTICACHE_VALUE_MEMORY_FORMAT;
        reads = read_memory_format(value, &argument->value.as.int_value);
        break;
    default:
        return fail_argument(at, kind);
    }
    return reads ? AOTICACHE_OK : fail_value(at, kind);
}

static aoticache_status read_doubles(const reading *at, const char *kind, const json_t *value,
                                     aoticache_executor_argument *argument)
{
    size_t count = json_array_size(value);
    double *items = calloc(count + 1, sizeof *items);
    argument->items = items;
    if (items == NULL)
        return fail_memory(at);
    for (size_t i = 0; i < count; i++)
        if (!read_double(json_array_get(value, i), &items[i]))
            return fail_value(at, kind);
    argument->value = (aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE_LIST, .count = (uint32_t)count};
    argument->value.as.doubles = items;
    return AOTICACHE_OK;
}

static aoticache_status read_tensors(const reading *at, const char *kind, const json_t *value,
                                     aoticache_executor_argument *argument)
{
    const bool optional = is(kind, "as_optional_tensors");
    if (optional && at->argument->type->kind == AOTICACHE_TYPE_LIST &&
        at->argument->type->elements[0]->kind != AOTICACHE_TYPE_OPTIONAL)
        return fail_argument(at, kind);
    argument->source = AOTICACHE_EXECUTOR_TENSORS;
    argument->count = (uint32_t)json_array_size(value);
    argument->absent = calloc(argument->count + 1u, sizeof *argument->absent);
    if (argument->absent == NULL)
        return fail_memory(at);
    for (uint32_t i = 0; i < argument->count; i++) {
        argument->absent[i] = optional && is_none(json_array_get(value, i));
        at->node->input_count += !argument->absent[i];
    }
    at->node->list_count += argument->count;
    return AOTICACHE_OK;
}

static aoticache_status read_list(const reading *at, const aoticache_type *element, const char *kind,
                                  const json_t *value, aoticache_executor_argument *argument)
{
    const bool ints = is(kind, "as_ints"), number = element->kind == AOTICACHE_TYPE_NUMBER;
    if (!json_is_array(value))
        return is(kind, "as_none") ? fail_argument(at, kind) : fail_value(at, kind);
    if (element->kind == AOTICACHE_TYPE_TENSOR && (is(kind, "as_tensors") || is(kind, "as_optional_tensors")))
        return read_tensors(at, kind, value, argument);
    if ((ints && (number || is_int(element))) || (is(kind, "as_sym_ints") && is_int(element))) {
        argument->source = AOTICACHE_EXECUTOR_INTS;
        argument->count = (uint32_t)json_array_size(value);
        at->node->int_count += argument->count;
        return AOTICACHE_OK;
    }
    if ((is(kind, "as_floats") && (number || element->kind == AOTICACHE_TYPE_FLOAT)) ||
        (ints && element->kind == AOTICACHE_TYPE_FLOAT))
        return read_doubles(at, kind, value, argument);
    return fail_argument(at, kind);
}

/* Reads an argument of the node. Tensors and integers are passed at run time; everything else is in the file. */
static aoticache_status read_argument(const reading *at, const char *kind, const json_t *value,
                                      aoticache_executor_argument *argument)
{
    const bool is_optional = at->argument->type->kind == AOTICACHE_TYPE_OPTIONAL;
    const aoticache_type *type = strip_optional(at->argument->type);
    if (is(kind, "as_optional_tensor") && type->kind == AOTICACHE_TYPE_TENSOR && !only_member(value, &kind, &value))
        return fail_value(at, "as_optional_tensor");
    if (is(kind, "as_none") && is_optional) {
        argument->value.kind = AOTICACHE_VALUE_NONE;
        return AOTICACHE_OK;
    }
    if (type->kind == AOTICACHE_TYPE_LIST)
        return read_list(at, strip_optional(type->elements[0]), kind, value, argument);
    if (is(kind, "as_tensor") && type->kind == AOTICACHE_TYPE_TENSOR) {
        argument->source = AOTICACHE_EXECUTOR_TENSOR;
        at->node->input_count++;
        return AOTICACHE_OK;
    }
    if ((is(kind, "as_int") && (is_int(type) || type->kind == AOTICACHE_TYPE_NUMBER)) ||
        (is(kind, "as_sym_int") && is_int(type))) {
        argument->source = AOTICACHE_EXECUTOR_INT;
        at->node->int_count++;
        return AOTICACHE_OK;
    }
    return read_fixed(at, kind, value, argument);
}

/* ---- arguments and results ---- */

static const aoticache_executor_argument *find_argument(const reading *at, const char *name)
{
    for (uint32_t i = 0; i < at->node->argument_count; i++)
        if (is(at->node->schema->arguments[i].name, name))
            return &at->node->arguments[i];
    return NULL;
}

/* Returns the member "arg" of the input with this name; NULL: the node has none. */
static const json_t *find_input(const json_t *inputs, const char *name)
{
    size_t i;
    json_t *input;
    json_array_foreach(inputs, i, input) if (is(json_string_value(json_object_get(input, "name")),
                                                name)) return json_object_get(input, "arg");
    return NULL;
}

/* Checks that every input is an argument of the schema and occurs once. */
static aoticache_status check_inputs(const reading *at, const json_t *inputs)
{
    size_t i;
    json_t *input;
    if (!json_is_array(inputs) || json_array_size(inputs) > at->node->argument_count)
        return fail_node(at, "it has no list of inputs, or more inputs than the operator has");
    json_array_foreach(inputs, i, input)
    {
        const char *name = json_string_value(json_object_get(input, "name"));
        if (name == NULL)
            return fail_node(at, "an input has no name");
        aoticache_executor_argument *argument = (aoticache_executor_argument *)(uintptr_t)find_argument(at, name);
        if (argument == NULL || argument->is_given)
            return aoticache_error_set(at->ret_error, AOTICACHE_INVALID,
                                       "node %zu of the package's operators, %s: %s input %s", at->number, at->op,
                                       argument == NULL ? "the operator that is registered here has no" : "duplicate",
                                       printable(name));
        argument->is_given = true;
    }
    return AOTICACHE_OK;
}

static aoticache_status read_arguments(reading *at, const json_t *inputs)
{
    aoticache_status status = check_inputs(at, inputs);
    for (uint32_t i = 0; status == AOTICACHE_OK && i < at->node->argument_count; i++) {
        aoticache_executor_argument *argument = &at->node->arguments[i];
        const char *kind;
        const json_t *value;
        at->argument = &at->node->schema->arguments[i];
        if (argument->is_given) {
            status = only_member(find_input(inputs, at->argument->name), &kind, &value)
                         ? read_argument(at, kind, value, argument)
                         : fail_value(at, "value");
            continue;
        }
        argument->value = at->node->defaults[i];
        if (argument->value.kind == AOTICACHE_VALUE_OTHER)
            status = aoticache_error_set(at->ret_error, AOTICACHE_INVALID,
                                         "node %zu of the package's operators, %s: argument %.100s is missing and has "
                                         "no default",
                                         at->number, at->op, at->argument->name);
    }
    return status;
}

static aoticache_status read_output(reading *at, const json_t *output, aoticache_executor_output *ret_output)
{
    const char *kind;
    const json_t *value;
    if (!only_member(output, &kind, &value))
        return fail_node(at, "a result is malformed");
    if (is(kind, "as_optional_tensor") && !only_member(value, &kind, &value))
        return fail_node(at, "a result is malformed");
    const aoticache_type *type = strip_optional(at->argument->type);
    const bool is_list = type->kind == AOTICACHE_TYPE_LIST;
    if (is_list && type->elements[0]->kind == AOTICACHE_TYPE_TENSOR && is(kind, "as_tensors") && json_is_array(value))
        *ret_output = (aoticache_executor_output){.is_list = true, .count = (uint32_t)json_array_size(value)};
    else if (type->kind == AOTICACHE_TYPE_TENSOR && is(kind, "as_tensor"))
        *ret_output = (aoticache_executor_output){.count = 1};
    else if (!is(kind, "as_none"))
        return aoticache_error_set(
            at->ret_error, AOTICACHE_UNSUPPORTED,
            "%s: a result as %s is not supported without PyTorch: only tensors and lists of them "
            "are; run the model in a process with PyTorch",
            at->op, printable(kind));
    at->node->tensor_count += ret_output->count;
    return AOTICACHE_OK;
}

static aoticache_status read_outputs(reading *at, const json_t *outputs)
{
    aoticache_executor_node *node = at->node;
    aoticache_status status = AOTICACHE_OK;
    if (!json_is_array(outputs) || json_array_size(outputs) > node->return_count)
        return fail_node(at, "it has no list of results, or more results than the operator has");
    node->output_count = (uint32_t)json_array_size(outputs);
    node->tensor_count = node->input_count;
    for (uint32_t i = 0; status == AOTICACHE_OK && i < node->output_count; i++) {
        at->argument = &node->schema->returns[i];
        status = read_output(at, json_array_get(outputs, i), &node->outputs[i]);
    }
    return status;
}

/* ---- operators ---- */

/* Returns whether a call with a tensor on the CPU, or without tensors, has a kernel. */
static bool has_kernel(const aoticache_operator *op)
{
    return aoticache_operator_has_computed_kernel(op, AOTICACHE_DISPATCH_KEY_CPU) ||
           aoticache_operator_has_computed_kernel(op, AOTICACHE_DISPATCH_KEY_Undefined) ||
           aoticache_operator_has_kernel_for_key(op, AOTICACHE_DISPATCH_KEY_BackendSelect);
}

/*
 * Returns the keys that a node's calls skip: results have no gradients, and views of them are not tracked; and a thread starts
 * with BackendSelect, for which most operators have no kernel. So a program need not register fallthroughs for these keys.
 */
static aoticache_key_set keys_to_exclude(const aoticache_operator *op)
{
    aoticache_key_set keys = aoticache_key_set_of(AOTICACHE_DISPATCH_KEY_ADInplaceOrView);
    if (!aoticache_operator_has_kernel_for_key(op, AOTICACHE_DISPATCH_KEY_BackendSelect))
        keys = aoticache_key_set_add(keys, AOTICACHE_DISPATCH_KEY_BackendSelect);
    return keys;
}

static aoticache_status copy_schema(const reading *at)
{
    aoticache_executor_node *node = at->node;
    char *text = NULL;
    aoticache_status status = aoticache_operator_schema_text(node->op, &text, at->ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_schema_parse(text, &node->schema, at->ret_error);
    aoticache_free(text);
    if (status != AOTICACHE_OK)
        return status;
    node->argument_count = (uint32_t)node->schema->argument_count;
    node->return_count = (uint32_t)node->schema->return_count;
    if (node->argument_count > AOTICACHE_EXECUTOR_MAX_VALUES || node->return_count > AOTICACHE_EXECUTOR_MAX_VALUES ||
        node->schema->is_vararg || node->schema->is_varret)
        return aoticache_error_set(at->ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s: more than %d arguments or results, or a variable number of them, is not "
                                   "supported without PyTorch",
                                   at->op, AOTICACHE_EXECUTOR_MAX_VALUES);
    node->defaults = aoticache_default_values_create(node->schema);
    node->arguments = calloc(node->argument_count + 1u, sizeof *node->arguments);
    node->outputs = calloc(node->return_count + 1u, sizeof *node->outputs);
    return node->defaults != NULL && node->arguments != NULL && node->outputs != NULL ? AOTICACHE_OK : fail_memory(at);
}

static aoticache_status read_node(reading *at, const json_t *node)
{
    at->op = aoticache_operator_name(at->node->op);
    at->node->excluded = keys_to_exclude(at->node->op);
    aoticache_status status = copy_schema(at);
    if (status == AOTICACHE_OK)
        status = read_arguments(at, json_object_get(node, "inputs"));
    return status == AOTICACHE_OK ? read_outputs(at, json_object_get(node, "outputs")) : status;
}

/* Missing operators, for one message. */
typedef struct absences {
    size_t count;
    char names[640];
} absences;

static void note_absence(absences *missing, const char *name)
{
    size_t used = strlen(missing->names), length = strlen(name);
    for (const char *at = missing->names; (at = strstr(at, name)) != NULL; at += length)
        if ((at == missing->names || at[-1] == ' ') && (at[length] == ',' || at[length] == '\0'))
            return;
    missing->count++;
    if (used + length + 3 < sizeof missing->names - 8)
        snprintf(missing->names + used, sizeof missing->names - used, "%s%s", used > 0 ? ", " : "", name);
    else if (used < 4 || strcmp(missing->names + used - 3, "...") != 0)
        snprintf(missing->names + used, sizeof missing->names - used, ", ...");
}

/* Finds the operators of all nodes first, so that one message lists all operators that must be registered. */
static aoticache_status find_operators(aoticache_executor *executor, aoticache_dispatcher *dispatcher,
                                       const json_t *nodes, aoticache_error *ret_error)
{
    absences missing = {.names = ""};
    for (size_t i = 0; i < executor->node_count; i++) {
        const reading at = {.number = i, .op = "", .ret_error = ret_error};
        const char *target =
            json_string_value(json_object_get(json_object_get(json_array_get(nodes, i), "node"), "target"));
        aoticache_operator *op = NULL;
        if (target == NULL || target[0] == '\0')
            return fail_node(&at, "it has no operator name");
        aoticache_status status = aoticache_dispatcher_find(dispatcher, target, &op, NULL);
        if (status == AOTICACHE_NO_MEMORY)
            return fail_memory(&at);
        if (status != AOTICACHE_OK || !has_kernel(op))
            status = aoticache_executor_find_named(target, &op);
        if (status == AOTICACHE_NO_MEMORY)
            return fail_memory(&at);
        if (status != AOTICACHE_OK)
            note_absence(&missing, printable(target));
        executor->nodes[i].op = op;
    }
    if (missing.count == 0)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "the model calls %s%s, which %s no kernel for the CPU in this process: register %s "
                               "(aoticache_oplib_def_kernel) before the package is loaded, or run it in a process with "
                               "PyTorch",
                               missing.count > 1 ? "operators: " : "", missing.names,
                               missing.count > 1 ? "have" : "has", missing.count > 1 ? "them" : "it");
}

aoticache_status aoticache_executor_read_nodes(aoticache_executor *executor, aoticache_dispatcher *dispatcher,
                                               aoticache_error *ret_error)
{
    const json_t *nodes = json_object_get(executor->tree, "nodes");
    if (!json_is_array(nodes))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "the list of the package's operators is not a JSON object with nodes");
    executor->nodes = calloc(json_array_size(nodes) + 1, sizeof *executor->nodes);
    if (executor->nodes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the package's operators");
    executor->node_count = json_array_size(nodes);
    aoticache_status status = find_operators(executor, dispatcher, nodes, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < executor->node_count; i++) {
        reading at = {.number = i, .op = "", .node = &executor->nodes[i], .ret_error = ret_error};
        status = read_node(&at, json_object_get(json_array_get(nodes, i), "node"));
    }
    return status;
}

void aoticache_executor_free_nodes(aoticache_executor *executor)
{
    for (size_t i = 0; executor->nodes != NULL && i < executor->node_count; i++) {
        aoticache_executor_node *node = &executor->nodes[i];
        for (uint32_t k = 0; node->arguments != NULL && k < node->argument_count; k++) {
            free(node->arguments[k].absent);
            free(node->arguments[k].items);
        }
        free(node->arguments);
        free(node->outputs);
        aoticache_default_values_free(node->defaults, node->argument_count);
        aoticache_schema_free(node->schema);
    }
    free(executor->nodes);
    executor->nodes = NULL;
}
