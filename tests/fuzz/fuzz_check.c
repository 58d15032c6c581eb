/*
 * Fuzz target for the text form of tensor checks: any bytes, up to a first zero. A parsed check must be written in a
 * form that parses to the same check, must compare equal to itself, and evaluating and explaining it must agree.
 */
#include "loader/check/check.h"
#include "loader/eager_face.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void evaluate(const aoticache_check *check, const uint8_t *bytes, size_t size)
{
    enum { MOST = 8, NDIM = 64 };
    int64_t numbers[NDIM];
    aoticache_tensor_view views[MOST];
    size_t count = aoticache_check_num_tensors(check);
    for (size_t i = 0; i < NDIM; i++) /* small numbers, and some that overflow when multiplied */
        numbers[i] = size > 0 && bytes[i % size] >= 0x7c ? INT64_MAX - bytes[i % size] : (int64_t)(i % 4);
    for (size_t i = 0; i < MOST; i++)
        views[i] = (aoticache_tensor_view){.dtype = 6,
                                           .device = AOTICACHE_DEVICE_CPU,
                                           .ndim = (int64_t)((size + i) % 6),
                                           .sizes = numbers,
                                           .strides = numbers};
    if (count > MOST)
        return;
    bool passes = aoticache_check_passes(check, views, count);
    must(passes == (aoticache_check_explain(check, views, count, NULL, NULL) == AOTICACHE_OK));
}

static void write_and_read_again(const aoticache_check *check)
{
    size_t length = aoticache_check_format(check, NULL, 0);
    char *first = malloc(length + 1), *second = malloc(length + 1);
    aoticache_check *again = NULL;
    if (first != NULL && second != NULL) {
        must(aoticache_check_format(check, first, length + 1) == length);
        must(aoticache_check_parse(first, &again, NULL) == AOTICACHE_OK);
        must(aoticache_check_format(again, second, length + 1) == length);
        must(strcmp(first, second) == 0);
        must(aoticache_check_compare(check, again) == 0);
    }
    aoticache_check_free(again);
    free(first);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1);
    aoticache_check *check = NULL;
    aoticache_error error;
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, bytes, size);
    text[size] = '\0';
    if (aoticache_check_parse(text, &check, &error) == AOTICACHE_OK) {
        write_and_read_again(check);
        evaluate(check, bytes, size);
        aoticache_check_free(check);
    }
    free(text);
    return 0;
}
