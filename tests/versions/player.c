/*
 * player: uses a cache as a program does, with the library of the version of the project in which it was built.
 *
 * It is compiled in the sources of each version, so it uses only what the first version had, and tests for headers that were
 * added later. Arguments: the cache directory, a directory for its own files. Then it reads commands, one per line, and
 * answers each with one line: the name of a status, then the message or the requested value.
 *
 *   open, close, flush, list, collect MAX_ENTRIES (0: only leftovers)
 *   put N, get N, key N, pin N, tag N NAME   entry N has a side file if N is even, and is in its manifest if N is 4 n + 1
 *                                            and below 1000, if the version can do that (HAS_IN_MANIFEST)
 *   compile N    by a hook that makes it;  hold N: the hook prints "compiling" and waits for a line
 *   fail N       by a hook that fails
 *
 * With a third and fourth argument (a seed, the most entries that a collection leaves, 0: none is removed) it puts, looks up,
 * collects and pins at random until it is killed, with a line "kept N" for each pinned entry that was stored, and ends with a
 * line if the cache refuses an operation.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/cache.h"
#if __has_include("base/names.h")
#include "base/names.h"
#endif
#if __has_include("cache/entries.h")
#include "cache/entries.h"
#endif
#if __has_include("cache/gc/collect.h")
#include "cache/gc/collect.h"
#elif __has_include("cache/collect.h")
#include "cache/collect.h"
#endif
#if __has_include("cache/stats/statistics.h")
#include "cache/stats/statistics.h"
#elif __has_include("cache/statistics.h")
#include "cache/statistics.h"
#endif
#if __has_include("cache/pins/pins.h")
#include "cache/pins/pins.h"
#define HAS_PINS 1
#elif __has_include("cache/marks.h")
#include "cache/marks.h"
#define HAS_PINS 1
#endif

/* Lookups of other versions have no filter, and a function for each fact about an artifact. */
#if __has_include("cache/store/hash_records.h")
#define FILTER NULL,
#define IS_STORED(artifact) aoticache_artifact_get_info(artifact)->is_stored
#define SOURCE(artifact) aoticache_artifact_get_info(artifact)->source
#define SIDE_FILES(artifact) aoticache_artifact_get_info(artifact)->directory
#else
#define FILTER
#define IS_STORED(artifact) aoticache_artifact_is_stored(artifact)
#define SOURCE(artifact) aoticache_artifact_source(artifact)
#define SIDE_FILES(artifact) aoticache_artifact_directory(artifact)
#endif

#define KEYS 40         /* entries that are stored and removed again */
#define FIRST_KEPT 1000 /* never removed */

static const char *directory, *sources;
static aoticache_cache *cache;
static aoticache_error error;
static int holds; /* whether the hook waits for a line */

static const char *name_of(aoticache_status status)
{
    switch (status) {
#define NAME(name, number, text) \
    case number:                 \
        return #name;
        AOTICACHE_STATUS_LIST(NAME)
#undef NAME
    }
    return "?";
}

static aoticache_status give_up(const char *what)
{
    snprintf(error.message, sizeof error.message, "%s: %s", what, strerror(errno));
    return AOTICACHE_IO;
}

static void log_line(void *user, aoticache_log_level level, const char *message)
{
    (void)user;
    if (level <= AOTICACHE_LOG_WARNING)
        fprintf(stderr, "# log: %s\n", message);
}

static aoticache_status open_it(void)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = directory;
    options.logger.log = log_line;
    return aoticache_cache_open(&options, &cache, &error);
}

/* ---- entries ---- */

static aoticache_request *request_of(int number)
{
    aoticache_request *request = NULL;
    if (aoticache_request_create("aten::abs", (aoticache_device){.type = 0, .index = -1}, &request, &error) !=
            AOTICACHE_OK ||
        aoticache_request_add_int(request, NULL, number, &error) != AOTICACHE_OK) {
        fprintf(stderr, "player: %s\n", error.message);
        exit(1);
    }
    return request;
}

static void text_of(int number, const char *what, char ret_text[64])
{
    snprintf(ret_text, 64, "bytes of %s %d\n", what, number);
}

static aoticache_status write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        return give_up(path);
    return AOTICACHE_OK;
}

