/*
 * race_checkpoint: merges of the index's log concurrently with a writer, on one processor, so that each is interrupted
 * everywhere. In SQLite before 3.51.3 a merge that begins while the writer restarts the log records for the new log
 * that more of it is in the file than exists, and the next writes are lost (https://sqlite.org/wal.html#walresetbug).
 * index/connection/checkpoint.c prevents that, and this program checks it: the header of the -shm file has the length
 * of the log and the part of it that is in the file.
 *
 * Arguments: seconds (6 by default); `bare`: merge with SQLite only, which shows the bug if SQLite has it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "index/eviction/eviction.h"
#include "tests/helpers/cache_process.h"
#include "tests/helpers/index.h"

#define MERGERS 3
#define PROCESSES (MERGERS + 1)
#define LEAST_LOGS 10

/* 32-bit words of the -shm file: https://sqlite.org/walformat.html */
enum { LOG_FRAMES = 4, SALT = 8, MERGED_FRAMES = 24, HEADER_BYTES = 136 };

static char path[600], root[512];
static bool is_bare;

static aoticache_index *open_index(void)
{
    aoticache_index *index = NULL;
    aoticache_error error = {.message = ""};
    const aoticache_index_options options = {.path = path, .lock_timeout_ms = 60000};
    if (aoticache_index_open(&options, &index, &error) != AOTICACHE_OK)
        fail("open", error.message);
    return index;
}

static bool has_log(void)
{
    aoticache_index *index = open_index();
    const bool has = index_has_log(index);
    aoticache_index_close(index);
    return has;
}

static void merge_all_the_time(void)
{
    sqlite3 *bare = NULL;
    aoticache_index *index = open_index();
    if (is_bare && (sqlite3_open(path, &bare) != SQLITE_OK ||
                    sqlite3_exec(bare, "SELECT 1 FROM sqlite_schema", NULL, NULL, NULL) != SQLITE_OK))
        fail("open", path);
    for (;;)
        if (is_bare)
            sqlite3_wal_checkpoint_v2(bare, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        else
            aoticache_index_checkpoint(index);
}

/* Writes. The log is long at times, and restarts when there was time to merge all of it. */
static void write_all_the_time(void)
{
    aoticache_index *index = open_index();
    aoticache_error error = {.message = ""};
    random_state = 1;
    for (int64_t value = 1;; value++) {
        if (aoticache_index_write_meta(index, "race_checkpoint", value, &error) != AOTICACHE_OK)
            fail("write", error.message);
        if (next_random(8) == 0)
            usleep(next_random(300));
    }
}

static pid_t start(void (*work)(void))
{
    pid_t child = fork();
    if (child < 0)
        fail("fork", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* none continues if the parent fails */
        work();
    }
    return child;
}

static const _Atomic uint32_t *map_header(void)
{
    char shm[640];
    int fd = -1;
    snprintf(shm, sizeof shm, "%s-shm", path);
    for (int i = 0; i < 60000 && (fd = open(shm, O_RDONLY | O_CLOEXEC)) < 0; i++)
        usleep(1000);
    struct stat found = {.st_size = 0};
    for (int i = 0; i < 60000 && fstat(fd, &found) == 0 && found.st_size < HEADER_BYTES; i++)
        usleep(1000);
    void *header = found.st_size < HEADER_BYTES ? MAP_FAILED : mmap(NULL, HEADER_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED)
        fail("map", shm);
    close(fd);
    return header;
}

struct seen {
    unsigned long logs, wrong;
    uint32_t salt, wrong_salt;
};

/* Reads the header for one log: a new log has another salt. */
static void look(const _Atomic uint32_t *header, struct seen *seen)
{
    const uint32_t salt = atomic_load(&header[SALT]), merged = atomic_load(&header[MERGED_FRAMES]);
    const uint32_t frames = atomic_load(&header[LOG_FRAMES]);
    if (atomic_load(&header[MERGED_FRAMES]) != merged || atomic_load(&header[SALT]) != salt)
        return;
    seen->logs += salt != seen->salt ? 1 : 0;
    seen->salt = salt;
    if (frames == 0 || merged <= frames || salt == seen->wrong_salt)
        return;
    seen->wrong_salt = salt;
    seen->wrong++;
    printf("# a log of %u frames, of which %u are said to be in the file\n", frames, merged);
}

static void check_running(const pid_t *children)
{
    for (int i = 0; i < PROCESSES; i++)
        if (waitpid(children[i], NULL, WNOHANG) != 0)
            fail("process", "one of them ended");
}

static cpu_set_t first_of(const cpu_set_t *processors)
{
    cpu_set_t one;
    size_t first = 0;
    CPU_ZERO(&one);
    while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, processors))
        first++;
    CPU_SET(first, &one);
    return one;
}

/* Starts all children on one processor; this process runs on any. */
static void start_all(pid_t ret_children[PROCESSES])
{
    cpu_set_t processors;
    sched_getaffinity(0, sizeof processors, &processors);
    const cpu_set_t one = first_of(&processors);
    sched_setaffinity(0, sizeof one, &one);
    for (int i = 0; i < PROCESSES; i++)
        ret_children[i] = start(i < MERGERS ? merge_all_the_time : write_all_the_time);
    sched_setaffinity(0, sizeof processors, &processors);
}

/* Watches. On a slow disk few logs begin in that time; without one nothing would be tested. */
static struct seen watch(const pid_t *children, unsigned seconds)
{
    struct seen seen = {.logs = 0};
    const _Atomic uint32_t *header = map_header();
    const uint64_t begun = aoticache_monotonic_ns(), end = begun + seconds * UINT64_C(1000000000);
    while (aoticache_monotonic_ns() < end ||
           (seen.logs < LEAST_LOGS && aoticache_monotonic_ns() < begun + UINT64_C(90000000000))) {
        look(header, &seen);
        check_running(children);
        usleep(100);
    }
    munmap((void *)header, HEADER_BYTES);
    return seen;
}

static void check_end(void)
{
    aoticache_error error = {.message = ""};
    aoticache_index *index = open_index();
    if (index_verify(index, &error) != AOTICACHE_OK)
        fail("end", error.message);
    aoticache_index_close(index);
}

int main(int argc, char **argv)
{
    const char *parent = getenv("TMPDIR");
    const unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 6;
    pid_t children[PROCESSES];
    is_bare = argc > 2 && strcmp(argv[2], "bare") == 0;
    snprintf(root, sizeof root, "%.400s/aoticache-race-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(root) == NULL)
        fail("mkdtemp", root);
    snprintf(path, sizeof path, "%s/index.sqlite3", root);
    if (!has_log()) {
        remove_directory(root);
        printf("no WAL on the file system of %s\n", root);
        return 77;
    }
    start_all(children);
    const struct seen seen = watch(children, seconds);
    for (int i = 0; i < PROCESSES; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    printf("# SQLite %s: %lu logs seen, %lu of them wrong\n", sqlite3_libversion(), seen.logs, seen.wrong);
    if (seen.wrong > 0)
        fail("merge", "a log says that more of it is in the file than there is: what is written next is lost");
    if (seen.logs < LEAST_LOGS)
        fail("load", "the log hardly ever began anew: this has shown nothing");
    check_end();
    remove_directory(root);
    printf("ok - merges beside a writer: no log is taken for its predecessor\n");
    return 0;
}
