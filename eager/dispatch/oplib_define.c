/*
 * eager/dispatch/oplib_define: defining operators, alone or with a kernel.
 */
#include "base/cleanup.h"
#include "eager/dispatch/oplib_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A schema that is wrong is read once more as it was written, so that the message's column is the caller's. */
static aoticache_status parse_schema(const char *full, const char *written, aoticache_schema **ret_schema,
                                     aoticache_error *ret_error)
{
    aoticache_schema *as_written = NULL;
    aoticache_status status = aoticache_schema_parse_definition(full, ret_schema, ret_error);
    if (status == AOTICACHE_INVALID && written != NULL &&
        aoticache_schema_parse_definition(written, &as_written, ret_error) == AOTICACHE_OK)
        aoticache_schema_free(as_written);
    return status;
}

/* What is to be defined, all that can fail for its text alone behind it. */
typedef struct definition {
    aoticache_op_plan *plan;
    aoticache_op_kernel *kernel; /* NULL: none */
    aoticache_alias_analysis alias;
} definition;

static aoticache_status check_alias(aoticache_alias_analysis alias, aoticache_error *ret_error)
{
    if ((int)alias < AOTICACHE_ALIAS_DEFAULT || alias > AOTICACHE_ALIAS_UNSAID)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "no such alias analysis: %d", (int)alias);
    return AOTICACHE_OK;
}

/* "ns::name" and a typed kernel's "(Tensor _0) -> Tensor _0" make a schema. */
static aoticache_status schema_of_kernel(const char *full, const aoticache_op_kernel *kernel,
                                         aoticache_schema **ret_schema,
                                         aoticache_error *ret_error)
{
    cleanup_free char *text = NULL, *signature = NULL;
    if (kernel == NULL || kernel->signature == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.300s: a name alone, without arguments and returns; "
                                   "that takes "
                                   "a typed kernel", full);
    signature = aoticache_op_signature_text(kernel->signature);
    if (signature == NULL || asprintf(&text, "%s%s", full, signature) < 0)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for a schema");
    return aoticache_schema_parse_definition(text, ret_schema, ret_error);
}

static aoticache_status make_plan(const aoticache_oplib *oplib, const char *text, definition *of,
                                  aoticache_error *ret_error)
{
    cleanup_free char *full = NULL;
    aoticache_schema *schema = NULL;
    bool named = strchr(text, '(') == NULL;
    aoticache_status status = aoticache_oplib_qualify(oplib, text, &full, ret_error);
    if (status == AOTICACHE_OK)
        status = named ? schema_of_kernel(full, of->kernel, &schema, ret_error)
                       : parse_schema(full, text, &schema, ret_error);
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

/* With the lock. Takes the plan and the kernel over, or neither. */
static aoticache_status define(aoticache_oplib *oplib, definition *of, aoticache_error *ret_error)
{
    aoticache_operator *op;
    aoticache_status status = aoticache_oplib_reserve(oplib, 2, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_dispatcher_take_operator(oplib->dispatcher, aoticache_schema_full_name(of->plan->schema),
                                                    &op,
                                                    ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_operator_define(op, of->plan, oplib->debug, of->alias, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    of->plan = NULL;
    if (of->kernel != NULL) {
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

static aoticache_status def(aoticache_oplib *oplib, const char *schema, definition *of, aoticache_error *ret_error)
{
    aoticache_status status = check_alias(of->alias, ret_error);
    if (status == AOTICACHE_OK)
        status = make_plan(oplib, schema, of, ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_dispatcher_lock(oplib->dispatcher);
        status = define(oplib, of, ret_error);
        aoticache_dispatcher_unlock(oplib->dispatcher);
    }
    aoticache_op_plan_free(of->plan);
    aoticache_op_kernel_discard(of->kernel);
    aoticache_section_reclaim();
    return status;
}

static aoticache_status check_defines(const aoticache_oplib *oplib, const char *schema, aoticache_error *ret_error)
{
    if (oplib == NULL || schema == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a definition needs a library and a schema");
    if (oplib->kind == AOTICACHE_OPLIB_IMPL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.200s: defined in a library of kind IMPL (%.300s): "
                                   "DEF and "
                                   "FRAGMENT define", schema, oplib->debug);
    return AOTICACHE_OK;
}

aoticache_status aoticache_oplib_def(aoticache_oplib *oplib, const char *schema, aoticache_alias_analysis alias,
                                     aoticache_error *ret_error)
{
    definition of = {.alias = alias};
    aoticache_status status = check_defines(oplib, schema, ret_error);
    return status == AOTICACHE_OK ? def(oplib, schema, &of, ret_error) : status;
}

aoticache_status aoticache_oplib_def_kernel(aoticache_oplib *oplib, const char *schema, aoticache_alias_analysis alias,
                                            const char *key, const aoticache_boxed_kernel *kernel,
                                            aoticache_error *ret_error)
{
    definition of = {.alias = alias};
    aoticache_dispatch_key given = -1, chosen = -1;
    aoticache_status status = check_defines(oplib, schema, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_parse_key(key, &given, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_choose_key(oplib, schema, given, &chosen, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_make_kernel(oplib, kernel, chosen, &of.kernel, ret_error);
    return status == AOTICACHE_OK ? def(oplib, schema, &of, ret_error) : status;
}
