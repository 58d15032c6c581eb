/*
 * base/text/stream: a stream that collects text in memory and reports if memory was short. open_memstream() does not: glibc
 * drops the text that does not fit in memory, and neither ferror() nor fclose() reports it.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_TEXT_STREAM_H
#define AOTICACHE_BASE_TEXT_STREAM_H

#include <stdio.h>

/*
 * Opens a stream. When fclose() has returned 0, the text, followed by a zero byte, is in *ret_text and its length in
 * *ret_size; the caller frees the text with free(). If fclose() fails, memory was short and *ret_text is NULL. Both
 * variables must stay valid until then. Returns NULL if memory for the stream itself is short.
 */
FILE *aoticache_text_stream_open(char **ret_text, size_t *ret_size);

#endif
