/*
 * eager/model/package/executor: nodes in PyTorch's form call operators with all their arguments; malformed, absent and
 * unsupported nodes are refused by name when they are read.
 */
#include "eager/model/package/executor.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/loader.h"
#include "tests/unit/fixtures/build_directory.h"

#define MANY                                                                                            \
    "many(Tensor x, Tensor? y, int[] d, float f, bool b, str s, Tensor[] ts, Scalar k, Tensor?[] ots, " \
    "int? oi=None, *, ScalarType? t=None, SymInt[] sizes=[], int z=7) -> (Tensor, Tensor)"
#define TENSOR(name) "{\"name\": \"" name "\", \"arg\": {\"as_tensor\": {\"name\": \"buf0\"}}, \"kind\": 1}"
#define ARGUMENT(name, value) "{\"name\": \"" name "\", \"arg\": " value ", \"kind\": 1}"
#define NODE(target, inputs, outputs)                                                                              \
    "{\"name\": \"buf1\", \"node\": {\"target\": \"" target "\", \"inputs\": [" inputs "], \"outputs\": [" outputs \
    "], \"metadata\": {}, \"is_hop_single_tensor_return\": null, \"name\": null}}"
#define NODES(nodes) "{\"nodes\": [" nodes "]}"
#define ONE_RESULT "{\"as_tensor\": {\"name\": \"buf2\"}}"

static aoticache_dispatcher *dispatcher;
static aoticache_oplib *ops;
static aoticache_executor *executor;
static aoticache_error error;
static AtenTensorHandle tensors[3]; /* one float each: 1, 2, 3 */
static float floats[3] = {1, 2, 3}, results[4];
static aoticache_value seen[AOTICACHE_EXECUTOR_MAX_VALUES];
static size_t seen_count;

#define succeeds(call) cr_assert_eq(call, AOTICACHE_OK, "%s", error.message)
#define fails(call, status, why)                                                                      \
    do {                                                                                              \
        aoticache_status got = call;                                                                  \
        cr_expect_eq(got, status, "%s: %s", aoticache_status_name(got), error.message);               \
        cr_expect_not_null(strstr(error.message, why), "'%s' does not say '%s'", error.message, why); \
        cr_expect_null(strchr(error.message, '\n'));                                                  \
    } while (0)

/* ---- operators ---- */

/* Makes a tensor of one float: the first element of the first argument, plus `number`. */
static aoticache_value result(const aoticache_value *arguments, float number)
{
    static float data[8];
    static size_t next;
    float *at = &data[next++ % 8];
    const int64_t one = 1;
    aoticache_value value = {.kind = AOTICACHE_VALUE_OUTPUT};
    *at = *(const float *)arguments[0].as.tensor->data + number;
    succeeds(aoticache_tensor_from_blob(at, AOTICACHE_DTYPE_FLOAT32, 1, &one, NULL, &value.as.output, &error));
    return value;
}

/* Returns *user tensors, one for each return; if negative, a list of -*user tensors. */
static aoticache_status run_kernel(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                   aoticache_stack *stack, aoticache_error *ret_error)
{
    (void)keys;
    int count = *(const int *)user;
    size_t taken = aoticache_operator_schema(op)->argument_count;
    const aoticache_value *arguments = &stack->values[stack->count - taken];
    aoticache_value made[4];
    seen_count = taken;
    memcpy(seen, arguments, taken * sizeof *seen);
    if (count == 100)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "the kernel has no luck");
    for (int i = 0; i < abs(count); i++)
        made[i] = result(arguments, (float)(10 * (i + 1)));
    stack->count -= taken;
    if (count >= 0) {
        memcpy(&stack->values[stack->count], made, (size_t)count * sizeof *made);
        stack->count += (size_t)count;
        return AOTICACHE_OK;
    }
    aoticache_value list = {.kind = AOTICACHE_VALUE_OUTPUT_LIST, .count = (uint32_t)-count};
    list.as.outputs = calloc(list.count, sizeof(AtenTensorHandle));
    for (uint32_t i = 0; i < list.count; i++)
        list.as.outputs[i] = made[i].as.output;
    stack->values[stack->count++] = list;
    return AOTICACHE_OK;
}

