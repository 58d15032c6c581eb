/*
 * cache/get_or_compile: get or compile: one compile per key across threads, processes and machines, remembered failures, and
 * continuing if nothing can be stored.
 *
 * The order of a miss: the entry is looked up, then a remembered failure, then the remotes. with_lease() waits until this
 * process may compile the key, look_again() finds entries that others have compiled meanwhile, with_remote_lease() waits for
 * other machines. run_hook() compiles, and deliver() stores the product.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/cache_internal.h"
#include "cache/remote/remote_internal.h"
#include "cache/request/request_internal.h"
#include "cache/request/text.h"
#include "cache/store/lock.h"

/* One call of get_or_compile. */
struct job {
    aoticache_cache *cache;
    const aoticache_request *request;
    aoticache_lookup_target target;
    aoticache_compile_fn compile;
    void *user;
    aoticache_scratch scratch;
    uint64_t begun_ns;           /* of the hook */
    aoticache_index_group group; /* counts that are not added to a group yet */
    unsigned deliveries;
    bool is_fallback;           /* the product says why the producer's own container was used */
    aoticache_status delivered; /* the result of the first delivery */
    aoticache_artifact *artifact;
    aoticache_error error; /* of the delivery */
};

/* Adds the counts to the groups of the resulting entry, or if there is none, to those of the request. */
static void attribute_counts(struct job *job, const aoticache_artifact *artifact)
{
    const aoticache_index_group *group = &job->group;
    if (group->misses == 0)
        return;
    if (artifact != NULL && artifact->entry_id != 0)
        aoticache_cache_note_tally(job->cache, (aoticache_index_tally){.entry_id = artifact->entry_id,
                                                                       .misses = (uint64_t)group->misses,
                                                                       .compiles = (uint64_t)group->compiles,
                                                                       .compile_ns = (uint64_t)group->compile_ns});
    else
        aoticache_cache_note_group(job->cache, job->request, group);
    job->group = (aoticache_index_group){.misses = 0};
}

/* ---- the delivery: the product is stored, or kept as it is ---- */

/* Returns whether the caller still gets its kernel if it could not be stored: always, except for a bad product. */
static bool is_survivable(aoticache_status status)
{
    return status == AOTICACHE_IO || status == AOTICACHE_DENIED || status == AOTICACHE_LOCKED ||
           status == AOTICACHE_CORRUPT || status == AOTICACHE_UNSUPPORTED;
}

static void report_not_stored(aoticache_cache *cache, const aoticache_error *reason)
{
    const char *path = cache->directory->path;
    aoticache_cache_count(cache, AOTICACHE_COUNTER_not_stored, 1);
    /* With these statuses, neither space nor permissions are missing. */
    const bool has_room = reason->status == AOTICACHE_LOCKED || reason->status == AOTICACHE_UNSUPPORTED;
    /* A read-only cache has logged that when it was opened. Each failure is then logged only for debugging. */
    bool is_news = !cache->directory->read_only && !atomic_exchange(&cache->has_warned_not_stored, true);
    aoticache_log(
        &cache->directory->logger, is_news ? AOTICACHE_LOG_WARNING : AOTICACHE_LOG_DEBUG,
        "a compiled library is not stored: %s; it runs from the compiler's files and is compiled again next time%s%s%s",
        reason->message, has_room ? "" : "; free some space, or make ", has_room ? "" : path,
        has_room ? "" : " writable");
}

static aoticache_status store_or_keep(struct job *job, const aoticache_product *product)
{
    aoticache_status status = aoticache_cache_put(job->cache, job->request, product, &job->artifact, &job->error);
    if (status == AOTICACHE_OK || !is_survivable(status))
        return status;
    aoticache_error reason = job->error;
    status = aoticache_artifact_create_unstored(product, &job->scratch, &job->artifact, &job->error);
    if (status == AOTICACHE_OK)
        status = aoticache_artifact_set_guard(job->artifact, product->guard, &job->error);
    if (status == AOTICACHE_OK)
        report_not_stored(job->cache, &reason);
    return status;
}

