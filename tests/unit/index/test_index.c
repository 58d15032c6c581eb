/*
 * index/: entries, artifacts and objects; failures; recency, counters and totals. Opening is in test_index_open.c, what
 * happens to a damaged file in test_index_damage.c, sharing in test_index_sharing.c.
 */
#include "base/clock.h"
#include "index/entries/integrity.h"
#include "index/stats/statistics.h"
#include "index_fixture.h"

TestSuite(index, .init = fixture_make, .fini = fixture_remove, .timeout = 300);

Test(index, lookup_unknown_key_is_not_found)
{
    aoticache_index *index = fixture_must_open();
    aoticache_index_hit hit;
    aoticache_error error = {.message = "untouched"};
    cr_assert_eq(lookup_number(index, 1, &hit, &error), AOTICACHE_NOT_FOUND);
    cr_assert_str_eq(error.message, "untouched");
    aoticache_index_close(index);
}

Test(index, put_then_lookup_gives_what_was_put)
{
    aoticache_index *index = fixture_must_open();
    sample with;
    sample_make(&with, 1, 10, 11);
    with.entry.file_count = 7;
    with.entry.requirements[0] = 0x81;
    with.entry.requirements[15] = 0x80;
    must_put(index, &with);
    aoticache_index_hit hit = {0};
    size_t count = 0;
    cr_assert_eq(aoticache_index_lookup(index, &with.entry.key, &hit, 1, &count, NULL), AOTICACHE_OK);
    cr_assert_eq(count, 1);
    cr_assert(aoticache_digest_equal(&hit.artifact, &with.entry.artifact));
    cr_assert(aoticache_digest_equal(&hit.library, &with.entry.library));
    cr_assert_eq(hit.library_bytes, 1000);
    cr_assert_eq(hit.file_count, 7);
    cr_assert_eq(hit.compile_ns, 5000000000);
    cr_assert_eq(memcmp(hit.requirements, with.entry.requirements, sizeof hit.requirements), 0);
    cr_assert_gt(hit.entry_id, 0);
    aoticache_index_close(index);
}

Test(index, entries_outlive_the_connection)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_index_close(index);
    index = fixture_must_open();
    aoticache_index_hit hit;
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_OK);
    aoticache_index_close(index);
}

static void put_with_requirements(aoticache_index *index, uint32_t artifact, uint8_t requirements, int64_t created_ns)
{
    sample with;
    sample_make(&with, 1, artifact, artifact + 1);
    with.entry.requirements[3] = requirements;
    with.entry.created_ns = created_ns;
    must_put(index, &with);
}

Test(index, lookup_gives_the_most_demanding_first_then_the_newer)
{
    aoticache_index *index = fixture_must_open();
    put_with_requirements(index, 10, 0x01, 500);
    put_with_requirements(index, 20, 0x0f, 100);
    put_with_requirements(index, 30, 0x00, 900);
    put_with_requirements(index, 40, 0x02, 700); /* same number of bits as the first, newer */
    aoticache_digest key = digest_of(1);
    aoticache_index_hit hits[4];
    size_t count;
    cr_assert_eq(aoticache_index_lookup(index, &key, hits, 4, &count, NULL), AOTICACHE_OK);
    cr_assert_eq(count, 4);
    const uint32_t expected[] = {20, 40, 10, 30};
    for (size_t i = 0; i < 4; i++) {
        aoticache_digest artifact = digest_of(expected[i]);
        cr_assert(aoticache_digest_equal(&hits[i].artifact, &artifact), "hit %zu", i);
    }
    aoticache_index_close(index);
}

Test(index, lookup_counts_beyond_its_capacity)
{
    aoticache_index *index = fixture_must_open();
    for (uint8_t i = 0; i < 5; i++)
        put_with_requirements(index, 10U * (i + 1U), (uint8_t)(1U << i), 100);
    aoticache_digest key = digest_of(1);
    aoticache_index_hit hits[3];
    memset(hits, 0xee, sizeof hits);
    size_t count;
    cr_assert_eq(aoticache_index_lookup(index, &key, hits, 2, &count, NULL), AOTICACHE_OK);
    cr_assert_eq(count, 5);
    cr_assert_eq(hits[2].file_count, 0xeeeeeeee, "written beyond the capacity");
    cr_assert_eq(aoticache_index_lookup(index, &key, NULL, 0, &count, NULL), AOTICACHE_OK);
    cr_assert_eq(count, 5);
    aoticache_index_close(index);
}

