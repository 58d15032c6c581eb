/*
 * cache/transfer/pins: see pins.h.
 */
#include "cache/transfer/pins.h"

/* OK, NOT_FOUND. */
static aoticache_status find_key(aoticache_intake *intake, const aoticache_key *key, aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(intake->cache);
    aoticache_index_hit hit;
    aoticache_status status;
    size_t count = 0;
    if (index == NULL)
        return AOTICACHE_NOT_FOUND;
    do
        status = aoticache_index_lookup(index, key, &hit, 1, &count, ret_error);
    while (aoticache_cache_recovered(intake->cache, status, &index));
    return status;
}

static aoticache_status add_tag(aoticache_intake *intake, const aoticache_pins *mark, const char *tag,
                                aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_cache_tag(intake->cache, &mark->key, tag, &detail);
    if (status == AOTICACHE_OK)
        return status;
    if (status != AOTICACHE_INVALID)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    aoticache_digest_to_hex(&mark->key, hex);
    aoticache_intake_refuse(intake, "a tag of key %s: %s", hex, detail.message);
    return AOTICACHE_OK;
}

aoticache_status aoticache_transfer_add_pin(aoticache_intake *intake, const aoticache_pins *mark,
                                             aoticache_error *ret_error)
{
    if (intake->options->dry_run) { /* there is no telling then which keys there would be */
        intake->report->marks++;
        return AOTICACHE_OK;
    }
    aoticache_status status = find_key(intake, &mark->key, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    if (status == AOTICACHE_OK && mark->is_pinned)
        status = aoticache_cache_pin(intake->cache, &mark->key, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < mark->tag_count; i++)
        status = add_tag(intake, mark, mark->tags[i], ret_error);
    intake->report->marks += status == AOTICACHE_OK ? 1 : 0;
    return status;
}
