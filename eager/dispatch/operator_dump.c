/*
 * eager/dispatch/operator_dump: operators as text, line for line as PyTorch's _dispatch_dump and _dispatch_dump_table.
 */
#include "base/cleanup.h"
#include "eager/dispatch/dispatcher_state.h"

#include <stdio.h>
#include <stdlib.h>

static const char *alias_name(int32_t alias)
{
    switch (alias) {
    case AOTICACHE_ALIAS_UNSAID:
        return "CONSERVATIVE (default)";
    case AOTICACHE_ALIAS_CONSERVATIVE:
        return "CONSERVATIVE";
    case AOTICACHE_ALIAS_PURE_FUNCTION:
        return "PURE_FUNCTION";
    default:
        return "FROM_SCHEMA";
    }
}

static void dump_definition(FILE *text, const aoticache_operator *op)
{
    fprintf(text, "name: %s\n", op->name);
    const aoticache_op_plan *plan = atomic_load(&op->plan);
    if (plan == NULL) {
        fputs("schema: (none)\n", text);
        return;
    }
    size_t size = aoticache_schema_format(plan->schema, NULL, 0) + 1;
    cleanup_free char *schema = malloc(size);
    if (schema != NULL)
        aoticache_schema_format(plan->schema, schema, size);
    fprintf(text, "schema: %s\ndebug: %s\nalias analysis kind: %s\n", schema != NULL ? schema : "(no memory)",
            op->definition_debug, alias_name(op->alias_analysis));
}

static void dump_kernel(FILE *text, const aoticache_op_kernel *kernel, bool inactive)
{
    cleanup_free char *signature = NULL;
    if (kernel->signature != NULL)
        signature = aoticache_op_signature_text(kernel->signature);
    /* PyTorch has another word for those that take symbolic integers, and does not print it. */
    bool is_unboxed = kernel->signature != NULL && !aoticache_op_signature_is_symbolic(kernel->signature);
    fprintf(text, "%s%s%s: %s :: %s [ %sboxed %s]\n", aoticache_dispatch_key_name(kernel->key),
            aoticache_dispatch_key_is_alias(kernel->key) ? "[alias]" : "", inactive ? " (inactive)" : "", kernel->debug,
            signature != NULL ? signature : "(none)", kernel->is_fallthrough ? "fallthrough " : "",
            is_unboxed ? "unboxed " : "");
}

static void dump_kernels(FILE *text, const aoticache_operator *op)
{
    for (aoticache_dispatch_key key = 0; key < AOTICACHE_DISPATCH_KEY_COUNT; key++) {
        bool inactive = false;
        for (const aoticache_op_kernel *kernel = op->kernels; kernel != NULL; kernel = kernel->older) {
            if (kernel->key != key)
                continue;
            dump_kernel(text, kernel, inactive);
            inactive = true;
        }
    }
}

static void write_dump(FILE *text, const aoticache_operator *op)
{
    dump_definition(text, op);
    dump_kernels(text, op);
}

static void write_table(FILE *text, const aoticache_operator *op)
{
    aoticache_op_choice choices[AOTICACHE_DISPATCH_ENTRIES];
    aoticache_op_table_choose(op->dispatcher, op->kernels, choices);
    for (int32_t i = 0; i < AOTICACHE_DISPATCH_ENTRIES; i++) {
        const aoticache_op_kernel *kernel = choices[i].kernel;
        if (kernel != NULL)
            fprintf(text, "%s: %s%s [%s]\n", aoticache_dispatch_key_name(aoticache_dispatch_key_of_entry(i)),
                    kernel->is_fallthrough ? "fallthrough " : "", kernel->debug, choices[i].reason);
    }
}

static aoticache_status dump(const aoticache_operator *op, void (*write_text)(FILE *text, const aoticache_operator *op),
                             char **ret_text, aoticache_error *ret_error)
{
    char *bytes = NULL;
    size_t size = 0;
    FILE *text = open_memstream(&bytes, &size);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: no memory for a dump", op->name);
    aoticache_dispatcher_lock(op->dispatcher);
    write_text(text, op);
    aoticache_dispatcher_unlock(op->dispatcher);
    bool failed = ferror(text) != 0;
    if (fclose(text) != 0 || failed) {
        free(bytes);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: no memory for a dump", op->name);
    }
    *ret_text = bytes;
    return AOTICACHE_OK;
}

aoticache_status aoticache_operator_dump(const aoticache_operator *op, char **ret_text, aoticache_error *ret_error)
{
    return dump(op, write_dump, ret_text, ret_error);
}

aoticache_status aoticache_operator_dump_table(const aoticache_operator *op, char **ret_text,
                                               aoticache_error *ret_error)
{
    return dump(op, write_table, ret_text, ret_error);
}
