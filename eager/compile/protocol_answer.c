/*
 * eager/compile/protocol_answer: converts a hook's answer into a product, and checks everything in it, including the files.
 *
 * The hook is not trusted: it may be any program, and it may be faulty.
 */
#include "base/cleanup.h"
#include "base/text/json.h"
#include "cache/request/cpu_detect.h"
#include "eager/compile/hook_internal.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_COMPILE_SECONDS (366.0 * 24 * 3600)

static aoticache_status refuse_answer(aoticache_error *ret_error, const char *hook, const char *what)
{
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "hook %.160s: its response %s", hook, what);
}

/* ---- files ---- */

static bool is_safe_name(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length > 255 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    for (const char *c = name; *c != '\0'; c++)
        if (*c == '/' || (unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    return true;
}

static char *join_path(const char *directory, const char *path)
{
    char *joined = NULL;
    if (path[0] == '/')
        return strdup(path);
    return asprintf(&joined, "%s/%s", directory, path) > 0 ? joined : NULL;
}

/* Returns the error of a failed open. Lack of descriptors or memory is not a fault of the answer. */
static aoticache_status cannot_open(const char *hook, const char *path, int errno_value, aoticache_error *ret_error)
{
    aoticache_status status =
        aoticache_error_set_errno(ret_error, errno_value, "hook %.160s: cannot open file %s", hook, path);
    if (errno_value != ENOENT && errno_value != ENOTDIR && errno_value != ENAMETOOLONG)
        return status;
    if (ret_error != NULL)
        ret_error->status = AOTICACHE_CORRUPT;
    return AOTICACHE_CORRUPT;
}

/* Checks a file. Opens it with O_NONBLOCK, because opening a FIFO would wait for a writer. */
static aoticache_status check_file(const char *hook, const char *path, aoticache_error *ret_error)
{
    struct stat status;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ELOOP)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "hook %.160s: file %s is a symbolic link", hook, path);
    if (fd < 0 || fstat(fd, &status) != 0)
        return cannot_open(hook, path, errno, ret_error);
    if (!S_ISREG(status.st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "hook %.160s: file %s is not a regular file", hook,
                                   path);
    if (status.st_uid != geteuid())
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "hook %.160s: file %s belongs to user %u, not to user %u", hook, path,
                                   (unsigned)status.st_uid, (unsigned)geteuid());
    if (status.st_size == 0)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "hook %.160s: file %s is empty", hook, path);
    return AOTICACHE_OK;
}

static bool name_is_taken(const aoticache_answer *answer, const char *name)
{
    for (size_t i = 0; i < answer->product.file_count; i++)
        if (strcmp(answer->files[i].name, name) == 0)
            return true;
    return false;
}

static aoticache_status read_file(aoticache_answer *answer, const json_t *entry, const char *hook,
                                  const char *directory, aoticache_error *ret_error)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *path = json_string_value(json_object_get(entry, "path"));
    if (name == NULL || path == NULL || path[0] == '\0')
        return refuse_answer(ret_error, hook, "has a file without \"name\" or \"path\"");
    if (!is_safe_name(name))
        return refuse_answer(ret_error, hook, "has a file whose name is not a single path component");
    if (name_is_taken(answer, name))
        return refuse_answer(ret_error, hook, "has two files with the same name");
    char *joined = join_path(directory, path);
    if (joined == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook %.160s: out of memory", hook);
    size_t position = answer->product.file_count++;
    answer->paths[position] = joined;
    answer->files[position] = (aoticache_file){.name = name, .path = joined};
    return check_file(hook, joined, ret_error);
}

