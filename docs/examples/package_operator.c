/*
 * Runs a package that calls an operator of the user's, in a process without PyTorch: the operator
 * mine::twice_plus(Tensor x, int n=1) -> Tensor is registered here, in C; docs/packages.md says more.
 *
 *     cc -std=c11 -O2 package_operator.c -o package_operator $(pkg-config --cflags --libs aoticache)
 *     ./package_operator model.pt2 1 2 3
 *
 * The numbers are the model's input, a float32 tensor of that many elements; its first output is printed.
 */
#include <aoticache.h>
#include <aoticache/dispatch.h>
#include <aoticache/runner.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64 };

/* Arguments are on the stack in the schema's order, their kinds have been checked, and strides may be any. */
static aoticache_status twice_plus(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                   aoticache_stack *stack, aoticache_error *error)
{
    const aoticache_value *arguments = &stack->values[stack->count - 2];
    const aoticache_tensor_view *x = arguments[0].as.tensor;
    aoticache_tensor_view result;
    AtenTensorHandle output = NULL;
    (void)user, (void)keys;
    if (x->dtype != AOTICACHE_DTYPE_FLOAT32 || x->ndim != 1)
        return aoticache_error_set(error, AOTICACHE_UNSUPPORTED, "%s: x is no float32 tensor of one dimension",
                                   aoticache_operator_name(op));
    aoticache_status status = aoticache_tensor_new(x->dtype, x->device, 1, x->sizes, NULL, &output, &result, error);
    if (status != AOTICACHE_OK)
        return status;
    for (int64_t i = 0; i < x->numel; i++)
        ((float *)result.data)[i] = 2 * ((const float *)x->data)[i * x->strides[0]] + (float)arguments[1].as.int_value;
    stack->count -= 2; /* two arguments off, one result on: it is the caller's now */
    stack->values[stack->count++] = aoticache_value_of_output(output);
    return AOTICACHE_OK;
}

static aoticache_status register_operator(aoticache_oplib **ret_ops, aoticache_error *error)
{
    aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
    kernel.call = twice_plus;
    aoticache_status status = aoticache_oplib_create(aoticache_dispatcher_get(), AOTICACHE_OPLIB_DEF, "mine", NULL,
                                                     __FILE__, __LINE__, ret_ops, error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_def_kernel(*ret_ops, "twice_plus(Tensor x, int n=1) -> Tensor",
                                            AOTICACHE_ALIAS_DEFAULT, "CPU", &kernel, error);
    return status;
}

static aoticache_status run(aoticache_runner *runner, float *numbers, int64_t count, aoticache_error *error)
{
    AtenTensorHandle input = NULL, outputs[MOST] = {NULL};
    aoticache_tensor_view result;
    size_t num_outputs = aoticache_runner_num_outputs(runner);
    if (num_outputs < 1 || num_outputs > MOST)
        return aoticache_error_set(error, AOTICACHE_UNSUPPORTED, "the model has %zu outputs", num_outputs);
    aoticache_status status =
        aoticache_tensor_from_blob(numbers, AOTICACHE_DTYPE_FLOAT32, 1, &count, NULL, &input, error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_run(runner, &input, 1, outputs, num_outputs, error);
    if (status == AOTICACHE_OK)
        status = aoticache_tensor_get_view(outputs[0], &result, error);
    for (int64_t i = 0; status == AOTICACHE_OK && i < result.numel; i++)
        printf("%.9g\n", (double)((const float *)result.data)[i]);
    for (size_t i = 0; i < num_outputs; i++)
        aoticache_tensor_free(outputs[i]);
    aoticache_tensor_free(input);
    return status;
}

int main(int argc, char **argv)
{
    float numbers[MOST];
    aoticache_error error;
    aoticache_oplib *ops = NULL;
    aoticache_cache *cache = NULL;
    aoticache_runner *runner = NULL;
    if (argc < 2 || argc - 2 > MOST)
        return fprintf(stderr, "usage: %s PACKAGE NUMBER...\n", argv[0]), 2;
    for (int i = 2; i < argc; i++)
        numbers[i - 2] = strtof(argv[i], NULL);
    aoticache_status status = register_operator(&ops, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_open(NULL, &cache, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_package_load(cache, argv[1], NULL, &runner, NULL, &error);
    if (status == AOTICACHE_OK)
        status = run(runner, numbers, argc - 2, &error);
    if (status != AOTICACHE_OK)
        fprintf(stderr, "%s\n", error.message);
    aoticache_runner_unref(runner);
    aoticache_cache_close(cache);
    aoticache_oplib_free(ops);
    return status != AOTICACHE_OK;
}
