/*
 * loader/dlopen_fd: loading exactly the file that a descriptor is open on.
 *
 * Private.
 */
#ifndef AOTICACHE_LOADER_DLOPEN_FD_H
#define AOTICACHE_LOADER_DLOPEN_FD_H

#include "base/base.h"

/*
 * dlopen (RTLD_NOW, RTLD_LOCAL) of the file behind `fd`, which is borrowed. The same file (device and inode) loaded
 * twice is one library to glibc, with a higher count.
 *
 * Without /proc a copy in the folder of temporary files is loaded, a library of its own each time.
 *
 * Returns: OK, LOAD_FAILED (the dynamic linker's message); IO, DENIED, NO_MEMORY (the copy cannot be made).
 */
aoticache_status aoticache_dlopen_fd(int fd, void **ret_handle, aoticache_error *ret_error);

/*
 * Whether this process may open the file behind `fd` once more by the descriptor's name, as a library does that maps
 * weights from its own file: the descriptor may come from somebody who may do more.
 */
bool aoticache_fd_opens_again(int fd);

#endif
