/*
 * base: statuses, error detail, digests, names, devices.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/names.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(status, every_number_has_its_name_and_text)
{
    cr_assert_eq(AOTICACHE_OK, 0);
#define CHECK_STATUS(name, number, text)                              \
    cr_assert_eq((int)AOTICACHE_##name, number);                      \
    cr_assert_str_eq(aoticache_status_name(AOTICACHE_##name), #name); \
    cr_assert_str_eq(aoticache_status_text(AOTICACHE_##name), text);
    AOTICACHE_STATUS_LIST(CHECK_STATUS)
#undef CHECK_STATUS
    cr_assert_str_eq(aoticache_status_name((aoticache_status)999), "UNKNOWN");
}

Test(text, free_takes_null_and_keeps_errno)
{
    errno = EBADF;
    aoticache_free(NULL);
    aoticache_free(strdup("a text"));
    cr_assert_eq(errno, EBADF);
}

Test(error, set_formats_and_keeps_errno)
{
    aoticache_error error;
    errno = EBADF;
    cr_assert_eq(aoticache_error_set(&error, AOTICACHE_CORRUPT, "%d bytes on disk, manifest says %d", 4096, 8192),
                 AOTICACHE_CORRUPT);
    cr_assert_eq(errno, EBADF);
    cr_assert_eq(error.status, AOTICACHE_CORRUPT);
    cr_assert_str_eq(error.message, "4096 bytes on disk, manifest says 8192");
    cr_assert_eq(aoticache_error_set(NULL, AOTICACHE_IO, "nobody listens"), AOTICACHE_IO);
}

Test(error, set_cuts_off_what_does_not_fit)
{
    aoticache_error error;
    char text[AOTICACHE_ERROR_MESSAGE_BYTES * 2];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    aoticache_error_set(&error, AOTICACHE_IO, "%s", text);
    cr_assert_eq(strlen(error.message), AOTICACHE_ERROR_MESSAGE_BYTES - 1);
    aoticache_error_set_errno(&error, EIO, "%s", text);
    cr_assert_eq(strlen(error.message), AOTICACHE_ERROR_MESSAGE_BYTES - 1);
}

Test(error, set_errno_derives_the_status)
{
    aoticache_error error;
    cr_assert_eq(aoticache_error_set_errno(&error, ENOMEM, "x"), AOTICACHE_NO_MEMORY);
    cr_assert_eq(aoticache_error_set_errno(&error, EACCES, "x"), AOTICACHE_DENIED);
    cr_assert_eq(aoticache_error_set_errno(&error, ELOOP, "x"), AOTICACHE_DENIED);
    cr_assert_eq(aoticache_error_set_errno(&error, ENOSPC, "cannot write %s", "objects/ab"), AOTICACHE_IO);
    cr_assert_str_eq(error.message, "cannot write objects/ab: No space left on device");
}

/* FIPS 180-4 test vectors. */
Test(digest, of_known_messages)
{
    static const struct {
        const char *message, *hex;
    } vectors[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        aoticache_digest digest;
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        cr_assert_eq(aoticache_digest_of(vectors[i].message, strlen(vectors[i].message), &digest), AOTICACHE_OK);
        aoticache_digest_to_hex(&digest, hex);
        cr_assert_str_eq(hex, vectors[i].hex);
    }
}

