/*
 * eager/dispatch/names: operators by name: creates, finds, suggests, lists and prints them.
 */
#include "base/arguments.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/text/name_distance.h"
#include "base/text/stream.h"
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/keys.h"
#include "eager/dispatch/questions.h"
#include "eager/dispatch/schema/eager_face.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- an operator, without definition and kernels ---- */

/* Returns a bit for each character of a name, folded to 64. */
static uint64_t operator_letters(const char *name)
{
    uint64_t letters = 0;
    for (; *name != '\0'; name++)
        letters |= UINT64_C(1) << (*name & 63);
    return letters;
}

static aoticache_operator *create_operator(aoticache_dispatcher *dispatcher, const char *name)
{
    size_t size = strlen(name) + 1;
    aoticache_operator *op = calloc(1, sizeof *op + size);
    if (op == NULL)
        return NULL;
    memcpy(op->text, name, size);
    op->name = op->text;
    op->letters = operator_letters(name);
    op->dispatcher = dispatcher;
    atomic_init(&op->table, aoticache_op_table_gone());
    atomic_init(&op->plan, NULL);
    return op;
}

/* ---- the table ---- */

static uint64_t hash_name(const void *name)
{
    return aoticache_hash_bytes(name, strlen(name));
}

static bool operator_has_name(const void *item, const void *name)
{
    aoticache_operator *const *op = item;
    return strcmp((*op)->name, name) == 0;
}

static const aoticache_hash_map_type names_type = {
    .item_size = sizeof(aoticache_operator *), .hash = hash_name, .has_key = operator_has_name};

/* Finds an operator by its full name ("aten::add.Tensor"); NULL if none ever had the name. With the lock. */
static aoticache_operator *dispatcher_get_operator(const aoticache_dispatcher *dispatcher, const char *name)
{
    aoticache_operator *const *op = aoticache_hash_map_find(&dispatcher->names, &names_type, name);
    return op != NULL ? *op : NULL;
}

/* Adds an operator; its name must be new. */
static aoticache_operator *add_operator(aoticache_dispatcher *dispatcher, const char *name)
{
    bool is_new;
    aoticache_operator *op = create_operator(dispatcher, name);
    aoticache_operator **place =
        op != NULL ? aoticache_hash_map_add(&dispatcher->names, &names_type, name, &is_new) : NULL;
    if (place == NULL) {
        free(op);
        return NULL;
    }
    return *place = op;
}

static aoticache_status grow_operators(aoticache_dispatcher *dispatcher, aoticache_error *ret_error)
{
    if (AOTICACHE_ARRAY_RESERVE(dispatcher->operators, dispatcher->operator_capacity, dispatcher->operator_count + 1))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu operators",
                               dispatcher->operator_count + 1);
}

