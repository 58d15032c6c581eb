/*
 * eager/package/source: the package file, its digest, and the request that stands for a model of it.
 */
#include "eager/package/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

aoticache_status aoticache_package_source_open(const char *path, aoticache_package_source *ret_source,
                                               aoticache_error *ret_error)
{
    aoticache_package_source source = {.path = path};
    aoticache_digest digest;
    const uint64_t begun = aoticache_monotonic_ns();
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "the package %s does not exist", path);
    if (fd < 0 || fstat(fd, &source.found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open the package %s", path);
    if (!S_ISREG(source.found.st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the package %s is not a regular file", path);
    aoticache_status status = aoticache_digest_of_fd(fd, &digest, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_digest_to_hex(&digest, source.digest);
    source.digest_ns = aoticache_monotonic_ns() - begun;
    source.fd = steal_fd(&fd);
    *ret_source = source;
    return AOTICACHE_OK;
}

void aoticache_package_source_close(aoticache_package_source *source)
{
    aoticache_package_close(source->package);
    source->package = NULL;
    cleanup_fd_release(&source->fd);
    source->fd = -1;
}

aoticache_status aoticache_package_source_read(aoticache_package_source *source, aoticache_error *ret_error)
{
    if (source->package != NULL)
        return AOTICACHE_OK;
    return aoticache_package_open_fd(source->fd, source->path, &source->package, ret_error);
}

aoticache_status aoticache_package_source_check(const aoticache_package_source *source, aoticache_error *ret_error)
{
    struct stat now;
    const struct stat *then = &source->found;
    if (fstat(source->fd, &now) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read the package %s", source->path);
    if (now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == then->st_mtim.tv_nsec)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_IO, "the package %s was changed while it was read; try again",
                               source->path);
}

aoticache_status aoticache_package_request_create(const char *digest, const char *model, int32_t device_type,
                                                  const char *machine, aoticache_request **ret_request,
                                                  aoticache_error *ret_error)
{
    aoticache_request *request = NULL;
    const aoticache_device device = {.type = device_type, .index = -1};
    aoticache_status status = aoticache_request_create(AOTICACHE_PACKAGE_OP, device, &request, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_add_string(request, NULL, digest, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_add_string(request, NULL, model, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_set_environment(request, "framework", "pt2", ret_error);
    if (status == AOTICACHE_OK && machine[0] != '\0')
        status = aoticache_request_set_environment(request, "arch", machine, ret_error);
    if (status == AOTICACHE_OK)
        *ret_request = request;
    else
        aoticache_request_free(request);
    return status;
}

aoticache_status aoticache_package_request_of(const aoticache_package_source *source,
                                              const aoticache_package_model *model, aoticache_request **ret_request,
                                              aoticache_error *ret_error)
{
    aoticache_device device;
    if (aoticache_device_parse(model->device, &device) != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s: the model %s is for the device %.64s, which is not known", source->path, model->name,
                                   model->device);
    return aoticache_package_request_create(source->digest, model->name, device.type, model->machine, ret_request,
                                            ret_error);
}

aoticache_status aoticache_package_report_begin(const aoticache_request *request, aoticache_package_report *report,
                                                aoticache_error *ret_error)
{
    char device[AOTICACHE_DEVICE_TEXT_BYTES];
    const aoticache_argument *model = aoticache_request_argument(request, 1);
    aoticache_device_format(aoticache_request_device(request), device);
    snprintf(report->device, sizeof report->device, "%s", device);
    snprintf(report->model, sizeof report->model, "%s", model != NULL ? model->value.string_value : "");
    return aoticache_request_key(request, &report->key, ret_error);
}
