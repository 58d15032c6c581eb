/*
 * Where the weights of a kernel library written in C may be stored (runtime/kernel.h): appended to it by
 * scripts/append-weights, in a file next to it or in a directory of the host's, in the host's memory. Also the message
 * for kernels of another device.
 */
#include "kernel_fixture.h"

enum { BLOB_BYTES = 192 };

static const int64_t three[] = {3};

/* Fills the blob of tests/unit/kernels/linear.c: weight 2, bias 1, traced 100, each at a multiple of 64 bytes. */
static void fill_blob(float blob[BLOB_BYTES / 4])
{
    memset(blob, 0, BLOB_BYTES);
    for (int i = 0; i < 6; i++)
        blob[i] = 2;
    blob[16] = blob[17] = 1;
    blob[32] = 100;
}

static void write_blob(const char *directory, size_t bytes)
{
    float blob[BLOB_BYTES / 4];
    char path[256];
    fill_blob(blob);
    snprintf(path, sizeof path, "%s/weights.bin", directory);
    FILE *file = fopen(path, "wb");
    cr_assert(file != NULL && fwrite(blob, 1, bytes, file) == bytes && fclose(file) == 0);
}

static AOTIRuntimeError create_in(const char *directory, AOTInductorModelContainerHandle *ret_container)
{
    return KERNEL(AOTInductorModelContainerCreateWithDevice)(ret_container, 1, "cpu", directory);
}

static AOTIRuntimeError run_container(AOTInductorModelContainerHandle container, float *ret_y)
{
    float x[3] = {1, 1, 1};
    AtenTensorHandle input = shim_wrap(x, AOTICACHE_DTYPE_FLOAT32, 1, three, NULL), outputs[3] = {NULL};
    if (KERNEL(AOTInductorModelContainerRun)(container, &input, 1, outputs, 3, NULL, NULL) != 0)
        return 1;
    *ret_y = *(float *)shim_data(outputs[0]);
    for (int i = 0; i < 3; i++)
        shim_delete(outputs[i]);
    return 0;
}

static void check_runs(AOTInductorModelContainerHandle container)
{
    float y;
    uint64_t bytes = 0;
    KERNEL_WORKS(run_container(container, &y));
    cr_assert_eq(y, 107);
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerGetConstantsBlobSize)(container, &bytes));
    cr_assert_eq(bytes, BLOB_BYTES);
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerDelete)(container));
}

static void shell(const char *command)
{
    char text[512];
    snprintf(text, sizeof text, "cd %s && %s", kernel_directory, command);
    run_command(text);
}

static void append(void)
{
    char command[512];
    write_blob(kernel_directory, BLOB_BYTES);
    snprintf(command, sizeof command, "scripts/append-weights %s/kernel.so %s/weights.bin", kernel_directory,
             kernel_directory);
    run_command(command);
}

Test(weights, appended_ones_are_mapped_from_the_library)
{
    AOTInductorModelContainerHandle container, second;
    kernel_compile("linear.c", "-DWEIGHTS=APPENDED -DWITH_DATA=0");
    append();
    kernel_load();
    KERNEL_WORKS(create_in(NULL, &container));
    KERNEL_WORKS(create_in(NULL, &second));
    kernel_remove();
    check_runs(container);
    check_runs(second);
}

Test(weights, a_library_that_is_cut_off_or_has_none_says_both_sizes)
{
    AOTInductorModelContainerHandle container = NULL;
    kernel_compile("linear.c", "-DWEIGHTS=APPENDED -DWITH_DATA=0");
    kernel_load();
    KERNEL_FAILS(create_in(NULL, &container), "do not end with the kernel's 192 bytes of appended weights");
    append();
    shell("truncate -s -1 kernel.so");
    KERNEL_FAILS(create_in(NULL, &container), "do not end with the kernel's 192 bytes of appended weights");
    shell("head -c 64 weights.bin > few && cp kernel.so copy.so");
    char command[512];
    snprintf(command, sizeof command, "scripts/append-weights %s/kernel.so %s/few", kernel_directory, kernel_directory);
    run_command(command);
    KERNEL_FAILS(create_in(NULL, &container), "64 bytes of weights, but the kernel has 192");
    /* The middle is cut out, the end is there. */
    shell("head -c 20000 copy.so > kernel.so && tail -c 32 copy.so >> kernel.so");
    cr_assert_neq(create_in(NULL, &container), 0);
    cr_assert_null(container);
    kernel_remove();
}

