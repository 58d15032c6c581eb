/*
 * cache/store/unstored: artifacts that could not be stored and run from the compile hook's own files.
 *
 * Private.
 */
#ifndef AOTICACHE_CACHE_STORE_UNSTORED_H
#define AOTICACHE_CACHE_STORE_UNSTORED_H

#include "cache/store/artifact.h"

/*
 * Opens and digests the files of a checked product. With side files the folder they lie in goes with the artifact: the
 * scratch folder itself where all of them are directly in it under their names (it is taken over: *scratch is empty
 * afterwards), else a new one under $TMPDIR with links or copies.
 */
aoticache_status aoticache_artifact_create_unstored(const aoticache_product *product, aoticache_scratch *scratch,
                                                    aoticache_artifact **ret_artifact, aoticache_error *ret_error);

#endif
