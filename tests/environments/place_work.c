/*
 * place_work: uses a cache in the trial of unusual environments, and checks afterwards that all entries are there.
 *
 *   place_work STATE work CACHE SECONDS [processes=8] [threads=1] [wait=2] [kill=1] [jump=1] [bus=1]
 *   place_work STATE check CACHE [quarantine=1]
 *   place_work STATE read CACHE [part=1]
 *
 * STATE is a file on a sound file system. It records which entries were reported as stored; the sources of the entries are next
 * to it. `work` runs processes with threads that put, look up, get or compile, remove, collect, verify, list, flush and open
 * again. Any of these may fail, for the file system may be full or failing; failures are counted and printed, a line for each
 * kind: "failure STATUS ACTION COUNT MESSAGE", "log COUNT MESSAGE". `wait`: seconds to wait for locks. `kill`: from time to
 * time a process is killed and replaced. `jump`: their clock jumps by years, in both directions. `bus`: they may die of
 * SIGBUS. If bytes differ from those of the entry, the trial ends immediately.
 *
 * `check` runs after the environment is restored: each entry that was reported as stored is found with its bytes, nothing is
 * damaged, missing or unreadable, nothing was quarantined (quarantine: except an index), and all operations succeed. `read` only
 * reads, for a cache that cannot be written; part: a copy of an earlier moment, which may lack entries.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/pins/pins.h"
#include "cache/stats/statistics.h"
#include "tests/helpers/cache_process.h"
#include "tests/helpers/pins.h"
#include "tests/unit/fixtures/clock_fixture.h"

#define MAX_PROCESSES 64
#define MAX_THREADS 64
#define KEYS 40         /* entries that are stored and removed again */
#define FIRST_KEPT 1000 /* pinned before they are stored, and never removed */
#define MAX_KEPT 20000
#define MAX_BYTES 40000
#define MAX_SEEN 400
#define YEAR (365 * FIXTURE_DAY)

/* clang-format off */
#define ACTION_LIST(X) X(open) X(keep) X(put) X(look_up) X(compile) X(remove) X(collect) X(verify) X(list) X(flush)
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

/* One kind of line, found again by its hash. If a process is killed while it writes the text, the text stays empty. */
struct seen {
    _Atomic uint64_t hash;
    _Atomic long count;
    char text[400];
};

static struct state {
    _Atomic long done[ACTION_COUNT];
    _Atomic long failed, missed; /* missed: lookups did not find a stored entry, as failing storage may cause */
    _Atomic long jumps;
    _Atomic int next_kept;
    _Atomic int64_t ahead;
    _Atomic bool is_kept[MAX_KEPT];
    struct seen seen[MAX_SEEN];
} *state;

static char sources[600];
static const char *directory;
static bool is_jumping, may_fault;
static uint32_t lock_timeout_ms;
static long faults;
static uint64_t end_ns;

/* ---- lines that were seen ---- */

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* Removes what differs between failures of the same kind: numbers, digests and the names of temporary files. */
static void generalise(const char *line, char *ret_text, size_t size)
{
    size_t at = 0;
    while (*line != '\0' && at + 12 < size) {
        size_t digits = 0, hex = 0;
        if (strncmp(line, "aoticache-", 10) == 0) { /* a temporary directory */
            at += (size_t)snprintf(ret_text + at, size - at, "aoticache");
            line += strcspn(line, "/");
        }
        while (is_hex(line[hex])) {
            digits += line[hex] <= '9';
            hex++;
        }
        if (digits > 0) {
            ret_text[at++] = 'N';
            line += hex;
        } else {
            ret_text[at++] = *line++;
        }
    }
    ret_text[at] = '\0';
}

static void note(const char *line)
{
    char text[400];
    uint64_t hash = 14695981039346656037u;
    generalise(line, text, sizeof text);
    for (const char *c = text; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (int i = 0; i < MAX_SEEN; i++) {
        struct seen *seen = &state->seen[i];
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&seen->hash, &found, hash))
            memcpy(seen->text, text, sizeof text);
        else if (found != hash)
            continue;
        seen->count++;
        return;
    }
}

static void log_line(void *user, aoticache_log_level level, const char *line)
{
    char text[600];
    (void)user;
    if (level > AOTICACHE_LOG_WARNING)
        return;
    snprintf(text, sizeof text, "log %s", line);
    note(text);
}

