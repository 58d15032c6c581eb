/*
 * base/digest: SHA-256 of memory and of files, with libcrypto; digests as text; checksums, with xxHash.
 *
 * The low-level SHA256_* functions are used if libcrypto still has them. The first EVP digest of a process sets up providers
 * and reads the configuration, which costs 0.75 ms and 1.9 MB of memory (measured with OpenSSL 3.0). The low-level functions
 * avoid that, are as fast, and leave the process-wide state alone. If libcrypto lacks them, EVP is used.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/digest.h"
#include "base/names.h"
#include "base/files/read_ahead.h"

#include <errno.h>
#include <openssl/opensslconf.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Bytes between two calls of the continue function: a hundredth of a second of work, or less. */
#define QUESTION_BYTES (UINT64_C(4) << 20)

/* Large enough to make system calls cheap compared with hashing; a larger buffer would permanently occupy stack memory. */
#define PIECE_BYTES (16 * 1024)

/* A file of this size takes two milliseconds to hash: some fifty times what starting a thread takes. */
#define READ_AHEAD_BYTES (4 << 20)

#ifndef OPENSSL_NO_DEPRECATED_3_0

typedef SHA256_CTX hasher;

static aoticache_status hasher_begin(hasher *h)
{
    return SHA256_Init(h) == 1 ? AOTICACHE_OK : AOTICACHE_UNSUPPORTED;
}

static aoticache_status hasher_update(hasher *h, const void *bytes, size_t size)
{
    return SHA256_Update(h, bytes, size) == 1 ? AOTICACHE_OK : AOTICACHE_UNSUPPORTED;
}

static aoticache_status hasher_end(hasher *h, aoticache_digest *ret_digest)
{
    return SHA256_Final(ret_digest->bytes, h) == 1 ? AOTICACHE_OK : AOTICACHE_UNSUPPORTED;
}

static void hasher_abandon(hasher *h)
{
    (void)h;
}

#else

#include <openssl/evp.h>

typedef EVP_MD_CTX *hasher;

static aoticache_status hasher_begin(hasher *h)
{
    *h = EVP_MD_CTX_new();
    if (*h == NULL)
        return AOTICACHE_NO_MEMORY;
    if (EVP_DigestInit_ex(*h, EVP_sha256(), NULL) == 1)
        return AOTICACHE_OK;
    EVP_MD_CTX_free(*h);
    *h = NULL;
    return AOTICACHE_UNSUPPORTED;
}

static aoticache_status hasher_update(hasher *h, const void *bytes, size_t size)
{
    return EVP_DigestUpdate(*h, bytes, size) == 1 ? AOTICACHE_OK : AOTICACHE_UNSUPPORTED;
}

static aoticache_status hasher_end(hasher *h, aoticache_digest *ret_digest)
{
    int done = EVP_DigestFinal_ex(*h, ret_digest->bytes, NULL);
    EVP_MD_CTX_free(*h);
    *h = NULL;
    return done == 1 ? AOTICACHE_OK : AOTICACHE_UNSUPPORTED;
}

static void hasher_abandon(hasher *h)
{
    EVP_MD_CTX_free(*h);
}

#endif

