/*
 * Matrix multiplication in the shim, compared with the plain triple loop.
 */
#include <complex.h>
#include <math.h>
#include <stdlib.h>

#include "tests/unit/fixtures/shim_fixture.h"

static double next_value(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 16) / 32768 - 1;
}

static float *random_floats(size_t count)
{
    float *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)next_value();
    return values;
}

/* Makes a matrix. transposed: it is stored by columns. */
static AtenTensorHandle matrix(void *data, int32_t dtype, int64_t rows, int64_t columns, bool transposed)
{
    const int64_t sizes[] = {rows, columns}, strides[] = {transposed ? 1 : columns, transposed ? rows : 1};
    return shim_wrap(data, dtype, 2, sizes, strides);
}

static void check_mm(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed)
{
    float *a = random_floats((size_t)(m * k)), *b = random_floats((size_t)(k * n));
    float *out = random_floats((size_t)(m * n));
    AtenTensorHandle left = matrix(a, 6, m, k, a_transposed), right = matrix(b, 6, k, n, b_transposed);
    AtenTensorHandle result = matrix(out, 6, m, n, false);
    cr_assert_eq(SHIM(aoti_torch_cpu_mm_out)(result, left, right), 0, "%s", shim_message());
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)a[a_transposed ? l * m + i : i * k + l] * b[b_transposed ? j * k + l : l * n + j];
            cr_assert_lt(fabs(sum - out[i * n + j]), 1e-5 * sqrt((double)k + 1), "%d x %d x %d at %d, %d: %g, not %g",
                         (int)m, (int)n, (int)k, (int)i, (int)j, out[i * n + j], sum);
        }
    }
    shim_delete(left);
    shim_delete(right);
    shim_delete(result);
    free(a);
    free(b);
    free(out);
}

Test(shim_matmul, mm_of_all_sorts_of_sizes)
{
    static const int64_t sizes[][3] = {{1, 1, 1},      {3, 5, 7},      {4, 16, 8},     {5, 17, 1},
                                       {64, 256, 256}, {65, 257, 257}, {130, 70, 300}, {1, 300, 40},
                                       {300, 1, 40},   {2, 2, 600},    {3, 300, 77}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int transposed = 0; transposed < 4; transposed++)
            check_mm(sizes[i][0], sizes[i][1], sizes[i][2], (transposed & 1) != 0, (transposed & 2) != 0);
}

/* Sizes around the edges of tiles of rows, panels of columns and blocks of steps (matmul_panels.c). */
Test(shim_matmul, mm_of_a_few_more_or_less_than_a_tile)
{
    static const int64_t rows[] = {7, 8, 13, 14, 15, 28, 29, 43, 245}, columns[] = {15, 16, 31, 32, 33, 64, 97},
                         depths[] = {1, 15, 16, 17, 64, 79, 256, 257, 300};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++)
            for (size_t k = (i + j) % 2; k < sizeof depths / sizeof *depths; k += 2)
                for (int transposed = 0; transposed < 2; transposed++)
                    check_mm(rows[i], columns[j], depths[k], false, transposed != 0);
}

/* Addends: one row for all rows, or the result itself; also the factors and addends with other code paths. */
Test(shim_matmul, addmm_of_small_products)
{
    enum { ROWS = 30, COLUMNS = 40, DEPTH = 270, GAP = 3 };
    static const double factors[][2] = {{1, 1}, {1, 2}, {0.5, 1}};
    static const int64_t sizes[] = {ROWS, COLUMNS}, strides[] = {COLUMNS + GAP, 1}, columns[] = {COLUMNS};
    float *a = random_floats(ROWS * DEPTH), *b = random_floats(DEPTH * COLUMNS), *row = random_floats(COLUMNS);
    float *out = malloc(sizeof *out * ROWS * (COLUMNS + GAP));
    AtenTensorHandle left = matrix(a, 6, ROWS, DEPTH, false), right = matrix(b, 6, DEPTH, COLUMNS, true);
    AtenTensorHandle result = shim_wrap(out, 6, 2, sizes, strides), addend = shim_wrap(row, 6, 1, columns, NULL);
    for (int which = 0; which < 6; which++) {
        const double beta = factors[which % 3][0], alpha = factors[which % 3][1];
        const bool in_place = which >= 3;
        for (int i = 0; i < ROWS * (COLUMNS + GAP); i++)
            out[i] = 7;
        cr_assert_eq(SHIM(aoti_torch_cpu_addmm_out)(result, in_place ? result : addend, left, right, beta, alpha), 0,
                     "%s", shim_message());
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < COLUMNS; j++) {
                double sum = beta * (in_place ? 7 : row[j]);
                for (int k = 0; k < DEPTH; k++)
                    sum += alpha * a[i * DEPTH + k] * b[j * DEPTH + k];
                cr_assert_float_eq(out[i * (COLUMNS + GAP) + j], sum, 2e-4, "%d: %d, %d", which, i, j);
            }
            for (int j = COLUMNS; j < COLUMNS + GAP; j++)
                cr_assert_eq(out[i * (COLUMNS + GAP) + j], 7, "the gap between rows is written to");
        }
    }
    shim_delete(left);
    shim_delete(right);
    shim_delete(result);
    shim_delete(addend);
    free(a);
    free(b);
    free(row);
    free(out);
}

