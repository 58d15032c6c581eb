/*
 * fault_load: loading a library, opening a package, and hooks that start processes, with each call in turn failing
 * (trial.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/json.h"
#include "cache/request/text.h"
#include "eager/compile/compile.h"
#include "eager/holder/call.h"
#include "loader/loader.h"
#include "loader/package/package.h"
#include "loader/runner/create.h"
#include "loader/runner/runner.h"
#include "tests/fault/trial.h"
#include "tests/helpers/cache_process.h"
#include "tests/unit/fixtures/package_fixture.h"

static char build[PATH_MAX]; /* the directory that this program was built in */

static void find_build(void)
{
    const ssize_t length = readlink("/proc/self/exe", build, sizeof build - 1);
    if (length <= 0)
        fail("/proc/self/exe", strerror(errno));
    build[length] = '\0';
    for (int level = 0; level < 3; level++)
        *strrchr(build, '/') = '\0';
    setenv("AOTICACHE_HOME", build, 1);
}

/* ---- JSON ---- */

/* The longest token has 14 bytes, which brings the closing mark of the one before it to the end of jansson's first buffer. */
static aoticache_status do_parse_json(aoticache_cache *unused, aoticache_error *ret_error)
{
    static const char text[] = "{\"id\":1,\"text\":\"abcdefghijkl\"}";
    json_error_t error;
    (void)unused;
    json_t *value = aoticache_json_parse(text, sizeof text - 1, JSON_REJECT_DUPLICATES, &error);
    if (value == NULL)
        return aoticache_error_set(ret_error,
                                   aoticache_json_is_out_of_memory(&error) ? AOTICACHE_NO_MEMORY : AOTICACHE_CORRUPT,
                                   "%s", error.text);
    const bool is_whole = json_object_size(value) == 2;
    json_decref(value);
    return is_whole ? AOTICACHE_OK : aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "a member is missing");
}

/* ---- a library ---- */

static int open_library(void)
{
    char path[PATH_MAX + 32];
    injection_pause();
    snprintf(path, sizeof path, "%s/tests/hosts/pointwise.so", build);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail("open", path);
    injection_resume();
    return fd;
}

static aoticache_status do_describe(aoticache_cache *unused, aoticache_error *ret_error)
{
    aoticache_library_description *description = NULL;
    const int fd = open_library();
    (void)unused;
    const aoticache_status status = aoticache_library_describe(fd, &description, ret_error);
    aoticache_library_description_free(description);
    close(fd);
    return status;
}

static aoticache_status do_load(aoticache_cache *unused, aoticache_error *ret_error)
{
    aoticache_library *library = NULL;
    aoticache_runner *runner = NULL;
    const int fd = open_library();
    (void)unused;
    injection_spare_others();
    aoticache_status status = aoticache_library_load_fd(fd, "pointwise", NULL, &library, ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
        status = aoticache_runner_create(library, &options, &runner, ret_error);
    }
    aoticache_runner_unref(runner);
    aoticache_library_unref(library);
    close(fd);
    return status;
}

/* ---- a package ---- */

#define MODEL "top/data/aotinductor/model/"

static int package = -1;

static void make_package(void)
{
    static zip_writer zip;
    zip = (zip_writer){.size = 0};
    zip_add_text(&zip, MODEL "x.wrapper.so", "a library");
    zip_add_text(&zip, MODEL "x.wrapper_metadata.json",
                 "{\"AOTI_DEVICE_KEY\": \"cpu\", \"author\": \"me\", \"number\": 3}");
    zip_finish(&zip);
    package = zip_fd(&zip);
}

static aoticache_status do_open_package(aoticache_cache *unused, aoticache_error *ret_error)
{
    aoticache_package *opened = NULL;
    (void)unused;
    aoticache_status status = aoticache_package_open_fd(package, "x.pt2", &opened, ret_error);
    injection_pause();
    const int to = memfd_create("part", MFD_CLOEXEC);
    injection_resume();
    if (status == AOTICACHE_OK)
        status = aoticache_package_extract_part(opened, aoticache_package_model_at(opened, 0), 0, to, ret_error);
    close(to);
    aoticache_package_close(opened);
    return status;
}

/* ---- hooks ---- */

