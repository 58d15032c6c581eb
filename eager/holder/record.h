/*
 * eager/holder/record: the list of what a program asked for, which `aoticache warm` compiles elsewhere or beforehand.
 *
 * Private. One line per different request, docs/warm.md has its form; requests that differ in their environment alone
 * are one. What a line cannot say (the data of constants) makes it a comment. Lines that the file already has are not
 * written again.
 *
 * Thread safety: add() from any thread. Any number of processes may add to one file, each line by one write. Fork
 * safety: a child goes on with a recorder of its parent, whatever the parent's threads were doing.
 */
#ifndef AOTICACHE_EAGER_HOLDER_RECORD_H
#define AOTICACHE_EAGER_HOLDER_RECORD_H

#include "cache/request/request.h"

typedef struct aoticache_recorder aoticache_recorder;

/*
 * Creates the file where it is missing.
 * Returns: OK, INVALID (not a regular file), NO_MEMORY, DENIED, IO.
 */
aoticache_status aoticache_recorder_open(const char *path, aoticache_recorder **ret_recorder,
                                         aoticache_error *ret_error);
/* NULL is allowed. No call may be using it. */
void aoticache_recorder_close(aoticache_recorder *recorder);

/* Never fails the caller: what cannot be written is left out. A recorder of NULL records nothing. Preserves errno. */
void aoticache_recorder_add(aoticache_recorder *recorder, const aoticache_request *request);

#endif
