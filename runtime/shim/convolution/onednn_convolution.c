/*
 * shim/convolution/onednn_convolution: convolutions of float32 and bfloat16 with oneDNN.
 *
 * oneDNN is fastest with its own formats, in blocks of channels, so operands are reordered before and the result after
 * it, if that costs less than it gains (choose_plan).
 */
#include "runtime/shim/math/onednn.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Fewer multiplications than these take a few microseconds either way. */
#define MIN_PRODUCTS 32768.0

struct operand {
    void *given, *wanted; /* descriptors of the tensor, and of the primitive's format */
    size_t copy_bytes;    /* memory in that format; 0: the tensor's memory is used */
    struct onednn_step reorder;
};

/* A prepared convolution. It never changes. */
struct prepared {
    struct onednn_prepared common;
    struct onednn_step convolution;
    struct operand source, weights, destination;
    struct onednn_step addend; /* copies the destination's former elements, to which sums are added */
    void *bias;
};

/* ---- making ---- */

static void free_operand(const struct onednn_library *onednn, struct operand *operand)
{
    aoticache_shim_onednn_describe_free(operand->given);
    aoticache_shim_onednn_describe_free(operand->wanted);
    aoticache_shim_onednn_free_step(onednn, &operand->reorder);
}

/* Frees what was made, except the common part. */
static void clear(const struct onednn_library *onednn, struct prepared *p)
{
    aoticache_shim_onednn_free_step(onednn, &p->convolution);
    free_operand(onednn, &p->source);
    free_operand(onednn, &p->weights);
    free_operand(onednn, &p->destination);
    aoticache_shim_onednn_free_step(onednn, &p->addend);
    aoticache_shim_onednn_describe_free(p->bias);
    p->source = p->weights = p->destination = (struct operand){0};
    p->bias = NULL;
    p->common.scratch_bytes = 0;
}

static void free_prepared(const struct onednn_library *onednn, struct onednn_prepared *common)
{
    struct prepared *p = (struct prepared *)common;
    clear(onednn, p);
    free(p);
}

/* Makes the reorder between the tensor and the primitive's own format, if they differ. */
static bool make_operand(const struct onednn_library *onednn, const void *wanted, const void *attributes,
                         struct prepared *p, struct operand *operand)
{
    void *reorder = NULL;
    if (wanted == NULL || (operand->wanted = aoticache_shim_onednn_describe_same(wanted)) == NULL)
        return false;
    if (onednn->memory_desc_equal(operand->given, operand->wanted))
        return true;
    const void *from = operand == &p->destination ? operand->wanted : operand->given;
    const void *to = operand == &p->destination ? operand->given : operand->wanted;
    operand->copy_bytes = (onednn->memory_desc_get_size(operand->wanted) + 63) & ~(size_t)63;
    return onednn->reorder_primitive_desc_create(&reorder, from, onednn->engine, to, onednn->engine, attributes) == 0 &&
           aoticache_shim_onednn_make_step(onednn, reorder, &p->common, &operand->reorder);
}

/* Makes sums go to a copy of the tensor that they are added to, if the destination is a copy. */
static bool make_addend(const struct onednn_library *onednn, const void *attributes, struct prepared *p)
{
    const struct operand *to = &p->destination;
    void *reorder = NULL;
    return to->copy_bytes == 0 || (onednn->reorder_primitive_desc_create(&reorder, to->given, onednn->engine,
                                                                         to->wanted, onednn->engine, attributes) == 0 &&
                                   aoticache_shim_onednn_make_step(onednn, reorder, &p->common, &p->addend));
}

/* The operands whose format the library chooses. */
enum plan { PLAN_GIVEN, PLAN_WEIGHTS, PLAN_ALL };

/*
 * Reads strides in elements. Strides of dimensions of size 1 have no meaning, but oneDNN uses them to recognise a
 * format: they are set as in a contiguous or a channels-last tensor, to match the others.
 */
