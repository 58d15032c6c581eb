/*
 * tests/unit/package_fixture: writes ZIP archives, valid and malicious ones, entry by entry, in memory.
 *
 * Sizes, methods, flags, attributes and checksums can be falsified. Deflated entries are deflate's stored blocks, so no
 * compressor is needed.
 */
#ifndef AOTICACHE_TESTS_PACKAGE_FIXTURE_H
#define AOTICACHE_TESTS_PACKAGE_FIXTURE_H

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ZIP_FUNCTION static __attribute__((unused))

typedef struct zip_lie {
    uint16_t method, flags;
    uint32_t attributes; /* external attributes; made by Unix */
    uint32_t size, compressed, crc_change;
    bool zip64;
} zip_lie;

typedef struct zip_writer {
    uint8_t bytes[1 << 19], directory[1 << 15];
    size_t size, directory_size, count;
} zip_writer;

ZIP_FUNCTION void zip_put(uint8_t *bytes, size_t *size, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        bytes[(*size)++] = (uint8_t)(value >> (8 * i));
}

ZIP_FUNCTION uint32_t zip_crc(const void *data, size_t size)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= ((const uint8_t *)data)[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

/* Writes the fields that local header and directory share: from "version needed" to the length of the extra field. */
ZIP_FUNCTION void zip_header(uint8_t *bytes, size_t *at, const char *name, size_t size, size_t packed, uint32_t crc,
                             const zip_lie *lie)
{
    zip_put(bytes, at, lie->zip64 ? 45 : 20, 2);
    zip_put(bytes, at, lie->flags | 0x800, 2);
    zip_put(bytes, at, lie->method, 2);
    zip_put(bytes, at, 0x00210000, 4); /* 1980-01-01 */
    zip_put(bytes, at, crc + lie->crc_change, 4);
    zip_put(bytes, at, lie->zip64 ? 0xffffffff : lie->compressed != 0 ? lie->compressed : packed, 4);
    zip_put(bytes, at, lie->zip64 ? 0xffffffff : lie->size != 0 ? lie->size : size, 4);
    zip_put(bytes, at, strlen(name), 2);
    zip_put(bytes, at, lie->zip64 ? 20 : 0, 2);
}

ZIP_FUNCTION void zip_extra(uint8_t *bytes, size_t *at, size_t size, size_t packed)
{
    zip_put(bytes, at, 1, 2);
    zip_put(bytes, at, 16, 2);
    zip_put(bytes, at, size, 8);
    zip_put(bytes, at, packed, 8);
}

/* Adds an entry. lie: may be NULL. */
ZIP_FUNCTION void zip_add(zip_writer *zip, const char *name, const void *data, size_t size, const zip_lie *lie)
{
    static const zip_lie truth = {.method = 0};
    lie = lie != NULL ? lie : &truth;
    const size_t packed = size + (lie->method == 8 ? 5 : 0), offset = zip->size;
    cr_assert_lt(zip->size + packed + 512, sizeof zip->bytes);
    zip_put(zip->bytes, &zip->size, 0x04034b50, 4);
    zip_header(zip->bytes, &zip->size, name, size, packed, zip_crc(data, size), lie);
    memcpy(zip->bytes + zip->size, name, strlen(name));
    zip->size += strlen(name);
    if (lie->zip64)
        zip_extra(zip->bytes, &zip->size, size, packed);
    if (lie->method == 8) {
        zip_put(zip->bytes, &zip->size, 1, 1);
        zip_put(zip->bytes, &zip->size, size, 2);
        zip_put(zip->bytes, &zip->size, ~size, 2);
    }
    memcpy(zip->bytes + zip->size, data, size);
    zip->size += size;
    zip_put(zip->directory, &zip->directory_size, 0x02014b50, 4);
    zip_put(zip->directory, &zip->directory_size, 3 << 8 | 45, 2); /* made by Unix */
    zip_header(zip->directory, &zip->directory_size, name, size, packed, zip_crc(data, size), lie);
    zip_put(zip->directory, &zip->directory_size, 0, 6); /* comment, disk, internal attributes */
    zip_put(zip->directory, &zip->directory_size, lie->attributes, 4);
    zip_put(zip->directory, &zip->directory_size, offset, 4);
    memcpy(zip->directory + zip->directory_size, name, strlen(name));
    zip->directory_size += strlen(name);
    if (lie->zip64)
        zip_extra(zip->directory, &zip->directory_size, size, packed);
    zip->count++;
}

ZIP_FUNCTION void zip_add_text(zip_writer *zip, const char *name, const char *text)
{
    zip_add(zip, name, text, strlen(text), NULL);
}

ZIP_FUNCTION void zip_finish(zip_writer *zip)
{
    const size_t offset = zip->size;
    memcpy(zip->bytes + zip->size, zip->directory, zip->directory_size);
    zip->size += zip->directory_size;
    zip_put(zip->bytes, &zip->size, 0x06054b50, 4);
    zip_put(zip->bytes, &zip->size, 0, 4);
    zip_put(zip->bytes, &zip->size, zip->count, 2);
    zip_put(zip->bytes, &zip->size, zip->count, 2);
    zip_put(zip->bytes, &zip->size, zip->directory_size, 4);
    zip_put(zip->bytes, &zip->size, offset, 4);
    zip_put(zip->bytes, &zip->size, 0, 2);
}

/* Returns a descriptor of the archive in memory. */
ZIP_FUNCTION int zip_fd(const zip_writer *zip)
{
    int fd = memfd_create("package", MFD_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, zip->bytes, zip->size), (ssize_t)zip->size);
    return fd;
}

ZIP_FUNCTION void zip_write(const zip_writer *zip, const char *path)
{
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(zip->bytes, 1, zip->size, file), zip->size);
    cr_assert_eq(fclose(file), 0);
}

#endif
