/* Unit tests of the checks before a compiled kernel answers (eager/torch/precheck.c). */
#include "eager/torch/torch_internal.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(precheck, .timeout = 60);

#define TENSOR(view) ((aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = (view)})
#define INT(number) ((aoticache_value){.kind = AOTICACHE_VALUE_INT, .as.int_value = (number)})
#define NONE ((aoticache_value){.kind = AOTICACHE_VALUE_NONE})
#define STRING(text) ((aoticache_value){.kind = AOTICACHE_VALUE_STRING, .as.string = (text)})

static int64_t one_dim[1], one_stride[1] = {1};

static aoticache_tensor_view vector(void *data, int32_t dtype, int64_t count)
{
    one_dim[0] = count;
    return (aoticache_tensor_view){.data = data,
                                   .dtype = dtype,
                                   .device = AOTICACHE_DEVICE_CPU,
                                   .ndim = 1,
                                   .numel = count,
                                   .sizes = one_dim,
                                   .strides = one_stride};
}

static const aoticache_precheck *find(const char *name, size_t count)
{
    aoticache_holder holder = {.op = (char *)(uintptr_t)name, .num_arguments = count};
    return aoticache_precheck_find(&holder);
}

/* Finds the precheck of an operator that writes to its arguments. */
static const aoticache_precheck *find_form(const char *text)
{
    aoticache_holder holder = {.num_arguments = 0};
    cr_assert_eq(aoticache_schema_parse(text, &holder.schema, NULL), AOTICACHE_OK);
    holder.op = (char *)(uintptr_t)holder.schema->full_name;
    holder.num_arguments = holder.schema->argument_count;
    cr_assert_eq(aoticache_holder_read_writes(&holder, NULL), AOTICACHE_OK);
    cr_assert_neq(holder.written, 0, "%s", text);
    const aoticache_precheck *found = aoticache_precheck_find(&holder);
    aoticache_schema_free(holder.schema);
    return found;
}

static bool passes(const char *name, aoticache_value *values, size_t count)
{
    aoticache_holder holder = {.num_arguments = count};
    aoticache_binding_operator op = {.holder = &holder, .precheck = find(name, count)};
    aoticache_binding_call call = {.stack = {.values = values, .count = count, .capacity = count}, .op = &op};
    cr_assert_not_null(op.precheck, "%s", name);
    return aoticache_binding_admits(&call);
}

static const int64_t table_sizes[2] = {3, 5}, table_strides[2] = {5, 1};
static float table_data[15];
static const aoticache_tensor_view table = {.data = table_data,
                                            .dtype = AOTICACHE_DTYPE_FLOAT32,
                                            .device = {AOTICACHE_DEVICE_TYPE_CPU, -1},
                                            .ndim = 2,
                                            .numel = 15,
                                            .sizes = table_sizes,
                                            .strides = table_strides};

static bool selects(int64_t dim, int64_t index)
{
    int64_t indices[4] = {0, 2, index, 1};
    aoticache_tensor_view view = vector(indices, AOTICACHE_DTYPE_INT64, 4);
    return passes("aten::index_select", (aoticache_value[]){TENSOR(&table), INT(dim), TENSOR(&view)}, 3);
}

Test(precheck, operators_are_found_by_their_whole_name)
{
    cr_expect_not_null(find("aten::div.Tensor_mode", 3));
    cr_expect_null(find("aten::div.Tensor", 2));
    cr_expect_null(find("aten::add.Tensor", 3));
    cr_expect_null(find("aten::index_select", 2), "another schema of that name");
}

Test(precheck, forms_that_write_are_looked_at_as_their_operators_are)
{
    const aoticache_precheck *divides = find("aten::div.Tensor_mode", 3), *selects_rows = find("aten::index_select", 3);
    cr_expect_eq(
        find_form("aten::div_.Tensor_mode(Tensor(a!) self, Tensor other, *, str? rounding_mode) -> Tensor(a!)"),
        divides);
    cr_expect_eq(find_form("aten::div.out_mode(Tensor self, Tensor other, *, str? rounding_mode, Tensor(a!) out) -> "
                           "Tensor(a!)"),
                 divides);
    cr_expect_null(find_form("aten::div_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)"));
    cr_expect_null(find_form("aten::div.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"));
    cr_expect_not_null(find_form("aten::floor_divide_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)"));
    cr_expect_not_null(
        find_form("aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1)"
                  " -> Tensor(a!)"));
    cr_expect_eq(
        find_form("aten::index_select.out(Tensor self, int dim, Tensor index, *, Tensor(a!) out) -> Tensor(a!)"),
        selects_rows);
    cr_expect_null(find_form("aten::index_fill(Tensor(a!) self) -> Tensor(a!)"), "another schema of that name");
    cr_expect_null(find_form("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"));
}

Test(precheck, indices_are_inside_the_dimension)
{
    cr_expect(selects(0, 2));
    cr_expect_not(selects(0, 3));
    cr_expect_not(selects(0, -1));
    cr_expect(selects(1, 4));
    cr_expect(selects(-1, 4));
    cr_expect_not(selects(-2, 4));
    cr_expect_not(selects(2, 0), "there is no such dimension");
    cr_expect_not(selects(0, INT64_MIN));
}

