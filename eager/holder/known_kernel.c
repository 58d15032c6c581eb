/*
 * eager/holder/known_kernel: the kernels that a holder knows. They become known by their metadata (exact) or by their dynamic
 * request, are loaded and published on their first hit, and are unloaded least recently used first if there is a limit. Calls
 * find them without a lock.
 */
#include "base/cleanup.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "eager/holder/holder_internal.h"
#include "eager/load_artifact.h"
#include "loader/eager_face.h"
#include "loader/loader.h"
#include "loader/runner/constants.h"

#include <stdlib.h>
#include <string.h>

/* ---- adding exact libraries, under holder->lock ---- */

static void free_unknown(aoticache_known_kernel *known)
{
    if (known != NULL)
        aoticache_call_counts_close(known->number);
    free(known);
}

/* Creates a known kernel that is not in the holder's list yet. A dynamic one has a verdict for each size class. */
static aoticache_known_kernel *create_known(aoticache_holder *holder, const aoticache_key *key,
                                            const aoticache_digest *artifact, int64_t entry_id, bool is_dynamic)
{
    uint32_t count = is_dynamic ? AOTICACHE_SIZE_CLASSES : 1;
    aoticache_known_kernel *known = calloc(1, sizeof *known + count * sizeof known->verdicts[0]);
    if (known == NULL)
        return NULL;
    known->holder = holder;
    known->key = *key;
    known->artifact = *artifact;
    known->entry_id = entry_id;
    known->verdict_count = count;
    known->number = aoticache_call_counts_open();
    for (uint32_t i = 0; i < count; i++) {
        aoticache_verdict *verdict = &known->verdicts[i];
        verdict->known = known;
        verdict->size_class = i;
        verdict->hot = &verdict->own;
        verdict->own.detail = verdict;
        verdict->own.number = known->number;
    }
    if (known->number == 0) {
        free(known);
        return NULL;
    }
    return known;
}

static void add_known(aoticache_holder *holder, aoticache_known_kernel *known)
{
    known->next = holder->known_kernels;
    holder->known_kernels = known;
    holder->known_count++;
}

/* Sets the artifact of a library that was rebuilt or replaced. */
static void set_artifact(aoticache_known_kernel *known, const aoticache_digest *artifact, int64_t entry_id)
{
    known->artifact = *artifact;
    known->entry_id = entry_id;
    atomic_store(&known->gone, false);
}

/* Adds a library for unknown metadata, or for metadata that a dynamic library has served (`entry`). */
static aoticache_known_kernel *add_exact(aoticache_holder *holder, const aoticache_packed *packed,
                                         aoticache_table_entry *entry, const aoticache_key *key,
                                         const aoticache_digest *artifact, int64_t entry_id)
{
    aoticache_known_kernel *known = create_known(holder, key, artifact, entry_id, false);
    bool is_new = entry == NULL;
    if (known != NULL && is_new)
        entry = aoticache_table_prepare(&holder->table, packed, NULL, &known->verdicts[0]);
    if (known == NULL || entry == NULL) {
        free_unknown(known);
        return NULL;
    }
    known->verdicts[0].hot = &entry->own;
    entry->own.detail = &known->verdicts[0];
    entry->own.number = known->number;
    add_known(holder, known);
    if (is_new)
        aoticache_table_publish(&holder->table, packed, entry);
    return known;
}

aoticache_known_kernel *aoticache_holder_know_exact(aoticache_holder *holder, const aoticache_packed *packed,
                                                    const aoticache_key *key, const aoticache_digest *artifact,
                                                    int64_t entry_id)
{
    aoticache_table_entry *entry = aoticache_table_find(&holder->table, packed);
    const aoticache_verdict *verdict = entry != NULL ? entry->own.detail : NULL;
    aoticache_known_kernel *known = verdict != NULL ? verdict->known : NULL;
    if (known != NULL && verdict->hot == &entry->own)
        set_artifact(known, artifact, entry_id);
    else if ((known = add_exact(holder, packed, entry, key, artifact, entry_id)) == NULL)
        return NULL;
    /* An exact library takes precedence over a dynamic one. */
    if (entry != NULL)
        atomic_store(&entry->known, &entry->own);
    return known;
}

