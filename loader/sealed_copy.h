/*
 * loader/sealed_copy: a copy of a library, in memory, that names what provides its aoti_torch_* functions here.
 *
 * Private. The copy has the bytes of the file's segments, except for the dynamic section, one program header, and some
 * symbols; it is sealed, so that nobody can change it afterwards.
 */
#ifndef AOTICACHE_LOADER_SEALED_COPY_H
#define AOTICACHE_LOADER_SEALED_COPY_H

#include "loader/describe.h"
#include "loader/torch.h"

/* More is refused: the copy is resident memory. */
#define AOTICACHE_SEALED_COPY_MAX_BYTES ((uint64_t)8 << 30)

typedef struct aoticache_sealed_copy_options {
    bool always; /* also where nothing is to be changed for the provider */
    bool whole;  /* what lies behind the segments too: for a library that maps it, and will find only the copy */
    int image;   /* elf->fd, where that is a file in memory that is to become the copy; else -1 */
} aoticache_sealed_copy_options;

/*
 * The bytes that a copy is made of, in memory, hashed while they are copied. Of the file that `elf` was read from nothing
 * counts but how much there is to copy: the tables are to be read again, from the image.
 * Returns: OK, CORRUPT (the file's bytes are not those of the digest), UNSUPPORTED, IO, NO_MEMORY.
 */
aoticache_status aoticache_sealed_copy_read(const aoticache_elf *elf, bool whole, const aoticache_digest *digest,
                                            int *ret_image, aoticache_error *ret_error);

/*
 * What is to be changed for this provider: the provider takes the place of libtorch_cpu.so among the needed libraries,
 * or is added where functions of it are called and none is named (aot_inductor.link_libtorch=False). For the shim
 * PyTorch's other libraries are taken out.
 *
 * In every copy unique symbols (STB_GNU_UNIQUE) are global ones. The dynamic linker never unloads a library that has
 * defined a unique symbol, and gives one of that name to all libraries, local ones too (do_lookup_unique, glibc
 * elf/dl-lookup.c): error flags and static variables of C++ inline functions of one kernel would be those of others.
 * And a few functions are the loader's own: loader/thread_exit.h and loader/own_mappings.h say which and why.
 *
 * ret_fd: -1 where nothing is to be changed: then the file itself can be loaded. Else the caller closes it; it is the
 * image where there is one.
 * Returns: OK, UNSUPPORTED (no room in the file for the change; too many bytes; a kernel without memfd_create),
 * IO, NO_MEMORY.
 */
aoticache_status aoticache_sealed_copy_make(const aoticache_elf *elf, const aoticache_library_names *names,
                                            const aoticache_torch_provider *provider,
                                            const aoticache_sealed_copy_options *options, int *ret_fd,
                                            aoticache_error *ret_error);

#endif
