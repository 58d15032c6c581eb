/*
 * index/: damaged and malicious files. Whatever is in them, the result is a status, mostly CORRUPT, and never a crash,
 * a wrong digest or an endless loop.
 */
#include "index_fixture.h"

TestSuite(index_damage, .init = fixture_make, .fini = fixture_remove, .timeout = 600);

static void make_one(void)
{
    unlink(fixture_path);
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_index_failure failure = {.key = digest_of(2),
                                       .op = "aten::abs",
                                       .description = "float32 [2]",
                                       .message = "message",
                                       .failed_ns = 1,
                                       .retry_ns = 100};
    cr_assert_eq(aoticache_index_put_failure(index, &failure, NULL), AOTICACHE_OK);
    aoticache_index_count count = {"hits", 1};
    cr_assert_eq(aoticache_index_flush(index, NULL, 0, &count, 1, NULL), AOTICACHE_OK);
    aoticache_index_close(index);
}

static bool ignore_entry(void *user, const aoticache_index_entry *entry)
{
    size_t *sum = user;
    *sum += strlen(entry->op) + strlen(entry->device) + strlen(entry->description) + strlen(entry->producer) +
            strlen(entry->guard);
    return true;
}

static bool ignore_object(void *user, const aoticache_digest *digest, uint64_t bytes)
{
    (void)user;
    (void)digest;
    (void)bytes;
    return true;
}

static bool ignore_failure(void *user, const aoticache_index_failure *failure)
{
    size_t *sum = user;
    *sum += strlen(failure->op) + strlen(failure->description) + strlen(failure->message);
    return true;
}

static bool ignore_count(void *user, const char *name, uint64_t value)
{
    size_t *sum = user;
    *sum += strlen(name) + value;
    return true;
}

/* The result of each function, in the order below; 'r' only reads. */
typedef struct answers {
    aoticache_status lookup, list, objects, artifact, failure, failures, counts, totals, verify;
} answers;

static answers ask_everything(aoticache_index *index)
{
    answers got;
    size_t sum = 0, count;
    char *message = NULL;
    aoticache_index_hit hit;
    aoticache_index_object *objects = NULL;
    aoticache_index_totals totals;
    aoticache_digest artifact = digest_of(10), failed = digest_of(2);
    got.lookup = lookup_number(index, 1, &hit, NULL);
    got.list = aoticache_index_list(index, NULL, NULL, AOTICACHE_INDEX_ALL, ignore_entry, &sum, NULL);
    got.objects = index_list_objects(index, ignore_object, NULL, NULL);
    got.artifact = aoticache_index_artifact_objects(index, &artifact, &objects, &count, NULL);
    got.failure = aoticache_index_lookup_failure(index, &failed, 10, &message, NULL);
    got.failures = aoticache_index_list_failures(index, ignore_failure, &sum, NULL);
    got.counts = index_list_counts(index, ignore_count, &sum, NULL);
    got.totals = aoticache_index_read_totals(index, &totals, NULL);
    got.verify = index_verify(index, NULL);
    free(objects);
    free(message);
    return got;
}

static answers query_cache_after(const char *sql)
{
    make_one();
    fixture_sql(sql);
    aoticache_index *index = fixture_must_open();
    answers got = ask_everything(index);
    aoticache_index_close(index);
    return got;
}

Test(index_damage, undamaged_answers_ok)
{
    answers got = query_cache_after("SELECT 1");
    cr_assert_eq(got.lookup, AOTICACHE_OK);
    cr_assert_eq(got.list, AOTICACHE_OK);
    cr_assert_eq(got.artifact, AOTICACHE_OK);
    cr_assert_eq(got.failure, AOTICACHE_OK);
    cr_assert_eq(got.verify, AOTICACHE_OK);
}

Test(index_damage, digest_of_a_wrong_size_is_corrupt)
{
    answers got = query_cache_after("UPDATE entries SET artifact = x'00'");
    cr_assert_eq(got.lookup, AOTICACHE_CORRUPT);
    cr_assert_eq(got.list, AOTICACHE_CORRUPT);
    cr_assert_eq(got.failure, AOTICACHE_OK, "what is not damaged still answers");
}

Test(index_damage, huge_blob_is_corrupt_and_not_read)
{
    answers got = query_cache_after("UPDATE entries SET library = zeroblob(100000000)");
    cr_assert_eq(got.lookup, AOTICACHE_CORRUPT);
    cr_assert_eq(got.list, AOTICACHE_CORRUPT);
}

Test(index_damage, requirements_of_a_wrong_size_are_corrupt)
{
    answers got = query_cache_after("UPDATE entries SET requirements = x''");
    cr_assert_eq(got.lookup, AOTICACHE_CORRUPT);
    cr_assert_eq(got.list, AOTICACHE_CORRUPT);
}

