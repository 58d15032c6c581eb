/*
 * The main path: lookup, get or compile, remembered failures, flushing, forks, errors of disk and index.
 */
#include "tests/unit/fixtures/cache_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "base/names.h"
#include "cache/entries.h"
#include "cache/cache_internal.h"
#include "cache/request/cpu_detect.h"
#include "cache/stats/statistics.h"
#include "tests/helpers/index.h"

TestSuite(cache, .init = fixture_setup, .fini = fixture_teardown);

/* A hook that writes `text` into its directory, and what it observed. */
struct hook {
    const char *text;
    aoticache_status result; /* other than OK: fails with it */
    int deliveries;          /* the number of deliveries; -1 means one */
    useconds_t takes;
    atomic_bool is_shut; /* it waits until this is false */
    aoticache_cpu_features requirements;
    _Atomic int calls;
    char directory[4096];
    bool with_side_file;
};

static const char *write_in(const char *directory, const char *name, const char *text, char path[4400])
{
    snprintf(path, 4400, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    if (file != NULL) {
        fputs(text, file);
        fclose(file);
    }
    return path;
}

static aoticache_status hook_compile(void *user, const aoticache_request *request, const char *directory,
                                     aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    struct hook *hook = user;
    char path[2][4400];
    (void)request;
    hook->calls++;
    snprintf(hook->directory, sizeof hook->directory, "%s", directory);
    if (hook->takes > 0)
        usleep(hook->takes);
    while (hook->is_shut)
        usleep(1000);
    if (hook->result != AOTICACHE_OK)
        return aoticache_error_set(ret_error, hook->result, "error: expected ';'");
    aoticache_file files[2] = {
        {.name = "k.so", .path = write_in(directory, "k.so", hook->text, path[0])},
        {.name = "w.bin", .path = write_in(directory, "w.bin", "side", path[1])},
    };
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = hook->with_side_file ? 2 : 1;
    product.requirements = hook->requirements;
    aoticache_status status = AOTICACHE_OK;
    for (int i = 0; i < (hook->deliveries < 0 ? 1 : hook->deliveries); i++)
        status = deliver(deliver_user, &product);
    return status;
}

static aoticache_status get(aoticache_cache *cache, int64_t number, struct hook *hook,
                            aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    aoticache_request *request = fixture_request(number);
    aoticache_status status =
        aoticache_cache_get_or_compile(cache, request, NULL, hook_compile, hook, ret_artifact, ret_error);
    aoticache_request_free(request);
    return status;
}

static aoticache_counters counters(aoticache_cache *cache)
{
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    return statistics.counters;
}

Test(cache, miss_compiles_and_hit_does_not)
{
    aoticache_cache *cache = fixture_open();
    struct hook hook = {.text = "compiled", .deliveries = -1};
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(get(cache, 1, &hook, &artifact, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_artifact_get_info(artifact)->source, AOTICACHE_SOURCE_COMPILED);
    cr_assert(aoticache_artifact_get_info(artifact)->is_stored);
    cr_assert_gt(aoticache_artifact_get_info(artifact)->compile_ns, 0);
    cr_assert(fixture_fd_has(aoticache_artifact_library_fd(artifact), "compiled"));
    cr_assert_neq(access(hook.directory, F_OK), 0, "%s is still there", hook.directory);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(get(cache, 1, &hook, &artifact, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_artifact_get_info(artifact)->source, AOTICACHE_SOURCE_INDEX);
    cr_assert(fixture_fd_has(aoticache_artifact_library_fd(artifact), "compiled"));
    aoticache_artifact_unref(artifact);
    cr_assert_eq(hook.calls, 1);
    aoticache_counters seen = counters(cache);
    cr_assert_eq(seen.hits, 1);
    cr_assert_eq(seen.misses, 1);
    cr_assert_eq(seen.compiles, 1);
    cr_assert_gt(seen.compile_ns, 0);
    cr_assert_eq(seen.saved_ns, 0, "who has compiled is spared nothing");
    cr_assert_eq(fixture_names("leases"), 0);
    cr_assert_eq(fixture_names("tmp"), 0);
    aoticache_cache_close(cache);
    cache = fixture_open();
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(get(cache, 1, &hook, &artifact, NULL), AOTICACHE_OK);
        aoticache_artifact_unref(artifact);
    }
    cr_assert_eq(counters(cache).saved_ns, seen.compile_ns, "one compile, however often it is looked up");
    aoticache_cache_close(cache);
}

Test(cache, failed_compile_is_remembered_with_its_message_until_forgotten)
{
    aoticache_cache *cache = fixture_open();
    struct hook hook = {.text = "late", .result = AOTICACHE_COMPILE_FAILED, .deliveries = -1};
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(get(cache, 1, &hook, &artifact, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_str_eq(error.message, "error: expected ';'");
    error.message[0] = '\0';
    cr_assert_eq(get(cache, 1, &hook, &artifact, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_str_eq(error.message, "error: expected ';'");
    cr_assert_eq(hook.calls, 1);
    cr_assert_eq(counters(cache).misses_failed, 1);
    cr_assert_eq(counters(cache).compile_failures, 1);
    aoticache_key key = fixture_key(1);
    cr_assert_eq(aoticache_cache_forget_failures(cache, &key, NULL), AOTICACHE_OK);
    hook.result = AOTICACHE_OK;
    cr_assert_eq(get(cache, 1, &hook, &artifact, NULL), AOTICACHE_OK);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(hook.calls, 2);
    cr_assert_eq(fixture_names("tmp"), 0);
    aoticache_cache_close(cache);
}

Test(cache, unsupported_is_not_remembered)
{
    aoticache_cache *cache = fixture_open();
    struct hook hook = {.text = "", .result = AOTICACHE_UNSUPPORTED};
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(get(cache, 1, &hook, &artifact, NULL), AOTICACHE_UNSUPPORTED);
    cr_assert_eq(get(cache, 1, &hook, &artifact, NULL), AOTICACHE_UNSUPPORTED);
    cr_assert_eq(hook.calls, 2);
    aoticache_cache_close(cache);
}

Test(cache, hook_that_delivers_nothing_or_twice_is_an_error)
{
    aoticache_cache *cache = fixture_open();
    struct hook hook = {.text = "x", .deliveries = 0};
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(get(cache, 1, &hook, &artifact, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, "delivered nothing"), "%s", error.message);
    hook.deliveries = 2;
    cr_assert_eq(get(cache, 2, &hook, &artifact, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "2 times"), "%s", error.message);
    hook.deliveries = 1;
    hook.text = "";
    cr_assert_eq(get(cache, 3, &hook, &artifact, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "empty"), "%s", error.message);
    cr_assert_null(artifact);
    aoticache_cache_close(cache);
}

struct thread {
    aoticache_cache *cache;
    struct hook *hook;
    aoticache_status status;
    aoticache_source source;
    bool is_right;
};

static void *get_in_thread(void *user)
{
    struct thread *thread = user;
    aoticache_artifact *artifact = NULL;
    thread->status = get(thread->cache, 1, thread->hook, &artifact, NULL);
    if (thread->status != AOTICACHE_OK)
        return NULL;
    thread->source = aoticache_artifact_get_info(artifact)->source;
    thread->is_right = fixture_fd_has(aoticache_artifact_library_fd(artifact), "once");
    aoticache_artifact_unref(artifact);
    return NULL;
}

Test(cache, threads_that_want_the_same_compile_once)
{
    enum { COUNT = 8 };
    aoticache_cache *cache = fixture_open();
    struct hook hook = {.text = "once", .deliveries = -1, .takes = 50000};
    struct thread threads[COUNT];
    pthread_t ids[COUNT];
    int compiled = 0;
    for (int i = 0; i < COUNT; i++) {
        threads[i] = (struct thread){.cache = cache, .hook = &hook};
        pthread_create(&ids[i], NULL, get_in_thread, &threads[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        pthread_join(ids[i], NULL);
        cr_assert_eq(threads[i].status, AOTICACHE_OK);
        cr_assert(threads[i].is_right);
        compiled += threads[i].source == AOTICACHE_SOURCE_COMPILED;
    }
    cr_assert_eq(hook.calls, 1);
    cr_assert_eq(compiled, 1);
    cr_assert_eq(fixture_names("leases"), 0);
    aoticache_cache_close(cache);
}

Test(cache, waiting_for_anothers_compile_times_out)
{
    aoticache_cache_options options = fixture_options();
    options.compile_timeout_ms = 30;
    aoticache_cache *cache = fixture_open_with(&options);
    struct hook slow = {.text = "once", .deliveries = -1, .is_shut = true};
    struct thread thread = {.cache = cache, .hook = &slow};
    pthread_t id;
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    pthread_create(&id, NULL, get_in_thread, &thread);
    while (slow.calls == 0)
        usleep(1000);
    cr_assert_eq(get(cache, 1, &slow, &artifact, &error), AOTICACHE_LOCKED);
    slow.is_shut = false;
    cr_assert_not_null(strstr(error.message, "aten::abs"), "%s", error.message);
    pthread_join(id, NULL);
    cr_assert_eq(thread.status, AOTICACHE_OK);
    aoticache_cache_close(cache);
}

Test(cache, entry_that_this_cpu_cannot_run_is_not_used)
{
    aoticache_cache *cache = fixture_open();
    struct hook hook = {.text = "needs more", .deliveries = -1, .requirements = {{0}}};
    for (size_t i = 0; i < AOTICACHE_CPU_FEATURE_WORDS; i++)
        hook.requirements.words[i] = ~aoticache_cpu_features_get()->words[i];
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(get(cache, 1, &hook, &artifact, NULL), AOTICACHE_OK);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_NOT_FOUND);
    cr_assert_eq(counters(cache).misses_requirement, 1);
    fixture_put(cache, 1, "needs nothing");
    cr_assert(fixture_finds(cache, 1, "needs nothing"));
    aoticache_cache_close(cache);
}

static int calls_seen;
static char first_call[64];
static int see_call(void *user, const char *call, const char *path)
{
    (void)user, (void)path;
    if (calls_seen++ == 0)
        snprintf(first_call, sizeof first_call, "%s", call);
    return 0;
}

Test(cache, hit_and_reopening_write_nothing)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    aoticache_cache_close(cache);
    aoticache_syscall_hook_set(see_call, NULL);
    cache = fixture_open();
    for (int i = 0; i < 100; i++)
        cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_syscall_hook_set(NULL, NULL);
    cr_assert_eq(calls_seen, 0, "%s", first_call);
    aoticache_cache_close(cache);
    cache = fixture_open();
    cr_assert_eq(counters(cache).hits, 100);
    aoticache_cache_close(cache);
}

static int sync_calls;
static int count_calls(void *user, const char *call, const char *path)
{
    (void)user, (void)path;
    sync_calls += strstr(call, "sync") != NULL || strcmp(call, "pwrite") == 0 ? 1 : 0;
    calls_seen++;
    return 0;
}

static bool add_uses(void *user, const aoticache_entry *entry)
{
    *(uint64_t *)user += entry->uses;
    return true;
}

static void hit_ten_times(int number, const char *text)
{
    aoticache_cache *cache = fixture_open();
    for (int i = 0; i < 10; i++)
        cr_assert(fixture_finds(cache, number, text));
    calls_seen = sync_calls = 0;
    aoticache_syscall_hook_set(count_calls, NULL);
    aoticache_cache_close(cache);
    aoticache_syscall_hook_set(NULL, NULL);
}

/* The process opens a file, locks it and writes to it; SQLite removes its two files. */
Test(cache, process_that_only_hit_ends_without_a_wait_for_the_disk)
{
    uint64_t uses = 0;
    aoticache_index_syscall_hooks_install();
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    aoticache_cache_close(cache);
    hit_ten_times(1, "library one");
    cr_assert_eq(sync_calls, 0);
    cr_assert_leq(calls_seen, 5);
    cache = fixture_open();
    cr_assert_eq(counters(cache).hits, 10, "whoever asks for statistics sees it");
    aoticache_cache_close(cache);
    hit_ten_times(1, "library one");
    cache = fixture_open();
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, add_uses, &uses, NULL), AOTICACHE_OK);
    cr_assert_eq(uses, 10, "those who list entries to find one do not write");
    uses = 0;
    aoticache_cache_flush_deferred(cache);
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, add_uses, &uses, NULL), AOTICACHE_OK);
    cr_assert_eq(uses, 20);
    aoticache_cache_close(cache);
}

Test(cache, budget_sees_what_processes_that_ended_used)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    aoticache_cache_close(cache);
    hit_ten_times(1, "library one");
    aoticache_cache_options options = fixture_options();
    options.max_entries = 2;
    cache = fixture_open_with(&options);
    fixture_put(cache, 3, "library three");
    cr_assert(fixture_finds(cache, 1, "library one"));
    cr_assert(fixture_finds(cache, 3, "library three"));
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 2, &artifact), AOTICACHE_NOT_FOUND);
    aoticache_cache_close(cache);
}

