/*
 * tools/aoticache/arguments/hook: the compile hook selected by --hook, and the environment that it sets in the request.
 *
 * Without a hook no environment is known; the cache is then searched for an entry with the same arguments, whichever
 * compiler made it.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * ---- Ctrl-C during a compile ----
 *
 * Compilers run in their own process groups, so a terminal's signal does not reach them; they would continue although their
 * result is not needed. Before the tool dies of the signal it forwards the signal to its children's groups. Incomplete files
 * in the cache are left as after any kill, and collected later.
 */

static char children_path[64]; /* made before the handler is set: snprintf must not be called in handlers */

/* Makes only calls listed in signal-safety(7). */
static void forward_signal(int signal_number)
{
    char text[4096];
    int fd = open(children_path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof text) : 0;
    pid_t pid = 0;
    for (ssize_t i = 0; i < size; i++) {
        if (text[i] >= '0' && text[i] <= '9') {
            pid = pid * 10 + (text[i] - '0');
            continue;
        }
        /* If the child does not lead a group, no group has its number, and this does nothing. */
        if (pid > 1)
            kill(-pid, SIGTERM);
        pid = 0;
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void aoticache_interruption_prepare(void)
{
    snprintf(children_path, sizeof children_path, "/proc/self/task/%ld/children", (long)getpid());
    aoticache_cli_catch_signals(forward_signal, 0);
}

static aoticache_status create_hook(aoticache_kernel_options *options, const char *kind, aoticache_hook **ret_hook,
                                    aoticache_error *ret_error)
{
    aoticache_hook_options *hook_options = &options->hook_options;
    hook_options->kernel_directories = options->kernel_directories.items;
    if (strcmp(kind, "worker") == 0) {
        hook_options->program = options->python;
        return aoticache_hook_create_worker(hook_options, ret_hook, ret_error);
    }
    if (strcmp(kind, "c") == 0) {
        hook_options->program = options->cc;
        return aoticache_hook_create_c(hook_options, ret_hook, ret_error);
    }
    hook_options->program = kind + strlen("command:");
    return aoticache_hook_create_command(hook_options, ret_hook, ret_error);
}

/* Creates the PyTorch hook if PyTorch is available, otherwise the C hook; reports which. */
static aoticache_status create_default_hook(aoticache_kernel_options *options, const aoticache_cli *cli,
                                            aoticache_hook **ret_hook, aoticache_error *ret_error)
{
    aoticache_error no_worker = {.message = ""};
    aoticache_status status = create_hook(options, "worker", ret_hook, &no_worker);
    if (status == AOTICACHE_OK) {
        if (cli->verbose)
            aoticache_cli_note(cli, "hook: worker (%s)", aoticache_hook_get_info(*ret_hook).producer);
        return status;
    }
    /* If a Python that was named explicitly does not work, that is an error to report, not to work around. */
    if (options->python != NULL || (status != AOTICACHE_NOT_FOUND && status != AOTICACHE_UNSUPPORTED)) {
        *ret_error = no_worker;
        return status;
    }
    aoticache_cli_note(cli, "%s; using kernels written in C (--hook c)", no_worker.message);
    return create_hook(options, "c", ret_hook, ret_error);
}

int aoticache_kernel_choose_hook(aoticache_kernel_options *options, const aoticache_cli *cli, aoticache_hook **ret_hook)
{
    aoticache_error error = {.message = ""};
    aoticache_hook *hook = NULL;
    aoticache_status status = AOTICACHE_OK;
    if (strcmp(options->hook, "auto") == 0)
        status = create_default_hook(options, cli, &hook, &error);
    else if (strcmp(options->hook, "none") != 0)
        status = create_hook(options, options->hook, &hook, &error);
    if (status != AOTICACHE_OK) {
        aoticache_cli_fail(cli, status, &error);
        return AOTICACHE_CLI_EXIT_COMPILE;
    }
    *ret_hook = hook;
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- the environment ---- */

static aoticache_status copy_environment(const aoticache_request *from, aoticache_request *to, aoticache_error *error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; i < aoticache_request_environment_count(from) && status == AOTICACHE_OK; i++) {
        const char *name, *value;
        aoticache_request_environment_at(from, i, &name, &value);
        status = aoticache_request_set_environment(to, name, value, error);
    }
    return status;
}

/* Returns whether `entry` has the given arguments: *ret_request is then a request with its key. */
static bool entry_answers(const aoticache_kernel_options *options, const aoticache_cli *cli, aoticache_cache *cache,
                          const aoticache_entry *entry, aoticache_request **ret_request)
{
    aoticache_request *stored = NULL;
    aoticache_request *asked = NULL;
    aoticache_key key;
    bool answers = false;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_manifest_decode(cache, &entry->artifact, NULL, &stored, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        aoticache_cli_note(cli, "skipped an entry of %s that cannot be read: %s", entry->op, error.message);
    if (status != AOTICACHE_OK)
        return false;
    if (aoticache_kernel_make_request(options, cli, &asked) == AOTICACHE_CLI_EXIT_OK &&
        copy_environment(stored, asked, NULL) == AOTICACHE_OK &&
        aoticache_request_key(asked, &key, NULL) == AOTICACHE_OK)
        answers = aoticache_digest_equal(&key, &entry->key);
    aoticache_request_free(stored);
    if (answers)
        *ret_request = asked;
    else
        aoticache_request_free(asked);
    return answers;
}

static int find_stored_request(const aoticache_kernel_options *options, const aoticache_cli *cli,
                               aoticache_cache *cache, aoticache_request **ret_request)
{
    aoticache_error error = {.message = ""};
    aoticache_entry_list list = {0};
    aoticache_status status = aoticache_entries_read(cache, options->op, NULL, &list, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(cli, status, &error);
    aoticache_request *newest = NULL;
    int64_t newest_ns = INT64_MIN;
    for (size_t i = 0; i < list.count; i++) {
        aoticache_request *request = NULL;
        if (list.entries[i].created_ns <= newest_ns || !entry_answers(options, cli, cache, &list.entries[i], &request))
            continue;
        aoticache_request_free(newest);
        newest = request;
        newest_ns = list.entries[i].created_ns;
    }
    aoticache_entries_free(&list);
    if (newest == NULL) {
        cleanup_free char *hint = aoticache_operator_hint(cache, options->op);
        aoticache_cli_error(cli, "no kernel for these arguments of %s is stored, and --hook none does not compile%s",
                            options->op, hint);
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    *ret_request = newest;
    return AOTICACHE_CLI_EXIT_OK;
}

static int make_request(const aoticache_kernel_options *options, const aoticache_cli *cli, aoticache_cache *cache,
                        const aoticache_hook *hook, aoticache_request **ret_request)
{
    int result = aoticache_kernel_make_request(options, cli, ret_request);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    aoticache_error error = {.message = ""};
    aoticache_key key;
    aoticache_status status = aoticache_hook_set_environment(hook, *ret_request, &error);
    if (status == AOTICACHE_OK && options->retry) {
        status = aoticache_request_key(*ret_request, &key, &error);
        if (status == AOTICACHE_OK)
            status = aoticache_cache_forget_failures(cache, &key, &error);
    }
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
}

/* Makes a request only to find errors: a wrong argument is reported before anything is opened or started. */
static int check_arguments(aoticache_kernel_options *options, const aoticache_cli *cli)
{
    aoticache_request *request = NULL;
    int result = aoticache_kernel_make_tensors(options, cli);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_kernel_make_request(options, cli, &request);
    aoticache_request_free(request);
    return result;
}

int aoticache_kernel_prepare(aoticache_kernel_options *options, const aoticache_cli *cli, aoticache_hook **ret_hook,
                             aoticache_cache **ret_cache, aoticache_request **ret_request)
{
    aoticache_interruption_prepare();
    int result = check_arguments(options, cli);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_kernel_choose_hook(options, cli, ret_hook);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_cli_open_or_report(cli, *ret_hook != NULL, ret_cache);
    if (result == AOTICACHE_CLI_EXIT_ABSENT) /* a miss, as for a program that has not stored anything yet */
        result = AOTICACHE_CLI_EXIT_NOT_FOUND;
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = *ret_hook != NULL ? make_request(options, cli, *ret_cache, *ret_hook, ret_request)
                                   : find_stored_request(options, cli, *ret_cache, ret_request);
    return result;
}

/* ---- the source of a kernel ---- */

const char *aoticache_source_word(aoticache_source source)
{
    switch (source) {
    case AOTICACHE_SOURCE_INDEX:
        return "index";
    case AOTICACHE_SOURCE_COMPILED:
        return "compiled";
    case AOTICACHE_SOURCE_WAITED:
        return "waited";
    case AOTICACHE_SOURCE_FETCHED:
        return "fetched";
    }
    return "unknown";
}

char *aoticache_source_text(aoticache_source source, bool stored, const char *producer)
{
    const char *how = source == AOTICACHE_SOURCE_INDEX      ? "found in the cache"
                      : source == AOTICACHE_SOURCE_COMPILED ? "compiled now"
                      : source == AOTICACHE_SOURCE_FETCHED  ? "fetched from a remote"
                                                            : "compiled by another process or machine meanwhile";
    return aoticache_cli_text("%s%s%s%s%s", how, stored ? "" : ", could not be stored", producer != NULL ? " (" : "",
                              producer != NULL ? producer : "", producer != NULL ? ")" : "");
}
