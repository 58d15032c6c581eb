/*
 * loader/dlopen_fd: loading exactly the file that a descriptor is open on.
 *
 * Private.
 */
#ifndef AOTICACHE_LOADER_DLOPEN_FD_H
#define AOTICACHE_LOADER_DLOPEN_FD_H

#include "base/base.h"

/*
 * Calls dlopen (RTLD_NOW, RTLD_LOCAL) for the file that `fd`, which is borrowed, is open on. The same file (device and
 * inode) loaded twice is one library to glibc, with a higher count.
 *
 * Without /proc a copy in the temporary directory is loaded, each time as a separate library.
 *
 * Returns: OK, LOAD_FAILED (the dynamic linker's message); IO, DENIED, NO_MEMORY (the copy cannot be made).
 */
aoticache_status aoticache_dlopen_fd(int fd, void **ret_handle, aoticache_error *ret_error);

/*
 * Returns whether this process may open the file again by the descriptor's name (/proc), as a library that maps weights
 * from its own file does. The descriptor may come from a process with more rights.
 */
bool aoticache_fd_opens_again(int fd);

#endif