static bool copy_entry(void *user, const aoticache_entry *entry)
{
    *(aoticache_entry *)user = *entry;
    return true;
}

Test(cache, recency_is_flushed_in_one_batch)
{
    aoticache_cache *cache = fixture_open();
    aoticache_entry before = {.uses = 99}, after = {.uses = 99};
    fixture_put(cache, 1, "library one");
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, copy_entry, &before, NULL), AOTICACHE_OK);
    for (int i = 0; i < 7; i++)
        cr_assert(fixture_finds(cache, 1, "library one"));
    cr_assert_eq(aoticache_cache_flush(cache, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, copy_entry, &after, NULL), AOTICACHE_OK);
    cr_assert_eq(after.uses, before.uses + 7);
    cr_assert_gt(after.last_used_ns, before.last_used_ns);
    aoticache_cache_close(cache);
}

Test(cache, child_does_not_flush_what_is_its_parents)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    for (int i = 0; i < 5; i++)
        cr_assert(fixture_finds(cache, 1, "library one"));
    pid_t child = fork();
    if (child == 0) {
        bool found = fixture_finds(cache, 1, "library one");
        aoticache_cache_close(cache);
        _exit(found ? 0 : 1);
    }
    int result;
    waitpid(child, &result, 0);
    cr_assert_eq(result, 0);
    cr_assert_eq(counters(cache).hits, 6);
    aoticache_cache_close(cache);
    cache = fixture_open();
    cr_assert_eq(counters(cache).hits, 6);
    aoticache_cache_close(cache);
}

