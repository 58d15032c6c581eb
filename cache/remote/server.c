/*
 * cache/remote/server: one remote: its module, its connections, how long a request may take, and whether it is asked at all.
 *
 * Requests of several threads go by several connections, up to CONNECTIONS, so that a large object on its way out keeps no
 * lookup waiting.
 *
 * A remote that fails rests: a second, then twice as long each time, at most five minutes. One line in the log says when
 * that begins and one when it answers again. So a server that is gone costs one timeout now and then, not one for each miss.
 */
#include "cache/remote/internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process/home.h"
#include "base/process/load_gate.h"

#define MAX_SECRET_BYTES 8192
#define FIRST_REST_NS UINT64_C(1000000000)
#define LONGEST_REST_NS (300 * FIRST_REST_NS)
#define ABSENT_NS (10 * FIRST_REST_NS)
#define MS_FOR_A_MIB 1000
#define NS_PER_MS UINT64_C(1000000)
#define WITHOUT_LEASES "this kind of server has no leases"
#define FIRST_MODULE_BYTES offsetof(aoticache_remote_module, wait) /* what modules of the first version have */

/* ---- all remotes of a cache ---- */

aoticache_status aoticache_remotes_create(const char *text, const aoticache_logger *logger,
                                          aoticache_remotes **ret_remotes, aoticache_error *ret_error)
{
    aoticache_remote_config *configs = NULL;
    size_t count = 0;
    *ret_remotes = NULL;
    aoticache_status status = aoticache_remote_configs_parse(text, &configs, &count, ret_error);
    if (status != AOTICACHE_OK || count == 0)
        return status;
    aoticache_remotes *remotes = calloc(1, sizeof *remotes);
    if (remotes == NULL || (remotes->items = calloc(count, sizeof *remotes->items)) == NULL) {
        free(remotes);
        aoticache_remote_configs_free(configs, count);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the remotes");
    }
    remotes->count = count;
    pthread_mutex_init(&remotes->mutex, NULL);
    for (size_t i = 0; i < count; i++) {
        remotes->items[i].config = configs[i];
        remotes->items[i].logger = logger;
        remotes->items[i].pid = getpid();
        pthread_mutex_init(&remotes->items[i].mutex, NULL);
        pthread_cond_init(&remotes->items[i].is_free, NULL);
    }
    free(configs); /* what they point to belongs to the remotes now */
    *ret_remotes = remotes;
    return AOTICACHE_OK;
}

void aoticache_remotes_free(aoticache_remotes *remotes)
{
    if (remotes == NULL)
        return;
    for (size_t i = 0; i < remotes->count; i++) {
        aoticache_remote *remote = &remotes->items[i];
        for (size_t k = 0; k < AOTICACHE_REMOTE_CONNECTIONS && remote->pid == getpid(); k++)
            if (remote->connections[k].opened != NULL)
                remote->module.close(remote->connections[k].opened);
        pthread_cond_destroy(&remote->is_free);
        pthread_mutex_destroy(&remote->mutex);
        aoticache_remote_config_clear(&remote->config);
    }
    pthread_mutex_destroy(&remotes->mutex);
    free(remotes->items);
    free(remotes);
}

void aoticache_remotes_reset_after_fork(aoticache_remotes *remotes)
{
    if (remotes == NULL)
        return;
    remotes->sender = NULL; /* its thread is not here; what it was to send, the parent sends */
    pthread_mutex_init(&remotes->mutex, NULL);
    for (size_t i = 0; i < remotes->count; i++) {
        aoticache_remote *remote = &remotes->items[i];
        pthread_mutex_init(&remote->mutex, NULL);
        pthread_cond_init(&remote->is_free, NULL);
        memset(remote->connections, 0, sizeof remote->connections); /* they are the parent's */
        remote->pid = getpid();
    }
}

/* ---- secrets ---- */

