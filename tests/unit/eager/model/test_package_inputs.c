/* Inputs as described by the source of a package's wrapper (eager/model/package/inputs.c). */
#include "eager/model/package/package_internal.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define INPUT(index, name, lines)                                                 \
    "AOTI_NOINLINE static void check_input_" #index "(\n    ConstantHandle " name \
    " = ConstantHandle(input_handles[" #index "]);\n    int32_t " name            \
    "_expected_dtype = aoti_torch_dtype_float32();\n" lines "    int32_t " name "_expected_device_type = 0;\n}\n"
#define SIZE(name, d, n) "    if (" #n " != " name "_size[" #d "]) {\n"
#define LEAST(name, d, n) "    if (" name "_size[" #d "] < " #n ") {\n"
#define MOST(name, d, n) "    if (" name "_size[" #d "] > " #n ") {\n"
#define STRIDE(name, d, n) "    if (" #n " != " name "_stride[" #d "]) {\n"
#define REST "static bool _check_aoti_runtime_check_inputs_env() {\n static void __check_inputs_outputs(\n"
#define SHAPE(name, sizes, strides)                                                                      \
    "    if (_check_aoti_runtime_check_inputs_env()) { assert_size_stride(" name ", " sizes ", " strides \
    ", \"input\"); }\n"

static char numbers[64];

static void expect(const char *source, const char *check)
{
    char *text = strdup(source), *found = aoticache_package_inputs_parse(text, numbers, sizeof numbers);
    if (check == NULL)
        cr_assert_null(found, "%s", found);
    else
        cr_assert_str_eq(found != NULL ? found : "(nothing)", check);
    free(found);
    free(text);
}

Test(package_inputs, sizes_strides_and_ranges_are_read)
{
    expect(REST, "");
    expect(INPUT(0, "a", SIZE("a", 0, 3) STRIDE("a", 0, 1)) REST, "float32[3]{contiguous}@cpu");
    /* PyTorch's compiler assumes 2 as least value; a larger one comes from the export. */
    expect(INPUT(0, "a", LEAST("a", 0, 2) MOST("a", 0, 64) SIZE("a", 1, 7)) REST SHAPE("a", "{s77, 7L}", "{7L, 1L}"),
           "float32[s0, 7]{contiguous}@cpu; s0=0..64");
    expect(INPUT(0, "a", LEAST("a", 0, 4)) REST SHAPE("a", "{s77}", "{1L}"), "float32[s0]{contiguous}@cpu; s0=4..");
    expect(INPUT(0, "a", "") INPUT(1, "b", "") REST SHAPE("a", "{s1, s2}", "{1L, s1}")
               SHAPE("b", "{(2L*s2 + 1L)}", "{1L}"),
           "float32[s0, s1]{1, s0}@cpu, float32[2*s1+1]{contiguous}@cpu");
    expect(INPUT(0, "a", "") REST SHAPE("a", "{s0, 3L, 8L, 8L}", "{192L, 1L, 24L, 3L}"),
           "float32[s0, 3, 8, 8]{channels_last}@cpu");
    /* Not every input has its own line; the lines that define symbols have the rest. */
    expect(INPUT(0, "a", LEAST("a", 0, 2) SIZE("a", 1, 4) STRIDE("a", 0, 4) STRIDE("a", 1, 1)) INPUT(1, "b", "") REST
           "    int64_t s77 = a_size[0];\n" SHAPE("b", "{s77, 4L}", "{4L, 1L}"),
           "float32[s0, 4]{contiguous}@cpu, float32[s0, 4]{contiguous}@cpu");
    expect(INPUT(0, "a", "") REST SHAPE("a", "{1L, 4L}", "{9L, 1L}"), "float32[1, 4]{contiguous}@cpu");
    expect(INPUT(0, "a", "") REST SHAPE("a", "{s0, c10::div(s0, 2L)}", "{4L, 1L}"), "float32[s0, *]{4, 1}@cpu");
}

Test(package_inputs, without_shapes_each_size_stands_for_itself)
{
    expect(INPUT(0, "a", LEAST("a", 0, 2) MOST("a", 0, 8) SIZE("a", 1, 4) STRIDE("a", 0, 4) STRIDE("a", 1, 1)) REST,
           "float32[s0, 4]{contiguous}@cpu; s0=0..8");
}

Test(package_inputs, results_that_are_numbers_are_noted)
{
    expect(REST "    output_handles[0] = buf1.release();\n    output_handles[2] = scalar_to_tensor_0.release();\n"
                "    output_handles[3] = scalar_to_tensor_1.release();\n",
           "");
    cr_assert_str_eq(numbers, "2,3");
}

Test(package_inputs, what_is_not_understood_says_nothing)
{
    expect("int main() {}\n", NULL);
    expect("    ConstantHandle a = ConstantHandle(input_handles[0]);\n" REST, NULL); /* no dtype */
    expect(INPUT(0, "a", "") REST SHAPE("a", "{s0*s1}", "{1L}"), NULL);              /* a symbol that is never alone */
}
