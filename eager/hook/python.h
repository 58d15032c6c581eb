/*
 * eager/hook/python: which Python the worker runs in, and which PyTorch that Python has, found without starting it.
 *
 * Private.
 */
#ifndef AOTICACHE_EAGER_HOOK_PYTHON_H
#define AOTICACHE_EAGER_HOOK_PYTHON_H

#include "base/base.h"

#include <limits.h>

#define AOTICACHE_PYTHON_VERSION_BYTES 64

typedef struct aoticache_python {
    char path[PATH_MAX];
    /*
     * PyTorch's public version, "2.13.0": without "+cpu" or "+cu130", since a process that has libtorch knows its
     * version from aoti_torch_abi_version(), which has no such part, and both must come to the same key.
     */
    char torch_version[AOTICACHE_PYTHON_VERSION_BYTES];
} aoticache_python;

/*
 * program: a path or a name, or NULL for $AOTICACHE_PYTHON, else venv/bin/python of the folder this library is
 * installed under, else python3 of $PATH.
 *
 * The version is read from torch/version.py where that Python keeps its packages; only where that gives nothing or two
 * different versions is Python started, for at most 20 s.
 * environment: what it will be started with, since that says where it looks for packages; NULL: the host's.
 * Returns: OK; NOT_FOUND (no Python); UNSUPPORTED (it has no PyTorch); DENIED, NO_MEMORY, IO.
 */
aoticache_status aoticache_python_find(const char *program, const char *const *environment,
                                       aoticache_python *ret_python, aoticache_error *ret_error);

#endif