static aoticache_status deliver(void *user, const aoticache_product *product)
{
    struct job *job = user;
    if (job->deliveries++ > 0)
        return AOTICACHE_INVALID;
    aoticache_product timed;
    job->delivered = aoticache_product_read(product, &timed, &job->error);
    if (job->delivered != AOTICACHE_OK)
        return job->delivered;
    job->is_fallback = timed.fallback != NULL;
    if (timed.compile_ns == 0)
        timed.compile_ns = aoticache_monotonic_ns() - job->begun_ns;
    job->delivered = store_or_keep(job, &timed);
    return job->delivered;
}

/* ---- the compile ---- */

/*
 * Makes the directory for the hook inside the cache, where a collection removes what a killed process leaves. It is made
 * outside the cache if the cache cannot be written or its disk is nearly full: the caller gets its kernel even if it cannot
 * be stored.
 */
static aoticache_status make_scratch(struct job *job, aoticache_error *ret_error)
{
    if (!job->cache->directory->read_only && aoticache_scratch_has_space(job->cache->directory) &&
        aoticache_scratch_create(job->cache->directory, &job->scratch, NULL) == AOTICACHE_OK)
        return AOTICACHE_OK;
    return aoticache_scratch_create_outside(&job->scratch, ret_error);
}

static void remember_failure(struct job *job, const char *message)
{
    aoticache_index *index = aoticache_cache_index(job->cache);
    char description[1024];
    if (index == NULL || job->cache->directory->read_only || job->cache->failure_ttl_seconds == 0)
        return;
    aoticache_request_format(job->request, description, sizeof description);
    int64_t now = aoticache_wall_ns();
    aoticache_index_failure failure = {.key = job->target.key,
                                       .op = aoticache_request_op(job->request),
                                       .description = description,
                                       .message = message,
                                       .failed_ns = now,
                                       .delay_ns = (int64_t)job->cache->failure_ttl_seconds * 1000000000,
                                       .max_delay_ns = (int64_t)job->cache->failure_max_ttl_seconds * 1000000000};
    aoticache_error detail = {.message = ""};
    if (aoticache_index_put_failure(index, &failure, &detail) != AOTICACHE_OK)
        aoticache_log(&job->cache->directory->logger, AOTICACHE_LOG_WARNING,
                      "cannot remember the failed compile of %s: %s", failure.op, detail.message);
}

/* Deletes the remembered failure, for an artifact that is not stored. Storing an artifact does this automatically. */
static void forget_failure(struct job *job)
{
    aoticache_index *index = aoticache_cache_index(job->cache);
    if (!job->artifact->info.is_stored && index != NULL && !job->cache->directory->read_only)
        aoticache_index_forget_failures(index, &job->target.key, INT64_MAX, NULL);
}

/* Determines the result of a compile from the hook's return value and its delivery. */
static aoticache_status judge_result(struct job *job, aoticache_status returned, aoticache_error *detail)
{
    const char *op = aoticache_request_op(job->request);
    if (job->deliveries > 1)
        return aoticache_error_set(detail, AOTICACHE_INVALID,
                                   "the compile hook of %s delivered %u times instead of once", op, job->deliveries);
    if (job->deliveries == 1 && job->delivered != AOTICACHE_OK)
        return aoticache_error_set(detail, job->delivered, "%s", job->error.message);
    if (returned == AOTICACHE_OK && job->deliveries == 0)
        return aoticache_error_set(detail, AOTICACHE_COMPILE_FAILED,
                                   "the compile hook of %s returned success but delivered nothing", op);
    if (returned == AOTICACHE_OK)
        return AOTICACHE_OK;
    if (returned == AOTICACHE_NOT_FOUND) /* a compile must not return this status */
        returned = AOTICACHE_COMPILE_FAILED;
    if (detail->message[0] == '\0')
        aoticache_error_set(detail, returned, "the compile hook of %s failed (%s) without a message", op,
                            aoticache_status_text(returned));
    detail->status = returned;
    return returned;
}

