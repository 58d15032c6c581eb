/*
 * Holders under load: 16 threads call 50 kernels of 10 operators while holders are made and freed, libraries are
 * unloaded for a budget, and the cache is collected; with misses that wait, that go to the background, and with
 * libraries for symbolic shapes. Every result must be right: the kernel's, or the fallback's if one is allowed. Then,
 * except under ThreadSanitizer, the same in several processes: first without disturbance, when all together must
 * compile each key exactly once, then with collections and with processes that are killed at random.
 *
 * Argument: seconds (default 5), shared by the rounds.
 */
#include "base/clock.h"
#include "tests/unit/fixtures/patched_kernel.h"
#include "cache/gc/collect.h"
#include "loader/tensor.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <sys/wait.h>

#if defined(__SANITIZE_THREAD__)
/*
 * Returns suppressions. The sanitizer does not see the dynamic linker's own lock; accesses under it look like races in
 * malloc.
 */
AOTICACHE_API const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    /*
     * The linker maps a library at addresses that other threads used shortly before, unseen by the sanitizer: these
     * threads then seem to have written the library's data. race_container tests libraries themselves.
     */
    return "race:ld-linux\n"
           "race:/proc/thread-self/fd/\n";
}
enum { WITH_PROCESSES = false };
#else
enum { WITH_PROCESSES = true };
#endif

enum { THREADS = 16, OPERATORS = 10, SHAPES = 5, KEYS = OPERATORS * SHAPES, PROCESSES = 8, CHILD_THREADS = 4 };
#define FALLBACK_ADDS 5000

static char root[PATH_MAX / 2];
static patched_hook exact_hook, dynamic_hook;
static aoticache_cache *cache;
static aoticache_context *eager;
static aoticache_context_options options;
static pthread_mutex_t holder_locks[OPERATORS];
static aoticache_holder *holders[OPERATORS];
static atomic_bool stop, disturb;
static atomic_ulong calls, fallbacks, failures;

static void complain(const char *what, const char *why)
{
    fprintf(stderr, "not ok - %s: %s\n", what, why);
    atomic_fetch_add(&failures, 1);
}

static aoticache_status fall_back(void *user, uint64_t key_set, aoticache_stack *stack, aoticache_error *ret_error)
{
    const aoticache_tensor_view *view = stack->values[stack->count - 3].as.tensor;
    float *data = malloc(sizeof *data);
    AtenTensorHandle output;
    (void)user, (void)key_set;
    *data = *(const float *)view->data + FALLBACK_ADDS;
    if (aoticache_tensor_from_blob(data, view->dtype, 0, NULL, NULL, &output, ret_error) != AOTICACHE_OK)
        exit(1);
    stack->count -= 3;
    stack->values[stack->count++] = (aoticache_value){.kind = AOTICACHE_VALUE_OUTPUT, .as.output = output};
    atomic_fetch_add(&fallbacks, 1);
    return AOTICACHE_OK;
}

static aoticache_holder *make_holder(int operator)
{
    char schema[128];
    aoticache_error error;
    aoticache_holder *made = NULL;
    aoticache_holder_options says = AOTICACHE_HOLDER_OPTIONS_INIT;
    snprintf(schema, sizeof schema, "race::op%d(Tensor self, float factor=2.0, *, int offset=0) -> Tensor", operator);
    says.schema = schema;
    says.device = AOTICACHE_DEVICE_CPU;
    says.fallback = fall_back;
    if (aoticache_holder_create(eager, &says, &made, &error) != AOTICACHE_OK) {
        complain("creating a holder", error.message);
        exit(1);
    }
    return made;
}

/* ---- threads ---- */

static void check_result(aoticache_value *output, const test_tensor *x, int operator)
{
    aoticache_tensor_view view;
    if (output_is(output, x, 2, operator))
        return;
    if (aoticache_tensor_get_view(output->as.output, &view, NULL) != AOTICACHE_OK || view.ndim != 0) {
        complain("a result", "is none that was asked for");
        return;
    }
    free(view.data); /* made by the fallback */
}

static void call_one(unsigned key, test_tensor *const *tensors)
{
    int operator=(int)(key % OPERATORS);
    const test_tensor *x = tensors[key / OPERATORS];
    aoticache_value values[] = {VALUE_TENSOR(x), VALUE_DOUBLE(2), VALUE_INT(operator)};
    aoticache_stack stack = {.values = values, .count = 3, .capacity = 3};
    aoticache_error error = {.message = ""};
    pthread_mutex_lock(&holder_locks[operator]);
    aoticache_holder *holder = aoticache_holder_ref(holders[operator]);
    pthread_mutex_unlock(&holder_locks[operator]);
    if (aoticache_holder_call(holder, 0, &stack, &error) != AOTICACHE_OK) {
        complain("a call", error.message);
    } else {
        check_result(&values[0], x, operator);
        aoticache_stack_drop(&stack, 0);
    }
    aoticache_holder_unref(holder);
    atomic_fetch_add(&calls, 1);
}

