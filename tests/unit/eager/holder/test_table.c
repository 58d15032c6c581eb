/* Unit tests of eager/holder/table.c: inserted entries are found, among many, and nothing else. */
#include "eager/holder/holder_internal.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(table, .timeout = 300);

static void make_packed(uint64_t number, aoticache_packed *packed)
{
    int64_t numbers[3] = {(int64_t)number, (int64_t)(number * 7), 5};
    aoticache_value value = {.kind = AOTICACHE_VALUE_INT_LIST, .count = 1 + number % 3, .as.ints = numbers};
    cr_assert(aoticache_pack(&value, 1, packed));
}

Test(table, empty_one_finds_nothing)
{
    aoticache_table table = {.used = 0};
    aoticache_packed packed;
    make_packed(1, &packed);
    cr_expect_null(aoticache_table_find(&table, &packed));
    aoticache_table_free(&table);
}

Test(table, many_are_found)
{
    enum { COUNT = 60000 };
    aoticache_table table = {.used = 0};
    aoticache_packed packed;
    static int details[COUNT];
    for (int i = 0; i < COUNT; i++) {
        make_packed((uint64_t)i, &packed);
        cr_assert_null(aoticache_table_find(&table, &packed));
        cr_assert_not_null(aoticache_table_insert(&table, &packed, NULL, &details[i]));
    }
    cr_expect_eq(table.used, COUNT);
    for (int i = 0; i < COUNT; i++) {
        make_packed((uint64_t)i, &packed);
        aoticache_table_entry *entry = aoticache_table_find(&table, &packed);
        cr_assert_not_null(entry);
        cr_assert(atomic_load(&entry->known)->detail == &details[i]);
        cr_assert_eq((uintptr_t)entry % _Alignof(aoticache_table_entry), 0);
    }
    make_packed(COUNT, &packed);
    cr_expect_null(aoticache_table_find(&table, &packed));
    aoticache_table_free(&table);
    aoticache_epoch_synchronize();
}

Test(table, the_same_hash_is_not_the_same_metadata)
{
    aoticache_table table = {.used = 0};
    aoticache_packed packed[3];
    for (uint64_t i = 0; i < 3; i++) {
        make_packed(3 * i, &packed[i]);
        packed[i].hash = 0; /* 0 is a valid hash, too */
        cr_assert_not_null(aoticache_table_insert(&table, &packed[i], NULL, &packed[i]));
    }
    for (int i = 0; i < 3; i++)
        cr_expect(aoticache_table_find(&table, &packed[i])->own.detail == &packed[i]);
    make_packed(99, &packed[0]);
    packed[0].hash = 0;
    cr_expect_null(aoticache_table_find(&table, &packed[0]));
    aoticache_table_free(&table);
}

Test(table, prepared_entry_is_found_once_published)
{
    aoticache_table table = {.used = 0};
    aoticache_packed packed;
    aoticache_known_kernel_hot other = {.detail = &table};
    make_packed(1, &packed);
    aoticache_table_entry *entry = aoticache_table_prepare(&table, &packed, &other, NULL);
    cr_assert_not_null(entry);
    cr_expect_null(aoticache_table_find(&table, &packed));
    cr_expect_eq(table.used, 0);
    aoticache_table_publish(&table, &packed, entry);
    cr_expect_eq(aoticache_table_find(&table, &packed), entry);
    cr_expect_eq(atomic_load(&entry->known), &other);
    aoticache_table_free(&table);
}

Test(table, entries_larger_than_a_chunk)
{
    static int64_t ints[AOTICACHE_PACK_MAX_WORDS - 1];
    aoticache_table table = {.used = 0};
    aoticache_packed packed;
    for (int i = 0; i < 20; i++) {
        ints[0] = i;
        aoticache_value value = {
            .kind = AOTICACHE_VALUE_INT_LIST, .count = sizeof ints / sizeof *ints, .as.ints = ints};
        cr_assert(aoticache_pack(&value, 1, &packed));
        cr_assert_not_null(aoticache_table_insert(&table, &packed, NULL, NULL));
        cr_assert_not_null(aoticache_table_find(&table, &packed));
    }
    aoticache_table_free(&table);
}