static aoticache_status run_hook(struct job *job, aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    aoticache_error detail = {.message = ""};
    aoticache_status status = make_scratch(job, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    job->begun_ns = aoticache_monotonic_ns();
    status = job->compile(job->user, job->request, job->scratch.path, deliver, job, &detail);
    status = judge_result(job, status, &detail);
    if (status == AOTICACHE_OK) {
        aoticache_cache_count(job->cache, AOTICACHE_COUNTER_compiles, 1);
        aoticache_cache_count(job->cache, AOTICACHE_COUNTER_compiles_fallback, job->is_fallback);
        aoticache_cache_count(job->cache, AOTICACHE_COUNTER_compile_ns, job->artifact->info.compile_ns);
        aoticache_cache_note_latency(job->cache, AOTICACHE_LATENCY_compile, job->artifact->info.compile_ns);
        job->group.compiles = 1;
        job->group.compile_ns = (int64_t)job->artifact->info.compile_ns;
        job->artifact->info.source = AOTICACHE_SOURCE_COMPILED;
        forget_failure(job);
        attribute_counts(job, job->artifact);
        *ret_artifact = steal_ptr(&job->artifact);
    } else {
        aoticache_cache_count(job->cache, AOTICACHE_COUNTER_compile_failures, 1);
        job->group.failures = 1;
        attribute_counts(job, NULL);
        aoticache_error_set(ret_error, status, "%s", detail.message);
        if (status == AOTICACHE_COMPILE_FAILED)
            remember_failure(job, detail.message);
    }
    aoticache_artifact_unref(job->artifact);
    aoticache_scratch_remove(&job->scratch);
    aoticache_cache_flush(job->cache, NULL);
    return status;
}

/* ---- before the compile ---- */

static aoticache_status check_remembered_failure(struct job *job, aoticache_error *ret_error)
{
    cleanup_free char *message = NULL;
    aoticache_index *index = aoticache_cache_index(job->cache);
    aoticache_status status = AOTICACHE_NOT_FOUND;
    if (index != NULL)
        status = aoticache_index_lookup_failure(index, &job->target.key, aoticache_wall_ns(), &message, NULL);
    if (status != AOTICACHE_OK)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "%s", message);
}

/* Finds the entry. A lookup that fails is a miss with a warning: the caller still gets its kernel. */
static aoticache_status find_or_miss(struct job *job, aoticache_artifact **ret_artifact,
                                     aoticache_find_report *ret_report, aoticache_error *ret_error)
{
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_cache_find(job->cache, &job->target, ret_artifact, ret_report, &detail);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        return status;
    if (status == AOTICACHE_NO_MEMORY)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    aoticache_log(&job->cache->directory->logger, AOTICACHE_LOG_WARNING, "a lookup failed: %s", detail.message);
    return AOTICACHE_NOT_FOUND;
}

/* ---- with remotes ---- */

/*
 * Fetches on a miss in this directory, with the lease of the key, unless another process has it: then that process fetches
 * or compiles, and the normal path waits for it. NOT_FOUND if no remote has an entry for this machine.
 */
