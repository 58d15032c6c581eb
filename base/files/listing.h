/*
 * base/files/listing: reads the names of a directory one by one.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_LISTING_H
#define AOTICACHE_BASE_LISTING_H

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Does fdopendir(), and closes the descriptor if that fails. If the descriptor is negative it returns NULL and leaves errno
 * as it is. */
static inline DIR *aoticache_listing_open(int fd)
{
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (listing == NULL && fd >= 0) {
        const int saved = errno;
        close(fd);
        errno = saved;
    }
    return listing;
}

/* Returns the next name that is not "." or "..". Returns NULL with errno 0 at the end, and NULL with another errno if
 * reading fails. */
static inline const char *aoticache_listing_next(DIR *listing)
{
    const struct dirent *item;
    do
        errno = 0;
    while ((item = readdir(listing)) != NULL && (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0));
    return item != NULL ? item->d_name : NULL;
}

#endif
