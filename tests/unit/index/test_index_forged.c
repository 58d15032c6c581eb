/*
 * index/: files next to the index that another user has made. Whatever they contain, no other file is opened or
 * deleted, nothing waits for ever, and the message names their owner.
 */
#include "index_fixture.h"

#include <errno.h>
#include <stdint.h>

#include "index/connection/connection_internal.h"

TestSuite(index_forged, .init = fixture_make, .fini = fixture_remove, .timeout = 60);

static void put_number(uint8_t bytes[4], uint32_t value)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(value >> (24 - 8 * i));
}

static const char *beside(const char *suffix)
{
    static char path[450];
    snprintf(path, sizeof path, "%s%s", fixture_path, suffix);
    return path;
}

/*
 * Writes a journal to be rolled back, without pages, with a super-journal: a header of one sector, then the record that
 * https://sqlite.org/fileformat.html describes ("the super-journal name is ... at the end").
 */
static void forge_journal(const char *super)
{
    static const uint8_t magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    const uint32_t page = 4096, length = (uint32_t)strlen(super);
    uint8_t header[512] = {0}, tail[20];
    struct stat index;
    uint32_t sum = 0;
    cr_assert_eq(stat(fixture_path, &index), 0);
    memcpy(header, magic, sizeof magic);
    put_number(header + 16, (uint32_t)(index.st_size / page));
    put_number(header + 20, sizeof header);
    put_number(header + 24, page);
    for (const char *c = super; *c != '\0'; c++)
        sum += (uint32_t)(int8_t)*c;
    put_number(tail, 0x40000000 / page + 1);
    put_number(tail + 4, length);
    put_number(tail + 8, sum);
    memcpy(tail + 12, magic, sizeof magic);
    FILE *file = fopen(beside("-journal"), "w");
    cr_assert_not_null(file);
    fwrite(header, 1, sizeof header, file);
    fwrite(tail, 1, 4, file);
    fwrite(super, 1, length, file);
    fwrite(tail + 4, 1, 16, file);
    cr_assert_eq(fclose(file), 0);
}

static const char *make_victim(const char *text)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/victim", fixture_dir);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void make_index(const char *journal_mode)
{
    char sql[64];
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_index_close(index);
    snprintf(sql, sizeof sql, "PRAGMA journal_mode=%s", journal_mode);
    fixture_sql(sql);
}

static void expect_survival(const char *journal_mode, const char *victim_text)
{
    make_index(journal_mode);
    const char *victim = make_victim(victim_text);
    aoticache_index *index = NULL;
    aoticache_error error = {.message = ""};
    forge_journal(victim);
    aoticache_status status = fixture_open(false, &index, &error);
    cr_assert_eq(access(victim, F_OK), 0, "%s: the file that the journal names was deleted", journal_mode);
    cr_assert_eq(status, AOTICACHE_CORRUPT, "%s: %s", aoticache_status_name(status), error.message);
    cr_assert_not_null(strstr(error.message, victim), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "forged"), "%s", error.message);
    cr_assert_eq(access(beside("-journal"), F_OK), 0, "it is kept for people to look at");
}

Test(index_forged, forgery_is_one_that_sqlite_believes)
{
    sqlite3 *db;
    make_index("DELETE");
    const char *victim = make_victim("anything");
    forge_journal(victim);
    cr_assert_eq(sqlite3_open(fixture_path, &db), SQLITE_OK);
    sqlite3_exec(db, "SELECT count(*) FROM entries", NULL, NULL, NULL);
    sqlite3_close(db);
    cr_assert_neq(access(victim, F_OK), 0, "the other tests here show nothing");
}

Test(index_forged, journal_that_names_a_file_deletes_nothing)
{
    expect_survival("DELETE", "anything");
}

Test(index_forged, journal_next_to_an_index_with_a_log_deletes_nothing)
{
    expect_survival("WAL", "anything");
}

Test(index_forged, journal_deletes_nothing_for_who_only_reads)
{
    aoticache_index *index = NULL;
    make_index("DELETE");
    const char *victim = make_victim("anything");
    forge_journal(victim);
    cr_assert_eq(fixture_open(true, &index, NULL), AOTICACHE_DENIED, "nothing is rolled back by who may not write");
    cr_assert_eq(access(victim, F_OK), 0);
}

/* A super-journal lists journals, each of which SQLite opens and reads. */
Test(index_forged, journal_that_names_a_list_of_journals_deletes_nothing)
{
    expect_survival("DELETE", "/etc/hostname");
}

