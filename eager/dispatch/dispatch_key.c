/*
 * eager/dispatch/dispatch_key: what a single dispatch key is: its name, its kind, its functionality and backend, its
 * place in an operator's table. Reading names is in dispatch_key_parse.c.
 */
#include "eager/dispatch/key_set_inline.h"

/* PyTorch prints a name also for the number before the first runtime key of a block: a functionality on no backend. */
#define NAME_OF(name, number) [number] = #name,
#define NAME_OF_BACKEND(name, backend, prefix, first) [(first) + 1 + (backend)] = #prefix #name,
#define NAMES_OF_BLOCK(functionality, number, prefix, first, parsed, a) \
    [first] = #prefix "Undefined", AOTICACHE_DISPATCH_BACKEND_LIST(NAME_OF_BACKEND, prefix, first)

static const char *const names[AOTICACHE_DISPATCH_KEY_COUNT] = {
    AOTICACHE_DISPATCH_FUNCTIONALITY_LIST(NAME_OF)
    AOTICACHE_DISPATCH_BLOCK_LIST(NAMES_OF_BLOCK, unused)
    AOTICACHE_DISPATCH_ALIAS_LIST(NAME_OF)
};

/* The numbers before the first runtime key of a block, by functionality. */
struct block {
    int32_t functionality, first;
};
#define BLOCK(name, number, prefix, first, parsed, a) {number, first},
static const struct block blocks[] = {AOTICACHE_DISPATCH_BLOCK_LIST(BLOCK, unused)};
#define BLOCKS (sizeof blocks / sizeof blocks[0])

const char *aoticache_dispatch_key_name(aoticache_dispatch_key key)
{
    const char *name = (uint32_t)key < AOTICACHE_DISPATCH_KEY_COUNT ? names[key] : NULL;
    return name != NULL ? name : "UnknownUnknown";
}

bool aoticache_dispatch_key_is_alias(aoticache_dispatch_key key)
{
    return key >= AOTICACHE_DISPATCH_KEY_Autograd &&
           key <= AOTICACHE_DISPATCH_KEY_CompositeExplicitAutogradNonFunctional;
}

/* The block that a runtime key, or the number before the first, is in; NULL: none. */
static const struct block *block_of(aoticache_dispatch_key key)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (key >= blocks[i].first && key <= blocks[i].first + AOTICACHE_DISPATCH_BACKENDS)
            return &blocks[i];
    return NULL;
}

static bool has_backends(int32_t functionality)
{
    return aoticache_key_set_places[functionality].backend_mask != 0;
}

bool aoticache_dispatch_key_is_runtime(aoticache_dispatch_key key)
{
    if (key >= 0 && key < AOTICACHE_DISPATCH_FUNCTIONALITIES)
        return !has_backends(key);
    const struct block *block = block_of(key);
    return block != NULL && key != block->first;
}

aoticache_dispatch_key aoticache_dispatch_key_functionality(aoticache_dispatch_key key)
{
    if (key >= 0 && key <= AOTICACHE_DISPATCH_FUNCTIONALITIES)
        return key;
    const struct block *block = block_of(key);
    return block != NULL ? block->functionality : AOTICACHE_DISPATCH_KEY_Undefined;
}

aoticache_dispatch_key aoticache_dispatch_key_of(aoticache_dispatch_key functionality, int32_t backend)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i].functionality == functionality && backend >= 0 && backend < AOTICACHE_DISPATCH_BACKENDS)
            return blocks[i].first + 1 + backend;
    return AOTICACHE_DISPATCH_KEY_Undefined;
}

int32_t aoticache_dispatch_key_backend(aoticache_dispatch_key key)
{
    const struct block *block = block_of(key);
    return block != NULL ? key - block->first - 1 : -1;
}

int32_t aoticache_dispatch_num_backends(void)
{
    return AOTICACHE_DISPATCH_BACKENDS;
}

int32_t aoticache_dispatch_num_entries(void)
{
    return AOTICACHE_DISPATCH_ENTRIES;
}

int32_t aoticache_dispatch_key_entry(aoticache_dispatch_key key)
{
    return aoticache_dispatch_key_is_runtime(key) ? key_set_entry(aoticache_key_set_of(key)) : -1;
}

aoticache_dispatch_key aoticache_dispatch_key_of_entry(int32_t entry)
{
    if (entry < 0 || entry >= AOTICACHE_DISPATCH_ENTRIES)
        return AOTICACHE_DISPATCH_KEY_Undefined;
    int32_t functionality = AOTICACHE_DISPATCH_FUNCTIONALITIES - 1;
    while (aoticache_key_set_places[functionality].offset > entry)
        functionality--;
    if (!has_backends(functionality))
        return functionality;
    return aoticache_dispatch_key_of(functionality, entry - aoticache_key_set_places[functionality].offset);
}

void aoticache_dispatch_key_list(aoticache_dispatch_key_fn callback, void *user)
{
    if (callback == NULL)
        return;
    for (aoticache_dispatch_key key = 0; key < AOTICACHE_DISPATCH_KEY_COUNT; key++) {
        bool is_key = key < AOTICACHE_DISPATCH_FUNCTIONALITIES || aoticache_dispatch_key_is_runtime(key) ||
                      aoticache_dispatch_key_is_alias(key);
        if (is_key && !callback(user, key))
            return;
    }
}
