/*
 * cache/store/manifest: makes a manifest from a request and a product, and writes its JSON text. manifest_parse.c reads the
 * text.
 */
#include "cache/store/store_internal.h"

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/names.h"
#include "base/text/json.h"
#include "cache/eager_face.h"
#include "cache/request/cpu_list.h"
#include "cache/request/request_internal.h"
#include "cache/request/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool aoticache_manifest_has_control_characters(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return true;
    return false;
}

bool aoticache_manifest_file_name_is_safe(const char *name)
{
    size_t length = strnlen(name, MANIFEST_MAX_FILE_NAME_BYTES + 1);
    if (length == 0 || length > MANIFEST_MAX_FILE_NAME_BYTES || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    return strchr(name, '/') == NULL && !aoticache_manifest_has_control_characters(name);
}

void aoticache_manifest_free(aoticache_manifest *manifest)
{
    if (manifest == NULL)
        return;
    int saved = errno;
    for (size_t i = 0; i < manifest->file_count && manifest->files != NULL; i++)
        free(manifest->files[i].name);
    free(manifest->files);
    free(manifest->encoding);
    free(manifest->op);
    free(manifest->device);
    free(manifest->description);
    free(manifest->producer);
    free(manifest->guard);
    free(manifest->output);
    free(manifest->metadata);
    free(manifest->fallback);
    free(manifest);
    errno = saved;
}

static aoticache_status out_of_memory(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "manifest: out of memory");
}

bool aoticache_manifest_guard_fits(const aoticache_manifest *manifest)
{
    return (manifest->guard != NULL && manifest->guard[0] != '\0') == manifest->is_dynamic;
}

size_t aoticache_manifest_object_count(const aoticache_manifest *manifest)
{
    return manifest->content_offset > 0 ? 0 : manifest->file_count;
}

/* ---- the stored part of a compiler's output ---- */

/* The beginning has the first error and the end the summary, so a long output is cut in the middle. */

#define REMARK_BYTES 64

/* Returns the length of the character at `text`, or 0 if the bytes there are not UTF-8. */
static size_t character_size(const char *text, size_t left)
{
    for (size_t size = 1; size <= 4 && size <= left; size++)
        if (aoticache_request_is_utf8(text, size))
            return size;
    return 0;
}

/* Replaces every byte that is not part of a character with '?', in place. */
static void make_utf8(char *text)
{
    for (size_t left = strlen(text), size; left > 0; text += size, left -= size) {
        size = character_size(text, left);
        if (size == 0) {
            *text = '?';
            size = 1;
        }
    }
}

static bool is_inside_character(const char *text, size_t at)
{
    return ((unsigned char)text[at] & 0xc0) == 0x80;
}

/* Keeps the beginning and the end, both cut between characters. `text` is UTF-8 and longer than allowed. */
static char *cut_middle(const char *text, size_t length)
{
    const size_t part = (MANIFEST_MAX_OUTPUT_BYTES - REMARK_BYTES) / 2;
    size_t head = part, tail = length - part;
    while (is_inside_character(text, head))
        head--;
    while (is_inside_character(text, tail))
        tail++;
    char *cut = malloc(MANIFEST_MAX_OUTPUT_BYTES + 1);
    if (cut == NULL)
        return NULL;
    memcpy(cut, text, head);
    int remark = snprintf(cut + head, REMARK_BYTES, "\n[... %zu bytes left out ...]\n", tail - head);
    memcpy(cut + head + remark, text + tail, length - tail + 1);
    return cut;
}

/*
 * Returns what is stored of a compiler's output: UTF-8 (other bytes become '?'), at most 64 KiB; of a longer one the
 * beginning and the end, with a line between them that says how much is left out. The caller frees it with free(); NULL if
 * memory is short.
 */
static char *cut_output(const char *output)
{
    char *copy = strdup(output);
    if (copy == NULL)
        return NULL;
    make_utf8(copy);
    size_t length = strlen(copy);
    if (length <= MANIFEST_MAX_OUTPUT_BYTES)
        return copy;
    char *cut = cut_middle(copy, length);
    free(copy);
    return cut;
}

/* ---- making a manifest ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

aoticache_status aoticache_manifest_check_distinct(const aoticache_manifest *manifest, aoticache_status refusal,
                                                   aoticache_error *ret_error)
{
    cleanup_free const char **names = calloc(manifest->file_count, sizeof *names);
    if (names == NULL)
        return out_of_memory(ret_error);
    for (size_t i = 0; i < manifest->file_count; i++)
        names[i] = manifest->files[i].name;
    qsort(names, manifest->file_count, sizeof *names, compare_names);
    for (size_t i = 1; i < manifest->file_count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return aoticache_error_set(ret_error, refusal, "manifest: two files are named %s", names[i]);
    return AOTICACHE_OK;
}

static aoticache_status check_product(const aoticache_product *product, aoticache_error *ret_error)
{
    if (product->file_count == 0 || product->files == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "product: it has no files; the first must be the library");
    if (product->file_count > MANIFEST_MAX_FILES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "product: it has %zu files; at most %d are allowed",
                                   product->file_count, MANIFEST_MAX_FILES);
    if (product->compile_ns > INT64_MAX)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "product: compile_ns is %llu; at most 2^63-1 is allowed",
                                   (unsigned long long)product->compile_ns);
    return AOTICACHE_OK;
}

/* Copies the output; NULL and an empty text both become NULL. */
static aoticache_status copy_output(const char *output, char **ret_copy, aoticache_error *ret_error)
{
    if (output == NULL || output[0] == '\0')
        return AOTICACHE_OK;
    *ret_copy = cut_output(output);
    return *ret_copy != NULL ? AOTICACHE_OK : out_of_memory(ret_error);
}