/* Its memory cannot be read here, so the pointer is invalid. */
Test(precheck, what_lies_on_another_device_is_not_known)
{
    aoticache_tensor_view view = vector((void *)(uintptr_t)8, AOTICACHE_DTYPE_INT64, 4);
    aoticache_value values[] = {TENSOR(&table), INT(0), TENSOR(&view)};
    view.device = (aoticache_device){AOTICACHE_DEVICE_TYPE_CUDA, 0};
    cr_expect_not(passes("aten::index_select", values, 3));
    view.numel = one_dim[0] = 0;
    cr_expect(passes("aten::index_select", values, 3));
}

Test(precheck, elements_of_an_index_that_is_not_contiguous_are_those_of_the_view)
{
    /* Every second element of the first two rows; the elements in between are out of range. */
    int32_t indices[] = {0, 99, 2, 99, 1, 99, 0, 99};
    int64_t sizes[3] = {2, 7, 2}, strides[3] = {4, 0, 2};
    aoticache_tensor_view view = {.data = indices,
                                  .dtype = AOTICACHE_DTYPE_INT32,
                                  .device = AOTICACHE_DEVICE_CPU,
                                  .ndim = 3,
                                  .numel = 28,
                                  .sizes = sizes,
                                  .strides = strides};
    aoticache_value values[] = {TENSOR(&table), TENSOR(&view), INT(-1), NONE, NONE};
    cr_expect(passes("aten::embedding", values, 5));
    indices[6] = 3;
    cr_expect_not(passes("aten::embedding", values, 5));
}

Test(precheck, empty_index_passes)
{
    aoticache_tensor_view view = vector(NULL, AOTICACHE_DTYPE_INT64, 0);
    cr_expect(passes("aten::embedding", (aoticache_value[]){TENSOR(&table), TENSOR(&view), INT(-1), NONE, NONE}, 5));
}

Test(precheck, ignored_class_passes)
{
    int64_t target[3] = {4, -100, 0};
    aoticache_tensor_view view = vector(target, AOTICACHE_DTYPE_INT64, 3);
    aoticache_value values[] = {TENSOR(&table), TENSOR(&view), NONE, INT(1), INT(-100)};
    cr_expect(passes("aten::nll_loss_forward", values, 5));
    values[4] = INT(-1);
    cr_expect_not(passes("aten::nll_loss_forward", values, 5));
}

static bool divides(int64_t divisor, int32_t dividend, aoticache_value mode)
{
    int64_t numbers[9] = {5, 7, 1, 2, 3, divisor, INT64_MIN, INT64_MAX, -2};
    aoticache_tensor_view view = vector(numbers, AOTICACHE_DTYPE_INT64, 9), other = view;
    other.dtype = dividend;
    return passes("aten::div.Tensor_mode", (aoticache_value[]){TENSOR(&other), TENSOR(&view), mode}, 3);
}

static bool divides_remaining(int32_t dtype)
{
    float numbers[2] = {5, 7};
    aoticache_tensor_view view = vector(numbers, dtype, 2);
    return passes("aten::fmod.Tensor", (aoticache_value[]){TENSOR(&view), TENSOR(&view)}, 2);
}

Test(precheck, integer_divisors_are_neither_0_nor_the_one_that_overflows)
{
    cr_expect(divides(4, AOTICACHE_DTYPE_INT64, STRING("trunc")));
    cr_expect_not(divides(0, AOTICACHE_DTYPE_INT64, STRING("trunc")));
    cr_expect_not(divides(-1, AOTICACHE_DTYPE_INT64, STRING("trunc")));
    cr_expect(divides(0, AOTICACHE_DTYPE_FLOAT32, STRING("trunc")), "PyTorch divides floats");
    cr_expect_not(divides(4, AOTICACHE_DTYPE_FLOAT32, STRING("floor")), "PyTorch's compiler rounds floats otherwise");
    cr_expect(divides(4, AOTICACHE_DTYPE_INT64, STRING("floor")));
    cr_expect(divides(0, AOTICACHE_DTYPE_INT64, NONE), "without a mode PyTorch divides floats");
}

/*
 * PyTorch rounds the quotient to 16 bits and then drops the fraction; its compiler drops the fraction of the exact
 * quotient.
 */
Test(precheck, short_floats_are_not_divided_and_cut)
{
    static const int32_t dtypes[] = {AOTICACHE_DTYPE_FLOAT16, AOTICACHE_DTYPE_BFLOAT16};
    for (size_t i = 0; i < 2; i++) {
        cr_expect_not(divides(4, dtypes[i], STRING("trunc")));
        cr_expect(divides(4, dtypes[i], NONE));
        cr_expect_not(passes(
            "aten::div.Tensor_mode",
            (aoticache_value[]){TENSOR(&table), TENSOR(&(aoticache_tensor_view){.dtype = dtypes[i]}), STRING("trunc")},
            3));
        cr_expect(divides_remaining(dtypes[i]), "what remains is exact");
    }
}

