/*
 * cache/verify/batch: lists some directories of objects/, and adds the rows of the index to each object.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/files/listing.h"
#include "base/names.h"
#include "cache/verify/verify_internal.h"
#include "index/entries/integrity.h"

bool aoticache_verification_is_done(const aoticache_verification *verification, const aoticache_digest *digest)
{
    return verification->has_cursor && memcmp(digest->bytes, verification->cursor.bytes, sizeof digest->bytes) <= 0;
}

static bool add_item(aoticache_verify_batch *batch, const aoticache_digest *digest)
{
    if (!AOTICACHE_ARRAY_RESERVE(batch->items, batch->capacity, batch->count + 1))
        return false;
    batch->items[batch->count++] = (aoticache_verify_item){.digest = *digest, .named_bytes = AOTICACHE_OBJECT_ANY_SIZE};
    return true;
}

/* Adds another file. detail: NULL for a foreign file. Returns false if memory is short. */
static bool add_odd(aoticache_verify_batch *batch, const char *path, const char *detail)
{
    if (!AOTICACHE_ARRAY_RESERVE(batch->odd, batch->odd_capacity, batch->odd_count + 1))
        return false;
    aoticache_verify_odd *added = &batch->odd[batch->odd_count++]; /* freed with the others, complete or not */
    *added = (aoticache_verify_odd){.path = strdup(path), .detail = detail != NULL ? strdup(detail) : NULL};
    return added->path != NULL && (detail == NULL || added->detail != NULL);
}

static bool add_named(void *user, const aoticache_digest *digest, uint64_t bytes)
{
    aoticache_verify_batch *batch = user;
    batch->is_out_of_memory = !aoticache_object_array_add(&batch->named, digest, bytes);
    return !batch->is_out_of_memory;
}

static bool add_claim(void *user, const aoticache_index_claim *claim)
{
    aoticache_verify_batch *batch = user;
    batch->is_out_of_memory = !AOTICACHE_ARRAY_RESERVE(batch->claims, batch->claim_capacity, batch->claim_count + 1);
    if (batch->is_out_of_memory)
        return false;
    aoticache_verify_claim *added = &batch->claims[batch->claim_count];
    *added = (aoticache_verify_claim){.artifact = claim->artifact,
                                      .key = claim->key,
                                      .library = claim->library,
                                      .entry_id = claim->entry_id,
                                      .library_bytes = claim->library_bytes,
                                      .content_offset = claim->content_offset,
                                      .file_count = claim->file_count,
                                      .guard = strdup(claim->guard)};
    memcpy(added->requirements, claim->requirements, sizeof added->requirements);
    batch->is_out_of_memory = added->guard == NULL;
    batch->claim_count += batch->is_out_of_memory ? 0 : 1;
    return !batch->is_out_of_memory;
}

static bool add_part(void *user, const aoticache_digest *artifact, const aoticache_digest *object, uint64_t bytes)
{
    aoticache_verify_batch *batch = user;
    batch->is_out_of_memory = !AOTICACHE_ARRAY_RESERVE(batch->parts, batch->part_capacity, batch->part_count + 1);
    if (batch->is_out_of_memory)
        return false;
    batch->parts[batch->part_count++] =
        (aoticache_verify_part){.artifact = *artifact, .object = *object, .bytes = bytes};
    return true;
}

void aoticache_verify_batch_clear(aoticache_verify_batch *batch)
{
    for (size_t i = 0; i < batch->claim_count; i++)
        free(batch->claims[i].guard);
    for (size_t i = 0; i < batch->odd_count; i++) {
        free(batch->odd[i].path);
        free(batch->odd[i].detail);
    }
    batch->count = batch->named.count = batch->claim_count = batch->part_count = batch->odd_count = 0;
}

void aoticache_verify_batch_release(aoticache_verify_batch *batch)
{
    aoticache_verify_batch_clear(batch);
    free(batch->items);
    free(batch->named.items);
    free(batch->claims);
    free(batch->parts);
    free(batch->odd);
}

static int by_digest(const void *left, const void *right)
{
    const aoticache_verify_item *a = left, *b = right;
    return memcmp(a->digest.bytes, b->digest.bytes, sizeof a->digest.bytes);
}

/* Sets the rows of the index in each object. */
static void match_rows(aoticache_verify_batch *batch)
{
    size_t named = 0, claim = 0, part = 0;
    for (size_t i = 0; i < batch->count; i++) {
        aoticache_verify_item *item = &batch->items[i];
        const uint8_t *digest = item->digest.bytes;
        while (named < batch->named.count && memcmp(batch->named.items[named].digest.bytes, digest, 32) < 0)
            named++;
        if (named < batch->named.count && aoticache_digest_equal(&batch->named.items[named].digest, &item->digest))
            item->named_bytes = batch->named.items[named].bytes;
        while (claim < batch->claim_count && memcmp(batch->claims[claim].artifact.bytes, digest, 32) < 0)
            claim++;
        item->claims = batch->claims + claim;
        while (claim + item->claim_count < batch->claim_count &&
               aoticache_digest_equal(&item->claims[item->claim_count].artifact, &item->digest))
            item->claim_count++;
        while (part < batch->part_count && memcmp(batch->parts[part].artifact.bytes, digest, 32) < 0)
            part++;
        item->parts = batch->parts + part;
        while (part + item->part_count < batch->part_count &&
               aoticache_digest_equal(&item->parts[item->part_count].artifact, &item->digest))
            item->part_count++;
    }
}

