/*
 * tests/fuzz/fuzz_executor: no list of a package's operators makes its reader crash or read outside of its memory, and
 * whatever is parsed can be called with exactly the counts that it reported, and with no others. There are a few
 * operators with all kinds of arguments; kernels only read their arguments.
 */
#include "eager/model/package/executor.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static aoticache_status look(void *user, const aoticache_operator *op, aoticache_key_set keys, aoticache_stack *stack,
                             aoticache_error *ret_error)
{
    (void)user, (void)op, (void)keys, (void)ret_error;
    volatile double sum = 0;
    for (size_t i = 0; i < stack->count; i++) {
        const aoticache_value *value = &stack->values[i];
        for (uint32_t k = 0; k < value->count; k++) {
            if (value->kind == AOTICACHE_VALUE_INT_LIST)
                sum += (double)value->as.ints[k];
            if (value->kind == AOTICACHE_VALUE_DOUBLE_LIST)
                sum += value->as.doubles[k];
            if (value->kind == AOTICACHE_VALUE_TENSOR_LIST)
                abort(); /* there are no tensors here, so none can be used */
        }
        if (value->kind == AOTICACHE_VALUE_STRING)
            sum += (double)strlen(value->as.string);
    }
    (void)sum; /* all of it was read */
    stack->count = 0;
    return AOTICACHE_OK;
}

static aoticache_dispatcher *make_operators(void)
{
    static const char *const schemas[] = {
        "twice_plus(Tensor x, int n=1) -> Tensor",
        ("many(Tensor x, Tensor? y, int[] d, float f, bool b, str s, Tensor[] ts, Scalar k, Tensor?[] ots, int? oi=None, *, "
         "ScalarType? t=None, SymInt[] sizes=[], int z=7) -> (Tensor, Tensor)"),
        "listed(Tensor x) -> Tensor[]",
        "plain(int a, int[] b, float[] c, Scalar[] d, str e='e', bool[2] f=False, Tensor? g=None) -> ()",
    };
    aoticache_dispatcher *dispatcher = NULL;
    static aoticache_oplib *ops; /* never freed, like the dispatcher */
    aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
    kernel.call = look;
    if (aoticache_dispatcher_create(&dispatcher, NULL) != AOTICACHE_OK ||
        aoticache_oplib_create(dispatcher, AOTICACHE_OPLIB_DEF, "mine", NULL, __FILE__, __LINE__, &ops, NULL) !=
            AOTICACHE_OK)
        abort();
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++)
        if (aoticache_oplib_def_kernel(ops, schemas[i], AOTICACHE_ALIAS_DEFAULT, NULL, &kernel, NULL) != AOTICACHE_OK)
            abort();
    return dispatcher;
}

static AOTITorchError assign(AtenTensorHandle source, AtenTensorHandle destination)
{
    (void)source, (void)destination;
    return 0;
}

static void call(aoticache_executor *executor, int number)
{
    const aoticache_executor_node *node = &executor->nodes[number];
    int64_t *ints = calloc(node->int_count + 1u, sizeof *ints);
    AtenTensorHandle *tensors = calloc(node->tensor_count + 1u, sizeof(AtenTensorHandle));
    if (ints != NULL && tensors != NULL) {
        aoticache_proxy_call made = {.node = number,
                                     .int_count = (int)node->int_count,
                                     .ints = ints,
                                     .tensor_count = (int)node->tensor_count,
                                     .tensors = tensors,
                                     .assign = assign};
        executor->handle.run(&executor->handle, &made, NULL);
        made.int_count++;
        if (executor->handle.run(&executor->handle, &made, NULL) != AOTICACHE_INVALID)
            abort();
    }
    free(ints);
    free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static aoticache_dispatcher *dispatcher;
    aoticache_executor *executor = NULL;
    aoticache_error error = {.message = ""};
    if (dispatcher == NULL)
        dispatcher = make_operators();
    aoticache_status status = aoticache_executor_create(dispatcher, (const char *)bytes, size, &executor, &error);
    if (status != AOTICACHE_OK) {
        if (error.message[0] == '\0' || strchr(error.message, '\n') != NULL)
            abort();
        return 0;
    }
    for (size_t i = 0; i < executor->node_count && i < 1000; i++)
        call(executor, (int)i);
    aoticache_executor_free(executor);
    return 0;
}
