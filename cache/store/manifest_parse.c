/*
 * cache/store/manifest_parse: parses a manifest's text, which is untrusted.
 *
 * Every field is checked for its type and its limits, and against what it must agree with: the key with the encoding, the
 * operator and the device with the request that the encoding stands for. Unknown fields are ignored: a later program of the
 * same format may have written them. The description and the producer are human-readable and only checked for control
 * characters.
 *
 * The text ends at the end of its JSON object. The bytes of the only file may follow.
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

#include <string.h>

static aoticache_status out_of_memory(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "manifest: out of memory");
}

static aoticache_status refuse_field(const char *name, const char *wanted, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: \"%s\" is missing or not %s", name, wanted);
}

/* Reads a text member. The text is borrowed from `object`; jansson has checked that it is UTF-8 and has no zero byte. */
static aoticache_status read_text(const json_t *object, const char *name, size_t limit, const char **ret_text,
                                  aoticache_error *ret_error)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_string(value))
        return refuse_field(name, "a string", ret_error);
    if (json_string_length(value) > limit)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "manifest: \"%s\" has %zu bytes; at most %zu are allowed", name,
                                   json_string_length(value), limit);
    if (aoticache_manifest_has_control_characters(json_string_value(value)))
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: \"%s\" holds control characters", name);
    *ret_text = json_string_value(value);
    return AOTICACHE_OK;
}

static aoticache_status copy_text(const json_t *object, const char *name, size_t limit, char **ret_copy,
                                  aoticache_error *ret_error)
{
    const char *text;
    aoticache_status status = read_text(object, name, limit, &text, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_copy = strdup(text);
    return *ret_copy != NULL ? AOTICACHE_OK : out_of_memory(ret_error);
}

static aoticache_status read_integer(const json_t *object, const char *name, int64_t minimum, int64_t *ret_value,
                                     aoticache_error *ret_error)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value))
        return refuse_field(name, "an integer", ret_error);
    if (json_integer_value(value) < minimum)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: \"%s\" is %lld; it must not be negative",
                                   name, (long long)json_integer_value(value));
    *ret_value = json_integer_value(value);
    return AOTICACHE_OK;
}

static aoticache_status read_digest(const json_t *object, const char *name, aoticache_digest *ret_digest,
                                    aoticache_error *ret_error)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_string(value) || aoticache_digest_from_hex(json_string_value(value), ret_digest) != AOTICACHE_OK)
        return refuse_field(name, "64 hexadecimal digits", ret_error);
    return AOTICACHE_OK;
}