/* ---- adding dynamic libraries, under holder->lock ---- */

static void release_dynamic_list(aoticache_retired *retired)
{
    free((char *)retired - offsetof(aoticache_dynamic_list, retired));
}

static bool add_to_dynamic_list(aoticache_dynamic_state *state, aoticache_known_kernel *known)
{
    aoticache_dynamic_list *old = atomic_load(&state->list);
    size_t count = old != NULL ? old->count : 0, at = 0;
    aoticache_dynamic_list *list = calloc(1, sizeof *list + (count + 1) * sizeof list->known_kernels[0]);
    if (list == NULL)
        return false;
    while (at < count && aoticache_check_compare(old->known_kernels[at]->check, known->check) <= 0)
        at++;
    list->count = count + 1;
    for (size_t i = 0; i < count; i++)
        list->known_kernels[i < at ? i : i + 1] = old->known_kernels[i];
    list->known_kernels[at] = known;
    atomic_store(&state->list, list);
    if (old != NULL)
        aoticache_epoch_retire(&old->retired, release_dynamic_list);
    return true;
}

static aoticache_known_kernel *find_in_dynamic_list(const aoticache_dynamic_state *state,
                                                    const aoticache_digest *artifact)
{
    const aoticache_dynamic_list *list = atomic_load(&state->list);
    for (size_t i = 0; list != NULL && i < list->count; i++)
        if (aoticache_digest_equal(&list->known_kernels[i]->artifact, artifact))
            return list->known_kernels[i];
    return NULL;
}

aoticache_known_kernel *aoticache_holder_know_dynamic(aoticache_holder *holder, aoticache_dynamic_state *state,
                                                      const aoticache_key *key, const aoticache_digest *artifact,
                                                      int64_t entry_id, aoticache_check *check)
{
    aoticache_known_kernel *known = find_in_dynamic_list(state, artifact);
    if (known != NULL) {
        set_artifact(known, artifact, entry_id);
        aoticache_check_free(check);
        return known;
    }
    known = create_known(holder, key, artifact, entry_id, true);
    if (known != NULL)
        known->check = check;
    if (known == NULL || !add_to_dynamic_list(state, known)) {
        aoticache_check_free(check);
        free_unknown(known);
        return NULL;
    }
    add_known(holder, known);
    return known;
}

aoticache_dynamic_state *aoticache_holder_dynamic_state(aoticache_holder *holder, const aoticache_request *request)
{
    aoticache_packed packed;
    if (!aoticache_holder_pack_request(holder, request, &packed))
        return NULL;
    aoticache_table_entry *entry = aoticache_table_find(&holder->dynamic_requests, &packed);
    if (entry != NULL)
        return entry->own.detail;
    aoticache_dynamic_state *state = calloc(1, sizeof *state);
    if (state == NULL || aoticache_table_insert(&holder->dynamic_requests, &packed, NULL, state) == NULL) {
        free(state);
        return NULL;
    }
    state->next = holder->dynamic_states;
    holder->dynamic_states = state;
    return state;
}

void aoticache_holder_add_alias(aoticache_holder *holder, const aoticache_packed *packed, aoticache_verdict *verdict)
{
    pthread_mutex_lock(&holder->lock);
    aoticache_table_entry *entry = aoticache_table_find(&holder->table, packed);
    const aoticache_known_kernel *now = entry != NULL ? aoticache_known_kernel_of(atomic_load(&entry->known)) : NULL;
    if (now != NULL && atomic_load(&now->gone))
        atomic_store(&entry->known, verdict->hot);
    else if (entry == NULL && holder->aliases < AOTICACHE_HOLDER_MAX_ALIASES &&
             aoticache_table_insert(&holder->table, packed, verdict->hot, verdict) != NULL)
        holder->aliases++;
    pthread_mutex_unlock(&holder->lock);
}

