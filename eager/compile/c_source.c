/*
 * eager/compile/c_source: the hook that compiles kernels written in C, one file or text of the caller per operator, with the
 * compiler of this machine.
 *
 * request_macros.c defines what a source sees of the request; the output is linked with runtime/. The output is the same for
 * the same request: it contains no paths, times or build ids.
 */
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/names.h"
#include "base/process/home.h"
#include "base/syscalls.h"
#include "base/text/name_distance.h"
#include "base/text/stream.h"
#include "cache/request/text.h"
#include "eager/compile/hook_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

/* Part of the key, for how sources are compiled here: change it together with the options below. */
#define RECIPE "libaoticache " AOTICACHE_VERSION " recipe 1\n"
/* A source uses this word in an #error to report that it does not serve the request: this is not a failure. */
#define UNSUPPORTED_MARK "AOTICACHE_UNSUPPORTED"
#define ASK_LIMIT_NS (20 * UINT64_C(1000000000))
#define MAX_SOURCE_BYTES (4 * 1024 * 1024)

#define MAX_DIRECTORIES 17 /* those of kernel_directories, and `kernels` */

struct c_state {
    char *directories[MAX_DIRECTORIES]; /* directories of sources, in the order of search; absolute */
    size_t directory_count;
    const char *(*source)(void *user, const char *op); /* NULL: there are only files */
    void *source_user;
    aoticache_cpu_target target;
    _Atomic(aoticache_compiler *) compiler; /* its properties; queried once, when first needed */
    char plain_producer[160];               /* if it does not report any */
};

/* ---- the compiler ---- */

/* Queries the compiler without a lock. If two threads do so concurrently, both get the same result, and one is dropped. */
static aoticache_status get_compiler(const aoticache_hook *hook, uint64_t deadline_ns,
                                     const aoticache_compiler **ret_compiler, aoticache_error *ret_error)
{
    struct c_state *state = hook->state;
    aoticache_compiler *known = atomic_load(&state->compiler);
    if (known == NULL) {
        cleanup_free aoticache_compiler *fresh = malloc(sizeof *fresh);
        if (fresh == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook c: out of memory");
        const char *const *environment = (const char *const *)hook->environment;
        aoticache_status status = aoticache_cpu_target_resolve(hook->program, state->target.flags, environment,
                                                               deadline_ns, fresh, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (atomic_compare_exchange_strong(&state->compiler, &known, fresh))
            known = steal_ptr(&fresh);
    }
    *ret_compiler = known;
    return AOTICACHE_OK;
}

/* ---- the source ---- */

static int is_source(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 2 && strcmp(entry->d_name + length - 2, ".c") == 0;
}

/* Guesses the operator of a file: the first '_' ends the namespace, and a '_' before a capital begins the overload. */
static void guess_operator(const char *file, char ret_op[AOTICACHE_KERNEL_FILE_BYTES])
{
    const size_t length = strlen(file) - strlen(".c"), space = strcspn(file, "_");
    size_t used = 0;
    for (size_t i = 0; i < length && used + 3 < AOTICACHE_KERNEL_FILE_BYTES; i++) {
        const bool begins_overload = i > space && file[i] == '_' && file[i + 1] >= 'A' && file[i + 1] <= 'Z';
        if (i == space)
            ret_op[used++] = ':';
        ret_op[used++] = i == space ? ':' : begins_overload ? '.' : file[i];
    }
    ret_op[used] = '\0';
}

/* Sets ret_nearest to an operator of this directory if its name is nearer than *ret_nearest. */
static void find_nearest_source(const char *directory, const char *op, size_t *least,
                                char ret_nearest[AOTICACHE_KERNEL_FILE_BYTES])
{
    struct dirent **files = NULL;
    const int count = scandir(directory, &files, is_source, alphasort);
    for (int i = 0; i < count; i++) {
        char known[AOTICACHE_KERNEL_FILE_BYTES];
        guess_operator(files[i]->d_name, known);
        const size_t distance = aoticache_operator_distance(op, known);
        if (distance < *least) {
            *least = distance;
            memcpy(ret_nearest, known, sizeof known);
        }
        free(files[i]);
    }
    free(files);
}

/* Writes "; did you mean aten::abs?" for the nearest existing kernel, or "". */
static void suggest_operator(const struct c_state *state, const char *op, char *ret_hint, size_t size)
{
    char nearest[AOTICACHE_KERNEL_FILE_BYTES];
    size_t least = AOTICACHE_NOT_NEAR;
    ret_hint[0] = '\0';
    for (size_t i = 0; i < state->directory_count; i++)
        find_nearest_source(state->directories[i], op, &least, nearest);
    if (least < AOTICACHE_NOT_NEAR)
        snprintf(ret_hint, size, "; did you mean %s?", nearest);
}

/* Finds the source: the caller's text, or NULL with the position of the directory that has the file. The text may include
 * headers of all directories. */
static aoticache_status find_source(const struct c_state *state, const char *op, const char **ret_text,
                                    size_t *ret_directory, aoticache_error *ret_error)
{
    *ret_directory = 0;
    *ret_text = state->source != NULL ? state->source(state->source_user, op) : NULL;
    if (*ret_text != NULL)
        return AOTICACHE_OK;
    char name[AOTICACHE_KERNEL_FILE_BYTES], path[PATH_MAX], tried[512] = "";
    size_t used = 0;
    aoticache_kernel_file_name(op, name);
    for (size_t i = 0; i < state->directory_count; i++) {
        int length = snprintf(path, sizeof path, "%s/%s", state->directories[i], name);
        if (length > 0 && (size_t)length < sizeof path && eaccess(path, R_OK) == 0) {
            *ret_directory = i;
            return AOTICACHE_OK;
        }
        if (used < sizeof tried)
            used +=
                (size_t)snprintf(tried + used, sizeof tried - used, "%s%s", i > 0 ? ", " : "", state->directories[i]);
    }
    char hint[AOTICACHE_KERNEL_FILE_BYTES + 32];
    suggest_operator(state, op, hint, sizeof hint);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "hook c: no kernel for %s: %s is not in %s%s", op,
                               name, tried, hint);
}

/* Adds a file to the bytes to be hashed: its name, its size, its bytes. */
static aoticache_status hash_file(const char *directory, const char *name, FILE *out, aoticache_error *ret_error)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    cleanup_fd int fd = length > 0 && length < PATH_MAX ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    aoticache_digest digest;
    uint64_t size = 0;
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "hook c: cannot read %s/%s", directory, name);
    aoticache_status status = aoticache_digest_of_fd(fd, &digest, &size, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&digest, hex);
    fprintf(out, "%s %s\n", name, hex);
    return AOTICACHE_OK;
}

