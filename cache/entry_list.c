/*
 * cache/entry_list: fills a page of copied entries from the index, then passes them to the callback one by one.
 */
#include "cache/entry_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"

#define PAGE 1024

static char *append_text(char **cursor, const char *text)
{
    char *start = *cursor;
    size_t size = text != NULL ? strlen(text) + 1 : 1;
    if (text != NULL)
        memcpy(start, text, size);
    else
        *start = '\0';
    *cursor += size;
    return start;
}

static size_t text_size(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 1;
}

bool aoticache_entry_list_copy(const aoticache_index_entry *from, aoticache_listed_entry *to)
{
    size_t size = text_size(from->op) + text_size(from->device) + text_size(from->description) +
                  text_size(from->producer) + text_size(from->guard);
    char *cursor = malloc(size);
    if (cursor == NULL)
        return false;
    *to = (aoticache_listed_entry){
        .entry = {.key = from->key,
                  .artifact = from->artifact,
                  .library = from->library,
                  .requirements = aoticache_requirements_from_bytes(from->requirements),
                  .bytes = from->bytes,
                  .compile_ns = from->compile_ns,
                  .created_ns = from->created_ns,
                  .last_used_ns = from->last_used_ns,
                  .uses = from->uses},
        .entry_id = from->entry_id,
        .texts = cursor,
    };
    to->entry.op = append_text(&cursor, from->op);
    to->entry.device = append_text(&cursor, from->device);
    to->entry.description = append_text(&cursor, from->description);
    to->entry.producer = append_text(&cursor, from->producer);
    to->entry.guard = append_text(&cursor, from->guard);
    return true;
}

/* ---- iterating ---- */

struct page {
    aoticache_listed_entry entries[PAGE];
    size_t count;
    bool is_out_of_memory;
};

static bool add_entry(void *user, const aoticache_index_entry *entry)
{
    struct page *page = user;
    page->is_out_of_memory = !aoticache_entry_list_copy(entry, &page->entries[page->count]);
    page->count += page->is_out_of_memory ? 0 : 1;
    return !page->is_out_of_memory;
}

static void clear_page(struct page *page)
{
    for (size_t i = 0; i < page->count; i++)
        free(page->entries[i].texts);
    page->count = 0;
}

static aoticache_status read_page(aoticache_cache *cache, const char *op, const aoticache_index_place *after,
                                  struct page *page, aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_status status = AOTICACHE_OK;
    if (index == NULL)
        return AOTICACHE_OK;
    do {
        clear_page(page);
        status = aoticache_index_list(index, op, after->op != NULL ? after : NULL, PAGE, add_entry, page, ret_error);
    } while (aoticache_cache_recovered(cache, status, &index));
    if (status == AOTICACHE_OK && page->is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of entries");
    return status;
}

/* Must be called before the callback, which may take the texts. */
static bool remember_place(const struct page *page, aoticache_index_place *after)
{
    const aoticache_listed_entry *last = &page->entries[page->count - 1];
    char *op = strdup(last->entry.op);
    if (op == NULL)
        return false;
    free((char *)after->op);
    *after = (aoticache_index_place){.op = op, .entry_id = last->entry_id};
    return true;
}

aoticache_status aoticache_entries_walk(aoticache_cache *cache, const char *op, aoticache_entry_list_fn callback,
                                        void *user, aoticache_error *ret_error)
{
    aoticache_index_place after = {.op = NULL};
    aoticache_status status = AOTICACHE_OK;
    struct page *page = calloc(1, sizeof *page);
    bool continues = page != NULL;
    if (page == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of entries");
    while (status == AOTICACHE_OK && continues) {
        status = read_page(cache, op, &after, page, ret_error);
        continues = page->count == PAGE;
        if (status == AOTICACHE_OK && continues && !remember_place(page, &after))
            status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of entries");
        for (size_t i = 0; status == AOTICACHE_OK && i < page->count; i++) {
            if (callback(user, &page->entries[i]))
                continue;
            continues = false;
            break;
        }
        clear_page(page);
    }
    free((char *)after.op);
    free(page);
    return status;
}

/* ---- keeping ---- */

bool aoticache_entry_list_add(aoticache_entry_list *list, aoticache_listed_entry *entry)
{
    if (!AOTICACHE_ARRAY_RESERVE(list->entries, list->capacity, list->count + 1))
        return false;
    list->entries[list->count++] = *entry;
    entry->texts = NULL;
    return true;
}

void aoticache_entry_list_free(aoticache_entry_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->entries[i].texts);
    free(list->entries);
    *list = (aoticache_entry_list){.entries = NULL};
}