static aoticache_status read_files(aoticache_answer *answer, const char *hook, const char *directory,
                                   aoticache_error *ret_error)
{
    const json_t *files = json_object_get(answer->json, "files");
    size_t count = json_array_size(files);
    if (count == 0 || count > AOTICACHE_PROTOCOL_MAX_FILES)
        return refuse_answer(ret_error, hook, "has no \"files\" (1 to 256)");
    answer->files = calloc(count, sizeof *answer->files);
    answer->paths = calloc(count, sizeof *answer->paths);
    if (answer->files == NULL || answer->paths == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook %.160s: out of memory", hook);
    answer->product.files = answer->files;
    for (size_t i = 0; i < count; i++) {
        aoticache_status status = read_file(answer, json_array_get(files, i), hook, directory, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

/* ---- properties of the files ---- */

/*
 * Joins the features of an answer to one text for the parser. If a hook does not report what its code needs, the safe
 * assumption is everything this machine has.
 */
static aoticache_status read_requirements(aoticache_answer *answer, const char *hook, aoticache_error *ret_error)
{
    const json_t *names = json_object_get(answer->json, "requirements");
    answer->product.requirements = *aoticache_cpu_features_get();
    if (names == NULL || json_is_null(names))
        return AOTICACHE_OK;
    if (!json_is_array(names) || json_array_size(names) > 1024)
        return refuse_answer(ret_error, hook, "has \"requirements\" that are not a list of names");
    aoticache_cpu_features all = {0};
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        aoticache_cpu_features one;
        if (name == NULL || strlen(name) > 63 || aoticache_cpu_features_parse(name, &one, NULL) != AOTICACHE_OK)
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                       "hook %.160s: its response requires \"%.63s\", which is not a known CPU feature",
                                       hook, name != NULL ? name : "(no text)");
        for (size_t word = 0; word < AOTICACHE_CPU_FEATURE_WORDS; word++)
            all.words[word] |= one.words[word];
    }
    answer->product.requirements = all;
    return AOTICACHE_OK;
}

/* Reads which build of the worker made the library, and keeps the reason. */
static aoticache_status read_built(aoticache_answer *answer, const char *hook, aoticache_error *ret_error)
{
    const json_t *built = json_object_get(answer->json, "built");
    if (built == NULL || json_is_null(built))
        return AOTICACHE_OK;
    const char *by = json_string_value(json_object_get(built, "by"));
    const json_t *reason = json_object_get(built, "reason");
    if (by == NULL || (strcmp(by, "aoticache") != 0 && strcmp(by, "pytorch") != 0))
        return refuse_answer(ret_error, hook, "has a \"built\" without a \"by\" that is aoticache or pytorch");
    if (strcmp(by, "aoticache") == 0)
        return AOTICACHE_OK;
    if (!json_is_string(reason) || json_string_length(reason) == 0 || json_string_length(reason) > 511)
        return refuse_answer(ret_error, hook, "has a \"built\" whose \"reason\" is not a string of 1 to 511 bytes");
    answer->product.fallback = json_string_value(reason);
    return AOTICACHE_OK;
}

static aoticache_status read_details(aoticache_answer *answer, const char *hook, aoticache_error *ret_error)
{
    const json_t *producer = json_object_get(answer->json, "producer");
    if (producer != NULL && (!json_is_string(producer) || json_string_length(producer) > 255))
        return refuse_answer(ret_error, hook, "has a \"producer\" that is not a string of at most 255 bytes");
    answer->product.producer = json_string_value(producer);
    const json_t *guard = json_object_get(answer->json, "guard");
    if (guard != NULL && !json_is_null(guard) &&
        (!json_is_string(guard) || json_string_length(guard) == 0 ||
         json_string_length(guard) != strlen(json_string_value(guard))))
        return refuse_answer(ret_error, hook, "has a \"guard\" that is not a string");
    answer->product.guard = json_string_value(guard);
    const json_t *seconds = json_object_get(answer->json, "compile_seconds");
    if (seconds == NULL)
        return AOTICACHE_OK;
    double value = json_number_value(seconds);
    if (!json_is_number(seconds) || !isfinite(value) || value < 0 || value > MAX_COMPILE_SECONDS)
        return refuse_answer(ret_error, hook, "has \"compile_seconds\" that are not a duration");
    answer->product.compile_ns = (uint64_t)(value * 1e9);
    return AOTICACHE_OK;
}

/* ---- the whole answer ---- */

/* Reads one line of JSON: an object and nothing else. */
static aoticache_status read_object(const char *bytes, size_t size, const char *hook, json_t **ret_object,
                                    aoticache_error *ret_error)
{
    json_error_t error;
    if (size > AOTICACHE_PROTOCOL_LINE_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "hook %.160s: its response has %zu bytes; at most %d are allowed", hook, size,
                                   AOTICACHE_PROTOCOL_LINE_BYTES);
    json_t *root = aoticache_json_parse(bytes, size, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && aoticache_json_is_out_of_memory(&error))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook %.160s: out of memory for its response", hook);
    if (root == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "hook %.160s: its response is not valid JSON, at byte %d: %s", hook, error.position,
                                   error.text);
    if (json_is_object(root)) {
        *ret_object = root;
        return AOTICACHE_OK;
    }
    json_decref(root);
    return refuse_answer(ret_error, hook, "is JSON, but not an object");
}

/* Reports that the hook could not compile. Its text may be many lines of the compiler. */
static aoticache_status read_refusal(const json_t *root, const char *hook, aoticache_error *ret_error)
{
    const char *text = json_string_value(json_object_get(root, "error"));
    bool unsupported = json_is_true(json_object_get(root, "unsupported"));
    if (text == NULL || text[0] == '\0')
        text = "it gives no reason";
    return aoticache_error_set(ret_error, unsupported ? AOTICACHE_UNSUPPORTED : AOTICACHE_COMPILE_FAILED,
                               "hook %.160s: %s", hook, text);
}

static aoticache_status read_parts(aoticache_answer *answer, uint64_t id, const char *hook, const char *directory,
                                   aoticache_error *ret_error)
{
    const json_t *id_value = json_object_get(answer->json, "id");
    const json_t *ok = json_object_get(answer->json, "ok");
    if (!json_is_integer(id_value) || (uint64_t)json_integer_value(id_value) != id)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "hook %.160s: its response has id %lld, expected %llu",
                                   hook, (long long)json_integer_value(id_value), (unsigned long long)id);
    if (!json_is_boolean(ok))
        return refuse_answer(ret_error, hook, "has no \"ok\" that is true or false");
    if (json_is_false(ok))
        return read_refusal(answer->json, hook, ret_error);
    aoticache_status status = read_files(answer, hook, directory, ret_error);
    if (status == AOTICACHE_OK)
        status = read_requirements(answer, hook, ret_error);
    if (status == AOTICACHE_OK)
        status = read_built(answer, hook, ret_error);
    return status == AOTICACHE_OK ? read_details(answer, hook, ret_error) : status;
}

aoticache_status aoticache_protocol_read_answer(const char *bytes, size_t size, uint64_t id, const char *hook,
                                                const char *directory, aoticache_answer *ret_answer,
                                                aoticache_error *ret_error)
{
    aoticache_answer answer = {.product = AOTICACHE_PRODUCT_INIT};
    aoticache_status status = read_object(bytes, size, hook, &answer.json, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = read_parts(&answer, id, hook, directory, ret_error);
    if (status == AOTICACHE_OK)
        *ret_answer = answer;
    else
        aoticache_answer_free(&answer);
    return status;
}

void aoticache_answer_free(aoticache_answer *answer)
{
    if (answer->paths != NULL)
        for (size_t i = 0; i < answer->product.file_count; i++)
            free(answer->paths[i]);
    free(answer->paths);
    free(answer->files);
    free(answer->output);
    json_decref(answer->json);
    *answer = (aoticache_answer){0};
}

aoticache_status aoticache_protocol_read_hello(const char *bytes, size_t size, const char *hook,
                                               aoticache_hello *ret_hello, aoticache_error *ret_error)
{
    json_t *root = NULL;
    aoticache_status status = read_object(bytes, size, hook, &root, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_hello hello = {.json = root,
                             .producer = json_string_value(json_object_get(root, "producer")),
                             .python = json_string_value(json_object_get(root, "python"))};
    const json_t *version = json_object_get(root, "hello");
    if (!json_is_integer(version) || json_integer_value(version) != AOTICACHE_PROTOCOL_VERSION)
        status = refuse_answer(ret_error, hook, "is not the greeting of a worker that speaks protocol 1");
    else if (json_object_get(root, "error") != NULL)
        status = read_refusal(root, hook, ret_error);
    else if (hello.producer == NULL || hello.python == NULL)
        status = refuse_answer(ret_error, hook, "is a greeting without a producer or Python version");
    if (status == AOTICACHE_OK)
        *ret_hello = hello;
    else
        json_decref(root);
    return status;
}
