/*
 * fault_remote: a malicious server. A million responses to requests of a cache, each changed by a rule that follows
 * from its number.
 *
 * The server is a module in this process (tests/fault/remote_liar.h). It was filled by one real push of seven
 * entries: exact and dynamic ones, of several files and requirements, signed by a trusted key and by another. Each
 * case asks for one key in an empty cache, by a pull or by get-or-compile, and one response (or each of a kind) is
 * changed: flipped bits, cut off, swapped, replayed, endless, stopped, bombs of zstd and of JSON, records with
 * another's signatures, a whole forged entry. A few cases push to a server that reports falsely what it has and stores.
 *
 * Then no changed data is in the store: each object is one of the true ones, bit for bit, each entry is one that the
 * trusted key signed and that is not revoked, and no temporary file is left. If something that was offered is missing,
 * there is a reason: one line that names the remote, and a count. Get-or-compile returns the bytes of the right kernel,
 * by the descriptor that the loader would get. Memory and the time of each case have limits.
 *
 * FAULT_STRIDE: only every n-th of the million cases, default 100; 1: each. FAULT_ONLY=4711: only that case, with its
 * log.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/names.h"
#include "cache/entries.h"
#include "cache/stats/statistics.h"
#include "tests/fault/remote_truth.h"

#define CASES 1000000
#define STRIDE 100
#define WARM_UP 300 /* cases after which memory is checked */
#define MOST_FAILURES 20
#define CASE_NS UINT64_C(5000000000)  /* processor time for a case; most need a millisecond */
#define WALL_NS UINT64_C(60000000000) /* elapsed time for a case, even on a busy machine */
#define KEEP_KIB 8192                 /* growth of memory allowed at the end */
#define COMPILE_BYTES 96              /* and for each compile: a process records the time saved for each kernel */
#define PEAK_KIB 114688               /* temporary growth: parsing a record of 1 MiB takes much */

#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif

/* ---- one case ---- */

struct tally {
    long cases, refused, harmless, unchanged;
};

struct state { /* shared with the process that runs the cases */
    long number;
    int mutation; /* of the case */
    struct tally tallies[MUTANT_KINDS];
    long pulls, gets, pushes, taken;
    uint64_t longest_ns, longest_push_ns;
    long longest_number;
    long allocated_before, allocated_after, rss_before, rss_peak; /* KiB */
    char wrong[600];
};
static struct state *state;
static bool is_loud;

static struct {
    int lines;       /* warnings and worse, and messages about failed fetches */
    char first[600]; /* first line that names the remote */
    char bad[600];   /* a line that must not be logged */
} logged;

static void wrong(const char *what, const char *detail)
{
    if (state->wrong[0] == '\0')
        snprintf(state->wrong, sizeof state->wrong, "%.200s: %.390s", what, detail);
}

static bool is_one_line(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

static void take_line(void *user, aoticache_log_level level, const char *line)
{
    (void)user;
    if (is_loud)
        printf("# log %d: %s\n", (int)level, line);
    if (!is_one_line(line))
        snprintf(logged.bad, sizeof logged.bad, "%s", line);
    if (strstr(line, url) == NULL || (level > AOTICACHE_LOG_WARNING && strstr(line, "is not fetched") == NULL))
        return;
    logged.lines++;
    if (logged.first[0] == '\0')
        snprintf(logged.first, sizeof logged.first, "%s", line);
}

/* ---- the store after it ---- */

static int files_seen;

static int check_object(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    static unsigned char bytes[200000];
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest name, actual;
    (void)walk;
    if (kind == FTW_D || kind == FTW_DP)
        return 0;
    files_seen++;
    const size_t length = strlen(path);
    snprintf(hex, sizeof hex, "%.2s%s", path + length - 65, path + length - 62);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd >= 0 ? read(fd, bytes, sizeof bytes) : -1;
    close(fd);
    if (size != (ssize_t)found->st_size || aoticache_digest_from_hex(hex, &name) != AOTICACHE_OK ||
        aoticache_digest_of(bytes, (size_t)size, &actual) != AOTICACHE_OK || !aoticache_digest_equal(&name, &actual))
        wrong("an object in the store has not the bytes of its name", path);
    const struct mutant_object *object = mutant_find_object(&name);
    const aoticache_digest nothing = {{0}};
    const bool is_made_here =
        aoticache_digest_equal(&name, &compiled) ||
        (aoticache_digest_equal(&name, &too_large) && !aoticache_digest_equal(&compiled, &nothing));
    if (object == NULL ? !is_made_here
                       : object->bytes.size != (size_t)size || memcmp(object->bytes.data, bytes, (size_t)size) != 0)
        wrong("an object that nobody trusted made is in the store", path);
    return 0;
}

static int count_file(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)path, (void)found, (void)walk;
    files_seen += kind != FTW_D && kind != FTW_DP;
    return 0;
}

