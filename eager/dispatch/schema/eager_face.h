/*
 * eager/dispatch/schema/eager_face: functions of schemas and types that the rest of eager/ needs in addition to schema.h.
 *
 * Private to eager/. AOTICACHE_API makes a function visible to the tests that call it from Python; the library does not export
 * it (scripts/link/libaoticache.map).
 */
#ifndef AOTICACHE_EAGER_DISPATCH_SCHEMA_EAGER_FACE_H
#define AOTICACHE_EAGER_DISPATCH_SCHEMA_EAGER_FACE_H

#include "eager/dispatch/schema/schema.h"

/*
 * Parses as aoticache_schema_parse() does, for a text that defines an operator: without type variables, which only schemas of
 * TorchScript have. "f(tensor x) -> tensor" has two and is refused here, as torch.library's define refuses it
 * (torch._C.parse_schema accepts it).
 * namespace_name: for a name without a namespace; NULL: it stays without.
 */
AOTICACHE_API aoticache_status aoticache_schema_parse_definition(const char *text, const char *namespace_name,
                                                                 aoticache_schema **ret_schema,
                                                                 aoticache_error *ret_error);

/* Parses only a name, "aten::add.Tensor", without parentheses: into a schema without arguments and returns. */
AOTICACHE_API aoticache_status aoticache_schema_parse_name(const char *text, aoticache_schema **ret_schema,
                                                           aoticache_error *ret_error);

/* Prints a type as PyTorch does. Returns the length, like snprintf. */
AOTICACHE_API size_t aoticache_type_format(const aoticache_type *type, char *ret_text, size_t size);

/* Returns the type with the nearest name, ignoring case: Tensor for "tensor"; NULL if none is near. */
const char *aoticache_schema_nearest_type(const char *name);

#endif
