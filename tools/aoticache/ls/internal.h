/*
 * tools/aoticache/ls: what the files of `aoticache ls` share: which entries are wanted, and in which order.
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_LS_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_LS_INTERNAL_H

#include "aoticache.h"
#include "tools/cli/cli.h"

enum aoticache_ls_option {
    AOTICACHE_LS_FAILED = 1,
    AOTICACHE_LS_SORT,
    AOTICACHE_LS_REVERSE,
    AOTICACHE_LS_LIMIT,
    AOTICACHE_LS_OP,
    AOTICACHE_LS_FIRST_FILTER = AOTICACHE_LS_OP,
    AOTICACHE_LS_DEVICE,
    AOTICACHE_LS_PRODUCER,
    AOTICACHE_LS_ENVIRONMENT,
    AOTICACHE_LS_TAG,
    AOTICACHE_LS_PINNED,
    AOTICACHE_LS_USED_SINCE,
    AOTICACHE_LS_UNUSED_FOR,
    AOTICACHE_LS_LARGER,
    AOTICACHE_LS_NEWER,
    AOTICACHE_LS_CPU,
    AOTICACHE_LS_LAST_FILTER = AOTICACHE_LS_CPU,
};

#define AOTICACHE_LS_FILTER_ROWS                                                                                \
    {AOTICACHE_LS_OP, "op", 0, "PATTERN", "operators like this: 'aten::*', a shell pattern"},                   \
        {AOTICACHE_LS_DEVICE, "device", 0, "DEVICE", "for this device: cpu, cuda:1, cuda (any of them)"},       \
        {AOTICACHE_LS_PRODUCER, "producer", 0, "PATTERN", "made by this: 'pytorch 2.1*', a shell pattern"},     \
        {AOTICACHE_LS_ENVIRONMENT, "environment", 'e', "NAME=PATTERN",                                          \
         "whose environment has this pair, as 'aoticache show'\nprints it; reads the manifests"},               \
        {AOTICACHE_LS_TAG, "tag", 't', "TAG", "with this tag"},                                                 \
        {AOTICACHE_LS_PINNED, "pinned", 0, NULL, "that are pinned"},                                            \
        {AOTICACHE_LS_USED_SINCE, "used-since", 0, "AGE", "used within 12h, 30d, ..."},                         \
        {AOTICACHE_LS_UNUSED_FOR, "unused-for", 0, "AGE", "not used (or, never used, not made) for so long"},   \
        {AOTICACHE_LS_LARGER, "larger", 0, "SIZE", "larger than 512K, 10M, ..."},                               \
        {AOTICACHE_LS_NEWER, "newer", 0, "AGE", "made within 12h, 30d, ..."},                                   \
        {AOTICACHE_LS_CPU, "cpu", 0, NULL, "that this machine's CPU can run"}

/* Strings are borrowed from the command line. */
typedef struct aoticache_ls_filter {
    const char *exact_op; /* the operand */
    const char *op, *device, *producer, *tag;
    const char **environment; /* "NAME=PATTERN"; the caller frees the array */
    size_t environment_count;
    bool pinned, cpu;
    uint64_t larger;                                            /* bytes; 0: any */
    int64_t used_since_ns, unused_since_ns, newer_ns;           /* wall clock; 0: any */
} aoticache_ls_filter;

/* An option from AOTICACHE_LS_FIRST_FILTER on. Says what is wrong; returns an exit code. */
int aoticache_ls_filter_take(aoticache_ls_filter *filter, const aoticache_cli *cli, int id, const char *value);
/* Whether there is any condition. */
bool aoticache_ls_filter_is_set(const aoticache_ls_filter *filter);
/* mark: of the entry's key, NULL where it has none. */
bool aoticache_ls_filter_accepts(const aoticache_ls_filter *filter, aoticache_cache *cache,
                                 const aoticache_entry *entry, const aoticache_pins *mark);

typedef int (*aoticache_ls_order)(const void *left, const void *right); /* of aoticache_entry */

/* "size", "-size". *ret_order: NULL for the order of the library, by operator and key. Says what is wrong; returns an exit
 * code. */
int aoticache_ls_order_parse(const aoticache_cli *cli, const char *text, aoticache_ls_order *ret_order,
                             bool *ret_reverse);

#endif
