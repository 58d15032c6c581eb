/*
 * eager/model/package/executor: creates the executor of a stored package from the file next to its library, and runs nodes:
 * pushes arguments onto a stack, calls the dispatcher, and puts results into the handles that the compiled code passed.
 */
#include "eager/model/package/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text/json.h"
#include "cache/entries.h"
#include "eager/model/package/package_internal.h"
#include "loader/loader.h"
#include "loader/torch.h"

/* ---- running a node ---- */

/* The memory of one call, in one block. */
typedef struct frame {
    aoticache_value values[AOTICACHE_EXECUTOR_MAX_VALUES];
    const aoticache_tensor_view **lists; /* for the lists of tensors */
    aoticache_tensor_view views[];       /* of the input tensors */
} frame;

static frame *frame_new(const aoticache_executor_node *node)
{
    size_t views = node->input_count * sizeof(aoticache_tensor_view);
    frame *made = calloc(1, sizeof *made + views + node->list_count * sizeof *made->lists);
    if (made != NULL)
        made->lists = (const aoticache_tensor_view **)(void *)((char *)made->views + views);
    return made;
}

static aoticache_status read_views(const aoticache_executor_node *node, const aoticache_proxy_call *call, frame *to,
                                   aoticache_error *ret_error)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        aoticache_error inner = {.message = ""};
        aoticache_status status = aoticache_tensor_get_view(call->tensors[i], &to->views[i], &inner);
        if (status != AOTICACHE_OK)
            return aoticache_error_set(ret_error, status, "%s: input tensor %u: %.400s",
                                       aoticache_operator_name(node->op), i, inner.message);
    }
    return AOTICACHE_OK;
}

static void fill_values(const aoticache_executor_node *node, const aoticache_proxy_call *call, frame *to)
{
    const int64_t *ints = call->ints;
    const aoticache_tensor_view *views = to->views;
    const aoticache_tensor_view **lists = to->lists;
    for (uint32_t i = 0; i < node->argument_count; i++) {
        const aoticache_executor_argument *argument = &node->arguments[i];
        aoticache_value *value = &to->values[i];
        *value = argument->value;
        value->count = argument->source == AOTICACHE_EXECUTOR_FIXED ? value->count : argument->count;
        switch (argument->source) {
        case AOTICACHE_EXECUTOR_FIXED:
            break;
        case AOTICACHE_EXECUTOR_INT:
            value->kind = AOTICACHE_VALUE_INT;
            value->as.int_value = *ints++;
            break;
        case AOTICACHE_EXECUTOR_INTS:
            value->kind = AOTICACHE_VALUE_INT_LIST;
            value->as.ints = ints;
            ints += argument->count;
            break;
        case AOTICACHE_EXECUTOR_TENSOR:
            value->kind = AOTICACHE_VALUE_TENSOR;
            value->as.tensor = views++;
            break;
        case AOTICACHE_EXECUTOR_TENSORS:
            value->kind = AOTICACHE_VALUE_TENSOR_LIST;
            value->as.tensors = lists;
            for (uint32_t k = 0; k < argument->count; k++)
                *lists++ = argument->absent[k] ? NULL : views++;
            break;
        }
    }
}

/* Returns a tensor of a result: an element of a list, or the only one. NULL: there is none, or it is not a tensor. */
static AtenTensorHandle result_at(const aoticache_value *value, uint32_t place)
{
    switch (value->kind) {
    case AOTICACHE_VALUE_OUTPUT:
        return value->as.output;
    case AOTICACHE_VALUE_OUTPUT_LIST:
        return value->as.outputs[place];
    case AOTICACHE_VALUE_TENSOR:
        return value->as.tensor != NULL ? value->as.tensor->handle : NULL;
    case AOTICACHE_VALUE_TENSOR_LIST:
        return value->as.tensors[place] != NULL ? value->as.tensors[place]->handle : NULL;
    default:
        return NULL;
    }
}

static bool is_list(const aoticache_value *value)
{
    return value->kind == AOTICACHE_VALUE_OUTPUT_LIST || value->kind == AOTICACHE_VALUE_TENSOR_LIST;
}