static aoticache_status compile_with(aoticache_cache *cache, aoticache_hook *hook, aoticache_error *ret_error)
{
    static const char line[] = "aten::abs(float32[4])";
    aoticache_request *request = NULL;
    aoticache_artifact *artifact = NULL;
    injection_pause();
    if (aoticache_request_parse(line, AOTICACHE_REQUEST_TEXT, &request, ret_error) != AOTICACHE_OK)
        fail("request", ret_error->message);
    injection_resume();
    aoticache_status status = aoticache_hook_set_environment(hook, request, ret_error);
    if (status == AOTICACHE_OK)
        status =
            aoticache_cache_get_or_compile(cache, request, NULL, aoticache_hook_compile, hook, &artifact, ret_error);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    return status;
}

/* Compiles with a hook that was just made, unless `status` says why it was not. */
static aoticache_status compile_and_free(aoticache_cache *cache, aoticache_status status, aoticache_hook **hook,
                                         aoticache_error *ret_error)
{
    if (status == AOTICACHE_OK)
        status = compile_with(cache, *hook, ret_error);
    aoticache_hook_free(*hook);
    return status;
}

static aoticache_status do_compile_c(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook = NULL;
    return compile_and_free(cache, aoticache_hook_create_c(&options, &hook, ret_error), &hook, ret_error);
}

static void script_path(char ret_path[600])
{
    snprintf(ret_path, 600, "%s/hook.sh", trial_root());
}

/* Shell code for $request: copies the kernel of tests/hosts instead of compiling one. `id`: of the response. */
#define COPY_KERNEL                                                                      \
    "directory=$(echo \"$request\" | sed 's/.*\"directory\":\"\\([^\"]*\\)\".*/\\1/')\n" \
    "cp '%s/tests/hosts/pointwise.so' \"$directory/kernel.so\"\n"
#define ANSWER(id)      \
    "echo '{\"id\":" id \
    ",\"ok\":true,\"files\":[{\"name\":\"kernel.so\",\"path\":\"kernel.so\"}],\"requirements\":[]}'\n"

static void write_script(void)
{
    char path[600], text[PATH_MAX + 600];
    script_path(path);
    snprintf(text, sizeof text, "#!/bin/sh\nread -r request\n" COPY_KERNEL ANSWER("1"), build);
    write_file(path, text);
    if (chmod(path, 0700) != 0)
        fail("chmod", path);
}

static aoticache_status do_compile_by_command(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook = NULL;
    char path[600];
    script_path(path);
    options.program = path;
    return compile_and_free(cache, aoticache_hook_create_command(&options, &hook, ret_error), &hook, ret_error);
}

/*
 * Writes a script in place of Python, which reports its PyTorch by a file and on request. It responds until its input
 * ends.
 */
static void write_worker(void)
{
    static const char *const directories[] = {"py",
                                              "py/bin",
                                              "py/lib",
                                              "py/lib/python3.99",
                                              "py/lib/python3.99/site-packages",
                                              "py/lib/python3.99/site-packages/torch"};
    char path[700], text[PATH_MAX + 800];
    for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", trial_root(), directories[i]);
        if (mkdir(path, 0700) != 0)
            fail(path, strerror(errno));
    }
    snprintf(path, sizeof path, "%s/py/lib/python3.99/site-packages/torch/version.py", trial_root());
    write_file(path, "__version__ = '9.8.7+cpu'\ndebug = False\n");
    snprintf(path, sizeof path, "%s/py/pyvenv.cfg", trial_root());
    write_file(path, "");
    snprintf(text, sizeof text,
             "#!/bin/sh\n[ \"$1\" = -c ] && echo 9.8.7+cpu && exit\n"
             "echo '{\"hello\":1,\"producer\":\"pytorch 9.8.7\",\"python\":\"3.99.0\"}'\n"
             "while read -r request; do\n"
             "id=$(echo \"$request\" | sed 's/.*\"id\":\\([0-9]*\\).*/\\1/')\n" COPY_KERNEL ANSWER("'$id'") "done\n",
             build);
    snprintf(path, sizeof path, "%s/py/bin/python", trial_root());
    write_file(path, text);
    if (chmod(path, 0700) != 0)
        fail("chmod", path);
}

