/*
 * eager/torch/bridge_open: the core's side of the bridge. First, the bridge as an artifact of the cache: compiled once for each
 * PyTorch and source and found by all processes; a failure is remembered with the compiler's output. Second, opening it and
 * answering its calls (bridge.h).
 */
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/process/fork_guard.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "eager/compile/process.h"
#include "eager/torch/torch_internal.h"
#include "loader/dlopen_fd.h"
#include "loader/runner/runner_hot.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BRIDGE_OP "aoticache::torch_bridge"
#define FILE_NAME "torch_bridge.so"
#define MAX_ARGUMENTS 1024
#define MAX_OUTPUT_BYTES (1 << 20)
/* A C++ compiler takes about 20 s for PyTorch's headers; on a busy machine a multiple of that. */
#define TIMEOUT_NS (600 * UINT64_C(1000000000))

typedef struct bridge_compile {
    const char *source;
    const char *const *command;
} bridge_compile;

/* ---- the request ---- */

static aoticache_status set_pair(aoticache_request *request, const char *pair, aoticache_error *ret_error)
{
    const char *equals = strchr(pair, '=');
    if (equals == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "bridge: environment \"%.100s\" is not NAME=VALUE",
                                   pair);
    cleanup_free char *name = strndup(pair, (size_t)(equals - pair));
    if (name == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "bridge: out of memory for its request");
    return aoticache_request_set_environment(request, name, equals + 1, ret_error);
}

