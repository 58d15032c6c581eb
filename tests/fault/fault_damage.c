/*
 * fault_damage: damages each kind of file in a cache, a region at a time.
 *
 * A bit is flipped, 64 bytes become zeros or others, the file is cut off, extended, doubled, emptied, removed, replaced
 * by a directory or a symbolic link, or gets the bytes of another file of the cache. Then a process looks every entry
 * up: it gets the right bytes or a miss, never others; entries that do not need the file are found. `verify --repair`
 * is run: after it nothing is wrong, all entries whose objects are intact are found, and the rest can be put again.
 * FAULT_STRIDE: only every n-th case, default 80; 1: each.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/names.h"
#include "cache/entries.h"
#include "cache/pins/pins.h"
#include "cache/trust/trust.h"
#include "cache/verify/verify.h"
#include "tests/fault/cases.h"
#include "tests/fault/trial.h"
#include "tests/helpers/cache_process.h"
#include "tests/helpers/pins.h"

#define POSITIONS 2000 /* limit for one file */
#define REGION 64

static char template_path[600], closed_path[600]; /* the cache while it is open, and closed */

/* ---- the files ---- */

struct kind {
    const char *name;
    int lost;        /* the entry that may be lost with it; 0: none; -1: any until a repair */
    bool is_closed;  /* damaged while the cache is closed: the index has no log then */
    bool may_refuse; /* opening may fail, with the directory in the message */
};

static const struct kind kinds[] = {
    {.name = "index.sqlite3", .lost = -1},
    {.name = "index.sqlite3, closed", .lost = -1, .is_closed = true},
    {.name = "index.sqlite3-wal", .lost = -1},
    {.name = "index.sqlite3-shm", .lost = -1},
    {.name = "index.sqlite3-gate"},
    {.name = "library", .lost = 1},
    {.name = "side file", .lost = 2},
    {.name = "manifest", .lost = 4},
    {.name = "link of a side file", .lost = 2},
    {.name = "pin"},
    {.name = "lease"},
    {.name = "lock"},
    {.name = "gate"},
    {.name = "reserve"},
    {.name = "verify.state"},
    {.name = "signature"},
    {.name = "format", .may_refuse = true},
    {.name = "manifest with its file", .lost = 3},
    {.name = "index.sqlite3-uses"},
    {.name = "index.sqlite3-answers", .is_closed = true},
};
enum { SIGNATURE = 15, RECORD = 17 };
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

static char paths[KIND_COUNT][700]; /* paths of the template's files, below the cache */

static void object_name(const aoticache_digest *digest, char ret_path[700])
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    snprintf(ret_path, 700, "objects/%.2s/%s", hex, hex + 2);
}

static void object_of(const char *text, char ret_path[700])
{
    aoticache_digest digest;
    aoticache_digest_of(text, strlen(text), &digest);
    object_name(&digest, ret_path);
}

/* Returns the manifest of an entry, from a lookup. */
static aoticache_digest manifest_of(aoticache_cache *cache, int number)
{
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = make_request(number);
    if (aoticache_cache_lookup(cache, request, NULL, &artifact, NULL) != AOTICACHE_OK)
        fail("lookup", "an entry is missing from the start");
    const aoticache_digest digest = *&aoticache_artifact_get_info(artifact)->digest;
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    return digest;
}

static void write_below(const char *name, const char *text)
{
    char path[1400];
    snprintf(path, sizeof path, "%s/%s", trial_cache(), name);
    write_file(path, text);
    chmod(path, 0600);
}

