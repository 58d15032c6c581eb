/*
 * libraries: files for benchmarks of moving a cache: pieces of the program's own code, each made unique, so that they compress
 * as libraries do. Included by one file of a program, which defines fail().
 */
#ifndef AOTICACHE_TESTS_BENCH_LIBRARIES_H
#define AOTICACHE_TESTS_BENCH_LIBRARIES_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[512]; /* the directory of the benchmark */
static char *code;     /* this program's code */
static size_t code_size;
static size_t entries = 256, bytes = 360000; /* the number of files, and the size of each */

/* Prints what went wrong, and ends the program. */
static void fail(const char *what, const char *detail);

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind, (void)walk;
    return remove(path);
}

static void remove_directory(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", root, name);
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static size_t setting(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && strtoul(text, NULL, 10) > 0 ? strtoul(text, NULL, 10) : otherwise;
}

static void read_code(void)
{
    FILE *file = fopen("/proc/self/exe", "rbe");
    code = malloc(64u << 20);
    if (file == NULL || code == NULL || (code_size = fread(code, 1, 64u << 20, file)) < 2 * bytes)
        fail("/proc/self/exe", "cannot read it, or it is too small");
    fclose(file);
}

static void write_library(const char *path, size_t number)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t offset = number * 4096 % (code_size - bytes);
    if (fd < 0 || write(fd, code + offset, bytes) != (ssize_t)bytes ||
        pwrite(fd, &number, sizeof number, (off_t)(bytes / 2)) < 0)
        fail(path, strerror(errno));
    close(fd);
}

#endif
