/*
 * The images of device code that are read from libraries, .cubin and .fatbin files, and that no damaged file does harm.
 * Files are made here byte by byte; tests/cli/aoticache/test_cuda_library.sh uses those of a real compiler.
 */
#include "tests/unit/fixtures/cuda_fixture.h"

#include "loader/cuda/cuda_internal.h"

/* Returns "sm_75, compute_80", or the message if the file is refused. */
static const char *images_of(const file_bytes *file)
{
    static char text[AOTICACHE_ERROR_MESSAGE_BYTES];
    aoticache_cuda_image_set set = {.count = 0};
    aoticache_error error = {0};
    int fd = file_open(file);
    aoticache_status status = aoticache_cuda_image_set_read(fd, &set, &error);
    close(fd);
    if (status == AOTICACHE_OK) {
        aoticache_cuda_image_set_format(&set, text, sizeof text);
    } else {
        cr_assert_eq(status, AOTICACHE_INVALID, "%s", error.message);
        strcpy(text, error.message);
    }
    return text;
}

static void refused(const file_bytes *file, const char *words)
{
    const char *text = images_of(file);
    cr_expect_not_null(strstr(text, words), "it is: %s, and should say: %s", text, words);
}

Test(cuda_image, cubins_of_both_layouts_tell_their_architecture)
{
    static const struct {
        uint8_t abi;
        uint32_t flags;
        const char *text;
    } cubins[] = {
        {8, 0x6004b04, "sm_75"},   {8, 0x6005a04, "sm_90"}, {8, 0x6007802, "sm_120"},
        {8, 0x600640a, "sm_100a"}, {7, 0x500550, "sm_80"},  {7, 0x5a0d5a, "sm_90a"},
    };
    for (size_t i = 0; i < sizeof cubins / sizeof cubins[0]; i++) {
        file_bytes file = {.size = 0};
        put_cubin(&file, 0, cubins[i].abi, cubins[i].flags);
        cr_expect_str_eq(images_of(&file), cubins[i].text);
    }
}

/* Makes a .cubin marked as by ptxas 13: in section .nv.compat. */
static file_bytes cubin_with_compat(uint16_t specific)
{
    static const char names[] = "\0.shstrtab\0.nv.compat";
    file_bytes file = {.size = 0};
    put_cubin(&file, 0, 8, 0x6005a04);
    put(&file, 40, 8, 64);
    put(&file, 58, 2, sizeof(Elf64_Shdr));
    put(&file, 60, 2, 3);
    put(&file, 62, 2, 1);
    put(&file, 64 + 3 * 64 - 1, 1, 0);
    size_t at = file.size;
    for (size_t i = 0; i < sizeof names; i++)
        put(&file, at + i, 1, (uint8_t)names[i]);
    put(&file, 128, 4, 1);
    put(&file, 132, 4, SHT_STRTAB);
    put(&file, 128 + 24, 8, at);
    put(&file, 128 + 32, 8, sizeof names);
    at = file.size;
    put(&file, at, 4, 0x00080b04); /* eight bytes follow */
    put(&file, at + 4, 8, 0x00010902);
    put(&file, at + 12, 4, 0x00000902 | (uint32_t)specific << 16);
    put(&file, 192, 4, 11);
    put(&file, 196, 4, 0x70000086);
    put(&file, 192 + 24, 8, at);
    put(&file, 192 + 32, 8, 16);
    return file;
}

Test(cuda_image, cubin_says_in_a_section_that_it_is_specific)
{
    file_bytes plain = cubin_with_compat(0), specific = cubin_with_compat(1);
    cr_assert_str_eq(images_of(&plain), "sm_90");
    cr_assert_str_eq(images_of(&specific), "sm_90a");
}

Test(cuda_image, containers_give_every_kind_once)
{
    file_bytes file = {.size = 0};
    size_t container = put_container(&file);
    put_entry(&file, container, PTX, 80, COMPRESSED);
    put_entry(&file, container, CUBIN, 90, SPECIFIC);
    put_entry(&file, container, CUBIN, 90, 0);
    put_entry(&file, container, 8, 70, 0); /* intermediate code for the linker */
    container = put_container(&file);
    put_entry(&file, container, CUBIN, 90, 0);
    put_entry(&file, container, PTX, 100, FAMILY);
    put_entry(&file, container, CUBIN, 75, COMPRESSED);
    cr_assert_str_eq(images_of(&file), "sm_75, compute_80, sm_90, sm_90a, compute_100f");
}

