/*
 * cache/remote/ask: how remotes answer, for people who look into it.
 */
#include "cache/remote/internal.h"

aoticache_status aoticache_remotes_ask(const char *remotes, aoticache_remote_state_fn callback, void *user,
                                       aoticache_error *ret_error)
{
    static const aoticache_logger silent = {.log = NULL};
    aoticache_remotes *asked = NULL;
    if (remotes == NULL || callback == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_remotes_ask: an argument is NULL");
    aoticache_status status = aoticache_remotes_create(remotes, &silent, &asked, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && asked != NULL && i < asked->count; i++) {
        aoticache_remote *remote = &asked->items[i];
        char name[AOTICACHE_REMOTE_NAME_BYTES];
        aoticache_error detail = {.message = ""};
        const uint64_t begun = aoticache_monotonic_ns();
        aoticache_remote_list_name(0, name);
        aoticache_status answer = aoticache_remote_exists(remote, name, &detail);
        const aoticache_remote_state state = {.url = remote->config.url,
                                              .reads = remote->config.reads,
                                              .writes = remote->config.writes,
                                              .has_leases = remote->module != NULL && remote->module->acquire != NULL,
                                              .allow_unsigned = remote->config.allow_unsigned,
                                              .status = answer == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : answer,
                                              .message = detail.message,
                                              .answer_ns = aoticache_monotonic_ns() - begun};
        if (!callback(user, &state))
            break;
    }
    aoticache_remotes_free(asked);
    return status;
}
