/*
 * A fast compile hook for the tests of the holder: one library is compiled (tests/unit/kernels/patched.c), and each
 * compile writes the properties that the request asks for into a copy. Operators are like "test::scale(Tensor self,
 * float factor=2.0, *, int offset=0) -> Tensor": the first number is the factor, the keyword "offset" is added. Also
 * makes tensors for them. A hook of patched_open_numbers() makes libraries that take the factor as their second input,
 * too.
 */
#ifndef AOTICACHE_TESTS_PATCHED_KERNEL_H
#define AOTICACHE_TESTS_PATCHED_KERNEL_H

#include "base/names.h"
#include "base/process/home.h"
#include "eager/holder/holder.h"
#include "kernels/patched_order.h"
#include "loader/tensor.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the hook ---- */

typedef struct patched_library {
    char *bytes; /* contents of the file; NULL: there is none */
    size_t size;
    patched_order *order; /* points into the bytes */
} patched_library;

typedef struct patched_hook {
    patched_library fixed, taking; /* with a fixed factor, and with the factor as input */
    pthread_mutex_t lock;          /* protects the bytes */
    aoticache_hook *hook;
    const char *log; /* a file: one line with the key for each compile that succeeded; NULL: none */
    atomic_int compiles, dynamic_compiles, number_compiles;
    atomic_int fail_status;        /* what a compile returns, once it is not 0 */
    atomic_int number_fail_status; /* the same, only for libraries that take the factor */
    atomic_int begun;              /* compiles that began, whatever their result */
    atomic_int delay_ms;
    /* compiles that have begun wait until this is false: so no test depends on speed */
    atomic_bool is_shut;
    const char *guard; /* for dynamic compiles; NULL: the first tensor's rank, with sizes from 2 on */
} patched_hook;

/*
 * Compiles the library. flags: such as -DINPUTS=2. Compiles in `directory`. Returns false without a
 * compiler.
 */
static inline bool patched_compile(const char *directory, const char *flags, patched_library *ret_library)
{
    char archive[PATH_MAX], header[PATH_MAX], path[PATH_MAX], command[4 * PATH_MAX + 512];
    if (system("cc --version >/dev/null 2>&1") != 0 ||
        aoticache_home_find("lib/libaoticache_runtime.a", archive, NULL) != AOTICACHE_OK ||
        aoticache_home_find("include/aoticache/runtime/kernel.h", header, NULL) != AOTICACHE_OK)
        return false;
    *strstr(header, "/runtime/kernel.h") = '\0';
    snprintf(path, sizeof path, "%.3000s/patched.so", directory);
    snprintf(command, sizeof command,
             "cc -std=gnu11 -O1 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden %s -I%s "
             "tests/unit/kernels/patched.c %s -o %s",
             flags, header, archive, path);
    FILE *file = system(command) == 0 ? fopen(path, "rb") : NULL;
    if (file == NULL)
        return false;
    patched_library library = {.size = 0};
    fseek(file, 0, SEEK_END);
    library.size = (size_t)ftell(file);
    rewind(file);
    library.bytes = malloc(library.size);
    bool read = library.bytes != NULL && fread(library.bytes, 1, library.size, file) == library.size;
    fclose(file);
    unlink(path);
    library.order = read ? memmem(library.bytes, library.size, PATCHED_MAGIC, sizeof PATCHED_MAGIC) : NULL;
    *ret_library = library;
    return library.order != NULL;
}

static inline bool patched_takes_numbers(const aoticache_request *request)
{
    return aoticache_request_get_environment(request, AOTICACHE_NUMBERS_NAME) != NULL;
}

static inline bool patched_is_dynamic(const aoticache_request *request)
{
    return aoticache_request_get_environment(request, AOTICACHE_SHAPES_NAME) != NULL;
}

