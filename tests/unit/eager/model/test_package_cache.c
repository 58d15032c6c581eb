/*
 * eager/model/package/package: packages in the cache: stored once, loaded without unpacking, refused if they cannot run.
 */
#include "eager/model/package/package.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "base/syscalls.h"
#include "eager/model/package/package_internal.h"
#include "tests/unit/fixtures/loader_fixture.h"
#include "tests/unit/fixtures/package_fixture.h"
#include "cache/gc/collect.h"
#include "cache/request/cpu_detect.h"
#include "cache/verify/verify.h"
#include "loader/tensor.h"

#define AT "t/data/aotinductor/"

static aoticache_error error;
static aoticache_cache *cache;
static char package_path[FIXTURE_PATH_BYTES];

static void setup(void)
{
    aoticache_package *package = NULL;
    zip_writer *empty = calloc(1, sizeof *empty);
    zip_finish(empty);
    int fd = zip_fd(empty);
    free(empty);
    aoticache_status status = aoticache_package_open_fd(fd, "probe", &package, NULL);
    close(fd);
    if (status == AOTICACHE_UNSUPPORTED)
        cr_skip_test("libzip is not installed");
    fixture_setup();
    char directory[FIXTURE_PATH_BYTES];
    fixture_path("cache", directory);
    fixture_path("test.pt2", package_path);
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = directory;
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_OK, "%s", error.message);
}

static void teardown(void)
{
    aoticache_cache_close(cache);
    fixture_teardown();
}

TestSuite(package_cache, .init = setup, .fini = teardown);

static void write_package(const char *metadata, size_t model_count)
{
    static zip_writer zip;
    memset(&zip, 0, sizeof zip);
    for (size_t i = 0; i < model_count; i++) {
        char name[256], library[64];
        const char *model = i == 0 ? "first" : "second";
        snprintf(library, sizeof library, "library of %s", model);
        snprintf(name, sizeof name, AT "%s/x.wrapper.so", model);
        zip_add_text(&zip, name, library);
        snprintf(name, sizeof name, AT "%s/x.wrapper.cpp", model);
        zip_add_text(&zip, name, "int x;");
        snprintf(name, sizeof name, AT "%s/k.cubin", model);
        zip_add_text(&zip, name, "cubin");
        if (metadata == NULL)
            continue;
        snprintf(name, sizeof name, AT "%s/x.wrapper_metadata.json", model);
        zip_add_text(&zip, name, metadata);
    }
    zip_finish(&zip);
    zip_write(&zip, package_path);
}

/* Writes a package whose library is a kernel that adds one, with a directory of side files and without a blob. */
static void write_kernel_package(void)
{
    static zip_writer zip;
    static uint8_t library[1 << 18]; /* pages of arm64 may have 64 KiB */
    int fd = fixture_kernel("kernel.so", "");
    ssize_t size = read(fd, library, sizeof library);
    cr_assert(size > 0 && size < (ssize_t)sizeof library);
    close(fd);
    zip_add(&zip, AT "model/x.wrapper.so", library, (size_t)size, NULL);
    zip_add_text(&zip, AT "model/k.cubin", "cubin");
    zip_finish(&zip);
    zip_write(&zip, package_path);
}

static size_t files_below(const char *directory)
{
    char path[FIXTURE_PATH_BYTES], command[2 * FIXTURE_PATH_BYTES], text[32] = "";
    fixture_path(directory, path);
    snprintf(command, sizeof command, "find '%s' -mindepth 1 2>/dev/null | wc -l", path);
    FILE *pipe = popen(command, "r");
    cr_assert(pipe != NULL && fgets(text, sizeof text, pipe) != NULL);
    pclose(pipe);
    return (size_t)strtoul(text, NULL, 10);
}

struct reports {
    size_t count;
    aoticache_package_report items[4];
};

static bool take(void *user, const aoticache_package_report *report)
{
    struct reports *reports = user;
    reports->items[reports->count++] = *report;
    return reports->count < 4;
}

