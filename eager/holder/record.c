/*
 * eager/holder/record: appends lines to a file that other processes append to as well, each line once.
 *
 * Existing lines are recognized by their digests: those that the file had when it was opened, and those added since. After a
 * fork the child reads the file again, into its own memory: the parent's may have been half changed, and its lock held, at the
 * time of the fork.
 */
#include "base/cleanup.h"
#include "base/digest.h"
#include "base/hash_map.h"
#include "base/syscalls.h"
#include "base/text/json.h"
#include "cache/request/text.h"
#include "eager/holder/holder_internal.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

/* The lines known to one process. */
struct memory {
    pid_t process;
    pthread_mutex_t lock;
    aoticache_hash_map lines; /* digests of the lines */
    bool line_open;           /* the file ends within a line: the next line must not be appended to that */
};

struct aoticache_recorder {
    int fd;
    struct memory *_Atomic memory;
};

/* ---- lines ---- */

/* Creates the request's line, or one that says why it is left out. The caller frees it with free(); NULL: no memory. */
static char *make_line(const aoticache_request *request)
{
    char *line = NULL, *text = NULL;
    aoticache_error error = {.message = ""};
    aoticache_status status =
        aoticache_request_write(request, AOTICACHE_REQUEST_TEXT, &text, &error); /* it refuses constants */
    if (status == AOTICACHE_OK)
        status = aoticache_request_write(request, AOTICACHE_REQUEST_JSON, &line, &error);
    free(text);
    const bool writes = aoticache_request_get_environment(request, AOTICACHE_RESULTS_NAME) != NULL;
    if (status == AOTICACHE_OK &&
        (writes || aoticache_request_get_environment(request, AOTICACHE_NUMBERS_NAME) != NULL)) {
        free(line); /* it lacks the pair */
        status = aoticache_error_set(&error, AOTICACHE_UNSUPPORTED,
                                     writes ? "it writes to its arguments" : "it takes numbers at run time");
    }
    if (status != AOTICACHE_UNSUPPORTED)
        return line;
    size_t length = aoticache_request_format(request, NULL, 0);
    text = malloc(length + 1);
    if (text == NULL)
        return NULL;
    aoticache_request_format(request, text, length + 1);
    json_t *object = json_pack("{s:s, s:s}", "left_out", text, "reason", error.message);
    line = aoticache_json_write(object, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(object);
    free(text);
    return line;
}

/* ---- existing lines ---- */

static const aoticache_hash_map_type line_type = {.item_size = sizeof(aoticache_digest),
                                                  .key_size = sizeof(aoticache_digest)};

/* Remembers a line. False: it is known already. Without memory, a line counts as known, so that the file does not grow. */
static bool remember(struct memory *memory, const char *line, size_t length)
{
    aoticache_digest digest;
    bool is_new;
    return aoticache_digest_of(line, length, &digest) == AOTICACHE_OK &&
           aoticache_hash_map_add(&memory->lines, &line_type, &digest, &is_new) != NULL && is_new;
}

/* Remembers a line of text (from handwritten lists and earlier versions) also in the form that this version writes. */
static void remember_text(struct memory *memory, const char *line)
{
    aoticache_request *request = NULL;
    if (line[0] == '{' || line[0] == '#' ||
        aoticache_request_parse(line, AOTICACHE_REQUEST_TEXT, &request, NULL) != AOTICACHE_OK)
        return;
    cleanup_free char *today = make_line(request);
    aoticache_request_free(request);
    if (today != NULL)
        remember(memory, today, strlen(today));
}

/*
 * Reads the existing lines, as far as possible. Opens the file again, because processes share the position of `fd`.
 */
static void read_lines(struct memory *memory, int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    cleanup_file FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    cleanup_free char *line = NULL;
    size_t size = 0;
    for (ssize_t length; (length = getline(&line, &size, file)) > 0;) {
        memory->line_open = line[length - 1] != '\n';
        remember(memory, line, (size_t)length - !memory->line_open);
        remember_text(memory, line);
    }
}

static void memory_free(struct memory *memory)
{
    if (memory == NULL)
        return;
    pthread_mutex_destroy(&memory->lock);
    aoticache_hash_map_free(&memory->lines);
    free(memory);
}

static struct memory *memory_create(int fd)
{
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return NULL;
    memory->process = getpid();
    pthread_mutex_init(&memory->lock, NULL);
    read_lines(memory, fd);
    return memory;
}

/* Returns this process's memory; NULL without memory. A parent's is not used, because it may be in any state. */
static struct memory *own_memory(aoticache_recorder *recorder)
{
    struct memory *memory = atomic_load(&recorder->memory);
    if (memory != NULL && memory->process == getpid())
        return memory;
    struct memory *own = memory_create(recorder->fd);
    if (own == NULL || atomic_compare_exchange_strong(&recorder->memory, &memory, own))
        return own;
    memory_free(own);
    return memory; /* another thread created it first */
}

/* ---- the file ---- */

aoticache_status aoticache_recorder_open(const char *path, aoticache_recorder **ret_recorder,
                                         aoticache_error *ret_error)
{
    struct stat found;
    if (path == NULL || path[0] == '\0' || ret_recorder == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "record file: its path is empty");
    /* If the path is a pipe, opening it does not wait for its reader. */
    cleanup_fd int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    if (fd < 0 || fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open the record file %s for writing", path);
    if (!S_ISREG(found.st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "record file %s: not a regular file", path);
    aoticache_recorder *recorder = calloc(1, sizeof *recorder);
    struct memory *memory = recorder != NULL ? memory_create(fd) : NULL;
    if (memory == NULL) {
        free(recorder);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "record file %s: out of memory", path);
    }
    atomic_init(&recorder->memory, memory);
    recorder->fd = steal_fd(&fd);
    *ret_recorder = recorder;
    return AOTICACHE_OK;
}

void aoticache_recorder_close(aoticache_recorder *recorder)
{
    if (recorder == NULL)
        return;
    int saved = errno;
    struct memory *memory = atomic_load(&recorder->memory);
    if (memory->process == getpid())
        memory_free(memory);
    close(recorder->fd);
    free(recorder);
    errno = saved;
}

/* Appends by one write, so that lines of several processes do not mix. */
static void append(int fd, struct memory *memory, const char *line)
{
    cleanup_free char *bytes = NULL;
    int length = asprintf(&bytes, "%s%s\n", memory->line_open ? "\n" : "", line);
    if (length < 0) {
        bytes = NULL;
        return;
    }
    if (aoticache_syscall_ask_limit(fd, (uint64_t)length) != 0)
        return;
    ssize_t written = write(fd, bytes, (size_t)length);
    while (written < 0 && errno == EINTR)
        written = write(fd, bytes, (size_t)length);
    if (written > 0)
        memory->line_open = written < length; /* a full disk */
}

void aoticache_recorder_add(aoticache_recorder *recorder, const aoticache_request *request)
{
    if (recorder == NULL || request == NULL)
        return;
    int saved = errno;
    struct memory *memory = own_memory(recorder);
    cleanup_free char *line = memory != NULL ? make_line(request) : NULL;
    if (line != NULL) {
        pthread_mutex_lock(&memory->lock);
        if (remember(memory, line, strlen(line)))
            append(recorder->fd, memory, line);
        pthread_mutex_unlock(&memory->lock);
    }
    errno = saved;
}