static void expect(enum action action, aoticache_status status, const aoticache_error *error)
{
    char text[1200];
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND) {
        state->done[action]++;
        return;
    }
    state->failed++;
    snprintf(text, sizeof text, "failure %s %s %s", aoticache_status_name(status), action_names[action],
             error->message);
    note(text);
    if (error->message[0] == '\0' || strchr(error->message, '\n') != NULL)
        fail(action_names[action], "the message is not one line");
}

static void print_seen(void)
{
    long puts = 0;
    for (int i = 0; i < MAX_KEPT; i++)
        puts += state->is_kept[i];
    printf("#");
    for (int action = 0; action < ACTION_COUNT; action++)
        printf(" %s %ld", action_names[action], (long)state->done[action]);
    printf(" failed %ld missed %ld stored %ld jumps %ld\n", (long)state->failed, (long)state->missed, puts,
           (long)state->jumps);
    for (int i = 0; i < MAX_SEEN && state->seen[i].hash != 0; i++) {
        char what[8] = "";
        int begun = 0;
        sscanf(state->seen[i].text, "%7s %n", what, &begun);
        printf("%s %ld %s\n", what, (long)state->seen[i].count, state->seen[i].text + begun);
    }
}

/* ---- libraries: their bytes are computed from the number ---- */

static size_t make_bytes(int number, char *ret_bytes)
{
    const size_t size = 100 + (size_t)(number * 7919 % (MAX_BYTES - 100));
    for (size_t i = 0; i < size; i++)
        ret_bytes[i] = (char)(i * 31 + (size_t)number * 17);
    snprintf(ret_bytes, 40, "library %d", number);
    return size;
}

static bool write_library(const char *path, int number)
{
    char bytes[MAX_BYTES];
    const size_t size = make_bytes(number, bytes);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t done = 0;
    ssize_t put = 0;
    while (fd >= 0 && done < size && ((put = write(fd, bytes + done, size - done)) > 0 || errno == EINTR))
        done += put > 0 ? (size_t)put : 0;
    const bool is_written = fd >= 0 && done == size;
    const int error = errno;
    if (fd >= 0 && close(fd) != 0)
        return false;
    errno = error;
    return is_written;
}

static void check_bytes(int number, const aoticache_artifact *artifact)
{
    char expected[MAX_BYTES], actual[MAX_BYTES + 1], detail[80];
    const size_t size = make_bytes(number, expected);
    ssize_t got;
    int tries = 0; /* the environment may make this read fail, too */
    do
        got = pread(aoticache_artifact_library_fd(artifact), actual, sizeof actual, 0);
    while (got != (ssize_t)size && ++tries < 20);
    if (got < 0 || (got != (ssize_t)size && tries == 20 && memcmp(actual, expected, (size_t)got) == 0))
        return;
    snprintf(detail, sizeof detail, "entry %d: %zd bytes of %zu", number, got, size);
    if (got != (ssize_t)size || memcmp(actual, expected, size) != 0)
        fail("other bytes are served", detail);
}

/* ---- one operation each ---- */

/* Creates a request. If memory is short, it waits until another thread frees some, or the process ends at the end of its time. */
static aoticache_request *request_of(int number)
{
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    while (aoticache_request_create("aten::abs", (aoticache_device){.type = 0, .index = -1}, &request, &error) !=
               AOTICACHE_OK ||
           aoticache_request_add_int(request, NULL, number, &error) != AOTICACHE_OK) {
        if (error.status != AOTICACHE_NO_MEMORY)
            fail("request", error.message);
        aoticache_request_free(request);
        request = NULL;
        if (aoticache_monotonic_ns() > end_ns)
            _exit(0);
        usleep(1000);
    }
    return request;
}

