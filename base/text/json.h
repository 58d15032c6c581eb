/*
 * base/text/json: converts JSON text to jansson's values and back, and reports reliably if memory was short, which jansson
 * does not. Stored data must not be treated as damaged, or written with a part missing, because memory was short.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_JSON_H
#define AOTICACHE_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Does json_loadb(). If it returns NULL, ret_error has the reason in one line; check aoticache_json_is_out_of_memory()
 * first. */
json_t *aoticache_json_parse(const char *text, size_t size, size_t flags, json_error_t *ret_error);
/* Does json_dumps(). The caller frees the text with free(). Returns NULL if memory is short or `value` cannot be written. */
char *aoticache_json_write(const json_t *value, size_t flags);
bool aoticache_json_is_out_of_memory(const json_error_t *error);
/* Returns whether text from an untrusted file can be displayed: it has no control characters. */
bool aoticache_json_text_is_plain(const char *text);

#endif
