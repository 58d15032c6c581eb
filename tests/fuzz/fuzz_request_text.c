/*
 * Fuzz target for requests as lines of text: any bytes, up to a first zero. A parsed request must be written in a form
 * that parses to the same encoding.
 */
#include "cache/eager_face.h"
#include "cache/request/request.h"
#include "cache/request/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void write_and_read_again(const aoticache_request *request)
{
    aoticache_request *again = NULL;
    char *text = NULL;
    uint8_t *first = NULL, *second = NULL;
    size_t first_size = 0, second_size = 0;
    must(aoticache_request_write(request, AOTICACHE_REQUEST_TEXT, &text, NULL) == AOTICACHE_OK);
    must(aoticache_request_parse(text, AOTICACHE_REQUEST_TEXT, &again, NULL) == AOTICACHE_OK);
    must(aoticache_request_encode(request, &first, &first_size, NULL) == AOTICACHE_OK);
    must(aoticache_request_encode(again, &second, &second_size, NULL) == AOTICACHE_OK);
    must(first_size == second_size && memcmp(first, second, first_size) == 0);
    aoticache_request_free(again);
    free(text);
    free(first);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1);
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, bytes, size);
    text[size] = '\0';
    aoticache_status status = aoticache_request_parse(text, AOTICACHE_REQUEST_TEXT, &request, &error);
    must(status == AOTICACHE_OK || (status == AOTICACHE_INVALID && strncmp(error.message, "column ", 7) == 0));
    if (status == AOTICACHE_OK)
        write_and_read_again(request);
    aoticache_request_free(request);
    free(text);
    return 0;
}
