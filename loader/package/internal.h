/*
 * loader/package: what the files of the package reader share: the archive (archive.c) and the check of the names in it
 * (names.c). package.c puts them together.
 *
 * Private to loader/package/.
 */
#ifndef AOTICACHE_LOADER_PACKAGE_INTERNAL_H
#define AOTICACHE_LOADER_PACKAGE_INTERNAL_H

#include "loader/package/package.h"

/* ---- the archive: entries by position, nothing of what they mean ---- */

typedef struct aoticache_archive aoticache_archive;

typedef struct aoticache_archive_entry {
    const char *name;    /* as it is in the archive, unchecked; borrowed from the archive */
    uint64_t bytes;      /* unpacked, as the archive says */
    uint64_t compressed; /* in the archive */
    uint16_t method;     /* of compression: 0 stored, 8 deflated */
    bool encrypted;
    uint32_t mode; /* of the file, where a Unix program made the archive: S_IFMT and permissions; else 0 */
} aoticache_archive_entry;

#define AOTICACHE_ARCHIVE_STORED 0
#define AOTICACHE_ARCHIVE_DEFLATED 8

/* fd: borrowed as long as the archive is open. Returns: OK, INVALID, UNSUPPORTED (no libzip), IO, NO_MEMORY. */
aoticache_status aoticache_archive_open(int fd, const char *name, aoticache_archive **ret_archive,
                                        aoticache_error *ret_error);
/* NULL is allowed. */
void aoticache_archive_close(aoticache_archive *archive);
uint64_t aoticache_archive_entry_count(const aoticache_archive *archive);
/* Of the whole file. */
uint64_t aoticache_archive_bytes(const aoticache_archive *archive);
/* For messages. */
const char *aoticache_archive_name(const aoticache_archive *archive);
aoticache_status aoticache_archive_read_entry(aoticache_archive *archive, uint64_t position,
                                              aoticache_archive_entry *ret_entry, aoticache_error *ret_error);
/*
 * Hands an entry's contents to `take`, piece by piece; exactly `bytes` must come out, with the right checksum.
 * Returns: OK, CORRUPT, UNSUPPORTED, IO, NO_MEMORY, and what take returned.
 */
typedef aoticache_status (*aoticache_archive_take_fn)(void *user, const void *piece, size_t size,
                                                      aoticache_error *ret_error);
aoticache_status aoticache_archive_unpack(aoticache_archive *archive, uint64_t position, uint64_t bytes,
                                          aoticache_archive_take_fn take, void *user, aoticache_error *ret_error);

/* ---- names ---- */

#define AOTICACHE_PACKAGE_MODEL_NAME_BYTES 256 /* with the terminator: aoticache_package_report.model */
#define AOTICACHE_PACKAGE_REASON_BYTES 96

/*
 * Whether a name may be in a package: relative, of proper components (none empty, "." or ".."), without '\', control
 * characters and what is not UTF-8. One '/' at the end, a folder, is allowed.
 */
bool aoticache_package_name_is_safe(const char *name, char ret_reason[AOTICACHE_PACKAGE_REASON_BYTES]);

/*
 * Splits "[TOP/]data/aotinductor/MODEL/FILE": MODEL (of any number of components) and FILE. False for anything else.
 */
bool aoticache_package_name_split(const char *name, const char **ret_model, size_t *ret_model_length,
                                  const char **ret_file);

/* Whether the name ends so and has something before it. */
bool aoticache_package_name_ends(const char *name, const char *suffix);

/* What a file is, by its name alone; libraries other than the model's own are SIDE. library: the model's own. */
aoticache_part_kind aoticache_package_kind_of(const char *file, const char *library);

/* ---- metadata ---- */

/* Of all models of a package together. PyTorch writes some hundred bytes, ten values, for each. */
#define AOTICACHE_PACKAGE_METADATA_MAX_BYTES (1u << 20)
#define AOTICACHE_PACKAGE_METADATA_MAX_VALUES 65536u

/* How many values the JSON text can have at most, found without parsing it. */
size_t aoticache_package_metadata_count(const char *text, size_t size);

#endif
