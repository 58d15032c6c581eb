/*
 * eager/model/package/load: creates a runner from a package: the model, library, container, and the weights that weights.c
 * maps.
 *
 * A package in the cache is found by the digest of its file alone. Its archive is not even opened if the requested model has
 * the name that the caller gives, or "model".
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/options.h"
#include "base/text/json.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/request/cpu_detect.h"
#include "eager/load_artifact.h"
#include "eager/model/package/package_internal.h"
#include "loader/eager_face.h"
#include "loader/runner/create.h"
#include "loader/runner/runner_hot.h"

/* ---- finding the model ---- */

/* Returns the type of a device. Only the runner knows names that a caller registered; the metadata's device is used for them. */
static bool device_type_of(const char *text, int32_t *ret_type)
{
    aoticache_device device;
    if (text == NULL || aoticache_device_parse(text, &device) != AOTICACHE_OK)
        return false;
    *ret_type = device.type;
    return true;
}

aoticache_status aoticache_package_look_up(aoticache_cache *cache, const aoticache_request *request,
                                           aoticache_artifact **ret_artifact, aoticache_package_report *report,
                                           aoticache_error *ret_error)
{
    aoticache_status status = aoticache_package_report_begin(request, report, ret_error);
    aoticache_artifact_choose_copies(cache, false);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_lookup(cache, request, NULL, ret_artifact, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_package_report_artifact(*ret_artifact, report);
    return status;
}

/* Looks for the package without opening the archive: NOT_FOUND is not final. */
static aoticache_status find_known(aoticache_cache *cache, const aoticache_package_source *source,
                                   const aoticache_package_options *options, aoticache_artifact **ret_artifact,
                                   aoticache_package_report *report, aoticache_error *ret_error)
{
    int32_t type = AOTICACHE_DEVICE_TYPE_CPU;
    aoticache_request *request = NULL;
    if (options->device != NULL && !device_type_of(options->device, &type))
        return AOTICACHE_NOT_FOUND;
    aoticache_status status = aoticache_package_request_create(
        source->digest, options->model != NULL ? options->model : "model", type, "", &request, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_package_look_up(cache, request, ret_artifact, report, ret_error);
    aoticache_request_free(request);
    return status;
}

static aoticache_status check_model(const aoticache_package_source *source, const aoticache_package_model *model,
                                    const aoticache_package_options *options, aoticache_error *ret_error)
{
    int32_t asked, compiled;
    if (!aoticache_package_is_for_this_machine(model))
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s: model %s was compiled for %.64s, but this machine is %s", source->path,
                                   model->name, model->machine, aoticache_cpu_arch());
    if (device_type_of(options->device, &asked) && device_type_of(model->device, &compiled) && asked != compiled)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%s: model %s was compiled for %.64s, not for %s",
                                   source->path, model->name, model->device, options->device);
    return AOTICACHE_OK;
}

aoticache_status aoticache_package_refuse_cpu(const char *where, const char *model,
                                              const aoticache_cpu_features *requirements, aoticache_error *ret_error)
{
    char names[256];
    aoticache_cpu_features lacking = aoticache_cpu_features_lacking(aoticache_cpu_features_get(), requirements);
    aoticache_cpu_features_format(&lacking, names, sizeof names);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "%s: model %s needs CPU features that this CPU lacks: %s", where, model, names);
}

