/*
 * eager/holder/table: from packed metadata to what serves it. Open addressing; readers take no lock and write nothing; one
 * writer at a time (the holder's mutex). The cost of a probe is that of two or three cache lines, with one entry as with
 * a hundred thousand.
 *
 * Private. Readers must be inside a section (eager/holder/epoch.h) from the probe until they have done with what they got.
 */
#ifndef AOTICACHE_EAGER_HOLDER_TABLE_H
#define AOTICACHE_EAGER_HOLDER_TABLE_H

#include "eager/holder/pack.h"
#include "eager/holder/epoch.h"
#include "loader/runner/runner.h"

/* A library that serves entries. */
typedef struct aoticache_unit {
    _Atomic(aoticache_runner *) runner; /* NULL: not loaded. Unloading: store NULL (seq_cst), retire, then unref */
    uint32_t number;                    /* of its uses (eager/holder/uses.h); set before a runner is */
    atomic_uint_least64_t last_tick;    /* the holder's clock at the last use */
    void *detail;                       /* the holder's: all that a hit does not need */
} aoticache_unit;

/* Written once, then read by anybody as long as the table lives. */
typedef struct aoticache_table_entry {
    _Atomic(aoticache_unit *) unit; /* own, or another's: a library for symbolic shapes serves many entries */
    aoticache_unit own;   /* here, so that a hit of an entry that was long not used waits for no other cache line */
    uint32_t count;
    uint64_t words[];
} aoticache_table_entry;

typedef struct aoticache_table_slots aoticache_table_slots;

/* Zero it to begin. All but slots is the writer's. */
typedef struct aoticache_table {
    _Atomic(aoticache_table_slots *) slots;
    size_t used;
    struct aoticache_table_chunk *chunks; /* what entries lie in, the newest first */
} aoticache_table;

struct aoticache_table_slots {
    aoticache_retired retired;
    uint64_t mask;
    struct aoticache_table_slot {
        atomic_uint_least64_t hash;                 /* of entry; 0 means nothing */
        _Atomic(aoticache_table_entry *) entry;     /* NULL: free, and the end of a chain */
    } slot[];
};

/* The entry for this metadata, NULL where there is none. */
static inline aoticache_table_entry *aoticache_table_find(const aoticache_table *table, const aoticache_packed *packed)
{
    const aoticache_table_slots *slots = atomic_load(&table->slots);
    if (slots == NULL)
        return NULL;
    for (uint64_t i = packed->hash & slots->mask;; i = (i + 1) & slots->mask) {
        aoticache_table_entry *entry = atomic_load(&slots->slot[i].entry);
        if (entry == NULL)
            return NULL;
        if (atomic_load_explicit(&slots->slot[i].hash, memory_order_relaxed) == packed->hash &&
            entry->count == packed->count &&
            __builtin_memcmp(entry->words, packed->words, packed->count * sizeof packed->words[0]) == 0)
            return entry;
    }
}

/* All of these under the holder's mutex. False, NULL: without memory. */
bool aoticache_table_reserve(aoticache_table *table, size_t entries);
/*
 * The metadata must not be there yet. unit: NULL for the entry's own, which begins zeroed but for detail. Readers may find
 * the entry at once.
 */
aoticache_table_entry *aoticache_table_insert(aoticache_table *table, const aoticache_packed *packed,
                                              aoticache_unit *unit, void *detail);
/* The same in two steps: readers find the entry from publish on, which must be the next change of the table. */
aoticache_table_entry *aoticache_table_prepare(aoticache_table *table, const aoticache_packed *packed,
                                               aoticache_unit *unit, void *detail);
void aoticache_table_publish(aoticache_table *table, const aoticache_packed *packed, aoticache_table_entry *entry);
/* Frees slots and entries at once: nobody may be reading. */
void aoticache_table_free(aoticache_table *table);

#endif
