/*
 * eager/model/package/executor_named: PyTorch's operators that the shim provides by name (runtime/named_operators.h), for
 * packages that call them although nobody has registered them. They are defined in a separate dispatcher, each when the first
 * package needs it: the process's dispatcher is left to the user.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/dispatch/eager_face.h"
#include "eager/model/package/executor.h"
#include "loader/tensor.h"
#include "loader/torch.h"
#include "runtime/named_operators.h"

/* The state of this file; never freed, like the process's own dispatcher. */
static struct {
    pthread_mutex_t lock;
    aoticache_dispatcher *dispatcher;
    aoticache_oplib *oplibs[4]; /* one for each namespace */
} named = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const aoticache_named_operator *list_operators(void)
{
    const aoticache_torch_provider *provider;
    aoticache_named_operators_fn list;
    if (aoticache_torch_is_libtorch() || aoticache_torch_provider_get(&provider, NULL) != AOTICACHE_OK)
        return NULL;
    void *symbol = dlsym(provider->handle, AOTICACHE_NAMED_OPERATORS_SYMBOL);
    memcpy(&list, &symbol, sizeof list);
    return symbol != NULL ? list() : NULL;
}

/*
 * Finds the operator whose schema begins with this name; a target names any overload, also the default one:
 * "aten::clone.default".
 */
static const aoticache_named_operator *find_named(const char *name)
{
    const aoticache_named_operator *at = list_operators();
    for (; at != NULL && at->schema != NULL; at++) {
        size_t length = strcspn(at->schema, "(");
        if (strncmp(at->schema, name, length) == 0 && (name[length] == '\0' || strcmp(name + length, ".default") == 0))
            return at;
    }
    return NULL;
}

/* ---- calls ---- */

static bool read_value(const aoticache_value *value, aoticache_named_argument *to)
{
    *to = (aoticache_named_argument){.is_given = value->kind != AOTICACHE_VALUE_NONE};
    switch (value->kind) {
    case AOTICACHE_VALUE_NONE:
        return true;
    case AOTICACHE_VALUE_TENSOR:
        to->tensor = value->as.tensor->handle;
        return true;
    case AOTICACHE_VALUE_INT:
    case AOTICACHE_VALUE_DTYPE:
    case AOTICACHE_VALUE_MEMORY_FORMAT:
        to->integer = value->as.int_value;
        to->number = (double)value->as.int_value;
        return true;
    case AOTICACHE_VALUE_DEVICE: /* the CPU */
        return true;
    case AOTICACHE_VALUE_BOOL:
        to->integer = value->as.bool_value;
        return true;
    case AOTICACHE_VALUE_DOUBLE:
        to->number = value->as.double_value;
        to->integer = to->number >= -9e18 && to->number <= 9e18 ? (int64_t)to->number : 0;
        return true;
    case AOTICACHE_VALUE_STRING:
        to->text = value->as.string;
        return true;
    case AOTICACHE_VALUE_INT_LIST:
        to->integers = value->as.ints;
        to->count = value->count;
        return true;
    case AOTICACHE_VALUE_DOUBLE_LIST:
        to->numbers = value->as.doubles;
        to->count = value->count;
        return true;
    default:
        return false;
    }
}

static const char *last_failure(void)
{
    const aoticache_torch_provider *provider;
    const char *text = aoticache_torch_provider_get(&provider, NULL) == AOTICACHE_OK && provider->last_exception != NULL
                           ? provider->last_exception()
                           : NULL;
    return text != NULL ? text : "it fails";
}

static bool returns_list(const aoticache_schema *schema)
{
    return schema->return_count == 1 && schema->returns[0].type->kind == AOTICACHE_TYPE_LIST;
}

/* Pushes results, up to the first NULL, as one list, which owns them. On failure all of them are freed. */
static aoticache_status push_list(aoticache_stack *stack, AtenTensorHandle *results, aoticache_error *ret_error)
{
    uint32_t count = 0;
    while (count < AOTICACHE_NAMED_MAX_RESULTS && results[count] != NULL)
        count++;
    aoticache_value list = {.kind = AOTICACHE_VALUE_OUTPUT_LIST, .count = count};
    list.as.outputs = malloc((count + 1u) * sizeof(AtenTensorHandle));
    if (list.as.outputs == NULL) {
        for (uint32_t i = 0; i < count; i++)
            aoticache_tensor_free(results[i]);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of %u tensors", count);
    }
    memcpy(list.as.outputs, results, count * sizeof(AtenTensorHandle));
    stack->values[stack->count++] = list;
    return AOTICACHE_OK;
}

