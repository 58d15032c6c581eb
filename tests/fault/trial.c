/*
 * trial: repeats operations with failing calls (trial.h).
 */
#include "tests/fault/trial.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "cache/entries.h"
#include "tests/fault/inject.h"
#include "tests/helpers/cache_process.h"

#define CASE_SECONDS 60 /* after this a case counts as hanging */

static char root[512], cache_path[600], template_path[600];
static bool is_verbose, is_child;

const char *trial_root(void)
{
    return root;
}

const char *trial_cache(void)
{
    return cache_path;
}

void trial_use_cache(const char *name)
{
    snprintf(cache_path, sizeof cache_path, "%.400s/%.100s", root, name);
}

static aoticache_cache_options options_here(void)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = cache_path;
    options.lock_timeout_ms = 500;
    options.compile_timeout_ms = 500;
    return options;
}

aoticache_cache *trial_open(void)
{
    const aoticache_cache_options options = options_here();
    return open_with(&options);
}

aoticache_request *trial_request(int number)
{
    injection_pause();
    aoticache_request *request = make_request(number);
    injection_resume();
    return request;
}

aoticache_key trial_key(int number)
{
    aoticache_key key;
    injection_pause();
    aoticache_request *request = make_request(number);
    if (aoticache_request_key(request, &key, NULL) != AOTICACHE_OK)
        fail("key", "no key");
    aoticache_request_free(request);
    injection_resume();
    return key;
}