Test(digest, of_fd_hashes_from_the_beginning_and_leaves_the_position)
{
    char path[] = "/tmp/aoticache-test-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    unlink(path);
    static uint8_t bytes[200000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    cr_assert_eq(write(fd, bytes, sizeof bytes), (ssize_t)sizeof bytes);
    off_t before = lseek(fd, 17, SEEK_SET);
    aoticache_digest from_fd, from_memory;
    uint64_t size;
    cr_assert_eq(aoticache_digest_of_fd(fd, &from_fd, &size, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_digest_of(bytes, sizeof bytes, &from_memory), AOTICACHE_OK);
    cr_assert(aoticache_digest_equal(&from_fd, &from_memory));
    cr_assert_eq(size, sizeof bytes);
    cr_assert_eq(lseek(fd, 0, SEEK_CUR), before);
    close(fd);
}

Test(digest, of_a_bad_descriptor_is_an_error)
{
    aoticache_digest digest;
    aoticache_error error;
    cr_assert_eq(aoticache_digest_of_fd(-1, &digest, NULL, &error), AOTICACHE_IO);
    cr_assert_str_eq(error.message, "cannot read at byte 0: Bad file descriptor");
}

Test(digest, from_hex_takes_exactly_64_digits)
{
    aoticache_digest digest;
    const char *good = "BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    cr_assert_eq(aoticache_digest_from_hex(good, &digest), AOTICACHE_OK);
    cr_assert_eq(digest.bytes[0], 0xba);
    cr_assert_eq(digest.bytes[31], 0xad);
    char bad[80];
    snprintf(bad, sizeof bad, "%s0", good);
    cr_assert_eq(aoticache_digest_from_hex(bad, &digest), AOTICACHE_INVALID);
    bad[63] = '\0';
    cr_assert_eq(aoticache_digest_from_hex(bad, &digest), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_digest_from_hex("", &digest), AOTICACHE_INVALID);
    snprintf(bad, sizeof bad, "%s", good);
    bad[10] = 'g';
    cr_assert_eq(aoticache_digest_from_hex(bad, &digest), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_digest_from_hex(NULL, &digest), AOTICACHE_INVALID);
}

Test(names, dtypes_round_trip_and_know_their_size)
{
#define CHECK_DTYPE(upper, lower, number, bytes)                            \
    do {                                                                    \
        int32_t parsed = -1;                                                \
        cr_assert_str_eq(aoticache_dtype_name(number), #lower);             \
        cr_assert_eq(aoticache_dtype_parse(#lower, &parsed), AOTICACHE_OK); \
        cr_assert_eq(parsed, number);                                       \
        cr_assert_eq(aoticache_dtype_size(number), (size_t)bytes);          \
    } while (0);
    AOTICACHE_DTYPE_LIST(CHECK_DTYPE)
#undef CHECK_DTYPE
    int32_t untouched = 77;
    cr_assert_eq(aoticache_dtype_parse("float33", &untouched), AOTICACHE_INVALID);
    cr_assert_eq(untouched, 77);
    cr_assert_null(aoticache_dtype_name(12));
    cr_assert_eq(aoticache_dtype_size(-1), 0);
}

Test(names, layouts_and_memory_formats_round_trip)
{
    int32_t number;
    cr_assert_eq(aoticache_layout_parse("sparse_csr", &number), AOTICACHE_OK);
    cr_assert_str_eq(aoticache_layout_name(number), "sparse_csr");
    cr_assert_eq(aoticache_memory_format_parse("channels_last", &number), AOTICACHE_OK);
    cr_assert_eq(number, AOTICACHE_MEMORY_FORMAT_CHANNELS_LAST);
    cr_assert_eq(aoticache_layout_parse(NULL, &number), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_memory_format_parse("wide", &number), AOTICACHE_INVALID);
}

Test(device, parse_and_format_round_trip)
{
    static const char *const good[] = {"cpu", "cuda", "cuda:0", "cuda:15", "meta", "privateuseone:3"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        aoticache_device device;
        char text[AOTICACHE_DEVICE_TEXT_BYTES];
        cr_assert_eq(aoticache_device_parse(good[i], &device), AOTICACHE_OK, "%s", good[i]);
        aoticache_device_format(device, text);
        cr_assert_str_eq(text, good[i]);
    }
}

Test(device, parse_refuses_what_is_no_device)
{
    static const char *const bad[] = {"", "cp", "cpuu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999", "cuda:1:2", ":0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        aoticache_device device = {.type = 42, .index = 42};
        cr_assert_eq(aoticache_device_parse(bad[i], &device), AOTICACHE_INVALID, "%s", bad[i]);
        cr_assert_eq(device.type, 42);
    }
    cr_assert_eq(aoticache_device_parse(NULL, NULL), AOTICACHE_INVALID);
}

static void keep_line(void *user, aoticache_log_level level, const char *line)
{
    snprintf(user, 64, "%d %s", (int)level, line);
}

Test(log, hands_on_one_line_or_nothing)
{
    char kept[64] = "";
    aoticache_logger logger = {.log = keep_line, .user = kept};
    aoticache_log(&logger, AOTICACHE_LOG_WARNING, "object %s", "3fa9");
    cr_assert_str_eq(kept, "1 object 3fa9");
    aoticache_logger silent = {0};
    aoticache_log(&silent, AOTICACHE_LOG_ERROR, "x");
    aoticache_log(NULL, AOTICACHE_LOG_ERROR, "x");
}

Test(clock, monotonic_never_goes_back)
{
    uint64_t before = aoticache_monotonic_ns();
    cr_assert_leq(before, aoticache_monotonic_ns());
    cr_assert_gt(aoticache_wall_ns(), (int64_t)1700000000 * 1000000000);
}
