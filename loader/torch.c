/*
 * loader/torch: decides, once per process, where the aoti_torch_* functions come from, and binds the ones that the host
 * uses.
 *
 * Without a lock, the first thread publishes its provider with one compare-and-swap, the others drop theirs. So a child
 * after a fork never finds a lock taken. A failure is not remembered: the shim may be installed later.
 */
#include "base/arguments.h"
#include "loader/torch.h"

#include "base/cleanup.h"
#include "base/process/fork_guard.h"
#include "base/process/home.h"
#include "loader/elf/elf_internal.h"
#include "loader/loader.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

static _Atomic(aoticache_torch_provider *) chosen;

static void provider_free(aoticache_torch_provider *provider)
{
    if (provider == NULL)
        return;
    if (provider->handle != NULL)
        dlclose(provider->handle);
    free(provider->path);
    free(provider);
}

/* Stands in for the function that libtorch before PyTorch 2.9 lacks; no C interface there depends on its result. */
static uint64_t abi_version_unknown(void)
{
    return 0;
}

static void bind_optional_functions(aoticache_torch_provider *provider)
{
    void *address = dlsym(provider->handle, "torch_exception_get_what_without_backtrace");
    memcpy(&provider->last_exception, &address, sizeof address);
    address = dlsym(provider->handle, "aoti_torch_get_layout");
    memcpy(&provider->get_layout, &address, sizeof address);
    address = dlsym(provider->handle, "aoti_torch_copy_");
    memcpy(&provider->copy, &address, sizeof address);
    address = dlsym(provider->handle, "torch_aoticache_prepare_products");
    memcpy(&provider->prepare_products, &address, sizeof address);
}

static aoticache_status bind_functions(aoticache_torch_provider *provider, aoticache_error *ret_error)
{
    aoticache_name_list missing = {0};
    aoticache_torch *torch = &provider->torch;
    bool complete = true;
    bind_optional_functions(provider);
#define BIND(result, name, parameters)                            \
    {                                                             \
        void *address = dlsym(provider->handle, #name);           \
        memcpy(&torch->name, &address, sizeof address);           \
        if (address == NULL)                                      \
            complete &= aoticache_name_list_add(&missing, #name); \
    }
    AOTICACHE_ABI_TORCH_LIST(BIND)
#undef BIND
    size_t tolerated = torch->aoti_torch_abi_version == NULL ? 1 : 0;
    if (torch->kind == AOTICACHE_TORCH_LIBTORCH && torch->aoti_torch_abi_version == NULL)
        torch->aoti_torch_abi_version = abi_version_unknown;
    else
        tolerated = 0;
    aoticache_status status = AOTICACHE_OK;
    if (!complete || missing.count > tolerated) {
        char names[AOTICACHE_NAME_LIST_TEXT_BYTES];
        aoticache_name_list_format(&missing, names);
        status = aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "%.200s lacks %zu functions: %s", torch->path,
                                     missing.count, names);
    }
    aoticache_name_list_free(&missing);
    return status;
}

/* ---- libraries that the process has already ---- */

typedef struct loaded_file {
    const char *prefix; /* prefix of its base name */
    bool found;
    char *path; /* NULL if out of memory */
} loaded_file;

static int note_file(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    loaded_file *file = user;
    const char *slash = info->dlpi_name != NULL ? strrchr(info->dlpi_name, '/') : NULL;
    if (slash == NULL || strncmp(slash + 1, file->prefix, strlen(file->prefix)) != 0)
        return 0;
    file->found = true;
    file->path = strdup(info->dlpi_name);
    return 1;
}

/*
 * Looks for a loaded library. (dlopen() with RTLD_NOLOAD would search the whole library path for one that is not
 * loaded.)
 */
static loaded_file find_loaded(const char *prefix)
{
    loaded_file file = {.prefix = prefix};
    dl_iterate_phdr(note_file, &file);
    return file;
}

/* Examines the first file, which is the program: a dynamically linked one names its dynamic linker. */
static int note_dynamic_linker(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    bool *found = user;
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        *found |= info->dlpi_phdr[i].p_type == PT_INTERP;
    return 1;
}

/*
 * Refuses programs linked with -static: a library that dlopen() loads there gets a C library of its own, and crashes.
 */
static aoticache_status check_program_is_dynamic(aoticache_error *ret_error)
{
    bool found = false;
    dl_iterate_phdr(note_dynamic_linker, &found);
    if (found)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "this program is linked statically, and such a program cannot load libraries; "
                               "link it without -static (libaoticache.a can still be used)");
}

/* ---- libtorch ---- */

/*
 * Finds the name by which other libraries need libtorch: PyTorch's wheels use the plain one, distributions add a
 * version.
 */
