/*
 * loader/copy: a private copy of a library, in memory, that names this process's provider of aoti_torch_* functions.
 *
 * Private to loader/. The copy has the bytes of the file's segments, except for the dynamic section, one program
 * header, and some symbols; it is sealed, so that nobody can change it afterwards.
 */
#ifndef AOTICACHE_LOADER_COPY_INTERNAL_H
#define AOTICACHE_LOADER_COPY_INTERNAL_H

#include "loader/elf/elf_internal.h"
#include "loader/torch.h"

#include <sys/types.h>

/* Larger files are refused: the copy is resident memory. */
#define AOTICACHE_SEALED_COPY_MAX_BYTES ((uint64_t)8 << 30)

typedef struct aoticache_sealed_copy_options {
    bool always; /* also if nothing has to be changed for the provider */
    bool whole;  /* also what follows the segments: for a library that maps it and will find only the copy */
    int image;   /* elf->fd, if that is a file in memory that is to become the copy; otherwise -1 */
} aoticache_sealed_copy_options;

/*
 * Copies the bytes of the file into memory and hashes them meanwhile. Only the number of bytes to copy is taken from
 * `elf`: the tables must be read again, from the image.
 * Returns: OK, CORRUPT (the file's bytes are not those of the digest), UNSUPPORTED, IO, NO_MEMORY.
 */
aoticache_status aoticache_sealed_copy_read(const aoticache_elf *elf, bool whole, const aoticache_digest *digest,
                                            int *ret_image, aoticache_error *ret_error);

/*
 * Makes the copy for this provider. The provider replaces libtorch_cpu.so among the needed libraries, or is added if
 * its functions are called and no library is named (aot_inductor.link_libtorch=False). For the shim, PyTorch's other
 * libraries are removed from the list.
 *
 * In every copy unique symbols (STB_GNU_UNIQUE) become global ones. The dynamic linker never unloads a library that has
 * defined a unique symbol, and gives all libraries, local ones too, the same symbol of that name (do_lookup_unique,
 * glibc elf/dl-lookup.c): kernels would share error flags and static variables of C++ inline functions. The few
 * functions of the C library below are replaced by the loader's.
 *
 * ret_fd: -1 if nothing has to be changed: then the file itself can be loaded. Otherwise the caller closes it; it is
 * the image if there is one.
 * Returns: OK, UNSUPPORTED (no space in the file for the change; too many bytes; a kernel without memfd_create), IO,
 * NO_MEMORY.
 */
aoticache_status aoticache_sealed_copy_make(const aoticache_elf *elf, const aoticache_library_names *names,
                                            const aoticache_torch_provider *provider,
                                            const aoticache_sealed_copy_options *options, int *ret_fd,
                                            aoticache_error *ret_error);

/*
 * ---- functions of the C library that a copy gets from the loader instead ----
 *
 * The effects of the first two would outlive an unloading; here an unloading undoes them.
 *
 * Fork: a child may unload what the parent loaded, if no other thread was unloading or ending at the fork.
 */

/*
 * Replaces __cxa_thread_atexit: destructor(object) is called when this thread ends, the latest first, or by
 * aoticache_thread_exit_run(). Returns 0, or -1 if out of memory (then the destructor is never called).
 *
 * The destructors of a C++ library's thread_local variables (each of PyTorch's libraries has one, the last error's
 * text) are registered with it. The dynamic linker keeps a library with such a destructor mapped as long as that thread
 * lives, which in a long-lived host is for ever.
 */
int aoticache_thread_exit_add(void (*destructor)(void *object), void *object, void *library_address);

/*
 * Runs the destructors that code between these addresses has registered, of all threads, on this thread. To be called
 * before the library is unloaded, when none of its code runs any more.
 */
void aoticache_thread_exit_run(uintptr_t first, uintptr_t end);

/*
 * Replace mmap and munmap; mappings of files are recorded, with the address of the caller. They are given to a copy of
 * a library that looks for its own file: PyTorch's libraries that map their weights from their own file never unmap
 * them (self_mmap, torch/csrc/inductor/aoti_runtime/model_base.h), so each loading would leak that much address space.
 */
void *aoticache_own_mappings_map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int aoticache_own_mappings_unmap(void *address, size_t bytes);

/*
 * Unmaps what code between these addresses has mapped and not unmapped. To be called before the library is unloaded,
 * when its containers are gone: afterwards the addresses may belong to another library.
 */
void aoticache_own_mappings_release(uintptr_t first, uintptr_t end);

/*
 * Replaces malloc; uses huge pages if the system offers them (madvise) and the block is large enough for one. PyTorch's
 * container copies a model's weights into one such block (RAII_cpuMalloc,
 * torch/csrc/inductor/aoti_runtime/model_base.h), page by page.
 */
void *aoticache_large_malloc(size_t bytes);

#endif
