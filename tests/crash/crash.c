/*
 * crash: dies at every step that changes the disk, and checks the result.
 *
 * For each operation a first run counts the calls that pass the syscall hooks, SQLite's included. Then, for every one
 * of them, a child performs the operation on a separate cache and is killed with SIGKILL right before that call.
 * Afterwards a new process opens the cache: everything that had been reported as stored is found and verifies, nothing
 * is damaged or missing, the interrupted operation succeeds when repeated, and a collection leaves no leftovers. Prints
 * one line per operation; exits with 1 on the first failure. CRASH_STRIDE: kills only before every n-th call, default
 * 1.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/cache.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/verify/verify.h"
#include "index/index.h"
#include "tests/helpers/cache_process.h"

#define STORED 3   /* entries that every cache has before the operation */
#define NEW_KEY 10 /* the key that the operation puts */
#define NEW_RECORD (NEW_KEY + 5)
#define MAX_STEPS 5000

static char root[512];
static char directory[600];

/* ---- dying ---- */

struct counter {
    long calls;
    long die_at; /* -1: never */
    int pipe_fd; /* receives the name of the call before the child dies */
};

static struct counter counter = {.die_at = -1, .pipe_fd = -1};

static int at_call(void *user, const char *call, const char *path)
{
    struct counter *here = user;
    (void)path;
    if (here->calls++ == here->die_at) {
        char report[32];
        int length = snprintf(report, sizeof report, "C%.20s\n", call);
        if (write(here->pipe_fd, report, (size_t)length) < 0)
            _exit(99);
        kill(getpid(), SIGKILL);
    }
    return 0;
}

/* ---- stored entries ---- */

/* Puts an entry: two files for even numbers, one for odd ones. */
static aoticache_status put(aoticache_cache *cache, int number, aoticache_error *ret_error)
{
    return put_numbered(cache, root, number, number, number % 2 == 0, ret_error);
}

static bool finds(aoticache_cache *cache, int number)
{
    char expected[64], actual[64] = "";
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = make_request(number);
    aoticache_status status = aoticache_cache_lookup(cache, request, NULL, &artifact, NULL);
    aoticache_request_free(request);
    if (status != AOTICACHE_OK)
        return false;
    library_text(number, expected);
    ssize_t got = pread(aoticache_artifact_library_fd(artifact), actual, sizeof actual - 1, 0);
    bool is_right = got == (ssize_t)strlen(expected) && memcmp(actual, expected, (size_t)got) == 0;
    if (is_right && number % 2 == 0) {
        char path[1200];
        snprintf(path, sizeof path, "%s/w.bin", aoticache_artifact_get_info(artifact)->directory);
        is_right = access(path, R_OK) == 0;
    }
    aoticache_artifact_unref(artifact);
    return is_right;
}

static aoticache_key key_of(int number)
{
    aoticache_key key;
    aoticache_request *request = make_request(number);
    if (aoticache_request_key(request, &key, NULL) != AOTICACHE_OK)
        fail("key", "no key");
    aoticache_request_free(request);
    return key;
}

/* ---- the operations ---- */

static aoticache_status do_put(aoticache_cache *cache, aoticache_error *ret_error)
{
    return put(cache, NEW_KEY, ret_error);
}

static aoticache_status do_put_record(aoticache_cache *cache, aoticache_error *ret_error)
{
    return put(cache, NEW_RECORD, ret_error);
}

static aoticache_status remove_key(aoticache_cache *cache, int number, aoticache_error *ret_error)
{
    aoticache_key key = key_of(number);
    aoticache_status status = aoticache_cache_remove(cache, &key, ret_error);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status; /* done before it was killed */
}

static aoticache_status do_remove(aoticache_cache *cache, aoticache_error *ret_error)
{
    return remove_key(cache, 1, ret_error);
}

static aoticache_status do_remove_record(aoticache_cache *cache, aoticache_error *ret_error)
{
    return remove_key(cache, 3, ret_error);
}

static aoticache_status do_collect(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_bytes = 1;
    return aoticache_cache_collect(cache, &options, NULL, NULL, NULL, ret_error);
}