static aoticache_status put(aoticache_cache *cache, int number, aoticache_error *error)
{
    char path[2][700];
    aoticache_status status = AOTICACHE_NOT_FOUND; /* counts as nothing if the source cannot be written */
    snprintf(path[0], sizeof path[0], "%s/%d-%lx.so", sources, (int)getpid(), (unsigned long)pthread_self());
    snprintf(path[1], sizeof path[1], "%s/side", sources);
    aoticache_file files[2] = {{.name = "k.so", .path = path[0]}, {.name = "w.bin", .path = path[1]}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = number % 4 == 0 ? 2 : 1;
    aoticache_request *request = request_of(number);
    if (write_library(path[0], number))
        status = aoticache_cache_put(cache, request, &product, NULL, error);
    aoticache_request_free(request);
    unlink(path[0]);
    return status;
}

static void keep(aoticache_cache *cache, aoticache_error *error)
{
    aoticache_key key;
    const int kept = state->next_kept++;
    if (kept >= MAX_KEPT)
        return;
    aoticache_request *request = request_of(FIRST_KEPT + kept);
    aoticache_status status = aoticache_request_key(request, &key, error);
    aoticache_request_free(request);
    if (status == AOTICACHE_OK)
        status = pin_key(cache, &key, error);
    if (status == AOTICACHE_OK)
        status = put(cache, FIRST_KEPT + kept, error);
    expect(ACTION_keep, status, error);
    state->is_kept[kept] = status == AOTICACHE_OK;
}

static aoticache_status compile(void *user, const aoticache_request *request, const char *target,
                                aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    char path[1400];
    (void)request;
    snprintf(path, sizeof path, "%s/k.so", target);
    if (!write_library(path, *(int *)user))
        return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "cannot write %s: %s", path, strerror(errno));
    aoticache_file file = {.name = "k.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    return deliver(deliver_user, &product);
}

/* Returns one of KEYS, or of the kept ones. */
static int any_number(unsigned random)
{
    const int kept = state->next_kept < MAX_KEPT ? state->next_kept : MAX_KEPT;
    if (random % 2 == 0 || kept == 0)
        return 1 + (int)(random / 2 % KEYS);
    return FIRST_KEPT + (int)(random / 2 % (unsigned)kept);
}

static void look_up(aoticache_cache *cache, int number, bool compiles, aoticache_error *error)
{
    aoticache_artifact *artifact = NULL;
    const bool is_there = number >= FIRST_KEPT && state->is_kept[number - FIRST_KEPT];
    aoticache_request *request = request_of(number);
    const aoticache_status status =
        compiles ? aoticache_cache_get_or_compile(cache, request, NULL, compile, &number, &artifact, error)
                 : aoticache_cache_lookup(cache, request, NULL, &artifact, error);
    aoticache_request_free(request);
    expect(compiles ? ACTION_compile : ACTION_look_up, status, error);
    if (status == AOTICACHE_NOT_FOUND && is_there)
        state->missed++;
    if (status == AOTICACHE_OK)
        check_bytes(number, artifact);
    aoticache_artifact_unref(artifact);
}

static void remove_it(aoticache_cache *cache, int number, aoticache_error *error)
{
    aoticache_key key;
    aoticache_request *request = request_of(number);
    if (aoticache_request_key(request, &key, error) == AOTICACHE_OK)
        expect(ACTION_remove, aoticache_cache_remove(cache, &key, error), error);
    aoticache_request_free(request);
}

static void collect(aoticache_cache *cache, aoticache_error *error)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_entries = KEYS / 2;
    if (is_jumping)
        options.max_age_seconds = 30 * FIXTURE_DAY;
    const aoticache_status status = aoticache_cache_collect(cache, &options, NULL, NULL, NULL, error);
    expect(ACTION_collect, status == AOTICACHE_LOCKED ? AOTICACHE_OK : status, error);
}

/* An index that the disk cannot read counts as damaged: SQLite reports that for EIO (docs/internals/reliability.md). */
static void see_finding(void *user, const char *what, const char *name, const char *detail)
{
    const bool is_index = strncmp(name, "index.sqlite3", 13) == 0;
    if ((strcmp(what, "damaged") == 0 && !is_index) || strcmp(what, "foreign") == 0) {
        tell_finding(user, what, name, detail);
        fail("verify", "something is damaged or foreign");
    }
}

static void verify_it(aoticache_cache *cache, aoticache_error *error)
{
    aoticache_verify_options options = AOTICACHE_VERIFY_OPTIONS_INIT;
    options.jobs = 1;
    expect(ACTION_verify, aoticache_cache_verify(cache, &options, see_finding, NULL, (void *)"verify", NULL, error),
           error);
}

static bool see(void *user, const aoticache_entry *entry)
{
    *(long *)user += entry->bytes > 0;
    return true;
}

static aoticache_cache *try_to_open(aoticache_error *error)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_cache *cache = NULL;
    options.directory = directory;
    options.lock_timeout_ms = lock_timeout_ms;
    options.failure_ttl_seconds = 0;
    options.logger.log = log_line;
    return aoticache_cache_open(&options, &cache, error) == AOTICACHE_OK ? cache : NULL;
}

/* Opens the cache. Returns NULL once the time is over. */
static aoticache_cache *open_patiently(void)
{
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = NULL;
    while (aoticache_monotonic_ns() < end_ns && (cache = try_to_open(&error)) == NULL) {
        expect(ACTION_open, error.status, &error);
        usleep(20000);
    }
    state->done[ACTION_open] += cache != NULL;
    return cache;
}

