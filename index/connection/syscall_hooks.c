/*
 * index/connection/syscall_hooks: SQLite's own changes of the disk pass through base/syscalls, so that tests can make them
 * fail or end the process there.
 *
 * Most are system calls that SQLite's unix VFS lets one replace. Syncs are not among them: for these the methods of each
 * file are replaced by a copy with another xSync. Writes to memory shared through the -shm file are not covered; they change
 * nothing that must survive.
 */
#include "index/connection/connection_internal.h"
#include "base/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static sqlite3_vfs hooked_vfs;       /* the default VFS with another xOpen */
static const sqlite3_vfs *plain_vfs; /* the original */

/* ---- system calls ---- */

static int hooked_open(const char *path, int flags, int mode)
{
    bool creates = (flags & O_CREAT) != 0 && access(path, F_OK) != 0;
    if (creates && aoticache_syscall_hook_ask("open", path) != 0)
        return -1;
    return open(path, flags, (mode_t)mode);
}

static ssize_t hooked_write(int fd, const void *bytes, size_t size)
{
    return aoticache_syscall_hook_ask("write", NULL) != 0 ? -1 : write(fd, bytes, size);
}

static ssize_t hooked_pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    return aoticache_syscall_hook_ask("pwrite", NULL) != 0 ? -1 : pwrite(fd, bytes, size, offset);
}

static ssize_t hooked_pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
{
    return aoticache_syscall_hook_ask("pwrite", NULL) != 0 ? -1 : pwrite64(fd, bytes, size, offset);
}

static int hooked_ftruncate(int fd, off_t size)
{
    return aoticache_syscall_hook_ask("ftruncate", NULL) != 0 ? -1 : ftruncate(fd, size);
}

static int hooked_unlink(const char *path)
{
    return aoticache_syscall_hook_ask("unlink", path) != 0 ? -1 : unlink(path);
}

static int hooked_mkdir(const char *path, mode_t mode)
{
    return aoticache_syscall_hook_ask("mkdir", path) != 0 ? -1 : mkdir(path, mode);
}

/* SQLite opens a directory only to sync it. */
static int (*plain_open_directory)(const char *path, int *ret_fd);

static int hooked_open_directory(const char *path, int *ret_fd)
{
    if (aoticache_syscall_hook_ask("fsync", path) != 0)
        return SQLITE_CANTOPEN;
    return plain_open_directory(path, ret_fd);
}

static void replace(sqlite3_vfs *vfs, const char *name, sqlite3_syscall_ptr call)
{
    if (vfs->xGetSystemCall(vfs, name) != NULL)
        vfs->xSetSystemCall(vfs, name, call);
}

static void replace_system_calls(sqlite3_vfs *vfs)
{
    replace(vfs, "open", (sqlite3_syscall_ptr)hooked_open);
    replace(vfs, "write", (sqlite3_syscall_ptr)hooked_write);
    replace(vfs, "pwrite", (sqlite3_syscall_ptr)hooked_pwrite);
    replace(vfs, "pwrite64", (sqlite3_syscall_ptr)hooked_pwrite64);
    replace(vfs, "ftruncate", (sqlite3_syscall_ptr)hooked_ftruncate);
    replace(vfs, "unlink", (sqlite3_syscall_ptr)hooked_unlink);
    replace(vfs, "mkdir", (sqlite3_syscall_ptr)hooked_mkdir);
    plain_open_directory = (int (*)(const char *, int *))vfs->xGetSystemCall(vfs, "openDirectory");
    if (plain_open_directory != NULL)
        vfs->xSetSystemCall(vfs, "openDirectory", (sqlite3_syscall_ptr)hooked_open_directory);
}

/* ---- syncs ---- */

/* SQLite has a few static tables of methods, one per kind of file; each gets one copy here. */
#define MAX_METHOD_TABLES 8

static struct {
    const sqlite3_io_methods *plain;
    sqlite3_io_methods hooked;
} method_tables[MAX_METHOD_TABLES];
static size_t method_table_count;
static pthread_mutex_t method_tables_lock = PTHREAD_MUTEX_INITIALIZER;

static int hooked_sync(sqlite3_file *file, int flags)
{
    if (aoticache_syscall_hook_ask("fsync", NULL) != 0)
        return SQLITE_IOERR_FSYNC;
    for (size_t i = 0; i < MAX_METHOD_TABLES; i++)
        if (file->pMethods == &method_tables[i].hooked)
            return method_tables[i].plain->xSync(file, flags);
    return SQLITE_IOERR_FSYNC;
}

/* Returns the copy of a table, made when it is first needed; if all copies are in use, the table itself. */
static const sqlite3_io_methods *hooked_methods(const sqlite3_io_methods *plain)
{
    const sqlite3_io_methods *methods = plain;
    pthread_mutex_lock(&method_tables_lock);
    size_t i = 0;
    while (i < method_table_count && method_tables[i].plain != plain)
        i++;
    if (i == method_table_count && i < MAX_METHOD_TABLES) {
        method_tables[i].plain = plain;
        method_tables[i].hooked = *plain;
        method_tables[i].hooked.xSync = hooked_sync;
        method_table_count++;
    }
    if (i < method_table_count)
        methods = &method_tables[i].hooked;
    pthread_mutex_unlock(&method_tables_lock);
    return methods;
}

static int hooked_vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
    (void)vfs;
    int result = plain_vfs->xOpen((sqlite3_vfs *)plain_vfs, name, file, flags, ret_flags);
    if (result == SQLITE_OK && file->pMethods != NULL)
        file->pMethods = hooked_methods(file->pMethods);
    return result;
}

void aoticache_index_syscall_hooks_install(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    if (plain_vfs != NULL || vfs == NULL || vfs->iVersion < 3 || vfs->xSetSystemCall == NULL)
        return;
    plain_vfs = vfs;
    replace_system_calls(vfs);
    hooked_vfs = *vfs;
    hooked_vfs.pNext = NULL;
    hooked_vfs.zName = AOTICACHE_INDEX_HOOKED_VFS;
    hooked_vfs.xOpen = hooked_vfs_open;
    sqlite3_vfs_register(&hooked_vfs, 1);
}
