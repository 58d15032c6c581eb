/*
 * base/process/home: finds the files that belong to this library, in a build directory, in an installation of any layout (lib,
 * lib64, lib/x86_64-linux-gnu), and in one that was moved as a whole.
 */
#include "base/process/home.h"
#include "base/process/fork_guard.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The directories given to `make install`; the Makefile defines these macros. */
#ifndef AOTICACHE_PREFIX
#define AOTICACHE_PREFIX "/usr/local"
#define AOTICACHE_LIBDIR AOTICACHE_PREFIX "/lib" /* the library's own directory */
#define AOTICACHE_PKGLIBDIR AOTICACHE_LIBDIR     /* the directory of what it loads and links by itself */
#define AOTICACHE_DATADIR AOTICACHE_PREFIX "/share"
#define AOTICACHE_INCLUDEDIR AOTICACHE_PREFIX "/include"
#endif

static const struct {
    const char *name;      /* name in a build directory, and in callers' requests */
    const char *directory; /* the same in the installation */
} installed_directories[] = {
    {"lib/", AOTICACHE_PKGLIBDIR "/"}, {"share/", AOTICACHE_DATADIR "/"}, {"include/", AOTICACHE_INCLUDEDIR "/"}};

typedef struct home_search {
    const char *relative;
    char *ret_path;
    char tried[512]; /* the paths, for the message */
    size_t used;
} home_search;

/* Returns whether the search's file in `tree` and `middle` exists and can be read. */
static bool is_in(home_search *search, const char *tree, const char *middle, const char *rest)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s%s%s", tree, middle, rest);
    if (length < 0 || (size_t)length >= sizeof path)
        return false;
    if (eaccess(path, R_OK) == 0) {
        memcpy(search->ret_path, path, (size_t)length + 1);
        return true;
    }
    if (search->used < sizeof search->tried)
        search->used += (size_t)snprintf(search->tried + search->used, sizeof search->tried - search->used, "%s%s%s",
                                         search->used > 0 ? ", " : "", tree, middle);
    return false;
}

static bool is_in_tree(home_search *search, const char *tree)
{
    return is_in(search, tree, "/", search->relative);
}

/* Finds the directory of the file that contains this function; returns false if the dynamic linker does not know it. */
static bool directory_of_this_code(char ret_directory[PATH_MAX])
{
    Dl_info info;
    aoticache_fork_guard_enter();
    int found = dladdr((void *)(uintptr_t)aoticache_version, &info);
    aoticache_fork_guard_leave();
    if (found == 0 || info.dli_fname == NULL)
        return false;
    /* If a program was started by its bare name, dli_fname is only that name. */
    const char *file = strchr(info.dli_fname, '/') != NULL ? info.dli_fname : "/proc/self/exe";
    if (realpath(file, ret_directory) == NULL)
        return false;
    char *slash = strrchr(ret_directory, '/');
    if (slash != NULL)
        *slash = '\0';
    return slash != NULL;
}

/* Returns the part of `directory` below the prefix, from its leading slash on; NULL if it is outside the prefix. */
static const char *below_prefix(const char *directory)
{
    size_t length = strlen(AOTICACHE_PREFIX);
    return strncmp(directory, AOTICACHE_PREFIX, length) == 0 && directory[length] == '/' ? directory + length : NULL;
}

/* Handles an installation that was moved: its prefix is above the library's own directory. */
static bool is_in_moved_installation(home_search *search, const char *code, const char *directory, const char *rest)
{
    const char *libraries = below_prefix(AOTICACHE_LIBDIR);
    const char *middle = below_prefix(directory);
    if (libraries == NULL || middle == NULL)
        return false;
    size_t length = strlen(code), end = strlen(libraries);
    if (length < end || strcmp(code + length - end, libraries) != 0)
        return false;
    char tree[PATH_MAX];
    memcpy(tree, code, length - end);
    tree[length - end] = '\0';
    return is_in(search, tree, middle, rest);
}

/* Handles a build directory: the parent of the code's directory. It is tried after the installation, which may be next to an
 * older build. */
static bool is_near_this_code(home_search *search, const char *directory, const char *rest)
{
    char code[PATH_MAX];
    if (!directory_of_this_code(code))
        return false;
    if (directory != NULL && is_in_moved_installation(search, code, directory, rest))
        return true;
    char *slash = strrchr(code, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return is_in_tree(search, code);
}

aoticache_status aoticache_home_find(const char *relative, char *ret_path, aoticache_error *ret_error)
{
    home_search search = {.relative = relative, .ret_path = ret_path};
    const char *directory = NULL, *rest = NULL;
    for (size_t i = 0; i < sizeof installed_directories / sizeof installed_directories[0]; i++) {
        size_t length = strlen(installed_directories[i].name);
        if (strncmp(relative, installed_directories[i].name, length) == 0) {
            directory = installed_directories[i].directory;
            rest = relative + length;
        }
    }
    char absolute[PATH_MAX]; /* absolute, because programs that receive the path may run in another directory */
    const char *home = secure_getenv("AOTICACHE_HOME");
    if (home != NULL && home[0] != '\0' && home[0] != '/' && realpath(home, absolute) != NULL)
        home = absolute;
    if ((home != NULL && home[0] != '\0' && is_in_tree(&search, home)) || is_near_this_code(&search, directory, rest) ||
        (directory != NULL ? is_in(&search, directory, "", rest) : is_in_tree(&search, AOTICACHE_PREFIX)))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                               "%s is not in any of %s; set AOTICACHE_HOME to the directory that it is installed in",
                               relative, search.tried);
}