/* ---- the request ---- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static aoticache_status read_encoding(const json_t *object, aoticache_manifest *manifest, aoticache_error *ret_error)
{
    const char *hex;
    aoticache_status status = read_text(object, "encoding", 2 * (size_t)REQUEST_MAX_ENCODED_BYTES, &hex, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    size_t digits = strlen(hex);
    if (digits == 0 || digits % 2 != 0)
        return refuse_field("encoding", "an even number of hexadecimal digits", ret_error);
    manifest->encoding_size = digits / 2;
    manifest->encoding = malloc(manifest->encoding_size);
    if (manifest->encoding == NULL)
        return out_of_memory(ret_error);
    for (size_t i = 0; i < manifest->encoding_size; i++) {
        int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return refuse_field("encoding", "an even number of hexadecimal digits", ret_error);
        manifest->encoding[i] = (uint8_t)(high << 4 | low);
    }
    return AOTICACHE_OK;
}

static aoticache_status check_key(const aoticache_manifest *manifest, aoticache_error *ret_error)
{
    aoticache_digest digest;
    char expected[AOTICACHE_DIGEST_HEX_BYTES], found[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_status status = aoticache_digest_of(manifest->encoding, manifest->encoding_size, &digest);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "manifest: cannot compute the digest of the encoding");
    if (aoticache_digest_equal(&digest, &manifest->key))
        return AOTICACHE_OK;
    aoticache_digest_to_hex(&digest, expected);
    aoticache_digest_to_hex(&manifest->key, found);
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: \"key\" is %s, the encoding's digest is %s",
                               found, expected);
}

static aoticache_status check_agreement(const aoticache_manifest *manifest, const aoticache_request *request,
                                        aoticache_error *ret_error)
{
    char device[AOTICACHE_DEVICE_TEXT_BYTES];
    aoticache_device_format(aoticache_request_device(request), device);
    if (strcmp(manifest->op, aoticache_request_op(request)) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: \"op\" is %s, the encoding says %s",
                                   manifest->op, aoticache_request_op(request));
    if (strcmp(manifest->device, device) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: \"device\" is %s, the encoding says %s",
                                   manifest->device, device);
    return AOTICACHE_OK;
}

static aoticache_status read_requirements(const json_t *object, const char *arch, aoticache_manifest *manifest,
                                          aoticache_error *ret_error)
{
    const json_t *names = json_object_get(object, "requirements"), *value;
    size_t i;
    if (!json_is_array(names) || json_array_size(names) > AOTICACHE_CPU_FEATURE_BITS)
        return refuse_field("requirements", "a list of CPU features", ret_error);
    json_array_foreach(names, i, value)
    {
        aoticache_cpu_features one = {{0}};
        if (!json_is_string(value) || aoticache_manifest_has_control_characters(json_string_value(value)))
            return refuse_field("requirements", "a list of CPU features", ret_error);
        if (aoticache_cpu_features_parse_for(arch, json_string_value(value), &one, NULL) != AOTICACHE_OK)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "manifest: it requires the CPU feature %.63s, which this library does not "
                                       "know; use a newer one",
                                       json_string_value(value));
        if (aoticache_cpu_features_count(&one) != 1)
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                       "manifest: item %zu of \"requirements\" is not a single CPU feature", i);
        for (size_t word = 0; word < AOTICACHE_CPU_FEATURE_WORDS; word++)
            manifest->requirements.words[word] |= one.words[word];
    }
    return AOTICACHE_OK;
}

/* Reads the members that depend on the request in the encoding. */
static aoticache_status read_request(const json_t *object, aoticache_manifest *manifest, aoticache_error *ret_error)
{
    aoticache_request *request = NULL;
    aoticache_error detail;
    aoticache_status status = aoticache_request_decode(manifest->encoding, manifest->encoding_size, &request, &detail);
    if (status == AOTICACHE_INVALID)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: %s", detail.message);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "manifest: %s", detail.message);
    manifest->is_dynamic = aoticache_request_is_dynamic(request);
    status = check_agreement(manifest, request, ret_error);
    if (status == AOTICACHE_OK)
        status = read_requirements(object, aoticache_request_get_environment(request, "arch"), manifest, ret_error);
    aoticache_request_free(request);
    return status;
}

/* ---- the files ---- */

static aoticache_status read_file(const json_t *object, size_t i, aoticache_manifest_file *ret_file,
                                  aoticache_error *ret_error)
{
    const json_t *name = json_object_get(object, "name");
    int64_t bytes;
    if (!json_is_string(name) || !aoticache_manifest_file_name_is_safe(json_string_value(name)))
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "manifest: the name of file %zu is not a single safe path component of 1 to %d "
                                   "bytes",
                                   i, MANIFEST_MAX_FILE_NAME_BYTES);
    aoticache_status status = read_digest(object, "digest", &ret_file->digest, ret_error);
    if (status == AOTICACHE_OK)
        status = read_integer(object, "bytes", 0, &bytes, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    ret_file->bytes = (uint64_t)bytes;
    ret_file->name = strdup(json_string_value(name));
    return ret_file->name != NULL ? AOTICACHE_OK : out_of_memory(ret_error);
}

/* Reads the member `inline`. *ret_has: the bytes of the only file follow the text. */
static aoticache_status read_inline(const json_t *object, bool *ret_has, aoticache_error *ret_error)
{
    const json_t *files = json_object_get(object, "files");
    *ret_has = false;
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *value = json_object_get(json_array_get(files, i), "inline");
        if (value != NULL && !json_is_boolean(value))
            return refuse_field("inline", "true or false", ret_error);
        *ret_has = *ret_has || json_is_true(value);
    }
    if (*ret_has && (json_array_size(files) > 1 || json_integer_value(json_object_get(object, "format")) < 2))
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "manifest: \"inline\" requires format 2 and a single file");
    return AOTICACHE_OK;
}

