/*
 * cache/remote/query: reports what remotes have for a key.
 */
#include "base/arguments.h"
#include "cache/remote/remote_internal.h"

static bool report_record(const aoticache_remote *remote, const aoticache_record *record,
                          aoticache_remote_entry_fn callback, void *user)
{
    for (size_t i = 0; i < record->count; i++) {
        const aoticache_record_entry *one = &record->entries[i];
        const aoticache_remote_entry entry = {.url = remote->config.url,
                                              .status = AOTICACHE_OK,
                                              .message = "",
                                              .artifact = one->artifact,
                                              .requirements = one->requirements,
                                              .guard = one->guard != NULL ? one->guard : "",
                                              .signatures = one->signatures,
                                              .created_ns = one->created_ns};
        if (!callback(user, &entry))
            return false;
    }
    return true;
}

static bool look_at(aoticache_remote *remote, const aoticache_key *key, aoticache_remote_entry_fn callback, void *user)
{
    aoticache_error detail = {.message = ""};
    aoticache_record record = {.count = 0};
    aoticache_status status = aoticache_remote_read_record(remote, key, &record, &detail);
    if (status == AOTICACHE_OK && record.count > 0) {
        const bool continues = report_record(remote, &record, callback, user);
        aoticache_record_clear(&record);
        return continues;
    }
    const aoticache_remote_entry nothing = {.url = remote->config.url,
                                            .status = status == AOTICACHE_OK ? AOTICACHE_NOT_FOUND : status,
                                            .message = detail.message,
                                            .guard = "",
                                            .signatures = ""};
    if (status == AOTICACHE_OK)
        aoticache_record_clear(&record);
    return callback(user, &nothing);
}

aoticache_status aoticache_remotes_query(const char *remotes, const aoticache_key *key,
                                         aoticache_remote_entry_fn callback, void *user, aoticache_error *ret_error)
{
    static const aoticache_logger silent = {.log = NULL};
    aoticache_remotes *asked = NULL;
    if (remotes == NULL || key == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, remotes, key, callback);
    aoticache_status status = aoticache_remotes_create(remotes, &silent, &asked, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && asked != NULL && i < asked->count; i++)
        if (asked->items[i].config.reads && !look_at(&asked->items[i], key, callback, user))
            break;
    aoticache_remotes_free(asked);
    return status;
}
