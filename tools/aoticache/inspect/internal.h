/*
 * tools/aoticache/inspect: what the files of `aoticache inspect` share. A report is JSON from the beginning: that of
 * --json; the text is made from it, so both say the same. Its members are in aoticache(1).
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_INSPECT_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_INSPECT_INTERNAL_H

#include "aoticache.h"
#include "tools/cli/cli.h"

/* What to look for, the same for every library of one run. */
typedef struct aoticache_inspection {
    const aoticache_cli *cli;
    bool load; /* also load it, in a process of its own: this runs its code */
    uint64_t timeout_ns;
    const char **torch_paths; /* libraries of a PyTorch, to look for functions in */
    int *torch_fds;
    size_t torch_count;
} aoticache_inspection;

/* One library. */
typedef struct aoticache_inspected {
    int fd;
    const char *name;
    const char *device;    /* "cpu", "cuda:1"; NULL: what its symbols say */
    const char *directory; /* where its side files are; NULL: none */
} aoticache_inspected;

/* The report on a library. *ret_ok: no part of it failed; what did is said in it. */
json_t *aoticache_inspect_library(const aoticache_inspection *inspection, const aoticache_inspected *library,
                                  bool *ret_ok);

/*
 * The member "loaded": loads the library in a child process and asks what only running it tells. A child that dies or
 * takes too long is a report with "ok": false.
 */
json_t *aoticache_inspect_loaded(const aoticache_inspection *inspection, const aoticache_inspected *library);

/* The child's side: the word that is its command, and what runs then. It never returns. */
#define AOTICACHE_INSPECT_CHILD_WORD "inspect-child"
enum { AOTICACHE_INSPECT_LIBRARY_FD = 3, AOTICACHE_INSPECT_RESULT_FD = 4 };
_Noreturn void aoticache_inspect_child(int argc, char **argv);

/*
 * The report on a package, with those on the libraries of its models.
 * Returns AOTICACHE_CLI_EXIT_OK, with *ret_ok as above, or the exit code of a package that cannot be read.
 */
int aoticache_inspect_package(const aoticache_inspection *inspection, int fd, const char *name, json_t **ret_report,
                              bool *ret_ok);

/* Reports as text. */
void aoticache_inspect_print_library(const aoticache_cli *cli, const json_t *report);
void aoticache_inspect_print_package(const aoticache_cli *cli, const json_t *report);

#endif
