/*
 * cache/remote/modules/resolve: getaddrinfo_a() of the GNU C library looks up a name in a separate thread. If the answer
 * does not arrive in time, the lookup continues in the background and owns its memory until it ends: at most one lookup is
 * abandoned at a time, and until it ends, no other is started.
 */
#include "cache/remote/modules/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct question {
    struct gaicb query;
    struct addrinfo hints;
    char host[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct question *left_behind; /* protected by the mutex; NULL: none */
static pid_t left_by;                /* the process that abandoned it: in the child of a fork no thread completes it */

static void free_question(struct question *question)
{
    if (question->query.ar_result != NULL)
        freeaddrinfo(question->query.ar_result);
    free(question);
}

/* Returns whether an abandoned lookup is still in progress. */
static bool is_still_running(void)
{
    pthread_mutex_lock(&mutex);
    if (left_by != getpid())
        left_behind = NULL;
    if (left_behind != NULL && gai_error(&left_behind->query) != EAI_INPROGRESS) {
        free_question(left_behind);
        left_behind = NULL;
    }
    const bool continues = left_behind != NULL;
    pthread_mutex_unlock(&mutex);
    return continues;
}

/* Abandons a lookup, or frees it if it could be cancelled. */
static void leave(struct question *question)
{
    pthread_mutex_lock(&mutex);
    if (gai_cancel(&question->query) != EAI_NOTCANCELED)
        free_question(question);
    else if (left_behind == NULL) {
        left_behind = question;
        left_by = getpid();
    } /* two threads simultaneously: the memory of the second one is lost */
    pthread_mutex_unlock(&mutex);
}

static struct question *make_question(const char *host)
{
    const size_t size = strlen(host) + 1;
    struct question *question = calloc(1, sizeof *question + size);
    if (question == NULL)
        return NULL;
    memcpy(question->host, host, size);
    question->hints.ai_socktype = SOCK_STREAM;
    question->query.ar_name = question->host;
    question->query.ar_request = &question->hints;
    return question;
}

static size_t take_addresses(const struct addrinfo *found, resolved_address *ret_addresses)
{
    size_t count = 0;
    for (; found != NULL && count < RESOLVE_ADDRESSES; found = found->ai_next)
        if (getnameinfo(found->ai_addr, found->ai_addrlen, ret_addresses[count].text, sizeof ret_addresses[count].text,
                        NULL, 0, NI_NUMERICHOST) == 0)
            count++;
    return count;
}

/* Returns whether the host is a numeric address, which needs no name server. */
static bool is_number(const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

aoticache_status resolve(const char *host, uint32_t timeout_ms, resolved_address *ret_addresses, size_t *ret_count,
                         aoticache_error *ret_error)
{
    const struct timespec limit = {.tv_sec = timeout_ms / 1000, .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
    if (is_number(host) && strlen(host) < sizeof ret_addresses[0].text) {
        strcpy(ret_addresses[0].text, host);
        *ret_count = 1;
        return AOTICACHE_OK;
    }
    if (is_still_running())
        return aoticache_error_set(ret_error, AOTICACHE_IO, "the name server still does not respond");
    struct question *question = make_question(host);
    if (question == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    struct gaicb *list[] = {&question->query};
    int code = getaddrinfo_a(GAI_NOWAIT, list, 1, NULL);
    const struct gaicb *const asked[] = {&question->query};
    while (code == 0 && (code = gai_suspend(asked, 1, &limit)) == EAI_INTR)
        code = 0;
    if (gai_error(&question->query) == EAI_INPROGRESS) {
        leave(question);
        return aoticache_error_set(ret_error, AOTICACHE_IO, "the name server does not respond in time");
    }
    code = gai_error(&question->query);
    *ret_count = code == 0 ? take_addresses(question->query.ar_result, ret_addresses) : 0;
    free_question(question);
    return *ret_count > 0 ? AOTICACHE_OK
                          : aoticache_error_set(ret_error, AOTICACHE_IO, "cannot connect: %s",
                                                code != 0 ? gai_strerror(code) : "the host has no address");
}
