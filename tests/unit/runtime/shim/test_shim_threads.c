/*
 * The shim's large operations on OpenMP threads: results do not depend on their number, a BLAS starts no threads of its
 * own, and the child of a fork, which has no threads, does not wait for any.
 */
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/emulator.h"
#include "tests/unit/fixtures/shim_fixture.h"

enum { ROWS = 150, COLUMNS = 210, DEPTH = 130 };

static void set_threads(int count)
{
    void *runtime = dlopen("libgomp.so.1", RTLD_NOW);
    if (runtime == NULL)
        cr_skip_test("libgomp is not installed");
    void (*set)(int);
    void *symbol = dlsym(runtime, "omp_set_num_threads");
    memcpy(&set, &symbol, sizeof set);
    set(count);
}

static float value(int i)
{
    return (float)(i * 7 % 23) / 8 - 1;
}

/* Computes a b + 2 c, in float32, or, with `dtype` 15, in bfloat16, which are the upper halves of the bits. */
static void sum_of_product(int32_t dtype, bool transposed, float *ret_out)
{
    static float a[ROWS * DEPTH], b[DEPTH * COLUMNS];
    static uint16_t narrow[3][COLUMNS * ROWS];
    const int64_t a_sizes[] = {ROWS, DEPTH}, b_sizes[] = {DEPTH, COLUMNS}, sizes[] = {ROWS, COLUMNS};
    const int64_t across[] = {1, DEPTH};
    void *data[] = {a, b, ret_out};
    for (int i = 0; i < ROWS * DEPTH; i++)
        a[i] = value(i);
    for (int i = 0; i < DEPTH * COLUMNS; i++)
        b[i] = value(i + 5);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        ret_out[i] = value(i + 11);
    for (int m = 0; dtype == 15 && m < 3; m++) {
        const int counts[] = {ROWS * DEPTH, DEPTH * COLUMNS, ROWS * COLUMNS};
        for (int i = 0; i < counts[m]; i++)
            memcpy(&narrow[m][i], (char *)&((float *)data[m])[i] + 2, 2);
        data[m] = narrow[m];
    }
    AtenTensorHandle x = shim_wrap(data[0], dtype, 2, a_sizes, NULL);
    AtenTensorHandle y = shim_wrap(data[1], dtype, 2, b_sizes, transposed ? across : NULL);
    AtenTensorHandle out = shim_wrap(data[2], dtype, 2, sizes, NULL);
    cr_assert_eq(SHIM(aoti_torch_cpu_addmm_out)(out, out, x, y, 2, 1), 0, "%s", shim_message());
    for (int i = 0; dtype == 15 && i < ROWS * COLUMNS; i++) {
        ret_out[i] = 0;
        memcpy((char *)&ret_out[i] + 2, &narrow[2][i], 2);
    }
    shim_delete(x);
    shim_delete(y);
    shim_delete(out);
}

static void expect_the_same_product(int32_t dtype, bool transposed, float tolerance)
{
    static float alone[ROWS * COLUMNS], together[ROWS * COLUMNS];
    set_threads(1);
    sum_of_product(dtype, transposed, alone);
    for (int threads = 2; threads <= 5; threads++) {
        set_threads(threads);
        sum_of_product(dtype, transposed, together);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            cr_assert_leq(fabsf(alone[i] - together[i]), tolerance, "%d threads, %d: %g and %g", threads, i, alone[i],
                          together[i]);
    }
}

Test(shim_threads, products_are_the_same_on_any_number_of_threads)
{
    expect_the_same_product(6, false, 1e-4f);
    expect_the_same_product(6, true, 1e-4f);
    expect_the_same_product(15, false, 0.5f); /* bfloat16 of numbers up to 100 */
}

/* Convolves. groups: 1, or one for each channel. */
static AtenTensorHandle convolve(float *image, float *kernel, int64_t groups, bool channels_last)
{
    const int64_t sizes[] = {2, 8, 33, 29}, last[] = {8 * 33 * 29, 1, 29 * 8, 8};
    const int64_t kernel_sizes[] = {8, 8 / groups, 3, 3};
    const int64_t two[] = {2, 2}, one[] = {1, 1}, none[] = {0, 0};
    AtenTensorHandle x = shim_wrap(image, 6, 4, sizes, channels_last ? last : NULL), result = NULL;
    AtenTensorHandle w = shim_wrap(kernel, 6, 4, kernel_sizes, NULL);
    cr_assert_eq(SHIM(aoti_torch_cpu_convolution)(x, w, NULL, two, 2, one, 2, two, 2, 0, none, 2, groups, &result), 0,
                 "%s", shim_message());
    shim_delete(x);
    shim_delete(w);
    return result;
}

