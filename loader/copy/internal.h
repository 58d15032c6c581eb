/*
 * loader/copy: a private copy of a library, in memory, that names what provides its aoti_torch_* functions here.
 *
 * Private to loader/. The copy has the bytes of the file's segments, except for the dynamic section, one program
 * header, and some symbols; it is sealed, so that nobody can change it afterwards.
 */
#ifndef AOTICACHE_LOADER_COPY_INTERNAL_H
#define AOTICACHE_LOADER_COPY_INTERNAL_H

#include "loader/elf/internal.h"
#include "loader/torch.h"

#include <sys/types.h>

/* More is refused: the copy is resident memory. */
#define AOTICACHE_SEALED_COPY_MAX_BYTES ((uint64_t)8 << 30)

typedef struct aoticache_sealed_copy_options {
    bool always; /* also where nothing is to be changed for the provider */
    bool whole;  /* what lies behind the segments too: for a library that maps it, and will find only the copy */
    int image;   /* elf->fd, where that is a file in memory that is to become the copy; else -1 */
} aoticache_sealed_copy_options;

/*
 * The bytes that a copy is made of, in memory, hashed while they are copied. Of the file that `elf` was read from
 * nothing counts but how much there is to copy: the tables are to be read again, from the image.
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
 * And the few functions of the C library below are the loader's own.
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

/*
 * ---- functions of the C library that a copy gets from the loader instead ----
 *
 * The first two leave something behind that outlives an unloading; an unloading takes it back here.
 *
 * Fork: a child may unload what the parent loaded, if at the fork no other thread was unloading or ending.
 */

/*
 * As __cxa_thread_atexit: destructor(object) is called when this thread ends, later ones first, or by
 * aoticache_thread_exit_run(). Returns 0, or -1 without memory (then it is never called).
 *
 * The destructors of a C++ library's thread_local variables (the last error's text in each of PyTorch's) are registered
 * with it; the dynamic linker keeps a library with one of them mapped as long as that thread lives, which in a
 * long-lived host is for ever.
 */
int aoticache_thread_exit_add(void (*destructor)(void *object), void *object, void *library_address);

/*
 * Runs what libraries between these addresses have registered, of all threads, on this one. Before the library is
 * unloaded, and when nothing of it runs any more.
 */
void aoticache_thread_exit_run(uintptr_t first, uintptr_t end);

/*
 * As mmap and munmap; mappings of files are noted, with the address of the caller. A copy of a library that looks for
 * its own file gets them: one of PyTorch's that maps its weights from its own file never unmaps them (self_mmap,
 * torch/csrc/inductor/aoti_runtime/model_base.h), so each loading would leave that much address space.
 */
void *aoticache_own_mappings_map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int aoticache_own_mappings_unmap(void *address, size_t bytes);

/*
 * Unmaps what code between these addresses has mapped and not unmapped. Before the library is unloaded, when its
 * containers are gone: afterwards the addresses may be another one's.
 */
void aoticache_own_mappings_release(uintptr_t first, uintptr_t end);

/*
 * As malloc, on huge pages where the system offers them (madvise) and there is room for some. PyTorch's container copies a
 * model's weights into one such block (RAII_cpuMalloc, torch/csrc/inductor/aoti_runtime/model_base.h), page by page.
 */
void *aoticache_large_malloc(size_t bytes);

#endif
