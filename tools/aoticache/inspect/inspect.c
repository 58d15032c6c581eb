/*
 * aoticache inspect: describes a kernel library or a package: its producer, its exported and required functions, and which
 * of these are available; if loaded in a separate process also its tensors. This file finds the file or entry; the files
 * next to it make the reports.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/inspect/inspect_internal.h"
#include "tools/aoticache/aoticache_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- messages ---- */

/* Messages of the loader begin with the library's name; it is prepended to the others here. */
static void print_problem(const aoticache_cli *cli, const char *name, const char *problem)
{
    if (problem != NULL && (name == NULL || strncmp(problem, "library ", strlen("library ")) == 0))
        aoticache_cli_error(cli, "%s", problem);
    else if (problem != NULL)
        aoticache_cli_error(cli, "%s: %s", name, problem);
}

/* Problems are in the report; they are also printed on standard error for users who read only that. */
static void print_problems(const aoticache_cli *cli, const json_t *report)
{
    static const char *const parts[] = {"loaded", "cuda", "torch"};
    const char *name = json_string_value(json_object_get(report, "name"));
    print_problem(cli, name, json_string_value(json_object_get(report, "problem")));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        print_problem(cli, name, json_string_value(json_object_get(json_object_get(report, parts[i]), "problem")));
}

static int exit_code_of(bool ok)
{
    return ok ? AOTICACHE_CLI_EXIT_OK : AOTICACHE_CLI_EXIT_FAILURE;
}

/* ---- files ---- */

static int open_file(const aoticache_cli *cli, const char *path, int *ret_fd)
{
    struct stat about;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* opening a pipe must not block */
    if (fd < 0 || fstat(fd, &about) != 0) {
        bool missing = errno == ENOENT || errno == ENOTDIR;
        aoticache_cli_error(cli, "%s: %s", path, strerror(errno));
        return missing ? AOTICACHE_CLI_EXIT_NOT_FOUND : AOTICACHE_CLI_EXIT_FAILURE;
    }
    if (!S_ISREG(about.st_mode))
        return aoticache_cli_usage_error(cli, "%s is %s, not a library or a package", path,
                                         S_ISDIR(about.st_mode) ? "a directory" : "not a regular file");
    *ret_fd = steal_fd(&fd);
    return AOTICACHE_CLI_EXIT_OK;
}

/* Returns whether it is a ZIP archive: it begins with a file's header, or if it has no files, with the end of its directory. */
static bool is_package(int fd)
{
    char bytes[4];
    return pread(fd, bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes &&
           (memcmp(bytes, "PK\3\4", sizeof bytes) == 0 || memcmp(bytes, "PK\5\6", sizeof bytes) == 0);
}

static int inspect_package_file(const aoticache_inspection *inspection, int fd, const char *path)
{
    json_t *report = NULL;
    bool ok = false;
    int result = aoticache_inspect_package(inspection, fd, path, &report, &ok);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    if (!inspection->cli->json)
        aoticache_inspect_print_package(inspection->cli, report);
    const json_t *models = json_object_get(report, "models");
    for (size_t i = 0; i < json_array_size(models); i++)
        print_problems(inspection->cli, json_object_get(json_array_get(models, i), "library"));
    if (inspection->cli->json)
        aoticache_cli_json_print(report);
    else
        json_decref(report);
    return exit_code_of(ok);
}

/* Prints {"libraries": [...]}: takes ownership of the array. */
static void print_libraries(const aoticache_cli *cli, json_t *libraries)
{
    for (size_t i = 0; i < json_array_size(libraries) && !cli->json; i++) {
        if (i > 0)
            printf("\n");
        aoticache_inspect_print_library(cli, json_array_get(libraries, i));
    }
    for (size_t i = 0; i < json_array_size(libraries); i++)
        print_problems(cli, json_array_get(libraries, i));
    if (!cli->json) {
        json_decref(libraries);
        return;
    }
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "libraries", libraries);
    aoticache_cli_json_print(object);
}

static int inspect_file(const aoticache_inspection *inspection, const char *path)
{
    cleanup_fd int fd = -1;
    int result = open_file(inspection->cli, path, &fd);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    if (is_package(fd))
        return inspect_package_file(inspection, fd, path);
    aoticache_inspected library = {.fd = fd, .name = path};
    json_t *libraries = aoticache_cli_json_array();
    bool ok = false;
    aoticache_cli_json_append(libraries, aoticache_inspect_library(inspection, &library, &ok));
    print_libraries(inspection->cli, libraries);
    return exit_code_of(ok);
}

/* ---- entries of the cache ---- */

static json_t *inspect_entry(const aoticache_inspection *inspection, aoticache_cache *cache,
                             const aoticache_entry *entry, bool *ret_ok)
{
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    char name[AOTICACHE_DIGEST_HEX_BYTES];
    json_t *report;
    aoticache_digest_to_hex(&entry->library, name);
    aoticache_status status = aoticache_cache_open_artifact(cache, &entry->artifact, &artifact, &error);
    cleanup_fd int copy = aoticache_artifact_take_copy(artifact); /* the very bytes that were hashed */
    if (status == AOTICACHE_OK) {
        aoticache_inspected library = {.fd = copy >= 0 ? copy : aoticache_artifact_library_fd(artifact),
                                       .name = name,
                                       .device = entry->device,
                                       .directory = aoticache_artifact_get_info(artifact)->directory};
        report = aoticache_inspect_library(inspection, &library, ret_ok);
    } else {
        report = aoticache_cli_json_object();
        aoticache_cli_json_set(report, "name", aoticache_cli_json_text(name));
        aoticache_cli_json_set(
            report, "problem",
            aoticache_cli_json_text(error.message[0] != '\0' ? error.message : aoticache_status_text(status)));
        *ret_ok = false;
    }
    aoticache_cli_json_set(report, "entry", aoticache_entry_to_json(entry));
    aoticache_artifact_unref(artifact);
    return report;
}

