/*
 * fault_care: collecting, verifying, repairing, rebuilding the index, exporting, importing and merging, with each call in
 * turn failing (trial.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/names.h"
#include "cache/gc/collect.h"
#include "cache/transfer/transfer.h"
#include "cache/verify/verify.h"
#include "tests/fault/cases.h"
#include "tests/fault/trial.h"
#include "tests/helpers/cache_process.h"

static aoticache_status do_collect(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_entries = 2;
    options.scan = true;
    options.vacuum = true;
    return aoticache_cache_collect(cache, &options, NULL, NULL, NULL, ret_error);
}

static const char *look_at_two(aoticache_cache *cache)
{
    int found = 0;
    for (int i = 1; i <= TRIAL_STORED; i++)
        found += trial_finds(cache, i);
    return found == 2 ? NULL : "there are not two entries after a collection down to two";
}

/* Makes files that dead processes leave. */
static void leave_things(void)
{
    static const char *const names[] = {"tmp/0123456789abcdef",
                                        "leases/00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"};
    char path[700];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%.*s", trial_cache(), (int)strcspn(names[i], "/"), names[i]);
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            fail("mkdir", path);
        snprintf(path, sizeof path, "%s/%s", trial_cache(), names[i]);
        write_file(path, "left over");
        chmod(path, 0600);
    }
}

static aoticache_status verify_with(aoticache_cache *cache, bool repair, aoticache_error *ret_error)
{
    aoticache_verify_options options = AOTICACHE_VERIFY_OPTIONS_INIT;
    aoticache_verify_report report;
    options.repair = repair;
    options.jobs = 2;
    const aoticache_status status = aoticache_cache_verify(cache, &options, NULL, NULL, NULL, &report, ret_error);
    return status;
}

static aoticache_status do_verify(aoticache_cache *cache, aoticache_error *ret_error)
{
    return verify_with(cache, false, ret_error);
}

static aoticache_status do_repair(aoticache_cache *cache, aoticache_error *ret_error)
{
    return verify_with(cache, true, ret_error);
}

static void object_path(int number, char ret_path[800])
{
    aoticache_digest digest;
    char text[64], hex[AOTICACHE_DIGEST_HEX_BYTES];
    library_text(number, text);
    aoticache_digest_of(text, strlen(text), &digest);
    aoticache_digest_to_hex(&digest, hex);
    snprintf(ret_path, 800, "%s/objects/%.2s/%s", trial_cache(), hex, hex + 2);
}

static void damage(const char *path)
{
    if (chmod(path, 0600) != 0)
        fail("damage", path);
    write_file(path, "damaged");
    chmod(path, 0444);
}

static void damage_object(void)
{
    char path[800];
    object_path(1, path);
    damage(path);
}

/* Damages the object of entry 3, which is its manifest with its content. */
static void damage_record(void)
{
    aoticache_cache *cache = trial_open();
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = make_request(3);
    char hex[AOTICACHE_DIGEST_HEX_BYTES], path[800];
    if (aoticache_cache_lookup(cache, request, NULL, &artifact, NULL) != AOTICACHE_OK)
        fail("damage", "there is no entry 3");
    aoticache_digest_to_hex(&aoticache_artifact_get_info(artifact)->digest, hex);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    aoticache_cache_close(cache);
    snprintf(path, sizeof path, "%s/objects/%.2s/%s", trial_cache(), hex, hex + 2);
    damage(path);
}

static const char *look_at_others(aoticache_cache *cache, int damaged)
{
    for (int i = 1; i <= TRIAL_STORED; i++)
        if (i != damaged && !trial_finds(cache, i))
            return "an entry whose objects are sound is lost";
    return trial_finds(cache, damaged) ? "a damaged library is served" : NULL;
}

static const char *look_at_the_rest(aoticache_cache *cache)
{
    return look_at_others(cache, 1);
}

static const char *look_beside_the_record(aoticache_cache *cache)
{
    return look_at_others(cache, 3);
}

/* ---- the index ---- */

static void lose_index(void)
{
    char path[700];
    trial_index_path(path, "");
    unlink(path);
}

/* ---- from one cache to another ---- */

static aoticache_status do_export(aoticache_cache *cache, aoticache_error *ret_error)
{
    const int fd = memfd_create("exported", MFD_CLOEXEC);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "test: no file to export to");
    injection_spare_others();
    const aoticache_status status = aoticache_cache_export(cache, fd, NULL, NULL, ret_error);
    close(fd);
    return status;
}

static const char *look_for_both(aoticache_cache *cache)
{
    return trial_finds(cache, TRIAL_NEW_KEY) && trial_finds(cache, TRIAL_NEW_KEY + 1) ? NULL
                                                                                      : "an entry that came is lost";
}

/* If out of memory, or if libarchive cannot be opened, archives are reported as not supported. */
#define NO_ARCHIVE TRIAL_MAY_BE(UNSUPPORTED)
/* If reading fails, it is unknown whether the object exists: the report counts it as refused. */
#define REFUSED TRIAL_MAY_BE(IO)

static const struct operation operations[] = {
    {.name = "collect", .perform = do_collect, .removes = true, .spoil = leave_things, .look = look_at_two},
    {.name = "verify", .perform = do_verify},
    {.name = "verify --repair",
     .perform = do_repair,
     .spoil = damage_object,
     .removes = true,
     .is_unsound = true,
     .look = look_at_the_rest},
    {.name = "verify --repair of a record",
     .perform = do_repair,
     .spoil = damage_record,
     .removes = true,
     .is_unsound = true,
     .look = look_beside_the_record},
    {.name = "rebuilding the index",
     .perform = trial_reopen,
     .opens_itself = true,
     .spoil = trial_damage_index,
     .is_unsound = true,
     .lacks_unreadable = true},
    {.name = "rebuilding a lost index",
     .perform = trial_reopen,
     .opens_itself = true,
     .spoil = lose_index,
     .is_unsound = true,
     .lacks_unreadable = true},
    /* libarchive 3.6 leaks its buffers if zstd fails. */
    {.name = "export", .perform = do_export, .may_be = NO_ARCHIVE | REFUSED, .keeps_blocks = 2},
    {.name = "import",
     .perform = trial_import,
     .spoil = trial_make_source,
     .may_be = NO_ARCHIVE | REFUSED,
     .look = look_for_both},
    {.name = "merge", .perform = trial_merge, .spoil = trial_make_source, .may_be = REFUSED, .look = look_for_both},
};

int main(int argc, char **argv)
{
    return trial_main(argc, argv, operations, sizeof operations / sizeof operations[0], 90);
}
