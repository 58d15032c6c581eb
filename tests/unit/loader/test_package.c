/*
 * loader/package/package: what is read from archives, and everything that is refused.
 */
#include "loader/eager_face.h"
#include "loader/package/package.h"
#include "loader/package/package_internal.h"
#include "tests/unit/fixtures/package_fixture.h"

#define MODEL "top/data/aotinductor/model/"
#define METADATA                                                                                \
    "{\"AOTI_DEVICE_KEY\": \"cuda\", \"AOTI_MACHINE\": \"x86_64\", \"AOTI_CPU_ISA\": \"AVX2\"," \
    " \"AOTI_COMPUTE_CAPABILITY\": \"90\", \"author\": \"me\", \"number\": 3}"

static zip_writer zip;
static aoticache_error error;

static bool libzip_is_there(void)
{
    aoticache_package *package = NULL;
    zip_writer *empty = calloc(1, sizeof *empty);
    zip_finish(empty);
    int fd = zip_fd(empty);
    free(empty);
    bool is_there = aoticache_package_open_fd(fd, "probe", &package, NULL) != AOTICACHE_UNSUPPORTED;
    close(fd);
    return is_there;
}

static void setup(void)
{
    if (!libzip_is_there())
        cr_skip_test("libzip is not installed");
}

TestSuite(package, .init = setup);

static aoticache_status open_zip(aoticache_package **ret_package, int *ret_fd)
{
    zip_finish(&zip);
    *ret_fd = zip_fd(&zip);
    return aoticache_package_open_fd(*ret_fd, "test.pt2", ret_package, &error);
}

static void assert_refused(aoticache_status expected, const char *word)
{
    aoticache_package *package = NULL;
    int fd = -1;
    aoticache_status status = open_zip(&package, &fd);
    cr_assert_eq(status, expected, "%s: %s", aoticache_status_name(status), error.message);
    cr_assert_null(package);
    cr_assert_not_null(strstr(error.message, word), "'%s' does not say '%s'", error.message, word);
    cr_assert_null(strchr(error.message, '\n'));
    close(fd);
}

static void add_model(void)
{
    zip_add_text(&zip, MODEL "x.wrapper.cpp", "int x;");
    zip_add_text(&zip, MODEL "x.wrapper.so", "a library");
    zip_add_text(&zip, MODEL "x.wrapper_metadata.json", METADATA);
}

