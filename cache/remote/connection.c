/*
 * cache/remote/connection: one remote: its module, its connections, and the time limits of requests.
 *
 * Requests of several threads use several connections, up to CONNECTIONS, so that an upload of a large object does not delay
 * lookups. The file of a secret is read for each new connection, and again if the server refuses a request: if it then has
 * another secret, the request is repeated with that one.
 */
#include "cache/remote/remote_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/process/home.h"
#include "base/process/fork_guard.h"

#define MAX_SECRET_BYTES 8192
#define ABSENT_NS UINT64_C(10000000000)
#define MS_FOR_A_MIB 1000
#define FIRST_PAUSE_NS UINT64_C(100000000) /* pause before a failed request is repeated */
#define LAST_MS 250 /* of a request that begins after the time limit for all, such as one that releases a lease */
#define NS_PER_MS UINT64_C(1000000)
#define WITHOUT_LEASES "this kind of server does not support leases"
#define FIRST_MODULE_BYTES offsetof(aoticache_remote_module, wait) /* size of the struct in version 1 */

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
    remotes->fingerprint = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *c = text; *c != '\0'; c++)
        remotes->fingerprint = (remotes->fingerprint ^ (unsigned char)*c) * UINT64_C(1099511628211);
    pthread_mutex_init(&remotes->mutex, NULL);
    for (size_t i = 0; i < count; i++) {
        remotes->items[i].config = configs[i];
        remotes->items[i].logger = logger;
        remotes->items[i].pid = getpid();
        remotes->items[i].ends_ns = &remotes->ends_ns;
        pthread_mutex_init(&remotes->items[i].mutex, NULL);
        pthread_cond_init(&remotes->items[i].is_free, NULL);
    }
    free(configs); /* the remotes own what they point to now */
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
    remotes->sender = NULL; /* its thread does not exist here; the parent sends the queued entries */
    pthread_mutex_init(&remotes->mutex, NULL);
    for (size_t i = 0; i < remotes->count; i++) {
        aoticache_remote *remote = &remotes->items[i];
        pthread_mutex_init(&remote->mutex, NULL);
        pthread_cond_init(&remote->is_free, NULL);
        memset(remote->connections, 0, sizeof remote->connections); /* they belong to the parent */
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
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "%s: the secret is not used: the file must belong to this user or root, and "
                                   "others must not be able to read or write it (chmod 600; of a Secret in "
                                   "Kubernetes, defaultMode: 0440)",
                                   path);
    ssize_t size = read(fd, ret_text, MAX_SECRET_BYTES);
    if (size < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read the secret in %s", path);
    while (size > 0 && (ret_text[size - 1] == '\n' || ret_text[size - 1] == '\r'))
        size--;
    ret_text[size] = '\0';
    if (size == 0 || size >= MAX_SECRET_BYTES - 2 || strpbrk(ret_text, "\r\n") != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, /* it may be about to be written */
                                   "%s: expected a secret on a single line", path);
    return AOTICACHE_OK;
}

/* Reads the secret. *ret_has: ret_text has a secret; it has space for MAX_SECRET_BYTES plus one. */
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
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "the variable %s, which should hold the secret, is %s",
                                   config->secret_variable,
                                   value == NULL || value[0] == '\0' ? "not set" : "not a single line");
    snprintf(ret_text, MAX_SECRET_BYTES, "%s", value);
    return AOTICACHE_OK;
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
                                       "the module for this kind of remote is not installed: %s", relative);
    }
    aoticache_remote_module_fn function = NULL;
    aoticache_fork_guard_enter();
    /* libcurl loads 30 libraries; binding all of their functions takes 2 ms. This library's modules bind their own (-z now). */
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, AOTICACHE_REMOTE_MODULE_SYMBOL) : NULL;
    if (symbol == NULL) {
        const char *said = dlerror();
        snprintf(problem, sizeof problem, "%s", said != NULL ? said : "it cannot be loaded");
    }
    aoticache_fork_guard_leave(); /* a module stays loaded */
    memcpy(&function, &symbol, sizeof function);
    const aoticache_remote_module *module = function != NULL ? function() : NULL;
    if (module == NULL || module->abi != AOTICACHE_REMOTE_MODULE_ABI || module->bytes < FIRST_MODULE_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "cannot use the module %s: %s", path,
                                   function == NULL ? problem : "it was made for another version");
    memcpy(&remote->module, module, module->bytes < sizeof *module ? module->bytes : sizeof *module);
    return AOTICACHE_OK;
}

