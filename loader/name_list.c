/*
 * loader/name_list: see name_list.h.
 */
#include "loader/name_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool aoticache_name_list_add(aoticache_name_list *list, const char *name)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity > 0 ? list->capacity * 2 : 32;
        const char **names = reallocarray(list->names, capacity, sizeof *names);
        if (names == NULL)
            return false;
        list->names = names;
        list->capacity = capacity;
    }
    list->names[list->count++] = name;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void aoticache_name_list_sort(aoticache_name_list *list)
{
    if (list->count > 1)
        qsort(list->names, list->count, sizeof *list->names, by_name);
}

void aoticache_name_list_free(aoticache_name_list *list)
{
    free(list->names);
    *list = (aoticache_name_list){0};
}

void aoticache_name_list_format(const aoticache_name_list *list, char ret_text[AOTICACHE_NAME_LIST_TEXT_BYTES])
{
    const size_t room_for_more = sizeof " and 18446744073709551615 more";
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < list->count; i++) {
        size_t needed = strlen(list->names[i]) + (i > 0 ? 2 : 0);
        size_t reserved = i + 1 < list->count ? room_for_more : 1;
        if (used + needed + reserved > AOTICACHE_NAME_LIST_TEXT_BYTES) {
            snprintf(ret_text + used, AOTICACHE_NAME_LIST_TEXT_BYTES - used, "%s%zu more", i > 0 ? " and " : "",
                     list->count - i);
            return;
        }
        used += (size_t)snprintf(ret_text + used, AOTICACHE_NAME_LIST_TEXT_BYTES - used, "%s%s", i > 0 ? ", " : "",
                                 list->names[i]);
    }
}
