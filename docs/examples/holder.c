/*
 * Serves aten::abs as a framework's binding does: a holder with the framework's own kernel as the fallback. No call waits for a
 * compiler: the fallback answers the first call, and a thread compiles a library, which answers all later ones.
 *
 *   cc holder.c $(pkg-config --cflags --libs aoticache) -o holder && ./holder
 */
#include <aoticache.h>
#include <stdio.h>

/* What your framework does without the cache: aten::abs of contiguous floats. */
static aoticache_status framework_abs(void *user, uint64_t key_set, aoticache_stack *stack, aoticache_error *error)
{
    aoticache_value *top = &stack->values[stack->count - 1]; /* the argument */
    const aoticache_tensor_view *x = top->as.tensor;
    aoticache_tensor_view result;
    AtenTensorHandle output;
    (void)user, (void)key_set;
    aoticache_status status =
        aoticache_tensor_new(x->dtype, x->device, x->ndim, x->sizes, x->strides, &output, &result, error);
    if (status != AOTICACHE_OK)
        return status;
    for (int64_t i = 0; i < x->numel; i++)
        ((float *)result.data)[i] = __builtin_fabsf(((const float *)x->data)[i]);
    puts("the framework's kernel answers");
    *top = aoticache_value_of_output(output); /* the result replaces the argument */
    return AOTICACHE_OK;
}

static aoticache_status call(aoticache_holder *holder, const aoticache_tensor_view *x, aoticache_error *error)
{
    aoticache_value argument = aoticache_value_of_tensor(x), result;
    aoticache_tensor_view y;
    aoticache_status status = aoticache_holder_call_values(holder, 0, &argument, 1, &result, 1, error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_tensor_get_view(result.as.output, &y, error);
    printf("%g %g %g\n", ((float *)y.data)[0], ((float *)y.data)[1], ((float *)y.data)[2]);
    aoticache_tensor_free(result.as.output);
    return AOTICACHE_OK;
}

int main(void)
{
    float data[3] = {1, -2, 3};
    int64_t sizes[1] = {3};
    aoticache_error error;
    aoticache_context *context;
    aoticache_holder *holder;
    AtenTensorHandle tensor;
    aoticache_tensor_view x;
    aoticache_holder_counts counts;
    aoticache_context_options shared = AOTICACHE_CONTEXT_OPTIONS_INIT; /* one context for all operators */
    aoticache_holder_options options = AOTICACHE_HOLDER_OPTIONS_INIT;  /* one holder for each operator and device */
    shared.miss = AOTICACHE_MISS_BACKGROUND;
    options.schema = "aten::abs(Tensor self) -> Tensor";
    options.device = AOTICACHE_DEVICE_CPU;
    options.fallback = framework_abs;
    if (aoticache_hook_create_c(NULL, &shared.hook, &error) ||
        aoticache_context_open(NULL, &shared, &context, &error) ||
        aoticache_holder_create(context, &options, &holder, &error) ||
        aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 1, sizes, NULL, &tensor, &error) ||
        aoticache_tensor_get_view(tensor, &x, &error) ||
        call(holder, &x, &error) ||                   /* a miss: the fallback answers, a thread compiles */
        aoticache_context_wait(context, 0, &error) || /* until nothing is queued or being compiled */
        call(holder, &x, &error))                     /* a hit: the compiled library answers */
        return fprintf(stderr, "%s\n", error.message), 1;
    aoticache_holder_get_counts(holder, &counts);
    printf("hits %llu, compiles %llu\n", (unsigned long long)counts.hits, (unsigned long long)counts.compiles);
    aoticache_tensor_free(tensor);
    aoticache_holder_unref(holder);
    aoticache_context_free(context); /* and its cache and hook */
    return 0;
}
