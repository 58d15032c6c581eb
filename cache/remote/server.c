/*
 * cache/remote/server: one remote: its module, its connection, how long a request may take, and whether it is asked at all.
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

/* ---- all remotes of a cache ---- */

aoticache_status aoticache_remotes_create(const char *text, const aoticache_logger *logger, aoticache_remotes **ret_remotes,
                                          aoticache_error *ret_error)
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
    for (size_t i = 0; i < count; i++) {
        remotes->items[i].config = configs[i];
        remotes->items[i].logger = logger;
        pthread_mutex_init(&remotes->items[i].mutex, NULL);
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
        if (remote->connection != NULL && remote->pid == getpid())
            remote->module->close(remote->connection);
        pthread_mutex_destroy(&remote->mutex);
        aoticache_remote_config_clear(&remote->config);
    }
    free(remotes->items);
    free(remotes);
}

void aoticache_remotes_reset_after_fork(aoticache_remotes *remotes)
{
    for (size_t i = 0; remotes != NULL && i < remotes->count; i++)
        pthread_mutex_init(&remotes->items[i].mutex, NULL);
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
                                   "the secret in %s is not used: the file must be this user's or root's, and others may "
                                   "neither read nor write it (chmod 600)", path);
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

bool aoticache_remote_is_awake(const aoticache_remote *remote)
{
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
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, AOTICACHE_REMOTE_MODULE_SYMBOL) : NULL;
    if (symbol == NULL) {
        const char *said = dlerror();
        snprintf(problem, sizeof problem, "%s", said != NULL ? said : "it cannot be loaded");
    }
    aoticache_load_gate_leave(); /* a module stays loaded */
    memcpy(&function, &symbol, sizeof function);
    const aoticache_remote_module *module = function != NULL ? function() : NULL;
    if (module == NULL || module->abi != AOTICACHE_REMOTE_MODULE_ABI || module->bytes < sizeof *module)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "the module %s cannot be used: %s", path,
                                   function == NULL ? problem : "it was made for another version");
    remote->module = module;
    return AOTICACHE_OK;
}