static void assert_part(aoticache_package *package, const aoticache_package_model *model, size_t part,
                        aoticache_part_kind kind, const char *name, const char *contents)
{
    char got[256] = "";
    int to = memfd_create("part", MFD_CLOEXEC);
    cr_assert_str_eq(model->parts[part].name, name);
    cr_assert_eq(model->parts[part].kind, kind, "%s is %d", name, (int)model->parts[part].kind);
    cr_assert_eq(model->parts[part].bytes, strlen(contents));
    cr_assert_eq(aoticache_package_extract_part(package, model, part, to, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(pread(to, got, sizeof got, 0), (ssize_t)strlen(contents));
    cr_assert_str_eq(got, contents);
    close(to);
}

static bool join(void *user, const char *name, const char *value)
{
    char *text = user;
    snprintf(text + strlen(text), 512 - strlen(text), "%s=%s;", name, value);
    return strcmp(name, "number") != 0;
}

Test(package, open_reads_parts_and_metadata)
{
    aoticache_package *package = NULL;
    char metadata[512] = "";
    int fd = -1;
    add_model();
    zip_add_text(&zip, MODEL "x.wrapper_weights.blob", "weights");
    zip_add_text(&zip, MODEL "k.cubin", "cubin");
    zip_add_text(&zip, "top/archive_format", "pt2");
    zip_add_text(&zip, "top/folder/", "");
    cr_assert_eq(open_zip(&package, &fd), AOTICACHE_OK, "%s", error.message);
    const aoticache_package_model *model = aoticache_package_model_at(package, 0);
    cr_assert_not_null(model);
    cr_assert_null(aoticache_package_model_at(package, 1));
    cr_assert_str_eq(model->name, "model");
    cr_assert_str_eq(model->device, "cuda");
    cr_assert_str_eq(model->machine, "x86_64");
    cr_assert_str_eq(model->cpu_isa, "AVX2");
    cr_assert_str_eq(model->capability, "90");
    cr_assert_eq(model->part_count, 5);
    assert_part(package, model, 0, AOTICACHE_PART_LIBRARY, "x.wrapper.so", "a library");
    assert_part(package, model, 1, AOTICACHE_PART_SIDE, "k.cubin", "cubin");
    assert_part(package, model, 2, AOTICACHE_PART_SOURCE, "x.wrapper.cpp", "int x;");
    assert_part(package, model, 3, AOTICACHE_PART_METADATA, "x.wrapper_metadata.json", METADATA);
    assert_part(package, model, 4, AOTICACHE_PART_WEIGHTS, "x.wrapper_weights.blob", "weights");
    aoticache_package_list_metadata(package, model, join, metadata);
    cr_assert_str_eq(metadata, "AOTI_DEVICE_KEY=cuda;AOTI_MACHINE=x86_64;AOTI_CPU_ISA=AVX2;AOTI_COMPUTE_CAPABILITY=90;"
                               "author=me;number=3;");
    aoticache_package_close(package);
    close(fd);
}

Test(package, open_takes_old_deflated_and_zip64_archives)
{
    aoticache_package *package = NULL;
    int fd = -1;
    zip_add(&zip, "data/aotinductor/model/x.so", "a library", 9, &(zip_lie){.method = 8});
    zip_add(&zip, "data/aotinductor/model/y.cubin", "large", 5, &(zip_lie){.zip64 = true});
    cr_assert_eq(open_zip(&package, &fd), AOTICACHE_OK, "%s", error.message);
    const aoticache_package_model *model = aoticache_package_model_at(package, 0);
    cr_assert_str_eq(model->device, "cpu");
    cr_assert_str_eq(model->machine, "");
    assert_part(package, model, 0, AOTICACHE_PART_LIBRARY, "x.so", "a library");
    assert_part(package, model, 1, AOTICACHE_PART_SIDE, "y.cubin", "large");
    aoticache_package_close(package);
    close(fd);
}

Test(package, find_model_by_name_or_the_default)
{
    aoticache_package *package = NULL;
    const aoticache_package_model *model = NULL;
    int fd = -1;
    zip_add_text(&zip, "t/data/aotinductor/b/x.so", "b");
    zip_add_text(&zip, "t/data/aotinductor/a/c/x.so", "a/c");
    cr_assert_eq(open_zip(&package, &fd), AOTICACHE_OK, "%s", error.message);
    cr_assert_not_null(aoticache_package_model_at(package, 1));
    cr_assert_null(aoticache_package_model_at(package, 2));
    cr_assert_eq(aoticache_package_find_model(package, "a/c", &model, &error), AOTICACHE_OK);
    cr_assert_str_eq(model->name, "a/c");
    cr_assert_eq(aoticache_package_find_model(package, NULL, &model, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, "a/c, b"), "%s", error.message);
    cr_assert_eq(aoticache_package_find_model(package, "c", &model, &error), AOTICACHE_NOT_FOUND);
    aoticache_package_close(package);
    close(fd);
}

Test(package, open_prefers_the_wrapper_among_libraries)
{
    aoticache_package *package = NULL;
    int fd = -1;
    zip_add_text(&zip, MODEL "a.so", "kernel");
    zip_add_text(&zip, MODEL "b.wrapper.so", "own");
    cr_assert_eq(open_zip(&package, &fd), AOTICACHE_OK, "%s", error.message);
    const aoticache_package_model *model = aoticache_package_model_at(package, 0);
    assert_part(package, model, 0, AOTICACHE_PART_LIBRARY, "b.wrapper.so", "own");
    assert_part(package, model, 1, AOTICACHE_PART_SIDE, "a.so", "kernel");
    aoticache_package_close(package);
    close(fd);
}

Test(package, open_two_libraries_is_refused)
{
    zip_add_text(&zip, MODEL "a.so", "one");
    zip_add_text(&zip, MODEL "b.so", "other");
    assert_refused(AOTICACHE_INVALID, "several libraries");
}

Test(package, open_without_model_is_refused)
{
    zip_add_text(&zip, "top/version", "1");
    assert_refused(AOTICACHE_INVALID, "has no model");
}

Test(package, open_model_without_library_is_refused)
{
    zip_add_text(&zip, MODEL "x.cpp", "int x;");
    assert_refused(AOTICACHE_INVALID, "no library");
}

Test(package, unsafe_names_are_refused)
{
    static const char *const names[][2] = {{"/etc/passwd", "absolute"},
                                           {"top/../x", "\"..\""},
                                           {"..", "\"..\""},
                                           {"top/./x", "\".\""},
                                           {"top//x", "empty component"},
                                           {"top\\..\\x", "backslash"},
                                           {"top/a\nb", "control"},
                                           {"top/a\x7f", "control"},
                                           {"top/\xc2\x9b", "control"},
                                           {"top/\xff", "UTF-8"},
                                           {"top/\xed\xa0\x80", "UTF-8"},
                                           {"top/\xc3", "UTF-8"},
                                           {"", "empty"}};
    char reason[AOTICACHE_PACKAGE_REASON_BYTES] = "", long_name[5000] = "a/";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        cr_assert_not(aoticache_package_name_is_safe(names[i][0], reason), "'%s'", names[i][0]);
        cr_assert_not_null(strstr(reason, names[i][1]), "'%s': '%s'", names[i][0], reason);
    }
    memset(long_name + 2, 'x', 256);
    cr_assert_not(aoticache_package_name_is_safe(long_name, reason));
    for (size_t i = 0; i < 4998; i++)
        long_name[i] = i % 100 == 99 ? '/' : 'x';
    cr_assert_not(aoticache_package_name_is_safe(long_name, reason));
    cr_assert(aoticache_package_name_is_safe("top/...a/.b/\xc3\xa4/", reason));
}

Test(package, open_with_a_parent_in_a_name_is_refused)
{
    add_model();
    zip_add_text(&zip, MODEL "../../../../x", "x");
    assert_refused(AOTICACHE_INVALID, "refused");
}

Test(package, open_with_a_newline_in_a_name_is_refused)
{
    add_model();
    zip_add_text(&zip, MODEL "a\nb", "x");
    assert_refused(AOTICACHE_INVALID, "control character");
}

Test(package, open_with_a_name_twice_is_refused)
{
    add_model();
    zip_add_text(&zip, MODEL "x.wrapper.so", "another");
    assert_refused(AOTICACHE_INVALID, "a duplicate name");
}

Test(package, open_with_the_same_file_under_two_tops_is_refused)
{
    add_model();
    zip_add_text(&zip, "other/data/aotinductor/model/x.wrapper.so", "another");
    assert_refused(AOTICACHE_INVALID, "twice");
}

Test(package, open_with_a_symbolic_link_is_refused)
{
    add_model();
    zip_add(&zip, MODEL "link.cubin", "/etc/passwd", 11, &(zip_lie){.attributes = 0120777u << 16});
    assert_refused(AOTICACHE_INVALID, "symbolic link");
}

Test(package, open_encrypted_is_unsupported)
{
    /* Twelve bytes come before the data, as libzip 1.11 checks. */
    zip_add(&zip, MODEL "x.so", "twelve bytesa library", 21, &(zip_lie){.flags = 1, .size = 9});
    assert_refused(AOTICACHE_UNSUPPORTED, "encrypted");
}

Test(package, open_other_compression_is_unsupported)
{
    zip_add(&zip, MODEL "x.so", "a library", 9, &(zip_lie){.method = 12});
    assert_refused(AOTICACHE_UNSUPPORTED, "method 12");
}

Test(package, open_with_impossible_ratio_is_refused)
{
    zip_add(&zip, MODEL "x.so", "a library", 9, &(zip_lie){.method = 8, .size = 0xf0000000});
    assert_refused(AOTICACHE_INVALID, "invalid sizes");
}

Test(package, open_with_unequal_stored_sizes_is_refused)
{
    zip_add(&zip, MODEL "x.so", "a library", 9, &(zip_lie){.size = 8});
    assert_refused(AOTICACHE_INVALID, "");
}

Test(package, open_entry_beyond_the_end_is_refused)
{
    zip_add(&zip, MODEL "x.so", "a library", 9, &(zip_lie){.compressed = 90000, .size = 90000});
    assert_refused(AOTICACHE_INVALID, "");
}

Test(package, open_bad_metadata_is_refused)
{
    zip_add_text(&zip, MODEL "x.so", "a library");
    zip_add_text(&zip, MODEL "x_metadata.json", "[1]");
    assert_refused(AOTICACHE_INVALID, "not an object");
}

/* Each file may be small, but a package may have many. */
Test(package, open_metadata_beyond_the_budget_of_bytes_is_refused)
{
    static char text[40000];
    memset(text, ' ', sizeof text);
    memcpy(text, "{}", 2);
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "top/data/aotinductor/m%d/x.so", i);
        zip_add_text(&zip, name, "a library");
        snprintf(name, sizeof name, "top/data/aotinductor/m%d/x_metadata.json", i);
        zip_add(&zip, name, text, sizeof text,
                &(zip_lie){.method = 8, .size = i == 2 ? AOTICACHE_PACKAGE_METADATA_MAX_BYTES : 0});
    }
    assert_refused(AOTICACHE_INVALID,
                   "x_metadata.json of the model m2, the metadata of its models is 1128576 bytes; at "
                   "most 1048576");
}

