/*
 * eager/holder/resident: the kernels that a holder keeps: made known by their metadata (exact) or by their dynamic
 * request, loaded and published to calls when they are first hit, unloaded least recently used first where there is a
 * budget. Calls find them without a lock.
 */
#include "base/cleanup.h"
#include "cache/eager_face.h"
#include "eager/holder/internal.h"
#include "eager/internal.h"
#include "loader/eager_face.h"

#include <stdlib.h>
#include <string.h>

/* ---- making exact libraries known, under holder->lock ---- */

static void free_unknown(aoticache_resident *resident)
{
    if (resident != NULL)
        aoticache_uses_close(resident->number);
    free(resident);
}

/* Makes a resident that the holder does not list yet. A dynamic one has a standing for each class of sizes. */
static aoticache_resident *create_resident(aoticache_holder *holder, const aoticache_key *key,
                                           const aoticache_digest *artifact, int64_t entry_id, bool is_dynamic)
{
    uint32_t count = is_dynamic ? AOTICACHE_SIZE_CLASSES : 1;
    aoticache_resident *resident = calloc(1, sizeof *resident + count * sizeof resident->standings[0]);
    if (resident == NULL)
        return NULL;
    resident->holder = holder;
    resident->key = *key;
    resident->artifact = *artifact;
    resident->entry_id = entry_id;
    resident->standing_count = count;
    resident->number = aoticache_uses_open();
    for (uint32_t i = 0; i < count; i++) {
        aoticache_standing *standing = &resident->standings[i];
        standing->resident = resident;
        standing->size_class = i;
        standing->hot = &standing->own;
        standing->own.detail = standing;
        standing->own.number = resident->number;
    }
    if (resident->number == 0) {
        free(resident);
        return NULL;
    }
    return resident;
}

static void add_resident(aoticache_holder *holder, aoticache_resident *resident)
{
    resident->next = holder->residents;
    holder->residents = resident;
    holder->resident_count++;
}

/* Notes that the same library was made again, or another one in its place. */
static void set_artifact(aoticache_resident *resident, const aoticache_digest *artifact, int64_t entry_id)
{
    resident->artifact = *artifact;
    resident->entry_id = entry_id;
    atomic_store(&resident->gone, false);
}

/* Adds a library for metadata that was not known, or that a dynamic library served until now (`entry`). */
static aoticache_resident *add_exact(aoticache_holder *holder, const aoticache_packed *packed,
                                     aoticache_table_entry *entry, const aoticache_key *key,
                                     const aoticache_digest *artifact, int64_t entry_id)
{
    aoticache_resident *resident = create_resident(holder, key, artifact, entry_id, false);
    bool is_new = entry == NULL;
    if (resident != NULL && is_new)
        entry = aoticache_table_prepare(&holder->table, packed, NULL, &resident->standings[0]);
    if (resident == NULL || entry == NULL) {
        free_unknown(resident);
        return NULL;
    }
    resident->standings[0].hot = &entry->own;
    entry->own.detail = &resident->standings[0];
    entry->own.number = resident->number;
    add_resident(holder, resident);
    if (is_new)
        aoticache_table_publish(&holder->table, packed, entry);
    return resident;
}

aoticache_resident *aoticache_holder_know_exact(aoticache_holder *holder, const aoticache_packed *packed,
                                                const aoticache_key *key, const aoticache_digest *artifact,
                                                int64_t entry_id)
{
    aoticache_table_entry *entry = aoticache_table_find(&holder->table, packed);
    const aoticache_standing *standing = entry != NULL ? entry->own.detail : NULL;
    aoticache_resident *resident = standing != NULL ? standing->resident : NULL;
    if (resident != NULL && standing->hot == &entry->own)
        set_artifact(resident, artifact, entry_id);
    else if ((resident = add_exact(holder, packed, entry, key, artifact, entry_id)) == NULL)
        return NULL;
    /* An exact library comes before a dynamic one. */
    if (entry != NULL)
        atomic_store(&entry->resident, &entry->own);
    return resident;
}

/* ---- making dynamic libraries known, under holder->lock ---- */

static void release_dynamic_list(aoticache_retired *retired)
{
    free((char *)retired - offsetof(aoticache_dynamic_list, retired));
}

