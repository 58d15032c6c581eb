/*
 * index/stats/groups: sums by operator, device and environment, collected in memory and written one row per name; and how
 * many bytes groups of entries use.
 */
#include "index/stats/stats_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"

struct aoticache_index_sum {
    char *name;
    aoticache_index_group_kind kind;
    aoticache_index_group group;
};

struct sum_key {
    aoticache_index_group_kind kind;
    const char *name;
};

static uint64_t hash_sum_key(const void *key)
{
    const struct sum_key *wanted = key;
    return aoticache_hash_bytes(wanted->name, strlen(wanted->name)) + (uint64_t)wanted->kind;
}

static bool sum_has_key(const void *item, const void *key)
{
    const struct aoticache_index_sum *sum = item;
    const struct sum_key *wanted = key;
    return sum->kind == wanted->kind && strcmp(sum->name, wanted->name) == 0;
}

static const aoticache_hash_map_type sum_type = {
    .item_size = sizeof(struct aoticache_index_sum), .hash = hash_sum_key, .has_key = sum_has_key};

static struct aoticache_index_sum *add_sum(aoticache_index_sums *sums, const struct sum_key *key)
{
    bool is_new;
    char *name = strdup(key->name);
    struct aoticache_index_sum *sum =
        name != NULL ? aoticache_hash_map_add(&sums->by_name, &sum_type, key, &is_new) : NULL;
    if (sum == NULL) {
        free(name);
        return NULL;
    }
    *sum = (struct aoticache_index_sum){.name = name, .kind = key->kind};
    return sum;
}

static bool add_one(aoticache_index_sums *sums, aoticache_index_group_kind kind, const char *name,
                    const aoticache_index_group *group)
{
    if (name == NULL || strnlen(name, AOTICACHE_INDEX_MAX_GROUP_BYTES) >= AOTICACHE_INDEX_MAX_GROUP_BYTES)
        name = AOTICACHE_INDEX_OTHER_GROUP;
    const struct sum_key key = {.kind = kind, .name = name};
    struct aoticache_index_sum *sum = aoticache_hash_map_find(&sums->by_name, &sum_type, &key);
    if (sum == NULL)
        sum = add_sum(sums, &key);
    if (sum == NULL)
        return false;
#define ADD_FIELD(field) sum->group.field += group->field;
    AOTICACHE_INDEX_GROUP_LIST(ADD_FIELD)
#undef ADD_FIELD
    return true;
}

aoticache_status aoticache_index_sums_add(aoticache_index_sums *sums, const char *op, const char *device,
                                          const char *environment, const aoticache_index_group *group,
                                          aoticache_error *ret_error)
{
    if (add_one(sums, AOTICACHE_INDEX_GROUP_OPERATOR, op, group) &&
        add_one(sums, AOTICACHE_INDEX_GROUP_DEVICE, device, group) &&
        add_one(sums, AOTICACHE_INDEX_GROUP_ENVIRONMENT, environment, group))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for sums by operator");
}

aoticache_status aoticache_index_sums_merge(aoticache_index_sums *sums, const aoticache_index_sums *more,
                                            aoticache_error *ret_error)
{
    const struct aoticache_index_sum *added = more->by_name.items;
    for (size_t i = 0; i < more->by_name.count; i++)
        if (!add_one(sums, added[i].kind, added[i].name, &added[i].group))
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for sums by operator");
    return AOTICACHE_OK;
}

/* Adds to the row of a name. *ret_changed is false if there is no such row. */
static aoticache_status add_to_row(aoticache_index *index, const struct aoticache_index_sum *sum, const char *name,
                                   uint64_t *ret_changed, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(GROUP_ADD), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    int parameter = 3;
    sqlite3_bind_int64(statement, 1, sum->kind);
    aoticache_index_bind_text(statement, 2, name);
#define BIND_FIELD(field) sqlite3_bind_int64(statement, parameter++, sum->group.field);
    AOTICACHE_INDEX_GROUP_LIST(BIND_FIELD)
#undef BIND_FIELD
    return aoticache_index_execute(index, statement, ret_changed, ret_error);
}

static aoticache_status read_count(aoticache_index *index, aoticache_index_group_kind kind, int64_t *ret_count,
                                   aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(GROUP_COUNT), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, kind);
    status = aoticache_index_fetch(index, statement, ret_error);
    if (status == AOTICACHE_OK)
        *ret_count = sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    return status;
}

