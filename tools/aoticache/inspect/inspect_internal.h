/*
 * tools/aoticache/inspect: types and functions shared by the files of `aoticache inspect`. A report is built as JSON, that
 * of --json; the text is made from it, so both have the same content. aoticache(1) lists its members.
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_INSPECT_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_INSPECT_INTERNAL_H

#include "aoticache/admin.h"
#include "aoticache/runner.h"
#include "tools/cli/cli.h"

/* What to inspect, the same for every library of one run. */
typedef struct aoticache_inspection {
    const aoticache_cli *cli;
    bool load; /* also load it, in a separate process: this runs its code */
    uint64_t timeout_ns;
    const char **torch_paths; /* libraries of a PyTorch, in which to look for functions */
    int *torch_fds;
    size_t torch_count;
} aoticache_inspection;

/* One library. */
typedef struct aoticache_inspected {
    int fd;
    const char *name;
    const char *device;    /* "cpu", "cuda:1"; NULL: according to its symbols */
    const char *directory; /* the directory of its side files; NULL: none */
} aoticache_inspected;

/* Makes the report on a library. *ret_ok: no part of it failed; the report describes failures. */
json_t *aoticache_inspect_library(const aoticache_inspection *inspection, const aoticache_inspected *library,
                                  bool *ret_ok);

/*
 * Makes the member "loaded": loads the library in a child process to find out what cannot be known otherwise. If the child
 * dies or takes too long, the report has "ok": false.
 */
json_t *aoticache_inspect_loaded(const aoticache_inspection *inspection, const aoticache_inspected *library);

/* The child's side: the word that is its command, and the function that runs. It never returns. */
#define AOTICACHE_INSPECT_CHILD_WORD "inspect-child"
enum { AOTICACHE_INSPECT_LIBRARY_FD = 3, AOTICACHE_INSPECT_RESULT_FD = 4 };
_Noreturn void aoticache_inspect_child(int argc, char **argv);

/*
 * Makes the report on a package, including those on the libraries of its models.
 * Returns AOTICACHE_CLI_EXIT_OK, with *ret_ok as above, or the exit code of a package that cannot be read.
 */
int aoticache_inspect_package(const aoticache_inspection *inspection, int fd, const char *name, json_t **ret_report,
                              bool *ret_ok);

/* Print reports as text. */
void aoticache_inspect_print_library(const aoticache_cli *cli, const json_t *report);
void aoticache_inspect_print_package(const aoticache_cli *cli, const json_t *report);

#endif
