/*
 * loader/library: loads a kernel library from a descriptor. Everything that can be known from the file is checked
 * before the dynamic linker runs any of its code; a check's message names everything that is wrong at the same time.
 */
#include "base/arguments.h"
#include "loader/loader_internal.h"

#include "base/cleanup.h"
#include "base/options.h"
#include "base/process/fork_guard.h"
#include "base/process/openmp_fork.h"
#include "loader/copy/copy_internal.h"
#include "loader/cuda/cuda_internal.h"
#include "loader/dlopen_fd.h"
#include "loader/eager_face.h"
#include "loader/elf/elf_internal.h"
#include "loader/loader.h"
#include "loader/torch.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A library that is being loaded. */
typedef struct loading {
    const char *name;
    int fd;
    int image;                      /* its bytes in memory, as hashed, or -1 */
    const aoticache_digest *digest; /* NULL: the file is trusted as it is */
    bool private_copy;
    bool has_executor; /* the host has a proxy executor for it */
    aoticache_elf elf; /* of the image, if there is one */
    aoticache_library_names names;
    const aoticache_torch_provider *provider;
} loading;

/* Messages begin with the library's name; a long path must not push the rest out. */
#define NAMED(name) (int)strnlen(name, 200), name

/* Puts the library's name before a message that an inner function wrote. */
static aoticache_status name_the_library(aoticache_status status, const char *name, aoticache_error *ret_error)
{
    if (status != AOTICACHE_OK && ret_error != NULL) {
        aoticache_error inner = *ret_error;
        aoticache_error_set(ret_error, status, "library %.*s: %s", NAMED(name), inner.message);
    }
    return status;
}

/* ---- checks on the file ---- */

static aoticache_status check_machine(const loading *load, aoticache_error *ret_error)
{
    if (load->elf.native && load->elf.machine == aoticache_elf_host_machine())
        return AOTICACHE_OK;
    char theirs[AOTICACHE_ELF_MACHINE_BYTES], ours[AOTICACHE_ELF_MACHINE_BYTES];
    aoticache_elf_machine_format(load->elf.machine, load->elf.elf_class, load->elf.byte_order, theirs);
    aoticache_elf_machine_format(aoticache_elf_host_machine(), ELFCLASS64, aoticache_elf_host_byte_order(), ours);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "it is for %s, but this process is %s", theirs, ours);
}

static bool exports(const loading *load, const char *function)
{
    for (size_t i = 0; i < load->names.exports.count; i++)
        if (strcmp(load->names.exports.names[i], function) == 0)
            return true;
    return false;
}

/* Checks that the library exports the functions that every host needs. The others are optional. */
static aoticache_status check_interface(const loading *load, aoticache_error *ret_error)
{
    static const char *const required[] = {
        "AOTInductorModelContainerDelete",
        "AOTInductorModelContainerRun",
        "AOTInductorModelContainerGetNumInputs",
        "AOTInductorModelContainerGetNumOutputs",
    };
    aoticache_name_list missing = {0};
    bool complete = true;
    if (!exports(load, "AOTInductorModelContainerCreateWithDevice") &&
        !exports(load, "AOTInductorModelContainerCreate"))
        complete &= aoticache_name_list_add(&missing, "AOTInductorModelContainerCreateWithDevice");
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        if (!exports(load, required[i]))
            complete &= aoticache_name_list_add(&missing, required[i]);
    aoticache_status status = AOTICACHE_OK;
    if (!complete) {
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for function names");
    } else if (missing.count > 0) {
        char names[AOTICACHE_NAME_LIST_TEXT_BYTES];
        aoticache_name_list_format(&missing, names);
        status = aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                     "not an AOTInductor kernel library: it does not export %s", names);
    }
    aoticache_name_list_free(&missing);
    return status;
}

/*
 * Writes " (operators convolution, randint_low_out)" for those of the functions that stand for one operator each, with
 * ATen's names and overloads joined by an underscore, as the functions have them. Writes "" if there are none, or if
 * they do not fit.
 */
