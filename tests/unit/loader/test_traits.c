/*
 * Facts in a library's file other than its names, and the names that another library defines.
 */
#include "loader/elf/traits.h"
#include "tests/unit/fixtures/loader_fixture.h"

#include <stdint.h>

TestSuite(traits, .init = fixture_setup, .fini = fixture_teardown);
TestSuite(find_symbols, .init = fixture_setup, .fini = fixture_teardown);

static int open_file(const char *name)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path(name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

static aoticache_library_traits *read_traits(int fd)
{
    aoticache_library_traits *traits = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_library_traits_read(fd, &traits, &error), AOTICACHE_OK, "%s", error.message);
    return traits;
}

Test(traits, plain_kernel_has_none_of_note)
{
    int fd = fixture_kernel("kernel.so", "-Wl,-soname,kernel.so -Wl,-z,noexecstack");
    aoticache_library_traits *traits = read_traits(fd);
    cr_assert_eq(traits->maker, AOTICACHE_MAKER_UNKNOWN);
    cr_assert_str_eq(traits->soname, "kernel.so");
    cr_assert_str_eq(traits->proxy_operators, "");
    cr_assert_eq(traits->unique_symbol_count, 0);
    cr_assert(!traits->executable_stack && !traits->finds_itself);
    cr_assert_eq(traits->appended_bytes, 0);
    cr_assert_geq(traits->mapped_bytes, 4096);
    aoticache_library_traits_free(traits);
    close(fd);
}

Test(traits, what_is_remarkable_is_found)
{
    int fd = fixture_kernel("kernel.so", "-DPROXY -DOPEN_SELF -Wl,-z,execstack");
    aoticache_library_traits *traits = read_traits(fd);
    cr_assert_str_eq(traits->soname, "");
    cr_assert_str_eq(traits->proxy_operators, "aten::cholesky, my_ops::sum.dim_IntList");
    cr_assert(traits->executable_stack && traits->finds_itself);
    aoticache_library_traits_free(traits);
    close(fd);
}

Test(traits, unique_symbols_are_counted)
{
    fixture_compile("__asm__(\".data\\n.globl one, two\\n.type one, %gnu_unique_object\\n\"\n"
                    "        \".type two, %gnu_unique_object\\none: .quad 0\\ntwo: .quad 0\\n.text\\n\");\n",
                    "unique.so", "");
    int fd = open_file("unique.so");
    aoticache_library_traits *traits = read_traits(fd);
    cr_assert_eq(traits->unique_symbol_count, 2);
    aoticache_library_traits_free(traits);
    close(fd);
}

Test(traits, mark_on_the_border_of_chunks_tells_the_maker)
{
    /* The name of the type is placed at every distance from a border that could cut it. */
    for (int shift = 0; shift < 64; shift += 7) {
        char source[400];
        snprintf(source, sizeof source,
                 "__attribute__((aligned(16384))) const char before[16384] = {1};\n"
                 "__attribute__((aligned(16384))) const struct { char pad[%d]; char name[30]; } it = {{1}, "
                 "\"N5torch12aot_inductor5ModelE\"};\n",
                 16384 - shift);
        fixture_compile(source, "mark.so", "");
        int fd = open_file("mark.so");
        aoticache_library_traits *traits = read_traits(fd);
        cr_assert_eq(traits->maker, AOTICACHE_MAKER_PYTORCH, "%d before the border", shift);
        aoticache_library_traits_free(traits);
        close(fd);
    }
}

Test(traits, stripped_of_sections_still_read)
{
    fixture_compile(fixture_kernel_source, "kernel.so", "-s");
    char path[FIXTURE_PATH_BYTES];
    fixture_path("kernel.so", path);
    FILE *file = fopen(path, "r+be");
    cr_assert_not_null(file);
    fseek(file, 0x28, SEEK_SET); /* e_shoff: far outside, as in a damaged file */
    uint64_t nowhere = UINT64_MAX - 100;
    cr_assert_eq(fwrite(&nowhere, sizeof nowhere, 1, file), 1);
    fclose(file);
    int fd = open_file("kernel.so");
    aoticache_library_traits *traits = read_traits(fd);
    cr_assert_str_eq(traits->compiler, "");
    aoticache_library_traits_free(traits);
    close(fd);
}

Test(traits, no_library_is_refused)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path("text", path);
    FILE *file = fopen(path, "we");
    fprintf(file, "no library, but long enough for a header of one: %64d", 0);
    fclose(file);
    int fd = open_file("text");
    aoticache_library_traits *traits = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_library_traits_read(fd, &traits, &error), AOTICACHE_INVALID);
    cr_assert_null(traits);
    cr_assert_not_null(strstr(error.message, "not a shared library"), "%s", error.message);
    close(fd);
}

Test(find_symbols, only_defined_ones_are_found_and_added_to)
{
    static const char *const names[] = {"aoti_torch_a", "aoti_torch_b", "aoti_torch_c", "aoti_torch_d"};
    fixture_compile("int aoti_torch_a(void); int aoti_torch_c(void) { return aoti_torch_a(); }\n"
                    "__attribute__((weak)) int aoti_torch_d(void) { return 1; }\n",
                    "one.so", "");
    fixture_compile("int aoti_torch_a(void) { return 1; } static int aoti_torch_b(void) { return 2; }\n", "two.so", "");
    bool found[4] = {false};
    int one = open_file("one.so"), two = open_file("two.so");
    cr_assert_eq(aoticache_library_find_symbols(one, names, 4, found, NULL), AOTICACHE_OK);
    cr_assert(!found[0] && !found[1] && found[2] && found[3]);
    cr_assert_eq(aoticache_library_find_symbols(two, names, 4, found, NULL), AOTICACHE_OK);
    cr_assert(found[0] && !found[1] && found[2] && found[3]);
    close(one);
    close(two);
}

Test(find_symbols, misuse_and_other_files_are_refused)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool found[1] = {false};
    cr_assert_eq(aoticache_library_find_symbols(fd, NULL, 1, found, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_library_find_symbols(fd, (const char *const[]){"a"}, 1, found, NULL), AOTICACHE_INVALID);
    cr_assert(!found[0]);
    close(fd);
}
