/*
 * loader/cuda/arch: an image's architecture: on which devices it runs and how it is written as text; and sets of
 * images. The rules are those of the CUDA C++ Programming Guide, sections "Binary Compatibility", "PTX Compatibility"
 * and "Feature Sets": if a device is stricter than these rules, the driver decides.
 */
#include "loader/cuda/cuda_internal.h"

#include <stdio.h>
#include <string.h>

bool aoticache_cuda_image_runs_on(const aoticache_cuda_image *image, int32_t major, int32_t minor)
{
    if (image->is_specific)
        return major == image->major && minor == image->minor;
    if (image->is_ptx && !image->is_family)
        return major > image->major || (major == image->major && minor >= image->minor);
    return major == image->major && minor >= image->minor;
}

void aoticache_cuda_image_format(const aoticache_cuda_image *image, char ret_text[16])
{
    /* Numbers that are far too large are cut off and do not overflow the text. */
    snprintf(ret_text, 16, "%s_%d%d%s", image->is_ptx ? "compute" : "sm", (int)image->major, (int)image->minor,
             image->is_specific ? "a"
             : image->is_family ? "f"
                                : "");
}

static bool has_image(const aoticache_cuda_image_set *set, size_t bit)
{
    return (set->bits[bit / 64] >> bit % 64 & 1) != 0;
}

static aoticache_cuda_image image_of(size_t bit)
{
    size_t arch = bit / 8;
    return (aoticache_cuda_image){
        .major = (int32_t)(arch / 10),
        .minor = (int32_t)(arch % 10),
        .is_ptx = (bit & 4) != 0,
        .is_specific = (bit & 2) != 0,
        .is_family = (bit & 1) != 0,
    };
}

#define SET_BITS (sizeof((aoticache_cuda_image_set *)NULL)->bits * 8)

size_t aoticache_cuda_image_set_list(const aoticache_cuda_image_set *set, aoticache_cuda_image *ret_images,
                                     size_t capacity)
{
    size_t count = 0;
    for (size_t bit = 0; bit < SET_BITS && count < set->count; bit++) {
        if (!has_image(set, bit))
            continue;
        if (count < capacity)
            ret_images[count] = image_of(bit);
        count++;
    }
    return count;
}

bool aoticache_cuda_image_set_runs_on(const aoticache_cuda_image_set *set, int32_t major, int32_t minor)
{
    for (size_t bit = 0; bit < SET_BITS; bit++) {
        aoticache_cuda_image image = image_of(bit);
        if (has_image(set, bit) && aoticache_cuda_image_runs_on(&image, major, minor))
            return true;
    }
    return false;
}

void aoticache_cuda_image_set_format(const aoticache_cuda_image_set *set, char *ret_text, size_t size)
{
    const size_t more = sizeof " and 9999 more";
    size_t used = 0, shown = 0;
    ret_text[0] = '\0';
    for (size_t bit = 0; bit < SET_BITS && shown < set->count; bit++) {
        if (!has_image(set, bit))
            continue;
        char text[16];
        aoticache_cuda_image image = image_of(bit);
        aoticache_cuda_image_format(&image, text);
        if (used + strlen(text) + sizeof ", " + more > size)
            break;
        used += (size_t)snprintf(ret_text + used, size - used, "%s%s", shown > 0 ? ", " : "", text);
        shown++;
    }
    if (shown < set->count)
        snprintf(ret_text + used, size - used, " and %zu more", set->count - shown);
}
