/*
 * runtime/message: the calling thread's last message, and the author's way to set it.
 */
#include "runtime/runtime_internal.h"

#include <stdarg.h>
#include <stdio.h>

#define MESSAGE_BYTES 512

static __thread char last_message[MESSAGE_BYTES];

/* PyTorch 2.13 and the shim have it; it is NULL with 2.6, which does not. */
__attribute__((weak)) const char *torch_exception_get_what_without_backtrace(void);

void aoticache_message_clear(void)
{
    last_message[0] = '\0';
}

const char *aoticache_message_get(void)
{
    return last_message;
}

static AOTICACHE_PRINTF(1, 0) AOTIRuntimeError set_message(const char *format, va_list arguments)
{
    if (vsnprintf(last_message, sizeof last_message, format, arguments) < 0)
        last_message[0] = '\0';
    return AOTICACHE_KERNEL_FAILURE;
}

AOTIRuntimeError aoticache_message_set(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    AOTIRuntimeError status = set_message(format, arguments);
    va_end(arguments);
    return status;
}

AOTIRuntimeError aoticache_message_of_status(AOTIRuntimeError status, const char *what)
{
    if (status == AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_OK;
    if (aoticache_message_get()[0] == '\0')
        aoticache_message_set("%s failed with status %d", what, (int)status);
    return AOTICACHE_KERNEL_FAILURE;
}

AOTIRuntimeError aoticache_kernel_fail(aoticache_kernel_call *call, const char *format, ...)
{
    (void)call;
    va_list arguments;
    va_start(arguments, format);
    AOTIRuntimeError status = set_message(format, arguments);
    va_end(arguments);
    return status;
}

AOTIRuntimeError aoticache_kernel_fail_torch(aoticache_kernel_call *call, const char *what)
{
    (void)call;
    const char *reason = NULL;
    if (torch_exception_get_what_without_backtrace != NULL)
        reason = torch_exception_get_what_without_backtrace();
    if (reason == NULL || reason[0] == '\0')
        return aoticache_message_set("%s failed", what);
    return aoticache_message_set("%s failed: %s", what, reason);
}