/* Fills in the paths, and makes the files that only a running or stopped process leaves. */
static void name_files(aoticache_cache *cache)
{
    char text[64], hex[AOTICACHE_DIGEST_HEX_BYTES];
    const aoticache_key key = trial_key(1);
    for (size_t i = 0; i < KIND_COUNT; i++)
        snprintf(paths[i], sizeof paths[i], "%.*s", (int)strcspn(kinds[i].name, ","), kinds[i].name);
    library_text(1, text);
    object_of(text, paths[5]);
    object_of("side file", paths[6]);
    aoticache_digest digest = manifest_of(cache, 4);
    object_name(&digest, paths[7]);
    digest = manifest_of(cache, 3);
    object_name(&digest, paths[RECORD]);
    digest = manifest_of(cache, 2);
    aoticache_digest_to_hex(&digest, hex);
    snprintf(paths[8], sizeof paths[8], "artifacts/%s/w.bin", hex);
    aoticache_digest_to_hex(&key, hex);
    snprintf(paths[9], sizeof paths[9], "marks/%s", hex);
    snprintf(paths[10], sizeof paths[10], "leases/%s", hex);
    char directory[700];
    snprintf(directory, sizeof directory, "%s/leases", trial_cache());
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        fail("mkdir", directory);
    write_below(paths[10], "left over");
    digest = manifest_of(cache, 1);
    aoticache_digest_to_hex(&digest, hex);
    snprintf(paths[SIGNATURE], sizeof paths[SIGNATURE], "signatures/%s", hex);
    write_below("verify.state", "{\"kind\":\"aoticache verify\"}\n");
}

static void copy(const char *from, const char *to)
{
    char command[1500];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -a '%s' '%s'", to, from, to);
    if (system(command) != 0)
        fail("copy", to);
}

/* Signs with an untrusted key: only the form of the file matters. */
static void sign(aoticache_cache *cache, int number)
{
    aoticache_error error = {.message = ""};
    aoticache_secret_key *key = NULL;
    const aoticache_digest digest = manifest_of(cache, number);
    if (aoticache_secret_key_generate("ann", &key, &error) != AOTICACHE_OK ||
        aoticache_cache_sign(cache, &digest, key, &error) != AOTICACHE_OK)
        fail("sign", error.message);
    aoticache_secret_key_free(key);
}

/* Lets another process find entries and end: it leaves pending statistics and a query cache. */
static void leave_uses(void)
{
    aoticache_cache *cache = trial_open();
    if (!trial_finds(cache, 1))
        fail("lookup", "entry 1");
    aoticache_cache_close(cache);
}

/* Makes the template, copied while the cache is open, so that the index has a log. */
static void make_template(void)
{
    aoticache_error error = {.message = ""};
    trial_use_cache("cache");
    snprintf(template_path, sizeof template_path, "%s/template", trial_root());
    snprintf(closed_path, sizeof closed_path, "%s/closed", trial_root());
    aoticache_cache *cache = trial_open();
    for (int i = 1; i <= TRIAL_STORED; i++)
        if (trial_put(cache, i, i == 2, &error) != AOTICACHE_OK)
            fail("put", error.message);
    const aoticache_key key = trial_key(1);
    if (pin_key(cache, &key, &error) != AOTICACHE_OK)
        fail("pin", error.message);
    sign(cache, 1);
    leave_uses();
    name_files(cache);
    copy(trial_cache(), template_path);
    aoticache_cache_close(cache);
    usleep(2100000); /* after recent changes no query results are kept */
    leave_uses();
    copy(trial_cache(), closed_path);
}

static const char *template_of(size_t kind)
{
    return kinds[kind].is_closed ? closed_path : template_path;
}

/* ---- damage ---- */

enum damage { FLIP, ZEROS, OTHERS, CUT, CONTINUE, DOUBLE, EMPTY, REMOVE, DIRECTORY, LINK, SWAP, DAMAGE_COUNT };
static const char *const damage_names[DAMAGE_COUNT] = {
    "a bit flipped", "zeros",   "other bytes", "cut off", "continued",           "doubled",
    "emptied",       "removed", "a directory", "a link",  "the bytes of another"};

struct bytes {
    unsigned char *data;
    size_t size;
};

static struct bytes read_all(const char *path)
{
    struct stat found;
    struct bytes bytes = {.data = NULL};
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &found) != 0)
        fail("read", path);
    bytes.size = (size_t)found.st_size;
    bytes.data = calloc(2, bytes.size + REGION);
    if (bytes.data == NULL || read(fd, bytes.data, bytes.size) != found.st_size)
        fail("read", path);
    close(fd);
    return bytes;
}

static bool has_positions(enum damage damage)
{
    return damage <= CUT;
}

