/*
 * eager/dispatch/default_values: the default values of a schema's arguments as values that go on a stack. Private to
 * eager/.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_DEFAULT_VALUES_H
#define AOTICACHE_EAGER_DISPATCH_DEFAULT_VALUES_H

#include "eager/schema/schema.h"
#include "eager/value.h"

/* One for each argument, OTHER where there is none; the caller's. Texts in them are the schema's. NULL without memory. */
aoticache_value *aoticache_default_values_create(const aoticache_schema *schema);
/* defaults: or NULL; count: as many as the schema has arguments. */
void aoticache_default_values_free(aoticache_value *defaults, size_t count);

#endif
