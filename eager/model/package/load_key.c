/*
 * eager/model/package/load_key: creates a runner from the key of a stored package's model; the package file is not needed.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/text/json.h"
#include "cache/entries.h"
#include "cache/request/cpu_detect.h"
#include "cache/request/text.h"
#include "eager/model/package/package_internal.h"

struct stored {
    bool found, is_package;
    char op[64];
    aoticache_digest artifact;
    aoticache_cpu_features requirements;
};

static bool choose_entry(void *user, const aoticache_entry *entry)
{
    struct stored *stored = user;
    if (stored->found &&
        aoticache_cpu_features_count(&entry->requirements) < aoticache_cpu_features_count(&stored->requirements))
        return true;
    stored->found = true;
    stored->is_package = strcmp(entry->op, AOTICACHE_PACKAGE_OP) == 0;
    snprintf(stored->op, sizeof stored->op, "%s", entry->op);
    stored->artifact = entry->artifact;
    stored->requirements = entry->requirements;
    return true;
}

static int digit(char hex)
{
    return hex >= '0' && hex <= '9' ? hex - '0' : hex >= 'a' && hex <= 'f' ? hex - 'a' + 10 : -1;
}

static aoticache_status decode_request(const char *hex, aoticache_request **ret_request, aoticache_error *ret_error)
{
    const size_t size = hex != NULL ? strlen(hex) / 2 : 0;
    cleanup_free uint8_t *bytes = malloc(size + 1);
    if (bytes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a manifest");
    for (size_t i = 0; i < size; i++) {
        int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "a manifest's encoding is not hexadecimal");
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return aoticache_request_decode(bytes, size, ret_request, ret_error);
}

/* Reads the stored request from the manifest. */
static aoticache_status read_request(aoticache_cache *cache, const aoticache_digest *artifact,
                                     aoticache_request **ret_request, aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    aoticache_status status = aoticache_cache_read_manifest(cache, artifact, &text, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    json_error_t problem;
    json_t *manifest = aoticache_json_parse(text, strlen(text), 0, &problem);
    if (manifest == NULL && aoticache_json_is_out_of_memory(&problem))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the manifest of a package");
    if (manifest == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "the manifest of a package is not valid JSON");
    status = decode_request(json_string_value(json_object_get(manifest, "encoding")), ret_request, ret_error);
    json_decref(manifest);
    if (status == AOTICACHE_INVALID)
        status = AOTICACHE_CORRUPT;
    return status;
}

static aoticache_status find_request(aoticache_cache *cache, const char *hex, struct stored *ret_stored,
                                     aoticache_request **ret_request, aoticache_error *ret_error)
{
    struct stored stored = {.found = false};
    aoticache_status status = aoticache_cache_list(cache, NULL, hex, choose_entry, &stored, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!stored.found)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "no package with the key %s is stored", hex);
    if (!stored.is_package)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s is the key of %s, not of a package", hex,
                                   stored.op);
    *ret_stored = stored;
    return read_request(cache, &stored.artifact, ret_request, ret_error);
}

static aoticache_status find_by_request(aoticache_cache *cache, const char *hex, const struct stored *stored,
                                        const aoticache_request *request, aoticache_artifact **ret_artifact,
                                        aoticache_package_report *report, aoticache_error *ret_error)
{
    const char *arch = aoticache_request_get_environment(request, "arch");
    if (aoticache_request_get_environment(request, "inputs") == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "package %.12s was stored by an older version, which did not record what its "
                                   "inputs must be; add the package again",
                                   hex);
    if (arch == NULL || strcmp(arch, aoticache_cpu_arch()) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "package %.12s was compiled for %s, but this machine is %s", hex,
                                   arch != NULL ? arch : "nothing", aoticache_cpu_arch());
    aoticache_status status = aoticache_package_look_up(cache, request, ret_artifact, report, ret_error);
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    if (!aoticache_cpu_features_include(aoticache_cpu_features_get(), &stored->requirements))
        return aoticache_package_refuse_cpu("the cache", report->model, &stored->requirements, ret_error);
    return aoticache_error_set(ret_error, status,
                               "package %s is stored, but its files are damaged or missing: add it again", hex);
}

aoticache_status aoticache_package_load_key(aoticache_cache *cache, const aoticache_key *key,
                                            const aoticache_package_options *options, aoticache_runner **ret_runner,
                                            aoticache_package_report *ret_report, aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    struct stored stored;
    aoticache_package_options known;
    aoticache_package_report report = {.added = false};
    aoticache_request *request = NULL;
    aoticache_artifact *artifact = NULL;
    aoticache_runner *runner = NULL;
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_status status = aoticache_package_read_options(options, &known, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (cache == NULL || key == NULL || ret_runner == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, key, ret_runner);
    aoticache_digest_to_hex(key, hex);
    status = find_request(cache, hex, &stored, &request, ret_error);
    if (status == AOTICACHE_OK)
        status = find_by_request(cache, hex, &stored, request, &artifact, &report, ret_error);
    if (status == AOTICACHE_OK && known.model != NULL && strcmp(known.model, report.model) != 0)
        status = aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%.12s is the model %s, not %s", hex, report.model,
                                     known.model);
    if (status == AOTICACHE_OK)
        status = aoticache_package_make_runner(artifact, hex, report.device, &known, NULL, NULL, &runner, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_package_expect_inputs(cache, artifact, runner, ret_error);
    report.load_ns = aoticache_monotonic_ns() - begun;
    if (status == AOTICACHE_OK)
        *ret_runner = runner;
    else
        aoticache_runner_unref(runner);
    if (status == AOTICACHE_OK && ret_report != NULL)
        *ret_report = report;
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    return status;
}
