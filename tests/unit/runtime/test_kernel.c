/*
 * Kernel libraries written in C (runtime/kernel.h): tests/unit/kernels/affine.c is compiled here, with the installed
 * headers and libaoticache_runtime.a, loaded together with the shim, and used through the exported interface as by a
 * host.
 */
#include "kernel_fixture.h"
#include "runtime/kernel.h"

static void compile_and_load(const char *flags)
{
    kernel_compile("affine.c", flags);
    kernel_load();
    kernel_remove();
}

static AOTInductorModelContainerHandle create(void)
{
    return kernel_create(2);
}

/* Runs on {first, 1, 2}; outputs are NULL at first. */
static AOTIRuntimeError run_on(AOTInductorModelContainerHandle container, float first, AtenTensorHandle outputs[2])
{
    static float x[3];
    const int64_t three[] = {3};
    x[0] = first;
    x[1] = 1;
    x[2] = 2;
    AtenTensorHandle input = shim_wrap(x, AOTICACHE_DTYPE_FLOAT32, 1, three, NULL);
    outputs[0] = outputs[1] = NULL;
    AOTIRuntimeError status = KERNEL(AOTInductorModelContainerRun)(container, &input, 1, outputs, 2, NULL, NULL);
    cr_assert_null(input, "the input was taken");
    return status;
}

Test(kernel, runs_with_embedded_and_folded_constants)
{
    compile_and_load("");
    AOTInductorModelContainerHandle container = create();
    AtenTensorHandle outputs[2];
    for (int round = 0; round < 3; round++) {
        SHIM(aoti_torch_grad_mode_set_enabled)(round != 1);
        cr_assert_eq(run_on(container, 5, outputs), 0, "%s", last_error());
        cr_assert_eq(SHIM(aoti_torch_grad_mode_is_enabled)(), round != 1, "gradient mode is as it was");
        const float *y = shim_data(outputs[0]);
        cr_assert(y[0] == 14 && y[1] == 9 && y[2] == 16);
        cr_assert_eq(*(float *)shim_data(outputs[1]), 1, "folded once");
        cr_assert_str_empty(last_error());
        shim_delete(outputs[0]);
        shim_delete(outputs[1]);
    }
    cr_assert_eq(KERNEL(AOTInductorModelContainerDelete)(container), 0);
}