static void read_strides(const struct image *image, int axes, ptrdiff_t item_bytes, int64_t ret_strides[])
{
    const int64_t sizes[] = {image->batch, image->channels, image->sizes[0], image->sizes[1], image->sizes[2]};
    const int64_t strides[] = {image->batch_stride / item_bytes, image->channel_stride / item_bytes,
                               image->strides[0] / item_bytes, image->strides[1] / item_bytes,
                               image->strides[2] / item_bytes};
    static const int orders[2][5] = {{4, 3, 2, 1, 0}, {1, 4, 3, 2, 0}}; /* innermost first */
    int64_t found[5], largest = 1;
    bool matches = false;
    for (int order = 0; order < 2 && !matches; order++) {
        int64_t stride = 1;
        matches = true;
        for (int i = 0; i < 5; i++) {
            int d = orders[order][i];
            matches = matches && (sizes[d] == 1 || strides[d] == stride);
            found[d] = stride;
            stride *= sizes[d];
        }
    }
    for (int d = 0; d < 5; d++)
        if (sizes[d] > 1 && strides[d] * sizes[d] > largest)
            largest = strides[d] * sizes[d];
    for (int d = 0; d < 5 && !matches; d++)
        found[d] = sizes[d] > 1 ? strides[d] : largest;
    ret_strides[0] = found[0];
    ret_strides[1] = found[1];
    for (int axis = 0; axis < axes; axis++)
        ret_strides[2 + axis] = found[5 - axes + axis];
}

static int onednn_type(const struct convolution *c)
{
    return c->dtype == AOTICACHE_DTYPE_BFLOAT16 ? ONEDNN_BFLOAT16 : ONEDNN_FLOAT32;
}

static void *describe_image(const struct convolution *c, const struct image *image, bool any)
{
    int64_t sizes[2 + IMAGE_AXES] = {image->batch, image->channels}, strides[2 + IMAGE_AXES];
    for (int axis = 0; axis < c->axes; axis++)
        sizes[2 + axis] = image->sizes[IMAGE_AXES - c->axes + axis];
    read_strides(image, c->axes, c->item_bytes, strides);
    return aoticache_shim_onednn_describe(2 + c->axes, sizes, onednn_type(c), any ? NULL : strides);
}

/*
 * Describes a weight: groups, if there are any, outputs, inputs, the kernel. PyTorch's transposed weight has the inputs
 * first.
 */
static void *describe_weight(const struct convolution *c, const struct image *weight, bool any)
{
    int64_t sizes[3 + IMAGE_AXES], strides[3 + IMAGE_AXES], flat[2 + IMAGE_AXES];
    int n = 0;
    read_strides(weight, c->axes, c->item_bytes, flat);
    if (c->groups > 1) {
        sizes[n] = c->groups;
        strides[n++] = (c->transposed ? c->group_inputs : c->group_outputs) * flat[0];
    }
    sizes[n] = c->group_outputs;
    strides[n++] = c->transposed ? flat[1] : flat[0];
    sizes[n] = c->group_inputs;
    strides[n++] = c->transposed ? flat[0] : flat[1];
    for (int axis = 0; axis < c->axes; axis++) {
        sizes[n] = weight->sizes[IMAGE_AXES - c->axes + axis];
        strides[n++] = flat[2 + axis];
    }
    return aoticache_shim_onednn_describe(n, sizes, onednn_type(c), any ? NULL : strides);
}