static aoticache_status open_connection(aoticache_remote *remote, aoticache_error *ret_error)
{
    char secret[MAX_SECRET_BYTES + 1];
    bool has_secret = false;
    aoticache_status status = remote->module == NULL ? load_module(remote, ret_error) : AOTICACHE_OK;
    if (status == AOTICACHE_OK && remote->connection != NULL && remote->pid == getpid())
        return AOTICACHE_OK;
    remote->connection = NULL; /* the parent's, if there is one */
    if (status == AOTICACHE_OK)
        status = read_secret(&remote->config, secret, &has_secret, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const aoticache_remote_settings settings = {.bytes = sizeof settings,
                                                .url = remote->config.url,
                                                .user = remote->config.user,
                                                .secret = has_secret ? secret : NULL,
                                                .ca_file = remote->config.ca_file,
                                                .connect_timeout_ms = remote->config.connect_timeout_ms};
    status = remote->module->open(&settings, &remote->connection, ret_error);
    explicit_bzero(secret, sizeof secret);
    if (status != AOTICACHE_OK)
        remote->connection = NULL;
    remote->pid = getpid();
    return status;
}

/* Locks the remote and connects it. On failure it is unlocked, and the message names the remote. */
static aoticache_status begin(aoticache_remote *remote, const char *name, char ret_name[AOTICACHE_REMOTE_NAME_BYTES + 80],
                              aoticache_error *ret_error)
{
    aoticache_error detail = {.message = ""};
    const char *space = remote->config.namespace_;
    snprintf(ret_name, AOTICACHE_REMOTE_NAME_BYTES + 80, "%s%s%s", space != NULL ? space : "", space != NULL ? "/" : "", name);
    pthread_mutex_lock(&remote->mutex);
    aoticache_status status = open_connection(remote, &detail);
    if (status == AOTICACHE_OK)
        return status;
    pthread_mutex_unlock(&remote->mutex);
    note(remote, status, detail.message);
    return aoticache_error_set(ret_error, status, "remote %s: %s", remote->config.url, detail.message);
}

static aoticache_status end(aoticache_remote *remote, aoticache_status status, const aoticache_error *detail,
                            aoticache_error *ret_error)
{
    pthread_mutex_unlock(&remote->mutex);
    note(remote, status, detail->message);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        return status;
    return aoticache_error_set(ret_error, status, "remote %s: %s", remote->config.url, detail->message);
}

aoticache_status aoticache_remote_prepare(aoticache_remote *remote, aoticache_error *ret_error)
{
    char full[AOTICACHE_REMOTE_NAME_BYTES + 80];
    aoticache_status status = begin(remote, "", full, ret_error);
    if (status == AOTICACHE_OK)
        pthread_mutex_unlock(&remote->mutex);
    return status;
}

/* ---- requests ---- */

/* A large object may take longer: a second for each MiB. */
static uint32_t time_for(const aoticache_remote *remote, uint64_t bytes)
{
    return remote->config.timeout_ms + (uint32_t)(bytes >> 20) * MS_FOR_A_MIB;
}

/* Whether it was our sink that ended an answer: then the remote is not at fault. */
struct tap {
    aoticache_remote_sink_fn sink;
    void *user;
    bool is_stopped;
};

static bool take_through(void *user, const void *bytes, size_t size)
{
    struct tap *tap = user;
    tap->is_stopped = tap->is_stopped || !tap->sink(tap->user, bytes, size);
    return !tap->is_stopped;
}

aoticache_status aoticache_remote_get(aoticache_remote *remote, const char *name, uint64_t max_bytes,
                                      aoticache_remote_sink_fn sink, void *user, char *ret_version,
                                      aoticache_error *ret_error)
{
    char full[AOTICACHE_REMOTE_NAME_BYTES + 80];
    struct tap tap = {.sink = sink, .user = user};
    aoticache_error detail = {.message = ""};
    aoticache_status status = begin(remote, name, full, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = remote->module->get(remote->connection, full, max_bytes, time_for(remote, max_bytes), take_through, &tap,
                                 ret_version, &detail);
    if (!tap.is_stopped)
        return end(remote, status, &detail, ret_error);
    pthread_mutex_unlock(&remote->mutex);
    return aoticache_error_set(ret_error, AOTICACHE_IO, "remote %s: %s was not wanted to its end", remote->config.url, full);
}

aoticache_status aoticache_remote_put(aoticache_remote *remote, const char *name, const void *bytes, size_t size,
                                      const char *condition, aoticache_error *ret_error)
{
    char full[AOTICACHE_REMOTE_NAME_BYTES + 80];
    aoticache_error detail = {.message = ""};
    aoticache_status status = begin(remote, name, full, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = remote->module->put(remote->connection, full, bytes, size, condition, time_for(remote, size), &detail);
    return end(remote, status, &detail, ret_error);
}

aoticache_status aoticache_remote_exists(aoticache_remote *remote, const char *name, aoticache_error *ret_error)
{
    char full[AOTICACHE_REMOTE_NAME_BYTES + 80];
    aoticache_error detail = {.message = ""};
    aoticache_status status = begin(remote, name, full, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = remote->module->exists(remote->connection, full, time_for(remote, 0), &detail);
    return end(remote, status, &detail, ret_error);
}

static aoticache_status no_leases(const aoticache_remote *remote, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "remote %s: this kind of server has no leases",
                               remote->config.url);
}

aoticache_status aoticache_remote_acquire(aoticache_remote *remote, const char *name, const char *token, uint32_t ttl_ms,
                                          aoticache_error *ret_error)
{
    char full[AOTICACHE_REMOTE_NAME_BYTES + 80];
    aoticache_error detail = {.message = ""};
    aoticache_status status = begin(remote, name, full, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (remote->module->acquire == NULL)
        return pthread_mutex_unlock(&remote->mutex), no_leases(remote, ret_error);
    status = remote->module->acquire(remote->connection, full, token, ttl_ms, time_for(remote, 0), &detail);
    return end(remote, status, &detail, ret_error);
}

aoticache_status aoticache_remote_release(aoticache_remote *remote, const char *name, const char *token,
                                          aoticache_error *ret_error)
{
    char full[AOTICACHE_REMOTE_NAME_BYTES + 80];
    aoticache_error detail = {.message = ""};
    aoticache_status status = begin(remote, name, full, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (remote->module->release == NULL)
        return pthread_mutex_unlock(&remote->mutex), no_leases(remote, ret_error);
    status = remote->module->release(remote->connection, full, token, time_for(remote, 0), &detail);
    return end(remote, status, &detail, ret_error);
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

aoticache_status aoticache_remote_get_text(aoticache_remote *remote, const char *name, uint64_t max_bytes, char **ret_text,
                                           size_t *ret_size, char *ret_version, aoticache_error *ret_error)
{
    struct text text = {.bytes = NULL};
    aoticache_status status = aoticache_remote_get(remote, name, max_bytes, take_text, &text, ret_version, ret_error);
    if (status == AOTICACHE_OK && text.bytes == NULL && !take_text(&text, "", 0))
        text.is_out_of_memory = true;
    if (text.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for what a remote answers");
    if (status == AOTICACHE_OK && strlen(text.bytes) != text.size)
        status = aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "remote %s: %s has a zero byte", remote->config.url, name);
    if (status != AOTICACHE_OK) {
        free(text.bytes);
        return status;
    }
    *ret_text = text.bytes;
    *ret_size = text.size;
    return AOTICACHE_OK;
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
