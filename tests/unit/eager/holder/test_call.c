/* Unit tests of eager/holder/call.c: operators called by their names, on the kernels in C. */
#include "eager/compile/eager_face.h"
#include "eager/holder/call.h"
#include "eager/holder/holder_internal.h"
#include "loader/tensor.h"
#include "tests/unit/fixtures/eager_fixture.h"

#include <pthread.h>

static aoticache_context *context;
static aoticache_error error;

static void begin(void)
{
    fixture_begin();
    setenv("AOTICACHE_PYTHON", in_directory("python"), 1); /* so that the C hook compiles */
    error.message[0] = '\0';
    cr_assert_eq(aoticache_context_open(in_directory("cache"), NULL, &context, &error), AOTICACHE_OK, "%s",
                 error.message);
}

static void end(void)
{
    aoticache_context_free(context);
    fixture_end();
}

TestSuite(call, .init = begin, .fini = end, .timeout = 600);

static const int64_t sizes[2] = {2, 3};

static aoticache_tensor_view over(float *data)
{
    return (aoticache_tensor_view){.data = data, .dtype = AOTICACHE_DTYPE_FLOAT32, .ndim = 2, .sizes = sizes};
}

static aoticache_holder_counts counts_of_only_operator(void)
{
    aoticache_holder_counts counts;
    cr_assert_not_null(context->named_operators);
    cr_assert_null(context->named_operators->next);
    aoticache_holder_get_counts(context->named_operators->holder, &counts);
    return counts;
}

Test(call, missing_kernel_is_compiled_once_and_kept)
{
    float data[6] = {-1, 2, -3, 4, -5, 6};
    aoticache_tensor_view input = over(data), output;
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(aoticache_call(context, "aten::abs", &input, 1, &output, 1, &error), AOTICACHE_OK, "%s",
                     error.message);
        cr_expect_eq(output.ndim, 2);
        cr_expect_eq(output.numel, 6);
        for (int i = 0; i < 6; i++)
            cr_expect_eq(((const float *)output.data)[i], (float)(i + 1));
        aoticache_tensor_free(output.handle);
    }
    aoticache_holder_counts counts = counts_of_only_operator();
    cr_expect_eq(counts.compiles, 1);
    cr_expect_eq(counts.loads, 1);
    cr_expect_eq(counts.hits, 2);
}