/* Makes the convolution and the reorders, each with their own attributes. */
static bool make_with(const struct onednn_library *onednn, const struct convolution *c, const struct image *weight,
                      enum plan plan, const void *attributes, const void *plain_attributes, struct prepared *p)
{
    const int64_t channels = c->groups * c->group_outputs, adjacent = 1;
    int64_t padding_end[IMAGE_AXES], dilation[IMAGE_AXES];
    int first = IMAGE_AXES - c->axes;
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        int64_t reach = c->dilation[axis] * (c->kernel[axis] - 1) + 1;
        dilation[axis] = c->dilation[axis] - 1;
        padding_end[axis] = c->transposed ? c->padding[axis] - c->output_padding[axis]
                                          : (c->output.sizes[axis] - 1) * c->stride[axis] + reach -
                                                c->input.sizes[axis] - c->padding[axis];
    }
    void *source = describe_image(c, &c->input, plan == PLAN_ALL);
    void *weights = describe_weight(c, weight, plan != PLAN_GIVEN);
    void *destination = describe_image(c, &c->output, plan == PLAN_ALL), *operation = NULL;
    p->source.given = describe_image(c, &c->input, false);
    p->weights.given = describe_weight(c, weight, false);
    p->destination.given = describe_image(c, &c->output, false);
    p->bias = c->bias != NULL ? aoticache_shim_onednn_describe(1, &channels, onednn_type(c), &adjacent) : NULL;
    bool described = source != NULL && weights != NULL && destination != NULL && p->source.given != NULL &&
                     p->weights.given != NULL && p->destination.given != NULL && (c->bias == NULL || p->bias != NULL);
    const struct onednn_convolution described_as = {.transposed = c->transposed,
                                                    .source = source,
                                                    .weights = weights,
                                                    .bias = p->bias,
                                                    .destination = destination,
                                                    .stride = c->stride + first,
                                                    .dilation = dilation + first,
                                                    .padding = c->padding + first,
                                                    .padding_end = padding_end + first,
                                                    .attributes = attributes};
    bool made = described && aoticache_shim_onednn_describe_convolution(&described_as, &operation);
    if (made) {
        made = aoticache_shim_onednn_is_fast(onednn, operation);
        made = made &&
               make_operand(onednn, onednn->primitive_desc_query_md(operation, ONEDNN_QUERY_SOURCE, 0),
                            plain_attributes, p, &p->source) &&
               make_operand(onednn, onednn->primitive_desc_query_md(operation, ONEDNN_QUERY_WEIGHTS, 0),
                            plain_attributes, p, &p->weights) &&
               make_operand(onednn, onednn->primitive_desc_query_md(operation, ONEDNN_QUERY_DESTINATION, 0),
                            plain_attributes, p, &p->destination) &&
               (!c->adds_output || make_addend(onednn, plain_attributes, p));
        if (made)
            made = aoticache_shim_onednn_make_step(onednn, operation, &p->common, &p->convolution);
        else
            onednn->primitive_desc_destroy(operation);
    }
    aoticache_shim_onednn_describe_free(source);
    aoticache_shim_onednn_describe_free(weights);
    aoticache_shim_onednn_describe_free(destination);
    return made;
}

static bool make(const struct onednn_library *onednn, const struct convolution *c, const struct image *weight,
                 enum plan plan, struct prepared *p)
{
    void *attributes = aoticache_shim_onednn_make_attributes(onednn, c->adds_output, &c->unary);
    void *plain_attributes = aoticache_shim_onednn_make_attributes(onednn, false, NULL);
    bool made = attributes != NULL && plain_attributes != NULL &&
                make_with(onednn, c, weight, plan, attributes, plain_attributes, p);
    if (attributes != NULL)
        onednn->primitive_attr_destroy(attributes);
    if (plain_attributes != NULL)
        onednn->primitive_attr_destroy(plain_attributes);
    if (!made)
        clear(onednn, p);
    return made;
}

/*
 * Returns whether oneDNN uses its loops for AVX2, which read channels with a stride of a whole pixel. With many
 * channels these addresses share few cache sets: blocks of channels then save more than their reorders cost (4 to 17 %
 * of a 3 x 3 convolution of 64 to 512 channels).
 */
static bool gains_by_blocks(const struct convolution *c)
{
#ifdef __x86_64__
    enum { MANY_CHANNELS = 64 };
    return c->groups == 1 && !c->transposed && c->kernel_positions > 1 && c->group_inputs >= MANY_CHANNELS &&
           c->group_outputs >= MANY_CHANNELS && !shim_has_avx512();
#else
    (void)c;
    return false;
#endif
}

