/*
 * base/process/home: finds the files that belong to this library: the shim, the compile worker, the C kernels, the headers.
 *
 * Private. They are in one tree (lib/, share/aoticache/, include/aoticache/), which is searched for in this order:
 * $AOTICACHE_HOME; the installation that contains the file from which this code was loaded, even if the whole installation
 * was moved (its libdir may be lib64 or lib/x86_64-linux-gnu); the parent of that file's directory (a build directory); the
 * directories given to `make install`.
 */
#ifndef AOTICACHE_BASE_HOME_H
#define AOTICACHE_BASE_HOME_H

#include "base/base.h"

/*
 * Finds the first path at which `relative` (for example "lib/libaoticache_torchshim.so") exists.
 *
 * ret_path: at least PATH_MAX bytes.
 * Returns: OK; NOT_FOUND if it exists nowhere (unlike elsewhere, ret_error is then set: it names all paths tried).
 */
aoticache_status aoticache_home_find(const char *relative, char *ret_path, aoticache_error *ret_error);

#endif