/* ---- the limit of loaded libraries ---- */

/* A runner to be unloaded when no thread can be running it any more. */
typedef struct leaving_runner {
    aoticache_retired retired;
    aoticache_runner *runner;
} leaving_runner;

static void release_runner(aoticache_retired *retired)
{
    leaving_runner *leaving = (leaving_runner *)(void *)((char *)retired - offsetof(leaving_runner, retired));
    aoticache_runner_unref(leaving->runner);
    free(leaving);
}

/* Removes it from the list of loaded ones. The caller holds context->lock. */
static void unlink_loaded(aoticache_context *context, aoticache_known_kernel *known)
{
    *known->loaded_link = known->loaded_next;
    if (known->loaded_next != NULL)
        known->loaded_next->loaded_link = known->loaded_link;
    known->loaded_link = NULL;
    context->loaded_count--;
    context->loaded_bytes -= known->loaded_bytes;
}

static uint64_t last_tick(const aoticache_known_kernel *known)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < known->verdict_count; i++) {
        uint64_t tick = atomic_load_explicit(&known->verdicts[i].hot->last_tick, memory_order_relaxed);
        last = tick > last ? tick : last;
    }
    return last;
}

/* Removes the runner, so that new calls do not find it. The caller holds context->lock. */
static aoticache_runner *hide_runner(aoticache_known_kernel *known)
{
    aoticache_runner *runner = atomic_exchange(&known->runner, NULL);
    for (uint32_t i = 0; i < known->verdict_count; i++)
        atomic_store(&known->verdicts[i].hot->runner, NULL);
    return runner;
}

/* Finds the one that was not used for longest, except `keep`. The caller holds context->lock. */
static aoticache_known_kernel *least_recent(const aoticache_context *context, const aoticache_known_kernel *keep)
{
    aoticache_known_kernel *found = NULL;
    uint64_t oldest = UINT64_MAX;
    for (aoticache_known_kernel *known = context->loaded; known != NULL; known = known->loaded_next) {
        uint64_t tick = last_tick(known);
        if (known != keep && tick <= oldest) { /* on a tie the one that was loaded first */
            oldest = tick;
            found = known;
        }
    }
    return found;
}

static bool exceeds_budget(const aoticache_context *context)
{
    return (context->max_loaded > 0 && context->loaded_count > context->max_loaded) ||
           (context->max_loaded_bytes > 0 && context->loaded_bytes > context->max_loaded_bytes);
}

/* Unloads until the limit is met, or nothing except `keep` is left. */
static void unload_over_budget(aoticache_context *context, const aoticache_known_kernel *keep)
{
    for (;;) {
        leaving_runner *leaving = NULL;
        pthread_mutex_lock(&context->lock);
        aoticache_known_kernel *known = exceeds_budget(context) ? least_recent(context, keep) : NULL;
        if (known != NULL && (leaving = malloc(sizeof *leaving)) != NULL) {
            leaving->runner = hide_runner(known);
            unlink_loaded(context, known);
        }
        pthread_mutex_unlock(&context->lock);
        if (leaving == NULL)
            return;
        aoticache_epoch_retire(&leaving->retired, release_runner);
    }
}

static uint64_t bytes_of(const aoticache_runner *runner)
{
    const aoticache_runner_info *info = aoticache_runner_get_info(runner);
    uint64_t bytes = aoticache_library_get_info(info->library)->bytes;
    for (size_t i = 0; i < info->num_constants; i++) {
        aoticache_constant constant;
        if (aoticache_runner_read_constant(runner, i, &constant, NULL) == AOTICACHE_OK && constant.has_bytes)
            bytes += constant.bytes;
    }
    return bytes;
}

