/*
 * shim/tensors/failure: the calling thread's last message, and the two functions with which generated code reports
 * failures itself.
 *
 * aoti_torch_check() must not return when its condition is false: generated code continues with the access that the
 * check guards. PyTorch throws a C++ exception there, which the library's exported function catches and turns into a
 * status. This code does the same, through the C++ runtime that the calling library has loaded: libstdc++ itself
 * exports a function that throws std::runtime_error. It is looked up when it is needed, so the shim is plain C, and a
 * process that runs only kernels written in C never loads a C++ runtime.
 */
#include "base/names.h"
#include "base/process/fork_guard.h"
#include "runtime/shim/tensors/tensor.h"
#include "runtime/shim/torch_abi.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static __thread char last_message[SHIM_MESSAGE_BYTES];

AOTITorchError aoticache_shim_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(last_message, sizeof last_message, format, arguments) < 0)
        last_message[0] = '\0';
    va_end(arguments);
    return SHIM_FAILURE;
}

AOTITorchError aoticache_shim_fail_memory(const char *function, size_t bytes)
{
    return aoticache_shim_fail("%s: out of memory for %zu bytes", function, bytes);
}

const char *aoticache_shim_dtype_text(int32_t dtype, char buffer[SHIM_DTYPE_TEXT_BYTES])
{
    const char *name = aoticache_dtype_name(dtype);
    if (name != NULL)
        return name;
    snprintf(buffer, SHIM_DTYPE_TEXT_BYTES, "dtype %d", (int)dtype);
    return buffer;
}

const char *torch_exception_get_what_without_backtrace(void)
{
    return last_message;
}

const char *torch_exception_get_what(void)
{
    return last_message;
}

typedef void (*throw_function)(const char *message);

/* Finds std::__throw_runtime_error(char const *), which all code made with libstdc++ may call: its ABI is stable. */
static throw_function find_throw_function(void)
{
    throw_function found;
    aoticache_fork_guard_enter();
    void *runtime = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = runtime != NULL ? dlsym(runtime, "_ZSt21__throw_runtime_errorPKc") : NULL;
    /* The caller links it, so it stays loaded without this reference. */
    if (runtime != NULL)
        dlclose(runtime);
    aoticache_fork_guard_leave();
    memcpy(&found, &symbol, sizeof found);
    return found;
}

void aoti_torch_check(bool condition, const char *function, const char *file, uint32_t line, const char *message)
{
    if (__builtin_expect(condition, 1))
        return;
    char text[SHIM_MESSAGE_BYTES];
    snprintf(text, sizeof text, "%s (%s at %s:%u)", message != NULL ? message : "check failed",
             function != NULL ? function : "?", file != NULL ? file : "?", (unsigned)line);
    aoticache_shim_fail("%s", text);
    throw_function throw_runtime_error = find_throw_function();
    /* Without a C++ runtime the caller is C code, which cannot catch: the message is stored. */
    if (throw_runtime_error != NULL)
        throw_runtime_error(text);
}

/* Stores the text of a warning. PyTorch prints it; a library does not. */
void aoti_torch_warn(const char *function, const char *file, uint32_t line, const char *message)
{
    aoticache_shim_fail("warning: %s (%s at %s:%u)", message != NULL ? message : "", function != NULL ? function : "?",
                        file != NULL ? file : "?", (unsigned)line);
}
