/*
 * tools/cli/memory: memory that is there or ends the program.
 *
 * A tool has nothing better to do without memory than to say so; what it had begun in the cache is left as after a
 * SIGKILL, which the store is made for.
 */
#include "tools/cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

static _Noreturn void out_of_memory(void)
{
    static const char message[] = "aoticache: out of memory\n";
    ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
    (void)ignored;
    _exit(AOTICACHE_CLI_EXIT_FAILURE);
}

void *aoticache_cli_allocate(size_t count, size_t size)
{
    void *pointer = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    if (pointer == NULL)
        out_of_memory();
    return pointer;
}

void *aoticache_cli_resize(void *pointer, size_t count, size_t size)
{
    void *resized = reallocarray(pointer, count > 0 ? count : 1, size > 0 ? size : 1);
    if (resized == NULL)
        out_of_memory();
    return resized;
}

char *aoticache_cli_text(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        out_of_memory();
    return text;
}
