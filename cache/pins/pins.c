/*
 * cache/pins/pins: changing and listing pins and tags.
 *
 * A change reads the file of each key, replaces the file, then the rows of the index; many keys are changed in batches. The
 * file is replaced first. If a process dies in between, the next change of the key, or the next rebuild of the index,
 * records the contents of the file. The store's lock, shared, keeps the index from being replaced meanwhile; the lock of the
 * directory marks/ keeps other changes out.
 */
#include "base/arguments.h"
#include "cache/pins/pins.h"

#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/names.h"
#include "cache/cache_internal.h"
#include "cache/pins/pins_internal.h"
#include "cache/store/lock.h"
#include "index/entries/pins.h"

#define BATCH 128 /* keys whose files and rows are written together */

struct change {
    aoticache_cache *cache;
    aoticache_pin_action what;
    const char *tag;
    const aoticache_key *keys;
    size_t count;
};

/* A batch in memory. */
struct batch {
    aoticache_pin_state *after;
    const aoticache_pin_state **to_write, **to_record;
    size_t write_count, record_count;
};

/* ---- changing ---- */

static aoticache_status apply_change(const struct change *change, aoticache_pin_state *state,
                                     aoticache_error *ret_error)
{
    switch (change->what) {
    case AOTICACHE_PIN:
        state->is_pinned = true;
        break;
    case AOTICACHE_UNPIN:
        state->is_pinned = false;
        break;
    case AOTICACHE_TAG:
        return aoticache_pin_state_add_tag(state, change->tag, ret_error);
    case AOTICACHE_UNTAG:
        aoticache_pin_state_remove_tag(state, change->tag);
        break;
    }
    return AOTICACHE_OK;
}

static bool add_row_to_state(void *user, const aoticache_digest *key, bool is_pinned, const char *tag)
{
    aoticache_pin_state *state = user;
    (void)key;
    state->is_pinned = is_pinned;
    if (tag != NULL && aoticache_tag_check(tag, NULL) == AOTICACHE_OK)
        aoticache_pin_state_add_tag(state, tag, NULL);
    return true;
}

/* Reads the key's rows from the index. */
static aoticache_status read_recorded(aoticache_index *index, const aoticache_key *key, aoticache_pin_state *ret_state,
                                      aoticache_error *ret_error)
{
    aoticache_pin_state state = {.key = *key};
    aoticache_status status = aoticache_index_list_pins(index, key, NULL, add_row_to_state, &state, ret_error);
    if (status == AOTICACHE_OK)
        *ret_state = state;
    return status;
}

/* Reads the state before the change; `recorded` is that of the index. If the file is damaged, it is quarantined and the
 * index is used. */
static aoticache_status read_state(aoticache_directory *directory, int subdirectory,
                                   const aoticache_pin_state *recorded, aoticache_pin_state *ret_state,
                                   bool *ret_damaged, aoticache_error *ret_error)
{
    char name[AOTICACHE_PIN_FILE_NAME_BYTES];
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_pin_file_read(directory, &recorded->key, ret_state, &detail);
    *ret_damaged = status == AOTICACHE_CORRUPT;
    if (status == AOTICACHE_NOT_FOUND) {
        memset(ret_state, 0, sizeof *ret_state);
        ret_state->key = recorded->key;
        return AOTICACHE_OK;
    }
    if (status != AOTICACHE_CORRUPT)
        return status == AOTICACHE_OK ? status : aoticache_error_set(ret_error, status, "%s", detail.message);
    aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING,
                  "%s; it is moved to " AOTICACHE_QUARANTINE "/ and rewritten from the index", detail.message);
    aoticache_digest_to_hex(&recorded->key, name);
    *ret_state = *recorded;
    status = aoticache_directory_quarantine(directory, subdirectory, name, name, ret_error);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static bool is_same_state(const aoticache_pin_state *a, const aoticache_pin_state *b)
{
    if (a->is_pinned != b->is_pinned || a->tag_count != b->tag_count)
        return false;
    for (size_t i = 0; i < a->tag_count; i++)
        if (strcmp(a->tags[i], b->tags[i]) != 0)
            return false;
    return true;
}