static void define(const char *schema, const char *key, int *count)
{
    aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
    kernel.call = run_kernel;
    kernel.user = count;
    succeeds(aoticache_oplib_def_kernel(ops, schema, AOTICACHE_ALIAS_DEFAULT, key, &kernel, &error));
}

static int one = 1, two = 2, list_of_two = -2, no_luck = 100;

static void setup(void)
{
    const int64_t size = 1;
    if (getenv("AOTICACHE_HOME") == NULL)
        setenv("AOTICACHE_HOME", build_directory(), 1);
    succeeds(aoticache_dispatcher_create(&dispatcher, &error));
    succeeds(aoticache_oplib_create(dispatcher, AOTICACHE_OPLIB_DEF, "mine", NULL, __FILE__, __LINE__, &ops, &error));
    for (int i = 0; i < 3; i++)
        succeeds(aoticache_tensor_from_blob(&floats[i], AOTICACHE_DTYPE_FLOAT32, 1, &size, NULL, &tensors[i], &error));
    define("twice(Tensor x, int n=1) -> Tensor", "CPU", &one);
    define(MANY, "CPU", &two);
    define("listed(Tensor x) -> Tensor[]", NULL, &list_of_two);
    define("odd(Tensor x, Device d, float[] fs=[0.5], bool[2] bs=False) -> Tensor", "CPU", &one);
    define("made(Tensor x, ScalarType t, MemoryFormat? f=None) -> Tensor", "CPU", &one);
    define("unlucky(Tensor x) -> Tensor", "CPU", &no_luck);
    define("counts(Tensor x) -> int", "CPU", &one);
    define("wrong(Tensor x) -> Tensor", "CPU", &two);
    succeeds(aoticache_oplib_def(ops, "bare(Tensor x) -> Tensor", AOTICACHE_ALIAS_DEFAULT, &error));
}

static void teardown(void)
{
    aoticache_executor_free(executor);
    for (int i = 0; i < 3; i++)
        aoticache_tensor_free(tensors[i]);
    aoticache_oplib_free(ops);
    aoticache_dispatcher_free(dispatcher);
}

TestSuite(package_executor, .init = setup, .fini = teardown);

/* ---- calls as from compiled code: here handles of outputs are numbers ---- */

#define TO(place) ((AtenTensorHandle)(uintptr_t)((place) + 1))

static AOTITorchError assign(AtenTensorHandle source, AtenTensorHandle destination)
{
    aoticache_tensor_view view;
    if (aoticache_tensor_get_view(source, &view, NULL) != AOTICACHE_OK)
        return 1;
    results[(uintptr_t)destination - 1] = *(const float *)view.data;
    return 0;
}

static aoticache_status run(int node, int int_count, const int64_t *ints, int tensor_count,
                            const AtenTensorHandle *given)
{
    const aoticache_proxy_call call = {.node = node,
                                       .int_count = int_count,
                                       .ints = ints,
                                       .tensor_count = tensor_count,
                                       .tensors = given,
                                       .assign = assign};
    return executor->handle.run(&executor->handle, &call, &error);
}

static aoticache_status read_text(const char *text)
{
    aoticache_executor_free(executor);
    executor = NULL;
    return aoticache_executor_create(dispatcher, text, strlen(text), &executor, &error);
}

