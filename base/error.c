/*
 * base/error: status names and texts, the error detail, log lines, the version, and aoticache_free().
 */
#include "base/base.h"
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *aoticache_version(void)
{
    return AOTICACHE_VERSION;
}

const char *aoticache_status_name(aoticache_status status)
{
    switch (status) {
#define STATUS_NAME(name, number, text) \
    case AOTICACHE_##name:              \
        return #name;
        AOTICACHE_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *aoticache_status_text(aoticache_status status)
{
    switch (status) {
#define STATUS_TEXT(name, number, text) \
    case AOTICACHE_##name:              \
        return text;
        AOTICACHE_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

void aoticache_free(void *text)
{
    int saved = errno;
    free(text);
    errno = saved;
}

aoticache_status aoticache_error_set(aoticache_error *error, aoticache_status status, const char *format, ...)
{
    if (error == NULL)
        return status;
    int saved = errno;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(error->message, sizeof error->message, format, arguments) < 0)
        error->message[0] = '\0';
    va_end(arguments);
    errno = saved;
    return status;
}

static aoticache_status status_of_errno(int errno_value)
{
    switch (errno_value) {
    case ENOMEM:
        return AOTICACHE_NO_MEMORY;
    case EACCES:
    case EPERM:
    case ELOOP:
        return AOTICACHE_DENIED;
    default:
        return AOTICACHE_IO;
    }
}

aoticache_status aoticache_error_set_errno(aoticache_error *error, int errno_value, const char *format, ...)
{
    aoticache_status status = status_of_errno(errno_value);
    if (error == NULL)
        return status;
    int saved = errno;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    if (used >= 0 && (size_t)used < sizeof error->message) {
        char text[128];
        snprintf(error->message + used, sizeof error->message - (size_t)used, ": %s",
                 strerror_r(errno_value, text, sizeof text));
    }
    errno = saved;
    return status;
}

void aoticache_log(const aoticache_logger *logger, aoticache_log_level level, const char *format, ...)
{
    if (logger == NULL || logger->log == NULL)
        return;
    int saved = errno;
    char line[AOTICACHE_ERROR_MESSAGE_BYTES + 256];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(line, sizeof line, format, arguments) >= 0)
        logger->log(logger->user, level, line);
    va_end(arguments);
    errno = saved;
}
