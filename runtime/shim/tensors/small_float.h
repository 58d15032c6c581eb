/*
 * shim/tensors/small_float: the 16-bit and 8-bit floating point formats, to and from float.
 *
 * Rounds to nearest, ties to even. As in PyTorch, a value that is too large becomes infinity if the format has one,
 * otherwise NaN, except for e4m3fn: the largest number from PyTorch 2.13 on, NaN in older versions. Source of the
 * formats: IEEE 754 half, bfloat16, and torch/headeronly/util/Float8_*.h.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_SMALL_FLOAT_H
#define AOTICACHE_RUNTIME_SHIM_SMALL_FLOAT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float float_of_bfloat16(uint16_t code)
{
    return float_of_bits((uint32_t)code << 16);
}

static inline uint16_t bfloat16_of_float(float value)
{
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

/*
 * A format with a sign, an exponent and `mantissa_bits`. Float represents all its values exactly.
 */
struct small_float {
    int mantissa_bits;
    int bias;
    uint32_t sign;       /* the sign's bit */
    uint32_t max_finite; /* the largest finite code without its sign */
    uint32_t overflow;   /* the code for larger values */
    uint32_t nan;
    bool has_infinity;  /* the all-ones exponent is special, as in IEEE 754 */
    bool unsigned_zero; /* "fnuz": the code of minus zero is the only NaN */
};

static const struct small_float format_float16 = {10, 15, 0x8000, 0x7bff, 0x7c00, 0x7e00, true, false};
static const struct small_float format_e5m2 = {2, 15, 0x80, 0x7b, 0x7c, 0x7f, true, false};
static const struct small_float format_e4m3fn = {3, 7, 0x80, 0x7e, 0x7e, 0x7f, false, false};
static const struct small_float format_e5m2fnuz = {2, 16, 0x80, 0x7f, 0x80, 0x80, false, true};
static const struct small_float format_e4m3fnuz = {3, 8, 0x80, 0x7f, 0x80, 0x80, false, true};

static inline float small_float_decode(const struct small_float *format, uint32_t code)
{
    uint32_t magnitude = code & (format->sign - 1);
    uint32_t sign = (code & format->sign) != 0 ? 0x80000000u : 0;
    int drop = 23 - format->mantissa_bits;
    if (format->unsigned_zero && code == format->nan)
        return float_of_bits(0x7fc00000u);
    if (magnitude > format->max_finite) {
        if (!format->has_infinity || magnitude > format->overflow)
            return float_of_bits(0x7fc00000u | sign | (format->has_infinity ? magnitude << drop : 0));
        return float_of_bits(0x7f800000u | sign);
    }
    if (magnitude >> format->mantissa_bits == 0) { /* zero and subnormals: multiples of the smallest one */
        float unit = float_of_bits((uint32_t)(127 + 1 - format->bias - format->mantissa_bits) << 23);
        return float_of_bits(float_bits((float)magnitude * unit) | sign);
    }
    return float_of_bits(((magnitude << drop) + ((uint32_t)(127 - format->bias) << 23)) | sign);
}

static inline uint32_t small_float_encode(const struct small_float *format, float value)
{
    uint32_t bits = float_bits(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t sign = (bits >> 31) != 0 ? format->sign : 0;
    int drop = 23 - format->mantissa_bits;
    uint32_t code;
    if (magnitude > 0x7f800000u)
        return format->unsigned_zero ? format->nan : format->nan | sign;
    if (magnitude < (uint32_t)(127 + 1 - format->bias) << 23) {
        /* Adding a number whose last bit is the smallest subnormal lets the processor round. */
        uint32_t adder = (uint32_t)(127 + 1 - format->bias + drop) << 23;
        code = float_bits(float_of_bits(magnitude) + float_of_bits(adder)) - adder;
    } else {
        uint32_t rounded = magnitude + (1u << (drop - 1)) - 1 + ((magnitude >> drop) & 1);
        code = (rounded >> drop) - ((uint32_t)(127 - format->bias) << format->mantissa_bits);
    }
    if (code > format->max_finite)
        return format->unsigned_zero ? format->overflow : format->overflow | sign;
    return code == 0 && format->unsigned_zero ? 0 : code | sign;
}

static inline float float_of_float16(uint16_t code)
{
    return small_float_decode(&format_float16, code);
}

static inline uint16_t float16_of_float(float value)
{
    return (uint16_t)small_float_encode(&format_float16, value);
}

/* Decodes a format that has only an exponent: powers of two from 2^-127 to 2^127, and NaN. */
static inline float float_of_e8m0(uint8_t code)
{
    if (code == 0xff)
        return float_of_bits(0x7fc00000u);
    return float_of_bits(code == 0 ? 0x00400000u : (uint32_t)code << 23);
}

static inline uint8_t e8m0_of_float(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t exponent = (bits >> 23) & 0xff, mantissa = bits & 0x7fffffu;
    if (exponent == 0xff)
        return 0xff;
    /* Halfway goes up, except from 2^-127, which is below the normal numbers and counts as even. */
    if (mantissa > 0x400000u || (mantissa == 0x400000u && exponent > 0))
        exponent++;
    return (uint8_t)exponent;
}

#endif