/* PyTorch 2.13 wrote these arguments, for a call with a dynamic size. */
#define MANY_INPUTS                                                                                                                                                                                                                                                                                                                                                                                                                                                             \
    TENSOR("x")                                                                                                                                                                                                                                                                                                                                                                                                                                                                 \
    ", " ARGUMENT("y", "{\"as_none\": true}") ", " ARGUMENT("d", "{\"as_ints\": [1, 2]}") ", " ARGUMENT("f", "{\"as_float\": 0.5}") ", " ARGUMENT(                                                                                                                                                                                                                                                                                                                              \
        "b",                                                                                                                                                                                                                                                                                                                                                                                                                                                                    \
        "{\"as_bool\": true}") ", " ARGUMENT("s",                                                                                                                                                                                                                                                                                                                                                                                                                               \
                                             "{\"as_string\": \"hi\"}") ", " ARGUMENT("ts",                                                                                                                                                                                                                                                                                                                                                                                     \
                                                                                      "{\"as_tensors\": [{\"name\": \"buf2\"}, {\"name\": \"buf4\"}]}") ", " ARGUMENT("k",                                                                                                                                                                                                                                                                                                      \
                                                                                                                                                                      "{\"as_int\": 3}") ", " ARGUMENT("ots", "{\"as_optional_tensors\": [{\"as_none\": true}, {\"as_tensor\": {\"name\": \"buf4\"}}]}") ", " ARGUMENT("oi",                                                                                                                                                    \
                                                                                                                                                                                                                                                                                                                       "{\"as_int\": 4}") ", " ARGUMENT("t",                                                                                                                    \
                                                                                                                                                                                                                                                                                                                                                        "{\"as_none\": true}") ", " ARGUMENT("sizes",                                                                           \
                                                                                                                                                                                                                                                                                                                                                                                             "{\"as_sym_ints\": [{\"as_name\": \"s77\"}, {\"as_int\": 2}]}") ", " ARGUMENT("z", \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                           "{\"as_int\": 7}")

static float value_of(const aoticache_tensor_view *view)
{
    return *(const float *)view->data;
}

static aoticache_status run_kernel_of_many(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                           aoticache_stack *stack, aoticache_error *ret_error)
{
    const aoticache_value *v = stack->values;
    cr_expect_eq(stack->count, 13);
    cr_expect(v[0].kind == AOTICACHE_VALUE_TENSOR && value_of(v[0].as.tensor) == 1);
    cr_expect_eq(v[1].kind, AOTICACHE_VALUE_NONE);
    cr_expect(v[2].kind == AOTICACHE_VALUE_INT_LIST && v[2].count == 2 && v[2].as.ints[0] == 1 && v[2].as.ints[1] == 2);
    cr_expect(v[3].kind == AOTICACHE_VALUE_DOUBLE && v[3].as.double_value == 0.5);
    cr_expect(v[4].kind == AOTICACHE_VALUE_BOOL && v[4].as.bool_value);
    cr_expect(v[5].kind == AOTICACHE_VALUE_STRING && strcmp(v[5].as.string, "hi") == 0);
    cr_expect(v[6].kind == AOTICACHE_VALUE_TENSOR_LIST && v[6].count == 2 && value_of(v[6].as.tensors[0]) == 2 &&
              value_of(v[6].as.tensors[1]) == 3);
    cr_expect(v[7].kind == AOTICACHE_VALUE_INT && v[7].as.int_value == 3);
    cr_expect(v[8].kind == AOTICACHE_VALUE_TENSOR_LIST && v[8].count == 2 && v[8].as.tensors[0] == NULL &&
              value_of(v[8].as.tensors[1]) == 3);
    cr_expect(v[9].kind == AOTICACHE_VALUE_INT && v[9].as.int_value == 4);
    cr_expect_eq(v[10].kind, AOTICACHE_VALUE_NONE);
    cr_expect(v[11].kind == AOTICACHE_VALUE_INT_LIST && v[11].count == 2 && v[11].as.ints[0] == 77 &&
              v[11].as.ints[1] == 2);
    cr_expect(v[12].kind == AOTICACHE_VALUE_INT && v[12].as.int_value == 7);
    return run_kernel(user, op, keys, stack, ret_error);
}

