/*
 * cache/remote/settings: parses the setting `remote`: words separated by spaces. A word with a scheme begins a remote; the
 * words after it, up to the next scheme, are its options.
 */
#include "base/arguments.h"
#include "cache/remote/remote_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/text/units.h"

#define DEFAULT_CONNECT_MS 250
#define DEFAULT_TLS_CONNECT_MS 1000 /* including the handshake */
#define DEFAULT_TIMEOUT_MS 2000
#define MAX_TIMEOUT_MS 600000
#define DEFAULT_MAX_OBJECT (UINT64_C(256) << 20)
#define MAX_MAX_OBJECT (UINT64_C(16) << 30)
#define MAX_REMOTES 16

static const char spaces[] = " \t";

/* ---- values ---- */

/* Parses "250ms", "2s", "1min". */
static bool parse_time(const char *text, uint32_t *ret_ms)
{
    char number[24];
    uint64_t value = 0;
    const size_t length = strlen(text);
    if (length > 2 && length < sizeof number && strcmp(text + length - 2, "ms") == 0) {
        memcpy(number, text, length - 2);
        number[length - 2] = '\0';
        if (!aoticache_count_parse(number, &value))
            return false;
    } else if (aoticache_age_parse(text, &value) && value <= MAX_TIMEOUT_MS) {
        value *= 1000;
    } else {
        return false;
    }
    *ret_ms = (uint32_t)value;
    return value > 0 && value <= MAX_TIMEOUT_MS;
}

static bool is_namespace(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              strchr("._-", *c) != NULL))
            return false;
    return text[0] != '\0' && text[0] != '.' && strlen(text) <= 64;
}

static bool has_scheme(const char *word)
{
    const size_t length = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789");
    return length > 0 && length <= 16 &&
           (strncmp(word + length, "://", 3) == 0 || (word[length] == ':' && word[length + 1] == '/'));
}

/* Returns the module's name: it is that of the scheme, but some have several schemes. */
static char *module_of(const char *url)
{
    static const struct {
        const char *scheme, *module;
    } several[] = {{"https:", "http"}, {"s3:", "http"}, {"rediss:", "redis"}, {"unix:", "redis"}};
    for (size_t i = 0; i < sizeof several / sizeof several[0]; i++)
        if (strncmp(url, several[i].scheme, strlen(several[i].scheme)) == 0)
            return strdup(several[i].module);
    return strndup(url, strcspn(url, ":"));
}

/* Returns whether the URL contains a user: a secret in a URL would be visible wherever the configuration is displayed. */
static bool has_user_part(const char *url)
{
    const char *authority = strstr(url, "://");
    if (authority == NULL)
        return false;
    authority += 3;
    return memchr(authority, '@', strcspn(authority, "/?#")) != NULL;
}

static bool has_tls(const char *url)
{
    return strncmp(url, "https:", 6) == 0 || strncmp(url, "rediss:", 7) == 0 ||
           (strncmp(url, "s3:", 3) == 0 && strstr(url, "endpoint=http:") == NULL);
}

static aoticache_status begin_remote(aoticache_remote_config *config, const char *url, aoticache_error *ret_error)
{
    if (has_user_part(url))
        return aoticache_error_set(
            ret_error, AOTICACHE_INVALID,
            "remote: a URL must not contain a user or password: use user= and secret-file= or secret-env=");
    *config =
        (aoticache_remote_config){.reads = true,
                                  .writes = true,
                                  .connect_timeout_ms = has_tls(url) ? DEFAULT_TLS_CONNECT_MS : DEFAULT_CONNECT_MS,
                                  .timeout_ms = DEFAULT_TIMEOUT_MS,
                                  .max_object = DEFAULT_MAX_OBJECT};
    config->url = strdup(url);
    config->module = module_of(url);
    return config->url != NULL && config->module != NULL
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the remotes");
}

/* ---- options of a remote ---- */

static aoticache_status bad_value(const char *word, const char *form, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "remote: '%.120s' is not %s", word, form);
}

static aoticache_status take_copy(char **place, const char *value, aoticache_error *ret_error)
{
    free(*place);
    *place = strdup(value);
    return *place != NULL ? AOTICACHE_OK
                          : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the remotes");
}

static aoticache_status take_mode(aoticache_remote_config *config, const char *word, bool *ret_is_mode)
{
    *ret_is_mode = strcmp(word, "read-only") == 0 || strcmp(word, "read-write") == 0 || strcmp(word, "write-only") == 0;
    if (*ret_is_mode) {
        config->reads = word[0] == 'r';
        config->writes = strcmp(word, "read-only") != 0;
    }
    return AOTICACHE_OK;
}

