/*
 * eager/package/metadata: the metadata of a package's model, kept with its entry, so that it is there without the package.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "eager/package/source.h"

/* ---- in ---- */

static bool add_pair(void *user, const char *name, const char *value)
{
    json_t *object = user;
    return json_object_set_new(object, name, json_string(value)) == 0;
}

char *aoticache_package_metadata_format(const aoticache_package *package, const aoticache_package_model *model)
{
    json_t *object = json_object();
    char *text = NULL;
    if (object != NULL)
        aoticache_package_list_metadata(package, model, add_pair, object);
    if (json_object_size(object) > 0) /* in the file's order */
        text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

/* ---- out ---- */

struct found {
    bool is_there;
    aoticache_digest artifact;
};

static bool take_entry(void *user, const aoticache_entry *entry)
{
    struct found *found = user;
    found->is_there = strcmp(entry->op, AOTICACHE_PACKAGE_OP) == 0;
    found->artifact = entry->artifact;
    return !found->is_there;
}

static aoticache_status list_pairs(const char *text, const char *key, aoticache_metadata_fn callback, void *user,
                                   aoticache_error *ret_error)
{
    json_t *object = json_loads(text, 0, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "the metadata kept of the package %s is no JSON object",
                                   key);
    }
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) {
        const char *found = json_string_value(value);
        if (found != NULL && !callback(user, name, found))
            break;
    }
    json_decref(object);
    return AOTICACHE_OK;
}

aoticache_status aoticache_package_read_metadata(aoticache_cache *cache, const aoticache_key *key,
                                                 aoticache_metadata_fn callback, void *user, aoticache_error *ret_error)
{
    if (cache == NULL || key == NULL || callback == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "package: an argument is NULL");
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    struct found found = {.is_there = false};
    cleanup_free char *text = NULL;
    aoticache_digest_to_hex(key, hex);
    aoticache_status status = aoticache_cache_list(cache, NULL, hex, take_entry, &found, ret_error);
    if (status == AOTICACHE_OK && !found.is_there)
        status = AOTICACHE_NOT_FOUND;
    if (status == AOTICACHE_OK)
        status = aoticache_cache_read_metadata(cache, &found.artifact, &text, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return aoticache_error_set(ret_error, status, "no metadata is stored for the package %s", hex);
    return status == AOTICACHE_OK ? list_pairs(text, hex, callback, user, ret_error) : status;
}