Test(package_executor, nodes_of_pytorch_call_with_all_arguments)
{
    aoticache_oplib *instead;
    aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
    kernel.call = run_kernel_of_many;
    kernel.user = &two;
    succeeds(
        aoticache_oplib_create(dispatcher, AOTICACHE_OPLIB_IMPL, "mine", "CPU", __FILE__, __LINE__, &instead, &error));
    succeeds(aoticache_oplib_impl(instead, "many", NULL, &kernel, &error));
    succeeds(read_text(NODES(NODE("mine::twice", TENSOR("x"), ONE_RESULT) ", " NODE("mine::many", MANY_INPUTS,
                                                                                    ONE_RESULT ", " ONE_RESULT))));
    succeeds(run(1, 7, (const int64_t[]){1, 2, 3, 4, 77, 2, 7}, 6,
                 (const AtenTensorHandle[]){tensors[0], tensors[1], tensors[2], tensors[2], TO(0), TO(2)}));
    cr_expect_eq(seen_count, 13);
    cr_expect(results[0] == 11 && results[2] == 21, "%g %g", (double)results[0], (double)results[2]);
    aoticache_oplib_free(instead);
}

Test(package_executor, arguments_that_the_node_leaves_out_are_the_defaults)
{
    succeeds(read_text(NODES(NODE("mine::twice", TENSOR("x"), ONE_RESULT))));
    succeeds(run(0, 0, NULL, 2, (const AtenTensorHandle[]){tensors[2], TO(1)}));
    cr_expect(seen[1].kind == AOTICACHE_VALUE_INT && seen[1].as.int_value == 1);
    cr_expect_eq(results[1], 13);
    /* PyTorch 2.13 passes such numbers nevertheless. */
    succeeds(run(0, 1, (const int64_t[]){1}, 2, (const AtenTensorHandle[]){tensors[2], TO(1)}));
    fails(run(0, 2, (const int64_t[]){1, 1}, 2, (const AtenTensorHandle[]){tensors[2], TO(1)}), AOTICACHE_INVALID,
          "mine::twice: the model passes 2 integers");
}

Test(package_executor, floats_that_json_lacks_are_read)
{
    define("f(Tensor x, float a, float b, float[] c) -> Tensor", "CPU", &one);
    succeeds(read_text(
        NODES(NODE("mine::f",
                   TENSOR("x") ", " ARGUMENT("a", "{\"as_float\": \"-Infinity\"}") ", " ARGUMENT(
                       "b", "{\"as_float\": \"NaN\"}") ", " ARGUMENT("c", "{\"as_floats\": [1.5, \"Infinity\"]}"),
                   ONE_RESULT))));
    succeeds(run(0, 0, NULL, 2, (const AtenTensorHandle[]){tensors[0], TO(0)}));
    cr_expect(isinf(seen[1].as.double_value) && seen[1].as.double_value < 0 && isnan(seen[2].as.double_value));
    cr_expect(seen[3].count == 2 && seen[3].as.doubles[0] == 1.5 && isinf(seen[3].as.doubles[1]));
}

Test(package_executor, results_may_be_lists_and_may_be_unused)
{
    succeeds(read_text(
        NODES(NODE("mine::listed", TENSOR("x"), "{\"as_tensors\": [{\"name\": \"a\"}, {\"name\": \"b\"}]}") ", " NODE(
            "mine::listed", TENSOR("x"), "{\"as_tensors\": [{\"name\": \"a\"}]}") ", " NODE("mine::twice", TENSOR("x"),
                                                                                            "{\"as_none\": true}"))));
    succeeds(run(0, 0, NULL, 3, (const AtenTensorHandle[]){tensors[0], TO(3), TO(0)}));
    cr_expect(results[3] == 11 && results[0] == 21);
    fails(run(1, 0, NULL, 2, (const AtenTensorHandle[]){tensors[0], TO(0)}), AOTICACHE_MISMATCH,
          "mine::listed: result 0 is a output tensor list of 2; the model was compiled for a list of 1");
    succeeds(run(2, 0, NULL, 1, tensors));
}