static int is_header(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 2 && strcmp(entry->d_name + length - 2, ".h") == 0;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static aoticache_status hash_headers(const char *directory, FILE *out, aoticache_error *ret_error)
{
    struct dirent **headers = NULL;
    aoticache_status status = AOTICACHE_OK;
    int count = scandir(directory, &headers, is_header, compare_names);
    if (count < 0)
        return aoticache_error_set_errno(ret_error, errno, "hook c: cannot read directory %s", directory);
    for (int i = 0; i < count; i++) {
        if (status == AOTICACHE_OK)
            status = hash_file(directory, headers[i]->d_name, out, ret_error);
        free(headers[i]);
    }
    free(headers);
    return status;
}

static aoticache_status hash_text(const char *text, FILE *out, aoticache_error *ret_error)
{
    aoticache_digest digest;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_status status = aoticache_digest_of(text, strlen(text), &digest);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "hook c: out of memory");
    aoticache_digest_to_hex(&digest, hex);
    fprintf(out, "source %s\n", hex);
    return AOTICACHE_OK;
}

/* Hashes the source and the headers that it may include: those of its own directory and of later directories. */
static aoticache_status hash_sources(const struct c_state *state, const char *op, const char *text, size_t directory,
                                     FILE *out, aoticache_error *ret_error)
{
    char name[AOTICACHE_KERNEL_FILE_BYTES];
    aoticache_kernel_file_name(op, name);
    fputs(RECIPE, out);
    aoticache_status status =
        text != NULL ? hash_text(text, out, ret_error) : hash_file(state->directories[directory], name, out, ret_error);
    for (size_t i = directory; i < state->directory_count && status == AOTICACHE_OK; i++)
        status =
            hash_headers(state->directories[i], out, ret_error); /* of two headers with one name the first is used */
    return status;
}