static void format_operators(const aoticache_name_list *missing, char *ret_text, size_t size)
{
    static const char *const prefixes[] = {"aoti_torch_cpu_", "aoti_torch_cuda_", "aoti_torch_xpu_", "aoti_torch_mps_"};
    aoticache_name_list operators = {0};
    char names[AOTICACHE_NAME_LIST_TEXT_BYTES];
    ret_text[0] = '\0';
    for (size_t i = 0; i < missing->count; i++)
        for (size_t p = 0; p < sizeof prefixes / sizeof prefixes[0]; p++)
            if (strncmp(missing->names[i], prefixes[p], strlen(prefixes[p])) == 0)
                aoticache_name_list_add(&operators, missing->names[i] + strlen(prefixes[p]));
    aoticache_name_list_format(&operators, names);
    if (operators.count > 0 && strlen(names) + sizeof " (operators )" <= size)
        snprintf(ret_text, size, " (operator%s %s)", operators.count == 1 ? "" : "s", names);
    aoticache_name_list_free(&operators);
}

static aoticache_status fail_missing_functions(const loading *load, const aoticache_name_list *missing,
                                               aoticache_error *ret_error)
{
    bool shim = load->provider->torch.kind == AOTICACHE_TORCH_SHIM;
    char names[AOTICACHE_NAME_LIST_TEXT_BYTES], operators[256], proxied[256], proxy[400] = "";
    aoticache_name_list_format(missing, names);
    format_operators(missing, operators, sizeof operators);
    if (load->names.proxy_executor) {
        aoticache_proxy_operators_format(&load->elf, proxied, sizeof proxied);
        snprintf(proxy, sizeof proxy, " (it calls operators through PyTorch's proxy executor%s%s)",
                 proxied[0] != '\0' ? "; it names " : "", proxied);
    }
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "it needs %zu function%s that %s not have: %s%s%s; %s",
                               missing->count, missing->count == 1 ? "" : "s",
                               shim ? "the shim does" : "the PyTorch in this process does", names, operators, proxy,
                               shim ? "run it in a process with PyTorch" : "compile it with this version of PyTorch");
}

/*
 * Returns whether the provider has the function. The host provides the proxy executor for the shim's function: if it
 * does not, the shim counts as lacking that function.
 */
static bool provides(const loading *load, const char *function)
{
    if (load->provider->torch.kind == AOTICACHE_TORCH_SHIM && !load->has_executor &&
        aoticache_name_is_proxy_executor(function))
        return false;
    return dlsym(load->provider->handle, function) != NULL;
}

/* Looks up every function that the library needs by the provider's own handle, as the dynamic linker will. */
static aoticache_status check_functions(const loading *load, aoticache_error *ret_error)
{
    bool shim = load->provider->torch.kind == AOTICACHE_TORCH_SHIM;
    if (!shim && load->names.cuda) /* some are in libraries other than libtorch_cpu.so: left to the dynamic linker */
        return AOTICACHE_OK;
    aoticache_name_list missing = {0};
    bool complete = true;
    for (size_t i = 0; i < load->names.symbols.count; i++)
        if (!provides(load, load->names.symbols.names[i]))
            complete &= aoticache_name_list_add(&missing, load->names.symbols.names[i]);
    aoticache_status status = AOTICACHE_OK;
    if (!complete)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for function names");
    else if (missing.count > 0)
        status = fail_missing_functions(load, &missing, ret_error);
    aoticache_name_list_free(&missing);
    return status;
}

static aoticache_status check_cuda(const loading *load, aoticache_error *ret_error)
{
    if (load->provider->torch.kind == AOTICACHE_TORCH_LIBTORCH)
        return AOTICACHE_OK;
    for (size_t i = 0; i < load->names.needed.count; i++)
        if (aoticache_needed_classify(load->names.needed.names[i]) == AOTICACHE_NEEDED_TORCH_CUDA)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "it needs %.100s, but this process has no PyTorch; run it in a process with "
                                       "PyTorch",
                                       load->names.needed.names[i]);
    return AOTICACHE_OK;
}

