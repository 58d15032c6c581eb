/*
 * index/query_cache/file_facts: facts about files that a process records are known to the next one, whatever happens to the
 * index.
 */
#include "query_cache_fixture.h"

#include <sys/wait.h>

TestSuite(file_facts, .init = make_fixture, .fini = fixture_remove, .timeout = 300);

/* Makes an index that an earlier process has queried twice. */
static void make_asked(void)
{
    make_index();
    aoticache_index *index = fixture_must_open();
    cr_assert_eq(library_of(index, 1), 1001);
    cr_assert_eq(library_of(index, 2), 1002);
    aoticache_index_close(index);
}

/* Records a fact about digest 7. */
static void make_fact(void)
{
    make_asked();
    aoticache_index *index = fixture_must_open();
    cr_expect_not(has_fact(index, 7));
    note_fact(index, 7);
    cr_expect(has_fact(index, 7), "this process has it at once");
    cr_expect_not(is_connected());
    aoticache_index_close(index);
}

Test(file_facts, they_stay_when_the_index_changes)
{
    make_fact();
    aoticache_index *index = fixture_must_open();
    cr_expect(has_fact(index, 7));
    cr_expect_not(has_fact(index, 8));
    put_numbers(index, 30, 31, 32);
    cr_expect(has_fact(index, 7), "with a connection too");
    note_fact(index, 8);
    aoticache_index_close(index);
    usleep(TICK_US);
    index = fixture_must_open();
    cr_expect(is_connected(), "answers are of another state");
    cr_expect(has_fact(index, 7));
    cr_expect(has_fact(index, 8), "who changes the index keeps facts too");
    library_of(index, 1);
    aoticache_index_close(index);
    index = fixture_must_open();
    cr_expect_eq(library_of(index, 1), 1001);
    cr_expect_not(is_connected());
    cr_expect(has_fact(index, 7), "it was taken over beside new answers");
    aoticache_query_cache_note_fact(index, AOTICACHE_INDEX_KEEPS_CHECKSUM, digest_of(7).bytes, AOTICACHE_DIGEST_BYTES,
                                    "x", 1);
    cr_expect(has_fact(index, 7), "one of another kind is another one");
    aoticache_index_close(index);
}

Test(file_facts, one_is_replaced_by_the_next_one_and_others_stay)
{
    static const char *const texts[] = {"another of the size", "longer than what was found out", "short"};
    uint8_t bytes[AOTICACHE_FILE_FACT_MAX_BYTES];
    const aoticache_digest seventh = digest_of(7);
    make_fact();
    for (size_t round = 0; round < 3; round++) {
        size_t size = 0;
        aoticache_index *index = fixture_must_open();
        cr_assert(aoticache_index_find_manifest_fact(index, &seventh, bytes, &size));
        note_fact(index, 6);
        aoticache_index_note_manifest_fact(index, &seventh, texts[round], strlen(texts[round]));
        note_fact(index, 8);
        library_of(index, 1);
        cr_expect_not(is_connected());
        aoticache_index_close(index);
        index = fixture_must_open();
        cr_assert(aoticache_index_find_manifest_fact(index, &seventh, bytes, &size));
        cr_expect_eq(size, strlen(texts[round]));
        cr_expect_eq(memcmp(bytes, texts[round], size), 0);
        cr_expect(has_fact(index, 6) && has_fact(index, 8));
        cr_expect_eq(library_of(index, 2), 1002);
        cr_expect_not(is_connected());
        aoticache_index_close(index);
    }
}

Test(file_facts, one_may_be_as_large_as_the_limit)
{
    static uint8_t bytes[AOTICACHE_FILE_FACT_MAX_BYTES + 1], found[sizeof bytes];
    size_t size = 0;
    const aoticache_digest largest = digest_of(20), larger = digest_of(21);
    make_asked();
    aoticache_index *index = fixture_must_open();
    aoticache_index_note_manifest_fact(index, &largest, bytes, sizeof bytes - 1);
    aoticache_index_note_manifest_fact(index, &larger, bytes, sizeof bytes);
    aoticache_index_close(index);
    index = fixture_must_open();
    cr_expect(aoticache_index_find_manifest_fact(index, &largest, found, &size));
    cr_expect_eq(size, AOTICACHE_FILE_FACT_MAX_BYTES);
    cr_expect_not(aoticache_index_find_manifest_fact(index, &larger, found, &size));
    aoticache_index_close(index);
}

Test(file_facts, a_forked_child_notes_them_too)
{
    make_fact();
    aoticache_index *index = fixture_must_open();
    pid_t child = fork();
    if (child == 0) {
        note_fact(index, 8);
        _exit(has_fact(index, 7) && has_fact(index, 8) ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    aoticache_index_close(index);
}

/* What another process wrote since this one opened the index stays, whichever of them has current answers. */
Test(file_facts, those_of_several_processes_are_merged)
{
    make_fact();
    aoticache_index *first = fixture_must_open(), *second = fixture_must_open();
    note_fact(first, 8);
    note_fact(second, 9);
    cr_expect_eq(library_of(second, 3), 1003);
    aoticache_index_close(second);
    aoticache_index_close(first);
    aoticache_index *index = fixture_must_open();
    cr_expect_eq(library_of(index, 3), 1003);
    cr_expect_not(is_connected());
    cr_expect(has_fact(index, 7) && has_fact(index, 8) && has_fact(index, 9));
    aoticache_index *changing = fixture_must_open();
    put_numbers(changing, 30, 31, 32);
    note_fact(index, 10);
    aoticache_index_close(index);
    note_fact(changing, 11);
    aoticache_index_close(changing);
    usleep(TICK_US);
    index = fixture_must_open();
    cr_expect_eq(library_of(index, 30), 32);
    for (uint32_t about = 7; about <= 11; about++)
        cr_expect(has_fact(index, about), "%u", about);
    aoticache_index_close(index);
}

Test(file_facts, those_of_another_boot_or_other_tables_are_not_trusted)
{
    static uint8_t bytes[AOTICACHE_QUERY_CACHE_MAX_BYTES];
    enum { VERSION_AT = 16, BOOT_AT = 24 };
    for (int way = 0; way < 3; way++) {
        make_fact();
        const size_t size = read_answers(bytes, sizeof bytes);
        bytes[way == 0 ? VERSION_AT : way == 1 ? BOOT_AT : BOOT_AT + 7]++;
        hash_anew(bytes, size);
        write_answers(bytes, size);
        aoticache_index *index = fixture_must_open();
        cr_expect_not(has_fact(index, 7), "way %d", way);
        aoticache_index_close(index);
        fixture_remove();
        make_fixture();
    }
}
