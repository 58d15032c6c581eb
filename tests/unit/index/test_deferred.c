/*
 * index/stats/pending: statistics that ended processes leave next to the index are added exactly once, whichever
 * process dies and whatever state the file is in.
 */
#include "index_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/syscalls.h"
#include "index/stats/pending.h"

#define HITS 3

static void make_fixture(void)
{
    fixture_make();
    aoticache_index_syscall_hooks_install();
}

static void remove_fixture(void)
{
    aoticache_syscall_hook_set(NULL, NULL);
    fixture_remove();
}

TestSuite(deferred, .init = make_fixture, .fini = remove_fixture, .timeout = 300);

static char uses_path[500];
static int64_t used_entry;

static aoticache_index *open_index(void)
{
    snprintf(uses_path, sizeof uses_path, "%s-uses", fixture_path);
    return fixture_must_open();
}

static off_t file_size(void)
{
    struct stat found;
    return stat(uses_path, &found) == 0 ? found.st_size : -1;
}

/* Defers one process's hits of `used_entry`. */
static aoticache_status defer(aoticache_index *index, aoticache_error *ret_error)
{
    static const uint64_t counts[AOTICACHE_INDEX_BUCKETS] = {[40] = HITS};
    static const aoticache_index_count hits = {.name = "hits", .value = HITS};
    static const aoticache_index_histogram histogram = {
        .name = "lookup", .sum = 100 * HITS, .maximum = 120, .counts = counts};
    const aoticache_index_tally tally = {.entry_id = used_entry, .last_used_ns = 5000, .uses = HITS, .hits = HITS};
    const aoticache_index_deltas deltas = {.now_ns = aoticache_wall_ns(),
                                           .tallies = &tally,
                                           .tally_count = 1,
                                           .counts = &hits,
                                           .count_count = 1,
                                           .histograms = &histogram,
                                           .histogram_count = 1};
    return aoticache_index_defer_deltas(index, &deltas, ret_error);
}

static void must_defer(aoticache_index *index)
{
    aoticache_error error = {.message = ""};
    cr_assert_eq(defer(index, &error), AOTICACHE_OK, "%s", error.message);
}

static aoticache_status flush(aoticache_index *index)
{
    const aoticache_index_deltas deltas = {.now_ns = aoticache_wall_ns()};
    return aoticache_index_flush_deltas(index, &deltas, true, NULL);
}

struct seen {
    uint64_t hits, buckets, sum, uses, in_slots, in_groups;
};

static bool see_count(void *user, const char *name, uint64_t value)
{
    cr_assert_str_eq(name, "hits");
    ((struct seen *)user)->hits += value;
    return true;
}

static bool see_histogram(void *user, const aoticache_index_histogram *histogram, bool is_less)
{
    (void)is_less;
    ((struct seen *)user)->buckets += histogram->counts[40];
    ((struct seen *)user)->sum += histogram->sum;
    return true;
}

static bool see_slot(void *user, int64_t start_seconds, const char *name, uint64_t value)
{
    (void)start_seconds, (void)name;
    ((struct seen *)user)->in_slots += value;
    return true;
}

static bool see_group(void *user, const char *name, const aoticache_index_group *group)
{
    (void)name;
    ((struct seen *)user)->in_groups += (uint64_t)group->hits;
    return true;
}

static bool see_entry(void *user, const aoticache_index_entry *entry)
{
    ((struct seen *)user)->uses += entry->uses;
    return true;
}

