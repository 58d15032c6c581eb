/*
 * tools/aoticache/ls: types and functions shared by the files of `aoticache ls`: which entries to list, and in which order.
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_LS_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_LS_INTERNAL_H

#include "aoticache/admin.h"
#include "tools/cli/cli.h"

/* Strings are borrowed from the command line. */
typedef struct aoticache_ls_filter {
    const char *exact_op; /* the operand */
    const char *op, *kind, *device, *producer, *tag;
    aoticache_cli_list environment; /* "NAME=PATTERN"; the caller frees the items */
    bool pinned, cpu;
    uint64_t larger;                                  /* bytes; 0: any */
    int64_t used_since_ns, unused_since_ns, newer_ns; /* wall clock; 0: any */
} aoticache_ls_filter;

/* The options that are conditions, for an aoticache_ls_filter. */
extern const aoticache_cli_option aoticache_ls_filter_option_table[];
/* Returns whether there is any condition. */
bool aoticache_ls_filter_is_set(const aoticache_ls_filter *filter);
/* Returns whether an entry matches. mark: pins and tags of the entry's key, NULL if it has none. */
bool aoticache_ls_filter_accepts(const aoticache_ls_filter *filter, aoticache_cache *cache,
                                 const aoticache_entry *entry, const aoticache_pins *mark);

typedef int (*aoticache_ls_order)(const void *left, const void *right); /* of aoticache_entry */

typedef struct aoticache_ls_sort {
    aoticache_ls_order order; /* NULL: the library's order, by operator and key */
    bool reverse;
} aoticache_ls_sort;

/* Reads the value of --sort, for a row of a table: "size", "-size"; into an aoticache_ls_sort. */
int aoticache_ls_sort_read(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                           void *member);

#endif
