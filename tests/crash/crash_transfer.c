/*
 * crash_transfer: dies at every step of an import and of a merge that changes the disk, and checks the result.
 *
 * It works as crash.c does for the other operations: a first run counts the calls that pass the syscall hooks, SQLite's
 * included; then for every one of them a child is killed right before it. Afterwards nothing in the target is damaged,
 * missing or foreign, what was reported as stored is found, every entry that is found has its signature, the same
 * operation succeeds when repeated, and a collection leaves no leftovers. CRASH_STRIDE: only every n-th call, default
 * 3; 1 for all of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/syscalls.h"
#include "cache/cache.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/transfer/transfer.h"
#include "cache/trust/trust_internal.h"
#include "cache/verify/verify.h"
#include "index/index.h"
#include "tests/helpers/cache_process.h"

#define ENTRIES 5
#define MAX_STEPS 5000

static char root[512], source_path[600], target_path[600];
static int archive;
static bool is_signed; /* there is a libcrypto */

/* Shared with the children. */
struct shared {
    long calls;
    bool was_reported;
};
static struct shared *shared;
static long die_at;

static int at_call(void *user, const char *call, const char *path)
{
    (void)user, (void)call, (void)path;
    if (shared->calls++ == die_at)
        kill(getpid(), SIGKILL);
    return 0;
}

/* Puts an entry: two files for even numbers, one for odd ones. */
static void put(aoticache_cache *cache, int number)
{
    aoticache_error error = {.message = ""};
    if (put_numbered(cache, root, number, number, number % 2 == 0, &error) != AOTICACHE_OK)
        fail("put", error.message);
}

/* ---- the operations ---- */

static aoticache_status do_import(aoticache_cache *target, aoticache_transfer_report *ret_report,
                                  aoticache_error *ret_error)
{
    lseek(archive, 0, SEEK_SET);
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    options.allow_unsigned = !is_signed;
    return aoticache_cache_import(target, archive, &options, ret_report, ret_error);
}

static aoticache_status do_merge(aoticache_cache *target, aoticache_transfer_report *ret_report,
                                 aoticache_error *ret_error)
{
    aoticache_cache *source = open_in(source_path);
    aoticache_status status = aoticache_cache_merge(target, source, NULL, ret_report, ret_error);
    aoticache_cache_close(source);
    return status;
}

typedef aoticache_status (*operation_fn)(aoticache_cache *, aoticache_transfer_report *, aoticache_error *);

static void in_child(operation_fn operation)
{
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    aoticache_index_syscall_hooks_install();
    aoticache_syscall_hook_set(at_call, NULL);
    aoticache_cache *target = open_in(target_path);
    if (operation(target, &report, &error) != AOTICACHE_OK)
        fail("operation", error.message);
    shared->was_reported = true;
    aoticache_cache_close(target);
    exit(0);
}

/* Runs a child. Returns whether it was killed. */
static bool run_child(operation_fn operation, long call)
{
    int result = 0;
    remove_directory(target_path);
    *shared = (struct shared){.calls = 0};
    die_at = call;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        in_child(operation);
    if (child < 0 || waitpid(child, &result, 0) != child)
        fail("fork", strerror(errno));
    if (WIFEXITED(result) && WEXITSTATUS(result) != 0)
        exit(1);
    return WIFSIGNALED(result);
}

/* ---- checks ---- */

static bool require_signature(void *user, const aoticache_entry *entry)
{
    aoticache_cache *cache = user;
    char *text = NULL;
    if (aoticache_cache_read_signatures(cache, &entry->artifact, &text, NULL) != AOTICACHE_OK || text[0] == '\0')
        fail("signatures", "an entry is visible without the one that it came with");
    free(text);
    return true;
}

static void check_signatures(aoticache_cache *cache)
{
    if (is_signed)
        aoticache_cache_list(cache, NULL, NULL, require_signature, cache, NULL);
}

