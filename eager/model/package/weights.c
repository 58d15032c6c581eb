/*
 * eager/model/package/weights: maps the weights of a package that are in a separate file, and passes them to a runner.
 *
 * PyTorch's libraries copy the blob that they get (load_constants, torch/csrc/inductor/aoti_runtime/model_base.h): each process
 * would have all weights in its own memory. So the constants are then replaced by tensors that refer to the mapping, which the
 * library uses directly (user-managed), and the pages of its copy are released. The copy is still needed, because only its
 * tensors have the sizes and strides of constants.
 */
#include "eager/model/package/package_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/names.h"
#include "loader/runner/constants.h"
#include "loader/tensor.h"

/* Smaller constants stay copies: their tensors would cost more than the saved pages. */
enum { SHARED_MIN_BYTES = 64 * 1024 };

/* ---- the file ---- */

static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), suffix_length = strlen(suffix);
    return length > suffix_length && strcmp(name + length - suffix_length, suffix) == 0;
}

/* Opens the weights in the directory of side files; *ret_fd stays -1 if there are none. */
static aoticache_status open_weights(const aoticache_artifact *artifact, int *ret_fd, aoticache_error *ret_error)
{
    const char *directory = aoticache_artifact_get_info(artifact)->directory;
    if (directory == NULL)
        return AOTICACHE_OK;
    cleanup_dir DIR *subdirectory = opendir(directory);
    if (subdirectory == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", directory);
    for (struct dirent *entry; (entry = readdir(subdirectory)) != NULL;) {
        if (!ends_with(entry->d_name, "_weights.blob"))
            continue;
        if (*ret_fd >= 0)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "the package has two files of weights for one library, one of them is %s",
                                       entry->d_name);
        *ret_fd = openat(dirfd(subdirectory), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (*ret_fd < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot open %s/%s", directory, entry->d_name);
    }
    return AOTICACHE_OK;
}

/*
 * Maps the weights, private and writable. Processes share the pages, which are those of the object, until a model writes to
 * its own buffer (a running mean); the object never changes.
 */
aoticache_status aoticache_package_weights_map(const aoticache_artifact *artifact,
                                               aoticache_package_weights *ret_weights, aoticache_error *ret_error)
{
    struct stat found;
    cleanup_fd int fd = -1;
    *ret_weights = (aoticache_package_weights){.bytes = NULL};
    aoticache_status status = open_weights(artifact, &fd, ret_error);
    if (status != AOTICACHE_OK || fd < 0)
        return status;
    if (fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read the weights of a package");
    if (found.st_size == 0)
        return AOTICACHE_OK;
    void *bytes = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (bytes == MAP_FAILED)
        return aoticache_error_set_errno(ret_error, errno, "cannot map the weights of a package, %lld bytes",
                                         (long long)found.st_size);
    ret_weights->bytes = bytes;
    ret_weights->size = (size_t)found.st_size;
    return AOTICACHE_OK;
}

void aoticache_package_weights_unmap(aoticache_package_weights *weights)
{
    for (size_t i = 0; i < weights->tensor_count; i++)
        aoticache_tensor_free(weights->tensors[i]);
    free(weights->tensors);
    if (weights->bytes != NULL)
        munmap(weights->bytes, weights->size);
    *weights = (aoticache_package_weights){.bytes = NULL};
}

/* ---- constants in the mapping ---- */

/* The offset of a constant in the file: they are consecutive, in the library's order, without those that folding computes. */
struct constant_place {
    const char *fqn; /* borrowed from the library */
    uint64_t offset, bytes;
};

struct sharing {
    aoticache_package_weights *weights;
    struct constant_place *places; /* by name */
    size_t place_count;
    AOTInductorConstantMapEntry *pairs;
    struct own_copy {
        char *data;
        size_t bytes;
    } *copies; /* copies of these constants in the library's own memory */
    size_t count;
};

static int compare_places(const void *a, const void *b)
{
    return strcmp(((const struct constant_place *)a)->fqn, ((const struct constant_place *)b)->fqn);
}

/* Finds all offsets. False: the library does not provide them, or the file has another layout. */
static bool find_places(const aoticache_runner *runner, struct sharing *sharing)
{
    uint64_t offset = 0;
    const size_t count = aoticache_runner_get_info(runner)->num_constants;
    for (size_t i = 0; i < count; i++) {
        aoticache_constant constant;
        if (aoticache_runner_read_constant(runner, i, &constant, NULL) != AOTICACHE_OK || !constant.has_bytes)
            return false;
        if (constant.from_folded)
            continue;
        if (constant.bytes > sharing->weights->size - offset)
            return false;
        sharing->places[sharing->place_count++] =
            (struct constant_place){constant.original_fqn, offset, constant.bytes};
        offset += constant.bytes;
    }
    qsort(sharing->places, sharing->place_count, sizeof *sharing->places, compare_places);
    return offset == sharing->weights->size;
}

/* Finds the only constant of that name; two constants of one name could not be given different values. */
static const struct constant_place *find_place(const struct sharing *sharing, const char *fqn)
{
    const struct constant_place wanted = {.fqn = fqn}, *end = sharing->places + sharing->place_count;
    const struct constant_place *found =
        bsearch(&wanted, sharing->places, sharing->place_count, sizeof *sharing->places, compare_places);
    if (found == NULL || fqn[0] == '\0' || (found > sharing->places && strcmp(found[-1].fqn, fqn) == 0) ||
        (found + 1 < end && strcmp(found[1].fqn, fqn) == 0))
        return NULL;
    return found;
}

/* Returns the bytes from the first element to the last; 0 if there is none, or if it is unknown. */
static uint64_t bytes_of(const aoticache_tensor_view *view)
{
    uint64_t last = 0, reach, bytes;
    for (int64_t d = 0; d < view->ndim; d++)
        if (view->sizes[d] <= 0 || view->strides[d] < 0 ||
            __builtin_mul_overflow((uint64_t)(view->sizes[d] - 1), (uint64_t)view->strides[d], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return 0;
    return __builtin_mul_overflow(last + 1, (uint64_t)aoticache_dtype_size(view->dtype), &bytes) ? 0 : bytes;
}

/*
 * Replaces a constant that the library has copied, if the file has the same bytes at the expected offset. Other
 * constants stay as they are: those packed for a matrix multiplication library, those on another device, and those with
 * an offset of their own.
 */
static bool share_constant(void *user, const char *fqn, AtenTensorHandle tensor)
{
    struct sharing *sharing = user;
    const struct constant_place *place = find_place(sharing, fqn);
    aoticache_tensor_view view;
    AtenTensorHandle shared = NULL;
    if (place == NULL || place->bytes < SHARED_MIN_BYTES ||
        aoticache_tensor_get_view(tensor, &view, NULL) != AOTICACHE_OK || view.device.type != AOTICACHE_DEVICE_TYPE_CPU)
        return true;
    char *bytes = (char *)sharing->weights->bytes + place->offset;
    uint64_t size = bytes_of(&view);
    if (size == 0 || size > place->bytes || view.data == bytes || memcmp(view.data, bytes, size) != 0 ||
        aoticache_tensor_from_blob(bytes, view.dtype, view.ndim, view.sizes, view.strides, &shared, NULL) !=
            AOTICACHE_OK)
        return true;
    sharing->pairs[sharing->count] = (AOTInductorConstantMapEntry){place->fqn, shared};
    sharing->copies[sharing->count] = (struct own_copy){view.data, size};
    sharing->weights->tensors[sharing->count++] = shared;
    sharing->weights->tensor_count = sharing->count;
    return true;
}

/* Releases the memory of whole pages of a constant that is not used any more. The library still owns the addresses. */
static void release_pages(char *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)data + page - 1) & ~(page - 1), end = ((uintptr_t)data + bytes) & ~(page - 1);
    if (first < end)
        madvise(data + (first - (uintptr_t)data), end - first, MADV_DONTNEED);
}

/* Shares constants. Those that cannot be shared stay copies; the runner is correct in both cases. */
static void share_constants(struct sharing *sharing, aoticache_runner *runner)
{
    aoticache_update_options options = AOTICACHE_UPDATE_OPTIONS_INIT;
    options.partial = options.user_managed = options.by_fqn = true;
    if (!find_places(runner, sharing) ||
        aoticache_runner_extract_constants(runner, false, share_constant, sharing, NULL) != AOTICACHE_OK ||
        sharing->count == 0 ||
        aoticache_runner_update_constants(runner, &options, sharing->pairs, sharing->count, NULL) != AOTICACHE_OK)
        return;
    for (size_t i = 0; i < sharing->count; i++)
        release_pages(sharing->copies[i].data, sharing->copies[i].bytes);
}

aoticache_status aoticache_package_weights_give(aoticache_package_weights *weights, aoticache_runner *runner,
                                                aoticache_error *ret_error)
{
    const size_t count = aoticache_runner_get_info(runner)->num_constants;
    aoticache_status status =
        aoticache_runner_update_constants_from_blob(runner, weights->bytes, weights->size, ret_error);
    if (status != AOTICACHE_OK || count == 0)
        return status;
    cleanup_free struct constant_place *places = calloc(count, sizeof *places);
    cleanup_free AOTInductorConstantMapEntry *pairs = calloc(count, sizeof *pairs);
    cleanup_free struct own_copy *copies = calloc(count, sizeof *copies);
    weights->tensors = calloc(count, sizeof *weights->tensors);
    struct sharing sharing = {.weights = weights, .places = places, .pairs = pairs, .copies = copies};
    if (places != NULL && pairs != NULL && copies != NULL && weights->tensors != NULL)
        share_constants(&sharing, runner);
    return AOTICACHE_OK;
}