/* Makes a row for the name, or for the others if there are too many. *ret_name says which of the two it is. */
static aoticache_status make_row(aoticache_index *index, const struct aoticache_index_sum *sum, const char **ret_name,
                                 aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    int64_t count = 0;
    aoticache_status status = read_count(index, sum->kind, &count, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_prepare(index, SQL(GROUP_MAKE), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_name = count < AOTICACHE_INDEX_MAX_GROUPS ? sum->name : AOTICACHE_INDEX_OTHER_GROUP;
    sqlite3_bind_int64(statement, 1, sum->kind);
    aoticache_index_bind_text(statement, 2, *ret_name);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

static bool is_empty_group(const aoticache_index_group *group)
{
    static const aoticache_index_group nothing;
    return memcmp(group, &nothing, sizeof nothing) == 0;
}

static aoticache_status write_sum(aoticache_index *index, const struct aoticache_index_sum *sum,
                                  aoticache_error *ret_error)
{
    uint64_t changed = 0;
    const char *name = sum->name;
    if (is_empty_group(&sum->group))
        return AOTICACHE_OK;
    aoticache_status status = add_to_row(index, sum, name, &changed, ret_error);
    if (status != AOTICACHE_OK || changed > 0)
        return status;
    status = make_row(index, sum, &name, ret_error);
    return status == AOTICACHE_OK ? add_to_row(index, sum, name, NULL, ret_error) : status;
}

aoticache_status aoticache_index_sums_write(aoticache_index *index, const aoticache_index_sums *sums,
                                            aoticache_error *ret_error)
{
    const struct aoticache_index_sum *written = sums->by_name.items;
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < sums->by_name.count; i++)
        status = write_sum(index, &written[i], ret_error);
    return status;
}

void aoticache_index_sums_free(aoticache_index_sums *sums)
{
    struct aoticache_index_sum *items = sums->by_name.items;
    for (size_t i = 0; i < sums->by_name.count; i++)
        free(items[i].name);
    aoticache_hash_map_free(&sums->by_name);
}

/* ---- contents ---- */

aoticache_status aoticache_index_sums_add_found(aoticache_index *index, aoticache_index_sums *sums, sqlite3_stmt *row,
                                                int count, aoticache_error *ret_error)
{
    const char *op, *device, *producer;
    uint64_t bytes;
    aoticache_status status = aoticache_index_fetch(index, row, ret_error);
    if (status == AOTICACHE_OK &&
        !(aoticache_index_read_text(row, 0, &op) && aoticache_index_read_text(row, 1, &device) &&
          aoticache_index_read_text(row, 2, &producer) && aoticache_index_read_unsigned(row, 3, &bytes)))
        status = aoticache_index_fail_row(index, "details", ret_error);
    if (status == AOTICACHE_OK) {
        const aoticache_index_group group = {.entries = count, .bytes = count * (int64_t)bytes};
        status = aoticache_index_sums_add(sums, op, device, producer, &group, ret_error);
    }
    sqlite3_reset(row);
    return status;
}

aoticache_status aoticache_index_sums_add_entry(aoticache_index *index, aoticache_index_sums *sums, int64_t entry_id,
                                                int count, aoticache_error *ret_error)
{
    sqlite3_stmt *row = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(GROUP_OF), &row, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(row, 1, entry_id);
    status = aoticache_index_sums_add_found(index, sums, row, count, ret_error);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

aoticache_status aoticache_index_count_entry(aoticache_index *index, int64_t entry_id, int count,
                                             aoticache_error *ret_error)
{
    aoticache_index_sums sums = {.by_name = {.count = 0}};
    aoticache_status status = aoticache_index_sums_add_entry(index, &sums, entry_id, count, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_sums_write(index, &sums, ret_error);
    aoticache_index_sums_free(&sums);
    return status;
}

/* ---- listing ---- */

static bool read_group(sqlite3_stmt *row, const char **ret_name, aoticache_index_group *ret_group)
{
    int column = 1;
    bool is_right = aoticache_index_read_text(row, 0, ret_name);
#define READ_FIELD(field) is_right = aoticache_index_read_integer(row, column++, &ret_group->field) && is_right;
    AOTICACHE_INDEX_GROUP_LIST(READ_FIELD)
#undef READ_FIELD
    return is_right;
}

struct listing {
    aoticache_index_group_fn group;
    aoticache_index_usage_fn usage;
    void *user;
};

static bool forward_group(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    const struct listing *listing = user;
    const char *name;
    aoticache_index_group group = {.hits = 0};
    if (!read_group(row, &name, &group))
        return false;
    *ret_continues = listing->group(listing->user, name, &group);
    return true;
}

aoticache_status aoticache_index_list_groups(aoticache_index *index, aoticache_index_group_kind kind, bool since_zero,
                                             aoticache_index_group_fn callback, void *user, aoticache_error *ret_error)
{
    if (index == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, callback);
    struct listing listing = {.group = callback, .user = user};
    sqlite3_stmt *rows = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(GROUPS), &rows, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(rows, 1, kind);
    sqlite3_bind_int64(rows, 2, since_zero ? (int)kind + AOTICACHE_GROUP_ZERO : -1);
    return aoticache_index_walk_and_leave(index, rows, "groups", forward_group, &listing, ret_error);
}

/* ---- bytes used by groups of entries ---- */

static bool forward_usage(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    const struct listing *listing = user;
    aoticache_index_usage usage = {.name = NULL};
    if (!aoticache_index_read_text(row, 0, &usage.name) || !aoticache_index_read_unsigned(row, 1, &usage.entries) ||
        !aoticache_index_read_unsigned(row, 2, &usage.bytes) ||
        !aoticache_index_read_integer(row, 3, &usage.last_used_ns))
        return false;
    *ret_continues = listing->usage(listing->user, &usage);
    return true;
}

aoticache_status aoticache_index_list_usage(aoticache_index *index, aoticache_index_usage_group by,
                                            aoticache_index_usage_fn callback, void *user, aoticache_error *ret_error)
{
    static const aoticache_index_statement statements[] = {
        [AOTICACHE_INDEX_USAGE_BY_OP] = SQL(USAGE_BY_OP),
        [AOTICACHE_INDEX_USAGE_BY_DEVICE] = SQL(USAGE_BY_DEVICE),
        [AOTICACHE_INDEX_USAGE_BY_PRODUCER] = SQL(USAGE_BY_PRODUCER),
        [AOTICACHE_INDEX_USAGE_BY_TAG] = SQL(USAGE_BY_TAG),
    };
    if (index == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, callback);
    if ((size_t)by >= sizeof statements / sizeof statements[0])
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: unknown group %d", __func__, (int)by);
    struct listing listing = {.usage = callback, .user = user};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, statements[by], &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_index_walk_and_leave(index, statement, "details", forward_usage, &listing, ret_error);
}