aoticache_status aoticache_dispatcher_take_operator(aoticache_dispatcher *dispatcher, const char *name,
                                                    aoticache_operator **ret_operator, aoticache_error *ret_error)
{
    aoticache_operator *op = dispatcher_get_operator(dispatcher, name);
    aoticache_status status = grow_operators(dispatcher, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (op == NULL)
        op = add_operator(dispatcher, name);
    if (op == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for an operator", name);
    *ret_operator = op;
    return AOTICACHE_OK;
}

void aoticache_dispatcher_enter_operator(aoticache_dispatcher *dispatcher, aoticache_operator *op)
{
    op->position = dispatcher->operator_count;
    dispatcher->operators[dispatcher->operator_count++] = op;
}

void aoticache_dispatcher_leave_operator(aoticache_dispatcher *dispatcher, aoticache_operator *op)
{
    aoticache_operator *last = dispatcher->operators[--dispatcher->operator_count];
    dispatcher->operators[op->position] = last;
    last->position = op->position;
}

/* ---- collecting operators ---- */

typedef bool (*wanted_fn)(const aoticache_operator *op, aoticache_dispatch_key key);

/*
 * Collects the operators, unordered. Operators are never freed, so their handles and names need no lock. Slow work runs without
 * it, and so do callbacks, which may query and register. The caller frees *ret_found.
 */
static aoticache_status collect_operators(aoticache_dispatcher *dispatcher, wanted_fn wanted,
                                          aoticache_dispatch_key key, aoticache_operator ***ret_found,
                                          size_t *ret_count, aoticache_error *ret_error)
{
    size_t count = 0;
    aoticache_dispatcher_lock(dispatcher);
    aoticache_operator **found = malloc((dispatcher->operator_count + 1) * sizeof *found);
    for (size_t i = 0; found != NULL && i < dispatcher->operator_count; i++)
        if (wanted(dispatcher->operators[i], key))
            found[count++] = dispatcher->operators[i];
    aoticache_dispatcher_unlock(dispatcher);
    if (found == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of operators");
    *ret_found = found;
    *ret_count = count;
    return AOTICACHE_OK;
}

static bool is_there(const aoticache_operator *op, aoticache_dispatch_key key)
{
    (void)op, (void)key;
    return true;
}

static bool is_defined(const aoticache_operator *op, aoticache_dispatch_key key)
{
    (void)key;
    return op->definition_debug != NULL;
}

static bool is_dangling(const aoticache_operator *op, aoticache_dispatch_key key)
{
    (void)key;
    return op->definition_debug == NULL;
}

static bool has_registration(const aoticache_operator *op, aoticache_dispatch_key key)
{
    for (const aoticache_op_kernel *kernel = op->kernels; kernel != NULL; kernel = kernel->older)
        if (kernel->key == key)
            return true;
    return false;
}

/* ---- the nearest name ---- */

enum { MAX_DISTANCE = 3 };

/* Finds the nearest name; of equally near ones the first in alphabetical order. */
static const char *nearest_of(aoticache_operator *const *operators, size_t count, const char *name)
{
    const char *nearest = NULL;
    size_t best = MAX_DISTANCE + 1;
    uint64_t letters = operator_letters(name);
    for (size_t i = 0; i < count; i++) {
        const aoticache_operator *op = operators[i];
        /* Each edit changes at most two of the letters, so only few names must be compared. */
        if ((size_t)__builtin_popcountll(op->letters ^ letters) > 2 * best)
            continue;
        size_t found = aoticache_name_distance(name, op->name, best + 1, false);
        if (found < best || (found == best && nearest != NULL && strcmp(op->name, nearest) < 0)) {
            best = found;
            nearest = op->name;
        }
    }
    return nearest;
}

/* ---- finding ---- */

/* Reports an absent name. The caller must not hold the lock, because the search is slow. */
static aoticache_status report_absent(aoticache_dispatcher *dispatcher, const char *name, aoticache_error *ret_error)
{
    cleanup_free aoticache_operator **defined = NULL;
    size_t count = 0;
    const char *nearest = NULL;
    if (ret_error == NULL)
        return AOTICACHE_NOT_FOUND;
    if (collect_operators(dispatcher, is_defined, 0, &defined, &count, NULL) == AOTICACHE_OK)
        nearest = nearest_of(defined, count, name);
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "unknown operator %.300s%s%s%s", name,
                               nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "",
                               nearest != NULL ? "?" : "");
}

/* Finds a name as written. False: not found; *ret_dangles says whether it has only kernels. */
static bool find_written(aoticache_dispatcher *dispatcher, const char *name, bool defined,
                         aoticache_operator **ret_operator, bool *ret_dangles)
{
    aoticache_dispatcher_lock(dispatcher);
    aoticache_operator *op = dispatcher_get_operator(dispatcher, name);
    bool is_here = op != NULL && op->registrations > 0;
    bool found = is_here && (!defined || op->definition_debug != NULL);
    aoticache_dispatcher_unlock(dispatcher);
    *ret_dangles = is_here && !found;
    if (found)
        *ret_operator = op;
    return found;
}

/* Finds a name that was not found as written, after parsing it as PyTorch does: " x :: y . z" is x::y.z. */
static aoticache_status find_read(aoticache_dispatcher *dispatcher, const char *name, bool defined,
                                  aoticache_operator **ret_operator, aoticache_error *ret_error)
{
    aoticache_schema *parsed = NULL;
    aoticache_error refusal;
    bool dangles = false;
    aoticache_status status = aoticache_schema_parse_name(name, &parsed, &refusal);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "name of an operator: %s", refusal.message);
    const char *full = parsed->full_name;
    if (!find_written(dispatcher, full, defined, ret_operator, &dangles))
        status = dangles ? aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%.300s has kernels, but is not defined",
                                               full)
                         : report_absent(dispatcher, full, ret_error);
    aoticache_schema_free(parsed);
    return status;
}

/* Finds an operator. function: the public one, for the message. */
static aoticache_status find_operator(const char *function, aoticache_dispatcher *dispatcher, const char *name,
                                      bool defined, aoticache_operator **ret_operator, aoticache_error *ret_error)
{
    bool dangles = false;
    if (dispatcher == NULL || name == NULL || ret_operator == NULL)
        return AOTICACHE_REFUSE_NULL_OF(function, ret_error, dispatcher, name, ret_operator);
    if (find_written(dispatcher, name, defined, ret_operator, &dangles))
        return AOTICACHE_OK;
    return find_read(dispatcher, name, defined, ret_operator, ret_error);
}

