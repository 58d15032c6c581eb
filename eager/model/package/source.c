/*
 * eager/model/package/source: data of a package file: its digest, the request for one of its models, the metadata of the
 * model, and the CPU features that its code requires.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/text/json.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/request/cpu_detect.h"
#include "eager/model/package/package_internal.h"

aoticache_status aoticache_package_source_open(aoticache_cache *cache, const char *path,
                                               aoticache_package_source *ret_source, aoticache_error *ret_error)
{
    aoticache_package_source source = {.path = path};
    aoticache_digest digest;
    const uint64_t begun = aoticache_monotonic_ns();
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "the package %s does not exist", path);
    if (fd < 0 || fstat(fd, &source.found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open the package %s", path);
    if (!S_ISREG(source.found.st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the package %s is not a regular file", path);
    aoticache_status status = aoticache_cache_digest_file(cache, fd, &digest, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_digest_to_hex(&digest, source.digest);
    source.digest_ns = aoticache_monotonic_ns() - begun;
    source.fd = steal_fd(&fd);
    *ret_source = source;
    return AOTICACHE_OK;
}

void aoticache_package_source_close(aoticache_package_source *source)
{
    aoticache_package_close(source->package);
    source->package = NULL;
    cleanup_fd_release(&source->fd);
    source->fd = -1;
}

aoticache_status aoticache_package_source_read(aoticache_package_source *source, aoticache_error *ret_error)
{
    if (source->package != NULL)
        return AOTICACHE_OK;
    return aoticache_package_open_fd(source->fd, source->path, &source->package, ret_error);
}

aoticache_status aoticache_package_source_check(const aoticache_package_source *source, aoticache_error *ret_error)
{
    struct stat now;
    const struct stat *then = &source->found;
    if (fstat(source->fd, &now) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read the package %s", source->path);
    if (now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == then->st_mtim.tv_nsec)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_IO, "the package %s was changed while it was being read; try again",
                               source->path);
}

aoticache_status aoticache_package_request_create(const char *digest, const char *model, int32_t device_type,
                                                  const char *machine, aoticache_request **ret_request,
                                                  aoticache_error *ret_error)
{
    aoticache_request *request = NULL;
    const aoticache_device device = {.type = device_type, .index = -1};
    aoticache_status status = aoticache_request_create(AOTICACHE_PACKAGE_OP, device, &request, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_add_string(request, NULL, digest, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_add_string(request, NULL, model, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_set_environment(request, "framework", "pt2", ret_error);
    if (status == AOTICACHE_OK) /* entries of older versions do not describe the inputs */
        status = aoticache_request_set_environment(request, "inputs", "described", ret_error);
    if (status == AOTICACHE_OK && machine[0] != '\0')
        status = aoticache_request_set_environment(request, "arch", machine, ret_error);
    if (status == AOTICACHE_OK)
        *ret_request = request;
    else
        aoticache_request_free(request);
    return status;
}

aoticache_status aoticache_package_request_of(const aoticache_package_source *source,
                                              const aoticache_package_model *model, aoticache_request **ret_request,
                                              aoticache_error *ret_error)
{
    aoticache_device device;
    if (aoticache_device_parse(model->device, &device) != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%s: model %s is for the unknown device %.64s",
                                   source->path, model->name, model->device);
    return aoticache_package_request_create(source->digest, model->name, device.type, model->machine, ret_request,
                                            ret_error);
}

aoticache_status aoticache_package_report_begin(const aoticache_request *request, aoticache_package_report *report,
                                                aoticache_error *ret_error)
{
    char device[AOTICACHE_DEVICE_TEXT_BYTES];
    const aoticache_argument *model = aoticache_request_argument(request, 1);
    aoticache_device_format(aoticache_request_device(request), device);
    snprintf(report->device, sizeof report->device, "%s", device);
    snprintf(report->model, sizeof report->model, "%s", model != NULL ? model->value.string_value : "");
    return aoticache_request_key(request, &report->key, ret_error);
}

/* ---- metadata: kept with the entry, so that it is available without the package ---- */

static bool add_pair(void *user, const char *name, const char *value)
{
    json_t *object = user;
    return json_object_set_new(object, name, json_string(value)) == 0;
}

/* Adds the description of the model's inputs to the package's own metadata. */
static void add_inputs(json_t *object, const aoticache_package_source *source, const aoticache_package_model *model)
{
    char numbers[256] = "";
    cleanup_free char *check = aoticache_package_describe_inputs(source, model, numbers, sizeof numbers);
    if (check == NULL)
        return;
    add_pair(object, AOTICACHE_PACKAGE_INPUTS, check);
    if (numbers[0] != '\0')
        add_pair(object, AOTICACHE_PACKAGE_NUMBERS, numbers);
}

