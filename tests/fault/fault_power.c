/*
 * fault_power: simulates a power loss before every call of an operation that changes the disk.
 *
 * An operation runs once, and all writes, renames and syncs of it and SQLite are recorded (record.h). Then, for each
 * call and each way to lose what was not synced before it, a directory is made as the disk may be afterwards. A process
 * opens the cache there: entries that were stored earlier or reported as stored are found with their bytes; nothing is
 * damaged, missing or foreign, and the index is not damaged; the operation succeeds when repeated. All that with WAL
 * and with a rollback journal. Arguments: a part of an operation's name, "WAL" or "rollback journal". FAULT_STRIDE:
 * only every n-th case, default 29; 1: each.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/pins/pins.h"
#include "cache/trust/trust_internal.h"
#include "tests/fault/cases.h"
#include "tests/fault/record.h"
#include "tests/fault/trial.h"
#include "tests/helpers/cache_process.h"
#include "tests/helpers/pins.h"

struct durable_operation {
    const char *name;
    trial_perform_fn perform;
    void (*spoil)(void);
    int puts, puts_too;                        /* entries that must exist after OK; 0: none */
    bool (*keeps)(int number, bool is_marked); /* whether an older entry must be there; NULL: each must */
    bool rebuilds;                             /* the index is damaged first */
    bool are_signed;                           /* new entries, from the beginning on */
};

/* ---- the operations ---- */

static aoticache_status do_put(aoticache_cache *cache, aoticache_error *ret_error)
{
    return trial_put(cache, TRIAL_NEW_KEY, true, ret_error);
}

static aoticache_status do_put_record(aoticache_cache *cache, aoticache_error *ret_error)
{
    return trial_put(cache, TRIAL_NEW_KEY + 1, false, ret_error);
}

static aoticache_status do_replace(aoticache_cache *cache, aoticache_error *ret_error)
{
    return trial_put(cache, 3, true, ret_error);
}

static aoticache_status do_collect(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_entries = 2;
    options.vacuum = true;
    return aoticache_cache_collect(cache, &options, NULL, NULL, NULL, ret_error);
}

static bool keeps_none(int number, bool is_marked)
{
    (void)number, (void)is_marked;
    return false;
}