static aoticache_status give_results(const aoticache_executor_node *node, const aoticache_proxy_call *call,
                                     const aoticache_stack *stack, aoticache_error *ret_error)
{
    const char *op = aoticache_operator_name(node->op);
    const AtenTensorHandle *to = call->tensors + node->input_count;
    if (stack->count != node->return_count)
        return aoticache_error_set(ret_error, AOTICACHE_MISMATCH,
                                   "%s: its kernel returned %zu results, but the schema has %u", op, stack->count,
                                   node->return_count);
    for (uint32_t i = 0; i < node->output_count; i++) {
        const aoticache_executor_output *output = &node->outputs[i];
        const aoticache_value *value = &stack->values[i];
        if (output->count == 0 && !output->is_list)
            continue;
        if (is_list(value) != output->is_list || (output->is_list && value->count != output->count))
            return aoticache_error_set(ret_error, AOTICACHE_MISMATCH,
                                       "%s: result %u is a %s of %u; the model was compiled for %s%u", op, i,
                                       aoticache_value_kind_name(value->kind), is_list(value) ? value->count : 1,
                                       output->is_list ? "a list of " : "", output->count);
        for (uint32_t k = 0; k < output->count; k++) {
            AtenTensorHandle from = result_at(value, k);
            if (from == NULL || call->assign(from, *to++) != 0)
                return aoticache_error_set(ret_error, AOTICACHE_MISMATCH, "%s: result %u is not a tensor, but a %s", op,
                                           i, aoticache_value_kind_name(value->kind));
        }
    }
    return AOTICACHE_OK;
}

static aoticache_status run_node(const aoticache_executor_node *node, const aoticache_proxy_call *call,
                                 aoticache_error *ret_error)
{
    cleanup_free frame *to = frame_new(node);
    if (to == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for its arguments",
                                   aoticache_operator_name(node->op));
    aoticache_stack stack = {
        .values = to->values, .count = node->argument_count, .capacity = AOTICACHE_EXECUTOR_MAX_VALUES};
    aoticache_status status = read_views(node, call, to, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    fill_values(node, call, to);
    const aoticache_dispatch_local before = aoticache_dispatch_add_local(0, node->excluded);
    status = aoticache_operator_call(node->op, &stack, ret_error);
    aoticache_dispatch_set_local(before);
    if (status == AOTICACHE_OK)
        status = give_results(node, call, &stack, ret_error);
    aoticache_stack_drop(&stack, 0);
    return status;
}

/*
 * Returns whether the call passes only integers that its node's arguments already contain. PyTorch 2.13 does so for integers
 * such as the alpha of a complex sub(), which its own executor then reports as too many.
 */
static bool passes_fixed_integers(const aoticache_executor_node *node, const aoticache_proxy_call *call)
{
    int32_t found = 0;
    for (uint32_t i = 0; i < node->argument_count && found < call->int_count; i++) {
        const aoticache_executor_argument *argument = &node->arguments[i];
        if (argument->source == AOTICACHE_EXECUTOR_FIXED && argument->value.kind == AOTICACHE_VALUE_INT &&
            argument->value.as.int_value == call->ints[found])
            found++;
    }
    return node->int_count == 0 && found == call->int_count;
}

/* Runs a node: AOTIProxyExecutorOpaque.run */
static aoticache_status executor_run(AOTIProxyExecutorHandle handle, const aoticache_proxy_call *call,
                                     aoticache_error *ret_error)
{
    const aoticache_executor *executor = (const aoticache_executor *)(const void *)handle;
    if (call->node < 0 || (size_t)call->node >= executor->node_count)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "the model calls node %d of its operators, but its package has %zu", call->node,
                                   executor->node_count);
    const aoticache_executor_node *node = &executor->nodes[call->node];
    if (call->int_count < 0 || call->tensor_count < 0 || (uint32_t)call->tensor_count != node->tensor_count ||
        ((uint32_t)call->int_count != node->int_count && !passes_fixed_integers(node, call)))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: the model passes %d integers and %d tensors, but its package says %u and %u",
                                   aoticache_operator_name(node->op), call->int_count, call->tensor_count,
                                   node->int_count, node->tensor_count);
    return run_node(node, call, ret_error);
}

/* ---- creating an executor ---- */

void aoticache_executor_free(aoticache_executor *executor)
{
    if (executor == NULL)
        return;
    aoticache_executor_free_nodes(executor);
    json_decref(executor->tree);
    free(executor);
}

