/*
 * The GPUs of a machine through a fake driver, which image runs on which of them, and what the check of the device
 * "cuda" refuses and reports.
 */
#include "tests/unit/fixtures/cuda_fixture.h"

#include "loader/cuda/cuda_internal.h"
#include "loader/eager_face.h"
#include "loader/loader_internal.h"
#include "loader/runner/backend.h"

TestSuite(cuda, .init = fixture_setup, .fini = fixture_teardown);

/* ---- the driver ---- */

Test(cuda, driver_and_its_devices_are_read)
{
    const aoticache_cuda *cuda = NULL, *again = NULL;
    aoticache_cuda_device device;
    aoticache_error error = {0};
    fixture_driver("");
    cr_assert_eq(aoticache_cuda_get(&cuda, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(cuda->driver_version, 12040);
    cr_assert_eq(cuda->device_count, 2);
    cr_assert_not_null(strstr(cuda->driver_path, "/libcuda.so.1"), "%s", cuda->driver_path);
    cr_assert_eq(aoticache_cuda_device_read(1, &device, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(device.name, "Stand-in T");
    cr_assert_str_eq(device.arch, "sm_75");
    cr_assert(device.major == 7 && device.minor == 5 && device.memory_bytes == UINT64_C(2) << 32);
    cr_assert_null(cuda->devices[1].problem);
    cr_assert_str_eq(cuda->devices[0].arch, "sm_90");
    cr_assert_eq(aoticache_cuda_device_read(-1, &device, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(device.arch, "sm_90");
    cr_assert_eq(aoticache_cuda_get(&again, &error), AOTICACHE_OK);
    cr_assert_eq(again, cuda);
}

static void asking_fails(aoticache_status status, const char *words)
{
    const aoticache_cuda *cuda = NULL;
    aoticache_cuda_device device;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_cuda_get(&cuda, &error), status);
    cr_assert_not_null(strstr(error.message, words), "the message is: %s", error.message);
    cr_assert_null(cuda);
    cr_assert_eq(aoticache_cuda_device_read(0, &device, &error), status);
    cr_assert_not_null(strstr(error.message, words), "the message is: %s", error.message);
}

Test(cuda, no_driver_is_not_found)
{
    char words[FIXTURE_PATH_BYTES + 64];
    fixture_no_driver();
    snprintf(words, sizeof words, "there is no CUDA driver: %s: cannot open", getenv("AOTICACHE_CUDA_DRIVER"));
    asking_fails(AOTICACHE_NOT_FOUND, words);
}

Test(cuda, driver_without_a_function_is_unsupported)
{
    fixture_driver("-DOLD");
    asking_fails(AOTICACHE_UNSUPPORTED, "has no function cuDeviceTotalMem_v2");
}

Test(cuda, driver_that_does_not_start_says_why)
{
    fixture_driver("-DINIT=803");
    asking_fails(AOTICACHE_UNSUPPORTED, "cuInit failed with error 803: words of the driver");
}

Test(cuda, driver_without_a_device_is_none)
{
    const aoticache_cuda *cuda = NULL;
    aoticache_cuda_device device;
    aoticache_error error = {0};
    fixture_driver("-DINIT=100 -DVERSION=13000");
    cr_assert_eq(aoticache_cuda_get(&cuda, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert(cuda->device_count == 0 && cuda->driver_version == 13000);
    cr_assert_eq(aoticache_cuda_device_read(-1, &device, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, "there is no CUDA device"), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "for CUDA 13.0, finds none"), "%s", error.message);
}

Test(cuda, device_beyond_the_last_is_not_found)
{
    aoticache_cuda_device device = {.major = 99};
    aoticache_error error = {0};
    fixture_driver("");
    cr_assert_eq(aoticache_cuda_device_read(2, &device, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, "no CUDA device 2: this machine has 2"), "%s", error.message);
    cr_assert_eq(aoticache_cuda_device_read(-2, &device, &error), AOTICACHE_NOT_FOUND);
    cr_assert_eq(device.major, 99);
}

Test(cuda, device_that_cannot_be_asked_does_not_hide_the_others)
{
    const aoticache_cuda *cuda = NULL;
    aoticache_cuda_device device;
    aoticache_error error = {0};
    fixture_driver("-DBROKEN=0");
    cr_assert_eq(aoticache_cuda_device_read(0, &device, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "cuDeviceGetName failed with error 999"), "%s", error.message);
    cr_assert_eq(aoticache_cuda_device_read(1, &device, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_cuda_get(&cuda, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_not_null(strstr(cuda->devices[0].problem, "CUDA device 0: cuDeviceGetName failed with error 999"));
    cr_assert_null(cuda->devices[1].problem);
}

Test(cuda, no_place_for_an_answer_is_invalid)
{
    aoticache_error error = {0};
    cr_assert_eq(aoticache_cuda_get(NULL, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cuda_device_read(0, NULL, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cuda_images_read(0, NULL, 1, &(size_t){0}, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cuda_images_read(0, NULL, 0, NULL, &error), AOTICACHE_INVALID);
}

/* ---- which image runs where ---- */

Test(cuda, images_run_where_the_rules_say)
{
    static const struct rule {
        aoticache_cuda_image image;
        const char *text;
        int32_t major, minor;
        bool runs;
    } rules[] = {
        {{.major = 8, .minor = 0}, "sm_80", 8, 0, true},
        {{.major = 8, .minor = 0}, "sm_80", 8, 9, true},
        {{.major = 8, .minor = 6}, "sm_86", 8, 0, false},
        {{.major = 8, .minor = 0}, "sm_80", 9, 0, false},
        {{.major = 9, .minor = 0}, "sm_90", 8, 9, false},
        {{.major = 12, .minor = 0}, "sm_120", 12, 1, true},
        {{.major = 10, .minor = 0}, "sm_100", 12, 0, false},
        {{.major = 8, .minor = 0, .is_ptx = true}, "compute_80", 8, 0, true},
        {{.major = 8, .minor = 0, .is_ptx = true}, "compute_80", 12, 0, true},
        {{.major = 8, .minor = 6, .is_ptx = true}, "compute_86", 8, 0, false},
        {{.major = 9, .minor = 0, .is_ptx = true}, "compute_90", 8, 9, false},
        {{.major = 9, .minor = 0, .is_specific = true}, "sm_90a", 9, 0, true},
        {{.major = 10, .minor = 0, .is_specific = true}, "sm_100a", 10, 3, false},
        {{.major = 9, .minor = 0, .is_ptx = true, .is_specific = true}, "compute_90a", 9, 0, true},
        {{.major = 9, .minor = 0, .is_ptx = true, .is_specific = true}, "compute_90a", 10, 0, false},
        {{.major = 10, .minor = 0, .is_family = true}, "sm_100f", 10, 3, true},
        {{.major = 10, .minor = 3, .is_family = true}, "sm_103f", 10, 0, false},
        {{.major = 10, .minor = 0, .is_family = true}, "sm_100f", 12, 0, false},
        {{.major = 10, .minor = 0, .is_ptx = true, .is_family = true}, "compute_100f", 10, 3, true},
        {{.major = 10, .minor = 0, .is_ptx = true, .is_family = true}, "compute_100f", 12, 0, false},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        char text[16];
        aoticache_cuda_image_format(&rules[i].image, text);
        cr_expect_str_eq(text, rules[i].text);
        cr_expect_eq(aoticache_cuda_image_runs_on(&rules[i].image, rules[i].major, rules[i].minor), rules[i].runs,
                     "%s on %d.%d", rules[i].text, rules[i].major, rules[i].minor);
    }
}

/* ---- the check ---- */

static aoticache_library *library_with(const file_bytes *file, const char *needed)
{
    aoticache_library *library = calloc(1, sizeof *library + sizeof "kernel");
    const char *names[] = {needed};
    aoticache_name_list list = {.count = needed != NULL ? 1 : 0, .names = names};
    aoticache_error error = {0};
    int fd = file_open(file);
    cr_assert_not_null(library);
    memcpy(library->name, "kernel", sizeof "kernel");
    cr_assert_eq(aoticache_cuda_facts_read(fd, &list, &library->cuda, &error), AOTICACHE_OK, "%s", error.message);
    close(fd);
    return library;
}

/* Checks the result of the check. words: NULL for a library that passes. Takes the library over. */
static void check_says(aoticache_library *library, int32_t index, const char *directory, const char *words)
{
    const aoticache_device_backend *backend = aoticache_cuda_backend();
    aoticache_error error = {0};
    aoticache_status status = backend->check(backend->user, library, index, directory, &error);
    cr_expect_eq(status, words == NULL ? AOTICACHE_OK : AOTICACHE_UNSUPPORTED, "status %d: %s", status, error.message);
    if (words != NULL)
        cr_expect_not_null(strstr(error.message, words), "the message is: %s", error.message);
    aoticache_cuda_facts_free(library->cuda);
    free(library);
}

/* Makes a library with one image for each of two architectures. */
static file_bytes library_for(uint32_t arch, uint32_t ptx_arch)
{
    file_bytes file = {.size = 0};
    size_t section = put_library(&file), container = put_container(&file);
    put_entry(&file, container, CUBIN, arch, 0);
    if (ptx_arch != 0)
        put_entry(&file, container, PTX, ptx_arch, COMPRESSED);
    end_library(&file, section);
    return file;
}

Test(cuda, check_lets_what_runs_through)
{
    fixture_driver("");
    file_bytes ninety = library_for(90, 0), seventy = library_for(70, 0), ptx = library_for(120, 75);
    file_bytes none = {.size = 0};
    end_library(&none, put_library(&none));
    check_says(library_with(&ninety, NULL), 0, NULL, NULL);
    check_says(library_with(&ninety, "libcudart.so.12"), -1, NULL, NULL);
    check_says(library_with(&seventy, "libcudart.so.11.0"), 1, NULL, NULL);
    check_says(library_with(&ptx, "libcudart.so"), 0, NULL, NULL);
    check_says(library_with(&none, NULL), 0, NULL, NULL);
}

Test(cuda, check_refuses_another_architecture)
{
    fixture_driver("");
    file_bytes file = library_for(80, 120);
    check_says(library_with(&file, NULL), 0, NULL,
               "library kernel cannot run on cuda:0 (Stand-in H, sm_90): it has device code for sm_80, compute_120; "
               "compile it for sm_90");
    file = library_for(90, 0);
    check_says(library_with(&file, NULL), 1, NULL, "cuda:1 (Stand-in T, sm_75): it has device code for sm_90;");
}

Test(cuda, check_refuses_an_older_driver)
{
    fixture_driver("");
    file_bytes file = library_for(90, 0);
    check_says(library_with(&file, "libcudart.so.13"), 0, NULL,
               "library kernel needs libcudart.so.13, which requires a driver for CUDA 13.0 or later; the driver ");
    check_says(library_with(&file, "/opt/cuda/lib/libcudart.so.13"), 0, NULL, "is for CUDA 12.4: install a newer one");
}

Test(cuda, check_refuses_without_a_device)
{
    fixture_driver("-DINIT=100");
    file_bytes file = library_for(90, 0);
    check_says(library_with(&file, NULL), 0, NULL, "library kernel cannot run on cuda:0: there is no CUDA device:");
}

Test(cuda, check_refuses_without_a_driver)
{
    fixture_no_driver();
    file_bytes file = library_for(90, 0);
    check_says(library_with(&file, NULL), -1, NULL, "library kernel cannot run on cuda:0: there is no CUDA driver:");
}

Test(cuda, check_refuses_a_device_beyond_the_last)
{
    fixture_driver("");
    file_bytes file = library_for(90, 0);
    check_says(library_with(&file, NULL), 7, NULL, "cuda:7: there is no CUDA device 7: this machine has 2");
}

Test(cuda, check_names_damage_that_loading_let_pass)
{
    fixture_driver("");
    file_bytes file = library_for(90, 0);
    file.size -= 8;
    check_says(library_with(&file, NULL), 0, NULL,
               "cannot run on cuda:0: device code: section .nv_fatbin is 144 bytes");
}

Test(cuda, check_looks_at_files_next_to_the_library)
{
    fixture_driver("");
    file_bytes library = {.size = 0}, cubin = {.size = 0}, fatbin = {.size = 0};
    end_library(&library, put_library(&library));
    put_cubin(&cubin, 0, 8, 90 << 8);
    file_write(&cubin, "first.cubin");
    file_write(&library, "kernel.so");
    check_says(library_with(&library, NULL), 0, fixture_directory, NULL);
    check_says(library_with(&library, NULL), 1, fixture_directory,
               "(Stand-in T, sm_75): its file first.cubin has device code for sm_90; compile it for sm_75");
    put_entry(&fatbin, put_container(&fatbin), CUBIN, 100, FAMILY);
    file_write(&fatbin, "second.fatbin");
    check_says(library_with(&library, NULL), 0, fixture_directory,
               "its file second.fatbin has device code for sm_100f");
    fatbin.size = 20;
    file_write(&fatbin, "second.fatbin");
    check_says(library_with(&library, NULL), 0, fixture_directory,
               "its file second.fatbin: device code: the container");
}

Test(cuda, check_of_a_missing_directory_is_io)
{
    const aoticache_device_backend *backend = aoticache_cuda_backend();
    aoticache_error error = {0};
    char cubins[FIXTURE_PATH_BYTES];
    fixture_path("cubins", cubins);
    fixture_driver("");
    file_bytes file = library_for(90, 0);
    aoticache_library *library = library_with(&file, NULL);
    cr_assert_eq(backend->check(NULL, library, 0, cubins, &error), AOTICACHE_IO);
    cr_assert_not_null(strstr(error.message, cubins), "%s", error.message);
    aoticache_cuda_facts_free(library->cuda);
    free(library);
}

/* ---- the stream ---- */

Test(cuda, stream_without_pytorch_is_none)
{
    const aoticache_device_backend *backend = aoticache_cuda_backend();
    cr_assert_null(backend->current_stream(backend->user, 0));
}

Test(cuda, stream_is_that_of_pytorch)
{
    const aoticache_device_backend *backend = aoticache_cuda_backend();
    char path[FIXTURE_PATH_BYTES];
    fixture_import_torch("libtorch_cpu.so");
    cr_assert_null(backend->current_stream(backend->user, 0), "PyTorch without CUDA has no stream");
    fixture_compile("#include <stdint.h>\nint aoti_torch_get_current_cuda_stream(int32_t index, void **ret)\n"
                    "{ if (index > 1) return 1; *ret = (void *)(intptr_t)(0x1000 + index); return 0; }\n",
                    "libtorch_cuda.so", "");
    fixture_path("libtorch_cuda.so", path);
    cr_assert_not_null(dlopen(path, RTLD_NOW | RTLD_LOCAL));
    cr_assert_eq((uintptr_t)backend->current_stream(backend->user, 1), 0x1001);
    cr_assert_eq((uintptr_t)backend->current_stream(backend->user, -1), 0xfff);
    cr_assert_null(backend->current_stream(backend->user, 2), "a failure gives no stream");
}