Test(package, open_metadata_beyond_the_budget_of_values_is_refused)
{
    static char text[60000], brackets[40000];
    size_t size = (size_t)sprintf(text, "{\"a\":[1");
    while (size < sizeof text - 8)
        size += (size_t)sprintf(text + size, ",1");
    size += (size_t)sprintf(text + size, "]}");
    memset(brackets, '[', sizeof brackets);
    zip_add_text(&zip, "top/data/aotinductor/m0/x.so", "a library");
    zip_add(&zip, "top/data/aotinductor/m0/x_metadata.json", text, size, NULL);
    zip_add_text(&zip, "top/data/aotinductor/m1/x.so", "a library");
    zip_add(&zip, "top/data/aotinductor/m1/x_metadata.json", brackets, sizeof brackets, NULL);
    assert_refused(AOTICACHE_INVALID, "values; at most 65536 are allowed");
}

static size_t count_values(const char *text)
{
    return aoticache_package_metadata_count(text, strlen(text));
}

Test(package, values_are_counted_outside_of_strings)
{
    cr_assert_eq(count_values(""), 1);
    cr_assert_geq(count_values("{\"a\":[1,2,{}]}"), 5);
    cr_assert_eq(count_values("{\"a,[{\\\"[[\":\",,,\"}"), 2);
    cr_assert_eq(count_values("[\"\\"), 2);
}

