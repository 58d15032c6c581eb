/*
 * eager/dispatch/oplib_define: defines operators, alone or with a kernel.
 */
#include "base/arguments.h"
#include "base/cleanup.h"
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/schema/eager_face.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A definition whose text has been checked. */
typedef struct definition {
    aoticache_op_plan *plan;
    aoticache_op_kernel *kernel; /* NULL: none */
    aoticache_alias_analysis alias;
} definition;

static aoticache_status check_alias(aoticache_alias_analysis alias, aoticache_error *ret_error)
{
    if ((int)alias < AOTICACHE_ALIAS_DEFAULT || alias > AOTICACHE_ALIAS_UNSAID)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "unknown alias analysis: %d", (int)alias);
    return AOTICACHE_OK;
}

/* Makes a schema of a name and a typed kernel's "(Tensor _0) -> Tensor _0". */
static aoticache_status schema_of_kernel(const aoticache_oplib *oplib, const char *name,
                                         const aoticache_op_kernel *kernel, aoticache_schema **ret_schema,
                                         aoticache_error *ret_error)
{
    cleanup_free char *text = NULL, *signature = NULL;
    aoticache_schema *parsed = NULL;
    aoticache_status status = aoticache_schema_parse_name(name, &parsed, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (kernel == NULL || kernel->signature == NULL) {
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                     "%.300s: a name without arguments and returns requires a typed kernel",
                                     parsed->full_name);
    } else {
        signature = aoticache_op_signature_text(kernel->signature);
        if (signature == NULL || asprintf(&text, "%s%s", parsed->full_name, signature) < 0) {
            text = NULL;
            status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a schema");
        }
    }
    aoticache_schema_free(parsed);
    return status == AOTICACHE_OK
               ? aoticache_schema_parse_definition(text, oplib->namespace_name, ret_schema, ret_error)
               : status;
}

static aoticache_status make_plan(const aoticache_oplib *oplib, const char *text, definition *of,
                                  aoticache_error *ret_error)
{
    aoticache_schema *schema = NULL;
    bool named = strchr(text, '(') == NULL;
    aoticache_status status = named
                                  ? schema_of_kernel(oplib, text, of->kernel, &schema, ret_error)
                                  : aoticache_schema_parse_definition(text, oplib->namespace_name, &schema, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_check_namespace(oplib, schema->full_name, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_op_plan_create(schema, &of->plan, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_schema_free(schema);
        return status;
    }
    if (of->alias == AOTICACHE_ALIAS_DEFAULT)
        of->alias = named ? AOTICACHE_ALIAS_CONSERVATIVE : AOTICACHE_ALIAS_FROM_SCHEMA;
    return AOTICACHE_OK;
}

/* Takes ownership of both plan and kernel, or of neither. The caller holds the lock. */
static aoticache_status define(aoticache_oplib *oplib, definition *of, aoticache_op_notice *ret_notice,
                               aoticache_error *ret_error)
{
    aoticache_operator *op;
    aoticache_status status = aoticache_oplib_reserve(oplib, 2, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_dispatcher_take_operator(oplib->dispatcher, of->plan->schema->full_name, &op, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_operator_define(op, of->plan, oplib->debug, of->alias, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    of->plan = NULL;
    if (of->kernel != NULL) {
        aoticache_operator_note_override(op, of->kernel, ret_notice);
        status = aoticache_operator_add_kernel(op, of->kernel, ret_error);
        if (status != AOTICACHE_OK) {
            aoticache_operator_undefine(op);
            return status;
        }
    }
    aoticache_oplib_record(oplib, op, NULL);
    if (of->kernel != NULL)
        aoticache_oplib_record(oplib, op, of->kernel);
    of->kernel = NULL;
    return AOTICACHE_OK;
}

static aoticache_status define_with_plan(aoticache_oplib *oplib, const char *schema, definition *of,
                                         aoticache_error *ret_error)
{
    aoticache_status status = check_alias(of->alias, ret_error);
    if (status == AOTICACHE_OK)
        status = make_plan(oplib, schema, of, ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_op_notice notice = {.text = ""};
        aoticache_dispatcher_lock(oplib->dispatcher);
        status = define(oplib, of, &notice, ret_error);
        aoticache_dispatcher_unlock(oplib->dispatcher);
        if (status == AOTICACHE_OK)
            aoticache_op_notice_give(&notice);
    }
    aoticache_op_plan_free(of->plan);
    aoticache_op_kernel_discard(of->kernel);
    aoticache_epoch_reclaim();
    return status;
}

/* Checks that the oplib may define the schema. function: the public one, for the message. */
static aoticache_status check_defines(const char *function, const aoticache_oplib *oplib, const char *schema,
                                      aoticache_error *ret_error)
{
    if (oplib == NULL || schema == NULL)
        return AOTICACHE_REFUSE_NULL_OF(function, ret_error, oplib, schema);
    if (oplib->kind == AOTICACHE_OPLIB_IMPL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%.200s: a library of kind IMPL (%.300s) cannot define operators; use DEF or "
                                   "FRAGMENT",
                                   schema, oplib->debug);
    return AOTICACHE_OK;
}

aoticache_status aoticache_oplib_def(aoticache_oplib *oplib, const char *schema, aoticache_alias_analysis alias,
                                     aoticache_error *ret_error)
{
    definition of = {.alias = alias};
    aoticache_status status = check_defines(__func__, oplib, schema, ret_error);
    return status == AOTICACHE_OK ? define_with_plan(oplib, schema, &of, ret_error) : status;
}

aoticache_status aoticache_oplib_def_kernel(aoticache_oplib *oplib, const char *schema, aoticache_alias_analysis alias,
                                            const char *key, const aoticache_boxed_kernel *kernel,
                                            aoticache_error *ret_error)
{
    definition of = {.alias = alias};
    aoticache_dispatch_key given = -1, chosen = -1;
    aoticache_status status = check_defines(__func__, oplib, schema, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_parse_key(key, &given, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_choose_key(oplib, schema, given, &chosen, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_make_kernel(oplib, kernel, chosen, &of.kernel, ret_error);
    return status == AOTICACHE_OK ? define_with_plan(oplib, schema, &of, ret_error) : status;
}
