/*
 * shim/products/lstm: one layer of a long short-term memory, in one direction: the operator for which PyTorch uses oneDNN.
 *
 * Source: aten::mkldnn_rnn_layer (aten/src/ATen/native/mkldnn/RNN.cpp). The inputs of all steps are multiplied
 * together; each step adds the product of its state, and the thread that has computed the gates of some units computes
 * their state. Bfloat16 is computed in float, and the state is not rounded between steps. The last result, which only a
 * gradient reads, is empty.
 */
#include "runtime/shim/math/math_internal.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <string.h>

/* PyTorch's number for LSTM layers (at::native's rnn mode). */
enum { MODE_LSTM = 2 };

/* Weights, their products and biases have rows for these gates: input, forget, cell, output. */
enum { GATES = 4 };

/* From this many steps on, reordering the state's weight pays off. */
enum { FEW_STEPS = 4 };

struct lstm {
    int64_t steps, batch, inputs, units;
    bool reverse;
    const float *input, *input_weight, *state_weight; /* contiguous */
    float *bias;                                      /* the sum of both; only read if there is one */
    float *gates;                                     /* steps x batch x (GATES * units) */
    float *output, *state, *cell;                     /* steps x batch x units; batch x units, changed by each step */
};

/* Describes out = a Wᵀ + addend, for `rows` rows of a. addend_stride is in values; 0: one row for all. */
static struct matmul_problem describe_product(const struct lstm *l, int64_t rows, const float *a, const float *weight,
                                              int64_t depth, const float *addend, int64_t addend_stride, float *out)
{
    const ptrdiff_t item = sizeof(float), columns = (ptrdiff_t)(GATES * l->units);
    return (struct matmul_problem){
        .arithmetic = aoticache_shim_matmul_arithmetic(SHIM_CLASS_FLOAT),
        .access = aoticache_shim_dtype_access(AOTICACHE_DTYPE_FLOAT32),
        .item_bytes = sizeof(float),
        .rows = rows,
        .columns = columns,
        .depth = depth,
        .alpha = 1,
        .beta = 1,
        .a = {(char *)(uintptr_t)a, (ptrdiff_t)depth * item, item},
        .b = {(char *)(uintptr_t)weight, item, (ptrdiff_t)depth * item},
        .addend = {(char *)(uintptr_t)addend, (ptrdiff_t)addend_stride * item, item},
        .out = {(char *)out, columns * item, item},
    };
}

struct step {
    const struct lstm *l;
    const float *state;         /* of the previous step */
    float *gates, *state_after; /* state_after: also the step's output */
};

/* Computes the state of some units, whose gates have been computed. */
static void update_units(void *user, int64_t first, int64_t end)
{
    const struct shim_unary sigmoid = {.kind = SHIM_UNARY_SIGMOID}, hyperbolic = {.kind = SHIM_UNARY_TANH};
    const struct step *step = user;
    const int64_t units = step->l->units, count = end - first;
    for (int64_t row = 0; row < step->l->batch; row++) {
        float *in = step->gates + row * GATES * units + first;
        float *forget = in + units, *fresh = in + 2 * units, *out = in + 3 * units;
        float *cell = step->l->cell + row * units + first, *state = step->state_after + row * units + first;
        aoticache_shim_unary_apply(&sigmoid, in, count);
        aoticache_shim_unary_apply(&sigmoid, forget, count);
        aoticache_shim_unary_apply(&hyperbolic, fresh, count);
        aoticache_shim_unary_apply(&sigmoid, out, count);
        for (int64_t i = 0; i < count; i++)
            state[i] = cell[i] = forget[i] * cell[i] + in[i] * fresh[i];
        aoticache_shim_unary_apply(&hyperbolic, state, count);
        for (int64_t i = 0; i < count; i++)
            state[i] *= out[i];
    }
}

/* Runs one step. state_weight: the reordered weight, kept for later steps; NULL: there are few steps. */
static bool run_step(struct step *step, struct shim_packed *state_weight)
{
    const struct lstm *l = step->l;
    const struct matmul_groups groups = {GATES, update_units, step};
    const struct matmul_problem problem = describe_product(l, l->batch, step->state, l->state_weight, l->units,
                                                           step->gates, GATES * l->units, step->gates);
    if (l->batch == 0 || l->units == 0 ||
        (state_weight != NULL && aoticache_shim_matmul_kept(&problem, state_weight, &groups)))
        return true;
    if (!aoticache_shim_matmul(&problem))
        return false;
    update_units(step, 0, l->units);
    return true;
}