void aoticache_digest_to_hex(const aoticache_digest *digest, char ret_hex[AOTICACHE_DIGEST_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < AOTICACHE_DIGEST_BYTES; i++) {
        ret_hex[2 * i] = digits[digest->bytes[i] >> 4];
        ret_hex[2 * i + 1] = digits[digest->bytes[i] & 15];
    }
    ret_hex[2 * AOTICACHE_DIGEST_BYTES] = '\0';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

aoticache_status aoticache_digest_from_hex(const char *hex, aoticache_digest *ret_digest)
{
    aoticache_digest digest;
    if (hex == NULL || ret_digest == NULL)
        return AOTICACHE_INVALID;
    for (size_t i = 0; i < AOTICACHE_DIGEST_BYTES; i++) {
        int high = hex_value(hex[2 * i]);
        int low = high < 0 ? -1 : hex_value(hex[2 * i + 1]);
        if (low < 0)
            return AOTICACHE_INVALID;
        digest.bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (hex[2 * AOTICACHE_DIGEST_BYTES] != '\0')
        return AOTICACHE_INVALID;
    *ret_digest = digest;
    return AOTICACHE_OK;
}

aoticache_status aoticache_digest_of(const void *bytes, size_t size, aoticache_digest *ret_digest)
{
    hasher h;
    aoticache_digest digest;
    aoticache_status status = hasher_begin(&h);
    if (status != AOTICACHE_OK)
        return status;
    status = hasher_update(&h, bytes, size);
    if (status != AOTICACHE_OK) {
        hasher_abandon(&h);
        return status;
    }
    status = hasher_end(&h, &digest);
    if (status == AOTICACHE_OK)
        *ret_digest = digest;
    return status;
}

/* ---- checksums ---- */

static aoticache_checksum checksum_from(XXH128_hash_t hash)
{
    return (aoticache_checksum){.low = hash.low64, .high = hash.high64};
}

aoticache_checksum aoticache_checksum_of(const void *bytes, size_t size)
{
    return checksum_from(XXH3_128bits(bytes, size));
}

bool aoticache_checksum_equal(const aoticache_checksum *a, const aoticache_checksum *b)
{
    return a->low == b->low && a->high == b->high;
}

/* ---- files ---- */

/* The source of a file's bytes. */
struct source {
    int fd;
    aoticache_memory_copy *copy;
    aoticache_read_ahead *ahead; /* NULL: each piece is read when it is needed */
    uint64_t offset;
    uint8_t *buffer; /* of PIECE_BYTES */
};

static bool is_large(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && found.st_size >= READ_AHEAD_BYTES;
}

/* Like aoticache_read_ahead_next(). The bytes are copied from the hashed buffer, so the copy has exactly the bytes of the
 * digest. */
static ssize_t next_piece(struct source *source, const uint8_t **ret_bytes)
{
    ssize_t got;
    if (source->ahead != NULL) {
        got = aoticache_read_ahead_next(source->ahead, ret_bytes);
    } else {
        do
            got = pread(source->fd, source->buffer, PIECE_BYTES, (off_t)source->offset);
        while (got < 0 && errno == EINTR);
        if (got > 0)
            aoticache_memory_copy_add(source->copy, source->buffer, (size_t)got, source->offset);
        *ret_bytes = source->buffer;
    }
    if (got > 0)
        source->offset += (uint64_t)got;
    return got;
}

/* The results computed from the bytes. */
struct sums {
    bool has_digest, has_checksum;
    hasher digest;
    XXH3_state_t checksum;
};

static aoticache_status sums_begin(struct sums *sums, const aoticache_digest_pass *pass)
{
    sums->has_digest = pass->ret_digest != NULL;
    sums->has_checksum = pass->ret_checksum != NULL;
    if (sums->has_checksum)
        XXH3_128bits_reset(&sums->checksum);
    return sums->has_digest ? hasher_begin(&sums->digest) : AOTICACHE_OK;
}

static aoticache_status sums_update(struct sums *sums, const uint8_t *bytes, size_t size)
{
    if (sums->has_checksum)
        XXH3_128bits_update(&sums->checksum, bytes, size);
    return sums->has_digest ? hasher_update(&sums->digest, bytes, size) : AOTICACHE_OK;
}

static aoticache_status sums_end(struct sums *sums, const aoticache_digest_pass *pass)
{
    aoticache_digest digest;
    aoticache_status status = sums->has_digest ? hasher_end(&sums->digest, &digest) : AOTICACHE_OK;
    if (status == AOTICACHE_OK && sums->has_digest)
        *pass->ret_digest = digest;
    if (status == AOTICACHE_OK && sums->has_checksum)
        *pass->ret_checksum = checksum_from(XXH3_128bits_digest(&sums->checksum));
    return status;
}

static aoticache_status add_pieces(struct source *source, struct sums *sums, const aoticache_digest_pass *pass,
                                   aoticache_error *ret_error)
{
    for (;;) {
        const uint8_t *bytes;
        const ssize_t got = next_piece(source, &bytes);
        if (got < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot read at byte %llu",
                                             (unsigned long long)source->offset);
        if (got == 0)
            return AOTICACHE_OK;
        aoticache_status status = sums_update(sums, bytes, (size_t)got);
        if (status != AOTICACHE_OK)
            return aoticache_error_set(ret_error, status, "libcrypto cannot continue a SHA-256 digest");
        if (pass->continues != NULL && source->offset % QUESTION_BYTES < (uint64_t)got && !pass->continues(pass->user))
            return aoticache_error_set(ret_error, AOTICACHE_IO, "stopped after %llu bytes",
                                       (unsigned long long)source->offset);
    }
}

aoticache_status aoticache_digest_pass_over(int fd, const aoticache_digest_pass *pass, uint64_t *ret_size,
                                            aoticache_error *ret_error)
{
    struct sums sums;
    uint8_t buffer[PIECE_BYTES];
    struct source source = {.fd = fd, .copy = pass->copy, .buffer = buffer};
    aoticache_status status = sums_begin(&sums, pass);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "libcrypto cannot start a SHA-256 digest");
    if (pass->copy != NULL && is_large(fd))
        source.ahead = aoticache_read_ahead_begin(fd, pass->copy);
    status = add_pieces(&source, &sums, pass, ret_error);
    aoticache_read_ahead_end(source.ahead);
    if (status != AOTICACHE_OK) {
        if (sums.has_digest)
            hasher_abandon(&sums.digest);
        return status;
    }
    status = sums_end(&sums, pass);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "libcrypto cannot finish a SHA-256 digest");
    if (ret_size != NULL)
        *ret_size = source.offset;
    return AOTICACHE_OK;
}

aoticache_status aoticache_digest_of_fd(int fd, aoticache_digest *ret_digest, uint64_t *ret_size,
                                        aoticache_error *ret_error)
{
    return aoticache_digest_of_fd_while(fd, NULL, NULL, ret_digest, ret_size, ret_error);
}

aoticache_status aoticache_digest_of_fd_while(int fd, aoticache_continue_fn continues, void *user,
                                              aoticache_digest *ret_digest, uint64_t *ret_size,
                                              aoticache_error *ret_error)
{
    const aoticache_digest_pass pass = {.continues = continues, .user = user, .ret_digest = ret_digest};
    return aoticache_digest_pass_over(fd, &pass, ret_size, ret_error);
}

aoticache_status aoticache_digest_of_fd_copying(int fd, aoticache_memory_copy *copy, aoticache_digest *ret_digest,
                                                uint64_t *ret_size, aoticache_error *ret_error)
{
    const aoticache_digest_pass pass = {.copy = copy, .ret_digest = ret_digest};
    return aoticache_digest_pass_over(fd, &pass, ret_size, ret_error);
}
