/*
 * cache/verify/state: the position of a verification, in the file verify.state: lines of a word and its value.
 *
 * It is replaced atomically and not synced: if it is missing or invalid, the next run starts at the beginning.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/store/scratch.h"
#include "cache/verify/verify_internal.h"

#define FIRST_LINE "aoticache-verify 1\n"
#define STATE_BYTES 2048

struct state {
    unsigned is_quick, is_repair, is_index_checked, phase, first_directory, has_cursor;
    aoticache_digest cursor;
    aoticache_verify_report report;
};

/* ---- writing ---- */

static int format(const aoticache_verification *verification, char text[STATE_BYTES])
{
    const aoticache_verify_report *report = &verification->report, *again = &verification->again;
    char cursor[AOTICACHE_DIGEST_HEX_BYTES] = "-";
    if (verification->has_cursor)
        aoticache_digest_to_hex(&verification->cursor, cursor);
    int length =
        snprintf(text, STATE_BYTES, FIRST_LINE "quick %d\nrepair %d\nindex %d\nphase %d\nfolder %u\ncursor %s\n",
                 verification->options.quick, verification->options.repair, verification->is_index_checked,
                 (int)verification->phase, verification->first_directory, cursor);
#define WRITE_COUNT(name, what) \
    length += snprintf(text + length, STATE_BYTES - (size_t)length, #name " %" PRIu64 "\n", report->name - again->name);
    AOTICACHE_VERIFY_COUNT_LIST(WRITE_COUNT)
#undef WRITE_COUNT
    return length;
}

static bool replace(aoticache_directory *directory, const char *text, size_t size)
{
    char name[80];
    cleanup_fd int tmp = -1;
    if (aoticache_directory_open_subdirectory(directory, AOTICACHE_TMP, true, &tmp, NULL) != AOTICACHE_OK)
        return false;
    aoticache_scratch_name(directory, name, sizeof name);
    const mode_t mode = aoticache_directory_file_mode(directory);
    cleanup_fd int fd = aoticache_syscall_openat(tmp, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    aoticache_directory_hand_over(directory, fd, mode);
    if (fd >= 0 && aoticache_syscall_write(fd, text, size) == 0 &&
        aoticache_syscall_renameat(tmp, name, directory->fd, AOTICACHE_VERIFY_FILE) == 0)
        return true;
    aoticache_syscall_unlinkat(tmp, name, 0);
    return false;
}

void aoticache_verification_save(aoticache_verification *verification)
{
    aoticache_directory *directory = verification->cache->directory;
    char text[STATE_BYTES];
    verification->saved_ns = aoticache_monotonic_ns();
    if (directory->read_only)
        return;
    int length = format(verification, text);
    if (!replace(directory, text, (size_t)length))
        aoticache_log(&directory->logger, AOTICACHE_LOG_INFO,
                      "%s/" AOTICACHE_VERIFY_FILE " is not writable: the next verification starts over",
                      directory->path);
}

void aoticache_verification_forget(aoticache_verification *verification)
{
    if (!verification->cache->directory->read_only)
        aoticache_syscall_unlinkat(verification->cache->directory->fd, AOTICACHE_VERIFY_FILE, 0);
}

/* ---- reading ---- */

/* Returns the value of the next line, which must begin with `word`; NULL if it does not. */
static const char *read_line(char **text, const char *word)
{
    size_t length = strlen(word);
    char *line = *text;
    char *end = line != NULL ? strchr(line, '\n') : NULL;
    *text = NULL;
    if (end == NULL || strncmp(line, word, length) != 0 || line[length] != ' ')
        return NULL;
    *end = '\0';
    *text = end + 1;
    return line + length + 1;
}

static bool read_number(char **text, const char *word, uint64_t limit, uint64_t *ret_number)
{
    const char *value = read_line(text, word);
    char *end = NULL;
    if (value == NULL || value[0] < '0' || value[0] > '9')
        return false;
    *ret_number = strtoull(value, &end, 10);
    return *end == '\0' && *ret_number <= limit;
}

static bool read_small_number(char **text, const char *word, unsigned limit, unsigned *ret_number)
{
    uint64_t number;
    if (!read_number(text, word, limit, &number))
        return false;
    *ret_number = (unsigned)number;
    return true;
}

static bool parse(char *text, struct state *state)
{
    if (strncmp(text, FIRST_LINE, strlen(FIRST_LINE)) != 0)
        return false;
    text += strlen(FIRST_LINE);
    if (!read_small_number(&text, "quick", 1, &state->is_quick) ||
        !read_small_number(&text, "repair", 1, &state->is_repair) ||
        !read_small_number(&text, "index", 1, &state->is_index_checked) ||
        !read_small_number(&text, "phase", AOTICACHE_VERIFY_LINKS, &state->phase) ||
        !read_small_number(&text, "folder", 256, &state->first_directory))
        return false;
    const char *cursor = read_line(&text, "cursor");
    state->has_cursor = cursor != NULL && strcmp(cursor, "-") != 0;
    if (cursor == NULL || (state->has_cursor && aoticache_digest_from_hex(cursor, &state->cursor) != AOTICACHE_OK))
        return false;
#define READ_COUNT(name, what)                                           \
    if (!read_number(&text, #name, UINT64_MAX / 2, &state->report.name)) \
        return false;
    AOTICACHE_VERIFY_COUNT_LIST(READ_COUNT)
#undef READ_COUNT
    return true;
}

static bool read_state(aoticache_directory *directory, struct state *state)
{
    char text[STATE_BYTES];
    struct stat found;
    cleanup_fd int fd = aoticache_directory_openat(directory, AOTICACHE_VERIFY_FILE, O_RDONLY);
    if (fd < 0 || fstat(fd, &found) != 0 ||
        aoticache_directory_trust(directory, &found, S_IFREG, AOTICACHE_VERIFY_FILE, NULL) != AOTICACHE_OK)
        return false;
    ssize_t size;
    do
        size = read(fd, text, sizeof text - 1);
    while (size < 0 && errno == EINTR);
    if (size < 0)
        return false;
    text[size] = '\0';
    return parse(text, state);
}

void aoticache_verification_restore(aoticache_verification *verification)
{
    struct state state = {.is_quick = 0};
    if (!read_state(verification->cache->directory, &state) || state.is_quick != verification->options.quick)
        return;
    /* Problems that were found and not repaired would not be repaired by a part that continues after them. */
    if (state.is_repair != verification->options.repair && aoticache_verify_report_problems(&state.report) > 0)
        return;
    verification->is_index_checked = state.is_index_checked != 0;
    verification->phase = (aoticache_verify_phase)state.phase;
    verification->first_directory = state.first_directory;
    verification->has_cursor = state.has_cursor != 0;
    verification->cursor = state.cursor;
    verification->report = state.report;
    verification->report.resumed_objects = state.report.objects;
    verification->report.resumed_bytes = state.report.bytes;
}