Test(package_executor, calls_that_do_not_fit_are_refused)
{
    succeeds(read_text(NODES(NODE("mine::twice", TENSOR("x"), ONE_RESULT) ", " NODE(
        "mine::unlucky", TENSOR("x"), ONE_RESULT) ", " NODE("mine::wrong", TENSOR("x"), ONE_RESULT))));
    const AtenTensorHandle given[] = {tensors[0], TO(0)};
    const int64_t number = 5;
    fails(run(3, 0, NULL, 2, given), AOTICACHE_INVALID, "calls node 3 of its operators, but its package has 3");
    fails(run(-1, 0, NULL, 2, given), AOTICACHE_INVALID, "calls node -1");
    fails(run(0, 1, &number, 2, given), AOTICACHE_INVALID, "mine::twice: the model passes 1 integers and 2 tensors");
    fails(run(0, 0, NULL, -2, given), AOTICACHE_INVALID, "and -2 tensors");
    fails(run(0, 0, NULL, 2, (const AtenTensorHandle[]){NULL, TO(0)}), AOTICACHE_INVALID,
          "mine::twice: input tensor 0: ");
    fails(run(1, 0, NULL, 2, given), AOTICACHE_IO, "the kernel has no luck");
    fails(run(2, 0, NULL, 2, given), AOTICACHE_MISMATCH,
          "mine::wrong: its kernel returned 2 results, but the schema has 1");
}

/* ---- operators that are registered and removed ---- */

Test(package_executor, operators_without_a_kernel_are_all_named_once)
{
    fails(read_text(NODES(
              NODE("mine::twice", TENSOR("x"), ONE_RESULT) ", " NODE("mine::bare", TENSOR("x"), ONE_RESULT) ", " NODE(
                  "their::op.out", "", "") ", " NODE("mine::bare", TENSOR("x"), ONE_RESULT) ", " NODE("their::op", "",
                                                                                                      ""))),
          AOTICACHE_UNSUPPORTED,
          "the model calls operators: mine::bare, their::op.out, their::op, which have no kernel for "
          "the CPU in this process: register them (aoticache_oplib_def_kernel)");
    fails(read_text(NODES(NODE("mine::bare", TENSOR("x"), ONE_RESULT))), AOTICACHE_UNSUPPORTED,
          "the model calls mine::bare, which has no kernel");
    fails(read_text(NODES(NODE("no\\nname", "", ""))), AOTICACHE_UNSUPPORTED, "calls (unprintable), which");
}