static aoticache_status compile(void *user, const aoticache_request *request, const char *target,
                                aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    char path[700], text[64];
    (void)request, (void)ret_error;
    library_text(NEW_KEY + 1, text);
    snprintf(path, sizeof path, "%s/k.so", target);
    write_file(path, text);
    aoticache_file file = {.name = "k.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.in_manifest = user != NULL;
    return deliver(deliver_user, &product);
}

static aoticache_status compile_new(aoticache_cache *cache, bool is_in_manifest, aoticache_error *ret_error)
{
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = make_request(NEW_KEY + 1);
    aoticache_status status = aoticache_cache_get_or_compile(cache, request, NULL, compile,
                                                             is_in_manifest ? cache : NULL, &artifact, ret_error);
    if (status == AOTICACHE_OK && !aoticache_artifact_get_info(artifact)->is_stored)
        status = aoticache_error_set(ret_error, AOTICACHE_IO, "the artifact was not stored");
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    return status;
}

static aoticache_status do_compile(aoticache_cache *cache, aoticache_error *ret_error)
{
    return compile_new(cache, false, ret_error);
}

static aoticache_status do_compile_record(aoticache_cache *cache, aoticache_error *ret_error)
{
    return compile_new(cache, true, ret_error);
}

static aoticache_status do_repair(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_verify_options options = AOTICACHE_VERIFY_OPTIONS_INIT;
    options.repair = true;
    return aoticache_cache_verify(cache, &options, NULL, NULL, NULL, NULL, ret_error);
}

/* Does nothing: opening a cache with a damaged index builds a new one, so the open itself is the operation. */
static aoticache_status do_nothing(aoticache_cache *cache, aoticache_error *ret_error)
{
    (void)cache, (void)ret_error;
    return AOTICACHE_OK;
}

/* ---- the state before, and the required state after ---- */

static void damage(const aoticache_digest *digest)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], path[800];
    aoticache_digest_to_hex(digest, hex);
    snprintf(path, sizeof path, "%s/objects/%.2s/%s", directory, hex, hex + 2);
    if (chmod(path, 0600) != 0)
        fail("damage", path);
    write_file(path, "damaged");
    chmod(path, 0444);
}

static void damage_first(void)
{
    aoticache_digest digest;
    char text[64];
    library_text(1, text);
    aoticache_digest_of(text, strlen(text), &digest);
    damage(&digest);
}

static void damage_record(void)
{
    aoticache_cache *cache = open_in(directory);
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = make_request(3);
    if (aoticache_cache_lookup(cache, request, NULL, &artifact, NULL) != AOTICACHE_OK)
        fail("damage", "there is no entry 3");
    const aoticache_digest digest = *&aoticache_artifact_get_info(artifact)->digest;
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    aoticache_cache_close(cache);
    damage(&digest);
}

static void damage_index(void)
{
    char path[800];
    snprintf(path, sizeof path, "%s/index.sqlite3", directory);
    write_file(path, "not a database");
}

struct operation {
    const char *name;
    aoticache_status (*perform)(aoticache_cache *cache, aoticache_error *ret_error);
    void (*spoil)(void); /* changes the cache first; may be NULL */
    int puts;            /* the key that must exist once success was reported; 0: none */
    bool keeps_first;    /* entry 1 must survive */
    bool keeps_others;   /* entries 2 and up must survive */
    bool spoils_record;  /* except entry 3 */
};

static const struct operation operations[] = {
    {"put", do_put, NULL, NEW_KEY, true, true, false},
    {"put of a record", do_put_record, NULL, NEW_RECORD, true, true, false},
    {"remove", do_remove, NULL, 0, false, true, false},
    {"remove of a record", do_remove_record, NULL, 0, true, true, true},
    {"collect", do_collect, NULL, 0, false, false, false},
    {"get_or_compile", do_compile, NULL, NEW_KEY + 1, true, true, false},
    {"get_or_compile of a record", do_compile_record, NULL, NEW_KEY + 1, true, true, false},
    {"verify --repair", do_repair, damage_first, 0, false, true, false},
    {"verify --repair of a record", do_repair, damage_record, 0, true, true, true},
    {"rebuilding the index", do_nothing, damage_index, 0, true, true, false},
};

static void prepare(const struct operation *operation)
{
    aoticache_error error = {.message = ""};
    remove_directory(directory);
    aoticache_cache *cache = open_in(directory);
    for (int i = 1; i <= STORED; i++)
        if (put(cache, i, &error) != AOTICACHE_OK)
            fail("prepare", error.message);
    aoticache_cache_close(cache);
    if (operation->spoil != NULL)
        operation->spoil();
}

/*
 * Runs in a child: performs the operation with the syscall hook on; writes "S" to the pipe after it reported success.
 */
static void perform_and_die(const struct operation *operation, long die_at, int pipe_fd)
{
    aoticache_error error = {.message = ""};
    counter = (struct counter){.die_at = die_at, .pipe_fd = pipe_fd};
    aoticache_index_syscall_hooks_install();
    aoticache_syscall_hook_set(at_call, &counter);
    aoticache_cache *cache = open_in(directory);
    aoticache_status status = operation->perform(cache, &error);
    if (status != AOTICACHE_OK)
        fail(operation->name, error.message);
    if (write(pipe_fd, "S\n", 2) != 2)
        _exit(99);
    aoticache_cache_close(cache);
    if (die_at < 0) { /* the counting run */
        char report[32];
        int length = snprintf(report, sizeof report, "N%ld\n", counter.calls);
        if (write(pipe_fd, report, (size_t)length) < 0)
            _exit(99);
    }
    exit(0);
}

struct outcome {
    bool was_reported; /* the operation had returned OK */
    bool was_killed;
    long calls;
    char call[32];
};