static unsigned next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (unsigned)(*state >> 11);
}

static void *call_often(void *number)
{
    test_tensor *tensors[SHAPES];
    uint64_t state = 88172645463325252U + (uint64_t)(intptr_t)number * 7919 + (uint64_t)getpid() * 104729;
    for (int i = 0; i < SHAPES; i++)
        tensors[i] = tensor_create(2, SIZES(2 + i, 3));
    for (unsigned i = 0, first = next_random(&state); !disturb && i < KEYS;
         i++) /* all of them, even on a slow machine */
        call_one((first + i) % KEYS, tensors);
    while (!stop) {
        unsigned random = next_random(&state);
        call_one(random % 8 != 0 ? random / 8 % 4 : random / 8 % KEYS, tensors); /* some much more often than others */
        if (disturb && (random >> 10) % 1024 == 0) {
            int operator=(int)(random % OPERATORS);
            aoticache_holder *fresh = make_holder(operator);
            pthread_mutex_lock(&holder_locks[operator]);
            aoticache_holder *old = holders[operator];
            holders[operator] = fresh;
            pthread_mutex_unlock(&holder_locks[operator]);
            aoticache_holder_unref(old);
        }
    }
    for (int i = 0; i < SHAPES; i++)
        tensor_free(tensors[i]);
    return NULL;
}

static void *collect_often(void *unused)
{
    while (!stop) {
        aoticache_collect_options says = AOTICACHE_COLLECT_OPTIONS_INIT;
        aoticache_error error;
        says.max_bytes = 300000;
        aoticache_status status = AOTICACHE_OK;
        if (disturb)
            status = aoticache_cache_collect(cache, &says, NULL, NULL, NULL, &error);
        if (status != AOTICACHE_OK && status != AOTICACHE_LOCKED)
            complain("collecting", error.message);
        if (disturb && aoticache_context_flush(eager, &error) != AOTICACHE_OK)
            complain("flushing", error.message);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return unused;
}

/* Runs `threads` threads on a context with these options, until the time is over. */
static void run_threads(int threads, double seconds)
{
    pthread_t callers[THREADS], collector;
    aoticache_cache_options says = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_error error;
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s/cache", root);
    says.directory = directory;
    if (aoticache_cache_open(&says, &cache, &error) != AOTICACHE_OK) {
        complain("opening the cache", error.message);
        exit(1);
    }
    options.cache = cache;
    if (aoticache_context_create(&options, &eager, &error) != AOTICACHE_OK)
        exit(1);
    for (int i = 0; i < OPERATORS; i++) {
        pthread_mutex_init(&holder_locks[i], NULL);
        holders[i] = make_holder(i);
    }
    stop = false;
    for (intptr_t i = 0; i < threads; i++)
        if (pthread_create(&callers[i], NULL, call_often, (void *)i) != 0)
            exit(1);
    if (pthread_create(&collector, NULL, collect_often, NULL) != 0)
        exit(1);
    nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (long)seconds) * 1e9)}, NULL);
    stop = true;
    for (int i = 0; i < threads; i++)
        pthread_join(callers[i], NULL);
    pthread_join(collector, NULL);
    for (int i = 0; i < OPERATORS; i++)
        aoticache_holder_unref(holders[i]);
    aoticache_context_free(eager);
    aoticache_cache_close(cache);
}

static void thread_round(const char *name, double seconds)
{
    disturb = true;
    run_threads(THREADS, seconds);
    printf("# %s: %lu calls, %lu of them answered by the fallback, %d and %d compiles\n", name,
           atomic_exchange(&calls, 0), atomic_exchange(&fallbacks, 0), atomic_exchange(&exact_hook.compiles, 0),
           atomic_exchange(&dynamic_hook.compiles, 0));
    fflush(stdout);
}

static void thread_rounds(double seconds)
{
    options = (aoticache_context_options)AOTICACHE_CONTEXT_OPTIONS_INIT;
    options.hook = exact_hook.hook;
    options.max_loaded = 6;
    thread_round("misses wait", seconds / 3);
    options.max_loaded = 0;
    options.max_loaded_bytes = 300000;
    options.miss = AOTICACHE_MISS_BACKGROUND;
    options.threads = 2;
    options.queue_length = 8;
    thread_round("in the background", seconds / 3);
    options = (aoticache_context_options)AOTICACHE_CONTEXT_OPTIONS_INIT;
    options.hook = dynamic_hook.hook;
    options.dynamic = AOTICACHE_DYNAMIC_AFTER;
    options.dynamic_after = 2;
    options.max_loaded = 6;
    thread_round("symbolic shapes", seconds / 3);
}

