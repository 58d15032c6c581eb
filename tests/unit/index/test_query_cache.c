/*
 * index/query_cache/query_cache: the next process gets the same results without SQLite, until something has changed.
 */
#include "query_cache_fixture.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/names.h"
#include "base/syscalls.h"
#include "index/entries/judgements.h"
#include "tests/helpers/index.h"

TestSuite(query_cache, .init = make_fixture, .fini = fixture_remove, .timeout = 300);

/* ---- all queries ---- */

struct said {
    char text[4000];
    size_t used;
    int64_t entry; /* the entry of key 2 */
};

static void say(struct said *said, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct said *said, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    said->used += (size_t)vsnprintf(said->text + said->used, sizeof said->text - said->used, format, arguments);
    va_end(arguments);
    cr_assert_lt(said->used, sizeof said->text);
}

static void say_digest(struct said *said, const aoticache_digest *digest)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    say(said, " %s", hex);
}

static void say_hit(struct said *said, const aoticache_index_hit *hit)
{
    say(said, "hit %lld %llu %llu %u %llu %02x%02x", (long long)hit->entry_id, (unsigned long long)hit->library_bytes,
        (unsigned long long)hit->content_offset, hit->file_count, (unsigned long long)hit->compile_ns,
        hit->requirements[0], hit->requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES - 1]);
    say_digest(said, &hit->artifact);
    say_digest(said, &hit->library);
    say(said, "\n");
}

static bool see_stored(void *user, const aoticache_index_stored *stored)
{
    struct said *said = user;
    say(said, "stored %lld %lld %lld %llu %02x%02x %s '%.*s'", (long long)stored->entry_id, (long long)stored->rank,
        (long long)stored->created_ns, (unsigned long long)stored->compile_ns, stored->requirements[0],
        stored->requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES - 1], stored->guard, (int)stored->encoding_size,
        (const char *)stored->encoding);
    say_digest(said, &stored->key);
    say_digest(said, &stored->artifact);
    say(said, "\n");
    return true;
}

static bool see_one(void *user, const aoticache_index_stored *stored)
{
    (void)stored;
    ++*(int *)user;
    return false;
}

static bool see_judgement(void *user, const aoticache_index_judgement *judgement)
{
    say(user, "judgement %s %u %u %d %llu %llu %lld", judgement->machine, judgement->threads, judgement->size,
        judgement->is_slower, (unsigned long long)judgement->kernel_ns, (unsigned long long)judgement->fallback_ns,
        (long long)judgement->judged_ns);
    say_digest(user, &judgement->key);
    say(user, "\n");
    return true;
}

static struct said ask_all(aoticache_index *index)
{
    struct said said = {.used = 0};
    aoticache_error error = {.message = ""};
    aoticache_index_hit hit;
    cleanup_free char *guard = NULL;
    for (uint32_t key = 1; key <= 3; key++) {
        const aoticache_digest digest = digest_of(key);
        size_t count = 0;
        cr_assert_eq(aoticache_index_lookup(index, &digest, &hit, 1, &count, &error), AOTICACHE_OK, "%s",
                     error.message);
        cr_assert_eq(count, 1);
        say_hit(&said, &hit);
        said.entry = key == 2 ? hit.entry_id : said.entry;
        cr_assert_eq(aoticache_index_list_judgements(index, &digest, see_judgement, &said, &error), AOTICACHE_OK);
    }
    cr_assert_eq(aoticache_index_lookup_entry(index, said.entry, &hit, &error), AOTICACHE_OK, "%s", error.message);
    say_hit(&said, &hit);
    cr_assert_eq(aoticache_index_read_guard(index, said.entry, &guard, &error), AOTICACHE_OK, "%s", error.message);
    say(&said, "guard %s\n", guard);
    cr_assert_eq(aoticache_index_list_stored(index, "aten::abs", 0, 100, see_stored, &said, &error), AOTICACHE_OK);
    return said;
}