Test(cache, read_only_cache_gives_the_hooks_own_files)
{
    aoticache_cache_close(fixture_open());
    aoticache_cache_options options = fixture_options();
    options.read_only = true;
    aoticache_cache *cache = fixture_open_with(&options);
    cr_assert(aoticache_cache_is_read_only(cache));
    struct hook hook = {.text = "unstored", .deliveries = -1, .with_side_file = true};
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(get(cache, 1, &hook, &artifact, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_not(aoticache_artifact_get_info(artifact)->is_stored);
    cr_assert(fixture_fd_has(aoticache_artifact_library_fd(artifact), "unstored"));
    char path[5000];
    snprintf(path, sizeof path, "%s/w.bin", aoticache_artifact_get_info(artifact)->directory);
    cr_assert_eq(access(path, R_OK), 0);
    aoticache_artifact_unref(artifact);
    cr_assert_neq(access(path, F_OK), 0);
    cr_assert_neq(access(hook.directory, F_OK), 0);
    cr_assert_eq(fixture_try_put(cache, 2, "x", NULL, &error), AOTICACHE_DENIED);
    aoticache_cache_close(cache);
}

/* Files can still be removed when a disk is full. */
static int no_space(void *user, const char *call, const char *path)
{
    (void)user;
    if (strcmp(call, "unlink") == 0)
        return 0;
    return path != NULL && strncmp(path, fixture_cache, strlen(fixture_cache)) != 0 && path[0] == '/' ? 0 : ENOSPC;
}

Test(cache, full_disk_still_gives_a_kernel_and_says_so_once)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 9, "kept");
    aoticache_syscall_hook_set(no_space, NULL);
    for (int i = 1; i <= 2; i++) {
        struct hook hook = {.text = "unstored", .deliveries = -1};
        aoticache_artifact *artifact = NULL;
        aoticache_error error = {.message = ""};
        cr_assert_eq(get(cache, i, &hook, &artifact, &error), AOTICACHE_OK, "%s", error.message);
        cr_assert_not(aoticache_artifact_get_info(artifact)->is_stored);
        cr_assert(fixture_fd_has(aoticache_artifact_library_fd(artifact), "unstored"));
        aoticache_artifact_unref(artifact);
    }
    aoticache_syscall_hook_set(NULL, NULL);
    cr_assert_eq(fixture_warnings, 1, "%s", fixture_last_warning);
    cr_assert_eq(counters(cache).not_stored, 2);
    cr_assert(fixture_finds(cache, 9, "kept"));
    aoticache_cache_close(cache);
}

