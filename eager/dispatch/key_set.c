/*
 * eager/dispatch/key_set: sets of dispatch keys: what is in them, the highest, the place in a table, and their text.
 * Alias keys are in key_set_alias.c, this thread's sets in dispatch_local.c.
 */
#include "eager/dispatch/key_set_inline.h"

#include <string.h>

#define NUMBER_OF_BITS (AOTICACHE_DISPATCH_BACKENDS + AOTICACHE_DISPATCH_FUNCTIONALITIES - 1) /* Undefined has none */
#define ALL_BITS ((UINT64_C(1) << NUMBER_OF_BITS) - 1)

/* Blocks before functionality n each take 15 places more than one. */
#define BLOCK_IS_BEFORE(functionality, number, prefix, first, parsed, n) +((number) < (n))
#define BLOCKS_BEFORE(n) (0 AOTICACHE_DISPATCH_BLOCK_LIST(BLOCK_IS_BEFORE, n))
#define BLOCK_IS(functionality, number, prefix, first, parsed, n) || (number) == (n)
#define HAS_BACKENDS(n) (0 AOTICACHE_DISPATCH_BLOCK_LIST(BLOCK_IS, n))
#define PLACE(name, n) \
    [n] = {(n) + (AOTICACHE_DISPATCH_BACKENDS - 1) * BLOCKS_BEFORE(n), HAS_BACKENDS(n) ? KEY_SET_BACKEND_BITS : 0},

const key_set_place aoticache_key_set_places[KEY_SET_PLACES] = {AOTICACHE_DISPATCH_FUNCTIONALITY_LIST(PLACE)};

_Static_assert(AOTICACHE_DISPATCH_ENTRIES == AOTICACHE_DISPATCH_FUNCTIONALITIES +
                                                 (AOTICACHE_DISPATCH_BACKENDS - 1) *
                                                     BLOCKS_BEFORE(AOTICACHE_DISPATCH_FUNCTIONALITIES),
               "places of a table");

/* 47, which PyTorch names EndOfFunctionalityKeys, has a bit there: FULL_AFTER is made with it. */
#define SET_OF(name, number) [number] = (number) == 0 ? 0 : KEY_SET_BIT((number) + ((number) == 0)),
#define SET_OF_BACKEND(name, backend, number, first) \
    [(first) + 1 + (backend)] = KEY_SET_BIT(number) | UINT64_C(1) << (backend),
#define SETS_OF_BLOCK(functionality, number, prefix, first, parsed, a) \
    [first] = KEY_SET_BIT(number), AOTICACHE_DISPATCH_BACKEND_LIST(SET_OF_BACKEND, number, first)

static const aoticache_key_set sets[AOTICACHE_DISPATCH_KEY_COUNT] = {
    AOTICACHE_DISPATCH_FUNCTIONALITY_LIST(SET_OF)
    [AOTICACHE_DISPATCH_FUNCTIONALITIES] = KEY_SET_BIT(AOTICACHE_DISPATCH_FUNCTIONALITIES),
    AOTICACHE_DISPATCH_BLOCK_LIST(SETS_OF_BLOCK, unused)
};

aoticache_key_set aoticache_key_set_of(aoticache_dispatch_key key)
{
    return (uint32_t)key < AOTICACHE_DISPATCH_KEY_COUNT ? sets[key] : 0;
}

aoticache_key_set aoticache_key_set_full(void)
{
    return ALL_BITS;
}

aoticache_key_set aoticache_key_set_full_after(aoticache_dispatch_key key)
{
    int32_t functionality = aoticache_dispatch_key_functionality(key);
    aoticache_key_set below = (UINT64_C(1) << (functionality + AOTICACHE_DISPATCH_BACKENDS - 1)) - 1;
    return below | KEY_SET_BIT_OF(PythonDispatcher);
}

aoticache_key_set aoticache_key_set_add(aoticache_key_set set, aoticache_dispatch_key key)
{
    return set | aoticache_key_set_of(key);
}

aoticache_key_set aoticache_key_set_remove(aoticache_key_set set, aoticache_dispatch_key key)
{
    return key_set_minus(set, aoticache_key_set_of(key));
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

bool aoticache_key_set_has(aoticache_key_set set, aoticache_dispatch_key key)
{
    aoticache_key_set wanted = aoticache_key_set_of(key);
    return (set & wanted) == wanted;
}

/* The number before that of the first runtime key of a functionality; 0 where it has no backends. */
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

/* A functionality on no backend gives the number before its first runtime key, as in PyTorch. */
aoticache_dispatch_key aoticache_key_set_highest(aoticache_key_set set)
{
    int32_t functionality = (int32_t)key_set_functionality(set);
    int32_t first = first_of_block(functionality);
    if (first == 0)
        return functionality;
    aoticache_key_set backends = set & KEY_SET_BACKEND_BITS;
    return backends == 0 ? first : first + 64 - __builtin_clzll(backends);
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
    size_t size, length; /* length: of all that was appended, also where it did not fit */
};

static void append(struct text *text, const char *word)
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
    append(listing->text, listing->separator);
    append(listing->text, aoticache_dispatch_key_name(key));
    listing->separator = ", ";
    return true;
}

size_t aoticache_key_set_format(aoticache_key_set set, char *ret_text, size_t size)
{
    struct text text = {ret_text, ret_text == NULL ? 0 : size, 0};
    append(&text, "DispatchKeySet(");
    aoticache_key_set_list(set, append_key, &(struct listing){&text, ""});
    append(&text, ")");
    if (text.size > 0)
        ret_text[text.length < text.size ? text.length : text.size - 1] = '\0';
    return text.length;
}