aoticache_status trial_put(aoticache_cache *cache, int number, bool has_second_file, aoticache_error *ret_error)
{
    char path[2][700], text[64];
    aoticache_file files[2] = {{.name = "k.so", .path = path[0]}, {.name = "w.bin", .path = path[1]}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    injection_pause();
    library_text(number, text);
    snprintf(path[0], sizeof path[0], "%s/made.so", root);
    snprintf(path[1], sizeof path[1], "%s/made.bin", root);
    write_file(path[0], text);
    write_file(path[1], "side file");
    injection_resume();
    product.files = files;
    product.file_count = has_second_file ? 2 : 1;
    product.in_manifest = is_record(number, has_second_file);
    product.producer = "test";
    aoticache_request *request = trial_request(number);
    const aoticache_status status = aoticache_cache_put(cache, request, &product, NULL, ret_error);
    aoticache_request_free(request);
    return status;
}

bool trial_finds(aoticache_cache *cache, int number)
{
    char expected[64], actual[64] = "";
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = make_request(number);
    const aoticache_status status = aoticache_cache_lookup(cache, request, NULL, &artifact, NULL);
    aoticache_request_free(request);
    if (status != AOTICACHE_OK)
        return false;
    library_text(number, expected);
    const ssize_t got = pread(aoticache_artifact_library_fd(artifact), actual, sizeof actual - 1, 0);
    const bool is_right = got == (ssize_t)strlen(expected) && memcmp(actual, expected, (size_t)got) == 0;
    aoticache_artifact_unref(artifact);
    return is_right;
}

/* ---- a directory and its copy ---- */

/* Copies a directory, hard links included: those of side files are checked. */
static void copy_directory(const char *from, const char *to)
{
    struct {
        ino_t inode;
        char path[700];
    } links[64];
    size_t link_count = 0;
    char directories[64][700] = {""};
    size_t directory_count = 1;
    for (size_t i = 0; i < directory_count; i++) {
        char source[1400], target[1400];
        struct stat found;
        snprintf(source, sizeof source, "%s/%.600s", from, directories[i]);
        snprintf(target, sizeof target, "%s/%.600s", to, directories[i]);
        DIR *directory = opendir(source);
        if (directory == NULL || stat(source, &found) != 0 ||
            (mkdir(target, found.st_mode & 07777) != 0 && errno != EEXIST))
            fail("copy", target);
        for (struct dirent *item; (item = readdir(directory)) != NULL;) {
            if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
                continue;
            snprintf(source, sizeof source, "%s/%.300s/%.255s", from, directories[i], item->d_name);
            snprintf(target, sizeof target, "%s/%.300s/%.255s", to, directories[i], item->d_name);
            if (lstat(source, &found) != 0)
                fail("copy", source);
            if (S_ISDIR(found.st_mode)) {
                if (directory_count == 64)
                    fail("copy", "too many directories");
                snprintf(directories[directory_count++], sizeof directories[0], "%.300s/%.255s", directories[i],
                         item->d_name);
                continue;
            }
            size_t known = 0;
            while (known < link_count && links[known].inode != found.st_ino)
                known++;
            if (known < link_count) {
                if (link(links[known].path, target) != 0)
                    fail("copy", target);
                continue;
            }
            char bytes[65536];
            const int in = open(source, O_RDONLY), out = open(target, O_WRONLY | O_CREAT | O_EXCL, 0600);
            for (ssize_t got; (got = read(in, bytes, sizeof bytes)) > 0;)
                if (write(out, bytes, (size_t)got) != got)
                    fail("copy", target);
            if (in < 0 || out < 0 || fchmod(out, found.st_mode & 07777) != 0)
                fail("copy", target);
            close(in);
            close(out);
            if (found.st_nlink > 1 && link_count < 64) {
                links[link_count].inode = found.st_ino;
                snprintf(links[link_count++].path, sizeof links[0].path, "%.699s", target);
            }
        }
        closedir(directory);
    }
}

static void make_template(const struct operation *operation)
{
    aoticache_error error = {.message = ""};
    remove_directory(cache_path);
    remove_directory(template_path);
    if (!operation->without_cache) {
        aoticache_cache *cache = trial_open();
        for (int i = 1; i <= TRIAL_STORED; i++)
            if (trial_put(cache, i, i % 2 == 0, &error) != AOTICACHE_OK)
                fail("put", error.message);
        aoticache_cache_close(cache);
    }
    if (operation->spoil != NULL)
        operation->spoil();
    if (!operation->without_cache)
        copy_directory(cache_path, template_path);
}

static int count_names(const char *path)
{
    DIR *directory = opendir(path);
    int names = 0;
    if (directory == NULL)
        return 0;
    for (struct dirent *item; (item = readdir(directory)) != NULL;)
        names += item->d_name[0] != '.';
    closedir(directory);
    return names;
}

static int count_in_cache(const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", cache_path, name);
    return count_names(path);
}

/* ---- one case, in a child ---- */

#ifdef __SANITIZE_ADDRESS__
const char *__lsan_default_suppressions(void);

/* Returns suppressions. libarchive 3.6 leaks if zstd fails, libzip 1.7 if a member cannot be opened. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libarchive\nleak:libzip\n";
}
#endif

struct outcome { /* shared with the child */
    struct injection injection;
    aoticache_status status;
    char message[AOTICACHE_ERROR_MESSAGE_BYTES];
    char wrong[700];
    long leaked_blocks; /* blocks left after closing; also used for the run without failures */
};
static struct outcome *outcome;

static _Noreturn void __attribute__((format(printf, 1, 2))) wrong(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    vsnprintf(outcome->wrong, sizeof outcome->wrong, format, rest);
    va_end(rest);
    if (!is_child)
        fail("without a failure", outcome->wrong);
    _exit(3);
}

