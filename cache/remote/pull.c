/*
 * cache/remote/pull: fetches entries from remotes: decides which of a key's entries to fetch, and fetches many keys with the
 * lists on a remote.
 */
#include "base/arguments.h"
#include "cache/remote/remote_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "cache/request/cpu_detect.h"

#define LISTS 256

/* ---- one key ---- */

static bool is_served(const aoticache_record *record, size_t before, const bool *is_here)
{
    const char *guard = record->entries[before].guard;
    for (size_t i = 0; i < before; i++) {
        const char *other = record->entries[i].guard;
        if (is_here[i] && (guard == other || (guard != NULL && other != NULL && strcmp(guard, other) == 0)))
            return true;
    }
    return false;
}

aoticache_status aoticache_remote_fetch_key(aoticache_intake *intake, aoticache_remote *remote,
                                            const aoticache_key *key, const aoticache_guard_filter *filter,
                                            size_t *ret_brought, aoticache_error *ret_error)
{
    aoticache_record record;
    bool is_here[AOTICACHE_RECORD_MAX_ENTRIES] = {false};
    *ret_brought = 0;
    aoticache_status status = aoticache_remote_read_record(remote, key, &record, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t i = 0; status == AOTICACHE_OK && i < record.count; i++) {
        const aoticache_record_entry *entry = &record.entries[i];
        const aoticache_intake_claim claim = {
            .key = key, .artifact = &entry->artifact, .requirements = &entry->requirements, .guard = entry->guard};
        bool is_wanted = false;
        if (!aoticache_cpu_features_include(aoticache_cpu_features_get(), &entry->requirements) ||
            is_served(&record, i, is_here) ||
            (filter != NULL && (entry->guard == NULL || !filter->accept(filter->user, entry->guard))))
            continue;
        status = aoticache_intake_wants_entry(intake, &claim, &is_wanted, ret_error);
        if (status != AOTICACHE_OK || !is_wanted)
            continue;
        status = aoticache_remote_fetch(intake, remote, key, entry, &is_here[i], ret_error);
        *ret_brought += status == AOTICACHE_OK && is_here[i] ? 1 : 0;
        if (filter != NULL && is_here[i])
            break; /* what was asked for is there */
    }
    aoticache_record_clear(&record);
    return status;
}

/* ---- many keys ---- */

struct pull {
    aoticache_intake intake;
    aoticache_transfer_report report;
    aoticache_transfer_options *options;
    aoticache_key *keys;
    size_t count, capacity;
    bool is_out_of_memory;
};

static bool has_tag(const char *tags, const char *tag)
{
    const size_t length = strlen(tag);
    while (*tags != '\0') {
        const size_t one = strcspn(tags, ",");
        if (one == length && memcmp(tags, tag, length) == 0)
            return true;
        tags += one + (tags[one] == ',' ? 1 : 0);
    }
    return false;
}

static bool take_row(void *user, const aoticache_list_row *row)
{
    struct pull *pull = user;
    if (!aoticache_transfer_names(pull->options, row->op, row->device, &row->key) ||
        (pull->options->tag != NULL && !has_tag(row->tags, pull->options->tag)))
        return true;
    pull->is_out_of_memory = !AOTICACHE_ARRAY_RESERVE(pull->keys, pull->capacity, pull->count + 1);
    if (!pull->is_out_of_memory)
        pull->keys[pull->count++] = row->key;
    return !pull->is_out_of_memory;
}

static aoticache_status read_list(struct pull *pull, aoticache_remote *remote, unsigned first_byte,
                                  aoticache_error *ret_error)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES];
    cleanup_free char *text = NULL;
    size_t size = 0;
    aoticache_error detail = {.message = ""};
    aoticache_remote_list_name(first_byte, name);
    aoticache_status status = aoticache_remote_get_text(remote, AOTICACHE_REMOTE_READ, name, AOTICACHE_LIST_MAX_BYTES,
                                                        &text, &size, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    if (aoticache_list_parse(text, first_byte, take_row, pull, &detail) != AOTICACHE_OK)
        aoticache_intake_refuse(&pull->intake, "remote %s: %s: %s", remote->config.url, name, detail.message);
    return pull->is_out_of_memory
               ? aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of keys")
               : AOTICACHE_OK;
}

