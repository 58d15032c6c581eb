/*
 * tests/fuzz/fuzz_remote: no bytes that a server sends make the parsers of records, lists and ActionResults, the
 * unpacker, or the parser of settings crash, read outside of their memory, or use more than their limits. A parsed
 * record prints as one that parses to the same.
 */
#include "base/names.h"
#include "cache/remote/remote_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_refusal(const aoticache_error *error)
{
    require(error->message[0] != '\0' && strchr(error->message, '\n') == NULL);
}

/* Returns the key that the text names, so that the rest of it is parsed, too. */
static aoticache_key key_in(const char *text)
{
    aoticache_key key = {{0}};
    const char *found = strstr(text, "\"key\"");
    char hex[AOTICACHE_DIGEST_HEX_BYTES] = "";
    if (found != NULL && sscanf(found, "\"key\" : \"%64[0-9a-f]", hex) == 1)
        (void)!aoticache_digest_from_hex(hex, &key);
    return key;
}

static void try_record(const char *text, size_t size)
{
    aoticache_record record, again;
    aoticache_error error = {.message = ""};
    const aoticache_key key = key_in(text);
    char *printed = NULL, *second = NULL;
    size_t length = 0, second_length = 0;
    if (aoticache_record_parse(text, size, &key, &record, &error) != AOTICACHE_OK) {
        check_refusal(&error);
        return;
    }
    require(record.count <= AOTICACHE_RECORD_MAX_ENTRIES);
    require(aoticache_record_format(&record, &printed, &length, NULL) == AOTICACHE_OK);
    if (length <= AOTICACHE_RECORD_MAX_BYTES) { /* escapes may have made it longer */
        require(aoticache_record_parse(printed, length, &key, &again, NULL) == AOTICACHE_OK &&
                again.count == record.count);
        require(aoticache_record_format(&again, &second, &second_length, NULL) == AOTICACHE_OK);
        require(length == second_length && memcmp(printed, second, length) == 0);
        aoticache_record_clear(&again);
    }
    for (size_t i = 0; i < record.count; i++) { /* adding one of its own entries changes nothing */
        bool has_changed = true;
        const size_t before = record.count;
        require(aoticache_record_put(&record, &record.entries[i], &has_changed, NULL) == AOTICACHE_OK);
        require(record.count == before);
    }
    aoticache_record_clear(&record);
    free(printed);
    free(second);
}

static bool take_row(void *user, const aoticache_list_row *row)
{
    require(row->key.bytes[0] == *(unsigned *)user && row->op[0] != '\0' && row->device[0] != '\0');
    return true;
}

static void try_list(const char *text, size_t size)
{
    aoticache_error error = {.message = ""};
    const size_t head = strlen(AOTICACHE_LIST_HEAD);
    unsigned first = 0;
    char *copy = malloc(size + 1);
    if (copy == NULL)
        return;
    memcpy(copy, text, size + 1);
    if (strlen(copy) > head + 2)
        sscanf(copy + head, "%2x", &first);
    if (aoticache_list_parse(copy, first, take_row, &first, &error) != AOTICACHE_OK)
        check_refusal(&error);
    free(copy);
}

static void try_settings(const char *text)
{
    aoticache_error error = {.message = ""};
    if (aoticache_remotes_check(text, &error) != AOTICACHE_OK)
        check_refusal(&error);
}

/* Unpacks a frame in two pieces, as from a network. The first byte is the expected size. */
static void try_frame(const uint8_t *bytes, size_t size)
{
    uint8_t memory[256];
    aoticache_unpacker *unpacker = NULL;
    aoticache_error error = {.message = ""};
    if (size < 2 || aoticache_unpacker_create(-1, memory, bytes[0], &unpacker, NULL) != AOTICACHE_OK)
        return;
    const size_t half = size / 2;
    if (aoticache_unpacker_take(unpacker, bytes + 1, half))
        aoticache_unpacker_take(unpacker, bytes + 1 + half, size - 1 - half);
    if (aoticache_unpacker_finish(unpacker, &error) != AOTICACHE_OK)
        check_refusal(&error);
    aoticache_unpacker_free(unpacker);
}

/* Parsed fields are within the bytes, and written results parse. */
static void try_action_result(const char *text, size_t size)
{
    aoticache_error error = {.message = ""};
    size_t at = 0, length = 0;
    char *wrapped = NULL;
    size_t wrapped_size = 0;
    char *exact = malloc(size > 0 ? size : 1); /* so that reading past its end is found */
    if (exact == NULL)
        return;
    memcpy(exact, text, size);
    if (aoticache_bazel_unwrap(exact, size, &at, &length, &error) == AOTICACHE_OK)
        require(at <= size && length <= size - at);
    else
        check_refusal(&error);
    require(aoticache_bazel_wrap(exact, size, &wrapped, &wrapped_size, NULL) == AOTICACHE_OK);
    require(aoticache_bazel_unwrap(wrapped, wrapped_size, &at, &length, NULL) == AOTICACHE_OK);
    require(length == size && memcmp(wrapped + at, exact, size) == 0);
    free(exact);
    free(wrapped);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, bytes, size);
    text[size] = '\0';
    if (strlen(text) == size)
        try_record(text, size);
    try_list(text, strlen(text));
    try_settings(text);
    try_frame(bytes, size);
    try_action_result(text, size);
    free(text);
    return 0;
}