Test(index_damage, negative_sizes_are_corrupt)
{
    answers got = query_cache_after("UPDATE entries SET library_bytes = -1");
    cr_assert_eq(got.lookup, AOTICACHE_CORRUPT);
    got = query_cache_after("UPDATE entries SET file_count = 4294967296");
    cr_assert_eq(got.lookup, AOTICACHE_CORRUPT);
    got = query_cache_after("UPDATE objects SET bytes = -1");
    cr_assert_eq(got.objects, AOTICACHE_CORRUPT);
    cr_assert_eq(got.artifact, AOTICACHE_CORRUPT);
    cr_assert_eq(got.verify, AOTICACHE_CORRUPT, "the totals do not fit");
    cr_assert_eq(query_cache_after("UPDATE details SET bytes = -1").list, AOTICACHE_CORRUPT);
    cr_assert_eq(query_cache_after("UPDATE objects SET parts = x'0102' WHERE entry <> 0").artifact, AOTICACHE_CORRUPT);
    got = query_cache_after("UPDATE totals SET bytes = -1");
    cr_assert_eq(got.totals, AOTICACHE_CORRUPT);
}

Test(index_damage, text_with_a_nul_inside_is_corrupt)
{
    answers got = query_cache_after("UPDATE details SET op = 'a' || char(0) || 'b';"
                                    "UPDATE failures SET message = char(0) || 'x'");
    cr_assert_eq(got.list, AOTICACHE_CORRUPT);
    cr_assert_eq(got.failure, AOTICACHE_CORRUPT);
    cr_assert_eq(got.failures, AOTICACHE_CORRUPT);
}

Test(index_damage, sums_that_overflow_are_corrupt)
{
    answers got = query_cache_after("UPDATE objects SET bytes = 9223372036854775807");
    cr_assert_eq(got.verify, AOTICACHE_CORRUPT);
}

Test(index_damage, missing_and_changed_tables_are_corrupt)
{
    answers got = query_cache_after("DROP TABLE counts; DROP TABLE meta");
    cr_assert_eq(got.counts, AOTICACHE_CORRUPT);
    cr_assert_eq(got.totals, AOTICACHE_CORRUPT);
    got = query_cache_after("DROP TABLE entries; CREATE TABLE entries(key)");
    cr_assert_eq(got.lookup, AOTICACHE_CORRUPT);
    got = query_cache_after(
        "DROP TABLE failures; CREATE TABLE failures(key, op, description, message, failed_ns, retry_ns);"
        "INSERT INTO failures VALUES(1, 2, 3, 4.5, NULL, x'00')");
    cr_assert_eq(got.failures, AOTICACHE_CORRUPT);
}

Test(index_damage, views_and_triggers_do_not_run)
{
    make_one();
    fixture_sql("DROP TABLE counts; CREATE VIEW counts AS SELECT key AS name, 1 AS value FROM entries;"
                "CREATE TRIGGER harm AFTER INSERT ON details BEGIN DELETE FROM entries; END");
    aoticache_index *index = fixture_must_open();
    cr_assert_eq(ask_everything(index).counts, AOTICACHE_CORRUPT);
    put_numbers(index, 5, 50, 51);
    aoticache_index_hit hit;
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_OK, "the trigger ran");
    aoticache_index_close(index);
}

Test(index_damage, removal_of_rows_that_contradict_each_other_ends)
{
    static const char *const damage[] = {"DELETE FROM entries", "UPDATE objects SET entry = 12345 WHERE entry <> 0",
                                         "UPDATE objects SET parts = x'' WHERE entry <> 0",
                                         "UPDATE objects SET parts = x'01' WHERE entry <> 0"};
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        make_one();
        fixture_sql(damage[i]);
        aoticache_index *index = fixture_must_open();
        aoticache_digest library = digest_of(11);
        aoticache_error error = {0};
        cr_expect_eq(aoticache_index_remove_object(index, &library, NULL, &error), AOTICACHE_CORRUPT, "%s: %s",
                     damage[i], error.message);
        cr_expect(has_object_number(index, 11), "%s: rolled back", damage[i]);
        aoticache_index_close(index);
    }
}

Test(index_damage, totals_that_do_not_fit_the_rows_are_found_by_verify)
{
    cr_assert_eq(query_cache_after("UPDATE totals SET entries = entries + 1").verify, AOTICACHE_CORRUPT);
    cr_assert_eq(query_cache_after("UPDATE totals SET bytes = bytes - 1").verify, AOTICACHE_CORRUPT);
    cr_assert_eq(query_cache_after("DELETE FROM totals").totals, AOTICACHE_CORRUPT);
}