Test(package, open_damaged_metadata_is_refused)
{
    zip_add_text(&zip, MODEL "x.so", "a library");
    zip_add(&zip, MODEL "x_metadata.json", "{}", 2, &(zip_lie){.crc_change = 1});
    assert_refused(AOTICACHE_INVALID, "CRC");
}

static void assert_extract_fails(const zip_lie *lie, const char *word)
{
    aoticache_package *package = NULL;
    int fd = -1, to = memfd_create("part", MFD_CLOEXEC);
    zip_add(&zip, MODEL "x.so", "a library", 9, lie);
    cr_assert_eq(open_zip(&package, &fd), AOTICACHE_OK, "%s", error.message);
    aoticache_status status =
        aoticache_package_extract_part(package, aoticache_package_model_at(package, 0), 0, to, &error);
    cr_assert_eq(status, AOTICACHE_CORRUPT, "%s: %s", aoticache_status_name(status), error.message);
    cr_assert_not_null(strstr(error.message, word), "%s", error.message);
    aoticache_package_close(package);
    close(to);
    close(fd);
}

Test(package, extract_with_wrong_checksum_is_corrupt)
{
    assert_extract_fails(&(zip_lie){.crc_change = 1}, "CRC");
}

Test(package, extract_more_than_was_said_is_corrupt)
{
    assert_extract_fails(&(zip_lie){.method = 8, .size = 5}, "5");
}

Test(package, extract_less_than_was_said_is_corrupt)
{
    assert_extract_fails(&(zip_lie){.method = 8, .size = 50}, "50");
}

Test(package, open_truncated_anywhere_is_refused)
{
    add_model();
    zip_finish(&zip);
    int fd = zip_fd(&zip);
    for (size_t size = 0; size < zip.size; size++) {
        aoticache_package *package = NULL;
        cr_assert_eq(ftruncate(fd, (off_t)size), 0);
        cr_assert_eq(aoticache_package_open_fd(fd, "cut", &package, &error), AOTICACHE_INVALID, "%zu of %zu", size,
                     zip.size);
        cr_assert_eq(pwrite(fd, zip.bytes, zip.size, 0), (ssize_t)zip.size);
    }
    close(fd);
}

Test(package, open_misuse_is_invalid)
{
    aoticache_package *package = NULL;
    int pipes[2];
    cr_assert_eq(pipe(pipes), 0);
    cr_assert_eq(aoticache_package_open_fd(-1, "x", &package, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_package_open_fd(pipes[0], "x", &package, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "regular"));
    aoticache_package_close(NULL);
    close(pipes[0]);
    close(pipes[1]);
}
