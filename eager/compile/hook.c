/*
 * eager/compile/hook: shared by all compile hooks: options, the call of a compile, delivery of its output, the end.
 *
 * The kinds are worker.c, command.c, c_source.c and callback.c.
 */
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/options.h"
#include "cache/config/config.h"
#include "cache/eager_face.h"
#include "cache/request/cpu_detect.h"
#include "eager/compile/eager_face.h"
#include "eager/compile/hook_internal.h"
#include "loader/check/check.h"
#include "loader/cuda/cuda.h"
#include "loader/eager_face.h"
#include "loader/loader.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>

aoticache_status aoticache_hook_read_options(const aoticache_hook_options *options, aoticache_hook_options *ret_options,
                                             aoticache_error *ret_error)
{
    return AOTICACHE_OPTIONS_READ(aoticache_hook_options, AOTICACHE_HOOK_OPTIONS_INIT, options, ret_options, ret_error);
}

static void free_list(char **list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        free(list[i]);
    free(list);
}

/* Copies a list of texts; NULL: no memory. */
static char **copy_list(const char *const *list)
{
    size_t count = 0;
    while (list[count] != NULL)
        count++;
    char **copy = calloc(count + 1, sizeof *copy);
    for (size_t i = 0; copy != NULL && i < count; i++) {
        copy[i] = strdup(list[i]);
        if (copy[i] == NULL) {
            free_list(copy);
            return NULL;
        }
    }
    return copy;
}

static aoticache_status check_environment(const char *const *environment, aoticache_error *ret_error)
{
    for (size_t i = 0; environment != NULL && environment[i] != NULL; i++) {
        const char *equals = strchr(environment[i], '=');
        if (equals == NULL || equals == environment[i])
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "hook options: environment[%zu] is \"%.80s\"; write \"NAME=VALUE\"", i,
                                       environment[i]);
    }
    return AOTICACHE_OK;
}

/* Copies the options that the hook keeps; false: no memory. */
static bool copy_options(aoticache_hook *hook, const aoticache_hook_options *options, const char *program)
{
    hook->program = strdup(program);
    if (options->environment != NULL)
        hook->environment = copy_list(options->environment);
    return hook->program != NULL && (options->environment == NULL || hook->environment != NULL);
}

/* Chooses the CPU features of the code: the options, otherwise the setting `cpu`. NULL: all. The caller frees them with free(). */
static aoticache_status choose_cpu(const aoticache_hook_options *options, char **ret_features,
                                   aoticache_error *ret_error)
{
    aoticache_config *config = NULL;
    const char *chosen = options->cpu_features;
    aoticache_cpu_features features;
    aoticache_status status = AOTICACHE_OK;
    *ret_features = NULL;
    if (chosen == NULL) { /* errors in the files are reported when a cache is opened */
        status = aoticache_config_read(NULL, (aoticache_logger){.log = NULL}, &config, ret_error);
        chosen = aoticache_config_get(config, AOTICACHE_CONFIG_cpu).text;
    }
    if (status == AOTICACHE_OK && strcmp(chosen, AOTICACHE_CPU_NATIVE) != 0) {
        status = aoticache_cpu_features_parse(chosen, &features, ret_error);
        if (status == AOTICACHE_OK && (*ret_features = strdup(chosen)) == NULL)
            status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook: out of memory");
    }
    aoticache_config_free(config);
    return status;
}