static void act(aoticache_cache *cache, unsigned random)
{
    aoticache_error error = {.message = ""};
    const unsigned drawn = random % 100, other = random / 100;
    long seen = 0;
    fixture_ahead = state->ahead;
    if (drawn < 20)
        keep(cache, &error);
    else if (drawn < 30)
        expect(ACTION_put, put(cache, 1 + (int)(other % KEYS), &error), &error);
    else if (drawn < 65)
        look_up(cache, any_number(other), false, &error);
    else if (drawn < 80)
        look_up(cache, 1 + (int)(other % KEYS), true, &error);
    else if (drawn < 86)
        remove_it(cache, 1 + (int)(other % KEYS), &error);
    else if (drawn < 91)
        collect(cache, &error);
    else if (drawn < 92)
        verify_it(cache, &error);
    else if (drawn < 96)
        expect(ACTION_list, aoticache_cache_list(cache, NULL, NULL, see, &seen, &error), &error);
    else
        expect(ACTION_flush, aoticache_cache_flush(cache, &error), &error);
}

/* ---- processes and threads ---- */

struct thread {
    pthread_t handle;
    aoticache_cache *cache;
    unsigned random;
};

static void *run_thread(void *argument)
{
    struct thread *thread = argument;
    for (int i = 0; aoticache_monotonic_ns() < end_ns && i < 100; i++) {
        thread->random = thread->random * 1664525u + 1013904223u;
        act(thread->cache, thread->random >> 4);
    }
    return NULL;
}

/* Runs the threads. If none can be started, the process does the work itself. */
static void work(unsigned seed, int thread_count)
{
    static struct thread threads[MAX_THREADS];
    while (aoticache_monotonic_ns() < end_ns) {
        aoticache_cache *cache = open_patiently();
        bool is_started[MAX_THREADS] = {false};
        if (cache == NULL)
            return;
        for (int i = 0; i < thread_count; i++) {
            threads[i].cache = cache;
            threads[i].random += seed * 7919u + (unsigned)i * 104729u;
            is_started[i] = i > 0 && pthread_create(&threads[i].handle, NULL, run_thread, &threads[i]) == 0;
        }
        run_thread(&threads[0]);
        for (int i = 1; i < thread_count; i++)
            if (is_started[i])
                pthread_join(threads[i].handle, NULL);
        aoticache_cache_close(cache);
    }
}

static pid_t start(unsigned seed, int threads)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        work(seed, threads);
        _exit(0);
    }
    return child;
}

/* Waits for a process. SIGXFSZ may come from a limit, SIGBUS from btrfs without space (docs/internals/reliability.md). */
static void end_of(pid_t child, bool was_killed)
{
    int result = 0;
    char text[100];
    if (waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 0)
        return;
    if (WIFSIGNALED(result) && ((was_killed && WTERMSIG(result) == SIGKILL) || WTERMSIG(result) == SIGXFSZ))
        return;
    if (WIFSIGNALED(result) && WTERMSIG(result) == SIGBUS && may_fault) {
        faults++;
        return;
    }
    snprintf(text, sizeof text, "status %x", (unsigned)result);
    fail("a process", WIFSIGNALED(result) ? strsignal(WTERMSIG(result)) : text);
}

static void jump(void)
{
    state->ahead = ((int64_t)next_random(41) - 20) * YEAR + (int64_t)next_random(86400);
    state->jumps++;
}

static void run(int processes, int threads, bool kills)
{
    pid_t children[MAX_PROCESSES];
    unsigned seed = 1;
    long killed = 0;
    for (int i = 0; i < processes; i++) /* a limit may allow fewer */
        if ((children[i] = start(seed++, threads)) < 0 && i == 0)
            fail("fork", strerror(errno));
    while (aoticache_monotonic_ns() < end_ns) {
        usleep(50000 + next_random(100000));
        if (is_jumping)
            jump();
        if (kills && aoticache_monotonic_ns() < end_ns) {
            const int place = (int)next_random((unsigned)processes);
            if (children[place] > 0) {
                kill(children[place], SIGKILL);
                end_of(children[place], true);
                killed++;
            }
            children[place] = start(seed++, threads);
        }
    }
    for (int i = 0; i < processes; i++)
        if (children[i] > 0)
            end_of(children[i], false);
    printf("# %d processes with %d threads each, %ld killed, %ld died of SIGBUS\n", processes, threads, killed, faults);
}

/* ---- afterwards ---- */