static struct reports add(const char *model)
{
    struct reports reports = {.count = 0};
    aoticache_status status = aoticache_package_add(cache, package_path, model, NULL, take, &reports, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
    return reports;
}

static bool join_pair(void *user, const char *name, const char *value)
{
    char *text = user;
    snprintf(text + strlen(text), 256 - strlen(text), "%s=%s;", name, value);
    return strcmp(name, "last") != 0;
}

Test(package_cache, metadata_is_there_without_the_package)
{
    char found[256] = "";
    write_package(
        "{\"AOTI_DEVICE_KEY\": \"cpu\", \"mine\": \"a \\\"b\\\" \u00fc\", \"list\": [1, 2], \"last\": \"\", \"x\": \"\"}",
        1);
    aoticache_package_report report = add(NULL).items[0];
    cr_assert_eq(unlink(package_path), 0);
    cr_assert_eq(aoticache_package_read_metadata(cache, &report.key, join_pair, found, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_str_eq(found, "AOTI_DEVICE_KEY=cpu;mine=a \"b\" \u00fc;list=[1,2];last=;");
    report.key.bytes[0] ^= 1;
    cr_assert_eq(aoticache_package_read_metadata(cache, &report.key, join_pair, found, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, "no metadata is stored for the package"), "%s", error.message);
    write_package(NULL, 1); /* the package has none */
    report = add(NULL).items[0];
    cr_assert_eq(aoticache_package_read_metadata(cache, &report.key, join_pair, found, &error), AOTICACHE_NOT_FOUND);
}

Test(package_cache, add_stores_every_model_once)
{
    write_package("{\"AOTI_DEVICE_KEY\": \"cpu\"}", 2);
    struct reports first = add(NULL);
    cr_assert_eq(first.count, 2);
    cr_assert_str_eq(first.items[0].model, "first");
    cr_assert_str_eq(first.items[1].model, "second");
    cr_assert_not(aoticache_digest_equal(&first.items[0].key, &first.items[1].key));
    cr_assert(first.items[0].added && first.items[0].stored && first.items[0].add_ns > 0);
    cr_assert_eq(first.items[0].bytes, strlen("library of first") + strlen("cubin"));
    const size_t files = files_below("cache");
    struct reports again = add(NULL);
    cr_assert_eq(again.count, 2);
    cr_assert(!again.items[0].added && again.items[0].stored && again.items[0].add_ns == 0);
    cr_assert_eq(again.items[0].bytes, first.items[0].bytes);
    cr_assert(aoticache_digest_equal(&first.items[0].key, &again.items[0].key));
    cr_assert_eq(files_below("cache"), files);
    cr_assert_eq(files_below("cache/tmp"), 0);
    cr_assert_eq(add("second").count, 1);
}

Test(package_cache, add_changed_package_has_another_key)
{
    write_package("{\"a\": \"1\"}", 1);
    struct reports first = add(NULL);
    write_package("{\"a\": \"2\"}", 1);
    struct reports second = add(NULL);
    cr_assert(second.items[0].added);
    cr_assert_not(aoticache_digest_equal(&first.items[0].key, &second.items[0].key));
}

Test(package_cache, add_unknown_model_or_file_is_not_found)
{
    write_package(NULL, 1);
    cr_assert_eq(aoticache_package_add(cache, package_path, "third", NULL, NULL, NULL, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, "it has: first"), "%s", error.message);
    cr_assert_eq(unlink(package_path), 0);
    cr_assert_eq(aoticache_package_add(cache, package_path, NULL, NULL, NULL, NULL, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, package_path));
    cr_assert_eq(aoticache_package_add(cache, fixture_directory, NULL, NULL, NULL, NULL, &error), AOTICACHE_INVALID);
}

Test(package_cache, add_damaged_part_stores_nothing)
{
    static zip_writer zip;
    zip_add(&zip, AT "model/x.wrapper.so", "a library", 9, &(zip_lie){.crc_change = 1});
    zip_finish(&zip);
    zip_write(&zip, package_path);
    cr_assert_eq(aoticache_package_add(cache, package_path, NULL, NULL, NULL, NULL, &error), AOTICACHE_CORRUPT, "%s",
                 error.message);
    cr_assert_eq(files_below("cache/tmp"), 0);
    cr_assert_eq(files_below("cache/objects"), 0);
}

Test(package_cache, add_in_two_processes_unpacks_once)
{
    write_package(NULL, 1);
    pid_t children[2];
    int added = 0;
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct reports reports = {.count = 0};
            aoticache_status status = aoticache_package_add(cache, package_path, NULL, NULL, take, &reports, NULL);
            _exit(status != AOTICACHE_OK ? 100 : reports.items[0].added);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status = 0;
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) < 2, "%x", (unsigned)status);
        added += WEXITSTATUS(status);
    }
    cr_assert_eq(added, 1);
    cr_assert_not(add(NULL).items[0].added);
}