static void note_judgements(void)
{
    aoticache_index *index = fixture_must_open();
    const aoticache_index_judgement judgements[] = {
        {.key = digest_of(1), .machine = "a machine", .threads = 1, .kernel_ns = 10, .fallback_ns = 20, .judged_ns = 5},
        {.key = digest_of(1),
         .machine = "b",
         .threads = 2,
         .size = 3,
         .is_slower = true,
         .kernel_ns = 7,
         .judged_ns = 6},
    };
    cr_assert_eq(aoticache_index_put_judgements(index, judgements, 2, 1000, NULL), AOTICACHE_OK);
    aoticache_index_close(index);
    usleep(TICK_US);
}

/* Makes an index with a query cache, and returns the results. */
static struct said make_query_cache(void)
{
    make_index();
    note_judgements();
    aoticache_index *index = fixture_must_open();
    cr_assert(is_connected());
    const struct said said = ask_all(index);
    aoticache_index_close(index);
    cr_assert_gt(query_cache_size(), HEADER_BYTES);
    return said;
}

Test(query_cache, the_next_process_is_told_the_same_without_a_connection)
{
    const struct said first = make_query_cache();
    for (int i = 0; i < 2; i++) {
        aoticache_index *index = fixture_must_open();
        const struct said again = ask_all(index);
        cr_expect_not(is_connected());
        cr_expect_str_eq(first.text, again.text);
        int rows = 0;
        cr_expect_eq(aoticache_index_list_stored(index, "aten::abs", 0, 100, see_one, &rows, NULL), AOTICACHE_OK);
        cr_expect_eq(rows, 1, "the function had enough of it");
        cr_expect_not(is_connected());
        aoticache_index_close(index);
    }
    struct stat found;
    cr_assert_eq(stat(query_cache_path, &found), 0);
    cr_expect_eq(found.st_mode & 07777, 0600);
}

Test(query_cache, another_question_is_asked_and_its_answer_kept_too)
{
    make_query_cache();
    const off_t before = query_cache_size();
    aoticache_index *index = fixture_must_open();
    cr_expect_eq(library_of(index, 4), 1004);
    cr_expect(is_connected());
    aoticache_index_close(index);
    cr_expect_gt(query_cache_size(), before);
    index = fixture_must_open();
    cr_expect_eq(library_of(index, 4), 1004);
    ask_all(index);
    cr_expect_not(is_connected(), "the earlier answers are still there");
    cr_expect_eq(library_of(index, 99), NOTHING_FOUND);
    cr_expect(is_connected(), "that there is nothing is not kept");
    aoticache_index_close(index);
}

Test(query_cache, where_nothing_is_asked_again_nothing_is_written)
{
    struct stat before, after;
    make_query_cache();
    cr_assert_eq(stat(query_cache_path, &before), 0);
    usleep(TICK_US);
    aoticache_index *index = fixture_must_open();
    ask_all(index);
    aoticache_index_close(index);
    cr_assert_eq(stat(query_cache_path, &after), 0);
    cr_expect_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}

Test(query_cache, at_exit_they_are_kept_without_closing)
{
    make_index();
    aoticache_index *index = fixture_must_open();
    library_of(index, 1);
    aoticache_index_at_exit(index);
    cr_expect_gt(query_cache_size(), HEADER_BYTES);
    aoticache_index_close(index);
}

Test(query_cache, at_exit_the_log_is_merged_so_that_the_next_process_can_keep_them)
{
    aoticache_index *writer = fixture_must_open();
    put_numbers(writer, 1, 101, 1001);
    cr_assert(is_there("-wal"));
    aoticache_index_at_exit(writer);
    cr_expect_not(is_there("-wal"), "one page is enough");
    usleep(TICK_US);
    aoticache_index *index = fixture_must_open();
    library_of(index, 1);
    aoticache_index_at_exit(index);
    cr_expect_gt(query_cache_size(), HEADER_BYTES);
    aoticache_index_close(index);
    cr_expect_eq(library_of(writer, 1), 1001, "it connects again");
    aoticache_index_close(writer);
}