/* Large enough for a BLAS if the machine has one; results by rows, by columns, and with gaps in both directions. */
Test(shim_matmul, large_products_into_results_of_any_strides)
{
    enum { ROWS = 70, COLUMNS = 90, DEPTH = 80 };
    static const int64_t sizes[] = {ROWS, COLUMNS},
                         layouts[][2] = {{COLUMNS, 1}, {1, ROWS}, {COLUMNS + 7, 1}, {2 * COLUMNS, 2}};
    float *a = random_floats(ROWS * DEPTH), *b = random_floats(DEPTH * COLUMNS);
    float *out = random_floats(ROWS * 2 * COLUMNS);
    AtenTensorHandle left = matrix(a, 6, ROWS, DEPTH, true), right = matrix(b, 6, DEPTH, COLUMNS, false);
    for (size_t layout = 0; layout < sizeof layouts / sizeof layouts[0]; layout++) {
        AtenTensorHandle result = shim_wrap(out, 6, 2, sizes, layouts[layout]);
        for (int i = 0; i < ROWS * 2 * COLUMNS; i++)
            out[i] = 5;
        /* The addend is the result itself, times 0.5. */
        cr_assert_eq(SHIM(aoti_torch_cpu_addmm_out)(result, result, left, right, 0.5, 2), 0, "%s", shim_message());
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < COLUMNS; j++) {
                double sum = 2.5;
                for (int k = 0; k < DEPTH; k++)
                    sum += 2.0 * a[k * ROWS + i] * b[k * COLUMNS + j];
                cr_assert_float_eq(out[i * layouts[layout][0] + j * layouts[layout][1]], sum, 1e-4);
            }
        }
        shim_delete(result);
    }
    shim_delete(left);
    shim_delete(right);
    free(a);
    free(b);
    free(out);
}

Test(shim_matmul, large_products_ignore_an_addend_with_factor_0)
{
    enum { SIZE = 64 };
    float *a = random_floats(SIZE * SIZE), *b = random_floats(SIZE * SIZE), *out = random_floats(SIZE * SIZE);
    for (int i = 0; i < SIZE * SIZE; i++)
        out[i] = NAN;
    AtenTensorHandle left = matrix(a, 6, SIZE, SIZE, false), right = matrix(b, 6, SIZE, SIZE, false);
    AtenTensorHandle result = matrix(out, 6, SIZE, SIZE, false);
    cr_assert_eq(SHIM(aoti_torch_cpu_addmm_out)(result, result, left, right, 0, 1), 0, "%s", shim_message());
    for (int i = 0; i < SIZE * SIZE; i++)
        cr_assert(!isnan(out[i]));
    shim_delete(left);
    shim_delete(right);
    shim_delete(result);
    free(a);
    free(b);
    free(out);
}

Test(shim_matmul, no_inner_dimension_gives_zeros)
{
    float out[4] = {1, 1, 1, 1}, none[1];
    AtenTensorHandle left = matrix(none, 6, 2, 0, false), right = matrix(none, 6, 0, 2, false);
    AtenTensorHandle result = matrix(out, 6, 2, 2, false);
    cr_assert_eq(SHIM(aoti_torch_cpu_mm_out)(result, left, right), 0, "%s", shim_message());
    for (int i = 0; i < 4; i++)
        cr_assert_eq(out[i], 0);
    shim_delete(left);
    shim_delete(right);
    shim_delete(result);
}

Test(shim_matmul, addmm_scales_and_broadcasts)
{
    double a[] = {1, 2, 3, 4}, b[] = {1, 0, 0, 1}, addend[] = {10, 20}, out[4];
    const int64_t two[] = {2};
    AtenTensorHandle left = matrix(a, 7, 2, 2, false), right = matrix(b, 7, 2, 2, false);
    AtenTensorHandle row = shim_wrap(addend, 7, 1, two, NULL), result = matrix(out, 7, 2, 2, false);
    cr_assert_eq(SHIM(aoti_torch_cpu_addmm_out)(result, row, left, right, 0.5, 2), 0, "%s", shim_message());
    cr_assert(out[0] == 7 && out[1] == 14 && out[2] == 11 && out[3] == 18);
    addend[0] = NAN;
    cr_assert_eq(SHIM(aoti_torch_cpu_addmm_out)(result, row, left, right, 0, 1), 0);
    cr_assert(out[0] == 1 && out[3] == 4, "with beta 0 the addend does not count, not even NaN");
    shim_delete(left);
    shim_delete(right);
    shim_delete(row);
    shim_delete(result);
}

Test(shim_matmul, whole_numbers_wrap)
{
    int8_t a[] = {100, 100}, b[] = {2, 3}, out[1];
    AtenTensorHandle left = matrix(a, 1, 1, 2, false), right = matrix(b, 1, 2, 1, false);
    AtenTensorHandle result = matrix(out, 1, 1, 1, false);
    cr_assert_eq(SHIM(aoti_torch_cpu_mm_out)(result, left, right), 0);
    cr_assert_eq(out[0], (int8_t)500);
    shim_delete(left);
    shim_delete(right);
    shim_delete(result);
}