/*
 * Chooses the plan. If channels are contiguous, oneDNN needs its own format only for the weights. Otherwise it is
 * fastest with its own formats, but kernels of one element, and transposed ones, gain less than the reorders cost;
 * reordering weights for only a few positions of the result does not pay off either, unless it is done once.
 */
static enum plan choose_plan(const struct convolution *c)
{
    enum { FEW_POSITIONS = 128 };
    const struct image *in = &c->input, *out = &c->output;
    bool depthwise = c->groups > 1 && c->group_inputs == 1 && c->group_outputs == 1;
    if (in->channels > 1 && in->channel_stride == c->item_bytes && out->channel_stride == c->item_bytes)
        return gains_by_blocks(c) ? PLAN_ALL : PLAN_WEIGHTS;
    if (depthwise)
        return PLAN_ALL;
    if (c->transposed || c->kernel_positions == 1)
        return PLAN_GIVEN;
    bool few = out->batch * out->sizes[0] * out->sizes[1] * out->sizes[2] < FEW_POSITIONS;
    return few && c->frozen_weight == NULL ? PLAN_GIVEN : PLAN_ALL;
}

static struct prepared *prepare(const struct onednn_library *onednn, const struct convolution *c,
                                const struct image *weight, const struct onednn_key *key)
{
    struct prepared *p = (struct prepared *)aoticache_shim_onednn_begin(sizeof *p, key, free_prepared);
    if (p == NULL)
        return NULL;
    enum plan plan = choose_plan(c);
    p->common.usable = make(onednn, c, weight, plan, p);
    if (!p->common.usable && plan != PLAN_ALL)
        p->common.usable = make(onednn, c, weight, PLAN_ALL, p);
    return p;
}

static int add_image(struct onednn_key *key, int n, const struct image *image)
{
    const int64_t numbers[] = {image->batch,          image->channels,    image->sizes[0],   image->sizes[1],
                               image->sizes[2],       image->strides[0],  image->strides[1], image->strides[2],
                               image->channel_stride, image->batch_stride};
    memcpy(key->numbers + n, numbers, sizeof numbers);
    return n + (int)(sizeof numbers / sizeof numbers[0]);
}

static struct onednn_key key_of(const struct convolution *c, const struct image *weight, int threads)
{
    struct onednn_key key = {0};
    int64_t scalar = 0;
    memcpy(&scalar, &c->unary.scalars[0], sizeof scalar);
    key.numbers[0] = ONEDNN_KEY_CONVOLUTION;
    int n = add_image(&key, 1, &c->input);
    n = add_image(&key, n, weight);
    n = add_image(&key, n, &c->output);
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        key.numbers[n++] = c->stride[axis];
        key.numbers[n++] = c->padding[axis];
        key.numbers[n++] = c->dilation[axis];
        key.numbers[n++] = c->output_padding[axis];
    }
    const int64_t rest[] = {c->axes, c->transposed, c->groups, c->adds_output, c->unary.kind, c->frozen_weight != NULL,
                            threads, scalar,        c->dtype,  c->bias != NULL};
    memcpy(key.numbers + n, rest, sizeof rest);
    _Static_assert(1 + 3 * 10 + 4 * IMAGE_AXES + sizeof rest / sizeof rest[0] <= ONEDNN_KEY_NUMBERS,
                   "the key has room");
    return key;
}

/* ---- running ---- */

static bool reorder(const struct onednn_library *onednn, const struct operand *operand, bool back, void *stream,
                    char *scratch, void *tensor, void *copy)
{
    static const int names[] = {ONEDNN_SOURCE, ONEDNN_DESTINATION};
    const void *const descriptors[] = {back ? operand->wanted : operand->given,
                                       back ? operand->given : operand->wanted};
    void *const data[] = {back ? copy : tensor, back ? tensor : copy};
    return operand->copy_bytes == 0 ||
           aoticache_shim_onednn_run_step(onednn, &operand->reorder, stream, scratch, 2, names, descriptors, data);
}

