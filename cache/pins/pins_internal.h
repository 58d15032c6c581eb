/*
 * cache/pins/pins_internal: the pins and tags of one key in memory, their file, and their rows in the index (file.c).
 */
#ifndef AOTICACHE_CACHE_PINS_INTERNAL_H
#define AOTICACHE_CACHE_PINS_INTERNAL_H

#include "cache/store/directory.h"
#include "cache/pins/pins.h"
#include "index/index.h"

#define AOTICACHE_PIN_FILE_NAME_BYTES AOTICACHE_DIGEST_HEX_BYTES /* the file's name: the key's 64 digits */

/* Tags are sorted and differ from each other. */
typedef struct aoticache_pin_state {
    aoticache_key key;
    bool is_pinned;
    char tags[AOTICACHE_MAX_TAGS][AOTICACHE_MAX_TAG_BYTES];
    size_t tag_count;
} aoticache_pin_state;

/* Adds a valid tag at its sorted position. INVALID if there are too many. */
aoticache_status aoticache_pin_state_add_tag(aoticache_pin_state *state, const char *tag, aoticache_error *ret_error);
void aoticache_pin_state_remove_tag(aoticache_pin_state *state, const char *tag);

/*
 * Returns: OK; NOT_FOUND (no file); CORRUPT (it cannot be used: damaged, a link, owned by another user, for
 * another key); IO; NO_MEMORY.
 */
aoticache_status aoticache_pin_file_read(aoticache_directory *directory, const aoticache_key *key,
                                         aoticache_pin_state *ret_state, aoticache_error *ret_error);
/*
 * Replaces each file atomically, or removes it if the state is empty; durable on OK. On failure some may have been replaced.
 * Returns: OK, IO, DENIED, NO_MEMORY.
 */
aoticache_status aoticache_pin_files_write(aoticache_directory *directory, int directory_fd,
                                           const aoticache_pin_state *const *states, size_t count,
                                           aoticache_error *ret_error);

/* Writes the states to the index, in one transaction. OK, IO, LOCKED, CORRUPT, NO_MEMORY. */
aoticache_status aoticache_pin_states_record(aoticache_index *index, const aoticache_pin_state *const *states,
                                             size_t count, aoticache_error *ret_error);

/*
 * Records all pins and tags of the store in an index. A file that cannot be used is moved to quarantine/, with one warning.
 * The caller holds the store's lock exclusively, or is the only user of the index.
 * Returns: OK, IO, DENIED, NO_MEMORY, LOCKED.
 */
aoticache_status aoticache_cache_load_pins(aoticache_directory *directory, aoticache_index *index,
                                           aoticache_error *ret_error);

#endif
