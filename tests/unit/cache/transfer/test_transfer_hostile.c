/*
 * Malicious archives: every member that differs from those that an export writes is refused by name, nothing is written
 * outside the store, and valid entries are still imported.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/names.h"
#include "cache/entries.h"
#include "cache/transfer/transfer.h"
#include "cache/verify/verify.h"
#include "tests/unit/fixtures/cache_fixture.h"

#define HEAD "{\"bytes\":0,\"entries\":0,\"format\":1,\"kind\":\"aoticache archive\",\"library\":\"0\",\"objects\":0}\n"
#define TAR_BLOCK 512

static int archive = -1; /* being built; uncompressed, which an import reads too */
static unsigned objects;
static char refusals[16384];

static void log_refusal(void *user, aoticache_log_level level, const char *line)
{
    (void)user, (void)level;
    cr_assert_null(strchr(line, '\n'));
    strncat(refusals, line, sizeof refusals - strlen(refusals) - 1);
    strncat(refusals, "\n", sizeof refusals - strlen(refusals) - 1);
}

static void setup(void)
{
    fixture_setup();
    archive = memfd_create("archive", MFD_CLOEXEC);
    cr_assert_geq(archive, 0);
    objects = 0;
    refusals[0] = '\0';
}

static void teardown(void)
{
    close(archive);
    fixture_teardown();
}

TestSuite(transfer_hostile, .init = setup, .fini = teardown);

/* ---- building ---- */

struct member {
    const char *path;
    const char *link; /* NULL: none */
    char type;        /* 0 means '0' */
    const void *bytes;
    size_t size;
    uint64_t announced; /* if not 0: replaces the size in the header */
};

static void append_raw(const void *bytes, size_t size)
{
    static const char zeros[TAR_BLOCK];
    cr_assert_eq(write(archive, bytes, size), (ssize_t)size);
    if (size % TAR_BLOCK != 0)
        cr_assert_eq(write(archive, zeros, TAR_BLOCK - size % TAR_BLOCK), (ssize_t)(TAR_BLOCK - size % TAR_BLOCK));
}

/* Appends a member: POSIX.1-1988 ustar, IEEE Std 1003.1 pax, "ustar Interchange Format". */
static void append(const struct member *member)
{
    unsigned char block[TAR_BLOCK] = {0};
    unsigned sum = 0;
    char *text = (char *)block;
    strncpy(text, member->path, 100);
    memcpy(text + 100, "0000644", 8);
    memcpy(text + 108, "0000000", 8);
    memcpy(text + 116, "0000000", 8);
    snprintf(text + 124, 12, "%011llo",
             (unsigned long long)(member->announced != 0 ? member->announced : member->size));
    memcpy(text + 136, "00000000000", 12);
    memset(text + 148, ' ', 8);
    text[156] = member->type != 0 ? member->type : '0';
    if (member->link != NULL)
        strncpy(text + 157, member->link, 100);
    memcpy(text + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof block; i++)
        sum += block[i];
    snprintf(text + 148, 8, "%06o", sum);
    append_raw(block, sizeof block);
    if (member->size > 0)
        append_raw(member->bytes, member->size);
}

static void append_text(const char *path, const char *text)
{
    append(&(struct member){.path = path, .bytes = text, .size = strlen(text)});
}

static void append_object(const void *bytes, size_t size)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], path[100];
    aoticache_digest digest;
    aoticache_digest_of(bytes, size, &digest);
    aoticache_digest_to_hex(&digest, hex);
    snprintf(path, sizeof path, "objects/%.2s/%s", hex, hex + 2);
    append(&(struct member){.path = path, .bytes = bytes, .size = size});
    objects++;
}

static void begin(void)
{
    append_text("aoticache.json", HEAD);
}

static void end(void)
{
    char text[256];
    static const char zeros[2 * TAR_BLOCK];
    snprintf(text, sizeof text,
             "{\"bytes\":0,\"entries\":0,\"format\":1,\"kind\":\"aoticache archive end\",\"objects\":%u}\n", objects);
    append_text("end.json", text);
    append_raw(zeros, sizeof zeros);
}

