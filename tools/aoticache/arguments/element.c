/*
 * tools/aoticache/arguments/element: converts single elements of tensors from and to bytes, for every dtype.
 *
 * For printing results and filling inputs; not optimized. Small floating-point formats are described by a table.
 */
#include "tools/aoticache/arguments/arguments.h"

#include <math.h>
#include <string.h>

/* The meaning of the highest codes of a format. */
enum small_special {
    IEEE,          /* the highest exponent holds infinities and NaNs */
    ONLY_NAN,      /* no infinities; all bits but the sign set is NaN */
    UNSIGNED_ZERO, /* no infinities; the code of -0 is NaN */
};

struct small_float {
    int32_t dtype;
    int exponent_bits, mantissa_bits, bias;
    enum small_special special;
};

static const struct small_float small_floats[] = {
    {AOTICACHE_DTYPE_FLOAT16, 5, 10, 15, IEEE},
    {AOTICACHE_DTYPE_COMPLEX32, 5, 10, 15, IEEE}, /* each half */
    {AOTICACHE_DTYPE_BFLOAT16, 8, 7, 127, IEEE},
    {AOTICACHE_DTYPE_FLOAT8_E5M2, 5, 2, 15, IEEE},
    {AOTICACHE_DTYPE_FLOAT8_E4M3FN, 4, 3, 7, ONLY_NAN},
    {AOTICACHE_DTYPE_FLOAT8_E5M2FNUZ, 5, 2, 16, UNSIGNED_ZERO},
    {AOTICACHE_DTYPE_FLOAT8_E4M3FNUZ, 4, 3, 8, UNSIGNED_ZERO},
};

static const struct small_float *find_small(int32_t dtype)
{
    for (size_t i = 0; i < sizeof small_floats / sizeof small_floats[0]; i++)
        if (small_floats[i].dtype == dtype)
            return &small_floats[i];
    return NULL;
}

static size_t small_bytes(const struct small_float *format)
{
    return (size_t)(1 + format->exponent_bits + format->mantissa_bits) / 8;
}

static unsigned sign_bit(const struct small_float *format)
{
    return 1u << (format->exponent_bits + format->mantissa_bits);
}

static unsigned nan_code(const struct small_float *format)
{
    switch (format->special) {
    case ONLY_NAN:
        return sign_bit(format) - 1;
    case UNSIGNED_ZERO:
        return sign_bit(format);
    default:
        return ((1u << format->exponent_bits) - 1) << format->mantissa_bits | 1u << (format->mantissa_bits - 1);
    }
}

static unsigned infinity_code(const struct small_float *format)
{
    return format->special == IEEE ? ((1u << format->exponent_bits) - 1) << format->mantissa_bits : nan_code(format);
}

/* Returns the largest code, without sign, of a finite number. */
static unsigned largest_code(const struct small_float *format)
{
    return format->special == UNSIGNED_ZERO ? sign_bit(format) - 1
           : format->special == IEEE        ? infinity_code(format) - 1
                                            : nan_code(format) - 1;
}

static double small_decode(const struct small_float *format, unsigned code)
{
    unsigned magnitude = code & (sign_bit(format) - 1);
    double sign = (code & sign_bit(format)) != 0 ? -1 : 1;
    if (format->special == UNSIGNED_ZERO && code == nan_code(format))
        return NAN;
    if (magnitude > largest_code(format))
        return format->special == IEEE && magnitude == infinity_code(format) ? sign * INFINITY : NAN;
    int exponent = (int)(magnitude >> format->mantissa_bits);
    unsigned mantissa = magnitude & ((1u << format->mantissa_bits) - 1);
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - format->bias - format->mantissa_bits);
    return sign * ldexp(mantissa + (1u << format->mantissa_bits), exponent - format->bias - format->mantissa_bits);
}

/* Returns infinity if the format has it; otherwise, as PyTorch 2.13 does, the largest number for float8_e4m3fn, and NaN for
 * the others. */
static unsigned too_big(const struct small_float *format, unsigned sign)
{
    switch (format->special) {
    case UNSIGNED_ZERO:
        return nan_code(format);
    case ONLY_NAN:
        return sign | largest_code(format);
    default:
        return sign | infinity_code(format);
    }
}

/* Rounds to nearest, ties to even, as PyTorch's conversions do. */
static unsigned small_encode(const struct small_float *format, double value)
{
    unsigned sign = signbit(value) ? sign_bit(format) : 0;
    if (isnan(value))
        return nan_code(format);
    double magnitude = fabs(value);
    if (isinf(magnitude))
        return too_big(format, sign);
    if (magnitude == 0)
        return format->special == UNSIGNED_ZERO ? 0 : sign;
    int exponent = ilogb(magnitude);
    exponent = exponent < 1 - format->bias ? 1 - format->bias : exponent;
    double scaled = nearbyint(ldexp(magnitude, format->mantissa_bits - exponent));
    /* Rounding up to the next power of two carries into the exponent automatically. */
    double code = scaled + ldexp(exponent + format->bias - 1, format->mantissa_bits);
    if (code > largest_code(format))
        return too_big(format, sign);
    if (code == 0 && format->special == UNSIGNED_ZERO)
        return 0;
    return sign | (unsigned)code;
}