static void change(struct bytes *bytes, enum damage damage, size_t at, size_t other)
{
    char path[1400];
    const size_t length = bytes->size - at < REGION ? bytes->size - at : REGION;
    switch (damage) {
    case FLIP:
        bytes->data[at] ^= (unsigned char)(1u << at % 8);
        break;
    case ZEROS:
        memset(bytes->data + at, 0, length);
        break;
    case OTHERS:
        memset(bytes->data + at, 0xa5, length);
        break;
    case CUT:
        bytes->size = at;
        break;
    case CONTINUE:
        memset(bytes->data + bytes->size, '{', REGION);
        bytes->size += REGION;
        break;
    case DOUBLE:
        memcpy(bytes->data + bytes->size, bytes->data, bytes->size);
        bytes->size *= 2;
        break;
    case SWAP:
        snprintf(path, sizeof path, "%s/%s", template_of(other), paths[other]);
        free(bytes->data);
        *bytes = read_all(path);
        break;
    default:
        bytes->size = 0;
    }
}

/* Does the damage in a fresh copy of the cache. */
static void do_damage(size_t kind, enum damage damage, size_t at, size_t other)
{
    char path[1400];
    struct stat found;
    trial_use_cache("damaged");
    copy(template_of(kind), trial_cache());
    snprintf(path, sizeof path, "%s/%s", trial_cache(), paths[kind]);
    struct bytes bytes = read_all(path);
    if (stat(path, &found) != 0)
        fail("stat", path);
    change(&bytes, damage, at, other);
    if (damage >= REMOVE && damage <= LINK) {
        if (unlink(path) != 0 || (damage == DIRECTORY && mkdir(path, 0700) != 0) ||
            (damage == LINK && symlink("/etc/hostname", path) != 0))
            fail("damage", path);
    } else {
        /* Changed in place, as by a disk: a hard link stays one. */
        chmod(path, 0600);
        const int fd = open(path, O_WRONLY | O_TRUNC);
        if (fd < 0 || write(fd, bytes.data, bytes.size) != (ssize_t)bytes.size)
            fail("damage", path);
        close(fd);
        chmod(path, found.st_mode & 07777);
    }
    free(bytes.data);
}

/* ---- what a process finds ---- */

struct seen { /* shared with the process */
    long missed, refused, problems, repaired;
    char wrong[400];
};
static struct seen *seen;

static _Noreturn void wrong(const char *what, const char *detail)
{
    snprintf(seen->wrong, sizeof seen->wrong, "%s: %s", what, detail);
    _exit(3);
}

/* Looks an entry up. True: found, with the right bytes. */
static bool look_up(aoticache_cache *cache, int number)
{
    char expected[64], actual[64] = "", path[1400];
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    aoticache_request *request = make_request(number);
    const aoticache_status status = aoticache_cache_lookup(cache, request, NULL, &artifact, &error);
    aoticache_request_free(request);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND && error.message[0] == '\0')
        wrong("a lookup fails without a message", aoticache_status_name(status));
    if (status != AOTICACHE_OK)
        return false;
    library_text(number, expected);
    if (pread(aoticache_artifact_library_fd(artifact), actual, sizeof actual - 1, 0) < 0 ||
        strcmp(actual, expected) != 0)
        wrong("other bytes are served", actual);
    if (number == 2) {
        snprintf(path, sizeof path, "%s/w.bin", aoticache_artifact_get_info(artifact)->directory);
        const struct bytes side = read_all(path);
        if (side.size != strlen("side file") || memcmp(side.data, "side file", side.size) != 0)
            wrong("another side file is served", path);
        free(side.data);
    }
    aoticache_artifact_unref(artifact);
    return true;
}