/* Sets the version of a kernel: the digest of everything it is compiled from. A change in a source makes new keys. */
static aoticache_status c_set_environment(const aoticache_hook *hook, aoticache_request *request,
                                          aoticache_error *ret_error)
{
    const struct c_state *state = hook->state;
    const char *source;
    size_t directory;
    aoticache_status status = find_source(state, aoticache_request_op(request), &source, &directory, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    cleanup_free char *text = NULL;
    size_t size = 0;
    FILE *out = aoticache_text_stream_open(&text, &size);
    if (out == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook c: out of memory");
    status = hash_sources(state, aoticache_request_op(request), source, directory, out, ret_error);
    bool complete = fclose(out) == 0;
    aoticache_digest digest;
    if (status == AOTICACHE_OK && (!complete || aoticache_digest_of(text, size, &digest) != AOTICACHE_OK))
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook c: out of memory");
    if (status != AOTICACHE_OK)
        return status;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&digest, hex);
    status = aoticache_request_set_environment(request, "framework", "c", ret_error);
    return status != AOTICACHE_OK ? status
                                  : aoticache_request_set_environment(request, "framework_version", hex, ret_error);
}

/* ---- compiling ---- */

static aoticache_status write_text(const char *path, const char *text, size_t size, aoticache_error *ret_error)
{
    cleanup_fd int fd = aoticache_syscall_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0 || aoticache_syscall_write(fd, text, size) != 0)
        return aoticache_error_set_errno(ret_error, errno, "hook c: cannot write %s", path);
    return AOTICACHE_OK;
}

static aoticache_status write_request_header(const aoticache_request *request, const char *path,
                                             aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    size_t size = 0;
    aoticache_status status = aoticache_request_macros(request, &text, &size, ret_error);
    return status == AOTICACHE_OK ? write_text(path, text, size, ret_error) : status;
}

/* Reports the compiler's message, or UNSUPPORTED if the source reports in it that it does not serve the request. */
static aoticache_status judge_failure(aoticache_process *process, const aoticache_request *request, const char *source,
                                      aoticache_status status, aoticache_error *ret_error)
{
    char asked[300];
    const char *mark = process->tail != NULL ? strstr(process->tail, UNSUPPORTED_MARK) : NULL;
    if (status != AOTICACHE_COMPILE_FAILED || mark == NULL)
        return status;
    mark += sizeof UNSUPPORTED_MARK - 1;
    mark += strspn(mark, ": ");
    aoticache_request_format(request, asked, sizeof asked);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "hook c: %s by %.300s: %.*s", asked, source,
                               (int)strcspn(mark, "\"\n"), mark);
}

/* Paths used by a compile. */
struct c_paths {
    size_t directory; /* position of the source's directory */
    char source[PATH_MAX], header[PATH_MAX], output[PATH_MAX];
    char runtime[PATH_MAX], torch[PATH_MAX], include[PATH_MAX];
};

/* Sets paths->source: the file, or a new one with the caller's text. */
static aoticache_status name_source(const struct c_state *state, const char *op, const char *text,
                                    struct c_paths *paths, const char *scratch, aoticache_error *ret_error)
{
    if (text != NULL) {
        snprintf(paths->source, sizeof paths->source, "%s/source.c", scratch);
        return write_text(paths->source, text, strlen(text), ret_error);
    }
    char name[AOTICACHE_KERNEL_FILE_BYTES];
    const char *directory = state->directories[paths->directory];
    aoticache_kernel_file_name(op, name);
    int length = snprintf(paths->source, sizeof paths->source, "%s/%s", directory, name);
    return length > 0 && (size_t)length < sizeof paths->source
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                     "hook c: the path of directory %.400s... is too long", directory);
}

