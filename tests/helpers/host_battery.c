/*
 * Runs a battery of calls on a kernel library, through the loader, and records the result of each: status, kind of
 * message, outputs. The same calls on the same model must give the same lines, whatever made the library and whatever
 * host it is in: this program alone, with the shim, or a process that has libtorch (for that it is a shared library,
 * too; tests/python/loader/test_hosts.py runs all of them, and PyTorch's own runner, and compares).
 *
 *     host_battery LIBRARY OUTPUT SIZE...     sizes of the library's one input, which is float32
 *
 * The texts of messages are not an interface: the record is "none", "some", or "names CONSTANT".
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/loader_internal.h"
#include "loader/runner/create.h"
#include "loader/runner/runner.h"
#include "runtime/kernel.h"

enum { MAX_CONSTANTS = 8, MAX_OUTPUTS = 4, MAX_NDIM = 8, MAX_ELEMENTS = 256, THREADS = 4, RUNS = 50, TEXT = 8192 };

struct battery {
    FILE *out;
    const aoticache_torch *torch;
    aoticache_library *library;
    const aoticache_library_functions *f;
    AOTInductorModelContainerHandle container;
    size_t num_outputs, num_constants;
    const char *names[MAX_CONSTANTS]; /* names of the constants */
    bool folded[MAX_CONSTANTS], traced[MAX_CONSTANTS];
    int64_t ndim, sizes[MAX_NDIM];
    float input[MAX_ELEMENTS];
};

__attribute__((visibility("default"))) int host_battery(const char *library, const char *output, int64_t ndim,
                                                        const int64_t *sizes);

/* ---- recording ---- */

static void note(const struct battery *b, const char *label, AOTIRuntimeError status)
{
    const char *message = NULL, *name = NULL;
    if (b->f->AOTInductorGetLastError(&message) != 0 || message == NULL)
        message = "";
    for (size_t i = 0; i < b->num_constants; i++)
        if (strstr(message, b->names[i]) != NULL)
            name = b->names[i];
    fprintf(b->out, "%s: status %d, message %s%s\n", label, (int)status,
            name != NULL         ? "names "
            : message[0] != '\0' ? "some"
                                 : "none",
            name != NULL ? name : "");
}

/* Prints sizes and values. */
static void print_tensor(AtenTensorHandle tensor, FILE *out)
{
    aoticache_tensor_view view;
    if (aoticache_tensor_get_view(tensor, &view, NULL) != AOTICACHE_OK || view.dtype != AOTICACHE_DTYPE_FLOAT32) {
        fprintf(out, " cannot be read");
        return;
    }
    for (int64_t d = 0; d < view.ndim; d++)
        fprintf(out, "%s%lld/%lld", d == 0 ? " " : "x", (long long)view.sizes[d], (long long)view.strides[d]);
    for (int64_t i = 0; i < view.numel && view.data != NULL; i++)
        fprintf(out, " %.9g", (double)((const float *)view.data)[i]);
}

/* ---- running ---- */

static AtenTensorHandle make_tensor(const struct battery *b, void *data, int64_t ndim, const int64_t *sizes)
{
    AtenTensorHandle tensor = NULL;
    if (aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, ndim, sizes, NULL, &tensor, NULL) != AOTICACHE_OK)
        fprintf(b->out, "a tensor is refused\n");
    return tensor;
}

typedef AOTIRuntimeError (*run_fn)(AOTInductorModelContainerHandle, AtenTensorHandle *, size_t, AtenTensorHandle *,
                                   size_t, AOTInductorStreamHandle, AOTIProxyExecutorHandle);

