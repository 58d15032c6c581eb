/*
 * index/entries/judgements: writes, lists and deletes timing results.
 */
#include "index/entries/judgements.h"
#include "index/connection/connection_internal.h"

#include <assert.h>
#include <string.h>

static aoticache_status put_rows(aoticache_index *index, const aoticache_index_judgement *judgements, size_t count,
                                 aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(PUT_JUDGEMENT), &statement, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        const aoticache_index_judgement *judgement = &judgements[i];
        aoticache_index_bind_digest(statement, 1, &judgement->key);
        aoticache_index_bind_text(statement, 2, judgement->machine);
        sqlite3_bind_int64(statement, 3, judgement->threads);
        sqlite3_bind_int64(statement, 4, judgement->size);
        sqlite3_bind_int64(statement, 5, judgement->is_slower);
        aoticache_index_bind_unsigned(statement, 6, judgement->kernel_ns);
        aoticache_index_bind_unsigned(statement, 7, judgement->fallback_ns);
        sqlite3_bind_int64(statement, 8, judgement->judged_ns);
        status = aoticache_index_execute(index, statement, NULL, ret_error);
    }
    return status;
}

aoticache_status aoticache_index_put_judgements(aoticache_index *index, const aoticache_index_judgement *judgements,
                                                size_t count, uint32_t wait_ms, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (wait_ms < index->wait_ms)
        index->wait_ms = wait_ms;
    status = aoticache_index_begin(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_end(index, put_rows(index, judgements, count, ret_error), ret_error);
    index->wait_ms = index->lock_timeout_ms;
    aoticache_index_leave(index);
    return status;
}

/* ---- results of a key in the query cache (query_cache/query_cache.c) ---- */

struct kept_row {
    int64_t judged_ns;
    uint64_t kernel_ns, fallback_ns;
    uint32_t size, threads, is_slower, machine_size; /* the machine's name follows, with its NUL */
};
static_assert(sizeof(struct kept_row) == 40, "no byte of it is without a value");

struct walk {
    aoticache_index_judgement_fn callback;
    void *user;
    aoticache_query_rows kept;
};

static void keep_row(aoticache_query_rows *rows, const aoticache_index_judgement *judgement)
{
    const struct kept_row row = {.judged_ns = judgement->judged_ns,
                                 .size = judgement->size,
                                 .kernel_ns = judgement->kernel_ns,
                                 .fallback_ns = judgement->fallback_ns,
                                 .threads = judgement->threads,
                                 .is_slower = judgement->is_slower,
                                 .machine_size = (uint32_t)strlen(judgement->machine) + 1};
    aoticache_query_cache_add(rows, &row, sizeof row);
    aoticache_query_cache_add(rows, judgement->machine, row.machine_size);
}

/* Returns the bytes of the row; 0: it is not valid. */
static size_t recall_row(const uint8_t *bytes, size_t size, aoticache_index_judgement *ret_judgement)
{
    struct kept_row row;
    if (size < sizeof row)
        return 0;
    memcpy(&row, bytes, sizeof row);
    const char *machine = (const char *)bytes + sizeof row;
    if (row.machine_size == 0 || size - sizeof row < row.machine_size || machine[row.machine_size - 1] != '\0')
        return 0;
    ret_judgement->size = row.size;
    ret_judgement->judged_ns = row.judged_ns;
    ret_judgement->kernel_ns = row.kernel_ns;
    ret_judgement->fallback_ns = row.fallback_ns;
    ret_judgement->threads = row.threads;
    ret_judgement->is_slower = row.is_slower != 0;
    ret_judgement->machine = machine;
    return sizeof row + row.machine_size;
}

static bool recall(aoticache_index *index, const aoticache_digest *key, aoticache_index_judgement_fn callback,
                   void *user)
{
    const uint8_t *answer;
    size_t size, row;
    aoticache_index_judgement judgement = {.key = *key};
    if (!aoticache_query_cache_find(index, AOTICACHE_INDEX_ASKS_JUDGEMENTS, key->bytes, sizeof key->bytes, &answer,
                                    &size))
        return false;
    for (size_t at = 0; at < size; at += row)
        if ((row = recall_row(answer + at, size - at, &judgement)) == 0)
            return false;
    for (size_t at = 0; at < size;) {
        at += recall_row(answer + at, size - at, &judgement);
        if (!callback(user, &judgement))
            break;
    }
    return true;
}

/* ---- reading them ---- */

static bool forward_judgement(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    struct walk *walk = user;
    aoticache_index_judgement judgement;
    uint32_t is_slower;
    if (!aoticache_index_read_blob(row, 0, judgement.key.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_text(row, 1, &judgement.machine) ||
        !aoticache_index_read_count(row, 2, &judgement.threads) ||
        !aoticache_index_read_count(row, 3, &judgement.size) || !aoticache_index_read_count(row, 4, &is_slower) ||
        !aoticache_index_read_unsigned(row, 5, &judgement.kernel_ns) ||
        !aoticache_index_read_unsigned(row, 6, &judgement.fallback_ns) ||
        !aoticache_index_read_integer(row, 7, &judgement.judged_ns))
        return false;
    judgement.is_slower = is_slower != 0;
    if (walk->kept.is_wanted)
        keep_row(&walk->kept, &judgement);
    *ret_continues = walk->callback(walk->user, &judgement);
    walk->kept.is_wanted = walk->kept.is_wanted && *ret_continues;
    return true;
}

aoticache_status aoticache_index_list_judgements(aoticache_index *index, const aoticache_digest *key,
                                                 aoticache_index_judgement_fn callback, void *user,
                                                 aoticache_error *ret_error)
{
    struct walk walk = {.callback = callback, .user = user};
    sqlite3_stmt *statement = NULL;
    if (recall(index, key, callback, user))
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(LIST_JUDGEMENTS), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, key);
    walk.kept.is_wanted = aoticache_query_cache_wants(index);
    status = aoticache_index_walk(index, statement, "judgements", forward_judgement, &walk, ret_error);
    walk.kept.is_wanted = walk.kept.is_wanted && status == AOTICACHE_OK;
    aoticache_query_cache_note_rows(index, AOTICACHE_INDEX_ASKS_JUDGEMENTS, key->bytes, sizeof key->bytes, &walk.kept);
    aoticache_index_leave_statement(index, statement);
    return status;
}

static aoticache_status forget_rows(aoticache_index *index, int64_t before_ns, int64_t now_ns,
                                    aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(FORGET_JUDGEMENTS), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, before_ns);
    sqlite3_bind_int64(statement, 2, now_ns);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

aoticache_status aoticache_index_forget_judgements(aoticache_index *index, int64_t before_ns, int64_t now_ns,
                                                   aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_index_leave_write(index, forget_rows(index, before_ns, now_ns, ret_error), ret_error);
}
