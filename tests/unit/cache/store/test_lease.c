/*
 * Leases and the store's lock.
 */
#include "tests/unit/fixtures/cache_fixture.h"

#include <pthread.h>
#include <sys/wait.h>

#include "base/names.h"
#include "cache/store/lock.h"

static aoticache_directory *directory;

static void setup(void)
{
    fixture_setup();
    aoticache_cache_options options = fixture_options();
    options.lock_timeout_ms = 50;
    cr_assert_eq(aoticache_directory_open(&options, &directory, NULL), AOTICACHE_OK);
}

static void teardown(void)
{
    aoticache_directory_close(directory);
    fixture_teardown();
}

TestSuite(lease, .init = setup, .fini = teardown);

Test(lease, second_acquirer_times_out)
{
    aoticache_key key = fixture_key(1), other = fixture_key(2);
    aoticache_lease first = AOTICACHE_LEASE_INIT, second = AOTICACHE_LEASE_INIT;
    bool contended = true;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_lease_acquire(directory, &key, 20, &first, &contended, NULL), AOTICACHE_OK);
    cr_assert_not(contended);
    cr_assert_eq(aoticache_lease_acquire(directory, &key, 20, &second, &contended, &error), AOTICACHE_LOCKED);
    cr_assert_not_null(strstr(error.message, "20 ms"), "%s", error.message);
    cr_assert_eq(aoticache_lease_acquire(directory, &other, 20, &second, &contended, NULL), AOTICACHE_OK);
    cr_assert_eq(fixture_names("leases"), 2);
    aoticache_lease_release(&first);
    aoticache_lease_release(&first);
    aoticache_lease_release(&second);
    cr_assert_eq(fixture_names("leases"), 0);
}

struct waiter {
    aoticache_status status;
    bool contended;
};

static void *wait_for_lease(void *user)
{
    struct waiter *waiter = user;
    aoticache_key key = fixture_key(1);
    aoticache_lease lease = AOTICACHE_LEASE_INIT;
    waiter->status = aoticache_lease_acquire(directory, &key, 300000, &lease, &waiter->contended, NULL);
    aoticache_lease_release(&lease);
    return NULL;
}

Test(lease, waiter_gets_it_after_release)
{
    aoticache_key key = fixture_key(1);
    aoticache_lease lease = AOTICACHE_LEASE_INIT;
    bool contended;
    struct waiter waiters[4] = {{.status = AOTICACHE_IO}};
    pthread_t threads[4];
    cr_assert_eq(aoticache_lease_acquire(directory, &key, 0, &lease, &contended, NULL), AOTICACHE_OK);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, wait_for_lease, &waiters[i]);
    for (int i = 0; i < 4; i++)
        while (!__atomic_load_n(&waiters[i].contended, __ATOMIC_RELAXED)) /* set as soon as it has to wait */
            usleep(1000);
    aoticache_lease_release(&lease);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(waiters[i].status, AOTICACHE_OK);
        cr_assert(waiters[i].contended);
    }
    cr_assert_eq(fixture_names("leases"), 0);
}

/* Its child, which is still alive, does not hold it. */
Test(lease, death_of_a_holder_that_has_forked_frees_it)
{
    aoticache_key key = fixture_key(1);
    aoticache_lease lease = AOTICACHE_LEASE_INIT;
    bool contended;
    int end[2], status;
    cr_assert_eq(pipe(end), 0);
    pid_t holder = fork();
    if (holder == 0) {
        char byte;
        close(end[1]);
        aoticache_lease_acquire(directory, &key, 0, &lease, &contended, NULL);
        if (fork() == 0 && read(end[0], &byte, 1) < 0)
            _exit(1);
        _exit(0);
    }
    close(end[0]);
    cr_assert_eq(waitpid(holder, &status, 0), holder);
    cr_expect_eq(aoticache_lease_acquire(directory, &key, 60000, &lease, &contended, NULL), AOTICACHE_OK);
    aoticache_lease_release(&lease);
    close(end[1]);
}

