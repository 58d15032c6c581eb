/*
 * cache/put: stores the product of a compile: first the objects, then the manifest, and when both are durable the entry. In
 * this order a put may be killed at any time.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/digest.h"
#include "cache/eager_face.h"
#include "cache/cache_internal.h"
#include "cache/store/store_internal.h"
#include "cache/store/lock.h"

/* How often a put that finds the index replaced under it starts again. */

/* Lookups know only from the request whether an entry has a guard, so the product must agree with its request. */
static aoticache_status check_guard(const aoticache_request *request, const aoticache_product *product,
                                    aoticache_error *ret_error)
{
    bool has_guard = product->guard != NULL && product->guard[0] != '\0';
    if (has_guard == aoticache_request_is_dynamic(request))
        return AOTICACHE_OK;
    if (has_guard)
        return aoticache_error_set(
            ret_error, AOTICACHE_INVALID,
            "a product of %s has a guard, but the request is for exact shapes: set its environment " AOTICACHE_SHAPES_NAME
            " to " AOTICACHE_SHAPES_DYNAMIC,
            aoticache_request_op(request));
    return aoticache_error_set(
        ret_error, AOTICACHE_INVALID,
        "a product of %s has no guard, but the request is dynamic (environment " AOTICACHE_SHAPES_NAME
        " = " AOTICACHE_SHAPES_DYNAMIC ")",
        aoticache_request_op(request));
}

/* Resources of one put. release_put() releases them. */
struct put {
    aoticache_cache *cache;
    const aoticache_request *request;
    const aoticache_product *product;
    aoticache_object *objects; /* one for each file; NULL if the content is in the manifest */
    size_t object_count;
    char *content; /* of the only file, or NULL */
    size_t content_size;
    aoticache_object manifest_object;
    aoticache_manifest *manifest;
    char *text; /* the manifest's object */
    aoticache_artifact *artifact;
};

static void close_objects(struct put *put)
{
    for (size_t i = 0; i < put->object_count; i++) {
        cleanup_fd_release(&put->objects[i].fd);
        put->objects[i].fd = -1;
    }
    cleanup_fd_release(&put->manifest_object.fd);
    put->manifest_object.fd = -1;
}

static void release_put(struct put *put)
{
    close_objects(put);
    free(put->objects);
    free(put->content);
    free(put->text);
    aoticache_manifest_free(put->manifest);
    aoticache_artifact_unref(put->artifact);
}

/* Reads the only file, unless it is too large for a manifest. */
static aoticache_status read_content(struct put *put, aoticache_error *ret_error)
{
    const aoticache_file *file = &put->product->files[0];
    cleanup_fd int source = -1;
    uint64_t bytes = 0;
    aoticache_status status = aoticache_product_open_file(file, false, &source, &bytes, ret_error);
    if (status != AOTICACHE_OK || bytes > MANIFEST_MAX_CONTENT_BYTES)
        return status;
    const size_t capacity = (size_t)bytes + 1; /* one more byte, to detect whether it has grown */
    put->content = malloc(capacity);
    if (put->content == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to copy %s", file->path);
    for (ssize_t got = 1; got != 0 && put->content_size < capacity;) {
        got = pread(source, put->content + put->content_size, capacity - put->content_size, (off_t)put->content_size);
        if (got < 0 && errno != EINTR)
            return aoticache_error_set_errno(ret_error, errno, "cannot read %s", file->path);
        put->content_size += got > 0 ? (size_t)got : 0;
    }
    return put->content_size == bytes
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s changed while it was being stored; try again",
                                     file->path);
}

