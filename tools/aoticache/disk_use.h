/*
 * tools/aoticache/disk_use: the parts of a cache directory and what they take of the disk.
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_DISK_USE_H
#define AOTICACHE_TOOLS_AOTICACHE_DISK_USE_H

#include "tools/aoticache/commands.h"

/* name, what it is. Names of folders, but for the last two: files in the root. */
#define AOTICACHE_DISK_PART_LIST(X)                                     \
    X(objects, "kernels and manifests")                                 \
    X(artifacts, "names of files that lie beside a library")            \
    X(index, "the index; it is built anew where it is lost")            \
    X(quarantine, "damaged files that were set aside; nothing needs them") \
    X(tmp, "compiles and copies at work, or of dead processes")         \
    X(leases, "who compiles what at this moment")                       \
    X(marks, "pins and tags")                                           \
    X(other, "the format, locks, the reserve")

typedef enum aoticache_disk_part_id {
#define AOTICACHE_DISK_PART_ENUM(name, text) AOTICACHE_DISK_PART_##name,
    AOTICACHE_DISK_PART_LIST(AOTICACHE_DISK_PART_ENUM)
#undef AOTICACHE_DISK_PART_ENUM
        AOTICACHE_DISK_PART_COUNT
} aoticache_disk_part_id;

typedef struct aoticache_disk_part {
    uint64_t files;
    uint64_t bytes;      /* of files */
    uint64_t disk_bytes; /* of files and folders: blocks */
} aoticache_disk_part;

typedef struct aoticache_disk_use {
    aoticache_disk_part parts[AOTICACHE_DISK_PART_COUNT];
} aoticache_disk_use;

const char *aoticache_disk_part_name(size_t part);

/* Follows no symbolic link. What vanishes meanwhile is left out. Returns: OK, IO, DENIED. */
aoticache_status aoticache_disk_use_read(const char *directory, aoticache_disk_use *ret_use,
                                         aoticache_error *ret_error);

#endif