aoticache_status aoticache_executor_create(aoticache_dispatcher *dispatcher, const char *text, size_t size,
                                           aoticache_executor **ret_executor, aoticache_error *ret_error)
{
    json_error_t problem;
    aoticache_executor *executor = calloc(1, sizeof *executor);
    if (executor == NULL || dispatcher == NULL) {
        free(executor);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the package's operators");
    }
    executor->handle.run = executor_run;
    executor->tree = aoticache_json_parse(text, size, JSON_REJECT_DUPLICATES, &problem);
    aoticache_status status = AOTICACHE_OK;
    if (executor->tree == NULL && aoticache_json_is_out_of_memory(&problem))
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the package's operators");
    else if (executor->tree == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                     "the list of the package's operators is not valid JSON, line %d", problem.line);
    else
        status = aoticache_executor_read_nodes(executor, dispatcher, ret_error);
    if (status == AOTICACHE_OK)
        *ret_executor = executor;
    else
        aoticache_executor_free(executor);
    return status;
}

/* ---- the file ---- */

/* Opens NAME.json next to NAME.so in the directory of side files; *ret_fd stays -1 if there is none. */
static aoticache_status open_nodes(const char *directory, int *ret_fd, aoticache_error *ret_error)
{
    cleanup_dir DIR *subdirectory = opendir(directory);
    if (subdirectory == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", directory);
    for (struct dirent *entry; (entry = readdir(subdirectory)) != NULL;) {
        char library[sizeof entry->d_name + 4];
        size_t length = strlen(entry->d_name);
        if (length <= 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        snprintf(library, sizeof library, "%.*s.so", (int)(length - 5), entry->d_name);
        if (faccessat(dirfd(subdirectory), library, F_OK, 0) != 0)
            continue;
        if (*ret_fd >= 0)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "the package has two lists of operators for one library, one of them is %s",
                                       entry->d_name);
        *ret_fd = openat(dirfd(subdirectory), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (*ret_fd < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot open %s/%s", directory, entry->d_name);
    }
    return AOTICACHE_OK;
}

static aoticache_status read_text(int fd, char **ret_text, size_t *ret_size, aoticache_error *ret_error)
{
    struct stat found;
    size_t got = 0;
    if (fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read the list of the package's operators");
    if (found.st_size < 0 || (uint64_t)found.st_size > AOTICACHE_EXECUTOR_MAX_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "the list of the package's operators has %lld bytes; at most %u are allowed",
                                   (long long)found.st_size, AOTICACHE_EXECUTOR_MAX_BYTES);
    cleanup_free char *text = malloc((size_t)found.st_size + 1);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the package's operators");
    while (got < (size_t)found.st_size) {
        ssize_t now = pread(fd, text + got, (size_t)found.st_size - got, (off_t)got);
        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0)
            return aoticache_error_set_errno(ret_error, now < 0 ? errno : EIO,
                                             "cannot read the list of the package's operators");
        got += (size_t)now;
    }
    *ret_text = steal_ptr(&text);
    *ret_size = got;
    return AOTICACHE_OK;
}

/* Finds out whether an executor is needed: most packages have no such file; for others, the library's symbols show it. */
static aoticache_status needs_executor(const aoticache_artifact *artifact, bool *ret_needs, aoticache_error *ret_error)
{
    aoticache_library_description *about = NULL;
    aoticache_status status = aoticache_library_describe(aoticache_artifact_library_fd(artifact), &about, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_needs = about->proxy_executor;
    aoticache_library_description_free(about);
    return AOTICACHE_OK;
}

aoticache_status aoticache_package_executor_open(const aoticache_artifact *artifact, const char *name,
                                                 aoticache_executor **ret_executor, aoticache_error *ret_error)
{
    const char *directory = aoticache_artifact_get_info(artifact)->directory;
    cleanup_fd int fd = -1;
    cleanup_free char *text = NULL;
    size_t size = 0;
    bool needs = false;
    aoticache_error inner = {.message = ""};
    *ret_executor = NULL;
    if (directory == NULL || aoticache_torch_is_libtorch())
        return AOTICACHE_OK;
    aoticache_status status = open_nodes(directory, &fd, &inner);
    if (status == AOTICACHE_OK && fd >= 0)
        status = needs_executor(artifact, &needs, &inner);
    if (status == AOTICACHE_OK && needs)
        status = read_text(fd, &text, &size, &inner);
    if (status == AOTICACHE_OK && needs)
        status = aoticache_executor_create(aoticache_dispatcher_get(), text, size, ret_executor, &inner);
    return status == AOTICACHE_OK ? status : aoticache_error_set(ret_error, status, "%.200s: %s", name, inner.message);
}
