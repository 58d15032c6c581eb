/*
 * base/log: one line to a logger.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_LOG_H
#define AOTICACHE_BASE_LOG_H

#include "base/base.h"

/* Formats a line and passes it to the logger. Does nothing if `logger` or its function is NULL. Preserves errno. */
void aoticache_log(const aoticache_logger *logger, aoticache_log_level level, const char *format, ...)
    AOTICACHE_PRINTF(3, 4);

#endif
