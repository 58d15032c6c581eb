/*
 * tests/fuzz/fuzz_schema: no text makes the parser of schemas crash or read outside of its memory; a refusal names a
 * column of the text; the measured length of the printed text equals the written one, and if the printed text parses,
 * it prints the same again.
 */
#include "eager/dispatch/schema/schema.h"
#include "eager/dispatch/schema/schema_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static char *print(const aoticache_schema *schema)
{
    size_t length = aoticache_schema_format(schema, NULL, 0);
    char *text = malloc(length + 1);
    if (text == NULL)
        return NULL;
    if (aoticache_schema_format(schema, text, length + 1) != length || strlen(text) != length)
        abort();
    return text;
}

/*
 * Parses the text again. Odd defaults print as text that parses differently ("str x=1" is a number): only the second
 * copy must be stable.
 */
static void read_again(const char *text, int depth)
{
    aoticache_schema *schema = NULL;
    if (aoticache_schema_parse(text, &schema, NULL) != AOTICACHE_OK)
        return;
    char *printed = print(schema);
    if (printed != NULL && depth < 2)
        read_again(printed, depth + 1);
    else if (printed != NULL && strcmp(printed, text) != 0)
        abort();
    free(printed);
    aoticache_schema_free(schema);
}

static void check_refusal(const aoticache_error *error, size_t size)
{
    unsigned column = 0;
    if (error->status != AOTICACHE_INVALID || sscanf(error->message, "schema, column %u:", &column) != 1 ||
        column < 1 || column > size + 1 || strchr(error->message, '\n') != NULL)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    aoticache_error error = {.message = ""};
    aoticache_schema *schema = NULL;
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, bytes, size);
    text[size] = '\0';
    if (aoticache_schema_parse(text, &schema, &error) == AOTICACHE_OK) {
        read_again(text, 0);
        if (!aoticache_schema_equal(schema, schema) ||
            aoticache_schema_check_same(schema, schema, NULL) != AOTICACHE_OK)
            abort();
        aoticache_schema_free(schema);
    } else {
        check_refusal(&error, strlen(text));
    }
    schema = NULL;
    if (aoticache_schema_parse_name(text, &schema, &error) == AOTICACHE_OK)
        aoticache_schema_free(schema);
    else
        check_refusal(&error, strlen(text));
    free(text);
    return 0;
}