Test(cuda_image, library_has_the_images_of_its_section)
{
    file_bytes file = {.size = 0};
    size_t section = put_library(&file);
    put_entry(&file, put_container(&file), CUBIN, 90, 0);
    put(&file, file.size + 71, 1, 0); /* padding */
    put_entry(&file, put_container(&file), PTX, 90, 0);
    end_library(&file, section);
    cr_assert_str_eq(images_of(&file), "sm_90, compute_90");
    put(&file, 196, 4, SHT_NOBITS);
    cr_assert_str_eq(images_of(&file), "");
    put(&file, 196, 4, SHT_PROGBITS);
    put(&file, 192, 4, 1); /* another name */
    cr_assert_str_eq(images_of(&file), "");
    put(&file, 40, 8, 0); /* no sections */
    cr_assert_str_eq(images_of(&file), "");
}

Test(cuda_image, library_of_another_machine_has_none)
{
    file_bytes file = {.size = 0};
    end_library(&file, put_library(&file));
    put(&file, EI_DATA, 1, ELFDATA2MSB);
    cr_assert_str_eq(images_of(&file), "");
}

Test(cuda_image, public_function_gives_as_many_as_fit)
{
    file_bytes file = {.size = 0};
    size_t container = put_container(&file), count = 0;
    aoticache_cuda_image images[2] = {{.major = 0}, {.major = 99}};
    aoticache_error error = {0};
    put_entry(&file, container, PTX, 80, 0);
    put_entry(&file, container, CUBIN, 80, 0);
    put_entry(&file, container, CUBIN, 75, 0);
    int fd = file_open(&file);
    cr_assert_eq(aoticache_cuda_images_read(fd, images, 1, &count, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert(count == 3 && images[0].major == 7 && images[0].minor == 5 && images[1].major == 99);
    cr_assert_eq(aoticache_cuda_images_read(fd, images, 2, &count, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert(count == 3 && images[1].major == 8 && !images[1].is_ptx);
    cr_assert_eq(aoticache_cuda_images_read(fd, NULL, 0, &count, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(count, 3);
    close(fd);
}

Test(cuda_image, long_lists_end_with_a_number)
{
    file_bytes file = {.size = 0};
    size_t container = put_container(&file);
    aoticache_cuda_image_set set = {.count = 0};
    char text[32];
    for (uint32_t arch = 50; arch < 60; arch++)
        put_entry(&file, container, PTX, arch, 0);
    int fd = file_open(&file);
    cr_assert_eq(aoticache_cuda_image_set_read(fd, &set, NULL), AOTICACHE_OK);
    close(fd);
    aoticache_cuda_image_set_format(&set, text, sizeof text);
    cr_assert_str_eq(text, "compute_50 and 9 more");
}

/* ---- damage ---- */

static file_bytes changed(const file_bytes *file, size_t at, size_t width, uint64_t value)
{
    file_bytes copy = *file;
    put(&copy, at, width, value);
    return copy;
}

Test(cuda_image, what_is_neither_kind_of_file_is_refused)
{
    file_bytes file = {.size = 0};
    refused(&file, "neither ELF nor a container");
    put(&file, 0, 8, 0x6f6c6c6568);
    refused(&file, "begins with 68 65 6c 6c and has 8 bytes");
    put(&file, 0, 4, 0x464c457f);
    refused(&file, "neither ELF nor a container: it begins with 7f 45 4c 46 and has 8 bytes");
}

Test(cuda_image, every_truncation_of_a_container_is_refused)
{
    file_bytes whole = {.size = 0};
    size_t container = put_container(&whole);
    put_entry(&whole, container, CUBIN, 90, 0);
    put_entry(&whole, container, PTX, 90, 0);
    cr_assert_str_eq(images_of(&whole), "sm_90, compute_90");
    for (size_t size = 0; size < whole.size; size++) {
        file_bytes part = whole;
        part.size = size;
        refused(&part, "device code: ");
    }
}

Test(cuda_image, contradictory_containers_are_refused)
{
    file_bytes good = {.size = 0}, bad;
    size_t container = put_container(&good), entry = put_entry(&good, container, CUBIN, 90, 0);
    bad = changed(&good, container + 4, 2, 2);
    refused(&bad, "version 2; expected 0xba55ed50 and 1");
    bad = changed(&good, container + 6, 2, 8);
    refused(&bad, "declares 8 and 128 bytes, but there are 144");
    bad = changed(&good, container + 8, 8, UINT64_MAX - 8);
    refused(&bad, "there are 144");
    bad = changed(&good, entry + 4, 4, 32);
    refused(&bad, "a header of 32 bytes and 64 bytes of code, but its container has 128 bytes left");
    bad = changed(&good, entry + 8, 8, UINT64_MAX - 32);
    refused(&bad, "its container has 128 bytes left");
    bad = changed(&good, entry + 28, 4, 75);
    refused(&bad, "is for architecture 90, but its container says 75");
    bad = changed(&good, entry + 28, 4, 1 << 20);
    refused(&bad, "architecture 90, but its container says 1048576");
    bad = changed(&good, entry, 2, PTX);
    put(&bad, entry + 28, 4, 1 << 20);
    refused(&bad, "is for architecture 1048576; it must be 10 to 999");
    bad = changed(&good, good.size, 8, 1);
    refused(&bad, "a container is 16 bytes at offset 144");
    bad = changed(&good, good.size, 16, 1);
    refused(&bad, "begins with 0x00000001");
}

Test(cuda_image, contradictory_sections_are_refused)
{
    file_bytes good = {.size = 0}, bad;
    size_t section = put_library(&good);
    put_entry(&good, put_container(&good), CUBIN, 90, 0);
    end_library(&good, section);
    cr_assert_str_eq(images_of(&good), "sm_90");
    bad = changed(&good, 40, 8, UINT64_MAX - 3);
    refused(&bad, "the table of sections is 192 bytes at offset 18446744073709551612");
    bad = changed(&good, 58, 2, 40);
    refused(&bad, "section headers of 40 bytes; expected 64");
    bad = changed(&good, 60, 2, 60000);
    refused(&bad, "the table of sections is 3840000 bytes");
    bad = changed(&good, 62, 2, 3);
    refused(&bad, "3 sections, with their names in section 3");
    bad = changed(&good, 60, 2, 0); /* the number is in the first section, in which it is 0 */
    refused(&bad, "0 sections");
    bad = changed(&good, 128 + 32, 8, UINT64_C(1) << 40);
    refused(&bad, "the names of the sections are 1099511627776 bytes");
    bad = changed(&good, 192 + 24, 8, UINT64_MAX);
    refused(&bad, "section .nv_fatbin is 144 bytes at offset 18446744073709551615");
    bad = changed(&good, 192 + 32, 8, 145);
    refused(&bad, "section .nv_fatbin is 145 bytes");
    bad = changed(&good, 192, 4, 4000); /* a name outside of the names is ignored */
    cr_assert_str_eq(images_of(&bad), "");
}

Test(cuda_image, numbers_of_sections_may_stand_in_the_first)
{
    file_bytes file = {.size = 0};
    size_t section = put_library(&file);
    put_entry(&file, put_container(&file), CUBIN, 90, 0);
    end_library(&file, section);
    put(&file, 60, 2, 0);
    put(&file, 62, 2, SHN_XINDEX);
    put(&file, 64 + 32, 8, 3);
    put(&file, 64 + 40, 4, 1);
    cr_assert_str_eq(images_of(&file), "sm_90");
}

Test(cuda_image, containers_without_end_are_refused)
{
    file_bytes file = {.size = 0};
    put_container(&file);
    int fd = file_open(&file);
    aoticache_cuda_image_set set = {.count = 0};
    aoticache_error error = {0};
    for (int i = 0; i < 4; i++)
        cr_assert_eq(write(fd, file.bytes, 16), 16);
    cr_assert_eq(aoticache_cuda_image_set_read(fd, &set, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(ftruncate(fd, (off_t)1 << 30), 0); /* a gigabyte of zeroes that takes no disk space */
    cr_assert_eq(aoticache_cuda_image_set_read(fd, &set, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "more than 1048576 headers"), "%s", error.message);
    close(fd);
}

Test(cuda_image, what_is_no_file_is_refused)
{
    aoticache_cuda_image_set set = {.count = 0};
    int pipes[2];
    cr_assert_eq(pipe(pipes), 0);
    cr_assert_eq(aoticache_cuda_image_set_read(pipes[0], &set, NULL), AOTICACHE_INVALID);
    close(pipes[0]);
    close(pipes[1]);
    cr_assert_eq(aoticache_cuda_image_set_read(pipes[0], &set, NULL), AOTICACHE_IO);
}
