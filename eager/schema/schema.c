/*
 * eager/schema/schema: what a schema says, read by whoever has one; and its end.
 */
#include "eager/schema/schema.h"

#include "eager/schema/internal.h"

#include <errno.h>
#include <stdlib.h>

void aoticache_schema_free(aoticache_schema *schema)
{
    int saved = errno;
    free(schema); /* one block, the structure first */
    errno = saved;
}

const char *aoticache_schema_name(const aoticache_schema *schema) { return schema->name; }
const char *aoticache_schema_overload(const aoticache_schema *schema) { return schema->overload; }
const char *aoticache_schema_full_name(const aoticache_schema *schema) { return schema->full_name; }
bool aoticache_schema_has_signature(const aoticache_schema *schema) { return schema->has_signature; }
size_t aoticache_schema_num_arguments(const aoticache_schema *schema) { return schema->argument_count; }
size_t aoticache_schema_num_returns(const aoticache_schema *schema) { return schema->return_count; }
bool aoticache_schema_is_vararg(const aoticache_schema *schema) { return schema->is_vararg; }
bool aoticache_schema_is_varret(const aoticache_schema *schema) { return schema->is_varret; }
bool aoticache_schema_is_mutable(const aoticache_schema *schema) { return schema->is_mutable; }
bool aoticache_schema_has_aliasing(const aoticache_schema *schema) { return schema->has_aliasing; }

const aoticache_schema_argument *aoticache_schema_argument_at(const aoticache_schema *schema, size_t position)
{
    return position < schema->argument_count ? &schema->arguments[position] : NULL;
}

const aoticache_schema_argument *aoticache_schema_return_at(const aoticache_schema *schema, size_t position)
{
    return position < schema->return_count ? &schema->returns[position] : NULL;
}