/* Runs the steps. The state's weight is the same in all of them, and is reordered once. */
static bool run_steps(const struct lstm *l, struct shim_packed *state_weight)
{
    const int64_t numbers = l->batch * l->units;
    struct step step = {.l = l, .state_after = l->state};
    for (int64_t i = 0; i < l->steps; i++) {
        int64_t at = l->reverse ? l->steps - 1 - i : i;
        step.state = step.state_after;
        step.state_after = l->output + at * numbers;
        step.gates = l->gates + at * numbers * GATES;
        if (!run_step(&step, state_weight))
            return false;
    }
    if (step.state_after != l->state)
        memcpy(l->state, step.state_after, (size_t)numbers * sizeof *l->state);
    return true;
}

/* Runs the layer over all steps. False: out of memory. */
static bool run(const struct lstm *l)
{
    struct shim_packed state_weight = {.prepared = NULL};
    const int64_t rows = l->steps * l->batch;
    const struct matmul_problem problem =
        describe_product(l, rows, l->input, l->input_weight, l->inputs, l->bias, 0, l->gates);
    if (rows > 0 && l->units > 0 && !aoticache_shim_matmul(&problem))
        return false;
    bool is_done = run_steps(l, l->steps >= FEW_STEPS ? &state_weight : NULL);
    aoticache_shim_packed_clear(&state_weight);
    return is_done;
}

/* ---- checks ---- */

static AOTITorchError check_matrix(const char *function, const char *what, AtenTensorHandle tensor, int64_t rows,
                                   int64_t columns)
{
    const struct shim_tensor *t = tensor->tensor;
    if (t->ndim != 2 || t->sizes[0] != rows || t->sizes[1] != columns)
        return aoticache_shim_fail("%s: %s must be %lld x %lld, but has %d dimensions and %lld elements", function,
                                   what, (long long)rows, (long long)columns, (int)t->ndim, (long long)t->numel);
    return SHIM_SUCCESS;
}

/* Checks a state of one layer: batch x units, with or without a dimension of size 1 in front. */
static AOTITorchError check_state(const char *function, const char *what, AtenTensorHandle tensor, const struct lstm *l)
{
    const struct shim_tensor *t = tensor->tensor;
    if (t->ndim < 2 || t->ndim > 3 || (t->ndim == 3 && t->sizes[0] != 1) || t->sizes[t->ndim - 2] != l->batch ||
        t->sizes[t->ndim - 1] != l->units)
        return aoticache_shim_fail("%s: %s must be %lld x %lld, but has %d dimensions and %lld elements", function,
                                   what, (long long)l->batch, (long long)l->units, (int)t->ndim, (long long)t->numel);
    return SHIM_SUCCESS;
}

static AOTITorchError check_bias(const char *function, AtenTensorHandle bias, const struct lstm *l)
{
    const struct shim_tensor *t = bias->tensor;
    if (t->ndim != 1 || t->numel != GATES * l->units)
        return aoticache_shim_fail("%s: a bias must have %lld elements, but has %lld in %d dimensions", function,
                                   (long long)(GATES * l->units), (long long)t->numel, (int)t->ndim);
    return SHIM_SUCCESS;
}

/* ---- the operator ---- */

struct operands {
    AtenTensorHandle input, input_weight, state_weight, biases[2], state, cell;
    bool has_biases;
};