static unsigned statuses_of(const struct injection *injection)
{
    const unsigned ok = TRIAL_MAY_BE(OK), io = TRIAL_MAY_BE(IO);
    switch (injection->kind) {
    case INJECT_MEMORY:
        return ok | TRIAL_MAY_BE(NO_MEMORY);
    case INJECT_THREAD:
        return ok | io | TRIAL_MAY_BE(NO_MEMORY);
    case INJECT_ERROR:
        break;
    default:
        return ok;
    }
    if (strstr(injection->path, "-shm") != NULL) /* SQLite then treats the index as read-only */
        return ok | io | TRIAL_MAY_BE(DENIED) | TRIAL_MAY_BE(NO_MEMORY);
    switch (injection->error) {
    case EINTR: /* SQLite treats an interrupted lock as one of another process */
        return ok | (strcmp(injection->call, "fcntl") == 0 ? TRIAL_MAY_BE(LOCKED) : 0);
    case ENOMEM:
        return ok | TRIAL_MAY_BE(NO_MEMORY);
    case EACCES: /* SQLite: an error of a file that is open already */
        return ok | TRIAL_MAY_BE(DENIED) | (injection->persists ? io : 0);
    case EROFS:
        return ok | io | TRIAL_MAY_BE(DENIED);
    case EIO: /* SQLite: a lock that it does not get in time */
        if (strcmp(injection->call, "fcntl") == 0 || injection->persists)
            return ok | io | TRIAL_MAY_BE(LOCKED) |
                   (strcmp(injection->call, "stat64") == 0 ? TRIAL_MAY_BE(DENIED) : 0) |
                   /* SQLite treats a file that cannot be read as damaged (SQLITE_IOERR_CORRUPTFS) */
                   (strcmp(injection->call, "pread") == 0 ? TRIAL_MAY_BE(CORRUPT) : 0);
        if (strcmp(injection->call, "stat64") == 0) /* SQLite assumes that its file was moved, and only reads it */
            return ok | io | TRIAL_MAY_BE(DENIED);
        return ok | io;
    case ENOLCK:
        return ok | io | TRIAL_MAY_BE(LOCKED);
    default:
        return ok | io;
    }
}

static void check_result(const struct operation *operation, aoticache_status status, const aoticache_error *error)
{
    const unsigned allowed = statuses_of(&outcome->injection) | operation->may_be;
    if ((allowed & (1u << status)) == 0)
        wrong("the result is %s: %s", aoticache_status_name(status), error->message);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        return;
    if (error->message[0] == '\0')
        wrong("the result is %s, without a message", aoticache_status_name(status));
    if (error->status != status)
        wrong("the result is %s, the message's is %s: %s", aoticache_status_name(status),
              aoticache_status_name(error->status), error->message);
    if (strstr(error->message, "(null)") != NULL || strchr(error->message, '\n') != NULL)
        wrong("the message is no line: %s", error->message);
}

static void check_stored(const struct operation *operation, aoticache_cache *cache)
{
    for (int i = 1; !operation->removes && i <= TRIAL_STORED; i++)
        if (!trial_finds(cache, i))
            wrong("entry %d, which was stored before, is not found", i);
}

/* Checks the cache with a fresh handle, as another process has. */
static void look_at_cache(const struct operation *operation)
{
    aoticache_verify_report report;
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = NULL;
    const aoticache_cache_options options = options_here();
    aoticache_verify_options verifying = AOTICACHE_VERIFY_OPTIONS_INIT;
    verifying.jobs = 1;
    verifying.repair = operation->lacks_unreadable && outcome->injection.kind == INJECT_ERROR;
    if (aoticache_cache_open(&options, &cache, &error) != AOTICACHE_OK)
        wrong("it cannot be opened afterwards: %s", error.message);
    if (aoticache_cache_verify(cache, &verifying, NULL, NULL, NULL, &report, &error) != AOTICACHE_OK)
        wrong("it cannot be verified afterwards: %s", error.message);
    if (!verifying.repair && aoticache_verify_report_problems(&report) - report.unindexed + report.unreadable != 0)
        wrong("it is not sound afterwards: damaged %d, missing %d, foreign %d, wrong entries %d, links %d, marks %d",
              (int)report.damaged, (int)report.missing, (int)report.foreign, (int)report.wrong_entries,
              (int)report.wrong_links, (int)report.wrong_marks);
    check_stored(operation, cache);
    if (operation->puts != 0 && !trial_finds(cache, operation->puts))
        wrong("what it stored is not found");
    const char *problem = operation->look != NULL ? operation->look(cache) : NULL;
    if (problem != NULL)
        wrong("%s", problem);
    aoticache_cache_close(cache);
    /* Files that the disk reports as unreadable may be quarantined: SQLite reports damage. */
    const bool is_unreadable = outcome->injection.error == EIO && strcmp(outcome->injection.call, "pread") == 0;
    if (!operation->is_unsound && !is_unreadable && count_in_cache("quarantine") > 0)
        wrong("something sound was moved to quarantine/");
}