/* Returns whether a path is the directory or is below it. */
static bool is_below(const char *path, size_t length, const char *directory)
{
    const size_t bytes = strlen(directory);
    return length >= bytes && strncmp(path, directory, bytes) == 0 && (length == bytes || path[bytes] == '/');
}

/*
 * Returns whether a path means the same in every process: it is absolute, and not below /proc or /dev/fd, through which
 * the working directory and the descriptors of the process are reached. $ORIGIN alone is the directory of the library
 * itself.
 */
static bool is_one_place(const char *path, size_t length)
{
    static const char *const origins[] = {"$ORIGIN", "${ORIGIN}"};
    for (size_t i = 0; i < 2; i++)
        if (length == strlen(origins[i]) && strncmp(path, origins[i], length) == 0)
            return true;
    while (length > 1 && path[0] == '/' && path[1] == '/')
        path++, length--;
    return length > 0 && path[0] == '/' && !is_below(path, length, "/proc") && !is_below(path, length, "/dev/fd");
}

/*
 * Returns the first directory of a list separated by ':' whose path does not mean the same everywhere; NULL if there is
 * none.
 */
static const char *find_other_place(const char *directories, size_t *ret_length)
{
    for (const char *directory = directories;; directory += *ret_length + 1) {
        *ret_length = strcspn(directory, ":");
        if (!is_one_place(directory, *ret_length))
            return directory;
        if (directory[*ret_length] == '\0')
            return NULL;
    }
}

/*
 * Refuses a library that would load code from the current directory: search directories and names of libraries that are
 * relative to the working directory.
 */
static aoticache_status check_places(const loading *load, aoticache_error *ret_error)
{
    for (size_t i = 0; i < load->elf.dynamic_count; i++) {
        const Elf64_Dyn *entry = &load->elf.dynamic[i];
        const char *text = aoticache_elf_string(&load->elf, entry->d_un.d_val), *place = NULL;
        size_t length = 0;
        if (entry->d_tag == DT_RUNPATH || entry->d_tag == DT_RPATH)
            place = find_other_place(text, &length);
        else if ((entry->d_tag == DT_NEEDED || entry->d_tag == DT_AUXILIARY || entry->d_tag == DT_FILTER) &&
                 strchr(text, '/') != NULL && !is_one_place(text, length = strlen(text)))
            place = text;
        if (place != NULL)
            return aoticache_error_set(
                ret_error, AOTICACHE_UNSUPPORTED,
                "it would load libraries from '%.*s', which depends on the process and its working "
                "directory; link it with absolute paths",
                (int)(length < 200 ? length : 200), place);
    }
    return AOTICACHE_OK;
}

/* Reads the library's names, and checks that it exports what a host needs and which libraries it would load. */
static aoticache_status check_names(loading *load, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_library_names_read(&load->elf, &load->names, ret_error);
    if (status == AOTICACHE_OK)
        status = check_places(load, ret_error);
    return status == AOTICACHE_OK ? check_interface(load, ret_error) : status;
}

/* Checks that a file is for the other architecture that the caller names. */
static aoticache_status check_other_machine(const loading *load, const char *arch, aoticache_error *ret_error)
{
    char theirs[AOTICACHE_ELF_MACHINE_BYTES];
    aoticache_elf_machine_format(load->elf.machine, load->elf.elf_class, load->elf.byte_order, theirs);
    bool known = strcmp(arch, "x86_64") == 0 || strcmp(arch, "aarch64") == 0;
    if (!known || strcmp(theirs, arch) == 0)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "it is for %s, but a library for %.40s is required",
                               theirs, arch);
}

