/*
 * base/home: see home.h.
 */
#include "base/home.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef AOTICACHE_PREFIX
#define AOTICACHE_PREFIX "/usr/local"
#endif

/* The folder above the one of the file that this function is in; false where the dynamic linker does not say. */
static bool tree_of_this_code(char ret_tree[PATH_MAX])
{
    Dl_info info;
    if (dladdr((void *)(uintptr_t)aoticache_version, &info) == 0 || info.dli_fname == NULL)
        return false;
    /* A program that was started by its bare name has just that here. */
    const char *file = strchr(info.dli_fname, '/') != NULL ? info.dli_fname : "/proc/self/exe";
    if (realpath(file, ret_tree) == NULL)
        return false;
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(ret_tree, '/');
        if (slash == NULL)
            return false;
        *slash = '\0';
    }
    return true;
}

aoticache_status aoticache_home_find(const char *relative, char *ret_path, aoticache_error *ret_error)
{
    char tree[PATH_MAX];
    char path[PATH_MAX];
    const char *places[3];
    size_t count = 0;
    const char *home = secure_getenv("AOTICACHE_HOME");
    if (home != NULL && home[0] != '\0')
        places[count++] = home;
    if (tree_of_this_code(tree))
        places[count++] = tree;
    places[count++] = AOTICACHE_PREFIX;

    char tried[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        int length = snprintf(path, sizeof path, "%s/%s", places[i], relative);
        if (length < 0 || (size_t)length >= sizeof path)
            continue;
        if (access(path, R_OK) == 0) {
            memcpy(ret_path, path, (size_t)length + 1);
            return AOTICACHE_OK;
        }
        if (used < sizeof tried)
            used += (size_t)snprintf(tried + used, sizeof tried - used, "%s%s", used > 0 ? ", " : "", places[i]);
    }
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                               "%s is in none of %s; set AOTICACHE_HOME to the folder it is installed under", relative,
                               tried);
}
