/*
 * eager/hook/request_macros: a request as a C header, against which a kernel's source is compiled (docs/hooks.md lists the
 * macros).
 *
 * Private.
 */
#ifndef AOTICACHE_EAGER_HOOK_REQUEST_MACROS_H
#define AOTICACHE_EAGER_HOOK_REQUEST_MACROS_H

#include "cache/request/request.h"

/*
 * The text of the header; *ret_text is the caller's, by free().
 * Returns: OK; UNSUPPORTED (a device, layout or constant that kernels in C are not made for); NO_MEMORY.
 */
aoticache_status aoticache_request_macros(const aoticache_request *request, char **ret_text, size_t *ret_size,
                                          aoticache_error *ret_error);

#define AOTICACHE_KERNEL_FILE_BYTES 264

/* The file that holds an operator's source: "aten::add.Tensor" is aten_add_Tensor.c. */
void aoticache_kernel_file_name(const char *op, char ret_name[AOTICACHE_KERNEL_FILE_BYTES]);

#endif
