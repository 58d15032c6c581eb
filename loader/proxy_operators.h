/*
 * loader/proxy_operators: which operators a library calls through PyTorch's proxy executor.
 *
 * Private.
 */
#ifndef AOTICACHE_LOADER_PROXY_OPERATORS_H
#define AOTICACHE_LOADER_PROXY_OPERATORS_H

#include "loader/elf.h"

/*
 * "aten::cholesky, aten::fft_fft2": the operators that are named in the library's file, in the order they are found, each
 * once; "" where none is named, or where it cannot be read. Cut off after a whole name.
 */
void aoticache_proxy_operators_format(const aoticache_elf *elf, char *ret_text, size_t size);

#endif
