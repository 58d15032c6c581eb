/*
 * eager/holder/pack: the metadata of a call's arguments as flat words, hashed: what a table is probed with.
 *
 * Private. The words are for this process alone: equal words mean equal metadata, and nothing else is promised about
 * them. Data pointers and handles are not metadata.
 */
#ifndef AOTICACHE_EAGER_HOLDER_PACK_H
#define AOTICACHE_EAGER_HOLDER_PACK_H

#include "cache/request/request.h"
#include "eager/value.h"
#include "loader/loader.h"

#define AOTICACHE_PACK_MAX_WORDS 512

typedef struct aoticache_packed {
    uint64_t hash;
    uint32_t count;
    bool requires_grad; /* some tensor does */
    uint64_t words[AOTICACHE_PACK_MAX_WORDS];
} aoticache_packed;

/*
 * false where the arguments cannot be a kernel's: a generator or object among them, a layout that is not strided, a dtype
 * or device type that is none, more words than there are. Allocates nothing.
 */
bool aoticache_pack(const aoticache_value *arguments, size_t count, aoticache_packed *ret_packed);

/* The tensors among the arguments, in order, absent ones left out: the inputs of the library. False: more than `capacity`. */
bool aoticache_pack_inputs(const aoticache_value *arguments, size_t count, AtenTensorHandle *ret_inputs, size_t capacity,
                           size_t *ret_count);

#endif