static aoticache_status find_needed_name(aoticache_torch_provider *provider, aoticache_error *ret_error)
{
    const char *name = "libtorch_cpu.so";
    void *again = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (again != NULL)
        dlclose(again);
    if (again != provider->handle)
        name = strrchr(provider->path, '/') + 1;
    if (strlen(name) >= sizeof provider->needed)
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "the name of %s has more than %zu characters",
                                   provider->path, sizeof provider->needed - 1);
    memcpy(provider->needed, name, strlen(name) + 1);
    return AOTICACHE_OK;
}

static aoticache_status open_libtorch(aoticache_torch_provider *provider, aoticache_error *ret_error)
{
    if (provider->path == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a path");
    provider->torch.kind = AOTICACHE_TORCH_LIBTORCH;
    provider->torch.path = provider->path;
    /* The library is loaded already. This counts one more user, and changes nothing for the others. */
    provider->handle = dlopen(provider->path, RTLD_LAZY | RTLD_NOLOAD);
    if (provider->handle == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "%s was unloaded from this process",
                                   provider->path);
    aoticache_status status = find_needed_name(provider, ret_error);
    return status == AOTICACHE_OK ? bind_functions(provider, ret_error) : status;
}

/* ---- the shim ---- */

static void *dlopen_shim(aoticache_error *ret_error)
{
    /*
     * Another copy of this code in the process may have brought its shim: libraries would get that one by name, so the
     * host must use it as well.
     */
    loaded_file other = find_loaded(strrchr(AOTICACHE_TORCH_SHIM_FILE, '/') + 1);
    void *handle = other.path != NULL ? dlopen(other.path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    free(other.path);
    if (handle != NULL)
        return handle;
    char path[PATH_MAX];
    aoticache_error detail;
    if (aoticache_home_find(AOTICACHE_TORCH_SHIM_FILE, path, &detail) != AOTICACHE_OK) {
        aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "%s", detail.message);
        return NULL;
    }
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *message = dlerror();
        aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "the dynamic linker cannot load the shim: %s",
                            message != NULL ? message : path);
    }
    return handle;
}

static aoticache_status open_shim(aoticache_torch_provider *provider, aoticache_error *ret_error)
{
    provider->torch.kind = AOTICACHE_TORCH_SHIM;
    memcpy(provider->needed, AOTICACHE_TORCH_SHIM_SONAME, sizeof AOTICACHE_TORCH_SHIM_SONAME);
    provider->handle = dlopen_shim(ret_error);
    if (provider->handle == NULL)
        return AOTICACHE_LOAD_FAILED;
    struct link_map *map = NULL;
    if (dlinfo(provider->handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL)
        provider->path = strdup(map->l_name);
    if (provider->path == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a path");
    provider->torch.path = provider->path;
    return bind_functions(provider, ret_error);
}

static aoticache_status choose_provider(aoticache_torch_provider **ret_provider, aoticache_error *ret_error)
{
    aoticache_torch_provider *provider = calloc(1, sizeof *provider);
    if (provider == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a provider");
    loaded_file libtorch = find_loaded("libtorch_cpu.so");
    provider->path = libtorch.path;
    aoticache_status status = libtorch.found ? open_libtorch(provider, ret_error) : open_shim(provider, ret_error);
    if (status != AOTICACHE_OK) {
        provider_free(provider);
        return status;
    }
    aoticache_torch_provider *first = NULL;
    if (!atomic_compare_exchange_strong(&chosen, &first, provider)) {
        provider_free(provider);
        provider = first;
    }
    *ret_provider = provider;
    return AOTICACHE_OK;
}

aoticache_status aoticache_torch_provider_get(const aoticache_torch_provider **ret_provider, aoticache_error *ret_error)
{
    aoticache_torch_provider *provider = atomic_load_explicit(&chosen, memory_order_acquire);
    if (provider == NULL) {
        aoticache_fork_guard_enter();
        aoticache_status status = check_program_is_dynamic(ret_error);
        if (status == AOTICACHE_OK)
            status = choose_provider(&provider, ret_error);
        aoticache_fork_guard_leave();
        if (status != AOTICACHE_OK)
            return status;
    }
    *ret_provider = provider;
    return AOTICACHE_OK;
}

aoticache_status aoticache_torch_get(const aoticache_torch **ret_torch, aoticache_error *ret_error)
{
    const aoticache_torch_provider *provider;
    if (ret_torch == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_torch);
    aoticache_status status = aoticache_torch_provider_get(&provider, ret_error);
    if (status == AOTICACHE_OK)
        *ret_torch = &provider->torch;
    return status;
}

bool aoticache_torch_is_libtorch(void)
{
    const aoticache_torch_provider *provider = atomic_load_explicit(&chosen, memory_order_acquire);
    if (provider != NULL)
        return provider->torch.kind == AOTICACHE_TORCH_LIBTORCH;
    loaded_file libtorch = find_loaded("libtorch_cpu.so");
    free(libtorch.path);
    return libtorch.found;
}
