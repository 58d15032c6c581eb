/*
 * eager/model/package/store: stores a package's model in the cache: unpacks it into the private directory of a compile and
 * stores it from there, once across threads and processes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/entries.h"
#include "cache/request/cpu_detect.h"
#include "eager/model/package/package_internal.h"
#include "loader/eager_face.h"

/* ---- unpacking, as a compile hook ---- */

struct unpacking {
    aoticache_package_source *source;
    const aoticache_package_model *model;
    const aoticache_cpu_features *requirements;
};

/* Returns whether parts of this kind are stored as files. Metadata is kept with the entry; sources are left out. */
static bool is_stored_kind(aoticache_part_kind kind)
{
    return kind == AOTICACHE_PART_LIBRARY || kind == AOTICACHE_PART_WEIGHTS || kind == AOTICACHE_PART_SIDE;
}

static aoticache_status unpack_part(const struct unpacking *unpacking, size_t part, const char *path,
                                    aoticache_error *ret_error)
{
    cleanup_fd int to = aoticache_syscall_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (to < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot create %s", path);
    aoticache_status status =
        aoticache_package_extract_part(unpacking->source->package, unpacking->model, part, to, ret_error);
    if (status == AOTICACHE_OK && close(steal_fd(&to)) != 0)
        status = aoticache_error_set_errno(ret_error, errno, "cannot write %s", path);
    return status;
}

static void free_files(aoticache_file *files, size_t count)
{
    for (size_t i = 0; files != NULL && i < count; i++)
        free((char *)files[i].path);
    free(files);
}

/* Unpacks the parts. ret_files: the library first, in the order of the parts; the caller calls free_files(), also on failure. */
static aoticache_status unpack_parts(const struct unpacking *unpacking, const char *directory,
                                     aoticache_file *ret_files, size_t *ret_count, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < unpacking->model->part_count; i++) {
        const aoticache_package_part *part = &unpacking->model->parts[i];
        char *path = NULL;
        if (!is_stored_kind(part->kind))
            continue;
        if (asprintf(&path, "%s/%s", directory, part->name) < 0)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to unpack a package");
        ret_files[(*ret_count)++] = (aoticache_file){.name = part->name, .path = path};
        status = unpack_part(unpacking, i, path, ret_error);
    }
    return status;
}

