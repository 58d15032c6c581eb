/*
 * base/text/stream: a stream that gathers text in memory and says when memory was short. open_memstream() does not: glibc
 * loses what it has no memory for, and neither ferror() nor fclose() tells.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_TEXT_STREAM_H
#define AOTICACHE_BASE_TEXT_STREAM_H

#include <stdio.h>

/*
 * The text, a byte of zero behind it, is in *ret_text, by free(), and its length in *ret_size, once fclose() has returned 0.
 * Otherwise memory was short and *ret_text is NULL. Both must stay valid until then. NULL: there is no memory for the stream.
 */
FILE *aoticache_text_stream_open(char **ret_text, size_t *ret_size);

#endif
