/*
 * cache/store/manifest: the record of one artifact, in memory and as the canonical JSON text in the store
 * (docs/formats/store.md).
 *
 * Defines the text: its fields, how they are written, and which texts are refused. It does not define
 * where manifests are stored and which objects they name (the store does), nor what the encoding means (the request does).
 *
 * The bytes of an artifact's only file may follow the text in the same object: then the artifact is one object.
 */
#ifndef AOTICACHE_CACHE_STORE_MANIFEST_H
#define AOTICACHE_CACHE_STORE_MANIFEST_H

#include "cache/cache.h"
#include "index/index.h"

typedef struct aoticache_manifest_file {
    char *name; /* next to the library: one path component */
    aoticache_digest digest;
    uint64_t bytes;
} aoticache_manifest_file;

typedef struct aoticache_manifest {
    aoticache_key key;
    uint8_t *encoding; /* canonical encoding of the request; its SHA-256 is the key */
    size_t encoding_size;
    char *op, *device, *description, *producer;
    char *guard; /* NULL for an exact entry */
    aoticache_cpu_features requirements;
    uint64_t compile_ns;
    int64_t created_ns;             /* wall clock */
    aoticache_manifest_file *files; /* files[0] is the library */
    size_t file_count;
    size_t content_offset; /* where the only file begins in the manifest's object; 0: it is a separate object */
    char *output;          /* the compiler's output; NULL if none is stored */
    char *metadata;        /* the producer's; NULL if it gave none */
    char *fallback;        /* why the producer's own container was used; NULL: it was not, or it is not known */
    bool is_dynamic;       /* the request is dynamic */
} aoticache_manifest;

/*
 * Builds the manifest of a product whose files have been digested: digests[i] and sizes[i] belong to product->files[i].
 * Returns: OK; INVALID (no file, an unsafe or repeated file name, a text that is not UTF-8, a number JSON cannot hold);
 * NO_MEMORY.
 */
aoticache_status aoticache_manifest_create(const aoticache_request *request, const aoticache_product *product,
                                           const aoticache_digest *digests, const uint64_t *sizes, int64_t created_ns,
                                           aoticache_manifest **ret_manifest, aoticache_error *ret_error);

/* Returns how many of its files are separate objects: all, or none if the bytes of the only file are in the manifest's
 * object. */
size_t aoticache_manifest_object_count(const aoticache_manifest *manifest);

/*
 * Writes canonical JSON: sorted keys, no spaces, a newline at the end. The caller frees *ret_text with free().
 *
 * content: the bytes of the only file, at most MANIFEST_MAX_CONTENT_BYTES, to follow the newline; content_offset is set.
 *          NULL: the files are separate objects.
 */
aoticache_status aoticache_manifest_format(aoticache_manifest *manifest, const void *content, char **ret_text,
                                           size_t *ret_size, aoticache_error *ret_error);

/*
 * Parses an untrusted text: every field is checked, unknown fields are ignored (a later program of the same format may have
 * written them), the key must be the digest of the encoding. If a content follows the text, its size and digest are checked
 * too.
 * Returns: OK; CORRUPT with the reason; UNSUPPORTED (a newer format, a CPU feature of a newer version); NO_MEMORY.
 */
aoticache_status aoticache_manifest_parse(const char *text, size_t size, aoticache_manifest **ret_manifest,
                                          aoticache_error *ret_error);

/* Returns whether it has a guard exactly if its request is dynamic. Only such a manifest gets an entry. */
bool aoticache_manifest_guard_fits(const aoticache_manifest *manifest);

/*
 * What the query cache has of a manifest that an earlier process read (manifest_fact.c), so that it is not read again: only
 * files, file_count and compile_ns. find: NULL if nothing is recorded. Manifests that contain their content are never recorded.
 */
aoticache_manifest *aoticache_manifest_find_fact(aoticache_index *index, const aoticache_digest *digest);
void aoticache_manifest_note_fact(aoticache_index *index, const aoticache_digest *digest,
                                  const aoticache_manifest *manifest);

/* NULL is allowed. */
void aoticache_manifest_free(aoticache_manifest *manifest);

/* Returns whether a name is one safe path component: 1..255 bytes, no slash, not "." or "..", no control characters. */
bool aoticache_manifest_file_name_is_safe(const char *name);

#endif
