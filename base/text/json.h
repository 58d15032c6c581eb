/*
 * base/text/json: JSON text to jansson's values and back, with one thing that jansson does not tell reliably: that there was no
 * memory for it. What is stored must not be taken for damaged, nor written with a part missing, because memory was short.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_JSON_H
#define AOTICACHE_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* json_loadb(). NULL: ret_error says why, in one line; ask aoticache_json_is_out_of_memory() first. */
json_t *aoticache_json_parse(const char *text, size_t size, size_t flags, json_error_t *ret_error);
/* json_dumps(). NULL: no memory, or `value` is none that can be written. The text is the caller's, by free(). */
char *aoticache_json_write(const json_t *value, size_t flags);
bool aoticache_json_is_out_of_memory(const json_error_t *error);
/* Returns whether a text of an untrusted file can be shown: it has no control characters. */
bool aoticache_json_text_is_plain(const char *text);

#endif
