/* cache/remote: settings, records, lists and frames; servers are in test_remotes.sh and test_fleet.sh of tests/cli/remotes/. */
#include "tests/unit/fixtures/cache_fixture.h"

#include "cache/remote/remote_internal.h"

TestSuite(remote, .timeout = 60);

static void refused(const char *text, const char *wanted)
{
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_remotes_check(text, &error), AOTICACHE_INVALID, "%s", text);
    cr_assert_not_null(strstr(error.message, wanted), "%s: %s", text, error.message);
    cr_assert_null(strstr(error.message, "hunter2"), "%s: %s", text, error.message);
}

Test(remote, settings__are_read_in_their_order)
{
    aoticache_remote_config *configs = NULL;
    size_t count = 0;
    cr_assert_eq(
        aoticache_remote_configs_parse("redis://a:1/2 read-only timeout=250ms\thttps://b/c write-only unsigned=allow "
                                       "max-object=1G namespace=team unix:/run/r.sock s3://x/y?region=z "
                                       "mine:/there module=/opt/mine.so",
                                       &configs, &count, NULL),
        AOTICACHE_OK);
    cr_assert_eq(count, 5);
    cr_assert(configs[0].reads && !configs[0].writes && !configs[0].allow_unsigned);
    cr_assert_eq(configs[0].timeout_ms, 250);
    cr_assert_eq(configs[0].connect_timeout_ms, 250);
    cr_assert(!configs[1].reads && configs[1].writes && configs[1].allow_unsigned);
    cr_assert_eq(configs[1].max_object, UINT64_C(1) << 30);
    cr_assert_str_eq(configs[1].namespace_, "team");
    cr_assert_str_eq(configs[1].module, "http");
    cr_assert_str_eq(configs[2].module, "redis");
    cr_assert_str_eq(configs[3].module, "http");
    cr_assert_str_eq(configs[4].module, "/opt/mine.so");
    cr_assert(configs[2].reads && configs[2].writes && !configs[2].allow_unsigned);
    aoticache_remote_configs_free(configs, count);
}

