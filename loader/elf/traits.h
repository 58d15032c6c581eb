/*
 * loader/elf/traits: facts in the file of a library that only `aoticache inspect` reports. Nothing is loaded.
 *
 * Private to loader/ and tools/aoticache, which links these files itself: the library does not export their functions.
 */
#ifndef AOTICACHE_LOADER_ELF_TRAITS_H
#define AOTICACHE_LOADER_ELF_TRAITS_H

#include "base/base.h"

/* The producer of a library, as far as its file shows. */
typedef enum aoticache_library_maker {
    AOTICACHE_MAKER_UNKNOWN = 0,
    AOTICACHE_MAKER_PYTORCH = 1,  /* PyTorch's AOTInductor, C++ */
    AOTICACHE_MAKER_RUNTIME = 2,  /* written in C over libaoticache_runtime.a */
    AOTICACHE_MAKER_INDUCTOR = 3, /* Inductor's code over libaoticache_runtime.a (eager/compile/inductor/) */
} aoticache_library_maker;

/*
 * Facts about the file of a library, in addition to its names (aoticache_library_describe()). All strings belong to the
 * traits. For a library of another class or byte order all fields are 0 or "".
 */
typedef struct aoticache_library_traits {
    aoticache_library_maker maker;
    const char *soname;          /* "" if it has none */
    const char *compiler;        /* the first text of .comment, "GCC: (GNU) 12.2.0"; "" if there is none */
    const char *proxy_operators; /* named for the proxy executor: "aten::cholesky, aten::fft_fft2"; "" if none is */
    size_t unique_symbol_count;  /* STB_GNU_UNIQUE: loaded without a copy, it is never unloaded if it has any */
    bool executable_stack;       /* hardened systems refuse to load it */
    bool finds_itself;           /* imports dladdr or the like: may open its own file to map weights */
    uint64_t mapped_bytes;       /* address space that its segments take */
    uint64_t appended_bytes;     /* after everything that the ELF tables describe: weights */
} aoticache_library_traits;

/* Reads the whole file once. Returns: OK, INVALID (as aoticache_library_describe()), IO, NO_MEMORY. */
aoticache_status aoticache_library_traits_read(int fd, aoticache_library_traits **ret_traits,
                                               aoticache_error *ret_error);
void aoticache_library_traits_free(aoticache_library_traits *traits);

/*
 * Finds which of the names a shared library such as libtorch_cpu.so defines. The library is not loaded.
 *
 * names: sorted as strcmp() sorts. found: `count` elements, set to true for names that the library defines and
 * otherwise left as they are, so that several libraries can be searched one after the other. On failure nothing is set.
 * Returns: OK, INVALID, IO, NO_MEMORY.
 */
aoticache_status aoticache_library_find_symbols(int fd, const char *const *names, size_t count, bool *found,
                                                aoticache_error *ret_error);

#endif
