/*
 * cache/transfer/trust: checks whether an entry to import was signed by a trusted key, if that is required. Other entries
 * are refused before any part of them is in the store. If an entry exists already, signatures of trusted keys that came with
 * another copy are added to it, so that a key can be replaced.
 */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "cache/store/lock.h"
#include "cache/transfer/transfer_internal.h"
#include "index/index.h"

static aoticache_status find_replaced(aoticache_intake *intake, aoticache_index *index,
                                      const aoticache_intake_claim *claim, int64_t *ret_created_ns,
                                      aoticache_error *ret_error)
{
    cleanup_free aoticache_index_hit *hits = NULL;
    size_t count = 0;
    aoticache_status status = aoticache_intake_read_hits(index, claim->key, &hits, &count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        const aoticache_cpu_features required = aoticache_requirements_from_bytes(hits[i].requirements);
        aoticache_manifest *manifest = NULL;
        uint64_t bytes;
        if (memcmp(&required, claim->requirements, sizeof required) != 0 ||
            aoticache_cache_load_manifest(intake->cache->directory, &hits[i].artifact, &manifest, &bytes, NULL) !=
                AOTICACHE_OK)
            continue; /* an unreadable entry need not be kept */
        const char *guard = manifest->guard != NULL ? manifest->guard : "";
        if (strcmp(guard, claim->guard != NULL ? claim->guard : "") == 0 && manifest->created_ns > *ret_created_ns)
            *ret_created_ns = manifest->created_ns;
        aoticache_manifest_free(manifest);
    }
    return status;
}

/* Gives the creation time, from its manifest, of the entry that the claim's would replace; 0: it replaces none. */
static aoticache_status read_replaced(aoticache_intake *intake, const aoticache_intake_claim *claim,
                                      int64_t *ret_created_ns, aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(intake->cache);
    aoticache_status status;
    *ret_created_ns = 0;
    if (index == NULL || !intake->options->replace)
        return AOTICACHE_OK;
    do
        status = find_replaced(intake, index, claim, ret_created_ns, ret_error);
    while (aoticache_cache_recovered(intake->cache, status, &index));
    return status;
}

aoticache_status aoticache_intake_check_trust(aoticache_intake *intake, const aoticache_intake_entry *entry,
                                              const aoticache_intake_claim *claim, bool *ret_fits,
                                              aoticache_error *ret_error)
{
    const aoticache_transfer_options *options = intake->options;
    const aoticache_statement statement = aoticache_statement_of_manifest(&entry->digest, entry->manifest);
    aoticache_trust_claim asked = AOTICACHE_TRUST_CLAIM_INIT;
    aoticache_trust_verdict verdict;
    asked.statement = &statement;
    asked.signatures = entry->signatures;
    asked.is_ours = !intake->is_foreign;
    asked.allow_unsigned = options->allow_unsigned;
    asked.offered = intake->offered.items;
    asked.offered_count = intake->offered.count;
    asked.ask = options->ask;
    asked.user = options->user;
    aoticache_status status = read_replaced(intake, claim, &asked.replaces_created_ns, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_decide(intake->cache, &asked, &verdict, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_fits = verdict.is_accepted;
    intake->report->entries_signed += verdict.reason == AOTICACHE_TRUST_SIGNED ? 1 : 0;
    if (!verdict.is_accepted)
        aoticache_intake_refuse_untrusted(intake, &verdict, &statement.key);
    return AOTICACHE_OK;
}

/* ---- signatures of existing entries ---- */

static bool keep_trusted(void *user, const aoticache_signature *signature, aoticache_signature_state state,
                         const aoticache_public_key *key)
{
    (void)key;
    if (state == AOTICACHE_SIGNATURE_TRUSTED)
        aoticache_signature_list_add(user, signature);
    return true;
}

/* Keeps only signatures that the entry does not have. */
static void drop_known(const aoticache_signature_list *known, aoticache_signature_list *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        bool is_known = false;
        for (size_t k = 0; k < known->count; k++)
            is_known = is_known || memcmp(&known->items[k], &list->items[i], sizeof list->items[i]) == 0;
        if (!is_known)
            list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

static aoticache_status add_signatures(aoticache_intake *intake, const aoticache_digest *artifact,
                                       const aoticache_signature_list *list, aoticache_error *ret_error)
{
    aoticache_manifest *manifest = NULL;
    aoticache_signature_list trusted = {.count = 0};
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    uint64_t bytes;
    aoticache_directory *directory = intake->cache->directory;
    if (aoticache_cache_load_manifest(directory, artifact, &manifest, &bytes, NULL) != AOTICACHE_OK)
        return AOTICACHE_OK; /* a verification reports it */
    const aoticache_statement statement = aoticache_statement_of_manifest(artifact, manifest);
    aoticache_status status = aoticache_trust_check(intake->cache, &statement, list, keep_trusted, &trusted, ret_error);
    aoticache_manifest_free(manifest);
    if (status != AOTICACHE_OK || trusted.count == 0)
        return status;
    status = aoticache_lock_store(directory, false, &lock, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_signature_file_add(directory, artifact, &trusted, true, ret_error);
    aoticache_lock_release(&lock);
    intake->report->entries_signed += status == AOTICACHE_OK ? 1 : 0;
    return status == AOTICACHE_INVALID ? AOTICACHE_OK : status; /* it has the maximum number */
}

aoticache_status aoticache_intake_add_signatures(aoticache_intake *intake, const aoticache_digest *artifact,
                                                 const char *signatures, aoticache_error *ret_error)
{
    aoticache_signature_list list = {.count = 0}, known = {.count = 0};
    aoticache_index *index = aoticache_cache_index(intake->cache);
    if (signatures == NULL || signatures[0] == '\0' || intake->options->dry_run || index == NULL ||
        aoticache_index_has_object(index, artifact, NULL) != AOTICACHE_OK ||
        aoticache_signature_list_parse(signatures, &list, NULL) != AOTICACHE_OK ||
        aoticache_signature_file_read(intake->cache->directory, artifact, &known, NULL) != AOTICACHE_OK)
        return AOTICACHE_OK;
    drop_known(&known, &list);
    return list.count > 0 ? add_signatures(intake, artifact, &list, ret_error) : AOTICACHE_OK;
}