/* A weight that never changes, in the format of a primitive. */
struct kept_weight {
    void *descriptor;
    _Alignas(64) char elements[];
};

static void free_kept(void *weight)
{
    struct kept_weight *kept = weight;
    aoticache_shim_onednn_describe_free(kept->descriptor);
    free(kept);
}

static struct kept_weight *make_kept(const struct onednn_library *onednn, const struct prepared *p,
                                     const struct image *weight, void *stream, char *scratch)
{
    struct kept_weight *kept = aligned_alloc(64, sizeof *kept + p->weights.copy_bytes);
    if (kept == NULL)
        return NULL;
    kept->descriptor = aoticache_shim_onednn_describe_same(p->weights.wanted);
    if (kept->descriptor != NULL &&
        reorder(onednn, &p->weights, false, stream, scratch, weight->data, kept->elements) &&
        onednn->stream_wait(stream) == 0)
        return kept;
    free_kept(kept);
    return NULL;
}

/*
 * Returns the elements of a weight that never changes, in the primitive's format, made by the first call; NULL if they
 * are kept in another format, for another shape of the input, or if out of memory.
 */
static char *find_kept(const struct onednn_library *onednn, const struct prepared *p, const struct convolution *c,
                       const struct image *weight, void *stream, char *scratch)
{
    struct shim_packed *packed = c->frozen_weight->packed;
    if (!aoticache_shim_packed_claim(packed, free_kept))
        return NULL;
    struct kept_weight *kept = atomic_load(&packed->prepared);
    if (kept == NULL) {
        kept = make_kept(onednn, p, weight, stream, scratch);
        if (kept == NULL)
            return NULL;
        kept = aoticache_shim_packed_keep(packed, kept);
    }
    return onednn->memory_desc_equal(kept->descriptor, p->weights.wanted) ? kept->elements : NULL;
}

static bool run_steps(const struct onednn_library *onednn, const struct prepared *p, const struct convolution *c,
                      const struct image *weight, void *stream, char *memory)
{
    static const int names[] = {ONEDNN_SOURCE, ONEDNN_WEIGHTS, ONEDNN_DESTINATION, ONEDNN_BIAS};
    char *weights = memory + p->source.copy_bytes, *destination = weights + p->weights.copy_bytes;
    char *scratch = p->common.scratch_bytes > 0 ? destination + p->destination.copy_bytes : NULL;
    char *kept = NULL;
    if (c->frozen_weight != NULL && p->weights.copy_bytes > 0)
        kept = find_kept(onednn, p, c, weight, stream, scratch);
    if (kept != NULL)
        weights = kept;
    const void *const descriptors[] = {p->source.wanted, p->weights.wanted, p->destination.wanted, p->bias};
    void *const data[] = {
        p->source.copy_bytes > 0 ? memory : c->input.data, p->weights.copy_bytes > 0 ? weights : weight->data,
        p->destination.copy_bytes > 0 ? destination : c->output.data, c->bias != NULL ? c->bias->data : NULL};
    static const int addend_names[] = {ONEDNN_SOURCE, ONEDNN_DESTINATION};
    const void *const addend_descriptors[] = {p->destination.given, p->destination.wanted};
    void *const addend_data[] = {c->output.data, destination};
    return reorder(onednn, &p->source, false, stream, scratch, c->input.data, memory) &&
           (p->addend.primitive == NULL ||
            aoticache_shim_onednn_run_step(onednn, &p->addend, stream, scratch, 2, addend_names, addend_descriptors,
                                           addend_data)) &&
           (kept != NULL || reorder(onednn, &p->weights, false, stream, scratch, weight->data, weights)) &&
           aoticache_shim_onednn_run_step(onednn, &p->convolution, stream, scratch, c->bias != NULL ? 4 : 3, names,
                                          descriptors, data) &&
           reorder(onednn, &p->destination, true, stream, scratch, c->output.data, destination) &&
           onednn->stream_wait(stream) == 0;
}

