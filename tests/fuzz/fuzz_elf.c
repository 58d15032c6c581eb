/*
 * tests/fuzz/fuzz_elf: the reader of ELF files on any bytes: description, traits, and the search for symbols. Every
 * returned name is read to its end, so that one that extends beyond its table is noticed.
 */
#include "loader/elf/traits.h"
#include "loader/loader.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static size_t total;

static void read_names(const char *const *names, size_t count, bool sorted)
{
    for (size_t i = 0; i < count; i++) {
        total += strlen(names[i]);
        if (sorted && i > 0 && strcmp(names[i - 1], names[i]) > 0)
            abort();
    }
}

static void describe(int fd)
{
    aoticache_library_description *description = NULL;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_library_describe(fd, &description, &error);
    if (status != AOTICACHE_OK) {
        if (description != NULL || error.message[0] == '\0')
            abort();
        return;
    }
    read_names(description->needed, description->needed_count, false);
    read_names(description->symbols, description->symbol_count, true);
    read_names(description->missing, description->missing_count, true);
    read_names(description->exports, description->export_count, true);
    total += strlen(description->machine);
    if (description->missing_count > description->symbol_count)
        abort();
    bool *found = calloc(description->symbol_count + 1, sizeof *found);
    if (found != NULL)
        aoticache_library_find_symbols(fd, description->symbols, description->symbol_count, found, NULL);
    free(found);
    aoticache_library_description_free(description);
}

static void read_traits(int fd)
{
    aoticache_library_traits *traits = NULL;
    if (aoticache_library_traits_read(fd, &traits, NULL) != AOTICACHE_OK)
        return;
    total += strlen(traits->soname) + strlen(traits->compiler) + strlen(traits->proxy_operators);
    aoticache_library_traits_free(traits);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    describe(fd);
    read_traits(fd);
    close(fd);
    return 0;
}