static void read_reports(int fd, struct outcome *outcome)
{
    char text[256] = "";
    size_t have = 0;
    for (ssize_t got; have < sizeof text - 1 && (got = read(fd, text + have, sizeof text - 1 - have)) > 0;)
        have += (size_t)got;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (line[0] == 'S')
            outcome->was_reported = true;
        else if (line[0] == 'N')
            outcome->calls = strtol(line + 1, NULL, 10);
        else
            snprintf(outcome->call, sizeof outcome->call, "%.30s", line + 1);
    }
}

static struct outcome run_child(const struct operation *operation, long die_at)
{
    struct outcome outcome = {.calls = 0};
    int pipes[2], result = 0;
    fflush(stdout);
    if (pipe(pipes) != 0)
        fail("pipe", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        fail("fork", strerror(errno));
    if (child == 0) {
        close(pipes[0]);
        perform_and_die(operation, die_at, pipes[1]);
    }
    close(pipes[1]);
    read_reports(pipes[0], &outcome);
    close(pipes[0]);
    waitpid(child, &result, 0);
    outcome.was_killed = WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL;
    if (!outcome.was_killed && (!WIFEXITED(result) || WEXITSTATUS(result) != 0))
        fail(operation->name, "the child failed");
    return outcome;
}

static void check_entries(aoticache_cache *cache, const struct operation *operation, bool is_done, const char *when)
{
    if (operation->keeps_first && !finds(cache, 1))
        fail(when, "entry 1 is lost");
    for (int i = 2; operation->keeps_others && i <= STORED; i++)
        if (!(operation->spoils_record && i == 3) && !finds(cache, i))
            fail(when, "an entry that was stored before is lost");
    if (operation->puts != 0 && is_done && !finds(cache, operation->puts))
        fail(when, "an entry that was reported as stored is lost");
}

static int count_names(const char *subdirectory)
{
    char path[800];
    struct dirent **names = NULL;
    snprintf(path, sizeof path, "%s/%s", directory, subdirectory);
    int count = scandir(path, &names, NULL, NULL);
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    return count > 2 ? count - 2 : 0;
}

/* Checks what a fresh process finds, and repeats the operation. */
static void check_after(const struct operation *operation, const struct outcome *outcome, const char *when)
{
    aoticache_error error = {.message = ""};
    bool is_damaged_anyway = operation->spoil == damage_first || operation->spoil == damage_record;
    aoticache_cache *cache = open_in(directory);
    check_entries(cache, operation, outcome->was_reported, when);
    if (!is_damaged_anyway)
        verify(cache, when);
    if (operation->perform(cache, &error) != AOTICACHE_OK)
        fail(when, error.message);
    check_entries(cache, operation, true, when);
    verify(cache, when);
    if (aoticache_cache_collect(cache, NULL, NULL, NULL, NULL, &error) != AOTICACHE_OK)
        fail(when, error.message);
    check_entries(cache, operation, true, when);
    if (count_names("tmp") + count_names("leases") != 0)
        fail(when, "a collection leaves leftovers");
    aoticache_cache_close(cache);
}

static void in_child(void (*check)(const struct operation *, const struct outcome *, const char *),
                     const struct operation *operation, const struct outcome *outcome, const char *when)
{
    int result = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        check(operation, outcome, when);
        exit(0);
    }
    if (child < 0 || waitpid(child, &result, 0) != child || !WIFEXITED(result) || WEXITSTATUS(result) != 0)
        fail(when, "the check failed");
}

/*
 * Runs the operation until a child survives: then a child has died before each of its steps. The number of steps varies
 * a little between runs (batches bounded by time, waits for a lock), so the count of one run is not a bound.
 */
static void run_operation(const struct operation *operation)
{
    const long stride = crash_stride(1);
    long step = 0, killed = 0;
    for (bool is_alive = false; !is_alive; step += stride) {
        char when[200];
        if (step >= MAX_STEPS)
            fail(operation->name, "there is no end to its steps");
        prepare(operation);
        struct outcome outcome = run_child(operation, step);
        is_alive = !outcome.was_killed;
        killed += outcome.was_killed;
        snprintf(when, sizeof when, "%s killed at step %ld (%s)", operation->name, step + 1, outcome.call);
        in_child(check_after, operation, &outcome, when);
    }
    if (killed == 0)
        fail(operation->name, "it has no steps");
    if (stride == 1)
        printf("ok - %s: killed at each of its %ld steps, nothing lost\n", operation->name, killed);
    else
        printf("ok - %s: killed at %ld steps, one in %ld, nothing lost\n", operation->name, killed, stride);
}

int main(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.400s/aoticache-crash-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(root) == NULL)
        fail("mkdtemp", root);
    snprintf(directory, sizeof directory, "%s/cache", root);
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        run_operation(&operations[i]);
    remove_directory(root);
    return 0;
}
