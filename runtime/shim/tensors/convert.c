/*
 * shim/tensors/convert: a conversion has three steps over a short piece of a row: read into the class of the
 * source's dtype, change to the class of the destination's, write. That makes 21 readers, 21 writers and 42 changes
 * instead of 441 conversions, and rounds at the same steps as PyTorch: a double becomes a half by way of float.
 */
#include "runtime/shim/tensors/convert.h"

#include "runtime/shim/tensors/cpu.h"
#include "runtime/shim/tensors/small_float.h"

#include <complex.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- readers and writers ---- */

/* Elements may be unaligned: blobs come from outside. */
#define DEFINE_ACCESS(name, type, class_type, to_class, from_class)                                 \
    static void load_##name(size_t count, void *values, const char *source, ptrdiff_t stride)       \
    {                                                                                               \
        class_type *to = values;                                                                    \
        for (size_t i = 0; i < count; i++, source += stride) {                                      \
            type element;                                                                           \
            memcpy(&element, source, sizeof element);                                               \
            to[i] = to_class(element);                                                              \
        }                                                                                           \
    }                                                                                               \
    static void store_##name(size_t count, char *destination, ptrdiff_t stride, const void *values) \
    {                                                                                               \
        const class_type *from = values;                                                            \
        for (size_t i = 0; i < count; i++, destination += stride) {                                 \
            type element = (type)from_class(from[i]);                                               \
            memcpy(destination, &element, sizeof element);                                          \
        }                                                                                           \
    }

#define AS_IT_IS(element) (element)
#define ENCODE_E5M2(value) small_float_encode(&format_e5m2, value)
#define DECODE_E5M2(code) small_float_decode(&format_e5m2, code)
#define ENCODE_E4M3FN(value) small_float_encode(&format_e4m3fn, value)
#define DECODE_E4M3FN(code) small_float_decode(&format_e4m3fn, code)
#define ENCODE_E5M2FNUZ(value) small_float_encode(&format_e5m2fnuz, value)
#define DECODE_E5M2FNUZ(code) small_float_decode(&format_e5m2fnuz, code)
#define ENCODE_E4M3FNUZ(value) small_float_encode(&format_e4m3fnuz, value)
#define DECODE_E4M3FNUZ(code) small_float_decode(&format_e4m3fnuz, code)

