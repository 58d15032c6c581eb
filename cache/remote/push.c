/*
 * cache/remote/push: sends many entries to remotes, and updates the lists of keys there, which a pull reads: a server that
 * stores bytes by name cannot list its contents.
 */
#include "base/arguments.h"
#include "cache/remote/remote_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/names.h"
#include "base/text/stream.h"
#include "cache/entries.h"

#define LISTS 256
#define MAX_TRIES 12
#define MAX_TAGS_BYTES 4096
#define MOST_REFUSALS 3 /* consecutive: the server is then assumed to refuse everything */

struct row {
    aoticache_key key;
    char *device, *op, *tags;
    size_t order;
};

struct rows {
    struct row *items;
    size_t count, capacity;
    bool is_out_of_memory;
};

struct push {
    aoticache_cache *cache;
    const aoticache_transfer_options *options;
    aoticache_transfer_report report;
    aoticache_entry_list selection;
    struct rows tags; /* tags of the selected keys */
    uint64_t done, all;
    unsigned refusals; /* of the server, consecutive */
    bool is_only;      /* it is the only writable remote of the cache */
    bool is_stopped;
};

/* ---- rows ---- */

static void clear_rows(struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        free(rows->items[i].device);
        free(rows->items[i].op);
        free(rows->items[i].tags);
    }
    free(rows->items);
    *rows = (struct rows){.items = NULL};
}

static bool add_row(void *user, const aoticache_list_row *row)
{
    struct rows *rows = user;
    struct row copy = {
        .key = row->key, .device = strdup(row->device), .op = strdup(row->op), .tags = strdup(row->tags)};
    if (copy.device != NULL && copy.op != NULL && copy.tags != NULL &&
        AOTICACHE_ARRAY_RESERVE(rows->items, rows->capacity, rows->count + 1)) {
        copy.order = rows->count;
        rows->items[rows->count++] = copy;
        return true;
    }
    free(copy.device);
    free(copy.op);
    free(copy.tags);
    rows->is_out_of_memory = true;
    return false;
}

static int compare_rows(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    int order = memcmp(&a->key, &b->key, sizeof a->key);
    return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

static bool has_tag(const char *tags, const char *tag, size_t length)
{
    while (*tags != '\0') {
        const size_t one = strcspn(tags, ",");
        if (one == length && memcmp(tags, tag, length) == 0)
            return true;
        tags += one + (tags[one] == ',' ? 1 : 0);
    }
    return false;
}

/* Adds the tags of `more`, without duplicates. Returns false if memory is short. */
static bool join_tags(char **tags, const char *more)
{
    while (*more != '\0') {
        const size_t length = strcspn(more, ",");
        if (length > 0 && !has_tag(*tags, more, length) && strlen(*tags) + length < MAX_TAGS_BYTES) {
            char *joined = NULL;
            if (asprintf(&joined, "%s%s%.*s", *tags, (*tags)[0] != '\0' ? "," : "", (int)length, more) < 0)
                return false;
            free(*tags);
            *tags = joined;
        }
        more += length + (more[length] == ',' ? 1 : 0);
    }
    return true;
}

/* Sorts by key, and merges the rows of each key. */
static void unite_rows(struct rows *rows)
{
    size_t kept = 0;
    if (rows->count == 0)
        return;
    qsort(rows->items, rows->count, sizeof *rows->items, compare_rows);
    for (size_t i = 1; i < rows->count; i++) {
        if (memcmp(&rows->items[i].key, &rows->items[kept].key, sizeof rows->items[i].key) != 0) {
            rows->items[++kept] = rows->items[i];
            continue;
        }
        rows->is_out_of_memory = !join_tags(&rows->items[kept].tags, rows->items[i].tags) || rows->is_out_of_memory;
        free(rows->items[i].device);
        free(rows->items[i].op);
        free(rows->items[i].tags);
    }
    rows->count = kept + 1;
}

static char *format_rows(const struct rows *rows, size_t *ret_size)
{
    char *text = NULL, hex[AOTICACHE_DIGEST_HEX_BYTES];
    FILE *stream = aoticache_text_stream_open(&text, ret_size);
    if (stream == NULL)
        return NULL;
    fputs(AOTICACHE_LIST_HEAD, stream);
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->items[i];
        aoticache_digest_to_hex(&row->key, hex);
        fprintf(stream, "%s %s %s%s%s\n", hex, row->device, row->op, row->tags[0] != '\0' ? " " : "", row->tags);
    }
    if (fclose(stream) == 0)
        return text;
    free(text);
    return NULL;
}

/* ---- the lists of a remote ---- */