/* Finds the paths of the installation. */
static aoticache_status find_home(struct c_paths *paths, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_home_find("include/aoticache/runtime/kernel.h", paths->include, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_home_find("lib/libaoticache_runtime.a", paths->runtime, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_home_find("lib/aoticache/libtorch_cpu.so", paths->torch, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *strstr(paths->include, "/runtime/kernel.h") = '\0';
    return AOTICACHE_OK;
}

static aoticache_status run_compiler(const aoticache_hook *hook, const struct c_paths *paths,
                                     const aoticache_request *request, uint64_t deadline_ns, char **ret_output,
                                     aoticache_error *ret_error)
{
    const struct c_state *state = hook->state;
    const char *arguments[AOTICACHE_CPU_TARGET_FLAGS + 2 * MAX_DIRECTORIES + 40] = {hook->program};
    size_t count = 1;
    for (size_t i = 0; state->target.flags[i] != NULL; i++)
        arguments[count++] = state->target.flags[i];
    arguments[count++] = "-I";
    arguments[count++] = paths->include;
    for (size_t i = paths->directory; i < state->directory_count; i++) {
        arguments[count++] = "-I";
        arguments[count++] = state->directories[i];
    }
    /*
     * Contracting operations into fused ones would change results from PyTorch's. Nobody reads errno and traps here. Integers
     * wrap, as PyTorch's do.
     */
    const char *const rest[] = {"-std=gnu11",
                                "-O3",
                                "-g0",
                                "-fPIC",
                                "-shared",
                                "-fvisibility=hidden",
                                "-ffp-contract=off",
                                "-fno-math-errno",
                                "-fno-trapping-math",
                                "-fwrapv",
                                "-fmax-errors=3",
                                "-fdiagnostics-color=never",
                                "-include",
                                paths->header,
                                paths->source,
                                paths->runtime,
                                "-Wl,--no-as-needed",
                                paths->torch,
                                "-Wl,--as-needed",
                                "-lm",
                                "-Wl,--build-id=none",
                                "-Wl,-s",
                                "-o",
                                paths->output,
                                NULL};
    memcpy(arguments + count, rest, sizeof rest);
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    aoticache_process_options options = {.program = hook->program,
                                         .arguments = arguments,
                                         .directory = AOTICACHE_PROCESS_NEUTRAL_DIRECTORY,
                                         .ends_with_host = true};
    aoticache_hook_set_process_options(hook, &options);
    aoticache_status status = aoticache_process_run(&options, 1 << 20, deadline_ns, &process, ret_error);
    if (status == AOTICACHE_OK)
        *ret_output = aoticache_process_output(&process);
    else
        status = judge_failure(&process, request, paths->source, status, ret_error);
    aoticache_process_free(&process);
    return status;
}

/* Describes the output file in the form of a hook's answer. Takes ownership of `said`. */
static aoticache_status fill_answer(const aoticache_compiler *compiler, const char *output, char *said,
                                    aoticache_answer *ret_answer, aoticache_error *ret_error)
{
    aoticache_answer answer = {.product = AOTICACHE_PRODUCT_INIT,
                               .output = said,
                               .files = calloc(1, sizeof *answer.files),
                               .paths = calloc(1, sizeof *answer.paths)};
    char *path = strdup(output);
    if (answer.files == NULL || answer.paths == NULL || path == NULL) {
        free(path);
        aoticache_answer_free(&answer);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook c: out of memory");
    }
    answer.paths[0] = path;
    answer.files[0] = (aoticache_file){.name = "kernel.so", .path = path};
    answer.product.files = answer.files;
    answer.product.file_count = 1;
    answer.product.requirements = compiler->features;
    answer.product.producer = compiler->producer;
    *ret_answer = answer;
    return AOTICACHE_OK;
}

static aoticache_status c_compile(aoticache_hook *hook, const aoticache_request *request, const char *directory,
                                  uint64_t deadline_ns, aoticache_answer *ret_answer, aoticache_error *ret_error)
{
    struct c_state *state = hook->state;
    const char *op = aoticache_request_op(request), *text = NULL;
    const aoticache_compiler *compiler;
    cleanup_free char *said = NULL;
    cleanup_free struct c_paths *paths = calloc(1, sizeof *paths);
    if (paths == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook c: out of memory");
    if (strlen(directory) > PATH_MAX - 32)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook c: directory %s is too long", directory);
    snprintf(paths->header, sizeof paths->header, "%s/request.h", directory);
    snprintf(paths->output, sizeof paths->output, "%s/kernel.so", directory);
    aoticache_status status = find_source(state, op, &text, &paths->directory, ret_error);
    if (status == AOTICACHE_OK)
        status = name_source(state, op, text, paths, directory, ret_error);
    if (status == AOTICACHE_OK)
        status = find_home(paths, ret_error);
    if (status == AOTICACHE_OK)
        status = write_request_header(request, paths->header, ret_error);
    if (status == AOTICACHE_OK)
        status = get_compiler(hook, deadline_ns, &compiler, ret_error);
    if (status == AOTICACHE_OK)
        status = run_compiler(hook, paths, request, deadline_ns, &said, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return fill_answer(compiler, paths->output, steal_ptr(&said), ret_answer, ret_error);
}

/* ---- the hook ---- */

/* Returns "cc gcc 12.2.0"; if the compiler does not answer, just its name. */
static const char *c_producer(const aoticache_hook *hook)
{
    struct c_state *state = hook->state;
    const aoticache_compiler *compiler;
    if (get_compiler(hook, aoticache_monotonic_ns() + ASK_LIMIT_NS, &compiler, NULL) != AOTICACHE_OK)
        return state->plain_producer;
    return compiler->producer;
}

static aoticache_hook_shapes c_shapes(const aoticache_hook *hook)
{
    (void)hook;
    return AOTICACHE_HOOK_SHAPES_EXACT;
}

static void c_free_state(aoticache_hook *hook)
{
    struct c_state *state = hook->state;
    free(atomic_load(&state->compiler));
    for (size_t i = 0; i < state->directory_count; i++)
        free(state->directories[i]);
    free(state);
}

static const aoticache_hook_kind c_kind = {
    .name = "c",
    .set_environment = c_set_environment,
    .compile = c_compile,
    .producer = c_producer,
    .shapes = c_shapes,
    .free_state = c_free_state,
};

static aoticache_status add_directory(struct c_state *state, const char *directory, aoticache_error *ret_error)
{
    char path[PATH_MAX];
    struct stat status;
    if (realpath(directory, path) == NULL || stat(path, &status) != 0)
        return aoticache_error_set_errno(ret_error, errno, "hook c: cannot open the kernels directory %s", directory);
    if (!S_ISDIR(status.st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook c: kernels directory %s is not a directory",
                                   directory);
    state->directories[state->directory_count] = strdup(path);
    if (state->directories[state->directory_count] == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook c: out of memory");
    state->directory_count++;
    return AOTICACHE_OK;
}

/*
 * Finds the directories of sources: those of the caller, which must exist, and then the library's own, unless the caller names
 * another one instead.
 */
static aoticache_status find_directories(struct c_state *state, const aoticache_hook_options *options,
                                         aoticache_error *ret_error)
{
    char own[PATH_MAX];
    aoticache_status status = AOTICACHE_OK;
    const char *const *directories = options->kernel_directories;
    for (size_t i = 0; status == AOTICACHE_OK && directories != NULL && directories[i] != NULL; i++) {
        if (i >= MAX_DIRECTORIES - 1)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook c: more than %d directories of kernels",
                                       MAX_DIRECTORIES - 1);
        status = add_directory(state, directories[i], ret_error);
    }
    if (status == AOTICACHE_OK && options->kernels == NULL)
        status = aoticache_home_find("share/aoticache/kernels", own, ret_error);
    return status == AOTICACHE_OK ? add_directory(state, options->kernels != NULL ? options->kernels : own, ret_error)
                                  : status;
}

static aoticache_status fill_state(const aoticache_hook *hook, const aoticache_hook_options *options,
                                   const char *program, aoticache_error *ret_error)
{
    struct c_state *state = hook->state;
    const char *slash = strrchr(program, '/');
    state->source = options->source;
    state->source_user = options->source_user;
    snprintf(state->plain_producer, sizeof state->plain_producer, "cc %.150s", slash != NULL ? slash + 1 : program);
    aoticache_status status = aoticache_cpu_target_flags(hook->cpu_features, &state->target, ret_error);
    return status == AOTICACHE_OK ? find_directories(state, options, ret_error) : status;
}

static const char *choose_program(const aoticache_hook_options *options)
{
    const char *program = options->program;
    if (program == NULL || program[0] == '\0')
        program = secure_getenv("AOTICACHE_CC");
    return program != NULL && program[0] != '\0' ? program : "cc";
}

aoticache_status aoticache_hook_create_c(const aoticache_hook_options *options, aoticache_hook **ret_hook,
                                         aoticache_error *ret_error)
{
    aoticache_hook_options all;
    aoticache_hook *hook;
    char path[PATH_MAX];
    aoticache_status status = aoticache_hook_read_options(options, &all, ret_error);
    if (status == AOTICACHE_OK && ret_hook == NULL)
        status = AOTICACHE_REFUSE_NULL(ret_error, ret_hook);
    if (status == AOTICACHE_OK)
        status = aoticache_program_find(choose_program(&all), path, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_hook_allocate(&c_kind, &all, path, sizeof(struct c_state), &hook, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = fill_state(hook, &all, path, ret_error);
    if (status == AOTICACHE_OK)
        *ret_hook = hook;
    else
        aoticache_hook_free(hook);
    return status;
}
