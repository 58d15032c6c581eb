/*
 * cases: operations and states of a cache that several of these programs use.
 */
#ifndef AOTICACHE_TESTS_FAULT_CASES_H
#define AOTICACHE_TESTS_FAULT_CASES_H

#include "cache/transfer/transfer.h"

/* Opens trial_cache() and closes it. `unused` is NULL. */
aoticache_status trial_reopen(aoticache_cache *unused, aoticache_error *ret_error);
/* Writes the path of trial_cache()'s index, or of the file with that suffix next to it. */
void trial_index_path(char ret_path[700], const char *suffix);
void trial_damage_index(void);

/* Makes a second cache with entries TRIAL_NEW_KEY and TRIAL_NEW_KEY + 1, and an archive of it. */
void trial_make_source(void);
/* Does the same, with each entry of the archive signed. */
void trial_make_signed_source(void);
/* Reopens the archive in a forked process, so that it has its own file position. */
void trial_reopen_archive(void);
aoticache_status trial_import(aoticache_cache *cache, aoticache_error *ret_error);
aoticache_status trial_merge(aoticache_cache *cache, aoticache_error *ret_error);

#endif
