/*
 * loader/cuda/backend: checks whether a library can run on a GPU of this machine, before a container is created there;
 * and finds the stream for runs that name none. Containers are created as on every other device.
 */
#include "loader/cuda/cuda_internal.h"

#include "base/cleanup.h"
#include "base/files/listing.h"
#include "base/process/fork_guard.h"
#include "loader/eager_face.h"
#include "loader/loader_internal.h"
#include "loader/loader.h"
#include "loader/runner/backend.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

/* ---- facts in a library's file ---- */

struct aoticache_cuda_facts {
    aoticache_cuda_image_set images;
    int runtime_major;      /* major version of the libcudart that it needs; 0: none, or linked into it */
    char runtime_name[32];  /* "libcudart.so.12" */
    aoticache_error damage; /* status OK: none */
};

/* Reads the version from "libcudart.so.12" or "libcudart.so.11.0"; a name without a number is ignored. */
static void note_runtime(const aoticache_name_list *needed, aoticache_cuda_facts *facts)
{
    static const char runtime[] = "libcudart.so.";
    for (size_t i = 0; i < needed->count; i++) {
        const char *slash = strrchr(needed->names[i], '/');
        const char *name = slash != NULL ? slash + 1 : needed->names[i];
        if (strncmp(name, runtime, strlen(runtime)) != 0 || strlen(name) >= sizeof facts->runtime_name)
            continue;
        long major = strtol(name + strlen(runtime), NULL, 10);
        if (major > 0 && major < 1000) {
            facts->runtime_major = (int)major;
            memcpy(facts->runtime_name, name, strlen(name) + 1);
        }
    }
}

aoticache_status aoticache_cuda_facts_read(int fd, const aoticache_name_list *needed, aoticache_cuda_facts **ret_facts,
                                           aoticache_error *ret_error)
{
    aoticache_cuda_facts facts = {.runtime_major = 0};
    note_runtime(needed, &facts);
    facts.damage.status = aoticache_cuda_image_set_read(fd, &facts.images, &facts.damage);
    if (facts.damage.status == AOTICACHE_OK && facts.images.count == 0 && facts.runtime_major == 0) {
        *ret_facts = NULL;
        return AOTICACHE_OK;
    }
    aoticache_cuda_facts *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for what a library needs of CUDA");
    *kept = facts;
    *ret_facts = kept;
    return AOTICACHE_OK;
}

void aoticache_cuda_facts_free(aoticache_cuda_facts *facts)
{
    free(facts);
}

/* ---- the check ---- */

typedef struct target {
    const char *library;
    int32_t index; /* 0 and more */
    aoticache_cuda_device device;
    const aoticache_cuda *cuda;
} target;

static aoticache_status find_target(const aoticache_library *library, int32_t index, target *ret_target,
                                    aoticache_error *ret_error)
{
    aoticache_error detail = {.status = AOTICACHE_OK};
    *ret_target = (target){.library = library->name, .index = index == -1 ? 0 : index};
    aoticache_status status = aoticache_cuda_get(&ret_target->cuda, &detail);
    if (status == AOTICACHE_OK)
        status = aoticache_cuda_device_read(index, &ret_target->device, &detail);
    if (status == AOTICACHE_OK || status == AOTICACHE_NO_MEMORY)
        return status == AOTICACHE_OK ? status : aoticache_error_set(ret_error, status, "%s", detail.message);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "library %.200s cannot run on cuda:%d: %s",
                               ret_target->library, (int)ret_target->index, detail.message);
}

/*
 * Checks the driver's version. A driver runs code for its own and older major versions of CUDA, whatever the minor
 * version.
 */
static aoticache_status check_driver(const aoticache_cuda_facts *facts, const target *to, aoticache_error *ret_error)
{
    if (facts->runtime_major <= to->cuda->driver_version / 1000)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "library %.200s needs %s, which requires a driver for CUDA %d.0 or later; the "
                               "driver %.200s is for CUDA %d.%d: install a newer one",
                               to->library, facts->runtime_name, facts->runtime_major, to->cuda->driver_path,
                               to->cuda->driver_version / 1000, to->cuda->driver_version % 1000 / 10);
}

/*
 * Checks that the device can run one of the images. file: a file next to the library; NULL: the library itself. Without
 * device code any device is accepted.
 */
static aoticache_status check_images(const aoticache_cuda_image_set *images, const target *to, const char *file,
                                     aoticache_error *ret_error)
{
    char list[256];
    if (images->count == 0 || aoticache_cuda_image_set_runs_on(images, to->device.major, to->device.minor))
        return AOTICACHE_OK;
    aoticache_cuda_image_set_format(images, list, sizeof list);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "library %.200s cannot run on cuda:%d (%.100s, %s): %s%.100s has device code for %s; "
                               "compile it for %s",
                               to->library, (int)to->index, to->device.name, to->device.arch,
                               file != NULL ? "its file " : "it", file != NULL ? file : "", list, to->device.arch);
}

