/*
 * eager/dispatch/operator: one operator's kernels and definition, and the table and plan that calls read.
 *
 * All functions except a few queries need the dispatcher's lock. Kernels are in one list, the newest first, so that removing
 * one restores the older one for its key. Replaced data is retired, not freed.
 */
#include "base/cleanup.h"
#include "base/log.h"
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/eager_face.h"
#include "eager/dispatch/keys.h"
#include "eager/dispatch/questions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- kernels ---- */

/*
 * Runs if a call redispatches to a key that falls through, or requests exactly that key; a call by its arguments would not come
 * here. The key set of the call need not contain the key.
 */
static aoticache_status report_fallthrough(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                           aoticache_stack *stack, aoticache_error *ret_error)
{
    const aoticache_op_kernel *kernel = user;
    (void)keys, (void)stack;
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                               "%s: the registration for %s (%.300s) is a fallthrough, not a kernel", op->name,
                               aoticache_dispatch_key_name(kernel->key), kernel->debug);
}

aoticache_status aoticache_op_kernel_create(const aoticache_boxed_kernel *kernel, const char *debug,
                                            aoticache_dispatch_key key, aoticache_schema *signature,
                                            aoticache_op_kernel **ret_kernel, aoticache_error *ret_error)
{
    const char *text = kernel->debug != NULL ? kernel->debug : debug;
    size_t size = strlen(text) + 1;
    aoticache_op_kernel *made = malloc(sizeof *made + size);
    if (made == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a kernel");
    *made = (aoticache_op_kernel){.call = kernel->call != NULL ? kernel->call : report_fallthrough,
                                  .user = kernel->call != NULL ? kernel->user : made,
                                  .release = kernel->release,
                                  .release_user = kernel->user,
                                  .signature = signature,
                                  .debug = made->text,
                                  .key = key,
                                  .is_fallthrough = kernel->call == NULL,
                                  .wants_previous = kernel->wants_previous,
                                  .references = 1};
    memcpy(made->text, text, size);
    *ret_kernel = made;
    return AOTICACHE_OK;
}

void aoticache_op_kernel_discard(aoticache_op_kernel *kernel)
{
    if (kernel == NULL)
        return;
    aoticache_schema_free(kernel->signature);
    free(kernel);
}

void aoticache_op_kernel_unref(aoticache_op_kernel *kernel)
{
    if (atomic_fetch_sub(&kernel->references, 1) == 1)
        aoticache_op_kernel_discard(kernel);
}

static void release_kernel(aoticache_retired *retired)
{
    aoticache_op_kernel *kernel = (void *)((char *)retired - offsetof(aoticache_op_kernel, retired));
    if (kernel->release != NULL)
        kernel->release(kernel->release_user);
    aoticache_op_kernel_unref(kernel);
}

void aoticache_op_kernel_retire(aoticache_dispatcher *dispatcher, aoticache_op_kernel *kernel)
{
    /* This must precede the retiring epoch: a call that still finds the kernel entered before that. */
    atomic_store(&kernel->is_gone, true);
    aoticache_dispatcher_retire(dispatcher, &kernel->retired, release_kernel);
}

/* ---- creation and end ---- */

void aoticache_operator_free(aoticache_operator *op)
{
    aoticache_op_table *table = atomic_load(&op->table);
    if (table != op->dispatcher->table_without_kernels)
        aoticache_op_table_free(table);
    aoticache_operator_forget_signatures(op);
    free(op->definition_debug);
    free(op);
}

/* ---- tables ---- */

static void put_table(aoticache_operator *op, aoticache_op_table *table)
{
    aoticache_op_table *old = atomic_exchange(&op->table, table);
    if (old != table && old != op->dispatcher->table_without_kernels)
        aoticache_op_table_retire(op->dispatcher, old);
}

aoticache_status aoticache_operator_rebuild(aoticache_operator *op, aoticache_error *ret_error)
{
    aoticache_op_table *table = op->kernels == NULL ? op->dispatcher->table_without_kernels
                                                    : aoticache_op_table_create(op->dispatcher, op->kernels);
    put_table(op, table != NULL ? table : aoticache_op_table_exhausted());
    if (table == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for its table", op->name);
    return AOTICACHE_OK;
}

/* Counts a registration. The first one makes the operator visible, the removal of the last one hides it. */
static void add_registration(aoticache_operator *op)
{
    if (op->registrations++ > 0)
        return;
    atomic_store(&op->table, op->dispatcher->table_without_kernels);
    aoticache_dispatcher_enter_operator(op->dispatcher, op);
}

static void drop_registration(aoticache_operator *op)
{
    if (--op->registrations > 0)
        return;
    aoticache_operator_forget_signatures(op);
    put_table(op, aoticache_op_table_gone());
    aoticache_dispatcher_leave_operator(op->dispatcher, op);
}

/* ---- definition ---- */

aoticache_status aoticache_operator_define(aoticache_operator *op, aoticache_op_plan *plan, const char *debug,
                                           aoticache_alias_analysis alias, aoticache_error *ret_error)
{
    if (op->definition_debug != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_EXISTS,
                                   "%s is already defined: second definition %.300s, first %.300s", op->name, debug,
                                   op->definition_debug);
    aoticache_status status = aoticache_operator_check_definition(op, plan->schema, debug, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    char *kept = strdup(debug);
    if (kept == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for its definition", op->name);
    op->definition_debug = kept;
    op->alias_analysis = alias;
    add_registration(op);
    atomic_store(&op->plan, plan);
    return AOTICACHE_OK;
}

void aoticache_operator_undefine(aoticache_operator *op)
{
    aoticache_op_plan *plan = atomic_exchange(&op->plan, NULL);
    free(op->definition_debug);
    op->definition_debug = NULL;
    aoticache_op_plan_retire(op->dispatcher, plan);
    drop_registration(op);
}

/* ---- kernels of an operator ---- */

aoticache_status aoticache_operator_add_kernel(aoticache_operator *op, aoticache_op_kernel *kernel,
                                               aoticache_error *ret_error)
{
    aoticache_status status = aoticache_operator_check_signature(op, kernel, ret_error);
    if (status == AOTICACHE_OK && kernel->signature != NULL)
        status = aoticache_operator_keep_signature(op, kernel, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    kernel->older = op->kernels;
    aoticache_op_table *table = aoticache_op_table_create(op->dispatcher, kernel);
    if (table == NULL) {
        if (op->registrations == 0)
            aoticache_operator_forget_signatures(op);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for its table", op->name);
    }
    op->kernels = kernel;
    add_registration(op);
    put_table(op, table);
    return AOTICACHE_OK;
}

void aoticache_operator_remove_kernel(aoticache_operator *op, aoticache_op_kernel *kernel)
{
    aoticache_op_kernel **at = &op->kernels;
    while (*at != kernel)
        at = &(*at)->older;
    *at = kernel->older;
    aoticache_operator_rebuild(op, NULL);
    aoticache_op_kernel_retire(op->dispatcher, kernel);
    drop_registration(op);
}

static const aoticache_op_kernel *newest_for(const aoticache_operator *op, aoticache_dispatch_key key)
{
    for (const aoticache_op_kernel *kernel = op->kernels; kernel != NULL; kernel = kernel->older)
        if (kernel->key == key)
            return kernel;
    return NULL;
}

/* Prepares the warning that PyTorch also gives. For Meta there is none, as Python kernels should replace those of C++ there. */
void aoticache_operator_note_override(const aoticache_operator *op, const aoticache_op_kernel *kernel,
                                      aoticache_op_notice *ret_notice)
{
    const aoticache_op_kernel *before = newest_for(op, kernel->key);
    *ret_notice->text = '\0';
    if (before == NULL || kernel->key == AOTICACHE_DISPATCH_KEY_Meta || op->dispatcher->logger.log == NULL)
        return;
    ret_notice->logger = op->dispatcher->logger;
    snprintf(ret_notice->text, sizeof ret_notice->text,
             "%.200s: the kernel for %s (%.300s) replaces another kernel (%.300s)", op->name,
             aoticache_dispatch_key_name(kernel->key), kernel->debug, before->debug);
}

void aoticache_op_notice_give(const aoticache_op_notice *notice)
{
    if (*notice->text != '\0')
        aoticache_log(&notice->logger, AOTICACHE_LOG_WARNING, "%s", notice->text);
}

/* ---- queries ---- */

const char *aoticache_operator_name(const aoticache_operator *op)
{
    return op->name;
}

const aoticache_schema *aoticache_operator_schema(const aoticache_operator *op)
{
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot == NULL)
        return NULL;
    const aoticache_op_plan *plan = atomic_load_explicit(&op->plan, memory_order_acquire);
    const aoticache_schema *schema = plan != NULL ? plan->schema : NULL;
    aoticache_epoch_leave(slot);
    return schema;
}

static char *format_schema(const aoticache_schema *schema)
{
    size_t size = aoticache_schema_format(schema, NULL, 0) + 1;
    char *text = malloc(size);
    if (text != NULL)
        aoticache_schema_format(schema, text, size);
    return text;
}

aoticache_status aoticache_operator_schema_text(const aoticache_operator *op, char **ret_text,
                                                aoticache_error *ret_error)
{
    aoticache_dispatcher_lock(op->dispatcher);
    const aoticache_op_plan *plan = atomic_load(&op->plan);
    char *text = plan != NULL ? format_schema(plan->schema) : NULL;
    aoticache_dispatcher_unlock(op->dispatcher);
    if (text != NULL) {
        *ret_text = text;
        return AOTICACHE_OK;
    }
    return plan == NULL
               ? aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s is not defined", op->name)
               : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for its schema", op->name);
}

bool aoticache_operator_has_kernel_for_key(const aoticache_operator *op, aoticache_dispatch_key key)
{
    aoticache_dispatcher_lock(op->dispatcher);
    bool has = newest_for(op, key) != NULL;
    aoticache_dispatcher_unlock(op->dispatcher);
    return has;
}

bool aoticache_operator_has_kernel_for_any(const aoticache_operator *op, aoticache_key_set keys)
{
    bool has = false;
    aoticache_dispatcher_lock(op->dispatcher);
    for (const aoticache_op_kernel *kernel = op->kernels; kernel != NULL && !has; kernel = kernel->older)
        has = !aoticache_dispatch_key_is_alias(kernel->key) && aoticache_key_set_has(keys, kernel->key);
    aoticache_dispatcher_unlock(op->dispatcher);
    return has;
}

bool aoticache_operator_is_fallthrough(const aoticache_operator *op, aoticache_dispatch_key key)
{
    aoticache_dispatcher_lock(op->dispatcher);
    const aoticache_op_kernel *kernel = newest_for(op, key);
    bool is = kernel != NULL && kernel->is_fallthrough;
    aoticache_dispatcher_unlock(op->dispatcher);
    return is;
}

bool aoticache_operator_has_computed_kernel(const aoticache_operator *op, aoticache_dispatch_key key)
{
    if (key < 0 || key >= AOTICACHE_DISPATCH_KEY_COUNT || aoticache_dispatch_key_is_alias(key))
        return false;
    int32_t entry = key_set_entry(aoticache_key_set_of(key));
    aoticache_dispatcher_lock(op->dispatcher);
    bool has = atomic_load(&op->table)->target_of[entry] != 0;
    aoticache_dispatcher_unlock(op->dispatcher);
    return has;
}

/* ---- invariants ---- */

static aoticache_status check_operator(const aoticache_operator *op, aoticache_error *ret_error)
{
    size_t registrations = op->definition_debug != NULL;
    const aoticache_op_plan *plan = atomic_load(&op->plan);
    for (const aoticache_op_kernel *kernel = op->kernels; kernel != NULL; kernel = kernel->older)
        registrations++;
    if (registrations != op->registrations)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s: %zu registrations, counted %zu", op->name,
                                   registrations, op->registrations);
    if ((plan != NULL) != (op->definition_debug != NULL))
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s: %s", op->name,
                                   plan != NULL ? "a plan without a definition" : "a definition without a plan");
    if (plan != NULL && strcmp(plan->schema->full_name, op->name) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s: its schema is for %s", op->name,
                                   plan->schema->full_name);
    if (op->registrations == 0)
        return atomic_load(&op->table) == aoticache_op_table_gone()
                   ? AOTICACHE_OK
                   : aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s: it has a table but no registrations",
                                         op->name);
    aoticache_op_table *expected = aoticache_op_table_create(op->dispatcher, op->kernels);
    if (expected == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for a table to compare with",
                                   op->name);
    bool equal = aoticache_op_table_equal(expected, atomic_load(&op->table));
    free(expected);
    return equal ? AOTICACHE_OK
                 : aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s: its table does not match its kernels",
                                       op->name);
}

aoticache_status aoticache_operator_check(const aoticache_operator *op, aoticache_error *ret_error)
{
    aoticache_dispatcher_lock(op->dispatcher);
    aoticache_status status = check_operator(op, ret_error);
    aoticache_dispatcher_unlock(op->dispatcher);
    return status;
}

aoticache_status aoticache_dispatcher_check(aoticache_dispatcher *dispatcher, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    aoticache_dispatcher_lock(dispatcher);
    for (size_t i = 0; i < dispatcher->operator_count && status == AOTICACHE_OK; i++)
        status = check_operator(dispatcher->operators[i], ret_error);
    aoticache_dispatcher_unlock(dispatcher);
    return status;
}