Test(cache, lost_index_is_rebuilt_from_the_manifests)
{
    char path[4400];
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "old");
    fixture_put(cache, 1, "new");
    fixture_put(cache, 2, "library two");
    aoticache_cache_close(cache);
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(unlink(path), 0);
    cache = fixture_open();
    cr_assert_eq(fixture_warnings, 1, "%s", fixture_last_warning);
    cr_assert(fixture_finds(cache, 1, "new"));
    cr_assert(fixture_finds(cache, 2, "library two"));
    aoticache_cache_close(cache);
}

/* Pending statistics name entries by numbers, which the new index gives to other entries. */
Test(cache, uses_that_wait_go_with_the_index_that_they_are_of)
{
    char path[4400];
    uint64_t uses = 0;
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    aoticache_cache_close(cache);
    hit_ten_times(1, "library one");
    snprintf(path, sizeof path, "%s/index.sqlite3-uses", fixture_cache);
    cr_assert_eq(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(unlink(path), 0);
    cache = fixture_open();
    cr_assert_eq(fixture_names("quarantine"), 1);
    aoticache_cache_flush_deferred(cache);
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, add_uses, &uses, NULL), AOTICACHE_OK);
    cr_assert_eq(uses, 0);
    aoticache_cache_close(cache);
}

Test(cache, damaged_index_is_set_aside_and_rebuilt)
{
    char path[4400];
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    aoticache_cache_close(cache);
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    int fd = open(path, O_WRONLY);
    cr_assert_eq(write(fd, "this is not a database at all", 29), 29);
    close(fd);
    cache = fixture_open();
    cr_assert_eq(fixture_warnings, 1, "%s", fixture_last_warning);
    cr_assert_geq(fixture_names("quarantine"), 1);
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
    fixture_warnings = 0;
    aoticache_cache_close(fixture_open());
    cr_assert_eq(fixture_warnings, 0);
}

