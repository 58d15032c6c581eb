/*
 * cache/inspect: what the store has of one artifact, whatever the index and this CPU say: its files, its manifest, what
 * the compiler said.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "cache/state.h"

aoticache_status aoticache_cache_open_artifact(aoticache_cache *cache, const aoticache_digest *artifact,
                                               aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    if (cache == NULL || artifact == NULL || ret_artifact == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_open_artifact: an argument is NULL");
    aoticache_artifact_part unusable;
    aoticache_cache_enter(cache);
    return aoticache_artifact_open_manifest(cache->directory, artifact, ret_artifact, &unusable, ret_error);
}

aoticache_status aoticache_cache_read_manifest(aoticache_cache *cache, const aoticache_digest *artifact,
                                               char **ret_text, aoticache_error *ret_error)
{
    if (cache == NULL || artifact == NULL || ret_text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_read_manifest: an argument is NULL");
    cleanup_free char *text = NULL;
    size_t size = 0;
    aoticache_manifest *manifest = NULL;
    aoticache_cache_enter(cache);
    aoticache_status status = aoticache_object_read(cache->directory, artifact, &text, &size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_manifest_parse(text, size, &manifest, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_manifest_free(manifest);
    *ret_text = steal_ptr(&text);
    return AOTICACHE_OK;
}

/* Of a text that a manifest may have: `field` of the one that was read. */
static aoticache_status read_text(aoticache_cache *cache, const aoticache_digest *artifact, const char *function,
                                  char **(*field)(aoticache_manifest *manifest), char **ret_text,
                                  aoticache_error *ret_error)
{
    if (cache == NULL || artifact == NULL || ret_text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: an argument is NULL", function);
    aoticache_manifest *manifest = NULL;
    uint64_t bytes;
    aoticache_cache_enter(cache);
    aoticache_status status =
        aoticache_cache_load_manifest(cache->directory, artifact, &manifest, &bytes, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    char *text = steal_ptr(field(manifest));
    aoticache_manifest_free(manifest);
    if (text == NULL)
        return AOTICACHE_NOT_FOUND;
    *ret_text = text;
    return AOTICACHE_OK;
}

static char **output_of(aoticache_manifest *manifest)
{
    return &manifest->output;
}

static char **metadata_of(aoticache_manifest *manifest)
{
    return &manifest->metadata;
}

aoticache_status aoticache_cache_read_output(aoticache_cache *cache, const aoticache_digest *artifact, char **ret_text,
                                             aoticache_error *ret_error)
{
    return read_text(cache, artifact, __func__, output_of, ret_text, ret_error);
}

aoticache_status aoticache_cache_read_metadata(aoticache_cache *cache, const aoticache_digest *artifact, char **ret_text,
                                               aoticache_error *ret_error)
{
    return read_text(cache, artifact, __func__, metadata_of, ret_text, ret_error);
}
