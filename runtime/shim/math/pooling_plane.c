/*
 * shim/pooling_plane: the largest element or the mean of each window of one plane. The plane is read as double, which
 * has all floating point numbers exactly, and the result written in its own dtype: sums are rounded once.
 */
#include "runtime/shim/math/pooling.h"

#include <math.h>
#include <string.h>

#include "runtime/shim/convert.h"

static void load_plane(const struct pooling *p, const char *data)
{
    const struct shim_dtype_access *access = aoticache_shim_dtype_access(p->dtype);
    shim_change change = aoticache_shim_class_change(SHIM_CLASS_DOUBLE, (enum shim_class)access->load_class);
    const struct image *input = &p->input;
    double *row = p->plane;
    for (int64_t depth = 0; depth < input->sizes[0]; depth++) {
        for (int64_t line = 0; line < input->sizes[1]; line++, row += input->sizes[2]) {
            const char *source = data + depth * input->strides[0] + line * input->strides[1];
            for (int64_t at = 0; at < input->sizes[2]; at += 64) {
                double values[64];
                size_t count = (size_t)(input->sizes[2] - at < 64 ? input->sizes[2] - at : 64);
                access->load(count, values, source + at * input->strides[2], input->strides[2]);
                if (change != NULL)
                    change(count, row + at, values);
                else
                    memcpy(row + at, values, count * sizeof values[0]);
            }
        }
    }
}

struct pooled {
    double value;
    int64_t index;
};

/* Of several that are not numbers the last one counts, as in PyTorch. */
static struct pooled largest(const struct pooling *p, const struct range *depths, const struct range *rows,
                             const struct range *columns)
{
    const int64_t *sizes = p->input.sizes;
    struct pooled result = {-INFINITY, (depths->start * sizes[1] + rows->start) * sizes[2] + columns->start};
    for (int64_t d = depths->start; d < depths->end; d += depths->step) {
        for (int64_t h = rows->start; h < rows->end; h += rows->step) {
            int64_t line = (d * sizes[1] + h) * sizes[2];
            for (int64_t w = columns->start; w < columns->end; w += columns->step)
                if (p->plane[line + w] > result.value || isnan(p->plane[line + w]))
                    result = (struct pooled){p->plane[line + w], line + w};
        }
    }
    return result;
}

static struct pooled mean(const struct pooling *p, const struct range *depths, const struct range *rows,
                          const struct range *columns)
{
    const int64_t *sizes = p->input.sizes;
    struct pooled result = {0};
    int64_t count = (depths->end - depths->start) * (rows->end - rows->start) * (columns->end - columns->start);
    if (depths->end <= depths->start || rows->end <= rows->start || columns->end <= columns->start)
        return result; /* all of it is padding */
    for (int64_t d = depths->start; d < depths->end; d++)
        for (int64_t h = rows->start; h < rows->end; h++)
            for (int64_t w = columns->start; w < columns->end; w++)
                result.value += p->plane[(d * sizes[1] + h) * sizes[2] + w];
    if (p->divisor != 0)
        count = p->divisor;
    else if (p->count_padding)
        count = depths->full * rows->full * columns->full;
    result.value /= (double)count;
    return result;
}

static void store_value(const struct pooling *p, char *to, double value)
{
    const struct shim_dtype_access *access = aoticache_shim_dtype_access(p->dtype);
    float narrow = (float)value;
    access->store(1, to, 0, access->store_class == SHIM_CLASS_DOUBLE ? (const void *)&value : &narrow);
}

void aoticache_shim_pool_plane(const struct pooling *p, int64_t batch, int64_t channel)
{
    const struct image *output = &p->output;
    ptrdiff_t item_bytes = (ptrdiff_t)shim_item_bytes(p->dtype);
    load_plane(p, p->input.data + batch * p->input.batch_stride + channel * p->input.channel_stride);
    for (int64_t d = 0; d < output->sizes[0]; d++) {
        for (int64_t h = 0; h < output->sizes[1]; h++) {
            for (int64_t w = 0; w < output->sizes[2]; w++) {
                ptrdiff_t at = batch * output->batch_stride + channel * output->channel_stride +
                               d * output->strides[0] + h * output->strides[1] + w * output->strides[2];
                const struct range *depths = &p->ranges[0][d], *rows = &p->ranges[1][h], *columns = &p->ranges[2][w];
                struct pooled pooled = p->indices != NULL ? largest(p, depths, rows, columns)
                                                          : mean(p, depths, rows, columns);
                store_value(p, output->data + at, pooled.value);
                if (p->indices != NULL)
                    memcpy(p->indices + at / item_bytes * (ptrdiff_t)sizeof pooled.index, &pooled.index,
                           sizeof pooled.index);
            }
        }
    }
}