Test(weights, a_file_is_next_to_the_library_or_in_the_hosts_directory)
{
    AOTInductorModelContainerHandle container = NULL;
    char other[sizeof kernel_directory], path[sizeof kernel_directory + 16];
    kernel_compile("linear.c", "-DWEIGHTS=FILE -DWITH_DATA=0");
    kernel_load();
    KERNEL_FAILS(create_in(NULL, &container), "weights.bin: cannot be opened: No such file");
    write_blob(kernel_directory, 100);
    KERNEL_FAILS(create_in(NULL, &container), "weights.bin: 100 bytes of weights, but the kernel has 192");
    write_blob(kernel_directory, BLOB_BYTES);
    snprintf(path, sizeof path, "%s/none", kernel_directory);
    KERNEL_WORKS(create_in(path, &container));
    check_runs(container);
    KERNEL_WORKS(create_in("", &container));
    check_runs(container);
    kernel_remove();
    own_directory_make(other, sizeof other);
    write_blob(other, BLOB_BYTES);
    KERNEL_WORKS(create_in(other, &container));
    check_runs(container);
}

Test(weights, the_host_gives_a_blob)
{
    AOTInductorModelContainerHandle container;
    float y, blob[BLOB_BYTES / 4];
    kernel_compile("linear.c", "-DWEIGHTS=HOST -DWITH_DATA=0");
    kernel_load();
    kernel_remove();
    KERNEL_WORKS(create_in(NULL, &container));
    KERNEL_FAILS(run_container(container, &y), "weight has no data");
    KERNEL_FAILS(KERNEL(AOTInductorModelUpdateConstantsFromBlob)(container, NULL), "expected 192 bytes");
    fill_blob(blob);
    KERNEL_WORKS(KERNEL(AOTInductorModelUpdateConstantsFromBlob)(container, (const uint8_t *)blob));
    memset(blob, 0, sizeof blob);
    check_runs(container);
}

Test(weights, embedded_ones_have_no_blob)
{
    AOTInductorModelContainerHandle container;
    float y;
    uint64_t bytes;
    kernel_compile("linear.c", "");
    kernel_load();
    kernel_remove();
    KERNEL_WORKS(create_in(NULL, &container));
    KERNEL_FAILS(KERNEL(AOTInductorModelContainerGetConstantsBlobSize)(container, &bytes), "only available for mmap'd");
    KERNEL_WORKS(KERNEL(AOTInductorModelUpdateConstantsFromBlob)(container, (const uint8_t *)&y));
    KERNEL_WORKS(run_container(container, &y));
    cr_assert_eq(y, 116);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(weights, places_this_runtime_does_not_know_are_refused)
{
    AOTInductorModelContainerHandle container = NULL;
    kernel_compile("linear.c", "-DAOTICACHE_KERNEL_WEIGHTS_MOON=9 -DWEIGHTS=MOON");
    kernel_load();
    kernel_remove();
    KERNEL_FAILS(create_in(NULL, &container), "location of its weights is 9; this runtime supports 0 to 3");
}

Test(weights, a_cuda_kernel_is_not_run_elsewhere)
{
    AOTInductorModelContainerHandle container = NULL;
    kernel_compile("linear.c", "'-DDEVICE=\"cuda\"'");
    kernel_load();
    kernel_remove();
    __typeof__(&AOTInductorModelContainerCreateWithDevice) with_device =
        KERNEL(AOTInductorModelContainerCreateWithDevice);
    KERNEL_FAILS(with_device(&container, 1, "cpu", NULL), "device cpu was requested, but this kernel is for cuda");
    KERNEL_FAILS(with_device(&container, 1, "cuda:x", NULL), "device cuda:x was requested");
    cr_assert_null(container);
}