/* Removes the contents of the directory, not the directory itself. */
static int remove_below(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind;
    return walk->level > 0 ? remove(path) : 0;
}

static int walk_directory(const char *name, int (*visit)(const char *, const struct stat *, int, struct FTW *))
{
    char path[700];
    snprintf(path, sizeof path, "%s/target/%s", trial_root(), name);
    files_seen = 0;
    nftw(path, visit, 16, FTW_PHYS | FTW_DEPTH);
    return files_seen;
}

struct signers {
    bool has_trusted;
};

static bool note_signer(void *user, const aoticache_signature *signature, aoticache_signature_state how,
                        const aoticache_public_key *key)
{
    struct signers *signers = user;
    (void)signature, (void)key;
    signers->has_trusted = signers->has_trusted || how == AOTICACHE_SIGNATURE_TRUSTED;
    return true;
}

struct seen {
    aoticache_cache *cache;
    bool has[VERSIONS];
    bool has_key[KEYS + 1], has_any;
};

static bool check_entry(void *user, const aoticache_entry *entry)
{
    struct seen *seen = user;
    struct signers signers = {false};
    size_t i = 0;
    for (int key = 1; key <= KEYS; key++)
        seen->has_key[key] = seen->has_key[key] || aoticache_digest_equal(&keys[key], &entry->key);
    if (aoticache_digest_equal(&entry->artifact, &compiled))
        return true;
    while (i < VERSIONS && !aoticache_digest_equal(&versions[i].artifact, &entry->artifact))
        i++;
    if (i == VERSIONS || !may_come(&versions[i])) {
        wrong("an entry that must not come is in the index", entry->description);
        return true;
    }
    seen->has[i] = true;
    const char *guard = versions[i].guard != NULL ? versions[i].guard : "";
    const aoticache_cpu_features none = {{0}}, required = versions[i].is_demanding ? feature() : none;
    if (!aoticache_digest_equal(&keys[versions[i].key], &entry->key) || strcmp(entry->guard, guard) != 0 ||
        memcmp(&required, &entry->requirements, sizeof required) != 0)
        wrong("an entry answers another request than its manifest says", entry->description);
    if (aoticache_cache_check_signatures(seen->cache, &entry->artifact, note_signer, &signers, NULL) != AOTICACHE_OK ||
        !signers.has_trusted)
        wrong("an entry from the remote has no trusted signature", entry->description);
    return true;
}

static struct seen check_store(aoticache_cache *cache)
{
    struct seen seen = {.cache = cache};
    aoticache_error error = {.message = ""};
    if (aoticache_cache_list(cache, NULL, NULL, check_entry, &seen, &error) != AOTICACHE_OK)
        wrong("the entries cannot be listed", error.message);
    for (int key = 1; key <= KEYS; key++)
        seen.has_any = seen.has_any || seen.has_key[key];
    if (walk_directory("objects", check_object) > 0 && !seen.has_any)
        wrong("an object is in the store that no entry names", mutant_description());
    if (walk_directory("tmp", count_file) != 0)
        wrong("something is left in tmp/", mutant_description());
    return seen;
}