/* Tries once. *ret_done: the rows of `more` with this first byte are in the list on the server. */
static aoticache_status try_list(aoticache_remote *remote, unsigned first_byte, const struct rows *more, bool *ret_done,
                                 aoticache_error *ret_error)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES], version[AOTICACHE_REMOTE_VERSION_BYTES] = "";
    cleanup_free char *old = NULL, *text = NULL;
    struct rows rows = {.items = NULL};
    size_t size = 0;
    aoticache_remote_list_name(first_byte, name);
    aoticache_status status = aoticache_remote_get_text(remote, AOTICACHE_REMOTE_WRITE, name, AOTICACHE_LIST_MAX_BYTES,
                                                        &old, &size, version, ret_error);
    const bool exists = status == AOTICACHE_OK || status == AOTICACHE_CORRUPT;
    cleanup_free char *before = status == AOTICACHE_OK ? strdup(old) : NULL;
    if (status == AOTICACHE_OK) /* a list that is damaged from some line on is kept up to that line */
        aoticache_list_parse(old, first_byte, add_row, &rows, NULL);
    for (size_t i = 0; i < more->count; i++) {
        const struct row *row = &more->items[i];
        if (row->key.bytes[0] == first_byte)
            add_row(&rows,
                    &(aoticache_list_row){.key = row->key, .device = row->device, .op = row->op, .tags = row->tags});
    }
    unite_rows(&rows);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND || status == AOTICACHE_CORRUPT)
        status = !rows.is_out_of_memory && (text = format_rows(&rows, &size)) != NULL
                     ? AOTICACHE_OK
                     : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of keys");
    clear_rows(&rows);
    *ret_done = status == AOTICACHE_OK && before != NULL && strcmp(before, text) == 0;
    if (status != AOTICACHE_OK || *ret_done)
        return status;
    if (size > AOTICACHE_LIST_MAX_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "remote %s: the list %s is full",
                                   remote->config.url, name);
    status =
        aoticache_remote_put_text(remote, name, text, size, exists && version[0] == '\0' ? NULL : version, ret_error);
    *ret_done = status == AOTICACHE_OK && remote->module.is_conditional; /* otherwise the next try checks that */
    return status == AOTICACHE_LOCKED ? AOTICACHE_OK : status;
}

