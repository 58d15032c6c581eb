/*
 * loader/elf/names: which functions a library needs and offers, read from its tables, and their meaning to the loader.
 */
#include "loader/elf/elf_internal.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of names ---- */

bool aoticache_name_list_add(aoticache_name_list *list, const char *name)
{
    if (!AOTICACHE_ARRAY_RESERVE(list->names, list->capacity, list->count + 1))
        return false;
    list->names[list->count++] = name;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void aoticache_name_list_sort(aoticache_name_list *list)
{
    if (list->count > 1)
        qsort(list->names, list->count, sizeof *list->names, by_name);
}

void aoticache_name_list_free(aoticache_name_list *list)
{
    free(list->names);
    *list = (aoticache_name_list){0};
}

void aoticache_name_list_format(const aoticache_name_list *list, char ret_text[AOTICACHE_NAME_LIST_TEXT_BYTES])
{
    const size_t room_for_more = sizeof " and 18446744073709551615 more";
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < list->count; i++) {
        size_t needed = strlen(list->names[i]) + (i > 0 ? 2 : 0);
        size_t reserved = i + 1 < list->count ? room_for_more : 1;
        if (used + needed + reserved > AOTICACHE_NAME_LIST_TEXT_BYTES) {
            snprintf(ret_text + used, AOTICACHE_NAME_LIST_TEXT_BYTES - used, "%s%zu more", i > 0 ? " and " : "",
                     list->count - i);
            return;
        }
        used += (size_t)snprintf(ret_text + used, AOTICACHE_NAME_LIST_TEXT_BYTES - used, "%s%s", i > 0 ? ", " : "",
                                 list->names[i]);
    }
}

/*
 * Compares the first character first, which nearly always decides without a call: this runs for every symbol of a
 * library.
 */
static inline bool starts_with(const char *text, const char *prefix)
{
    return text[0] == prefix[0] && strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Returns whether the name is the library's, with or without a version: "libx.so", "libx.so.2.6". */
static bool is_library(const char *name, const char *library)
{
    size_t length = strlen(library);
    return strncmp(name, library, length) == 0 && (name[length] == '\0' || name[length] == '.');
}

aoticache_needed_kind aoticache_needed_classify(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash != NULL ? slash + 1 : name;
    if (is_library(base, "libtorch_cpu.so"))
        return AOTICACHE_NEEDED_TORCH_CPU;
    if (starts_with(base, "libtorch_cuda") || is_library(base, "libc10_cuda.so"))
        return AOTICACHE_NEEDED_TORCH_CUDA;
    if (is_library(base, "libtorch.so") || is_library(base, "libc10.so"))
        return AOTICACHE_NEEDED_TORCH;
    return AOTICACHE_NEEDED_SYSTEM;
}

/*
 * Returns whether PyTorch provides the symbol: one of its C functions, one of SLEEF's functions that libtorch_cpu.so
 * also exports, or a C++ name in PyTorch's namespaces, which old libraries call (_ZN2at..., _ZTIN3c10...).
 */
static bool is_torch_symbol(const char *name)
{
    if (starts_with(name, "aoti_torch_") || starts_with(name, "torch_") || starts_with(name, "Sleef_"))
        return true;
    if (!starts_with(name, "_Z"))
        return false;
    name += 2;
    name += strspn(name, "TVISNKR");
    return starts_with(name, "2at") || starts_with(name, "3c10") || starts_with(name, "5torch");
}

bool aoticache_name_is_proxy_executor(const char *function)
{
    return starts_with(function, "aoti_torch_proxy_executor_");
}

static bool add_symbol(const aoticache_elf *elf, const Elf64_Sym *symbol, aoticache_library_names *names)
{
    const char *name = aoticache_elf_string(elf, symbol->st_name);
    unsigned bind = ELF64_ST_BIND(symbol->st_info);
    if (symbol->st_shndx != SHN_UNDEF)
        return bind == STB_LOCAL || !starts_with(name, "AOTInductor") || aoticache_name_list_add(&names->exports, name);
    if (bind != STB_GLOBAL) /* a weak symbol may stay undefined */
        return true;
    names->finds_itself |=
        starts_with(name, "dladdr") || starts_with(name, "dl_iterate_phdr") || starts_with(name, "dlinfo");
    if (!is_torch_symbol(name))
        return true;
    names->proxy_executor |= aoticache_name_is_proxy_executor(name);
    names->cuda |= starts_with(name, "aoti_torch_cuda_");
    return aoticache_name_list_add(&names->symbols, name);
}

static bool add_names(const aoticache_elf *elf, aoticache_library_names *names)
{
    for (size_t i = 0; i < elf->dynamic_count; i++) {
        if (elf->dynamic[i].d_tag != DT_NEEDED)
            continue;
        const char *name = aoticache_elf_string(elf, elf->dynamic[i].d_un.d_val);
        names->cuda |= aoticache_needed_classify(name) == AOTICACHE_NEEDED_TORCH_CUDA;
        if (!aoticache_name_list_add(&names->needed, name))
            return false;
    }
    for (size_t i = 1; i < elf->symbol_count; i++)
        if (!add_symbol(elf, &elf->symbols[i], names))
            return false;
    return true;
}

aoticache_status aoticache_library_names_read(const aoticache_elf *elf, aoticache_library_names *ret_names,
                                              aoticache_error *ret_error)
{
    aoticache_library_names names = {0};
    if (!add_names(elf, &names)) {
        aoticache_library_names_free(&names);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu symbol names",
                                   elf->symbol_count);
    }
    aoticache_name_list_sort(&names.symbols);
    aoticache_name_list_sort(&names.exports);
    *ret_names = names;
    return AOTICACHE_OK;
}

void aoticache_library_names_free(aoticache_library_names *names)
{
    aoticache_name_list_free(&names->needed);
    aoticache_name_list_free(&names->symbols);
    aoticache_name_list_free(&names->exports);
}