static AOTITorchError describe(const char *function, const struct operands *o, int64_t units, struct lstm *l)
{
    const AtenTensorHandle all[] = {o->input, o->input_weight, o->state_weight, o->state,
                                    o->cell,  o->biases[0],    o->biases[1]};
    for (size_t i = 0; i < (o->has_biases ? 7 : 5); i++) {
        if (!shim_is_defined(all[i]))
            return aoticache_shim_fail_undefined(function, all[i]);
        int32_t dtype = all[i]->tensor->dtype;
        if ((dtype != AOTICACHE_DTYPE_FLOAT32 && dtype != AOTICACHE_DTYPE_BFLOAT16) || dtype != o->input->tensor->dtype)
            return aoticache_shim_fail("%s: all operands must be float32, or all bfloat16; one is %s", function,
                                       aoticache_shim_dtype_text(dtype, (char[SHIM_DTYPE_TEXT_BYTES]){0}));
    }
    const struct shim_tensor *input = o->input->tensor;
    if (input->ndim != 3 || units < 0 || units > INT32_MAX)
        return aoticache_shim_fail("%s: the input must have 3 dimensions (steps, batch, inputs), but has %d; %lld "
                                   "units",
                                   function, (int)input->ndim, (long long)units);
    l->steps = input->sizes[0];
    l->batch = input->sizes[1];
    l->inputs = input->sizes[2];
    l->units = units;
    SHIM_TRY(check_matrix(function, "the input's weight", o->input_weight, GATES * units, l->inputs));
    SHIM_TRY(check_matrix(function, "the state's weight", o->state_weight, GATES * units, units));
    SHIM_TRY(check_state(function, "the state", o->state, l));
    SHIM_TRY(check_state(function, "the cell", o->cell, l));
    for (int i = 0; i < 2 && o->has_biases; i++)
        SHIM_TRY(check_bias(function, o->biases[i], l));
    return SHIM_SUCCESS;
}

static AOTITorchError sum_biases(const char *function, const struct operands *o, const struct lstm *l,
                                 AtenTensorHandle *ret_sum)
{
    const int64_t count = GATES * l->units;
    SHIM_TRY(aoticache_shim_make(function, 1, &count, AOTICACHE_DTYPE_FLOAT32, ret_sum));
    SHIM_TRY(aoti_torch_zero_(*ret_sum));
    float *sum = (*ret_sum)->tensor->data;
    for (int i = 0; i < 2 && o->has_biases; i++) {
        cleanup_tensor AtenTensorHandle bias = NULL;
        SHIM_TRY(aoticache_shim_read(function, o->biases[i], AOTICACHE_DTYPE_FLOAT32, &bias));
        for (int64_t k = 0; k < count; k++)
            sum[k] += ((const float *)bias->tensor->data)[k];
    }
    return SHIM_SUCCESS;
}

/* Runs the layer. The results are output, state and cell. */
static AOTITorchError layer(const char *function, const struct operands *o, struct lstm *l,
                            AtenTensorHandle ret_results[3])
{
    enum { F32 = AOTICACHE_DTYPE_FLOAT32 };
    cleanup_tensor AtenTensorHandle input = NULL, input_weight = NULL, state_weight = NULL, bias = NULL, gates = NULL;
    cleanup_tensor AtenTensorHandle output = NULL, state = NULL, cell = NULL;
    const int64_t gate_sizes[] = {l->steps, l->batch, GATES * l->units}, sizes[] = {l->steps, l->batch, l->units};
    SHIM_TRY(aoticache_shim_read(function, o->input, F32, &input));
    SHIM_TRY(aoticache_shim_read(function, o->input_weight, F32, &input_weight));
    SHIM_TRY(aoticache_shim_read(function, o->state_weight, F32, &state_weight));
    SHIM_TRY(aoticache_shim_read_copy(function, o->state, F32, &state));
    SHIM_TRY(aoticache_shim_read_copy(function, o->cell, F32, &cell));
    SHIM_TRY(sum_biases(function, o, l, &bias));
    SHIM_TRY(aoticache_shim_make(function, 3, gate_sizes, F32, &gates));
    SHIM_TRY(aoticache_shim_make(function, 3, sizes, F32, &output));
    l->input = input->tensor->data;
    l->input_weight = input_weight->tensor->data;
    l->state_weight = state_weight->tensor->data;
    l->bias = bias->tensor->data;
    l->gates = gates->tensor->data;
    l->output = output->tensor->data;
    l->state = state->tensor->data;
    l->cell = cell->tensor->data;
    if (!run(l))
        return aoticache_shim_fail_memory(function, (size_t)gates->tensor->numel * sizeof(float));
    cleanup_tensor AtenTensorHandle out = NULL, last_state = NULL, last_cell = NULL;
    SHIM_TRY(aoticache_shim_read(function, output, o->input->tensor->dtype, &out));
    SHIM_TRY(aoticache_shim_read(function, state, o->input->tensor->dtype, &last_state));
    SHIM_TRY(aoticache_shim_read(function, cell, o->input->tensor->dtype, &last_cell));
    ret_results[0] = shim_steal(&out);
    ret_results[1] = shim_steal(&last_state);
    ret_results[2] = shim_steal(&last_cell);
    return SHIM_SUCCESS;
}