static bool add_to_dynamic_list(aoticache_dynamic_state *state, aoticache_resident *resident)
{
    aoticache_dynamic_list *old = atomic_load(&state->list);
    size_t count = old != NULL ? old->count : 0, at = 0;
    aoticache_dynamic_list *list = calloc(1, sizeof *list + (count + 1) * sizeof list->residents[0]);
    if (list == NULL)
        return false;
    while (at < count && aoticache_check_compare(old->residents[at]->check, resident->check) <= 0)
        at++;
    list->count = count + 1;
    for (size_t i = 0; i < count; i++)
        list->residents[i < at ? i : i + 1] = old->residents[i];
    list->residents[at] = resident;
    atomic_store(&state->list, list);
    if (old != NULL)
        aoticache_epoch_retire(&old->retired, release_dynamic_list);
    return true;
}

static aoticache_resident *find_in_dynamic_list(const aoticache_dynamic_state *state, const aoticache_digest *artifact)
{
    const aoticache_dynamic_list *list = atomic_load(&state->list);
    for (size_t i = 0; list != NULL && i < list->count; i++)
        if (aoticache_digest_equal(&list->residents[i]->artifact, artifact))
            return list->residents[i];
    return NULL;
}

aoticache_resident *aoticache_holder_know_dynamic(aoticache_holder *holder, aoticache_dynamic_state *state,
                                                  const aoticache_key *key, const aoticache_digest *artifact,
                                                  int64_t entry_id, aoticache_check *check)
{
    aoticache_resident *resident = find_in_dynamic_list(state, artifact);
    if (resident != NULL) {
        set_artifact(resident, artifact, entry_id);
        aoticache_check_free(check);
        return resident;
    }
    resident = create_resident(holder, key, artifact, entry_id, true);
    if (resident != NULL)
        resident->check = check;
    if (resident == NULL || !add_to_dynamic_list(state, resident)) {
        aoticache_check_free(check);
        free_unknown(resident);
        return NULL;
    }
    add_resident(holder, resident);
    return resident;
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

void aoticache_holder_add_alias(aoticache_holder *holder, const aoticache_packed *packed, aoticache_standing *standing)
{
    pthread_mutex_lock(&holder->lock);
    aoticache_table_entry *entry = aoticache_table_find(&holder->table, packed);
    const aoticache_resident *now = entry != NULL ? aoticache_resident_of(atomic_load(&entry->resident)) : NULL;
    if (now != NULL && atomic_load(&now->gone))
        atomic_store(&entry->resident, standing->hot);
    else if (entry == NULL && holder->aliases < AOTICACHE_HOLDER_MAX_ALIASES &&
             aoticache_table_insert(&holder->table, packed, standing->hot, standing) != NULL)
        holder->aliases++;
    pthread_mutex_unlock(&holder->lock);
}

/* ---- the budget ---- */

/* A runner on its way out, until nobody can be running it. */
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

/* Takes it off the list of loaded ones. The caller holds context->lock. */
static void unlink_loaded(aoticache_context *context, aoticache_resident *resident)
{
    *resident->loaded_link = resident->loaded_next;
    if (resident->loaded_next != NULL)
        resident->loaded_next->loaded_link = resident->loaded_link;
    resident->loaded_link = NULL;
    context->loaded_count--;
    context->loaded_bytes -= resident->loaded_bytes;
}

static uint64_t last_tick(const aoticache_resident *resident)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < resident->standing_count; i++) {
        uint64_t tick = atomic_load_explicit(&resident->standings[i].hot->last_tick, memory_order_relaxed);
        last = tick > last ? tick : last;
    }
    return last;
}

/* Takes the runner away, so that new calls do not find it. The caller holds context->lock. */
static aoticache_runner *hide_runner(aoticache_resident *resident)
{
    aoticache_runner *runner = atomic_exchange(&resident->runner, NULL);
    for (uint32_t i = 0; i < resident->standing_count; i++)
        atomic_store(&resident->standings[i].hot->runner, NULL);
    return runner;
}

/* Finds the one that was not used for longest, except `keep`. The caller holds context->lock. */
static aoticache_resident *least_recent(const aoticache_context *context, const aoticache_resident *keep)
{
    aoticache_resident *found = NULL;
    uint64_t oldest = UINT64_MAX;
    for (aoticache_resident *resident = context->loaded; resident != NULL; resident = resident->loaded_next) {
        uint64_t tick = last_tick(resident);
        if (resident != keep && tick <= oldest) { /* of equal ones the one that was loaded first */
            oldest = tick;
            found = resident;
        }
    }
    return found;
}