static aoticache_status read_files(const json_t *object, aoticache_manifest *manifest, aoticache_error *ret_error)
{
    const json_t *files = json_object_get(object, "files");
    size_t count = json_array_size(files);
    uint64_t total = 0;
    if (!json_is_array(files) || count == 0 || count > MANIFEST_MAX_FILES)
        return refuse_field("files", "a list of 1 to 1024 files", ret_error);
    manifest->files = calloc(count, sizeof *manifest->files);
    if (manifest->files == NULL)
        return out_of_memory(ret_error);
    manifest->file_count = count;
    for (size_t i = 0; i < count; i++) {
        aoticache_status status = read_file(json_array_get(files, i), i, manifest->files + i, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (manifest->files[i].bytes > (uint64_t)INT64_MAX - total)
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: its files have more than 2^63-1 bytes");
        total += manifest->files[i].bytes;
    }
    return aoticache_manifest_check_distinct(manifest, AOTICACHE_CORRUPT, ret_error);
}

/* ---- the whole manifest ---- */

static aoticache_status check_format(const json_t *object, aoticache_error *ret_error)
{
    const json_t *kind = json_object_get(object, "kind"), *format = json_object_get(object, "format");
    if (!json_is_string(kind) || strcmp(json_string_value(kind), MANIFEST_KIND) != 0)
        return refuse_field("kind", "\"" MANIFEST_KIND "\"", ret_error);
    if (!json_is_integer(format) || json_integer_value(format) < 1)
        return refuse_field("format", "a positive integer", ret_error);
    if (json_integer_value(format) > MANIFEST_FORMAT)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "manifest: its format is %lld; this library knows %d",
                                   (long long)json_integer_value(format), MANIFEST_FORMAT);
    return AOTICACHE_OK;
}

static aoticache_status read_numbers(const json_t *object, aoticache_manifest *manifest, aoticache_error *ret_error)
{
    int64_t compile_ns = 0;
    aoticache_status status = read_integer(object, "compile_ns", 0, &compile_ns, ret_error);
    if (status == AOTICACHE_OK)
        status = read_integer(object, "created_ns", INT64_MIN, &manifest->created_ns, ret_error);
    manifest->compile_ns = (uint64_t)compile_ns;
    return status;
}

/* Reads the compiler's output, the only text that may have several lines. */
static aoticache_status read_output(const json_t *object, char **ret_output, aoticache_error *ret_error)
{
    const json_t *value = json_object_get(object, "output");
    if (value == NULL)
        return AOTICACHE_OK;
    if (!json_is_string(value))
        return refuse_field("output", "a string", ret_error);
    if (json_string_length(value) > MANIFEST_MAX_OUTPUT_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "manifest: \"output\" has %zu bytes; at most %d are allowed",
                                   json_string_length(value), MANIFEST_MAX_OUTPUT_BYTES);
    *ret_output = strdup(json_string_value(value));
    return *ret_output != NULL ? AOTICACHE_OK : out_of_memory(ret_error);
}

static aoticache_status read_texts(const json_t *object, aoticache_manifest *manifest, aoticache_error *ret_error)
{
    aoticache_status status = copy_text(object, "op", REQUEST_MAX_OP_BYTES, &manifest->op, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_text(object, "device", AOTICACHE_DEVICE_TEXT_BYTES, &manifest->device, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_text(object, "description", MANIFEST_MAX_DESCRIPTION_BYTES, &manifest->description, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_text(object, "producer", MANIFEST_MAX_PRODUCER_BYTES, &manifest->producer, ret_error);
    if (status == AOTICACHE_OK && json_object_get(object, "guard") != NULL)
        status = copy_text(object, "guard", MANIFEST_MAX_GUARD_BYTES, &manifest->guard, ret_error);
    if (status == AOTICACHE_OK && json_object_get(object, "metadata") != NULL)
        status = copy_text(object, "metadata", MANIFEST_MAX_METADATA_BYTES, &manifest->metadata, ret_error);
    if (status == AOTICACHE_OK && json_object_get(object, "fallback") != NULL)
        status = copy_text(object, "fallback", MANIFEST_MAX_FALLBACK_BYTES, &manifest->fallback, ret_error);
    if (status == AOTICACHE_OK)
        status = read_output(object, &manifest->output, ret_error);
    return status;
}

static aoticache_status read_manifest(const json_t *object, aoticache_manifest *manifest, aoticache_error *ret_error)
{
    aoticache_status status = check_format(object, ret_error);
    if (status == AOTICACHE_OK)
        status = read_texts(object, manifest, ret_error);
    if (status == AOTICACHE_OK)
        status = read_numbers(object, manifest, ret_error);
    if (status == AOTICACHE_OK)
        status = read_digest(object, "key", &manifest->key, ret_error);
    if (status == AOTICACHE_OK)
        status = read_encoding(object, manifest, ret_error);
    if (status == AOTICACHE_OK)
        status = check_key(manifest, ret_error);
    if (status == AOTICACHE_OK)
        status = read_request(object, manifest, ret_error);
    if (status == AOTICACHE_OK)
        status = read_files(object, manifest, ret_error);
    return status;
}

/* Checks the content after the text, which ends at `end`. A reader finds the content after the first line break, so the text
 * must not contain another. */
static aoticache_status check_content(const char *text, size_t end, size_t size, aoticache_manifest *manifest,
                                      aoticache_error *ret_error)
{
    const aoticache_manifest_file *file = &manifest->files[0];
    aoticache_digest actual;
    if (end == size || text[end] != '\n' || memchr(text, '\n', end) != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "manifest: inline content requires JSON text of exactly one line");
    const size_t offset = end + 1, content_size = size - offset;
    if (content_size > MANIFEST_MAX_CONTENT_BYTES || content_size != file->bytes)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "manifest: %zu bytes follow it, but \"bytes\" is %llu; at most %u are allowed",
                                   content_size, (unsigned long long)file->bytes, MANIFEST_MAX_CONTENT_BYTES);
    aoticache_status status = aoticache_digest_of(text + offset, content_size, &actual);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "manifest: cannot compute the digest of its content");
    if (!aoticache_digest_equal(&actual, &file->digest))
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "manifest: the digest of the content differs from that in \"files\"");
    manifest->content_offset = offset;
    return AOTICACHE_OK;
}

