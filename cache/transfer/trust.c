/*
 * cache/transfer/trust: whether an entry that wants to come in was signed by somebody who is trusted here, where that is
 * asked. What was not is refused before any of it is in the store.
 */
#include <string.h>

#include "base/cleanup.h"
#include "cache/transfer/internal.h"
#include "index/index.h"

static aoticache_status find_replaced(aoticache_intake *intake, aoticache_index *index, const aoticache_intake_claim *claim,
                                      int64_t *ret_created_ns, aoticache_error *ret_error)
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
            continue; /* one that cannot be read is none to be kept */
        const char *guard = manifest->guard != NULL ? manifest->guard : "";
        if (strcmp(guard, claim->guard != NULL ? claim->guard : "") == 0 && manifest->created_ns > *ret_created_ns)
            *ret_created_ns = manifest->created_ns;
        aoticache_manifest_free(manifest);
    }
    return status;
}

/* When the entry was made that the claim's would replace, by its manifest; 0: it replaces none. */
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
    if (!verdict.is_accepted) {
        intake->report->entries_untrusted++;
        aoticache_intake_refuse(intake, "%s", verdict.message);
    }
    return AOTICACHE_OK;
}