static aoticache_status read_secret_file(const char *path, char *ret_text, aoticache_error *ret_error)
{
    struct stat found;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read the secret in %s", path);
    if (!S_ISREG(found.st_mode) || (found.st_uid != 0 && found.st_uid != geteuid()) ||
        (found.st_mode & (S_IWGRP | S_IWOTH | S_IROTH)) != 0)
        return aoticache_error_set(
            ret_error, AOTICACHE_DENIED,
            "the secret in %s is not used: the file must be this user's or root's, and others may "
            "neither read nor write it (chmod 600)",
            path);
    ssize_t size = read(fd, ret_text, MAX_SECRET_BYTES);
    if (size < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read the secret in %s", path);
    while (size > 0 && (ret_text[size - 1] == '\n' || ret_text[size - 1] == '\r'))
        size--;
    ret_text[size] = '\0';
    if (size == 0 || size >= MAX_SECRET_BYTES - 2 || strpbrk(ret_text, "\r\n") != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s has not the form of a secret: one line", path);
    return AOTICACHE_OK;
}

/* *ret_has: there is one in ret_text, which has MAX_SECRET_BYTES and one. */
static aoticache_status read_secret(const aoticache_remote_config *config, char *ret_text, bool *ret_has,
                                    aoticache_error *ret_error)
{
    *ret_has = true;
    if (config->secret_file != NULL)
        return read_secret_file(config->secret_file, ret_text, ret_error);
    *ret_has = config->secret_variable != NULL;
    if (!*ret_has)
        return AOTICACHE_OK;
    const char *value = secure_getenv(config->secret_variable);
    if (value == NULL || value[0] == '\0' || strlen(value) >= MAX_SECRET_BYTES || strpbrk(value, "\r\n") != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "the variable %s, which is to have the secret, is %s",
                                   config->secret_variable,
                                   value == NULL || value[0] == '\0' ? "not set" : "not one line");
    snprintf(ret_text, MAX_SECRET_BYTES, "%s", value);
    return AOTICACHE_OK;
}

/* ---- resting ---- */

bool aoticache_remote_may_ask(aoticache_remote *remote)
{
    atomic_store(&remote->serves_misses, true);
    return aoticache_monotonic_ns() >= atomic_load(&remote->rests_until_ns);
}

/* What a request led to. */
static void note(aoticache_remote *remote, aoticache_status status, const char *message)
{
    if (status == AOTICACHE_NO_MEMORY) /* says nothing of the remote */
        return;
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND || status == AOTICACHE_LOCKED) {
        if (atomic_exchange(&remote->failures, 0) > 0 && atomic_load(&remote->serves_misses))
            aoticache_log(remote->logger, AOTICACHE_LOG_WARNING, "remote %s answers again", remote->config.url);
        return;
    }
    const uint32_t before = atomic_fetch_add(&remote->failures, 1);
    uint64_t rest = before < 9 ? FIRST_REST_NS << before : LONGEST_REST_NS;
    if (rest > LONGEST_REST_NS || status == AOTICACHE_UNSUPPORTED || status == AOTICACHE_INVALID)
        rest = LONGEST_REST_NS;
    atomic_store(&remote->rests_until_ns, aoticache_monotonic_ns() + rest);
    if (before == 0)
        atomic_fetch_add(&remote->rests, 1);
    if (before == 0 && atomic_load(&remote->serves_misses))
        aoticache_log(remote->logger, AOTICACHE_LOG_WARNING,
                      "remote %s: %s; it is left alone for a while, and kernels are compiled here meanwhile",
                      remote->config.url, message);
}

/* ---- the module and the connection ---- */

static aoticache_status load_module(aoticache_remote *remote, aoticache_error *ret_error)
{
    const char *name = remote->config.module;
    char path[PATH_MAX], problem[256] = "it is not a module";
    if (name[0] == '/')
        snprintf(path, sizeof path, "%s", name);
    else {
        char relative[64];
        snprintf(relative, sizeof relative, "lib/libaoticache_remote_%s.so", name);
        if (aoticache_home_find(relative, path, NULL) != AOTICACHE_OK)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "there is no module for this kind of remote: %s is not installed", relative);
    }
    aoticache_remote_module_fn function = NULL;
    aoticache_load_gate_enter();
    /* libcurl brings 30 libraries with it; to bind all of their functions takes 2 ms. Our modules bind their own (-z now). */
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, AOTICACHE_REMOTE_MODULE_SYMBOL) : NULL;
    if (symbol == NULL) {
        const char *said = dlerror();
        snprintf(problem, sizeof problem, "%s", said != NULL ? said : "it cannot be loaded");
    }
    aoticache_load_gate_leave(); /* a module stays loaded */
    memcpy(&function, &symbol, sizeof function);
    const aoticache_remote_module *module = function != NULL ? function() : NULL;
    if (module == NULL || module->abi != AOTICACHE_REMOTE_MODULE_ABI || module->bytes < FIRST_MODULE_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "the module %s cannot be used: %s", path,
                                   function == NULL ? problem : "it was made for another version");
    memcpy(&remote->module, module, module->bytes < sizeof *module ? module->bytes : sizeof *module);
    return AOTICACHE_OK;
}