/* Publishes the runner to calls. */
static void publish_runner(aoticache_known_kernel *known, aoticache_runner *runner)
{
    aoticache_context *context = known->holder->context;
    uint64_t bytes = context->max_loaded_bytes > 0 ? bytes_of(runner) : 0;
    pthread_mutex_lock(&context->lock);
    known->loaded_bytes = bytes;
    known->loaded_next = context->loaded;
    known->loaded_link = &context->loaded;
    if (known->loaded_next != NULL)
        known->loaded_next->loaded_link = &known->loaded_next;
    context->loaded = known;
    context->loaded_count++;
    context->loaded_bytes += bytes;
    /* This tick is later than all earlier uses, and earlier than all later uses. */
    uint64_t tick = atomic_fetch_add(&context->tick, 2) + 1;
    atomic_store(&known->runner, runner);
    for (uint32_t i = 0; i < known->verdict_count; i++) {
        atomic_store_explicit(&known->verdicts[i].hot->last_tick, tick, memory_order_relaxed);
        aoticache_verdict_show(&known->verdicts[i]);
    }
    pthread_mutex_unlock(&context->lock);
    atomic_fetch_add_explicit(&known->holder->loads, 1, memory_order_relaxed);
    unload_over_budget(context, known);
}

void aoticache_holder_unload_all(aoticache_holder *holder)
{
    for (aoticache_known_kernel *known = holder->known_kernels; known != NULL; known = known->next) {
        pthread_mutex_lock(&holder->context->lock);
        aoticache_runner *runner = hide_runner(known);
        if (runner != NULL)
            unlink_loaded(holder->context, known);
        pthread_mutex_unlock(&holder->context->lock);
        aoticache_runner_unref(runner);
    }
}

/* ---- loading ---- */

static aoticache_status check_runner(const aoticache_holder *holder, const aoticache_runner *runner,
                                     aoticache_error *ret_error)
{
    const aoticache_runner_info *info = aoticache_runner_get_info(runner);
    const aoticache_library_info *library = aoticache_library_get_info(info->library);
    if (library->needs_proxy_executor)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "library %.80s: PyTorch compiled %s into a call of its proxy executor, which "
                                   "is not faster than the operator itself",
                                   library->name, holder->op);
    if (holder->returns == AOTICACHE_RETURNS_LIST || info->num_outputs == holder->num_returns)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "library %.80s returns %zu outputs, but %s has %zu",
                               library->name, info->num_outputs, holder->op, holder->num_returns);
}

