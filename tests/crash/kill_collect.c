/*
 * kill_collect: a process that collects is killed at a random time, many times (the argument, or $AOTICACHE_KILLS, or
 * 40); crash.c kills before each system call, this program anywhere. After each kill the store verifies cleanly, and
 * every entry that the index has is served; then puts fill it again. In the end a collection works off what the killed
 * ones left: every file belongs to an entry.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/cache_internal.h"
#include "tests/helpers/cache_process.h"

#define ENTRIES 40

static char root[512], directory[600];

static aoticache_cache *open_cache(void)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = directory;
    options.max_bytes = options.max_entries = UINT64_MAX;
    return open_with(&options);
}

/* Puts an entry: every third has two files; pairs of neighbours share a library. */
static void put(aoticache_cache *cache, int number)
{
    aoticache_error error = {.message = ""};
    if (put_numbered(cache, root, number, number / 2, number % 3 == 0, &error) != AOTICACHE_OK)
        fail("put", error.message);
}

static void collect_and_exit(int kind)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = open_cache();
    if (kind == 0)
        options.max_bytes = 1;
    else
        options.max_entries = (uint64_t)kind;
    options.policy = kind % 2 == 0 ? AOTICACHE_COLLECT_LRU : AOTICACHE_COLLECT_COST;
    options.scan = kind % 3 == 0;
    options.vacuum = kind % 5 == 0;
    cache->round = next_random(8); /* files are removed in parallel with the next round's transactions */
    aoticache_status status = aoticache_cache_collect(cache, &options, NULL, NULL, NULL, &error);
    if (status != AOTICACHE_OK)
        fail("collect", error.message);
    aoticache_cache_close(cache);
    exit(0);
}

/* Returns true if the collection was killed before its end. *longest_ns: the time of one that is not killed. */
static bool collect_and_kill(uint64_t *longest_ns)
{
    int result = 0, kind = (int)next_random(ENTRIES);
    uint64_t wait_ns = *longest_ns * next_random(1000) / 1000, begun = aoticache_monotonic_ns();
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        fail("fork", strerror(errno));
    if (child == 0)
        collect_and_exit(kind);
    struct timespec pause = {.tv_sec = (time_t)(wait_ns / 1000000000u), .tv_nsec = (long)(wait_ns % 1000000000u)};
    nanosleep(&pause, NULL);
    kill(child, SIGKILL);
    waitpid(child, &result, 0);
    if (WIFSIGNALED(result)) {
        *longest_ns += *longest_ns / 16; /* otherwise none would end, and leftovers would only grow */
        return true;
    }
    if (WEXITSTATUS(result) != 0)
        fail("collect", "the child failed");
    *longest_ns = (*longest_ns + aoticache_monotonic_ns() - begun) / 2; /* closer to the present time */
    return false;
}

static bool look_up(void *user, const aoticache_entry *entry)
{
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    if (aoticache_cache_open_artifact(user, &entry->artifact, &artifact, &error) != AOTICACHE_OK)
        fail("an entry that is there is not served", error.message);
    aoticache_artifact_unref(artifact);
    return true;
}

/* Runs in a separate process, so that the state is read only from the disk. */
static void check_and_fill(void)
{
    int result = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        aoticache_cache *cache = open_cache();
        aoticache_error error = {.message = ""};
        verify(cache, "verify");
        if (aoticache_cache_list(cache, NULL, NULL, look_up, cache, &error) != AOTICACHE_OK)
            fail("list", error.message);
        for (int i = 0; i < ENTRIES; i++)
            if (next_random(4) != 0)
                put(cache, i);
        aoticache_cache_close(cache);
        exit(0);
    }
    if (child < 0 || waitpid(child, &result, 0) != child || !WIFEXITED(result) || WEXITSTATUS(result) != 0)
        fail("check", "it failed");
    random_state += 12345;
}

static void check_end(void)
{
    aoticache_cache *cache = open_cache();
    aoticache_error error = {.message = ""};
    if (aoticache_cache_collect(cache, NULL, NULL, NULL, NULL, &error) != AOTICACHE_OK)
        fail("end", error.message);
    if (verify(cache, "verify").unreferenced != 0)
        fail("end", "a collection leaves objects that nothing names");
    aoticache_cache_close(cache);
}

int main(int argc, char **argv)
{
    const char *parent = getenv("TMPDIR"), *wanted = argc > 1 ? argv[1] : getenv("AOTICACHE_KILLS");
    int kills = wanted != NULL ? atoi(wanted) : 40, killed = 0, tries = 0;
    uint64_t longest_ns = 20000000;
    random_state = 20240607;
    snprintf(root, sizeof root, "%.400s/aoticache-kill-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(root) == NULL)
        fail("mkdtemp", root);
    snprintf(directory, sizeof directory, "%s/cache", root);
    check_and_fill();
    for (; killed < kills; tries++) {
        if (tries > kills * 20 + 100)
            fail("kill", "the collections are always faster");
        killed += collect_and_kill(&longest_ns) ? 1 : 0;
        check_and_fill();
    }
    check_end();
    remove_directory(root);
    printf("ok - %d collections killed at random instants, each followed by a clean verify\n", killed);
    return 0;
}
