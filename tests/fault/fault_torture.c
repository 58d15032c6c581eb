/*
 * fault_torture: eight processes do everything that a cache offers, and are killed at random times.
 *
 * One of them is killed some ten times a second and replaced by another. Periodically all are killed, and the cache is
 * examined: nothing in it is damaged, missing or foreign, nothing was quarantined, and each of the pinned entries that
 * were reported as stored is found with its bytes. Half of the time with WAL, half with a rollback journal. Arguments:
 * seconds (10), the seed of the first process (1). It prints the number of each operation.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/pins/pins.h"
#include "cache/stats/statistics.h"
#include "cache/verify/verify.h"
#include "tests/fault/cases.h"
#include "tests/fault/trial.h"
#include "tests/helpers/cache_process.h"
#include "tests/helpers/pins.h"

#define PROCESSES 8
#define KEYS 40         /* that are put and removed */
#define FIRST_KEPT 1000 /* pinned before they are stored, and never removed */
#define MAX_KEPT 4000
#define EXAMINE_EVERY 40 /* kills */

/* clang-format off */
#define ACTION_LIST(X) \
    X(put) X(keep) X(look_up) X(compile) X(remove_one) X(collect) X(verify_all) X(repair) X(tag) X(list) X(flush) \
    X(export_all) X(import) X(merge) X(reopen)
/* clang-format on */

enum action {
#define ACTION_ENUM(name) ACTION_##name,
    ACTION_LIST(ACTION_ENUM)
#undef ACTION_ENUM
        ACTION_COUNT
};
static const char *const action_names[] = {
#define ACTION_NAME(name) #name,
    ACTION_LIST(ACTION_NAME)
#undef ACTION_NAME
};

static struct shared {
    _Atomic long done[ACTION_COUNT];
    _Atomic long busy; /* results LOCKED and IO: another process held a lock beyond the timeout */
    _Atomic int next_kept;
    _Atomic bool is_kept[MAX_KEPT];
} *shared;

/* ---- a process ---- */

static void expect(enum action action, aoticache_status status, const aoticache_error *error)
{
    if (status == AOTICACHE_LOCKED || status == AOTICACHE_IO)
        shared->busy++;
    else if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        fail(action_names[action], error->message);
    else
        shared->done[action]++;
}

static aoticache_status put_own(aoticache_cache *cache, int number, aoticache_error *error)
{
    char directory[600];
    snprintf(directory, sizeof directory, "%s/own%d", trial_root(), (int)getpid());
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        fail("mkdir", directory);
    return put_numbered(cache, directory, number, number, number % 2 == 0, error);
}

static void keep(aoticache_cache *cache, aoticache_error *error)
{
    const int kept = shared->next_kept++;
    if (kept >= MAX_KEPT)
        return;
    const aoticache_key key = trial_key(FIRST_KEPT + kept);
    aoticache_status status = pin_key(cache, &key, error);
    if (status == AOTICACHE_OK)
        status = put_own(cache, FIRST_KEPT + kept, error);
    expect(ACTION_keep, status, error);
    shared->is_kept[kept] = status == AOTICACHE_OK;
}