Test(lease, child_that_releases_leaves_its_parents_alone)
{
    aoticache_key key = fixture_key(1);
    aoticache_lease lease = AOTICACHE_LEASE_INIT, other = AOTICACHE_LEASE_INIT;
    bool contended;
    int status;
    cr_assert_eq(aoticache_lease_acquire(directory, &key, 0, &lease, &contended, NULL), AOTICACHE_OK);
    pid_t child = fork();
    if (child == 0) {
        aoticache_lease_release(&lease);
        _exit(aoticache_lease_acquire(directory, &key, 20, &other, &contended, NULL) == AOTICACHE_LOCKED ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    cr_expect_eq(fixture_names("leases"), 1);
    aoticache_lease_release(&lease);
    cr_expect_eq(fixture_names("leases"), 0);
}

Test(lease, death_of_the_holder_frees_it)
{
    aoticache_key key = fixture_key(1);
    aoticache_lease lease = AOTICACHE_LEASE_INIT;
    bool contended;
    pid_t child = fork();
    if (child == 0) {
        aoticache_lease_acquire(directory, &key, 0, &lease, &contended, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    cr_assert_eq(fixture_names("leases"), 1);
    cr_assert_eq(aoticache_lease_acquire(directory, &key, 1000, &lease, &contended, NULL), AOTICACHE_OK);
    aoticache_lease_release(&lease);
}

Test(lease, release_frees_it_although_a_forked_child_lives)
{
    aoticache_key key = fixture_key(1);
    aoticache_lease lease = AOTICACHE_LEASE_INIT, again = AOTICACHE_LEASE_INIT;
    bool contended;
    int pipes[2];
    cr_assert_eq(pipe(pipes), 0);
    cr_assert_eq(aoticache_lease_acquire(directory, &key, 0, &lease, &contended, NULL), AOTICACHE_OK);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(pipes[1]);
        _exit((int)read(pipes[0], &byte, 1));
    }
    aoticache_lease_release(&lease);
    cr_assert_eq(aoticache_lease_acquire(directory, &key, 100, &again, &contended, NULL), AOTICACHE_OK);
    aoticache_lease_release(&again);
    close(pipes[1]);
    waitpid(child, NULL, 0);
}

Test(lease, symbolic_link_in_its_place_is_refused)
{
    aoticache_key key = fixture_key(1);
    aoticache_lease lease = AOTICACHE_LEASE_INIT;
    char hex[AOTICACHE_DIGEST_HEX_BYTES], path[4400];
    bool contended;
    aoticache_digest_to_hex(&key, hex);
    snprintf(path, sizeof path, "%s/leases", fixture_cache);
    cr_assert_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/leases/%s", fixture_cache, hex);
    cr_assert_eq(symlink(fixture_write("victim", ""), path), 0);
    cr_assert_eq(aoticache_lease_acquire(directory, &key, 100, &lease, &contended, NULL), AOTICACHE_DENIED);
}

Test(lease, store_lock_is_shared_or_exclusive)
{
    aoticache_lock a = AOTICACHE_LOCK_INIT, b = AOTICACHE_LOCK_INIT, c = AOTICACHE_LOCK_INIT;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_lock_store(directory, false, &a, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_lock_store(directory, false, &b, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_lock_store(directory, true, &c, &error), AOTICACHE_LOCKED);
    cr_assert_not_null(strstr(error.message, "lock"), "%s", error.message);
    aoticache_lock_release(&a);
    aoticache_lock_release(&b);
    cr_assert_eq(aoticache_lock_store(directory, true, &c, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_lock_store(directory, false, &a, NULL), AOTICACHE_LOCKED);
    aoticache_lock_release(&c);
}

Test(lease, only_one_collector)
{
    aoticache_lock a = AOTICACHE_LOCK_INIT, b = AOTICACHE_LOCK_INIT;
    cr_assert_eq(aoticache_lock_collector(directory, &a, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_lock_collector(directory, &b, NULL), AOTICACHE_LOCKED);
    aoticache_lock_release(&a);
}

Test(lease, directories_are_opened_without_openat2_too)
{
    int fd = -1;
    atomic_store(&directory->no_openat2, true);
    cr_assert_eq(aoticache_directory_open_subdirectory(directory, "objects/ab", true, &fd, NULL), AOTICACHE_OK);
    close(fd);
    char path[4400];
    snprintf(path, sizeof path, "%s/objects/cd", fixture_cache);
    cr_assert_eq(symlink("ab", path), 0);
    cr_assert_neq(aoticache_directory_open_subdirectory(directory, "objects/cd", false, &fd, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_directory_openat(directory, "../made", O_RDONLY), -1);
    cr_assert_eq(aoticache_directory_openat(directory, "objects//ab", O_RDONLY), -1);
    fd = aoticache_directory_openat(directory, "objects/ab", O_RDONLY | O_DIRECTORY);
    cr_assert_geq(fd, 0);
    close(fd);
}