static aoticache_status fetch_from_remotes(struct job *job, aoticache_artifact **ret_artifact,
                                           aoticache_find_report *ret_report, aoticache_error *ret_error)
{
    aoticache_lease lease = AOTICACHE_LEASE_INIT;
    bool contended = false;
    size_t from = 0;
    if (job->cache->remotes == NULL || job->cache->directory->read_only ||
        aoticache_lease_acquire(job->cache->directory, &job->target.key, 1, &lease, &contended, NULL) != AOTICACHE_OK)
        return AOTICACHE_NOT_FOUND;
    aoticache_status status = AOTICACHE_NOT_FOUND;
    if (aoticache_remote_miss_fetch(job->cache, &job->target, &from))
        status = find_or_miss(job, ret_artifact, ret_report, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_remote_miss_spread(job->cache, &job->target.key, &(*ret_artifact)->info.digest, from);
    aoticache_lease_release(&lease);
    return status;
}

static aoticache_status fetch_for_call(struct job *job, aoticache_artifact **ret_artifact)
{
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_find_report report;
    aoticache_status status = fetch_from_remotes(job, ret_artifact, &report, NULL);
    if (status == AOTICACHE_OK) {
        (*ret_artifact)->info.source = AOTICACHE_SOURCE_FETCHED;
        aoticache_cache_count(job->cache, AOTICACHE_COUNTER_hits_remote, 1);
        aoticache_cache_count_hit(job->cache, *ret_artifact, &report, begun);
    }
    return status;
}

aoticache_status aoticache_cache_prefetch(aoticache_cache *cache, const aoticache_request *request, bool *ret_fetched,
                                          aoticache_error *ret_error)
{
    aoticache_find_report report;
    aoticache_artifact *artifact = NULL;
    bool is_fetched = false;
    if (cache == NULL || request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, request);
    aoticache_cache_enter(cache);
    struct job job = {.cache = cache, .request = request};
    aoticache_status status = aoticache_request_key(request, &job.target.key, ret_error);
    if (status == AOTICACHE_OK && aoticache_request_is_dynamic(request))
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                     "%s: the request is dynamic; a request for exact shapes is required",
                                     aoticache_request_op(request));
    if (status == AOTICACHE_OK)
        status = aoticache_cache_check_writable(cache, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_find(cache, &job.target, &artifact, &report, ret_error);
    if (status == AOTICACHE_NOT_FOUND) {
        status = fetch_from_remotes(&job, &artifact, &report, ret_error);
        is_fetched = status == AOTICACHE_OK;
    }
    if (status == AOTICACHE_OK && ret_fetched != NULL)
        *ret_fetched = is_fetched;
    aoticache_artifact_unref(artifact);
    return status;
}

/* Counts a request that missed and was then answered by the compile of another thread, process or machine. */
static void count_answer_of_others(struct job *job, const aoticache_artifact *artifact,
                                   const aoticache_find_report *report)
{
    const uint64_t saved_ns =
        aoticache_cache_spare(job->cache, &aoticache_artifact_get_info(artifact)->digest, report->compile_ns);
    aoticache_cache_count(job->cache, AOTICACHE_COUNTER_waits, 1);
    aoticache_cache_count(job->cache, AOTICACHE_COUNTER_saved_ns, saved_ns);
    aoticache_cache_note_tally(job->cache,
                               (aoticache_index_tally){.entry_id = report->entry_id, .uses = 1, .saved_ns = saved_ns});
}

/* Compiles once for all machines: others wait for this compile, and find its entry on the remote. */
static aoticache_status with_remote_lease(struct job *job, aoticache_artifact **ret_artifact,
                                          aoticache_error *ret_error)
{
    aoticache_remote_lease *lease = NULL;
    aoticache_find_report report;
    aoticache_status status = AOTICACHE_NOT_FOUND;
    if (job->cache->remotes == NULL || job->cache->directory->read_only)
        return run_hook(job, ret_artifact, ret_error);
    if (aoticache_remote_lease_take(job->cache, &job->target, &lease) &&
        (status = find_or_miss(job, ret_artifact, &report, ret_error)) == AOTICACHE_OK) {
        (*ret_artifact)->info.source = AOTICACHE_SOURCE_WAITED;
        count_answer_of_others(job, *ret_artifact, &report);
        return status;
    }
    status = run_hook(job, ret_artifact, ret_error);
    if (status == AOTICACHE_OK && (*ret_artifact)->info.is_stored)
        aoticache_remote_miss_publish(job->cache, &job->target.key, &(*ret_artifact)->info.digest, lease);
    else
        aoticache_remote_lease_release(lease);
    return status;
}

/* Called with the lease: another process may have compiled the key, or failed to, during the wait. */
static aoticache_status look_again(struct job *job, bool has_waited, aoticache_artifact **ret_artifact,
                                   aoticache_error *ret_error)
{
    aoticache_find_report report;
    aoticache_status status = find_or_miss(job, ret_artifact, &report, ret_error);
    if (status == AOTICACHE_OK) {
        (*ret_artifact)->info.source = has_waited ? AOTICACHE_SOURCE_WAITED : AOTICACHE_SOURCE_INDEX;
        count_answer_of_others(job, *ret_artifact, &report); /* no hit: this request has counted as a miss */
        return status;
    }
    if (status == AOTICACHE_NOT_FOUND)
        status = check_remembered_failure(job, ret_error);
    return status == AOTICACHE_OK ? with_remote_lease(job, ret_artifact, ret_error) : status;
}

static void count_wait(aoticache_cache *cache, uint64_t ns)
{
    aoticache_cache_count(cache, AOTICACHE_COUNTER_lease_waits, 1);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_lease_wait_ns, ns);
    aoticache_cache_note_latency(cache, AOTICACHE_LATENCY_lease_wait, ns);
}

