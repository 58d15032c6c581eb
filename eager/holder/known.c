/*
 * eager/holder/known: what a holder knows: libraries by exact metadata, libraries for symbolic shapes by family, and the
 * shapes that those serve. All of it under holder->lock; calls find it without. Loading is load.c's.
 */
#include "eager/holder/state.h"

#include <stdlib.h>

static void free_unknown(aoticache_held *held)
{
    if (held != NULL)
        aoticache_uses_close(held->number);
    free(held);
}

/* Not among the holder's yet. */
static aoticache_held *create_held(aoticache_holder *holder, const aoticache_digest *artifact, int64_t entry_id)
{
    aoticache_held *held = calloc(1, sizeof *held);
    if (held == NULL)
        return NULL;
    held->holder = holder;
    held->artifact = *artifact;
    held->entry_id = entry_id;
    held->unit = &held->lone;
    held->lone.detail = held;
    held->number = held->lone.number = aoticache_uses_open();
    if (held->number == 0) {
        free(held);
        return NULL;
    }
    return held;
}

static void add_held(aoticache_holder *holder, aoticache_held *held)
{
    held->next = holder->held;
    holder->held = held;
    holder->held_count++;
}

/* The same library was made again, or another one in its place. */
static void renew(aoticache_held *held, const aoticache_digest *artifact, int64_t entry_id)
{
    held->artifact = *artifact;
    held->entry_id = entry_id;
    atomic_store(&held->gone, false);
}

/* For metadata that was not known, or was served by a library for symbolic shapes until now (`entry`). */
static aoticache_held *add_exact(aoticache_holder *holder, const aoticache_packed *packed,
                                 aoticache_table_entry *entry, const aoticache_digest *artifact, int64_t entry_id)
{
    aoticache_held *held = create_held(holder, artifact, entry_id);
    bool is_new = entry == NULL;
    if (held != NULL && is_new)
        entry = aoticache_table_prepare(&holder->table, packed, NULL, held);
    if (held == NULL || entry == NULL) {
        free_unknown(held);
        return NULL;
    }
    held->unit = &entry->own;
    entry->own.detail = held;
    entry->own.number = held->number;
    add_held(holder, held);
    if (is_new)
        aoticache_table_publish(&holder->table, packed, entry);
    return held;
}

aoticache_held *aoticache_holder_know_exact(aoticache_holder *holder, const aoticache_packed *packed,
                                            const aoticache_digest *artifact, int64_t entry_id)
{
    aoticache_table_entry *entry = aoticache_table_find(&holder->table, packed);
    aoticache_held *held = entry != NULL ? entry->own.detail : NULL;
    if (held != NULL && held->unit == &entry->own)
        renew(held, artifact, entry_id);
    else if ((held = add_exact(holder, packed, entry, artifact, entry_id)) == NULL)
        return NULL;
    /* What is specialised comes before what is general. */
    if (entry != NULL)
        atomic_store(&entry->unit, &entry->own);
    return held;
}

static void release_symbolic(aoticache_retired *retired)
{
    free((char *)retired - offsetof(aoticache_symbolic, retired));
}

static bool add_to_family(aoticache_family *family, aoticache_held *held)
{
    aoticache_symbolic *old = atomic_load(&family->symbolic);
    size_t count = old != NULL ? old->count : 0, at = 0;
    aoticache_symbolic *list = calloc(1, sizeof *list + (count + 1) * sizeof list->held[0]);
    if (list == NULL)
        return false;
    while (at < count && aoticache_check_compare(old->held[at]->check, held->check) <= 0)
        at++;
    list->count = count + 1;
    for (size_t i = 0; i < count; i++)
        list->held[i < at ? i : i + 1] = old->held[i];
    list->held[at] = held;
    atomic_store(&family->symbolic, list);
    if (old != NULL)
        aoticache_epoch_retire(&old->retired, release_symbolic);
    return true;
}

static aoticache_held *find_in_family(const aoticache_family *family, const aoticache_digest *artifact)
{
    const aoticache_symbolic *list = atomic_load(&family->symbolic);
    for (size_t i = 0; list != NULL && i < list->count; i++)
        if (aoticache_digest_equal(&list->held[i]->artifact, artifact))
            return list->held[i];
    return NULL;
}

aoticache_held *aoticache_holder_know_guarded(aoticache_holder *holder, aoticache_family *family,
                                              const aoticache_digest *artifact, int64_t entry_id,
                                              aoticache_check *check)
{
    aoticache_held *held = find_in_family(family, artifact);
    if (held != NULL) {
        renew(held, artifact, entry_id);
        aoticache_check_free(check);
        return held;
    }
    held = create_held(holder, artifact, entry_id);
    if (held != NULL)
        held->check = check;
    if (held == NULL || !add_to_family(family, held)) {
        aoticache_check_free(check);
        free_unknown(held);
        return NULL;
    }
    add_held(holder, held);
    return held;
}

aoticache_family *aoticache_holder_family(aoticache_holder *holder, const aoticache_request *request)
{
    aoticache_packed packed;
    if (!aoticache_holder_pack_request(holder, request, &packed))
        return NULL;
    aoticache_table_entry *entry = aoticache_table_find(&holder->families, &packed);
    if (entry != NULL)
        return entry->own.detail;
    aoticache_family *family = calloc(1, sizeof *family);
    if (family == NULL || aoticache_table_insert(&holder->families, &packed, NULL, family) == NULL) {
        free(family);
        return NULL;
    }
    family->next = holder->family_states;
    holder->family_states = family;
    return family;
}

void aoticache_holder_add_alias(aoticache_holder *holder, const aoticache_packed *packed, aoticache_held *held)
{
    pthread_mutex_lock(&holder->lock);
    aoticache_table_entry *entry = aoticache_table_find(&holder->table, packed);
    const aoticache_held *now = entry != NULL ? atomic_load(&entry->unit)->detail : NULL;
    if (now != NULL && atomic_load(&now->gone))
        atomic_store(&entry->unit, held->unit);
    else if (entry == NULL && holder->aliases < AOTICACHE_HOLDER_MAX_ALIASES &&
             aoticache_table_insert(&holder->table, packed, held->unit, held) != NULL)
        holder->aliases++;
    pthread_mutex_unlock(&holder->lock);
}
