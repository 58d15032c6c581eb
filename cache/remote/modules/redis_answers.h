/*
 * cache/remote/modules/redis_answers: what an error of a Redis server means.
 */
#ifndef AOTICACHE_CACHE_REMOTE_MODULES_REDIS_ANSWERS_H
#define AOTICACHE_CACHE_REMOTE_MODULES_REDIS_ANSWERS_H

#include "cache/remote/module.h"

/* Returns what it means, and says so. *ret_connects_anew: the address may lead to another server by now. */
aoticache_status redis_judge_error(const char *text, bool *ret_connects_anew, aoticache_error *ret_error);

#endif