static aoticache_status find_or_add(aoticache_cache *cache, aoticache_package_source *source,
                                    const aoticache_package_model *model, aoticache_artifact **ret_artifact,
                                    aoticache_package_report *report, aoticache_error *ret_error)
{
    aoticache_cpu_features requirements;
    aoticache_request *request = NULL;
    aoticache_status status = aoticache_package_request_of(source, model, &request, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_package_report_begin(request, report, ret_error);
    aoticache_error detail = {.message = ""};
    aoticache_status known = aoticache_package_requirements(model, &requirements, &detail);
    if (status == AOTICACHE_OK && known == AOTICACHE_OK &&
        aoticache_cpu_features_include(aoticache_cpu_features_get(), &requirements)) {
        status =
            aoticache_package_obtain(cache, source, model, request, &requirements, ret_artifact, report, ret_error);
    } else if (status == AOTICACHE_OK) {
        /* The package may have been added with explicit requirements. */
        status = aoticache_package_look_up(cache, request, ret_artifact, report, ret_error);
        if (status == AOTICACHE_NOT_FOUND)
            status = known == AOTICACHE_OK
                         ? aoticache_package_refuse_cpu(source->path, model->name, &requirements, ret_error)
                         : aoticache_error_set(ret_error, known, "%s: %s", source->path, detail.message);
    }
    aoticache_request_free(request);
    return status;
}

/* Looks for the package by the contents of the archive. */
static aoticache_status find_in_package(aoticache_cache *cache, aoticache_package_source *source,
                                        const aoticache_package_options *options, aoticache_artifact **ret_artifact,
                                        aoticache_package_report *report, aoticache_error *ret_error)
{
    const uint64_t begun = aoticache_monotonic_ns();
    const aoticache_package_model *model = NULL;
    aoticache_status status = aoticache_package_source_read(source, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_package_find_model(source->package, options->model, &model, ret_error);
    if (status == AOTICACHE_OK)
        status = check_model(source, model, options, ret_error);
    const uint64_t read_ns = aoticache_monotonic_ns() - begun;
    if (status == AOTICACHE_OK)
        status = find_or_add(cache, source, model, ret_artifact, report, ret_error);
    if (status == AOTICACHE_OK && report->added)
        report->add_ns += read_ns;
    return status;
}

/* ---- from an artifact to a runner ---- */

/* Everything that a runner holds: the artifact's files, its mapped weights, and the executor that calls operators for it. */
struct holding {
    aoticache_artifact *artifact;
    aoticache_executor *executor;
    aoticache_package_weights weights;
    aoticache_package_given *given; /* NULL: the package's own weights */
    void *owned;                    /* NULL, or owned by the caller */
    void (*release)(void *owned);
};

static void holding_release(void *owner)
{
    struct holding *holding = owner;
    aoticache_package_weights_unmap(&holding->weights);
    aoticache_package_given_close(holding->given);
    aoticache_executor_free(holding->executor);
    aoticache_artifact_unref(holding->artifact);
    if (holding->owned != NULL)
        holding->release(holding->owned);
    free(holding);
}

static aoticache_status create_runner(aoticache_artifact *artifact, const char *name, const char *device,
                                      const aoticache_package_options *options, aoticache_runner **ret_runner,
                                      aoticache_error *ret_error)
{
    aoticache_library *library;
    aoticache_runner_options runner_options = AOTICACHE_RUNNER_OPTIONS_INIT;
    aoticache_status status =
        aoticache_artifact_load_library(artifact, name, false, options->proxy_executor, &library, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    runner_options.device = options->device != NULL ? options->device : device;
    runner_options.num_models = options->num_models;
    runner_options.directory = aoticache_artifact_get_info(artifact)->directory;
    runner_options.proxy_executor = options->proxy_executor;
    status = aoticache_runner_create(library, &runner_options, ret_runner, ret_error);
    aoticache_library_unref(library);
    return status;
}

/*
 * Attaches the artifact and `holding` to the runner, which owns `holding` in any case. The runner takes its own reference to
 * the artifact; the caller keeps its reference.
 */
static aoticache_status attach_holding(aoticache_runner *runner, aoticache_artifact *artifact,
                                       const aoticache_package_options *options, struct holding *holding,
                                       aoticache_error *ret_error)
{
    holding->artifact = aoticache_artifact_ref(artifact);
    aoticache_status status = aoticache_package_weights_map(holding->artifact, &holding->weights, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_attach(runner, holding, holding_release, ret_error);
    if (status != AOTICACHE_OK) {
        holding_release(holding);
        return status;
    }
    if (holding->weights.bytes != NULL)
        status = aoticache_package_weights_give(&holding->weights, runner, ret_error);
    if (status == AOTICACHE_OK && options->weights != NULL)
        status = aoticache_package_given_open(options, runner, &holding->given, ret_error);
    return status;
}

aoticache_status aoticache_package_make_runner(aoticache_artifact *artifact, const char *name, const char *device,
                                               const aoticache_package_options *options, void *owned,
                                               void (*release)(void *owned), aoticache_runner **ret_runner,
                                               aoticache_error *ret_error)
{
    aoticache_runner *runner = NULL;
    aoticache_package_options chosen = *options;
    aoticache_status status = AOTICACHE_OK;
    struct holding *holding = calloc(1, sizeof *holding);
    if (holding == NULL) {
        if (owned != NULL)
            release(owned);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a package's runner");
    }
    holding->owned = owned;
    holding->release = release;
    if (options->proxy_executor == NULL)
        status = aoticache_package_executor_open(artifact, name, &holding->executor, ret_error);
    if (holding->executor != NULL)
        chosen.proxy_executor = &holding->executor->handle;
    if (status == AOTICACHE_OK)
        status = create_runner(artifact, name, device, &chosen, &runner, ret_error);
    if (status != AOTICACHE_OK) {
        holding_release(holding);
        return status;
    }
    status = attach_holding(runner, artifact, options, holding, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_runner_unref(runner);
        return status;
    }
    aoticache_artifact_close_files(artifact);
    *ret_runner = runner;
    return AOTICACHE_OK;
}

/* ---- requirements of inputs ---- */

/* Returns the check as text, which the caller frees with free(); NULL: there is none. */
static char *read_inputs(aoticache_cache *cache, const aoticache_artifact *artifact)
{
    cleanup_free char *text = NULL;
    if (!aoticache_artifact_get_info(artifact)->is_stored ||
        aoticache_cache_read_metadata(cache, &aoticache_artifact_get_info(artifact)->digest, &text, NULL) !=
            AOTICACHE_OK)
        return NULL;
    json_error_t problem;
    json_t *object = aoticache_json_parse(text, strlen(text), 0, &problem);
    const char *check = json_string_value(json_object_get(object, AOTICACHE_PACKAGE_INPUTS));
    char *copy = check != NULL ? strdup(check) : NULL;
    json_decref(object);
    return copy;
}

aoticache_status aoticache_package_expect_inputs(aoticache_cache *cache, const aoticache_artifact *artifact,
                                                 aoticache_runner *runner, aoticache_error *ret_error)
{
    aoticache_check *check = NULL;
    cleanup_free char *text = read_inputs(cache, artifact);
    if (text == NULL)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_check_parse(text, &check, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (aoticache_check_num_tensors(check) == aoticache_runner_num_inputs(runner))
        aoticache_runner_expect(runner, check, NULL);
    else
        aoticache_check_free(check);
    return AOTICACHE_OK;
}

/* ---- options ---- */

aoticache_status aoticache_package_read_options(const aoticache_package_options *options,
                                                aoticache_package_options *ret_options, aoticache_error *ret_error)
{
    return AOTICACHE_OPTIONS_READ(aoticache_package_options, AOTICACHE_PACKAGE_OPTIONS_INIT, options, ret_options,
                                  ret_error);
}

/* ---- loading ---- */

static aoticache_status load_model(aoticache_cache *cache, aoticache_package_source *source,
                                   const aoticache_package_options *options, aoticache_runner **ret_runner,
                                   aoticache_package_report *report, aoticache_error *ret_error)
{
    aoticache_artifact *artifact = NULL;
    aoticache_runner *runner = NULL;
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_status status = find_known(cache, source, options, &artifact, report, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        status = find_in_package(cache, source, options, &artifact, report, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_package_make_runner(artifact, source->path, report->device, options, NULL, NULL, &runner,
                                               ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_package_expect_inputs(cache, artifact, runner, ret_error);
    if (status == AOTICACHE_OK)
        *ret_runner = runner;
    else
        aoticache_runner_unref(runner);
    aoticache_artifact_unref(artifact);
    report->load_ns = aoticache_monotonic_ns() - begun - report->add_ns;
    return status;
}

aoticache_status aoticache_package_load(aoticache_cache *cache, const char *path,
                                        const aoticache_package_options *options, aoticache_runner **ret_runner,
                                        aoticache_package_report *ret_report, aoticache_error *ret_error)
{
    aoticache_package_options known;
    aoticache_package_source source;
    aoticache_status status = aoticache_package_read_options(options, &known, ret_error);
    if (status == AOTICACHE_OK && (cache == NULL || path == NULL || ret_runner == NULL))
        status = AOTICACHE_REFUSE_NULL(ret_error, cache, path, ret_runner);
    if (status == AOTICACHE_OK)
        status = aoticache_package_source_open(cache, path, &source, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_package_report report = {.digest_ns = source.digest_ns};
    status = load_model(cache, &source, &known, ret_runner, &report, ret_error);
    if (status == AOTICACHE_OK && ret_report != NULL)
        *ret_report = report;
    aoticache_package_source_close(&source);
    return status;
}
