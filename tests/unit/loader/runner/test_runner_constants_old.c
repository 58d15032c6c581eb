/*
 * The constants of libraries that older versions of PyTorch made: those of 2.6, which use only C++ maps, and those of
 * versions below 2.13, which make the inactive buffer late and accept no tensors on the CPU.
 */
#include "constants_fixture.h"
#include "loader/loader.h"
#include "loader/runner/backend.h"
#include "loader/runner/constants.h"
#include "loader/runner/runner_internal.h"
#include "loader/torch.h"

TestSuite(runner_constants_old, .init = fixture_setup, .fini = fixture_teardown);

/* ---- libraries with only the functions of PyTorch 2.6 ---- */

Test(runner_constants_old, of_an_old_library_have_no_size)
{
    aoticache_runner *runner = affine(fixture_version_script_26(""));
    aoticache_constant constant = {.has_bytes = true};
    WORKS(aoticache_runner_read_constant(runner, 0, &constant, &error));
    cr_assert_str_eq(constant.original_fqn, "layer.weight");
    cr_assert_not(constant.has_bytes);
    aoticache_runner_unref(runner);
}

Test(runner_constants_old, update_of_an_old_library_goes_through_a_map)
{
    cr_assert_null(dlsym(RTLD_DEFAULT, "aoticache_cxx_map_new"));
    update_in_all_ways(fixture_version_script_26(""));
}

Test(runner_constants_old, bridge_that_is_not_there_is_named)
{
    aoticache_runner *runner = affine(fixture_version_script_26(""));
    char program[PATH_MAX] = "", bridge[PATH_MAX], home[FIXTURE_PATH_BYTES];
    fixture_path("none", home);
    setenv("AOTICACHE_HOME", home, 1);
    cr_assert_gt(readlink("/proc/self/exe", program, sizeof program - 1), 0);
    for (int level = 0; level < 2; level++)
        *strrchr(program, '/') = '\0';
    snprintf(bridge, sizeof bridge, "%.4000s/lib/libaoticache_cxxbridge.so", program);
    if (access(bridge, R_OK) == 0 || access("/usr/local/lib/libaoticache_cxxbridge.so", R_OK) == 0)
        cr_skip_test("an installed bridge would be found");
    REFUSED(runner, "L__self___weight", AOTICACHE_LOAD_FAILED, "lib/libaoticache_cxxbridge.so", .partial = true);
    expect_weight(runner, 2);
    aoticache_runner_unref(runner);
}

Test(runner_constants_old, of_an_old_library_are_folded)
{
    fold_when_told_and_when_needed(fixture_version_script_26(""), 2);
}

Test(runner_constants_old, are_extracted_through_a_map)
{
    extract_both_buffers(fixture_version_script_26("AOTInductorModelContainerExtractConstantsMap;"));
}

Test(runner_constants_old, update_finds_the_one_function_that_there_is)
{
    const char *only = "{ global: AOTInductorModelContainerCreateWithDevice; AOTInductorModelContainerDelete;"
                       " AOTInductorModelContainerRun; AOTInductorModelContainerGet*; "
                       " AOTInductorModelContainerSwapConstantBuffer;"
                       " AOTInductorModelContainerUpdateInactiveConstantBuffer; local: *; };";
    aoticache_runner *runner = affine(only);
    UPDATE(runner, "L__self___weight", 7, .inactive = true);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    expect_weight(runner, 7);
    REFUSED(runner, "L__self___weight", AOTICACHE_UNSUPPORTED, "AOTInductorModelContainerUpdateConstantBuffer",
            .inactive = false);
    REFUSED(runner, "L__self___weight", AOTICACHE_UNSUPPORTED, "AOTInductorModelContainerUpdateConstantBuffer",
            .inactive = true, .partial = true);
    aoticache_runner_unref(runner);
}

