/*
 * base/text/stream: a stream made with fopencookie(3), whose write function can fail.
 */
#include "base/text/stream.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/array.h"

struct text_stream {
    char **ret_text;
    size_t *ret_size;
    char *bytes;
    size_t size, capacity;
    bool failed;
};

/* Returns 0 on an error, as fopencookie(3) requires. */
static ssize_t write_bytes(void *cookie, const char *bytes, size_t size)
{
    struct text_stream *stream = cookie;
    if (stream->failed || !AOTICACHE_ARRAY_RESERVE(stream->bytes, stream->capacity, stream->size + size + 1)) {
        stream->failed = true;
        return 0;
    }
    memcpy(stream->bytes + stream->size, bytes, size);
    stream->size += size;
    stream->bytes[stream->size] = '\0';
    return (ssize_t)size;
}

static int finish(void *cookie)
{
    struct text_stream *stream = cookie;
    write_bytes(stream, "", 0); /* an empty text is allocated, too */
    const bool failed = stream->failed;
    if (failed)
        free(stream->bytes);
    *stream->ret_text = failed ? NULL : stream->bytes;
    *stream->ret_size = failed ? 0 : stream->size;
    free(stream);
    return failed ? EOF : 0;
}

FILE *aoticache_text_stream_open(char **ret_text, size_t *ret_size)
{
    struct text_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    *ret_text = NULL;
    *ret_size = 0;
    stream->ret_text = ret_text;
    stream->ret_size = ret_size;
    FILE *file = fopencookie(stream, "w", (cookie_io_functions_t){.write = write_bytes, .close = finish});
    if (file == NULL)
        free(stream);
    return file;
}
