/*
 * shim/quantized/quantized_finish: what 8-bit linear layers and convolutions share: their arguments, and the steps after
 * their sums: another tensor, a function of each element, the result's scale and zero point.
 *
 * Integers are summed exactly. A sum is converted to float with the scales of both operands; bias, other tensor and
 * function are computed in float; the result is rounded to the nearest, ties to even, and saturated.
 *
 * oneDNN is used only for sums, on processors with VNNI: on others its kernels saturate intermediate sums, and its
 * version 2 has other rules for scales. PyTorch's own oneDNN gives other results if it saturates in this way.
 *
 * Source: onednn::qlinear_pointwise, onednn::qconv_pointwise and their variants
 * (aten/src/ATen/native/quantized/cpu/qlinear.cpp and aten/src/ATen/native/quantized/cpu/qconv.cpp); oneDNN's
 * documentation of quantization.
 */
#include "runtime/shim/quantized/quantized.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/cpu.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { F32 = AOTICACHE_DTYPE_FLOAT32 };

/* ---- from sums to results ---- */

static float saturate(float x, float low, float high)
{
    x = rintf(x);
    return x < low ? low : x <= high ? x : high;
}

/* row[i] = (sums[i] - excess[i]) * scales[i] */
static void scale_sums(int64_t count, const char *sums, const uint32_t *excess, const float *scales, float *row)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t sum;
        memcpy(&sum, sums + (size_t)i * sizeof sum, sizeof sum);
        row[i] = (float)(int32_t)(excess != NULL ? sum - excess[i] : sum) * scales[i];
    }
}

struct range {
    float factor, zero_point, low, high;
};

static void make_bytes(int64_t count, const float *row, const struct range *r, char *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (char)(int)saturate(row[i] * r->factor + r->zero_point, r->low, r->high);
}

#ifdef __x86_64__
/*
 * Does the same, eight at a time; both return the number done. The product and the sum are rounded separately, as
 * above.
 */
#define WITH_AVX2 __attribute__((target("avx2")))

static WITH_AVX2 int64_t scale_eights(int64_t count, const char *sums, const uint32_t *excess, const float *scales,
                                      float *row)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i sum = _mm256_loadu_si256((const __m256i *)(const void *)(sums + (size_t)i * sizeof(int32_t)));
        if (excess != NULL)
            sum = _mm256_sub_epi32(sum, _mm256_loadu_si256((const __m256i *)(const void *)(excess + i)));
        _mm256_storeu_ps(row + i, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(scales + i)));
    }
    return i;
}

static WITH_AVX2 int64_t make_eight_bytes(int64_t count, const float *row, const struct range *r, char *to)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 x = _mm256_mul_ps(_mm256_loadu_ps(row + i), _mm256_set1_ps(r->factor));
        x = _mm256_add_ps(x, _mm256_set1_ps(r->zero_point));
        x = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        /* A NaN becomes the largest number, as above: max and min return their second operand for NaN. */
        x = _mm256_min_ps(_mm256_max_ps(_mm256_set1_ps(r->low), x), _mm256_set1_ps(r->high));
        const __m256i whole = _mm256_cvtps_epi32(x);
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
        const __m128i bytes = r->low < 0 ? _mm_packs_epi16(words, words) : _mm_packus_epi16(words, words);
        _mm_storel_epi64((__m128i *)(void *)(to + i), bytes);
    }
    return i;
}
#endif

/*
 * Finishes one position: `sums` are its channels from `first` on, int32_t. Floats are written to `row`, which may be
 * the same memory as the sums; bytes are written to `to`.
 */
static void finish_row(const struct quantized_finish *f, const void *sums, int64_t position, int64_t first,
                       int64_t count, float *row, char *to)
{
    const float *scales = f->scales + first;
    int64_t done = 0;
#ifdef __x86_64__
    if (shim_has_avx2())
        done = scale_eights(count, sums, f->excess, scales, row);
#endif
    scale_sums(count - done, (const char *)sums + (size_t)done * sizeof(int32_t),
               f->excess != NULL ? f->excess + done : NULL, scales + done, row + done);
    for (int64_t i = 0; f->bias != NULL && i < count; i++)
        row[i] += f->bias[first + i];
    const float *added = f->added != NULL ? f->added + position * f->channels + first : NULL;
    for (int64_t i = 0; added != NULL && i < count; i++)
        row[i] += f->other_scale * (added[i] - f->other_zero_point);
    aoticache_shim_unary_apply(&f->unary, row, count);
    if (f->dtype != AOTICACHE_DTYPE_UINT8 && f->dtype != AOTICACHE_DTYPE_INT8)
        return;
    const bool is_unsigned = f->dtype == AOTICACHE_DTYPE_UINT8;
    const struct range range = {1 / f->output_scale, f->output_zero_point, is_unsigned ? 0 : INT8_MIN,
                                is_unsigned ? UINT8_MAX : INT8_MAX};
    done = 0;
#ifdef __x86_64__
    if (shim_has_avx2())
        done = make_eight_bytes(count, row, &range, to);
#endif
    make_bytes(count - done, row + done, &range, to + done);
}

