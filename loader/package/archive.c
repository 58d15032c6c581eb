/*
 * loader/package/archive: ZIP archives through libzip: entries, their sizes, their verified contents.
 *
 * libzip is loaded with the first archive and stays loaded; its types come from zip.h, its functions are found by name.
 * It reads through a callback that uses pread on a descriptor: no path is opened, no file position changed. What the
 * entries mean and which are acceptable is left to package.c.
 */
#include "loader/package/package_internal.h"

#include "base/cleanup.h"
#include "base/process/optional_library.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

/*
 * The soname that the build found. The other names are those of libzip 1.x in distributions: all have the functions
 * used here.
 */
#ifndef AOTICACHE_ZIP_LIBRARY
#define AOTICACHE_ZIP_LIBRARY ""
#endif

#define PIECE_BYTES (256 * 1024)

/* ---- libzip ---- */

#define ZIP_FUNCTION_LIST(X)                                                                                      \
    X(zip_source_t *, source_function_create, (zip_source_callback, void *, zip_error_t *))                       \
    X(void, source_free, (zip_source_t *))                                                                        \
    X(zip_int64_t, source_make_command_bitmap, (zip_source_cmd_t, ...))                                           \
    X(zip_int64_t, source_seek_compute_offset, (zip_uint64_t, zip_uint64_t, void *, zip_uint64_t, zip_error_t *)) \
    X(zip_t *, open_from_source, (zip_source_t *, int, zip_error_t *))                                            \
    X(void, discard, (zip_t *))                                                                                   \
    X(zip_int64_t, get_num_entries, (zip_t *, zip_flags_t))                                                       \
    X(const char *, get_name, (zip_t *, zip_uint64_t, zip_flags_t))                                               \
    X(int, stat_index, (zip_t *, zip_uint64_t, zip_flags_t, zip_stat_t *))                                        \
    X(int, file_get_external_attributes, (zip_t *, zip_uint64_t, zip_flags_t, zip_uint8_t *, zip_uint32_t *))     \
    X(zip_file_t *, fopen_index, (zip_t *, zip_uint64_t, zip_flags_t))                                            \
    X(zip_int64_t, fread, (zip_file_t *, void *, zip_uint64_t))                                                   \
    X(int, fclose, (zip_file_t *))                                                                                \
    X(zip_error_t *, get_error, (zip_t *))                                                                        \
    X(zip_error_t *, file_get_error, (zip_file_t *))                                                              \
    X(void, error_init, (zip_error_t *))                                                                          \
    X(void, error_fini, (zip_error_t *))                                                                          \
    X(void, error_set, (zip_error_t *, int, int))                                                                 \
    X(int, error_code_zip, (const zip_error_t *))                                                                 \
    X(const char *, error_strerror, (zip_error_t *))                                                              \
    X(zip_int64_t, error_to_data, (const zip_error_t *, void *, zip_uint64_t))                                    \
    X(const char *, libzip_version, (void))

static struct {
#define ZIP_FIELD(result, name, parameters) result(*name) parameters;
    ZIP_FUNCTION_LIST(ZIP_FIELD)
#undef ZIP_FIELD
} zip;
static atomic_bool zip_is_there;

static aoticache_status need_zip(aoticache_error *ret_error)
{
    static const char *const names[] = {AOTICACHE_ZIP_LIBRARY, "libzip.so.5", "libzip.so.4"};
    static const aoticache_library_function table[] = {
#define ZIP_ENTRY(result, name, parameters) {"zip_" #name, &zip.name},
        ZIP_FUNCTION_LIST(ZIP_ENTRY)
#undef ZIP_ENTRY
    };
    char problem[AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES] = "libzip is not installed";
    if (aoticache_optional_library_open(&zip_is_there, names, sizeof names / sizeof names[0], table,
                                        sizeof table / sizeof table[0], "libzip 1.x", problem))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "packages need libzip, and %s: install it (Debian: libzip4, libzip5 or "
                               "libzip4t64; Fedora: libzip)",
                               problem);
}

/* Returns the status of an error of libzip. Errors of the archive itself become `otherwise`. */
static aoticache_status status_of_zip_error(const zip_error_t *error, aoticache_status otherwise)
{
    switch (zip.error_code_zip(error)) {
    case ZIP_ER_MEMORY:
        return AOTICACHE_NO_MEMORY;
    case ZIP_ER_READ:
    case ZIP_ER_SEEK:
    case ZIP_ER_TELL:
    case ZIP_ER_OPEN:
        return error->sys_err != 0 ? AOTICACHE_IO : otherwise;
    case ZIP_ER_COMPNOTSUPP:
    case ZIP_ER_ENCRNOTSUPP:
    case ZIP_ER_NOPASSWD:
    case ZIP_ER_MULTIDISK:
        return AOTICACHE_UNSUPPORTED;
    default:
        return otherwise;
    }
}

/* ---- the source: a descriptor read with pread ---- */

