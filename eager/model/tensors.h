/*
 * eager/model/tensors: the constants of a stored model, and a runner from an artifact that the caller holds.
 *
 * Users include <aoticache/runner.h>.
 */
#ifndef AOTICACHE_EAGER_MODEL_TENSORS_H
#define AOTICACHE_EAGER_MODEL_TENSORS_H

#include "eager/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Creates a runner from an artifact that the caller holds, found or just compiled: the second half of aoticache_model_open().
 * Closes the artifact's descriptors. name: for messages. Does not change key, name and framework of the report.
 */
AOTICACHE_API aoticache_status aoticache_model_open_artifact(aoticache_cache *cache, aoticache_artifact *artifact,
                                                             const char *name, const aoticache_model_options *options,
                                                             aoticache_runner **ret_runner,
                                                             aoticache_model_report *report,
                                                             aoticache_error *ret_error);

/* One constant of a stored model. Pointers are borrowed during the callback. */
typedef struct aoticache_model_tensor {
    const char *name;
    int32_t dtype;
    int64_t ndim;
    const int64_t *sizes, *strides; /* in elements */
    uint64_t bytes;                 /* from its first element to its last, both included */
    bool is_stored;                 /* false: the caller must provide it */
} aoticache_model_tensor;

/* Return false to stop. */
typedef bool (*aoticache_model_tensor_fn)(void *user, const aoticache_model_tensor *tensor);

/* Lists the constants of a stored model or program. Returns: as aoticache_model_open(). */
AOTICACHE_API aoticache_status aoticache_model_list_tensors(aoticache_cache *cache, const char *name_or_key,
                                                            aoticache_model_tensor_fn callback, void *user,
                                                            aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif

#endif