/* ---- processes ---- */

static int remove_one(const char *path, const struct stat *status, int flag, struct FTW *walk)
{
    (void)status, (void)flag, (void)walk;
    return remove(path);
}

static pid_t start_process(bool disturbed, double seconds)
{
    fflush(stdout);
    pid_t child = fork();
    if (child != 0)
        return child;
    failures = 0; /* do not count the parent's */
    disturb = disturbed;
    run_threads(CHILD_THREADS, seconds);
    if (!disturbed && fallbacks > 0)
        complain("undisturbed calls", "were answered by the fallback");
    _exit(failures == 0 ? 0 : 1);
}

static void expect_success(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0)
        complain("a process", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "failed");
}

static int compare_lines(const void *a, const void *b)
{
    return memcmp(a, b, AOTICACHE_DIGEST_HEX_BYTES);
}

/* The log has a line of the same length for each compile. */
static void check_log(const char *path)
{
    static char lines[4 * KEYS][AOTICACHE_DIGEST_HEX_BYTES];
    FILE *file = fopen(path, "r");
    size_t count = file != NULL ? fread(lines, sizeof lines[0], 4 * KEYS, file) : 0;
    if (file != NULL)
        fclose(file);
    qsort(lines, count, sizeof lines[0], compare_lines);
    for (size_t i = 1; i < count; i++)
        if (compare_lines(lines[i - 1], lines[i]) == 0)
            complain("a key was compiled twice", "once was enough");
    if (count != KEYS)
        complain("compiles", count < KEYS ? "fewer than keys" : "more than keys");
    printf("# %zu compiles of %d keys by %d processes\n", count, KEYS, PROCESSES);
}

static void exactly_once(double seconds)
{
    pid_t children[PROCESSES];
    char log[PATH_MAX], directory[PATH_MAX];
    snprintf(log, sizeof log, "%s/compiles", root);
    snprintf(directory, sizeof directory, "%s/cache", root);
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    options = (aoticache_context_options)AOTICACHE_CONTEXT_OPTIONS_INIT;
    options.hook = exact_hook.hook;
    exact_hook.log = log;
    exact_hook.delay_ms = 5;
    for (int i = 0; i < PROCESSES; i++)
        children[i] = start_process(false, seconds > 1 ? seconds : 1);
    for (int i = 0; i < PROCESSES; i++)
        expect_success(children[i]);
    exact_hook.log = NULL;
    check_log(log);
}

static void with_kills(double seconds)
{
    pid_t children[PROCESSES], victim = 0;
    uint64_t end = aoticache_monotonic_ns() + (uint64_t)(seconds * 1e9), state = 1234567;
    int kills = 0;
    options.max_loaded = 6;
    for (int i = 0; i < PROCESSES; i++)
        children[i] = start_process(true, seconds);
    while (aoticache_monotonic_ns() < end) {
        victim = start_process(true, 1000);
        nanosleep(&(struct timespec){.tv_nsec = 20000000 + next_random(&state) % 100000000}, NULL);
        kill(victim, SIGKILL);
        waitpid(victim, NULL, 0);
        kills++;
    }
    for (int i = 0; i < PROCESSES; i++)
        expect_success(children[i]);
    printf("# %d processes were killed\n", kills);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/aoticache-race-XXXXXX", parent != NULL && strlen(parent) < 1000 ? parent : "/tmp");
    if (system("cc --version >/dev/null 2>&1") != 0) {
        puts("there is no C compiler");
        return 77;
    }
    if (mkdtemp(root) == NULL || !patched_open(root, "", false, &exact_hook) ||
        !patched_open(root, "", true, &dynamic_hook)) {
        fprintf(stderr, "%s: a library for the hook could not be compiled there\n", root);
        nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        return 1;
    }
    if (WITH_PROCESSES) { /* first: they are forked while there are no threads */
        exactly_once(seconds / 4);
        with_kills(seconds / 4);
    }
    thread_rounds(seconds / 2);
    patched_close(&exact_hook);
    patched_close(&dynamic_hook);
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (failures == 0)
        puts("ok - all results are right, and nothing is compiled twice, whatever happens beside");
    return failures == 0 ? 0 : 1;
}
