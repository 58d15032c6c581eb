/*
 * index/entries/judgements: writes, lists and forgets the rows of judgements.
 */
#include "index/entries/judgements.h"
#include "index/connection/internal.h"

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

struct listing {
    aoticache_index_judgement_fn callback;
    void *user;
};

static bool forward_judgement(void *user, sqlite3_stmt *row, bool *ret_goes_on)
{
    const struct listing *listing = user;
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
    *ret_goes_on = listing->callback(listing->user, &judgement);
    return true;
}

aoticache_status aoticache_index_list_judgements(aoticache_index *index, const aoticache_digest *key,
                                                 aoticache_index_judgement_fn callback, void *user,
                                                 aoticache_error *ret_error)
{
    struct listing listing = {.callback = callback, .user = user};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(LIST_JUDGEMENTS), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, key);
    return aoticache_index_walk_and_leave(index, statement, "judgements", forward_judgement, &listing, ret_error);
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
