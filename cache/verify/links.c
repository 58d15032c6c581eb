/*
 * cache/verify/links: checks artifacts/, whose directories contain hard links to objects under the names that a library
 * expects next to itself, and marks/, one small file for each key that is pinned or tagged.
 *
 * A directory of links is recreated if it is missing or stale, so a wrong one is quarantined as a whole. A directory whose
 * artifact has no entry is a leftover: a collection removes it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/files/listing.h"
#include "base/names.h"
#include "cache/pins/pins_internal.h"
#include "cache/store/lock.h"
#include "cache/verify/verify_internal.h"

static bool is_digest_name(const char *name)
{
    return strlen(name) == AOTICACHE_DIGEST_HEX_BYTES - 1 &&
           strspn(name, "0123456789abcdef") == AOTICACHE_DIGEST_HEX_BYTES - 1;
}

/* Iterates over the names in a directory of the root that not every cache has. */
aoticache_status aoticache_verification_for_each_name(aoticache_verification *verification, const char *path,
                                                      aoticache_verification_name_fn check, aoticache_error *ret_error)
{
    cleanup_dir DIR *listing = NULL;
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_verification_open_listing(verification, path, &listing, &detail);
    if (status == AOTICACHE_DENIED)
        aoticache_verification_note_unreadable(verification, path, detail.message);
    if (listing == NULL) /* a directory that is not trusted was reported with the root */
        return status == AOTICACHE_OK || status == AOTICACHE_DENIED
                   ? AOTICACHE_OK
                   : aoticache_error_set(ret_error, status, "%s: %s", path, detail.message);
    for (const char *name; (name = aoticache_listing_next(listing)) != NULL;) {
        status = check(verification, dirfd(listing), name, ret_error);
        if (status != AOTICACHE_OK || !aoticache_verification_poll(verification, verification->report.objects))
            return status;
    }
    if (errno != 0) {
        aoticache_error_set_errno(&detail, errno, "cannot list all of it");
        aoticache_verification_note_unreadable(verification, path, detail.message);
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_verification_check_name(aoticache_verification *verification, int subdirectory,
                                                   const char *path, const char *name, mode_t type, bool *ret_usable,
                                                   aoticache_error *ret_error)
{
    struct stat found;
    char full[512];
    *ret_usable = false;
    snprintf(full, sizeof full, "%s/%s", path, name);
    if (fstatat(subdirectory, name, &found, AT_SYMLINK_NOFOLLOW) != 0) {
        char text[128];
        if (errno != ENOENT)
            aoticache_verification_note_unreadable(verification, full, strerror_r(errno, text, sizeof text));
        return AOTICACHE_OK;
    }
    *ret_usable = is_digest_name(name) &&
                  aoticache_directory_trust(verification->cache->directory, &found, type, full, NULL) == AOTICACHE_OK;
    return *ret_usable ? AOTICACHE_OK : aoticache_verification_report_foreign(verification, full, ret_error);
}

/* ---- links ---- */

static const aoticache_manifest_file *find_file(const aoticache_manifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->file_count; i++)
        if (strcmp(manifest->files[i].name, name) == 0)
            return &manifest->files[i];
    return NULL;
}

/* Returns OK; CORRUPT; DENIED if it cannot be examined. */
static aoticache_status check_link(const aoticache_directory *directory, int subdirectory, const char *name,
                                   const aoticache_digest *digest, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat link, object;
    aoticache_object_path(digest, path);
    if (fstatat(subdirectory, name, &link, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT) {
            aoticache_error_set_errno(ret_error, errno, "cannot examine %s", name);
            return AOTICACHE_DENIED;
        }
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s is missing", name);
    }
    /* A missing object is reported as missing, and one that cannot be examined as unreadable. */
    if (fstatat(directory->fd, path, &object, AT_SYMLINK_NOFOLLOW) != 0 ||
        (link.st_dev == object.st_dev && link.st_ino == object.st_ino))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s is not the object of the artifact", name);
}

/* Gives the name of a file in the directory that does not belong to the artifact; returns false if there is none. */
static bool has_other_file(int directory, const aoticache_manifest *manifest, char ret_name[256])
{
    cleanup_dir DIR *listing = aoticache_directory_list(directory);
    for (const char *name; listing != NULL && (name = aoticache_listing_next(listing)) != NULL;) {
        if (find_file(manifest, name) != NULL)
            continue;
        snprintf(ret_name, 256, "%s", name);
        return true;
    }
    return false;
}

/* Returns OK, NOT_FOUND (there is nothing to compare with), CORRUPT with the error, DENIED (it cannot be examined). */
static aoticache_status compare_directory(aoticache_verification *verification, int parent, const char *name,
                                          aoticache_error *ret_error)
{
    aoticache_cache *cache = verification->cache;
    aoticache_digest artifact;
    aoticache_manifest *manifest = NULL;
    uint64_t bytes;
    char other[256];
    cleanup_fd int subdirectory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (subdirectory < 0 && errno != ENOENT && !aoticache_object_errno_is_damage(errno)) {
        aoticache_error_set_errno(ret_error, errno, "it cannot be opened");
        return AOTICACHE_DENIED;
    }
    if (subdirectory < 0 || aoticache_digest_from_hex(name, &artifact) != AOTICACHE_OK ||
        (verification->index != NULL &&
         aoticache_index_has_object(verification->index, &artifact, NULL) != AOTICACHE_OK) ||
        aoticache_cache_load_manifest(cache->directory, &artifact, &manifest, &bytes, NULL) != AOTICACHE_OK)
        return AOTICACHE_NOT_FOUND;
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < manifest->file_count; i++)
        status =
            check_link(cache->directory, subdirectory, manifest->files[i].name, &manifest->files[i].digest, ret_error);
    if (status == AOTICACHE_OK && has_other_file(subdirectory, manifest, other))
        status = aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s is not a file of the artifact", other);
    aoticache_manifest_free(manifest);
    return status;
}

