/*
 * cache/pins/file: the pins and tags of one key as a file, marks/<64 digits>: one line of JSON (docs/pins-and-tags.md),
 * written in tmp/ and renamed. Also loads all these files into a new index.
 *
 * The files are untrusted, so every part is checked. Unknown members are ignored: a later program may have written them.
 */
#include "cache/pins/pins_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/files/listing.h"
#include "base/log.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "base/text/json.h"
#include "cache/store/object.h"
#include "cache/store/scratch.h"
#include "index/entries/pins.h"

#define MAX_FILE_BYTES 16384 /* the longest written file has less than 5 KiB */

/* ---- in memory ---- */

aoticache_status aoticache_tag_check(const char *tag, aoticache_error *ret_error)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/";
    if (tag == NULL || tag[0] == '\0')
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a tag is empty");
    if (strnlen(tag, AOTICACHE_MAX_TAG_BYTES) == AOTICACHE_MAX_TAG_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "tag %.16s...: it has more than %d characters", tag,
                                   AOTICACHE_MAX_TAG_BYTES - 1);
    if (tag[strspn(tag, allowed)] != '\0')
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "tag '%s': only letters, digits, '.', '_', '-', ':' and '/' are allowed", tag);
    if (tag[0] == '-') /* the tools would parse it as an option */
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "tag '%s': it begins with '-'", tag);
    return AOTICACHE_OK;
}

/* Returns whether the key is neither pinned nor tagged. Such a key has no file. */
static bool pin_state_is_empty(const aoticache_pin_state *state)
{
    return !state->is_pinned && state->tag_count == 0;
}

aoticache_status aoticache_pin_state_add_tag(aoticache_pin_state *state, const char *tag, aoticache_error *ret_error)
{
    size_t at = 0;
    while (at < state->tag_count && strcmp(state->tags[at], tag) < 0)
        at++;
    if (at < state->tag_count && strcmp(state->tags[at], tag) == 0)
        return AOTICACHE_OK;
    if (state->tag_count == AOTICACHE_MAX_TAGS)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "tag %s: the key already has %d tags, the maximum; remove one first", tag,
                                   AOTICACHE_MAX_TAGS);
    memmove(state->tags[at + 1], state->tags[at], (state->tag_count - at) * sizeof state->tags[0]);
    memset(state->tags[at], 0, sizeof state->tags[at]);
    memcpy(state->tags[at], tag, strlen(tag));
    state->tag_count++;
    return AOTICACHE_OK;
}

void aoticache_pin_state_remove_tag(aoticache_pin_state *state, const char *tag)
{
    for (size_t i = 0; i < state->tag_count; i++) {
        if (strcmp(state->tags[i], tag) != 0)
            continue;
        state->tag_count--;
        memmove(state->tags[i], state->tags[i + 1], (state->tag_count - i) * sizeof state->tags[0]);
        return;
    }
}

/* ---- reading ---- */

static aoticache_status refuse_file(const char *name, const char *why, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "pins and tags of %s: %s", name, why);
}

static aoticache_status read_tags(const json_t *tags, const char *name, aoticache_pin_state *state,
                                  aoticache_error *ret_error)
{
    if (!json_is_array(tags))
        return refuse_file(name, "\"tags\" is missing or not an array", ret_error);
    for (size_t i = 0; i < json_array_size(tags); i++) {
        const json_t *tag = json_array_get(tags, i);
        if (!json_is_string(tag) || aoticache_tag_check(json_string_value(tag), NULL) != AOTICACHE_OK ||
            aoticache_pin_state_add_tag(state, json_string_value(tag), NULL) != AOTICACHE_OK)
            return refuse_file(name, "\"tags\" holds something that is not a tag, or too many tags", ret_error);
    }
    return AOTICACHE_OK;
}

static aoticache_status read_members(const json_t *object, const char *name, aoticache_pin_state *state,
                                     aoticache_error *ret_error)
{
    const char *key = json_string_value(json_object_get(object, "key"));
    const json_t *pinned = json_object_get(object, "pinned");
    if (key == NULL || strcmp(key, name) != 0)
        return refuse_file(name, "\"key\" differs from the name of the file", ret_error);
    if (!json_is_boolean(pinned))
        return refuse_file(name, "\"pinned\" is missing or not true or false", ret_error);
    state->is_pinned = json_is_true(pinned);
    return read_tags(json_object_get(object, "tags"), name, state, ret_error);
}

static aoticache_status parse_file(const char *text, size_t size, const char *name, aoticache_pin_state *state,
                                   aoticache_error *ret_error)
{
    json_error_t json_error;
    json_t *object = aoticache_json_parse(text, size, JSON_REJECT_DUPLICATES, &json_error);
    if (object == NULL && aoticache_json_is_out_of_memory(&json_error))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "pins and tags of %s: out of memory", name);
    if (object == NULL)
        return refuse_file(name, "it is not JSON", ret_error);
    aoticache_status status = read_members(object, name, state, ret_error);
    json_decref(object);
    return status;
}

