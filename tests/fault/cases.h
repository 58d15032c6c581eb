/*
 * cases: operations and states of a cache that several of the programs here use.
 */
#ifndef AOTICACHE_TESTS_FAULT_CASES_H
#define AOTICACHE_TESTS_FAULT_CASES_H

#include "cache/transfer/transfer.h"

/* Opens trial_cache() by itself and closes it. `unused` is NULL. */
aoticache_status trial_reopen(aoticache_cache *unused, aoticache_error *ret_error);
/* The index of trial_cache(), or the file of that suffix beside it. */
void trial_index_path(char ret_path[700], const char *suffix);
void trial_damage_index(void);
/* The same entries as the first version of the index had them. */
void trial_go_back_to_first_version(void);

/* A second cache with entries TRIAL_NEW_KEY and the one after it, and an archive of it. */
void trial_make_source(void);
/* The same, and each entry of the archive is signed. */
void trial_make_signed_source(void);
/* In a process that was forked: the archive with a position of its own. */
void trial_reopen_archive(void);
aoticache_status trial_import(aoticache_cache *cache, aoticache_error *ret_error);
aoticache_status trial_merge(aoticache_cache *cache, aoticache_error *ret_error);

#endif