static struct seen read_all(aoticache_index *index)
{
    struct seen seen = {.hits = 0};
    int64_t zero_ns;
    const aoticache_index_reading reading = {.count = see_count, .histogram = see_histogram, .user = &seen};
    cr_assert_eq(aoticache_index_read_statistics(index, &reading, &zero_ns, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_list_history(index, 0, 86400, see_slot, &seen, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_list_groups(index, AOTICACHE_INDEX_GROUP_OPERATOR, false, see_group, &seen, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(aoticache_index_list(index, NULL, NULL, 1000, see_entry, &seen, NULL), AOTICACHE_OK);
    return seen;
}

/* Checks that all counters agree on the number of added records. */
static void check_added(aoticache_index *index, uint64_t records)
{
    const struct seen seen = read_all(index);
    cr_assert_eq(seen.hits, records * HITS, "%llu hits of %llu records", (unsigned long long)seen.hits,
                 (unsigned long long)records);
    cr_assert_eq(seen.buckets, records * HITS);
    cr_assert_eq(seen.sum, records * HITS * 100);
    cr_assert_eq(seen.in_slots, records * HITS);
    cr_assert_eq(seen.in_groups, records * HITS);
    cr_assert_eq(seen.uses, used_entry != 0 ? records * HITS : 0);
}

static void put_used_entry(aoticache_index *index)
{
    sample entry;
    sample_make(&entry, 1, 2, 3);
    cr_assert_eq(aoticache_index_put(index, &entry.entry, &used_entry, NULL), AOTICACHE_OK);
}

/* ---- the normal case ---- */

Test(deferred, deferred_are_added_by_the_next_flush_and_the_file_goes)
{
    aoticache_index *index = open_index();
    put_used_entry(index);
    for (int i = 0; i < 3; i++)
        must_defer(index);
    cr_assert(aoticache_index_has_deferred(index));
    check_added(index, 0);
    cr_assert_eq(flush(index), AOTICACHE_OK);
    check_added(index, 3);
    cr_assert_not(aoticache_index_has_deferred(index));
    cr_assert_eq(flush(index), AOTICACHE_OK);
    check_added(index, 3);
    must_defer(index);
    cr_assert_eq(flush(index), AOTICACHE_OK);
    check_added(index, 4);
    aoticache_index_close(index);
}

Test(deferred, flush_that_leaves_them_leaves_them)
{
    aoticache_index *index = open_index();
    must_defer(index);
    const aoticache_index_deltas deltas = {.now_ns = aoticache_wall_ns(), .leaves_deferred = true};
    cr_assert_eq(aoticache_index_flush_deltas(index, &deltas, true, NULL), AOTICACHE_OK);
    cr_assert(aoticache_index_has_deferred(index));
    check_added(index, 0);
    aoticache_index_close(index);
}

static int calls;
static int count_calls(void *user, const char *call, const char *path)
{
    (void)user, (void)path;
    calls += strstr(call, "sync") != NULL || strcmp(call, "write") == 0 ? 1 : 0;
    return 0;
}

Test(deferred, deferring_writes_once_and_syncs_nothing)
{
    aoticache_index *index = open_index();
    must_defer(index);
    aoticache_syscall_hook_set(count_calls, NULL);
    must_defer(index);
    aoticache_syscall_hook_set(NULL, NULL);
    cr_assert_eq(calls, 1);
    aoticache_index_close(index);
}

Test(deferred, file_that_is_full_is_refused_until_it_is_added)
{
    aoticache_index *index = open_index();
    aoticache_error error = {.message = ""};
    uint64_t records = 0;
    put_used_entry(index);
    while (defer(index, &error) == AOTICACHE_OK)
        cr_assert_lt(++records, 10000);
    cr_assert_eq(error.status, AOTICACHE_LOCKED);
    cr_assert_gt(records, 100);
    cr_assert_leq(file_size(), AOTICACHE_PENDING_STATS_MAX_BYTES);
    cr_assert_eq(flush(index), AOTICACHE_OK);
    check_added(index, records);
    must_defer(index);
    aoticache_index_close(index);
}

Test(deferred, read_only_index_defers_nothing)
{
    aoticache_index *index = open_index();
    aoticache_index_close(index);
    cr_assert_eq(fixture_open(true, &index, NULL), AOTICACHE_OK);
    cr_assert_eq(defer(index, NULL), AOTICACHE_DENIED);
    cr_assert_eq(file_size(), -1);
    aoticache_index_close(index);
}

Test(deferred, what_is_no_file_of_one_name_is_not_written_to)
{
    aoticache_index *index = open_index();
    char other[500];
    snprintf(other, sizeof other, "%s/other", fixture_dir);
    fclose(fopen(other, "w"));
    for (int kind = 0; kind < 3; kind++) {
        struct stat found;
        cr_assert_eq(kind == 0   ? link(other, uses_path)
                     : kind == 1 ? symlink(other, uses_path)
                                 : mkfifo(uses_path, 0600),
                     0);
        cr_assert_neq(defer(index, NULL), AOTICACHE_OK);
        cr_assert_eq(flush(index), AOTICACHE_OK);
        cr_assert_eq(stat(other, &found), 0);
        cr_assert_eq(found.st_size, 0);
        unlink(uses_path);
    }
    check_added(index, 0);
    aoticache_index_close(index);
}

/* ---- failures ---- */

static const char *failing;
static int fail_call(void *user, const char *call, const char *path)
{
    (void)path;
    return strcmp(call, failing) == 0 ? *(int *)user : 0;
}

Test(deferred, record_that_does_not_fit_on_the_disk_leaves_nothing)
{
    aoticache_index *index = open_index();
    int cause = ENOSPC;
    must_defer(index);
    const off_t before = file_size();
    failing = "write";
    aoticache_syscall_hook_set(fail_call, &cause);
    cr_assert_eq(defer(index, NULL), AOTICACHE_IO);
    aoticache_syscall_hook_set(NULL, NULL);
    cr_assert_eq(file_size(), before);
    must_defer(index);
    cr_assert_eq(flush(index), AOTICACHE_OK);
    check_added(index, 2);
    aoticache_index_close(index);
}

/* A write beyond the limit would end the process with a signal. */
Test(deferred, record_beyond_the_limit_of_file_sizes_is_refused)
{
    aoticache_index *index = open_index();
    must_defer(index);
    const off_t before = file_size();
    struct rlimit limit, usual;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
    limit = usual;
    limit.rlim_cur = (rlim_t)before + 20;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_neq(defer(index, NULL), AOTICACHE_OK);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &usual), 0);
    cr_assert_eq(file_size(), before);
    must_defer(index);
    cr_assert_eq(flush(index), AOTICACHE_OK);
    check_added(index, 2);
    aoticache_index_close(index);
}

Test(deferred, file_that_outlives_its_merge_is_not_added_again)
{
    aoticache_index *index = open_index();
    int cause = EIO;
    put_used_entry(index);
    must_defer(index);
    must_defer(index);
    failing = "unlink";
    aoticache_syscall_hook_set(fail_call, &cause);
    cr_assert_eq(flush(index), AOTICACHE_OK);
    cr_assert_eq(flush(index), AOTICACHE_OK);
    cr_assert(aoticache_index_has_deferred(index));
    check_added(index, 2);
    must_defer(index); /* after the records that are added */
    cr_assert_eq(flush(index), AOTICACHE_OK);
    check_added(index, 3);
    aoticache_syscall_hook_set(NULL, NULL);
    aoticache_index_close(index);
    index = open_index();
    cr_assert_eq(flush(index), AOTICACHE_OK);
    check_added(index, 3);
    cr_assert_not(aoticache_index_has_deferred(index));
    aoticache_index_close(index);
}

Test(deferred, transaction_that_fails_keeps_the_file)
{
    aoticache_index *index = open_index();
    int cause = ENOSPC;
    put_used_entry(index);
    must_defer(index);
    failing = "pwrite";
    aoticache_syscall_hook_set(fail_call, &cause);
    cr_assert_neq(flush(index), AOTICACHE_OK);
    aoticache_syscall_hook_set(NULL, NULL);
    cr_assert(aoticache_index_has_deferred(index));
    cr_assert_eq(flush(index), AOTICACHE_OK);
    check_added(index, 1);
    aoticache_index_close(index);
}

Test(deferred, holder_of_the_lock_that_is_stopped_stops_nobody)
{
    aoticache_index *index = open_index();
    must_defer(index);
    const int fd = open(uses_path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    const uint64_t begun = aoticache_monotonic_ns();
    cr_assert_eq(defer(index, NULL), AOTICACHE_LOCKED);
    cr_assert_eq(flush(index), AOTICACHE_OK);
    cr_assert_lt(aoticache_monotonic_ns() - begun, UINT64_C(5000000000));
    check_added(index, 1);
    close(fd);
    must_defer(index);
    cr_assert_eq(flush(index), AOTICACHE_OK);
    check_added(index, 2);
    cr_assert_not(aoticache_index_has_deferred(index));
    aoticache_index_close(index);
}

/* ---- damage ---- */

static uint8_t *read_file(size_t *ret_size)
{
    FILE *file = fopen(uses_path, "rb");
    uint8_t *bytes = malloc(AOTICACHE_PENDING_STATS_MAX_BYTES);
    *ret_size = fread(bytes, 1, AOTICACHE_PENDING_STATS_MAX_BYTES, file);
    fclose(file);
    return bytes;
}

static void write_file(const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(uses_path, "wb");
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

/* Adds bytes to the file in steps of another process that has the lock, and flushes after each step. */
static void write_in_steps(aoticache_index *index, const uint8_t *bytes, size_t size, size_t step)
{
    const int fd = open(uses_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    for (size_t at = 0; at < size; at += step) {
        const size_t part = size - at < step ? size - at : step;
        cr_assert_eq(write(fd, bytes + at, part), (ssize_t)part);
        cr_assert_eq(flush(index), AOTICACHE_OK);
    }
    close(fd);
}

/* A reader sees a write of several pages page by page. */
Test(deferred, record_that_is_still_being_written_is_added_when_it_is_complete)
{
    aoticache_index *index = open_index();
    put_used_entry(index);
    must_defer(index);
    must_defer(index);
    must_defer(index);
    size_t size;
    uint8_t *bytes = read_file(&size);
    uint64_t records = 0;
    for (size_t step = 1; step <= size; step += 7) {
        cr_assert_eq(unlink(uses_path), 0);
        memset(bytes + 8, (int)step, 8); /* the file's number */
        write_in_steps(index, bytes, size, step);
        records += 3;
        check_added(index, records);
    }
    free(bytes);
    cr_assert_eq(flush(index), AOTICACHE_OK);
    cr_assert_not(aoticache_index_has_deferred(index));
    check_added(index, records);
    aoticache_index_close(index);
}

/* Flushes the modified file of four records and returns how many were added; the file is gone then. */
static uint64_t count_added(aoticache_index *index)
{
    const uint64_t before = read_all(index).hits;
    cr_assert_eq(flush(index), AOTICACHE_OK);
    cr_assert_not(aoticache_index_has_deferred(index));
    const struct seen seen = read_all(index);
    cr_assert_eq(seen.hits % HITS, 0);
    cr_assert_eq(seen.hits, seen.buckets);
    cr_assert_eq(seen.hits, seen.in_groups);
    return (seen.hits - before) / HITS;
}

Test(deferred, torn_and_damaged_records_are_dropped_and_the_others_added)
{
    aoticache_index *index = open_index();
    size_t size = 0;
    for (int i = 0; i < 4; i++)
        must_defer(index);
    cleanup_free uint8_t *bytes = read_file(&size);
    cleanup_free uint8_t *changed = malloc(size + 7);
    const size_t record = (size - AOTICACHE_PENDING_STATS_HEADER_BYTES) / 4;
    for (size_t i = 1; i <= size; i++) { /* torn write */
        bytes[8] ^= 1;                   /* another file each time */
        bytes[9] += (i & 1) == 0;
        write_file(bytes, i);
        const uint64_t whole =
            i < AOTICACHE_PENDING_STATS_HEADER_BYTES ? 0 : (i - AOTICACHE_PENDING_STATS_HEADER_BYTES) / record;
        cr_assert_eq(count_added(index), whole, "%zu of %zu bytes", i, size);
    }
    for (size_t i = AOTICACHE_PENDING_STATS_HEADER_BYTES; i < size; i++) { /* change a byte of a record */
        memcpy(changed, bytes, size);
        memcpy(changed + 8, &i, sizeof i);
        changed[i] ^= 0x41;
        write_file(changed, size);
        cr_assert_eq(count_added(index), 3, "byte %zu", i);
    }
    const size_t second = AOTICACHE_PENDING_STATS_HEADER_BYTES + record; /* bytes between two records */
    memcpy(changed, bytes, second);
    memcpy(changed + 8, &size, sizeof size);
    memcpy(changed + second, "\x1b?\x1b\0US\x1b", 7);
    memcpy(changed + second + 7, bytes + second, size - second);
    write_file(changed, size + 7);
    cr_assert_eq(count_added(index), 4);
    aoticache_index_close(index);
}

Test(deferred, file_of_another_kind_goes)
{
    aoticache_index *index = open_index();
    size_t size = 0;
    must_defer(index);
    cleanup_free uint8_t *bytes = read_file(&size);
    bytes[0] ^= 1;
    write_file(bytes, size);
    cr_assert_eq(count_added(index), 0);
    cleanup_free uint8_t *large = calloc(3, AOTICACHE_PENDING_STATS_MAX_BYTES);
    write_file(large, (size_t)3 * AOTICACHE_PENDING_STATS_MAX_BYTES);
    cr_assert_eq(defer(index, NULL), AOTICACHE_LOCKED);
    cr_assert_eq(count_added(index), 0);
    aoticache_index_close(index);
}

Test(deferred, record_comes_back_as_it_went)
{
    static const uint64_t buckets[AOTICACHE_INDEX_BUCKETS] = {[0] = 1, [300] = 1 << 20, [511] = 7};
    uint8_t bytes[1024];
    const aoticache_index_tally tallies[2] = {
        {.entry_id = INT64_MAX, .last_used_ns = 1, .uses = 2, .hits = 3, .misses = 4, .compiles = 5},
        {.compile_ns = 6, .saved_ns = 7}};
    const aoticache_index_count count = {.name = "", .value = UINT64_C(1) << 48};
    const aoticache_index_histogram histogram = {.name = "lookup", .sum = 8, .maximum = 9, .counts = buckets};
    const aoticache_index_deltas deltas = {.now_ns = INT64_MAX,
                                           .tallies = tallies,
                                           .tally_count = 2,
                                           .counts = &count,
                                           .count_count = 1,
                                           .histograms = &histogram,
                                           .histogram_count = 1};
    const size_t size = aoticache_index_record_encode(&deltas, bytes, sizeof bytes);
    aoticache_index_record record;
    size_t at = 0;
    cr_assert_gt(size, 0);
    cr_assert_eq(aoticache_index_record_encode(&deltas, bytes, size), size);
    cr_assert_eq(aoticache_index_record_encode(&deltas, bytes, size - 1), 0, "it does not fit");
    cr_assert_eq(aoticache_index_record_encode(&deltas, bytes, size), size);
    cr_assert_eq(aoticache_index_record_next(bytes, size, &at, &record), AOTICACHE_OK);
    cr_assert_eq(at, size);
    cr_assert_eq(record.deltas.now_ns, INT64_MAX);
    cr_assert_eq(record.deltas.tally_count, 2);
    cr_assert_eq(memcmp(record.tallies, tallies, sizeof tallies), 0);
    cr_assert_eq(record.deltas.count_count, 1);
    cr_assert_str_empty(record.counts[0].name);
    cr_assert_eq(record.counts[0].value, UINT64_C(1) << 48);
    cr_assert_eq(record.deltas.histogram_count, 1);
    cr_assert_str_eq(record.histograms[0].name, "lookup");
    cr_assert_eq(record.histograms[0].sum, 8);
    cr_assert_eq(record.histograms[0].maximum, 9);
    cr_assert_eq(memcmp(record.histograms[0].counts, buckets, sizeof buckets), 0);
    aoticache_index_record_clear(&record);
    cr_assert_eq(aoticache_index_record_next(bytes, size, &at, &record), AOTICACHE_NOT_FOUND);
    const aoticache_index_count impossible = {.name = "hits", .value = UINT64_C(1) << 49};
    const aoticache_index_deltas too_much = {.counts = &impossible, .count_count = 1};
    cr_assert_eq(aoticache_index_record_encode(&too_much, bytes, sizeof bytes), 0);
}

/* ---- many processes ---- */

#define PROCESSES 6
#define ROUNDS 400

struct shared {
    atomic_uint_fast64_t begun, ended; /* records */
    atomic_bool is_over;
};

/* Defers hits; processes with even numbers also flush periodically. */
static void work(int number, struct shared *shared, int rounds)
{
    aoticache_index *index = open_index();
    for (int i = 0; i < rounds; i++) {
        atomic_fetch_add(&shared->begun, 1);
        if (defer(index, NULL) == AOTICACHE_OK)
            atomic_fetch_add(&shared->ended, 1);
        else
            atomic_fetch_sub(&shared->begun, 1);
        if (number % 2 == 0 && i % 7 == number % 7)
            flush(index);
    }
    _exit(0);
}

static void run_processes(struct shared *shared, int rounds, bool kills)
{
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0)
            work(i, shared, rounds);
    }
    unsigned seed = (unsigned)getpid();
    for (int i = 0; i < PROCESSES; i++) {
        if (kills) {
            usleep((useconds_t)(rand_r(&seed) % 5000));
            kill(children[i], SIGKILL);
        }
        int result;
        cr_assert_eq(waitpid(children[i], &result, 0), children[i]);
        cr_assert(kills || (WIFEXITED(result) && WEXITSTATUS(result) == 0));
    }
}

static struct shared *share(void)
{
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(shared, MAP_FAILED);
    return shared;
}

Test(deferred, each_record_of_many_processes_counts_once)
{
    aoticache_index *index = open_index();
    struct shared *shared = share();
    put_used_entry(index);
    aoticache_index_close(index);
    run_processes(shared, ROUNDS, false);
    index = open_index();
    cr_assert_eq(flush(index), AOTICACHE_OK);
    cr_assert_not(aoticache_index_has_deferred(index));
    check_added(index, shared->ended);
    cr_assert_gt(shared->ended, ROUNDS);
    aoticache_index_close(index);
}

Test(deferred, processes_that_are_killed_lose_and_double_nothing_that_was_deferred)
{
    aoticache_index *index = open_index();
    struct shared *shared = share();
    put_used_entry(index);
    aoticache_index_close(index);
    for (int i = 0; i < 40; i++)
        run_processes(shared, 1000000, true);
    index = open_index();
    cr_assert_eq(flush(index), AOTICACHE_OK);
    const uint64_t records = read_all(index).hits / HITS;
    cr_assert_geq(records, shared->ended);
    cr_assert_leq(records, shared->begun);
    check_added(index, records);
    cr_assert_gt(records, 1000);
    aoticache_index_close(index);
}