/* Reads a file. *ret_size: bytes read, at most MAX_FILE_BYTES. */
static aoticache_status read_bytes(aoticache_directory *directory, const char *name, char *text, size_t *ret_size,
                                   aoticache_error *ret_error)
{
    char path[sizeof AOTICACHE_PINS + 1 + AOTICACHE_PIN_FILE_NAME_BYTES];
    struct stat found;
    aoticache_error detail = {.message = ""};
    snprintf(path, sizeof path, AOTICACHE_PINS "/%s", name);
    cleanup_fd int fd = aoticache_directory_openat(directory, path, O_RDONLY);
    if (fd < 0 && errno == ENOENT)
        return AOTICACHE_NOT_FOUND;
    if (fd < 0 && !aoticache_object_errno_is_damage(errno)) /* that does not mean that the file is damaged */
        return aoticache_error_set_errno(ret_error, errno, "cannot open the pins of %s", name);
    if (fd >= 0 && fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot examine the pins of %s", name);
    if (fd < 0)
        return refuse_file(name, errno == ELOOP ? "it is a symbolic link" : "it cannot be opened", ret_error);
    if (aoticache_directory_trust(directory, &found, S_IFREG, path, &detail) != AOTICACHE_OK)
        return refuse_file(name, detail.message, ret_error);
    ssize_t got;
    do
        got = pread(fd, text, MAX_FILE_BYTES, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read the pins of %s", name);
    *ret_size = (size_t)got;
    return AOTICACHE_OK;
}

aoticache_status aoticache_pin_file_read(aoticache_directory *directory, const aoticache_key *key,
                                         aoticache_pin_state *ret_state, aoticache_error *ret_error)
{
    char name[AOTICACHE_PIN_FILE_NAME_BYTES];
    char text[MAX_FILE_BYTES];
    size_t size = 0;
    aoticache_pin_state state = {.key = *key};
    aoticache_digest_to_hex(key, name);
    aoticache_status status = read_bytes(directory, name, text, &size, ret_error);
    if (status == AOTICACHE_OK)
        status = parse_file(text, size, name, &state, ret_error);
    if (status == AOTICACHE_OK)
        *ret_state = state;
    return status;
}

/* ---- writing ---- */

/* Writes the text; tags need no escapes. */
static size_t format_file(const aoticache_pin_state *state, const char *name, char text[MAX_FILE_BYTES])
{
    size_t used = (size_t)snprintf(text, MAX_FILE_BYTES, "{\"key\":\"%s\",\"pinned\":%s,\"tags\":[", name,
                                   state->is_pinned ? "true" : "false");
    for (size_t i = 0; i < state->tag_count; i++)
        used += (size_t)snprintf(text + used, MAX_FILE_BYTES - used, "%s\"%s\"", i > 0 ? "," : "", state->tags[i]);
    return used + (size_t)snprintf(text + used, MAX_FILE_BYTES - used, "]}\n");
}

/* From this number of files on, one syncfs() is cheaper than an fsync() of each. */
#define MANY_FILES 16

typedef char temporary_name[80]; /* "" if there is nothing to write: the file is removed */

static aoticache_status write_temporary(const aoticache_directory *directory, int tmp_fd,
                                        const aoticache_pin_state *state, const char *temporary, bool syncs,
                                        aoticache_error *ret_error)
{
    char text[MAX_FILE_BYTES], name[AOTICACHE_PIN_FILE_NAME_BYTES];
    const mode_t mode = aoticache_directory_file_mode(directory);
    aoticache_digest_to_hex(&state->key, name);
    const size_t size = format_file(state, name, text);
    cleanup_fd int fd = aoticache_syscall_openat(tmp_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    aoticache_directory_hand_over(directory, fd, mode);
    if (fd < 0 || aoticache_syscall_write(fd, text, size) != 0 || (syncs && aoticache_syscall_fsync(fd) != 0))
        return aoticache_error_set_errno(ret_error, errno, "cannot write the pins of %s", name);
    return AOTICACHE_OK;
}

static aoticache_status write_temporaries(aoticache_directory *directory, int tmp_fd,
                                          const aoticache_pin_state *const *states, temporary_name *temporaries,
                                          size_t count, aoticache_error *ret_error)
{
    const bool are_many = count >= MANY_FILES;
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        if (pin_state_is_empty(states[i]))
            continue;
        aoticache_scratch_name(directory, temporaries[i], sizeof temporaries[i]);
        status = write_temporary(directory, tmp_fd, states[i], temporaries[i], !are_many, ret_error);
    }
    if (status == AOTICACHE_OK && are_many && (aoticache_syscall_hook_ask("syncfs", NULL) != 0 || syncfs(tmp_fd) != 0))
        status = aoticache_error_set_errno(ret_error, errno, "cannot make pins in %s durable", directory->path);
    return status;
}

/* Renames the temporary file to the final name, or removes the file. */
static aoticache_status replace_file(int tmp_fd, int directory_fd, const aoticache_pin_state *state, char *temporary,
                                     aoticache_error *ret_error)
{
    char name[AOTICACHE_PIN_FILE_NAME_BYTES];
    aoticache_digest_to_hex(&state->key, name);
    if (temporary[0] == '\0')
        return aoticache_syscall_unlinkat(directory_fd, name, 0) == 0 || errno == ENOENT
                   ? AOTICACHE_OK
                   : aoticache_error_set_errno(ret_error, errno, "cannot remove the pins of %s", name);
    if (aoticache_syscall_renameat(tmp_fd, temporary, directory_fd, name) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot write the pins of %s", name);
    temporary[0] = '\0';
    return AOTICACHE_OK;
}

aoticache_status aoticache_pin_files_write(aoticache_directory *directory, int directory_fd,
                                           const aoticache_pin_state *const *states, size_t count,
                                           aoticache_error *ret_error)
{
    cleanup_fd int tmp_fd = -1;
    cleanup_free temporary_name *temporaries = calloc(count, sizeof *temporaries);
    if (temporaries == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for pins");
    aoticache_status status = aoticache_directory_open_subdirectory(directory, AOTICACHE_TMP, true, &tmp_fd, ret_error);
    if (status == AOTICACHE_OK)
        status = write_temporaries(directory, tmp_fd, states, temporaries, count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++)
        status = replace_file(tmp_fd, directory_fd, states[i], temporaries[i], ret_error);
    for (size_t i = 0; tmp_fd >= 0 && i < count; i++)
        if (temporaries[i][0] != '\0')
            aoticache_syscall_unlinkat(tmp_fd, temporaries[i], 0);
    if (status == AOTICACHE_OK && aoticache_syscall_fsync(directory_fd) != 0)
        status = aoticache_error_set_errno(ret_error, errno, "cannot make pins in %s durable", directory->path);
    return status;
}

/* ---- loading into the index ---- */

aoticache_status aoticache_pin_states_record(aoticache_index *index, const aoticache_pin_state *const *states,
                                             size_t count, aoticache_error *ret_error)
{
    cleanup_free aoticache_index_pins *rows = calloc(count, sizeof *rows);
    cleanup_free const char **tags = calloc(count * AOTICACHE_MAX_TAGS, sizeof *tags);
    if (rows == NULL || tags == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for pins");
    for (size_t i = 0; i < count; i++) {
        const char **own = tags + i * AOTICACHE_MAX_TAGS;
        for (size_t k = 0; k < states[i]->tag_count; k++)
            own[k] = states[i]->tags[k];
        rows[i] = (aoticache_index_pins){
            .key = states[i]->key, .is_pinned = states[i]->is_pinned, .tags = own, .tag_count = states[i]->tag_count};
    }
    return aoticache_index_put_pins(index, rows, count, ret_error);
}

/* Loads a file. A file that cannot be used is reported in the log and moved to quarantine/; the others are still loaded. */
static aoticache_status load_file(aoticache_directory *directory, int directory_fd, const char *name,
                                  aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_key key;
    aoticache_pin_state state;
    aoticache_error detail = {.message = ""};
    if (aoticache_digest_from_hex(name, &key) != AOTICACHE_OK)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_pin_file_read(directory, &key, &state, &detail);
    if (status == AOTICACHE_OK)
        return aoticache_pin_states_record(index, (const aoticache_pin_state *[]){&state}, 1, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    if (status == AOTICACHE_DENIED) { /* it stays, for users who may read it */
        aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING, "%s: the new index does not have it", detail.message);
        return AOTICACHE_OK;
    }
    if (status != AOTICACHE_CORRUPT)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING,
                  "%s; it is moved to " AOTICACHE_QUARANTINE "/; pin or tag the key again", detail.message);
    status = aoticache_directory_quarantine(directory, directory_fd, name, name, &detail);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING, "%s", detail.message);
    return AOTICACHE_OK;
}

aoticache_status aoticache_cache_load_pins(aoticache_directory *directory, aoticache_index *index,
                                           aoticache_error *ret_error)
{
    cleanup_fd int subdirectory = -1;
    aoticache_status status =
        aoticache_directory_open_subdirectory(directory, AOTICACHE_PINS, false, &subdirectory, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    cleanup_dir DIR *listing = aoticache_directory_list(subdirectory);
    if (listing == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s/" AOTICACHE_PINS, directory->path);
    for (const char *name; (name = aoticache_listing_next(listing)) != NULL;) {
        status = load_file(directory, subdirectory, name, index, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return errno == 0 ? AOTICACHE_OK
                      : aoticache_error_set_errno(ret_error, errno, "cannot list %s/" AOTICACHE_PINS, directory->path);
}