static aoticache_status unpack_model(void *user, const aoticache_request *request, const char *directory,
                                     aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    (void)request;
    const struct unpacking *unpacking = user;
    size_t count = 0;
    aoticache_file *files = calloc(unpacking->model->part_count, sizeof *files);
    if (files == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to unpack a package");
    cleanup_free char *metadata = aoticache_package_metadata_format(unpacking->source, unpacking->model);
    aoticache_status status = unpack_parts(unpacking, directory, files, &count, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_package_source_check(unpacking->source, ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_product product = AOTICACHE_PRODUCT_INIT;
        product.files = files;
        product.file_count = count;
        product.requirements = *unpacking->requirements;
        product.producer = "pt2 package";
        product.metadata = metadata;
        status = deliver(deliver_user, &product);
    }
    free_files(files, count);
    return status;
}

/* ---- obtaining ---- */

/* Returns the total size of the files in the directory of side files, including the library. */
static uint64_t directory_bytes(const char *path)
{
    uint64_t bytes = 0;
    cleanup_dir DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        struct stat found;
        if (fstatat(dirfd(directory), entry->d_name, &found, 0) == 0 && S_ISREG(found.st_mode))
            bytes += (uint64_t)found.st_size;
    }
    return bytes;
}

void aoticache_package_report_artifact(const aoticache_artifact *artifact, aoticache_package_report *report)
{
    struct stat found;
    const char *directory = aoticache_artifact_get_info(artifact)->directory;
    report->stored = aoticache_artifact_get_info(artifact)->is_stored;
    report->added = aoticache_artifact_get_info(artifact)->source == AOTICACHE_SOURCE_COMPILED;
    if (directory != NULL)
        report->bytes = directory_bytes(directory);
    else if (fstat(aoticache_artifact_library_fd(artifact), &found) == 0)
        report->bytes = (uint64_t)found.st_size;
}

aoticache_status aoticache_package_obtain(aoticache_cache *cache, aoticache_package_source *source,
                                          const aoticache_package_model *model, const aoticache_request *request,
                                          const aoticache_cpu_features *requirements, aoticache_artifact **ret_artifact,
                                          aoticache_package_report *report, aoticache_error *ret_error)
{
    struct unpacking unpacking = {.source = source, .model = model, .requirements = requirements};
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_status status =
        aoticache_cache_get_or_compile(cache, request, NULL, unpack_model, &unpacking, ret_artifact, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_package_report_artifact(*ret_artifact, report);
    if (report->added)
        report->add_ns += aoticache_monotonic_ns() - begun;
    return AOTICACHE_OK;
}

/* ---- adding ---- */

static bool report_stored(void *user, const aoticache_entry *entry)
{
    aoticache_package_report *report = user;
    report->bytes = entry->bytes;
    report->stored = true;
    return false;
}

/*
 * Finds code that this machine cannot run in the list of entries: lookups never find it.
 */
static aoticache_status find_foreign(aoticache_cache *cache, aoticache_package_report *report,
                                     aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&report->key, hex);
    return aoticache_cache_list(cache, AOTICACHE_PACKAGE_OP, hex, report_stored, report, ret_error);
}

static aoticache_status add_request(aoticache_cache *cache, aoticache_package_source *source,
                                    const aoticache_package_model *model, const aoticache_request *request,
                                    const aoticache_cpu_features *requirements, aoticache_package_report *report,
                                    aoticache_error *ret_error)
{
    aoticache_artifact *artifact = NULL;
    aoticache_status status = aoticache_package_report_begin(request, report, ret_error);
    if (status == AOTICACHE_OK && (!aoticache_package_is_for_this_machine(model) ||
                                   !aoticache_cpu_features_include(aoticache_cpu_features_get(), requirements))) {
        status = find_foreign(cache, report, ret_error);
        if (status == AOTICACHE_OK && report->stored)
            return AOTICACHE_OK;
    }
    if (status == AOTICACHE_OK)
        status = aoticache_package_obtain(cache, source, model, request, requirements, &artifact, report, ret_error);
    aoticache_artifact_unref(artifact);
    if (status == AOTICACHE_OK && !report->stored)
        status = aoticache_error_set(ret_error, aoticache_cache_is_read_only(cache) ? AOTICACHE_DENIED : AOTICACHE_IO,
                                     "%s: model %s cannot be stored in %s%s", source->path, model->name,
                                     aoticache_cache_directory(cache),
                                     aoticache_cache_is_read_only(cache) ? ": it is not writable" : "; see the log");
    return status;
}

static aoticache_status add_model(aoticache_cache *cache, aoticache_package_source *source,
                                  const aoticache_package_model *model, const aoticache_cpu_features *given,
                                  aoticache_package_report *ret_report, aoticache_error *ret_error)
{
    aoticache_cpu_features requirements = {{0}};
    aoticache_request *request = NULL;
    aoticache_package_report report = {.digest_ns = source->digest_ns};
    aoticache_status status = AOTICACHE_OK;
    if (given != NULL)
        requirements = *given;
    else
        status = aoticache_package_requirements(model, &requirements, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_package_request_of(source, model, &request, ret_error);
    if (status == AOTICACHE_OK)
        status = add_request(cache, source, model, request, &requirements, &report, ret_error);
    aoticache_request_free(request);
    if (status == AOTICACHE_OK)
        *ret_report = report;
    return status;
}

static aoticache_status add_models(aoticache_cache *cache, aoticache_package_source *source,
                                   const aoticache_package_model *only, const aoticache_cpu_features *requirements,
                                   aoticache_package_fn callback, void *user, aoticache_error *ret_error)
{
    const aoticache_package_model *model = only != NULL ? only : aoticache_package_model_at(source->package, 0);
    for (size_t i = 1; model != NULL; i++) {
        aoticache_package_report report;
        aoticache_status status = add_model(cache, source, model, requirements, &report, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (callback != NULL && !callback(user, &report))
            break;
        model = only != NULL ? NULL : aoticache_package_model_at(source->package, i);
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_package_add(aoticache_cache *cache, const char *path, const char *model,
                                       const aoticache_cpu_features *requirements, aoticache_package_fn callback,
                                       void *user, aoticache_error *ret_error)
{
    if (cache == NULL || path == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, path);
    aoticache_package_source source;
    const aoticache_package_model *only = NULL;
    aoticache_status status = aoticache_package_source_open(cache, path, &source, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_package_source_read(&source, ret_error);
    if (status == AOTICACHE_OK && model != NULL)
        status = aoticache_package_find_model(source.package, model, &only, ret_error);
    if (status == AOTICACHE_OK)
        status = add_models(cache, &source, only, requirements, callback, user, ret_error);
    aoticache_package_source_close(&source);
    return status;
}
