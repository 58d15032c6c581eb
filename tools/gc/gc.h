/*
 * tools/gc/gc: one run of aoticache-gc: its options, and its reports in each format.
 */
#ifndef AOTICACHE_TOOLS_GC_GC_H
#define AOTICACHE_TOOLS_GC_GC_H

#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "tools/cli/cli.h"

#include <signal.h>
#include <sys/types.h>

typedef struct aoticache_gc {
    aoticache_cli cli;
    aoticache_collect_options options;
    bool has_limit;
    bool has_policy;
    bool has_min_free;
    bool has_low;     /* --low was given: low_share or options.low_bytes */
    double low_share; /* of max_bytes and max_entries; 0: none */
    bool shows_progress;
    bool is_nice;
    const char *prometheus;  /* file, or NULL */
    pid_t writer;            /* the process that writes the file if this one has changed its user; 0: this one does */
    int writer_fd;           /* pipe to that process */
    aoticache_cli_list keep; /* patterns */
    json_t *removed;         /* with --json */
    aoticache_cli_progress progress;
    uint64_t told_ns; /* when progress was last printed if there is no terminal */
    uint64_t begun_ns;
    const volatile sig_atomic_t *interrupted; /* set by SIGINT and SIGTERM */
} aoticache_gc;

/* How a run ended, as stable words for programs. */
typedef enum aoticache_gc_state {
    AOTICACHE_GC_DONE,    /* "done" */
    AOTICACHE_GC_PARTIAL, /* "partial": the time limit, or a signal */
    AOTICACHE_GC_LOCKED,  /* "locked": another collector is at work */
    AOTICACHE_GC_ABSENT,  /* "absent": there is no cache */
    AOTICACHE_GC_REFUSED, /* "refused": nothing was removed for its age, as the clock has jumped; all else was done */
} aoticache_gc_state;

/* Reports a removed entry (or one that would be removed): a line with --verbose, a member of the JSON. An
 * aoticache_entry_fn. */
bool aoticache_gc_report_entry(void *gc, const aoticache_entry *entry);
/* Updates a line on a terminal, prints a line every five seconds elsewhere. Returns false after a signal that ends the run. */
bool aoticache_gc_show_progress(void *gc, uint64_t done, uint64_t all);

/* Prints the summary: text, or JSON with --json. */
void aoticache_gc_report(aoticache_gc *gc, const char *directory, aoticache_gc_state state,
                         const aoticache_collect_report *report);
/* Writes the file for Prometheus' textfile collector, replaced atomically. report NULL: the run failed. Returns an exit
 * code. */
int aoticache_gc_write_prometheus(aoticache_gc *gc, const char *directory, const aoticache_collect_report *report);

/* Becomes the owner of the directory if this is root and the directory belongs to another user, and prints that. Returns an
 * exit code. */
int aoticache_gc_become_owner(aoticache_gc *gc, const char *directory);
/* Sends the text to the writer, waits until it is written, and returns an exit code. NULL: nothing is to be written. */
int aoticache_gc_send_to_writer(aoticache_gc *gc, const char *text);

#endif