Test(index, put_same_key_requirements_and_guard_replaces)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_index_hit before, after;
    cr_assert_eq(lookup_number(index, 1, &before, NULL), AOTICACHE_OK);
    put_numbers(index, 1, 20, 11);
    aoticache_digest key = digest_of(1), artifact = digest_of(20);
    size_t count;
    cr_assert_eq(aoticache_index_lookup(index, &key, &after, 1, &count, NULL), AOTICACHE_OK);
    cr_assert_eq(count, 1);
    cr_assert(aoticache_digest_equal(&after.artifact, &artifact));
    cr_assert_neq(before.entry_id, after.entry_id, "a late removal of the old one would hit the new one");
    cr_assert_not(has_object_number(index, 10), "the replaced manifest is not needed any longer");
    cr_assert(has_object_number(index, 11), "the library is still needed");
    cr_assert(has_object_number(index, 20));
    aoticache_index_close(index);
}

Test(index, put_other_guard_is_another_entry)
{
    aoticache_index *index = fixture_must_open();
    sample with;
    sample_make(&with, 1, 10, 11);
    must_put(index, &with);
    with.entry.guard = "s0 >= 2";
    must_put(index, &with);
    must_put(index, &with);
    cr_assert_eq(must_read_totals(index).entries, 2);
    aoticache_index_close(index);
}

Test(index, put_replacing_the_only_user_of_the_same_artifact_keeps_its_objects)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    put_numbers(index, 1, 10, 11);
    cr_assert(has_object_number(index, 10));
    cr_assert(has_object_number(index, 11));
    aoticache_index_totals totals = must_read_totals(index);
    cr_assert_eq(totals.entries, 1);
    cr_assert_eq(totals.objects, 2);
    cr_assert_eq(totals.bytes, 1100);
    aoticache_index_close(index);
}

Test(index, put_same_artifact_with_other_objects_takes_the_new_list)
{
    aoticache_index *index = fixture_must_open();
    sample with;
    sample_make(&with, 1, 10, 11);
    with.objects[2] = (aoticache_index_object){digest_of(12), 5};
    with.entry.object_count = 3;
    must_put(index, &with);
    put_numbers(index, 2, 10, 11);
    cr_assert_not(has_object_number(index, 12));
    cr_assert_eq(must_read_totals(index).objects, 2);
    aoticache_index_close(index);
}

Test(index, put_invalid_is_refused_and_changes_nothing)
{
    aoticache_index *index = fixture_must_open();
    sample with;
    aoticache_error error;
    sample_make(&with, 1, 10, 11);
    with.entry.object_count = 0;
    cr_assert_eq(index_put(index, &with.entry, &error), AOTICACHE_INVALID);
    sample_make(&with, 1, 10, 11);
    with.entry.library = digest_of(99);
    cr_assert_eq(index_put(index, &with.entry, &error), AOTICACHE_INVALID);
    sample_make(&with, 1, 10, 11);
    with.entry.op = NULL;
    cr_assert_eq(index_put(index, &with.entry, &error), AOTICACHE_INVALID);
    sample_make(&with, 1, 10, 11);
    with.objects[1].bytes = (uint64_t)INT64_MAX + 1;
    cr_assert_eq(index_put(index, &with.entry, &error), AOTICACHE_INVALID);
    char *text = malloc((2 << 20) + 1);
    cr_assert_not_null(text);
    memset(text, 'x', 2 << 20);
    text[2 << 20] = '\0';
    sample_make(&with, 1, 10, 11);
    with.entry.description = text;
    cr_assert_eq(index_put(index, &with.entry, &error), AOTICACHE_INVALID);
    free(text);
    cr_assert_eq(index_put(index, NULL, &error), AOTICACHE_INVALID);
    cr_assert_eq(must_read_totals(index).entries, 0);
    cr_assert_eq(must_read_totals(index).objects, 0);
    aoticache_index_close(index);
}