static aoticache_status perform_failing(const struct operation *operation, aoticache_cache *cache,
                                        aoticache_error *error)
{
    injection_begin(&outcome->injection);
    const aoticache_status status = operation->perform(cache, error);
    injection_end();
    outcome->status = status;
    snprintf(outcome->message, sizeof outcome->message, "%s", error->message);
    return status;
}

static void run_case(const struct operation *operation)
{
    aoticache_error error = {.message = ""}, second = {.message = ""};
    const long blocks = injection_live_blocks();
    const int descriptors = count_names("/proc/self/fd");
    aoticache_cache *cache = operation->opens_itself || operation->without_cache ? NULL : trial_open();
    aoticache_status status = perform_failing(operation, cache, &error);
    check_result(operation, status, &error);
    if (status == AOTICACHE_OK && operation->puts != 0 && cache != NULL && !trial_finds(cache, operation->puts) &&
        !operation->may_not_store)
        wrong("it returned OK, and what it stored is not found");
    if (cache != NULL && !operation->is_unsound)
        check_stored(operation, cache);
    status = operation->perform(cache, &second);
    if (status != AOTICACHE_OK)
        wrong("the second try failed: %s: %s (the first: %s)", aoticache_status_name(status), second.message,
              error.message);
    aoticache_cache_close(cache);
    if (!operation->without_cache)
        look_at_cache(operation);
    outcome->leaked_blocks = injection_live_blocks() - blocks;
    if (count_names("/proc/self/fd") != descriptors)
        wrong("%d descriptors are left open", count_names("/proc/self/fd") - descriptors);
}

/* Makes a fresh copy, and runs the case in a child: errors are in outcome->wrong. */
static void try_case(const struct operation *operation, struct injection injection)
{
    int result = 0;
    if (!operation->without_cache) {
        remove_directory(cache_path);
        copy_directory(template_path, cache_path);
    }
    memset(outcome, 0, sizeof *outcome);
    outcome->injection = injection;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        is_child = true;
        alarm(CASE_SECONDS);
        run_case(operation);
        if (operation->keeps_blocks > 0)
            _exit(0);
        exit(0); /* the sanitizer looks for leaks at exit */
    }
    if (child < 0 || waitpid(child, &result, 0) != child)
        fail("fork", strerror(errno));
    if (WIFSIGNALED(result) && WTERMSIG(result) == SIGALRM)
        snprintf(outcome->wrong, sizeof outcome->wrong, "it hangs");
    else if (WIFSIGNALED(result))
        snprintf(outcome->wrong, sizeof outcome->wrong, "it died by signal %d", WTERMSIG(result));
    else if (WEXITSTATUS(result) != 0 && outcome->wrong[0] == '\0')
        snprintf(outcome->wrong, sizeof outcome->wrong, "the child ended with %d", WEXITSTATUS(result));
}

/* ---- all cases of an operation ---- */

static const int errors[] = {EIO, EACCES, EMFILE, ENOMEM, EINTR, ENOSPC, EDQUOT, EROFS, ENOLCK, EAGAIN};
static const char *const error_names[] = {"EIO",    "EACCES", "EMFILE", "ENOMEM", "EINTR",
                                          "ENOSPC", "EDQUOT", "EROFS",  "ENOLCK", "EAGAIN"};
#define ERROR_COUNT (sizeof errors / sizeof errors[0])
/* Errors that persist until somebody acts. */
static const int lasting[] = {EIO, ENOSPC, EROFS, EMFILE, EACCES};