static aoticache_status compile(void *user, const aoticache_request *request, const char *directory,
                                aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    char path[1400], text[64];
    (void)request, (void)ret_error;
    library_text(*(int *)user, text);
    snprintf(path, sizeof path, "%s/k.so", directory);
    write_file(path, text);
    aoticache_file file = {.name = "k.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    return deliver(deliver_user, &product);
}

static void look_up(aoticache_cache *cache, int number, bool compiles, aoticache_error *error)
{
    char expected[64], actual[64] = "";
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = make_request(number);
    const aoticache_status status =
        compiles ? aoticache_cache_get_or_compile(cache, request, NULL, compile, &number, &artifact, error)
                 : aoticache_cache_lookup(cache, request, NULL, &artifact, error);
    expect(compiles ? ACTION_compile : ACTION_look_up, status, error);
    aoticache_request_free(request);
    if (status != AOTICACHE_OK)
        return;
    library_text(number, expected);
    if (pread(aoticache_artifact_library_fd(artifact), actual, sizeof actual - 1, 0) < 0 ||
        strcmp(actual, expected) != 0)
        fail("look_up", "other bytes are served");
    aoticache_artifact_unref(artifact);
}

static bool see(void *user, const aoticache_entry *entry)
{
    *(long *)user += entry->bytes > 0;
    return true;
}

static void verify_it(aoticache_cache *cache, bool repairs, aoticache_error *error)
{
    aoticache_verify_options options = AOTICACHE_VERIFY_OPTIONS_INIT;
    aoticache_verify_report report = {.damaged = 0};
    options.jobs = 1;
    options.repair = repairs;
    const aoticache_status status = aoticache_cache_verify(cache, &options, NULL, NULL, NULL, &report, error);
    expect(repairs ? ACTION_repair : ACTION_verify_all, status, error);
    if (status == AOTICACHE_OK && report.damaged + report.foreign > 0)
        fail("verify", "something is damaged or foreign");
}

/* Opens, with retries: others may hold the index beyond the timeout. */
static aoticache_cache *open_patiently(void)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    options.directory = trial_cache();
    options.lock_timeout_ms = 2000;
    while (aoticache_cache_open(&options, &cache, &error) != AOTICACHE_OK)
        if (error.status != AOTICACHE_LOCKED && error.status != AOTICACHE_IO)
            fail("open", error.message);
    return cache;
}

static void act(aoticache_cache **cache, enum action action)
{
    aoticache_error error = {.message = ""};
    aoticache_collect_options collecting = AOTICACHE_COLLECT_OPTIONS_INIT;
    const int number = (int)next_random(KEYS) + 1;
    const aoticache_key key = trial_key(number);
    long seen = 0;
    FILE *to;
    switch (action) {
    case ACTION_put:
        expect(action, put_own(*cache, number, &error), &error);
        break;
    case ACTION_keep:
        keep(*cache, &error);
        break;
    case ACTION_look_up:
    case ACTION_compile:
        look_up(*cache, number, action == ACTION_compile, &error);
        break;
    case ACTION_remove_one:
        expect(action, aoticache_cache_remove(*cache, &key, &error), &error);
        break;
    case ACTION_collect:
        collecting.max_entries = KEYS / 2;
        expect(action, aoticache_cache_collect(*cache, &collecting, NULL, NULL, NULL, &error), &error);
        break;
    case ACTION_verify_all:
    case ACTION_repair:
        verify_it(*cache, action == ACTION_repair, &error);
        break;
    case ACTION_tag:
        expect(action, tag_key(*cache, &key, "night", &error), &error);
        expect(action, untag_key(*cache, &key, "night", &error), &error);
        break;
    case ACTION_list:
        expect(action, aoticache_cache_list(*cache, NULL, NULL, see, &seen, &error), &error);
        break;
    case ACTION_flush:
        expect(action, aoticache_cache_flush(*cache, &error), &error);
        break;
    case ACTION_export_all:
        to = tmpfile();
        if (to == NULL)
            fail("tmpfile", strerror(errno));
        expect(action, aoticache_cache_export(*cache, fileno(to), NULL, NULL, &error), &error);
        fclose(to);
        break;
    case ACTION_import:
        expect(action, trial_import(*cache, &error), &error);
        break;
    case ACTION_merge:
        expect(action, trial_merge(*cache, &error), &error);
        break;
    default:
        aoticache_cache_close(*cache);
        *cache = open_patiently();
        shared->done[action]++;
    }
}

static _Noreturn void work(unsigned seed)
{
    /* the actions that are more frequent than the others */
    static const enum action often[] = {ACTION_put, ACTION_keep, ACTION_look_up, ACTION_look_up, ACTION_compile};
    random_state = seed;
    trial_reopen_archive(); /* its own file position */
    aoticache_cache *cache = open_patiently();
    for (;;)
        act(&cache, next_random(100) < 60 ? often[next_random(sizeof often / sizeof often[0])]
                                          : (enum action)next_random(ACTION_COUNT));
}

/* ---- the parent ---- */

static pid_t processes[PROCESSES];
static unsigned seeds;