Test(shim_threads, convolutions_are_the_same_on_any_number_of_threads)
{
    static float image[2 * 8 * 33 * 29], kernel[8 * 8 * 9];
    for (size_t i = 0; i < sizeof image / sizeof image[0]; i++)
        image[i] = value((int)i);
    for (size_t i = 0; i < sizeof kernel / sizeof kernel[0]; i++)
        kernel[i] = value((int)i + 3);
    for (int kind = 0; kind < 4; kind++) {
        set_threads(1);
        AtenTensorHandle alone = convolve(image, kernel, kind < 2 ? 1 : 8, kind % 2 != 0);
        set_threads(3);
        AtenTensorHandle together = convolve(image, kernel, kind < 2 ? 1 : 8, kind % 2 != 0);
        const float *a = shim_data(alone), *b = shim_data(together);
        for (int i = 0; i < 2 * 8 * 16 * 14; i++)
            cr_assert_lt(fabsf(a[i] - b[i]), 1e-4f, "kind %d, %d: %g and %g", kind, i, a[i], b[i]);
        shim_delete(alone);
        shim_delete(together);
    }
}

/* Each channel has its own kernel; compares with the sum from the definition. */
Test(shim_threads, depthwise_convolution_is_the_sum_over_its_kernel)
{
    static float image[2 * 8 * 33 * 29], kernel[8 * 9];
    for (size_t i = 0; i < sizeof image / sizeof image[0]; i++)
        image[i] = value((int)i);
    for (size_t i = 0; i < sizeof kernel / sizeof kernel[0]; i++)
        kernel[i] = value((int)i + 3);
    for (int last = 0; last < 2; last++) {
        AtenTensorHandle result = convolve(image, kernel, 8, last != 0);
        const float *values = shim_data(result);
        for (int i = 0; i < 2 * 8 * 16 * 14; i++) {
            int batch = i / (8 * 16 * 14), channel = i / (16 * 14) % 8, y = i / 14 % 16, x = i % 14;
            float sum = 0, got = last ? values[((batch * 16 + y) * 14 + x) * 8 + channel] : values[i];
            for (int k = 0; k < 9; k++) {
                int row = 2 * y + 2 * (k / 3) - 1, column = 2 * x + 2 * (k % 3) - 1;
                int apart = ((batch * 8 + channel) * 33 + row) * 29 + column;
                int together = ((batch * 33 + row) * 29 + column) * 8 + channel;
                if (row >= 0 && row < 33 && column >= 0 && column < 29)
                    sum += kernel[channel * 9 + k] * image[last ? together : apart];
            }
            cr_assert_lt(fabsf(got - sum), 1e-5f, "channel %d at %d, %d: %g, not %g", channel, y, x, got, sum);
        }
        shim_delete(result);
    }
}

/* Multiplies doubles, which use BLAS on every machine; floats may use oneDNN. */
static void product_of_doubles(void)
{
    static double a[DEPTH * DEPTH], out[DEPTH * DEPTH];
    const int64_t sizes[] = {DEPTH, DEPTH};
    AtenTensorHandle x = shim_wrap(a, 7, 2, sizes, NULL), y = shim_wrap(out, 7, 2, sizes, NULL);
    cr_assert_eq(SHIM(aoti_torch_cpu_mm_out)(y, x, x), 0, "%s", shim_message());
    shim_delete(x);
    shim_delete(y);
}

static int blas_threads(int (**ret_parallel)(void))
{
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL || dlsym(library, "openblas_get_parallel") == NULL)
        cr_skip_test("there is no OpenBLAS");
    int (*get)(void);
    void *symbols[] = {dlsym(library, "openblas_get_num_threads"), dlsym(library, "openblas_get_parallel")};
    memcpy(&get, &symbols[0], sizeof get);
    memcpy(ret_parallel, &symbols[1], sizeof *ret_parallel);
    return get();
}

Test(shim_threads, blas_has_no_threads_of_its_own)
{
    int (*parallel)(void);
    set_threads(2);
    product_of_doubles();
    int threads = blas_threads(&parallel);
    if (parallel() != 1)
        cr_skip_test("this OpenBLAS has none in any case");
    cr_assert_eq(threads, 1);
}

/* The code that loaded it earlier has chosen the number. */
Test(shim_threads, blas_of_somebody_else_keeps_its_threads)
{
    int (*parallel)(void);
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, "openblas_set_num_threads") : NULL;
    void (*set)(int);
    if (symbol == NULL)
        cr_skip_test("there is no OpenBLAS");
    memcpy(&set, &symbol, sizeof set);
    set(2);
    int before = blas_threads(&parallel);
    product_of_doubles();
    cr_assert_eq(blas_threads(&parallel), before);
}

/* After preparing, the first multiplication has the same result as without. */
Test(shim_threads, products_are_the_same_after_they_were_prepared)
{
    static float before[ROWS * COLUMNS], after[ROWS * COLUMNS];
    set_threads(2);
    sum_of_product(6, true, before);
    SHIM(torch_aoticache_prepare_products)();
    SHIM(torch_aoticache_prepare_products)();
    sum_of_product(6, true, after);
    cr_assert_eq(memcmp(before, after, sizeof after), 0);
}

Test(shim_threads, child_of_a_fork_does_without, .timeout = 60)
{
    SKIP_UNDER_EMULATOR(EMULATOR_FORKS_ONE_THREAD);
    static float parent[ROWS * COLUMNS], child[ROWS * COLUMNS];
    int status = -1;
    set_threads(3);
    sum_of_product(6, false, parent);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        sum_of_product(6, false, child);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            if (fabsf(parent[i] - child[i]) > 1e-4f)
                _exit(2);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %x", (unsigned)status);
}
