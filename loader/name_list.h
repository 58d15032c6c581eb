/*
 * loader/name_list: growing lists of borrowed names, and how they are written into a message.
 *
 * Private.
 */
#ifndef AOTICACHE_LOADER_NAME_LIST_H
#define AOTICACHE_LOADER_NAME_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Zero it to begin. The names are borrowed, the array is the list's. */
typedef struct aoticache_name_list {
    size_t count, capacity;
    const char **names;
} aoticache_name_list;

/* false: out of memory, the list is as before. */
bool aoticache_name_list_add(aoticache_name_list *list, const char *name);
void aoticache_name_list_sort(aoticache_name_list *list);
void aoticache_name_list_free(aoticache_name_list *list);

/* What fits into the message of an error beside its other words. */
#define AOTICACHE_NAME_LIST_TEXT_BYTES 640

/* "a, b, c"; where not all fit "a, b and 7 more". */
void aoticache_name_list_format(const aoticache_name_list *list, char ret_text[AOTICACHE_NAME_LIST_TEXT_BYTES]);

#endif