/* Resets, as if the directory were new and the server had not been asked for a long time. */
static void reset(aoticache_cache *cache, const struct seen *seen)
{
    aoticache_error error = {.message = ""};
    for (int key = 1; key <= KEYS; key++)
        if (seen->has_key[key] && aoticache_cache_remove(cache, &keys[key], &error) != AOTICACHE_OK)
            wrong("an entry cannot be removed", error.message);
    if (seen->has_any && walk_directory("objects", count_file) != 0)
        wrong("an object stays that no entry names", mutant_description());
    if (seen->has_any) {
        walk_directory("signatures", remove_below);
        walk_directory("objects",
                       remove_below); /* empty directories, which would have to be searched after each case */
    }
    mutant_forget_failures(cache);
}

/* ---- what a case does ---- */

/* Returns whether entries of a key are missing although the server offered them. */
static bool lacks_something(const struct seen *seen, int key)
{
    for (size_t i = 0; i < VERSIONS; i++)
        if (is_wanted(&versions[i], key) && !seen->has[i] && mutant_offered(&versions[i].artifact))
            return true;
    return false;
}

static bool has_reason(bool is_counted, aoticache_status status, const aoticache_error *error)
{
    if (logged.bad[0] != '\0')
        wrong("a line of the log is not one line", logged.bad);
    if (status != AOTICACHE_OK) {
        if (strstr(error->message, url) == NULL || !is_one_line(error->message))
            wrong("a message does not name the remote", error->message);
        return true;
    }
    if (is_counted && logged.lines == 0)
        wrong("something was refused, and no line says why", mutant_description());
    return is_counted;
}

static void count_case(bool is_reasoned)
{
    struct tally *tally = &state->tallies[state->mutation];
    tally->cases++;
    if (!mutant_has_changed_something())
        tally->unchanged++;
    else if (is_reasoned)
        tally->refused++;
    else
        tally->harmless++;
}

static void judge(bool is_lacking, bool is_reasoned)
{
    count_case(is_reasoned);
    if (is_lacking && !is_reasoned)
        wrong("something was offered, did not come, and nothing says why", mutant_description());
    if (mutant_must_refuse() && !is_reasoned)
        wrong("what must be refused was not", mutant_description());
}

static aoticache_status pull(aoticache_cache *cache, int key, aoticache_transfer_report *ret_report,
                             aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_digest_to_hex(&keys[key], hex);
    options.key_prefix = hex;
    return aoticache_cache_pull(cache, NULL, &options, ret_report, ret_error);
}

static void try_pull(aoticache_cache *cache, int key)
{
    aoticache_transfer_report report = {.entries = 0};
    aoticache_error error = {.message = ""};
    aoticache_status status = pull(cache, key, &report, &error);
    if (status == AOTICACHE_NOT_FOUND && (report.refused > 0 || !mutant_lists_key())) /* the list does not have it */
        status = AOTICACHE_OK;
    const bool is_reasoned = has_reason(report.refused > 0, status, &error) || report.entries_gone > 0;
    const struct seen seen = check_store(cache);
    judge(lacks_something(&seen, key), is_reasoned);
    if (!mutant_has_changed_something() && key != 6 && (is_reasoned || lacks_something(&seen, key)))
        wrong("an honest answer was refused", logged.first);
    state->taken += report.entries > 0;
    state->pulls++;
    reset(cache, &seen);
}