/* Copies a text; NULL stays NULL. */
static aoticache_status copy_text(const char *what, const char *text, size_t limit, char **ret_copy,
                                  aoticache_error *ret_error)
{
    if (text == NULL)
        return AOTICACHE_OK;
    size_t length = strlen(text);
    if (length > limit)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "product: its %s has %zu bytes; at most %zu are allowed", what, length, limit);
    if (!aoticache_request_is_utf8(text, length) || aoticache_manifest_has_control_characters(text))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "product: its %s is not UTF-8 without control "
                                   "characters",
                                   what);
    *ret_copy = strdup(text);
    return *ret_copy != NULL ? AOTICACHE_OK : out_of_memory(ret_error);
}

static aoticache_status copy_file(const aoticache_product *product, size_t i, const aoticache_digest *digest,
                                  uint64_t bytes, aoticache_manifest_file *ret_file, aoticache_error *ret_error)
{
    const char *name = product->files[i].name;
    if (name == NULL || !aoticache_manifest_file_name_is_safe(name) || !aoticache_request_is_utf8(name, strlen(name)))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "product: the name of file %zu is not a single safe path component in UTF-8 of "
                                   "1 to %d bytes",
                                   i, MANIFEST_MAX_FILE_NAME_BYTES);
    ret_file->digest = *digest;
    ret_file->bytes = bytes;
    ret_file->name = strdup(name);
    return ret_file->name != NULL ? AOTICACHE_OK : out_of_memory(ret_error);
}

