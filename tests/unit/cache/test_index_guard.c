/*
 * Things that a host does to its whole process and the index and the store must survive: closed and reused descriptors,
 * a limit of file sizes, a umask that removes all permissions; and a directory that another process has just made.
 */
#include <sys/resource.h>
#include <sys/wait.h>

#include "cache/pins/pins.h"
#include "cache/stats/statistics.h"
#include "tests/unit/fixtures/cache_fixture.h"
#include "tests/helpers/pins.h"

TestSuite(guard, .init = fixture_setup, .fini = fixture_teardown);

/* ---- descriptors that the host closes ---- */

/* Replaces each descriptor of the index, its log and its gate by a file of the host. Returns their number. */
static size_t take_descriptors(int own)
{
    size_t taken = 0;
    for (int fd = 3; fd < 256; fd++) {
        char link[64], path[4400] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (fd == own || readlink(link, path, sizeof path - 1) < 0)
            continue;
        const char *slash = strrchr(path, '/');
        if (slash != NULL && (strcmp(slash, "/index.sqlite3") == 0 || strcmp(slash, "/index.sqlite3-wal") == 0 ||
                              strcmp(slash, "/index.sqlite3-gate") == 0))
            taken += dup2(own, fd) == fd;
    }
    return taken;
}

static size_t count_descriptors_of(int own)
{
    struct stat one, other;
    size_t count = 0;
    cr_assert_eq(fstat(own, &one), 0);
    for (int fd = 3; fd < 256; fd++)
        count += fstat(fd, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
    return count;
}

Test(guard, file_of_the_host_is_not_written_to)
{
    static const char text[] = "this is the host's";
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    int own = open(fixture_write("of-the-host", text), O_RDWR | O_CLOEXEC);
    cr_assert_geq(own, 0);
    const size_t taken = take_descriptors(own);
    cr_assert_geq(taken, 3, "%zu", taken);
    (void)fixture_try_put(cache, 2, "library two", NULL, &error); /* it may be stored without the index, or refused */
    (void)fixture_finds(cache, 1, "library one");
    (void)aoticache_cache_flush(cache, NULL);
    cr_expect_eq(count_descriptors_of(own), taken + 1);
    aoticache_cache_close(cache);
    cr_expect_eq(count_descriptors_of(own), taken + 1, "a descriptor of the host's was closed");
    cr_expect(fixture_fd_has(own, text), "SQLite wrote into the host's file");
    cache = fixture_open();
    cr_expect(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

/* ---- a limit of file sizes ---- */

#define SHARED_MEMORY_BYTES 32768 /* of the index: a process that may not make it cannot use WAL mode */

static rlim_t limit_of_child;

/* Runs `act` in a separate process, with the limit. Returns its status. */
static int end_under_limit(rlim_t bytes, void (*act)(void))
{
    int end = 0;
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(3);
        limit_of_child = bytes;
        act();
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &end, 0), child);
    return end;
}

static void look_up_and_put(void)
{
    aoticache_cache_options options = fixture_options();
    aoticache_cache *cache = NULL;
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    if (aoticache_cache_open(&options, &cache, &error) != AOTICACHE_OK)
        _exit(4);
    const aoticache_status status = fixture_lookup(cache, 1, &artifact);
    if (status != AOTICACHE_OK && limit_of_child >= SHARED_MEMORY_BYTES)
        _exit(5);
    aoticache_artifact_unref(artifact);
    aoticache_request *request = fixture_request(9);
    aoticache_file file = {.name = "library.so", .path = "/proc/self/exe"};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.producer = "test";
    if (aoticache_cache_put(cache, request, &product, NULL, &error) == AOTICACHE_OK)
        _exit(6);
    aoticache_request_free(request);
    aoticache_cache_close(cache);
}

Test(guard, limit_of_file_sizes_ends_no_process)
{
    static const rlim_t limits[] = {0, 100, 1000, 8192, 33000, 40000, 100000};
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    aoticache_cache_close(cache);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const int end = end_under_limit(limits[i], look_up_and_put);
        cr_expect_eq(end, 0, "limit %lu: %s %d", (unsigned long)limits[i], WIFSIGNALED(end) ? "signal" : "status",
                     WIFSIGNALED(end) ? WTERMSIG(end) : WEXITSTATUS(end));
    }
    cache = fixture_open();
    cr_expect(fixture_finds(cache, 1, "library one"));
    cr_expect_not(fixture_finds(cache, 9, ""));
    aoticache_cache_close(cache);
}

/* ---- a umask ---- */

static int expect_usable_by_owner(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)walk;
    if (kind == FTW_F)
        cr_expect((found->st_mode & 0400) != 0, "%s has mode 0%o", path, (unsigned)(found->st_mode & 07777));
    if (kind == FTW_D)
        cr_expect_eq(found->st_mode & 0777, 0700, "%s has mode 0%o", path, (unsigned)(found->st_mode & 07777));
    return 0;
}

/* Root may open everything, so the test checks the modes. */
Test(guard, umask_takes_nothing_from_the_owner)
{
    const char *library = fixture_write("library.so", "library one");
    const mode_t before = umask(0777);
    aoticache_cache *cache = fixture_open();
    aoticache_request *request = fixture_request(1);
    aoticache_file file = {.name = "library.so", .path = library};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    aoticache_error error = {.message = ""};
    product.files = &file;
    product.file_count = 1;
    product.producer = "test";
    cr_expect_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_OK, "%s", error.message);
    const aoticache_key key = fixture_key(1);
    cr_expect_eq(pin_key(cache, &key, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request_free(request);
    aoticache_cache_close(cache);
    umask(before);
    cr_expect_eq(nftw(fixture_cache, expect_usable_by_owner, 16, FTW_PHYS), 0);
    cache = fixture_open();
    cr_expect(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

/* ---- a directory that another process has just made ---- */

static unsigned syncs;

static int count_syncs(void *user, const char *call, const char *path)
{
    (void)user, (void)path;
    syncs += strcmp(call, "fsync") == 0;
    return 0;
}

static unsigned syncs_of_put(aoticache_cache *cache, int64_t number, const char *text)
{
    syncs = 0;
    aoticache_syscall_hook_set(count_syncs, NULL);
    fixture_put(cache, number, text);
    aoticache_syscall_hook_set(NULL, NULL);
    return syncs;
}

/*
 * Makes the 256 directories of objects, one for the first digits of their names. The process that makes one must sync
 * the directory above it.
 */
static void make_directories_of_objects(void)
{
    char path[sizeof fixture_cache + 16];
    for (unsigned i = 0; i < 256; i++) {
        snprintf(path, sizeof path, "%s/objects/%02x", fixture_cache, i);
        cr_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
    }
}

/*
 * The process that made objects/ may have died before it synced the root. Only the first put of a process can find
 * that, so it syncs the root.
 */
Test(guard, name_of_a_directory_that_was_there_is_made_durable_once)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    aoticache_cache_close(cache);
    make_directories_of_objects();
    cache = fixture_open();
    const unsigned first = syncs_of_put(cache, 1, "library one"), second = syncs_of_put(cache, 1, "library one");
    cr_expect_eq(first, second + 1, "%u and %u", first, second);
    aoticache_cache_close(cache);
}