/* Reads the request's properties. */
static inline patched_order patched_read(const aoticache_request *request)
{
    patched_order order = {.magic = PATCHED_MAGIC, .ndim = -1, .scale = 2};
    bool has_factor = false;
    for (size_t i = 0; i < aoticache_request_argument_count(request); i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        if (argument->kind == AOTICACHE_ARGUMENT_LIST && argument->value.list.count > 0)
            argument = argument->value.list.items;
        if (argument->kind == AOTICACHE_ARGUMENT_TENSOR && order.ndim < 0 && !patched_is_dynamic(request)) {
            order.ndim = argument->value.tensor.metadata.ndim;
            for (int d = 0; d < order.ndim && d < 4; d++)
                order.sizes[d] = argument->value.tensor.metadata.sizes[d];
        } else if (argument->kind == AOTICACHE_ARGUMENT_DOUBLE && !has_factor) {
            order.scale = argument->value.double_value;
            has_factor = true;
        } else if (argument->kind == AOTICACHE_ARGUMENT_INT && strcmp(argument->name, "offset") == 0) {
            order.offset = (double)argument->value.int_value;
        }
    }
    return order;
}

static inline const char *patched_guard(const patched_hook *hook, const aoticache_request *request, char *text)
{
    if (!patched_is_dynamic(request))
        return NULL;
    if (hook->guard != NULL)
        return hook->guard;
    uint32_t ndim = aoticache_request_argument(request, 0)->value.tensor.metadata.ndim;
    const char *number = patched_takes_numbers(request) ? ", float64[]@cpu" : "";
    sprintf(text, ndim == 1 ? "float32[s0]@cpu%s; s0=2.." : "float32[s0, s1]@cpu%s; s0=2.., s1=2..", number);
    return text;
}

static inline void patched_log(const patched_hook *hook, const aoticache_request *request)
{
    aoticache_key key;
    char hex[AOTICACHE_DIGEST_HEX_BYTES + 1];
    if (hook->log == NULL || aoticache_request_key(request, &key, NULL) != AOTICACHE_OK)
        return;
    aoticache_digest_to_hex(&key, hex);
    strcat(hex, "\n");
    int fd = open(hook->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, hex, strlen(hex)) != (ssize_t)strlen(hex))
        abort();
    close(fd);
}

static inline aoticache_status patched_hook_compile(void *user, const aoticache_request *request, const char *directory,
                                                    aoticache_deliver_fn hand_over, void *deliver_user,
                                                    aoticache_error *ret_error)
{
    static atomic_uint serial;
    patched_hook *hook = user;
    char path[PATH_MAX], guard[128];
    int delay = hook->delay_ms, failure = hook->fail_status;
    if (failure == 0 && patched_takes_numbers(request))
        failure = hook->number_fail_status;
    hook->begun++;
    while (hook->is_shut)
        nanosleep(&(struct timespec){.tv_nsec = 1000000L}, NULL);
    nanosleep(&(struct timespec){.tv_sec = delay / 1000, .tv_nsec = delay % 1000 * 1000000L}, NULL);
    if (failure != 0)
        return aoticache_error_set(ret_error, failure, "this hook fails on purpose");
    snprintf(path, sizeof path, "%.4000s/kernel.so", directory);
    patched_library *made = patched_takes_numbers(request) ? &hook->taking : &hook->fixed;
    pthread_mutex_lock(&hook->lock);
    *made->order = patched_read(request);
    made->order->serial = (uint64_t)getpid() << 32 | serial++;
    FILE *file = fopen(path, "wb");
    bool written = file != NULL && fwrite(made->bytes, 1, made->size, file) == made->size;
    written = file != NULL && fclose(file) == 0 && written;
    pthread_mutex_unlock(&hook->lock);
    if (!written)
        return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "cannot write %s", path);
    aoticache_file library = {.name = "kernel.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &library;
    product.file_count = 1;
    product.guard = patched_guard(hook, request, guard);
    product.producer = "patched";
    product.compile_ns = 1000000;
    aoticache_status status = hand_over(deliver_user, &product);
    if (status == AOTICACHE_OK) {
        patched_log(hook, request);
        atomic_fetch_add(&hook->compiles, 1);
        atomic_fetch_add(&hook->dynamic_compiles, patched_is_dynamic(request));
        atomic_fetch_add(&hook->number_compiles, patched_takes_numbers(request));
    }
    return status;
}

