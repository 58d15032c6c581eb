/*
 * shim/pooling/grid: grid_sampler_3d: reads a volume at positions between its elements. Source:
 * aten/src/ATen/native/GridSampler.cpp and GridSamplerUtils.h.
 *
 * A point is computed from the same elements in all channels. They are found once, for some points at a time; then each
 * channel is read. Points are divided among the threads.
 */
#include "runtime/shim/math/math_internal.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>

enum { INTERPOLATE_LINEAR, INTERPOLATE_NEAREST };
enum { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION };

enum { POINTS = 128, CORNERS = 8 };
/* The costs of a point's corners and of an element, in multiplications (aoticache_shim_parts). */
#define POINT_WORK 800.0
#define ELEMENT_WORK 80.0

/* The elements whose weighted sum is a point. */
struct point {
    int count;
    int64_t offset[CORNERS];
    double weight[CORNERS];
};

/* Computes sums of a channel's elements, for points whose results are contiguous. */
typedef void (*grid_sum)(int count, const struct point *points, const char *volume, char *to);

struct grid {
    int64_t padding;
    bool nearest, align_corners, is_double;
    int64_t size[3], strides[3]; /* sizes and strides of one volume: depth, height, width */
    int64_t batch, channels, points;
    grid_sum sum;
    ptrdiff_t item;
    const char *volumes, *places;
    char *to;
    int parts;
};

/* Reflects a coordinate at both borders, which are given as twice their position. */
static double reflect(double at, double twice_low, double twice_high)
{
    if (twice_low == twice_high)
        return 0;
    double low = twice_low / 2, span = (twice_high - twice_low) / 2;
    double inside = fabs(at - low), extra = fmod(inside, span);
    double flips = floor(inside / span);
    return fmod(flips, 2) == 0 ? extra + low : span - extra + low;
}

/* Limits a coordinate to the volume. NaN becomes the last element, as in PyTorch. */
static double clip(double at, int64_t size)
{
    const double last = (double)(size - 1);
    return at <= 0 ? 0 : at < last ? at : last;
}

/* Converts a coordinate from -1 to 1 into a position along one dimension. */
static double place_of(const struct grid *grid, double at, int64_t size)
{
    double place = grid->align_corners ? (at + 1) / 2 * (double)(size - 1) : ((at + 1) * (double)size - 1) / 2;
    if (grid->padding == PAD_BORDER)
        return clip(place, size);
    if (grid->padding == PAD_REFLECTION) {
        place =
            grid->align_corners ? reflect(place, 0, 2 * (double)(size - 1)) : reflect(place, -1, 2 * (double)size - 1);
        return clip(place, size);
    }
    return place;
}

/* The elements of one dimension next to a position; those outside the volume are left out. */
struct neighbours {
    int count;
    int64_t offset[2];
    double weight[2];
};

static void add_neighbour(const struct grid *grid, int d, double at, double weight, struct neighbours *neighbours)
{
    if (!(at >= 0 && at < (double)grid->size[d]))
        return;
    neighbours->weight[neighbours->count] = weight;
    neighbours->offset[neighbours->count++] = (int64_t)at * grid->strides[d];
}

static void find_neighbours(const struct grid *grid, int d, double place, struct neighbours *neighbours)
{
    neighbours->count = 0;
    if (grid->nearest) {
        add_neighbour(grid, d, nearbyint(place), 1, neighbours);
        return;
    }
    const double below = floor(place);
    add_neighbour(grid, d, below, below + 1 - place, neighbours);
    add_neighbour(grid, d, below + 1, place - below, neighbours);
}

static void find_corners(const struct grid *grid, const double place[3], struct point *point)
{
    struct neighbours along[3];
    for (int d = 0; d < 3; d++)
        find_neighbours(grid, d, place[d], &along[d]);
    point->count = 0;
    for (int i = 0; i < along[0].count; i++)
        for (int j = 0; j < along[1].count; j++)
            for (int k = 0; k < along[2].count; k++) {
                point->weight[point->count] = along[0].weight[i] * along[1].weight[j] * along[2].weight[k];
                point->offset[point->count++] = along[0].offset[i] + along[1].offset[j] + along[2].offset[k];
            }
}

#define DEFINE_SUM(name, type)                                                            \
    static void name(int count, const struct point *points, const char *volume, char *to) \
    {                                                                                     \
        const type *from = (const type *)(const void *)volume;                            \
        for (int i = 0; i < count; i++) {                                                 \
            type total = 0;                                                               \
            for (int k = 0; k < points[i].count; k++)                                     \
                total += (type)points[i].weight[k] * from[points[i].offset[k]];           \
            ((type *)(void *)to)[i] = total;                                              \
        }                                                                                 \
    }

DEFINE_SUM(sum_floats, float)
DEFINE_SUM(sum_doubles, double)

