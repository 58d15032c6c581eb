/*
 * index/eviction/evict: entries that were looked up before the transaction that removes them: changes in between
 * decide.
 */
#include "index_fixture.h"

#include "index/eviction/eviction.h"
#include "index/entries/integrity.h"
#include "index/entries/pins.h"
#include "index/stats/statistics.h"

#define MANY 16

TestSuite(evict, .init = fixture_make, .fini = fixture_remove);

struct victims {
    aoticache_index_victim items[MANY];
    size_t count;
};

static bool take(void *user, const aoticache_index_candidate *candidate)
{
    struct victims *victims = user;
    victims->items[victims->count++] = (aoticache_index_victim){
        .entry_id = candidate->entry_id, .last_used_ns = candidate->last_used_ns, .key = candidate->key};
    return victims->count < MANY;
}

/* Looks up all entries, oldest first. */
static void look_up_all(aoticache_index *index, struct victims *victims)
{
    aoticache_error error = {.message = ""};
    victims->count = 0;
    cr_assert_eq(aoticache_index_list_candidates(index, INT64_MIN, 0, MANY, take, victims, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(aoticache_index_look_up(index, victims->items, victims->count, &error), AOTICACHE_OK, "%s",
                 error.message);
}

static aoticache_index_eviction evict(aoticache_index *index, struct victims *victims)
{
    aoticache_index_eviction eviction = {.tried = 0};
    aoticache_error error = {.message = ""};
    cr_assert_eq(
        aoticache_index_evict(index, victims->items, victims->count, NULL, 0, 1000000000, false, &eviction, &error),
        AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(eviction.tried, victims->count);
    return eviction;
}

/* Runs SQLite's own check, compares the totals with counts, and checks all relations between the tables. */
static void must_be_sound(aoticache_index *index)
{
    aoticache_error error = {.message = ""};
    bool completed = false;
    cr_assert_eq(index_verify(index, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_index_check_integrity(index, true, NULL, NULL, &completed, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert(completed);
}

static size_t list_waiting(aoticache_index *index, aoticache_index_removal ret_waiting[MANY])
{
    size_t count = 0;
    cr_assert_eq(aoticache_index_list_removals(index, INT64_MIN, ret_waiting, MANY, &count, NULL), AOTICACHE_OK);
    return count;
}

struct group {
    int64_t entries, bytes;
};

static bool see_group(void *user, const char *name, const aoticache_index_group *group)
{
    struct group *all = user;
    (void)name;
    all->entries += group->entries;
    all->bytes += group->bytes;
    return true;
}

static struct group read_groups(aoticache_index *index)
{
    struct group all = {.entries = 0};
    cr_assert_eq(aoticache_index_list_groups(index, AOTICACHE_INDEX_GROUP_OPERATOR, false, see_group, &all, NULL),
                 AOTICACHE_OK);
    return all;
}

Test(evict, looked_up_entry_goes_with_all_that_it_alone_needs)
{
    aoticache_index *index = fixture_must_open();
    struct victims victims;
    aoticache_index_removal waiting[MANY];
    put_numbers(index, 1, 11, 21);
    put_numbers(index, 2, 12, 22);
    look_up_all(index, &victims);
    cr_assert_eq(victims.count, 2);
    cr_assert(victims.items[0].is_there);
    cr_assert_eq(victims.items[0].object_count, 2);
    const aoticache_digest manifest = digest_of(11), library = digest_of(21);
    cr_assert(aoticache_digest_equal(&victims.items[0].objects[0].digest, &manifest), "the manifest is the first");
    cr_assert(aoticache_digest_equal(&victims.items[0].objects[1].digest, &library));
    victims.count = 1;
    const aoticache_index_eviction eviction = evict(index, &victims);
    cr_assert(victims.items[0].is_gone);
    cr_assert_eq(eviction.entries, 1);
    cr_assert_eq(eviction.objects, 2);
    cr_assert_eq(eviction.bytes, 1100);
    aoticache_index_hit hit;
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_NOT_FOUND);
    cr_assert_not(has_object_number(index, 11));
    cr_assert_not(has_object_number(index, 21));
    cr_assert_eq(list_waiting(index, waiting), 2);
    cr_assert_eq(waiting[0].kind, AOTICACHE_INDEX_REMOVAL_MANIFEST);
    cr_assert(aoticache_digest_equal(&waiting[0].object, &manifest));
    cr_assert_eq(waiting[0].bytes, 100);
    cr_assert_eq(waiting[1].kind, AOTICACHE_INDEX_REMOVAL_FILE);
    cr_assert_eq(waiting[1].bytes, 1000);
    cr_assert_eq(read_groups(index).entries, 1);
    cr_assert_eq(read_groups(index).bytes, 1100);
    must_be_sound(index);
    aoticache_index_close(index);
}

Test(evict, what_was_used_pinned_or_removed_since_stays_or_is_left)
{
    aoticache_index *index = fixture_must_open();
    struct victims victims;
    for (uint32_t i = 1; i <= 4; i++)
        put_numbers(index, i, 10 + i, 20 + i);
    look_up_all(index, &victims);
    const aoticache_index_tally use = {
        .entry_id = victims.items[0].entry_id, .last_used_ns = victims.items[0].last_used_ns + 1, .uses = 1, .hits = 1};
    const aoticache_index_deltas deltas = {.now_ns = 1000000000, .tallies = &use, .tally_count = 1};
    cr_assert_eq(aoticache_index_flush_deltas(index, &deltas, true, NULL), AOTICACHE_OK);
    const aoticache_index_pins mark = {.key = digest_of(2), .is_pinned = true};
    cr_assert_eq(aoticache_index_put_pins(index, &mark, 1, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_remove_entry(index, victims.items[2].entry_id, NULL, NULL), AOTICACHE_OK);
    const aoticache_index_eviction eviction = evict(index, &victims);
    cr_assert_eq(eviction.entries, 1);
    cr_assert_not(victims.items[0].is_gone, "used");
    cr_assert_not(victims.items[1].is_gone, "pinned");
    cr_assert_not(victims.items[2].is_gone, "removed by somebody else");
    cr_assert(victims.items[3].is_gone);
    cr_assert_eq(must_read_totals(index).entries, 2);
    cr_assert_eq(read_groups(index).entries, 2);
    must_be_sound(index);
    aoticache_index_close(index);
}

Test(evict, objects_that_others_came_to_need_stay)
{
    aoticache_index *index = fixture_must_open();
    struct victims victims;
    aoticache_index_removal waiting[MANY];
    put_numbers(index, 1, 11, 21); /* another artifact will have its library */
    put_numbers(index, 2, 12, 22); /* another entry will have its artifact */
    look_up_all(index, &victims);
    put_numbers(index, 3, 13, 21);
    put_numbers(index, 4, 12, 22);
    const aoticache_index_eviction eviction = evict(index, &victims);
    cr_assert_eq(eviction.entries, 2);
    cr_assert_eq(eviction.objects, 1);
    cr_assert_not(has_object_number(index, 11));
    cr_assert(has_object_number(index, 21));
    cr_assert(has_object_number(index, 12));
    cr_assert(has_object_number(index, 22));
    cr_assert_eq(list_waiting(index, waiting), 1);
    must_be_sound(index);
    look_up_all(index, &victims);
    cr_assert_eq(victims.count, 2);
    cr_assert_eq(evict(index, &victims).objects, 4);
    cr_assert_eq(must_read_totals(index).objects, 0);
    must_be_sound(index);
    aoticache_index_close(index);
}

Test(evict, entry_with_more_objects_than_are_looked_up_goes_whole)
{
    aoticache_index *index = fixture_must_open();
    struct victims victims;
    aoticache_index_object objects[AOTICACHE_INDEX_VICTIM_OBJECTS + 2];
    sample with;
    sample_make(&with, 1, 11, 21);
    for (uint32_t i = 0; i < AOTICACHE_INDEX_VICTIM_OBJECTS + 2; i++)
        objects[i] = i < 2 ? with.objects[i] : (aoticache_index_object){digest_of(30 + i), 10};
    with.entry.objects = objects;
    with.entry.object_count = AOTICACHE_INDEX_VICTIM_OBJECTS + 2;
    with.entry.file_count = AOTICACHE_INDEX_VICTIM_OBJECTS + 1;
    must_put(index, &with);
    look_up_all(index, &victims);
    cr_assert(victims.items[0].is_there);
    cr_assert_eq(victims.items[0].object_count, 0);
    cr_assert_eq(evict(index, &victims).objects, AOTICACHE_INDEX_VICTIM_OBJECTS + 2);
    cr_assert(victims.items[0].is_gone);
    must_be_sound(index);
    aoticache_index_close(index);
}

Test(evict, look_up_says_what_is_not_there)
{
    aoticache_index *index = fixture_must_open();
    aoticache_index_victim victim = {.entry_id = 4711, .key = digest_of(1)};
    put_numbers(index, 1, 11, 21);
    cr_assert_eq(aoticache_index_look_up(index, &victim, 1, NULL), AOTICACHE_OK);
    cr_assert_not(victim.is_there);
    cr_assert_eq(victim.object_count, 0);
    aoticache_index_close(index);
}

/* ---- the log ---- */

static off_t log_bytes(void)
{
    char path[sizeof fixture_path + 8];
    struct stat found = {.st_size = -1};
    snprintf(path, sizeof path, "%s-wal", fixture_path);
    stat(path, &found);
    return found.st_size;
}

Test(evict, log_is_not_merged_during_a_collection_and_cut_after_it)
{
    aoticache_index *index = fixture_must_open(), *beside = fixture_must_open();
    const off_t kept = 16 << 20;
    aoticache_error error = {.message = ""};
    put_numbers(index, 1, 11, 21);
    aoticache_index_prepare_collection(index, 16 << 10);
    cr_assert_eq(aoticache_index_bulk_begin(index, &error), AOTICACHE_OK, "%s", error.message);
    for (uint32_t i = 0; i < 40000; i++)
        put_numbers(index, 100 + i, 100000 + i, 200000 + i);
    cr_assert_eq(aoticache_index_bulk_end(index, AOTICACHE_OK, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_gt(log_bytes(), kept);
    aoticache_index_checkpoint(beside);
    cr_assert_gt(log_bytes(), kept, "merged, and as long as it was");
    aoticache_index_prepare_collection(index, 0);
    put_numbers(index, 2, 12, 22);
    cr_assert_leq(log_bytes(), kept, "a log that begins anew is cut");
    must_be_sound(index);
    aoticache_index_close(beside);
    aoticache_index_close(index);
}
