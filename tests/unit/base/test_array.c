/* Unit tests of base/array.c. */
#include "base/array.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>

struct item {
    uint64_t number;
    char text[24];
};

Test(array, items_stay_while_it_grows)
{
    struct item *items = NULL;
    size_t count = 0, capacity = 0;
    for (uint64_t number = 0; number < 100000; number++) {
        cr_assert(AOTICACHE_ARRAY_RESERVE(items, capacity, count + 1));
        cr_assert_gt(capacity, count);
        items[count++] = (struct item){.number = number};
    }
    for (uint64_t number = 0; number < 100000; number++)
        cr_assert_eq(items[number].number, number);
    free(items);
}

Test(array, space_at_least_doubles)
{
    int *items = NULL;
    size_t capacity = 0, moves = 0;
    for (size_t needed = 1, before = 0; needed <= 1000000; needed++, before = capacity) {
        cr_assert(AOTICACHE_ARRAY_RESERVE(items, capacity, needed));
        cr_assert(capacity == before || capacity >= 2 * before);
        moves += capacity != before;
    }
    cr_assert_leq(moves, 20);
    free(items);
}

Test(array, what_is_asked_for_is_there_at_once)
{
    char *bytes = NULL;
    size_t capacity = 0;
    cr_assert(AOTICACHE_ARRAY_RESERVE(bytes, capacity, 100001));
    cr_assert_eq(capacity, 100001);
    bytes[100000] = 'x';
    char *before = bytes;
    cr_assert(AOTICACHE_ARRAY_RESERVE(bytes, capacity, 100001));
    cr_assert_eq(bytes, before, "there is space already");
    free(bytes);
}

/* AddressSanitizer would end the program if out of memory; here it must return NULL as malloc() does. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

Test(array, sizes_that_do_not_fit_are_refused_and_change_nothing)
{
    struct item *items = NULL;
    size_t capacity = 0;
    cr_assert_not(AOTICACHE_ARRAY_RESERVE(items, capacity, SIZE_MAX));
    cr_assert_not(AOTICACHE_ARRAY_RESERVE(items, capacity, SIZE_MAX / sizeof *items + 1));
    cr_assert_not(AOTICACHE_ARRAY_RESERVE(items, capacity, SIZE_MAX / sizeof *items), "more than any machine has");
    cr_assert_null(items);
    cr_assert_eq(capacity, 0);
    cr_assert(AOTICACHE_ARRAY_RESERVE(items, capacity, 3));
    struct item *before = items;
    size_t had = capacity;
    items[2].number = 7;
    cr_assert_not(AOTICACHE_ARRAY_RESERVE(items, capacity, SIZE_MAX / 2));
    cr_assert_eq(items, before);
    cr_assert_eq(capacity, had);
    cr_assert_eq(items[2].number, 7);
    capacity = SIZE_MAX - 1; /* twice that does not fit either */
    cr_assert_not(AOTICACHE_ARRAY_RESERVE(items, capacity, SIZE_MAX));
    cr_assert_eq(capacity, SIZE_MAX - 1);
    free(items);
}
