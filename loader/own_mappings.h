/*
 * loader/own_mappings: what libraries loaded from a copy map of files, so that it goes with them.
 *
 * Private. A library of PyTorch's that maps its weights from its own file never unmaps them (self_mmap,
 * torch/csrc/inductor/aoti_runtime/model_base.h): each loading would leave that much address space. In a sealed copy of
 * a library that looks for its own file, mmap and munmap are these.
 */
#ifndef AOTICACHE_LOADER_OWN_MAPPINGS_H
#define AOTICACHE_LOADER_OWN_MAPPINGS_H

#include "base/base.h"

#include <sys/types.h>

/* As mmap and munmap; mappings of files are noted, with the address of the caller. */
void *aoticache_own_mappings_map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int aoticache_own_mappings_unmap(void *address, size_t bytes);

/*
 * Unmaps what code between these addresses has mapped and not unmapped. Before the library is unloaded, when its
 * containers are gone: afterwards the addresses may be another one's.
 */
void aoticache_own_mappings_release(uintptr_t first, uintptr_t end);

#endif