static aoticache_status do_remove(aoticache_cache *cache, aoticache_error *ret_error)
{
    const aoticache_key key = trial_key(2);
    const aoticache_status status = aoticache_cache_remove(cache, &key, ret_error);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static bool keeps_all_but_2(int number, bool is_marked)
{
    (void)is_marked;
    return number != 2;
}

static aoticache_status do_pin(aoticache_cache *cache, aoticache_error *ret_error)
{
    const aoticache_key key = trial_key(1);
    return pin_key(cache, &key, ret_error);
}

static aoticache_status do_nothing(aoticache_cache *cache, aoticache_error *ret_error)
{
    (void)cache, (void)ret_error;
    return AOTICACHE_OK; /* opening is the operation */
}

static const struct durable_operation operations[] = {
    {.name = "put", .perform = do_put, .puts = TRIAL_NEW_KEY},
    {.name = "record", .perform = do_put_record, .puts = TRIAL_NEW_KEY + 1},
    {.name = "put that replaces", .perform = do_replace},
    {.name = "remove", .perform = do_remove, .keeps = keeps_all_but_2},
    {.name = "collect", .perform = do_collect, .keeps = keeps_none},
    {.name = "pin", .perform = do_pin},
    {.name = "merge",
     .perform = trial_merge,
     .spoil = trial_make_source,
     .puts = TRIAL_NEW_KEY,
     .puts_too = TRIAL_NEW_KEY + 1},
    {.name = "import",
     .perform = trial_import,
     .spoil = trial_make_signed_source,
     .puts = TRIAL_NEW_KEY,
     .puts_too = TRIAL_NEW_KEY + 1,
     .are_signed = true},
    {.name = "rebuilding the index", .perform = do_nothing, .spoil = trial_damage_index, .rebuilds = true},
};

/* ---- recording ---- */

static void record(const struct durable_operation *operation)
{
    aoticache_error error = {.message = ""};
    trial_use_cache("cache");
    remove_directory(trial_cache());
    aoticache_cache *cache = trial_open();
    for (int i = 1; i <= TRIAL_STORED; i++)
        if (trial_put(cache, i, i % 2 == 0, &error) != AOTICACHE_OK)
            fail("put", error.message);
    aoticache_cache_close(cache);
    if (operation->spoil != NULL)
        operation->spoil();
    record_begin(trial_cache());
    cache = trial_open();
    if (operation->perform(cache, &error) != AOTICACHE_OK)
        fail(operation->name, error.message);
    record_mark();
    aoticache_cache_close(cache);
    record_end();
}

/* ---- checks ---- */

static bool has_pin(aoticache_cache *cache);

/* Returns true if the entry is signed or does not exist. */
static bool is_signed(aoticache_cache *cache, int number)
{
    char *text = NULL;
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = trial_request(number);
    aoticache_status status = aoticache_cache_lookup(cache, request, NULL, &artifact, NULL);
    aoticache_request_free(request);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_read_signatures(cache, &aoticache_artifact_get_info(artifact)->digest, &text, NULL);
    aoticache_artifact_unref(artifact);
    const bool is_bare = status == AOTICACHE_OK && strncmp(text, "ann:", 4) != 0;
    free(text);
    return !is_bare && (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND);
}

static void check_found(const struct durable_operation *operation, aoticache_cache *cache, bool is_marked,
                        const char *when)
{
    for (int i = 1; i <= TRIAL_STORED; i++)
        if ((operation->keeps == NULL || operation->keeps(i, is_marked)) && !trial_finds(cache, i))
            fail(when, "an entry that was stored before is lost");
    if (is_marked && operation->puts != 0 && !trial_finds(cache, operation->puts))
        fail(when, "an entry that was reported as stored is lost");
    if (is_marked && operation->puts_too != 0 && !trial_finds(cache, operation->puts_too))
        fail(when, "an entry that was reported as stored is lost");
    if (operation->are_signed && (!is_signed(cache, operation->puts) || !is_signed(cache, operation->puts_too)))
        fail(when, "an entry is there without its signature");
    if (is_marked && operation->perform == do_pin && !has_pin(cache))
        fail(when, "a pin that was reported as set is lost");
}

static bool see_pin(void *user, const aoticache_pins *pins)
{
    *(bool *)user |= pins->is_pinned;
    return true;
}

static bool has_pin(aoticache_cache *cache)
{
    bool found = false;
    return aoticache_cache_list_pins(cache, NULL, see_pin, &found, NULL) == AOTICACHE_OK && found;
}

static void check(const struct durable_operation *operation, bool is_marked, const char *when)
{
    aoticache_error error = {.message = ""};
    char quarantine[700];
    aoticache_cache *cache = trial_open();
    if (aoticache_cache_is_read_only(cache))
        fail(when, "it opens for reading only");
    check_found(operation, cache, is_marked, when);
    verify(cache, when);
    snprintf(quarantine, sizeof quarantine, "%s/quarantine", trial_cache());
    if (!operation->rebuilds && access(quarantine, F_OK) == 0)
        fail(when, "something was moved to quarantine/");
    if (operation->perform(cache, &error) != AOTICACHE_OK)
        fail(when, error.message);
    check_found(operation, cache, true, when);
    verify(cache, when);
    aoticache_cache_close(cache);
}

/* Checks the cache. False: the reason was printed. */
static bool is_sound_after(const struct durable_operation *operation, long call, enum loss loss, unsigned seed,
                           const char *journal)
{
    char when[400], what[200];
    int result = 0;
    record_describe(call, what);
    snprintf(when, sizeof when, "%s (%s), power lost before call %ld (%s), %s", operation->name, journal, call, what,
             loss_names[loss]);
    trial_use_cache("lost");
    record_replay(call, loss, seed, trial_cache());
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        check(operation, record_is_marked(call), when);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &result, 0) != child)
        fail("fork", strerror(errno));
    if (WIFSIGNALED(result))
        printf("not ok - %s: the process died by signal %d\n", when, WTERMSIG(result));
    return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

static long lose_power(const struct durable_operation *operation, const char *journal, long stride)
{
    long tried = 0, failed = 0, n = 0;
    record(operation);
    for (long call = 0; getenv("FAULT_VERBOSE") != NULL && call < record_calls(); call++) {
        char what[200];
        record_describe(call, what);
        printf("# %s (%s): call %ld: %s\n", operation->name, journal, call, what);
    }
    for (long call = 0; call <= record_calls(); call++)
        for (int loss = 0; loss < LOSS_COUNT; loss++)
            for (unsigned seed = 1; seed <= (loss == LOSE_AT_RANDOM ? 4 : 1); seed++) {
                if (n++ % stride != 0)
                    continue;
                tried++;
                failed += !is_sound_after(operation, call, loss, seed, journal);
            }
    if (failed == 0)
        printf("ok - %s (%s): power lost %ld times in %ld calls, %ld of them syncs: nothing lost\n", operation->name,
               journal, tried, record_calls(), record_syncs());
    else
        printf("# %s (%s): %ld of %ld power losses did harm\n", operation->name, journal, failed, tried);
    return failed;
}

int main(int argc, char **argv)
{
    const char *text = getenv("FAULT_STRIDE");
    const long stride = text != NULL && strtol(text, NULL, 10) > 0 ? strtol(text, NULL, 10) : 29;
    long failed = 0;
    trial_make_root();
    for (int network = 0; network < 2; network++) {
        const char *journal = network ? "rollback journal" : "WAL";
        if (argc > 2 && strcmp(argv[2], journal) != 0)
            continue;
        injection_pretend_network(network);
        for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
            if (argc < 2 || strstr(operations[i].name, argv[1]) != NULL)
                failed += lose_power(&operations[i], journal, stride);
    }
    remove_directory(trial_root());
    return failed == 0 ? 0 : 1;
}
