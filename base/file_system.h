/*
 * base/file_system: what kind of file system a file is on.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_FILE_SYSTEM_H
#define AOTICACHE_BASE_FILE_SYSTEM_H

#include <stdbool.h>

/* Whether its times of change are this kernel's own: not on network file systems, nor on those that programs provide. */
bool aoticache_file_system_is_local(int fd);

#endif
