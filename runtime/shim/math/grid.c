/*
 * shim/math/grid: grid_sampler_3d: a volume read at places between its elements. Source:
 * aten/src/ATen/native/GridSampler.cpp and GridSamplerUtils.h.
 */
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>

enum { INTERPOLATE_LINEAR, INTERPOLATE_NEAREST };
enum { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION };

struct grid {
    int64_t padding;
    bool nearest, align_corners;
    int64_t size[3], strides[3]; /* of one volume: depth, height, width */
};

/* Folds a coordinate back at both borders, which are given as twice their position. */
static double reflect(double at, double twice_low, double twice_high)
{
    if (twice_low == twice_high)
        return 0;
    double low = twice_low / 2, span = (twice_high - twice_low) / 2;
    double inside = fabs(at - low), extra = fmod(inside, span);
    double flips = floor(inside / span);
    return fmod(flips, 2) == 0 ? extra + low : span - extra + low;
}

static double clip(double at, int64_t size)
{
    /* NaN goes to 0, as in PyTorch. */
    return fmin((double)(size - 1), fmax(at, 0));
}

/* Turns a coordinate from -1 to 1 into a place along one dimension. */
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

static bool is_inside(const struct grid *grid, const double *corner)
{
    for (int d = 0; d < 3; d++)
        if (!(corner[d] >= 0 && corner[d] < (double)grid->size[d]))
            return false;
    return true;
}

static double element(const struct grid *grid, const double *volume, const double *corner)
{
    return volume[(int64_t)corner[0] * grid->strides[0] + (int64_t)corner[1] * grid->strides[1] +
                  (int64_t)corner[2] * grid->strides[2]];
}

static double sample(const struct grid *grid, const double *volume, const double place[3])
{
    double total = 0, corner[3];
    if (grid->nearest) {
        for (int d = 0; d < 3; d++)
            corner[d] = nearbyint(place[d]);
        return is_inside(grid, corner) ? element(grid, volume, corner) : 0;
    }
    for (int which = 0; which < 8; which++) {
        double weight = 1;
        for (int d = 0; d < 3; d++) {
            double below = floor(place[d]);
            bool upper = (which >> (2 - d) & 1) != 0;
            corner[d] = below + upper;
            weight *= upper ? place[d] - below : below + 1 - place[d];
        }
        if (is_inside(grid, corner))
            total += weight * element(grid, volume, corner);
    }
    return total;
}

static AOTITorchError check_grid(const char *function, const struct shim_tensor *input, const struct shim_tensor *grid,
                                 int64_t interpolation, int64_t padding)
{
    if (input->ndim != 5 || grid->ndim != 5 || grid->sizes[4] != 3 || input->sizes[0] != grid->sizes[0])
        return aoticache_shim_fail("%s: an input (N, C, D, H, W) and a grid (N, d, h, w, 3) are needed", function);
    if (input->sizes[2] < 1 || input->sizes[3] < 1 || input->sizes[4] < 1)
        return aoticache_shim_fail("%s: the input has an empty dimension", function);
    if (input->dtype != grid->dtype)
        return aoticache_shim_fail("%s: input and grid must have one dtype", function);
    if (interpolation != INTERPOLATE_LINEAR && interpolation != INTERPOLATE_NEAREST)
        return aoticache_shim_fail("%s: interpolation %lld is neither 0 nor 1", function, (long long)interpolation);
    if (padding < PAD_ZEROS || padding > PAD_REFLECTION)
        return aoticache_shim_fail("%s: padding %lld is not one of 0 to 2", function, (long long)padding);
    return SHIM_SUCCESS;
}

static void sample_all(const struct grid *grid, const struct shim_tensor *input, const struct shim_tensor *places,
                       double *to)
{
    int64_t volume = grid->size[0] * grid->strides[0], channels = input->sizes[1];
    int64_t points = places->sizes[1] * places->sizes[2] * places->sizes[3];
    const double *from = input->data, *at = places->data;
    for (int64_t n = 0; n < input->sizes[0]; n++)
        for (int64_t point = 0; point < points; point++) {
            const double *xyz = at + (n * points + point) * 3; /* width first */
            double place[3];
            for (int d = 0; d < 3; d++)
                place[d] = place_of(grid, xyz[2 - d], grid->size[d]);
            for (int64_t c = 0; c < channels; c++)
                to[(n * channels + c) * points + point] = sample(grid, from + (n * channels + c) * volume, place);
        }
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
    SHIM_TRY(aoticache_shim_read(__func__, input, AOTICACHE_DTYPE_FLOAT64, &volume));
    SHIM_TRY(aoticache_shim_read(__func__, grid, AOTICACHE_DTYPE_FLOAT64, &places));
    const struct grid sampler = {
        .padding = padding_mode,
        .nearest = interpolation_mode == INTERPOLATE_NEAREST,
        .align_corners = align_corners != 0,
        .size = {from->sizes[2], from->sizes[3], from->sizes[4]},
        .strides = {from->sizes[3] * from->sizes[4], from->sizes[4], 1},
    };
    const int64_t sizes[5] = {from->sizes[0], from->sizes[1], at->sizes[1], at->sizes[2], at->sizes[3]};
    SHIM_TRY(aoticache_shim_make(__func__, 5, sizes, AOTICACHE_DTYPE_FLOAT64, &numbers));
    sample_all(&sampler, volume->tensor, places->tensor, numbers->tensor->data);
    SHIM_TRY(aoticache_shim_read(__func__, numbers, from->dtype, &result));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