aoticache_status aoticache_hook_allocate(const aoticache_hook_kind *kind, const aoticache_hook_options *options,
                                         const char *program, size_t state_bytes, aoticache_hook **ret_hook,
                                         aoticache_error *ret_error)
{
    cleanup_free char *cpu_features = NULL;
    aoticache_status status = choose_cpu(options, &cpu_features, ret_error);
    if (status == AOTICACHE_OK)
        status = check_environment(options->environment, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_hook *hook = calloc(1, sizeof *hook);
    if (hook == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook: out of memory");
    hook->kind = kind;
    hook->timeout_seconds =
        options->timeout_seconds != 0 ? options->timeout_seconds : AOTICACHE_HOOK_DEFAULT_TIMEOUT_SECONDS;
    hook->memory_limit_bytes = options->memory_limit_bytes;
    hook->logger = options->logger;
    hook->cpu_features = steal_ptr(&cpu_features);
    hook->state = calloc(1, state_bytes);
    if (hook->state == NULL || !copy_options(hook, options, program)) {
        aoticache_hook_free(hook);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook: out of memory");
    }
    *ret_hook = hook;
    return AOTICACHE_OK;
}

void aoticache_hook_free(aoticache_hook *hook)
{
    if (hook == NULL)
        return;
    int saved = errno;
    if (hook->state != NULL)
        hook->kind->free_state(hook);
    free(hook->program);
    free(hook->cpu_features);
    free_list(hook->environment);
    free(hook);
    errno = saved;
}

aoticache_hook_info aoticache_hook_get_info(const aoticache_hook *hook)
{
    if (hook == NULL)
        return (aoticache_hook_info){.producer = "", .program = ""};
    return (aoticache_hook_info){.producer = hook->kind->producer(hook),
                                 .program = hook->program[0] == '/' ? hook->program : ""};
}

aoticache_status aoticache_hook_set_gpu_arch(aoticache_request *request, aoticache_error *ret_error)
{
    aoticache_device device = aoticache_request_device(request);
    if (device.type != AOTICACHE_DEVICE_TYPE_CUDA || aoticache_request_get_environment(request, "gpu_arch") != NULL)
        return AOTICACHE_OK;
    char text[AOTICACHE_DEVICE_TEXT_BYTES];
    aoticache_cuda_device gpu;
    aoticache_error detail = {.status = AOTICACHE_OK};
    aoticache_status status = aoticache_cuda_device_read(device.index, &gpu, &detail);
    if (status == AOTICACHE_OK)
        return aoticache_request_set_environment(request, "gpu_arch", gpu.arch, ret_error);
    if (status == AOTICACHE_NO_MEMORY)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    aoticache_device_format(device, text);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "request for %s: %.700s; to compile for a GPU of another machine, set gpu_arch "
                               "in the request's environment (\"sm_90\")",
                               text, detail.message);
}

aoticache_status aoticache_hook_set_environment(const aoticache_hook *hook, aoticache_request *request,
                                                aoticache_error *ret_error)
{
    if (hook == NULL || request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, hook, request);
    aoticache_status status = hook->kind->set_environment(hook, request, ret_error);
    return status == AOTICACHE_OK ? aoticache_hook_set_gpu_arch(request, ret_error) : status;
}

bool aoticache_hook_takes_numbers(const aoticache_hook *hook)
{
    return hook != NULL && hook->kind->takes_numbers != NULL && hook->kind->takes_numbers(hook);
}

bool aoticache_hook_is_dynamic(const aoticache_hook *hook)
{
    return hook != NULL && hook->kind->shapes(hook) == AOTICACHE_HOOK_SHAPES_DYNAMIC;
}

void aoticache_hook_set_process_options(const aoticache_hook *hook, aoticache_process_options *options)
{
    options->environment = (const char *const *)hook->environment;
    options->memory_limit_bytes = hook->memory_limit_bytes;
}

/* ---- a compile ---- */

static aoticache_status check_compile(const aoticache_hook *hook, const aoticache_request *request,
                                      const char *directory, aoticache_deliver_fn deliver, aoticache_error *ret_error)
{
    if (hook == NULL || request == NULL || directory == NULL || deliver == NULL)
        return AOTICACHE_REFUSE_NULL_OF("aoticache_hook_compile", ret_error, hook, request, directory, deliver);
    if (directory[0] != '/')
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook compile: directory %s is not absolute",
                                   directory);
    if (aoticache_request_is_dynamic(request) && hook->kind->shapes(hook) == AOTICACHE_HOOK_SHAPES_EXACT)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "hook %s (%.160s): it compiles for exact shapes only, but symbolic shapes were "
                                   "requested",
                                   hook->kind->name, hook->program);
    return AOTICACHE_OK;
}

/* Counts the tensors that a library takes, including those in lists. */
static size_t count_tensors(const aoticache_request *request)
{
    size_t count = 0, arguments = aoticache_request_argument_count(request);
    for (size_t i = 0; i < arguments; i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        count += argument->kind == AOTICACHE_ARGUMENT_TENSOR;
        for (size_t j = 0; argument->kind == AOTICACHE_ARGUMENT_LIST && j < argument->value.list.count; j++)
            count += argument->value.list.items[j].kind == AOTICACHE_ARGUMENT_TENSOR;
    }
    return count;
}