/* ---- changes ---- */

Test(query_cache, a_change_shows_at_the_next_question_whoever_has_the_index_open)
{
    make_query_cache();
    aoticache_index *told = fixture_must_open(), *writer = fixture_must_open();
    cr_expect_eq(library_of(told, 1), 1001);
    cr_expect_not(is_connected());
    put_numbers(writer, 1, 201, 2001);
    cr_expect_eq(library_of(told, 1), 2001, "the change is in the log");
    put_numbers(writer, 1, 202, 2002);
    cr_expect_eq(library_of(told, 1), 2002);
    aoticache_index_close(writer);
    aoticache_index_close(told);
    told = fixture_must_open();
    cr_expect_eq(library_of(told, 1), 2002, "the log is merged");
    cr_expect(is_connected());
    aoticache_index_close(told);
}

Test(query_cache, a_change_that_was_merged_shows_in_an_index_that_was_open)
{
    make_query_cache();
    aoticache_index *told = fixture_must_open();
    cr_expect_eq(library_of(told, 1), 1001);
    aoticache_index *writer = fixture_must_open();
    put_numbers(writer, 1, 201, 2001);
    aoticache_index_close(writer);
    cr_assert_not(is_there("-wal"));
    cr_expect_eq(library_of(told, 1), 2001);
    aoticache_index_close(told);
}

Test(query_cache, what_is_removed_is_not_found)
{
    uint64_t removed = 0;
    const aoticache_digest library = digest_of(1001);
    make_query_cache();
    aoticache_index *told = fixture_must_open(), *writer = fixture_must_open();
    cr_expect_eq(library_of(told, 1), 1001);
    cr_assert_eq(aoticache_index_remove_object(writer, &library, &removed, NULL), AOTICACHE_OK);
    cr_assert_eq(removed, 1);
    cr_expect_eq(library_of(told, 1), NOTHING_FOUND);
    cr_expect_eq(library_of(told, 2), 1002);
    aoticache_index_close(writer);
    aoticache_index_close(told);
}

Test(query_cache, an_index_that_was_replaced_is_asked)
{
    char other[500];
    make_query_cache();
    aoticache_index *told = fixture_must_open();
    cr_expect_eq(library_of(told, 1), 1001);
    snprintf(other, sizeof other, "%s.other", fixture_path);
    cr_assert_eq(rename(fixture_path, other), 0);
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 201, 3001);
    aoticache_index_close(index);
    index = fixture_must_open();
    cr_expect_eq(library_of(index, 1), 3001);
    aoticache_index_close(index);
    cr_expect_eq(library_of(told, 1), 3001);
    aoticache_index_close(told);
}

/* A change in the same tick of the clock could not be detected. */
Test(query_cache, what_was_changed_just_now_is_not_kept)
{
    fixture_ahead = 0;
    make_index();
    aoticache_index *index = fixture_must_open();
    library_of(index, 1);
    aoticache_index_close(index);
    cr_expect_eq(query_cache_size(), -1);
    usleep(2100000);
    index = fixture_must_open();
    library_of(index, 1);
    aoticache_index_close(index);
    cr_expect_gt(query_cache_size(), HEADER_BYTES);
}

Test(query_cache, a_process_that_changed_the_index_keeps_nothing)
{
    make_index();
    aoticache_index *index = fixture_must_open();
    library_of(index, 1);
    put_numbers(index, 9, 109, 1009);
    library_of(index, 2);
    aoticache_index_close(index);
    cr_expect_eq(query_cache_size(), -1);
}