/* Makes the files of entry `number` in `place`, and passes them to `deliver` or, without it, stores them in the cache. */
static aoticache_status make(int number, const char *place, aoticache_deliver_fn deliver, void *user)
{
    char path[2][1400], text[64];
    aoticache_file files[2] = {{.name = "k.so", .path = path[0]}, {.name = "w.bin", .path = path[1]}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    snprintf(path[0], sizeof path[0], "%s/made%d.so", place, (int)getpid());
    snprintf(path[1], sizeof path[1], "%s/made%d.bin", place, (int)getpid());
    text_of(number, "library", text);
    aoticache_status status = write_text(path[0], text);
    text_of(number, "side file", text);
    if (status == AOTICACHE_OK)
        status = write_text(path[1], text);
    if (status != AOTICACHE_OK)
        return status;
    product.files = files;
    product.file_count = number % 2 == 0 ? 2 : 1;
    product.producer = "player";
    product.compile_ns = 1000000;
#ifdef HAS_IN_MANIFEST
    product.in_manifest = number % 4 == 1 && number < FIRST_KEPT;
#endif
    if (deliver != NULL)
        return deliver(user, &product);
    aoticache_request *request = request_of(number);
    status = aoticache_cache_put(cache, request, &product, NULL, &error);
    aoticache_request_free(request);
    return status;
}

static int reads_as(int fd, const char *text)
{
    char found[64] = "";
    return fd >= 0 && pread(fd, found, sizeof found - 1, 0) >= 0 && strcmp(found, text) == 0;
}

/* Compares the contents. A wrong byte is worse than any failure, and has a separate answer. */
static aoticache_status compare(int number, const aoticache_artifact *artifact)
{
    char text[64], path[1400];
    text_of(number, "library", text);
    if (!reads_as(aoticache_artifact_library_fd(artifact), text)) {
        snprintf(error.message, sizeof error.message, "WRONG BYTES in the library");
        return AOTICACHE_CORRUPT;
    }
    if (number % 2 != 0 || !IS_STORED(artifact))
        return AOTICACHE_OK;
    const char *beside = SIDE_FILES(artifact);
    snprintf(path, sizeof path, "%s/w.bin", beside != NULL ? beside : "/nowhere");
    FILE *file = fopen(path, "r");
    text_of(number, "side file", text);
    const int is_right = file != NULL && reads_as(fileno(file), text);
    if (file != NULL)
        fclose(file);
    snprintf(error.message, sizeof error.message, is_right ? "" : "WRONG BYTES in the side file");
    return is_right ? AOTICACHE_OK : AOTICACHE_CORRUPT;
}

static aoticache_status hook(void *user, const aoticache_request *request, const char *place,
                             aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    const int number = *(int *)user;
    char line[64];
    (void)request;
    if (number < 0) {
        snprintf(ret_error->message, sizeof ret_error->message, "entry %d cannot be compiled", -number);
        return AOTICACHE_COMPILE_FAILED;
    }
    if (holds) {
        puts("compiling");
        fflush(stdout);
        if (fgets(line, sizeof line, stdin) == NULL)
            return AOTICACHE_IO;
    }
    return make(number, place, deliver, deliver_user);
}

/* Looks up or compiles an entry. made: the number that the hook gets; if below 0, it fails. */
static aoticache_status find(int number, int compiles, int made, const char **ret_how)
{
    static const char *const how[] = {"index", "compiled", "waited", "fetched"};
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = request_of(number);
    aoticache_status status =
        compiles ? aoticache_cache_get_or_compile(cache, request, FILTER hook, &made, &artifact, &error)
                 : aoticache_cache_lookup(cache, request, FILTER & artifact, &error);
    aoticache_request_free(request);
    if (status != AOTICACHE_OK)
        return status;
    *ret_how = IS_STORED(artifact) ? how[SOURCE(artifact)] : "unstored";
    status = compare(number, artifact);
    aoticache_artifact_unref(artifact);
    return status;
}

static aoticache_status key_of(int number, aoticache_key *ret_key)
{
    aoticache_request *request = request_of(number);
    aoticache_status status = aoticache_request_key(request, ret_key, &error);
    aoticache_request_free(request);
    return status;
}

static aoticache_status change_pins(int number, const char *tag)
{
#ifdef HAS_PINS
    aoticache_key key;
    aoticache_status status = key_of(number, &key);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_cache_change_pins(cache, &key, 1, tag == NULL ? AOTICACHE_PIN : AOTICACHE_TAG, tag, NULL, &error);
#else
    (void)number, (void)tag;
    snprintf(error.message, sizeof error.message, "there are no pins yet");
    return AOTICACHE_UNSUPPORTED;
#endif
}

static aoticache_status collect(uint64_t max_entries)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report report;
#ifdef HAS_PINS
    options.max_entries = max_entries;
#else
    (void)max_entries;
#endif
    return aoticache_cache_collect(cache, &options, NULL, NULL, &report, &error);
}