static aoticache_status put_files(struct put *put, aoticache_error *ret_error)
{
    const size_t count = put->product->file_count;
    put->objects = calloc(count, sizeof *put->objects);
    if (put->objects == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    put->object_count = count;
    for (size_t i = 0; i < count; i++)
        put->objects[i].fd = -1;
    for (size_t i = 0; i < count; i++) {
        const aoticache_file *file = &put->product->files[i];
        cleanup_fd int source = -1;
        aoticache_status status = aoticache_product_open_file(file, i > 0, &source, NULL, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_object_put_fd(put->cache->directory, source, file->path, &put->objects[i], ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

static aoticache_status put_manifest(struct put *put, aoticache_error *ret_error)
{
    const size_t count = put->product->file_count;
    cleanup_free aoticache_digest *digests = calloc(count, sizeof *digests);
    cleanup_free uint64_t *sizes = calloc(count, sizeof *sizes);
    size_t text_size = 0;
    if (digests == NULL || sizes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < put->object_count; i++) {
        digests[i] = put->objects[i].digest;
        sizes[i] = put->objects[i].bytes;
    }
    aoticache_status status = AOTICACHE_OK;
    if (put->content != NULL) {
        sizes[0] = put->content_size;
        status = aoticache_digest_of(put->content, put->content_size, &digests[0]);
        if (status != AOTICACHE_OK)
            return aoticache_error_set(ret_error, status, "cannot compute the digest of %s",
                                       put->product->files[0].path);
    }
    status = aoticache_manifest_create(put->request, put->product, digests, sizes, aoticache_wall_ns(), &put->manifest,
                                       ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_manifest_format(put->manifest, put->content, &put->text, &text_size, ret_error);
    if (status == AOTICACHE_OK && text_size > AOTICACHE_OBJECT_MAX_MANIFEST_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the manifest would have %zu bytes, %llu are allowed",
                                   text_size, (unsigned long long)AOTICACHE_OBJECT_MAX_MANIFEST_BYTES);
    if (status == AOTICACHE_OK)
        status =
            aoticache_object_put_bytes(put->cache->directory, put->text, text_size, &put->manifest_object, ret_error);
    return status;
}

/* Opens the artifact before the entry is recorded, so that a put that cannot return its artifact leaves nothing visible. */
static aoticache_status open_artifact(struct put *put, aoticache_error *ret_error)
{
    const aoticache_digest *digest = &put->manifest_object.digest;
    const aoticache_manifest *manifest = put->manifest;
    aoticache_status status = AOTICACHE_OK;
    if (put->content != NULL) {
        status = aoticache_artifact_create_content(steal_ptr(&put->text), manifest->content_offset, put->content_size,
                                                   digest, &manifest->files[0].digest, manifest->compile_ns,
                                                   &put->artifact, ret_error);
    } else {
        cleanup_free int *fds = calloc(put->object_count, sizeof *fds);
        if (fds == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
        for (size_t i = 0; i < put->object_count; i++)
            fds[i] = put->objects[i].fd;
        put->objects[0].fd = -1; /* from here on the artifact owns it */
        status =
            aoticache_artifact_create_opened(put->cache->directory, digest, manifest, fds, &put->artifact, ret_error);
    }
    return status == AOTICACHE_OK ? aoticache_artifact_set_guard(put->artifact, put->manifest->guard, ret_error)
                                  : status;
}

/* Call this with the store's lock held, shared. */
static aoticache_status write_and_record(struct put *put, aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_status status = put->product->in_manifest ? read_content(put, ret_error) : AOTICACHE_OK;
    if (status == AOTICACHE_OK && put->content == NULL)
        status = put_files(put, ret_error);
    if (status == AOTICACHE_OK)
        status = put_manifest(put, ret_error);
    if (status == AOTICACHE_OK)
        status = open_artifact(put, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_put_manifest_entry(index, &put->manifest_object.digest, put->manifest_object.bytes,
                                                    put->manifest, &put->artifact->entry_id, ret_error);
    return status;
}

/* Immediately removes what this put has written and no entry names, because a full disk needs the space. */
static void remove_written(struct put *put)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_removal removal = {.objects = 0};
    aoticache_artifact_unref(put->artifact);
    put->artifact = NULL;
    close_objects(put);
    if (aoticache_lock_store(put->cache->directory, true, &lock, NULL) != AOTICACHE_OK)
        return; /* the next collection removes them */
    if (put->manifest_object.is_new) {
        aoticache_cache_remove_side_files(put->cache, &put->manifest_object.digest);
        aoticache_cache_remove_objects(put->cache, &(aoticache_index_object){.digest = put->manifest_object.digest}, 1,
                                       &removal, NULL);
    }
    for (size_t i = 0; i < put->object_count; i++)
        if (put->objects[i].is_new)
            aoticache_cache_remove_objects(put->cache, &(aoticache_index_object){.digest = put->objects[i].digest}, 1,
                                           &removal, NULL);
    aoticache_lock_release(&lock);
}

static void count_put(struct put *put)
{
    uint64_t bytes = put->manifest_object.is_new ? put->manifest_object.bytes : 0;
    for (size_t i = 0; i < put->object_count; i++)
        bytes += put->objects[i].is_new ? put->objects[i].bytes : 0;
    aoticache_cache_count(put->cache, AOTICACHE_COUNTER_stored_bytes, bytes);
    aoticache_cache_flush(put->cache, NULL);
    aoticache_cache_spare(put->cache, &put->manifest_object.digest, 0);
}

/* Tries to put. *ret_stale: another process replaced the index before the store's lock was acquired, and nothing is done. */
static aoticache_status try_put(struct put *put, aoticache_index *index, bool *ret_stale, aoticache_error *ret_error)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = aoticache_lock_store(put->cache->directory, false, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_stale = !aoticache_cache_index_is_current(put->cache);
    if (!*ret_stale)
        status = write_and_record(put, index, ret_error);
    aoticache_lock_release(&lock);
    if (status != AOTICACHE_OK)
        remove_written(put);
    return status;
}

/* What a put is asked for. */
struct asked {
    aoticache_cache *cache;
    const aoticache_request *request;
    const aoticache_product *product;
    aoticache_artifact **ret_artifact;
};

static aoticache_status put_once(void *user, aoticache_index *index, bool *ret_is_stale, aoticache_error *ret_error)
{
    const struct asked *asked = user;
    struct put put = {
        .cache = asked->cache, .request = asked->request, .product = asked->product, .manifest_object = {.fd = -1}};
    aoticache_status status = try_put(&put, index, ret_is_stale, ret_error);
    const bool is_done = status == AOTICACHE_OK && !*ret_is_stale;
    if (is_done) {
        count_put(&put);
        if (asked->ret_artifact != NULL)
            *asked->ret_artifact = steal_ptr(&put.artifact);
    }
    release_put(&put);
    if (is_done) {
        aoticache_cache_keep_budget(asked->cache);
        aoticache_reserve_keep(asked->cache);
    }
    return status;
}

aoticache_status aoticache_cache_put(aoticache_cache *cache, const aoticache_request *request,
                                     const aoticache_product *product, aoticache_artifact **ret_artifact,
                                     aoticache_error *ret_error)
{
    aoticache_product known;
    aoticache_status status = aoticache_product_read(product, &known, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (cache == NULL || request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, request);
    aoticache_cache_enter(cache);
    status = check_guard(request, &known, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_check_writable(cache, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    struct asked asked = {cache, request, &known, ret_artifact};
    return aoticache_cache_write_index(cache, put_once, &asked, ret_error);
}
