/*
 * tools/aoticache/disk_use: see disk_use.h.
 *
 * A file with several names (hard links in artifacts/ to objects/) counts where it is met first: parts are walked in
 * the order of their list, objects first.
 */
#include "tools/aoticache/disk_use.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"

#define MAX_DEPTH 32
#define BLOCK_BYTES 512 /* the unit of st_blocks, whatever the file system's blocks are */

/* Files with more than one name that were met: open addressing, at most half full. */
typedef struct met_files {
    struct {
        dev_t device;
        ino_t inode;
        bool used;
    } *slots;
    size_t capacity, count;
} met_files;

struct walk {
    aoticache_disk_use *use;
    met_files met;
};

const char *aoticache_disk_part_name(size_t part)
{
    static const char *const names[] = {
#define DISK_PART_NAME(name, text) #name,
        AOTICACHE_DISK_PART_LIST(DISK_PART_NAME)
#undef DISK_PART_NAME
    };
    return part < AOTICACHE_DISK_PART_COUNT ? names[part] : NULL;
}

static size_t slot_of(const met_files *met, dev_t device, ino_t inode)
{
    size_t at = (size_t)(inode * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (met->capacity - 1);
    while (met->slots[at].used && (met->slots[at].device != device || met->slots[at].inode != inode))
        at = (at + 1) & (met->capacity - 1);
    return at;
}

static void grow(met_files *met)
{
    met_files larger = {.capacity = met->capacity > 0 ? met->capacity * 2 : 1024};
    larger.slots = aoticache_cli_allocate(larger.capacity, sizeof *larger.slots);
    for (size_t i = 0; i < met->capacity; i++)
        if (met->slots[i].used)
            larger.slots[slot_of(&larger, met->slots[i].device, met->slots[i].inode)] = met->slots[i];
    larger.count = met->count;
    free(met->slots);
    *met = larger;
}

/* Whether it was met before; now it is. */
static bool was_met(met_files *met, const struct stat *found)
{
    if (met->count * 2 >= met->capacity)
        grow(met);
    size_t at = slot_of(met, found->st_dev, found->st_ino);
    if (met->slots[at].used)
        return true;
    met->slots[at].device = found->st_dev;
    met->slots[at].inode = found->st_ino;
    met->slots[at].used = true;
    met->count++;
    return false;
}

static void count_file(struct walk *walk, aoticache_disk_part *part, const struct stat *found)
{
    if (!S_ISDIR(found->st_mode) && found->st_nlink > 1 && was_met(&walk->met, found))
        return;
    part->disk_bytes += (uint64_t)found->st_blocks * BLOCK_BYTES;
    if (S_ISDIR(found->st_mode))
        return;
    part->files++;
    part->bytes += (uint64_t)found->st_size;
}

/* What cannot be opened or is gone by now is passed over: it is counted by its name. */
static void walk_folder(struct walk *walk, aoticache_disk_part *part, int parent_fd, const char *name, int depth)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    cleanup_dir DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (listing == NULL && fd >= 0)
        close(fd);
    if (listing == NULL)
        return;
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        struct stat found;
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0 ||
            fstatat(dirfd(listing), item->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        count_file(walk, part, &found);
        if (S_ISDIR(found.st_mode) && depth < MAX_DEPTH)
            walk_folder(walk, part, dirfd(listing), item->d_name, depth + 1);
    }
}

static size_t part_of(const char *name)
{
    for (size_t i = 0; i < AOTICACHE_DISK_PART_COUNT; i++)
        if (i != AOTICACHE_DISK_PART_index && i != AOTICACHE_DISK_PART_other &&
            strcmp(name, aoticache_disk_part_name(i)) == 0)
            return i;
    bool is_index = strncmp(name, "index.sqlite3", strlen("index.sqlite3")) == 0;
    return is_index ? AOTICACHE_DISK_PART_index : AOTICACHE_DISK_PART_other;
}

/* The entries of the root that belong to this part. */
static void walk_part(struct walk *walk, DIR *root, size_t part)
{
    rewinddir(root);
    for (struct dirent *item; (item = readdir(root)) != NULL;) {
        struct stat found;
        bool is_parent = strcmp(item->d_name, "..") == 0;
        if (is_parent || part_of(item->d_name) != part ||
            fstatat(dirfd(root), item->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        count_file(walk, &walk->use->parts[part], &found);
        if (S_ISDIR(found.st_mode) && strcmp(item->d_name, ".") != 0)
            walk_folder(walk, &walk->use->parts[part], dirfd(root), item->d_name, 1);
    }
}

aoticache_status aoticache_disk_use_read(const char *directory, aoticache_disk_use *ret_use, aoticache_error *ret_error)
{
    aoticache_disk_use use;
    memset(&use, 0, sizeof use);
    struct walk walk = {.use = &use};
    cleanup_dir DIR *root = opendir(directory);
    if (root == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s", directory);
    for (size_t part = 0; part < AOTICACHE_DISK_PART_COUNT; part++)
        walk_part(&walk, root, part);
    free(walk.met.slots);
    *ret_use = use;
    return AOTICACHE_OK;
}
