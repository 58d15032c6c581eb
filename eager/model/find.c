/*
 * eager/model/find: finds the entry of a model, by its name or by the first digits of its key.
 */
#include "eager/model/model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/request/cpu_detect.h"

#define MIN_KEY_DIGITS 8
#define NAMES_BYTES 600

struct search {
    const char *wanted; /* a name, or digits of a key */
    bool by_key, is_program;
    const char *framework; /* NULL: any */
    int32_t device_type;   /* -1: any */
    aoticache_model_found best;
    size_t keys;     /* number of different keys that fit */
    char other[256]; /* why an existing entry does not fit; "" */
};

static const char *name_of(const aoticache_request *request)
{
    const aoticache_argument *argument = aoticache_request_argument(request, 0);
    return argument != NULL && argument->kind == AOTICACHE_ARGUMENT_STRING ? argument->value.string_value : "";
}

static bool has_key(const aoticache_key *key, const char *digits)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(key, hex);
    return strncasecmp(hex, digits, strlen(digits)) == 0;
}

static bool is_usable(struct search *search, const aoticache_request *request, const char *framework)
{
    const char *arch = aoticache_request_get_environment(request, "arch");
    const aoticache_device device = aoticache_request_device(request);
    if (arch == NULL || strcmp(arch, aoticache_cpu_arch()) != 0)
        snprintf(search->other, sizeof search->other, "it was compiled for %.64s, but this machine is %s",
                 arch != NULL ? arch : "nothing", aoticache_cpu_arch());
    else if (search->framework != NULL && strcmp(search->framework, framework) != 0)
        snprintf(search->other, sizeof search->other, "it was compiled by %.64s, not by %.64s", framework,
                 search->framework);
    else if (search->device_type >= 0 && search->device_type != device.type)
        snprintf(search->other, sizeof search->other, "it was compiled for %s, not for %s",
                 aoticache_device_type_name(device.type), aoticache_device_type_name(search->device_type));
    else
        return true;
    return false;
}

/* Considers an entry. For one key the most demanding entry comes first; of several keys the one stored last is used. */
static bool consider(void *user, const aoticache_stored *stored)
{
    struct search *search = user;
    const char *name = name_of(stored->request);
    const char *framework = aoticache_request_get_environment(stored->request, "framework");
    framework = framework != NULL ? framework : "";
    if (search->by_key ? !has_key(&stored->key, search->wanted) : strcmp(name, search->wanted) != 0)
        return true;
    if (!is_usable(search, stored->request, framework))
        return true;
    aoticache_model_found *best = &search->best;
    if (best->entry_id != 0 && memcmp(&best->key, &stored->key, sizeof stored->key) == 0)
        return true;
    search->keys++;
    if (stored->entry_id < best->entry_id)
        return true;
    *best = (aoticache_model_found){.entry_id = stored->entry_id,
                                    .key = stored->key,
                                    .artifact = stored->artifact,
                                    .device = aoticache_request_device(stored->request),
                                    .is_program = search->is_program};
    snprintf(best->name, sizeof best->name, "%s", search->is_program ? "" : name);
    snprintf(best->framework, sizeof best->framework, "%s", framework);
    return true;
}

/* ---- messages if nothing fits ---- */

struct names {
    char text[NAMES_BYTES];
    size_t used, count;
};

static bool add_name(void *user, const aoticache_stored *stored)
{
    struct names *names = user;
    const char *name = name_of(stored->request);
    char item[80];
    snprintf(item, sizeof item, "%.64s", name);
    if (strstr(names->text, item) != NULL)
        return true;
    int written = snprintf(names->text + names->used, sizeof names->text - names->used, "%s%s",
                           names->count > 0 ? ", " : "", item);
    if (written < 0 || names->used + (size_t)written >= sizeof names->text) {
        names->text[names->used] = '\0';
        return false;
    }
    names->used += (size_t)written;
    names->count++;
    return true;
}

struct foreign {
    const char *wanted;
    bool by_key, found;
    aoticache_cpu_features requirements;
};

/* Finds entries that this CPU cannot run, by their descriptions; they are not in the list of usable entries. */
static bool find_foreign(void *user, const aoticache_entry *entry)
{
    struct foreign *foreign = user;
    char text[300];
    snprintf(text, sizeof text, "(name=\"%s\")", foreign->wanted);
    if (foreign->by_key ? has_key(&entry->key, foreign->wanted) : strstr(entry->description, text) != NULL) {
        foreign->found = true;
        foreign->requirements = entry->requirements;
    }
    return !foreign->found;
}

static aoticache_status say_why(aoticache_cache *cache, const struct search *search, aoticache_error *ret_error)
{
    struct names names = {.count = 0};
    struct foreign foreign = {.wanted = search->wanted, .by_key = search->by_key};
    if (search->other[0] != '\0')
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "model %.200s is stored, but %s", search->wanted,
                                   search->other);
    aoticache_status status = aoticache_cache_list(cache, AOTICACHE_MODEL_OP, NULL, find_foreign, &foreign, ret_error);
    if (status == AOTICACHE_OK && !foreign.found && search->by_key)
        status = aoticache_cache_list(cache, AOTICACHE_PROGRAM_OP, NULL, find_foreign, &foreign, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (foreign.found) {
        char lacking[256];
        aoticache_cpu_features features =
            aoticache_cpu_features_lacking(aoticache_cpu_features_get(), &foreign.requirements);
        aoticache_cpu_features_format(&features, lacking, sizeof lacking);
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "model %.200s needs CPU features that this CPU lacks: %s", search->wanted, lacking);
    }
    aoticache_cache_list_stored(cache, AOTICACHE_MODEL_OP, 0, add_name, &names, NULL);
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "no model named %.200s in %.200s%s%s", search->wanted,
                               aoticache_cache_directory(cache),
                               names.count > 0 ? "; there are " : ", which has no models", names.text);
}

static bool is_key(const char *text)
{
    const size_t length = strlen(text);
    return length >= MIN_KEY_DIGITS && length < AOTICACHE_DIGEST_HEX_BYTES &&
           strspn(text, "0123456789abcdefABCDEF") == length;
}

aoticache_status aoticache_model_find(aoticache_cache *cache, const char *name_or_key,
                                      const aoticache_model_options *options, aoticache_model_found *ret_found,
                                      aoticache_error *ret_error)
{
    struct search search = {.wanted = name_or_key, .framework = options->framework, .device_type = -1};
    aoticache_device device;
    if (options->device != NULL && aoticache_device_parse(options->device, &device) == AOTICACHE_OK)
        search.device_type = device.type;
    aoticache_status status =
        aoticache_cache_list_stored_with(cache, AOTICACHE_MODEL_OP, name_or_key, consider, &search, ret_error);
    if (status == AOTICACHE_OK && search.best.entry_id == 0 && is_key(name_or_key)) {
        search.by_key = true;
        status = aoticache_cache_list_stored(cache, AOTICACHE_MODEL_OP, 0, consider, &search, ret_error);
        search.is_program = true;
        if (status == AOTICACHE_OK)
            status = aoticache_cache_list_stored(cache, AOTICACHE_PROGRAM_OP, 0, consider, &search, ret_error);
    }
    if (status != AOTICACHE_OK)
        return status;
    if (search.best.entry_id == 0)
        return say_why(cache, &search, ret_error);
    if (search.by_key && search.keys > 1)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s is the beginning of the keys of %zu models: use more digits", name_or_key,
                                   search.keys);
    *ret_found = search.best;
    return AOTICACHE_OK;
}