static aoticache_status repair_directory(aoticache_verification *verification, int parent, const char *name,
                                         aoticache_error *ret_error)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_directory *directory = verification->cache->directory;
    aoticache_status status = aoticache_lock_store(directory, true, &lock, ret_error);
    if (status == AOTICACHE_OK && compare_directory(verification, parent, name, NULL) == AOTICACHE_CORRUPT) {
        status = aoticache_directory_quarantine(directory, parent, name, name, ret_error);
        /* overlayfs: a directory of a lower layer cannot be renamed. The layer keeps it, as quarantine/ would. */
        if (status == AOTICACHE_IO && errno == EXDEV && aoticache_directory_remove_tree(parent, name) == 0)
            status = AOTICACHE_OK;
        verification->report.repaired += status == AOTICACHE_OK ? 1 : 0;
    }
    aoticache_lock_release(&lock);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static aoticache_status check_directory(aoticache_verification *verification, int parent, const char *name,
                                        aoticache_error *ret_error)
{
    bool is_usable;
    char path[512];
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_verification_check_name(verification, parent, AOTICACHE_ARTIFACTS, name,
                                                                S_IFDIR, &is_usable, ret_error);
    if (status != AOTICACHE_OK || !is_usable || verification->options.quick)
        return status;
    snprintf(path, sizeof path, AOTICACHE_ARTIFACTS "/%s", name);
    status = compare_directory(verification, parent, name, &detail);
    if (status == AOTICACHE_DENIED)
        aoticache_verification_note_unreadable(verification, path, detail.message);
    /* Compared twice: another process may have been replacing it. */
    if (status != AOTICACHE_CORRUPT || compare_directory(verification, parent, name, &detail) != AOTICACHE_CORRUPT)
        return AOTICACHE_OK;
    verification->report.wrong_links++;
    aoticache_verification_report_finding(verification, "link", path, detail.message);
    return verification->options.repair ? repair_directory(verification, parent, name, ret_error) : AOTICACHE_OK;
}

aoticache_status aoticache_verification_check_links(aoticache_verification *verification, aoticache_error *ret_error)
{
    return aoticache_verification_for_each_name(verification, AOTICACHE_ARTIFACTS, check_directory, ret_error);
}

/* ---- pins and tags ---- */

struct known_pins {
    aoticache_key key;
    bool is_pinned;
    char tag[AOTICACHE_MAX_TAG_BYTES]; /* any of its tags */
};

static bool copy_pins(void *user, const aoticache_pins *pins)
{
    struct known_pins *known = user;
    if (!aoticache_digest_equal(&pins->key, &known->key))
        return true;
    known->is_pinned = pins->is_pinned;
    if (pins->tag_count > 0)
        snprintf(known->tag, sizeof known->tag, "%s", pins->tags[0]);
    return false;
}

/* Repeats an existing setting, which makes the change quarantine the damaged file and rewrite it from the index. */
static aoticache_status repair_pin_file(aoticache_verification *verification, int subdirectory, const char *name,
                                        const aoticache_key *key, aoticache_error *ret_error)
{
    aoticache_cache *cache = verification->cache;
    struct known_pins known = {.key = *key};
    aoticache_status status = aoticache_cache_list_pins(cache, NULL, copy_pins, &known, ret_error);
    if (status == AOTICACHE_OK && known.is_pinned)
        status = aoticache_cache_change_pins(cache, key, 1, AOTICACHE_PIN, NULL, NULL, ret_error);
    else if (status == AOTICACHE_OK && known.tag[0] != '\0')
        status = aoticache_cache_change_pins(cache, key, 1, AOTICACHE_TAG, known.tag, NULL, ret_error);
    else if (status == AOTICACHE_OK)
        status = aoticache_directory_quarantine(cache->directory, subdirectory, name, name, ret_error);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static aoticache_status check_pin_file(aoticache_verification *verification, int subdirectory, const char *name,
                                       aoticache_error *ret_error)
{
    bool is_usable;
    char path[512];
    aoticache_key key;
    aoticache_pin_state state;
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_verification_check_name(verification, subdirectory, AOTICACHE_PINS, name,
                                                                S_IFREG, &is_usable, ret_error);
    if (status != AOTICACHE_OK || !is_usable || verification->options.quick ||
        aoticache_digest_from_hex(name, &key) != AOTICACHE_OK)
        return status;
    status = aoticache_pin_file_read(verification->cache->directory, &key, &state, &detail);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    snprintf(path, sizeof path, AOTICACHE_PINS "/%s", name);
    if (status == AOTICACHE_DENIED)
        aoticache_verification_note_unreadable(verification, path, detail.message);
    if (status != AOTICACHE_CORRUPT)
        return status == AOTICACHE_DENIED ? AOTICACHE_OK : aoticache_error_set(ret_error, status, "%s", detail.message);
    verification->report.wrong_marks++;
    aoticache_verification_report_finding(verification, "mark", path, detail.message);
    return verification->options.repair ? repair_pin_file(verification, subdirectory, name, &key, ret_error)
                                        : AOTICACHE_OK;
}

aoticache_status aoticache_verification_check_pins(aoticache_verification *verification, aoticache_error *ret_error)
{
    return aoticache_verification_for_each_name(verification, AOTICACHE_PINS, check_pin_file, ret_error);
}
