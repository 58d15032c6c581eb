/*
 * base/process/optional_library: opens a library by one of its names and finds its functions.
 */
#include "base/process/optional_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/process/fork_guard.h"

static bool bind_functions(void *library, const aoticache_library_function *functions, size_t count)
{
    bool is_complete = true;
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(library, functions[i].name);
        memcpy(functions[i].place, &function, sizeof function);
        is_complete = is_complete && function != NULL;
    }
    return is_complete;
}

/* Taken only inside the fork guard, so no child of a fork finds it taken. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool aoticache_optional_library_open(atomic_bool *is_open, const char *const *names, size_t name_count,
                                     const aoticache_library_function *functions, size_t function_count,
                                     const char *version, char ret_problem[AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES])
{
    if (*is_open)
        return true;
    aoticache_fork_guard_enter();
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < name_count && !*is_open; i++) {
        void *library = names[i][0] != '\0' ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library == NULL)
            continue;
        *is_open = bind_functions(library, functions, function_count);
        if (!*is_open) {
            snprintf(ret_problem, AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES, "%s lacks functions of %s", names[i],
                     version);
            dlclose(library);
        }
    }
    bool opened = *is_open;
    pthread_mutex_unlock(&lock);
    aoticache_fork_guard_leave();
    return opened;
}