/* All requests of this thread for a lookup together end at this time; 0: each request has its own limit. */
static _Thread_local uint64_t fetch_ends_ns;
/* When a request of this thread ends that began after the time limit for all. */
static _Thread_local uint64_t last_ends_ns;

/* Implements aoticache_remote_settings.continues. */
static bool continues(void *user)
{
    const aoticache_remote *remote = user;
    const uint64_t ends = atomic_load(remote->ends_ns), now = ends != 0 ? aoticache_monotonic_ns() : 0;
    return ends == 0 || now < ends || now < last_ends_ns;
}

/* Opens a connection. ret_secret: its digest; zeros if there is none. */
static aoticache_status open_connection(aoticache_remote *remote, void **ret_opened, aoticache_digest *ret_secret,
                                        aoticache_error *ret_error)
{
    char secret[MAX_SECRET_BYTES + 1];
    bool has_secret = false;
    *ret_secret = (aoticache_digest){{0}};
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
                                                .connect_timeout_ms = remote->config.connect_timeout_ms,
                                                .continues = continues,
                                                .continues_user = remote};
    status = remote->module.open(&settings, ret_opened, ret_error);
    if (status == AOTICACHE_OK && has_secret)
        aoticache_digest_of(secret, strlen(secret), ret_secret);
    explicit_bzero(secret, sizeof secret);
    if (status != AOTICACHE_OK)
        *ret_opened = NULL;
    return status;
}

/* Returns whether the file has another secret now than the one with which the connection was opened. */
static bool has_other_secret(const aoticache_remote *remote, const struct aoticache_remote_connection *connection)
{
    char secret[MAX_SECRET_BYTES + 1];
    aoticache_digest digest;
    bool has_secret = false;
    const bool is_other = remote->config.secret_file != NULL &&
                          read_secret(&remote->config, secret, &has_secret, NULL) == AOTICACHE_OK &&
                          aoticache_digest_of(secret, strlen(secret), &digest) == AOTICACHE_OK &&
                          !aoticache_digest_equal(&digest, &connection->secret);
    explicit_bzero(secret, sizeof secret);
    return is_other;
}

/* Call this with the mutex. Returns an unused connection, an open one if there is one; NULL if all are in use. */
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
        pthread_cond_wait(&remote->is_free, &remote->mutex); /* each request has a time limit */
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

/* ---- requests ---- */

/* Between a module and a sink: limits the size, whatever the module does, and records whether the sink stopped an answer:
 * then the remote is not at fault. */
struct limited_sink {
    aoticache_remote_sink_fn sink;
    void *user;
    uint64_t left; /* bytes that may still come */
    bool is_stopped, is_over;
};

/* One request: the arguments and results of the module's function. */
struct request {
    aoticache_remote *remote;
    aoticache_remote_use use;
    bool is_step; /* of a write, before its last step (aoticache_remote_note_answer()) */
    struct aoticache_remote_connection *connection;
    char name[AOTICACHE_REMOTE_NAME_BYTES + 80]; /* with the namespace */
    const void *bytes;
    size_t size;
    const char *condition, *token;
    uint32_t ttl_ms;
    uint64_t max_bytes;
    struct limited_sink limited;
    char *ret_version;
    int64_t unix_ms;
    const char *lack; /* meaning of UNSUPPORTED without a message */
    aoticache_error detail;
};

/* Calls the function of the module. */
typedef aoticache_status (*request_fn)(struct request *request, void *opened, uint32_t timeout_ms);

void aoticache_remote_begin_fetch(const aoticache_remote *remote)
{
    fetch_ends_ns = aoticache_monotonic_ns() + remote->config.timeout_ms * NS_PER_MS;
}

void aoticache_remote_end_fetch(void)
{
    fetch_ends_ns = 0;
}

/* Returns the milliseconds that a request may take: for a large object one more second for each MiB, but not beyond the time
 * at which all requests end. */
