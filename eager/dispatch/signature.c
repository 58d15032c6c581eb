/*
 * eager/dispatch/signature: signatures of typed kernels: "(Tensor _0) -> Tensor _0".
 *
 * Owns two rules (OperatorEntry::registerKernel's counterpart): all typed kernels of an operator have one signature
 * (and another one for those that take symbolic integers), and it fits the definition. Kernels use other names of types than
 * definitions do: a dtype is an int in a kernel, and "int[2]" is "int[]".
 */
#include "base/cleanup.h"
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/schema/eager_face.h"

#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

aoticache_status aoticache_op_signature_parse(const char *signature, aoticache_schema **ret_schema,
                                              aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    size_t blanks = strspn(signature, " ");
    if (signature[blanks] != '(')
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "signature \"%.200s\": begins with a name; expected "
                                   "'('",
                                   signature);
    size_t size = strlen(signature) + 2;
    text = malloc(size);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a signature");
    text[0] = '_'; /* replaces the name: columns in messages are one too high */
    memcpy(text + 1, signature, size - 1);
    return aoticache_schema_parse_definition(text, NULL, ret_schema, ret_error);
}

char *aoticache_op_signature_text(const aoticache_schema *schema)
{
    size_t size = aoticache_schema_format(schema, NULL, 0) + 1;
    size_t name = strlen(schema->full_name);
    char *text = malloc(size);
    if (text == NULL)
        return NULL;
    aoticache_schema_format(schema, text, size);
    memmove(text, text + name, size - name);
    return text;
}

/* ---- types ---- */

static aoticache_type_kind real_kind(aoticache_type_kind kind, bool symbolic)
{
    switch (kind) {
    case AOTICACHE_TYPE_DTYPE:
    case AOTICACHE_TYPE_LAYOUT:
    case AOTICACHE_TYPE_MEMORY_FORMAT:
        return AOTICACHE_TYPE_INT;
    case AOTICACHE_TYPE_SYM_INT:
        return symbolic ? kind : AOTICACHE_TYPE_INT;
    default:
        return kind;
    }
}