static bool list_one(void *user, const aoticache_entry *entry)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    (void)user;
    aoticache_digest_to_hex((const aoticache_digest *)&entry->key, hex);
    printf(" %s/%" PRIu64 "/%" PRId64, hex, entry->uses, entry->last_used_ns);
    return true;
}

/* ---- commands ---- */

static aoticache_status obey(const char *word, int number, const char *text, const char **ret_answer)
{
    static char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_key key;
    aoticache_status status;
    if (strcmp(word, "open") == 0)
        return open_it();
    if (cache == NULL && strcmp(word, "key") != 0)
        return AOTICACHE_INVALID;
    if (strcmp(word, "close") == 0) {
        aoticache_cache_close(cache);
        cache = NULL;
        return AOTICACHE_OK;
    }
    if (strcmp(word, "key") == 0) {
        status = key_of(number, &key);
        aoticache_digest_to_hex((const aoticache_digest *)&key, hex);
        *ret_answer = hex;
        return status;
    }
    if (strcmp(word, "put") == 0)
        return make(number, sources, NULL, NULL);
    if (strcmp(word, "get") == 0)
        return find(number, 0, number, ret_answer);
    holds = strcmp(word, "hold") == 0;
    if (holds || strcmp(word, "compile") == 0)
        return find(number, 1, number, ret_answer);
    if (strcmp(word, "fail") == 0)
        return find(number, 1, -number, ret_answer);
    if (strcmp(word, "pin") == 0)
        return change_pins(number, NULL);
    if (strcmp(word, "tag") == 0)
        return change_pins(number, text);
    if (strcmp(word, "collect") == 0)
        return collect((uint64_t)number);
    if (strcmp(word, "flush") == 0)
        return aoticache_cache_flush(cache, &error);
    return AOTICACHE_INVALID;
}

static int obey_all(void)
{
    char line[256], word[32], text[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        int number = 0;
        const char *answer = "";
        error.message[0] = '\0';
        if (sscanf(line, "%31s %d %63s", word, &number, text) < 1)
            continue;
        if (strcmp(word, "list") == 0 && cache != NULL) {
            printf("LISTED");
            const aoticache_status listed = aoticache_cache_list(cache, NULL, NULL, list_one, NULL, &error);
            printf(" %s %s\n", name_of(listed), listed == AOTICACHE_OK ? "" : error.message);
        } else {
            const aoticache_status status = obey(word, number, text, &answer);
            printf("%s %s\n", name_of(status), status == AOTICACHE_OK ? answer : error.message);
        }
        fflush(stdout);
    }
    aoticache_cache_close(cache);
    return 0;
}

/* ---- at random ---- */

static unsigned random_state;

static int random_below(unsigned limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 8) % limit);
}

static aoticache_status act(int *kept, int entries_left)
{
    const char *how;
    const int what = random_below(100), number = 1 + random_below(KEYS);
    if (what < 30)
        return make(number, sources, NULL, NULL);
    if (what < 60)
        return find(number, 0, number, &how);
    if (what < 75)
        return find(number, 1, number, &how);
    if (what < 80)
        return collect((uint64_t)entries_left);
    if (what < 85)
        return aoticache_cache_flush(cache, &error);
    if (what < 88) {
        aoticache_cache_close(cache);
        cache = NULL;
        return open_it();
    }
    const int mine = FIRST_KEPT + (*kept)++;
    aoticache_status status = entries_left > 0 ? change_pins(mine, NULL) : AOTICACHE_OK;
    if (status == AOTICACHE_OK)
        status = make(mine, sources, NULL, NULL);
    if (status == AOTICACHE_OK) {
        printf("kept %d\n", mine);
        fflush(stdout);
    }
    return status;
}

static int act_at_random(unsigned seed, int entries_left)
{
    int kept = (int)seed * 100000;
    long done = 0;
    random_state = seed * 7919u;
    aoticache_status status = open_it();
    while (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND || status == AOTICACHE_LOCKED) {
        if (cache == NULL)
            status = open_it();
        else
            status = act(&kept, entries_left);
        if (++done % 10 == 0) {
            puts("done 10");
            fflush(stdout);
        }
    }
    printf("refused %s %s\n", name_of(status), error.message);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 5)
        return 2;
    directory = argv[1];
    sources = argv[2];
    if (mkdir(sources, 0700) != 0 && errno != EEXIST)
        return 1;
    return argc == 3 ? obey_all() : act_at_random((unsigned)strtoul(argv[3], NULL, 10), (int)strtol(argv[4], NULL, 10));
}
