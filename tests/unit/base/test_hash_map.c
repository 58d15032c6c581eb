/* Unit tests of base/hash_map.c. */
#include "base/hash_map.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY 100000

struct numbered {
    uint64_t number; /* the key */
    uint64_t square;
};

static const aoticache_hash_map_type numbered_type = {.item_size = sizeof(struct numbered),
                                                      .key_size = sizeof(uint64_t)};

static struct numbered *add_number(aoticache_hash_map *map, uint64_t number, bool expect_new)
{
    bool is_new = !expect_new;
    struct numbered *item = aoticache_hash_map_add(map, &numbered_type, &number, &is_new);
    cr_assert_not_null(item);
    cr_assert_eq(is_new, expect_new);
    cr_assert_eq(item->number, number, "an item begins with its key");
    return item;
}

Test(hash_map, each_key_is_found_with_its_item_after_growing)
{
    aoticache_hash_map map = {.count = 0};
    for (uint64_t number = 0; number < MANY; number++) {
        struct numbered *item = add_number(&map, number * 64, true);
        cr_assert_eq(item->square, 0, "a new item is zeroed");
        item->square = number * number;
    }
    cr_assert_eq(map.count, MANY);
    for (uint64_t number = 0; number < MANY; number++)
        cr_assert_eq(add_number(&map, number * 64, false)->square, number * number);
    cr_assert_eq(map.count, MANY, "a key that is there adds nothing");
    for (uint64_t number = 0; number < MANY; number++) {
        uint64_t absent = number * 64 + 1;
        cr_assert_null(aoticache_hash_map_find(&map, &numbered_type, &absent));
    }
    aoticache_hash_map_free(&map);
}

Test(hash_map, items_lie_in_the_order_in_which_they_were_added)
{
    aoticache_hash_map map = {.count = 0};
    for (uint64_t number = 0; number < 1000; number++)
        add_number(&map, 1000003 * (number + 1), true);
    const struct numbered *items = map.items;
    for (uint64_t number = 0; number < 1000; number++)
        cr_assert_eq(items[number].number, 1000003 * (number + 1));
    aoticache_hash_map_free(&map);
}

Test(hash_map, empty_map_finds_nothing_and_can_be_used_again_after_free)
{
    aoticache_hash_map map = {.count = 0};
    const uint64_t number = 7;
    cr_assert_null(aoticache_hash_map_find(&map, &numbered_type, &number));
    add_number(&map, number, true);
    aoticache_hash_map_free(&map);
    cr_assert_eq(map.count, 0);
    cr_assert_null(aoticache_hash_map_find(&map, &numbered_type, &number));
    add_number(&map, number, true);
    aoticache_hash_map_free(&map);
}

Test(hash_map, the_owner_may_take_the_array_away)
{
    aoticache_hash_map map = {.count = 0};
    add_number(&map, 7, true)->square = 49;
    struct numbered *items = map.items;
    map.items = NULL;
    aoticache_hash_map_free(&map);
    cr_assert_eq(items[0].number, 7);
    cr_assert_eq(items[0].square, 49);
    free(items);
}

/* ---- keys that the functions compare ---- */

struct named {
    char name[24];
    int place;
};

static bool named_has_key(const void *item, const void *key)
{
    return strcmp(((const struct named *)item)->name, key) == 0;
}

static uint64_t hash_text(const void *key)
{
    return aoticache_hash_bytes(key, strlen(key));
}

/* Puts every key into the same slot: only the comparison distinguishes them. */
static uint64_t hash_alike(const void *key)
{
    (void)key;
    return 42;
}

static void check_names(uint64_t (*hash)(const void *key), int count)
{
    const aoticache_hash_map_type type = {.item_size = sizeof(struct named), .hash = hash, .has_key = named_has_key};
    aoticache_hash_map map = {.count = 0};
    char name[24];
    for (int i = 0; i < count; i++) {
        bool is_new = false;
        snprintf(name, sizeof name, "aten::op%d", i);
        struct named *item = aoticache_hash_map_add(&map, &type, name, &is_new);
        cr_assert_not_null(item);
        cr_assert(is_new);
        strcpy(item->name, name);
        item->place = i;
    }
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "aten::op%d", i);
        const struct named *item = aoticache_hash_map_find(&map, &type, name);
        cr_assert_not_null(item);
        cr_assert_eq(item->place, i);
    }
    cr_assert_null(aoticache_hash_map_find(&map, &type, "aten::other"));
    aoticache_hash_map_free(&map);
}

Test(hash_map, keys_of_any_form_are_compared_by_the_type)
{
    check_names(hash_text, 10000);
}

Test(hash_map, keys_with_one_hash_are_told_apart)
{
    check_names(hash_alike, 500);
}

/* AddressSanitizer would end the program if out of memory; here it must return NULL as malloc() does. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

Test(hash_map, without_memory_nothing_is_added)
{
    const aoticache_hash_map_type huge_type = {.item_size = SIZE_MAX / 4, .key_size = sizeof(uint64_t)};
    aoticache_hash_map map = {.count = 0};
    const uint64_t number = 7;
    bool is_new;
    cr_assert_null(aoticache_hash_map_add(&map, &huge_type, &number, &is_new));
    cr_assert_eq(map.count, 0);
    cr_assert_null(aoticache_hash_map_find(&map, &huge_type, &number));
    aoticache_hash_map_free(&map);
}