/* Returns true for uint8 and int8. */
static bool quantized_is_bytes(int32_t dtype)
{
    return dtype == AOTICACHE_DTYPE_UINT8 || dtype == AOTICACHE_DTYPE_INT8;
}

void aoticache_shim_quantized_finish(const struct quantized_finish *f, int32_t *sums, int64_t stride, int64_t position,
                                     int64_t positions, int64_t first, int64_t count, void *result)
{
    for (int64_t i = 0; i < positions; i++) {
        int32_t *row = sums + i * stride;
        const int64_t place = (position + i) * f->channels + first;
        if (quantized_is_bytes(f->dtype))
            finish_row(f, row, position + i, first, count, (float *)(void *)row, (char *)result + place);
        else
            finish_row(f, row, position + i, first, count, (float *)result + place, NULL);
    }
}

/* ---- arguments ---- */

static AOTITorchError fail_dtype(const char *function, const char *what, const char *wanted, int32_t dtype)
{
    return aoticache_shim_fail("%s: %s must be %s, but is %s", function, what, wanted,
                               aoticache_shim_dtype_text(dtype, (char[SHIM_DTYPE_TEXT_BYTES]){0}));
}

static AOTITorchError read_single(const char *function, const char *what, AtenTensorHandle tensor, double *ret_value)
{
    cleanup_tensor AtenTensorHandle read = NULL;
    if (!shim_is_defined(tensor))
        return aoticache_shim_fail_undefined(function, tensor);
    if (tensor->tensor->numel != 1)
        return aoticache_shim_fail("%s: %s has %lld elements; only one for all inputs is supported", function, what,
                                   (long long)tensor->tensor->numel);
    SHIM_TRY(aoticache_shim_read(function, tensor, AOTICACHE_DTYPE_FLOAT64, &read));
    *ret_value = *(const double *)read->tensor->data;
    return SHIM_SUCCESS;
}