/* Puts the source into the request by its digest, not by its path. */
static aoticache_status set_source(aoticache_request *request, const char *source, aoticache_error *ret_error)
{
    aoticache_digest digest;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    cleanup_fd int fd = open(source, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "bridge: cannot read its source %.400s", source);
    aoticache_status status = aoticache_digest_of_fd(fd, &digest, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_digest_to_hex(&digest, hex);
    return aoticache_request_set_environment(request, "source", hex, ret_error);
}

static aoticache_status make_request(const char *source, const char *const *environment,
                                     aoticache_request **ret_request, aoticache_error *ret_error)
{
    char abi[16];
    aoticache_request *request = NULL;
    aoticache_device cpu = AOTICACHE_DEVICE_CPU;
    aoticache_status status = aoticache_request_create(BRIDGE_OP, cpu, &request, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    snprintf(abi, sizeof abi, "%u", AOTICACHE_BRIDGE_ABI);
    for (size_t i = 0; status == AOTICACHE_OK && environment != NULL && environment[i] != NULL; i++)
        status = set_pair(request, environment[i], ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_set_environment(request, "bridge_abi", abi, ret_error);
    if (status == AOTICACHE_OK)
        status = set_source(request, source, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_request_free(request);
        return status;
    }
    *ret_request = request;
    return AOTICACHE_OK;
}

/* ---- compiling ---- */

/* Builds the command with "-o FILE SOURCE"; the caller frees *ret_arguments, but not its items. */
static aoticache_status make_arguments(const bridge_compile *compile, const char *output, const char ***ret_arguments,
                                       aoticache_error *ret_error)
{
    size_t count = 0;
    while (compile->command[count] != NULL && count < MAX_ARGUMENTS)
        count++;
    if (count == 0 || count == MAX_ARGUMENTS)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "bridge: a command must have 1 to %d words, not %zu",
                                   MAX_ARGUMENTS - 1, count);
    const char **arguments = calloc(count + 4, sizeof *arguments);
    if (arguments == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY,
                                   "bridge: out of memory for the compiler's arguments");
    memcpy(arguments, compile->command, count * sizeof *arguments);
    arguments[count] = "-o";
    arguments[count + 1] = output;
    arguments[count + 2] = compile->source;
    *ret_arguments = arguments;
    return AOTICACHE_OK;
}

/* Runs the compiler. *ret_said: its output, which the caller frees, or NULL. */
static aoticache_status run_compiler(const bridge_compile *compile, const char *output, char **ret_said,
                                     aoticache_error *ret_error)
{
    char program[PATH_MAX];
    cleanup_free const char **arguments = NULL;
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    aoticache_status status = make_arguments(compile, output, &arguments, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_program_find(compile->command[0], program, ret_error);
    if (status == AOTICACHE_NOT_FOUND || status == AOTICACHE_DENIED) /* not a failure of this source: not remembered */
        return AOTICACHE_UNSUPPORTED;
    if (status != AOTICACHE_OK)
        return status;
    aoticache_process_options options = {.program = program, .arguments = arguments, .ends_with_host = true};
    status =
        aoticache_process_run(&options, MAX_OUTPUT_BYTES, aoticache_monotonic_ns() + TIMEOUT_NS, &process, ret_error);
    if (status == AOTICACHE_OK)
        *ret_said = aoticache_process_output(&process);
    aoticache_process_free(&process);
    return status;
}

static aoticache_status compile_bridge(void *user, const aoticache_request *request, const char *directory,
                                       aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    const bridge_compile *compile = user;
    char output[PATH_MAX];
    cleanup_free char *said = NULL;
    uint64_t begin = aoticache_monotonic_ns();
    (void)request;
    if (compile->command == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "no compiler for the bridge");
    if ((size_t)snprintf(output, sizeof output, "%s/%s", directory, FILE_NAME) >= sizeof output)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "bridge: the path %.200s... is too long", directory);
    aoticache_status status = run_compiler(compile, output, &said, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_file file = {.name = FILE_NAME, .path = output};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.producer = "c++";
    product.compile_ns = aoticache_monotonic_ns() - begin;
    product.output = said;
    return deliver(deliver_user, &product);
}

/* ---- getting it from the cache ---- */

static aoticache_status find_or_compile(aoticache_cache *cache, const aoticache_request *request,
                                        bridge_compile *compile, aoticache_artifact **ret_artifact,
                                        aoticache_error *ret_error)
{
    if (compile->command != NULL)
        return aoticache_cache_get_or_compile(cache, request, NULL, compile_bridge, compile, ret_artifact, ret_error);
    aoticache_status status = aoticache_cache_lookup(cache, request, NULL, ret_artifact, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        aoticache_error_set(ret_error, status,
                            "the cache has no bridge for this PyTorch, and compiling one is not allowed");
    return status;
}

aoticache_status aoticache_binding_prepare_bridge(aoticache_cache *cache, const char *source,
                                                  const char *const *command, const char *const *environment,
                                                  char *ret_path, size_t path_size, aoticache_artifact **ret_artifact,
                                                  aoticache_error *ret_error)
{
    if (cache == NULL || source == NULL || ret_path == NULL || ret_artifact == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, source, ret_path, ret_artifact);
    aoticache_request *request = NULL;
    aoticache_artifact *artifact = NULL;
    bridge_compile compile = {.source = source, .command = command};
    aoticache_status status = make_request(source, environment, &request, ret_error);
    if (status == AOTICACHE_OK)
        status = find_or_compile(cache, request, &compile, &artifact, ret_error);
    aoticache_request_free(request);
    if (status != AOTICACHE_OK)
        return status;
    int length = snprintf(NULL, 0, "/proc/self/fd/%d", aoticache_artifact_library_fd(artifact));
    if ((size_t)length >= path_size) {
        aoticache_artifact_unref(artifact);
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "bridge: a path of %d bytes does not fit in %zu",
                                   length + 1, path_size);
    }
    snprintf(ret_path, path_size, "/proc/self/fd/%d", aoticache_artifact_library_fd(artifact));
    *ret_artifact = artifact;
    return AOTICACHE_OK;
}

/* ---- answering the bridge ---- */

/* Answers a call. may_compile: a constant, so that each of the two variants is as short as if it were the only one. */
static inline __attribute__((always_inline)) aoticache_bridge_result answer_as(void *op, uint64_t key_set,
                                                                               uint64_t wrapped, aoticache_stack *stack,
                                                                               bool may_compile, aoticache_error *error)
{
    aoticache_binding_call call;
    if (__builtin_expect(!aoticache_binding_begin(op, &call), 0))
        return AOTICACHE_BRIDGE_FALLBACK;
    call.stack = *stack;
    aoticache_bridge_result result = aoticache_binding_answer(&call, key_set, wrapped, may_compile, error);
    stack->count = call.stack.count;
    aoticache_binding_end(&call);
    return result;
}

static aoticache_bridge_result answer_bridge(void *op, uint64_t key_set, uint64_t wrapped, aoticache_stack *stack,
                                             aoticache_error *error)
{
    return answer_as(op, key_set, wrapped, stack, true, error);
}

static aoticache_bridge_result attempt_for_bridge(void *op, uint64_t key_set, uint64_t wrapped, aoticache_stack *stack,
                                                  aoticache_error *error)
{
    return answer_as(op, key_set, wrapped, stack, false, error);
}

static void prepare_for_bridge(void *op, uint64_t wrapped, aoticache_stack *stack)
{
    aoticache_binding_call call;
    if (!aoticache_binding_begin(op, &call))
        return;
    call.stack = *stack;
    aoticache_binding_prepare(&call, wrapped);
    aoticache_binding_end(&call);
}

static void count_refusal(void *op)
{
    aoticache_binding_call call;
    if (!aoticache_binding_begin(op, &call))
        return;
    aoticache_binding_count_refused(call.op);
    aoticache_binding_end(&call);
}

/* ---- answering: turns of trials, bypassed calls ---- */

_Static_assert(sizeof(aoticache_timed_call) <= sizeof(aoticache_bridge_timed_call), "the bridge has room for a timed");

static aoticache_timed_call *timed_call_of(aoticache_bridge_timed_call *timed)
{
    return (aoticache_timed_call *)(void *)timed->words;
}

/* Finds the trial of a call, looking it up as aoticache_binding_answer() does. */
static aoticache_verdict *find_trial(const aoticache_binding_call *call, uint64_t wrapped)
{
    aoticache_packed packed;
    const aoticache_stack *stack = &call->stack;
    const aoticache_holder *holder = call->op->holder;
    bool is_refused = stack->count != holder->num_arguments || aoticache_binding_is_recursive(call) ||
                      (wrapped != 0 && !aoticache_wrapped_numbers_do_not_matter(stack->values, stack->count, wrapped));
    if (is_refused || !aoticache_pack(stack->values, stack->count, &packed))
        return NULL;
    aoticache_numbers numbers;
    if (!aoticache_numbers_substitute(holder, stack->values, &packed, &numbers))
        return aoticache_holder_find_trial(holder, &packed);
    const bool packs = aoticache_pack(stack->values, stack->count, &packed);
    aoticache_numbers_take_back(&numbers);
    return packs ? aoticache_holder_find_trial(holder, &packed) : NULL;
}

static aoticache_bridge_turn take_turn(void *registration, uint64_t wrapped, aoticache_stack *stack,
                                       aoticache_bridge_timed_call *timed)
{
    aoticache_binding_call call;
    aoticache_timed_call *taken = timed_call_of(timed);
    *taken = (aoticache_timed_call){.verdict = NULL};
    if (!aoticache_binding_begin(registration, &call))
        return AOTICACHE_BRIDGE_NO_TURN;
    call.stack = *stack;
    aoticache_verdict *verdict = find_trial(&call, wrapped);
    bool takes = verdict != NULL && aoticache_timed_call_begin(taken, verdict);
    if (takes)
        atomic_fetch_add_explicit(&call.op->turns, taken->contender == AOTICACHE_CONTENDER_FALLBACK,
                                  memory_order_relaxed);
    aoticache_binding_end(&call);
    if (!takes)
        return AOTICACHE_BRIDGE_NO_TURN;
    return taken->contender == AOTICACHE_CONTENDER_KERNEL ? AOTICACHE_BRIDGE_KERNELS_TURN
                                                          : AOTICACHE_BRIDGE_FALLBACKS_TURN;
}

static void end_turn(void *registration, aoticache_bridge_timed_call *timed, uint64_t ns)
{
    aoticache_binding_call call;
    if (!aoticache_binding_begin(registration, &call))
        return;
    aoticache_binding_operator *op = call.op;
    aoticache_timed_call_end(timed_call_of(timed), op->holder, ns);
    if (atomic_load_explicit(&op->holder->trials, memory_order_relaxed) == 0)
        aoticache_binding_end_timing(op);
    aoticache_binding_end(&call);
}

static void note_passed(void *registration, uint64_t calls)
{
    aoticache_binding_call call;
    if (!aoticache_binding_begin(registration, &call))
        return;
    atomic_fetch_add_explicit(&call.op->bypassed, calls, memory_order_relaxed);
    aoticache_cache_note_lost(call.op->holder->context->cache, calls);
    aoticache_binding_end(&call);
}

static const aoticache_bridge_host host = {
    .size = sizeof host,
    .abi = AOTICACHE_BRIDGE_ABI,
    .call = answer_bridge,
    .refuse = count_refusal,
    .attempt = attempt_for_bridge,
    .clock_ns = aoticache_monotonic_ns,
    .turn = take_turn,
    .end = end_turn,
    .passed = note_passed,
    .prepare = prepare_for_bridge,
};

/* ---- opening ---- */

/* Opens the bridge. It is never unloaded: PyTorch may be inside it as long as the process lives. */
static aoticache_status open_library(const char *path, aoticache_bridge_open_fn *ret_open, aoticache_error *ret_error)
{
    void *handle = NULL;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "cannot read bridge %.400s: %s", path,
                                   strerror(errno));
    aoticache_status status = aoticache_dlopen_fd(fd, &handle, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    void *address = dlsym(handle, AOTICACHE_BRIDGE_OPEN);
    if (address == NULL) {
        dlclose(handle);
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "%.400s is not a bridge: it has no %s", path,
                                   AOTICACHE_BRIDGE_OPEN);
    }
    memcpy(ret_open, &address, sizeof address);
    return AOTICACHE_OK;
}

/* Lets plain kernels use the bridge's functions. A process opens only one bridge, perhaps repeatedly; it stays loaded. */
static void serve_plain_kernels(const aoticache_bridge *bridge)
{
    static aoticache_kernel_host functions;
    static atomic_flag filled = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&filled))
        return;
    functions.get_data_ptr = bridge->get_data_ptr;
    functions.empty_strided = bridge->empty_strided;
    aoticache_runner_set_host(&functions);
}

