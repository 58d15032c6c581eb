/*
 * base/files/read_ahead: reads pieces in a thread. The pieces are in a ring buffer that fits in the second-level cache.
 */
#include "base/files/read_ahead.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/threads.h"

enum { PIECES = 8, PIECE_BYTES = 64 * 1024 };

struct aoticache_read_ahead {
    int fd;
    aoticache_memory_copy *copy;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Protected by the mutex. Piece i is in slot i % PIECES. */
    size_t read, taken; /* numbers of pieces; the caller works on the last piece that it took */
    bool is_stopped;
    ssize_t sizes[PIECES]; /* the last size is 0 or -1 */
    int error;             /* errno of a piece with size -1 */
    uint8_t bytes[PIECES][PIECE_BYTES];
};

void aoticache_memory_copy_add(aoticache_memory_copy *copy, const void *bytes, size_t size, uint64_t offset)
{
    if (copy == NULL || copy->file < 0 || copy->failed != 0 || offset >= copy->kept)
        return;
    if (size > copy->kept - offset)
        size = (size_t)(copy->kept - offset);
    if (!aoticache_memory_file_write(copy->file, bytes, size, offset))
        copy->failed = errno;
}

/* Waits for a free slot; returns false if the caller wants no more. */
static bool wait_for_place(aoticache_read_ahead *ahead)
{
    pthread_mutex_lock(&ahead->mutex);
    while (!ahead->is_stopped && ahead->read - ahead->taken >= PIECES - 1)
        pthread_cond_wait(&ahead->changed, &ahead->mutex);
    const bool continues = !ahead->is_stopped;
    pthread_mutex_unlock(&ahead->mutex);
    return continues;
}

static void *read_pieces(void *user)
{
    aoticache_read_ahead *ahead = user;
    uint64_t offset = 0;
    ssize_t got = 1;
    for (size_t i = 0; got > 0 && wait_for_place(ahead); i++) {
        uint8_t *bytes = ahead->bytes[i % PIECES];
        do
            got = pread(ahead->fd, bytes, PIECE_BYTES, (off_t)offset);
        while (got < 0 && errno == EINTR);
        const int error = errno;
        if (got > 0) {
            aoticache_memory_copy_add(ahead->copy, bytes, (size_t)got, offset);
            offset += (uint64_t)got;
        }
        pthread_mutex_lock(&ahead->mutex);
        ahead->sizes[i % PIECES] = got;
        ahead->error = error;
        ahead->read++;
        pthread_cond_signal(&ahead->changed);
        pthread_mutex_unlock(&ahead->mutex);
    }
    return NULL;
}

aoticache_read_ahead *aoticache_read_ahead_begin(int fd, aoticache_memory_copy *copy)
{
    aoticache_read_ahead *ahead = malloc(sizeof *ahead);
    if (ahead == NULL)
        return NULL;
    ahead->fd = fd;
    ahead->copy = copy;
    ahead->read = ahead->taken = 0;
    ahead->is_stopped = false;
    ahead->error = 0;
    pthread_mutex_init(&ahead->mutex, NULL);
    pthread_cond_init(&ahead->changed, NULL);
    if (aoticache_threads_start(&ahead->thread, 1, NULL, read_pieces, ahead) == 1)
        return ahead;
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->mutex);
    free(ahead);
    return NULL;
}

ssize_t aoticache_read_ahead_next(aoticache_read_ahead *ahead, const uint8_t **ret_bytes)
{
    pthread_mutex_lock(&ahead->mutex);
    while (ahead->read == ahead->taken)
        pthread_cond_wait(&ahead->changed, &ahead->mutex);
    const size_t place = ahead->taken++ % PIECES;
    const ssize_t size = ahead->sizes[place];
    const int error = ahead->error;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    *ret_bytes = ahead->bytes[place];
    errno = error;
    return size;
}

void aoticache_read_ahead_end(aoticache_read_ahead *ahead)
{
    if (ahead == NULL)
        return;
    pthread_mutex_lock(&ahead->mutex);
    ahead->is_stopped = true;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    pthread_join(ahead->thread, NULL);
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->mutex);
    free(ahead);
}