static uint32_t time_for(const aoticache_remote *remote, uint64_t bytes)
{
    const uint64_t now = aoticache_monotonic_ns(), ends = atomic_load(remote->ends_ns);
    const uint32_t more_ms = bytes > 0 ? (uint32_t)((bytes - 1) >> 20) * MS_FOR_A_MIB : 0;
    uint64_t ms = remote->config.timeout_ms + more_ms;
    if (fetch_ends_ns != 0) {
        fetch_ends_ns += more_ms * NS_PER_MS;
        ms = fetch_ends_ns > now + NS_PER_MS ? (fetch_ends_ns - now) / NS_PER_MS : 1;
    }
    if (ends != 0) {
        const uint64_t left_ms = ends > now ? (ends - now) / NS_PER_MS : 0;
        const uint64_t most_ms = left_ms > LAST_MS ? left_ms : LAST_MS;
        ms = ms < most_ms ? ms : most_ms;
        last_ends_ns = now + ms * NS_PER_MS;
    }
    return (uint32_t)ms;
}

/* Writes the name that is used on the server. */
static aoticache_status name_request(struct request *request, const char *name, aoticache_error *ret_error)
{
    const aoticache_remote_config *config = &request->remote->config;
    const char *space = config->namespace_;
    snprintf(request->name, sizeof request->name, "%s%s%s", space != NULL ? space : "", space != NULL ? "/" : "", name);
    return config->is_bazel ? aoticache_bazel_name(space, name, request->name, sizeof request->name, ret_error)
                            : AOTICACHE_OK;
}

/* Takes a connection and opens it. On failure none is held, and the message names the remote. */
static aoticache_status begin(struct request *request, const char *name, aoticache_error *ret_error)
{
    aoticache_remote *remote = request->remote;
    if (name_request(request, name, ret_error) != AOTICACHE_OK)
        return AOTICACHE_NO_MEMORY;
    aoticache_status status = take_connection(remote, &request->connection, &request->detail);
    if (status == AOTICACHE_OK && request->connection->opened == NULL) {
        status = open_connection(remote, &request->connection->opened, &request->connection->secret, &request->detail);
        if (status != AOTICACHE_OK)
            give_connection_back(remote, request->connection);
    }
    if (status == AOTICACHE_OK)
        return status;
    aoticache_remote_note_opening(remote, status, request->detail.message);
    return aoticache_error_set(ret_error, status, "remote %s: %s", remote->config.url, request->detail.message);
}

/*
 * Returns whether an answer may mean that the secret is outdated. Some servers answer a read with a status that also means
 * that nothing is there (HTTP 403); the module then says so in the message.
 */
static bool may_be_refused(const struct request *request, aoticache_status status)
{
    return status == AOTICACHE_DENIED || (status == AOTICACHE_NOT_FOUND && request->detail.message[0] != '\0');
}

/* Reopens the connection if there is another secret now. Returns whether to repeat the request. */
static bool renew_secret(struct request *request)
{
    struct aoticache_remote_connection *connection = request->connection;
    if (request->limited.left != request->max_bytes || !has_other_secret(request->remote, connection))
        return false;
    request->remote->module.close(connection->opened);
    connection->opened = NULL; /* the file may be unreadable by now */
    return open_connection(request->remote, &connection->opened, &connection->secret, &request->detail) == AOTICACHE_OK;
}

/* Logs once that the server does not find an object, or does not want to say that it does. */
static aoticache_status tell_unsure(struct request *request, aoticache_error *ret_error)
{
    aoticache_remote *remote = request->remote;
    if (request->use == AOTICACHE_REMOTE_READ && atomic_load(&remote->serves_misses) &&
        !atomic_exchange(&remote->has_told_unsure, true))
        aoticache_log(remote->logger, AOTICACHE_LOG_WARNING, "remote %s: %s", remote->config.url,
                      request->detail.message);
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "remote %s: %s", remote->config.url,
                               request->detail.message);
}

static aoticache_status end(struct request *request, aoticache_status status, aoticache_error *ret_error)
{
    aoticache_remote *remote = request->remote;
    give_connection_back(remote, request->connection);
    if (request->limited.is_stopped)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "remote %s: download of %s was cancelled",
                                   remote->config.url, request->name);
    if (status != AOTICACHE_OK && !continues(remote)) /* this process ended it */
        return aoticache_error_set(ret_error, AOTICACHE_IO, "remote %s: stopped", remote->config.url);
    if (status == AOTICACHE_UNSUPPORTED && request->detail.message[0] == '\0')
        aoticache_error_set(&request->detail, status, "%s",
                            request->lack != NULL ? request->lack : "it does not support this operation");
    if (status != AOTICACHE_IO)
        atomic_store(&remote->has_answered, true);
    aoticache_remote_note_answer(remote, request->use, request->is_step, status, request->detail.message);
    if (status == AOTICACHE_NOT_FOUND && request->detail.message[0] != '\0')
        return tell_unsure(request, ret_error);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        return status;
    return aoticache_error_set(ret_error, status, "remote %s: %s", remote->config.url, request->detail.message);
}