static aoticache_status load_runner(const aoticache_holder *holder, aoticache_artifact *artifact,
                                    aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    const aoticache_context *context = holder->context;
    /* Only a library that is loaded from a private copy can be unloaded. */
    bool private_copy = context->max_loaded > 0 || context->max_loaded_bytes > 0;
    aoticache_runner *runner;
    aoticache_status status = aoticache_artifact_load_runner(context->cache, artifact, holder->device, private_copy,
                                                             &runner, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = check_runner(holder, runner, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_runner_unref(runner);
        return status;
    }
    *ret_runner = runner;
    return AOTICACHE_OK;
}

/* Opens the library. NOT_FOUND: it is gone, and is not looked up again until it is rebuilt. */
static aoticache_status open_known(aoticache_known_kernel *known, aoticache_artifact **ret_artifact,
                                   aoticache_error *ret_error)
{
    aoticache_holder *holder = known->holder;
    pthread_mutex_lock(&holder->lock);
    int64_t entry_id = known->entry_id;
    aoticache_digest digest = known->artifact;
    pthread_mutex_unlock(&holder->lock);
    aoticache_status status = AOTICACHE_NOT_FOUND;
    if (entry_id != 0)
        status = aoticache_cache_open_stored(holder->context->cache, entry_id, &digest, ret_artifact, ret_error);
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    pthread_mutex_lock(&holder->lock);
    if (known->entry_id == entry_id)
        atomic_store(&known->gone, true);
    pthread_mutex_unlock(&holder->lock);
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s: the library is no longer in the cache", holder->op);
}

/* Loads a library that is not loaded. The caller holds load_lock. */
static aoticache_status load_known(aoticache_known_kernel *known, aoticache_runner **ret_runner,
                                   aoticache_error *ret_error)
{
    aoticache_holder *holder = known->holder;
    aoticache_artifact *artifact = NULL;
    aoticache_runner *runner = NULL;
    aoticache_status status = open_known(known, &artifact, ret_error);
    if (status == AOTICACHE_OK)
        status = load_runner(holder, artifact, &runner, ret_error);
    aoticache_artifact_unref(artifact);
    if (status != AOTICACHE_OK)
        return status;
    publish_runner(known, runner);
    *ret_runner = runner;
    return AOTICACHE_OK;
}

aoticache_status aoticache_known_kernel_load(aoticache_known_kernel *known, aoticache_runner **ret_runner,
                                             bool *ret_is_counted, aoticache_error *ret_error)
{
    aoticache_holder *holder = known->holder;
    aoticache_status status = AOTICACHE_OK;
    pthread_mutex_lock(&holder->load_lock);
    aoticache_runner *runner = atomic_load(&known->runner);
    if (runner != NULL)
        *ret_runner = runner;
    else
        status = load_known(known, ret_runner, ret_error);
    *ret_is_counted = runner == NULL && status == AOTICACHE_OK;
    pthread_mutex_unlock(&holder->load_lock);
    return status;
}

/* ---- adopting the result of a compile or a lookup ---- */

static aoticache_status add_artifact(aoticache_holder *holder, const aoticache_miss_request *miss,
                                     aoticache_artifact *artifact, aoticache_known_kernel **ret_known,
                                     aoticache_error *ret_error)
{
    const char *guard = aoticache_artifact_get_info(artifact)->guard;
    const aoticache_digest *digest = &aoticache_artifact_get_info(artifact)->digest;
    int64_t entry_id = aoticache_artifact_entry(artifact);
    bool is_dynamic = guard[0] != '\0' && miss->dynamic_state != NULL;
    aoticache_check *check = NULL;
    aoticache_key key;
    aoticache_status status = aoticache_request_key(is_dynamic ? miss->dynamic : miss->exact, &key, ret_error);
    if (status == AOTICACHE_OK && is_dynamic)
        status = aoticache_check_parse(guard, &check, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    pthread_mutex_lock(&holder->lock);
    aoticache_known_kernel *known =
        check != NULL ? aoticache_holder_know_dynamic(holder, miss->dynamic_state, &key, digest, entry_id, check)
                      : aoticache_holder_know_exact(holder, miss->packed, &key, digest, entry_id);
    pthread_mutex_unlock(&holder->lock);
    if (known == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for a library", holder->op);
    *ret_known = known;
    return AOTICACHE_OK;
}

aoticache_status aoticache_holder_adopt(aoticache_holder *holder, const aoticache_miss_request *miss,
                                        aoticache_artifact *artifact, aoticache_known_kernel **ret_known,
                                        aoticache_error *ret_error)
{
    aoticache_known_kernel *known = NULL;
    aoticache_runner *runner = NULL;
    pthread_mutex_lock(&holder->load_lock);
    aoticache_status status = add_artifact(holder, miss, artifact, &known, ret_error);
    if (status == AOTICACHE_OK && atomic_load(&known->runner) == NULL) {
        status = load_runner(holder, artifact, &runner, ret_error);
        if (status == AOTICACHE_OK)
            publish_runner(known, runner);
    }
    pthread_mutex_unlock(&holder->load_lock);
    if (status == AOTICACHE_OK)
        *ret_known = known;
    return status;
}

/* ---- reporting uses ---- */

void aoticache_holder_flush(aoticache_holder *holder)
{
    pthread_mutex_lock(&holder->lock);
    for (aoticache_known_kernel *known = holder->known_kernels; known != NULL; known = known->next) {
        uint64_t uses = aoticache_call_counts_take(known->number);
        if (known->entry_id != 0)
            aoticache_cache_note_use(holder->context->cache, known->entry_id, uses);
    }
    pthread_mutex_unlock(&holder->lock);
    aoticache_cache_note_lost(holder->context->cache, aoticache_call_counts_take(holder->lost));
    aoticache_holder_save_judgements(holder);
}
