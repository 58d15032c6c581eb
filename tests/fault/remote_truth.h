/*
 * remote_truth: what the server of fault_remote.c has: seven entries with their files, keys, requirements and signers,
 * and which of them this machine may import; the caches that they were pushed from.
 */
#ifndef AOTICACHE_TESTS_FAULT_REMOTE_TRUTH_H
#define AOTICACHE_TESTS_FAULT_REMOTE_TRUTH_H

#include "base/digest.h"
#include "base/names.h"
#include "cache/entries.h"
#include "cache/request/cpu_detect.h"
#include "cache/trust/trust.h"
#include "tests/fault/remote_liar.h"
#include "tests/fault/trial.h"
#include "tests/helpers/cache_process.h"

static const char url[] = "mutant:/truth";
static const char small_guard[] = "s0 > 1", large_guard[] = "s0 > 100";

/* ---- the truth ---- */

struct file {
    const char *name;
    size_t bytes;
    bool is_random; /* incompressible */
};

/* One entry, made and pushed once. For one key and one guard or set of features, the server has the last one. */
struct version {
    int key;
    const char *guard;
    bool is_demanding, is_foreign;
    bool is_revoked, is_old, is_too_large;
    bool is_record; /* its file is in its manifest */
    bool is_spare;  /* not wanted if there is a more demanding one */
    size_t file_count;
    struct file files[3];
    aoticache_digest artifact; /* filled in at run time */
};

static struct version versions[] = {
    {.key = 1, .is_revoked = true, .is_old = true, .file_count = 1, .files = {{"k.so", 3000, false}}},
    {.key = 1, .is_old = true, .file_count = 1, .files = {{"k.so", 3001, false}}},
    {.key = 1, .file_count = 1, .files = {{"k.so", 3002, false}}},
    {.key = 2, .file_count = 3, .files = {{"k.so", 20000, false}, {"w.bin", 700, false}, {"empty", 0, false}}},
    {.key = 3, .guard = large_guard, .file_count = 1, .files = {{"k.so", 2500, false}}},
    {.key = 3, .guard = small_guard, .is_record = true, .file_count = 1, .files = {{"k.so", 2600, false}}},
    {.key = 4, .is_spare = true, .file_count = 1, .files = {{"k.so", 1500, false}}},
    {.key = 4, .is_demanding = true, .file_count = 2, .files = {{"k.so", 1600, false}, {"w.bin", 100, false}}},
    {.key = 5, .is_record = true, .file_count = 1, .files = {{"k.so", 40000, true}}},
    {.key = 6, .is_too_large = true, .file_count = 1, .files = {{"k.so", 100000, false}}},
    {.key = 1, .is_foreign = true, .file_count = 1, .files = {{"k.so", 3003, false}}},
    {.key = 2,
     .is_foreign = true,
     .file_count = 3,
     .files = {{"k.so", 20001, false}, {"w.bin", 701, false}, {"empty", 0, false}}},
    {.key = 3,
     .guard = small_guard,
     .is_foreign = true,
     .is_record = true,
     .file_count = 1,
     .files = {{"k.so", 2601, false}}},
    {.key = 4, .is_demanding = true, .is_foreign = true, .file_count = 1, .files = {{"k.so", 1601, false}}},
    {.key = 5, .is_foreign = true, .is_record = true, .file_count = 1, .files = {{"k.so", 40001, true}}},
    {.key = 6, .is_foreign = true, .file_count = 1, .files = {{"k.so", 300, false}}},
};
#define VERSIONS (sizeof versions / sizeof versions[0])
#define KEYS 6

static aoticache_key keys[KEYS + 1];
static aoticache_digest compiled;  /* the manifest of the hook's kernel in this case; all zero: none */
static aoticache_digest too_large; /* the library that only the hook can make */
static char trusted[AOTICACHE_PUBLIC_KEY_TEXT_BYTES], revoked[AOTICACHE_DIGEST_HEX_BYTES];
static aoticache_secret_key *ann, *bob, *impostor;

static bool may_come(const struct version *version)
{
    return !version->is_foreign && !version->is_revoked && !version->is_too_large;
}

/* Returns whether a pull from an honest server imports the version. */
static bool is_wanted(const struct version *version, int key)
{
    return version->key == key && may_come(version) && !version->is_old && !version->is_spare;
}

/* Returns one feature that this machine has. If it has none, the two entries of key 4 are the same. */
static aoticache_cpu_features feature(void)
{
    const aoticache_cpu_features *have = aoticache_cpu_features_get();
    aoticache_cpu_features one = {{0}};
    for (size_t i = 0; i < AOTICACHE_CPU_FEATURE_WORDS && aoticache_cpu_features_count(&one) == 0; i++)
        one.words[i] = have->words[i] & (~have->words[i] + 1);
    return one;
}

static aoticache_request *request_of(int key)
{
    aoticache_request *request = make_request(key);
    if (key == 3 && aoticache_request_set_environment(request, AOTICACHE_SHAPES_NAME, AOTICACHE_SHAPES_DYNAMIC, NULL) !=
                        AOTICACHE_OK)
        fail("request", "it cannot be made dynamic");
    return request;
}

/* Makes text that compresses about as code does, or incompressible bytes; different sizes give different bytes. */
static void make_bytes(const struct file *file, unsigned char *ret_bytes)
{
    uint64_t state = file->bytes * 2654435761u + 1;
    for (size_t i = 0; i < file->bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ret_bytes[i] = (unsigned char)(file->is_random ? (int)(state >> 56) : "mov rax "[state >> 61] + (i % 64 == 0));
    }
}

static void path_of(const struct file *file, char ret_path[700])
{
    snprintf(ret_path, 700, "%s/%s-%zu", trial_root(), file->name, file->bytes);
}