static aoticache_status open_connection(aoticache_remote *remote, void **ret_opened, aoticache_error *ret_error)
{
    char secret[MAX_SECRET_BYTES + 1];
    bool has_secret = false;
    aoticache_status status = read_secret(&remote->config, secret, &has_secret, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const aoticache_remote_settings settings = {.bytes = sizeof settings,
                                                .url = remote->config.url,
                                                .user = remote->config.user,
                                                .secret = has_secret ? secret : NULL,
                                                .ca_file = remote->config.ca_file,
                                                .client_certificate = remote->config.client_certificate,
                                                .client_key = remote->config.client_key,
                                                .connect_timeout_ms = remote->config.connect_timeout_ms};
    status = remote->module.open(&settings, ret_opened, ret_error);
    explicit_bzero(secret, sizeof secret);
    if (status != AOTICACHE_OK)
        *ret_opened = NULL;
    return status;
}

/* With the mutex: one that nobody uses, an open one if there is one; NULL where all are in use. */
static struct aoticache_remote_connection *find_free(aoticache_remote *remote)
{
    struct aoticache_remote_connection *found = NULL;
    for (size_t i = 0; i < AOTICACHE_REMOTE_CONNECTIONS; i++) {
        struct aoticache_remote_connection *one = &remote->connections[i];
        if (!one->is_used && (found == NULL || (found->opened == NULL && one->opened != NULL)))
            found = one;
    }
    return found;
}

/* Loads the module and takes a connection, which end() gives back. */
static aoticache_status take_connection(aoticache_remote *remote, struct aoticache_remote_connection **ret_connection,
                                        aoticache_error *ret_error)
{
    struct aoticache_remote_connection *free_one = NULL;
    pthread_mutex_lock(&remote->mutex);
    aoticache_status status = remote->module.open == NULL ? load_module(remote, ret_error) : AOTICACHE_OK;
    while (status == AOTICACHE_OK && (free_one = find_free(remote)) == NULL)
        pthread_cond_wait(&remote->is_free, &remote->mutex); /* each request has a limit of time */
    if (status == AOTICACHE_OK)
        free_one->is_used = true;
    pthread_mutex_unlock(&remote->mutex);
    *ret_connection = free_one;
    return status;
}

static void give_connection_back(aoticache_remote *remote, struct aoticache_remote_connection *connection)
{
    pthread_mutex_lock(&remote->mutex);
    connection->is_used = false;
    pthread_cond_signal(&remote->is_free);
    pthread_mutex_unlock(&remote->mutex);
}

/* One request, from begin() to end(). */
struct request {
    aoticache_remote *remote;
    struct aoticache_remote_connection *connection;
    char name[AOTICACHE_REMOTE_NAME_BYTES + 80]; /* with the namespace */
    aoticache_error detail;
};

/* Takes a connection. On failure there is nothing to end, and the message names the remote. */
static aoticache_status begin(struct request *request, aoticache_remote *remote, const char *name,
                              aoticache_error *ret_error)
{
    const char *space = remote->config.namespace_;
    *request = (struct request){.remote = remote};
    snprintf(request->name, sizeof request->name, "%s%s%s", space != NULL ? space : "", space != NULL ? "/" : "", name);
    if (remote->config.is_bazel &&
        aoticache_bazel_name(space, name, request->name, sizeof request->name, ret_error) != AOTICACHE_OK)
        return AOTICACHE_NO_MEMORY;
    aoticache_status status = take_connection(remote, &request->connection, &request->detail);
    if (status == AOTICACHE_OK && request->connection->opened == NULL) {
        status = open_connection(remote, &request->connection->opened, &request->detail);
        if (status != AOTICACHE_OK)
            give_connection_back(remote, request->connection);
    }
    if (status == AOTICACHE_OK)
        return status;
    note(remote, status, request->detail.message);
    return aoticache_error_set(ret_error, status, "remote %s: %s", remote->config.url, request->detail.message);
}

static aoticache_status end(struct request *request, aoticache_status status, aoticache_error *ret_error)
{
    give_connection_back(request->remote, request->connection);
    note(request->remote, status, request->detail.message);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        return status;
    return aoticache_error_set(ret_error, status, "remote %s: %s", request->remote->config.url,
                               request->detail.message);
}

aoticache_status aoticache_remote_prepare(aoticache_remote *remote, aoticache_error *ret_error)
{
    struct request request;
    aoticache_status status = begin(&request, remote, "", ret_error);
    if (status == AOTICACHE_OK)
        give_connection_back(remote, request.connection);
    return status;
}

/* ---- requests ---- */

/* What this thread fetches for a lookup, all its requests together, ends then; 0: each request has a limit of its own. */
static _Thread_local uint64_t fetch_ends_ns;

void aoticache_remote_begin_fetch(const aoticache_remote *remote)
{
    fetch_ends_ns = aoticache_monotonic_ns() + remote->config.timeout_ms * NS_PER_MS;
}

void aoticache_remote_end_fetch(void)
{
    fetch_ends_ns = 0;
}

/* A large object may take longer: a second for each MiB. */
static uint32_t time_for(const aoticache_remote *remote, uint64_t bytes)
{
    const uint32_t more_ms = bytes > 0 ? (uint32_t)((bytes - 1) >> 20) * MS_FOR_A_MIB : 0;
    if (fetch_ends_ns == 0)
        return remote->config.timeout_ms + more_ms;
    const uint64_t now = aoticache_monotonic_ns();
    fetch_ends_ns += more_ms * NS_PER_MS;
    return fetch_ends_ns > now + NS_PER_MS ? (uint32_t)((fetch_ends_ns - now) / NS_PER_MS) : 1;
}

/* Between a module and a sink: bounds what comes, whatever the module does, and knows whether it was the sink that ended an
 * answer: then the remote is not at fault. */
struct tap {
    aoticache_remote_sink_fn sink;
    void *user;
    uint64_t left; /* bytes that may still come */
    bool is_stopped, is_over;
};

static bool take_through(void *user, const void *bytes, size_t size)
{
    struct tap *tap = user;
    tap->is_over = tap->is_over || size > tap->left;
    if (tap->is_over)
        return false;
    tap->left -= size;
    tap->is_stopped = tap->is_stopped || !tap->sink(tap->user, bytes, size);
    return !tap->is_stopped;
}

aoticache_status aoticache_remote_get(aoticache_remote *remote, const char *name, uint64_t max_bytes,
                                      aoticache_remote_sink_fn sink, void *user, char *ret_version,
                                      aoticache_error *ret_error)
{
    struct request request;
    struct tap tap = {.sink = sink, .user = user, .left = max_bytes};
    aoticache_status status = begin(&request, remote, name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = remote->module.get(request.connection->opened, request.name, max_bytes, time_for(remote, max_bytes),
                                take_through, &tap, ret_version, &request.detail);
    if (tap.is_over)
        status = aoticache_error_set(&request.detail, AOTICACHE_IO, "%s has more than %llu bytes", request.name,
                                     (unsigned long long)max_bytes);
    if (!tap.is_stopped)
        return end(&request, status, ret_error);
    give_connection_back(remote, request.connection);
    return aoticache_error_set(ret_error, AOTICACHE_IO, "remote %s: %s was not wanted to its end", remote->config.url,
                               request.name);
}

aoticache_status aoticache_remote_put(aoticache_remote *remote, const char *name, const void *bytes, size_t size,
                                      const char *condition, aoticache_error *ret_error)
{
    struct request request;
    aoticache_status status = begin(&request, remote, name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = remote->module.put(request.connection->opened, request.name, bytes, size, condition,
                                time_for(remote, size), &request.detail);
    return end(&request, status, ret_error);
}

aoticache_status aoticache_remote_exists(aoticache_remote *remote, const char *name, aoticache_error *ret_error)
{
    struct request request;
    aoticache_status status = begin(&request, remote, name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = remote->module.exists(request.connection->opened, request.name, time_for(remote, 0), &request.detail);
    return end(&request, status, ret_error);
}

/* ---- clocks and leases ---- */

/* A server that lacks something does not fail: it is not left alone for that. */
static aoticache_status end_unsupported(struct request *request, const char *problem, aoticache_error *ret_error)
{
    give_connection_back(request->remote, request->connection);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "remote %s: %s", request->remote->config.url,
                               request->detail.message[0] != '\0' ? request->detail.message : problem);
}

aoticache_status aoticache_remote_clock(aoticache_remote *remote, int64_t *ret_ahead_ms, aoticache_error *ret_error)
{
    struct request request;
    int64_t there_ms = 0;
    aoticache_status status = begin(&request, remote, "", ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const int64_t before_ms = aoticache_wall_ns() / (int64_t)NS_PER_MS;
    status = remote->module.time == NULL
                 ? AOTICACHE_UNSUPPORTED
                 : remote->module.time(request.connection->opened, time_for(remote, 0), &there_ms, &request.detail);
    if (status == AOTICACHE_UNSUPPORTED)
        return end_unsupported(&request, "this kind of server does not say its time", ret_error);
    const int64_t after_ms = aoticache_wall_ns() / (int64_t)NS_PER_MS;
    *ret_ahead_ms = there_ms - (before_ms + after_ms) / 2;
    return end(&request, status, ret_error);
}

aoticache_status aoticache_remote_acquire(aoticache_remote *remote, const char *name, const char *token,
                                          uint32_t ttl_ms, aoticache_error *ret_error)
{
    struct request request;
    aoticache_status status = begin(&request, remote, name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (remote->module.acquire == NULL || remote->config.is_bazel)
        return end_unsupported(&request, WITHOUT_LEASES, ret_error);
    status = remote->module.acquire(request.connection->opened, request.name, token, ttl_ms, time_for(remote, 0),
                                    &request.detail);
    return status == AOTICACHE_UNSUPPORTED ? end_unsupported(&request, WITHOUT_LEASES, ret_error)
                                           : end(&request, status, ret_error);
}

aoticache_status aoticache_remote_release(aoticache_remote *remote, const char *name, const char *token,
                                          aoticache_error *ret_error)
{
    struct request request;
    aoticache_status status = begin(&request, remote, name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (remote->module.release == NULL)
        return end_unsupported(&request, WITHOUT_LEASES, ret_error);
    status =
        remote->module.release(request.connection->opened, request.name, token, time_for(remote, 0), &request.detail);
    return end(&request, status, ret_error);
}

aoticache_status aoticache_remote_listen(aoticache_remote *remote, const char *name, aoticache_remote_ear *ret_ear)
{
    struct request request;
    *ret_ear = (aoticache_remote_ear){.remote = remote};
    aoticache_status status = begin(&request, remote, name, NULL);
    if (status != AOTICACHE_OK)
        return status;
    give_connection_back(remote, request.connection); /* what listens has a connection of its own */
    snprintf(ret_ear->name, sizeof ret_ear->name, "%s", request.name);
    if (remote->module.wait == NULL)
        return AOTICACHE_UNSUPPORTED;
    status = open_connection(remote, &ret_ear->opened, NULL);
    if (status == AOTICACHE_OK)
        status = remote->module.wait(ret_ear->opened, ret_ear->name, time_for(remote, 0), NULL);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    aoticache_remote_stop_listening(ret_ear);
    return status;
}

aoticache_status aoticache_remote_wait(aoticache_remote_ear *ear, uint32_t ms)
{
    return ear->remote->module.wait(ear->opened, ear->name, ms, NULL);
}

void aoticache_remote_stop_listening(aoticache_remote_ear *ear)
{
    if (ear->opened != NULL)
        ear->remote->module.close(ear->opened);
    ear->opened = NULL;
}

/* ---- small texts ---- */

struct text {
    char *bytes;
    size_t size, capacity;
    bool is_out_of_memory;
};

static bool take_text(void *user, const void *bytes, size_t size)
{
    struct text *text = user;
    if (text->size + size + 1 > text->capacity) {
        const size_t capacity = 2 * (text->size + size) + 256;
        char *larger = realloc(text->bytes, capacity);
        text->is_out_of_memory = larger == NULL;
        if (larger == NULL)
            return false;
        text->bytes = larger;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = '\0';
    return true;
}

/* Takes a text out of its ActionResult. */
static aoticache_status unwrap(struct text *text, aoticache_error *ret_error)
{
    size_t at = 0, size = 0;
    aoticache_status status = aoticache_bazel_unwrap(text->bytes, text->size, &at, &size, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    memmove(text->bytes, text->bytes + at, size);
    text->bytes[size] = '\0';
    text->size = size;
    return AOTICACHE_OK;
}

aoticache_status aoticache_remote_get_text(aoticache_remote *remote, const char *name, uint64_t max_bytes,
                                           char **ret_text, size_t *ret_size, char *ret_version,
                                           aoticache_error *ret_error)
{
    struct text text = {.bytes = NULL};
    aoticache_error detail = {.message = "it has a zero byte"};
    aoticache_status status = aoticache_remote_get(remote, name, max_bytes, take_text, &text, ret_version, ret_error);
    if (status == AOTICACHE_OK && text.bytes == NULL && !take_text(&text, "", 0))
        text.is_out_of_memory = true;
    if (text.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for what a remote answers");
    if (status == AOTICACHE_OK &&
        ((remote->config.is_bazel && unwrap(&text, &detail) != AOTICACHE_OK) || strlen(text.bytes) != text.size))
        status = aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "remote %s: %s cannot be used: %s",
                                     remote->config.url, name, detail.message);
    if (status != AOTICACHE_OK) {
        free(text.bytes);
        return status;
    }
    *ret_text = text.bytes;
    *ret_size = text.size;
    return AOTICACHE_OK;
}

aoticache_status aoticache_remote_put_text(aoticache_remote *remote, const char *name, const char *text, size_t size,
                                           const char *condition, aoticache_error *ret_error)
{
    char *bytes = NULL;
    if (!remote->config.is_bazel)
        return aoticache_remote_put(remote, name, text, size, condition, ret_error);
    aoticache_status status = aoticache_bazel_wrap(text, size, &bytes, &size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_remote_put(remote, name, bytes, size, condition, ret_error);
    free(bytes);
    return status;
}

/* ---- what is not there ---- */

static uint64_t first_bytes(const aoticache_key *key)
{
    uint64_t first;
    memcpy(&first, key->bytes, sizeof first);
    return first;
}

aoticache_remote_sight aoticache_remote_look_back(const aoticache_remote *remote, const aoticache_key *key)
{
    const size_t slot = key->bytes[8] % AOTICACHE_REMOTE_MISSES;
    if (atomic_load(&remote->misses[slot].key) != first_bytes(key) ||
        aoticache_monotonic_ns() >= atomic_load(&remote->misses[slot].until_ns))
        return AOTICACHE_REMOTE_NOT_SEEN;
    return atomic_load(&remote->misses[slot].was_refused) ? AOTICACHE_REMOTE_REFUSED : AOTICACHE_REMOTE_NOTHING;
}

void aoticache_remote_note_sight(aoticache_remote *remote, const aoticache_key *key, aoticache_remote_sight sight)
{
    const size_t slot = key->bytes[8] % AOTICACHE_REMOTE_MISSES;
    if (sight == AOTICACHE_REMOTE_NOT_SEEN && atomic_load(&remote->misses[slot].key) != first_bytes(key))
        return;
    atomic_store(&remote->misses[slot].until_ns, 0);
    atomic_store(&remote->misses[slot].key, first_bytes(key));
    atomic_store(&remote->misses[slot].was_refused, sight == AOTICACHE_REMOTE_REFUSED);
    if (sight != AOTICACHE_REMOTE_NOT_SEEN)
        atomic_store(&remote->misses[slot].until_ns, aoticache_monotonic_ns() + ABSENT_NS);
}