DEFINE_ACCESS(uint8, uint8_t, int64_t, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(int8, int8_t, int64_t, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(int16, int16_t, int64_t, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(int32, int32_t, int64_t, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(int64, int64_t, int64_t, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(uint16, uint16_t, int64_t, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(uint32, uint32_t, int64_t, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(uint64, uint64_t, uint64_t, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(float32_each, float, float, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(float64_each, double, double, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(float16_each, uint16_t, float, float_of_float16, float16_of_float)
DEFINE_ACCESS(bfloat16_each, uint16_t, float, float_of_bfloat16, bfloat16_of_float)
DEFINE_ACCESS(float8_e5m2, uint8_t, float, DECODE_E5M2, ENCODE_E5M2)
DEFINE_ACCESS(float8_e4m3fn, uint8_t, float, DECODE_E4M3FN, ENCODE_E4M3FN)
DEFINE_ACCESS(float8_e5m2fnuz, uint8_t, float, DECODE_E5M2FNUZ, ENCODE_E5M2FNUZ)
DEFINE_ACCESS(float8_e4m3fnuz, uint8_t, float, DECODE_E4M3FNUZ, ENCODE_E4M3FNUZ)
DEFINE_ACCESS(float8_e8m0fnu, uint8_t, float, float_of_e8m0, e8m0_of_float)
DEFINE_ACCESS(complex64, float _Complex, float _Complex, AS_IT_IS, AS_IT_IS)
DEFINE_ACCESS(complex128, double _Complex, double _Complex, AS_IT_IS, AS_IT_IS)

/* ---- contiguous numbers that have the type of their class already ---- */

#define DEFINE_COPY(name, type)                                                                     \
    static void load_##name(size_t count, void *values, const char *source, ptrdiff_t stride)       \
    {                                                                                               \
        if (stride == sizeof(type) && count > 0)                                                    \
            memmove(values, source, count * sizeof(type));                                          \
        else                                                                                        \
            load_##name##_each(count, values, source, stride);                                      \
    }                                                                                               \
    static void store_##name(size_t count, char *destination, ptrdiff_t stride, const void *values) \
    {                                                                                               \
        if (stride == sizeof(type) && count > 0)                                                    \
            memmove(destination, values, count * sizeof(type));                                     \
        else                                                                                        \
            store_##name##_each(count, destination, stride, values);                                \
    }

DEFINE_COPY(float32, float)
DEFINE_COPY(float64, double)

/* ---- contiguous 16-bit numbers, as in weights and activations: sixteen at a time ---- */

#if defined(__x86_64__)

#define WITH_AVX2 __attribute__((target("avx2,f16c"))) /* no processor has AVX2 without F16C */

enum { SIXTEEN = 16 };

/* Converts to float; returns the number converted. */
static WITH_AVX2 size_t load_bfloat16s(size_t count, float *to, const char *source)
{
    size_t done = 0;
    for (; done + SIXTEEN <= count; done += SIXTEEN, source += sizeof(__m256i)) {
        for (int half = 0; half < 2; half++) {
            const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)source + half);
            const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16);
            _mm256_storeu_si256((__m256i *)(void *)(to + done + 8 * half), bits);
        }
    }
    return done;
}

/* Does what bfloat16_of_float() does: the code is in the lower half of each number. */
static WITH_AVX2 __m256i round_eight(const float *from)
{
    const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)from);
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(0x7fc0), is_nan);
}

static WITH_AVX2 size_t store_bfloat16s(size_t count, char *destination, const float *from)
{
    size_t done = 0;
    for (; done + SIXTEEN <= count; done += SIXTEEN, destination += sizeof(__m256i)) {
        /* Packing alternates between the halves of both. */
        const __m256i packed = _mm256_packus_epi32(round_eight(from + done), round_eight(from + done + 8));
        _mm256_storeu_si256((__m256i *)(void *)destination, _mm256_permute4x64_epi64(packed, 0xd8));
    }
    return done;
}

static WITH_AVX2 size_t load_float16s(size_t count, float *to, const char *source)
{
    size_t done = 0;
    for (; done + SIXTEEN <= count; done += SIXTEEN, source += sizeof(__m256i))
        for (int half = 0; half < 2; half++)
            _mm256_storeu_ps(to + done + 8 * half,
                             _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)source + half)));
    return done;
}

/* Does what float16_of_float() does: a NaN keeps its sign. */
static WITH_AVX2 size_t store_float16s(size_t count, char *destination, const float *from)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    size_t done = 0;
    for (; done + SIXTEEN <= count; done += SIXTEEN, destination += sizeof(__m256i)) {
        for (int half = 0; half < 2; half++) {
            const __m256 x = _mm256_loadu_ps(from + done + 8 * half);
            const __m256 nan = _mm256_or_ps(_mm256_and_ps(x, sign), quiet);
            const __m256 number = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
            _mm_storeu_si128((__m128i *)(void *)destination + half, _mm256_cvtps_ph(number, _MM_FROUND_TO_NEAREST_INT));
        }
    }
    return done;
}

#define SOME(function) (shim_has_avx2() ? function : 0)

#else

#define SOME(function) 0

#endif

