/*
 * cache/remote/zstd: objects as frames of zstd (RFC 8878). libzstd is loaded with the first object that is sent to a remote
 * or fetched from one, so that a process without remotes does not load it.
 */
#include "cache/remote/remote_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/process/optional_library.h"
#include "base/syscalls.h"

#define LEVEL 3
#define PIECE_BYTES 131072
/* The memory window that a frame may require of a decoder: 2 MiB, or about the size of its contents, at most 128 MiB. */
#define MIN_WINDOW_LOG 21
#define MAX_WINDOW_LOG 27

/* libzstd's stable interface, unchanged since 1.4: the build needs no header. */
typedef struct zstd_in {
    const void *bytes;
    size_t size, at;
} zstd_in;

typedef struct zstd_out {
    void *bytes;
    size_t size, at;
} zstd_out;

#define WINDOW_LOG_MAX 100 /* ZSTD_d_windowLogMax */

#define FUNCTION_LIST(X)                                             \
    X(size_t, compressBound, (size_t))                               \
    X(size_t, compress, (void *, size_t, const void *, size_t, int)) \
    X(unsigned, isError, (size_t))                                   \
    X(void *, createDStream, (void))                                 \
    X(size_t, freeDStream, (void *))                                 \
    X(size_t, DCtx_setParameter, (void *, int, int))                 \
    X(size_t, decompressStream, (void *, zstd_out *, zstd_in *))

static struct {
#define FUNCTION(result, name, parameters) result(*name) parameters;
    FUNCTION_LIST(FUNCTION)
#undef FUNCTION
} zstd;
static atomic_bool is_there;

static aoticache_status need_library(aoticache_error *ret_error)
{
    static const char *const names[] = {"libzstd.so.1"};
    static const aoticache_library_function table[] = {
#define ENTRY(result, name, parameters) {"ZSTD_" #name, &zstd.name},
        FUNCTION_LIST(ENTRY)
#undef ENTRY
    };
    char problem[AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES] = "libzstd.so.1 (1.4 or newer) cannot be loaded";
    if (aoticache_optional_library_open(&is_there, names, 1, table, sizeof table / sizeof table[0], "zstd 1.4",
                                        problem))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "remotes need zstd to compress objects, and %s: install it (Debian: libzstd1; "
                               "Fedora: libzstd)",
                               problem);
}

aoticache_status aoticache_zstd_compress(const void *bytes, size_t size, void **ret_packed, size_t *ret_size,
                                         aoticache_error *ret_error)
{
    aoticache_status status = need_library(ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const size_t bound = zstd.compressBound(size);
    cleanup_free void *packed = malloc(bound);
    const size_t length = packed != NULL ? zstd.compress(packed, bound, bytes, size, LEVEL) : 0;
    if (packed == NULL || zstd.isError(length))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to compress %zu bytes", size);
    *ret_packed = steal_ptr(&packed);
    *ret_size = length;
    return AOTICACHE_OK;
}

uint64_t aoticache_zstd_bound(uint64_t bytes)
{
    return bytes + bytes / 128 + 1024; /* for incompressible bytes, and all headers of a frame */
}

/* ---- unpacking ---- */

struct aoticache_unpacker {
    void *stream;
    int fd;
    uint8_t *memory;
    uint64_t expected, written;
    const char *problem; /* with the received bytes */
    int errno_value;     /* of a failed write */
    bool is_whole;       /* the frame is complete */
    uint8_t piece[PIECE_BYTES];
};

static int window_log(uint64_t expected)
{
    int log = MIN_WINDOW_LOG;
    while (log < MAX_WINDOW_LOG && (UINT64_C(1) << log) < expected)
        log++;
    return log;
}

aoticache_status aoticache_unpacker_create(int fd, uint8_t *memory, uint64_t expected,
                                           aoticache_unpacker **ret_unpacker, aoticache_error *ret_error)
{
    aoticache_status status = need_library(ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_unpacker *unpacker = malloc(sizeof *unpacker);
    void *stream = zstd.createDStream();
    if (unpacker == NULL || stream == NULL ||
        zstd.isError(zstd.DCtx_setParameter(stream, WINDOW_LOG_MAX, window_log(expected)))) {
        free(unpacker);
        zstd.freeDStream(stream);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to unpack an object");
    }
    unpacker->stream = stream;
    unpacker->fd = fd;
    unpacker->memory = memory;
    unpacker->expected = expected;
    unpacker->written = 0;
    unpacker->problem = NULL;
    unpacker->errno_value = 0;
    unpacker->is_whole = false;
    *ret_unpacker = unpacker;
    return AOTICACHE_OK;
}

static bool write_piece(aoticache_unpacker *unpacker, size_t size)
{
    if (size > unpacker->expected - unpacker->written) {
        unpacker->problem = "it has more bytes than expected";
        return false;
    }
    if (unpacker->fd < 0)
        memcpy(unpacker->memory + unpacker->written, unpacker->piece, size);
    else if (size > 0 && aoticache_syscall_write(unpacker->fd, unpacker->piece, size) != 0) {
        unpacker->errno_value = errno;
        return false;
    }
    unpacker->written += size;
    return true;
}

bool aoticache_unpacker_take(void *opaque, const void *bytes, size_t size)
{
    aoticache_unpacker *unpacker = opaque;
    zstd_in in = {.bytes = bytes, .size = size};
    bool is_full = true; /* the last output buffer was full: there may be more output */
    while (in.at < in.size || (is_full && !unpacker->is_whole)) {
        zstd_out out = {.bytes = unpacker->piece, .size = sizeof unpacker->piece};
        if (unpacker->is_whole) {
            unpacker->problem = "it has bytes after its end";
            return false;
        }
        const size_t result = zstd.decompressStream(unpacker->stream, &out, &in);
        if (zstd.isError(result)) {
            unpacker->problem = "it is not a zstd frame";
            return false;
        }
        unpacker->is_whole = result == 0;
        is_full = out.at == out.size;
        if (!write_piece(unpacker, out.at))
            return false;
    }
    return true;
}

bool aoticache_unpacker_take_plain(void *opaque, const void *bytes, size_t size)
{
    aoticache_unpacker *unpacker = opaque;
    for (size_t at = 0; at < size;) {
        const size_t piece = size - at < sizeof unpacker->piece ? size - at : sizeof unpacker->piece;
        memcpy(unpacker->piece, (const uint8_t *)bytes + at, piece);
        if (!write_piece(unpacker, piece))
            return false;
        at += piece;
    }
    unpacker->is_whole = unpacker->written == unpacker->expected;
    return true;
}

aoticache_status aoticache_unpacker_finish(const aoticache_unpacker *unpacker, aoticache_error *ret_error)
{
    if (unpacker->errno_value != 0)
        return aoticache_error_set_errno(ret_error, unpacker->errno_value, "cannot write an object");
    if (unpacker->problem != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s", unpacker->problem);
    if (!unpacker->is_whole || unpacker->written != unpacker->expected)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "it unpacks to %llu bytes, expected %llu%s",
                                   (unsigned long long)unpacker->written, (unsigned long long)unpacker->expected,
                                   unpacker->is_whole ? "" : ", and it is truncated");
    return AOTICACHE_OK;
}

bool aoticache_unpacker_has_refused(const aoticache_unpacker *unpacker)
{
    return unpacker->problem != NULL;
}

void aoticache_unpacker_free(aoticache_unpacker *unpacker)
{
    if (unpacker == NULL)
        return;
    zstd.freeDStream(unpacker->stream);
    free(unpacker);
}
