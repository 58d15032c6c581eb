/*
 * tests/helpers/package_operators: runs a package without PyTorch, with operators that have every kind of argument and
 * result that packages may call: package_operators PACKAGE NUMBER..., a float32 input of that many elements. Prints
 * each output on a separate line. tests/python/packages/test_package_operators.py has the same operators for PyTorch.
 */
#include <aoticache.h>
#include <aoticache/dispatch.h>
#include <aoticache/runner.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static float at(const aoticache_tensor_view *tensor, int64_t i)
{
    return ((const float *)tensor->data)[i * tensor->strides[0]];
}

static aoticache_status new_like(const aoticache_tensor_view *x, aoticache_value *ret_value, float **ret_data,
                                 aoticache_error *error)
{
    aoticache_tensor_view made;
    AtenTensorHandle output;
    aoticache_status status = aoticache_tensor_new(x->dtype, x->device, 1, x->sizes, NULL, &output, &made, error);
    *ret_value = aoticache_value_of_output(status == AOTICACHE_OK ? output : NULL);
    if (status == AOTICACHE_OK)
        *ret_data = made.data;
    return status;
}

/* Has 13 arguments, 2 results. */
static aoticache_status many(void *user, const aoticache_operator *op, aoticache_key_set keys, aoticache_stack *stack,
                             aoticache_error *error)
{
    const aoticache_value *v = &stack->values[stack->count - 13];
    const aoticache_tensor_view *x = v[0].as.tensor, *y = v[1].kind == AOTICACHE_VALUE_TENSOR ? v[1].as.tensor : NULL;
    const float k = v[7].kind == AOTICACHE_VALUE_INT ? (float)v[7].as.int_value : (float)v[7].as.double_value;
    float more = (float)v[12].as.int_value + (v[9].kind == AOTICACHE_VALUE_INT ? (float)v[9].as.int_value : 0);
    aoticache_value made[2];
    float *first = NULL, *second = NULL;
    (void)user, (void)op, (void)keys;
    for (uint32_t i = 0; i < v[11].count; i++)
        more += (float)v[11].as.ints[i];
    aoticache_status status = new_like(x, &made[0], &first, error);
    if (status == AOTICACHE_OK)
        status = new_like(x, &made[1], &second, error);
    if (status != AOTICACHE_OK)
        return status;
    for (int64_t i = 0; i < x->numel; i++) {
        first[i] = at(x, i) + (float)v[3].as.double_value + (y != NULL ? at(y, i) : 0) + (float)strlen(v[5].as.string) +
                   (float)v[2].as.ints[0] + 10 * (float)v[2].as.ints[1] + (v[4].as.bool_value ? 1 : 0);
        second[i] = at(x, i) * k + at(v[6].as.tensors[0], i) + 2 * at(v[6].as.tensors[1], i) + more;
        for (uint32_t t = 0; t < v[8].count; t++)
            second[i] += v[8].as.tensors[t] != NULL ? at(v[8].as.tensors[t], i) : 0;
    }
    stack->count -= 13;
    memcpy(&stack->values[stack->count], made, sizeof made);
    stack->count += 2;
    return AOTICACHE_OK;
}

static aoticache_status listed(void *user, const aoticache_operator *op, aoticache_key_set keys, aoticache_stack *stack,
                               aoticache_error *error)
{
    const aoticache_tensor_view *x = stack->values[stack->count - 1].as.tensor;
    aoticache_value list = {.kind = AOTICACHE_VALUE_OUTPUT_LIST, .count = 2};
    aoticache_status status = AOTICACHE_OK;
    (void)user, (void)op, (void)keys;
    list.as.outputs = calloc(2, sizeof *list.as.outputs);
    for (int i = 0; i < 2 && status == AOTICACHE_OK; i++) {
        aoticache_value made;
        float *data = NULL;
        status = new_like(x, &made, &data, error);
        list.as.outputs[i] = made.as.output;
        for (int64_t k = 0; status == AOTICACHE_OK && k < x->numel; k++)
            data[k] = at(x, k) + (float)(i + 1);
    }
    stack->values[stack->count - 1] = list;
    return status;
}

/* Writes to its argument and has no result. */
static aoticache_status bump(void *user, const aoticache_operator *op, aoticache_key_set keys, aoticache_stack *stack,
                             aoticache_error *error)
{
    const aoticache_value *v = &stack->values[stack->count - 2];
    (void)user, (void)op, (void)keys, (void)error;
    for (int64_t i = 0; i < v[0].as.tensor->numel; i++)
        ((float *)v[0].as.tensor->data)[i * v[0].as.tensor->strides[0]] += (float)v[1].as.int_value;
    stack->count -= 2;
    return AOTICACHE_OK;
}

static aoticache_status register_operators(aoticache_oplib **ret_ops, aoticache_error *error)
{
    static const struct {
        const char *schema;
        aoticache_boxed_fn call;
    } operators[] = {
        {"many(Tensor x, Tensor? y, int[] d, float f, bool b, str s, Tensor[] ts, Scalar k, Tensor?[] ots, int? oi=None, *, "
         "ScalarType? t=None, SymInt[] sizes=[], int z=7) -> (Tensor, Tensor)",
         many},
        {"listed(Tensor x) -> Tensor[]", listed},
        {"bump(Tensor(a!) x, int by) -> ()", bump},
    };
    aoticache_status status = aoticache_oplib_create(aoticache_dispatcher_get(), AOTICACHE_OPLIB_DEF, "mine", NULL,
                                                     __FILE__, __LINE__, ret_ops, error);
    for (size_t i = 0; status == AOTICACHE_OK && i < sizeof operators / sizeof operators[0]; i++) {
        aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
        kernel.call = operators[i].call;
        status =
            aoticache_oplib_def_kernel(*ret_ops, operators[i].schema, AOTICACHE_ALIAS_DEFAULT, "CPU", &kernel, error);
    }
    return status;
}

static aoticache_status run(aoticache_runner *runner, float *numbers, int64_t count, aoticache_error *error)
{
    AtenTensorHandle input = NULL, outputs[MOST] = {NULL};
    size_t num_outputs = aoticache_runner_num_outputs(runner);
    aoticache_status status =
        aoticache_tensor_from_blob(numbers, AOTICACHE_DTYPE_FLOAT32, 1, &count, NULL, &input, error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_run(runner, &input, 1, outputs, num_outputs, error);
    for (size_t o = 0; status == AOTICACHE_OK && o < num_outputs; o++) {
        aoticache_tensor_view result;
        status = aoticache_tensor_get_view(outputs[o], &result, error);
        for (int64_t i = 0; status == AOTICACHE_OK && i < result.numel; i++)
            printf("%.9g%c", (double)at(&result, i), i + 1 < result.numel ? ' ' : '\n');
        aoticache_tensor_free(outputs[o]);
    }
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
        return 2;
    for (int i = 2; i < argc; i++)
        numbers[i - 2] = strtof(argv[i], NULL);
    aoticache_status status = register_operators(&ops, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_open(NULL, &cache, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_package_load(cache, argv[1], NULL, &runner, NULL, &error);
    for (int again = 0; status == AOTICACHE_OK && again < 2; again++)
        status = run(runner, numbers, argc - 2, &error);
    if (status != AOTICACHE_OK)
        fprintf(stderr, "%s\n", error.message);
    aoticache_runner_unref(runner);
    aoticache_cache_close(cache);
    aoticache_oplib_free(ops);
    return status != AOTICACHE_OK;
}