/* Appends the objects of an entry that another cache really has: its library and its manifest. */
static void append_artifact(int64_t number, const char *library)
{
    aoticache_cache_options options = fixture_options();
    char path[4300], name[32];
    aoticache_artifact *artifact = NULL;
    char *manifest = NULL;
    snprintf(name, sizeof name, "source-%lld", (long long)number);
    snprintf(path, sizeof path, "%s/%s", fixture_root, name);
    options.directory = path;
    aoticache_cache *cache = fixture_open_with(&options);
    cr_assert_eq(fixture_try_put(cache, number, library, &artifact, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_read_manifest(cache, &aoticache_artifact_get_info(artifact)->digest, &manifest, NULL),
                 AOTICACHE_OK);
    append_object(library, strlen(library));
    append_object(manifest, strlen(manifest));
    free(manifest);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

/* ---- importing ---- */

static aoticache_status import_with(aoticache_cache *cache, const aoticache_transfer_options *options,
                                    aoticache_transfer_report *ret_report, aoticache_error *ret_error)
{
    aoticache_transfer_options chosen = AOTICACHE_TRANSFER_OPTIONS_INIT;
    if (options != NULL)
        chosen = *options;
    chosen.allow_unsigned = true; /* tests/unit/cache/trust/test_trust_transfer.c has those that are signed */
    lseek(archive, 0, SEEK_SET);
    aoticache_status status = aoticache_cache_import(cache, archive, &chosen, ret_report, ret_error);
    if (status == AOTICACHE_UNSUPPORTED && strstr(ret_error->message, "libarchive") != NULL)
        cr_skip_test("%s", ret_error->message);
    return status;
}

static aoticache_cache *open_target(void)
{
    aoticache_cache_options options = fixture_options();
    options.logger.log = log_refusal;
    return fixture_open_with(&options);
}

/* Imports; expects this result, `entries` and `refused`, and a valid store with exactly these entries. */
static void expect(aoticache_status expected, uint64_t entries, uint64_t refused, const char *name)
{
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = open_target();
    aoticache_status status = import_with(cache, NULL, &report, &error);
    cr_assert_eq(status, expected, "%s: %s", aoticache_status_name(status), error.message);
    cr_assert_eq(report.entries, entries, "%llu entries\n%s", (unsigned long long)report.entries, refusals);
    cr_assert_eq(report.refused, refused, "%llu refused\n%s", (unsigned long long)report.refused, refusals);
    if (name != NULL)
        cr_assert(strstr(refusals, name) != NULL || strstr(error.message, name) != NULL, "%s%s", refusals,
                  error.message);
    aoticache_verify_report found = fixture_verify(cache, false);
    cr_assert_eq(found.entries, entries);
    cr_assert_eq(found.damaged + found.missing + found.foreign + found.unindexed + found.unreferenced, 0);
    aoticache_cache_close(cache);
    cr_assert_eq(fixture_names("tmp"), 0);
}

Test(transfer_hostile, what_is_sound_comes)
{
    begin();
    append_artifact(1, "library one");
    end();
    expect(AOTICACHE_OK, 1, 0, NULL);
}

Test(transfer_hostile, foreign_names_are_refused)
{
    static const char *const names[] = {
        "/etc/passwd",           "../outside",
        "objects/../../outside", "objects/ab/../../../outside",
        "objects/ab/short",      "objects/AB/CDEF0123456789012345678901234567890123456789012345678901234567",
        "index.sqlite3",         "lock",
        "./aoticache.json",      "objects/ab",
        "marks/nothex",          "tmp/x",
        "quarantine/x",          "format",
        "a\nb\033[31mc",
    };
    const size_t count = sizeof names / sizeof names[0];
    begin();
    for (size_t i = 0; i < count; i++)
        append_text(names[i], "nothing good");
    append_artifact(1, "library one");
    end();
    expect(AOTICACHE_OK, 1, count, "/etc/passwd");
    cr_assert_not_null(strstr(refusals, "../outside"));
    cr_assert_null(strchr(refusals, '\033'));
    char path[4300];
    snprintf(path, sizeof path, "%s/outside", fixture_root);
    cr_assert_eq(access(path, F_OK), -1);
}

Test(transfer_hostile, only_regular_files_are_taken)
{
    static const char object[] = "objects/ab/cdef0123456789012345678901234567890123456789012345678901234567";
    static const char types[] = {'1', '2', '3', '4', '5', '6'};
    begin();
    for (size_t i = 0; i < sizeof types; i++)
        append(&(struct member){.path = object, .link = "/etc/passwd", .type = types[i]});
    append_artifact(1, "library one");
    end();
    expect(AOTICACHE_OK, 1, sizeof types, "a symbolic link");
    cr_assert_not_null(strstr(refusals, "a hard link"));
}

Test(transfer_hostile, bytes_that_do_not_hash_to_their_name_are_refused)
{
    begin();
    append_artifact(1, "library one");
    append_text("objects/ab/cd000000000000000000000000000000000000000000000000000000000000", "other bytes");
    objects++;
    end();
    expect(AOTICACHE_OK, 1, 1, "its bytes hash to");
}

/* Opens a separate cache, from which malicious archives take their artifacts. */
static aoticache_cache *open_source(void)
{
    aoticache_cache_options options = fixture_options();
    char path[4300];
    snprintf(path, sizeof path, "%s/source", fixture_root);
    options.directory = path;
    return fixture_open_with(&options);
}

Test(transfer_hostile, manifest_without_its_objects_is_refused)
{
    char *manifest = NULL;
    aoticache_artifact *artifact = NULL;
    aoticache_cache *cache = open_source();
    cr_assert_eq(fixture_try_put(cache, 7, "never sent", &artifact, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_read_manifest(cache, &aoticache_artifact_get_info(artifact)->digest, &manifest, NULL),
                 AOTICACHE_OK);
    begin();
    append_object(manifest, strlen(manifest));
    append_artifact(1, "library one");
    end();
    expect(AOTICACHE_OK, 1, 1, "which is neither in the archive nor in the store");
    free(manifest);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

Test(transfer_hostile, manifest_whose_key_is_not_that_of_its_request_is_refused)
{
    char *manifest = NULL, *key;
    aoticache_artifact *artifact = NULL;
    aoticache_cache *cache = open_source();
    cr_assert_eq(fixture_try_put(cache, 7, "library", &artifact, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_read_manifest(cache, &aoticache_artifact_get_info(artifact)->digest, &manifest, NULL),
                 AOTICACHE_OK);
    key = strstr(manifest, "\"key\":\"");
    cr_assert_not_null(key);
    key[7] = key[7] == '0' ? '1' : '0';
    begin();
    append_object("library", 7);
    append_object(manifest, strlen(manifest)); /* its own digest is right */
    end();
    expect(AOTICACHE_OK, 0, 2, "not named by any manifest");
    free(manifest);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

Test(transfer_hostile, repeated_members_are_refused)
{
    begin();
    append_artifact(1, "library one");
    append_artifact(1, "library one");
    append_text("aoticache.json", HEAD);
    end();
    /* The library; the second manifest differs, by its time. */
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = open_target();
    cr_assert_eq(import_with(cache, NULL, &report, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(report.refused, 2, "%s", refusals);
    cr_assert_not_null(strstr(refusals, "is in the archive twice"));
    cr_assert_not_null(strstr(refusals, "aoticache.json: a duplicate"));
    aoticache_cache_close(cache);
}

Test(transfer_hostile, objects_that_nothing_names_never_enter_the_store)
{
    begin();
    append_object("a stranger", 10);
    append_object("{\"json\":1}", 10);
    append_artifact(1, "library one");
    end();
    expect(AOTICACHE_OK, 1, 2, "not named by any manifest");
}

Test(transfer_hostile, archive_that_ends_early_keeps_what_was_whole)
{
    begin();
    append_artifact(1, "library one");
    append_artifact(2, "library two");
    cr_assert_eq(ftruncate(archive, lseek(archive, 0, SEEK_CUR) - 700), 0); /* within the second manifest */
    expect(AOTICACHE_CORRUPT, 1, 0, "damaged or truncated");
}

Test(transfer_hostile, archive_without_an_end_is_noticed)
{
    begin();
    append_artifact(1, "library one");
    expect(AOTICACHE_CORRUPT, 1, 0, "end.json");
}

Test(transfer_hostile, archive_from_which_members_were_taken_is_noticed)
{
    begin();
    append_artifact(1, "library one");
    objects += 2;
    end();
    expect(AOTICACHE_CORRUPT, 1, 0, "members are missing");
}

Test(transfer_hostile, huge_sizes_are_refused_before_anything_is_written)
{
    begin();
    append_artifact(1, "library one");
    append(&(struct member){.path = "objects/ab/cd000000000000000000000000000000000000000000000000000000000000",
                            .announced = UINT64_C(8) << 30}); /* 8 GiB that never follow */
    expect(AOTICACHE_CORRUPT, 1, 0, "bytes that it declares");
}

/* Returns the manifest of an artifact of two files, the second with this text, from another cache. */
static char *manifest_with_side_file(const char *library, const char *side)
{
    aoticache_cache_options options = fixture_options();
    char path[4300];
    char *text = NULL;
    aoticache_artifact *artifact = NULL;
    const aoticache_file files[] = {{.name = "library.so", .path = fixture_write("one", library)},
                                    {.name = "side.json", .path = fixture_write("two", side)}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    aoticache_request *request = fixture_request(77);
    snprintf(path, sizeof path, "%s/source-with-side", fixture_root);
    options.directory = path;
    product.files = files;
    product.file_count = 2;
    aoticache_cache *cache = fixture_open_with(&options);
    cr_assert_eq(aoticache_cache_put(cache, request, &product, &artifact, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_read_manifest(cache, &aoticache_artifact_get_info(artifact)->digest, &text, NULL),
                 AOTICACHE_OK);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    aoticache_cache_close(cache);
    return text;
}

/*
 * As a file of an artifact a manifest would get into the store although its entry was skipped, and a rebuilt index
 * would read it from there.
 */
Test(transfer_hostile, manifest_as_a_file_of_another_artifact_is_refused)
{
    char *inner = manifest_with_side_file("inner", "{}");
    char *outer = manifest_with_side_file("outer", inner);
    begin();
    append_object("outer", 5);
    append_object(inner, strlen(inner));
    append_object(outer, strlen(outer));
    end();
    /* The inner entry has no objects; the outer one includes it, and its library then belongs to no entry. */
    expect(AOTICACHE_OK, 0, 2, "but it is a manifest");
    free(inner);
    free(outer);
}

static void begin_announcing(uint64_t bytes)
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"bytes\":%llu,\"entries\":0,\"format\":1,\"kind\":\"aoticache archive\",\"library\":\"0\",\"objects\":"
             "0}\n",
             (unsigned long long)bytes);
    append_text("aoticache.json", text);
}

/* Appends only holes: 512 GiB that are stored nowhere. */
static void append_holes(void)
{
    const uint64_t bytes = UINT64_C(512) << 30;
    char *header;
    append(&(struct member){.path = "foreign", .announced = 0});
    /* The size is in base 256, as for sizes of more than eleven octal digits. */
    off_t at = lseek(archive, 0, SEEK_CUR) - TAR_BLOCK;
    header = calloc(1, TAR_BLOCK);
    cr_assert_eq(pread(archive, header, TAR_BLOCK, at), TAR_BLOCK);
    memset(header + 124, 0, 12);
    header[124] = (char)0x80;
    for (int i = 0; i < 8; i++)
        header[135 - i] = (char)(bytes >> 8 * i);
    memset(header + 148, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    cr_assert_eq(pwrite(archive, header, TAR_BLOCK, at), TAR_BLOCK);
    free(header);
    off_t end_of_it = lseek(archive, 0, SEEK_CUR) + (off_t)bytes;
    if (ftruncate(archive, end_of_it) != 0)
        cr_skip_test("there are no files of this size here");
    lseek(archive, end_of_it, SEEK_SET);
}

Test(transfer_hostile, what_is_far_larger_than_its_file_is_refused_soon, .timeout = 120)
{
    const uint64_t begun = aoticache_monotonic_ns();
    begin_announcing(UINT64_C(1) << 41);
    append_artifact(1, "library one");
    append_holes();
    end();
    expect(AOTICACHE_DENIED, 1, 1, "times its own size");
    cr_assert_lt(aoticache_monotonic_ns() - begun, UINT64_C(60) * 1000000000u);
}

static volatile sig_atomic_t has_rung;

static void ring(int number)
{
    (void)number;
    has_rung = 1;
}

/* Continues until the alarm; sets errno as a progress bar does that checks for a terminal. */
static bool continues_until_the_alarm(void *user, uint64_t done, uint64_t all)
{
    (void)user, (void)done, (void)all;
    errno = ENOTTY;
    return has_rung == 0;
}

Test(transfer_hostile, interrupted_waiting_for_a_pipe_says_so, .timeout = 30)
{
    int ends[2];
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    const struct itimerval soon = {.it_value = {.tv_usec = 200000}};
    const struct sigaction action = {.sa_handler = ring}; /* without SA_RESTART */
    cr_assert_eq(pipe(ends), 0);
    sigaction(SIGALRM, &action, NULL);
    options.progress = continues_until_the_alarm;
    aoticache_cache *cache = open_target();
    setitimer(ITIMER_REAL, &soon, NULL);
    aoticache_status status = aoticache_cache_import(cache, ends[0], &options, &report, &error);
    if (status == AOTICACHE_UNSUPPORTED)
        cr_skip_test("%s", error.message);
    cr_assert_eq(status, AOTICACHE_IO);
    cr_assert_not_null(strstr(error.message, "stopped"), "%s", error.message);
    aoticache_cache_close(cache);
}

Test(transfer_hostile, export_interrupted_at_a_full_pipe_says_so, .timeout = 30)
{
    int ends[2];
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    const struct itimerval soon = {.it_value = {.tv_usec = 400000}};
    const struct sigaction action = {.sa_handler = ring};
    char *noise = malloc(1 << 20);
    unsigned seed = 1;
    for (size_t i = 0; i < 1 << 20; i++) {
        seed = seed * 1103515245 + 12345;
        noise[i] = (char)('!' + (seed >> 16) % 90);
    }
    noise[(1 << 20) - 1] = '\0';
    cr_assert_eq(pipe(ends), 0);
    sigaction(SIGALRM, &action, NULL);
    options.progress = continues_until_the_alarm;
    aoticache_cache *cache = open_target();
    fixture_put(cache, 1, noise);
    free(noise);
    setitimer(ITIMER_REAL, &soon, NULL);
    aoticache_status status = aoticache_cache_export(cache, ends[1], &options, &report, &error);
    if (status == AOTICACHE_UNSUPPORTED)
        cr_skip_test("%s", error.message);
    cr_assert_eq(status, AOTICACHE_IO);
    cr_assert_not_null(strstr(error.message, "stopped"), "%s", error.message);
    aoticache_cache_close(cache);
}

Test(transfer_hostile, texts_have_a_largest_size)
{
    char *zeros = calloc(1, 70000);
    begin();
    append(&(struct member){.path = "marks/abcd000000000000000000000000000000000000000000000000000000000000",
                            .bytes = zeros,
                            .size = 70000});
    end();
    expect(AOTICACHE_OK, 0, 1, "too large");
    free(zeros);
}

Test(transfer_hostile, what_it_may_unpack_to_is_limited)
{
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    char *zeros = calloc(1, 1 << 20);
    begin();
    append_artifact(1, "library one");
    append(&(struct member){.path = "foreign", .bytes = zeros, .size = 1 << 20});
    end();
    options.max_bytes = 1 << 18;
    aoticache_cache *cache = open_target();
    cr_assert_eq(import_with(cache, &options, &report, &error), AOTICACHE_DENIED);
    cr_assert_not_null(strstr(error.message, "262144"));
    cr_assert_eq(report.entries, 1);
    aoticache_cache_close(cache);
    free(zeros);
}

Test(transfer_hostile, newer_format_is_unsupported)
{
    append_text("aoticache.json",
                "{\"bytes\":0,\"entries\":0,\"format\":2,\"kind\":\"aoticache archive\",\"objects\":0}");
    expect(AOTICACHE_UNSUPPORTED, 0, 0, "format 2");
}

Test(transfer_hostile, other_archives_are_not_taken)
{
    append_text("notes.txt", "hello");
    expect(AOTICACHE_CORRUPT, 0, 0, "begins with notes.txt");
}

Test(transfer_hostile, no_archive_at_all)
{
    append_raw("this is no archive, not by far", 30);
    expect(AOTICACHE_CORRUPT, 0, 0, NULL);
    cr_assert_eq(ftruncate(archive, 0), 0);
    expect(AOTICACHE_CORRUPT, 0, 0, NULL);
}
