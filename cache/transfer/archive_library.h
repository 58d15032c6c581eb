/*
 * cache/transfer/archive_library: libarchive's functions, found by name.
 *
 * Private to the files archive*.c of cache/transfer/, and only if archive.h is present at build time.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_ARCHIVE_LIBRARY_H
#define AOTICACHE_CACHE_TRANSFER_ARCHIVE_LIBRARY_H

#include "base/base.h"

#if defined(__has_include)
#if __has_include(<archive.h>) && __has_include(<archive_entry.h>)
#define AOTICACHE_HAS_LIBARCHIVE 1
#endif
#endif

#ifdef AOTICACHE_HAS_LIBARCHIVE

#include <archive.h>
#include <archive_entry.h>

/* result, name after "archive_", parameters */
#define AOTICACHE_ARCHIVE_FUNCTION_LIST(X)                                                                     \
    X(struct archive *, write_new, (void))                                                                     \
    X(int, write_add_filter_zstd, (struct archive *))                                                          \
    X(int, write_set_format_pax_restricted, (struct archive *))                                                \
    X(int, write_set_bytes_in_last_block, (struct archive *, int))                                             \
    X(int, write_set_filter_option, (struct archive *, const char *, const char *, const char *))              \
    X(int, write_open,                                                                                         \
      (struct archive *, void *, archive_open_callback *, archive_write_callback *, archive_close_callback *)) \
    X(int, write_header, (struct archive *, struct archive_entry *))                                           \
    X(la_ssize_t, write_data, (struct archive *, const void *, size_t))                                        \
    X(int, write_close, (struct archive *))                                                                    \
    X(int, write_fail, (struct archive *))                                                                     \
    X(int, write_free, (struct archive *))                                                                     \
    X(struct archive *, read_new, (void))                                                                      \
    X(int, read_support_filter_zstd, (struct archive *))                                                       \
    X(int, read_support_format_tar, (struct archive *))                                                        \
    X(int, read_open,                                                                                          \
      (struct archive *, void *, archive_open_callback *, archive_read_callback *, archive_close_callback *))  \
    X(int, read_next_header, (struct archive *, struct archive_entry **))                                      \
    X(int, read_data_block, (struct archive *, const void **, size_t *, la_int64_t *))                         \
    X(int, read_free, (struct archive *))                                                                      \
    X(la_int64_t, filter_bytes, (struct archive *, int))                                                       \
    X(int, errno, (struct archive *))                                                                          \
    X(const char *, error_string, (struct archive *))                                                          \
    X(void, set_error, (struct archive *, int, const char *, ...))                                             \
    X(struct archive_entry *, entry_new, (void))                                                               \
    X(struct archive_entry *, entry_clear, (struct archive_entry *))                                           \
    X(void, entry_free, (struct archive_entry *))                                                              \
    X(void, entry_set_pathname, (struct archive_entry *, const char *))                                        \
    X(void, entry_set_size, (struct archive_entry *, la_int64_t))                                              \
    X(void, entry_set_filetype, (struct archive_entry *, unsigned int))                                        \
    X(void, entry_set_perm, (struct archive_entry *, __LA_MODE_T))                                             \
    X(void, entry_set_mtime, (struct archive_entry *, time_t, long))                                           \
    X(void, entry_set_uid, (struct archive_entry *, la_int64_t))                                               \
    X(void, entry_set_gid, (struct archive_entry *, la_int64_t))                                               \
    X(const char *, entry_pathname, (struct archive_entry *))                                                  \
    X(const char *, entry_hardlink, (struct archive_entry *))                                                  \
    X(const char *, entry_symlink, (struct archive_entry *))                                                   \
    X(__LA_MODE_T, entry_filetype, (struct archive_entry *))                                                   \
    X(la_int64_t, entry_size, (struct archive_entry *))                                                        \
    X(int, entry_size_is_set, (struct archive_entry *))                                                        \
    X(int, entry_sparse_count, (struct archive_entry *))

/* Member names end in '_', because <errno.h> defines a macro with one of the names. */
typedef struct aoticache_archive_functions {
#define AOTICACHE_ARCHIVE_FIELD(result, name, parameters) result(*name##_) parameters;
    AOTICACHE_ARCHIVE_FUNCTION_LIST(AOTICACHE_ARCHIVE_FIELD)
#undef AOTICACHE_ARCHIVE_FIELD
} aoticache_archive_functions;

/* Opens libarchive on first use. *ret_functions has static storage. Returns: OK, UNSUPPORTED. */
aoticache_status aoticache_archive_library_open(const aoticache_archive_functions **ret_functions,
                                                aoticache_error *ret_error);

#endif

/* Returns UNSUPPORTED with a message that says what to do, if there is no libarchive. */
aoticache_status aoticache_archive_library_missing(aoticache_error *ret_error);

#endif