static aoticache_status check_memory(const aoticache_verify_batch *batch, aoticache_error *ret_error)
{
    return batch->is_out_of_memory
               ? aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of objects")
               : AOTICACHE_OK;
}

aoticache_status aoticache_verify_batch_read_entries(aoticache_index *index, const aoticache_digest *first,
                                                     const aoticache_digest *last, aoticache_verify_batch *batch,
                                                     aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_list_claims_between(index, first, last, add_claim, batch, ret_error);
    if (status == AOTICACHE_OK && !batch->is_out_of_memory)
        status = aoticache_index_list_parts_between(index, first, last, add_part, batch, ret_error);
    return status == AOTICACHE_OK ? check_memory(batch, ret_error) : status;
}

aoticache_status aoticache_verification_read_rows(const aoticache_verification *verification, unsigned first,
                                                  unsigned last, aoticache_verify_batch *batch,
                                                  aoticache_error *ret_error)
{
    const aoticache_digest from = {.bytes = {(uint8_t)first}};
    memset(batch->last.bytes, 0xff, sizeof batch->last.bytes);
    batch->last.bytes[0] = (uint8_t)last;
    aoticache_status status = AOTICACHE_OK;
    if (verification->index != NULL)
        status =
            aoticache_index_list_objects_between(verification->index, &from, &batch->last, add_named, batch, ret_error);
    if (status == AOTICACHE_OK)
        status = check_memory(batch, ret_error);
    if (status == AOTICACHE_OK && verification->index != NULL && !verification->options.quick)
        status = aoticache_verify_batch_read_entries(verification->index, &from, &batch->last, batch, ret_error);
    if (batch->count > 1)
        qsort(batch->items, batch->count, sizeof *batch->items, by_digest);
    if (status == AOTICACHE_OK)
        match_rows(batch);
    return status;
}

/* ---- directories ---- */

static bool is_hex(const char *name, size_t length)
{
    return strlen(name) == length && strspn(name, "0123456789abcdef") == length;
}

/* Returns whether objects/ can be entered: if not, none of its 256 directories can be examined, and check_top() reports that
 * once. */
static bool can_enter_objects(const aoticache_verification *verification)
{
    return faccessat(verification->cache->directory->fd, AOTICACHE_OBJECTS, X_OK, AT_EACCESS) == 0 || errno != EACCES;
}

aoticache_status aoticache_verification_list_directory(aoticache_verification *verification, unsigned directory,
                                                       aoticache_verify_batch *batch, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_DIRECTORY_BYTES];
    cleanup_dir DIR *listing = NULL;
    aoticache_error detail = {.message = ""};
    bool has_memory = true;
    snprintf(path, sizeof path, AOTICACHE_OBJECTS "/%02x", directory & 0xff);
    aoticache_status status = aoticache_verification_open_listing(verification, path, &listing, &detail);
    if (status == AOTICACHE_DENIED && can_enter_objects(verification))
        has_memory = add_odd(batch, path, detail.message);
    else if (status != AOTICACHE_OK && status != AOTICACHE_DENIED)
        return aoticache_error_set(ret_error, status, "%s: %s", path, detail.message);
    for (const char *name; has_memory && listing != NULL && (name = aoticache_listing_next(listing)) != NULL;) {
        char hex[AOTICACHE_DIGEST_HEX_BYTES], foreign[512];
        aoticache_digest digest;
        snprintf(hex, sizeof hex, "%02x%.62s", directory & 0xff, name);
        snprintf(foreign, sizeof foreign, "%s/%s", path, name);
        if (!is_hex(name, AOTICACHE_OBJECT_NAME_BYTES - 1) || aoticache_digest_from_hex(hex, &digest) != AOTICACHE_OK)
            has_memory = add_odd(batch, foreign, NULL);
        else if (!aoticache_verification_is_done(verification, &digest))
            has_memory = add_item(batch, &digest);
    }
    if (has_memory && listing != NULL && errno != 0) {
        aoticache_error_set_errno(&detail, errno, "cannot list all of it");
        has_memory = add_odd(batch, path, detail.message);
    }
    return has_memory ? AOTICACHE_OK
                      : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of objects");
}

aoticache_status aoticache_verification_check_top(aoticache_verification *verification, aoticache_error *ret_error)
{
    const aoticache_directory *directory = verification->cache->directory;
    cleanup_dir DIR *listing = NULL;
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_verification_open_listing(verification, AOTICACHE_OBJECTS, &listing, &detail);
    if (status != AOTICACHE_OK && status != AOTICACHE_DENIED)
        return aoticache_error_set(ret_error, status, AOTICACHE_OBJECTS ": %s", detail.message);
    if (status == AOTICACHE_DENIED || !can_enter_objects(verification))
        aoticache_verification_note_unreadable(verification, AOTICACHE_OBJECTS,
                                               status != AOTICACHE_OK ? detail.message
                                                                      : "it cannot be entered: no permission");
    status = AOTICACHE_OK;
    for (const char *name;
         status == AOTICACHE_OK && listing != NULL && (name = aoticache_listing_next(listing)) != NULL;) {
        char path[512];
        struct stat found;
        snprintf(path, sizeof path, AOTICACHE_OBJECTS "/%s", name);
        if (fstatat(directory->fd, path, &found, AT_SYMLINK_NOFOLLOW) != 0)
            continue; /* gone; or reported above */
        if (!is_hex(name, 2) || aoticache_directory_trust(directory, &found, S_IFDIR, path, NULL) != AOTICACHE_OK)
            status = aoticache_verification_report_foreign(verification, path, ret_error);
    }
    return status;
}