static AOTITorchError check_zero_points(const char *function, AtenTensorHandle zero_points)
{
    cleanup_tensor AtenTensorHandle read = NULL;
    if (!shim_is_defined(zero_points))
        return SHIM_SUCCESS;
    SHIM_TRY(aoticache_shim_read(function, zero_points, AOTICACHE_DTYPE_FLOAT64, &read));
    for (int64_t i = 0; i < read->tensor->numel; i++)
        if (((const double *)read->tensor->data)[i] != 0)
            return aoticache_shim_fail("%s: a weight's zero point must be 0; one is %g", function,
                                       ((const double *)read->tensor->data)[i]);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_quantized_scales(const char *function, const struct quantized_operands *o,
                                               int64_t channels, double x_scale, AtenTensorHandle *ret_scales)
{
    cleanup_tensor AtenTensorHandle read = NULL, factors = NULL;
    if (!shim_is_defined(o->scales))
        return aoticache_shim_fail_undefined(function, o->scales);
    const int64_t count = o->scales->tensor->numel;
    if (count != 1 && count != channels)
        return aoticache_shim_fail("%s: %lld scales for a weight with %lld results", function, (long long)count,
                                   (long long)channels);
    SHIM_TRY(aoticache_shim_read(function, o->scales, F32, &read));
    SHIM_TRY(aoticache_shim_make(function, 1, &channels, F32, &factors));
    for (int64_t i = 0; i < channels; i++)
        ((float *)factors->tensor->data)[i] = (float)x_scale * ((const float *)read->tensor->data)[count == 1 ? 0 : i];
    *ret_scales = shim_steal(&factors);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_quantized_bias(const char *function, const struct quantized_operands *o, int64_t channels,
                                             AtenTensorHandle *ret_bias)
{
    if (!shim_is_defined(o->bias))
        return SHIM_SUCCESS;
    if (o->bias->tensor->numel != channels)
        return aoticache_shim_fail("%s: a bias of %lld elements for %lld results", function,
                                   (long long)o->bias->tensor->numel, (long long)channels);
    return aoticache_shim_read(function, o->bias, F32, ret_bias);
}

AOTITorchError aoticache_shim_quantized_read_finish(const char *function, const struct quantized_operands *o,
                                                    int64_t channels, struct quantized_finish *ret_finish)
{
    struct quantized_finish *f = ret_finish;
    *f = (struct quantized_finish){.channels = channels,
                                   .dtype = o->output_dtype != NULL ? *o->output_dtype : o->x->tensor->dtype};
    f->output_scale = (float)o->output_scale;
    f->output_zero_point = (float)o->output_zero_point;
    f->other_scale = (float)o->other_scale;
    f->other_zero_point = (float)o->other_zero_point;
    if (!quantized_is_bytes(f->dtype) && f->dtype != F32 && f->dtype != AOTICACHE_DTYPE_BFLOAT16 &&
        f->dtype != AOTICACHE_DTYPE_FLOAT16)
        return fail_dtype(function, "the result", "uint8, int8, float32, bfloat16 or float16", f->dtype);
    if (!quantized_is_bytes(f->dtype) && (o->output_scale != 1 || o->output_zero_point != 0))
        return aoticache_shim_fail("%s: a floating-point result must have scale 1 and zero point 0; these are %g "
                                   "and %lld",
                                   function, o->output_scale, (long long)o->output_zero_point);
    if (o->binary != NULL && strcmp(o->binary, "none") != 0) {
        if (strcmp(o->binary, "sum") != 0 && strcmp(o->binary, "add") != 0)
            return aoticache_shim_fail("%s: post-operation \"%.40s\" with another tensor is not supported", function,
                                       o->binary);
        f->other = o->binary[0] == 's' ? QUANTIZED_OTHER_SUM : QUANTIZED_OTHER_ADD;
        if (f->other == QUANTIZED_OTHER_ADD) { /* unconverted elements, as in PyTorch */
            f->other_scale = 1;
            f->other_zero_point = 0;
        }
        if (!shim_is_defined(o->other))
            return aoticache_shim_fail_undefined(function, o->other);
        if (o->alpha != 1)
            return aoticache_shim_fail("%s: a factor of %g for the other tensor is not supported", function, o->alpha);
    }
    return aoticache_shim_unary_read(function, o->unary, o->unary_scalars, o->unary_scalar_count, &o->algorithm,
                                     &f->unary);
}

AOTITorchError aoticache_shim_quantized_check_input(const char *function, const struct quantized_operands *o,
                                                    double *ret_scale, double *ret_zero_point)
{
    if (!shim_is_defined(o->x))
        return aoticache_shim_fail_undefined(function, o->x);
    if (!shim_is_defined(o->weight))
        return aoticache_shim_fail_undefined(function, o->weight);
    if (!quantized_is_bytes(o->x->tensor->dtype))
        return fail_dtype(function, "the input", "uint8 or int8", o->x->tensor->dtype);
    if (o->weight->tensor->dtype != AOTICACHE_DTYPE_INT8)
        return fail_dtype(function, "the weight", "int8", o->weight->tensor->dtype);
    SHIM_TRY(read_single(function, "a scale of the input", o->x_scale, ret_scale));
    SHIM_TRY(read_single(function, "a zero point of the input", o->x_zero_point, ret_zero_point));
    if (*ret_zero_point < INT8_MIN || *ret_zero_point > UINT8_MAX)
        return aoticache_shim_fail("%s: the input's zero point is %g; it must be -128 to 255", function,
                                   *ret_zero_point);
    return check_zero_points(function, o->zero_points);
}

AOTITorchError aoticache_shim_quantized_give(const char *function, const struct quantized_finish *f,
                                             const struct quantized_operands *o, AtenTensorHandle result,
                                             AtenTensorHandle *ret_tensor)
{
    if (f->other != QUANTIZED_OTHER_SUM)
        return aoticache_shim_read(function, result, f->dtype, ret_tensor);
    SHIM_TRY(aoti_torch_copy_(o->other, result, 0));
    return aoti_torch_new_tensor_handle(o->other, ret_tensor);
}

int32_t aoticache_shim_quantized_room_dtype(const struct quantized_finish *f)
{
    return quantized_is_bytes(f->dtype) ? f->dtype : F32;
}