static void check_quarantine(bool may_be_index)
{
    char path[700];
    snprintf(path, sizeof path, "%s/quarantine", directory);
    DIR *subdirectory = opendir(path);
    for (struct dirent *item = subdirectory != NULL ? readdir(subdirectory) : NULL; item != NULL;
         item = readdir(subdirectory))
        if (item->d_name[0] != '.' && item->d_type != DT_DIR &&
            !(may_be_index && strncmp(item->d_name, "index.sqlite3", 13) == 0))
            fail("moved to quarantine/", item->d_name);
    if (subdirectory != NULL)
        closedir(subdirectory);
}

static long check_stored(aoticache_cache *cache, bool may_be_part)
{
    long found = 0, lost = 0;
    char text[100];
    for (int kept = 0; kept < MAX_KEPT; kept++) {
        aoticache_artifact *artifact = NULL;
        aoticache_error error = {.message = ""};
        if (!state->is_kept[kept])
            continue;
        aoticache_request *request = request_of(FIRST_KEPT + kept);
        const aoticache_status status = aoticache_cache_lookup(cache, request, NULL, &artifact, &error);
        aoticache_request_free(request);
        if (status == AOTICACHE_OK)
            check_bytes(FIRST_KEPT + kept, artifact);
        else if (status != AOTICACHE_NOT_FOUND)
            fail("look up", error.message);
        found += status == AOTICACHE_OK;
        lost += status != AOTICACHE_OK;
        aoticache_artifact_unref(artifact);
    }
    snprintf(text, sizeof text, "%ld of %ld", lost, lost + found);
    if (lost > 0 && !may_be_part)
        fail("entries that were reported as stored are lost", text);
    return found;
}

static void check_operations(aoticache_cache *cache)
{
    long failed = state->failed;
    memset(state->seen, 0, sizeof state->seen);
    for (unsigned i = 0; i < 100; i++)
        act(cache, i + 100 * i);
    if (state->failed != failed) {
        print_seen();
        fail("the place is well", "and operations fail");
    }
}

static void look(bool is_written, bool may_be_part, bool may_be_index)
{
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = try_to_open(&error);
    if (cache == NULL)
        fail("open", error.message);
    const aoticache_verify_report report = verify(cache, "check");
    if (report.unreadable > 0)
        fail("verify", "something is unreadable");
    const long found = check_stored(cache, may_be_part);
    if (is_written) {
        check_quarantine(may_be_index);
        if (aoticache_cache_is_read_only(cache))
            fail("the place is well", "and the cache is open for reading only");
        check_operations(cache);
        verify(cache, "check after writing");
    }
    aoticache_cache_close(cache);
    printf("# %llu entries, %llu objects, %ld of those that were reported as stored, all with their bytes\n",
           (unsigned long long)report.entries, (unsigned long long)report.objects, found);
}

static void open_state(const char *path)
{
    char side[700];
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *state) != 0)
        fail("state", path);
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (state == MAP_FAILED)
        fail("mmap", strerror(errno));
    close(fd);
    snprintf(sources, sizeof sources, "%.500s.sources", path);
    if (mkdir(sources, 0700) != 0 && errno != EEXIST)
        fail("mkdir", sources);
    snprintf(side, sizeof side, "%s/side", sources);
    write_file(side, "side file");
}

static int number_of(int argc, char **argv, const char *name, int otherwise)
{
    const size_t length = strlen(name);
    for (int i = 4; i < argc; i++)
        if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
            return atoi(argv[i] + length + 1);
    return otherwise;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        fail("arguments", "STATE work|check|read CACHE ...");
    open_state(argv[1]);
    directory = argv[3];
    if (strcmp(argv[2], "work") == 0) {
        const int processes = number_of(argc, argv, "processes", 8), threads = number_of(argc, argv, "threads", 1);
        if (argc < 5 || processes > MAX_PROCESSES || threads > MAX_THREADS)
            fail("arguments", "SECONDS, and not too many");
        may_fault = number_of(argc, argv, "bus", 0) != 0;
        lock_timeout_ms = 1000 * (uint32_t)number_of(argc, argv, "wait", 2);
        is_jumping = number_of(argc, argv, "jump", 0) != 0;
        memset(state->seen, 0, sizeof state->seen);
        end_ns = aoticache_monotonic_ns() + (uint64_t)(strtod(argv[4], NULL) * 1e9);
        random_state = (unsigned)getpid();
        run(processes, threads, number_of(argc, argv, "kill", 0) != 0);
        state->ahead = 0;
        print_seen();
    } else {
        look(strcmp(argv[2], "check") == 0, number_of(argc, argv, "part", 0) != 0,
             number_of(argc, argv, "quarantine", 0) != 0);
    }
    return 0;
}
