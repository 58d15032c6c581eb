/*
 * eager/package_runner: from an artifact that was a package's model to a runner: library, container, weights that are
 * mapped.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "eager/artifact_runner.h"
#include "eager/package_source.h"

/* ---- weights that have a file of their own ---- */

/* What a runner holds: the artifact's files, and its weights as they are mapped. */
struct holding {
    aoticache_artifact *artifact;
    void *weights; /* NULL where there are none */
    size_t bytes;
};

static void holding_release(void *owner)
{
    struct holding *holding = owner;
    if (holding->weights != NULL)
        munmap(holding->weights, holding->bytes);
    aoticache_artifact_unref(holding->artifact);
    free(holding);
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), suffix_length = strlen(suffix);
    return length > suffix_length && strcmp(name + length - suffix_length, suffix) == 0;
}

/* The weights among the side files; *ret_fd stays -1 where there are none. */
static aoticache_status open_weights(const aoticache_artifact *artifact, int *ret_fd, aoticache_error *ret_error)
{
    const char *directory = aoticache_artifact_directory(artifact);
    if (directory == NULL)
        return AOTICACHE_OK;
    cleanup_dir DIR *folder = opendir(directory);
    if (folder == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", directory);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (!ends_with(entry->d_name, "_weights.blob"))
            continue;
        if (*ret_fd >= 0)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "the package has two files of weights for one library, %s one of them",
                                       entry->d_name);
        *ret_fd = openat(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (*ret_fd < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot open %s/%s", directory, entry->d_name);
    }
    return AOTICACHE_OK;
}

/*
 * Private and writable: pages are the object's own, shared among processes, until a model writes to a buffer of its own
 * (a running mean); the object never changes.
 */
static aoticache_status map_weights(struct holding *holding, aoticache_error *ret_error)
{
    struct stat found;
    cleanup_fd int fd = -1;
    aoticache_status status = open_weights(holding->artifact, &fd, ret_error);
    if (status != AOTICACHE_OK || fd < 0)
        return status;
    if (fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read the weights of a package");
    if (found.st_size == 0)
        return AOTICACHE_OK;
    void *weights = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (weights == MAP_FAILED)
        return aoticache_error_set_errno(ret_error, errno, "cannot map the weights of a package, %lld bytes",
                                         (long long)found.st_size);
    holding->weights = weights;
    holding->bytes = (size_t)found.st_size;
    return AOTICACHE_OK;
}

/* ---- the runner ---- */

static aoticache_status create_runner(aoticache_artifact *artifact, const char *name, const char *device,
                                      const aoticache_package_options *options, aoticache_runner **ret_runner,
                                      aoticache_error *ret_error)
{
    aoticache_library *library;
    aoticache_runner_options runner_options = AOTICACHE_RUNNER_OPTIONS_INIT;
    aoticache_status status = aoticache_artifact_load_library(artifact, name, false, &library, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    runner_options.device = options->device != NULL ? options->device : device;
    runner_options.num_models = options->num_models;
    runner_options.directory = aoticache_artifact_directory(artifact);
    runner_options.proxy_executor = options->proxy_executor;
    status = aoticache_runner_create(library, &runner_options, ret_runner, ret_error);
    aoticache_library_unref(library);
    return status;
}

/* The runner refers to the artifact from then on; on failure it is the caller's alone again with the runner's end. */
static aoticache_status give_holding(aoticache_runner *runner, aoticache_artifact *artifact,
                                     aoticache_error *ret_error)
{
    struct holding *holding = calloc(1, sizeof *holding);
    if (holding == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a package's runner");
    holding->artifact = aoticache_artifact_ref(artifact);
    aoticache_status status = map_weights(holding, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_attach(runner, holding, holding_release, ret_error);
    if (status != AOTICACHE_OK) {
        holding_release(holding);
        return status;
    }
    if (holding->weights != NULL)
        status = aoticache_runner_update_constants_from_blob(runner, holding->weights, holding->bytes, ret_error);
    return status;
}

aoticache_status aoticache_package_make_runner(aoticache_artifact *artifact, const char *name, const char *device,
                                               const aoticache_package_options *options,
                                               aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    aoticache_runner *runner = NULL;
    aoticache_status status = create_runner(artifact, name, device, options, &runner, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = give_holding(runner, artifact, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_runner_unref(runner);
        return status;
    }
    aoticache_artifact_close_files(artifact);
    *ret_runner = runner;
    return AOTICACHE_OK;
}

/* ---- options ---- */

aoticache_status aoticache_package_read_options(const aoticache_package_options *options,
                                                aoticache_package_options *ret_options, aoticache_error *ret_error)
{
    *ret_options = (aoticache_package_options)AOTICACHE_PACKAGE_OPTIONS_INIT;
    if (options == NULL)
        return AOTICACHE_OK;
    if (options->size < sizeof options->size || options->size > sizeof *options)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_package_options.size is %zu, this library's is %zu; use "
                                   "AOTICACHE_PACKAGE_OPTIONS_INIT",
                                   options->size, sizeof *options);
    memcpy(ret_options, options, options->size);
    return AOTICACHE_OK;
}
