/*
 * eager/dispatch/default_values: the default values of a schema's arguments, as values for a stack. Private to eager/.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_DEFAULT_VALUES_H
#define AOTICACHE_EAGER_DISPATCH_DEFAULT_VALUES_H

#include "eager/schema/schema.h"
#include "eager/value.h"

/* Creates one value per argument, OTHER if it has no default. The schema owns the texts in them. NULL without memory. */
aoticache_value *aoticache_default_values_create(const aoticache_schema *schema);
/* Frees default values. defaults: NULL is allowed; count: the number of the schema's arguments. */
void aoticache_default_values_free(aoticache_value *defaults, size_t count);

#endif