Test(package_executor, many_missing_operators_are_cut_with_dots)
{
    static char text[64 * 1024];
    size_t used = (size_t)snprintf(text, sizeof text, "{\"nodes\": [");
    for (int i = 0; i < 100; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s{\"node\": {\"target\": \"their::operator_%d\"}}",
                                 i > 0 ? ", " : "", i);
    snprintf(text + used, sizeof text - used, "]}");
    fails(read_text(text), AOTICACHE_UNSUPPORTED, ", ..., which have no kernel");
}

Test(package_executor, definition_that_is_taken_back_fails_the_call)
{
    aoticache_oplib *passing;
    succeeds(aoticache_oplib_create(dispatcher, AOTICACHE_OPLIB_FRAGMENT, "mine", NULL, __FILE__, __LINE__, &passing,
                                    &error));
    aoticache_oplib *always = ops;
    ops = passing;
    define("passing(Tensor x, str s='a', int[] d=[1, 2]) -> Tensor", "CPU", &one);
    ops = always;
    succeeds(read_text(NODES(NODE("mine::passing", TENSOR("x"), ONE_RESULT))));
    const AtenTensorHandle given[] = {tensors[0], TO(0)};
    succeeds(run(0, 0, NULL, 2, given));
    cr_expect(strcmp(seen[1].as.string, "a") == 0 && seen[2].count == 2 && seen[2].as.ints[1] == 2);
    aoticache_oplib_free(passing);
    fails(run(0, 0, NULL, 2, given), AOTICACHE_NOT_FOUND, "mine::passing is not defined");
}

static void *run_in_new_thread(void *unused)
{
    (void)unused;
    const AtenTensorHandle given[] = {tensors[0], TO(0)};
    const aoticache_key_set before = aoticache_dispatch_get_local().excluded;
    succeeds(run(0, 0, NULL, 2, given));
    cr_expect_eq(aoticache_dispatch_get_local().excluded, before);
    return NULL;
}

/* Its key sets have BackendSelect and ADInplaceOrView, for which nothing is registered. */
Test(package_executor, new_thread_reaches_the_kernel_without_fallthroughs)
{
    pthread_t thread;
    succeeds(read_text(NODES(NODE("mine::twice", TENSOR("x"), ONE_RESULT))));
    cr_assert_eq(pthread_create(&thread, NULL, run_in_new_thread, NULL), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(results[0], 11);
}

/* ---- what is refused ---- */

Test(package_executor, malformed_nodes_are_refused)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "not valid JSON, line"},
        {"{\"nodes\": [", "not valid JSON, line"},
        {"{\"nodes\": [], \"nodes\": []}", "not valid JSON, line"},
        {"[]", "not a JSON object with nodes"},
        {"{\"nodes\": {}}", "not a JSON object with nodes"},
        {"{\"nodes\": [1]}", "node 0 of the package's operators: it has no operator name"},
        {"{\"nodes\": [{\"node\": {\"target\": \"\"}}]}", "node 0 of the package's operators: it has no operator name"},
        {NODES("{\"node\": {\"target\": \"mine::twice\"}}"),
         "mine::twice of the package's operators: it has no list of inputs"},
        {NODES("{\"node\": {\"target\": \"mine::twice\", \"inputs\": [" TENSOR("x") "]}}"),
         "it has no list of results"},
        {NODES(NODE("mine::twice", TENSOR("x") ", " TENSOR("x"), ONE_RESULT)), "mine::twice: duplicate input x"},
        {NODES(NODE("mine::twice", TENSOR("x") ", " TENSOR("y\\u0007"), ONE_RESULT)), "has no input (unprintable)"},
        {NODES(NODE("mine::twice", "{\"arg\": {\"as_int\": 1}}", ONE_RESULT)), "an input has no name"},
        {NODES(NODE("mine::twice", "", ONE_RESULT)), "argument x is missing and has no default"},
        {NODES(NODE("mine::twice", TENSOR("x") ", " TENSOR("n") ", " TENSOR("m"), ONE_RESULT)),
         "more inputs than the operator has"},
        {NODES(NODE("mine::twice", ARGUMENT("x", "{}"), ONE_RESULT)), "argument x: its value is malformed"},
        {NODES(NODE("mine::twice", ARGUMENT("x", "7"), ONE_RESULT)), "argument x: its value is malformed"},
        {NODES(NODE("mine::twice", ARGUMENT("x", "{\"as_tensor\": {}, \"as_int\": 1}"), ONE_RESULT)),
         "its value is malformed"},
        {NODES(NODE("mine::many", TENSOR("x") ", " TENSOR("y") ", " ARGUMENT("d", "{\"as_ints\": 3}"), ONE_RESULT)),
         "d: its as_ints is malformed"},
        {NODES(
             NODE("mine::many",
                  TENSOR("x") ", " ARGUMENT("y", "{\"as_optional_tensor\": 1}") ", " ARGUMENT("d", "{\"as_ints\": []}"),
                  ONE_RESULT)),
         "y: its as_optional_tensor is malformed"},
        {NODES(NODE("mine::many",
                    TENSOR("x") ", " ARGUMENT("y", "{\"as_none\": true}") ", " ARGUMENT(
                        "d", "{\"as_ints\": []}") ", " ARGUMENT("f", "{\"as_float\": \"much\"}"),
                    ONE_RESULT)),
         "f: its as_float is malformed"},
        {NODES(NODE("mine::twice", TENSOR("x"), "1")), "a result is malformed"},
        {NODES(NODE("mine::twice", TENSOR("x"), ONE_RESULT ", " ONE_RESULT)), "more results than the operator has"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        fails(read_text(cases[i].text), AOTICACHE_INVALID, cases[i].why);
}

Test(package_executor, devices_dtypes_and_memory_formats_are_read)
{
    static const struct {
        int number;
        int64_t dtype;
    } dtypes[] = {{1, AOTICACHE_DTYPE_UINT8},     {7, AOTICACHE_DTYPE_FLOAT32},        {12, AOTICACHE_DTYPE_BOOL},
                  {13, AOTICACHE_DTYPE_BFLOAT16}, {29, AOTICACHE_DTYPE_FLOAT8_E4M3FN}, {35, AOTICACHE_DTYPE_UINT64}};
    char text[512];
    succeeds(read_text(
        NODES(NODE("mine::odd", TENSOR("x") ", " ARGUMENT("d", "{\"as_device\": {\"type\": \"cpu\"}}"), ONE_RESULT))));
    cr_assert_eq(executor->nodes[0].arguments[1].value.kind, AOTICACHE_VALUE_DEVICE);
    cr_assert_eq(executor->nodes[0].arguments[1].value.as.device.type, AOTICACHE_DEVICE_TYPE_CPU);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        snprintf(text, sizeof text,
                 NODES(NODE("mine::made",
                            TENSOR("x") ", " ARGUMENT("t", "{\"as_scalar_type\": %d}") ", " ARGUMENT(
                                "f", "{\"as_memory_format\": 4}"),
                            ONE_RESULT)),
                 dtypes[i].number);
        succeeds(read_text(text));
        cr_assert_eq(executor->nodes[0].arguments[1].value.kind, AOTICACHE_VALUE_DTYPE);
        cr_assert_eq(executor->nodes[0].arguments[1].value.as.int_value, dtypes[i].dtype);
        cr_assert_eq(executor->nodes[0].arguments[2].value.as.int_value, 1); /* preserve */
    }
    fails(read_text(NODES(NODE("mine::made", TENSOR("x") ", " ARGUMENT("t", "{\"as_scalar_type\": 20}"), ONE_RESULT))),
          AOTICACHE_INVALID, "its as_scalar_type is malformed");
    fails(read_text(NODES(NODE(
              "mine::made",
              TENSOR("x") ", " ARGUMENT("t", "{\"as_scalar_type\": 7}") ", " ARGUMENT("f", "{\"as_memory_format\": 5}"),
              ONE_RESULT))),
          AOTICACHE_INVALID, "its as_memory_format is malformed");
}

