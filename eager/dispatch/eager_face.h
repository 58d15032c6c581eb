/*
 * eager/dispatch/eager_face: functions of the dispatcher that the rest of eager/ needs in addition to the public headers.
 *
 * Private to eager/. AOTICACHE_API makes a function visible to the tests that call it from Python; the library does not export
 * it (scripts/link/libaoticache.map).
 */
#ifndef AOTICACHE_EAGER_DISPATCH_EAGER_FACE_H
#define AOTICACHE_EAGER_DISPATCH_EAGER_FACE_H

#include "eager/dispatch/dispatcher.h"
#include "eager/dispatch/schema/schema.h"
#include "eager/value.h"

/* ---- operators and oplibs ---- */

AOTICACHE_API bool aoticache_operator_has_computed_kernel(const aoticache_operator *op, aoticache_dispatch_key key);

/*
 * Prints the schema as PyTorch does; the caller frees *ret_text with aoticache_free(). For callers that do not know how long
 * the definition exists. Returns: OK, NOT_FOUND (not defined), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_operator_schema_text(const aoticache_operator *op, char **ret_text,
                                                              aoticache_error *ret_error);

/* Return the arguments that an oplib was created with; "_" for any namespace. Borrowed. */
AOTICACHE_API aoticache_dispatcher *aoticache_oplib_dispatcher(const aoticache_oplib *oplib);
AOTICACHE_API const char *aoticache_oplib_namespace(const aoticache_oplib *oplib);
AOTICACHE_API const char *aoticache_oplib_key_name(const aoticache_oplib *oplib); /* "" if it has none */

/* ---- sets of keys ---- */

AOTICACHE_API aoticache_key_set aoticache_key_set_add(aoticache_key_set set, aoticache_dispatch_key key);

/* ---- default_values.c: the default values of a schema's arguments, as values for a stack ---- */

/* Creates one value per argument, OTHER if it has no default. The schema owns the texts in them. NULL without memory. */
aoticache_value *aoticache_default_values_create(const aoticache_schema *schema);
/* Frees default values. defaults: NULL is allowed; count: the number of the schema's arguments. */
void aoticache_default_values_free(aoticache_value *defaults, size_t count);

#endif
