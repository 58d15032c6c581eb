/*
 * Opens a cache with default options, and stores a kernel in it or finds it there.
 *
 * Arguments: an operator, then optionally a directory (without it the options are NULL: everything is as configured).
 * Prints "stored" or "found", and the directory; on failure prints the reason and exits with 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/cache.h"

static _Noreturn void fail(const char *why)
{
    fprintf(stderr, "open_cache: %s\n", why);
    exit(1);
}

static aoticache_status store(aoticache_cache *cache, const aoticache_request *request, aoticache_error *ret_error)
{
    char path[] = "open_cache.XXXXXX"; /* in the current directory */
    aoticache_file file = {.name = "kernel.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, path, sizeof path) != (ssize_t)sizeof path || close(fd) != 0)
        fail("cannot write a file here");
    aoticache_status status = aoticache_cache_put(cache, request, &product, NULL, ret_error);
    unlink(path);
    return status;
}

int main(int argc, char **argv)
{
    aoticache_error error = {.message = ""};
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_cache *cache = NULL;
    aoticache_request *request = NULL;
    aoticache_artifact *artifact = NULL;
    if (argc < 2)
        fail("OPERATOR [DIRECTORY]");
    options.directory = argc > 2 ? argv[2] : NULL;
    if (aoticache_cache_open(argc > 2 ? &options : NULL, &cache, &error) != AOTICACHE_OK ||
        aoticache_request_create(argv[1], AOTICACHE_DEVICE_CPU, &request, &error) != AOTICACHE_OK)
        fail(error.message);
    const bool is_there = aoticache_cache_lookup(cache, request, NULL, &artifact, &error) == AOTICACHE_OK;
    if (!is_there && store(cache, request, &error) != AOTICACHE_OK)
        fail(error.message);
    printf("%s %s\n", is_there ? "found" : "stored", aoticache_cache_directory(cache));
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    aoticache_cache_close(cache);
    return 0;
}
