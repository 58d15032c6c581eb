/*
 * loader/package/metadata: the JSON file that PyTorch puts beside a library: what it was compiled for, and what its
 * author added. Values are texts; anything else is shown as the JSON it is.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "loader/package/parts.h"

/* A value begins the text, or follows one of these; what is in strings does not count. */
size_t aoticache_package_metadata_count(const char *text, size_t size)
{
    size_t count = 1;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        else if (in_string)
            i += text[i] == '\\';
        else
            count += text[i] == '[' || text[i] == '{' || text[i] == ',';
    }
    return count;
}

aoticache_status aoticache_package_metadata_parse(const char *text, size_t size, const char *what,
                                                  json_t **ret_metadata, aoticache_error *ret_error)
{
    json_error_t detail;
    json_t *metadata = json_loadb(text, size, JSON_REJECT_DUPLICATES, &detail);
    if (metadata == NULL && json_error_code(&detail) == json_error_out_of_memory)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the metadata %s", what);
    if (metadata == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s is not JSON: line %d: %s", what, detail.line,
                                   detail.text);
    if (!json_is_object(metadata)) {
        json_decref(metadata);
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s is JSON, but not an object", what);
    }
    *ret_metadata = metadata;
    return AOTICACHE_OK;
}

const char *aoticache_package_metadata_text(const json_t *metadata, const char *name, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(metadata, name));
    return text != NULL && text[0] != '\0' ? text : otherwise;
}

void aoticache_package_metadata_list(json_t *metadata, aoticache_metadata_fn callback, void *user)
{
    const char *name;
    json_t *value;
    json_object_foreach(metadata, name, value) {
        cleanup_free char *written = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        const char *text = json_is_string(value) ? json_string_value(value) : written;
        if (!callback(user, name, text != NULL ? text : ""))
            return;
    }
}