static int inspect_key(const aoticache_inspection *inspection, const char *prefix)
{
    aoticache_cache *cache = NULL;
    int result = aoticache_cli_open_or_report(inspection->cli, false, &cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    aoticache_entry_list list = {0};
    result = aoticache_entries_find(inspection->cli, cache, prefix, &list);
    if (result == AOTICACHE_CLI_EXIT_OK) {
        json_t *libraries = aoticache_cli_json_array();
        bool all_ok = true;
        for (size_t i = 0; i < list.count; i++) {
            bool ok = false;
            aoticache_cli_json_append(libraries, inspect_entry(inspection, cache, &list.entries[i], &ok));
            all_ok &= ok;
        }
        print_libraries(inspection->cli, libraries);
        result = exit_code_of(all_ok);
    }
    aoticache_entries_free(&list);
    aoticache_cache_close(cache);
    return result;
}

/* ---- the command ---- */

/* Returns whether the text is a key. A file of that name has precedence; "./" makes it a file name in any case. */
static bool is_key(const char *text)
{
    struct stat about;
    size_t length = strlen(text);
    return length > 0 && length < AOTICACHE_DIGEST_HEX_BYTES && strspn(text, "0123456789abcdefABCDEF") == length &&
           stat(text, &about) != 0;
}

static int add_torch(const aoticache_cli *cli, const aoticache_cli_option *option, const char *path, void *member)
{
    aoticache_inspection *inspection = member;
    (void)option;
    size_t count = inspection->torch_count;
    int fd = -1, result = open_file(cli, path, &fd);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    inspection->torch_paths = aoticache_cli_resize(inspection->torch_paths, count + 1, sizeof *inspection->torch_paths);
    inspection->torch_fds = aoticache_cli_resize(inspection->torch_fds, count + 1, sizeof *inspection->torch_fds);
    inspection->torch_paths[count] = path;
    inspection->torch_fds[count] = fd;
    inspection->torch_count++;
    return AOTICACHE_CLI_EXIT_OK;
}

struct inspect {
    aoticache_inspection inspection;
    uint32_t timeout_seconds;
    const char *what; /* a file or a key */
};

static const aoticache_cli_option inspect_options[] = {
    {"no-load", 0, NULL, "only read the file: loading one that you do not trust runs its code",
     AOTICACHE_CLI_CLEAR(struct inspect, inspection.load)},
    {"timeout", 0, "SECONDS", "that loading may take; default 10",
     AOTICACHE_CLI_INTEGER(struct inspect, timeout_seconds, 1, 86400, "a number of seconds from 1 to 86400")},
    {"torch", 0, "FILE", "look for its functions in this libtorch_cpu.so, too (not loaded; repeatable)",
     AOTICACHE_CLI_FUNCTION(struct inspect, inspection, add_torch)},
    {0},
};

static int inspect_what(struct inspect *inspect)
{
    inspect->inspection.timeout_ns = inspect->timeout_seconds * UINT64_C(1000000000);
    return is_key(inspect->what) ? inspect_key(&inspect->inspection, inspect->what)
                                 : inspect_file(&inspect->inspection, inspect->what);
}

static int inspect_command(aoticache_cli *cli)
{
    struct inspect inspect = {.inspection = {.cli = cli, .load = true}, .timeout_seconds = 10};
    int result = aoticache_cli_parse(cli, &inspect) ? inspect_what(&inspect) : cli->exit_code;
    for (size_t i = 0; i < inspect.inspection.torch_count; i++)
        close(inspect.inspection.torch_fds[i]);
    free(inspect.inspection.torch_paths);
    free(inspect.inspection.torch_fds);
    return result;
}

const aoticache_command aoticache_command_inspect = {
    .word = "inspect",
    .program =
        {
            .name = "aoticache inspect",
            .help_hint = "aoticache help inspect",
            .usage = "FILE|KEY [OPTION]...",
            .summary = "Shows what a kernel library or a .pt2 package offers, needs and contains.",
            .details =
                "FILE is a library (.so) or a package (.pt2). KEY is at least the first 4 digits of a key, of an\n"
                "artifact's digest or of a library's digest. A file takes precedence over a key of the same name.\n\n"
                "The library is loaded in a separate process, because only its code knows its inputs, outputs\n"
                "and constants. This runs its code. If the library crashes or hangs there, this is reported, and\n"
                "the exit code is 1. --no-load runs nothing.",
            .options = inspect_options,
            .operand = {AOTICACHE_CLI_TEXT(struct inspect, what), .help = ": one library at a time",
                        .wanted = "a library, a package or a key is needed"},
        },
    .run = inspect_command,
};