static inline bool patched_create(bool dynamic, bool numbers, patched_hook *hook)
{
    aoticache_callback callback = AOTICACHE_CALLBACK_INIT;
    callback.user = hook;
    callback.compile = patched_hook_compile;
    callback.producer = "patched 1";
    callback.dynamic = dynamic;
    callback.numbers = numbers;
    return aoticache_hook_create_callback(&callback, &hook->hook, NULL) == AOTICACHE_OK;
}

static inline bool patched_open(const char *directory, const char *flags, bool dynamic, patched_hook *hook)
{
    *hook = (patched_hook){.hook = NULL};
    pthread_mutex_init(&hook->lock, NULL);
    return patched_compile(directory, flags, &hook->fixed) && patched_create(dynamic, false, hook);
}

static inline bool patched_open_numbers(const char *directory, bool dynamic, patched_hook *hook)
{
    *hook = (patched_hook){.hook = NULL};
    pthread_mutex_init(&hook->lock, NULL);
    return patched_compile(directory, "", &hook->fixed) && patched_compile(directory, "-DTAKES_SCALE", &hook->taking) &&
           patched_create(dynamic, true, hook);
}

static inline void patched_close(patched_hook *hook)
{
    aoticache_hook_free(hook->hook);
    free(hook->fixed.bytes);
    free(hook->taking.bytes);
    pthread_mutex_destroy(&hook->lock);
}

/* ---- tensors ---- */

/* A float32 tensor and its view; element k is k % 7. */
typedef struct test_tensor {
    float *data;
    int64_t sizes[4];
    aoticache_tensor_view view;
} test_tensor;

static inline test_tensor *tensor_create(int64_t ndim, const int64_t *sizes)
{
    test_tensor *tensor = calloc(1, sizeof *tensor);
    int64_t numel = 1;
    for (int64_t i = 0; i < ndim; i++)
        numel *= tensor->sizes[i] = sizes[i];
    tensor->data = malloc((size_t)(numel > 0 ? numel : 1) * sizeof(float));
    for (int64_t k = 0; k < numel; k++)
        tensor->data[k] = (float)(k % 7);
    AtenTensorHandle handle;
    if (aoticache_tensor_from_blob(tensor->data, AOTICACHE_DTYPE_FLOAT32, ndim, tensor->sizes, NULL, &handle, NULL) !=
            AOTICACHE_OK ||
        aoticache_tensor_get_view(handle, &tensor->view, NULL) != AOTICACHE_OK)
        abort();
    return tensor;
}

static inline void tensor_free(test_tensor *tensor)
{
    aoticache_tensor_free(tensor->view.handle);
    free(tensor->data);
    free(tensor);
}

#define SIZES(...)    \
    (const int64_t[]) \
    {                 \
        __VA_ARGS__   \
    }
#define VALUE_TENSOR(from) ((aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &(from)->view})
#define VALUE_DOUBLE(number) ((aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = (number)})
#define VALUE_INT(number) ((aoticache_value){.kind = AOTICACHE_VALUE_INT, .as.int_value = (number)})
#define VALUE_BOOL(truth) ((aoticache_value){.kind = AOTICACHE_VALUE_BOOL, .as.bool_value = (truth)})
#define VALUE_STRING(text) ((aoticache_value){.kind = AOTICACHE_VALUE_STRING, .as.string = (text)})
#define VALUE_NONE ((aoticache_value){.kind = AOTICACHE_VALUE_NONE})

/* Returns whether an output is scale * x + offset. */
static inline bool output_is(const aoticache_value *output, const test_tensor *x, double scale, double offset)
{
    aoticache_tensor_view view;
    if (output->kind != AOTICACHE_VALUE_OUTPUT ||
        aoticache_tensor_get_view(output->as.output, &view, NULL) != AOTICACHE_OK || view.ndim != x->view.ndim)
        return false;
    int64_t numel = 1;
    for (int64_t i = 0; i < view.ndim; i++) {
        if (view.sizes[i] != x->sizes[i])
            return false;
        numel *= view.sizes[i];
    }
    for (int64_t k = 0; k < numel; k++)
        if (((const float *)view.data)[k] != (float)scale * x->data[k] + (float)offset)
            return false;
    return true;
}

#endif