#define DEFINE_CLOSE(name)                                                                                    \
    static void load_##name(size_t count, void *values, const char *source, ptrdiff_t stride)                 \
    {                                                                                                         \
        float *to = values;                                                                                   \
        const size_t done = stride == sizeof(uint16_t) ? SOME(load_##name##s(count, to, source)) : 0;         \
        load_##name##_each(count - done, to + done, source + (ptrdiff_t)done * stride, stride);               \
    }                                                                                                         \
    static void store_##name(size_t count, char *destination, ptrdiff_t stride, const void *values)           \
    {                                                                                                         \
        const float *from = values;                                                                           \
        const size_t done = stride == sizeof(uint16_t) ? SOME(store_##name##s(count, destination, from)) : 0; \
        store_##name##_each(count - done, destination + (ptrdiff_t)done * stride, stride, from + done);       \
    }

DEFINE_CLOSE(bfloat16)
DEFINE_CLOSE(float16)

/* Loads bools: every byte except zero is true, whatever wrote it. */
static void load_bool(size_t count, void *values, const char *source, ptrdiff_t stride)
{
    int64_t *to = values;
    for (size_t i = 0; i < count; i++, source += stride)
        to[i] = *source != 0;
}

static void store_bool(size_t count, char *destination, ptrdiff_t stride, const void *values)
{
    const uint8_t *from = values;
    for (size_t i = 0; i < count; i++, destination += stride)
        *destination = (char)from[i];
}

static float _Complex make_complex64(float real, float imaginary)
{
    float parts[2] = {real, imaginary};
    float _Complex value;
    memcpy(&value, parts, sizeof value);
    return value;
}

static double _Complex make_complex128(double real, double imaginary)
{
    double parts[2] = {real, imaginary};
    double _Complex value;
    memcpy(&value, parts, sizeof value);
    return value;
}

static void load_complex32(size_t count, void *values, const char *source, ptrdiff_t stride)
{
    float _Complex *to = values;
    for (size_t i = 0; i < count; i++, source += stride) {
        uint16_t parts[2];
        memcpy(parts, source, sizeof parts);
        to[i] = make_complex64(float_of_float16(parts[0]), float_of_float16(parts[1]));
    }
}

static void store_complex32(size_t count, char *destination, ptrdiff_t stride, const void *values)
{
    const float _Complex *from = values;
    for (size_t i = 0; i < count; i++, destination += stride) {
        uint16_t parts[2] = {float16_of_float(crealf(from[i])), float16_of_float(cimagf(from[i]))};
        memcpy(destination, parts, sizeof parts);
    }
}

#define ACCESS(name, load_kind, store_kind) {load_##name, store_##name, SHIM_CLASS_##load_kind, SHIM_CLASS_##store_kind}

static const struct shim_dtype_access accesses[] = {
    [AOTICACHE_DTYPE_UINT8] = ACCESS(uint8, INT, INT),
    [AOTICACHE_DTYPE_INT8] = ACCESS(int8, INT, INT),
    [AOTICACHE_DTYPE_INT16] = ACCESS(int16, INT, INT),
    [AOTICACHE_DTYPE_INT32] = ACCESS(int32, INT, INT),
    [AOTICACHE_DTYPE_INT64] = ACCESS(int64, INT, INT),
    [AOTICACHE_DTYPE_FLOAT16] = ACCESS(float16, FLOAT, FLOAT),
    [AOTICACHE_DTYPE_FLOAT32] = ACCESS(float32, FLOAT, FLOAT),
    [AOTICACHE_DTYPE_FLOAT64] = ACCESS(float64, DOUBLE, DOUBLE),
    [AOTICACHE_DTYPE_COMPLEX32] = ACCESS(complex32, COMPLEX64, COMPLEX64),
    [AOTICACHE_DTYPE_COMPLEX64] = ACCESS(complex64, COMPLEX64, COMPLEX64),
    [AOTICACHE_DTYPE_COMPLEX128] = ACCESS(complex128, COMPLEX128, COMPLEX128),
    [AOTICACHE_DTYPE_BOOL] = ACCESS(bool, INT, BOOL),
    [AOTICACHE_DTYPE_BFLOAT16] = ACCESS(bfloat16, FLOAT, FLOAT),
    [AOTICACHE_DTYPE_FLOAT8_E5M2] = ACCESS(float8_e5m2, FLOAT, FLOAT),
    [AOTICACHE_DTYPE_FLOAT8_E4M3FN] = ACCESS(float8_e4m3fn, FLOAT, FLOAT),
    [AOTICACHE_DTYPE_FLOAT8_E5M2FNUZ] = ACCESS(float8_e5m2fnuz, FLOAT, FLOAT),
    [AOTICACHE_DTYPE_FLOAT8_E4M3FNUZ] = ACCESS(float8_e4m3fnuz, FLOAT, FLOAT),
    [AOTICACHE_DTYPE_UINT16] = ACCESS(uint16, INT, INT),
    [AOTICACHE_DTYPE_UINT32] = ACCESS(uint32, INT, INT),
    [AOTICACHE_DTYPE_UINT64] = ACCESS(uint64, UINT, UINT),
    [AOTICACHE_DTYPE_FLOAT8_E8M0FNU] = ACCESS(float8_e8m0fnu, FLOAT, FLOAT),
};

const struct shim_dtype_access *aoticache_shim_dtype_access(int32_t dtype)
{
    if (dtype < 0 || (size_t)dtype >= sizeof accesses / sizeof accesses[0] || accesses[dtype].load == NULL)
        return NULL;
    return &accesses[dtype];
}

/* ---- changes ---- */

/*
 * Converts to int64. In C a value out of range is undefined. x86-64 processors return the smallest number, so this does
 * too, everywhere.
 */
static int64_t int_of_double(double value)
{
    return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

static uint64_t uint_of_double(double value)
{
    if (value >= 0x1p63 && value < 0x1p64)
        return (uint64_t)value;
    return (uint64_t)int_of_double(value);
}

#define DEFINE_CHANGE(to_name, to_type, from_name, from_type, expression)          \
    static void to_name##_of_##from_name(size_t count, void *to, const void *from) \
    {                                                                              \
        to_type *target = to;                                                      \
        const from_type *values = from;                                            \
        for (size_t i = 0; i < count; i++) {                                       \
            from_type x = values[i];                                               \
            target[i] = expression;                                                \
        }                                                                          \
    }

/* Defines all changes from one class of real numbers. */
#define DEFINE_CHANGES_FROM_REAL(name, type, to_int, to_uint)                               \
    DEFINE_CHANGE(ints, int64_t, name, type, to_int)                                        \
    DEFINE_CHANGE(uints, uint64_t, name, type, to_uint)                                     \
    DEFINE_CHANGE(floats, float, name, type, (float)x)                                      \
    DEFINE_CHANGE(doubles, double, name, type, (double)x)                                   \
    DEFINE_CHANGE(complexes64, float _Complex, name, type, make_complex64((float)x, 0))     \
    DEFINE_CHANGE(complexes128, double _Complex, name, type, make_complex128((double)x, 0)) \
    DEFINE_CHANGE(bools, uint8_t, name, type, x != 0)

/* The real part remains; as bool, a number with any part other than zero is true. */
#define DEFINE_CHANGES_FROM_COMPLEX(name, type)                                  \
    DEFINE_CHANGE(ints, int64_t, name, type, int_of_double(creal(x)))            \
    DEFINE_CHANGE(uints, uint64_t, name, type, uint_of_double(creal(x)))         \
    DEFINE_CHANGE(floats, float, name, type, (float)creal(x))                    \
    DEFINE_CHANGE(doubles, double, name, type, creal(x))                         \
    DEFINE_CHANGE(complexes64, float _Complex, name, type, (float _Complex)x)    \
    DEFINE_CHANGE(complexes128, double _Complex, name, type, (double _Complex)x) \
    DEFINE_CHANGE(bools, uint8_t, name, type, creal(x) != 0 || cimag(x) != 0)

DEFINE_CHANGES_FROM_REAL(ints, int64_t, x, (uint64_t)x)
DEFINE_CHANGES_FROM_REAL(uints, uint64_t, (int64_t)x, x)
DEFINE_CHANGES_FROM_REAL(floats, float, int_of_double(x), uint_of_double(x))
DEFINE_CHANGES_FROM_REAL(doubles, double, int_of_double(x), uint_of_double(x))
DEFINE_CHANGES_FROM_COMPLEX(complexes64, float _Complex)
DEFINE_CHANGES_FROM_COMPLEX(complexes128, double _Complex)

#define CHANGES_TO(name)                                         \
    {name##_of_ints,    name##_of_uints,       name##_of_floats, \
     name##_of_doubles, name##_of_complexes64, name##_of_complexes128}

static const shim_change changes[SHIM_CLASSES][SHIM_CLASS_BOOL] = {
    [SHIM_CLASS_INT] = CHANGES_TO(ints),
    [SHIM_CLASS_UINT] = CHANGES_TO(uints),
    [SHIM_CLASS_FLOAT] = CHANGES_TO(floats),
    [SHIM_CLASS_DOUBLE] = CHANGES_TO(doubles),
    [SHIM_CLASS_COMPLEX64] = CHANGES_TO(complexes64),
    [SHIM_CLASS_COMPLEX128] = CHANGES_TO(complexes128),
    [SHIM_CLASS_BOOL] = CHANGES_TO(bools),
};

shim_change aoticache_shim_class_change(enum shim_class to, enum shim_class from)
{
    return to == from ? NULL : changes[to][from];
}

/* ---- rows ---- */

bool aoticache_shim_conversion_select(int32_t to_dtype, int32_t from_dtype, struct shim_conversion *ret_conversion)
{
    *ret_conversion = (struct shim_conversion){0};
    if (to_dtype == from_dtype) {
        ret_conversion->item_bytes = shim_item_bytes(to_dtype);
        return true;
    }
    const struct shim_dtype_access *to = aoticache_shim_dtype_access(to_dtype);
    const struct shim_dtype_access *from = aoticache_shim_dtype_access(from_dtype);
    if (to == NULL || from == NULL)
        return false;
    ret_conversion->to = to;
    ret_conversion->from = from;
    ret_conversion->change =
        aoticache_shim_class_change((enum shim_class)to->store_class, (enum shim_class)from->load_class);
    return true;
}

#define DEFINE_MOVE(bytes)                                                                                      \
    static void move_##bytes(size_t count, char *destination, ptrdiff_t destination_stride, const char *source, \
                             ptrdiff_t source_stride)                                                           \
    {                                                                                                           \
        for (size_t i = 0; i < count; i++, destination += destination_stride, source += source_stride)          \
            memmove(destination, source, bytes);                                                                \
    }
DEFINE_MOVE(1)
DEFINE_MOVE(2)
DEFINE_MOVE(4)
DEFINE_MOVE(8)
DEFINE_MOVE(16)

static void move_row(uint32_t item_bytes, size_t count, char *destination, ptrdiff_t destination_stride,
                     const char *source, ptrdiff_t source_stride)
{
    if (destination_stride == (ptrdiff_t)item_bytes && source_stride == (ptrdiff_t)item_bytes) {
        memmove(destination, source, count * item_bytes);
        return;
    }
    switch (item_bytes) {
    case 1:
        move_1(count, destination, destination_stride, source, source_stride);
        break;
    case 2:
        move_2(count, destination, destination_stride, source, source_stride);
        break;
    case 4:
        move_4(count, destination, destination_stride, source, source_stride);
        break;
    case 8:
        move_8(count, destination, destination_stride, source, source_stride);
        break;
    default:
        move_16(count, destination, destination_stride, source, source_stride);
        break;
    }
}

void aoticache_shim_convert_row(const struct shim_conversion *conversion, size_t count, char *destination,
                                ptrdiff_t destination_stride, const char *source, ptrdiff_t source_stride)
{
    enum { PIECE = 128 };
    double _Complex loaded[PIECE], changed[PIECE]; /* the widest class */

    if (conversion->item_bytes != 0) {
        move_row(conversion->item_bytes, count, destination, destination_stride, source, source_stride);
        return;
    }
    while (count > 0) {
        size_t piece = count < PIECE ? count : PIECE;
        conversion->from->load(piece, loaded, source, source_stride);
        if (conversion->change != NULL)
            conversion->change(piece, changed, loaded);
        conversion->to->store(piece, destination, destination_stride, conversion->change != NULL ? changed : loaded);
        source += (ptrdiff_t)piece * source_stride;
        destination += (ptrdiff_t)piece * destination_stride;
        count -= piece;
    }
}
