/*
 * cache/transfer/format: what the members of an archive are called, and the small texts among them (docs/transfer.md).
 *
 * Private to cache/transfer/. What is read here was written by anybody.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_FORMAT_H
#define AOTICACHE_CACHE_TRANSFER_FORMAT_H

#include "cache/pins/pins.h"

#define AOTICACHE_TRANSFER_HEAD "aoticache.json" /* the first member */
#define AOTICACHE_TRANSFER_END "end.json"        /* the last: an archive without it was cut off */
#define AOTICACHE_TRANSFER_MAX_TEXT_BYTES (64u << 10)
#define AOTICACHE_TRANSFER_PATH_BYTES 96

typedef enum aoticache_transfer_kind {
    AOTICACHE_TRANSFER_IS_HEAD,
    AOTICACHE_TRANSFER_IS_END,
    AOTICACHE_TRANSFER_IS_OBJECT,
    AOTICACHE_TRANSFER_IS_PIN,
    AOTICACHE_TRANSFER_IS_FOREIGN,
} aoticache_transfer_kind;

/* Exactly the shapes that an export writes. ret_digest: of an object, or the key of a mark. */
aoticache_transfer_kind aoticache_transfer_kind_of(const char *path, aoticache_digest *ret_digest);
/* "marks/<64 digits>" */
void aoticache_transfer_pin_path(const aoticache_key *key, char ret_path[AOTICACHE_TRANSFER_PATH_BYTES]);

/* What the first and the last member count. */
typedef struct aoticache_transfer_counts {
    uint64_t entries, objects, bytes;
} aoticache_transfer_counts;

/* The texts: *ret_text is the caller's, by free(). NO_MEMORY. */
aoticache_status aoticache_transfer_format_head(const aoticache_transfer_counts *counts, char **ret_text,
                                                aoticache_error *ret_error);
aoticache_status aoticache_transfer_format_end(const aoticache_transfer_counts *counts, char **ret_text,
                                               aoticache_error *ret_error);
aoticache_status aoticache_transfer_format_pin(const aoticache_pins *mark, char **ret_text,
                                                aoticache_error *ret_error);

/* OK, CORRUPT, UNSUPPORTED (a newer format), NO_MEMORY. */
aoticache_status aoticache_transfer_parse_head(const char *text, size_t size, aoticache_transfer_counts *ret_counts,
                                               aoticache_error *ret_error);
aoticache_status aoticache_transfer_parse_end(const char *text, size_t size, aoticache_transfer_counts *ret_counts,
                                              aoticache_error *ret_error);
/* The text must be that of `key`; calls back once with the mark. The tags are not checked. OK, CORRUPT, NO_MEMORY. */
aoticache_status aoticache_transfer_parse_pin(const char *text, size_t size, const aoticache_key *key,
                                               aoticache_pins_fn callback, void *user, aoticache_error *ret_error);

#endif