static void check_repaired(size_t kind, aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_verify_options options = AOTICACHE_VERIFY_OPTIONS_INIT;
    aoticache_verify_report report;
    options.jobs = 1;
    options.repair = true;
    if (aoticache_cache_verify(cache, &options, NULL, NULL, NULL, &report, &error) != AOTICACHE_OK)
        wrong("it cannot be repaired", error.message);
    seen->problems = (long)aoticache_verify_report_problems(&report);
    seen->repaired = (long)report.repaired;
    options.repair = false;
    if (aoticache_cache_verify(cache, &options, tell_finding, NULL, (void *)"after a repair", &report, &error) !=
        AOTICACHE_OK)
        wrong("it cannot be verified after a repair", error.message);
    if (aoticache_verify_report_problems(&report) != 0)
        wrong("a repair leaves problems", kinds[kind].name);
    for (int i = 1; i <= TRIAL_STORED; i++) {
        const bool is_found = look_up(cache, i);
        if (!is_found && kinds[kind].lost != i)
            wrong("an entry whose objects are sound is lost after a repair", kinds[kind].name);
        if (!is_found && (trial_put(cache, i, i == 2, &error) != AOTICACHE_OK || !look_up(cache, i)))
            wrong("what was lost cannot be put again", error.message);
    }
}

static void examine(size_t kind)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = NULL;
    options.directory = trial_cache();
    options.lock_timeout_ms = 500;
    const aoticache_status status = aoticache_cache_open(&options, &cache, &error);
    if (status != AOTICACHE_OK) {
        seen->refused = 1;
        if (error.message[0] == '\0' || strstr(error.message, trial_cache()) == NULL)
            wrong("opening fails and does not name the directory", error.message);
        return; /* the administrator has to decide: see is_allowed_to_refuse() */
    }
    for (int i = 1; i <= TRIAL_STORED; i++)
        if (!look_up(cache, i)) {
            seen->missed++;
            if (kinds[kind].lost != -1 && kinds[kind].lost != i)
                wrong("an entry that does not need the file is not found", kinds[kind].name);
        }
    check_repaired(kind, cache);
    aoticache_cache_close(cache);
}

/*
 * Returns whether refusing is allowed. A file that was replaced by a link was put there by somebody: it is not
 * followed.
 */
static bool is_allowed_to_refuse(size_t kind, enum damage damage)
{
    return kinds[kind].may_refuse || damage == DIRECTORY || damage == LINK;
}

struct tally {
    long tried, failed, missed, refused, problems;
};

static void try_damage(size_t kind, enum damage damage, size_t at, size_t other, struct tally *tally)
{
    int result = 0;
    do_damage(kind, damage, at, other);
    memset(seen, 0, sizeof *seen);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        examine(kind);
        fflush(stdout);
        exit(0);
    }
    if (child < 0 || waitpid(child, &result, 0) != child)
        fail("fork", strerror(errno));
    if (WIFSIGNALED(result))
        snprintf(seen->wrong, sizeof seen->wrong, "it died by signal %d", WTERMSIG(result));
    else if (WEXITSTATUS(result) != 0 && seen->wrong[0] == '\0')
        snprintf(seen->wrong, sizeof seen->wrong, "the process ended with %d", WEXITSTATUS(result));
    else if (seen->refused && !is_allowed_to_refuse(kind, damage))
        snprintf(seen->wrong, sizeof seen->wrong, "it cannot be opened");
    tally->tried++;
    tally->missed += seen->missed > 0;
    tally->refused += seen->refused;
    tally->problems += seen->problems > 0;
    if (seen->wrong[0] == '\0')
        return;
    tally->failed++;
    printf("not ok - %s, %s%s%s at byte %zu: %s\n", kinds[kind].name, damage_names[damage], damage == SWAP ? ", " : "",
           damage == SWAP ? kinds[other].name : "", at, seen->wrong);
}

static long damage_kind(size_t kind, long stride)
{
    struct tally tally = {.tried = 0};
    char path[1400];
    long n = 0;
    snprintf(path, sizeof path, "%s/%s", template_of(kind), paths[kind]);
    const struct bytes bytes = read_all(path);
    const size_t step = bytes.size / POSITIONS + 1;
    free(bytes.data);
    for (enum damage damage = 0; damage < DAMAGE_COUNT; damage++) {
        if (has_positions(damage)) {
            for (size_t at = 0; at < bytes.size; at += step)
                if (n++ % stride == 0)
                    try_damage(kind, damage, at, 0, &tally);
        } else if (damage == SWAP) {
            for (size_t other = 0; other < KIND_COUNT; other++)
                if (other != kind && n++ % (stride / 20 + 1) == 0)
                    try_damage(kind, damage, 0, other, &tally);
        } else {
            try_damage(kind, damage, 0, 0, &tally);
        }
    }
    printf(
        "%s - %s (%zu bytes): damaged %ld times: an entry was missed after %ld, there was something to repair after %ld,"
        " opening was refused after %ld%s\n",
        tally.failed == 0 ? "ok" : "#", kinds[kind].name, bytes.size, tally.tried, tally.missed, tally.problems,
        tally.refused, tally.failed == 0 ? "; all was as it should be" : "");
    return tally.failed;
}