static void remove_index_files(void)
{
    static const char *const suffix[] = {"", "-wal", "-shm"};
    char path[4400];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/index.sqlite3%s", fixture_cache, suffix[i]);
        unlink(path);
    }
}

Test(cache, index_replaced_by_another_process_is_noticed)
{
    aoticache_cache *ours = fixture_open();
    fixture_put(ours, 1, "library one");
    remove_index_files();
    aoticache_cache *other = fixture_open();
    fixture_put(other, 2, "library two");
    cr_assert(fixture_finds(ours, 2, "library two"));
    fixture_put(ours, 3, "library three");
    cr_assert(fixture_finds(other, 3, "library three"));
    cr_assert(fixture_finds(other, 1, "library one"));
    aoticache_cache_close(ours);
    aoticache_cache_close(other);
}

/* On NFS and FUSE, calls on an index that another process has replaced fail with ESTALE. */
Test(cache, failing_index_is_opened_again_if_it_was_replaced)
{
    aoticache_cache *ours = fixture_open();
    fixture_put(ours, 1, "library one");
    aoticache_index *index = aoticache_cache_index(ours), *const first = index;
    cr_assert_not(aoticache_cache_recovered(ours, AOTICACHE_IO, &index), "it is not replaced");
    cr_assert_eq(index, first);
    remove_index_files();
    aoticache_cache_close(fixture_open());
    cr_assert(aoticache_cache_recovered(ours, AOTICACHE_IO, &index));
    cr_assert_neq(index, first);
    cr_assert_not(aoticache_cache_recovered(ours, AOTICACHE_IO, &index), "and only once");
    aoticache_cache_close(ours);
}

