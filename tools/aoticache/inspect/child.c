/*
 * tools/aoticache/inspect/child: the process in which an inspected library is loaded. It has the library and a pipe as
 * descriptors, writes one letter before each step, so that its parent knows in which step it died, and then the results as
 * JSON. It exits without running the library's exit handlers, which could hang after everything has succeeded.
 */
#include "tools/aoticache/inspect/inspect_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_result(const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t put = write(AOTICACHE_INSPECT_RESULT_FD, bytes, size);
        if (put <= 0)
            _exit(1);
        bytes += put;
        size -= (size_t)put;
    }
}

static json_t *constant_to_json(const aoticache_constant *constant)
{
    static const char *const types[] = {"unknown", "parameter", "buffer", "tensor constant", "folded"};
    json_t *object = aoticache_cli_json_object();
    bool known = constant->type >= 0 && (size_t)constant->type < sizeof types / sizeof types[0];
    const char *dtype = aoticache_dtype_name(constant->dtype);
    aoticache_cli_json_set(object, "name", aoticache_cli_json_text(constant->name));
    aoticache_cli_json_set(object, "original_fqn", aoticache_cli_json_text(constant->original_fqn));
    aoticache_cli_json_set(object, "dtype", aoticache_cli_json_text(dtype));
    aoticache_cli_json_set(object, "type", aoticache_cli_json_text(known ? types[constant->type] : types[0]));
    aoticache_cli_json_set(object, "from_folded", json_boolean(constant->from_folded));
    aoticache_cli_json_set(object, "bytes",
                           constant->has_bytes ? aoticache_cli_json_count(constant->bytes) : json_null());
    return object;
}

static aoticache_status add_constants(json_t *report, const aoticache_runner *runner, aoticache_error *error)
{
    const size_t count = aoticache_runner_get_info(runner)->num_constants;
    json_t *array = aoticache_cli_json_array();
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        aoticache_constant constant;
        status = aoticache_runner_read_constant(runner, i, &constant, error);
        if (status == AOTICACHE_OK)
            aoticache_cli_json_append(array, constant_to_json(&constant));
    }
    aoticache_cli_json_set(report, "constants", array);
    return status;
}

static json_t *tensor_names(const aoticache_runner *runner, bool output)
{
    const size_t count = output ? aoticache_runner_num_outputs(runner) : aoticache_runner_num_inputs(runner);
    json_t *array = aoticache_cli_json_array();
    for (size_t i = 0; i < count; i++)
        aoticache_cli_json_append(array, aoticache_cli_json_text(aoticache_runner_tensor_name(runner, output, i)));
    return array;
}

/* Describes the runner. Not every library has a call specification and a blob: missing members are null. */
static aoticache_status describe_runner(json_t *report, const aoticache_runner *runner, aoticache_error *error)
{
    const char *in_spec = NULL, *out_spec = NULL;
    uint64_t blob = 0;
    aoticache_cli_json_set(report, "inputs", tensor_names(runner, false));
    aoticache_cli_json_set(report, "outputs", tensor_names(runner, true));
    aoticache_status status = aoticache_runner_call_spec(runner, &in_spec, &out_spec, error);
    if (status != AOTICACHE_OK && status != AOTICACHE_UNSUPPORTED)
        return status;
    aoticache_cli_json_set(report, "in_spec", aoticache_cli_json_text(in_spec));
    aoticache_cli_json_set(report, "out_spec", aoticache_cli_json_text(out_spec));
    bool has_blob = aoticache_runner_constants_blob_bytes(runner, &blob, NULL) == AOTICACHE_OK;
    aoticache_cli_json_set(report, "blob_bytes", has_blob ? aoticache_cli_json_count(blob) : json_null());
    return add_constants(report, runner, error);
}

static aoticache_status load_and_describe(json_t *report, const aoticache_inspected *inspected, aoticache_error *error)
{
    aoticache_library *library = NULL;
    aoticache_runner *runner = NULL;
    aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
    options.device = inspected->device;
    options.directory = inspected->directory;
    write_result("L", 1);
    aoticache_status status = aoticache_library_load_fd(inspected->fd, inspected->name, NULL, &library, error);
    if (status != AOTICACHE_OK)
        return status;
    const bool is_shim = aoticache_library_get_info(library)->torch_kind == AOTICACHE_TORCH_SHIM;
    aoticache_cli_json_set(report, "provider", aoticache_cli_json_text(is_shim ? "shim" : "libtorch"));
    write_result("C", 1);
    status = aoticache_runner_create(library, &options, &runner, error);
    if (status != AOTICACHE_OK)
        return status;
    write_result("Q", 1);
    return describe_runner(report, runner, error);
}

void aoticache_inspect_child(int argc, char **argv)
{
    if (argc != 5 || fcntl(AOTICACHE_INSPECT_RESULT_FD, F_SETFD, FD_CLOEXEC) != 0 ||
        fcntl(AOTICACHE_INSPECT_LIBRARY_FD, F_SETFD, FD_CLOEXEC) != 0) {
        fprintf(stderr, "aoticache: %s is a part of 'aoticache inspect', not a command\n",
                AOTICACHE_INSPECT_CHILD_WORD);
        _exit(AOTICACHE_CLI_EXIT_USAGE);
    }
    aoticache_inspected inspected = {.fd = AOTICACHE_INSPECT_LIBRARY_FD,
                                     .name = argv[2],
                                     .device = argv[3],
                                     .directory = argv[4][0] != '\0' ? argv[4] : NULL};
    aoticache_error error = {.message = ""};
    json_t *report = aoticache_cli_json_object();
    aoticache_status status = load_and_describe(report, &inspected, &error);
    aoticache_cli_json_set(report, "ok", json_boolean(status == AOTICACHE_OK));
    aoticache_cli_json_set(report, "problem",
                           status != AOTICACHE_OK ? aoticache_cli_json_text(error.message) : json_null());
    char *text = json_dumps(report, JSON_COMPACT);
    if (text == NULL)
        _exit(1);
    write_result("\n", 1);
    write_result(text, strlen(text));
    _exit(0);
}