static bool exceeds_budget(const aoticache_context *context)
{
    return (context->max_loaded > 0 && context->loaded_count > context->max_loaded) ||
           (context->max_loaded_bytes > 0 && context->loaded_bytes > context->max_loaded_bytes);
}

/* Unloads until the budget is kept, or nothing but `keep` is left. */
static void unload_over_budget(aoticache_context *context, const aoticache_resident *keep)
{
    for (;;) {
        leaving_runner *leaving = NULL;
        pthread_mutex_lock(&context->lock);
        aoticache_resident *resident = exceeds_budget(context) ? least_recent(context, keep) : NULL;
        if (resident != NULL && (leaving = malloc(sizeof *leaving)) != NULL) {
            leaving->runner = hide_runner(resident);
            unlink_loaded(context, resident);
        }
        pthread_mutex_unlock(&context->lock);
        if (leaving == NULL)
            return;
        aoticache_epoch_retire(&leaving->retired, release_runner);
    }
}

static uint64_t bytes_of(const aoticache_runner *runner)
{
    uint64_t bytes = aoticache_library_bytes(aoticache_runner_library(runner));
    for (size_t i = 0; i < aoticache_runner_num_constants(runner); i++) {
        aoticache_constant constant;
        if (aoticache_runner_read_constant(runner, i, &constant, NULL) == AOTICACHE_OK && constant.has_bytes)
            bytes += constant.bytes;
    }
    return bytes;
}

/* From now on calls find the runner. */
static void publish_runner(aoticache_resident *resident, aoticache_runner *runner)
{
    aoticache_context *context = resident->holder->context;
    uint64_t bytes = context->max_loaded_bytes > 0 ? bytes_of(runner) : 0;
    pthread_mutex_lock(&context->lock);
    resident->loaded_bytes = bytes;
    resident->loaded_next = context->loaded;
    resident->loaded_link = &context->loaded;
    if (resident->loaded_next != NULL)
        resident->loaded_next->loaded_link = &resident->loaded_next;
    context->loaded = resident;
    context->loaded_count++;
    context->loaded_bytes += bytes;
    /* This tick is after everything that was used before, and before everything that is used from now on. */
    uint64_t tick = atomic_fetch_add(&context->tick, 2) + 1;
    atomic_store(&resident->runner, runner);
    for (uint32_t i = 0; i < resident->standing_count; i++) {
        atomic_store_explicit(&resident->standings[i].hot->last_tick, tick, memory_order_relaxed);
        aoticache_standing_show(&resident->standings[i]);
    }
    pthread_mutex_unlock(&context->lock);
    atomic_fetch_add_explicit(&resident->holder->loads, 1, memory_order_relaxed);
    unload_over_budget(context, resident);
}

void aoticache_holder_unload_all(aoticache_holder *holder)
{
    for (aoticache_resident *resident = holder->residents; resident != NULL; resident = resident->next) {
        pthread_mutex_lock(&holder->context->lock);
        aoticache_runner *runner = hide_runner(resident);
        if (runner != NULL)
            unlink_loaded(holder->context, resident);
        pthread_mutex_unlock(&holder->context->lock);
        aoticache_runner_unref(runner);
    }
}

/* ---- loading ---- */

static aoticache_status check_runner(const aoticache_holder *holder, const aoticache_runner *runner,
                                     aoticache_error *ret_error)
{
    size_t outputs = aoticache_runner_num_outputs(runner);
    if (aoticache_library_needs_proxy_executor(aoticache_runner_library(runner)))
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "library %.80s: PyTorch compiled %s into a call of its proxy executor, which is no "
                                   "faster than the operator itself",
                                   aoticache_library_name(aoticache_runner_library(runner)), holder->op);
    if (holder->returns == AOTICACHE_RETURNS_LIST || outputs == holder->num_returns)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "library %.80s gives %zu outputs, %s has %zu",
                               aoticache_library_name(aoticache_runner_library(runner)), outputs, holder->op,
                               holder->num_returns);
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