Test(kernel, failures_have_messages_and_write_no_outputs)
{
    compile_and_load("");
    AOTInductorModelContainerHandle container = create();
    AtenTensorHandle outputs[2];
    static const char *const messages[] = {"x[0] is -1, on purpose", "status 7", "after one output",
                                           "did not make output 0 (y)"};
    for (int i = 0; i < 4; i++) {
        KERNEL_FAILS(run_on(container, (float)(-1 - i), outputs), messages[i]);
        cr_assert(outputs[0] == NULL && outputs[1] == NULL);
        cr_assert(SHIM(aoti_torch_grad_mode_is_enabled)());
    }
    cr_assert_eq(run_on(container, -5, outputs), 0, "%s", last_error());
    cr_assert_eq(*(float *)shim_data(outputs[0]), -5, "an input can become the output");
    shim_delete(outputs[0]);
    shim_delete(outputs[1]);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(kernel, wrong_counts_and_inputs_are_named)
{
    compile_and_load("");
    AOTInductorModelContainerHandle container = create();
    __typeof__(&AOTInductorModelContainerRun) run = KERNEL(AOTInductorModelContainerRun);
    float x[4] = {0};
    int32_t whole[3] = {0};
    const int64_t three[] = {3}, four[] = {4};
    AtenTensorHandle outputs[2] = {NULL}, inputs[2];
    for (int i = 0; i < 2; i++)
        inputs[i] = shim_wrap(x, 6, 1, three, NULL);
    KERNEL_FAILS(run(container, inputs, 2, outputs, 2, NULL, NULL), "expected inputs vector size to be 1, but got 2");
    cr_assert(inputs[0] == NULL && inputs[1] == NULL, "taken although refused");
    inputs[0] = shim_wrap(x, 6, 1, three, NULL);
    KERNEL_FAILS(run(container, inputs, 1, outputs, 1, NULL, NULL), "expected outputs vector size to be 2, but got 1");
    inputs[0] = shim_wrap(x, 6, 1, four, NULL);
    KERNEL_FAILS(run(container, inputs, 1, outputs, 2, NULL, NULL),
                 "input 0 (x): size 4 of dimension 0; this kernel is for 3");
    inputs[0] = shim_wrap(whole, AOTICACHE_DTYPE_INT32, 1, three, NULL);
    KERNEL_FAILS(run(container, inputs, 1, outputs, 2, NULL, NULL), "dtype 3 (int32); this kernel is for 6 (float32)");
    inputs[0] = NULL;
    KERNEL_FAILS(run(container, inputs, 1, outputs, 2, NULL, NULL), "input 0 (x) is NULL");
    KERNEL_FAILS(run(container, NULL, 0, outputs, 2, NULL, NULL), "to be 1, but got 0");
    inputs[0] = shim_wrap(x, 6, 1, three, NULL);
    KERNEL_FAILS(run(NULL, inputs, 1, outputs, 2, NULL, NULL), "the container is NULL");
    cr_assert_null(inputs[0]);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(kernel, questions_are_answered)
{
    compile_and_load("");
    AOTInductorModelContainerHandle container = create();
    size_t count = 0;
    const char *text = NULL, *other = NULL;
    bool folded = false;
    int32_t number = 0;
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetNumInputs)(container, &count), 0);
    cr_assert_eq(count, 1);
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetNumOutputs)(container, &count), 0);
    cr_assert_eq(count, 2);
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetInputName)(container, 0, &text), 0);
    cr_assert_str_eq(text, "x");
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetOutputName)(container, 1, &text), 0);
    cr_assert_str_eq(text, "folds");
    KERNEL_FAILS(KERNEL(AOTInductorModelContainerGetOutputName)(container, 2, &text),
                 "there is no output 2: the kernel has 2");
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetCallSpec)(container, &text, &other), 0);
    cr_assert_str_eq(text, "in");
    cr_assert_str_eq(other, "");
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetNumConstants)(container, &count), 0);
    cr_assert_eq(count, 2);
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetConstantName)(container, 0, &text), 0);
    cr_assert_str_eq(text, "L__self___weight");
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetConstantOriginalFQN)(container, 0, &text), 0);
    cr_assert_str_eq(text, "layer.weight");
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetConstantFromFolded)(container, 1, &folded), 0);
    cr_assert(folded);
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetConstantType)(container, 1, &number), 0);
    cr_assert_eq(number, 4);
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetConstantDtype)(container, 0, &number), 0);
    cr_assert_eq(number, AOTICACHE_DTYPE_FLOAT32);
    cr_assert_eq(KERNEL(AOTInductorModelContainerGetConstantDataSize)(container, 0, &count), 0);
    cr_assert_eq(count, 12);
    KERNEL_FAILS(KERNEL(AOTInductorModelContainerGetConstantName)(container, 2, &text),
                 "there is no constant 2: the kernel has 2");
    KERNEL_FAILS(KERNEL(AOTInductorModelContainerGetNumInputs)(container, NULL),
                 "the output pointer for the number of inputs is NULL");
    KERNEL_FAILS(KERNEL(AOTInductorModelContainerGetNumInputs)(NULL, &count), "the container is NULL");
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(kernel, containers_that_cannot_be_are_refused)
{
    AOTInductorModelContainerHandle container = NULL;
    compile_and_load("");
    __typeof__(&AOTInductorModelContainerCreateWithDevice) with_device =
        KERNEL(AOTInductorModelContainerCreateWithDevice);
    KERNEL_FAILS(with_device(&container, 0, "cpu", NULL), "num_models must be positive, but got 0");
    KERNEL_FAILS(with_device(&container, 1, "cuda:0", NULL), "device cuda:0 was requested, but this kernel is for cpu");
    KERNEL_FAILS(with_device(&container, 1, "cpu:", NULL), "device cpu: was requested");
    KERNEL_FAILS(with_device(&container, 1, NULL, NULL), "no device is specified");
    KERNEL_FAILS(with_device(NULL, 1, "cpu", NULL), "the output pointer for the container is NULL");
    KERNEL_FAILS(KERNEL(AOTInductorModelContainerCreate)(&container, 1, false, NULL), "device cuda was requested");
    cr_assert_null(container);
    cr_assert_eq(KERNEL(AOTInductorModelContainerCreate)(&container, 1, true, NULL), 0, "%s", last_error());
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(kernel, weights_that_are_elsewhere_fail_the_run)
{
    compile_and_load("-DWEIGHT_DATA=NULL -DFOLD=fold -Wno-unused-const-variable");
    AOTInductorModelContainerHandle container = create();
    AtenTensorHandle outputs[2];
    KERNEL_FAILS(run_on(container, 1, outputs), "L__self___weight has no data");
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(kernel, bad_descriptions_are_named)
{
    AOTInductorModelContainerHandle container = NULL;
    compile_and_load("-DDESCRIPTION_SIZE=8");
    KERNEL_FAILS(KERNEL(AOTInductorModelContainerCreateWithDevice)(&container, 1, "cpu", NULL),
                 "description has 8 bytes");
}

Test(kernel, descriptions_of_a_newer_runtime_are_refused)
{
    AOTInductorModelContainerHandle container = NULL;
    char both[64];
    compile_and_load("'-DDESCRIPTION_SIZE=sizeof(aoticache_kernel)+8'");
    snprintf(both, sizeof both, "has %zu bytes, but this runtime supports %zu", sizeof(aoticache_kernel) + 8,
             sizeof(aoticache_kernel));
    KERNEL_FAILS(KERNEL(AOTInductorModelContainerCreateWithDevice)(&container, 1, "cpu", NULL), both);
}

Test(kernel, descriptions_of_an_older_runtime_work)
{
    AtenTensorHandle outputs[2];
    compile_and_load("'-DDESCRIPTION_SIZE=offsetof(aoticache_kernel,weights)'");
    AOTInductorModelContainerHandle container = create();
    cr_assert_eq(run_on(container, 5, outputs), 0, "%s", last_error());
    shim_delete(outputs[0]);
    shim_delete(outputs[1]);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(kernel, folded_constants_need_a_function_that_folds)
{
    AOTInductorModelContainerHandle container = NULL;
    compile_and_load("-DFOLD=NULL -Wno-unused-function");
    KERNEL_FAILS(KERNEL(AOTInductorModelContainerCreateWithDevice)(&container, 1, "cpu", NULL),
                 "doubled is folded, but the kernel has no folding function");
}