static aoticache_status take_pair(aoticache_remote_config *config, const char *word, const char *value,
                                  aoticache_error *ret_error)
{
    const size_t length = (size_t)(value - word) - 1;
#define IS(name) (length == sizeof(name) - 1 && strncmp(word, name, length) == 0)
    if (IS("connect-timeout"))
        return parse_time(value, &config->connect_timeout_ms)
                   ? AOTICACHE_OK
                   : bad_value(word, "a time such as connect-timeout=250ms", ret_error);
    if (IS("timeout"))
        return parse_time(value, &config->timeout_ms) ? AOTICACHE_OK
                                                      : bad_value(word, "a time such as timeout=2s", ret_error);
    if (IS("max-object"))
        return aoticache_size_parse(value, &config->max_object) && config->max_object > 0 &&
                       config->max_object <= MAX_MAX_OBJECT
                   ? AOTICACHE_OK
                   : bad_value(word, "a size of at most 16G, such as max-object=256M", ret_error);
    if (IS("namespace"))
        return is_namespace(value) ? take_copy(&config->namespace_, value, ret_error)
                                   : bad_value(word, "at most 64 letters, digits, '.', '_' and '-'", ret_error);
    if (IS("user"))
        return take_copy(&config->user, value, ret_error);
    if (IS("secret-file"))
        return value[0] == '/' ? take_copy(&config->secret_file, value, ret_error)
                               : bad_value(word, "an absolute path", ret_error);
    if (IS("secret-env"))
        return value[0] != '\0' ? take_copy(&config->secret_variable, value, ret_error)
                                : bad_value(word, "the name of an environment variable", ret_error);
    if (IS("ca-file"))
        return value[0] == '/' ? take_copy(&config->ca_file, value, ret_error)
                               : bad_value(word, "an absolute path", ret_error);
    if (IS("client-certificate"))
        return value[0] == '/' ? take_copy(&config->client_certificate, value, ret_error)
                               : bad_value(word, "an absolute path", ret_error);
    if (IS("client-key"))
        return value[0] == '/' ? take_copy(&config->client_key, value, ret_error)
                               : bad_value(word, "an absolute path", ret_error);
    if (IS("module"))
        return value[0] == '/' ? take_copy(&config->module, value, ret_error)
                               : bad_value(word, "the absolute path of a module", ret_error);
    if (IS("layout")) {
        config->is_bazel = strcmp(value, "bazel") == 0;
        return config->is_bazel || strcmp(value, "plain") == 0
                   ? AOTICACHE_OK
                   : bad_value(word, "layout=plain or layout=bazel", ret_error);
    }
    if (IS("unsigned")) {
        config->allow_unsigned = strcmp(value, "allow") == 0;
        return config->allow_unsigned || strcmp(value, "refuse") == 0
                   ? AOTICACHE_OK
                   : bad_value(word, "unsigned=allow or unsigned=refuse", ret_error);
    }
#undef IS
    /* Omits the text after the '=': it may be a secret. */
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "remote: unknown option '%.*s'",
                               length < 40 ? (int)length : 40, word);
}

static aoticache_status take_word(aoticache_remote_config *config, const char *word, aoticache_error *ret_error)
{
    bool is_mode = false;
    const char *equals = strchr(word, '=');
    aoticache_status status = take_mode(config, word, &is_mode);
    if (is_mode)
        return status;
    return equals != NULL ? take_pair(config, word, equals + 1, ret_error)
                          : bad_value(word, "read-only, read-write, write-only, or of the form name=value", ret_error);
}

/* ---- the text ---- */

struct configs {
    aoticache_remote_config *items;
    size_t count, capacity;
};

static aoticache_status take_next(struct configs *configs, const char *word, aoticache_error *ret_error)
{
    if (!has_scheme(word))
        return configs->count > 0
                   ? take_word(&configs->items[configs->count - 1], word, ret_error)
                   : bad_value(word, "a remote such as redis://cache.example:6379/0 or https://cache.example/kernels",
                               ret_error);
    if (configs->count == MAX_REMOTES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "remote: more than %d remotes", MAX_REMOTES);
    if (!AOTICACHE_ARRAY_RESERVE(configs->items, configs->capacity, configs->count + 1))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the remotes");
    configs->items[configs->count] = (aoticache_remote_config){.url = NULL};
    return begin_remote(&configs->items[configs->count++], word, ret_error);
}

static bool has_control_characters(const char *text)
{
    for (; *text != '\0'; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
            return true;
    return false;
}

aoticache_status aoticache_remote_configs_parse(const char *text, aoticache_remote_config **ret_configs,
                                                size_t *ret_count, aoticache_error *ret_error)
{
    struct configs configs = {.items = NULL};
    aoticache_status status = AOTICACHE_OK;
    if (has_control_characters(text))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "remote: control character");
    cleanup_free char *copy = strdup(text);
    if (copy == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the remotes");
    char *rest = NULL;
    for (char *word = strtok_r(copy, spaces, &rest); status == AOTICACHE_OK && word != NULL;
         word = strtok_r(NULL, spaces, &rest))
        status = take_next(&configs, word, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_remote_configs_free(configs.items, configs.count);
        return status;
    }
    *ret_configs = configs.items;
    *ret_count = configs.count;
    return AOTICACHE_OK;
}

void aoticache_remote_config_clear(aoticache_remote_config *config)
{
    char *const texts[] = {config->url,
                           config->module,
                           config->user,
                           config->ca_file,
                           config->namespace_,
                           config->secret_file,
                           config->secret_variable,
                           config->client_certificate,
                           config->client_key};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
}

void aoticache_remote_configs_free(aoticache_remote_config *configs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        aoticache_remote_config_clear(&configs[i]);
    free(configs);
}

aoticache_status aoticache_remotes_check(const char *remotes, aoticache_error *ret_error)
{
    aoticache_remote_config *configs = NULL;
    size_t count = 0;
    if (remotes == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, remotes);
    aoticache_status status = aoticache_remote_configs_parse(remotes, &configs, &count, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_remote_configs_free(configs, count);
    return status;
}
