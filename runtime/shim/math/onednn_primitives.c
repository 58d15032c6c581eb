/*
 * shim/math/onednn_primitives: caches oneDNN's primitives for later calls with the same shape.
 *
 * oneDNN generates code for one operation with one shape, which takes 0.1 to 1 milliseconds.
 */
#include "runtime/shim/math/onednn.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

void aoticache_shim_onednn_free_step(const struct onednn_library *onednn, struct onednn_step *step)
{
    if (step->primitive != NULL)
        onednn->primitive_destroy(step->primitive);
    aoticache_shim_onednn_describe_free(step->scratch);
    *step = (struct onednn_step){0};
}

bool aoticache_shim_onednn_make_step(const struct onednn_library *onednn, void *primitive_desc,
                                     struct onednn_prepared *p, struct onednn_step *step)
{
    const void *scratch = onednn->primitive_desc_query_md(primitive_desc, ONEDNN_QUERY_SCRATCHPAD, 0);
    bool made = scratch != NULL && (step->scratch = aoticache_shim_onednn_describe_same(scratch)) != NULL &&
                onednn->primitive_create(&step->primitive, primitive_desc) == 0;
    onednn->primitive_desc_destroy(primitive_desc);
    size_t bytes = made ? onednn->memory_desc_get_size(step->scratch) : 0;
    if (bytes > p->scratch_bytes)
        p->scratch_bytes = bytes;
    return made;
}

bool aoticache_shim_onednn_is_fast(const struct onednn_library *onednn, const void *primitive_desc)
{
    const char *name = NULL;
    return onednn->primitive_desc_query(primitive_desc, ONEDNN_QUERY_IMPLEMENTATION, 0, &name) == 0 && name != NULL &&
           strstr(name, "ref") == NULL;
}

void *aoticache_shim_onednn_make_attributes(const struct onednn_library *onednn, bool adds_output,
                                            const struct shim_unary *unary)
{
    enum { SCRATCHPAD_OF_CALLER = 1 };
    void *attributes = NULL, *post_ops = NULL;
    const bool has_unary = unary != NULL && unary->kind != SHIM_UNARY_NONE;
    if (onednn->primitive_attr_create(&attributes) != 0)
        return NULL;
    bool made = onednn->primitive_attr_set_scratchpad_mode(attributes, SCRATCHPAD_OF_CALLER) == 0;
    if (made && (adds_output || has_unary)) {
        made = onednn->post_ops_create(&post_ops) == 0 &&
               (!adds_output || aoticache_shim_onednn_append_sum(post_ops)) &&
               (!has_unary || aoticache_shim_onednn_append_unary(post_ops, unary)) &&
               onednn->primitive_attr_set_post_ops(attributes, post_ops) == 0;
        if (post_ops != NULL)
            onednn->post_ops_destroy(post_ops);
    }
    if (made)
        return attributes;
    onednn->primitive_attr_destroy(attributes);
    return NULL;
}

struct onednn_prepared *aoticache_shim_onednn_begin(size_t bytes, const struct onednn_key *key,
                                                    void (*free)(const struct onednn_library *onednn,
                                                                 struct onednn_prepared *p))
{
    struct onednn_prepared *p = calloc(1, bytes);
    if (p == NULL)
        return NULL;
    p->key = *key;
    p->free = free;
    atomic_init(&p->refs, 1);
    return p;
}

void aoticache_shim_onednn_unref(const struct onednn_library *onednn, struct onednn_prepared *p)
{
    if (p != NULL && atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
        p->free(onednn, p);
}

/* ---- the cache: a table with a few slots for each hash; the least recently used is evicted ---- */

enum { SETS = 64, WAYS = 4 };

static struct onednn_prepared *table[SETS][WAYS];
static uint64_t table_clock;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_table(void)
{
    pthread_mutex_lock(&table_lock);
}

static void unlock_table(void)
{
    pthread_mutex_unlock(&table_lock);
}

/* Makes a fork wait until no thread is using the table, which takes only as long as a lookup. */
static void guard_forks(void)
{
    pthread_atfork(lock_table, unlock_table, unlock_table);
}

static int set_of(const struct onednn_key *key)
{
    uint64_t hash = 0;
    for (int i = 0; i < ONEDNN_KEY_NUMBERS; i++)
        hash = (hash ^ (uint64_t)key->numbers[i]) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
    return (int)(hash >> 40) & (SETS - 1);
}

struct onednn_prepared *aoticache_shim_onednn_find(const struct onednn_key *key)
{
    static pthread_once_t forks_once = PTHREAD_ONCE_INIT;
    pthread_once(&forks_once, guard_forks);
    struct onednn_prepared **set = table[set_of(key)], *found = NULL;
    lock_table();
    for (int i = 0; i < WAYS && found == NULL; i++)
        if (set[i] != NULL && memcmp(&set[i]->key, key, sizeof *key) == 0)
            found = set[i];
    if (found != NULL) {
        found->used = ++table_clock;
        atomic_fetch_add_explicit(&found->refs, 1, memory_order_relaxed);
    }
    unlock_table();
    return found;
}

void aoticache_shim_onednn_keep(const struct onednn_library *onednn, struct onednn_prepared *p)
{
    struct onednn_prepared **set = table[set_of(&p->key)], *dropped;
    int place = 0;
    lock_table();
    for (int i = 0; i < WAYS; i++) {
        if (set[i] != NULL && memcmp(&set[i]->key, &p->key, sizeof p->key) == 0) {
            place = i;
            break;
        }
        if (set[place] != NULL && (set[i] == NULL || set[i]->used < set[place]->used))
            place = i;
    }
    dropped = set[place];
    p->used = ++table_clock;
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    set[place] = p;
    unlock_table();
    aoticache_shim_onednn_unref(onednn, dropped);
}

/* ---- running ---- */

bool aoticache_shim_onednn_run_step(const struct onednn_library *onednn, const struct onednn_step *step, void *stream,
                                    char *scratch, int count, const int names[], const void *const descriptors[],
                                    void *const data[])
{
    struct onednn_argument arguments[ONEDNN_MOST_ARGUMENTS + 1];
    int made = 0, status = 0;
    for (; made < count && status == 0; made += status == 0) {
        arguments[made].name = names[made];
        status = onednn->memory_create(&arguments[made].memory, descriptors[made], onednn->engine, data[made]);
    }
    if (status == 0 && scratch != NULL && onednn->memory_desc_get_size(step->scratch) > 0) {
        arguments[made].name = ONEDNN_SCRATCHPAD;
        status = onednn->memory_create(&arguments[made].memory, step->scratch, onednn->engine, scratch);
        made += status == 0;
    }
    if (status == 0)
        status = onednn->primitive_execute(step->primitive, stream, made, arguments);
    while (made > 0)
        onednn->memory_destroy(arguments[--made].memory);
    return status == 0;
}
