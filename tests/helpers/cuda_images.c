/*
 * Prints what the loader finds about device code in files, for tests without a GPU.
 *
 *     cuda_images FILE...                            the images of each file, one line each: "sm_90, compute_90"
 *     cuda_images --load LIBRARY DEVICE [DIRECTORY]  loads a library and creates a runner on the device
 *
 * Exit 0; 1 with a message; 3 with a message if the library or the device is refused.
 */
#include "loader/cuda/cuda_internal.h"
#include "loader/runner/create.h"
#include "loader/runner/runner.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int open_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        perror(path);
    return fd;
}

static int print_images(const char *path)
{
    aoticache_cuda_image_set set = {.count = 0};
    aoticache_error error;
    char list[1024];
    int fd = open_file(path);
    if (fd < 0)
        return 1;
    aoticache_status status = aoticache_cuda_image_set_read(fd, &set, &error);
    close(fd);
    if (status != AOTICACHE_OK) {
        fprintf(stderr, "%s: %s\n", path, error.message);
        return 3;
    }
    aoticache_cuda_image_set_format(&set, list, sizeof list);
    puts(list);
    return 0;
}

static int load(const char *path, const char *device, const char *directory)
{
    aoticache_library *library = NULL;
    aoticache_runner *runner = NULL;
    aoticache_error error;
    aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
    int fd = open_file(path);
    if (fd < 0)
        return 1;
    options.device = device;
    options.directory = directory;
    aoticache_status status = aoticache_library_load_fd(fd, path, NULL, &library, &error);
    close(fd);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_create(library, &options, &runner, &error);
    if (status != AOTICACHE_OK)
        fprintf(stderr, "%s: %s\n", aoticache_status_name(status), error.message);
    else
        printf("%zu inputs, %zu outputs\n", aoticache_runner_num_inputs(runner), aoticache_runner_num_outputs(runner));
    aoticache_runner_unref(runner);
    aoticache_library_unref(library);
    return status == AOTICACHE_OK ? 0 : 3;
}

int main(int argc, char **argv)
{
    int status = 0;
    if (argc >= 4 && argc <= 5 && strcmp(argv[1], "--load") == 0)
        return load(argv[2], argv[3], argv[4]);
    for (int i = 1; i < argc; i++) {
        int one = print_images(argv[i]);
        status = one > status ? one : status;
    }
    return status;
}
