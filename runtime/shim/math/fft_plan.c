/*
 * shim/fft_plan: see fft_plan.h.
 *
 * Lengths whose prime factors are small go by Cooley and Tukey's recursion, a factor at a time. Others become, by
 * Bluestein's identity 2jk = j^2 + k^2 - (j - k)^2, a convolution of a length that is a power of two.
 */
#include "runtime/shim/math/fft_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_FACTOR = 31 };

struct fft_plan {
    int64_t length;
    struct fft_number *roots;   /* exp(-2 pi i k / length) */
    struct fft_number *scratch; /* of `length` */
    /* Bluestein: */
    struct fft_plan *inner;     /* NULL: the length has small factors */
    struct fft_number *chirp;   /* exp(-pi i k^2 / length) */
    struct fft_number *filter;  /* the transform of the chirp's conjugate, of inner's length */
    struct fft_number *padded;  /* of inner's length */
};

static struct fft_number multiply(struct fft_number a, struct fft_number b)
{
    return (struct fft_number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static struct fft_number add(struct fft_number a, struct fft_number b)
{
    return (struct fft_number){a.re + b.re, a.im + b.im};
}

/* exp(-2 pi i numerator / denominator) */
static struct fft_number root_of_unity(int64_t numerator, int64_t denominator)
{
    double angle = 2.0 * M_PI * ((double)numerator / (double)denominator);
    return (struct fft_number){cos(angle), -sin(angle)};
}

static int64_t smallest_factor(int64_t number)
{
    for (int64_t factor = 2; factor <= LARGEST_FACTOR; factor++)
        if (number % factor == 0)
            return factor;
    return number;
}

static bool has_small_factors(int64_t number)
{
    while (number > 1) {
        int64_t factor = smallest_factor(number);
        if (factor > LARGEST_FACTOR)
            return false;
        number /= factor;
    }
    return true;
}

/* The butterflies that join `factor` transforms of `part` numbers each. */
static void join(const struct fft_plan *plan, int64_t factor, int64_t part, struct fft_number *out)
{
    struct fft_number turned[LARGEST_FACTOR];
    int64_t step = plan->length / (factor * part);
    for (int64_t k = 0; k < part; k++) {
        for (int64_t r = 0; r < factor; r++)
            turned[r] = multiply(out[r * part + k], plan->roots[r * k * step]);
        for (int64_t q = 0; q < factor; q++) {
            struct fft_number sum = turned[0];
            for (int64_t r = 1; r < factor; r++)
                sum = add(sum, multiply(turned[r], plan->roots[r * q % factor * part * step]));
            out[q * part + k] = sum;
        }
    }
}

static void join_pairs(const struct fft_plan *plan, int64_t part, struct fft_number *out)
{
    int64_t step = plan->length / (2 * part);
    for (int64_t k = 0; k < part; k++) {
        struct fft_number a = out[k], b = multiply(out[part + k], plan->roots[k * step]);
        out[k] = add(a, b);
        out[part + k] = (struct fft_number){a.re - b.re, a.im - b.im};
    }
}

/* out = transform of `length` numbers of `in` that lie `stride` apart. */
static void recurse(const struct fft_plan *plan, int64_t length, int64_t stride, const struct fft_number *in,
                    struct fft_number *out)
{
    if (length == 1) {
        *out = *in;
        return;
    }
    int64_t factor = smallest_factor(length), part = length / factor;
    for (int64_t r = 0; r < factor; r++)
        recurse(plan, part, stride * factor, in + r * stride, out + r * part);
    if (factor == 2)
        join_pairs(plan, part, out);
    else
        join(plan, factor, part, out);
}

static void conjugate(struct fft_number *row, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        row[i].im = -row[i].im;
}

static void run_forward(struct fft_plan *plan, struct fft_number *row);

static void run_bluestein(struct fft_plan *plan, struct fft_number *row)
{
    int64_t length = plan->length, padded_length = plan->inner->length;
    struct fft_number *padded = plan->padded;
    memset(padded, 0, (size_t)padded_length * sizeof *padded);
    for (int64_t i = 0; i < length; i++)
        padded[i] = multiply(row[i], plan->chirp[i]);
    run_forward(plan->inner, padded);
    for (int64_t i = 0; i < padded_length; i++)
        padded[i] = multiply(padded[i], plan->filter[i]);
    aoticache_shim_fft_run(plan->inner, padded, false);
    for (int64_t i = 0; i < length; i++) {
        struct fft_number value = multiply(padded[i], plan->chirp[i]);
        row[i] = (struct fft_number){value.re / (double)padded_length, value.im / (double)padded_length};
    }
}

static void run_forward(struct fft_plan *plan, struct fft_number *row)
{
    if (plan->inner != NULL) {
        run_bluestein(plan, row);
        return;
    }
    recurse(plan, plan->length, 1, row, plan->scratch);
    memcpy(row, plan->scratch, (size_t)plan->length * sizeof *row);
}

void aoticache_shim_fft_run(struct fft_plan *plan, struct fft_number *row, bool forward)
{
    if (!forward)
        conjugate(row, plan->length);
    run_forward(plan, row);
    if (!forward)
        conjugate(row, plan->length);
}

static bool prepare_factors(struct fft_plan *plan)
{
    plan->roots = calloc((size_t)plan->length, sizeof *plan->roots);
    plan->scratch = calloc((size_t)plan->length, sizeof *plan->scratch);
    if (plan->roots == NULL || plan->scratch == NULL)
        return false;
    for (int64_t k = 0; k < plan->length; k++)
        plan->roots[k] = root_of_unity(k, plan->length);
    return true;
}

static bool prepare_bluestein(struct fft_plan *plan)
{
    int64_t length = plan->length, padded = 1;
    if (length > INT64_MAX / 8)
        return false;
    while (padded < 2 * length - 1)
        padded *= 2;
    plan->chirp = calloc((size_t)length, sizeof *plan->chirp);
    plan->filter = calloc((size_t)padded, sizeof *plan->filter);
    plan->padded = calloc((size_t)padded, sizeof *plan->padded);
    plan->inner = aoticache_shim_fft_plan_create(padded);
    if (plan->chirp == NULL || plan->filter == NULL || plan->padded == NULL || plan->inner == NULL)
        return false;
    int64_t square = 0; /* k * k mod 2 * length: an exact angle for long rows too */
    for (int64_t k = 0; k < length; k++) {
        plan->chirp[k] = root_of_unity(square, 2 * length);
        square = (square + 2 * k + 1) % (2 * length);
        struct fft_number value = {plan->chirp[k].re, -plan->chirp[k].im};
        plan->filter[k] = value;
        plan->filter[(padded - k) % padded] = value;
    }
    run_forward(plan->inner, plan->filter);
    return true;
}

struct fft_plan *aoticache_shim_fft_plan_create(int64_t length)
{
    struct fft_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return NULL;
    plan->length = length;
    if (!(has_small_factors(length) ? prepare_factors(plan) : prepare_bluestein(plan))) {
        aoticache_shim_fft_plan_free(plan);
        return NULL;
    }
    return plan;
}

void aoticache_shim_fft_plan_free(struct fft_plan *plan)
{
    if (plan == NULL)
        return;
    aoticache_shim_fft_plan_free(plan->inner);
    free(plan->roots);
    free(plan->scratch);
    free(plan->chirp);
    free(plan->filter);
    free(plan->padded);
    free(plan);
}
