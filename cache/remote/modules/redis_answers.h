/*
 * cache/remote/modules/redis_answers: interprets the errors of a Redis server.
 */
#ifndef AOTICACHE_CACHE_REMOTE_MODULES_REDIS_ANSWERS_H
#define AOTICACHE_CACHE_REMOTE_MODULES_REDIS_ANSWERS_H

#include "cache/remote/module.h"

/* Returns what an error means, and writes the message. *ret_connects_anew: reconnect, because the address may lead to
 * another server by now. */
aoticache_status redis_judge_error(const char *text, bool *ret_connects_anew, aoticache_error *ret_error);

#endif