struct aoticache_archive {
    int fd;
    uint64_t bytes, offset;
    zip_error_t error; /* the source's last error */
    int read_errno;    /* the first error of pread(), which libzip may take for the end of the archive; 0: none */
    zip_t *zip;
    char *name;
};

static zip_int64_t source_read(aoticache_archive *archive, void *data, uint64_t size)
{
    ssize_t got;
    do
        got = pread(archive->fd, data, size < (1u << 30) ? size : (1u << 30), (off_t)archive->offset);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        archive->read_errno = archive->read_errno != 0 ? archive->read_errno : errno;
        zip.error_set(&archive->error, ZIP_ER_READ, errno);
        return -1;
    }
    archive->offset += (uint64_t)got;
    return got;
}

static zip_int64_t source_stat(aoticache_archive *archive, void *data, uint64_t size)
{
    zip_stat_t found = {.valid = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD,
                        .size = archive->bytes,
                        .comp_size = archive->bytes,
                        .comp_method = ZIP_CM_STORE,
                        .encryption_method = ZIP_EM_NONE};
    if (size < sizeof found) {
        zip.error_set(&archive->error, ZIP_ER_INVAL, 0);
        return -1;
    }
    memcpy(data, &found, sizeof found);
    return sizeof found;
}

static zip_int64_t source_seek(aoticache_archive *archive, void *data, uint64_t size)
{
    zip_int64_t offset = zip.source_seek_compute_offset(archive->offset, archive->bytes, data, size, &archive->error);
    if (offset < 0)
        return -1;
    archive->offset = (uint64_t)offset;
    return 0;
}