/* The change was never written to a file. */
Test(query_cache, what_was_taken_back_is_not_kept)
{
    make_index();
    aoticache_index *index = fixture_must_open();
    cr_assert_eq(aoticache_index_bulk_begin(index, NULL), AOTICACHE_OK);
    put_numbers(index, 1, 201, 2001);
    cr_expect_eq(library_of(index, 1), 2001);
    aoticache_index_bulk_end(index, AOTICACHE_IO, NULL);
    cr_expect_eq(library_of(index, 2), 1002);
    aoticache_index_close(index);
    index = fixture_must_open();
    cr_expect_eq(library_of(index, 1), 1001);
    aoticache_index_close(index);
    index = fixture_must_open();
    cr_expect_eq(library_of(index, 1), 1001);
    cr_expect_not(is_connected());
    aoticache_index_close(index);
}

Test(query_cache, what_another_process_changed_meanwhile_keeps_nothing)
{
    make_index();
    aoticache_index *asks = fixture_must_open(), *writer = fixture_must_open();
    library_of(asks, 1);
    put_numbers(writer, 2, 202, 2002);
    library_of(asks, 2);
    aoticache_index_at_exit(asks);
    cr_expect_eq(query_cache_size(), -1, "the change is in the log");
    aoticache_index_close(asks);
    aoticache_index_close(writer);
    cr_expect_eq(query_cache_size(), -1);
}

/* Each reader reads the committed value before it queries: a result may be newer, never older. */
Test(query_cache, none_is_older_than_the_question)
{
    enum { READERS = 3, CHANGES = 4 };
    fixture_ahead = 0;
    make_index();
    _Atomic uint32_t *committed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(committed, MAP_FAILED);
    *committed = 1001;
    pid_t readers[READERS];
    for (int i = 0; i < READERS; i++) {
        readers[i] = fork();
        if (readers[i] != 0)
            continue;
        bool was_told = false;
        for (uint32_t least = 0; least < 1001 + CHANGES;) {
            aoticache_index *index = fixture_must_open();
            for (int n = 0; n < 5; n++) {
                least = *committed;
                if (library_of(index, 1) < least)
                    _exit(1);
                was_told = was_told || !is_connected();
                usleep(500);
            }
            aoticache_index_close(index);
            usleep(2000);
        }
        _exit(was_told ? 0 : 2);
    }
    for (uint32_t change = 1; change <= CHANGES; change++) {
        usleep(change % 2 == 0 ? 300000 : 2600000); /* results are kept only after two seconds */
        aoticache_index *writer = fixture_must_open();
        put_numbers(writer, 1, 200 + change, 1001 + change);
        *committed = 1001 + change;
        usleep(50000);
        aoticache_index_close(writer);
    }
    for (int i = 0; i < READERS; i++) {
        int status;
        cr_assert_eq(waitpid(readers[i], &status, 0), readers[i]);
        cr_expect(WIFEXITED(status));
        cr_expect_eq(WEXITSTATUS(status), 0, "1: an old answer; 2: no question without a connection");
    }
    munmap((void *)committed, 4096);
}

Test(query_cache, a_forked_child_is_told_too)
{
    make_query_cache();
    aoticache_index *index = fixture_must_open();
    cr_expect_eq(library_of(index, 1), 1001);
    pid_t child = fork();
    if (child == 0)
        _exit(library_of(index, 2) == 1002 && !is_connected() && library_of(index, 4) == 1004 ? 0 : 1);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    cr_expect_eq(library_of(index, 3), 1003);
    aoticache_index_close(index);
}

/* ---- a changed file ---- */

static void expect_right_answers(const struct said *right)
{
    aoticache_index *index = fixture_must_open();
    const struct said said = ask_all(index);
    cr_expect_str_eq(said.text, right->text);
    aoticache_index_close(index);
}

