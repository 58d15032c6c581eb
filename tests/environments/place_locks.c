/*
 * place_locks: holds one of the locks of a cache (docs/formats/store.md, Locks) in a stopped process; other processes
 * then use the cache.
 *
 *   place_locks CACHE hold LOCK   takes it and stops itself; after SIGCONT it continues, and ends with 0 if all was well
 *   place_locks CACHE ask         tries each operation, waits 400 ms for locks and for compiles, and prints a line for each:
 *                                 OPERATION STATUS MILLISECONDS MESSAGE
 *
 * The library itself takes lease and collect, and then calls a function that stops; a lookup takes object; the index takes
 * write. store, store_shared, gate, index_gate and uses are held only inside one call, so this program locks their files
 * itself.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>

#include "base/clock.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/cache_internal.h"
#include "cache/pins/pins.h"
#include "cache/stats/statistics.h"
#include "tests/helpers/cache_process.h"
#include "tests/helpers/pins.h"

#define HELD 1 /* the entry whose lease or object is held */

static const char *directory;

static aoticache_status compile(void *user, const aoticache_request *request, const char *target,
                                aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    char path[1400], text[64];
    (void)request, (void)ret_error;
    if (user != NULL)
        raise(SIGSTOP);
    library_text(HELD, text);
    snprintf(path, sizeof path, "%s/k.so", target);
    write_file(path, text);
    aoticache_file file = {.name = "k.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    return deliver(deliver_user, &product);
}

static aoticache_cache *open_here(aoticache_error *error)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_cache *cache = NULL;
    options.directory = directory;
    options.lock_timeout_ms = 400;
    options.compile_timeout_ms = 400;
    return aoticache_cache_open(&options, &cache, error) == AOTICACHE_OK ? cache : NULL;
}

/* ---- the holder ---- */

static bool stop_in_progress(void *user, uint64_t done, uint64_t all)
{
    bool *has_stopped = user;
    (void)done, (void)all;
    if (!*has_stopped)
        raise(SIGSTOP);
    *has_stopped = true;
    return true;
}

static bool stop_at_entry(void *user, const aoticache_entry *entry)
{
    (void)entry;
    return stop_in_progress(user, 0, 0);
}

static void hold_file(const char *name, int operation)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, operation) != 0)
        fail("lock", path);
    raise(SIGSTOP);
    close(fd);
}

static aoticache_status hold(const char *lock, aoticache_error *error)
{
    static const struct {
        const char *lock, *file;
        int operation;
    } files[] = {
        {"store", "lock", LOCK_EX},
        {"store_shared", "lock", LOCK_SH},
        {"gate", "gate", LOCK_EX},
        {"index_gate", "index.sqlite3-gate", LOCK_EX},
        {"uses", "index.sqlite3-uses", LOCK_EX},
    };
    aoticache_status status = AOTICACHE_OK;
    aoticache_artifact *artifact = NULL;
    aoticache_collect_options collecting = AOTICACHE_COLLECT_OPTIONS_INIT;
    bool has_stopped = false;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(lock, files[i].lock) == 0) {
            hold_file(files[i].file, files[i].operation);
            return AOTICACHE_OK;
        }
    aoticache_cache *cache = open_here(error);
    if (cache == NULL)
        return error->status;
    aoticache_request *request = make_request(HELD);
    if (strcmp(lock, "lease") == 0) {
        aoticache_key key;
        if (aoticache_request_key(request, &key, error) == AOTICACHE_OK)
            aoticache_cache_remove(cache, &key, NULL);
        status = aoticache_cache_get_or_compile(cache, request, NULL, compile, cache, &artifact, error);
    } else if (strcmp(lock, "object") == 0) {
        status = aoticache_cache_lookup(cache, request, NULL, &artifact, error);
        raise(SIGSTOP);
    } else if (strcmp(lock, "collect") == 0) {
        collecting.max_entries = 1;
        collecting.progress = stop_in_progress;
        status = aoticache_cache_collect(cache, &collecting, stop_at_entry, &has_stopped, NULL, error);
    } else if (strcmp(lock, "write") == 0) {
        status = aoticache_index_bulk_begin(aoticache_cache_index(cache), error);
        raise(SIGSTOP);
        if (status == AOTICACHE_OK)
            status = aoticache_index_bulk_end(aoticache_cache_index(cache), AOTICACHE_OK, error);
    } else {
        fail("there is no such lock", lock);
    }
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    aoticache_cache_close(cache);
    return status;
}

/* ---- the other processes ---- */

static uint64_t begun_ns;

static void tell(const char *operation, aoticache_status status, const aoticache_error *error)
{
    printf("%s %s %d %s\n", operation, aoticache_status_name(status),
           (int)((aoticache_monotonic_ns() - begun_ns) / 1000000),
           status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND ? "" : error->message);
    fflush(stdout);
    begun_ns = aoticache_monotonic_ns();
}

static bool see(void *user, const aoticache_entry *entry)
{
    (void)user, (void)entry;
    return true;
}

static void ask_for(aoticache_cache *cache, const char *operation, int number, bool compiles)
{
    aoticache_error error = {.message = ""};
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = make_request(number);
    tell(operation,
         compiles ? aoticache_cache_get_or_compile(cache, request, NULL, compile, NULL, &artifact, &error)
                  : aoticache_cache_lookup(cache, request, NULL, &artifact, &error),
         &error);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
}

static void ask(void)
{
    aoticache_error error = {.message = ""};
    aoticache_key key;
    char temporary[] = "/tmp/aoticache-locks-XXXXXX";
    const int number = 1000000 + (int)getpid(); /* not stored: place_work uses smaller numbers */
    if (mkdtemp(temporary) == NULL)
        fail("mkdtemp", temporary);
    begun_ns = aoticache_monotonic_ns();
    aoticache_cache *cache = open_here(&error);
    tell("open", cache == NULL ? error.status : AOTICACHE_OK, &error);
    if (cache == NULL)
        return;
    ask_for(cache, "look_up", 2, false);
    ask_for(cache, "look_up_held", HELD, false);
    ask_for(cache, "compile_held", HELD, true);
    ask_for(cache, "compile", number, true);
    tell("put", put_numbered(cache, temporary, number + 1, number + 1, true, &error), &error);
    aoticache_request *request = make_request(number + 1);
    aoticache_request_key(request, &key, NULL);
    aoticache_request_free(request);
    tell("pin", pin_key(cache, &key, &error), &error);
    tell("unpin", unpin_key(cache, &key, &error), &error);
    tell("list", aoticache_cache_list(cache, NULL, NULL, see, NULL, &error), &error);
    tell("verify", aoticache_cache_verify(cache, NULL, NULL, NULL, NULL, NULL, &error), &error);
    tell("flush", aoticache_cache_flush(cache, &error), &error);
    tell("remove", aoticache_cache_remove(cache, &key, &error), &error);
    tell("collect", aoticache_cache_collect(cache, NULL, NULL, NULL, NULL, &error), &error);
    aoticache_cache_close(cache);
    tell("close", AOTICACHE_OK, &error);
    remove_directory(temporary);
}

int main(int argc, char **argv)
{
    aoticache_error error = {.message = ""};
    if (argc < 3)
        fail("arguments", "CACHE hold LOCK, CACHE ask");
    directory = argv[1];
    if (strcmp(argv[2], "ask") == 0)
        ask();
    else if (argc < 4 || hold(argv[3], &error) != AOTICACHE_OK)
        fail(argc < 4 ? "hold" : argv[3], error.message);
    return 0;
}