static aoticache_status copy_files(const aoticache_product *product, const aoticache_digest *digests,
                                   const uint64_t *sizes, aoticache_manifest *manifest, aoticache_error *ret_error)
{
    uint64_t total = 0;
    manifest->files = calloc(product->file_count, sizeof *manifest->files);
    if (manifest->files == NULL)
        return out_of_memory(ret_error);
    manifest->file_count = product->file_count;
    for (size_t i = 0; i < product->file_count; i++) {
        if (sizes[i] > (uint64_t)INT64_MAX - total)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "product: its files have more than 2^63-1 bytes");
        total += sizes[i];
        aoticache_status status = copy_file(product, i, digests + i, sizes[i], manifest->files + i, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return aoticache_manifest_check_distinct(manifest, AOTICACHE_INVALID, ret_error);
}

/* Cuts at the beginning of a character, so that the text stays UTF-8. */
static void cut_description(char *description)
{
    static const char dots[] = "...";
    size_t length = MANIFEST_MAX_DESCRIPTION_BYTES - (sizeof dots - 1);
    while (length > 0 && ((unsigned char)description[length] & 0xc0) == 0x80)
        length--;
    memcpy(description + length, dots, sizeof dots);
}

static char *describe_request(const aoticache_request *request)
{
    const size_t size = MANIFEST_MAX_DESCRIPTION_BYTES + 1;
    char *description = malloc(size);
    if (description != NULL && aoticache_request_format(request, description, size) >= size)
        cut_description(description);
    return description;
}

static aoticache_status copy_request(const aoticache_request *request, aoticache_manifest *manifest,
                                     aoticache_error *ret_error)
{
    char device[AOTICACHE_DEVICE_TEXT_BYTES];
    aoticache_status status =
        aoticache_request_encode(request, &manifest->encoding, &manifest->encoding_size, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_digest_of(manifest->encoding, manifest->encoding_size, &manifest->key);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "manifest: cannot compute the key of %s",
                                   aoticache_request_op(request));
    manifest->is_dynamic = aoticache_request_is_dynamic(request);
    aoticache_device_format(aoticache_request_device(request), device);
    manifest->op = strdup(aoticache_request_op(request));
    manifest->device = strdup(device);
    manifest->description = describe_request(request);
    if (manifest->op == NULL || manifest->device == NULL || manifest->description == NULL)
        return out_of_memory(ret_error);
    return AOTICACHE_OK;
}

static aoticache_status fill_manifest(aoticache_manifest *manifest, const aoticache_request *request,
                                      const aoticache_product *product, const aoticache_digest *digests,
                                      const uint64_t *sizes, aoticache_error *ret_error)
{
    const char *producer = product->producer != NULL ? product->producer : "";
    const char *guard = product->guard != NULL && product->guard[0] != '\0' ? product->guard : NULL;
    aoticache_status status = copy_request(request, manifest, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_text("producer", producer, MANIFEST_MAX_PRODUCER_BYTES, &manifest->producer, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_text("guard", guard, MANIFEST_MAX_GUARD_BYTES, &manifest->guard, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_output(product->output, &manifest->output, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_text("metadata", product->metadata, MANIFEST_MAX_METADATA_BYTES, &manifest->metadata, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_text("fallback", product->fallback, MANIFEST_MAX_FALLBACK_BYTES, &manifest->fallback, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_files(product, digests, sizes, manifest, ret_error);
    return status;
}

aoticache_status aoticache_manifest_create(const aoticache_request *request, const aoticache_product *product,
                                           const aoticache_digest *digests, const uint64_t *sizes, int64_t created_ns,
                                           aoticache_manifest **ret_manifest, aoticache_error *ret_error)
{
    aoticache_status status = check_product(product, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_manifest *manifest = calloc(1, sizeof *manifest);
    if (manifest == NULL)
        return out_of_memory(ret_error);
    manifest->requirements = product->requirements;
    manifest->compile_ns = product->compile_ns;
    manifest->created_ns = created_ns;
    status = fill_manifest(manifest, request, product, digests, sizes, ret_error);
    if (status == AOTICACHE_OK)
        *ret_manifest = manifest;
    else
        aoticache_manifest_free(manifest);
    return status;
}

/* ---- writing its text ---- */

static json_t *format_hex(const uint8_t *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    cleanup_free char *hex = malloc(2 * size + 1);
    if (hex == NULL)
        return NULL;
    for (size_t i = 0; i < size; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    return json_stringn(hex, 2 * size);
}

static json_t *format_digest(const aoticache_digest *digest)
{
    return format_hex(digest->bytes, sizeof digest->bytes);
}

/* Uses the names of features for the request's architecture. */
static json_t *format_requirements(const aoticache_manifest *manifest, const char *arch)
{
    json_t *names = json_array();
    for (unsigned bit = 0; names != NULL && bit < AOTICACHE_CPU_FEATURE_BITS; bit++) {
        char name[AOTICACHE_CPU_FEATURE_NAME_BYTES];
        if (!aoticache_cpu_features_has(&manifest->requirements, bit))
            continue;
        aoticache_cpu_feature_name_for(arch, bit, name);
        if (json_array_append_new(names, json_string(name)) != 0) {
            json_decref(names);
            return NULL;
        }
    }
    return names;
}

static json_t *format_files(const aoticache_manifest *manifest, bool has_content)
{
    json_t *files = json_array();
    for (size_t i = 0; files != NULL && i < manifest->file_count; i++) {
        const aoticache_manifest_file *file = manifest->files + i;
        json_t *one = json_pack("{s:I, s:o, s:s}", "bytes", (json_int_t)file->bytes, "digest",
                                format_digest(&file->digest), "name", file->name);
        if (has_content && json_object_set_new(one, "inline", json_true()) != 0) {
            json_decref(one);
            one = NULL;
        }
        if (json_array_append_new(files, one) != 0) {
            json_decref(files);
            return NULL;
        }
    }
    return files;
}

static json_t *format_manifest(const aoticache_manifest *manifest, const char *arch, bool has_content)
{
    /* With s* a member is left out if its value is NULL. */
    return json_pack("{s:i, s:s, s:o, s:o, s:s, s:s, s:s, s:s, s:s*, s:s*, s:s*, s:s*, s:o, s:I, s:I, s:o}", "format",
                     has_content ? MANIFEST_FORMAT : 1, "kind", MANIFEST_KIND, "key", format_digest(&manifest->key),
                     "encoding", format_hex(manifest->encoding, manifest->encoding_size), "op", manifest->op, "device",
                     manifest->device, "description", manifest->description, "producer", manifest->producer, "guard",
                     manifest->guard, "output", manifest->output, "metadata", manifest->metadata, "fallback",
                     manifest->fallback, "requirements", format_requirements(manifest, arch), "compile_ns",
                     (json_int_t)manifest->compile_ns, "created_ns", (json_int_t)manifest->created_ns, "files",
                     format_files(manifest, has_content));
}

aoticache_status aoticache_manifest_format(aoticache_manifest *manifest, const void *content, char **ret_text,
                                           size_t *ret_size, aoticache_error *ret_error)
{
    aoticache_request *request = NULL;
    const size_t content_size = content != NULL ? (size_t)manifest->files[0].bytes : 0;
    aoticache_status status =
        aoticache_request_decode(manifest->encoding, manifest->encoding_size, &request, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    json_t *json = format_manifest(manifest, aoticache_request_get_environment(request, "arch"), content != NULL);
    aoticache_request_free(request);
    if (json == NULL)
        return out_of_memory(ret_error);
    char *text = aoticache_json_write(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    size_t size = text != NULL ? strlen(text) : 0;
    char *grown = text != NULL ? realloc(text, size + 1 + content_size + 1) : NULL;
    if (grown == NULL) {
        free(text);
        return out_of_memory(ret_error);
    }
    grown[size++] = '\n';
    if (content_size > 0)
        memcpy(grown + size, content, content_size);
    grown[size + content_size] = '\0';
    manifest->content_offset = content != NULL ? size : 0;
    *ret_text = grown;
    *ret_size = size + content_size;
    return AOTICACHE_OK;
}
