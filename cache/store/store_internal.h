/*
 * cache/store/store_internal: shared by the code that writes manifests and the code that reads them: the format's number,
 * limits, two checks.
 *
 * Written manifests observe every limit, so a text that exceeds one was not written by this library.
 */
#ifndef AOTICACHE_CACHE_STORE_INTERNAL_H
#define AOTICACHE_CACHE_STORE_INTERNAL_H

#include "cache/store/manifest.h"

#include <jansson.h>

/* 2: the bytes of the only file follow the text. All other manifests are written as 1, which older libraries read. */
#define MANIFEST_FORMAT 2
#define MANIFEST_KIND "aoticache manifest"

#define MANIFEST_MAX_TEXT_BYTES (36u << 20) /* mostly the encoding: 16 MiB, two digits per byte */
#define MANIFEST_MAX_VALUES 32768           /* of the largest manifest: 4096 in files, 128 requirements */
#define MANIFEST_MAX_DEPTH 16
#define MANIFEST_MAX_FILES 1024
#define MANIFEST_MAX_CONTENT_BYTES (1u << 20) /* a rebuilt index reads all manifests, and a hit a whole one */
#define MANIFEST_MAX_FILE_NAME_BYTES 255
#define MANIFEST_MAX_DESCRIPTION_BYTES 4096
#define MANIFEST_MAX_PRODUCER_BYTES 1024
#define MANIFEST_MAX_GUARD_BYTES 65536
#define MANIFEST_MAX_OUTPUT_BYTES 65536
#define MANIFEST_MAX_METADATA_BYTES (2u << 20)
#define MANIFEST_MAX_FALLBACK_BYTES 511

/* Returns whether the text has control characters of C0, or DEL: a text for one line of a terminal has none. */
bool aoticache_manifest_has_control_characters(const char *text);

/* Checks that all files have different names; otherwise returns `refusal` and a message. */
aoticache_status aoticache_manifest_check_distinct(const aoticache_manifest *manifest, aoticache_status refusal,
                                                   aoticache_error *ret_error);

#endif
