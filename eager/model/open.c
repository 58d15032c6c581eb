/*
 * eager/model/open: creates a runner with its weights from a stored model.
 */
#include <stdio.h>
#include <string.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/options.h"
#include "cache/entries.h"
#include "eager/load_artifact.h"
#include "eager/model/model_internal.h"
#include "eager/model/package/model_face.h"
#include "eager/model/tensors.h"

static aoticache_status read_options(const aoticache_model_options *options, aoticache_model_options *ret_options,
                                     aoticache_error *ret_error)
{
    return AOTICACHE_OPTIONS_READ(aoticache_model_options, AOTICACHE_MODEL_OPTIONS_INIT, options, ret_options,
                                  ret_error);
}

/* Creates a runner. It owns the weights in any case. */
static aoticache_status make_runner(aoticache_artifact *artifact, const char *name, const char *device,
                                    const aoticache_model_options *options, aoticache_model_weights *weights,
                                    aoticache_runner **ret_runner, aoticache_model_report *report,
                                    aoticache_error *ret_error)
{
    aoticache_package_options package = AOTICACHE_PACKAGE_OPTIONS_INIT;
    aoticache_runner *runner = NULL;
    uint64_t begun = aoticache_monotonic_ns();
    package.device = options->device;
    package.num_models = options->num_models;
    package.proxy_executor = options->proxy_executor;
    aoticache_status status = aoticache_package_make_runner(artifact, name, device, &package, weights,
                                                            aoticache_model_weights_free, &runner, ret_error);
    report->load_ns = aoticache_monotonic_ns() - begun;
    begun = aoticache_monotonic_ns();
    if (status == AOTICACHE_OK)
        status = aoticache_model_weights_expect(weights, runner, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_model_weights_give(weights, runner, ret_error);
    report->weights_ns += aoticache_monotonic_ns() - begun;
    if (status != AOTICACHE_OK) {
        aoticache_runner_unref(runner);
        return status;
    }
    *ret_runner = runner;
    return AOTICACHE_OK;
}

static aoticache_status open_artifact(aoticache_artifact *artifact, const char *name, const char *device,
                                      const aoticache_model_options *options, aoticache_runner **ret_runner,
                                      aoticache_model_report *report, aoticache_error *ret_error)
{
    aoticache_model_weights *weights = NULL;
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_status status = aoticache_model_weights_create(aoticache_artifact_get_info(artifact)->directory, name,
                                                             options, &weights, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    report->weights_ns = aoticache_monotonic_ns() - begun;
    aoticache_model_weights_report(weights, report);
    snprintf(report->device, sizeof report->device, "%s", options->device != NULL ? options->device : device);
    return make_runner(artifact, name, device, options, weights, ret_runner, report, ret_error);
}

aoticache_status aoticache_model_open_artifact(aoticache_cache *cache, aoticache_artifact *artifact, const char *name,
                                               const aoticache_model_options *options, aoticache_runner **ret_runner,
                                               aoticache_model_report *report, aoticache_error *ret_error)
{
    aoticache_model_options known;
    aoticache_model_report own = {.tensors = 0};
    aoticache_status status = read_options(options, &known, ret_error);
    if (status == AOTICACHE_OK && (cache == NULL || artifact == NULL || name == NULL || ret_runner == NULL))
        status = AOTICACHE_REFUSE_NULL(ret_error, cache, artifact, name, ret_runner);
    if (status != AOTICACHE_OK)
        return status;
    if (report == NULL)
        report = &own;
    char device[sizeof report->device];
    snprintf(device, sizeof device, "%s", report->device[0] != '\0' ? report->device : "cpu");
    return open_artifact(artifact, name, device, &known, ret_runner, report, ret_error);
}

/* Opens and verifies an entry. A damaged entry is removed. */
static aoticache_status open_entry(aoticache_cache *cache, const char *name_or_key, const aoticache_model_found *found,
                                   aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    aoticache_artifact_choose_copies(cache, false);
    aoticache_status status =
        aoticache_cache_open_stored(cache, found->entry_id, &found->artifact, ret_artifact, ret_error);
    return status != AOTICACHE_NOT_FOUND
               ? status
               : aoticache_error_set(ret_error, status,
                                     "model %.200s is stored, but its files are damaged or missing: compile it again",
                                     name_or_key);
}

aoticache_status aoticache_model_lookup(aoticache_cache *cache, const char *name_or_key,
                                        const aoticache_model_options *options, aoticache_artifact **ret_artifact,
                                        aoticache_model_report *ret_report, aoticache_error *ret_error)
{
    aoticache_model_options known;
    aoticache_model_found found = {.entry_id = 0};
    aoticache_model_report report = {.tensors = 0};
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_status status = read_options(options, &known, ret_error);
    if (status == AOTICACHE_OK && (cache == NULL || name_or_key == NULL || ret_artifact == NULL))
        status = AOTICACHE_REFUSE_NULL(ret_error, cache, name_or_key, ret_artifact);
    if (status == AOTICACHE_OK)
        status = aoticache_model_find(cache, name_or_key, &known, &found, ret_error);
    if (status == AOTICACHE_OK)
        status = open_entry(cache, name_or_key, &found, ret_artifact, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    report.lookup_ns = aoticache_monotonic_ns() - begun;
    report.key = found.key;
    memcpy(report.name, found.name, sizeof report.name);
    memcpy(report.framework, found.framework, sizeof report.framework);
    aoticache_device_format((aoticache_device){found.device.type, -1}, report.device);
    if (ret_report != NULL)
        *ret_report = report;
    return AOTICACHE_OK;
}

aoticache_status aoticache_model_open(aoticache_cache *cache, const char *name_or_key,
                                      const aoticache_model_options *options, aoticache_runner **ret_runner,
                                      aoticache_model_report *ret_report, aoticache_error *ret_error)
{
    aoticache_model_report report;
    aoticache_artifact *artifact = NULL;
    if (ret_runner == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_runner);
    aoticache_status status = aoticache_model_lookup(cache, name_or_key, options, &artifact, &report, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_model_open_artifact(cache, artifact, name_or_key, options, ret_runner, &report, ret_error);
    aoticache_artifact_unref(artifact);
    if (status == AOTICACHE_OK && ret_report != NULL)
        *ret_report = report;
    return status;
}

aoticache_status aoticache_model_list_tensors(aoticache_cache *cache, const char *name_or_key,
                                              aoticache_model_tensor_fn callback, void *user,
                                              aoticache_error *ret_error)
{
    const aoticache_model_options options = AOTICACHE_MODEL_OPTIONS_INIT;
    aoticache_model_found found = {.entry_id = 0};
    aoticache_model_tensors tensors = {.tree = NULL};
    aoticache_artifact *artifact = NULL;
    aoticache_status status = AOTICACHE_OK;
    if (cache == NULL || name_or_key == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, name_or_key, callback);
    status = aoticache_model_find(cache, name_or_key, &options, &found, ret_error);
    if (status == AOTICACHE_OK)
        status = open_entry(cache, name_or_key, &found, &artifact, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_model_tensors_read(aoticache_artifact_get_info(artifact)->directory, &tensors, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < tensors.count && callback(user, &tensors.places[i].tensor); i++)
        ;
    aoticache_model_tensors_free(&tensors);
    aoticache_artifact_unref(artifact);
    return status;
}