Test(query_cache, damage_of_any_byte_and_any_length_costs_the_answers_alone)
{
    static uint8_t bytes[AOTICACHE_QUERY_CACHE_MAX_BYTES + 16], damaged[sizeof bytes];
    const struct said right = make_query_cache();
    const size_t size = read_answers(bytes, sizeof bytes);
    for (size_t at = 0; at < size; at += at < 2 * HEADER_BYTES ? 1 : 17) {
        memcpy(damaged, bytes, size);
        damaged[at] ^= 0x21;
        write_answers(damaged, size);
        expect_right_answers(&right);
        write_answers(bytes, at);
        expect_right_answers(&right);
    }
    write_answers(bytes, sizeof bytes);
    expect_right_answers(&right);
    cr_expect_leq(query_cache_size(), AOTICACHE_QUERY_CACHE_MAX_BYTES, "a longer file is cut");
    write_answers(bytes, size);
    aoticache_index *index = fixture_must_open();
    library_of(index, 1);
    cr_expect_not(is_connected(), "the whole file is still good");
    aoticache_index_close(index);
}

/*
 * Damaged records with the right hash: sizes that point out of the file, results of other sizes, texts without an end.
 */
Test(query_cache, records_that_lie_lead_nowhere)
{
    static uint8_t bytes[AOTICACHE_QUERY_CACHE_MAX_BYTES], forged[sizeof bytes];
    const struct said right = make_query_cache();
    aoticache_index *with_fact = fixture_must_open();
    note_fact(with_fact, 7);
    aoticache_index_close(with_fact);
    const size_t size = read_answers(bytes, sizeof bytes);
    for (size_t at = HEADER_BYTES; at + 4 <= size; at += 4)
        for (int way = 0; way < 3; way++) {
            uint32_t value;
            memcpy(forged, bytes, size);
            memcpy(&value, forged + at, sizeof value);
            if (value == 0 || value > 4096) /* neither a size nor a kind */
                break;
            value = way == 0 ? UINT32_MAX : way == 1 ? value + 1 : value - 1;
            memcpy(forged + at, &value, sizeof value);
            hash_anew(forged, size);
            write_answers(forged, size);
            aoticache_index *index = fixture_must_open();
            aoticache_index_hit hit;
            const struct stat file = {.st_dev = 7, .st_ino = 8};
            aoticache_digest digest;
            cleanup_free char *guard = NULL;
            const aoticache_digest key = digest_of(2);
            size_t count = 0;
            /*
             * Lookups may return forged results: who can write this file can write the index. They read nothing beyond
             * the file.
             */
            aoticache_index_lookup(index, &key, &hit, 1, &count, NULL);
            aoticache_index_lookup_entry(index, right.entry, &hit, NULL);
            aoticache_index_read_guard(index, right.entry, &guard, NULL);
            int rows = 0;
            aoticache_index_list_stored(index, "aten::abs", 0, 100, see_one, &rows, NULL);
            aoticache_index_find_file_digest(index, 0, &file, &digest);
            const aoticache_digest judged = digest_of(1);
            struct said said = {.used = 0};
            aoticache_index_list_judgements(index, &judged, see_judgement, &said, NULL);
            has_fact(index, 7);
            aoticache_index_close(index);
        }
}

Test(query_cache, what_is_no_file_of_ours_is_not_read)
{
    static uint8_t bytes[AOTICACHE_QUERY_CACHE_MAX_BYTES];
    char other[600];
    const struct said right = make_query_cache();
    const size_t size = read_answers(bytes, sizeof bytes);
    snprintf(other, sizeof other, "%s/other", fixture_dir);
    for (int way = 0; way < 4; way++) {
        unlink(query_cache_path);
        if (way == 0) { /* a link to a valid file */
            write_answers(bytes, size);
            cr_assert_eq(rename(query_cache_path, other), 0);
            cr_assert_eq(symlink(other, query_cache_path), 0);
        } else if (way == 1) {
            cr_assert_eq(mkfifo(query_cache_path, 0600), 0);
        } else if (way == 2) { /* a second name */
            write_answers(bytes, size);
            unlink(other);
            cr_assert_eq(link(query_cache_path, other), 0);
        } else { /* others may write to it */
            write_answers(bytes, size);
            cr_assert_eq(chmod(query_cache_path, 0622), 0);
        }
        aoticache_index *index = fixture_must_open();
        const struct said said = ask_all(index);
        cr_expect(is_connected(), "way %d", way);
        cr_expect_str_eq(said.text, right.text);
        aoticache_index_close(index);
    }
}