/*
 * Returns a weight in the form of PyTorch's LSTM, gates and units x inputs. A weight that a compile has packed has the
 * dimensions layers, directions, inputs, gates and units, with the inputs contiguous in memory (tensors/packed.c).
 */
static AOTITorchError flatten_weight(const char *function, AtenTensorHandle weight, AtenTensorHandle *ret_weight)
{
    if (!shim_is_defined(weight) || weight->tensor->packed == NULL || weight->tensor->ndim != 5)
        return aoti_torch_new_tensor_handle(weight, ret_weight);
    const struct shim_tensor *w = weight->tensor;
    const int64_t sizes[] = {w->sizes[3] * w->sizes[4], w->sizes[2]}, strides[] = {w->sizes[2], 1};
    if (w->sizes[0] != 1 || w->sizes[1] != 1 || w->sizes[3] != GATES || w->strides[2] != 1 ||
        w->strides[4] != w->sizes[2] || w->strides[3] != w->sizes[4] * w->sizes[2])
        return aoticache_shim_fail("%s: a packed weight of %lld elements in 5 dimensions does not belong to an "
                                   "LSTM layer",
                                   function, (long long)w->numel);
    return aoticache_shim_tensor_view(function, w, w->dtype, 2, sizes, strides, 0, ret_weight);
}

AOTITorchError aoti_torch_cpu_mkldnn_rnn_layer(AtenTensorHandle input, AtenTensorHandle weight0,
                                               AtenTensorHandle weight1, AtenTensorHandle weight2,
                                               AtenTensorHandle weight3, AtenTensorHandle hx_, AtenTensorHandle cx_,
                                               int32_t reverse, const int64_t *batch_sizes, int64_t batch_sizes_len_,
                                               int64_t mode, int64_t hidden_size, int64_t num_layers,
                                               int32_t has_biases, int32_t bidirectional, int32_t batch_first,
                                               int32_t train, AtenTensorHandle *ret0, AtenTensorHandle *ret1,
                                               AtenTensorHandle *ret2, AtenTensorHandle *ret3)
{
    AtenTensorHandle results[3] = {NULL};
    cleanup_tensor AtenTensorHandle workspace = NULL;
    cleanup_tensor AtenTensorHandle input_weight = NULL, state_weight = NULL;
    struct lstm l = {.reverse = reverse != 0};
    (void)batch_sizes;
    (void)batch_first; /* the input always has the steps first */
    (void)train;       /* only for the workspace */
    SHIM_CHECK_RESULT(ret0);
    SHIM_CHECK_RESULT(ret1);
    SHIM_CHECK_RESULT(ret2);
    SHIM_CHECK_RESULT(ret3);
    if (mode != MODE_LSTM || num_layers != 1 || bidirectional != 0 || batch_sizes_len_ != 0)
        return aoticache_shim_fail("%s: only one layer of an LSTM (mode 2) in one direction, not packed, is "
                                   "supported; this is mode %lld with %lld layers, bidirectional %d, %lld batch "
                                   "sizes",
                                   __func__, (long long)mode, (long long)num_layers, (int)bidirectional,
                                   (long long)batch_sizes_len_);
    SHIM_TRY(flatten_weight(__func__, weight0, &input_weight));
    SHIM_TRY(flatten_weight(__func__, weight1, &state_weight));
    const struct operands operands = {input, input_weight, state_weight, {weight2, weight3}, hx_, cx_, has_biases != 0};
    SHIM_TRY(describe(__func__, &operands, hidden_size, &l));
    SHIM_TRY(aoticache_shim_make(__func__, 1, (const int64_t[]){0}, AOTICACHE_DTYPE_UINT8, &workspace));
    SHIM_TRY(layer(__func__, &operands, &l, results));
    *ret0 = results[0];
    *ret1 = results[1];
    *ret2 = results[2];
    *ret3 = shim_steal(&workspace);
    return SHIM_SUCCESS;
}