/* Pulls again: existing entries stay, whatever the server responds. */
static void try_pull_again(aoticache_cache *cache, int key)
{
    aoticache_transfer_report report = {.entries = 0};
    aoticache_error error = {.message = ""};
    if (pull(cache, key, &report, &error) != AOTICACHE_OK)
        wrong("an honest answer was refused", error.message);
    mutant_aim(&keys[key]);
    const aoticache_status status = pull(cache, key, &report, &error);
    const bool is_reasoned =
        has_reason(report.refused > 0, status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status, &error) ||
        report.entries_gone > 0;
    const struct seen seen = check_store(cache);
    for (size_t i = 0; i < VERSIONS; i++)
        if (is_wanted(&versions[i], key) && !seen.has[i])
            wrong("an entry that was here is gone", mutant_description());
    count_case(is_reasoned);
    state->pulls++;
    reset(cache, &seen);
}

struct hook {
    int key, calls;
};

static const struct version *newest(int key)
{
    size_t found = 0;
    for (size_t i = 0; i < VERSIONS; i++)
        if (versions[i].key == key && !versions[i].is_foreign)
            found = i;
    return &versions[found];
}

static aoticache_status compile(void *user, const aoticache_request *request, const char *directory,
                                aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    struct hook *hook = user;
    char paths[3][700];
    aoticache_file files[3];
    aoticache_product product;
    (void)request, (void)directory, (void)ret_error;
    hook->calls++;
    describe_product(newest(hook->key), &product, files, paths);
    return deliver(deliver_user, &product);
}

static bool accept_guard(void *user, const char *guard)
{
    (void)user;
    return strcmp(guard, small_guard) == 0;
}

/* Returns whether the bytes are those of an allowed version of the key, or of the hook's kernel. */
static bool is_right(int key, int fd)
{
    static unsigned char actual[100001], bytes[100000];
    const ssize_t size = pread(fd, actual, sizeof actual, 0);
    for (size_t i = 0; i < VERSIONS; i++) {
        if (versions[i].key != key || (!may_come(&versions[i]) && !versions[i].is_too_large) ||
            (versions[i].guard != NULL && !accept_guard(NULL, versions[i].guard)))
            continue;
        make_bytes(&versions[i].files[0], bytes);
        if (size == (ssize_t)versions[i].files[0].bytes && memcmp(actual, bytes, (size_t)size) == 0)
            return true;
    }
    return false;
}

static uint64_t refusals(aoticache_cache *cache)
{
    aoticache_statistics statistics;
    if (aoticache_cache_get_statistics(cache, NULL, &statistics, NULL) != AOTICACHE_OK)
        return 0;
    return statistics.counters.remote_refused + statistics.counters.remote_errors;
}

static void try_get(aoticache_cache *cache, int key)
{
    struct hook hook = {.key = key};
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    aoticache_request *request = request_of(key);
    const uint64_t before = refusals(cache);
    const aoticache_status status =
        key == 3 ? aoticache_cache_get_or_compile(cache, request, &(aoticache_guard_filter){accept_guard, NULL},
                                                  compile, &hook, &artifact, &error)
                 : aoticache_cache_get_or_compile(cache, request, NULL, compile, &hook, &artifact, &error);
    aoticache_request_free(request);
    if (status != AOTICACHE_OK) {
        wrong("no kernel comes out", error.message);
        return;
    }
    const aoticache_source source = aoticache_artifact_get_info(artifact)->source;
    const bool is_compiled = source == AOTICACHE_SOURCE_COMPILED;
    if (hook.calls != (is_compiled ? 1 : 0) || (!is_compiled && source != AOTICACHE_SOURCE_FETCHED))
        wrong("it is not told where a kernel came from", mutant_description());
    if (!is_right(key, aoticache_artifact_library_fd(artifact)))
        wrong("other bytes come out", mutant_description());
    if (is_compiled)
        compiled = *&aoticache_artifact_get_info(artifact)->digest;
    aoticache_artifact_unref(artifact);
    const bool is_reasoned = has_reason(refusals(cache) > before, AOTICACHE_OK, &error);
    const struct seen seen = check_store(cache);
    judge(is_compiled && mutant_offered(&newest(key)->artifact), is_reasoned);
    if (!mutant_has_changed_something() && key != 6 && (is_reasoned || is_compiled))
        wrong("an honest answer was refused", logged.first);
    state->taken += !is_compiled;
    state->gets++;
    reset(cache, &seen);
}

