/*
 * shim/convolution/fused_half: bfloat16 and float16 operands of the functions of fused.c, as float32. As in oneDNN, sums, bias,
 * other tensor and function are computed in float32, and the result is rounded once.
 *
 * A weight that never changes is converted once and the copy is kept, so it takes three times its memory.
 */
#include "runtime/shim/math/math_internal.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <stdlib.h>

bool aoticache_shim_is_half(AtenTensorHandle tensor)
{
    return shim_is_defined(tensor) &&
           (tensor->tensor->dtype == AOTICACHE_DTYPE_BFLOAT16 || tensor->tensor->dtype == AOTICACHE_DTYPE_FLOAT16);
}

AOTITorchError aoticache_shim_convert_like(const char *function, AtenTensorHandle tensor, int32_t dtype,
                                           AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle made = NULL;
    SHIM_TRY(aoticache_shim_make_like(function, tensor, dtype, &made));
    SHIM_TRY(aoti_torch_copy_(made, tensor, 0));
    *ret_tensor = shim_steal(&made);
    return SHIM_SUCCESS;
}

static void free_kept(void *kept)
{
    AtenTensorHandle handle = kept;
    aoticache_shim_handle_cleanup(&handle);
}

/* Keeps a copy, which never changes either: a convolution keeps it in oneDNN's format. */
static AOTITorchError keep(const char *function, AtenTensorHandle weight, AtenTensorHandle *ret_kept)
{
    struct shim_packed *packed = weight->tensor->packed;
    if (!aoticache_shim_packed_claim(packed, free_kept)) /* another operator keeps another form */
        return aoticache_shim_convert_like(function, weight, AOTICACHE_DTYPE_FLOAT32, ret_kept);
    AtenTensorHandle kept = atomic_load(&packed->prepared);
    if (kept == NULL) {
        SHIM_TRY(aoticache_shim_convert_like(function, weight, AOTICACHE_DTYPE_FLOAT32, &kept));
        kept->tensor->packed = calloc(1, sizeof *kept->tensor->packed);
        if (kept->tensor->packed == NULL) {
            free_kept(kept);
            return aoticache_shim_fail_memory(function, sizeof *kept->tensor->packed);
        }
        kept = aoticache_shim_packed_keep(packed, kept);
    }
    return aoti_torch_new_tensor_handle(kept, ret_kept);
}

AOTITorchError aoticache_shim_widen_half(const char *function, AtenTensorHandle tensor, AtenTensorHandle *ret_wide)
{
    if (!aoticache_shim_is_half(tensor)) {
        *ret_wide = NULL;
        return shim_is_defined(tensor) ? aoti_torch_new_tensor_handle(tensor, ret_wide) : SHIM_SUCCESS;
    }
    return tensor->tensor->packed != NULL
               ? keep(function, tensor, ret_wide)
               : aoticache_shim_convert_like(function, tensor, AOTICACHE_DTYPE_FLOAT32, ret_wide);
}
