/*
 * loader/package/package: reading .pt2 archives, the packages that torch._inductor.aoti_compile_and_package() makes.
 *
 * A package is a ZIP archive (ZIP64, stored or deflated) with one top directory. Its models are in
 * NAME/data/aotinductor/MODEL/: a library, its metadata in JSON, cubins, weights. Archives are read with libzip, which
 * is loaded when the first package is opened. The archive is untrusted: names must not be absolute, nor contain "..",
 * "\" or control characters; sizes are bounded and compared with what is unpacked; checksums are verified.
 *
 * Thread safety: one package may be used by one thread at a time.
 *
 * Users include <aoticache/runner.h>.
 */
#ifndef AOTICACHE_LOADER_PACKAGE_PACKAGE_H
#define AOTICACHE_LOADER_PACKAGE_PACKAGE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_package aoticache_package;

typedef enum aoticache_part_kind {
    AOTICACHE_PART_LIBRARY = 0,  /* the .so */
    AOTICACHE_PART_METADATA = 1, /* *_metadata.json of the library */
    AOTICACHE_PART_WEIGHTS = 2,  /* the blob of package_constants_on_disk_format="binary_blob" */
    AOTICACHE_PART_SIDE = 3,     /* files that the library reads from its directory: cubins, JSON */
    AOTICACHE_PART_SOURCE = 4,   /* C++ sources, objects, build files: not needed to run */
} aoticache_part_kind;

/* A file of a model. Borrowed from the package. */
typedef struct aoticache_package_part {
    const char *name; /* without the model's directory: one component */
    aoticache_part_kind kind;
    uint64_t bytes; /* unpacked */
} aoticache_package_part;

/* A model of a package. Borrowed from the package. */
typedef struct aoticache_package_model {
    const char *name;    /* "model" */
    const char *device;  /* from its metadata: "cpu", "cuda"; "cpu" if not in the metadata */
    const char *machine; /* "x86_64"; "": not in the metadata */
    const char *cpu_isa; /* the instruction sets it was compiled for: "AVX512 AVX512_VNNI"; "": not in the metadata */
    const char *capability; /* of the GPU: "90"; "": not in the metadata */
    size_t part_count;
    const aoticache_package_part *parts; /* the library first */
} aoticache_package_model;

/*
 * Reads the archive's directory and the models' metadata.
 *
 * fd: borrowed while the package is open; the file must not change meanwhile. name: for messages.
 * Returns: OK; INVALID (not an archive, damaged, an unsafe name, no model, or a model without a library; the message
 * says which); UNSUPPORTED (encrypted, or another compression, which is named; or libzip is missing, and the message
 * names what to install); IO; NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_package_open_fd(int fd, const char *name, aoticache_package **ret_package,
                                                         aoticache_error *ret_error);
AOTICACHE_API void aoticache_package_close(aoticache_package *package);

/* Returns a model, or NULL past the end: for (i = 0; (model = aoticache_package_model_at(package, i)) != NULL; i++). */
AOTICACHE_API const aoticache_package_model *aoticache_package_model_at(const aoticache_package *package,
                                                                        size_t position);

/* Called for each pair of the library's metadata (user metadata too), in the file's order. Return false to stop. */
typedef bool (*aoticache_metadata_fn)(void *user, const char *name, const char *value);
AOTICACHE_API void aoticache_package_list_metadata(const aoticache_package *package,
                                                   const aoticache_package_model *model, aoticache_metadata_fn callback,
                                                   void *user);

/*
 * Writes a whole part to the descriptor `to`, at its current position. Verifies checksum and size.
 * Returns: OK, CORRUPT (checksum, size), IO (a full disk), UNSUPPORTED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_package_extract_part(aoticache_package *package,
                                                              const aoticache_package_model *model, size_t part, int to,
                                                              aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