/* If the library lists its constants as a C++ map, their shapes are read through the bridge. */
Test(runner_constants_old, of_other_sizes_are_refused_by_an_old_library_too)
{
    float large[17] = {0};
    AOTInductorConstantMapEntry pair = {"L__self___weight", vector_of(large, 17)};
    aoticache_runner *runner = affine(fixture_version_script_26("AOTInductorModelContainerExtractConstantsMap;"));
    FAILS(aoticache_runner_update_constants(runner, NULL, &pair, 1, &error), AOTICACHE_INVALID,
          "has sizes [3]; the tensor for it has [17]");
    expect_weight(runner, 2);
    UPDATE(runner, "L__self___weight", 5, .inactive = true, .partial = true);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    expect_weight(runner, 5);
    aoticache_runner_unref(runner);
    aoticache_tensor_free(pair.handle);
}

/* ---- libraries of PyTorch before 2.13 ---- */

static AOTIRuntimeError (*list_map)(AOTInductorModelContainerHandle, AOTInductorConstantMapHandle, bool);
static int inactive_lists; /* how often the inactive buffer was listed */

static AOTIRuntimeError count_lists(AOTInductorModelContainerHandle container, AOTInductorConstantMapHandle map,
                                    bool inactive)
{
    inactive_lists += inactive;
    return list_map(container, map, inactive);
}

/* They make the inactive buffer when it is first changed. If asked for it earlier, they end the process. */
Test(runner_constants_old, a_buffer_that_an_old_library_has_not_made_is_not_asked_for)
{
    found seen = {.go_on = true};
    aoticache_runner *runner =
        affine(fixture_version_script_26("AOTInductorModelContainerExtractConstantsMap;"
                                         " AOTInductorModelContainerFreeInactiveConstantBuffer;"));
    list_map = runner->library->functions.AOTInductorModelContainerExtractConstantsMap;
    runner->library->functions.AOTInductorModelContainerExtractConstantsMap = count_lists;
    WORKS(aoticache_runner_extract_constants(runner, true, note_constant, &seen, &error));
    WORKS(aoticache_runner_free_inactive_constants(runner, &error));
    UPDATE(runner, "L__self___weight", 5, .partial = true);
    expect_weight(runner, 5);
    cr_assert_eq(seen.count, 0);
    cr_assert_eq(inactive_lists, 0);
    UPDATE(runner, "L__self___weight", 6, .inactive = true, .partial = true);
    WORKS(aoticache_runner_extract_constants(runner, true, note_constant, &seen, &error));
    cr_assert_gt(seen.count, 0);
    cr_assert_gt(inactive_lists, 0);
    aoticache_runner_unref(runner);
}

/* A fake device: its tensors are CPU tensors, which are counted. */
static aoticache_torch own_torch;
static int made_on_device;

static AOTITorchError make_on_device(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                     int32_t device_type, int32_t device_index, AtenTensorHandle *ret_tensor)
{
    made_on_device += device_type == AOTICACHE_DEVICE_TYPE_CUDA;
    (void)device_index;
    return own_torch.aoti_torch_empty_strided(ndim, sizes, strides, dtype, AOTICACHE_DEVICE_TYPE_CPU, -1, ret_tensor);
}

Test(runner_constants_old, an_old_library_on_a_device_takes_tensors_of_the_cpu)
{
    aoticache_runner *runner = affine(fixture_version_script_26("AOTInductorModelContainerExtractConstantsMap;"));
    const aoticache_torch_provider *provider;
    WORKS(aoticache_torch_provider_get(&provider, &error));
    aoticache_torch *torch = (aoticache_torch *)(uintptr_t)&provider->torch;
    aoticache_device_backend device = *runner->backend;
    own_torch = *torch;
    torch->aoti_torch_empty_strided = make_on_device;
    device.device_type = AOTICACHE_DEVICE_TYPE_CUDA;
    runner->backend = &device;
    UPDATE(runner, "L__self___weight", 5, .from_cpu = true);
    cr_assert_eq(made_on_device, 1);
    UPDATE(runner, "L__self___weight", 6, .inactive = true, .from_cpu = true);
    cr_assert_eq(made_on_device, 2);
    expect_weight(runner, 5);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    expect_weight(runner, 6);
    *torch = own_torch;
    aoticache_runner_unref(runner);
}