/* Returns whether a key with this first byte may be selected. */
static bool may_want(const aoticache_transfer_options *options, unsigned first_byte)
{
    char digits[3];
    const char *prefix = options->key_prefix;
    bool is_named = options->keys == NULL;
    for (size_t i = 0; !is_named && i < options->key_count; i++)
        is_named = options->keys[i].bytes[0] == first_byte;
    snprintf(digits, sizeof digits, "%02hhx", (unsigned char)first_byte);
    return is_named && (prefix == NULL || strncasecmp(digits, prefix, strlen(prefix) < 2 ? strlen(prefix) : 2) == 0);
}

static aoticache_status read_lists(struct pull *pull, aoticache_remote *remote, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    pull->count = 0;
    for (unsigned first = 0; status == AOTICACHE_OK && first < LISTS; first++) {
        if (!may_want(pull->options, first))
            continue;
        status = read_list(pull, remote, first, ret_error);
        if (status == AOTICACHE_OK && !aoticache_intake_poll(&pull->intake))
            status = aoticache_error_set(ret_error, AOTICACHE_IO, "stopped; the entries that were complete are stored");
    }
    return status;
}

static aoticache_status pull_key(struct pull *pull, aoticache_remote *remote, const aoticache_key *key,
                                 aoticache_error *ret_error)
{
    size_t brought = 0;
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_remote_fetch_key(&pull->intake, remote, key, NULL, &brought, &detail);
    if (status == AOTICACHE_NOT_FOUND || status == AOTICACHE_CORRUPT || status == AOTICACHE_UNSUPPORTED) {
        if (status == AOTICACHE_NOT_FOUND)
            pull->report.entries_gone++;
        else
            aoticache_intake_refuse(&pull->intake, "%s", detail.message);
        return AOTICACHE_OK;
    }
    return status == AOTICACHE_OK ? status : aoticache_error_set(ret_error, status, "%s", detail.message);
}

static aoticache_status pull_from(struct pull *pull, aoticache_remote *remote, aoticache_error *ret_error)
{
    pull->options->allow_unsigned = remote->config.allow_unsigned; /* only the remote's own settings decide */
    pull->intake.place = remote->config.url;
    aoticache_status status = read_lists(pull, remote, ret_error);
    pull->intake.all += pull->count;
    for (size_t i = 0; status == AOTICACHE_OK && i < pull->count; i++) {
        status = pull_key(pull, remote, &pull->keys[i], ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_intake_step(&pull->intake, ret_error);
    }
    /* Entries imported completely stay, and the first of two errors is reported. */
    aoticache_status committed = aoticache_intake_commit(&pull->intake, status == AOTICACHE_OK ? ret_error : NULL);
    aoticache_intake_tell_untrusted(&pull->intake);
    return status != AOTICACHE_OK ? status : committed;
}

static aoticache_status run_pull(struct pull *pull, aoticache_remotes *remotes, aoticache_error *ret_error)
{
    size_t sources = 0;
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && remotes != NULL && i < remotes->count; i++) {
        if (!remotes->items[i].config.reads)
            continue;
        sources++;
        status = pull_from(pull, &remotes->items[i], ret_error);
    }
    if (sources == 0)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                                   "no remote to read from: set `remote` in the configuration (docs/remotes.md)");
    if (status == AOTICACHE_OK && pull->intake.all == 0)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "no remote has an entry that matches");
    return status;
}

aoticache_status aoticache_cache_pull(aoticache_cache *cache, const char *remotes,
                                      const aoticache_transfer_options *options, aoticache_transfer_report *ret_report,
                                      aoticache_error *ret_error)
{
    struct pull pull = {.keys = NULL};
    aoticache_transfer_options chosen;
    aoticache_remotes *own = NULL;
    aoticache_status status = aoticache_transfer_options_read(options, false, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    chosen.ask = NULL; /* remotes provide no keys */
    pull.options = &chosen;
    aoticache_cache_enter(cache);
    if (remotes != NULL)
        status = aoticache_remotes_create(remotes, &cache->directory->logger, &own, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_intake_begin(&pull.intake, cache, &chosen, &pull.report, ret_error);
    pull.intake.is_foreign = pull.intake.is_remote = true;
    if (status == AOTICACHE_OK)
        status = run_pull(&pull, remotes != NULL ? own : cache->remotes, ret_error);
    aoticache_intake_end(&pull.intake);
    aoticache_remotes_free(own);
    free(pull.keys);
    if (!chosen.dry_run)
        aoticache_cache_flush(cache, NULL);
    if (ret_report != NULL)
        *ret_report = pull.report;
    return status == AOTICACHE_CORRUPT ? AOTICACHE_IO : status;
}