aoticache_status aoticache_dispatcher_find(aoticache_dispatcher *dispatcher, const char *name,
                                           aoticache_operator **ret_operator, aoticache_error *ret_error)
{
    return find_operator(__func__, dispatcher, name, true, ret_operator, ret_error);
}

aoticache_status aoticache_dispatcher_find_any(aoticache_dispatcher *dispatcher, const char *name,
                                               aoticache_operator **ret_operator, aoticache_error *ret_error)
{
    return find_operator(__func__, dispatcher, name, false, ret_operator, ret_error);
}

bool aoticache_dispatcher_has_kernel(aoticache_dispatcher *dispatcher, const char *name)
{
    aoticache_operator *op;
    return find_operator(__func__, dispatcher, name, false, &op, NULL) == AOTICACHE_OK;
}

/* ---- listing ---- */

static int by_name(const void *a, const void *b)
{
    const aoticache_operator *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

static aoticache_status collect_sorted(aoticache_dispatcher *dispatcher, wanted_fn wanted, aoticache_dispatch_key key,
                                       aoticache_operator ***ret_found, size_t *ret_count, aoticache_error *ret_error)
{
    aoticache_status status = collect_operators(dispatcher, wanted, key, ret_found, ret_count, ret_error);
    if (status == AOTICACHE_OK)
        qsort(*ret_found, *ret_count, sizeof **ret_found, by_name);
    return status;
}

static aoticache_status list_operators(aoticache_dispatcher *dispatcher, wanted_fn wanted, aoticache_dispatch_key key,
                                       aoticache_operator_name_fn callback, void *user, aoticache_error *ret_error)
{
    cleanup_free aoticache_operator **found = NULL;
    size_t count = 0;
    aoticache_status status = collect_sorted(dispatcher, wanted, key, &found, &count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++)
        if (!callback(user, found[i]->name))
            break;
    return status;
}

aoticache_status aoticache_dispatcher_list(aoticache_dispatcher *dispatcher, bool dangling,
                                           aoticache_operator_name_fn callback, void *user, aoticache_error *ret_error)
{
    return list_operators(dispatcher, dangling ? is_dangling : is_there, 0, callback, user, ret_error);
}

aoticache_status aoticache_dispatcher_list_registrations(aoticache_dispatcher *dispatcher, const char *key,
                                                         aoticache_operator_name_fn callback, void *user,
                                                         aoticache_error *ret_error)
{
    aoticache_dispatch_key parsed = 0;
    if (key == NULL || *key == '\0')
        return list_operators(dispatcher, is_there, 0, callback, user, ret_error);
    aoticache_status status = aoticache_dispatch_key_parse(key, &parsed, ret_error);
    return status == AOTICACHE_OK ? list_operators(dispatcher, has_registration, parsed, callback, user, ret_error)
                                  : status;
}

aoticache_status aoticache_dispatcher_list_dangling_dumps(aoticache_dispatcher *dispatcher,
                                                          aoticache_operator_name_fn callback, void *user,
                                                          aoticache_error *ret_error)
{
    cleanup_free aoticache_operator **found = NULL;
    size_t count = 0;
    aoticache_status status = collect_sorted(dispatcher, is_dangling, 0, &found, &count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        cleanup_free char *text = NULL;
        status = aoticache_operator_dump(found[i], &text, ret_error);
        if (status == AOTICACHE_OK && !callback(user, text))
            break;
    }
    return status;
}

/* ---- operators as text, in the format of PyTorch's _dispatch_dump and _dispatch_dump_table ---- */

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
    /* PyTorch has another word for kernels that take symbolic integers, but does not print it. */
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

static aoticache_status dump_operator(const aoticache_operator *op,
                                      void (*write_text)(FILE *text, const aoticache_operator *op), char **ret_text,
                                      aoticache_error *ret_error)
{
    char *bytes = NULL;
    size_t size = 0;
    FILE *text = aoticache_text_stream_open(&bytes, &size);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for a dump", op->name);
    aoticache_dispatcher_lock(op->dispatcher);
    write_text(text, op);
    aoticache_dispatcher_unlock(op->dispatcher);
    bool failed = ferror(text) != 0;
    if (fclose(text) != 0 || failed) {
        free(bytes);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for a dump", op->name);
    }
    *ret_text = bytes;
    return AOTICACHE_OK;
}

aoticache_status aoticache_operator_dump(const aoticache_operator *op, char **ret_text, aoticache_error *ret_error)
{
    return dump_operator(op, write_dump, ret_text, ret_error);
}

aoticache_status aoticache_operator_dump_table(const aoticache_operator *op, char **ret_text,
                                               aoticache_error *ret_error)
{
    return dump_operator(op, write_table, ret_text, ret_error);
}
