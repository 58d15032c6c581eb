/*
 * cache/verify/signatures: checks that signatures/ contains only signatures, and that entries have none that are revoked or
 * not valid for them.
 */
#include <stdio.h>

#include "base/names.h"
#include "cache/verify/verify_internal.h"

static aoticache_status quarantine(aoticache_verification *verification, int subdirectory, const char *name,
                                   aoticache_error *ret_error)
{
    aoticache_status status =
        aoticache_directory_quarantine(verification->cache->directory, subdirectory, name, name, ret_error);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static aoticache_status report(aoticache_verification *verification, const char *name, const char *detail)
{
    verification->report.wrong_signatures++;
    aoticache_verification_report_finding(verification, "signature", name, detail);
    return AOTICACHE_OK;
}

/* Checks for an entry that would be refused now. Signatures whose entry is gone wait for a collection. */
static aoticache_status check_entry(aoticache_verification *verification, const aoticache_digest *artifact,
                                    const char *path, aoticache_error *ret_error)
{
    char reason[AOTICACHE_TRUST_FAULT_BYTES] = "";
    aoticache_error detail = {.message = ""};
    bool is_faulty = false;
    if (verification->index == NULL ||
        aoticache_index_has_object(verification->index, artifact, NULL) == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_trust_find_fault(verification->cache, artifact, reason, &is_faulty, &detail);
    if (status == AOTICACHE_NO_MEMORY || status == AOTICACHE_IO || status == AOTICACHE_LOCKED)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    if (status == AOTICACHE_UNSUPPORTED || status == AOTICACHE_DENIED || status == AOTICACHE_INVALID)
        aoticache_verification_note_unreadable(verification, path, detail.message);
    if (status != AOTICACHE_OK || !is_faulty) /* damage of the manifest was reported for its object */
        return AOTICACHE_OK;
    report(verification, path, reason);
    if (!verification->options.repair)
        return AOTICACHE_OK;
    status = aoticache_trust_remove_entry(verification->cache, artifact, ret_error);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status;
}

static aoticache_status check_file(aoticache_verification *verification, int subdirectory, const char *name,
                                   aoticache_error *ret_error)
{
    bool is_usable;
    char path[512];
    aoticache_digest artifact;
    aoticache_signature_list list;
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_verification_check_name(verification, subdirectory, AOTICACHE_SIGNATURES, name,
                                                                S_IFREG, &is_usable, ret_error);
    if (status != AOTICACHE_OK || !is_usable || verification->options.quick ||
        aoticache_digest_from_hex(name, &artifact) != AOTICACHE_OK)
        return status;
    snprintf(path, sizeof path, AOTICACHE_SIGNATURES "/%s", name);
    status = aoticache_signature_file_read(verification->cache->directory, &artifact, &list, &detail);
    if (status == AOTICACHE_OK)
        return check_entry(verification, &artifact, path, ret_error);
    if (status == AOTICACHE_CORRUPT) {
        report(verification, path, detail.message);
        return verification->options.repair ? quarantine(verification, subdirectory, name, ret_error) : AOTICACHE_OK;
    }
    if (status == AOTICACHE_NO_MEMORY)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    aoticache_verification_note_unreadable(verification, path, detail.message);
    return AOTICACHE_OK;
}

/* Checks revoked entries without a file of signatures. */
static aoticache_status check_revoked(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_digest artifact;
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK; i++) {
        char path[AOTICACHE_OBJECT_PATH_BYTES];
        aoticache_error detail = {.message = ""};
        status = aoticache_trust_revoked_entry_at(verification->cache, i, &artifact, &detail);
        if (status == AOTICACHE_NOT_FOUND)
            return AOTICACHE_OK;
        aoticache_object_path(&artifact, path);
        if (status == AOTICACHE_NO_MEMORY)
            return aoticache_error_set(ret_error, status, "%s", detail.message);
        if (status != AOTICACHE_OK) {
            aoticache_verification_note_unreadable(verification, AOTICACHE_SIGNATURES, detail.message);
            return AOTICACHE_OK;
        }
        status = check_entry(verification, &artifact, path, ret_error);
    }
    return status;
}

aoticache_status aoticache_verification_check_signatures(aoticache_verification *verification,
                                                         aoticache_error *ret_error)
{
    aoticache_status status =
        aoticache_verification_for_each_name(verification, AOTICACHE_SIGNATURES, check_file, ret_error);
    return status == AOTICACHE_OK && !verification->options.quick ? check_revoked(verification, ret_error) : status;
}