Test(index, functions_without_their_arguments_are_invalid)
{
    aoticache_index *index = fixture_must_open();
    aoticache_digest digest = digest_of(1);
    aoticache_index_object *objects;
    aoticache_index_hit hit;
    size_t count;
    char *message;
    cr_assert_eq(aoticache_index_open(NULL, &index, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_lookup(NULL, &digest, &hit, 1, &count, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_lookup(index, &digest, NULL, 1, &count, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_remove_key(NULL, &digest, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_remove_entry(NULL, 1, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_list(index, NULL, NULL, AOTICACHE_INDEX_ALL, NULL, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_artifact_objects(index, NULL, &objects, &count, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_has_object(index, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_put_failure(index, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_lookup_failure(index, NULL, 0, &message, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_forget_failures(NULL, NULL, 0, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_flush(index, NULL, 1, NULL, 0, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_index_read_totals(index, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(index_verify(NULL, NULL), AOTICACHE_INVALID);
    aoticache_index_close(index);
    aoticache_index_close(NULL);
}

/* ---- removal ---- */

Test(index, remove_key_takes_its_entries_and_what_only_they_needed)
{
    aoticache_index *index = fixture_must_open();
    put_with_requirements(index, 10, 1, 100); /* key 1: objects 10, 11 */
    put_with_requirements(index, 20, 2, 100); /* key 1: objects 20, 21 */
    put_numbers(index, 2, 30, 21);            /* key 2: objects 30, 21 */
    aoticache_digest key = digest_of(1);
    uint64_t removed = 99;
    aoticache_index_hit hit;
    cr_assert_eq(aoticache_index_remove_key(index, &key, &removed, NULL), AOTICACHE_OK);
    cr_assert_eq(removed, 2);
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_NOT_FOUND);
    cr_assert_eq(lookup_number(index, 2, &hit, NULL), AOTICACHE_OK);
    cr_assert_not(has_object_number(index, 10));
    cr_assert_not(has_object_number(index, 11));
    cr_assert_not(has_object_number(index, 20));
    cr_assert(has_object_number(index, 21), "shared with key 2");
    cr_assert(has_object_number(index, 30));
    aoticache_index_totals totals = must_read_totals(index);
    cr_assert_eq(totals.entries, 1);
    cr_assert_eq(totals.artifacts, 1);
    cr_assert_eq(totals.objects, 2);
    aoticache_index_close(index);
}

Test(index, remove_what_is_not_there_removes_nothing)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_digest other = digest_of(77);
    uint64_t removed = 99;
    cr_assert_eq(aoticache_index_remove_key(index, &other, &removed, NULL), AOTICACHE_OK);
    cr_assert_eq(removed, 0);
    removed = 99;
    cr_assert_eq(aoticache_index_remove_object(index, &other, &removed, NULL), AOTICACHE_OK);
    cr_assert_eq(removed, 0);
    removed = 99;
    cr_assert_eq(aoticache_index_remove_entry(index, 12345, &removed, NULL), AOTICACHE_OK);
    cr_assert_eq(removed, 0);
    removed = 99;
    cr_assert_eq(aoticache_index_remove_key(index, NULL, &removed, NULL), AOTICACHE_OK);
    cr_assert_eq(removed, 0);
    cr_assert_eq(aoticache_index_remove_object(index, NULL, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(must_read_totals(index).entries, 1);
    aoticache_index_close(index);
}

Test(index, remove_object_takes_every_entry_that_needs_it)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 50);
    put_numbers(index, 2, 20, 50); /* another artifact, the same library */
    put_numbers(index, 3, 10, 50); /* another key, the same artifact */
    put_numbers(index, 4, 40, 41);
    aoticache_digest library = digest_of(50);
    uint64_t removed;
    cr_assert_eq(aoticache_index_remove_object(index, &library, &removed, NULL), AOTICACHE_OK);
    cr_assert_eq(removed, 3);
    cr_assert_not(has_object_number(index, 50));
    cr_assert_not(has_object_number(index, 10));
    cr_assert_not(has_object_number(index, 20));
    cr_assert(has_object_number(index, 41));
    cr_assert_eq(must_read_totals(index).entries, 1);
    aoticache_index_close(index);
}

static bool see_usage(void *user, const aoticache_index_usage *usage)
{
    *(uint64_t *)user += usage->bytes;
    return true;
}

/* Tests few and many: the code that checks the objects of artifacts treats the first ones differently. */
Test(index, every_object_of_an_artifact_is_looked_at)
{
    enum { MOST = 9 };
    for (uint32_t count = 2; count <= MOST; count++) {
        aoticache_index *index = fixture_must_open();
        aoticache_index_object objects[MOST];
        aoticache_error error = {0};
        bool completed = false;
        uint64_t bytes = 0, wanted = 0;
        sample with;
        sample_make(&with, 1, 10, 11);
        for (uint32_t i = 0; i < count; i++) {
            objects[i] = (aoticache_index_object){digest_of(10 + i), 1000 + i};
            wanted += objects[i].bytes;
        }
        with.entry.objects = objects;
        with.entry.object_count = count;
        must_put(index, &with);
        cr_assert_eq(aoticache_index_check_integrity(index, true, NULL, NULL, &completed, &error), AOTICACHE_OK, "%s",
                     error.message);
        cr_assert_eq(aoticache_index_list_usage(index, AOTICACHE_INDEX_USAGE_BY_OP, see_usage, &bytes, NULL),
                     AOTICACHE_OK);
        cr_assert_eq(bytes, wanted, "%u objects", count);
        aoticache_index_close(index);
        char sql[128];
        snprintf(sql, sizeof sql, "DELETE FROM objects WHERE hex(digest) LIKE '%02X%%'", 10 + count - 1);
        fixture_sql(sql);
        index = fixture_must_open();
        cr_assert_eq(aoticache_index_check_integrity(index, true, NULL, NULL, &completed, &error), AOTICACHE_CORRUPT,
                     "%u objects", count);
        aoticache_index_close(index);
        fixture_remove();
        fixture_make();
    }
}

static int64_t id_of_number(aoticache_index *index, uint32_t key)
{
    aoticache_index_hit hit;
    cr_assert_eq(lookup_number(index, key, &hit, NULL), AOTICACHE_OK);
    return hit.entry_id;
}

/*
 * Whichever entry is removed first, the one that the artifact's row names or one that shares it, the others keep the
 * artifact.
 */
Test(index, entries_that_share_an_artifact_keep_it_until_the_last_one_goes)
{
    static const uint32_t orders[][3] = {{1, 2, 3}, {3, 2, 1}, {2, 1, 3}, {2, 3, 1}};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        aoticache_index *index = fixture_must_open();
        for (uint32_t key = 1; key <= 3; key++)
            put_numbers(index, key, 10, 11);
        put_numbers(index, 2, 10, 11); /* another entry, the same artifact */
        for (size_t j = 0; j < 3; j++) {
            uint64_t removed;
            bool completed = false;
            aoticache_error error = {0};
            cr_assert_eq(must_read_totals(index).artifacts, 1);
            cr_assert_eq(must_read_totals(index).objects, 2);
            cr_assert_eq(aoticache_index_check_integrity(index, true, NULL, NULL, &completed, &error), AOTICACHE_OK,
                         "%s", error.message);
            cr_assert_eq(index_verify(index, &error), AOTICACHE_OK, "%s", error.message);
            cr_assert_eq(aoticache_index_remove_entry(index, id_of_number(index, orders[i][j]), &removed, NULL),
                         AOTICACHE_OK);
            cr_assert_eq(removed, 1);
            cr_assert_eq(has_object_number(index, 11), j < 2);
        }
        cr_assert_eq(must_read_totals(index).artifacts, 0);
        cr_assert_eq(must_read_totals(index).objects, 0);
        cr_assert_eq(index_verify(index, NULL), AOTICACHE_OK);
        aoticache_index_close(index);
    }
}

Test(index, artifact_must_be_among_its_objects)
{
    aoticache_index *index = fixture_must_open();
    sample with;
    aoticache_error error = {0};
    sample_make(&with, 1, 10, 11);
    with.entry.artifact = digest_of(12);
    cr_assert_eq(index_put(index, &with.entry, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "artifact is not among"), "%s", error.message);
    aoticache_index_close(index);
}

Test(index, remove_entry_takes_this_one_alone)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    put_numbers(index, 2, 10, 11);
    aoticache_index_hit hit;
    uint64_t removed;
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_remove_entry(index, hit.entry_id, &removed, NULL), AOTICACHE_OK);
    cr_assert_eq(removed, 1);
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_NOT_FOUND);
    cr_assert_eq(lookup_number(index, 2, &hit, NULL), AOTICACHE_OK);
    cr_assert(has_object_number(index, 11), "the other entry needs it");
    cr_assert_eq(aoticache_index_remove_entry(index, hit.entry_id, &removed, NULL), AOTICACHE_OK);
    cr_assert_not(has_object_number(index, 11));
    cr_assert_eq(must_read_totals(index).objects, 0);
    aoticache_index_close(index);
}

Test(index, entry_ids_are_never_used_twice)
{
    aoticache_index *index = fixture_must_open();
    aoticache_index_hit first, second;
    put_numbers(index, 1, 10, 11);
    cr_assert_eq(lookup_number(index, 1, &first, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_remove_entry(index, first.entry_id, NULL, NULL), AOTICACHE_OK);
    put_numbers(index, 2, 10, 11);
    cr_assert_eq(lookup_number(index, 2, &second, NULL), AOTICACHE_OK);
    cr_assert_gt(second.entry_id, first.entry_id);
    aoticache_index_close(index);
}

/* ---- listing ---- */

typedef struct listing {
    char text[512];
    size_t count;
    size_t stop_after;
    aoticache_index_entry last;
} listing;

static bool collect_entry(void *user, const aoticache_index_entry *entry)
{
    listing *into = user;
    uint32_t number;
    memcpy(&number, entry->key.bytes, sizeof number);
    size_t used = strlen(into->text);
    snprintf(into->text + used, sizeof into->text - used, "%s:%u ", entry->op, number);
    into->last = *entry;
    return ++into->count != into->stop_after;
}

static void put_op(aoticache_index *index, uint32_t key, const char *op)
{
    sample with;
    sample_make(&with, key, 100 + key, 200 + key);
    with.entry.op = op;
    with.entry.guard = "s0 > 1";
    with.entry.requirements[1] = 5;
    must_put(index, &with);
}

Test(index, list_gives_entries_by_operator)
{
    aoticache_index *index = fixture_must_open();
    put_op(index, 1, "aten::mul");
    put_op(index, 2, "aten::abs");
    put_op(index, 3, "aten::mul");
    listing all = {0}, one = {0}, none = {0}, stopped = {.stop_after = 2};
    cr_assert_eq(aoticache_index_list(index, NULL, NULL, AOTICACHE_INDEX_ALL, collect_entry, &all, NULL), AOTICACHE_OK);
    cr_assert_str_eq(all.text, "aten::abs:2 aten::mul:1 aten::mul:3 ");
    cr_assert_eq(aoticache_index_list(index, "aten::abs", NULL, AOTICACHE_INDEX_ALL, collect_entry, &one, NULL),
                 AOTICACHE_OK);
    cr_assert_str_eq(one.text, "aten::abs:2 ");
    cr_assert_eq(aoticache_index_list(index, "x", NULL, AOTICACHE_INDEX_ALL, collect_entry, &none, NULL), AOTICACHE_OK);
    cr_assert_eq(none.count, 0);
    cr_assert_eq(aoticache_index_list(index, NULL, NULL, AOTICACHE_INDEX_ALL, collect_entry, &stopped, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(stopped.count, 2);
    aoticache_index_hit hit;
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_OK, "usable after a list that was stopped");
    put_op(index, 4, "aten::neg");
    aoticache_index_close(index);
}

/* Lists a page at a time, each beginning after the last entry of the previous one. */
Test(index, list_continues_after_an_entry)
{
    aoticache_index *index = fixture_must_open();
    const char *const ops[] = {"b", "a", "b", "c", "b", "a", "b"};
    listing all = {0};
    aoticache_index_place place = {.op = NULL};
    char op[64];
    for (uint32_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        put_op(index, i + 1, ops[i]);
    for (size_t before = SIZE_MAX; before != all.count;) {
        before = all.count;
        cr_assert_eq(aoticache_index_list(index, NULL, place.op != NULL ? &place : NULL, 2, collect_entry, &all, NULL),
                     AOTICACHE_OK);
        cr_assert_leq(all.count, before == SIZE_MAX ? 2 : before + 2);
        place.op = strcpy(op, (const char[][2]){"a", "a", "b", "b", "b", "b", "c"}[all.count - 1]);
        place.entry_id = all.last.entry_id;
    }
    cr_assert_str_eq(all.text, "a:2 a:6 b:1 b:3 b:5 b:7 c:4 ");
    listing some = {0}, none = {0};
    place = (aoticache_index_place){.op = "b", .entry_id = 0};
    cr_assert_eq(aoticache_index_list(index, "b", &place, 3, collect_entry, &some, NULL), AOTICACHE_OK);
    cr_assert_str_eq(some.text, "b:1 b:3 b:5 ");
    place.entry_id = some.last.entry_id;
    cr_assert_eq(aoticache_index_remove_entry(index, place.entry_id, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_list(index, "b", &place, 3, collect_entry, &some, NULL), AOTICACHE_OK);
    cr_assert_str_eq(some.text, "b:1 b:3 b:5 b:7 ", "the entry need not be there any more");
    place = (aoticache_index_place){.op = "c", .entry_id = INT64_MAX};
    cr_assert_eq(aoticache_index_list(index, NULL, &place, 3, collect_entry, &none, NULL), AOTICACHE_OK);
    cr_assert_eq(none.count, 0);
    aoticache_index_close(index);
}

static bool check_entry(void *user, const aoticache_index_entry *entry)
{
    int64_t *entry_id = user;
    aoticache_digest key = digest_of(1), artifact = digest_of(101), library = digest_of(201);
    cr_assert(aoticache_digest_equal(&entry->key, &key));
    cr_assert(aoticache_digest_equal(&entry->artifact, &artifact));
    cr_assert(aoticache_digest_equal(&entry->library, &library));
    cr_assert_str_eq(entry->op, "aten::mul");
    cr_assert_str_eq(entry->device, "cpu");
    cr_assert_str_eq(entry->description, "float32 [2, 3]");
    cr_assert_str_eq(entry->producer, "torch 2.13.0");
    cr_assert_str_eq(entry->guard, "s0 > 1");
    cr_assert_eq(entry->requirements[1], 5);
    cr_assert_eq(entry->file_count, 1);
    cr_assert_eq(entry->compile_ns, 5000000000);
    cr_assert_eq(entry->created_ns, 1001);
    cr_assert_eq(entry->last_used_ns, 1001, "not used since it was made");
    cr_assert_eq(entry->uses, 0);
    cr_assert_eq(entry->bytes, 1100);
    *entry_id = entry->entry_id;
    return true;
}

Test(index, list_gives_everything_that_was_put)
{
    aoticache_index *index = fixture_must_open();
    put_op(index, 1, "aten::mul");
    int64_t entry_id = 0;
    aoticache_index_hit hit;
    cr_assert_eq(aoticache_index_list(index, NULL, NULL, AOTICACHE_INDEX_ALL, check_entry, &entry_id, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_OK);
    cr_assert_eq(hit.entry_id, entry_id);
    aoticache_index_close(index);
}

Test(index, artifact_objects_come_in_the_order_of_put)
{
    aoticache_index *index = fixture_must_open();
    sample with;
    sample_make(&with, 1, 30, 20);
    with.objects[2] = (aoticache_index_object){digest_of(10), 7};
    with.entry.object_count = 3;
    must_put(index, &with);
    aoticache_index_object *objects = NULL;
    size_t count = 0;
    cr_assert_eq(aoticache_index_artifact_objects(index, &with.entry.artifact, &objects, &count, NULL), AOTICACHE_OK);
    cr_assert_eq(count, 3);
    for (size_t i = 0; i < count; i++) {
        cr_assert(aoticache_digest_equal(&objects[i].digest, &with.objects[i].digest));
        cr_assert_eq(objects[i].bytes, with.objects[i].bytes);
    }
    free(objects);
    aoticache_digest other = digest_of(5);
    cr_assert_eq(aoticache_index_artifact_objects(index, &other, &objects, &count, NULL), AOTICACHE_NOT_FOUND);
    aoticache_index_close(index);
}

static bool sum_object(void *user, const aoticache_digest *digest, uint64_t bytes)
{
    uint64_t *sum = user;
    uint32_t number;
    memcpy(&number, digest->bytes, sizeof number);
    *sum += number * 1000000ULL + bytes;
    return true;
}

Test(index, list_objects_gives_each_once)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 50);
    put_numbers(index, 2, 20, 50);
    uint64_t sum = 0;
    cr_assert_eq(index_list_objects(index, sum_object, &sum, NULL), AOTICACHE_OK);
    cr_assert_eq(sum, 80ULL * 1000000 + 100 + 100 + 1000);
    aoticache_index_close(index);
}

/* ---- failures ---- */

static void must_put_failure(aoticache_index *index, uint32_t key, const char *message, int64_t retry_ns)
{
    aoticache_index_failure failure = {.key = digest_of(key), .op = "aten::abs", .description = "float32 [2]"};
    failure.message = message;
    failure.failed_ns = key;
    failure.retry_ns = retry_ns;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_index_put_failure(index, &failure, &error), AOTICACHE_OK, "%s", error.message);
}

static aoticache_status lookup_failure(aoticache_index *index, uint32_t key, int64_t now_ns, char **ret_message)
{
    aoticache_digest digest = digest_of(key);
    return aoticache_index_lookup_failure(index, &digest, now_ns, ret_message, NULL);
}

Test(index, failure_is_remembered_until_its_time)
{
    aoticache_index *index = fixture_must_open();
    char *message = NULL;
    must_put_failure(index, 1, "first", 500);
    must_put_failure(index, 1, "no such operator\nsecond line", 1000);
    cr_assert_eq(lookup_failure(index, 1, 999, &message), AOTICACHE_OK);
    cr_assert_str_eq(message, "no such operator\nsecond line");
    free(message);
    cr_assert_eq(lookup_failure(index, 1, 1000, &message), AOTICACHE_NOT_FOUND);
    cr_assert_eq(lookup_failure(index, 2, 0, &message), AOTICACHE_NOT_FOUND);
    cr_assert_eq(must_read_totals(index).failures, 1);
    aoticache_index_close(index);
}

Test(index, failure_is_forgotten_by_a_put)
{
    aoticache_index *index = fixture_must_open();
    char *message;
    must_put_failure(index, 1, "x", 1000);
    must_put_failure(index, 2, "y", 1000);
    put_numbers(index, 1, 10, 11);
    cr_assert_eq(lookup_failure(index, 1, 10, &message), AOTICACHE_NOT_FOUND);
    cr_assert_eq(lookup_failure(index, 2, 10, &message), AOTICACHE_OK);
    free(message);
    aoticache_index_close(index);
}

Test(index, failures_are_forgotten_by_key_and_by_time)
{
    aoticache_index *index = fixture_must_open();
    aoticache_digest key = digest_of(1);
    char *message;
    for (uint32_t i = 1; i <= 4; i++)
        must_put_failure(index, i, "x", 100 * i);
    cr_assert_eq(aoticache_index_forget_failures(index, &key, 0, NULL), AOTICACHE_OK);
    cr_assert_eq(must_read_totals(index).failures, 3);
    cr_assert_eq(aoticache_index_forget_failures(index, NULL, 300, NULL), AOTICACHE_OK);
    cr_assert_eq(must_read_totals(index).failures, 1);
    cr_assert_eq(lookup_failure(index, 4, 10, &message), AOTICACHE_OK);
    free(message);
    cr_assert_eq(aoticache_index_forget_failures(index, NULL, INT64_MAX, NULL), AOTICACHE_OK);
    cr_assert_eq(must_read_totals(index).failures, 0);
    aoticache_index_close(index);
}

static bool collect_failure(void *user, const aoticache_index_failure *failure)
{
    char *text = user;
    cr_assert_str_eq(failure->op, "aten::abs");
    cr_assert_str_eq(failure->description, "float32 [2]");
    snprintf(text + strlen(text), 64, "%s %lld %lld;", failure->message, (long long)failure->failed_ns,
             (long long)failure->retry_ns);
    return true;
}

Test(index, list_failures_gives_the_latest_first)
{
    aoticache_index *index = fixture_must_open();
    char text[256] = "";
    must_put_failure(index, 1, "x", 100);
    must_put_failure(index, 2, "y", 200);
    cr_assert_eq(aoticache_index_list_failures(index, collect_failure, text, NULL), AOTICACHE_OK);
    cr_assert_str_eq(text, "y 2 200;x 1 100;");
    aoticache_index_close(index);
}

Test(index, failure_message_that_is_too_long_is_cut)
{
    aoticache_index *index = fixture_must_open();
    char *text = malloc((3 << 20) + 1), *message = NULL;
    cr_assert_not_null(text);
    memset(text, 'e', 3 << 20);
    text[3 << 20] = '\0';
    must_put_failure(index, 1, text, 100);
    cr_assert_eq(lookup_failure(index, 1, 10, &message), AOTICACHE_OK);
    cr_assert_eq(strlen(message), 1 << 20);
    free(message);
    free(text);
    aoticache_index_close(index);
}

/* ---- recency and counters ---- */

static bool collect_count(void *user, const char *name, uint64_t value)
{
    char *text = user;
    snprintf(text + strlen(text), 64, "%s=%llu;", name, (unsigned long long)value);
    return true;
}

Test(index, flush_adds_uses_and_counts)
{
    aoticache_index *index = fixture_must_open();
    put_op(index, 1, "aten::abs");
    put_op(index, 2, "aten::mul");
    aoticache_index_hit one, two;
    cr_assert_eq(lookup_number(index, 1, &one, NULL), AOTICACHE_OK);
    cr_assert_eq(lookup_number(index, 2, &two, NULL), AOTICACHE_OK);
    const aoticache_index_use uses[] = {{two.entry_id, 5000, 3}, {one.entry_id, 9000, 1}, {777, 1, 1}};
    const aoticache_index_count counts[] = {{"hits", 4}, {"misses", 2}};
    cr_assert_eq(aoticache_index_flush(index, uses, 3, counts, 2, NULL), AOTICACHE_OK);
    const aoticache_index_use late[] = {{one.entry_id, 8000, 2}};
    cr_assert_eq(aoticache_index_flush(index, late, 1, counts, 1, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_flush(index, NULL, 0, NULL, 0, NULL), AOTICACHE_OK);
    listing first = {0}, second = {0};
    cr_assert_eq(aoticache_index_list(index, "aten::abs", NULL, AOTICACHE_INDEX_ALL, collect_entry, &first, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(aoticache_index_list(index, "aten::mul", NULL, AOTICACHE_INDEX_ALL, collect_entry, &second, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(first.last.uses, 3);
    cr_assert_eq(first.last.last_used_ns, 9000, "a late batch does not turn the clock back");
    cr_assert_eq(second.last.uses, 3);
    cr_assert_eq(second.last.last_used_ns, 5000);
    char text[256] = "";
    cr_assert_eq(index_list_counts(index, collect_count, text, NULL), AOTICACHE_OK);
    cr_assert_str_eq(text, "hits=8;misses=2;");
    aoticache_index_close(index);
}

Test(index, counts_stop_at_the_largest_number)
{
    aoticache_index *index = fixture_must_open();
    const aoticache_index_count counts[] = {{"big", UINT64_MAX}, {"big", INT64_MAX}, {"big", 1}};
    cr_assert_eq(aoticache_index_flush(index, NULL, 0, counts, 3, NULL), AOTICACHE_OK);
    char text[256] = "";
    cr_assert_eq(index_list_counts(index, collect_count, text, NULL), AOTICACHE_OK);
    cr_assert_str_eq(text, "big=9223372036854775807;");
    put_op(index, 1, "aten::abs");
    aoticache_index_hit hit;
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_OK);
    const aoticache_index_use uses[] = {{hit.entry_id, 1, UINT64_MAX}, {hit.entry_id, 2, 7}};
    cr_assert_eq(aoticache_index_flush(index, uses, 2, NULL, 0, NULL), AOTICACHE_OK);
    listing all = {0};
    cr_assert_eq(aoticache_index_list(index, NULL, NULL, AOTICACHE_INDEX_ALL, collect_entry, &all, NULL), AOTICACHE_OK);
    cr_assert_eq(all.last.uses, INT64_MAX);
    aoticache_index_close(index);
}

Test(index, totals_count_everything)
{
    int64_t before = aoticache_wall_ns();
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 50);
    put_numbers(index, 2, 20, 50);
    put_numbers(index, 3, 20, 50);
    must_put_failure(index, 4, "x", 100);
    aoticache_index_totals totals = must_read_totals(index);
    cr_assert_eq(totals.entries, 3);
    cr_assert_eq(totals.artifacts, 2);
    cr_assert_eq(totals.objects, 3);
    cr_assert_eq(totals.bytes, 1200);
    cr_assert_eq(totals.failures, 1);
    cr_assert_geq(totals.created_ns, before);
    cr_assert_leq(totals.created_ns, aoticache_wall_ns());
    cr_assert_eq(index_verify(index, NULL), AOTICACHE_OK);
    aoticache_index_close(index);
}