char *aoticache_package_metadata_format(const aoticache_package_source *source, const aoticache_package_model *model)
{
    json_t *object = json_object();
    char *text = NULL;
    if (object != NULL) {
        aoticache_package_list_metadata(source->package, model, add_pair, object);
        add_inputs(object, source, model);
    }
    if (json_object_size(object) > 0) /* in the file's order */
        text = aoticache_json_write(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

struct found {
    bool is_there;
    aoticache_digest artifact;
};

static bool append_entry(void *user, const aoticache_entry *entry)
{
    struct found *found = user;
    found->is_there = strcmp(entry->op, AOTICACHE_PACKAGE_OP) == 0;
    found->artifact = entry->artifact;
    return !found->is_there;
}

static aoticache_status list_pairs(const char *text, const char *key, aoticache_metadata_fn callback, void *user,
                                   aoticache_error *ret_error)
{
    json_error_t problem;
    json_t *object = aoticache_json_parse(text, strlen(text), 0, &problem);
    if (object == NULL && aoticache_json_is_out_of_memory(&problem))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the metadata of the package %s",
                                   key);
    if (!json_is_object(object)) {
        json_decref(object);
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "the stored metadata of the package %s is not a JSON object", key);
    }
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const char *found = json_string_value(value);
        if (found != NULL && !callback(user, name, found))
            break;
    }
    json_decref(object);
    return AOTICACHE_OK;
}

aoticache_status aoticache_package_read_metadata(aoticache_cache *cache, const aoticache_key *key,
                                                 aoticache_metadata_fn callback, void *user, aoticache_error *ret_error)
{
    if (cache == NULL || key == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, key, callback);
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    struct found found = {.is_there = false};
    cleanup_free char *text = NULL;
    aoticache_digest_to_hex(key, hex);
    aoticache_status status = aoticache_cache_list(cache, NULL, hex, append_entry, &found, ret_error);
    if (status == AOTICACHE_OK && !found.is_there)
        status = AOTICACHE_NOT_FOUND;
    if (status == AOTICACHE_OK)
        status = aoticache_cache_read_metadata(cache, &found.artifact, &text, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return aoticache_error_set(ret_error, status, "no metadata is stored for the package %s", hex);
    return status == AOTICACHE_OK ? list_pairs(text, hex, callback, user, ret_error) : status;
}

/*
 * ---- requirements: CPU features that the code of a model needs ----
 *
 * The metadata names the vector extensions that PyTorch's compiler chose ("AVX512 AVX512_VNNI"), not every feature that the C++
 * compiler used. So each word means the x86-64 level that all processors with that extension have.
 */
/* The words that torch/_inductor/cpu_vec_isa.py prints, in capitals. */
static const struct {
    const char *word, *features;
} words[] = {
    {"AVX2", "x86-64-v3"},
    {"AVX512", "x86-64-v4"},
    {"AVX512_VNNI", "x86-64-v4,avx512_vnni"},
    {"AVX512_BF16", "x86-64-v4,avx512_bf16"},
    {"AMX_TILE", "x86-64-v4,avx512_vnni,amx_tile,amx_int8,amx_bf16"},
    {"AMX_FP16", "x86-64-v4,avx512_vnni,amx_tile,amx_int8,amx_bf16,amx_fp16"},
    /* Every 64-bit ARM has these; all wider vectors have the same word (SVE) and cannot be distinguished. */
    {"ASIMD", ""},
    {"NEON", ""},
    {"INVALID_VEC_ISA", ""}, /* plain code */
    {"FALSE", ""},
    {"NONE", ""},
};

static const char *features_of(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].word) == length && strncasecmp(words[i].word, word, length) == 0)
            return words[i].features;
    return NULL;
}

/* Adds the features of a word. A word that is not in the table may be the name of a feature. */
static aoticache_status add_word(const char *word, size_t length, aoticache_cpu_features *features,
                                 aoticache_error *ret_error)
{
    char lower[64] = "";
    aoticache_cpu_features added;
    const char *text = features_of(word, length);
    if (text == NULL) {
        for (size_t i = 0; i < length && i + 1 < sizeof lower; i++)
            lower[i] = (char)tolower((unsigned char)word[i]);
        text = lower;
    }
    if (length >= sizeof lower || aoticache_cpu_features_parse(text, &added, NULL) != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "the package says that its code needs %.*s, which is not a known CPU feature: "
                                   "specify the requirements when you add it",
                                   length < 64 ? (int)length : 64, word);
    for (size_t i = 0; i < AOTICACHE_CPU_FEATURE_WORDS; i++)
        features->words[i] |= added.words[i];
    return AOTICACHE_OK;
}

bool aoticache_package_is_for_this_machine(const aoticache_package_model *model)
{
    return model->machine[0] == '\0' || strcmp(model->machine, aoticache_cpu_arch()) == 0;
}

aoticache_status aoticache_package_requirements(const aoticache_package_model *model,
                                                aoticache_cpu_features *ret_requirements, aoticache_error *ret_error)
{
    aoticache_cpu_features features = {{0}};
    const char *at = model->cpu_isa;
    if (!aoticache_package_is_for_this_machine(model))
        at = ""; /* names mean features of this architecture; by the key, code for others never runs here */
    for (at += strspn(at, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        aoticache_status status = add_word(at, length, &features, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        at += length;
    }
    *ret_requirements = features;
    return AOTICACHE_OK;
}