Test(cache, index_that_is_a_symbolic_link_is_refused)
{
    char path[4400];
    aoticache_cache_close(fixture_open());
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(symlink(fixture_write("elsewhere", ""), path), 0);
    aoticache_cache_options options = fixture_options();
    aoticache_cache *cache = NULL;
    cr_assert_eq(aoticache_cache_open(&options, &cache, NULL), AOTICACHE_DENIED);
}

Test(cache, default_directory_follows_the_environment)
{
    char path[4096];
    aoticache_error error = {.message = ""};
    setenv("HOME", "/home/somebody", 1);
    setenv("XDG_CACHE_HOME", "/var/xdg", 1);
    setenv("AOTICACHE_DIR", "/srv/kernels", 1);
    cr_assert_eq(aoticache_cache_default_directory(path, sizeof path, NULL), AOTICACHE_OK);
    cr_assert_str_eq(path, "/srv/kernels");
    unsetenv("AOTICACHE_DIR");
    cr_assert_eq(aoticache_cache_default_directory(path, sizeof path, NULL), AOTICACHE_OK);
    cr_assert_str_eq(path, "/var/xdg/aoticache");
    setenv("XDG_CACHE_HOME", "relative", 1);
    cr_assert_eq(aoticache_cache_default_directory(path, sizeof path, NULL), AOTICACHE_OK);
    cr_assert_str_eq(path, "/home/somebody/.cache/aoticache");
    cr_assert_eq(aoticache_cache_default_directory(path, 8, &error), AOTICACHE_INVALID);
    unsetenv("HOME");
    cr_assert_eq(aoticache_cache_default_directory(path, sizeof path, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, "AOTICACHE_DIR"));
}

Test(cache, list_filters_by_operator_and_prefix)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    aoticache_key key = fixture_key(2);
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_entry entry = {.uses = 0};
    aoticache_digest_to_hex(&key, hex);
    hex[12] = '\0';
    cr_assert_eq(aoticache_cache_list(cache, "aten::abs", hex, copy_entry, &entry, NULL), AOTICACHE_OK);
    cr_assert(aoticache_digest_equal(&entry.key, &key));
    entry.key = fixture_key(3);
    cr_assert_eq(aoticache_cache_list(cache, "aten::sin", NULL, copy_entry, &entry, NULL), AOTICACHE_OK);
    cr_assert_not(aoticache_digest_equal(&entry.key, &key));
    char *text = NULL;
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 2, &artifact), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_read_manifest(cache, &aoticache_artifact_get_info(artifact)->digest, &text, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(text[0], '{');
    free(text);
    aoticache_artifact *again = NULL;
    cr_assert_eq(aoticache_cache_open_artifact(cache, &aoticache_artifact_get_info(artifact)->digest, &again, NULL),
                 AOTICACHE_OK);
    cr_assert(fixture_fd_has(aoticache_artifact_library_fd(again), "library two"));
    aoticache_artifact_unref(again);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(aoticache_cache_read_manifest(cache, &key, &text, NULL), AOTICACHE_NOT_FOUND);
    aoticache_cache_close(cache);
}

