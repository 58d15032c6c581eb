/*
 * base/listing: directories that are read name by name.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_LISTING_H
#define AOTICACHE_BASE_LISTING_H

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* fdopendir() that closes the descriptor if it fails. NULL, with errno as it is, where the descriptor is below 0. */
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

/* The next name that is not "." or "..". NULL at the end, with errno 0, and where it cannot be read, with another. */
static inline const char *aoticache_listing_next(DIR *listing)
{
    const struct dirent *item;
    do
        errno = 0;
    while ((item = readdir(listing)) != NULL && (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0));
    return item != NULL ? item->d_name : NULL;
}

#endif