static aoticache_status do_compile_by_worker(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook = NULL;
    char path[600];
    snprintf(path, sizeof path, "%s/py/bin/python", trial_root());
    options.program = path;
    return compile_and_free(cache, aoticache_hook_create_worker(&options, &hook, ret_error), &hook, ret_error);
}

/* ---- a call ---- */

static char framework[2][128]; /* "framework=...", "framework_version=...": the kernels' origin */

/* Compiles the kernel in advance. */
static void compile_abs(void)
{
    static const char *const names[] = {"framework", "framework_version"};
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    aoticache_hook *hook = NULL;
    aoticache_request *request = NULL;
    aoticache_cache *cache = trial_open();
    if (aoticache_hook_create_c(&options, &hook, &error) != AOTICACHE_OK ||
        compile_with(cache, hook, &error) != AOTICACHE_OK ||
        aoticache_request_parse("aten::abs(float32[4])", AOTICACHE_REQUEST_TEXT, &request, &error) != AOTICACHE_OK ||
        aoticache_hook_set_environment(hook, request, &error) != AOTICACHE_OK)
        fail("compile", error.message);
    for (int i = 0; i < 2; i++)
        snprintf(framework[i], sizeof framework[i], "%s=%s", names[i],
                 aoticache_request_get_environment(request, names[i]));
    aoticache_request_free(request);
    aoticache_hook_free(hook);
    aoticache_cache_close(cache);
}

/* Finds, loads, runs and unloads the kernel: tests the holder, its requests, the container, tensors. */
static aoticache_status do_call(aoticache_cache *cache, aoticache_error *ret_error)
{
    static const int64_t sizes[] = {4};
    float data[] = {-1, 2, -3, 4};
    const char *const environment[] = {framework[0], framework[1], NULL};
    aoticache_tensor_view input = {.data = data, .dtype = AOTICACHE_DTYPE_FLOAT32, .ndim = 1, .sizes = sizes}, output;
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_context *context = NULL;
    options.cache = cache;
    options.miss = AOTICACHE_MISS_NEVER;
    options.fail_calls = true;
    options.environment = environment;
    injection_spare_others();
    aoticache_status status = aoticache_context_create(&options, &context, ret_error);
    for (int i = 0; status == AOTICACHE_OK && i < 2; i++) {
        status = aoticache_call(context, "aten::abs", &input, 1, &output, 1, ret_error);
        const float *result = status == AOTICACHE_OK ? output.data : NULL;
        if (result != NULL &&
            (output.numel != 4 || result[0] != 1 || result[1] != 2 || result[2] != 3 || result[3] != 4))
            fail("call", "the result is wrong");
        if (result != NULL)
            aoticache_tensor_free(output.handle);
    }
    aoticache_context_free(context);
    return status;
}

/* Loading comes last: memory that the dynamic linker keeps would be taken for leaks of the others. */
static const struct operation operations[] = {
    {.name = "get or compile by a command", .perform = do_compile_by_command, .spoil = write_script},
    {.name = "get or compile by a C compiler", .perform = do_compile_c},
    {.name = "get or compile by a worker", .perform = do_compile_by_worker, .spoil = write_worker},
    {.name = "parsing JSON", .perform = do_parse_json, .without_cache = true},
    {.name = "describing a library", .perform = do_describe, .without_cache = true},
    {.name = "loading a library",
     .perform = do_load,
     .without_cache = true,
     .keeps_blocks = 2,
     .may_be = TRIAL_MAY_BE(LOAD_FAILED)},
    {.name = "calling an operator",
     .perform = do_call,
     .spoil = compile_abs,
     .keeps_blocks = 2,
     .may_be = TRIAL_MAY_BE(LOAD_FAILED) | TRIAL_MAY_BE(NOT_FOUND)},
    /* libzip 1.7 leaks a block if it cannot open a member. */
    {.name = "opening a package",
     .perform = do_open_package,
     .spoil = make_package,
     .without_cache = true,
     .keeps_blocks = 1},
};

int main(int argc, char **argv)
{
    find_build();
    return trial_main(argc, argv, operations, sizeof operations / sizeof operations[0], 90);
}