static aoticache_status update_lists(aoticache_remote *remote, const struct rows *more, aoticache_error *ret_error)
{
    bool is_wanted[LISTS] = {false};
    for (size_t i = 0; i < more->count; i++)
        is_wanted[more->items[i].key.bytes[0]] = true;
    for (unsigned first = 0; first < LISTS; first++) {
        bool is_done = !is_wanted[first];
        for (int i = 0; !is_done && i < MAX_TRIES; i++) {
            aoticache_status status = try_list(remote, first, more, &is_done, ret_error);
            if (status != AOTICACHE_OK)
                return status;
        }
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_remote_list_entry(aoticache_cache *cache, aoticache_remote *remote,
                                             const aoticache_digest *artifact, aoticache_error *ret_error)
{
    aoticache_manifest *manifest = NULL;
    struct rows rows = {.items = NULL};
    uint64_t bytes = 0;
    aoticache_status status = aoticache_cache_load_manifest(cache->directory, artifact, &manifest, &bytes, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    add_row(&rows,
            &(aoticache_list_row){.key = manifest->key, .device = manifest->device, .op = manifest->op, .tags = ""});
    status = rows.is_out_of_memory
                 ? aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of keys")
                 : update_lists(remote, &rows, ret_error);
    clear_rows(&rows);
    aoticache_manifest_free(manifest);
    return status;
}

/* ---- pushing ---- */

static bool poll_push(void *user)
{
    struct push *push = user;
    const aoticache_transfer_options *options = push->options;
    if (!push->is_stopped && options->progress != NULL)
        push->is_stopped = !options->progress(options->user, push->done, push->all);
    return !push->is_stopped;
}

static bool note_tags(void *user, const aoticache_pins *pins)
{
    struct push *push = user;
    char *tags = strdup("");
    bool is_ok = tags != NULL;
    for (size_t i = 0; is_ok && i < pins->tag_count; i++)
        is_ok = join_tags(&tags, pins->tags[i]);
    is_ok =
        is_ok && add_row(&push->tags, &(aoticache_list_row){.key = pins->key, .device = "", .op = "", .tags = tags});
    free(tags);
    push->tags.is_out_of_memory = push->tags.is_out_of_memory || !is_ok;
    return is_ok;
}

static const char *tags_of(const struct push *push, const aoticache_key *key)
{
    for (size_t low = 0, high = push->tags.count; low < high;) {
        const size_t middle = low + (high - low) / 2;
        const int order = memcmp(key, &push->tags.items[middle].key, sizeof *key);
        if (order == 0)
            return push->tags.items[middle].tags;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return "";
}

/* Reports an entry that is not sent: it was damaged, removed meanwhile, or is too large for the remote. */
static void leave_out(struct push *push, const aoticache_remote *remote, const aoticache_entry *entry,
                      const char *reason)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&entry->artifact, hex);
    push->report.refused++;
    aoticache_log(&push->cache->directory->logger, AOTICACHE_LOG_WARNING, "artifact %s of %.200s is not sent to %s: %s",
                  hex, entry->op, remote->config.url, aoticache_remote_reason(remote, reason));
}

static aoticache_status push_entry(struct push *push, aoticache_remote *remote, const aoticache_entry *entry,
                                   struct rows *sent, aoticache_error *ret_error)
{
    aoticache_error detail = {.message = ""};
    const uint64_t before = push->report.objects;
    if (push->options->dry_run) {
        push->report.entries++;
        return AOTICACHE_OK;
    }
    const aoticache_remote_sending sending = {.signers = push->options->signers,
                                              .signer_count = push->options->signer_count,
                                              .replaces = push->options->replace,
                                              .poll = poll_push,
                                              .user = push,
                                              .report = &push->report};
    aoticache_status status = aoticache_remote_send(push->cache, remote, &entry->artifact, &sending, &detail);
    push->refusals = status == AOTICACHE_DENIED ? push->refusals + 1 : 0;
    if (status == AOTICACHE_CORRUPT || status == AOTICACHE_UNSUPPORTED ||
        (status == AOTICACHE_DENIED && push->refusals < MOST_REFUSALS)) {
        leave_out(push, remote, entry, detail.message);
        return AOTICACHE_OK;
    }
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    if (push->is_only)
        aoticache_unsent_forget(push->cache, &entry->artifact);
    push->report.entries += push->report.objects > before ? 1 : 0;
    push->report.entries_present += push->report.objects > before ? 0 : 1;
    add_row(sent, &(aoticache_list_row){
                      .key = entry->key, .device = entry->device, .op = entry->op, .tags = tags_of(push, &entry->key)});
    return sent->is_out_of_memory
               ? aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of keys")
               : AOTICACHE_OK;
}

static aoticache_status push_to(struct push *push, aoticache_remote *remote, aoticache_error *ret_error)
{
    struct rows sent = {.items = NULL};
    push->refusals = 0;
    aoticache_status status = aoticache_remote_prepare(remote, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < push->selection.count; i++) {
        status = push_entry(push, remote, &push->selection.entries[i].entry, &sent, ret_error);
        push->done++;
        if (status == AOTICACHE_OK && !poll_push(push))
            status = aoticache_error_set(ret_error, AOTICACHE_IO, "stopped; the entries that were complete were sent");
    }
    if (sent.count > 0) { /* also if a later entry failed: entries that were sent can then be found */
        unite_rows(&sent);
        aoticache_status listed = update_lists(remote, &sent, status == AOTICACHE_OK ? ret_error : NULL);
        status = status == AOTICACHE_OK ? listed : status;
    }
    clear_rows(&sent);
    return status;
}

static aoticache_status run_push(struct push *push, aoticache_remotes *remotes, aoticache_error *ret_error)
{
    size_t targets = 0;
    for (size_t i = 0; remotes != NULL && i < remotes->count; i++)
        targets += remotes->items[i].config.writes ? 1 : 0;
    if (targets == 0)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                                   "no remote to write to: set `remote` in the configuration (docs/remotes.md)");
    aoticache_status status = aoticache_transfer_select(push->cache, push->options, &push->selection, ret_error);
    if (status == AOTICACHE_OK && push->selection.count == 0)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "nothing matches in %s",
                                   push->cache->directory->path);
    if (status == AOTICACHE_OK)
        status = aoticache_transfer_list_pins(push->cache, &push->selection, note_tags, push, ret_error);
    if (status == AOTICACHE_OK && push->tags.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of keys");
    unite_rows(&push->tags);
    push->all = push->selection.count * targets;
    push->is_only = targets == 1 && remotes == push->cache->remotes;
    for (size_t i = 0; status == AOTICACHE_OK && i < remotes->count; i++)
        if (remotes->items[i].config.writes)
            status = push_to(push, &remotes->items[i], ret_error);
    return status;
}

aoticache_status aoticache_cache_push(aoticache_cache *cache, const char *remotes,
                                      const aoticache_transfer_options *options, aoticache_transfer_report *ret_report,
                                      aoticache_error *ret_error)
{
    struct push push = {.cache = cache};
    aoticache_transfer_options chosen;
    aoticache_remotes *own = NULL;
    aoticache_status status = aoticache_transfer_options_read(options, false, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    if (chosen.signer_count > AOTICACHE_MAX_SIGNATURES || (chosen.signers == NULL && chosen.signer_count > 0))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_cache_push: %zu signers; at most %d are allowed", chosen.signer_count,
                                   AOTICACHE_MAX_SIGNATURES);
    push.options = &chosen;
    aoticache_cache_enter(cache);
    status = aoticache_trust_check_signers(cache, chosen.signers, chosen.signer_count, ret_error);
    if (status == AOTICACHE_OK && remotes != NULL)
        status = aoticache_remotes_create(remotes, &cache->directory->logger, &own, ret_error);
    if (status == AOTICACHE_OK)
        status = run_push(&push, remotes != NULL ? own : cache->remotes, ret_error);
    aoticache_remotes_free(own);
    aoticache_entry_list_free(&push.selection);
    clear_rows(&push.tags);
    if (ret_report != NULL)
        *ret_report = push.report;
    return status == AOTICACHE_CORRUPT ? AOTICACHE_IO : status;
}