/* Pushes to a server that reports falsely what it has: local entries stay, and the push ends. */
static void try_push(aoticache_cache *cache, int key)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    const aoticache_secret_key *const signers[] = {ann};
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_transfer_report report = {.entries = 0};
    aoticache_error error = {.message = ""};
    aoticache_verify_report verified = {.entries = 0};
    aoticache_digest_to_hex(&keys[key], hex);
    options.key_prefix = hex;
    options.signers = signers;
    options.signer_count = 1;
    const aoticache_status status = aoticache_cache_push(cache, NULL, &options, &report, &error);
    if (status != AOTICACHE_OK && (strstr(error.message, "mutant:/") == NULL || !is_one_line(error.message)))
        wrong("a push fails, and its message does not name the remote", error.message);
    if (aoticache_cache_verify(cache, NULL, NULL, NULL, NULL, &verified, &error) != AOTICACHE_OK ||
        aoticache_verify_report_problems(&verified) != 0)
        wrong("a push damages what is here", error.message);
    state->tallies[state->mutation].cases++;
    state->tallies[state->mutation].refused += status != AOTICACHE_OK || report.refused > 0;
    state->tallies[state->mutation].harmless += status == AOTICACHE_OK && report.refused == 0;
    state->pushes++;
    mutant_forget_failures(cache);
}

static uint64_t processor_ns(void)
{
    struct timespec now = {.tv_sec = 0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void try_case(long number, aoticache_cache *target, aoticache_cache *sender)
{
    memset(&logged, 0, sizeof logged);
    compiled = (aoticache_digest){{0}};
    state->number = number;
    state->mutation = mutant_choose((uint32_t)number);
    const int key = mutant_replays() ? 1 : 1 + (int)next_random(KEYS);
    const uint64_t begun = aoticache_monotonic_ns(), begun_cpu = processor_ns();
    const bool is_push = mutant_is_push(), is_again = !is_push && next_random(16) == 0;
    if (!is_again)
        mutant_aim(&keys[key]);
    if (is_push)
        try_push(sender, key);
    else if (is_again)
        try_pull_again(target, key);
    else if (!mutant_changes_list() && next_random(4) == 0)
        try_get(target, key);
    else
        try_pull(target, key);
    const uint64_t took = aoticache_monotonic_ns() - begun, cpu = processor_ns() - begun_cpu;
    if (is_push && took > state->longest_push_ns) {
        state->longest_push_ns = took; /* includes waiting between retries */
    } else if (!is_push && cpu > state->longest_ns) {
        state->longest_ns = cpu;
        state->longest_number = number;
    }
    if (took > WALL_NS || (!IS_SANITIZED && cpu > CASE_NS))
        wrong("it takes too long", mutant_description());
    if (is_loud)
        printf("# %s, key %d: %llu us\n", mutant_description(), key, (unsigned long long)took / 1000);
}

/* ---- all of them ---- */

/* Returns VmRSS or VmHWM in KiB. */
static long memory(const char *name)
{
    char line[200];
    long found = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            found = strtol(line + strlen(name) + 1, NULL, 10);
    if (file != NULL)
        fclose(file);
    return found;
}

/* Returns allocated KiB, without what malloc keeps for later. */
static long allocated(void)
{
    const struct mallinfo2 info = mallinfo2();
    return (long)((info.uordblks + info.hblkhd) / 1024);
}

/* Resets the peak, so that VmHWM counts from now. */
static void forget_peak(void)
{
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "5", 1) != 1)
        printf("# the peak of memory cannot be set back\n");
    close(fd);
}

