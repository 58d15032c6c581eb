/*
 * cache/store/manifest_output: what is kept of the text that a compiler wrote: valid UTF-8, and not more than a manifest should
 * hold; the beginning has the first error, the end the summary, so a long one is cut in the middle.
 */
#include "cache/store/manifest_internal.h"

#include "cache/request/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REMARK_BYTES 64

/* Bytes of the character at `text`, or 0 where it is not UTF-8. */
static size_t character_size(const char *text, size_t left)
{
    for (size_t size = 1; size <= 4 && size <= left; size++)
        if (aoticache_request_is_utf8(text, size))
            return size;
    return 0;
}

/* In place: every byte that belongs to no character becomes '?'. */
static void make_utf8(char *text)
{
    for (size_t left = strlen(text), size; left > 0; text += size, left -= size) {
        size = character_size(text, left);
        if (size == 0) {
            *text = '?';
            size = 1;
        }
    }
}

static bool is_inside_character(const char *text, size_t at)
{
    return ((unsigned char)text[at] & 0xc0) == 0x80;
}

/* Both parts end between characters; `text` is UTF-8 and longer than allowed. */
static char *cut_middle(const char *text, size_t length)
{
    const size_t part = (MANIFEST_MAX_OUTPUT_BYTES - REMARK_BYTES) / 2;
    size_t head = part, tail = length - part;
    while (is_inside_character(text, head))
        head--;
    while (is_inside_character(text, tail))
        tail++;
    char *cut = malloc(MANIFEST_MAX_OUTPUT_BYTES + 1);
    if (cut == NULL)
        return NULL;
    memcpy(cut, text, head);
    int remark = snprintf(cut + head, REMARK_BYTES, "\n[... %zu bytes left out ...]\n", tail - head);
    memcpy(cut + head + remark, text + tail, length - tail + 1);
    return cut;
}

char *aoticache_manifest_cut_output(const char *output)
{
    char *copy = strdup(output);
    if (copy == NULL)
        return NULL;
    make_utf8(copy);
    size_t length = strlen(copy);
    if (length <= MANIFEST_MAX_OUTPUT_BYTES)
        return copy;
    char *cut = cut_middle(copy, length);
    free(copy);
    return cut;
}