/* Checks that there is a guard exactly if one was requested, that it can be parsed, and that it covers all inputs. */
static aoticache_status check_guard(const aoticache_hook *hook, const aoticache_request *request, const char *guard,
                                    aoticache_error *ret_error)
{
    aoticache_check *check;
    aoticache_error detail = {.message = ""};
    const char *name = hook->kind->name;
    if (guard == NULL && !aoticache_request_is_dynamic(request))
        return AOTICACHE_OK;
    if (guard == NULL || !aoticache_request_is_dynamic(request))
        return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "hook %s (%.160s): %s", name, hook->program,
                                   guard == NULL ? "symbolic shapes were requested, but the library has no guard"
                                                 : "exact shapes were requested, but the library has a guard");
    aoticache_status status = aoticache_check_parse(guard, &check, &detail);
    if (status == AOTICACHE_NO_MEMORY)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "hook %s (%.160s): its guard: %.500s", name,
                                   hook->program, detail.message);
    size_t tensors = aoticache_check_num_tensors(check);
    aoticache_check_free(check);
    if (tensors == count_tensors(request))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED,
                               "hook %s (%.160s): its guard is for %zu tensors, but the request has %zu", name,
                               hook->program, tensors, count_tensors(request));
}

/*
 * Checks that the file is a kernel library. Another file would be stored, and then fail in every process that requests it. A
 * file that cannot be opened is not refused here: storing it reports the error. Lack of resources in this process is not an
 * error of the file.
 */
static aoticache_status check_library(const aoticache_hook *hook, const aoticache_request *request,
                                      const aoticache_product *product, aoticache_error *ret_error)
{
    const aoticache_file *file = product->file_count > 0 && product->files != NULL ? &product->files[0] : NULL;
    cleanup_fd int fd = -1;
    aoticache_error detail = {.message = ""};
    if (file != NULL && file->path != NULL)
        fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return AOTICACHE_OK;
    const char *arch = aoticache_request_get_environment(request, "arch");
    bool is_here = arch == NULL || strcmp(arch, aoticache_cpu_arch()) == 0;
    aoticache_status status = aoticache_library_check_fd(fd, is_here ? NULL : arch, &detail);
    if (status == AOTICACHE_OK)
        return status;
    if (status == AOTICACHE_NO_MEMORY || status == AOTICACHE_IO)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED,
                               "hook %s (%.160s): its library %.100s is not stored: %.600s", hook->kind->name,
                               hook->program, file->name != NULL ? file->name : file->path, detail.message);
}

/* Checks the output of a hook before it is passed to its receiver. */
struct checked_delivery {
    const aoticache_hook *hook;
    const aoticache_request *request;
    uint64_t start_ns;
    aoticache_deliver_fn deliver;
    void *user;
    aoticache_error *error;
    bool done;
    aoticache_cpu_features requirements; /* of the delivered files */
};

static aoticache_status deliver_checked(void *user, const aoticache_product *product)
{
    struct checked_delivery *delivery = user;
    const aoticache_hook *hook = delivery->hook;
    aoticache_product all;
    aoticache_error reason = {.message = "NULL"};
    if (delivery->done)
        return aoticache_error_set(delivery->error, AOTICACHE_INVALID, "hook %s (%.160s): it delivered twice",
                                   hook->kind->name, hook->program);
    if (product == NULL ||
        AOTICACHE_OPTIONS_READ(aoticache_product, AOTICACHE_PRODUCT_INIT, product, &all, &reason) != AOTICACHE_OK)
        return aoticache_error_set(delivery->error, AOTICACHE_INVALID,
                                   "hook %s (%.160s): it did not deliver a valid product: %s", hook->kind->name,
                                   hook->program, reason.message);
    delivery->done = true;
    delivery->requirements = all.requirements;
    aoticache_status status = check_guard(hook, delivery->request, all.guard, delivery->error);
    if (status == AOTICACHE_OK)
        status = check_library(hook, delivery->request, &all, delivery->error);
    if (status != AOTICACHE_OK)
        return status;
    if (all.compile_ns == 0)
        all.compile_ns = aoticache_monotonic_ns() - delivery->start_ns;
    if (all.producer == NULL)
        all.producer = hook->kind->producer(hook);
    return delivery->deliver(delivery->user, &all);
}

/* Adds the memory limit to the message: a program that hit it reports that in various words, or was killed. */
static void name_memory_limit(const aoticache_hook *hook, aoticache_error *error)
{
    static const char *const words[] = {
        "bad_alloc",       "MemoryError",      "ut of memory",          "Cannot allocate memory",
        "emory exhausted", "killed by signal", "can't allocate memory", "not enough memory"};
    char text[AOTICACHE_ERROR_MESSAGE_BYTES];
    bool is_likely = false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        is_likely = is_likely || strstr(error->message, words[i]) != NULL;
    if (!is_likely)
        return;
    snprintf(text, sizeof text, "%s", error->message);
    aoticache_error_set(error, error->status, "with a memory limit of %llu MiB (%llu bytes): %.900s",
                        (unsigned long long)(hook->memory_limit_bytes >> 20),
                        (unsigned long long)hook->memory_limit_bytes, text);
}