/* ---- the configuration ---- */

static const char configuration[] =
    "max_size = 20G\nmax_age = 90d\nmin_free = 5%\nlock_timeout = 2s\nallow_shared = false\n";

/* Checks that opening reports what is wrong in the configuration, or continues without it. */
static void examine_configured(const char *path)
{
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = NULL;
    setenv("AOTICACHE_CONFIG", path, 1);
    setenv("AOTICACHE_DIR", trial_cache(), 1);
    if (aoticache_cache_open(NULL, &cache, &error) != AOTICACHE_OK) {
        seen->refused = 1;
        if (strstr(error.message, path) == NULL && strstr(error.message, trial_cache()) == NULL)
            wrong("opening fails and names neither the configuration nor the directory", error.message);
        return;
    }
    for (int i = 1; i <= TRIAL_STORED; i++)
        if (!look_up(cache, i))
            wrong("an entry is not found", "with a damaged configuration");
    aoticache_cache_close(cache);
}

static long damage_configuration(long stride)
{
    struct tally tally = {.tried = 0};
    char path[600];
    long n = 0;
    snprintf(path, sizeof path, "%s/config", trial_root());
    trial_use_cache("damaged");
    copy(closed_path, trial_cache());
    for (enum damage damage = 0; damage <= EMPTY; damage++)
        for (size_t at = 0; at < (has_positions(damage) ? strlen(configuration) : 1); at++) {
            struct bytes bytes = {.data = calloc(2, sizeof configuration + REGION), .size = strlen(configuration)};
            if (n++ % (stride / 8 + 1) != 0 || bytes.data == NULL) {
                free(bytes.data);
                continue;
            }
            memcpy(bytes.data, configuration, bytes.size);
            change(&bytes, damage, at, 0);
            const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
            if (fd < 0 || write(fd, bytes.data, bytes.size) != (ssize_t)bytes.size)
                fail("write", path);
            close(fd);
            free(bytes.data);
            int result = 0;
            memset(seen, 0, sizeof *seen);
            fflush(stdout);
            const pid_t child = fork();
            if (child == 0) {
                alarm(60);
                examine_configured(path);
                exit(0);
            }
            if (child < 0 || waitpid(child, &result, 0) != child)
                fail("fork", strerror(errno));
            tally.tried++;
            tally.refused += seen->refused;
            if (WIFEXITED(result) && WEXITSTATUS(result) == 0)
                continue;
            tally.failed++;
            printf("not ok - configuration, %s at byte %zu: %s\n", damage_names[damage], at,
                   WIFSIGNALED(result) ? "it died" : seen->wrong);
        }
    printf("%s - configuration (%zu bytes): damaged %ld times: opening was refused after %ld\n",
           tally.failed == 0 ? "ok" : "#", strlen(configuration), tally.tried, tally.refused);
    return tally.failed;
}

int main(int argc, char **argv)
{
    const char *text = getenv("FAULT_STRIDE");
    const long stride = text != NULL && strtol(text, NULL, 10) > 0 ? strtol(text, NULL, 10) : 80;
    long failed = 0;
    trial_make_root();
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        fail("mmap", strerror(errno));
    make_template();
    for (size_t kind = 0; kind < KIND_COUNT; kind++)
        if (argc < 2 || strstr(kinds[kind].name, argv[1]) != NULL)
            failed += damage_kind(kind, stride);
    if (argc < 2 || strstr("configuration", argv[1]) != NULL)
        failed += damage_configuration(stride);
    remove_directory(trial_root());
    return failed == 0 ? 0 : 1;
}
