/*
 * cache/transfer/archive_library: opens libarchive on first use. It is not linked: a process that transfers no entries does
 * not load it, and everything else works on a machine without it.
 */
#include "cache/transfer/archive_library.h"

#include <stdatomic.h>

#include "base/process/optional_library.h"

#ifdef AOTICACHE_HAS_LIBARCHIVE

/* The soname that the build found. If it found none, that of libarchive 3 in distributions. */
#ifndef AOTICACHE_ARCHIVE_LIBRARY
#define AOTICACHE_ARCHIVE_LIBRARY ""
#endif

static aoticache_archive_functions functions;
static atomic_bool is_there;

aoticache_status aoticache_archive_library_open(const aoticache_archive_functions **ret_functions,
                                                aoticache_error *ret_error)
{
    static const char *const names[] = {AOTICACHE_ARCHIVE_LIBRARY, "libarchive.so.13"};
    static const aoticache_library_function table[] = {
#define ENTRY(result, name, parameters) {"archive_" #name, &functions.name##_},
        AOTICACHE_ARCHIVE_FUNCTION_LIST(ENTRY)
#undef ENTRY
    };
    char problem[AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES] = "libarchive.so.13 cannot be opened";
    if (!aoticache_optional_library_open(&is_there, names, sizeof names / sizeof names[0], table,
                                         sizeof table / sizeof table[0], "libarchive 3.3", problem))
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "archives need libarchive, and %s: install it (Debian: libarchive13; Fedora: "
                                   "libarchive), or copy the cache from directory to directory",
                                   problem);
    *ret_functions = &functions;
    return AOTICACHE_OK;
}

#else

aoticache_status aoticache_archive_library_missing(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "archives need libarchive, but this library was built without archive.h: "
                               "rebuild it with libarchive-dev (Fedora: libarchive-devel), or copy the cache "
                               "from directory to directory");
}

#endif
