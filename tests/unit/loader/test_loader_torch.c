/*
 * The provider: where the aoti_torch_* functions come from. The shim comes from the build; libtorch is a stand-in.
 */
#include "tests/unit/fixtures/loader_fixture.h"

#include "base/process/home.h"
#include "loader/loader.h"

#include <sys/stat.h>

TestSuite(torch, .init = fixture_setup, .fini = fixture_teardown);

Test(torch, shim_is_chosen_where_libtorch_is_not_loaded)
{
    const aoticache_torch *torch = NULL, *again = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_torch_get(&torch, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(torch->kind, AOTICACHE_TORCH_SHIM);
    cr_assert_not_null(strstr(torch->path, "libaoticache_torchshim.so"));
    fixture_import_torch("libtorch_cpu.so"); /* later: the choice stays */
    cr_assert_eq(aoticache_torch_get(&again, &error), AOTICACHE_OK);
    cr_assert_eq(again, torch);
}

Test(torch, absent_shim_is_reported_with_the_places)
{
    setenv("AOTICACHE_HOME", fixture_directory, 1);
    char path[PATH_MAX];
    if (aoticache_home_find("lib/libaoticache_torchshim.so", path, NULL) == AOTICACHE_OK)
        cr_skip_test("a shim is installed on this machine");
    const aoticache_torch *torch = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_torch_get(&torch, &error), AOTICACHE_LOAD_FAILED);
    cr_assert_not_null(strstr(error.message, fixture_directory), "%s", error.message);
    cr_assert_null(torch);
    /* Without a shim everything is missing; it may be installed later. */
    int fd = fixture_kernel("kernel.so", "");
    aoticache_library_description *about = NULL;
    cr_assert_eq(aoticache_library_describe(fd, &about, &error), AOTICACHE_OK);
    cr_assert_eq(about->missing_count, about->symbol_count);
    aoticache_library_description_free(about);
    cr_assert_eq(fixture_run("mkdir '%s/lib'", fixture_directory), 0);
    fixture_compile(fixture_torch_source, "lib/libaoticache_torchshim.so", "-Wl,-soname,libaoticache_torchshim.so");
    aoticache_library *library = fixture_load(fd);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
    close(fd);
}

Test(torch, incomplete_shim_is_refused_with_what_it_lacks)
{
    setenv("AOTICACHE_HOME", fixture_directory, 1);
    cr_assert_eq(fixture_run("mkdir '%s/lib'", fixture_directory), 0);
    fixture_compile("int aoti_torch_get_dim(void *t, long *r) { return 1; }", "lib/libaoticache_torchshim.so",
                    "-Wl,-soname,libaoticache_torchshim.so");
    const aoticache_torch *torch = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_torch_get(&torch, &error), AOTICACHE_LOAD_FAILED);
    cr_assert_not_null(strstr(error.message, "lacks 13 functions: aoti_torch_abi_version, "), "%s", error.message);
}

Test(torch, libtorch_in_the_process_is_used)
{
    void *handle = fixture_import_torch("libtorch_cpu.so");
    const aoticache_torch *torch = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_torch_get(&torch, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(torch->kind, AOTICACHE_TORCH_LIBTORCH);
    void *expected = dlsym(handle, "aoti_torch_get_dim");
    cr_assert_eq(memcmp(&torch->aoti_torch_get_dim, &expected, sizeof expected), 0);
    cr_assert_null(dlsym(RTLD_DEFAULT, "aoti_torch_get_dim"), "libtorch became global");

    int fd = fixture_kernel("kernel.so", "");
    aoticache_library *library = fixture_load(fd);
    cr_assert_eq(aoticache_library_get_info(library)->torch_kind, AOTICACHE_TORCH_LIBTORCH);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
    close(fd);
}

Test(torch, unlinked_kernel_gets_the_libtorch_of_the_process)
{
    fixture_import_torch("libtorch_cpu.so");
    fixture_compile(fixture_kernel_source, "unlinked.so", "-Wl,-z,now");
    char path[FIXTURE_PATH_BYTES];
    fixture_path("unlinked.so", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    cr_assert_null(dlsym(RTLD_DEFAULT, "aoti_torch_get_dim"), "libtorch became global");
    aoticache_library_unref(library);
}

/* A distribution's PyTorch has a version in its name; kernels made by a wheel name it without one, and the reverse. */
Test(torch, libtorch_with_another_versioned_name_is_used)
{
    fixture_import_torch("libtorch_cpu.so.2.6");
    aoticache_library *plain = fixture_load(fixture_kernel("plain.so", ""));
    cr_assert_eq(fixture_first_result(plain), 2.0f);
    fixture_stub("libtorch_cpu.so.2.5");
    fixture_compile(fixture_kernel_source, "versioned.so", "-Wl,--no-as-needed -L. -l:libtorch_cpu.so.2.5");
    char path[FIXTURE_PATH_BYTES];
    fixture_path("versioned.so", path);
    aoticache_library *versioned = fixture_load(open(path, O_RDONLY | O_CLOEXEC));
    cr_assert_eq(fixture_first_result(versioned), 2.0f);
    cr_assert_eq(fixture_torch_libraries(), 1);
    aoticache_library_unref(versioned);
    aoticache_library_unref(plain);
}

Test(torch, functions_that_libtorch_lacks_are_all_named)
{
    fixture_import_torch("libtorch_cpu.so");
    fixture_expect_refused(fixture_kernel("kernel.so", "-DMISSING"), AOTICACHE_UNSUPPORTED,
                           "3 functions that the PyTorch in this process does not have: aoti_torch_made_up_one",
                           "torch_made_up; compile it with this version of PyTorch");
}