/* Opens the library. NOT_FOUND: it is gone, and nobody asks for it again before it was made anew. */
static aoticache_status open_resident(aoticache_resident *resident, aoticache_artifact **ret_artifact,
                                      aoticache_error *ret_error)
{
    aoticache_holder *holder = resident->holder;
    pthread_mutex_lock(&holder->lock);
    int64_t entry_id = resident->entry_id;
    aoticache_digest digest = resident->artifact;
    pthread_mutex_unlock(&holder->lock);
    aoticache_status status = AOTICACHE_NOT_FOUND;
    if (entry_id != 0)
        status = aoticache_cache_open_stored(holder->context->cache, entry_id, &digest, ret_artifact, ret_error);
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    pthread_mutex_lock(&holder->lock);
    if (resident->entry_id == entry_id)
        atomic_store(&resident->gone, true);
    pthread_mutex_unlock(&holder->lock);
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s: the library is not in the cache any more",
                               holder->op);
}

/* Loads a library that is not loaded. The caller holds load_lock. */
static aoticache_status load_resident(aoticache_resident *resident, aoticache_runner **ret_runner,
                                      aoticache_error *ret_error)
{
    aoticache_holder *holder = resident->holder;
    aoticache_artifact *artifact = NULL;
    aoticache_runner *runner = NULL;
    aoticache_status status = open_resident(resident, &artifact, ret_error);
    if (status == AOTICACHE_OK)
        status = load_runner(holder, artifact, &runner, ret_error);
    aoticache_artifact_unref(artifact);
    if (status != AOTICACHE_OK)
        return status;
    publish_runner(resident, runner);
    *ret_runner = runner;
    return AOTICACHE_OK;
}

aoticache_status aoticache_resident_load(aoticache_resident *resident, aoticache_runner **ret_runner,
                                         bool *ret_is_counted, aoticache_error *ret_error)
{
    aoticache_holder *holder = resident->holder;
    aoticache_status status = AOTICACHE_OK;
    pthread_mutex_lock(&holder->load_lock);
    aoticache_runner *runner = atomic_load(&resident->runner);
    if (runner != NULL)
        *ret_runner = runner;
    else
        status = load_resident(resident, ret_runner, ret_error);
    *ret_is_counted = runner == NULL && status == AOTICACHE_OK;
    pthread_mutex_unlock(&holder->load_lock);
    return status;
}

/* ---- adopting what a compile or a lookup gave ---- */

static aoticache_status add_artifact(aoticache_holder *holder, const aoticache_miss_request *miss,
                                     aoticache_artifact *artifact, aoticache_resident **ret_resident,
                                     aoticache_error *ret_error)
{
    const char *guard = aoticache_artifact_guard(artifact);
    const aoticache_digest *digest = aoticache_artifact_digest(artifact);
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
    aoticache_resident *resident =
        check != NULL ? aoticache_holder_know_dynamic(holder, miss->dynamic_state, &key, digest, entry_id, check)
                      : aoticache_holder_know_exact(holder, miss->packed, &key, digest, entry_id);
    pthread_mutex_unlock(&holder->lock);
    if (resident == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: no memory for a library", holder->op);
    *ret_resident = resident;
    return AOTICACHE_OK;
}

aoticache_status aoticache_holder_adopt(aoticache_holder *holder, const aoticache_miss_request *miss,
                                        aoticache_artifact *artifact, aoticache_resident **ret_resident,
                                        aoticache_error *ret_error)
{
    aoticache_resident *resident = NULL;
    aoticache_runner *runner = NULL;
    pthread_mutex_lock(&holder->load_lock);
    aoticache_status status = add_artifact(holder, miss, artifact, &resident, ret_error);
    if (status == AOTICACHE_OK && atomic_load(&resident->runner) == NULL) {
        status = load_runner(holder, artifact, &runner, ret_error);
        if (status == AOTICACHE_OK)
            publish_runner(resident, runner);
    }
    pthread_mutex_unlock(&holder->load_lock);
    if (status == AOTICACHE_OK)
        *ret_resident = resident;
    return status;
}

/* ---- use ---- */

void aoticache_holder_flush(aoticache_holder *holder)
{
    pthread_mutex_lock(&holder->lock);
    for (aoticache_resident *resident = holder->residents; resident != NULL; resident = resident->next) {
        uint64_t uses = aoticache_uses_take(resident->number);
        if (resident->entry_id != 0)
            aoticache_cache_note_use(holder->context->cache, resident->entry_id, uses);
    }
    pthread_mutex_unlock(&holder->lock);
    aoticache_cache_note_lost(holder->context->cache, aoticache_uses_take(holder->lost));
    aoticache_holder_save_judgements(holder);
}
