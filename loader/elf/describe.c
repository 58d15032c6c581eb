/*
 * loader/elf/describe: the public description of a library: the functions that it needs and offers, and those that the
 * shim lacks, according to the shim's tables: describing loads nothing.
 */
#include "base/arguments.h"
#include "loader/elf/elf_internal.h"

#include "base/cleanup.h"
#include "base/process/home.h"
#include "loader/loader.h"
#include "loader/torch.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct description_storage {
    aoticache_library_description description; /* first, so that the caller's pointer points to the storage too */
    aoticache_elf elf;                         /* its string table has all the names */
    aoticache_library_names names;
    aoticache_name_list missing;
    char machine[AOTICACHE_ELF_MACHINE_BYTES];
} description_storage;

/* Lists the names that a shared library defines, sorted. */
static aoticache_status defined_names(const aoticache_elf *elf, aoticache_name_list *list, aoticache_error *ret_error)
{
    for (size_t i = 1; i < elf->symbol_count; i++)
        if (elf->symbols[i].st_shndx != SHN_UNDEF &&
            !aoticache_name_list_add(list, aoticache_elf_string(elf, elf->symbols[i].st_name)))
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu symbol names",
                                       elf->symbol_count);
    aoticache_name_list_sort(list);
    return AOTICACHE_OK;
}

/* Keeps the wanted symbols that are not defined, and those that the shim has only for a host with a proxy executor.
Both lists are sorted, so one pass over each is enough. */
static aoticache_status copy_missing(description_storage *storage, const aoticache_name_list *defined,
                                     aoticache_error *ret_error)
{
    const aoticache_name_list *wanted = &storage->names.symbols;
    size_t at = 0;
    for (size_t i = 0; i < wanted->count; i++) {
        while (at < defined->count && strcmp(defined->names[at], wanted->names[i]) < 0)
            at++;
        if (at < defined->count && strcmp(defined->names[at], wanted->names[i]) == 0 &&
            !aoticache_name_is_proxy_executor(wanted->names[i]))
            continue;
        if (!aoticache_name_list_add(&storage->missing, wanted->names[i]))
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu symbol names",
                                       wanted->count);
    }
    return AOTICACHE_OK;
}

/* Finds what the shim lacks. If there is no shim, everything is missing. */
static aoticache_status find_missing(description_storage *storage, aoticache_error *ret_error)
{
    aoticache_name_list defined = {0};
    aoticache_elf shim = {.fd = -1};
    char path[PATH_MAX];
    cleanup_fd int fd = -1;
    aoticache_status status = AOTICACHE_OK;
    if (aoticache_home_find(AOTICACHE_TORCH_SHIM_FILE, path, NULL) == AOTICACHE_OK)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && aoticache_elf_open(fd, &shim, NULL) == AOTICACHE_OK)
        status = defined_names(&shim, &defined, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_missing(storage, &defined, ret_error);
    aoticache_name_list_free(&defined);
    aoticache_elf_close(&shim);
    return status;
}

static void fill_description(description_storage *storage)
{
    aoticache_elf_machine_format(storage->elf.machine, storage->elf.elf_class, storage->elf.byte_order,
                                 storage->machine);
    storage->description = (aoticache_library_description){
        .needed_count = storage->names.needed.count,
        .needed = storage->names.needed.names,
        .symbol_count = storage->names.symbols.count,
        .symbols = storage->names.symbols.names,
        .missing_count = storage->missing.count,
        .missing = storage->missing.names,
        .export_count = storage->names.exports.count,
        .exports = storage->names.exports.names,
        .proxy_executor = storage->names.proxy_executor,
        .cuda = storage->names.cuda,
        .machine = storage->machine,
    };
}

aoticache_status aoticache_library_describe(int fd, aoticache_library_description **ret_description,
                                            aoticache_error *ret_error)
{
    if (ret_description == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_description);
    description_storage *storage = calloc(1, sizeof *storage);
    if (storage == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a description");
    aoticache_status status = aoticache_elf_open(fd, &storage->elf, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_library_names_read(&storage->elf, &storage->names, ret_error);
    if (status == AOTICACHE_OK)
        status = find_missing(storage, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_library_description_free(&storage->description);
        return status;
    }
    fill_description(storage);
    *ret_description = &storage->description;
    return AOTICACHE_OK;
}

void aoticache_library_description_free(aoticache_library_description *description)
{
    if (description == NULL)
        return;
    int saved = errno;
    description_storage *storage = (description_storage *)description;
    aoticache_name_list_free(&storage->missing);
    aoticache_library_names_free(&storage->names);
    aoticache_elf_close(&storage->elf);
    free(storage);
    errno = saved;
}