aoticache_status aoticache_library_check_fd(int fd, const char *other_arch, aoticache_error *ret_error)
{
    loading load = {.name = ""};
    aoticache_status status = aoticache_elf_open(fd, &load.elf, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = other_arch == NULL ? check_machine(&load, ret_error) : check_other_machine(&load, other_arch, ret_error);
    if (status == AOTICACHE_OK && load.elf.native)
        status = check_names(&load, ret_error);
    aoticache_library_names_free(&load.names);
    aoticache_elf_close(&load.elf);
    return status;
}

static aoticache_status check_file(loading *load, aoticache_error *ret_error)
{
    aoticache_status status = check_machine(load, ret_error);
    if (status == AOTICACHE_OK)
        status = check_names(load, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_torch_provider_get(&load->provider, ret_error);
    if (status == AOTICACHE_OK)
        status = check_cuda(load, ret_error);
    if (status == AOTICACHE_OK)
        status = check_functions(load, ret_error);
    return status;
}

/* Returns whether only this user and root can change the file. They could change the process as well. */
static bool is_own_file(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && (found.st_uid == geteuid() || found.st_uid == 0) &&
           (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Returns whether somebody else may change the file after it was verified. */
static bool may_change(const loading *load)
{
    return load->digest != NULL && !is_own_file(load->fd);
}

static aoticache_status read_file(loading *load, int fd, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_elf_open(fd, &load->elf, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_fork_guard_enter();
    status = check_file(load, ret_error);
    aoticache_fork_guard_leave();
    return status;
}

static void forget_file(loading *load)
{
    aoticache_library_names_free(&load->names);
    aoticache_elf_close(&load->elf);
    load->names = (aoticache_library_names){0};
}

/* Returns whether the library, when it opens its own file, will find the original file rather than the copy. */
static bool finds_original(const loading *load)
{
    return load->names.finds_itself && !may_change(load) && aoticache_fd_opens_again(load->fd);
}

/*
 * If a copy will be loaded, makes the image for it, hashes it, and reads all tables again from the image: those read
 * from the file earlier may differ from the hashed bytes.
 */
static aoticache_status make_image(loading *load, aoticache_error *ret_error)
{
    bool is_copied = load->provider->torch.kind != AOTICACHE_TORCH_LIBTORCH || load->private_copy || may_change(load);
    if (load->image >= 0 || load->digest == NULL || !is_copied)
        return AOTICACHE_OK;
    bool whole = load->names.finds_itself && !finds_original(load);
    aoticache_status status = aoticache_sealed_copy_read(&load->elf, whole, load->digest, &load->image, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    forget_file(load);
    return read_file(load, load->image, ret_error);
}

/* ---- loading ---- */

static aoticache_status resolve_functions(aoticache_library *library, aoticache_error *ret_error)
{
#define RESOLVE(function, parameters)                                   \
    {                                                                   \
        void *address = dlsym(library->handle, #function);              \
        memcpy(&library->functions.function, &address, sizeof address); \
    }
    AOTICACHE_ABI_BASE_LIST(RESOLVE)
    AOTICACHE_ABI_NEWER_LIST(RESOLVE)
#undef RESOLVE
    void *plain_kernel = dlsym(library->handle, "aoticache_plain_kernel_v3");
    memcpy(&library->plain_kernel, &plain_kernel, sizeof plain_kernel);
    /* A damaged hash table may not find a symbol that the symbol table has. */
    const aoticache_library_functions *found = &library->functions;
    if ((found->AOTInductorModelContainerCreateWithDevice == NULL && found->AOTInductorModelContainerCreate == NULL) ||
        found->AOTInductorModelContainerDelete == NULL || found->AOTInductorModelContainerRun == NULL ||
        found->AOTInductorModelContainerGetNumInputs == NULL || found->AOTInductorModelContainerGetNumOutputs == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED,
                                   "the dynamic linker does not find the functions of its symbol table");
    return AOTICACHE_OK;
}

static void note_address(aoticache_library *library, const aoticache_elf *elf)
{
    uint64_t first = 0;
    struct link_map *map = NULL;
    library->info.bytes = aoticache_elf_address_bytes(elf, &first);
    if (dlinfo(library->handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL)
        library->address = (uintptr_t)map->l_addr + (uintptr_t)first;
}

/*
 * Returns whether a library has large weights inside and does matrix multiplications, most likely with these weights.
 */
static bool has_large_products(const aoticache_library *library, const aoticache_library_names *names)
{
    static const char *const products[] = {"aoti_torch_cpu_mm_out", "aoti_torch_cpu_addmm_out",
                                           "aoti_torch_cpu_bmm_out", "aoti_torch_cpu__mkl_linear",
                                           "aoti_torch_cpu__linear_pointwise"};
    enum { LEAST_BYTES = 4 << 20 };
    for (size_t i = 0; library->info.bytes >= LEAST_BYTES && i < names->symbols.count; i++)
        for (size_t p = 0; p < sizeof products / sizeof products[0]; p++)
            if (strcmp(names->symbols.names[i], products[p]) == 0)
                return true;
    return false;
}

static aoticache_library *library_new(const char *name)
{
    size_t length = strlen(name);
    aoticache_library *library = calloc(1, sizeof *library + length + 1);
    if (library == NULL)
        return NULL;
    atomic_init(&library->references, 1);
    library->self_fd = -1;
    memcpy(library->name, name, length + 1);
    library->info.name = library->name;
    return library;
}

/*
 * Replaces the descriptor of the copy that the library was loaded from by the verified file. The library's path for
 * itself ends with the number of that descriptor. So it maps the file's own pages, which all processes share; the copy
 * has only the segments. PyTorch's libraries open their file when a container is created (self_mmap,
 * torch/csrc/inductor/aoti_runtime/model_base.h), which is later than this. A static constructor runs earlier and would
 * find the copy.
 */
static aoticache_status show_original(int original, int copy, aoticache_error *ret_error)
{
    int result;
    do
        result = dup3(original, copy, O_CLOEXEC);
    while (result < 0 && (errno == EINTR || errno == EBUSY));
    return result >= 0 ? AOTICACHE_OK
                       : aoticache_error_set_errno(ret_error, errno, "cannot duplicate descriptor %d", original);
}

/*
 * Returns a descriptor to load from, for the caller to close; -1 if load->fd will do because the library does not look
 * for its file afterwards. *ret_hidden: the descriptor is of a copy, and the library needs to find the original
 * instead.
 */
static aoticache_status prepare_file(loading *load, int *ret_fd, bool *ret_hidden, aoticache_error *ret_error)
{
    cleanup_fd int fd = -1;
    bool again = finds_original(load);
    aoticache_sealed_copy_options options = {.always = load->private_copy || may_change(load),
                                             .whole = load->names.finds_itself && !again,
                                             .image = load->image};
    aoticache_status status =
        aoticache_sealed_copy_make(&load->elf, &load->names, load->provider, &options, &fd, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (fd >= 0 && fd == load->image)
        load->image = -1;
    *ret_hidden = fd >= 0 && again;
    /* A library that opens itself must find its file as long as it is loaded, even after the caller closes fd. */
    if (fd < 0 && load->names.finds_itself && (fd = fcntl(load->fd, F_DUPFD_CLOEXEC, 3)) < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot duplicate descriptor %d", load->fd);
    *ret_fd = steal_fd(&fd);
    return AOTICACHE_OK;
}

/*
 * Loads the C++ runtime before the library that needs it. If the library brought the runtime into the process, the
 * runtime would look for its own symbols in that library first, and find some (functions made from templates). The
 * runtime has unique symbols and so is never unloaded; the library would then never be unloaded either. A library with
 * a RUNPATH is left alone: it may want another runtime than the system's.
 */
static void load_runtime_first(const loading *load, void *ret_handles[2])
{
    static const char *const runtimes[2] = {"libstdc++.so.6", "libc++.so.1"};
    for (size_t i = 0; i < load->elf.dynamic_count; i++)
        if (load->elf.dynamic[i].d_tag == DT_RUNPATH || load->elf.dynamic[i].d_tag == DT_RPATH)
            return;
    for (size_t i = 0; i < load->names.needed.count; i++)
        for (size_t r = 0; r < 2; r++)
            if (ret_handles[r] == NULL && strcmp(load->names.needed.names[i], runtimes[r]) == 0)
                ret_handles[r] = dlopen(runtimes[r], RTLD_LAZY | RTLD_LOCAL);
}

/*
 * Keeps OpenMP runtimes loaded. Such a runtime keeps its threads for the next parallel region; if it were unloaded,
 * they would wake up in unmapped memory. If PyTorch is in the process, it decides what a fork does to the runtime.
 */
static void pin_thread_runtimes(const loading *load)
{
    static const char *const runtimes[] = {"libgomp.so", "libomp.so", "libiomp5.so"};
    for (size_t i = 0; i < load->names.needed.count; i++)
        for (size_t r = 0; r < sizeof runtimes / sizeof runtimes[0]; r++)
            if (strncmp(load->names.needed.names[i], runtimes[r], strlen(runtimes[r])) == 0) {
                void *handle = dlopen(load->names.needed.names[i], RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
                if (handle == NULL)
                    continue;
                if (load->provider->torch.kind == AOTICACHE_TORCH_SHIM)
                    aoticache_openmp_fork_prepare(handle);
                dlclose(handle);
            }
}

/*
 * Loads the file. A runtime that cannot be loaded first is not an error here: the dynamic linker reports it when it
 * loads the library.
 */
static aoticache_status load_file(const loading *load, int fd, void **ret_handle, aoticache_error *ret_error)
{
    void *runtimes[2] = {NULL, NULL};
    load_runtime_first(load, runtimes);
    aoticache_status status = aoticache_dlopen_fd(fd, ret_handle, ret_error);
    for (size_t i = 0; i < 2; i++)
        if (runtimes[i] != NULL)
            dlclose(runtimes[i]);
    if (status == AOTICACHE_OK)
        pin_thread_runtimes(load);
    return status;
}

static aoticache_status load_checked(loading *load, aoticache_library **ret_library, aoticache_error *ret_error)
{
    cleanup_fd int fd = -1;
    bool original_hidden = false;
    aoticache_status status = prepare_file(load, &fd, &original_hidden, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_library *library = library_new(load->name);
    if (library == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a library");
    library->torch = &load->provider->torch;
    library->info.torch_kind = load->provider->torch.kind;
    library->info.needs_proxy_executor = load->names.proxy_executor;
    status = aoticache_cuda_facts_read(load->fd, &load->names.needed, &library->cuda, ret_error);
    if (status == AOTICACHE_OK)
        status = load_file(load, fd >= 0 ? fd : load->fd, &library->handle, ret_error);
    if (status == AOTICACHE_OK && original_hidden)
        status = show_original(load->fd, fd, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_library_unref(library);
        return status;
    }
    if (load->names.finds_itself)
        library->self_fd = steal_fd(&fd);
    note_address(library, &load->elf);
    if (has_large_products(library, &load->names))
        library->prepare_products = load->provider->prepare_products;
    status = resolve_functions(library, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_library_unref(library);
        return status;
    }
    *ret_library = library;
    return AOTICACHE_OK;
}

static aoticache_status load_library(loading *load, aoticache_library **ret_library, aoticache_error *ret_error)
{
    if (load->name == NULL || ret_library == NULL)
        return AOTICACHE_REFUSE_NULL_OF("aoticache_library_load_fd", ret_error, load->name, ret_library);
    if (load->fd < 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "library %.200s: cannot read it: fd is %d", load->name,
                                   load->fd);
    aoticache_status status = read_file(load, load->image >= 0 ? load->image : load->fd, ret_error);
    if (status == AOTICACHE_OK) /* may copy and hash the whole file: outside the fork guard */
        status = make_image(load, ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_fork_guard_enter();
        status = load_checked(load, ret_library, ret_error);
        aoticache_fork_guard_leave();
    }
    forget_file(load);
    return name_the_library(status, load->name, ret_error);
}

aoticache_status aoticache_library_load_fd(int fd, const char *name, const aoticache_load_options *options,
                                           aoticache_library **ret_library, aoticache_error *ret_error)
{
    aoticache_load_options chosen;
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_load_options, AOTICACHE_LOAD_OPTIONS_INIT, options, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    loading load = {.name = name,
                    .fd = fd,
                    .image = chosen.copy,
                    .digest = chosen.digest,
                    .private_copy = chosen.private_copy,
                    .has_executor = chosen.proxy_executor != NULL,
                    .elf = {.fd = -1}};
    status = load_library(&load, ret_library, ret_error);
    cleanup_fd_release(&load.image);
    return status;
}

aoticache_library *aoticache_library_ref(aoticache_library *library)
{
    atomic_fetch_add_explicit(&library->references, 1, memory_order_relaxed);
    return library;
}

void aoticache_library_unref(aoticache_library *library)
{
    if (library == NULL || atomic_fetch_sub_explicit(&library->references, 1, memory_order_acq_rel) != 1)
        return;
    int saved = errno;
    if (library->handle != NULL) {
        aoticache_fork_guard_enter();
        aoticache_thread_exit_run(library->address, library->address + library->info.bytes);
        aoticache_own_mappings_release(library->address, library->address + library->info.bytes);
        dlclose(library->handle);
        aoticache_fork_guard_leave();
    }
    aoticache_cuda_facts_free(library->cuda);
    if (library->self_fd >= 0)
        close(library->self_fd);
    free(library);
    errno = saved;
}

const aoticache_library_info *aoticache_library_get_info(const aoticache_library *library)
{
    return &library->info;
}

bool aoticache_library_exports(const aoticache_library *library, const char *function)
{
    if (function == NULL || strncmp(function, "AOTInductor", strlen("AOTInductor")) != 0)
        return false;
    aoticache_fork_guard_enter();
    void *address = dlsym(library->handle, function);
    aoticache_fork_guard_leave();
    return address != NULL;
}

/*
 * Asks the provider why a call failed. PyTorch's libraries report only which call failed, and in which line. Other
 * messages are left alone: the provider's reason belongs to the thread's last failure, which may be an older one.
 */
static const char *find_reason(const char *message)
{
    const aoticache_torch_provider *provider;
    if (strstr(message, "API call failed") == NULL || aoticache_torch_provider_get(&provider, NULL) != AOTICACHE_OK ||
        provider->last_exception == NULL)
        return NULL;
    const char *reason = provider->last_exception();
    return reason != NULL && reason[0] != '\0' ? reason : NULL;
}

/* Sets the message, reason first: that is what users read, and the text of the call may be long. */
static void set_failure(aoticache_error *error, aoticache_status status, const char *name, const char *message)
{
    const char *reason = find_reason(message);
    if (reason != NULL)
        aoticache_error_set(error, status, "library %.*s: %.400s (%s)", NAMED(name), reason, message);
    else
        aoticache_error_set(error, status, "library %.*s: %s", NAMED(name), message);
}

aoticache_status aoticache_library_failure(const aoticache_library *library, aoticache_status status,
                                           const char *function, AOTIRuntimeError code, aoticache_error *ret_error)
{
    if (ret_error == NULL)
        return status;
    /*
     * In PyTorch's libraries the message is thread-local and valid until the next call on this thread. So it is copied
     * immediately.
     */
    const char *message = NULL;
    if (library->functions.AOTInductorGetLastError != NULL &&
        library->functions.AOTInductorGetLastError(&message) == 0 && message != NULL && message[0] != '\0')
        set_failure(ret_error, status, library->name, message);
    else
        aoticache_error_set(ret_error, status, "library %.*s: %s returned %d without a message", NAMED(library->name),
                            function, (int)code);
    for (char *at = ret_error->message; (at = strchr(at, '\n')) != NULL;)
        *at = ' ';
    return status;
}