/*
 * Waits before a failed request is repeated. A server that has answered before and then fails immediately may be restarting:
 * a program that waits for a moment need not compile. Pauses vary at random by a half, so that machines do not come back
 * together. Returns false if the server did not answer before, or if no time is left.
 */
static bool wait_for_restart(const struct request *request, unsigned tries, uint64_t deadline_ns)
{
    const aoticache_remote *remote = request->remote;
    const uint64_t now = aoticache_monotonic_ns();
    uint64_t pause = FIRST_PAUSE_NS << (tries < 3 ? tries : 3);
    pause = pause / 2 + now / 1000 % 1024 * (pause / 1024);
    if (!atomic_load(&remote->has_answered) || atomic_load(&remote->health[request->use].failures) > 0 ||
        atomic_load(&remote->health[AOTICACHE_REMOTE_WHOLE].failures) > 0 ||
        request->limited.left != request->max_bytes || now + pause >= deadline_ns || !continues(request->remote))
        return false;
    nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
    return true;
}

/* Calls the function, and repeats it after each failure for which wait_for_restart() waits. */
static aoticache_status call_until(struct request *request, request_fn function, uint32_t timeout_ms)
{
    const uint64_t deadline_ns = aoticache_monotonic_ns() + timeout_ms * NS_PER_MS;
    aoticache_status status = function(request, request->connection->opened, timeout_ms);
    for (unsigned tries = 0; status == AOTICACHE_IO && wait_for_restart(request, tries, deadline_ns); tries++) {
        const uint64_t now = aoticache_monotonic_ns();
        request->detail.message[0] = '\0';
        status = function(request, request->connection->opened,
                          now + NS_PER_MS < deadline_ns ? (uint32_t)((deadline_ns - now) / NS_PER_MS) : 1);
    }
    return status;
}