static bool run(const struct onednn_library *onednn, const struct prepared *p, const struct convolution *c,
                const struct image *weight)
{
    void *stream = NULL;
    size_t bytes = p->source.copy_bytes + p->weights.copy_bytes + p->destination.copy_bytes + p->common.scratch_bytes;
    char *memory = aoticache_shim_large_take(bytes, &bytes);
    bool done = memory != NULL && onednn->stream_create(&stream, onednn->engine, 1) == 0 &&
                run_steps(onednn, p, c, weight, stream, memory);
    if (stream != NULL)
        onednn->stream_destroy(stream);
    aoticache_shim_large_give(memory, bytes);
    return done;
}

/* Returns whether products of sizes stay below 2^31, since oneDNN's loops count in int. */
static bool is_small_enough(const struct image *image)
{
    int64_t count = image->batch;
    return count > 0 && image->channels > 0 && !__builtin_mul_overflow(count, image->channels, &count) &&
           !__builtin_mul_overflow(count, image->sizes[0], &count) &&
           !__builtin_mul_overflow(count, image->sizes[1], &count) &&
           !__builtin_mul_overflow(count, image->sizes[2], &count) && count > 0 && count < INT32_MAX;
}

/*
 * Returns whether the kernel covers only padding for some output. For such an output oneDNN 2.6's code for AVX-512
 * reads invalid memory if fused functions follow the convolution (sum and ReLU).
 */
static bool sees_padding_alone(const struct convolution *c)
{
    for (int axis = 0; axis < IMAGE_AXES && !c->transposed; axis++) {
        int64_t reach = (c->kernel[axis] - 1) * c->dilation[axis];
        int64_t last = (c->output.sizes[axis] - 1) * c->stride[axis] - c->padding[axis];
        if (c->padding[axis] > reach || last >= c->input.sizes[axis])
            return true;
    }
    return false;
}

/* Returns whether oneDNN supports the operands. It ignores a bias's stride. */
static bool is_taken(const struct convolution *c, const struct image *weight)
{
    return !sees_padding_alone(c) &&
           (c->dtype == AOTICACHE_DTYPE_FLOAT32 ||
            (c->dtype == AOTICACHE_DTYPE_BFLOAT16 && aoticache_shim_onednn_has_bfloat16())) &&
           (c->bias == NULL || c->bias->sizes[0] == 1 || c->bias->strides[0] == 1) && is_small_enough(&c->input) &&
           is_small_enough(&c->output) && is_small_enough(weight);
}

bool aoticache_shim_onednn_convolve(const struct convolution *c, const struct image *weight)
{
    double work = (double)c->output.batch * (double)(c->groups * c->group_outputs) * (double)c->output.sizes[0] *
                  (double)c->output.sizes[1] * (double)c->output.sizes[2] * (double)c->group_inputs *
                  (double)c->kernel_positions;
    if (work < MIN_PRODUCTS || !is_taken(c, weight))
        return false;
    const struct onednn_library *onednn = aoticache_shim_onednn();
    if (onednn == NULL)
        return false;
    int threads = aoticache_shim_parts(work, INT32_MAX), former = aoticache_shim_set_threads(threads);
    struct onednn_key key = key_of(c, weight, threads);
    struct prepared *p = (struct prepared *)aoticache_shim_onednn_find(&key);
    if (p == NULL && (p = prepare(onednn, c, weight, &key)) != NULL)
        aoticache_shim_onednn_keep(onednn, &p->common);
    bool done = p != NULL && p->common.usable && run(onednn, p, c, weight);
    aoticache_shim_set_threads(former);
    aoticache_shim_onednn_unref(onednn, p != NULL ? &p->common : NULL);
    return done;
}
