/*
 * cache/pins/internal: what the files of pins and tags share: one key's in memory, its file, and the way from all
 * files to a new index.
 *
 * Private. file.c knows the file, load.c all of them, pins.c has the public functions.
 */
#ifndef AOTICACHE_CACHE_PINS_INTERNAL_H
#define AOTICACHE_CACHE_PINS_INTERNAL_H

#include "cache/store/directory.h"
#include "cache/pins/pins.h"
#include "index/index.h"

#define AOTICACHE_MARK_NAME_BYTES AOTICACHE_DIGEST_HEX_BYTES /* the file's name: the key's 64 digits */

/* Tags are sorted and differ from each other. */
typedef struct aoticache_pin_state {
    aoticache_key key;
    bool is_pinned;
    char tags[AOTICACHE_MAX_TAGS][AOTICACHE_MAX_TAG_BYTES];
    size_t tag_count;
} aoticache_pin_state;

/* Whether it says nothing: such a mark has no file. */
bool aoticache_pin_state_is_empty(const aoticache_pin_state *state);
/* Puts a valid tag in its place. INVALID where there are too many. */
aoticache_status aoticache_pin_state_add_tag(aoticache_pin_state *state, const char *tag, aoticache_error *ret_error);
void aoticache_pin_state_remove_tag(aoticache_pin_state *state, const char *tag);

/*
 * Returns: OK; NOT_FOUND (no file); CORRUPT (it cannot be used: damaged, a link, another's, for
 * another key); IO; NO_MEMORY.
 */
aoticache_status aoticache_pin_file_read(aoticache_directory *directory, const aoticache_key *key,
                                          aoticache_pin_state *ret_state, aoticache_error *ret_error);
/*
 * Replaces each file atomically, or removes it where the mark is empty; durable on OK. Where it fails some may have
 * been replaced. OK, IO, DENIED, NO_MEMORY.
 */
aoticache_status aoticache_pin_files_write(aoticache_directory *directory, int folder_fd,
                                            const aoticache_pin_state *const *states, size_t count,
                                            aoticache_error *ret_error);

/*
 * Records all marks of the store in an index. A file that cannot be used is moved to quarantine/, with one warning. The
 * caller holds the store's lock exclusively, or is alone with the index.
 * Returns: OK, IO, DENIED, NO_MEMORY, LOCKED.
 */
aoticache_status aoticache_cache_load_pins(aoticache_directory *directory, aoticache_index *index,
                                            aoticache_error *ret_error);

#endif
