/*
 * index/: several connections, threads and processes on one file, and what a fork does.
 */
#include "base/clock.h"
#include "index_fixture.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(index_sharing, .init = fixture_make, .fini = fixture_remove, .timeout = 600);

Test(index_sharing, two_connections_see_each_other)
{
    aoticache_index *one = fixture_must_open(), *two = fixture_must_open();
    aoticache_index_hit hit;
    cr_assert_eq(lookup_number(two, 1, &hit, NULL), AOTICACHE_NOT_FOUND);
    put_numbers(one, 1, 10, 11);
    cr_assert_eq(lookup_number(two, 1, &hit, NULL), AOTICACHE_OK);
    put_numbers(two, 2, 20, 21);
    cr_assert_eq(lookup_number(one, 2, &hit, NULL), AOTICACHE_OK);
    aoticache_index_close(one);
    cr_assert_eq(lookup_number(two, 1, &hit, NULL), AOTICACHE_OK);
    aoticache_index_close(two);
}

Test(index_sharing, lookup_does_not_wait_for_a_writer_but_put_does)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    sqlite3 *writer;
    cr_assert_eq(sqlite3_open(fixture_path, &writer), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(writer, "BEGIN IMMEDIATE; DELETE FROM entries", NULL, NULL, NULL), SQLITE_OK);
    aoticache_index_options options = {.path = fixture_path, .lock_timeout_ms = 50};
    aoticache_index *impatient;
    cr_assert_eq(aoticache_index_open(&options, &impatient, NULL), AOTICACHE_OK);
    aoticache_index_hit hit;
    cr_assert_eq(lookup_number(impatient, 1, &hit, NULL), AOTICACHE_OK);
    sample with;
    sample_make(&with, 2, 20, 21);
    aoticache_error error = {0};
    uint64_t before = aoticache_monotonic_ns();
    cr_assert_eq(index_put(impatient, &with.entry, &error), AOTICACHE_LOCKED, "%s", error.message);
    cr_assert_geq(aoticache_monotonic_ns() - before, 40000000, "waits as long as it was told");
    cr_assert_eq(sqlite3_exec(writer, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(writer);
    must_put(impatient, &with);
    aoticache_index_close(impatient);
    aoticache_index_close(index);
}

struct patient {
    aoticache_index *index;
    aoticache_status status;
};

static void *put_two(void *argument)
{
    struct patient *patient = argument;
    sample with;
    sample_make(&with, 2, 20, 21);
    patient->status = index_put(patient->index, &with.entry, NULL);
    return NULL;
}

/* Lookups of a process do not wait while another of its threads waits for a process, which may be stopped. */
Test(index_sharing, lookup_does_not_wait_for_a_thread_that_waits_to_write)
{
    static const char *const modes[] = {"WAL", "DELETE"};
    for (int i = 0; i < 2; i++) {
        char sql[64];
        aoticache_index_hit hit;
        sqlite3 *writer;
        pthread_t thread;
        aoticache_index *index = fixture_must_open();
        put_numbers(index, 1, 10, 11);
        aoticache_index_close(index);
        snprintf(sql, sizeof sql, "PRAGMA journal_mode=%s", modes[i]);
        fixture_sql(sql);
        struct patient patient = {.index = fixture_must_open()};
        cr_assert_eq(sqlite3_open(fixture_path, &writer), SQLITE_OK);
        cr_assert_eq(sqlite3_exec(writer, "BEGIN IMMEDIATE; DELETE FROM counts", NULL, NULL, NULL), SQLITE_OK);
        cr_assert_eq(pthread_create(&thread, NULL, put_two, &patient), 0);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        const uint64_t begun = aoticache_monotonic_ns();
        for (int tries = 0; tries < 100; tries++)
            cr_assert_eq(lookup_number(patient.index, 1, &hit, NULL), AOTICACHE_OK);
        cr_expect_lt(aoticache_monotonic_ns() - begun, 3000000000, "%s", modes[i]);
        cr_assert_eq(sqlite3_exec(writer, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(writer);
        pthread_join(thread, NULL);
        cr_assert_eq(patient.status, AOTICACHE_OK, "it waits as long as it may");
        cr_assert_eq(lookup_number(patient.index, 2, &hit, NULL), AOTICACHE_OK);
        cr_assert_eq(must_read_totals(patient.index).entries, 2);
        aoticache_index_close(patient.index);
        fixture_remove();
        fixture_make();
    }
}

/* Writes from one of many threads of an index, which also wait: each write is whole, and the totals are right. */
static void *put_some(void *argument)
{
    struct patient *patient = argument;
    static atomic_uint next = 1000;
    for (int i = 0; i < 40 && patient->status == AOTICACHE_OK; i++) {
        const unsigned number = 10 * atomic_fetch_add(&next, 1);
        sample with;
        sample_make(&with, number, number + 1, number + 2);
        patient->status = index_put(patient->index, &with.entry, NULL);
    }
    return NULL;
}

Test(index_sharing, threads_that_wait_to_write_do_not_mix)
{
    enum { THREADS = 6, CONNECTIONS = 2 };
    pthread_t threads[THREADS];
    struct patient patients[THREADS];
    aoticache_index *indexes[CONNECTIONS] = {fixture_must_open(), fixture_must_open()};
    for (int i = 0; i < THREADS; i++) {
        patients[i] = (struct patient){.index = indexes[i % CONNECTIONS]};
        cr_assert_eq(pthread_create(&threads[i], NULL, put_some, &patients[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(patients[i].status, AOTICACHE_OK);
    }
    cr_assert_eq(must_read_totals(indexes[0]).entries, 40 * THREADS);
    cr_assert_eq(index_verify(indexes[1], NULL), AOTICACHE_OK);
    for (int i = 0; i < CONNECTIONS; i++)
        aoticache_index_close(indexes[i]);
}

/* Holds the write lock for 20 ms and releases it for microseconds, repeatedly, like many puts on a slow disk. */
static void *write_all_the_time(void *argument)
{
    atomic_bool *is_over = argument;
    const struct timespec held = {.tv_nsec = 20000000};
    aoticache_index *writer = NULL;
    aoticache_status status = fixture_open(false, &writer, NULL);
    while (status == AOTICACHE_OK && !atomic_load(is_over)) {
        status = aoticache_index_bulk_begin(writer, NULL);
        if (status != AOTICACHE_OK)
            break;
        nanosleep(&held, NULL);
        status = aoticache_index_bulk_end(writer, AOTICACHE_OK, NULL);
    }
    aoticache_index_close(writer);
    return (void *)(intptr_t)status;
}

Test(index_sharing, put_gets_its_turn_next_to_one_that_writes_all_the_time)
{
    aoticache_index *index;
    aoticache_index_options options = {.path = fixture_path, .lock_timeout_ms = 10000};
    cr_assert_eq(aoticache_index_open(&options, &index, NULL), AOTICACHE_OK);
    atomic_bool is_over = false;
    pthread_t writer;
    cr_assert_eq(pthread_create(&writer, NULL, write_all_the_time, &is_over), 0);
    aoticache_error error = {0};
    aoticache_status status = AOTICACHE_OK;
    for (uint32_t i = 1; i <= 5 && status == AOTICACHE_OK; i++) {
        sample with;
        sample_make(&with, i, i + 10, 7);
        status = index_put(index, &with.entry, &error);
    }
    atomic_store(&is_over, true);
    void *writers = NULL;
    pthread_join(writer, &writers);
    cr_assert_eq((intptr_t)writers, AOTICACHE_OK);
    cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
    aoticache_index_close(index);
}

static void *put_one(void *argument)
{
    sample with;
    sample_make(&with, 1, 11, 7);
    return (void *)(intptr_t)index_put(argument, &with.entry, NULL);
}

Test(index_sharing, who_waits_to_write_comes_before_who_wrote_last)
{
    aoticache_index *one = fixture_must_open(), *two = fixture_must_open();
    aoticache_index_hit hit;
    cr_assert_eq(aoticache_index_bulk_begin(one, NULL), AOTICACHE_OK);
    char gate_path[PATH_MAX];
    snprintf(gate_path, sizeof gate_path, "%s-gate", fixture_path);
    int gate = open(gate_path, O_RDWR | O_CLOEXEC);
    cr_assert_geq(gate, 0);
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, put_one, two), 0);
    while (flock(gate, LOCK_EX | LOCK_NB) == 0) { /* until the other thread waits */
        flock(gate, LOCK_UN);
        sched_yield();
    }
    cr_assert_eq(aoticache_index_bulk_end(one, AOTICACHE_OK, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_bulk_begin(one, NULL), AOTICACHE_OK);
    cr_assert_eq(lookup_number(one, 1, &hit, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_bulk_end(one, AOTICACHE_OK, NULL), AOTICACHE_OK);
    void *result = NULL;
    pthread_join(other, &result);
    cr_assert_eq((intptr_t)result, AOTICACHE_OK);
    close(gate);
    aoticache_index_close(two);
    aoticache_index_close(one);
}

Test(index_sharing, gate_that_nobody_opens_again_is_gone_round)
{
    aoticache_index *index;
    aoticache_index_options options = {.path = fixture_path, .lock_timeout_ms = 200};
    cr_assert_eq(aoticache_index_open(&options, &index, NULL), AOTICACHE_OK);
    put_numbers(index, 1, 10, 11);
    char gate_path[PATH_MAX];
    snprintf(gate_path, sizeof gate_path, "%s-gate", fixture_path);
    int gate = open(gate_path, O_RDWR | O_CLOEXEC);
    cr_assert_eq(flock(gate, LOCK_EX), 0); /* as by a process that was stopped */
    put_numbers(index, 2, 20, 21);
    close(gate);
    aoticache_index_close(index);
    cr_assert_eq(unlink(gate_path), 0);
    cr_assert_eq(mkdir(gate_path, 0700), 0); /* or if the file cannot be made */
    cr_assert_eq(aoticache_index_open(&options, &index, NULL), AOTICACHE_OK);
    put_numbers(index, 3, 30, 31);
    aoticache_index_close(index);
    cr_assert_eq(rmdir(gate_path), 0);
}

typedef struct thread_work {
    aoticache_index *index;
    uint32_t number;
    int failures;
    aoticache_error error; /* of the last write that failed */
} thread_work;

static void *work_in_thread(void *argument)
{
    thread_work *work = argument;
    for (uint32_t i = 0; i < 25; i++) {
        sample with;
        aoticache_index_hit hit;
        uint32_t key = work->number * 1000 + i;
        sample_make(&with, key, key + 100, 7);
        aoticache_error *error = &work->error;
        work->failures += index_put(work->index, &with.entry, error) != AOTICACHE_OK;
        work->failures += lookup_number(work->index, key, &hit, error) != AOTICACHE_OK;
        work->failures += !aoticache_digest_equal(&hit.artifact, &with.entry.artifact);
        aoticache_index_use use = {hit.entry_id, 1, 1};
        work->failures += aoticache_index_flush(work->index, &use, 1, NULL, 0, error) != AOTICACHE_OK;
        if (i % 2 == 0)
            work->failures += aoticache_index_remove_key(work->index, &with.entry.key, NULL, error) != AOTICACHE_OK;
    }
    return NULL;
}

Test(index_sharing, threads_share_one_index_and_one_file)
{
    aoticache_index *shared = fixture_must_open(), *other = fixture_must_open();
    thread_work work[4];
    pthread_t threads[4];
    for (uint32_t i = 0; i < 4; i++) {
        work[i] = (thread_work){.index = i < 3 ? shared : other, .number = i + 1};
        cr_assert_eq(pthread_create(&threads[i], NULL, work_in_thread, &work[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(work[i].failures, 0, "thread %zu: %s", i, work[i].error.message);
    }
    cr_assert_eq(must_read_totals(shared).entries, 4 * 12);
    cr_assert_eq(index_verify(shared, NULL), AOTICACHE_OK);
    aoticache_index_close(other);
    aoticache_index_close(shared);
}

/* Runs `body` in `count` children concurrently; returns the number of those that did not return 0. */
static int run_children(int count, int (*body)(int number))
{
    int gate[2], bad = 0;
    char go;
    cr_assert_eq(pipe(gate), 0);
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        cr_assert_geq(child, 0);
        if (child == 0) {
            close(gate[1]);
            if (read(gate[0], &go, 1) != 0)
                _exit(50);
            _exit(body(i));
        }
    }
    close(gate[0]);
    close(gate[1]); /* all start now */
    for (int status; wait(&status) > 0;)
        bad += !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return bad;
}

static int create_and_put(int number)
{
    aoticache_index *index;
    aoticache_error error = {0};
    sample with;
    sample_make(&with, (uint32_t)number, 100U + (uint32_t)number, 7);
    if (fixture_open(false, &index, &error) != AOTICACHE_OK || index_put(index, &with.entry, &error) != 0) {
        fprintf(stderr, "process %d: %s\n", number, error.message);
        return 1;
    }
    aoticache_index_close(index);
    return 0;
}

Test(index_sharing, processes_that_create_at_once_all_succeed)
{
    for (int round = 0; round < 10; round++) {
        cr_assert_eq(run_children(6, create_and_put), 0, "round %d", round);
        aoticache_index *index = fixture_must_open();
        cr_assert_eq(must_read_totals(index).entries, 6);
        cr_assert(index_has_log(index));
        aoticache_index_close(index);
        unlink(fixture_path);
    }
}

/* ---- fork ---- */

static aoticache_index *inherited, *inherited_too;

/* Returns whether this process has its own locks in the kernel's table. */
static bool has_locks(void)
{
    FILE *file = fopen("/proc/locks", "r");
    char line[256], mine[32];
    bool found = false;
    snprintf(mine, sizeof mine, " %d ", (int)getpid());
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        found |= strstr(line, mine) != NULL;
    if (file != NULL)
        fclose(file);
    return found;
}

static int use_inherited(int number)
{
    aoticache_index_hit hit;
    sample with;
    sample_make(&with, 100U + (uint32_t)number, 10, 11);
    if (lookup_number(inherited, 1, &hit, NULL) != AOTICACHE_OK)
        return 1;
    if (index_put(inherited, &with.entry, NULL) != AOTICACHE_OK)
        return 2;
    if (!has_locks())
        return 3; /* it takes its parent's locks for its own */
    if (lookup_number(inherited_too, 100U + (uint32_t)number, &hit, NULL) != AOTICACHE_OK)
        return 4;
    aoticache_index_close(inherited_too);
    aoticache_index_close(inherited);
    return 0;
}

Test(index_sharing, children_of_a_fork_open_their_own)
{
    inherited = fixture_must_open();
    inherited_too = fixture_must_open();
    put_numbers(inherited, 1, 10, 11);
    if (!has_locks())
        cr_skip_test("/proc/locks does not show the locks of this process");
    cr_assert_eq(run_children(4, use_inherited), 0);
    cr_assert_eq(must_read_totals(inherited).entries, 5);
    put_numbers(inherited, 2, 20, 21);
    cr_assert(has_locks(), "the children gave up the parent's locks");
    cr_assert_eq(index_verify(inherited_too, NULL), AOTICACHE_OK);
    aoticache_index_close(inherited_too);
    aoticache_index_close(inherited);
}

static int close_inherited(int number)
{
    (void)number;
    aoticache_index_close(inherited);
    return 0;
}

Test(index_sharing, child_that_only_closes_harms_nothing)
{
    inherited = fixture_must_open();
    put_numbers(inherited, 1, 10, 11);
    cr_assert_eq(run_children(2, close_inherited), 0);
    put_numbers(inherited, 2, 20, 21);
    char wal[420];
    snprintf(wal, sizeof wal, "%s-wal", fixture_path);
    cr_assert_eq(access(wal, F_OK), 0, "the child removed the WAL");
    aoticache_index_close(inherited);
}

/* Forks in the middle of a statement: the child must get an error, not wait for ever. */
static bool fork_inside(void *user, const aoticache_index_entry *entry)
{
    (void)entry;
    int *result = user;
    pid_t child = fork();
    if (child == 0) {
        aoticache_index_hit hit;
        aoticache_error error = {0};
        aoticache_index *another = NULL;
        bool refused = lookup_number(inherited, 1, &hit, &error) == AOTICACHE_IO &&
                       strstr(error.message, "forked") != NULL && fixture_open(false, &another, NULL) == AOTICACHE_IO;
        aoticache_index_close(inherited);
        _exit(refused ? 0 : 1);
    }
    waitpid(child, result, 0);
    return true;
}

Test(index_sharing, fork_in_the_middle_of_a_statement_is_refused_in_the_child)
{
    inherited = fixture_must_open();
    put_numbers(inherited, 1, 10, 11);
    int result = -1;
    cr_assert_eq(aoticache_index_list(inherited, NULL, NULL, AOTICACHE_INDEX_ALL, fork_inside, &result, NULL),
                 AOTICACHE_OK);
    cr_assert(WIFEXITED(result) && WEXITSTATUS(result) == 0, "status %x", result);
    put_numbers(inherited, 2, 20, 21);
    aoticache_index_close(inherited);
}

static int fork_again(int number)
{
    (void)number;
    aoticache_index_hit hit;
    if (lookup_number(inherited, 1, &hit, NULL) != AOTICACHE_OK)
        return 1;
    pid_t child = fork();
    if (child == 0)
        _exit(lookup_number(inherited, 1, &hit, NULL) == AOTICACHE_OK ? 0 : 1);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 2;
}

Test(index_sharing, grandchildren_work_too)
{
    inherited = fixture_must_open();
    put_numbers(inherited, 1, 10, 11);
    cr_assert_eq(run_children(2, fork_again), 0);
    aoticache_index_close(inherited);
}

/* Dies in a transaction, which must leave the old contents. */
static int die_in_transaction(int number)
{
    (void)number;
    sqlite3 *db;
    if (sqlite3_open(fixture_path, &db) != SQLITE_OK ||
        sqlite3_exec(db, "BEGIN IMMEDIATE; DELETE FROM entries; DELETE FROM objects", NULL, NULL, NULL) != SQLITE_OK)
        return 1;
    raise(SIGKILL);
    return 2;
}

Test(index_sharing, death_of_a_writer_leaves_the_index_as_it_was)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    cr_assert_eq(run_children(1, die_in_transaction), 1, "it did not die");
    put_numbers(index, 2, 20, 21);
    cr_assert_eq(must_read_totals(index).entries, 2);
    cr_assert_eq(index_verify(index, NULL), AOTICACHE_OK);
    aoticache_index_close(index);
}