Test(query_cache, an_index_that_others_may_write_to_is_asked)
{
    make_query_cache();
    cr_assert_eq(chmod(fixture_path, 0622), 0);
    aoticache_index *index = fixture_must_open();
    cr_expect_eq(library_of(index, 1), 1001);
    cr_expect(is_connected());
    aoticache_index_close(index);
}

/* ---- a full disk ---- */

static int fail_one(void *user, const char *call, const char *path)
{
    (void)path;
    return strcmp(call, user) == 0 ? ENOSPC : 0;
}

/* If SQLite has no space for its -shm file, opening the index for writing fails: then it is opened for reading. */
Test(query_cache, on_a_disk_that_is_full_the_rest_is_read)
{
    sample with;
    aoticache_error error = {.message = ""};
    make_query_cache();
    aoticache_index_syscall_hooks_install();
    aoticache_index *index = fixture_must_open();
    aoticache_syscall_hook_set(fail_one, (void *)"ftruncate");
    cr_expect_eq(library_of(index, 1), 1001);
    cr_expect_eq(fixture_log_lines, 0);
    cr_expect_eq(library_of(index, 4), 1004);
    cr_expect_eq(fixture_log_lines, 1);
    cr_expect_not_null(strstr(fixture_log_last, "the disk is full"), "%s", fixture_log_last);
    cr_expect_not_null(strstr(fixture_log_last, "opened for reading only"), "%s", fixture_log_last);
    aoticache_syscall_hook_set(NULL, NULL);
    sample_make(&with, 8, 108, 1008);
    cr_expect_eq(index_put(index, &with.entry, &error), AOTICACHE_DENIED, "%s", error.message);
    aoticache_index_close(index);
}

Test(query_cache, what_cannot_be_written_is_asked_again)
{
    static const char *const calls[] = {"open", "write"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const struct said right = make_query_cache();
        const off_t before = query_cache_size();
        aoticache_index *index = fixture_must_open();
        cr_assert_eq(library_of(index, 4), 1004);
        aoticache_syscall_hook_set(fail_one, (void *)calls[i]);
        aoticache_index_close(index);
        aoticache_syscall_hook_set(NULL, NULL);
        cr_expect_eq(query_cache_size(), i == 0 ? before : 0, "%s", calls[i]);
        expect_right_answers(&right);
        cr_expect_geq(query_cache_size(), before);
        unlink(query_cache_path);
        unlink(fixture_path);
    }
}

/* ---- too much for the file ---- */

Test(query_cache, there_is_an_end_to_what_is_kept_and_the_last_process_goes_before)
{
    enum { MANY = 600 };
    make_index();
    aoticache_index *index = fixture_must_open();
    for (uint32_t key = 10; key < 10 + MANY; key++)
        put_numbers(index, key, 10000 + key, 20000 + key);
    aoticache_index_close(index);
    usleep(TICK_US);
    index = fixture_must_open();
    for (uint32_t key = 10; key < 10 + MANY; key++)
        cr_assert_eq(library_of(index, key), 20000 + key);
    aoticache_index_close(index);
    cr_expect_leq(query_cache_size(), AOTICACHE_QUERY_CACHE_MAX_BYTES);
    cr_expect_gt(query_cache_size(), AOTICACHE_QUERY_CACHE_MAX_BYTES - 200);
    index = fixture_must_open();
    cr_expect_eq(library_of(index, 9 + MANY), 20000 + 9 + MANY, "it found no room");
    cr_expect(is_connected());
    aoticache_index_close(index);
    index = fixture_must_open();
    cr_expect_eq(library_of(index, 9 + MANY), 20000 + 9 + MANY);
    cr_expect_eq(library_of(index, 10), 20010);
    cr_expect_not(is_connected());
    aoticache_index_close(index);
    cr_expect_leq(query_cache_size(), AOTICACHE_QUERY_CACHE_MAX_BYTES);
}