struct tally {
    long cases, failed, ok, error; /* ok: the operation succeeded nevertheless */
    long baseline;                 /* blocks left by the run without failures */
};

static void judge(const struct operation *operation, const struct injection *injection, struct tally *tally)
{
    static const char *const kinds[] = {"nothing", "error", "short", "memory", "thread"};
    const char *name = "";
    for (size_t i = 0; i < ERROR_COUNT; i++)
        name = injection->kind == INJECT_ERROR && errors[i] == injection->error ? error_names[i] : name;
    tally->cases += outcome->injection.happened;
    if (outcome->wrong[0] == '\0' && outcome->leaked_blocks > tally->baseline + operation->keeps_blocks &&
        !injection->traces)
        snprintf(outcome->wrong, sizeof outcome->wrong, "%ld blocks of memory are leaked",
                 outcome->leaked_blocks - tally->baseline);
    if (outcome->injection.happened && outcome->wrong[0] == '\0') {
        tally->ok += outcome->status == AOTICACHE_OK;
        tally->error += outcome->status != AOTICACHE_OK;
    }
    if (is_verbose && outcome->message[0] != '\0')
        printf("# %s: %s %s %ld%s %s %s: %s: %s\n", operation->name, kinds[injection->kind], name, injection->at,
               injection->persists ? "+" : "", outcome->injection.call, outcome->injection.path,
               aoticache_status_name(outcome->status), outcome->message);
    if (outcome->wrong[0] == '\0')
        return;
    tally->failed++;
    printf("not ok - %s: %s %s at %ld%s (%s %s): %s\n", operation->name, kinds[injection->kind], name, injection->at,
           injection->persists ? " and all after it" : "", outcome->injection.call, outcome->injection.path,
           outcome->wrong);
}

static void try_and_judge(const struct operation *operation, struct injection injection, struct tally *tally)
{
    try_case(operation, injection);
    judge(operation, &injection, tally);
}

static void try_calls(const struct operation *operation, long calls, long stride, struct tally *tally)
{
    long n = 0; /* every stride-th of all cases, whatever the call and the error */
    for (long at = 0; at < calls; at++) {
        const unsigned possible = injection_possible(at, errors, ERROR_COUNT);
        for (size_t e = 0; e < ERROR_COUNT; e++)
            if ((possible & 1u << e) != 0 && n++ % stride == 0)
                try_and_judge(operation, (struct injection){.kind = INJECT_ERROR, .error = errors[e], .at = at}, tally);
        if (injection_can_be_short(at) && n++ % stride == 0)
            try_and_judge(operation, (struct injection){.kind = INJECT_SHORT, .at = at}, tally);
    }
    for (size_t e = 0; e < sizeof lasting / sizeof lasting[0]; e++)
        for (long at = 0; at < calls; at++)
            if (injection_possible(at, &lasting[e], 1) != 0 && n++ % (3 * stride) == 0)
                try_and_judge(operation,
                              (struct injection){.kind = INJECT_ERROR, .error = lasting[e], .at = at, .persists = true},
                              tally);
}

static void try_numbers(const struct operation *operation, enum injection_kind kind, long count, long stride,
                        struct tally *tally)
{
    for (long at = 0; at < count; at += stride)
        try_and_judge(operation, (struct injection){.kind = kind, .at = at}, tally);
    for (long at = 0; at < count; at += 4 * stride)
        try_and_judge(operation, (struct injection){.kind = kind, .at = at, .persists = true}, tally);
}

/*
 * Warms up, so that everything that a process sets up once is set up: SQLite, libraries, the tables of the C library.
 */
static void warm_up(const struct operation *operation)
{
    outcome->injection = (struct injection){.kind = INJECT_NOTHING};
    run_case(operation);
    if (!operation->without_cache) {
        remove_directory(cache_path);
        copy_directory(template_path, cache_path);
    }
    run_case(operation);
}

