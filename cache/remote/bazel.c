/*
 * cache/remote/bazel: the layout that servers of Bazel's HTTP cache require (layout=bazel): only `cas/<digest>`, whose bytes
 * have that digest, and `ac/<64 digits>`, whose bytes are an ActionResult.
 *
 * An ActionResult is a message in the encoding of Protocol Buffers, which https://github.com/bazelbuild/remote-apis defines.
 * Texts of this library are its field 5, the output of a command. A server may add fields, which are skipped.
 */
#include "base/digest.h"
#include "base/names.h"
#include "cache/remote/remote_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_FIELD 5
#define MAX_VARINT_BYTES 10

enum wire_type { VARINT = 0, EIGHT_BYTES = 1, LENGTH = 2, FOUR_BYTES = 5 };

/* ---- names ---- */

aoticache_status aoticache_bazel_name(const char *space, const char *name, char *ret_name, size_t size,
                                      aoticache_error *ret_error)
{
    char full[AOTICACHE_REMOTE_NAME_BYTES + 80], hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest digest;
    if (strncmp(name, "cas/", 4) == 0 || (space == NULL && strncmp(name, "ac/", 3) == 0)) {
        snprintf(ret_name, size, "%s", name);
        return AOTICACHE_OK;
    }
    /* Such servers ignore the part before "ac/", so a namespace would not separate records. */
    const int length =
        snprintf(full, sizeof full, "aoticache/%s%s%s", space != NULL ? space : "", space != NULL ? "/" : "", name);
    aoticache_status status = aoticache_digest_of(full, (size_t)length, &digest);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "out of memory for a name");
    aoticache_digest_to_hex(&digest, hex);
    snprintf(ret_name, size, "ac/%s", hex);
    return AOTICACHE_OK;
}

/* ---- messages ---- */

aoticache_status aoticache_bazel_wrap(const char *text, size_t size, char **ret_bytes, size_t *ret_size,
                                      aoticache_error *ret_error)
{
    char *bytes = malloc(size + 1 + MAX_VARINT_BYTES);
    if (bytes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a record");
    size_t at = 0, left = size;
    bytes[at++] = OUTPUT_FIELD << 3 | LENGTH;
    for (; left > 0x7f; left >>= 7)
        bytes[at++] = (char)((left & 0x7f) | 0x80);
    bytes[at++] = (char)left;
    memcpy(bytes + at, text, size);
    *ret_bytes = bytes;
    *ret_size = at + size;
    return AOTICACHE_OK;
}

/* Reads a number; returns false if the bytes end before it does, or it is too long. */
static bool read_varint(const char *bytes, size_t size, size_t *at, uint64_t *ret_value)
{
    *ret_value = 0;
    for (unsigned i = 0; i < MAX_VARINT_BYTES && *at < size; i++) {
        const uint8_t byte = (uint8_t)bytes[(*at)++];
        *ret_value |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* Reads the length of a value. *ret_length: of the value that begins at *at, if its length is known or precedes it. */
static bool read_length(const char *bytes, size_t size, unsigned type, size_t *at, uint64_t *ret_length)
{
    uint64_t ignored;
    *ret_length = 0;
    switch (type) {
    case VARINT:
        return read_varint(bytes, size, at, &ignored);
    case EIGHT_BYTES:
        *ret_length = 8;
        return true;
    case FOUR_BYTES:
        *ret_length = 4;
        return true;
    case LENGTH:
        return read_varint(bytes, size, at, ret_length);
    default:
        return false;
    }
}

aoticache_status aoticache_bazel_unwrap(const char *bytes, size_t size, size_t *ret_at, size_t *ret_size,
                                        aoticache_error *ret_error)
{
    bool has_text = false;
    for (size_t at = 0; at < size;) {
        uint64_t tag, length;
        if (!read_varint(bytes, size, &at, &tag) || !read_length(bytes, size, (unsigned)tag & 7, &at, &length) ||
            length > size - at)
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "it is not an ActionResult");
        if (tag == (OUTPUT_FIELD << 3 | LENGTH)) {
            has_text = true;
            *ret_at = at;
            *ret_size = (size_t)length;
        }
        at += (size_t)length;
    }
    return has_text ? AOTICACHE_OK
                    : aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                          "it is an ActionResult without a record of aoticache");
}