static zip_int64_t source_function(void *user, void *data, zip_uint64_t size, zip_source_cmd_t command)
{
    aoticache_archive *archive = user;
    switch (command) {
    case ZIP_SOURCE_OPEN:
        archive->offset = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return source_read(archive, data, size);
    case ZIP_SOURCE_STAT:
        return source_stat(archive, data, size);
    case ZIP_SOURCE_SEEK:
        return source_seek(archive, data, size);
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)archive->offset;
    case ZIP_SOURCE_ERROR:
        return zip.error_to_data(&archive->error, data, size);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip.source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT,
                                              ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL,
                                              ZIP_SOURCE_SUPPORTS, -1);
    default:
        zip.error_set(&archive->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* ---- the archive ---- */

/*
 * Returns the flags for opening, without the consistency check for libzip 1.12 and later. Those compare data
 * descriptors too, and assume 24 bytes for each if the archive ends in a Zip64 record (_zip_checkcons(),
 * lib/zip_open.c). PyTorch always writes that record, with descriptors of 16 bytes, which is right for entries without
 * 64-bit sizes (APPNOTE 4.3.9.2): the check would refuse every package. package.c finds duplicate names; sizes and
 * checksums are checked when an entry is unpacked.
 */
static int open_flags(void)
{
    const char *version = zip.libzip_version();
    char *end = NULL;
    unsigned long major = strtoul(version, &end, 10);
    unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
    return major > 1 || minor >= 12 ? ZIP_RDONLY : ZIP_RDONLY | ZIP_CHECKCONS;
}

static aoticache_status open_zip(aoticache_archive *archive, aoticache_error *ret_error)
{
    zip_error_t error;
    zip.error_init(&error);
    errno = 0;
    zip_source_t *source = zip.source_function_create(source_function, archive, &error);
    if (source != NULL)
        archive->zip = zip.open_from_source(source, open_flags(), &error);
    const bool is_out_of_memory = errno == ENOMEM; /* libzip may take that for the end of the archive */
    aoticache_status status = AOTICACHE_OK;
    if (archive->zip == NULL && is_out_of_memory) {
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the archive %s", archive->name);
        zip.source_free(source);
    } else if (archive->zip == NULL) {
        status = aoticache_error_set(ret_error, status_of_zip_error(&error, AOTICACHE_INVALID),
                                     "%s is not a valid ZIP archive: %s", archive->name,
                                     zip.error_code_zip(&error) == ZIP_ER_EXISTS ? "it has a duplicate name"
                                                                                 : zip.error_strerror(&error));
        zip.source_free(source); /* open_from_source takes it over only on success */
    }
    zip.error_fini(&error);
    return status;
}

aoticache_status aoticache_archive_open(int fd, const char *name, aoticache_archive **ret_archive,
                                        aoticache_error *ret_error)
{
    struct stat found;
    if (fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read %s", name);
    if (!S_ISREG(found.st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s is not a regular file", name);
    aoticache_status status = need_zip(ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_archive *archive = calloc(1, sizeof *archive);
    if (archive == NULL || (archive->name = strdup(name)) == NULL) {
        free(archive);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %s", name);
    }
    archive->fd = fd;
    archive->bytes = (uint64_t)found.st_size;
    zip.error_init(&archive->error);
    status = open_zip(archive, ret_error);
    if (status == AOTICACHE_OK)
        *ret_archive = archive;
    else
        aoticache_archive_close(archive);
    return status;
}

void aoticache_archive_close(aoticache_archive *archive)
{
    if (archive == NULL)
        return;
    if (archive->zip != NULL)
        zip.discard(archive->zip);
    zip.error_fini(&archive->error);
    free(archive->name);
    free(archive);
}

uint64_t aoticache_archive_entry_count(const aoticache_archive *archive)
{
    zip_int64_t count = zip.get_num_entries(archive->zip, 0);
    return count > 0 ? (uint64_t)count : 0;
}

uint64_t aoticache_archive_bytes(const aoticache_archive *archive)
{
    return archive->bytes;
}

const char *aoticache_archive_name(const aoticache_archive *archive)
{
    return archive->name;
}

static aoticache_status fail_entry(aoticache_archive *archive, zip_error_t *error, uint64_t position,
                                   aoticache_status otherwise, aoticache_error *ret_error)
{
    const char *name = zip.get_name(archive->zip, position, ZIP_FL_ENC_RAW);
    if (archive->read_errno != 0) {
        const int error_number = archive->read_errno;
        archive->read_errno = 0;
        return aoticache_error_set_errno(ret_error, error_number, "%s: cannot read entry %llu, %.200s", archive->name,
                                         (unsigned long long)position, name != NULL ? name : "(no name)");
    }
    return aoticache_error_set(ret_error, status_of_zip_error(error, otherwise),
                               "%s: cannot read entry %llu, %.200s: %s", archive->name, (unsigned long long)position,
                               name != NULL ? name : "(no name)", zip.error_strerror(error));
}

aoticache_status aoticache_archive_read_entry(aoticache_archive *archive, uint64_t position,
                                              aoticache_archive_entry *ret_entry, aoticache_error *ret_error)
{
    const zip_uint64_t needed = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    zip_stat_t found = {.valid = 0};
    zip_uint8_t system = 0;
    zip_uint32_t attributes = 0;
    const char *name = zip.get_name(archive->zip, position, ZIP_FL_ENC_RAW);
    if (name == NULL || zip.stat_index(archive->zip, position, 0, &found) != 0 ||
        zip.file_get_external_attributes(archive->zip, position, 0, &system, &attributes) != 0)
        return fail_entry(archive, zip.get_error(archive->zip), position, AOTICACHE_INVALID, ret_error);
    if ((found.valid & needed) != needed)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: entry %llu has no size", archive->name,
                                   (unsigned long long)position);
    *ret_entry = (aoticache_archive_entry){.name = name,
                                           .bytes = found.size,
                                           .compressed = found.comp_size,
                                           .method = found.comp_method,
                                           .encrypted = (found.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 &&
                                                        found.encryption_method != ZIP_EM_NONE,
                                           .mode = system == ZIP_OPSYS_UNIX ? attributes >> 16 : 0};
    return AOTICACHE_OK;
}

static aoticache_status fail_size(const aoticache_archive *archive, uint64_t position, const char *relation,
                                  uint64_t got, uint64_t bytes, aoticache_error *ret_error)
{
    const char *name = zip.get_name(archive->zip, position, ZIP_FL_ENC_RAW);
    return aoticache_error_set(
        ret_error, AOTICACHE_CORRUPT, "%s: %.200s unpacks to %s%llu bytes, but the archive declares %llu",
        archive->name, name != NULL ? name : "an entry", relation, (unsigned long long)got, (unsigned long long)bytes);
}

/* libzip compares the checksum when it reaches the end, so the file is read up to its end. */
static aoticache_status unpack_file(aoticache_archive *archive, zip_file_t *file, uint64_t position, uint64_t bytes,
                                    aoticache_archive_take_fn take, void *user, aoticache_error *ret_error)
{
    cleanup_free char *piece = malloc(PIECE_BYTES);
    if (piece == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to unpack %s", archive->name);
    for (uint64_t all = 0;;) {
        zip_int64_t got = zip.fread(file, piece, PIECE_BYTES);
        if (got < 0)
            return fail_entry(archive, zip.file_get_error(file), position, AOTICACHE_CORRUPT, ret_error);
        if (got == 0)
            return all == bytes ? AOTICACHE_OK : fail_size(archive, position, "", all, bytes, ret_error);
        all += (uint64_t)got;
        if (all > bytes)
            return fail_size(archive, position, "at least ", all, bytes, ret_error);
        aoticache_status status = take(user, piece, (size_t)got, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
}

aoticache_status aoticache_archive_unpack(aoticache_archive *archive, uint64_t position, uint64_t bytes,
                                          aoticache_archive_take_fn take, void *user, aoticache_error *ret_error)
{
    zip_file_t *file = zip.fopen_index(archive->zip, position, 0);
    if (file == NULL)
        return fail_entry(archive, zip.get_error(archive->zip), position, AOTICACHE_CORRUPT, ret_error);
    aoticache_status status = unpack_file(archive, file, position, bytes, take, user, ret_error);
    zip.fclose(file);
    return status;
}