static void overwrite_page(int page)
{
    char bytes[4096];
    memset(bytes, 0xff, sizeof bytes);
    int fd = open(fixture_path, O_WRONLY);
    cr_assert_eq(pwrite(fd, bytes, sizeof bytes, (off_t)(page - 1) * 4096), (ssize_t)sizeof bytes);
    close(fd);
}

static int root_page(const char *table)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    cr_assert_eq(sqlite3_open(fixture_path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db, "SELECT rootpage FROM sqlite_schema WHERE name = ?1", -1, &statement, NULL),
                 SQLITE_OK);
    sqlite3_bind_text(statement, 1, table, -1, SQLITE_STATIC);
    cr_assert_eq(sqlite3_step(statement), SQLITE_ROW);
    const int page = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return page;
}

Test(index_damage, overwritten_page_is_found_by_verify)
{
    make_one();
    overwrite_page(root_page("objects"));
    aoticache_index *index = fixture_must_open();
    aoticache_error error = {0};
    aoticache_index_hit hit;
    cr_assert_eq(index_verify(index, &error), AOTICACHE_CORRUPT);
    cr_assert_not_null(strstr(error.message, "damaged"), "%s", error.message);
    cr_assert_null(strchr(error.message, '\n'), "one line");
    cr_assert_eq(lookup_number(index, 1, &hit, &error), AOTICACHE_OK, "another table");
    cr_assert_eq(index_list_objects(index, ignore_object, NULL, &error), AOTICACHE_CORRUPT);
    aoticache_index_close(index);
}

/* SQLite searches a key backwards from its last row, and stops at a smaller key, which this one is not. */
Test(index_damage, row_whose_key_was_damaged_is_not_taken_for_another)
{
    make_one();
    aoticache_index *index = fixture_must_open();
    for (uint32_t i = 2; i <= 4; i++)
        put_numbers(index, i, 10 * i, 10 * i + 1);
    aoticache_index_close(index);
    char page[4096];
    const aoticache_digest key = digest_of(1);
    const off_t at = (off_t)(root_page("entries") - 1) * (off_t)sizeof page;
    int fd = open(fixture_path, O_RDWR);
    cr_assert_eq(pread(fd, page, sizeof page, at), (ssize_t)sizeof page);
    char *found = memmem(page, sizeof page, key.bytes, sizeof key.bytes);
    cr_assert_not_null(found);
    memset(found, 0xa5, sizeof key.bytes);
    cr_assert_eq(pwrite(fd, page, sizeof page, at), (ssize_t)sizeof page);
    close(fd);
    index = fixture_must_open();
    aoticache_index_hit hits[4];
    size_t count = 0;
    const aoticache_digest other = digest_of(2);
    cr_assert_eq(aoticache_index_lookup(index, &other, hits, 4, &count, NULL), AOTICACHE_CORRUPT);
    aoticache_index_close(index);
}

/* Opens and queries; every status is acceptable, crashing or hanging is not. */
static void ask_anything(void)
{
    aoticache_index *index = NULL;
    if (fixture_open(false, &index, NULL) != AOTICACHE_OK)
        return;
    ask_everything(index);
    sample with;
    sample_make(&with, 1, 20, 11);
    index_put(index, &with.entry, NULL);
    aoticache_index_remove_key(index, &with.entry.key, NULL, NULL);
    aoticache_index_close(index);
}

static size_t read_file(uint8_t *bytes, size_t capacity)
{
    FILE *file = fopen(fixture_path, "r");
    cr_assert_not_null(file);
    size_t size = fread(bytes, 1, capacity, file);
    fclose(file);
    return size;
}

Test(index_damage, flipped_bytes_never_crash)
{
    static uint8_t good[1 << 18], bad[1 << 18];
    make_one();
    size_t size = read_file(good, sizeof good);
    cr_assert_lt(size, sizeof good);
    uint64_t random = 0x9e3779b97f4a7c15;
    for (int round = 0; round < 200; round++) {
        memcpy(bad, good, size);
        for (int i = 0; i < 1 + round % 16; i++) {
            random = random * 6364136223846793005U + 1442695040888963407U;
            bad[(random >> 20) % size] = (uint8_t)(random >> 56);
        }
        fixture_write(bad, size);
        ask_anything();
    }
}

Test(index_damage, truncated_files_never_crash)
{
    static uint8_t good[1 << 18];
    make_one();
    size_t size = read_file(good, sizeof good);
    for (size_t cut = 0; cut < size; cut += 997) {
        fixture_write(good, cut);
        ask_anything();
    }
}
