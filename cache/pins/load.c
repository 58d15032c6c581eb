/*
 * cache/pins/load: all marks of the store into an index that was built anew.
 */
#include "cache/pins/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "index/entries/pins.h"

static aoticache_status record(aoticache_index *index, const aoticache_pin_state *state, aoticache_error *ret_error)
{
    const char *tags[AOTICACHE_MAX_TAGS];
    for (size_t i = 0; i < state->tag_count; i++)
        tags[i] = state->tags[i];
    aoticache_index_pins mark = {
        .key = state->key, .is_pinned = state->is_pinned, .tags = tags, .tag_count = state->tag_count};
    return aoticache_index_put_pins(index, &mark, 1, ret_error);
}

/* A mark that cannot be read is lost, and said to be; all else goes on. */
static aoticache_status load_one(aoticache_directory *directory, int folder_fd, const char *name,
                                 aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_key key;
    aoticache_pin_state state;
    aoticache_error detail = {.message = ""};
    if (aoticache_digest_from_hex(name, &key) != AOTICACHE_OK)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_pin_file_read(directory, &key, &state, &detail);
    if (status == AOTICACHE_OK)
        return record(index, &state, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    if (status == AOTICACHE_DENIED) { /* it stays, for who may read it */
        aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING, "%s: the new index does not know it", detail.message);
        return AOTICACHE_OK;
    }
    if (status != AOTICACHE_CORRUPT)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING,
                  "%s; it is moved to " AOTICACHE_QUARANTINE "/: pin or tag the key again", detail.message);
    status = aoticache_directory_quarantine(directory, folder_fd, name, name, &detail);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING, "%s", detail.message);
    return AOTICACHE_OK;
}

aoticache_status aoticache_cache_load_pins(aoticache_directory *directory, aoticache_index *index,
                                            aoticache_error *ret_error)
{
    cleanup_fd int folder = -1;
    aoticache_status status =
        aoticache_directory_open_folder(directory, AOTICACHE_MARKS, false, &folder, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (listing == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s/" AOTICACHE_MARKS, directory->path);
    for (struct dirent *item; status == AOTICACHE_OK && (item = readdir(listing)) != NULL;)
        status = load_one(directory, folder, item->d_name, index, ret_error);
    return status;
}