static bool try_one(const struct operation *operation, const char *text, struct tally *tally)
{
    struct injection injection = {.kind = INJECT_ERROR, .traces = true};
    char name[32] = "", kind[32] = "", plus[4] = "";
    if (sscanf(text, "%31s %31s %ld%3s", kind, name, &injection.at, plus) < 3)
        return false;
    injection.persists = plus[0] == '+';
    injection.kind = kind[0] == 'm'   ? INJECT_MEMORY
                     : kind[0] == 't' ? INJECT_THREAD
                     : kind[0] == 's' ? INJECT_SHORT
                                      : INJECT_ERROR;
    for (size_t i = 0; i < ERROR_COUNT; i++)
        if (strcmp(name, error_names[i]) == 0)
            injection.error = errors[i];
    is_verbose = true;
    try_and_judge(operation, injection, tally);
    return true;
}

static long try_operation(const struct operation *operation, long stride)
{
    struct tally tally = {.cases = 0};
    make_template(operation);
    warm_up(operation);
    remove_directory(cache_path);
    const char *only = getenv("FAULT_ONLY");
    /* The calls are counted in this process, since their classes are needed. */
    try_case(operation, (struct injection){.kind = INJECT_NOTHING});
    tally.baseline = outcome->leaked_blocks;
    const struct injection counted = outcome->injection;
    if (outcome->wrong[0] != '\0')
        return printf("not ok - %s: without a failure: %s\n", operation->name, outcome->wrong);
    if (only != NULL && try_one(operation, only, &tally))
        return tally.failed;
    const long few = (counted.calls + counted.allocations) / 30 + 1; /* so that small operations also have some cases */
    stride = stride < few ? stride : few;
    try_calls(operation, counted.calls, stride, &tally);
    try_numbers(operation, INJECT_MEMORY, counted.allocations, stride, &tally);
    try_numbers(operation, INJECT_THREAD, counted.threads, 1, &tally);
    if (tally.failed == 0)
        printf(
            "ok - %s: %ld failures of %ld calls, %ld allocations and %ld threads: went on after %ld, said so of %ld\n",
            operation->name, tally.cases, counted.calls, counted.allocations, counted.threads, tally.ok, tally.error);
    else
        printf("# %s: %ld of %ld cases are wrong\n", operation->name, tally.failed, tally.cases);
    return tally.failed;
}

void trial_make_root(void)
{
    const char *parent = getenv("TMPDIR");
    setenv("AOTICACHE_CONFIG", "", 1); /* not the user's own */
    if (parent == NULL && access("/dev/shm", W_OK | X_OK) == 0)
        parent = "/dev/shm"; /* syncs need not reach a disk */
    snprintf(root, sizeof root, "%.400s/aoticache-fault-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(root) == NULL)
        fail("mkdtemp", root);
    setenv("AOTICACHE_KEYS", root, 1); /* a directory without keys */
    snprintf(cache_path, sizeof cache_path, "%s/cache", root);
    snprintf(template_path, sizeof template_path, "%s/template", root);
    outcome = mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcome == MAP_FAILED)
        fail("mmap", strerror(errno));
}

int trial_main(int argc, char **argv, const struct operation *operations, size_t count, long stride)
{
    const char *text = getenv("FAULT_STRIDE");
    long failed = 0;
    is_verbose = getenv("FAULT_VERBOSE") != NULL;
    stride = text != NULL && strtol(text, NULL, 10) > 0 ? strtol(text, NULL, 10) : stride;
    trial_make_root();
    for (size_t i = 0; i < count; i++)
        if (argc < 2 || strstr(operations[i].name, argv[1]) != NULL)
            failed += try_operation(&operations[i], stride);
    remove_directory(root);
    fflush(stdout);
    _exit(failed == 0 ? 0 : 1); /* leaks are searched in the cases: libzip keeps a block of the warm-up here */
}