static void check_after(const char *name, long call, operation_fn operation)
{
    char where[128];
    aoticache_transfer_report again;
    aoticache_error error = {.message = ""};
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    snprintf(where, sizeof where, "%s, killed before call %ld", name, call);
    aoticache_cache *cache = open_in(target_path);
    aoticache_verify_report report = verify(cache, where);
    check_signatures(cache);
    if (call % 2 != 0) { /* entries restored by a repair have signatures too */
        aoticache_verify_options repairing = AOTICACHE_VERIFY_OPTIONS_INIT;
        repairing.repair = true;
        if (aoticache_cache_verify(cache, &repairing, NULL, NULL, NULL, &report, &error) != AOTICACHE_OK)
            fail(where, error.message);
        check_signatures(cache);
    }
    if (shared->was_reported && report.entries != ENTRIES)
        fail(where, "what was reported as stored is gone");
    if (operation(cache, &again, &error) != AOTICACHE_OK || again.refused > 0)
        fail(where, error.message[0] != '\0' ? error.message : "it cannot be done again: something is refused");
    if (aoticache_cache_collect(cache, &options, NULL, NULL, NULL, &error) != AOTICACHE_OK)
        fail(where, error.message);
    report = verify(cache, where);
    check_signatures(cache);
    if (report.entries != ENTRIES || report.unindexed > 0)
        fail(where, "it is not sound after it was done again");
    aoticache_cache_close(cache);
    char tmp[700];
    snprintf(tmp, sizeof tmp, "%s/tmp", target_path);
    if (rmdir(tmp) != 0 && errno != ENOENT)
        fail(where, "a collection leaves something in tmp/");
}

static void play(const char *name, operation_fn operation)
{
    const long stride = crash_stride(3);
    if (run_child(operation, -1))
        fail(name, "the counting run was killed");
    long calls = shared->calls, killed = 0;
    if (calls == 0 || calls > MAX_STEPS)
        fail(name, "an unlikely number of calls");
    for (long call = 0; call < calls; call += stride) {
        killed += run_child(operation, call);
        check_after(name, call, operation);
    }
    if (killed == 0)
        fail(name, "nothing was killed");
    printf("ok - %s: killed before %ld of %ld calls\n", name, killed, calls);
}

static bool add_artifact(void *user, const aoticache_entry *entry)
{
    aoticache_digest **next = user;
    *(*next)++ = entry->artifact;
    return true;
}

/* Signs all entries with a key that the processes trust through their environment. */
static void sign_all(aoticache_cache *source)
{
    char text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];
    aoticache_secret_key *key = NULL;
    aoticache_digest artifacts[ENTRIES], *next = artifacts;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_secret_key_generate("crash", &key, &error);
    if (status == AOTICACHE_UNSUPPORTED)
        return;
    if (status == AOTICACHE_OK)
        status = aoticache_cache_list(source, NULL, NULL, add_artifact, &next, &error);
    for (aoticache_digest *artifact = artifacts; status == AOTICACHE_OK && artifact < next; artifact++)
        status = aoticache_cache_sign(source, artifact, key, &error);
    if (status != AOTICACHE_OK || next != artifacts + ENTRIES)
        fail("sign", error.message);
    aoticache_public_key_format(aoticache_secret_key_public(key), text);
    setenv("AOTICACHE_TRUSTED_KEYS", text, 1);
    aoticache_secret_key_free(key);
    is_signed = true;
}

static void prepare(void)
{
    const char *parent = getenv("TMPDIR");
    if (parent == NULL && access("/dev/shm", W_OK | X_OK) == 0)
        parent = "/dev/shm"; /* killing is not a power loss: the hundreds of syncs need not reach a disk */
    snprintf(root, sizeof root, "%s/aoticache-crash-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(root) == NULL)
        fail("mkdtemp", strerror(errno));
    snprintf(source_path, sizeof source_path, "%s/source", root);
    snprintf(target_path, sizeof target_path, "%s/target", root);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    archive = memfd_create("archive", MFD_CLOEXEC);
    if (shared == MAP_FAILED || archive < 0)
        fail("prepare", strerror(errno));
    aoticache_cache *source = open_in(source_path);
    for (int i = 1; i <= ENTRIES; i++)
        put(source, i);
    sign_all(source);
    aoticache_cache_close(source);
}

int main(void)
{
    aoticache_error error = {.message = ""};
    prepare();
    play("merge", do_merge);
    aoticache_cache *source = open_in(source_path);
    aoticache_status status = aoticache_cache_export(source, archive, NULL, NULL, &error);
    aoticache_cache_close(source);
    if (status == AOTICACHE_UNSUPPORTED)
        printf("skip - import: %s\n", error.message);
    else if (status != AOTICACHE_OK)
        fail("export", error.message);
    else
        play("import", do_import);
    remove_directory(root);
    return 0;
}