static int die_at(void *user, const char *call, const char *path)
{
    (void)call;
    (void)path;
    if (--*(int *)user == 0)
        _exit(99);
    return 0;
}

/* Adds in a process that dies at the step-th call that changes the disk. Returns its exit status. */
static int add_and_die(int step)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        aoticache_syscall_hook_set(die_at, &step);
        _exit(aoticache_package_add(cache, package_path, NULL, NULL, NULL, NULL, NULL) == AOTICACHE_OK ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "%x", (unsigned)status);
    return WEXITSTATUS(status);
}

Test(package_cache, add_that_is_killed_leaves_what_the_collector_removes)
{
    int step = 1, result;
    bool had_leftovers = false;
    write_package(NULL, 1);
    while ((result = add_and_die(step)) == 99) {
        aoticache_verify_report found;
        had_leftovers = had_leftovers || files_below("cache/tmp") > 0;
        cr_assert_eq(aoticache_cache_collect(cache, NULL, NULL, NULL, NULL, &error), AOTICACHE_OK, "step %d: %s", step,
                     error.message);
        cr_assert_eq(files_below("cache/tmp"), 0, "step %d", step);
        cr_assert_eq(aoticache_cache_verify(cache, NULL, NULL, NULL, NULL, &found, &error), AOTICACHE_OK);
        cr_assert_eq(found.damaged + found.missing, 0, "step %d", step);
        step++;
    }
    cr_assert_eq(result, 0);
    cr_assert(had_leftovers && step > 5);
    cr_assert_not(add(NULL).items[0].added);
    cr_assert_eq(files_below("cache/tmp"), 0);
}

static void assert_load_refused(aoticache_status expected, const char *word)
{
    aoticache_runner *runner = NULL;
    aoticache_status status = aoticache_package_load(cache, package_path, NULL, &runner, NULL, &error);
    cr_assert_eq(status, expected, "%s: %s", aoticache_status_name(status), error.message);
    cr_assert_not_null(strstr(error.message, word), "'%s' does not say '%s'", error.message, word);
    cr_assert_null(runner);
}

Test(package_cache, another_machines_package_is_stored_and_not_loaded)
{
    aoticache_runner *runner = NULL;
    write_package("{\"AOTI_MACHINE\": \"riscv64\", \"AOTI_CPU_ISA\": \"RVV\"}", 1);
    struct reports first = add(NULL);
    cr_assert(first.items[0].added);
    cr_assert_not(add(NULL).items[0].added);
    assert_load_refused(AOTICACHE_UNSUPPORTED, "riscv64");
    cr_assert_eq(aoticache_package_load_key(cache, &first.items[0].key, NULL, &runner, NULL, &error),
                 AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "riscv64"), "%s", error.message);
}

Test(package_cache, missing_cpu_feature_is_named)
{
    char metadata[128];
    aoticache_cpu_features lacking;
    static const char *const candidates[] = {"AMX_FP16", "AVX512_4VNNIW", "AVX512_BF16", "XOP"};
    write_package(NULL, 1);
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        const aoticache_package_model model = {.machine = "", .cpu_isa = candidates[i], .name = "", .device = "cpu"};
        if (aoticache_package_requirements(&model, &lacking, NULL) != AOTICACHE_OK ||
            aoticache_cpu_features_include(aoticache_cpu_features_get(), &lacking))
            continue;
        snprintf(metadata, sizeof metadata, "{\"AOTI_CPU_ISA\": \"%s\"}", candidates[i]);
        write_package(metadata, 1);
        struct reports first = add(NULL);
        cr_assert(first.items[0].added);
        cr_assert_not(add(NULL).items[0].added);
        assert_load_refused(AOTICACHE_UNSUPPORTED, "this CPU lacks");
        return;
    }
    teardown();
    cr_skip_test("this CPU has every feature that the test knows");
}

