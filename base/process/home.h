/*
 * base/process/home: where the files that belong to this library are: the shim, the compile worker, the C kernels, the headers.
 *
 * Private. They lie in one tree (lib/, share/aoticache/, include/aoticache/) that is looked for in this order:
 * $AOTICACHE_HOME; the installation, wherever it was moved as a whole, that the file this code was loaded from belongs to
 * (libdir may be lib64 or lib/x86_64-linux-gnu there); the directory above that file's (a build directory); the directories
 * that `make install` was told.
 */
#ifndef AOTICACHE_BASE_HOME_H
#define AOTICACHE_BASE_HOME_H

#include "base/base.h"

/*
 * The first place where `relative` (as "lib/libaoticache_torchshim.so") exists.
 *
 * ret_path: at least PATH_MAX bytes.
 * Returns: OK; NOT_FOUND if no place has it (ret_error then names all the places, unlike elsewhere).
 */
aoticache_status aoticache_home_find(const char *relative, char *ret_path, aoticache_error *ret_error);

#endif
