/*
 * loader/package: what the files of the package reader share: the archive (archive.c) and the check of the names in it
 * (names.c); package.c uses both.
 *
 * Private to loader/package/.
 */
#ifndef AOTICACHE_LOADER_PACKAGE_INTERNAL_H
#define AOTICACHE_LOADER_PACKAGE_INTERNAL_H

#include "loader/package/package.h"

/* ---- the archive: entries by position, without their meaning ---- */

typedef struct aoticache_archive aoticache_archive;

typedef struct aoticache_archive_entry {
    const char *name;    /* as it is in the archive, unchecked; borrowed from the archive */
    uint64_t bytes;      /* unpacked size, according to the archive */
    uint64_t compressed; /* size in the archive */
    uint16_t method;     /* compression method: 0 stored, 8 deflated */
    bool encrypted;
    uint32_t mode; /* of the file, if a Unix program made the archive: S_IFMT and permissions; otherwise 0 */
} aoticache_archive_entry;

#define AOTICACHE_ARCHIVE_STORED 0
#define AOTICACHE_ARCHIVE_DEFLATED 8

/* fd: borrowed as long as the archive is open. Returns: OK, INVALID, UNSUPPORTED (no libzip), IO, NO_MEMORY. */
aoticache_status aoticache_archive_open(int fd, const char *name, aoticache_archive **ret_archive,
                                        aoticache_error *ret_error);
/* Closes the archive. NULL is allowed. */
void aoticache_archive_close(aoticache_archive *archive);
uint64_t aoticache_archive_entry_count(const aoticache_archive *archive);
/* Returns the size of the whole file. */
uint64_t aoticache_archive_bytes(const aoticache_archive *archive);
/* Returns the name, for messages. */
const char *aoticache_archive_name(const aoticache_archive *archive);
aoticache_status aoticache_archive_read_entry(aoticache_archive *archive, uint64_t position,
                                              aoticache_archive_entry *ret_entry, aoticache_error *ret_error);
/*
 * Passes an entry's contents to `take`, piece by piece; the contents must have exactly `bytes`, with the right
 * checksum.
 * Returns: OK, CORRUPT, UNSUPPORTED, IO, NO_MEMORY, and any error that take returned.
 */
typedef aoticache_status (*aoticache_archive_take_fn)(void *user, const void *piece, size_t size,
                                                      aoticache_error *ret_error);
aoticache_status aoticache_archive_unpack(aoticache_archive *archive, uint64_t position, uint64_t bytes,
                                          aoticache_archive_take_fn take, void *user, aoticache_error *ret_error);

/* ---- names ---- */

#define AOTICACHE_PACKAGE_MODEL_NAME_BYTES 256 /* with the terminator: aoticache_package_report.model */
#define AOTICACHE_PACKAGE_REASON_BYTES 96

/*
 * Returns whether a name may be in a package: relative, no component empty, "." or "..", valid UTF-8, without '\' and
 * control characters. One '/' at the end (a directory) is allowed.
 */
bool aoticache_package_name_is_safe(const char *name, char ret_reason[AOTICACHE_PACKAGE_REASON_BYTES]);

/*
 * Splits "[TOP/]data/aotinductor/MODEL/FILE": MODEL (of any number of components) and FILE. False for anything else.
 */
bool aoticache_package_name_split(const char *name, const char **ret_model, size_t *ret_model_length,
                                  const char **ret_file);

/* Returns whether the name ends with `suffix` and is longer. */
bool aoticache_package_name_ends(const char *name, const char *suffix);

/* Returns what a file is, by its name alone; libraries other than the model's (`library`) are SIDE. */
aoticache_part_kind aoticache_package_kind_of(const char *file, const char *library);

/* ---- metadata ---- */

/*
 * Limit for the metadata of all models of a package together. PyTorch writes some hundred bytes, ten values, for each.
 */
#define AOTICACHE_PACKAGE_METADATA_MAX_BYTES (1u << 20)
#define AOTICACHE_PACKAGE_METADATA_MAX_VALUES 65536u

/* Returns an upper limit for the number of values in the JSON text, without parsing it. */
size_t aoticache_package_metadata_count(const char *text, size_t size);

#endif