Test(call, another_context_finds_what_the_first_compiled)
{
    float data[6] = {-1, 2, -3, 4, -5, 6};
    aoticache_tensor_view input = over(data), output;
    cr_assert_eq(aoticache_call(context, "aten::abs", &input, 1, &output, 1, &error), AOTICACHE_OK, "%s",
                 error.message);
    aoticache_tensor_free(output.handle);
    aoticache_context_free(context);
    cr_assert_eq(aoticache_context_open(in_directory("cache"), NULL, &context, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(aoticache_call(context, "aten::abs", &input, 1, &output, 1, &error), AOTICACHE_OK, "%s",
                 error.message);
    aoticache_tensor_free(output.handle);
    cr_expect_eq(counts_of_only_operator().compiles, 0);
}

Test(call, result_of_one_call_is_an_input_of_the_next)
{
    float data[6] = {-1, 2, -3, 4, -5, 6}, transposed[6] = {1, 1, 1, 2, 2, 2};
    const int64_t strides[2] = {1, 2};
    aoticache_tensor_view inputs[2] = {over(data), over(transposed)}, output;
    cr_assert_eq(aoticache_call(context, "aten::abs", &inputs[0], 1, &inputs[0], 1, &error), AOTICACHE_OK, "%s",
                 error.message);
    inputs[1].strides = strides;
    cr_assert_eq(aoticache_call(context, "aten::mul.Tensor", inputs, 2, &output, 1, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_expect_eq(((const float *)output.data)[output.strides[0] * 1 + output.strides[1] * 2], 12.0F);
    cr_expect_eq(((const float *)output.data)[output.strides[0] * 1 + output.strides[1] * 0], 4.0F);
    aoticache_tensor_free(output.handle);
    aoticache_tensor_free(inputs[0].handle);
}

static void expect_refusal(aoticache_status expected, const char *op, const aoticache_tensor_view *inputs,
                           size_t num_inputs, size_t num_outputs, const char *text)
{
    aoticache_tensor_view outputs[2] = {{.numel = 77}};
    aoticache_status status = aoticache_call(context, op, inputs, num_inputs, outputs, num_outputs, &error);
    cr_expect_eq(status, expected, "%s: %d, %s", op, (int)status, error.message);
    cr_expect_not_null(strstr(error.message, text), "%s", error.message);
    cr_expect_eq(outputs[0].numel, 77);
}

Test(call, misuse_is_refused_and_changes_nothing)
{
    float data[6] = {0};
    aoticache_tensor_view input = over(data), without_sizes = over(data), elsewhere = over(data);
    without_sizes.sizes = NULL;
    elsewhere.device = (aoticache_device){AOTICACHE_DEVICE_TYPE_CUDA, 0};
    expect_refusal(AOTICACHE_INVALID, "aten::abs", &input, 0, 1, "num_inputs is 0; at least one tensor");
    expect_refusal(AOTICACHE_INVALID, "aten::abs", &without_sizes, 1, 1, "no sizes");
    expect_refusal(AOTICACHE_INVALID, "aten::abs", &elsewhere, 1, 1, "not on the CPU");
    elsewhere = over(data);
    elsewhere.layout = 77;
    expect_refusal(AOTICACHE_INVALID, "aten::abs", &elsewhere, 1, 1, "input 0 has layout 77");
    expect_refusal(AOTICACHE_INVALID, "no name(", &input, 1, 1, "");
    expect_refusal(AOTICACHE_INVALID, "aten::abs", &input, 1, 2, "returns 1 results; 2 were requested");
    expect_refusal(AOTICACHE_UNSUPPORTED, "mine::nothing", &input, 1, 1, "mine::nothing");
    cr_expect_eq(aoticache_call(NULL, "aten::abs", &input, 1, NULL, 0, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_call(context, NULL, &input, 1, NULL, 0, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_context_open(in_directory("cache"), NULL, NULL, &error), AOTICACHE_INVALID);
}

/* A holder accepts what aoticache_call() accepts: the caller's memory, with strides or without. */
Test(call, holder_takes_views_without_strides_and_handles)
{
    float data[6] = {-1, 2, -3, 4, -5, 6};
    const int64_t strides[2] = {3, 1};
    aoticache_holder *holder = NULL;
    aoticache_holder_options options = AOTICACHE_HOLDER_OPTIONS_INIT;
    options.schema = "aten::abs(Tensor self) -> Tensor";
    const aoticache_device cpu = AOTICACHE_DEVICE_CPU;
    options.device = cpu;
    cr_assert_eq(aoticache_holder_create(context, &options, &holder, &error), AOTICACHE_OK, "%s", error.message);
    for (int round = 0; round < 6; round++) {
        aoticache_tensor_view input = over(data), output;
        input.strides = round % 2 == 0 ? NULL : strides;
        aoticache_value values[1] = {{.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &input}};
        aoticache_stack stack = {.values = values, .count = 1, .capacity = 1};
        cr_assert_eq(aoticache_holder_call(holder, 0, &stack, &error), AOTICACHE_OK, "%s", error.message);
        cr_assert_eq(values[0].kind, AOTICACHE_VALUE_OUTPUT);
        cr_assert_eq(aoticache_tensor_get_view(values[0].as.output, &output, &error), AOTICACHE_OK);
        for (int i = 0; i < 6; i++)
            cr_expect_eq(((const float *)output.data)[i], (float)(i + 1));
        aoticache_stack_drop(&stack, 0);
    }
    aoticache_holder_counts counts;
    aoticache_holder_get_counts(holder, &counts);
    cr_expect_eq(counts.libraries, 1);
    cr_expect_eq(counts.compiles, 1);
    aoticache_tensor_view elsewhere = over(data);
    elsewhere.strides = strides;
    elsewhere.data = NULL;
    aoticache_value values[1] = {{.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &elsewhere}};
    aoticache_stack stack = {.values = values, .count = 1, .capacity = 1};
    cr_expect_eq(aoticache_holder_call(holder, 0, &stack, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "data is NULL"), "%s", error.message);
    cr_expect_eq(stack.count, 1);
    aoticache_holder_unref(holder);
}

/* A host without a compiler finds what a host with one has stored, and nothing else. */
Test(call, host_that_compiles_nothing_finds_what_is_there)
{
    float data[6] = {-1, 2, -3, 4, -5, 6};
    aoticache_tensor_view input = over(data), output;
    cr_assert_eq(aoticache_call(context, "aten::abs", &input, 1, &output, 1, &error), AOTICACHE_OK, "%s",
                 error.message);
    aoticache_tensor_free(output.handle);
    aoticache_context_free(context);
    setenv("AOTICACHE_CC", in_directory("no-compiler"), 1);
    cr_assert_eq(aoticache_context_open(in_directory("cache"), NULL, &context, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_null(context->hook);
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(aoticache_call(context, "aten::abs", &input, 1, &output, 1, &error), AOTICACHE_OK, "%s",
                     error.message);
        cr_expect_eq(((const float *)output.data)[4], 5.0F);
        aoticache_tensor_free(output.handle);
    }
    cr_expect_eq(counts_of_only_operator().hits, 2);
    cr_expect_eq(aoticache_call(context, "aten::neg", &input, 1, &output, 1, &error), AOTICACHE_NOT_FOUND);
    /* A context that names a framework gets no kernel of another. */
    aoticache_context_free(context);
    static const char *const environment[] = {"framework=pytorch", NULL};
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_cache_options cache_options = AOTICACHE_CACHE_OPTIONS_INIT;
    cache_options.directory = in_directory("cache");
    options.environment = environment;
    cr_assert_eq(aoticache_cache_open(&cache_options, &options.cache, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_context_create(&options, &context, &error), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(aoticache_call(context, "aten::abs", &input, 1, &output, 1, &error), AOTICACHE_NOT_FOUND);
    aoticache_context_free(context);
    aoticache_cache_close(options.cache);
    context = NULL;
}

/* Stores a kernel of mine::frob, which is abs(), as if PyTorch's worker of this revision had compiled it. */
static void store_as_of_worker(const char *revision)
{
    char pair[64];
    float data[6] = {-1, 2, -3, 4, -5, 6};
    aoticache_tensor_view input = over(data), output;
    const char *const environment[] = {"framework=pytorch", "framework_version=2.13.0", pair, NULL};
    aoticache_context *maker = NULL;
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_cache_options cache_options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_hook_options hook_options = AOTICACHE_HOOK_OPTIONS_INIT;
    snprintf(pair, sizeof pair, "worker=%s", revision);
    cache_options.directory = in_directory("cache");
    hook_options.kernels = in_directory("kernels");
    options.environment = environment;
    cr_assert_eq(aoticache_cache_open(&cache_options, &options.cache, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_hook_create_c(&hook_options, &options.hook, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_context_create(&options, &maker, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_call(maker, "mine::frob", &input, 1, &output, 1, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_tensor_free(output.handle);
    aoticache_context_free(maker);
    aoticache_hook_free(options.hook);
    aoticache_cache_close(options.cache);
}

/*
 * Here are a C compiler and no PyTorch: kernels that PyTorch compiled elsewhere are found, except those of an earlier
 * worker.
 */
Test(call, host_whose_hook_does_not_serve_an_operator_finds_what_is_there)
{
    float data[6] = {-1, 2, -3, 4, -5, 6};
    aoticache_tensor_view input = over(data), output;
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command,
             "cp -r \"$AOTICACHE_HOME\"/share/aoticache/kernels '%s' && cd '%s' && "
             "mv aten_abs.c mine_frob.c",
             in_directory("kernels"), in_directory("kernels"));
    cr_assert_eq(system(command), 0);
    store_as_of_worker("1");
    cr_assert_not_null(context->hook);
    cr_expect_eq(aoticache_call(context, "mine::frob", &input, 1, &output, 1, &error), AOTICACHE_UNSUPPORTED);
    store_as_of_worker(AOTICACHE_WORKER_REVISION);
    aoticache_context_free(context);
    cr_assert_eq(aoticache_context_open(in_directory("cache"), NULL, &context, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(aoticache_call(context, "mine::frob", &input, 1, &output, 1, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_expect_eq(((const float *)output.data)[4], 5.0F);
    aoticache_tensor_free(output.handle);
    cr_expect_eq(counts_of_only_operator().compiles, 0);
}

static void *call_abs(void *unused)
{
    float data[6] = {-1, 2, -3, 4, -5, 6};
    aoticache_tensor_view input = over(data), output;
    (void)unused;
    for (int i = 0; i < 50; i++) {
        if (aoticache_call(context, "aten::abs", &input, 1, &output, 1, NULL) != AOTICACHE_OK)
            return context;
        aoticache_tensor_free(output.handle);
    }
    return NULL;
}

Test(call, threads_share_one_kernel)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, call_abs, NULL), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        cr_expect_null(failed);
    }
    cr_expect_eq(counts_of_only_operator().compiles, 1);
}

/* ---- options of aoticache_context_open() ---- */

Test(call, a_context_owns_the_hook_and_the_cache_that_it_is_given)
{
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_context *made = NULL;
    float data[6] = {-1, 2, -3, 4, -5, 6};
    aoticache_tensor_view input = over(data), output;
    cr_assert_eq(aoticache_hook_create_c(NULL, &options.hook, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_context_open(in_directory("other"), &options, &made, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_expect(made->owns_cache_and_hook && !made->has_default_hook);
    cr_assert_eq(aoticache_call(made, "aten::abs", &input, 1, &output, 1, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_tensor_free(output.handle);
    aoticache_context_free(made); /* under the address sanitizer: nothing is left, and nothing is freed twice */

    options = (aoticache_context_options)AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_cache_options says = AOTICACHE_CACHE_OPTIONS_INIT;
    says.directory = in_directory("other");
    options.miss = AOTICACHE_MISS_NEVER;
    cr_assert_eq(aoticache_cache_open(&says, &options.cache, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_context_open(NULL, &options, &made, &error), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(aoticache_call(made, "aten::abs", &input, 1, &output, 1, &error), AOTICACHE_OK, "it is in the cache");
    aoticache_tensor_free(output.handle);
    aoticache_context_free(made);
}

Test(call, after_an_error_the_caller_still_owns_what_it_gave)
{
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_cache_options says = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_context *made = NULL;
    says.directory = in_directory("other");
    cr_assert_eq(aoticache_cache_open(&says, &options.cache, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_hook_create_c(NULL, &options.hook, &error), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(aoticache_context_open(in_directory("cache"), &options, &made, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "only one of them"), "%s", error.message);
    options.size = 1;
    cr_expect_eq(aoticache_context_open(NULL, &options, &made, &error), AOTICACHE_INVALID);
    cr_expect_null(made);
    aoticache_hook_free(options.hook);
    aoticache_cache_close(options.cache);
}