Test(package_cache, requirements_follow_the_metadata)
{
    static const char *const pairs[][2] = {
        {"AVX2", "x86-64-v3"},
        {"AVX512 AVX512_VNNI", "x86-64-v4,avx512_vnni"},
        {"AVX512 AVX512_VNNI AMX_TILE", "x86-64-v4,avx512_vnni,amx_tile,amx_int8,amx_bf16"},
        {"INVALID_VEC_ISA", ""},
        {"", ""}};
    if (strcmp(aoticache_cpu_arch(), "x86_64") != 0) {
        teardown();
        cr_skip_test("the table is of x86-64");
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const aoticache_package_model model = {.machine = "x86_64", .cpu_isa = pairs[i][0]};
        aoticache_cpu_features got, expected;
        cr_assert_eq(aoticache_cpu_features_parse(pairs[i][1], &expected, &error), AOTICACHE_OK, "%s", error.message);
        cr_assert_eq(aoticache_package_requirements(&model, &got, &error), AOTICACHE_OK, "%s", error.message);
        cr_assert_eq(memcmp(&got, &expected, sizeof got), 0, "%s", pairs[i][0]);
    }
    const aoticache_package_model strange = {.machine = "x86_64", .cpu_isa = "AVX2 WARP_DRIVE"};
    aoticache_cpu_features got;
    cr_assert_eq(aoticache_package_requirements(&strange, &got, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "WARP_DRIVE"), "%s", error.message);
}

static float run(aoticache_runner *runner)
{
    float data[2] = {1, 2}, first;
    AtenTensorHandle input = NULL, output = NULL;
    aoticache_tensor_view view;
    cr_assert_eq(aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 1, (int64_t[]){2}, NULL, &input, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_runner_run(runner, &input, 1, &output, 1, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_tensor_get_view(output, &view, &error), AOTICACHE_OK);
    first = ((float *)view.data)[0];
    aoticache_tensor_free(output);
    aoticache_tensor_free(input);
    return first;
}

Test(package_cache, load_unpacks_once_and_runs)
{
    aoticache_runner *first = NULL, *second = NULL, *by_key = NULL;
    aoticache_package_report report, again, third;
    write_kernel_package();
    cr_assert_eq(aoticache_package_load(cache, package_path, NULL, &first, &report, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert(report.added && report.stored && report.add_ns > 0 && report.load_ns > 0);
    cr_assert_eq(run(first), 2);
    const size_t files = files_below("cache");
    cr_assert_eq(aoticache_package_load(cache, package_path, NULL, &second, &again, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert(!again.added && again.stored && again.add_ns == 0);
    cr_assert_eq(again.bytes, report.bytes);
    cr_assert_eq(run(second), 2);
    cr_assert_eq(files_below("cache"), files);
    cr_assert_eq(files_below("cache/tmp"), 0);
    cr_assert_eq(unlink(package_path), 0);
    cr_assert_eq(aoticache_package_load_key(cache, &report.key, NULL, &by_key, &third, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_str_eq(third.model, "model");
    cr_assert_eq(run(by_key), 2);
    aoticache_runner_unref(first);
    aoticache_runner_unref(second);
    aoticache_runner_unref(by_key);
}

Test(package_cache, load_for_another_device_is_refused)
{
    aoticache_runner *runner = NULL;
    aoticache_package_options options = AOTICACHE_PACKAGE_OPTIONS_INIT;
    write_kernel_package();
    options.device = "cuda:1";
    cr_assert_eq(aoticache_package_load(cache, package_path, &options, &runner, NULL, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "compiled for cpu"), "%s", error.message);
    options.size = 1;
    cr_assert_eq(aoticache_package_load(cache, package_path, &options, &runner, NULL, &error), AOTICACHE_INVALID);
}

Test(package_cache, load_key_of_something_else_is_refused)
{
    aoticache_runner *runner = NULL;
    aoticache_key key = {{1}};
    cr_assert_eq(aoticache_package_load_key(cache, &key, NULL, &runner, NULL, &error), AOTICACHE_NOT_FOUND);
}

Test(package_cache, load_from_a_read_only_cache_runs_from_a_copy)
{
    char directory[FIXTURE_PATH_BYTES];
    aoticache_cache *read_only = NULL;
    aoticache_runner *runner = NULL;
    aoticache_package_report report;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    write_kernel_package();
    fixture_path("cache", directory);
    options.directory = directory;
    options.read_only = true;
    cr_assert_eq(aoticache_cache_open(&options, &read_only, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_package_add(read_only, package_path, NULL, NULL, NULL, NULL, &error), AOTICACHE_DENIED);
    cr_assert_eq(aoticache_package_load(read_only, package_path, NULL, &runner, &report, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_not(report.stored);
    cr_assert_eq(run(runner), 2);
    aoticache_runner_unref(runner);
    aoticache_cache_close(read_only);
}
