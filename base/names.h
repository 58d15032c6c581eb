/*
 * base/names: the texts of dtypes, layouts, memory formats, devices and digests, and these values from their texts.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_BASE_NAMES_H
#define AOTICACHE_BASE_NAMES_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dtypes, layouts, memory formats, devices: PyTorch's names ("float32", "strided", "channels_last", "cuda") ---- */

/* Names are static; NULL for a number outside the list. The parsers return OK or INVALID. */
AOTICACHE_API const char *aoticache_dtype_name(int32_t dtype);
AOTICACHE_API aoticache_status aoticache_dtype_parse(const char *name, int32_t *ret_dtype);
/* Returns the bytes of one element; 0 for a number outside the list. */
AOTICACHE_API size_t aoticache_dtype_size(int32_t dtype);
AOTICACHE_API const char *aoticache_layout_name(int32_t layout);
AOTICACHE_API aoticache_status aoticache_layout_parse(const char *name, int32_t *ret_layout);
AOTICACHE_API const char *aoticache_memory_format_name(int32_t memory_format);
AOTICACHE_API aoticache_status aoticache_memory_format_parse(const char *name, int32_t *ret_memory_format);

#define AOTICACHE_DEVICE_TEXT_BYTES 32

/* Parses "cpu", "cuda", "cuda:1". Returns OK or INVALID. */
AOTICACHE_API aoticache_status aoticache_device_parse(const char *text, aoticache_device *ret_device);
AOTICACHE_API void aoticache_device_format(aoticache_device device, char ret_text[AOTICACHE_DEVICE_TEXT_BYTES]);

/* ---- digests ---- */

AOTICACHE_API void aoticache_digest_to_hex(const aoticache_digest *digest, char ret_hex[AOTICACHE_DIGEST_HEX_BYTES]);

/* Parses exactly 64 hexadecimal digits, in either case. Returns OK or INVALID. */
AOTICACHE_API aoticache_status aoticache_digest_from_hex(const char *hex, aoticache_digest *ret_digest);

/*
 * Computes the digest of a whole open file, from its beginning, with pread: the file position is neither used nor moved.
 * ret_size: the number of bytes hashed; may be NULL.
 * Returns: OK, IO, NO_MEMORY, UNSUPPORTED.
 */
AOTICACHE_API aoticache_status aoticache_digest_of_fd(int fd, aoticache_digest *ret_digest, uint64_t *ret_size,
                                                      aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif

#endif