/* Tries cases in a separate process, until the first that fails. */
static void try_from(long number, long stride, long end)
{
    aoticache_cache *target = open_at("target", "mutant:/truth read-only max-object=64K timeout=40ms", true);
    aoticache_cache *sender = open_at("truth", "mutant:/push write-only timeout=40ms", false);
    for (long done = 0; number < end && state->wrong[0] == '\0'; number += stride, done++) {
        alarm(120);
        try_case(number, target, sender);
        if (done == WARM_UP) {
            state->allocated_before = allocated();
            state->rss_before = memory("VmRSS:");
            forget_peak();
        }
    }
    state->allocated_after = allocated();
    state->rss_peak = memory("VmHWM:");
    aoticache_cache_close(target);
    aoticache_cache_close(sender);
}

/* Tries cases in a child. Returns the number to continue with. */
static long try_in_child(long number, long stride, long end, long *failed)
{
    int result = 0;
    state->wrong[0] = '\0';
    state->number = number;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        try_from(number, stride, end);
        fflush(stdout);
        exit(0);
    }
    if (child < 0 || waitpid(child, &result, 0) != child)
        fail("fork", strerror(errno));
    if (WIFSIGNALED(result))
        snprintf(state->wrong, sizeof state->wrong, "it died by signal %d", WTERMSIG(result));
    else if (WEXITSTATUS(result) != 0 && state->wrong[0] == '\0')
        snprintf(state->wrong, sizeof state->wrong, "the process ended with %d", WEXITSTATUS(result));
    if (state->wrong[0] == '\0')
        return end;
    ++*failed;
    printf("not ok - case %ld (%s): %s\n", state->number, mutant_kind_name(state->mutation), state->wrong);
    return state->number + stride;
}

static long check_memory(void)
{
    const long kept = state->allocated_after - state->allocated_before, peak = state->rss_peak - state->rss_before;
    if (state->rss_before == 0)
        return 0;
    const long may_keep = KEEP_KIB + state->gets * COMPILE_BYTES / 1024;
    const bool is_bad = !IS_SANITIZED && (kept > may_keep || peak > PEAK_KIB);
    printf("%s - memory: %ld KiB more allocated after all cases than after %d, %ld KiB more resident for a moment\n",
           is_bad ? "not ok" : "ok", kept, WARM_UP, peak);
    return is_bad;
}

static void report(uint64_t begun)
{
    const double seconds = (double)(aoticache_monotonic_ns() - begun) * 1e-9;
    long all = 0;
    for (int i = 0; i < MUTANT_KINDS; i++) {
        const struct tally *tally = &state->tallies[i];
        all += tally->cases;
        if (tally->cases > 0)
            printf("ok - %s: %ld cases, %ld refused, %ld did no harm, %ld changed nothing\n", mutant_kind_name(i),
                   tally->cases, tally->refused, tally->harmless, tally->unchanged);
    }
    printf("# %ld cases in %.1f s, %.0f each second: %ld pulls, %ld times get or compile, %ld pushes; %ld brought "
           "an entry\n",
           all, seconds, (double)all / seconds, state->pulls, state->gets, state->pushes, state->taken);
    printf("# the longest took %.1f ms of processor time (case %ld), the longest push %.1f ms in all\n",
           (double)state->longest_ns * 1e-6, state->longest_number, (double)state->longest_push_ns * 1e-6);
}

int main(void)
{
    const char *text = getenv("FAULT_STRIDE"), *only = getenv("FAULT_ONLY");
    const long stride = text != NULL && strtol(text, NULL, 10) > 0 ? strtol(text, NULL, 10) : STRIDE;
    long failed = 0, number = only != NULL ? strtol(only, NULL, 10) : 0;
    const long end = only != NULL ? number + 1 : CASES;
    trial_make_root();
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED)
        fail("mmap", strerror(errno));
    fill_servers();
    is_loud = only != NULL;
    const uint64_t begun = aoticache_monotonic_ns();
    while (number < end && failed < MOST_FAILURES)
        number = try_in_child(number, stride, end, &failed);
    report(begun);
    failed += check_memory();
    remove_directory(trial_root());
    fflush(stdout);
    _exit(failed == 0 ? 0 : 1);
}
