/*
 * Containers for CUDA, on a fake CUDA runtime (tests/unit/kernels/fake_cuda.c): models that are pending until their
 * event has completed, and the message if there is no device. Real devices are not needed.
 */
#include "kernel_fixture.h"

static int *counter(void *runtime, const char *name)
{
    int *value = dlsym(runtime, name);
    cr_assert_not_null(value, "%s", name);
    return value;
}

/* Loads it into the process under the name that containers look for. */
static void *load_fake_runtime(void)
{
    char directory[128], command[512], path[160];
    if (system("cc --version >/dev/null 2>&1") != 0)
        cr_skip_test("there is no C compiler");
    own_directory_make(directory, sizeof directory);
    snprintf(path, sizeof path, "%s/libcudart.so.13", directory);
    snprintf(command, sizeof command,
             "cc -shared -fPIC -Wl,-soname,libcudart.so.13 tests/unit/kernels/fake_cuda.c -o %s", path);
    run_command(command);
    void *runtime = dlopen(path, RTLD_NOW);
    cr_assert_not_null(runtime, "%s", dlerror());
    return runtime;
}

static void load_pass_kernel(void)
{
    kernel_compile("pass.c", "");
    kernel_load();
    kernel_remove();
}

static AOTIRuntimeError create_on(const char *device, size_t models, AOTInductorModelContainerHandle *ret_container)
{
    return KERNEL(AOTInductorModelContainerCreateWithDevice)(ret_container, models, device, NULL);
}

static void run_once(AOTInductorModelContainerHandle container)
{
    float x = 1;
    const int64_t one[] = {1};
    AtenTensorHandle input = shim_wrap(&x, AOTICACHE_DTYPE_FLOAT32, 1, one, NULL), output = NULL;
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerRun)(container, &input, 1, &output, 1, NULL, NULL));
    shim_delete(output);
}

Test(device, models_are_pending_until_their_event_has_come)
{
    void *runtime = load_fake_runtime();
    int *waits = counter(runtime, "fake_cuda_waits"), *end = counter(runtime, "fake_cuda_end");
    load_pass_kernel();
    AOTInductorModelContainerHandle container;
    KERNEL_WORKS(create_on("cuda:1", 2, &container));
    cr_assert_eq(*counter(runtime, "fake_cuda_current"), 1);
    run_once(container); /* the first one folds, with all models */
    run_once(container);
    cr_assert_eq(*waits, 0, "a second model was free");
    run_once(container);
    cr_assert_eq(*waits, 1, "none was free, and the oldest was waited for");
    *end = 1;
    run_once(container);
    run_once(container);
    cr_assert_eq(*waits, 1, "those that had ended were reclaimed");
    *end = 0;
    run_once(container);
    int before = *waits;
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerSwapConstantBuffer)(container));
    cr_assert_gt(*waits, before, "a swap waits for the device");
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerDelete)(container));
    cr_assert_eq(*counter(runtime, "fake_cuda_events"), 0);
}

Test(device, devices_that_are_not_there_are_named)
{
    void *runtime = load_fake_runtime();
    load_pass_kernel();
    AOTInductorModelContainerHandle container = NULL;
    KERNEL_FAILS(create_on("cuda:2", 1, &container),
                 "device cuda:2 was requested, but this machine has 2 CUDA devices");
    *counter(runtime, "fake_cuda_devices") = 0;
    KERNEL_FAILS(create_on("cuda", 1, &container), "error 100: no CUDA-capable device is detected");
    cr_assert_null(container);
}

Test(device, a_machine_without_cuda_says_so)
{
    load_pass_kernel();
    AOTInductorModelContainerHandle container = NULL;
    if (access("/dev/nvidia0", F_OK) == 0)
        cr_skip_test("this machine has a CUDA device");
    /* There is no CUDA runtime, or one that reports no devices. */
    KERNEL_FAILS(create_on("cuda", 1, &container), "device cuda was requested, but");
    cr_assert_null(container);
}
