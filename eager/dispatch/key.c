/*
 * eager/dispatch/key: single dispatch keys: name, kind, functionality and backend, entry in an operator's table; and sets of
 * keys: members, the highest key, its entry in a table, and text. key_parse.c reads names; alias keys are in key_alias.c, a
 * thread's sets in thread.c.
 */
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/eager_face.h"
#include "eager/dispatch/keys.h"

#include <string.h>

/* ---- one key ---- */

/* PyTorch prints a name also for the number before the first runtime key of a block: a functionality on no backend. */
#define NAME_OF(name, number) [number] = #name,
#define NAME_OF_BACKEND(name, backend, prefix, first) [(first) + 1 + (backend)] = #prefix #name,
#define NAMES_OF_BLOCK(functionality, number, prefix, first, parsed, a) \
    [first] = #prefix "Undefined", AOTICACHE_DISPATCH_BACKEND_LIST(NAME_OF_BACKEND, prefix, first)

static const char *const names[AOTICACHE_DISPATCH_KEY_COUNT] = {AOTICACHE_DISPATCH_FUNCTIONALITY_LIST(
    NAME_OF) AOTICACHE_DISPATCH_BLOCK_LIST(NAMES_OF_BLOCK, unused) AOTICACHE_DISPATCH_ALIAS_LIST(NAME_OF)};

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

/* Returns the block of a runtime key, or of the number before the first one; NULL: none. */
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

/* ---- sets of keys ---- */

#define NUMBER_OF_BITS (AOTICACHE_DISPATCH_BACKENDS + AOTICACHE_DISPATCH_FUNCTIONALITIES - 1) /* Undefined has none */
#define ALL_BITS ((UINT64_C(1) << NUMBER_OF_BITS) - 1)

/* Each block before functionality n takes 15 additional entries. */
#define BLOCK_IS_BEFORE(functionality, number, prefix, first, parsed, n) +((number) < (n))
#define BLOCKS_BEFORE(n) (0 AOTICACHE_DISPATCH_BLOCK_LIST(BLOCK_IS_BEFORE, n))
#define BLOCK_IS(functionality, number, prefix, first, parsed, n) || (number) == (n)
#define HAS_BACKENDS(n) (0 AOTICACHE_DISPATCH_BLOCK_LIST(BLOCK_IS, n))
#define PLACE(name, n) \
    [n] = {(n) + (AOTICACHE_DISPATCH_BACKENDS - 1) * BLOCKS_BEFORE(n), HAS_BACKENDS(n) ? KEY_SET_BACKEND_BITS : 0},

const key_set_place aoticache_key_set_places[KEY_SET_PLACES] = {AOTICACHE_DISPATCH_FUNCTIONALITY_LIST(PLACE)};

_Static_assert(AOTICACHE_DISPATCH_ENTRIES ==
                   AOTICACHE_DISPATCH_FUNCTIONALITIES +
                       (AOTICACHE_DISPATCH_BACKENDS - 1) * BLOCKS_BEFORE(AOTICACHE_DISPATCH_FUNCTIONALITIES),
               "places of a table");

/* 47, PyTorch's EndOfFunctionalityKeys, has a bit in PyTorch, too: FULL_AFTER is made with it. */
#define SET_OF(name, number) [number] = (number) == 0 ? 0 : KEY_SET_BIT((number) + ((number) == 0)),
#define SET_OF_BACKEND(name, backend, number, first) \
    [(first) + 1 + (backend)] = KEY_SET_BIT(number) | UINT64_C(1) << (backend),
#define SETS_OF_BLOCK(functionality, number, prefix, first, parsed, a) \
    [first] = KEY_SET_BIT(number), AOTICACHE_DISPATCH_BACKEND_LIST(SET_OF_BACKEND, number, first)

static const aoticache_key_set sets[AOTICACHE_DISPATCH_KEY_COUNT] = {
    AOTICACHE_DISPATCH_FUNCTIONALITY_LIST(SET_OF)[AOTICACHE_DISPATCH_FUNCTIONALITIES] =
        KEY_SET_BIT(AOTICACHE_DISPATCH_FUNCTIONALITIES),
    AOTICACHE_DISPATCH_BLOCK_LIST(SETS_OF_BLOCK, unused)};

aoticache_key_set aoticache_key_set_of(aoticache_dispatch_key key)
{
    return (uint32_t)key < AOTICACHE_DISPATCH_KEY_COUNT ? sets[key] : 0;
}

aoticache_key_set aoticache_key_set_full(void)
{
    return ALL_BITS;
}

aoticache_key_set aoticache_key_set_add(aoticache_key_set set, aoticache_dispatch_key key)
{
    return set | aoticache_key_set_of(key);
}

aoticache_key_set aoticache_key_set_or(aoticache_key_set a, aoticache_key_set b)
{
    return a | b;
}

aoticache_key_set aoticache_key_set_and(aoticache_key_set a, aoticache_key_set b)
{
    return a & b;
}

aoticache_key_set aoticache_key_set_minus(aoticache_key_set a, aoticache_key_set b)
{
    return key_set_minus(a, b);
}

/* Returns the number before the first runtime key of a functionality; 0 if it has no backends. */
static int32_t first_of_block(int32_t functionality)
{
    switch (functionality) {
#define FIRST_OF_BLOCK(name, number, prefix, first, parsed, a) \
    case number:                                               \
        return first;
        AOTICACHE_DISPATCH_BLOCK_LIST(FIRST_OF_BLOCK, unused)
#undef FIRST_OF_BLOCK
    default:
        return 0;
    }
}

int32_t aoticache_key_set_entry(aoticache_key_set set)
{
    return key_set_entry(set);
}

void aoticache_key_set_list(aoticache_key_set set, aoticache_dispatch_key_fn callback, void *user)
{
    if (callback == NULL)
        return;
    aoticache_key_set left = (set & ALL_BITS) >> (AOTICACHE_DISPATCH_BACKENDS - 1) & ~UINT64_C(1);
    for (; left != 0; left &= left - 1) {
        int32_t functionality = __builtin_ctzll(left), first = first_of_block(functionality);
        if (first == 0 && !callback(user, functionality))
            return;
        if (first == 0)
            continue;
        for (aoticache_key_set backends = set & KEY_SET_BACKEND_BITS; backends != 0; backends &= backends - 1)
            if (!callback(user, first + 1 + __builtin_ctzll(backends)))
                return;
    }
}

struct text {
    char *bytes;
    size_t size, length; /* length: of the whole text, even if it does not fit */
};

static void append_text(struct text *text, const char *word)
{
    size_t length = strlen(word);
    if (text->length + 1 < text->size) {
        size_t room = text->size - text->length - 1;
        memcpy(text->bytes + text->length, word, length < room ? length : room);
    }
    text->length += length;
}

struct listing {
    struct text *text;
    const char *separator;
};

static bool append_key(void *user, aoticache_dispatch_key key)
{
    struct listing *listing = user;
    append_text(listing->text, listing->separator);
    append_text(listing->text, aoticache_dispatch_key_name(key));
    listing->separator = ", ";
    return true;
}

size_t aoticache_key_set_format(aoticache_key_set set, char *ret_text, size_t size)
{
    struct text text = {ret_text, ret_text == NULL ? 0 : size, 0};
    append_text(&text, "DispatchKeySet(");
    aoticache_key_set_list(set, append_key, &(struct listing){&text, ""});
    append_text(&text, ")");
    if (text.size > 0)
        ret_text[text.length < text.size ? text.length : text.size - 1] = '\0';
    return text.length;
}