static void start(int place)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0)
        fail("fork", strerror(errno));
    if (child == 0)
        work(++seeds * 7919u);
    seeds++;
    processes[place] = child;
}

/* Stops a process. One that ended by itself has found an error. */
static void stop(int place)
{
    int result = 0;
    char path[700];
    kill(processes[place], SIGKILL);
    if (waitpid(processes[place], &result, 0) < 0 || !WIFSIGNALED(result) || WTERMSIG(result) != SIGKILL)
        fail("a process", WIFSIGNALED(result) ? strsignal(WTERMSIG(result)) : "it ended by itself");
    snprintf(path, sizeof path, "%s/own%d", trial_root(), (int)processes[place]);
    remove_directory(path);
}

/*
 * Checks quarantine/. A directory of links that a killed process left half made is moved there as a whole, and remade
 * if needed.
 */
static void check_quarantine(const char *path, const char *journal)
{
    char text[400];
    DIR *directory = opendir(path);
    for (struct dirent *item = directory != NULL ? readdir(directory) : NULL; item != NULL; item = readdir(directory))
        if (item->d_name[0] != '.' && item->d_type != DT_DIR) {
            snprintf(text, sizeof text, "%s was moved to quarantine/", item->d_name);
            fail(journal, text);
        }
    if (directory != NULL)
        closedir(directory);
}

/* Examines the cache in a child, like everything that uses the cache. */
static void examine(const char *journal)
{
    int result = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        char path[700];
        aoticache_cache *cache = open_patiently();
        verify(cache, journal);
        for (int kept = 0; kept < MAX_KEPT; kept++)
            if (shared->is_kept[kept] && !trial_finds(cache, FIRST_KEPT + kept))
                fail(journal, "an entry that was reported as stored is lost");
        snprintf(path, sizeof path, "%s/quarantine", trial_cache());
        check_quarantine(path, journal);
        aoticache_cache_close(cache);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &result, 0) != child || !WIFEXITED(result) || WEXITSTATUS(result) != 0)
        fail(journal, "the cache is not as it should be");
}

static long count_kept(void)
{
    long count = 0;
    for (int kept = 0; kept < MAX_KEPT; kept++)
        count += shared->is_kept[kept];
    return count;
}

static void torture(const char *journal, double seconds)
{
    const uint64_t end = aoticache_monotonic_ns() + (uint64_t)(seconds * 1e9);
    long kills = 0, examined = 0;
    memset(shared, 0, sizeof *shared);
    trial_use_cache("cache");
    remove_directory(trial_cache());
    trial_make_source();
    for (int place = 0; place < PROCESSES; place++)
        start(place);
    while (aoticache_monotonic_ns() < end) {
        const struct timespec pause = {.tv_nsec = 1000000L * (20 + (long)next_random(130))};
        nanosleep(&pause, NULL);
        const int place = (int)next_random(PROCESSES);
        stop(place);
        if (++kills % EXAMINE_EVERY == 0) {
            for (int other = 0; other < PROCESSES; other++)
                if (other != place)
                    stop(other);
            kills += PROCESSES - 1;
            examine(journal);
            examined++;
            for (int other = 0; other < PROCESSES; other++)
                if (other != place)
                    start(other);
        }
        start(place);
    }
    for (int place = 0; place < PROCESSES; place++)
        stop(place);
    kills += PROCESSES;
    examine(journal);
    printf(
        "ok - %s: %ld processes killed in %.0f s, the cache examined %ld times: %ld entries reported as stored, all there;"
        " waited in vain %ld times\n#",
        journal, kills, seconds, examined + 1, count_kept(), (long)shared->busy);
    for (int action = 0; action < ACTION_COUNT; action++)
        printf(" %s %ld", action_names[action], (long)shared->done[action]);
    printf("\n");
}

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? strtod(argv[1], NULL) : 10;
    seeds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    random_state = seeds;
    trial_make_root();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("mmap", strerror(errno));
    for (int network = 0; network < 2; network++) {
        injection_pretend_network(network);
        torture(network ? "rollback journal" : "WAL", seconds / 2);
    }
    remove_directory(trial_root());
    return 0;
}