/* Next to an open index: the next reader rolls it back. */
Test(index_forged, journal_that_comes_later_deletes_nothing)
{
    aoticache_index_hit hit;
    aoticache_error error = {.message = ""};
    make_index("DELETE");
    aoticache_index *index = fixture_must_open();
    cr_assert_eq(lookup_number(index, 1, &hit, &error), AOTICACHE_OK, "%s", error.message);
    const char *victim = make_victim("anything");
    forge_journal(victim);
    aoticache_status status = lookup_number(index, 1, &hit, &error);
    cr_assert_eq(access(victim, F_OK), 0);
    cr_assert_eq(status, AOTICACHE_CORRUPT, "%s: %s", aoticache_status_name(status), error.message);
    aoticache_index_close(index);
}

/* The directory that was checked is opened, not another one with its name. */
Test(index_forged, directory_that_was_exchanged_is_not_opened)
{
    char elsewhere[300];
    make_index("DELETE");
    int directory = open(fixture_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(elsewhere, sizeof elsewhere, "%s-elsewhere", fixture_dir);
    cr_assert_eq(rename(fixture_dir, elsewhere), 0);
    cr_assert_eq(mkdir(fixture_dir, 0700), 0);
    aoticache_index_options options = {.path = fixture_path, .lock_timeout_ms = 1000, .directory_fd = &directory};
    aoticache_index *index = NULL;
    aoticache_index_hit hit;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_index_open(&options, &index, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(lookup_number(index, 1, &hit, &error), AOTICACHE_OK, "%s", error.message);
    put_numbers(index, 2, 20, 21);
    aoticache_index_close(index);
    close(directory);
    cr_assert_eq(rmdir(fixture_dir), 0, "nothing was made in it");
    cr_assert_eq(rename(elsewhere, fixture_dir), 0);
}

/* SQLite keeps the name of shared memory that its first user had, and deletes that name when the last user closes. */
Test(index_forged, second_index_outlives_the_first)
{
    struct stat found;
    char other[300], name[400];
    aoticache_index *first = fixture_must_open();
    put_numbers(first, 1, 10, 11);
    aoticache_index *second = fixture_must_open();
    put_numbers(second, 2, 20, 21);
    aoticache_index_close(first);
    snprintf(other, sizeof other, "%s/other", fixture_dir);
    snprintf(name, sizeof name, "%s/index.sqlite3", other);
    cr_assert_eq(mkdir(other, 0700), 0);
    aoticache_index_options options = {.path = name, .lock_timeout_ms = 1000};
    aoticache_index *third = NULL;
    cr_assert_eq(aoticache_index_open(&options, &third, NULL), AOTICACHE_OK);
    put_numbers(third, 3, 30, 31);
    aoticache_index_close(second);
    cr_assert_eq(stat(beside("-shm"), &found), -1, "the last one takes it away");
    snprintf(name, sizeof name, "%s/index.sqlite3-shm", other);
    cr_assert_eq(stat(name, &found), 0, "of another directory, and in use");
    aoticache_index_close(third);
    snprintf(name, sizeof name, "rm -r '%s'", other);
    cr_assert_eq(system(name), 0);
}

static void expect_refusal(const char *suffix, aoticache_status wanted)
{
    aoticache_index *index = NULL;
    aoticache_error error = {.message = ""};
    aoticache_status status = fixture_open(false, &index, &error);
    if (status == AOTICACHE_OK) {
        aoticache_index_hit hit;
        status = lookup_number(index, 1, &hit, &error);
        aoticache_index_close(index);
    }
    cr_expect_eq(status, wanted, "%s: %s: %s", suffix, aoticache_status_name(status), error.message);
}

Test(index_forged, links_are_not_followed)
{
    char text[16] = "";
    const char *victim = make_victim("anything");
    make_index("DELETE");
    cr_assert_eq(symlink(victim, beside("-journal")), 0);
    expect_refusal("-journal", AOTICACHE_DENIED);
    unlink(beside("-journal"));
    make_index("WAL");
    cr_assert_eq(symlink(victim, beside("-wal")), 0);
    expect_refusal("-wal", AOTICACHE_DENIED);
    unlink(beside("-wal"));
    FILE *file = fopen(victim, "r");
    cr_assert_not_null(file);
    cr_assert_not_null(fgets(text, sizeof text, file));
    fclose(file);
    cr_assert_str_eq(text, "anything");
}

Test(index_forged, nobody_waits_for_a_fifo)
{
    static const char *const suffixes[] = {"-journal", "-wal"};
    for (int i = 0; i < 2; i++) {
        make_index(i == 0 ? "DELETE" : "WAL");
        cr_assert_eq(mkfifo(beside(suffixes[i]), 0600), 0);
        expect_refusal(suffixes[i], AOTICACHE_DENIED);
        unlink(beside(suffixes[i]));
    }
}
