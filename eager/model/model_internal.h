/*
 * eager/model/model_internal: the list of a model's tensors, files of weights, and passing them to a runner.
 *
 * Private to model/.
 */
#ifndef AOTICACHE_EAGER_MODEL_INTERNAL_H
#define AOTICACHE_EAGER_MODEL_INTERNAL_H

#include <jansson.h>

#include "eager/model/model.h"
#include "eager/model/safetensors/safetensors.h"
#include "eager/model/tensors.h"

#define AOTICACHE_MODEL_OP "aoticache::model"
#define AOTICACHE_PROGRAM_OP "aoticache::program"
#define AOTICACHE_WEIGHTS_LIST "weights.list"
#define AOTICACHE_MODEL_MAX_DIMS AOTICACHE_SAFETENSOR_MAX_DIMS

/* ---- find.c ---- */

typedef struct aoticache_model_found {
    int64_t entry_id; /* 0: none found */
    aoticache_key key;
    aoticache_digest artifact;
    aoticache_device device;
    bool is_program;
    char name[256];
    char framework[64];
} aoticache_model_found;

/* Finds an entry. Returns: as aoticache_model_open(). */
aoticache_status aoticache_model_find(aoticache_cache *cache, const char *name_or_key,
                                      const aoticache_model_options *options, aoticache_model_found *ret_found,
                                      aoticache_error *ret_error);

/* ---- tensors.c: weights.list, JSON next to the library ---- */

typedef struct aoticache_model_place {
    aoticache_model_tensor tensor;
    const char *file; /* next to the library; NULL: not stored */
    uint64_t offset;
    const json_t *aliases; /* an array of its other names; NULL: it has none */
} aoticache_model_place;

typedef struct aoticache_model_tensors {
    json_t *tree; /* names and files are borrowed from it */
    aoticache_model_place *places;
    size_t count;
    int64_t *dims;
} aoticache_model_tensors;

/*
 * Reads the list. directory: of the side files. If it is NULL, or has no such file, the list is empty.
 * Returns: OK, CORRUPT, IO, DENIED, NO_MEMORY.
 */
aoticache_status aoticache_model_tensors_read(const char *directory, aoticache_model_tensors *ret_tensors,
                                              aoticache_error *ret_error);
/* Parses the text of a list. */
aoticache_status aoticache_model_tensors_parse(const char *text, size_t size, aoticache_model_tensors *ret_tensors,
                                               aoticache_error *ret_error);
void aoticache_model_tensors_free(aoticache_model_tensors *tensors);
/* Computes the bytes from the first element to the last; false: overflow, or a negative stride. */
bool aoticache_model_span(int32_t dtype, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                          uint64_t *ret_bytes);

/* ---- weights.c ---- */

typedef struct aoticache_model_weights aoticache_model_weights;

/*
 * Maps stored weights and those of the file, and creates tensors for them. name: of the model, for messages.
 * Returns: OK, INVALID, CORRUPT, IO, DENIED, NO_MEMORY, LOAD_FAILED.
 */
aoticache_status aoticache_model_weights_create(const char *directory, const char *name,
                                                const aoticache_model_options *options,
                                                aoticache_model_weights **ret_weights, aoticache_error *ret_error);
/* Passes the tensors to a runner that has not run yet. Returns: as aoticache_runner_update_constants(). */
aoticache_status aoticache_model_weights_give(aoticache_model_weights *weights, aoticache_runner *runner,
                                              aoticache_error *ret_error);
/*
 * Makes the runner compare its inputs with the description in the list. Returns: OK, CORRUPT (the description is malformed),
 * NO_MEMORY.
 */
aoticache_status aoticache_model_weights_expect(const aoticache_model_weights *weights, aoticache_runner *runner,
                                                aoticache_error *ret_error);
void aoticache_model_weights_report(const aoticache_model_weights *weights, aoticache_model_report *report);
/* Frees weights, after the runner. weights: an aoticache_model_weights; NULL is allowed. */
void aoticache_model_weights_free(void *weights);

#endif