static bool same_name(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Compares types. symbolic: the kernel takes symbolic integers, so those of the definition stay symbolic. */
static bool schemas_match(const aoticache_type *defined, const aoticache_type *given, bool symbolic)
{
    if (real_kind(defined->kind, symbolic) != real_kind(given->kind, true) ||
        defined->element_count != given->element_count || !same_name(defined->name, given->name))
        return false;
    for (size_t i = 0; i < defined->element_count; i++)
        if (!schemas_match(defined->elements[i], given->elements[i], symbolic))
            return false;
    return true;
}

static bool has_symbolic(const aoticache_type *type)
{
    if (type->kind == AOTICACHE_TYPE_SYM_INT)
        return true;
    for (size_t i = 0; i < type->element_count; i++)
        if (has_symbolic(type->elements[i]))
            return true;
    return false;
}

/* Checks only the arguments: a returned SymInt is one for every kernel. */
bool aoticache_op_signature_is_symbolic(const aoticache_schema *signature)
{
    for (size_t i = 0; i < signature->argument_count; i++)
        if (has_symbolic(signature->arguments[i].type))
            return true;
    return false;
}

/* ---- comparing ---- */

/* Arguments or returns. */
typedef struct item_list {
    const aoticache_schema_argument *items;
    size_t count;
} item_list;

/* Describes what differs, for a message; the text is empty if nothing does. */
static bool describe_items(const char *what, item_list defined, item_list given, bool symbolic, char *text, size_t size)
{
    if (defined.count != given.count) {
        snprintf(text, size, "%zu %ss vs. %zu", defined.count, what, given.count);
        return true;
    }
    for (size_t i = 0; i < defined.count; i++) {
        char a[80], b[80];
        if (schemas_match(defined.items[i].type, given.items[i].type, symbolic))
            continue;
        aoticache_type_format(defined.items[i].type, a, sizeof a);
        aoticache_type_format(given.items[i].type, b, sizeof b);
        snprintf(text, size, "%s %zu is %s vs. %s", what, i + 1, a, b);
        return true;
    }
    return false;
}

static bool describe_difference(const aoticache_schema *defined, const aoticache_schema *given, bool symbolic,
                                char *text, size_t size)
{
    return describe_items("argument", (item_list){defined->arguments, defined->argument_count},
                          (item_list){given->arguments, given->argument_count}, symbolic, text, size) ||
           describe_items("return", (item_list){defined->returns, defined->return_count},
                          (item_list){given->returns, given->return_count}, true, text, size);
}

static aoticache_status check_against(const char *name, const aoticache_schema *schema, const char *schema_debug,
                                      const aoticache_op_kernel *kernel, aoticache_error *ret_error)
{
    char difference[240];
    cleanup_free char *text = NULL;
    if (!schema->has_signature ||
        !describe_difference(schema, kernel->signature, aoticache_op_signature_is_symbolic(kernel->signature),
                             difference, sizeof difference))
        return AOTICACHE_OK;
    text = aoticache_op_signature_text(kernel->signature);
    return aoticache_error_set(ret_error, AOTICACHE_MISMATCH,
                               "%s: the kernel %.200s (%.200s) does not match the definition (%.200s): %s", name,
                               text != NULL ? text : "", kernel->debug, schema_debug, difference);
}

aoticache_status aoticache_operator_check_signature(const aoticache_operator *op, const aoticache_op_kernel *kernel,
                                                    aoticache_error *ret_error)
{
    char difference[240];
    if (kernel->signature == NULL)
        return AOTICACHE_OK;
    const aoticache_op_signature *kept = &op->signatures[aoticache_op_signature_is_symbolic(kernel->signature)];
    if (kept->schema != NULL &&
        describe_difference(kept->schema, kernel->signature, true, difference, sizeof difference))
        return aoticache_error_set(ret_error, AOTICACHE_MISMATCH,
                                   "%s: the kernel (%.250s) has another signature than the previous one (%.250s): "
                                   "%s",
                                   op->name, kernel->debug, kept->debug, difference);
    const aoticache_op_plan *plan = atomic_load_explicit(&op->plan, memory_order_relaxed);
    if (plan == NULL)
        return AOTICACHE_OK;
    return check_against(op->name, plan->schema, op->definition_debug, kernel, ret_error);
}

aoticache_status aoticache_operator_check_definition(const aoticache_operator *op, const aoticache_schema *schema,
                                                     const char *debug, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (const aoticache_op_kernel *kernel = op->kernels; kernel != NULL && status == AOTICACHE_OK;
         kernel = kernel->older)
        if (kernel->signature != NULL)
            status = check_against(op->name, schema, debug, kernel, ret_error);
    return status;
}

/* ---- storing signatures ---- */

aoticache_status aoticache_operator_keep_signature(aoticache_operator *op, const aoticache_op_kernel *kernel,
                                                   aoticache_error *ret_error)
{
    cleanup_free char *text = NULL, *debug = NULL;
    aoticache_op_signature *kept = &op->signatures[aoticache_op_signature_is_symbolic(kernel->signature)];
    if (kept->schema != NULL)
        return AOTICACHE_OK;
    text = aoticache_op_signature_text(kernel->signature);
    debug = strdup(kernel->debug);
    if (text == NULL || debug == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for a signature", op->name);
    aoticache_status status = aoticache_op_signature_parse(text, &kept->schema, ret_error);
    if (status == AOTICACHE_OK)
        kept->debug = steal_ptr(&debug);
    return status;
}

void aoticache_operator_forget_signatures(aoticache_operator *op)
{
    for (size_t i = 0; i < 2; i++) {
        aoticache_schema_free(op->signatures[i].schema);
        free(op->signatures[i].debug);
        op->signatures[i] = (aoticache_op_signature){NULL, NULL};
    }
}
