/*
 * tests/fuzz/fuzz_transfer: any bytes as an archive, imported into a cache that is kept from input to input. Whatever
 * is imported, the store stays valid, and nothing appears next to the cache. That is checked if something was imported.
 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cache/transfer/transfer.h"
#include "cache/verify/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define MOST_WITHOUT_CHANGE 256 /* inputs without an import after which the store is checked nevertheless */

static char root[256], directory[300];
static unsigned without_change;

static void require(bool holds)
{
    if (!holds)
        abort();
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind, (void)walk;
    return remove(path);
}

static void remove_root(void)
{
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_root(void)
{
    const char *parent = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(root, sizeof root, "%s/aoticache-fuzz-XXXXXX", parent);
    require(mkdtemp(root) != NULL);
    snprintf(directory, sizeof directory, "%s/cache", root);
    atexit(remove_root);
}

static void check_line(void *user, aoticache_log_level level, const char *line)
{
    (void)user, (void)level;
    require(line[0] != '\0' && strchr(line, '\n') == NULL && strchr(line, '\033') == NULL);
}

static void check_root(void)
{
    DIR *listing = opendir(root);
    size_t names = 0;
    require(listing != NULL);
    for (struct dirent *item; (item = readdir(listing)) != NULL;)
        names += strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0;
    closedir(listing);
    require(names == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    aoticache_error error = {.message = ""};
    aoticache_transfer_report report;
    static aoticache_cache *cache;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_transfer_options transfer = AOTICACHE_TRANSFER_OPTIONS_INIT;
    if (root[0] == '\0')
        make_root();
    int fd = memfd_create("archive", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    options.directory = directory;
    options.logger.log = check_line;
    transfer.with_marks = true;
    transfer.allow_unsigned = true;
    transfer.max_bytes = 64u << 20;
    transfer.dry_run = size > 0 && bytes[size - 1] % 2 != 0;
    require(cache != NULL || aoticache_cache_open(&options, &cache, NULL) == AOTICACHE_OK);
    aoticache_status status = aoticache_cache_import(cache, fd, &transfer, &report, &error);
    require(status == AOTICACHE_OK || (error.message[0] != '\0' && strchr(error.message, '\n') == NULL));
    require(status != AOTICACHE_INVALID && status != AOTICACHE_LOCKED);
    close(fd);
    if (report.objects + report.entries == 0 && ++without_change % MOST_WITHOUT_CHANGE != 0)
        return 0;
    aoticache_verify_report found;
    require(aoticache_cache_verify(cache, NULL, NULL, NULL, NULL, &found, NULL) == AOTICACHE_OK);
    require(found.damaged + found.missing + found.foreign + found.unindexed == 0);
    check_root();
    aoticache_cache_close(steal_ptr(&cache)); /* the next one opens it like another process */
    return 0;
}
