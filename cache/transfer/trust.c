/*
 * cache/transfer/trust: whether an entry that wants to come in was signed by somebody who is trusted here, where that is
 * asked. What was not is refused before any of it is in the store. An entry that is here already gets the signatures that
 * came with another copy of it, so that a key can be replaced: those of trusted keys alone.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "cache/store/lock.h"
#include "cache/transfer/internal.h"
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
    if (!verdict.is_accepted)
        aoticache_intake_refuse_untrusted(intake, &verdict, &statement.key);
    return AOTICACHE_OK;
}

/* ---- telling what was refused ---- */

#define QUOTED_KEY_BYTES 256

/* The refusals of one signer, a new row if there is none yet. NULL: there are rows of too many others. */
static aoticache_untrusted *untrusted_of(aoticache_intake *intake, const aoticache_public_key *signer)
{
    for (size_t i = 0; i < intake->untrusted_count; i++)
        if (memcmp(&intake->untrusted[i].signer, signer, sizeof *signer) == 0)
            return &intake->untrusted[i];
    if (intake->untrusted_count == AOTICACHE_UNTRUSTED_SIGNERS)
        return NULL;
    aoticache_untrusted *row = &intake->untrusted[intake->untrusted_count++];
    *row = (aoticache_untrusted){.signer = *signer};
    return row;
}

void aoticache_intake_refuse_untrusted(aoticache_intake *intake, const aoticache_trust_verdict *verdict,
                                       const aoticache_key *key)
{
    const bool is_unknown =
        verdict->reason == AOTICACHE_TRUST_UNSIGNED || verdict->reason == AOTICACHE_TRUST_UNKNOWN_KEY;
    aoticache_untrusted *row = is_unknown ? untrusted_of(intake, &verdict->key) : NULL;
    intake->report->entries_untrusted++;
    if (row == NULL) {
        aoticache_intake_refuse(intake, "%s%s%s%s", intake->is_remote ? "remote " : "",
                                intake->is_remote ? intake->place : "", intake->is_remote ? ": " : "",
                                verdict->message);
        return;
    }
    intake->report->refused++;
    if (row->count < AOTICACHE_UNTRUSTED_NAMED)
        row->named[row->count] = *key;
    row->count++;
    aoticache_log(&intake->cache->directory->logger, AOTICACHE_LOG_DEBUG, "refused: %s", verdict->message);
}

/* Marks a signer as told of; false: it was before, or there is no slot left for it. */
static bool is_news(_Atomic uint64_t *told, const char *name)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    hash |= 1; /* a free slot is 0 */
    for (size_t i = 0; i < AOTICACHE_UNTRUSTED_SIGNERS; i++) {
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&told[i], &found, hash))
            return true;
        if (found == hash)
            return false;
    }
    return false;
}

/* A key as one word of a shell, since whoever made it chose its name; false: it is longer than people should have to type. */
static bool quote_key(const aoticache_public_key *key, char ret_text[QUOTED_KEY_BYTES])
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
    char text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];
    size_t length = 0;
    aoticache_public_key_format(key, text);
    const char *quote = text[strspn(text, plain)] == '\0' ? "" : "'";
    length += (size_t)snprintf(ret_text, QUOTED_KEY_BYTES, "%s", quote);
    for (const char *c = text; *c != '\0' && length < QUOTED_KEY_BYTES - 6; c++)
        length += (size_t)snprintf(ret_text + length, QUOTED_KEY_BYTES - length, *c == '\'' ? "'\\%c'" : "%c", *c);
    snprintf(ret_text + length, QUOTED_KEY_BYTES - length, "%s", quote);
    return length < QUOTED_KEY_BYTES - 6;
}

/* Whose they are, and what lets them in: something to type. */
static void format_remedy(const aoticache_intake *intake, const aoticache_untrusted *row, char *ret_text, size_t size)
{
    static const aoticache_public_key none;
    const aoticache_public_key *signer = &row->signer;
    const bool is_one = row->count == 1;
    char key[QUOTED_KEY_BYTES];
    if (signer->name[0] == '\0')
        snprintf(ret_text, size, "nobody signed %s; where %s made, run: %s", is_one ? "it" : "them",
                 is_one ? "it was" : "they were",
                 intake->is_remote ? "aoticache push --all" : "aoticache key sign --all");
    else if (memcmp(signer->bytes, none.bytes, sizeof none.bytes) != 0 && quote_key(signer, key))
        snprintf(ret_text, size,
                 "signed by '%s', a key that is not trusted here; if its owner may run code here, repeat this after: "
                 "aoticache key trust %s",
                 signer->name, key);
    else
        snprintf(ret_text, size,
                 "signed by '%s', a key that is not trusted here; if its owner may run code here, run 'aoticache key "
                 "public' there and 'aoticache key trust' here with what it prints",
                 signer->name);
}

static void tell(const aoticache_intake *intake, const aoticache_untrusted *row)
{
    char names[AOTICACHE_UNTRUSTED_NAMED * 16] = "", remedy[640];
    size_t length = 0;
    for (size_t i = 0; i < row->count && i < AOTICACHE_UNTRUSTED_NAMED; i++) {
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(&row->named[i], hex);
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%.12s", i > 0 ? ", " : "", hex);
    }
    format_remedy(intake, row, remedy, sizeof remedy);
    aoticache_log(&intake->cache->directory->logger, AOTICACHE_LOG_WARNING, "%s%.200s: %llu %s refused (%s%s): %s",
                  intake->is_remote ? "remote " : "", intake->place, (unsigned long long)row->count,
                  row->count == 1 ? "entry" : "entries", names, row->count > AOTICACHE_UNTRUSTED_NAMED ? ", ..." : "",
                  remedy);
}

void aoticache_intake_tell_untrusted(aoticache_intake *intake)
{
    for (size_t i = 0; i < intake->untrusted_count; i++)
        if (intake->told == NULL || is_news(intake->told, intake->untrusted[i].signer.name))
            tell(intake, &intake->untrusted[i]);
    intake->untrusted_count = 0;
}

/* ---- signatures of what is here already ---- */

static bool keep_trusted(void *user, const aoticache_signature *signature, aoticache_signature_state state,
                         const aoticache_public_key *key)
{
    (void)key;
    if (state == AOTICACHE_SIGNATURE_TRUSTED)
        aoticache_signature_list_add(user, signature);
    return true;
}

/* Those that the entry does not have. */
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
        return AOTICACHE_OK; /* a verification tells of it */
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
    return status == AOTICACHE_INVALID ? AOTICACHE_OK : status; /* it has as many as it may */
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