/* Describes the files of a version, at separate paths, for a put or for the hook. */
static void describe_product(const struct version *version, aoticache_product *ret_product, aoticache_file files[3],
                             char paths[3][700])
{
    *ret_product = (aoticache_product)AOTICACHE_PRODUCT_INIT;
    for (size_t i = 0; i < version->file_count; i++) {
        path_of(&version->files[i], paths[i]);
        files[i] = (aoticache_file){.name = version->files[i].name, .path = paths[i]};
    }
    ret_product->files = files;
    ret_product->file_count = version->file_count;
    ret_product->producer = "test";
    ret_product->guard = version->guard;
    ret_product->in_manifest = version->is_record;
    if (version->is_demanding)
        ret_product->requirements = feature();
}

static void write_files(const struct version *version)
{
    static unsigned char bytes[100000];
    for (size_t i = 0; i < version->file_count; i++) {
        char path[700];
        path_of(&version->files[i], path);
        make_bytes(&version->files[i], bytes);
        const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, bytes, version->files[i].bytes) != (ssize_t)version->files[i].bytes)
            fail("write", path);
        close(fd);
    }
}

static void put_version(aoticache_cache *cache, struct version *version)
{
    char paths[3][700];
    aoticache_file files[3];
    aoticache_product product;
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    write_files(version);
    describe_product(version, &product, files, paths);
    aoticache_request *request = request_of(version->key);
    if (aoticache_cache_put(cache, request, &product, &artifact, &error) != AOTICACHE_OK ||
        aoticache_request_key(request, &keys[version->key], &error) != AOTICACHE_OK)
        fail("put", error.message);
    version->artifact = *&aoticache_artifact_get_info(artifact)->digest;
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
}

/* Records the objects of a version that may be imported. */
static void learn_version(aoticache_cache *cache, const struct version *version)
{
    static unsigned char bytes[200000];
    char *text = NULL;
    aoticache_error error = {.message = ""};
    if (aoticache_cache_read_manifest(cache, &version->artifact, &text, &error) != AOTICACHE_OK)
        fail("manifest", error.message);
    mutant_note_manifest(&version->artifact);
    const size_t size = strlen(text);
    if (version->is_record) { /* the file follows the text */
        memcpy(bytes, text, size);
        make_bytes(&version->files[0], bytes + size);
        if (may_come(version))
            mutant_learn(&version->artifact, bytes, size + version->files[0].bytes);
    } else if (may_come(version)) {
        mutant_learn(&version->artifact, text, size);
    }
    free(text);
    for (size_t i = 0; i < version->file_count && !version->is_record; i++) {
        aoticache_digest digest;
        make_bytes(&version->files[i], bytes);
        aoticache_digest_of(bytes, version->files[i].bytes, &digest);
        if (may_come(version))
            mutant_learn(&digest, bytes, version->files[i].bytes);
        if (version->is_too_large)
            too_large = digest;
    }
}

/* ---- caches ---- */

static void take_line(void *user, aoticache_log_level level, const char *line);

static aoticache_cache *open_at(const char *name, const char *remote, bool is_trusting)
{
    char path[600];
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    snprintf(path, sizeof path, "%s/%s", trial_root(), name);
    options.directory = path;
    options.is_configured = true;
    options.key_directory = "";
    options.trusted_keys = is_trusting ? trusted : NULL;
    options.revoked_keys = is_trusting ? revoked : NULL;
    options.remote = remote;
    options.logger.log = take_line;
    aoticache_cache *cache = open_with(&options);
    mutant_plug(cache);
    return cache;
}

static _Noreturn void skip(const char *reason)
{
    remove_directory(trial_root());
    printf("skip - remote: %s\n", reason);
    fflush(stdout);
    _exit(77);
}

static void push_to(aoticache_cache *cache, const aoticache_secret_key *first, const aoticache_secret_key *second)
{
    const aoticache_secret_key *const signers[] = {first, second};
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    options.signers = signers;
    options.signer_count = second != NULL ? 2 : 1;
    const aoticache_status status = aoticache_cache_push(cache, NULL, &options, &report, &error);
    if (status == AOTICACHE_UNSUPPORTED)
        skip(error.message); /* no libzstd */
    if (status != AOTICACHE_OK || report.refused > 0)
        fail("push", error.message);
}

/* Fills the servers. Each version is pushed as soon as it is made, so that the server has old records, too. */
static void fill_servers(void)
{
    aoticache_cache *truth = open_at("truth", "mutant:/truth", false);
    aoticache_cache *foreign = open_at("foreign", "mutant:/foreign", false);
    aoticache_error error = {.message = ""};
    if (aoticache_secret_key_generate("ann", &ann, &error) == AOTICACHE_UNSUPPORTED)
        skip(error.message);
    if (aoticache_secret_key_generate("bob", &bob, &error) != AOTICACHE_OK ||
        aoticache_secret_key_generate("ann", &impostor, &error) != AOTICACHE_OK)
        fail("keys", error.message);
    aoticache_public_key_format(aoticache_secret_key_public(ann), trusted);
    for (size_t i = 0; i < VERSIONS; i++) {
        aoticache_cache *cache = versions[i].is_foreign ? foreign : truth;
        put_version(cache, &versions[i]);
        learn_version(cache, &versions[i]);
        if (versions[i].is_foreign)
            push_to(cache, i % 2 == 0 ? bob : impostor, NULL);
        else
            push_to(cache, ann, bob);
        if (versions[i].is_revoked)
            aoticache_digest_to_hex(&versions[i].artifact, revoked);
        if (versions[i].is_old)
            mutant_keep_record(&keys[versions[i].key]);
    }
    aoticache_cache_close(truth);
    aoticache_cache_close(foreign);
}

#endif