Test(precheck, truth_of_bytes_is_pytorchs)
{
    uint8_t bytes[2] = {1, 0};
    aoticache_tensor_view view = vector(bytes, AOTICACHE_DTYPE_UINT8, 2);
    cr_expect_not(passes("aten::any", (aoticache_value[]){TENSOR(&view)}, 1));
    view.dtype = AOTICACHE_DTYPE_INT8;
    cr_expect(passes("aten::any", (aoticache_value[]){TENSOR(&view)}, 1));
}

Test(precheck, a_reciprocal_root_is_pytorchs)
{
    aoticache_value exponent = {.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = 0.5};
    cr_expect(passes("aten::pow.Tensor_Scalar", (aoticache_value[]){TENSOR(&table), exponent}, 2));
    exponent.as.double_value = -0.5;
    cr_expect_not(passes("aten::pow.Tensor_Scalar", (aoticache_value[]){TENSOR(&table), exponent}, 2));
    cr_expect(passes("aten::pow.Tensor_Scalar", (aoticache_value[]){TENSOR(&table), INT(-1)}, 2));
}

static bool converts(int32_t from, int32_t to)
{
    uint64_t numbers[2] = {0};
    aoticache_tensor_view source = vector(numbers, from, 2), target = vector(numbers, to, 2);
    return passes("aten::copy", (aoticache_value[]){TENSOR(&target), TENSOR(&source), INT(0)}, 3);
}

Test(precheck, floats_become_integers_as_pytorch_has_them)
{
    static const int32_t floats[] = {AOTICACHE_DTYPE_FLOAT32, AOTICACHE_DTYPE_FLOAT64, AOTICACHE_DTYPE_BFLOAT16,
                                     AOTICACHE_DTYPE_FLOAT16};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        cr_expect(converts(floats[i], AOTICACHE_DTYPE_FLOAT32));
        cr_expect(converts(AOTICACHE_DTYPE_INT64, floats[i]));
        cr_expect_not(converts(floats[i], AOTICACHE_DTYPE_INT64));
        cr_expect_not(converts(floats[i], AOTICACHE_DTYPE_BOOL));
        cr_expect_not(converts(AOTICACHE_DTYPE_COMPLEX64, floats[i]), "PyTorch warns");
    }
    cr_expect(converts(AOTICACHE_DTYPE_INT64, AOTICACHE_DTYPE_UINT8));
    cr_expect(converts(AOTICACHE_DTYPE_COMPLEX64, AOTICACHE_DTYPE_COMPLEX64));
    cr_expect(find_form("aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)") != NULL);
}

Test(precheck, sums_are_of_the_integers_that_pytorch_makes)
{
    aoticache_value dtype = {.kind = AOTICACHE_VALUE_DTYPE, .as.int_value = AOTICACHE_DTYPE_INT8};
    cr_expect_not(passes("aten::sum", (aoticache_value[]){TENSOR(&table), dtype}, 2));
    cr_expect_not(passes("aten::sum.dim_IntList", (aoticache_value[]){TENSOR(&table), NONE, INT(0), dtype}, 4));
    cr_expect(passes("aten::sum.dim_IntList", (aoticache_value[]){TENSOR(&table), NONE, INT(0), NONE}, 4));
    dtype.as.int_value = AOTICACHE_DTYPE_FLOAT64;
    cr_expect(passes("aten::sum", (aoticache_value[]){TENSOR(&table), dtype}, 2));
    const aoticache_precheck *whole = find("aten::sum", 2), *in_dims = find("aten::sum.dim_IntList", 4);
    cr_expect_eq(find_form("aten::sum.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)"),
                 whole);
    cr_expect_eq(
        find_form("aten::sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, "
                  "Tensor(a!) out) -> Tensor(a!)"),
        in_dims);
}

Test(precheck, numbers_are_divisors_too)
{
    int32_t numbers[2] = {5, 7};
    aoticache_tensor_view view = vector(numbers, AOTICACHE_DTYPE_INT32, 2);
    cr_expect(passes("aten::remainder.Scalar", (aoticache_value[]){TENSOR(&view), INT(3)}, 2));
    cr_expect_not(passes("aten::remainder.Scalar", (aoticache_value[]){TENSOR(&view), INT(0)}, 2));
    aoticache_value zero = {.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = 0};
    cr_expect(passes("aten::fmod.Scalar", (aoticache_value[]){TENSOR(&view), zero}, 2));
    cr_expect_not(passes("aten::remainder.Scalar", (aoticache_value[]){TENSOR(&view), zero}, 2));
}

Test(precheck, lists_of_indices_go_with_the_dimensions)
{
    int64_t indices[2] = {4, 3};
    aoticache_tensor_view view = vector(indices, AOTICACHE_DTYPE_INT64, 2);
    const aoticache_tensor_view *second[] = {NULL, &view}, *first[] = {&view, NULL};
    aoticache_value list = {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 2, .as.tensors = second};
    cr_expect(passes("aten::_unsafe_index.Tensor", (aoticache_value[]){TENSOR(&table), list}, 2));
    list.as.tensors = first;
    cr_expect_not(passes("aten::_unsafe_index.Tensor", (aoticache_value[]){TENSOR(&table), list}, 2));
}