Test(remote, settings__what_is_wrong_is_named_and_no_secret)
{
    refused("read-only", "is not a remote");
    refused("redis://me:hunter2@host", "must not contain a user or password");
    refused("redis://h password=hunter2", "unknown option 'password'");
    refused("redis://h timeout=0s", "is not a time");
    refused("redis://h timeout=99999999ms", "is not a time");
    refused("redis://h unsigned=true", "unsigned=allow");
    refused("redis://h namespace=..", "letters, digits");
    refused("redis://h namespace=a/b", "letters, digits");
    refused("redis://h module=mine.so", "absolute path");
    refused("redis://h nonsense", "read-only");
    refused("redis://h\nuser=hunter2", "control character");
    cr_assert_eq(aoticache_remotes_check("", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_remotes_check(NULL, NULL), AOTICACHE_INVALID);
}

/* Makes an entry. The pointers are only copied. */
static aoticache_record_entry entry_of(uint8_t artifact, uint64_t features, const char *guard, const char *signatures,
                                       int64_t created)
{
    aoticache_record_entry entry = {.bytes = 10,
                                    .guard = (char *)(uintptr_t)guard,
                                    .signatures = (char *)(uintptr_t)signatures,
                                    .created_ns = created};
    memset(&entry.artifact, artifact, sizeof entry.artifact);
    entry.requirements.words[0] = features;
    return entry;
}

static bool put(aoticache_record *record, aoticache_record_entry entry)
{
    bool has_changed = false;
    cr_assert_eq(aoticache_record_put(record, &entry, &has_changed, NULL), AOTICACHE_OK);
    return has_changed;
}

Test(remote, record__keeps_others_entries_and_prints_as_it_reads)
{
    aoticache_record record = {.key = {{7}}}, again;
    char *text = NULL, *second = NULL;
    size_t size = 0, second_size = 0;
    cr_assert(put(&record, entry_of(1, 0x1, NULL, "", 5)));
    cr_assert(put(&record, entry_of(2, 0x7, NULL, "a:AAAA\n", 5)));
    cr_assert(put(&record, entry_of(3, 0x7, "s0 > 1", "", 5)));
    cr_assert_not(put(&record, entry_of(2, 0x7, NULL, "a:AAAA\n", 5)));
    cr_assert_eq(record.count, 3);
    cr_assert_eq(record.entries[2].artifact.bytes[0], 1, "the least demanding is last");
    cr_assert_eq(aoticache_record_format(&record, &text, &size, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_record_parse(text, size, &record.key, &again, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_record_format(&again, &second, &second_size, NULL), AOTICACHE_OK);
    cr_assert_str_eq(text, second);
    aoticache_record_clear(&again);
    aoticache_record_clear(&record);
    free(text);
    free(second);
}

Test(remote, record__the_same_artifact_gathers_signatures_another_starts_again)
{
    aoticache_record record = {.key = {{7}}};
    put(&record, entry_of(1, 0x1, NULL, "a:AAAA\n", 5));
    cr_assert(put(&record, entry_of(1, 0x1, NULL, "b:BBBB\n", 5)));
    cr_assert_str_eq(record.entries[0].signatures, "b:BBBB\na:AAAA\n");
    cr_assert_not(put(&record, entry_of(1, 0x1, NULL, "a:AAAA\n", 5)) && record.count != 1);
    cr_assert_not(put(&record, entry_of(1, 0x1, NULL, "", 5)), "who has no signature takes none away");
    cr_assert(put(&record, entry_of(2, 0x1, NULL, "c:CCCC\n", 6)));
    cr_assert_eq(record.count, 1);
    cr_assert_str_eq(record.entries[0].signatures, "c:CCCC\n");
    aoticache_record_clear(&record);
}

Test(remote, record__of_too_many_entries_the_oldest_goes)
{
    aoticache_record record = {.key = {{7}}};
    for (unsigned i = 0; i <= AOTICACHE_RECORD_MAX_ENTRIES; i++)
        cr_assert(put(&record, entry_of((uint8_t)(i + 1), i + 1, NULL, "", i == 9 ? 1 : 100 + i)));
    cr_assert_eq(record.count, AOTICACHE_RECORD_MAX_ENTRIES);
    for (size_t i = 0; i < record.count; i++)
        cr_assert_neq(record.entries[i].artifact.bytes[0], 10);
    aoticache_record_clear(&record);
}

Test(remote, record__of_another_key_is_refused)
{
    aoticache_record record = {.key = {{7}}}, again;
    const aoticache_key other = {{8}};
    aoticache_error error = {.message = ""};
    char *text = NULL;
    size_t size = 0;
    put(&record, entry_of(1, 0x1, NULL, "", 5));
    cr_assert_eq(aoticache_record_format(&record, &text, &size, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_record_parse(text, size, &other, &again, &error), AOTICACHE_CORRUPT);
    cr_assert_not_null(strstr(error.message, "another key"));
    aoticache_record_clear(&record);
    free(text);
}

static aoticache_status unpack(const void *packed, size_t size, size_t piece, uint64_t expected, uint8_t *memory,
                               aoticache_error *ret_error)
{
    aoticache_unpacker *unpacker = NULL;
    cr_assert_eq(aoticache_unpacker_create(-1, memory, expected, &unpacker, NULL), AOTICACHE_OK);
    bool continues = true;
    for (size_t at = 0; continues && at < size; at += piece)
        continues = aoticache_unpacker_take(unpacker, (const char *)packed + at, size - at < piece ? size - at : piece);
    aoticache_status status = aoticache_unpacker_finish(unpacker, ret_error);
    cr_assert_eq(aoticache_unpacker_has_refused(unpacker), !continues);
    aoticache_unpacker_free(unpacker);
    return status;
}

Test(remote, frame__comes_out_as_it_went_in_whatever_the_pieces)
{
    enum { SIZE = 400000 };
    uint8_t *bytes = malloc(SIZE), *memory = malloc(SIZE);
    void *packed = NULL;
    size_t size = 0;
    uint32_t state = 1;
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)((state = state * 1664525 + 1013904223) >> (i < SIZE / 2 ? 24 : 31));
    cr_assert_eq(aoticache_zstd_compress(bytes, SIZE, &packed, &size, NULL), AOTICACHE_OK);
    cr_assert_leq(size, aoticache_zstd_bound(SIZE));
    for (size_t piece = 1; piece <= size; piece = piece * 7 + 1) {
        memset(memory, 0, SIZE);
        cr_assert_eq(unpack(packed, size, piece, SIZE, memory, NULL), AOTICACHE_OK);
        cr_assert_arr_eq(bytes, memory, SIZE);
    }
    free(packed);
    cr_assert_eq(aoticache_zstd_compress("", 0, &packed, &size, NULL), AOTICACHE_OK);
    cr_assert_eq(unpack(packed, size, size, 0, memory, NULL), AOTICACHE_OK, "an empty object");
    free(packed);
    free(bytes);
    free(memory);
}

Test(remote, frame__that_is_more_less_or_other_is_refused)
{
    enum { SIZE = 100000 };
    uint8_t *bytes = calloc(1, SIZE), *memory = malloc(SIZE);
    void *packed = NULL;
    size_t size = 0;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_zstd_compress(bytes, SIZE, &packed, &size, NULL), AOTICACHE_OK);
    cr_assert_eq(unpack(packed, size, size, 10, memory, &error), AOTICACHE_CORRUPT);
    cr_assert_not_null(strstr(error.message, "more bytes than expected"));
    cr_assert_eq(unpack(packed, size, size, SIZE + 1, memory, NULL), AOTICACHE_CORRUPT);
    cr_assert_eq(unpack(packed, size - 1, size, SIZE, memory, NULL), AOTICACHE_CORRUPT, "it is truncated");
    cr_assert_eq(unpack("plainly no frame", 16, 16, SIZE, memory, NULL), AOTICACHE_CORRUPT);
    free(packed);
    free(bytes);
    free(memory);
}