/* Takes the lease first, if the directory can have leases. */
static aoticache_status with_lease(struct job *job, aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    aoticache_lease lease = AOTICACHE_LEASE_INIT;
    aoticache_error detail = {.message = ""};
    bool contended = false;
    const uint64_t begun = aoticache_monotonic_ns();
    if (!job->cache->directory->read_only) {
        aoticache_status status = aoticache_lease_acquire(job->cache->directory, &job->target.key,
                                                          job->cache->compile_timeout_ms, &lease, &contended, &detail);
        if (contended || status == AOTICACHE_LOCKED)
            count_wait(job->cache, aoticache_monotonic_ns() - begun);
        if (status == AOTICACHE_LOCKED || status == AOTICACHE_NO_MEMORY)
            return aoticache_error_set(ret_error, status, "%s: %s", aoticache_request_op(job->request), detail.message);
        if (status != AOTICACHE_OK)
            aoticache_log(&job->cache->directory->logger, AOTICACHE_LOG_DEBUG,
                          "compiling without a lease (other processes may compile the same kernel): %s",
                          detail.message);
    }
    aoticache_status status = look_again(job, contended, ret_artifact, ret_error);
    aoticache_lease_release(&lease);
    return status;
}

static aoticache_status find_or_compile(struct job *job, aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_find_report report;
    aoticache_cache_enter(job->cache);
    aoticache_status status = aoticache_request_key(job->request, &job->target.key, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const bool is_dynamic = aoticache_request_is_dynamic(job->request);
    if (is_dynamic != (job->target.filter != NULL))
        return aoticache_error_set(
            ret_error, AOTICACHE_INVALID,
            "%s: aoticache_cache_get_or_compile: the request is %s (environment " AOTICACHE_SHAPES_NAME
            "), so filter must %sbe NULL",
            aoticache_request_op(job->request), is_dynamic ? "dynamic" : "for exact shapes", is_dynamic ? "not " : "");
    status = find_or_miss(job, ret_artifact, &report, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_cache_count_hit(job->cache, *ret_artifact, &report, begun);
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    status = check_remembered_failure(job, ret_error);
    report.has_failed = status != AOTICACHE_OK;
    if (status == AOTICACHE_OK && fetch_for_call(job, ret_artifact) == AOTICACHE_OK)
        return AOTICACHE_OK;
    job->group.misses = 1;
    if (status != AOTICACHE_OK)
        attribute_counts(job, NULL);
    aoticache_cache_count_miss(job->cache, &report);
    if (status != AOTICACHE_OK)
        return status;
    status = with_lease(job, ret_artifact, ret_error);
    attribute_counts(job, status == AOTICACHE_OK ? *ret_artifact : NULL);
    return status;
}

aoticache_status aoticache_cache_get_or_compile(aoticache_cache *cache, const aoticache_request *request,
                                                const aoticache_guard_filter *filter, aoticache_compile_fn compile_hook,
                                                void *user, aoticache_artifact **ret_artifact,
                                                aoticache_error *ret_error)
{
    if (cache == NULL || request == NULL || compile_hook == NULL || ret_artifact == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, request, compile_hook, ret_artifact);
    struct job job = {.cache = cache,
                      .request = request,
                      .target = {.filter = filter},
                      .compile = compile_hook,
                      .user = user,
                      .scratch = AOTICACHE_SCRATCH_INIT,
                      .error = {.message = ""}};
    return find_or_compile(&job, ret_artifact, ret_error);
}

aoticache_status aoticache_cache_forget_failures(aoticache_cache *cache, const aoticache_key *key,
                                                 aoticache_error *ret_error)
{
    if (cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    aoticache_cache_enter(cache);
    aoticache_status status = aoticache_cache_check_writable(cache, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index *index = aoticache_cache_index(cache);
    do
        status = aoticache_index_forget_failures(index, key, INT64_MAX, ret_error);
    while (aoticache_cache_recovered(cache, status, &index));
    return aoticache_cache_index_result(status, ret_error);
}