/* Makes one request. bytes: size of its body, or maximum size of its answer. */
static aoticache_status perform(struct request *request, const char *name, request_fn function, uint64_t bytes,
                                aoticache_error *ret_error)
{
    aoticache_status status = begin(request, name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = call_until(request, function, time_for(request->remote, bytes));
    if (may_be_refused(request, status) && renew_secret(request)) {
        request->detail.message[0] = '\0';
        status = function(request, request->connection->opened, time_for(request->remote, bytes));
    }
    return end(request, status, ret_error);
}

aoticache_status aoticache_remote_prepare(aoticache_remote *remote, aoticache_error *ret_error)
{
    struct request request = {.remote = remote, .use = AOTICACHE_REMOTE_READ};
    aoticache_status status = begin(&request, "", ret_error);
    if (status == AOTICACHE_OK)
        give_connection_back(remote, request.connection);
    return status;
}

const char *aoticache_remote_reason(const aoticache_remote *remote, const char *message)
{
    const size_t length = strlen(remote->config.url);
    return strncmp(message, "remote ", 7) == 0 && strncmp(message + 7, remote->config.url, length) == 0 &&
                   strncmp(message + 7 + length, ": ", 2) == 0
               ? message + 9 + length
               : message;
}

static bool limited_sink_write(void *user, const void *bytes, size_t size)
{
    struct limited_sink *limited = user;
    limited->is_over = limited->is_over || size > limited->left;
    if (limited->is_over)
        return false;
    limited->left -= size;
    limited->is_stopped = limited->is_stopped || !limited->sink(limited->user, bytes, size);
    return !limited->is_stopped;
}

static aoticache_status do_get(struct request *request, void *opened, uint32_t timeout_ms)
{
    aoticache_status status =
        request->remote->module.get(opened, request->name, request->max_bytes, timeout_ms, limited_sink_write,
                                    &request->limited, request->ret_version, &request->detail);
    return request->limited.is_over ? aoticache_error_set(&request->detail, AOTICACHE_IO, "%s has more than %llu bytes",
                                                          request->name, (unsigned long long)request->max_bytes)
                                    : status;
}

aoticache_status aoticache_remote_get(aoticache_remote *remote, aoticache_remote_use use, const char *name,
                                      uint64_t max_bytes, aoticache_remote_sink_fn sink, void *user, char *ret_version,
                                      aoticache_error *ret_error)
{
    struct request request = {.remote = remote,
                              .use = use,
                              .is_step = use == AOTICACHE_REMOTE_WRITE,
                              .max_bytes = max_bytes,
                              .limited = {.sink = sink, .user = user, .left = max_bytes},
                              .ret_version = ret_version};
    return perform(&request, name, do_get, max_bytes, ret_error);
}

static aoticache_status do_put(struct request *request, void *opened, uint32_t timeout_ms)
{
    return request->remote->module.put(opened, request->name, request->bytes, request->size, request->condition,
                                       timeout_ms, &request->detail);
}

aoticache_status aoticache_remote_put(aoticache_remote *remote, const char *name, const void *bytes, size_t size,
                                      const char *condition, aoticache_error *ret_error)
{
    struct request request = {.remote = remote,
                              .use = AOTICACHE_REMOTE_WRITE,
                              .is_step = strncmp(name, "cas/", 4) == 0,
                              .bytes = bytes,
                              .size = size,
                              .condition = condition};
    return perform(&request, name, do_put, size, ret_error);
}

static aoticache_status do_exists(struct request *request, void *opened, uint32_t timeout_ms)
{
    return request->remote->module.exists(opened, request->name, timeout_ms, &request->detail);
}

aoticache_status aoticache_remote_exists(aoticache_remote *remote, aoticache_remote_use use, const char *name,
                                         aoticache_error *ret_error)
{
    struct request request = {.remote = remote, .use = use, .is_step = use == AOTICACHE_REMOTE_WRITE};
    return perform(&request, name, do_exists, 0, ret_error);
}

static aoticache_status do_remove(struct request *request, void *opened, uint32_t timeout_ms)
{
    const aoticache_remote_module *module = &request->remote->module;
    return module->remove == NULL ? AOTICACHE_UNSUPPORTED
                                  : module->remove(opened, request->name, timeout_ms, &request->detail);
}

aoticache_status aoticache_remote_remove(aoticache_remote *remote, const char *name, aoticache_error *ret_error)
{
    struct request request = {.remote = remote, .use = AOTICACHE_REMOTE_WRITE, .lack = "it does not remove objects"};
    aoticache_status status = perform(&request, name, do_remove, 0, ret_error);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

/* ---- clocks and leases ---- */

static aoticache_status do_time(struct request *request, void *opened, uint32_t timeout_ms)
{
    const aoticache_remote_module *module = &request->remote->module;
    const int64_t before_ms = aoticache_wall_ns() / (int64_t)NS_PER_MS;
    aoticache_status status = module->time == NULL
                                  ? AOTICACHE_UNSUPPORTED
                                  : module->time(opened, timeout_ms, &request->unix_ms, &request->detail);
    const int64_t after_ms = aoticache_wall_ns() / (int64_t)NS_PER_MS;
    request->unix_ms -= (before_ms + after_ms) / 2;
    return status;
}

aoticache_status aoticache_remote_clock(aoticache_remote *remote, int64_t *ret_ahead_ms, aoticache_error *ret_error)
{
    struct request request = {
        .remote = remote, .use = AOTICACHE_REMOTE_READ, .lack = "this kind of server does not report its time"};
    aoticache_status status = perform(&request, "", do_time, 0, ret_error);
    if (status == AOTICACHE_OK)
        *ret_ahead_ms = request.unix_ms;
    return status;
}

static aoticache_status do_acquire(struct request *request, void *opened, uint32_t timeout_ms)
{
    const aoticache_remote_module *module = &request->remote->module;
    return module->acquire == NULL || request->remote->config.is_bazel
               ? AOTICACHE_UNSUPPORTED
               : module->acquire(opened, request->name, request->token, request->ttl_ms, timeout_ms, &request->detail);
}

aoticache_status aoticache_remote_acquire(aoticache_remote *remote, const char *name, const char *token,
                                          uint32_t ttl_ms, aoticache_error *ret_error)
{
    struct request request = {
        .remote = remote, .use = AOTICACHE_REMOTE_LEASE, .token = token, .ttl_ms = ttl_ms, .lack = WITHOUT_LEASES};
    return perform(&request, name, do_acquire, 0, ret_error);
}

static aoticache_status do_release(struct request *request, void *opened, uint32_t timeout_ms)
{
    const aoticache_remote_module *module = &request->remote->module;
    return module->release == NULL
               ? AOTICACHE_UNSUPPORTED
               : module->release(opened, request->name, request->token, timeout_ms, &request->detail);
}

aoticache_status aoticache_remote_release(aoticache_remote *remote, const char *name, const char *token,
                                          aoticache_error *ret_error)
{
    struct request request = {.remote = remote, .use = AOTICACHE_REMOTE_LEASE, .token = token, .lack = WITHOUT_LEASES};
    return perform(&request, name, do_release, 0, ret_error);
}

aoticache_status aoticache_remote_listen(aoticache_remote *remote, const char *name,
                                         aoticache_lease_subscription *ret_subscription)
{
    struct request request = {.remote = remote, .use = AOTICACHE_REMOTE_LEASE};
    aoticache_digest secret;
    *ret_subscription = (aoticache_lease_subscription){.remote = remote};
    aoticache_status status = begin(&request, name, NULL);
    if (status != AOTICACHE_OK)
        return status;
    give_connection_back(remote, request.connection); /* a subscription has its own connection */
    snprintf(ret_subscription->name, sizeof ret_subscription->name, "%s", request.name);
    if (remote->module.wait == NULL)
        return AOTICACHE_UNSUPPORTED;
    status = open_connection(remote, &ret_subscription->opened, &secret, NULL);
    if (status == AOTICACHE_OK)
        status = remote->module.wait(ret_subscription->opened, ret_subscription->name, time_for(remote, 0), NULL);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    aoticache_remote_stop_listening(ret_subscription);
    return status;
}

aoticache_status aoticache_remote_wait(aoticache_lease_subscription *subscription, uint32_t ms)
{
    return subscription->remote->module.wait(subscription->opened, subscription->name, ms, NULL);
}

void aoticache_remote_stop_listening(aoticache_lease_subscription *subscription)
{
    if (subscription->opened != NULL)
        subscription->remote->module.close(subscription->opened);
    subscription->opened = NULL;
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

/* Extracts a text from its ActionResult. */
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

aoticache_status aoticache_remote_get_text(aoticache_remote *remote, aoticache_remote_use use, const char *name,
                                           uint64_t max_bytes, char **ret_text, size_t *ret_size, char *ret_version,
                                           aoticache_error *ret_error)
{
    struct text text = {.bytes = NULL};
    aoticache_error detail = {.message = "it has a zero byte"};
    aoticache_status status =
        aoticache_remote_get(remote, use, name, max_bytes, take_text, &text, ret_version, ret_error);
    if (status == AOTICACHE_OK && text.bytes == NULL && !take_text(&text, "", 0))
        text.is_out_of_memory = true;
    if (text.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for an answer of a remote");
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

/* ---- recent negative results ---- */

static uint64_t first_bytes(const aoticache_key *key)
{
    uint64_t first;
    memcpy(&first, key->bytes, sizeof first);
    return first;
}

aoticache_remote_recent aoticache_remote_recent_result(const aoticache_remote *remote, const aoticache_key *key)
{
    const size_t slot = key->bytes[8] % AOTICACHE_REMOTE_MISSES;
    if (atomic_load(&remote->misses[slot].key) != first_bytes(key) ||
        aoticache_monotonic_ns() >= atomic_load(&remote->misses[slot].until_ns))
        return AOTICACHE_REMOTE_NOT_SEEN;
    return atomic_load(&remote->misses[slot].was_refused) ? AOTICACHE_REMOTE_REFUSED : AOTICACHE_REMOTE_NOTHING;
}

void aoticache_remote_note_result(aoticache_remote *remote, const aoticache_key *key, aoticache_remote_recent result)
{
    const size_t slot = key->bytes[8] % AOTICACHE_REMOTE_MISSES;
    if (result == AOTICACHE_REMOTE_NOT_SEEN && atomic_load(&remote->misses[slot].key) != first_bytes(key))
        return;
    atomic_store(&remote->misses[slot].until_ns, 0);
    atomic_store(&remote->misses[slot].key, first_bytes(key));
    atomic_store(&remote->misses[slot].was_refused, result == AOTICACHE_REMOTE_REFUSED);
    if (result != AOTICACHE_REMOTE_NOT_SEEN)
        atomic_store(&remote->misses[slot].until_ns, aoticache_monotonic_ns() + ABSENT_NS);
}