Test(shim_matmul, complex_numbers)
{
    double _Complex a[6], b[6], out[4];
    for (int i = 0; i < 6; i++) {
        __real__ a[i] = next_value();
        __imag__ a[i] = next_value();
        __real__ b[i] = next_value();
        __imag__ b[i] = next_value();
    }
    AtenTensorHandle left = matrix(a, 10, 2, 3, false), right = matrix(b, 10, 3, 2, true);
    AtenTensorHandle result = matrix(out, 10, 2, 2, false);
    cr_assert_eq(SHIM(aoti_torch_cpu_mm_out)(result, left, right), 0, "%s", shim_message());
    for (int i = 0; i < 4; i++) {
        double _Complex rest = out[i];
        for (int k = 0; k < 3; k++)
            rest -= a[3 * (i / 2) + k] * b[3 * (i % 2) + k];
        cr_assert_lt(cabs(rest), 1e-14);
    }
    shim_delete(left);
    shim_delete(right);
    shim_delete(result);
}

Test(shim_matmul, batches_with_any_strides)
{
    float a[2 * 3 * 4], b[2 * 4 * 2], addend[2] = {100, 200}, out[2 * 3 * 2];
    const int64_t a_sizes[] = {2, 3, 4}, a_strides[] = {1, 2, 6}, b_sizes[] = {2, 4, 2}, out_sizes[] = {2, 3, 2};
    const int64_t addend_sizes[] = {2, 1, 1};
    for (int i = 0; i < 24; i++)
        a[i] = (float)i;
    for (int i = 0; i < 16; i++)
        b[i] = (float)(i % 5);
    AtenTensorHandle left = shim_wrap(a, 6, 3, a_sizes, a_strides), right = shim_wrap(b, 6, 3, b_sizes, NULL);
    AtenTensorHandle result = shim_wrap(out, 6, 3, out_sizes, NULL), plus = shim_wrap(addend, 6, 3, addend_sizes, NULL);
    for (int with = 0; with < 2; with++) {
        AOTITorchError status = with ? SHIM(aoti_torch_cpu_baddbmm_out)(result, plus, left, right, 1, 1)
                                     : SHIM(aoti_torch_cpu_bmm_out)(result, left, right);
        cr_assert_eq(status, 0, "%s", shim_message());
        for (int batch = 0; batch < 2; batch++) {
            for (int i = 0; i < 3; i++) {
                for (int j = 0; j < 2; j++) {
                    float sum = with ? addend[batch] : 0;
                    for (int k = 0; k < 4; k++)
                        sum += a[batch + 2 * i + 6 * k] * b[8 * batch + 2 * k + j];
                    cr_assert_eq(out[6 * batch + 2 * i + j], sum);
                }
            }
        }
    }
    shim_delete(left);
    shim_delete(right);
    shim_delete(result);
    shim_delete(plus);
}

Test(shim_matmul, what_does_not_fit_is_named)
{
    float values[64] = {0};
    double doubles[4] = {0};
    bool truths[4] = {false};
    AtenTensorHandle left = matrix(values, 6, 2, 3, false), right = matrix(values + 8, 6, 3, 2, false);
    AtenTensorHandle result = matrix(values + 16, 6, 2, 2, false), wrong = matrix(values + 32, 6, 3, 3, false);
    AtenTensorHandle inside = matrix(values + 10, 6, 2, 2, false), other = matrix(doubles, 7, 2, 2, false);
    AtenTensorHandle truth = matrix(truths, 11, 2, 2, false);
    SHIM_FAILS(SHIM(aoti_torch_cpu_mm_out)(wrong, left, right), "2 x 3 times 3 x 2 into 3 x 3");
    SHIM_FAILS(SHIM(aoti_torch_cpu_mm_out)(result, left, left), "2 x 3 times 2 x 3");
    SHIM_FAILS(SHIM(aoti_torch_cpu_mm_out)(other, left, right), "float64 and float32");
    SHIM_FAILS(SHIM(aoti_torch_cpu_mm_out)(truth, truth, truth), "multiplication of bool is not supported");
    SHIM_FAILS(SHIM(aoti_torch_cpu_bmm_out)(result, left, right), "must have 3 dimensions; these have 2, 2 and 2");
    SHIM_FAILS(SHIM(aoti_torch_cpu_mm_out)(inside, left, right), "overlaps an operand");
    SHIM_FAILS(SHIM(aoti_torch_cpu_addmm_out)(result, wrong, left, right, 1, 1),
               "an addend of size 3 for a result of size 2");
    SHIM_FAILS(SHIM(aoti_torch_cpu_mm_out)(result, NULL, right), "NULL");
    cr_assert_eq(SHIM(aoti_torch_cpu_mm_out)(result, left, right), 0);
    shim_delete(left);
    shim_delete(right);
    shim_delete(result);
    shim_delete(wrong);
    shim_delete(inside);
    shim_delete(other);
    shim_delete(truth);
}
