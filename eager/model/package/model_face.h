/*
 * eager/model/package/model_face: what stored models (model/) need of packages in addition to package.h.
 *
 * Private to eager/model/.
 */
#ifndef AOTICACHE_EAGER_MODEL_PACKAGE_MODEL_FACE_H
#define AOTICACHE_EAGER_MODEL_PACKAGE_MODEL_FACE_H

#include "eager/model/package/package.h"

/*
 * Creates a runner that holds the artifact, and closes the artifact's descriptors. name: for messages. device: used if the
 * options name none. owned: released with the runner, on failure immediately; may be NULL.
 * Returns: as aoticache_library_load_fd() and aoticache_runner_create().
 */
aoticache_status aoticache_package_make_runner(aoticache_artifact *artifact, const char *name, const char *device,
                                               const aoticache_package_options *options, void *owned,
                                               void (*release)(void *owned), aoticache_runner **ret_runner,
                                               aoticache_error *ret_error);

#endif