aoticache_element_kind aoticache_element_kind_of(int32_t dtype)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_UINT8:
    case AOTICACHE_DTYPE_INT8:
    case AOTICACHE_DTYPE_INT16:
    case AOTICACHE_DTYPE_INT32:
    case AOTICACHE_DTYPE_INT64:
    case AOTICACHE_DTYPE_UINT16:
    case AOTICACHE_DTYPE_UINT32:
        return AOTICACHE_ELEMENT_INT;
    case AOTICACHE_DTYPE_UINT64:
        return AOTICACHE_ELEMENT_UINT;
    case AOTICACHE_DTYPE_BOOL:
        return AOTICACHE_ELEMENT_BOOL;
    case AOTICACHE_DTYPE_COMPLEX32:
    case AOTICACHE_DTYPE_COMPLEX64:
    case AOTICACHE_DTYPE_COMPLEX128:
        return AOTICACHE_ELEMENT_COMPLEX;
    case AOTICACHE_DTYPE_FLOAT32:
    case AOTICACHE_DTYPE_FLOAT64:
        return AOTICACHE_ELEMENT_REAL;
    default:
        return find_small(dtype) != NULL ? AOTICACHE_ELEMENT_REAL : AOTICACHE_ELEMENT_BITS;
    }
}

static bool is_signed(int32_t dtype)
{
    return dtype == AOTICACHE_DTYPE_INT8 || dtype == AOTICACHE_DTYPE_INT16 || dtype == AOTICACHE_DTYPE_INT32 ||
           dtype == AOTICACHE_DTYPE_INT64;
}

bool aoticache_element_int_fits(int32_t dtype, int64_t value)
{
    unsigned bits = (unsigned)aoticache_dtype_size(dtype) * 8;
    if (dtype == AOTICACHE_DTYPE_BOOL)
        return value == 0 || value == 1;
    if (bits == 64)
        return is_signed(dtype) || value >= 0;
    int64_t half = (int64_t)1 << (bits - 1);
    return is_signed(dtype) ? value >= -half && value < half : value >= 0 && value < 2 * half;
}

/* Reads a word. The supported machines are little-endian: small numbers are in its low bytes. */
static uint64_t read_word(const void *place, size_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, place, bytes < sizeof word ? bytes : sizeof word);
    return word;
}

static double read_real(int32_t dtype, const void *place)
{
    const struct small_float *small = find_small(dtype);
    float single;
    double real;
    if (small != NULL)
        return small_decode(small, (unsigned)read_word(place, small_bytes(small)));
    if (dtype == AOTICACHE_DTYPE_FLOAT32 || dtype == AOTICACHE_DTYPE_COMPLEX64) {
        memcpy(&single, place, sizeof single);
        return (double)single;
    }
    memcpy(&real, place, sizeof real);
    return real;
}

aoticache_element aoticache_element_read(int32_t dtype, const void *place)
{
    size_t bytes = aoticache_dtype_size(dtype);
    aoticache_element element = {.kind = aoticache_element_kind_of(dtype)};
    uint64_t word = read_word(place, bytes);
    switch (element.kind) {
    case AOTICACHE_ELEMENT_INT:
        element.int_value = (int64_t)word;
        if (is_signed(dtype) && bytes < 8 && (word >> (bytes * 8 - 1) & 1) != 0)
            element.int_value = (int64_t)(word - ((uint64_t)1 << (bytes * 8)));
        break;
    case AOTICACHE_ELEMENT_UINT:
    case AOTICACHE_ELEMENT_BITS:
        element.uint_value = word;
        break;
    case AOTICACHE_ELEMENT_BOOL:
        element.int_value = word != 0;
        break;
    case AOTICACHE_ELEMENT_REAL:
        element.real = read_real(dtype, place);
        break;
    case AOTICACHE_ELEMENT_COMPLEX:
        element.real = read_real(dtype, place);
        element.imaginary = read_real(dtype, (const char *)place + bytes / 2);
        break;
    }
    return element;
}

static void write_real(int32_t dtype, void *place, double value)
{
    const struct small_float *small = find_small(dtype);
    if (small != NULL) {
        uint64_t code = small_encode(small, value);
        memcpy(place, &code, small_bytes(small));
    } else if (dtype == AOTICACHE_DTYPE_FLOAT32 || dtype == AOTICACHE_DTYPE_COMPLEX64) {
        float single = (float)value;
        memcpy(place, &single, sizeof single);
    } else {
        memcpy(place, &value, sizeof value);
    }
}

void aoticache_element_write(int32_t dtype, void *place, const aoticache_element *element)
{
    size_t bytes = aoticache_dtype_size(dtype);
    bool integral = element->kind == AOTICACHE_ELEMENT_INT || element->kind == AOTICACHE_ELEMENT_BOOL;
    double real = integral ? (double)element->int_value : element->real;
    uint64_t word = integral ? (uint64_t)element->int_value : element->uint_value;
    switch (aoticache_element_kind_of(dtype)) {
    case AOTICACHE_ELEMENT_BOOL:
        word = word != 0;
        memcpy(place, &word, 1);
        break;
    case AOTICACHE_ELEMENT_REAL:
        write_real(dtype, place, real);
        break;
    case AOTICACHE_ELEMENT_COMPLEX:
        write_real(dtype, place, real);
        write_real(dtype, (char *)place + bytes / 2, element->imaginary);
        break;
    default:
        memcpy(place, &word, bytes);
        break;
    }
}