static aoticache_status check_facts(const aoticache_cuda_facts *facts, const target *to, aoticache_error *ret_error)
{
    if (facts == NULL)
        return AOTICACHE_OK;
    if (facts->damage.status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "library %.200s cannot run on cuda:%d: %.600s",
                                   to->library, (int)to->index, facts->damage.message);
    aoticache_status status = check_driver(facts, to, ret_error);
    return status == AOTICACHE_OK ? check_images(&facts->images, to, NULL, ret_error) : status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length > end_length && strcmp(text + length - end_length, end) == 0;
}

static aoticache_status check_file(int directory, const char *name, const target *to, aoticache_error *ret_error)
{
    aoticache_cuda_image_set images = {.count = 0};
    aoticache_error detail = {.status = AOTICACHE_OK};
    cleanup_fd int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "library %.200s: cannot open its file %.200s", to->library,
                                         name);
    aoticache_status status = aoticache_cuda_image_set_read(fd, &images, &detail);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status == AOTICACHE_INVALID ? AOTICACHE_UNSUPPORTED : status,
                                   "library %.200s cannot run on cuda:%d: its file %.200s: %.500s", to->library,
                                   (int)to->index, name, detail.message);
    return check_images(&images, to, name, ret_error);
}

/*
 * Checks the files next to the library: PyTorch writes one .cubin (or .fatbin) for each of its kernels, and the library
 * opens them only when they are needed.
 */
static aoticache_status check_directory(const char *directory, const target *to, aoticache_error *ret_error)
{
    cleanup_dir DIR *subdirectory = opendir(directory);
    if (subdirectory == NULL)
        return aoticache_error_set_errno(ret_error, errno, "library %.200s: cannot open its directory %.400s",
                                         to->library, directory);
    aoticache_status status = AOTICACHE_OK;
    for (const char *name; status == AOTICACHE_OK && (name = aoticache_listing_next(subdirectory)) != NULL;)
        if (ends_with(name, ".cubin") || ends_with(name, ".fatbin"))
            status = check_file(dirfd(subdirectory), name, to, ret_error);
    if (status == AOTICACHE_OK && errno != 0)
        status = aoticache_error_set_errno(ret_error, errno, "library %.200s: cannot read its directory %.400s",
                                           to->library, directory);
    return status;
}

static aoticache_status cuda_check(void *user, const aoticache_library *library, int32_t index, const char *directory,
                                   aoticache_error *ret_error)
{
    (void)user;
    target to;
    aoticache_status status = find_target(library, index, &to, ret_error);
    if (status == AOTICACHE_OK)
        status = check_facts(library->cuda, &to, ret_error);
    if (status == AOTICACHE_OK && directory != NULL)
        status = check_directory(directory, &to, ret_error);
    return status;
}

/* ---- the current stream ---- */

typedef AOTITorchError (*stream_fn)(int32_t device_index, void **ret_stream);

/* The function is set once: PyTorch for CUDA is never unloaded. */
static _Atomic(stream_fn) torch_stream;

static int note_torch_cuda(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    const char *slash = info->dlpi_name != NULL ? strrchr(info->dlpi_name, '/') : NULL;
    if (slash == NULL || strncmp(slash + 1, "libtorch_cuda.so", strlen("libtorch_cuda.so")) != 0)
        return 0;
    *(char **)user = strdup(info->dlpi_name);
    return 1;
}

/*
 * Opens libtorch_cuda.so by its path. By name, dlopen would search the whole library path if it is not in the process.
 */
static stream_fn find_torch_stream(void)
{
    cleanup_free char *path = NULL;
    stream_fn function = NULL;
    aoticache_fork_guard_enter();
    (void)dl_iterate_phdr(note_torch_cuda, &path);
    void *handle = path != NULL ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *address = handle != NULL ? dlsym(handle, "aoti_torch_get_current_cuda_stream") : NULL;
    if (handle != NULL)
        dlclose(handle);
    aoticache_fork_guard_leave();
    memcpy(&function, &address, sizeof address);
    return function;
}

static AOTInductorStreamHandle cuda_current_stream(void *user, int32_t index)
{
    (void)user;
    void *stream = NULL;
    const aoticache_torch *torch;
    stream_fn function = atomic_load_explicit(&torch_stream, memory_order_acquire);
    if (function == NULL) {
        if (aoticache_torch_get(&torch, NULL) != AOTICACHE_OK || torch->kind != AOTICACHE_TORCH_LIBTORCH)
            return NULL;
        function = find_torch_stream();
        atomic_store_explicit(&torch_stream, function, memory_order_release);
    }
    return function != NULL && function(index, &stream) == 0 ? (AOTInductorStreamHandle)stream : NULL;
}

const aoticache_device_backend *aoticache_cuda_backend(void)
{
    static const aoticache_device_backend backend = {
        .size = sizeof backend,
        .name = "cuda",
        .device_type = AOTICACHE_DEVICE_TYPE_CUDA,
        .check = cuda_check,
        .current_stream = cuda_current_stream,
    };
    return &backend;
}