/* Runs, and writes the result as text. */
static AOTIRuntimeError run_with(struct battery *b, run_fn run, char ret_text[TEXT])
{
    AtenTensorHandle input = make_tensor(b, b->input, b->ndim, b->sizes), outputs[MAX_OUTPUTS] = {NULL};
    FILE *text = fmemopen(ret_text, TEXT, "w");
    AOTIRuntimeError status = run(b->container, &input, 1, outputs, b->num_outputs, NULL, NULL);
    /* Frees the input if the call did not take it; on failure it may not have. */
    aoticache_tensor_free(input);
    for (size_t i = 0; i < b->num_outputs && status == 0; i++) {
        fprintf(text, "  output %zu", i);
        print_tensor(outputs[i], text);
        fputc('\n', text);
        aoticache_tensor_free(outputs[i]);
    }
    fclose(text);
    return status;
}

static void run_and_note(struct battery *b, const char *label)
{
    char text[TEXT] = "";
    note(b, label, run_with(b, b->f->AOTInductorModelContainerRun, text));
    fputs(text, b->out);
}

struct runner_thread {
    struct battery *battery;
    pthread_t id;
    const char *expected;
    int wrong;
};

static void *run_many(void *argument)
{
    struct runner_thread *thread = argument;
    char text[TEXT];
    for (int i = 0; i < RUNS; i++) {
        text[0] = '\0';
        if (run_with(thread->battery, thread->battery->f->AOTInductorModelContainerRun, text) != 0 ||
            strcmp(text, thread->expected) != 0)
            thread->wrong++;
    }
    return NULL;
}

static void play_threads(struct battery *b)
{
    struct runner_thread threads[THREADS];
    char expected[TEXT] = "";
    int wrong = 0;
    run_with(b, b->f->AOTInductorModelContainerRun, expected);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct runner_thread){.battery = b, .expected = expected};
        if (pthread_create(&threads[i].id, NULL, run_many, &threads[i]) != 0)
            exit(2);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i].id, NULL);
        wrong += threads[i].wrong;
    }
    fprintf(b->out, "threads: %d runs differ\n", wrong);
}

/* ---- creation and properties ---- */

