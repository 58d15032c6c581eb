/*
 * Fills a cache with entries without compiling, as fast as puts go, for tests of operations on many entries.
 *
 * Arguments: the directory, the number of entries, the bytes of each library, then compile times in milliseconds (entry
 * i has the one at i modulo their number; 1 if there are none). Entry i belongs to operator fill::opI, and was last
 * used after the entries before it. All libraries differ. FILL_IN_MANIFEST=1: libraries are stored in their manifests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/cache.h"

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "fill_cache: %s: %s\n", what, why);
    exit(1);
}

static void write_library(const char *path, unsigned long number, size_t bytes)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        fail(path, "cannot be written");
    int written = fprintf(file, "library %lu\n", number);
    for (size_t i = written > 0 ? (size_t)written : 0; i < bytes; i++)
        fputc((int)('a' + (i + number) % 26), file);
    if (fclose(file) != 0)
        fail(path, "cannot be written");
}

static void put(aoticache_cache *cache, const char *library, unsigned long number, uint64_t compile_ms)
{
    char op[64];
    aoticache_error error = {.message = ""};
    aoticache_request *request = NULL;
    aoticache_file file = {.name = "kernel.so", .path = library};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.compile_ns = compile_ms * 1000000u;
    product.in_manifest = getenv("FILL_IN_MANIFEST") != NULL;
    snprintf(op, sizeof op, "fill::op%lu", number);
    if (aoticache_request_create(op, AOTICACHE_DEVICE_CPU, &request, &error) != AOTICACHE_OK ||
        aoticache_cache_put(cache, request, &product, NULL, &error) != AOTICACHE_OK)
        fail(op, error.message);
    aoticache_request_free(request);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        fail("arguments", "DIRECTORY COUNT BYTES [MILLISECONDS]...");
    unsigned long count = strtoul(argv[2], NULL, 10);
    size_t bytes = strtoul(argv[3], NULL, 10);
    const char *parent = getenv("TMPDIR");
    char library[4096];
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = NULL;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = argv[1];
    options.max_bytes = options.max_entries = UINT64_MAX;
    snprintf(library, sizeof library, "%s/aoticache-fill-XXXXXX", parent != NULL ? parent : "/tmp");
    int fd = mkstemp(library);
    if (fd < 0)
        fail(library, "cannot be made");
    close(fd);
    if (aoticache_cache_open(&options, &cache, &error) != AOTICACHE_OK)
        fail(argv[1], error.message);
    for (unsigned long i = 0; i < count; i++) {
        write_library(library, i, bytes);
        put(cache, library, i, argc > 4 ? strtoull(argv[4 + i % (unsigned)(argc - 4)], NULL, 10) : 1);
    }
    aoticache_cache_close(cache);
    unlink(library);
    return 0;
}
