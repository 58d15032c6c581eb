/*
 * eager/holder/table: the writer's side: inserting, growing, freeing. Entries are never removed from a table that is in use: a
 * library that is unloaded leaves its entries, which then have no runner, and is loaded again through them.
 *
 * It is not a base/hash_map: calls read it without a lock while one thread inserts, so slots are atomic, entries do not move,
 * and outgrown slots are freed when no call can be reading them any more.
 */
#include "eager/holder/holder_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Entries are stored consecutively in chunks: few pages, and large ones if there are many entries. */
#define FIRST_CHUNK_BYTES 4096
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
#define FIRST_SLOTS 16

struct aoticache_table_chunk {
    struct aoticache_table_chunk *next;
    size_t bytes, used;
};

/* Allocates zeroed pages: from 2 MiB on huge ones, of which the processor's TLB covers more memory. */
static void *allocate_pages(size_t bytes)
{
    if (bytes < HUGE_PAGE_BYTES)
        return calloc(1, bytes);
    bytes = (bytes + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1);
    void *memory = aligned_alloc(HUGE_PAGE_BYTES, bytes);
    if (memory == NULL)
        return NULL;
    int saved = errno;
    madvise(memory, bytes, MADV_HUGEPAGE); /* a hint: if it has no effect, access is only slower */
    errno = saved;
    return memset(memory, 0, bytes);
}

/* ---- entries ---- */

static void *allocate_bytes(aoticache_table *table, size_t bytes)
{
    struct aoticache_table_chunk *chunk = table->chunks;
    bytes = (bytes + 7) & ~(size_t)7;
    if (chunk == NULL || chunk->bytes - chunk->used < bytes) {
        size_t wanted = chunk == NULL ? FIRST_CHUNK_BYTES : 2 * chunk->bytes;
        wanted = wanted > HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : wanted;
        while (wanted < sizeof *chunk + bytes)
            wanted *= 2;
        struct aoticache_table_chunk *fresh = allocate_pages(wanted);
        if (fresh == NULL)
            return NULL;
        *fresh = (struct aoticache_table_chunk){.next = chunk, .bytes = wanted, .used = sizeof *fresh};
        table->chunks = chunk = fresh;
    }
    chunk->used += bytes;
    return (char *)chunk + chunk->used - bytes;
}

/* ---- slots ---- */

static void release_slots(aoticache_retired *retired)
{
    free((char *)retired - offsetof(aoticache_table_slots, retired));
}

/* Allocates slots. count: a power of two. */
static aoticache_table_slots *allocate_slots(size_t count)
{
    aoticache_table_slots *made = allocate_pages(sizeof *made + count * sizeof made->slot[0]);
    if (made != NULL)
        made->mask = count - 1;
    return made;
}

/* Writes the hash first: a reader that sees the entry sees its hash. */
static void place(aoticache_table_slots *slots, uint64_t hash, aoticache_table_entry *entry)
{
    uint64_t i = hash & slots->mask;
    while (atomic_load_explicit(&slots->slot[i].entry, memory_order_relaxed) != NULL)
        i = (i + 1) & slots->mask;
    atomic_store_explicit(&slots->slot[i].hash, hash, memory_order_relaxed);
    atomic_store(&slots->slot[i].entry, entry);
}

static void copy_slots(aoticache_table_slots *to, aoticache_table_slots *from)
{
    for (uint64_t i = 0; i <= from->mask; i++) {
        aoticache_table_entry *entry = atomic_load_explicit(&from->slot[i].entry, memory_order_relaxed);
        if (entry != NULL)
            place(to, atomic_load_explicit(&from->slot[i].hash, memory_order_relaxed), entry);
    }
}

/* Reserves space. This and the following functions: under holder->lock; false or NULL without memory. */
static bool table_reserve(aoticache_table *table, size_t entries)
{
    aoticache_table_slots *old = atomic_load(&table->slots);
    size_t wanted = FIRST_SLOTS;
    while (wanted / 2 < entries && wanted < SIZE_MAX / 64)
        wanted *= 2;
    if (old != NULL && old->mask + 1 >= wanted)
        return true;
    aoticache_table_slots *grown = allocate_slots(wanted);
    if (grown == NULL)
        return false;
    if (old != NULL)
        copy_slots(grown, old);
    atomic_store(&table->slots, grown);
    if (old != NULL)
        aoticache_epoch_retire(&old->retired, release_slots);
    return true;
}

aoticache_table_entry *aoticache_table_prepare(aoticache_table *table, const aoticache_packed *packed,
                                               aoticache_known_kernel_hot *known, void *detail)
{
    size_t bytes = packed->count * sizeof packed->words[0];
    if (!table_reserve(table, table->used + 1))
        return NULL;
    aoticache_table_entry *entry = allocate_bytes(table, sizeof *entry + bytes);
    if (entry == NULL)
        return NULL;
    entry->own.detail = detail;
    atomic_init(&entry->known, known != NULL ? known : &entry->own);
    entry->count = packed->count;
    memcpy(entry->words, packed->words, bytes);
    return entry;
}

void aoticache_table_publish(aoticache_table *table, const aoticache_packed *packed, aoticache_table_entry *entry)
{
    place(atomic_load(&table->slots), packed->hash, entry);
    table->used++;
}

aoticache_table_entry *aoticache_table_insert(aoticache_table *table, const aoticache_packed *packed,
                                              aoticache_known_kernel_hot *known, void *detail)
{
    aoticache_table_entry *entry = aoticache_table_prepare(table, packed, known, detail);
    if (entry != NULL)
        aoticache_table_publish(table, packed, entry);
    return entry;
}

void aoticache_table_free(aoticache_table *table)
{
    free(atomic_load(&table->slots));
    for (struct aoticache_table_chunk *chunk = table->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    atomic_store(&table->slots, NULL);
    table->used = 0;
    table->chunks = NULL;
}