static void play_refused_creation(struct battery *b)
{
    static const struct {
        const char *label, *device;
        size_t num_models;
    } cases[] = {{"create with no models", "cpu", 0},
                 {"create on device nonsense", "nonsense", 1},
                 {"create on device cpu:", "cpu:", 1},
                 {"create on device cpux", "cpux", 1},
                 {"create on device ''", "", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AOTInductorModelContainerHandle container = NULL;
        AOTIRuntimeError status =
            b->f->AOTInductorModelContainerCreateWithDevice(&container, cases[i].num_models, cases[i].device, NULL);
        fprintf(b->out, "%s: status %d, %s\n", cases[i].label, (int)status,
                container == NULL ? "nothing" : "something");
    }
}

static void ask_names(struct battery *b)
{
    const char *name = NULL, *in = NULL, *out = NULL;
    size_t num_inputs = 0;
    note(b, "number of inputs", b->f->AOTInductorModelContainerGetNumInputs(b->container, &num_inputs));
    note(b, "number of outputs", b->f->AOTInductorModelContainerGetNumOutputs(b->container, &b->num_outputs));
    fprintf(b->out, "  %zu inputs, %zu outputs\n", num_inputs, b->num_outputs);
    for (size_t i = 0; i < 2; i++) {
        name = "unset";
        note(b, "input name", b->f->AOTInductorModelContainerGetInputName(b->container, i, &name));
        fprintf(b->out, "  %s\n", name);
    }
    for (size_t i = 0; i < b->num_outputs + 1; i++) {
        name = "unset";
        note(b, "output name", b->f->AOTInductorModelContainerGetOutputName(b->container, i, &name));
        fprintf(b->out, "  %s\n", name);
    }
    note(b, "call specification", b->f->AOTInductorModelContainerGetCallSpec(b->container, &in, &out));
    fprintf(b->out, "  in %s\n  out %s\n", in, out);
}

#define ASK_CONSTANT(b, query, position, type, format)                                               \
    do {                                                                                             \
        type value = (type)0;                                                                        \
        note(b, "constant " #query,                                                                  \
             (b)->f->AOTInductorModelContainerGetConstant##query((b)->container, position, &value)); \
        fprintf((b)->out, "  " format "\n", value);                                                  \
    } while (0)

static void ask_constants(struct battery *b)
{
    size_t count = 0;
    int32_t type = 0;
    note(b, "number of constants", b->f->AOTInductorModelContainerGetNumConstants(b->container, &count));
    fprintf(b->out, "  %zu\n", count);
    if (count > MAX_CONSTANTS)
        exit(2);
    b->num_constants = count;
    for (size_t i = 0; i < b->num_constants; i++) {
        b->f->AOTInductorModelContainerGetConstantName(b->container, i, &b->names[i]);
        b->f->AOTInductorModelContainerGetConstantFromFolded(b->container, i, &b->folded[i]);
        b->f->AOTInductorModelContainerGetConstantType(b->container, i, &type);
        b->traced[i] = type == AOTICACHE_KERNEL_CONSTANT_TENSOR;
        fprintf(b->out, "  %zu %s, folded %d\n", i, b->names[i], b->folded[i]);
    }
    /* Also one past the end. */
    for (size_t i = 0; i <= b->num_constants; i++) {
        const char *fqn = "unset";
        note(b, "constant OriginalFQN", b->f->AOTInductorModelContainerGetConstantOriginalFQN(b->container, i, &fqn));
        fprintf(b->out, "  %s\n", fqn);
        ASK_CONSTANT(b, FromFolded, i, bool, "%d");
        ASK_CONSTANT(b, Type, i, int32_t, "%d");
        ASK_CONSTANT(b, Dtype, i, int32_t, "%d");
        ASK_CONSTANT(b, DataSize, i, size_t, "%zu");
    }
    uint64_t bytes;
    note(b, "size of the blob", b->f->AOTInductorModelContainerGetConstantsBlobSize(b->container, &bytes));
}

/* ---- constants ---- */

static void extract(struct battery *b, bool inactive)
{
    const AOTInductorConstantMapEntry *entries = NULL;
    size_t count = 99;
    AOTIRuntimeError status =
        b->f->AOTInductorModelContainerExtractConstantsMapEntries(b->container, &entries, &count, inactive);
    note(b, inactive ? "extract inactive" : "extract active", status);
    fprintf(b->out, "  %zu\n", count);
    for (size_t i = 0; status == 0 && i < count; i++) {
        fprintf(b->out, "  %s", entries[i].name);
        print_tensor(entries[i].handle, b->out);
        fputc('\n', b->out);
    }
}

/*
 * New values for constants that are not folded: each element is the old one times `factor`, plus `term`. Constants that
 * tracing made are left out: PyTorch overwrites those of the inactive buffer with the active one's when it folds that
 * buffer.
 */
struct values {
    AOTInductorConstantMapEntry pairs[MAX_CONSTANTS];
    void *data[MAX_CONSTANTS];
    size_t count;
};

static void make_value(const struct battery *b, AtenTensorHandle old, float factor, float term, struct values *values)
{
    aoticache_tensor_view view;
    if (aoticache_tensor_get_view(old, &view, NULL) != AOTICACHE_OK)
        exit(2);
    float *data = aligned_alloc(64, ((size_t)view.numel * sizeof *data + 64) & ~(size_t)63);
    if (data == NULL)
        exit(2);
    for (int64_t i = 0; i < view.numel; i++)
        data[i] = ((const float *)view.data)[i] * factor + term;
    values->data[values->count] = data;
    values->pairs[values->count].handle = make_tensor(b, data, view.ndim, view.sizes);
}

/* Makes new values. The active buffer must be complete. */
static void make_values(const struct battery *b, float factor, float term, struct values *ret_values)
{
    const AOTInductorConstantMapEntry *entries = NULL;
    size_t count = 0, next = 0;
    struct values values = {.count = 0};
    b->f->AOTInductorModelContainerExtractConstantsMapEntries(b->container, &entries, &count, false);
    for (size_t i = 0; i < b->num_constants; i++) {
        if (b->folded[i])
            continue;
        if (next >= count)
            exit(2);
        AtenTensorHandle old = entries[next++].handle;
        if (b->traced[i])
            continue;
        make_value(b, old, factor, term, &values);
        values.pairs[values.count++].name = b->names[i];
    }
    *ret_values = values;
}

static void free_values(struct values *values)
{
    for (size_t i = 0; i < values->count; i++) {
        aoticache_tensor_free(values->pairs[i].handle);
        free(values->data[i]);
    }
}

static AOTIRuntimeError update(struct battery *b, const AOTInductorConstantMapEntry *pairs, size_t count, bool inactive,
                               bool validate)
{
    return b->f->AOTInductorModelContainerUpdateConstantBufferPairs(b->container, pairs, count, inactive, validate);
}

static void play_active_updates(struct battery *b)
{
    struct values values;
    make_values(b, 1, 1, &values);
    note(b, "update one, not validated", update(b, values.pairs, 1, false, false));
    run_and_note(b, "run after updating one");
    note(b, "update one, validated", update(b, values.pairs, 1, false, true));
    run_and_note(b, "run after that");
    AOTInductorConstantMapEntry unknown = {"nobody_has_this", values.pairs[0].handle};
    note(b, "update an unknown one", update(b, &unknown, 1, false, false));
    note(b, "update an unknown one, validated", update(b, &unknown, 1, false, true));
    note(b, "update nothing", update(b, NULL, 0, false, false));
    note(b, "update all, validated", update(b, values.pairs, values.count, false, true));
    free_values(&values);
    run_and_note(b, "run after updating all");
    extract(b, false);
}

static void fold(struct battery *b, bool inactive)
{
    note(b, inactive ? "fold inactive" : "fold active",
         b->f->AOTInductorModelContainerRunConstantFolding(b->container, inactive, NULL, NULL));
}

static void swap(struct battery *b)
{
    note(b, "swap", b->f->AOTInductorModelContainerSwapConstantBuffer(b->container));
}

static void play_inactive_updates(struct battery *b)
{
    struct values values;
    extract(b, true);
    make_values(b, 2, -1, &values);
    note(b, "update inactive with nothing",
         b->f->AOTInductorModelContainerUpdateInactiveConstantBufferPairs(b->container, NULL, 0));
    note(b, "update inactive",
         b->f->AOTInductorModelContainerUpdateInactiveConstantBufferPairs(b->container, values.pairs, values.count));
    free_values(&values);
    extract(b, true);
    run_and_note(b, "run before the swap");
    fold(b, true);
    run_and_note(b, "run after folding");
    swap(b);
    run_and_note(b, "run after the swap");
    swap(b);
    run_and_note(b, "run after swapping back");
    fold(b, false);
    run_and_note(b, "run after folding active");
}

static bool has_folded(const struct battery *b)
{
    for (size_t i = 0; i < b->num_constants; i++)
        if (b->folded[i])
            return true;
    return false;
}

/*
 * Tests freeing. A freed buffer has no constants to run with until it is filled again. If constants were folded PyTorch
 * crashes: it reads the data of the folded ones that it has just dropped.
 */
static void play_freeing(struct battery *b)
{
    struct values values;
    note(b, "free inactive", b->f->AOTInductorModelContainerFreeInactiveConstantBuffer(b->container));
    run_and_note(b, "run after freeing");
    swap(b);
    run_and_note(b, "run on the freed buffer");
    swap(b);
    run_and_note(b, "run on the other");
    if (has_folded(b))
        return;
    make_values(b, -1, 3, &values);
    note(b, "fill the freed buffer", update(b, values.pairs, values.count, true, true));
    free_values(&values);
    swap(b);
    run_and_note(b, "run on the filled buffer");
    extract(b, false);
}

static void play_user_managed(struct battery *b)
{
    struct values values;
    make_values(b, 1, 2, &values);
    note(b, "user-managed update",
         b->f->AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(b->container, values.pairs, values.count,
                                                                             false, true));
    for (size_t i = 0; i < values.count; i++)
        ((float *)values.data[i])[3] = 100;
    run_and_note(b, "run with what the user wrote");
    struct values copies;
    make_values(b, 1, 1, &copies);
    note(b, "update again, copied", update(b, copies.pairs, copies.count, false, true));
    free_values(&copies);
    free_values(&values);
    run_and_note(b, "run with copies");
}

/* ---- a model without a container; if constants are folded it needs the container for that ---- */

static void run_model(struct battery *b, AOTInductorModelHandle model, const char *label)
{
    AtenTensorHandle input = make_tensor(b, b->input, b->ndim, b->sizes), outputs[MAX_OUTPUTS] = {NULL};
    AOTIRuntimeError status = b->f->AOTInductorModelRun(model, &input, outputs);
    note(b, label, status);
    aoticache_tensor_free(input);
    for (size_t i = 0; i < b->num_outputs && status == 0; i++) {
        fprintf(b->out, "  output %zu", i);
        print_tensor(outputs[i], b->out);
        fputc('\n', b->out);
        aoticache_tensor_free(outputs[i]);
    }
}

static void play_model(struct battery *b)
{
    AOTInductorModelHandle model = NULL;
    struct values values;
    size_t num_outputs = 0;
    note(b, "model", b->f->AOTInductorModelCreateV2(&model, NULL, 0));
    if (model == NULL)
        return;
    note(b, "outputs of the model", b->f->AOTInductorModelGetNumOutputs(model, &num_outputs));
    fprintf(b->out, "  %zu\n", num_outputs);
    run_model(b, model, "run the model");
    if (b->num_constants > 0) {
        make_values(b, 3, 0, &values);
        note(b, "constants of the model",
             b->f->AOTInductorModelUpdateConstantsMapV2(model, values.pairs, (int32_t)values.count));
        run_model(b, model, "run the model with them");
        for (size_t i = 0; i < values.count; i++)
            values.pairs[i].handle = NULL; /* taken */
    }
    note(b, "delete the model", b->f->AOTInductorModelDelete(model));
    if (b->num_constants > 0)
        free_values(&values);
}

/* ---- the loader's own runner ---- */

static void play_runner(struct battery *b)
{
    aoticache_runner *runner;
    AtenTensorHandle inputs[2], outputs[MAX_OUTPUTS];
    if (aoticache_runner_create(b->library, NULL, &runner, NULL) != AOTICACHE_OK) {
        fprintf(b->out, "runner: refused\n");
        return;
    }
    inputs[0] = inputs[1] = make_tensor(b, b->input, b->ndim, b->sizes);
    for (size_t n = 0; n <= 2; n++) {
        aoticache_status status = aoticache_runner_run(runner, inputs, n, outputs, b->num_outputs, NULL);
        fprintf(b->out, "runner with %zu inputs: %s\n", n, status == AOTICACHE_OK ? "runs" : "refused");
        for (size_t i = 0; status == AOTICACHE_OK && i < b->num_outputs; i++)
            aoticache_tensor_free(outputs[i]);
    }
    aoticache_tensor_free(inputs[0]);
    aoticache_runner_unref(runner);
}

/* ---- the battery ---- */

static void play(struct battery *b)
{
    char text[TEXT] = "";
    play_refused_creation(b);
    note(b, "create", b->f->AOTInductorModelContainerCreateWithDevice(&b->container, 2, "cpu", NULL));
    ask_names(b);
    ask_constants(b);
    /*
     * This comes first: PyTorch's function takes the pool's first free model, and after other runs there may be none.
     */
    note(b, "run single-threaded", run_with(b, b->f->AOTInductorModelContainerRunSingleThreaded, text));
    fputs(text, b->out);
    run_and_note(b, "run");
    run_and_note(b, "run again");
    extract(b, false);
    if (b->num_constants > 0) {
        play_active_updates(b);
        play_inactive_updates(b);
        play_freeing(b);
        play_user_managed(b);
    }
    play_threads(b);
    if (!has_folded(b))
        play_model(b);
    play_runner(b);
    note(b, "delete", b->f->AOTInductorModelContainerDelete(b->container));
}

/* Checks that the library has the functions that the battery calls; a missing one is named. */
static bool is_complete(const struct battery *b)
{
    static const char *const needed[] = {"AOTInductorGetLastError",
                                         "AOTInductorModelContainerUpdateConstantBufferPairs",
                                         "AOTInductorModelContainerExtractConstantsMapEntries",
                                         "AOTInductorModelContainerRunConstantFolding",
                                         "AOTInductorModelContainerSwapConstantBuffer",
                                         "AOTInductorModelContainerFreeInactiveConstantBuffer",
                                         "AOTInductorModelContainerUpdateInactiveConstantBufferPairs",
                                         "AOTInductorModelContainerGetConstantsBlobSize",
                                         "AOTInductorModelContainerUpdateUserManagedConstantBufferPairs",
                                         "AOTInductorModelContainerGetConstantDataSize",
                                         "AOTInductorModelCreateV2",
                                         "AOTInductorModelRun",
                                         "AOTInductorModelUpdateConstantsMapV2",
                                         "AOTInductorModelGetNumOutputs",
                                         "AOTInductorModelDelete",
                                         "AOTInductorModelContainerRunSingleThreaded",
                                         "AOTInductorModelContainerGetConstantType"};
    bool complete = true;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (!aoticache_library_exports(b->library, needed[i])) {
            fprintf(b->out, "missing %s\n", needed[i]);
            complete = false;
        }
    }
    return complete;
}

static aoticache_status open_library(struct battery *b, const char *path)
{
    aoticache_error error;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    aoticache_status status = aoticache_torch_get(&b->torch, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_library_load_fd(fd, path, NULL, &b->library, &error);
    if (fd >= 0)
        close(fd);
    if (status != AOTICACHE_OK)
        fprintf(b->out, "refused: %s\n", error.message);
    return status;
}

int host_battery(const char *library, const char *output, int64_t ndim, const int64_t *sizes)
{
    struct battery b = {.out = fopen(output, "w"), .ndim = ndim};
    if (b.out == NULL || ndim < 0 || ndim > MAX_NDIM)
        return 2;
    setvbuf(b.out, NULL, _IOLBF, 1 << 16);
    memcpy(b.sizes, sizes, (size_t)ndim * sizeof *sizes);
    for (int i = 0; i < MAX_ELEMENTS; i++)
        b.input[i] = (float)(i * 5 % 17 - 8);
    int result = 2;
    if (open_library(&b, library) == AOTICACHE_OK) {
        b.f = &b.library->functions;
        result = is_complete(&b) ? 0 : 3;
        if (result == 0)
            play(&b);
        aoticache_library_unref(b.library);
    }
    fclose(b.out);
    return result;
}

int main(int argc, char **argv)
{
    int64_t sizes[MAX_NDIM];
    int64_t ndim = argc - 3;
    if (ndim < 0 || ndim > MAX_NDIM) {
        fprintf(stderr, "usage: host_battery LIBRARY OUTPUT SIZE...\n");
        return 2;
    }
    for (int64_t d = 0; d < ndim; d++)
        sizes[d] = strtoll(argv[3 + d], NULL, 10);
    return host_battery(argv[1], argv[2], ndim, sizes);
}