aoticache_status aoticache_binding_open_bridge(const char *path, aoticache_bridge *ret_bridge,
                                               aoticache_error *ret_error)
{
    aoticache_bridge_open_fn open_bridge = NULL;
    aoticache_bridge bridge = {.size = sizeof bridge};
    char message[sizeof ret_error->message] = "";
    aoticache_fork_guard_enter();
    aoticache_status status = open_library(path, &open_bridge, ret_error);
    aoticache_fork_guard_leave();
    if (status != AOTICACHE_OK)
        return status;
    status = open_bridge(&host, &bridge, message, sizeof message);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "bridge %.200s: %.600s", path, message);
    if (bridge.abi != AOTICACHE_BRIDGE_ABI || bridge.enable == NULL || bridge.disable == NULL ||
        bridge.set_call_mode == NULL || bridge.bypassed_now == NULL || bridge.num_threads == NULL ||
        bridge.settings.is_deterministic == NULL || bridge.settings.default_dtype == NULL ||
        bridge.get_data_ptr == NULL || bridge.empty_strided == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "bridge %.200s has interface %u, but this library has %u", path, bridge.abi,
                                   AOTICACHE_BRIDGE_ABI);
    *ret_bridge = bridge;
    serve_plain_kernels(&bridge);
    return AOTICACHE_OK;
}