Test(package_executor, kinds_that_are_not_supported_are_named_with_operator_and_argument)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {NODES(NODE("mine::odd", TENSOR("x") ", " ARGUMENT("d", "{\"as_device\": {\"type\": \"cuda\"}}"), ONE_RESULT)),
         "mine::odd: argument d (Device) as as_device is not supported without PyTorch"},
        {NODES(NODE("mine::twice", TENSOR("x") ", " ARGUMENT("n", "{\"as_float\": 1.5}"), ONE_RESULT)),
         "mine::twice: argument n (int) as as_float is not supported"},
        {NODES(NODE("mine::twice", TENSOR("x") ", " ARGUMENT("n", "{\"as_none\": true}"), ONE_RESULT)),
         "argument n (int) as as_none is not supported"},
        {NODES(NODE("mine::twice", ARGUMENT("x", "{\"as_custom_obj\": {}}"), ONE_RESULT)),
         "argument x (Tensor) as as_custom_obj is not supported"},
        {NODES(NODE("mine::counts", TENSOR("x"), "{\"as_int\": 3}")),
         "mine::counts: a result as as_int is not supported"},
        {NODES(NODE("mine::twice", TENSOR("x"), "{\"as_tensors\": []}")), "a result as as_tensors is not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        fails(read_text(cases[i].text), AOTICACHE_UNSUPPORTED, cases[i].why);
}