static AOTITorchError check_grid(const char *function, const struct shim_tensor *input, const struct shim_tensor *grid,
                                 int64_t interpolation, int64_t padding)
{
    if (input->ndim != 5 || grid->ndim != 5 || grid->sizes[4] != 3 || input->sizes[0] != grid->sizes[0])
        return aoticache_shim_fail("%s: an input (N, C, D, H, W) and a grid (N, d, h, w, 3) are needed", function);
    if (input->sizes[2] < 1 || input->sizes[3] < 1 || input->sizes[4] < 1)
        return aoticache_shim_fail("%s: the input has an empty dimension", function);
    if (input->dtype != grid->dtype)
        return aoticache_shim_fail("%s: input and grid must have the same dtype", function);
    if (interpolation != INTERPOLATE_LINEAR && interpolation != INTERPOLATE_NEAREST)
        return aoticache_shim_fail("%s: interpolation %lld is not 0 or 1", function, (long long)interpolation);
    if (padding < PAD_ZEROS || padding > PAD_REFLECTION)
        return aoticache_shim_fail("%s: padding %lld is not one of 0 to 2", function, (long long)padding);
    return SHIM_SUCCESS;
}

static double coordinate(const struct grid *grid, int64_t i)
{
    return grid->is_double ? ((const double *)(const void *)grid->places)[i]
                           : (double)((const float *)(const void *)grid->places)[i];
}

/* Computes some points, all of one volume, for all channels. */
static void sample_points(const struct grid *grid, int64_t n, int64_t first, int count)
{
    const int64_t volume = grid->size[0] * grid->strides[0];
    struct point points[POINTS];
    for (int i = 0; i < count; i++) {
        double place[3];
        for (int d = 0; d < 3; d++) /* coordinates begin with the width */
            place[d] = place_of(grid, coordinate(grid, (n * grid->points + first + i) * 3 + 2 - d), grid->size[d]);
        find_corners(grid, place, &points[i]);
    }
    for (int64_t c = n * grid->channels; c < (n + 1) * grid->channels; c++)
        grid->sum(count, points, grid->volumes + c * volume * grid->item,
                  grid->to + (c * grid->points + first) * grid->item);
}

static void sample_part(void *user, int part)
{
    const struct grid *grid = user;
    const int64_t all = grid->batch * grid->points, end = shim_part_begin(all, grid->parts, part + 1);
    for (int64_t at = shim_part_begin(all, grid->parts, part); at < end;) {
        const int64_t first = at % grid->points, in_volume = grid->points - first, in_part = end - at;
        const int64_t left = in_volume < in_part ? in_volume : in_part;
        const int count = left < POINTS ? (int)left : POINTS;
        sample_points(grid, at / grid->points, first, count);
        at += count;
    }
}

static void sample_all(struct grid *grid)
{
    const double points = (double)grid->batch * (double)grid->points;
    grid->parts =
        aoticache_shim_parts(points * (POINT_WORK + ELEMENT_WORK * (double)grid->channels), grid->batch * grid->points);
    aoticache_shim_parallel(grid->parts, sample_part, grid);
}

AOTITorchError aoti_torch_cpu_grid_sampler_3d(AtenTensorHandle input, AtenTensorHandle grid, int64_t interpolation_mode,
                                              int64_t padding_mode, int32_t align_corners, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle volume = NULL, places = NULL, numbers = NULL, result = NULL;
    SHIM_CHECK_TENSOR(input);
    SHIM_CHECK_TENSOR(grid);
    SHIM_CHECK_RESULT(ret_0);
    const struct shim_tensor *from = input->tensor, *at = grid->tensor;
    SHIM_TRY(check_grid(__func__, from, at, interpolation_mode, padding_mode));
    const bool is_single = aoticache_shim_is_floating(from->dtype) && from->dtype != AOTICACHE_DTYPE_FLOAT64;
    const int32_t dtype = is_single ? AOTICACHE_DTYPE_FLOAT32 : AOTICACHE_DTYPE_FLOAT64;
    const int64_t sizes[5] = {from->sizes[0], from->sizes[1], at->sizes[1], at->sizes[2], at->sizes[3]};
    SHIM_TRY(aoticache_shim_read(__func__, input, dtype, &volume));
    SHIM_TRY(aoticache_shim_read(__func__, grid, dtype, &places));
    SHIM_TRY(aoticache_shim_make(__func__, 5, sizes, dtype, &numbers));
    struct grid sampler = {
        .padding = padding_mode,
        .nearest = interpolation_mode == INTERPOLATE_NEAREST,
        .align_corners = align_corners != 0,
        .is_double = !is_single,
        .size = {from->sizes[2], from->sizes[3], from->sizes[4]},
        .strides = {from->sizes[3] * from->sizes[4], from->sizes[4], 1},
        .batch = from->sizes[0],
        .channels = from->sizes[1],
        .points = at->sizes[1] * at->sizes[2] * at->sizes[3],
        .sum = is_single ? sum_floats : sum_doubles,
        .item = numbers->tensor->item_bytes,
        .volumes = volume->tensor->data,
        .places = places->tensor->data,
        .to = numbers->tensor->data,
    };
    if (numbers->tensor->numel > 0)
        sample_all(&sampler);
    SHIM_TRY(aoticache_shim_read(__func__, numbers, from->dtype, &result));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