static aoticache_status check_rest(const char *text, size_t end, size_t size, bool has_content,
                                   aoticache_manifest *manifest, aoticache_error *ret_error)
{
    if (has_content)
        return check_content(text, end, size, manifest, ret_error);
    for (size_t i = end; i < size; i++)
        if (text[i] == '\0' || strchr(" \t\r\n", text[i]) == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: %zu bytes follow its JSON object",
                                       size - end);
    return AOTICACHE_OK;
}

/*
 * Limits the memory for parsing. jansson builds a tree: three bytes of text ("{},") become some 250 bytes of memory, so that
 * a manifest of the largest size would take gigabytes before anything is checked. So this first counts its values and their
 * depth. Strings are exempt, because they take only their own size, and can be large. Text that is not JSON may be counted
 * wrongly: it is refused anyway. *ret_end: where the object ends, `size` if it does not.
 */
static aoticache_status check_json_size(const char *text, size_t size, size_t *ret_end, aoticache_error *ret_error)
{
    size_t values = 1, depth = 0;
    *ret_end = size;
    for (size_t i = 0; i < *ret_end; i++) {
        switch (text[i]) {
        case '"':
            for (i++; i < size && text[i] != '"'; i++)
                i += text[i] == '\\' ? 1 : 0;
            break;
        case '{':
        case '[':
            values++;
            depth++;
            break;
        case '}':
        case ']':
            depth -= depth > 0 ? 1 : 0;
            *ret_end = depth == 0 ? i + 1 : size;
            break;
        case ',':
        case ':':
            values++;
            break;
        default:
            break;
        }
        if (values > MANIFEST_MAX_VALUES || depth > MANIFEST_MAX_DEPTH)
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                       "manifest: more than %d values, or nested deeper than %d, up to byte %zu",
                                       MANIFEST_MAX_VALUES, MANIFEST_MAX_DEPTH, i);
    }
    return AOTICACHE_OK;
}

/* Reports invalid JSON. jansson's text may repeat parts of the file, so only the position is reported. */
static aoticache_status refuse_json(const json_error_t *error, aoticache_error *ret_error)
{
    json_error_t copy = *error;
    if (json_error_code(&copy) == json_error_out_of_memory)
        return out_of_memory(ret_error);
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: not a JSON object, line %d, column %d, byte %d",
                               error->line, error->column, error->position);
}

aoticache_status aoticache_manifest_parse(const char *text, size_t size, aoticache_manifest **ret_manifest,
                                          aoticache_error *ret_error)
{
    json_error_t error = {0};
    if (size > MANIFEST_MAX_TEXT_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: %zu bytes; at most %u are allowed", size,
                                   MANIFEST_MAX_TEXT_BYTES);
    size_t end;
    bool has_content = false;
    aoticache_status status = check_json_size(text, size, &end, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    json_t *object = aoticache_json_parse(text, end, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL)
        return refuse_json(&error, ret_error);
    aoticache_manifest *manifest = calloc(1, sizeof *manifest);
    if (manifest == NULL)
        status = out_of_memory(ret_error);
    else if (!json_is_object(object))
        status = aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: the JSON text is not an object");
    else
        status = read_manifest(object, manifest, ret_error);
    if (status == AOTICACHE_OK)
        status = read_inline(object, &has_content, ret_error);
    if (status == AOTICACHE_OK)
        status = check_rest(text, end, size, has_content, manifest, ret_error);
    json_decref(object);
    if (status == AOTICACHE_OK)
        *ret_manifest = manifest;
    else
        aoticache_manifest_free(manifest);
    return status;
}
