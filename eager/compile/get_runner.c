/*
 * eager/compile/get_runner: from a request to a runner that is ready: looks the library up or compiles it, and loads it.
 */
#include "base/arguments.h"
#include "base/clock.h"
#include "cache/entries.h"
#include "eager/compile/compile.h"
#include "eager/load_artifact.h"

static void cleanup_artifact_release(aoticache_artifact **artifact)
{
    aoticache_artifact_unref(*artifact);
}
#define cleanup_artifact __attribute__((cleanup(cleanup_artifact_release)))

static aoticache_status get_artifact(aoticache_cache *cache, aoticache_hook *hook, aoticache_request *request,
                                     aoticache_artifact **ret_artifact, aoticache_get_runner_report *report,
                                     aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (hook != NULL)
        status = aoticache_hook_set_environment(hook, request, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_key(request, &report->key, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    uint64_t start_ns = aoticache_monotonic_ns();
    aoticache_artifact_choose_copies(cache, false);
    if (hook != NULL)
        status =
            aoticache_cache_get_or_compile(cache, request, NULL, aoticache_hook_compile, hook, ret_artifact, ret_error);
    else
        status = aoticache_cache_lookup(cache, request, NULL, ret_artifact, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    report->lookup_ns = aoticache_monotonic_ns() - start_ns;
    report->source = aoticache_artifact_get_info(*ret_artifact)->source;
    report->stored = aoticache_artifact_get_info(*ret_artifact)->is_stored;
    report->compile_ns = aoticache_artifact_get_info(*ret_artifact)->compile_ns;
    return AOTICACHE_OK;
}

aoticache_status aoticache_get_runner(aoticache_cache *cache, aoticache_hook *hook, aoticache_request *request,
                                      aoticache_runner **ret_runner, aoticache_get_runner_report *ret_report,
                                      aoticache_error *ret_error)
{
    if (cache == NULL || request == NULL || ret_runner == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, request, ret_runner);
    cleanup_artifact aoticache_artifact *artifact = NULL;
    aoticache_get_runner_report report = {0};
    aoticache_status status = get_artifact(cache, hook, request, &artifact, &report, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_artifact_load_runner(cache, artifact, aoticache_request_device(request), false, ret_runner,
                                            &report.load_ns, ret_error);
    if (status == AOTICACHE_OK && ret_report != NULL)
        *ret_report = report;
    return status;
}
