/*
 * Convolutions that are large enough for oneDNN: more shapes than the cache of primitives has, from several threads
 * concurrently and in the child of a fork. Results are compared with plain loops, with or without oneDNN on the
 * machine. tests/python/shim/test_shim_blas.py compares all kinds of convolutions with PyTorch.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/shim_fixture.h"

enum { INPUTS = 8, OUTPUTS = 24, KERNEL = 3, SIDE = 6 };

static float value(int64_t i)
{
    return (float)(i * 7 % 23) / 8 - 1;
}

/* Computes the convolution's result at one position: padding 1, stride 1. */
static double expected(const float *image, const float *weight, int64_t width, int64_t output, int64_t y, int64_t x)
{
    double sum = 0;
    for (int64_t c = 0; c < INPUTS; c++)
        for (int64_t k = 0; k < KERNEL * KERNEL; k++) {
            int64_t row = y + k / KERNEL - 1, column = x + k % KERNEL - 1;
            if (row >= 0 && row < SIDE && column >= 0 && column < width)
                sum += (double)image[(c * SIDE + row) * width + column] *
                       (double)weight[(output * INPUTS + c) * KERNEL * KERNEL + k];
        }
    return sum;
}

/* Convolves an image of this width. Returns the number of wrong elements, -1 if it fails. */
static int convolve(int64_t width)
{
    const int64_t sizes[] = {1, INPUTS, SIDE, width}, weight_sizes[] = {OUTPUTS, INPUTS, KERNEL, KERNEL};
    const int64_t ones[] = {1, 1}, none[] = {0, 0};
    float *image = malloc((size_t)(INPUTS * SIDE * width) * sizeof *image), weight[OUTPUTS * INPUTS * KERNEL * KERNEL];
    for (int64_t i = 0; i < INPUTS * SIDE * width; i++)
        image[i] = value(i + width);
    for (int i = 0; i < OUTPUTS * INPUTS * KERNEL * KERNEL; i++)
        weight[i] = value(i);
    AtenTensorHandle x = shim_wrap(image, 6, 4, sizes, NULL), w = shim_wrap(weight, 6, 4, weight_sizes, NULL);
    AtenTensorHandle result = NULL;
    int wrong = 0;
    if (SHIM(aoti_torch_cpu_convolution)(x, w, NULL, ones, 2, ones, 2, ones, 2, 0, none, 2, 1, &result) != 0)
        return -1;
    const float *values = shim_data(result);
    for (int64_t i = 0; i < OUTPUTS * SIDE * width; i += 5) {
        double sum = expected(image, weight, width, i / (SIDE * width), i / width % SIDE, i % width);
        wrong += !(fabs((double)values[i] - sum) < 1e-4);
    }
    shim_delete(x);
    shim_delete(w);
    shim_delete(result);
    free(image);
    return wrong;
}

Test(shim_onednn, more_shapes_than_are_kept)
{
    for (int round = 0; round < 2; round++)
        for (int64_t width = 10; width < 330; width += 1 + round * 37)
            cr_assert_eq(convolve(width), 0, "width %lld", (long long)width);
}

static void *convolve_some(void *first)
{
    static int failed;
    for (int64_t i = 0; i < 24; i++)
        if (convolve(12 + (i + (int64_t)(intptr_t)first) % 6) != 0)
            return &failed;
    return NULL;
}

Test(shim_onednn, threads_at_once)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    void *failed;
    (void)shim_find("aoti_torch_cpu_convolution"); /* opens the library now: the fixture has no lock */
    for (intptr_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, convolve_some, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &failed);
        cr_assert_null(failed, "thread %d had a wrong result", i);
    }
}

Test(shim_onednn, child_of_a_fork, .timeout = 60)
{
    int status = -1;
    cr_assert_eq(convolve(40), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(convolve(40) == 0 && convolve(41) == 0 ? 0 : 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d", status);
}