/*
 * Checks that this CPU can run the code. Code for a better CPU (requested by cpu_features, or from a hook that compiles
 * elsewhere) is stored for machines that have one, but must not be loaded here, where it would stop with SIGILL.
 */
static aoticache_status check_runs_here(const struct checked_delivery *delivery, aoticache_error *ret_error)
{
    const aoticache_cpu_features *have = aoticache_cpu_features_get();
    char names[512];
    if (aoticache_cpu_features_include(have, &delivery->requirements))
        return AOTICACHE_OK;
    aoticache_cpu_features lacking = aoticache_cpu_features_lacking(have, &delivery->requirements);
    aoticache_cpu_features_format(&lacking, names, sizeof names);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "hook %s (%.160s): the code requires %s, which this CPU lacks: it is for other "
                               "machines",
                               delivery->hook->kind->name, delivery->hook->program, names);
}

/* Compiles with a kind of hook that returns an answer; delivers and frees the answer. */
static aoticache_status compile_answer(aoticache_hook *hook, const aoticache_request *request, const char *directory,
                                       struct checked_delivery *delivery, aoticache_error *ret_error)
{
    aoticache_answer answer = {.product = AOTICACHE_PRODUCT_INIT};
    uint64_t deadline_ns = delivery->start_ns + (uint64_t)hook->timeout_seconds * 1000000000;
    aoticache_status status = hook->kind->compile(hook, request, directory, deadline_ns, &answer, ret_error);
    if (status == AOTICACHE_CORRUPT) {
        status = AOTICACHE_COMPILE_FAILED;
        if (ret_error != NULL)
            ret_error->status = status;
    }
    if (status == AOTICACHE_COMPILE_FAILED && hook->memory_limit_bytes != 0 && ret_error != NULL)
        name_memory_limit(hook, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    answer.product.output = answer.output;
    status = deliver_checked(delivery, &answer.product);
    aoticache_answer_free(&answer);
    return status;
}

aoticache_status aoticache_hook_compile(void *user, const aoticache_request *request, const char *directory,
                                        aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    aoticache_hook *hook = user;
    aoticache_status status = check_compile(hook, request, directory, deliver, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    struct checked_delivery delivery = {.hook = hook,
                                        .request = request,
                                        .start_ns = aoticache_monotonic_ns(),
                                        .deliver = deliver,
                                        .user = deliver_user,
                                        .error = ret_error};
    if (hook->kind->compile_and_deliver == NULL)
        status = compile_answer(hook, request, directory, &delivery, ret_error);
    else
        status = hook->kind->compile_and_deliver(hook, request, directory, deliver_checked, &delivery, ret_error);
    if (status == AOTICACHE_OK && !delivery.done)
        return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED,
                                   "hook %s (%.160s): it returned OK but delivered nothing", hook->kind->name,
                                   hook->program);
    return status == AOTICACHE_OK ? check_runs_here(&delivery, ret_error) : status;
}

/* Returns whether a terminal or a shutdown ended the program. This is not a failure of the source, and is not remembered. */
static bool was_told_to_end(const aoticache_process *process)
{
    int by = process->how_status;
    return process->ended && (process->how_code == CLD_KILLED || process->how_code == CLD_DUMPED) &&
           (by == SIGINT || by == SIGQUIT || by == SIGTERM || by == SIGHUP);
}

aoticache_status aoticache_hook_explain(const aoticache_hook *hook, aoticache_process *process,
                                        aoticache_process_event event, const char *doing, aoticache_error *ret_error)
{
    char how[96];
    if (event == AOTICACHE_PROCESS_FAILURE)
        return aoticache_error_set_errno(ret_error, errno, "hook %s (%.160s) was killed %.120s", hook->kind->name,
                                         hook->program, doing);
    if (event == AOTICACHE_PROCESS_TIMEOUT)
        snprintf(how, sizeof how, "took longer than %u s and was killed", (unsigned)hook->timeout_seconds);
    else if (event == AOTICACHE_PROCESS_OVERFLOW)
        snprintf(how, sizeof how, "answered with more than %d bytes and was killed", AOTICACHE_PROTOCOL_LINE_BYTES);
    else
        aoticache_process_describe_end(process, how, sizeof how);
    const char *words = aoticache_process_last_words(process, AOTICACHE_ERROR_MESSAGE_BYTES - 512);
    aoticache_status status =
        event == AOTICACHE_PROCESS_END && was_told_to_end(process) ? AOTICACHE_IO : AOTICACHE_COMPILE_FAILED;
    return aoticache_error_set(ret_error, status, "hook %s (%.160s) %s, %.120s%s%s", hook->kind->name, hook->program,
                               how, doing, words[0] != '\0' ? "; its output:\n" : "", words);
}