/* Reads one key and adds it to the batch, unless it needs no change. */
static aoticache_status prepare_key(aoticache_cache *cache, aoticache_index *index, int subdirectory,
                                    const struct change *change, size_t at, struct batch *batch,
                                    aoticache_error *ret_error)
{
    aoticache_pin_state recorded, before, *after = &batch->after[at];
    bool was_damaged = false;
    aoticache_status status = read_recorded(index, &change->keys[at], &recorded, ret_error);
    if (status == AOTICACHE_OK)
        status = read_state(cache->directory, subdirectory, &recorded, &before, &was_damaged, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *after = before;
    status = apply_change(change, after, ret_error);
    if (status == AOTICACHE_OK && (was_damaged || !is_same_state(&before, after)))
        batch->to_write[batch->write_count++] = after;
    if (status == AOTICACHE_OK && !is_same_state(&recorded, after))
        batch->to_record[batch->record_count++] = after;
    return status;
}

/* Call this with both locks held. If one key cannot be changed, none of its batch is. */
static aoticache_status change_locked(aoticache_cache *cache, aoticache_index *index, int subdirectory,
                                      const struct change *change, aoticache_error *ret_error)
{
    cleanup_free aoticache_pin_state *after = calloc(change->count, sizeof *after);
    cleanup_free const aoticache_pin_state **lists = calloc(2 * change->count, sizeof *lists);
    if (after == NULL || lists == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for pins");
    struct batch batch = {.after = after, .to_write = lists, .to_record = lists + change->count};
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < change->count; i++)
        status = prepare_key(cache, index, subdirectory, change, i, &batch, ret_error);
    if (status == AOTICACHE_OK && batch.write_count > 0)
        status =
            aoticache_pin_files_write(cache->directory, subdirectory, batch.to_write, batch.write_count, ret_error);
    if (status == AOTICACHE_OK && batch.record_count > 0)
        status = aoticache_pin_states_record(index, batch.to_record, batch.record_count, ret_error);
    return status;
}

/* Tries to make the change. *ret_stale: the index was replaced before the store's lock was acquired, and nothing is done. */
static aoticache_status try_change(void *user, aoticache_index *index, bool *ret_stale, aoticache_error *ret_error)
{
    const struct change *change = user;
    aoticache_cache *cache = change->cache;
    aoticache_directory *directory = cache->directory;
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    cleanup_fd int subdirectory = -1;
    aoticache_status status = aoticache_lock_store(directory, false, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_stale = index == NULL || !aoticache_cache_index_is_current(cache);
    if (*ret_stale)
        goto out;
    status = aoticache_directory_open_subdirectory(directory, AOTICACHE_PINS, true, &subdirectory, ret_error);
    if (status != AOTICACHE_OK)
        goto out;
    status = aoticache_lock_acquire(subdirectory, LOCK_EX, directory->lock_timeout_ms, NULL, ret_error);
    if (status == AOTICACHE_LOCKED)
        aoticache_error_set(ret_error, status, "timed out after %u ms: another process is changing %s/%s",
                            (unsigned)directory->lock_timeout_ms, directory->path, AOTICACHE_PINS);
    if (status == AOTICACHE_OK)
        status = change_locked(cache, index, subdirectory, change, ret_error);
out:
    aoticache_lock_release(&lock);
    return status;
}

aoticache_status aoticache_cache_change_pins(aoticache_cache *cache, const aoticache_key *keys, size_t count,
                                             aoticache_pin_action action, const char *tag, size_t *ret_done,
                                             aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    size_t done = 0;
    if (cache == NULL || (keys == NULL && count > 0))
        return AOTICACHE_REFUSE_NULL(ret_error, cache, keys);
    if ((unsigned)action > AOTICACHE_UNTAG)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_change_pins: unknown action %d",
                                   (int)action);
    if (action == AOTICACHE_TAG || action == AOTICACHE_UNTAG)
        status = aoticache_tag_check(tag, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_cache_enter(cache);
    status = aoticache_cache_check_writable(cache, ret_error);
    while (status == AOTICACHE_OK && done < count) {
        const size_t size = count - done < BATCH ? count - done : BATCH;
        struct change change = {cache, action, tag, keys + done, size};
        status = aoticache_cache_write_index(cache, try_change, &change, ret_error);
        done += status == AOTICACHE_OK ? size : 0;
    }
    if (ret_done != NULL)
        *ret_done = done;
    return status;
}

/* ---- listing ---- */

/* Rows of all keys, copied so that the callback runs without a lock. */
struct row {
    aoticache_key key;
    bool is_pinned;
    char tag[AOTICACHE_MAX_TAG_BYTES]; /* "" for none */
};

struct rows {
    struct row *items;
    size_t count, capacity;
    bool is_out_of_memory;
};

static bool add_row(void *user, const aoticache_digest *key, bool is_pinned, const char *tag)
{
    struct rows *rows = user;
    rows->is_out_of_memory = !AOTICACHE_ARRAY_RESERVE(rows->items, rows->capacity, rows->count + 1);
    if (rows->is_out_of_memory)
        return false;
    struct row *row = &rows->items[rows->count++];
    memset(row, 0, sizeof *row);
    row->key = *key;
    row->is_pinned = is_pinned;
    if (tag != NULL)
        memcpy(row->tag, tag, strnlen(tag, AOTICACHE_MAX_TAG_BYTES - 1));
    return true;
}

/* Reports the rows of one key, which are adjacent. Returns how many there are from `rows` on. */
static size_t show_key(const struct row *rows, size_t count, aoticache_pins_fn callback, void *user, bool *ret_stopped)
{
    const char *tags[AOTICACHE_MAX_TAGS];
    aoticache_pins pins = {.key = rows[0].key, .is_pinned = rows[0].is_pinned, .tags = tags};
    size_t used = 0;
    for (; used < count && aoticache_digest_equal(&rows[used].key, &pins.key); used++)
        if (rows[used].tag[0] != '\0' && pins.tag_count < AOTICACHE_MAX_TAGS)
            tags[pins.tag_count++] = rows[used].tag;
    *ret_stopped = !callback(user, &pins);
    return used;
}

aoticache_status aoticache_cache_list_pins(aoticache_cache *cache, const char *tag, aoticache_pins_fn callback,
                                           void *user, aoticache_error *ret_error)
{
    if (cache == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    struct rows rows = {.items = NULL};
    aoticache_cache_enter(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_status status = AOTICACHE_OK;
    if (index != NULL) {
        do {
            rows.count = 0;
            status = aoticache_index_list_pins(index, NULL, tag, add_row, &rows, ret_error);
        } while (aoticache_cache_recovered(cache, status, &index));
    }
    if (status == AOTICACHE_OK && rows.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of pins");
    bool stopped = false;
    for (size_t i = 0; status == AOTICACHE_OK && i < rows.count && !stopped;)
        i += show_key(rows.items + i, rows.count - i, callback, user, &stopped);
    free(rows.items);
    return aoticache_cache_index_result(status, ret_error);
}
