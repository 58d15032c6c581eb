/*
 * eager/schema/arena: the memory that one parse fills. Either one block of known size, which becomes the schema,
 * or scratch memory that takes pieces of the heap as it goes and is thrown away.
 */
#include "eager/schema/internal.h"

#include <stdalign.h>
#include <stdlib.h>

#define ALIGNMENT alignof(max_align_t)
#define HEADER ((sizeof(schema_chunk) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)
#define CHUNK_BYTES ((size_t)32 << 10)

static bool add_chunk(schema_arena *arena, size_t size)
{
    size_t capacity = size > CHUNK_BYTES ? size : CHUNK_BYTES;
    schema_chunk *chunk = arena->chunks_allowed ? malloc(HEADER + capacity) : NULL;
    if (chunk == NULL)
        return false;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->memory = (char *)chunk + HEADER;
    arena->capacity = capacity;
    arena->used = 0;
    return true;
}

void *aoticache_schema_arena_take(schema_arena *arena, size_t size)
{
    size = (size + 7) / 8 * 8;
    if (size > arena->capacity - arena->used && !add_chunk(arena, size))
        return NULL;
    void *taken = arena->memory + arena->used;
    arena->used += size;
    arena->total += size;
    return taken;
}

void aoticache_schema_arena_release(schema_arena *arena)
{
    while (arena->chunks != NULL) {
        schema_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
}