static aoticache_status call_named(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                   aoticache_stack *stack, aoticache_error *ret_error)
{
    const aoticache_named_operator *named_operator = user;
    aoticache_named_argument arguments[AOTICACHE_EXECUTOR_MAX_VALUES];
    AtenTensorHandle results[AOTICACHE_NAMED_MAX_RESULTS] = {NULL};
    const aoticache_schema *schema = aoticache_operator_schema(op);
    const size_t count = schema->return_count;
    (void)keys;
    for (size_t i = 0; i < stack->count; i++)
        if (!read_value(&stack->values[i], &arguments[i]))
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%s: argument %zu is a %s",
                                       aoticache_operator_name(op), i,
                                       aoticache_value_kind_name(stack->values[i].kind));
    if (named_operator->call(arguments, results) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_RUN_FAILED, "%s", last_failure());
    aoticache_stack_drop(stack, 0);
    if (returns_list(schema))
        return push_list(stack, results, ret_error);
    for (size_t i = 0; i < count; i++)
        stack->values[i] = (aoticache_value){.kind = AOTICACHE_VALUE_OUTPUT, .as.output = results[i]};
    stack->count = count;
    return AOTICACHE_OK;
}

/* ---- definitions ---- */

/* Returns the oplib of the namespace before "::"; creates it if there is none yet. */
static aoticache_status get_oplib(const char *schema, aoticache_oplib **ret_oplib, aoticache_error *ret_error)
{
    char space[32];
    snprintf(space, sizeof space, "%.*s", (int)strcspn(schema, ":"), schema);
    for (size_t i = 0; i < sizeof named.oplibs / sizeof named.oplibs[0]; i++) {
        aoticache_status status = AOTICACHE_OK;
        if (named.oplibs[i] == NULL)
            status = aoticache_oplib_create(named.dispatcher, AOTICACHE_OPLIB_FRAGMENT, space, NULL, __FILE__, __LINE__,
                                            &named.oplibs[i], ret_error);
        if (status != AOTICACHE_OK)
            return status;
        *ret_oplib = named.oplibs[i];
        if (strcmp(aoticache_oplib_namespace(named.oplibs[i]), space) == 0)
            return AOTICACHE_OK;
    }
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%s: too many namespaces", space);
}

static aoticache_status define(const aoticache_named_operator *found, aoticache_error *ret_error)
{
    aoticache_oplib *ops = NULL;
    aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
    kernel.call = call_named;
    kernel.user = (void *)(uintptr_t)found;
    aoticache_status status = get_oplib(found->schema, &ops, ret_error);
    return status == AOTICACHE_OK
               ? aoticache_oplib_def_kernel(ops, found->schema, AOTICACHE_ALIAS_DEFAULT, NULL, &kernel, ret_error)
               : status;
}

aoticache_status aoticache_executor_find_named(const char *name, aoticache_operator **ret_op)
{
    const aoticache_named_operator *found = find_named(name);
    char plain[128];
    if (found == NULL)
        return AOTICACHE_NOT_FOUND;
    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(found->schema, "("), found->schema);
    pthread_mutex_lock(&named.lock);
    aoticache_status status = AOTICACHE_OK;
    if (named.dispatcher == NULL)
        status = aoticache_dispatcher_create(&named.dispatcher, NULL);
    if (status == AOTICACHE_OK)
        status = aoticache_dispatcher_find(named.dispatcher, plain, ret_op, NULL);
    if (status == AOTICACHE_NOT_FOUND) {
        status = define(found, NULL);
        if (status == AOTICACHE_OK)
            status = aoticache_dispatcher_find(named.dispatcher, plain, ret_op, NULL);
    }
    pthread_mutex_unlock(&named.lock);
    return status;
}
