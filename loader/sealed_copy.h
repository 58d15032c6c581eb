/*
 * loader/sealed_copy: a copy of a library, in memory, that names what provides its aoti_torch_* functions here.
 *
 * Private. The copy has the bytes of the file's segments, except for the dynamic section and one program header; it is
 * sealed, so that nobody can change it afterwards.
 */
#ifndef AOTICACHE_LOADER_SEALED_COPY_H
#define AOTICACHE_LOADER_SEALED_COPY_H

#include "loader/describe.h"
#include "loader/torch.h"

/* Larger files are refused: the copy is resident memory. */
#define AOTICACHE_SEALED_COPY_MAX_BYTES ((uint64_t)8 << 30)

/*
 * What is to be changed for this provider: the provider takes the place of libtorch_cpu.so among the needed libraries,
 * or is added where functions of it are called and none is named (aot_inductor.link_libtorch=False). For the shim
 * PyTorch's other libraries are taken out.
 *
 * ret_fd: -1 where nothing is to be changed: then the file itself can be loaded. Else the caller closes it.
 * Returns: OK, UNSUPPORTED (no room in the file for the change; a file too large; a kernel without memfd_create),
 * IO, NO_MEMORY.
 */
aoticache_status aoticache_sealed_copy_make(const aoticache_elf *elf, const aoticache_library_names *names,
                                            const aoticache_torch_provider *provider, int *ret_fd,
                                            aoticache_error *ret_error);

#endif