Test(cache, remove_takes_the_entry_and_its_objects)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "shared");
    fixture_put(cache, 2, "shared");
    fixture_put(cache, 3, "alone");
    aoticache_key key = fixture_key(1), alone = fixture_key(3);
    cr_assert_eq(aoticache_cache_remove(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_remove(cache, &key, NULL), AOTICACHE_NOT_FOUND);
    cr_assert(fixture_finds(cache, 2, "shared"));
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 3, &artifact), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_remove(cache, &alone, NULL), AOTICACHE_OK);
    cr_assert_eq(access(fixture_object_of("alone"), F_OK), 0, "a held object was removed");
    aoticache_artifact_unref(artifact);
    cr_assert_eq(fixture_lookup(cache, 3, &artifact), AOTICACHE_NOT_FOUND);
    cr_assert_eq(fixture_files("objects"), 3); /* "shared", its manifest, "alone" until a collection */
    aoticache_cache_close(cache);
}

Test(cache, bad_arguments_are_refused)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    aoticache_cache_options options = {.size = 3, .directory = fixture_cache};
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_INVALID);
    options = fixture_options();
    options.directory = "";
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cache_lookup(NULL, NULL, NULL, NULL, &error), AOTICACHE_INVALID);
    aoticache_cache_close(NULL);
    aoticache_artifact_unref(NULL);
}

/* ---- listing ---- */

#define LISTED 2500 /* some pages */

static void put_rows(aoticache_cache *cache)
{
    aoticache_index *index = aoticache_cache_index(cache);
    cr_assert_eq(aoticache_index_bulk_begin(index, NULL), AOTICACHE_OK);
    for (uint32_t i = 0; i < LISTED; i++) {
        char op[16];
        snprintf(op, sizeof op, "op%u", i % 3);
        aoticache_index_object object = {.bytes = 10};
        aoticache_index_entry entry = {.op = op, .device = "", .description = "", .producer = "", .created_ns = 1 + i};
        memcpy(object.digest.bytes, &i, sizeof i);
        object.digest.bytes[31] = 1;
        entry.key = entry.artifact = entry.library = object.digest;
        entry.objects = &object;
        entry.object_count = entry.file_count = 1;
        cr_assert_eq(index_put(index, &entry, NULL), AOTICACHE_OK);
    }
    cr_assert_eq(aoticache_index_bulk_end(index, AOTICACHE_OK, NULL), AOTICACHE_OK);
}

struct seen {
    aoticache_cache *cache;
    bool numbers[LISTED];
    char last_op[16];
    int64_t last_created_ns;
    size_t count, stop_after;
};

static bool see_and_remove(void *user, const aoticache_entry *entry)
{
    struct seen *seen = user;
    uint32_t number;
    memcpy(&number, entry->key.bytes, sizeof number);
    cr_assert_lt(number, LISTED);
    cr_assert_not(seen->numbers[number], "entry %u comes twice", number);
    seen->numbers[number] = true;
    const int order = strcmp(seen->last_op, entry->op);
    cr_assert(order < 0 || (order == 0 && seen->last_created_ns < entry->created_ns));
    snprintf(seen->last_op, sizeof seen->last_op, "%s", entry->op);
    seen->last_created_ns = entry->created_ns;
    if (seen->cache != NULL && seen->count % 100 == 0)
        cr_assert_eq(aoticache_cache_remove(seen->cache, &entry->key, NULL), AOTICACHE_OK);
    return ++seen->count != seen->stop_after;
}

Test(cache, list_goes_through_many_and_lets_the_callback_change_the_cache)
{
    aoticache_cache *cache = fixture_open();
    put_rows(cache);
    static struct seen all, stopped, one, rest;
    all.cache = cache;
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, see_and_remove, &all, NULL), AOTICACHE_OK);
    cr_assert_eq(all.count, LISTED);
    stopped.stop_after = 1500;
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, see_and_remove, &stopped, NULL), AOTICACHE_OK);
    cr_assert_eq(stopped.count, 1500);
    cr_assert_eq(aoticache_cache_list(cache, "op1", NULL, see_and_remove, &one, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, see_and_remove, &rest, NULL), AOTICACHE_OK);
    cr_assert_eq(rest.count, LISTED - LISTED / 100);
    cr_assert(one.count > LISTED / 3 - LISTED / 100 && one.count < LISTED / 3 + 1);
    aoticache_cache_close(cache);
}
