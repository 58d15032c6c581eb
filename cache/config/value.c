/*
 * cache/config/value: the list of settings, their valid values, and the accessors of a configuration.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/text/name_distance.h"
#include "base/text/units.h"
#include "cache/config/config_internal.h"
#include "cache/gc/collect.h"
#include "cache/remote/remote_internal.h"
#include "cache/remote/remote.h"
#include "cache/request/cpu.h"
#include "cache/request/cpu_detect.h"
#include "cache/trust/trust_internal.h"

#define MAX_SECONDS (UINT32_MAX / 1000) /* converted to milliseconds in 32 bits */

/* ---- names ---- */

static const struct {
    const char *name, *variable, *value, *text;
} names[AOTICACHE_CONFIG_COUNT] = {
#define CONFIG_ROW(name, variable, value, text) {#name, variable, value, text},
    AOTICACHE_CONFIG_LIST(CONFIG_ROW)
#undef CONFIG_ROW
};

static bool is_name(aoticache_config_name name)
{
    return (unsigned)name < AOTICACHE_CONFIG_COUNT;
}

/* Returns the nearest name, if at most a third of its letters differ; otherwise NULL. */
static const char *nearest_name(const char *text)
{
    const char *nearest = NULL;
    size_t least = strlen(text) / 3 + 2;
    for (size_t i = 0; i < AOTICACHE_CONFIG_COUNT; i++) {
        size_t distance = aoticache_name_distance(text, names[i].name, least, true);
        if (distance < least) {
            nearest = names[i].name;
            least = distance;
        }
    }
    return nearest;
}

aoticache_status aoticache_config_name_parse(const char *text, aoticache_config_name *ret_name,
                                             const char **ret_nearest)
{
    for (size_t i = 0; text != NULL && i < AOTICACHE_CONFIG_COUNT; i++) {
        if (strcmp(text, names[i].name) == 0) {
            *ret_name = (aoticache_config_name)i;
            return AOTICACHE_OK;
        }
    }
    if (ret_nearest != NULL)
        *ret_nearest = text != NULL ? nearest_name(text) : NULL;
    return AOTICACHE_NOT_FOUND;
}

/* ---- valid values ---- */

/* A parsed value. */
struct parsed {
    uint64_t number;
    double share;
};

typedef bool (*parse_fn)(const char *text, struct parsed *ret_value);

static bool parse_size(const char *text, struct parsed *ret_value)
{
    return aoticache_size_parse(text, &ret_value->number);
}

static bool parse_count(const char *text, struct parsed *ret_value)
{
    return aoticache_count_parse(text, &ret_value->number);
}

static bool parse_age(const char *text, struct parsed *ret_value)
{
    return aoticache_age_parse(text, &ret_value->number);
}

/* Parses a time. A number without a unit means seconds. */
static bool parse_seconds(const char *text, struct parsed *ret_value)
{
    return (aoticache_count_parse(text, &ret_value->number) || aoticache_age_parse(text, &ret_value->number)) &&
           ret_value->number <= MAX_SECONDS;
}

/* Parses a size or a share below 100%, because the whole disk can never be free. */
static bool parse_free(const char *text, struct parsed *ret_value)
{
    return aoticache_share_parse(text, &ret_value->share) ? ret_value->share < 1
                                                          : aoticache_size_parse(text, &ret_value->number);
}

static bool parse_policy(const char *text, struct parsed *ret_value)
{
    ret_value->number = strcmp(text, "cost") == 0 ? AOTICACHE_COLLECT_COST : AOTICACHE_COLLECT_LRU;
    return strcmp(text, "lru") == 0 || strcmp(text, "cost") == 0;
}

static bool parse_truth(const char *text, struct parsed *ret_value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            ret_value->number = i % 2;
            return true;
        }
    }
    return false;
}

#if defined(__aarch64__)
#define CPU_FORM "native, a level (armv8-a, armv8.1-a to armv8.6-a, armv9-a) or features such as sve,dotprod"
static const char *const cpu_levels[] = {"armv8-a",   "armv8.1-a", "armv8.2-a", "armv8.3-a",
                                         "armv8.4-a", "armv8.5-a", "armv8.6-a", "armv9-a"};
#else
#define CPU_FORM "native, a level (x86-64, x86-64-v2, x86-64-v3, x86-64-v4) or features such as avx2,fma"
static const char *const cpu_levels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
#endif

/* Returns false for a word that begins like a level of an architecture but is not exactly one of this architecture's levels.
 * Features are checked by the parser. */
static bool is_cpu_word(const char *word, size_t length)
{
    if (strncmp(word, "x86", 3) != 0 && strncmp(word, "arm", 3) != 0)
        return true;
    for (size_t i = 0; i < sizeof cpu_levels / sizeof cpu_levels[0]; i++)
        if (strlen(cpu_levels[i]) == length && memcmp(word, cpu_levels[i], length) == 0)
            return true;
    return false;
}

static bool parse_cpu(const char *text, struct parsed *ret_value)
{
    aoticache_cpu_features features;
    (void)ret_value;
    if (strcmp(text, AOTICACHE_CPU_NATIVE) == 0)
        return true;
    for (const char *word = text; *word != '\0'; word += strcspn(word, ", ")) {
        word += strspn(word, ", ");
        if (!is_cpu_word(word, strcspn(word, ", ")))
            return false;
    }
    return text[0] != '\0' && aoticache_cpu_features_parse(text, &features, NULL) == AOTICACHE_OK;
}

static bool parse_text(const char *text, struct parsed *ret_value)
{
    (void)text, (void)ret_value;
    return true;
}

static const struct {
    parse_fn parse;
    const char *form;
    const char *unit; /* the unit that is probably missing after a plain number; NULL: none */
} values[AOTICACHE_CONFIG_COUNT] = {
    [AOTICACHE_CONFIG_directory] = {parse_text, "a directory", NULL},
    [AOTICACHE_CONFIG_max_size] = {parse_size, "a size such as 10G or 500M", "G"},
    [AOTICACHE_CONFIG_max_entries] = {parse_count, "a number of entries", NULL},
    [AOTICACHE_CONFIG_max_age] = {parse_age, "an age such as 30d or 12h, or 0", "d"},
    [AOTICACHE_CONFIG_min_free] = {parse_free, "a size such as 10G, or a share such as 5%, less than 100%", "%"},
    [AOTICACHE_CONFIG_policy] = {parse_policy, "lru or cost", NULL},
    [AOTICACHE_CONFIG_keep] = {parse_text, "patterns", NULL},
    [AOTICACHE_CONFIG_allow_shared] = {parse_truth, "true or false", NULL},
    [AOTICACHE_CONFIG_failure_ttl] = {parse_seconds, "a time such as 600 (seconds) or 10min, at most 49 days", NULL},
    [AOTICACHE_CONFIG_compile_timeout] = {parse_seconds, "a time such as 600 (seconds) or 10min, at most 49 days",
                                          NULL},
    [AOTICACHE_CONFIG_lock_timeout] = {parse_seconds, "a time such as 10 (seconds) or 1min, at most 49 days", NULL},
    [AOTICACHE_CONFIG_require_signatures] = {parse_truth, "true or false", NULL},
    [AOTICACHE_CONFIG_trusted_keys] = {parse_text, "public keys", NULL},
    [AOTICACHE_CONFIG_revoked_keys] = {parse_text, "keys or digests", NULL},
    [AOTICACHE_CONFIG_sign_with] = {parse_text, "files", NULL},
    [AOTICACHE_CONFIG_keys] = {parse_text, "a directory", NULL},
    [AOTICACHE_CONFIG_remote] = {parse_text, "remotes", NULL}, /* take_remote() gives a more precise error */
    [AOTICACHE_CONFIG_remember_digests] = {parse_truth, "true or false", NULL},
    [AOTICACHE_CONFIG_cpu] = {parse_cpu, CPU_FORM, NULL},
};

/* ---- accessors ---- */

bool aoticache_config_is_set(const aoticache_config *config, aoticache_config_name name)
{
    return config != NULL && is_name(name) && config->values[name].text != NULL;
}

aoticache_config_setting aoticache_config_get(const aoticache_config *config, aoticache_config_name name)
{
    static const char *const empty[] = {NULL};
    aoticache_config_setting setting = {.list = empty};
    struct parsed value = {.number = 0};
    if (!is_name(name))
        return setting;
    setting.name = names[name].name;
    setting.variable = names[name].variable;
    setting.description = names[name].text;
    if (aoticache_config_is_set(config, name)) {
        setting.text = config->values[name].text;
        setting.origin = config->values[name].origin;
        setting.number = config->values[name].number;
        setting.share = config->values[name].share;
    } else {
        setting.text = names[name].value;
        setting.origin = "default";
        setting.number = values[name].parse(setting.text, &value) ? value.number : 0;
    }
    if (name == AOTICACHE_CONFIG_keep && config != NULL && config->keep != NULL)
        setting.list = (const char *const *)config->keep;
    return setting;
}

/* ---- storing a value ---- */

void aoticache_config_warn(aoticache_config *config, const char *format, ...)
{
    char line[AOTICACHE_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    config->info.problem_count++;
    if (length >= 0)
        aoticache_log(&config->logger, AOTICACHE_LOG_WARNING, "%s", line);
}

static void replace_text(char **text, char *by)
{
    free(*text);
    *text = by;
}

static aoticache_status set_value(aoticache_config_value *setting, const char *text, const char *origin,
                                  const struct parsed *value)
{
    cleanup_free char *text_copy = strdup(text);
    cleanup_free char *origin_copy = strdup(origin);
    if (text_copy == NULL || origin_copy == NULL)
        return AOTICACHE_NO_MEMORY;
    replace_text(&setting->text, steal_ptr(&text_copy));
    replace_text(&setting->origin, steal_ptr(&origin_copy));
    setting->number = value->number;
    setting->share = value->share;
    return AOTICACHE_OK;
}

/* Sets a directory. In a file it must be independent of the working directory: absolute, or below the user's home. */
static aoticache_status set_directory(aoticache_config *config, aoticache_config_name name, const char *text,
                                      const char *origin)
{
    const char *shown = names[name].name;
    static const struct parsed none = {.number = 0};
    cleanup_free char *path = NULL;
    const char *home = secure_getenv("HOME");
    if (strncmp(text, "~/", 2) == 0) {
        if (home == NULL || home[0] != '/') {
            aoticache_config_warn(config, "%s: %s: '%.200s' needs HOME, but HOME is not set", origin, shown, text);
            return AOTICACHE_OK;
        }
        if (asprintf(&path, "%s/%s", home, text + 2) < 0) {
            path = NULL;
            return AOTICACHE_NO_MEMORY;
        }
        text = path;
    }
    if (text[0] != '/' && text[0] != '\0') {
        aoticache_config_warn(config, "%s: %s: '%.200s' is neither absolute nor begins with ~/", origin, shown, text);
        return AOTICACHE_OK;
    }
    return set_value(&config->values[name], text, origin, &none);
}

/* ---- trusted keys ---- */

static bool is_key_word(aoticache_config_name name, const char *word, aoticache_error *ret_error)
{
    aoticache_public_key key;
    aoticache_revocation revocation;
    return (name == AOTICACHE_CONFIG_trusted_keys
                ? aoticache_public_key_parse(word, &key, ret_error)
                : aoticache_revocation_parse(word, &revocation, ret_error)) == AOTICACHE_OK;
}

/*
 * Adds keys. Existing words stay, from whichever source: no file and no variable can undo the revocations of another. A word
 * of revoked_keys that cannot be parsed stays too: it may be the important one, and as long as it is there nothing from
 * elsewhere is accepted.
 */
static aoticache_status take_keys(aoticache_config *config, aoticache_config_name name, const char *text,
                                  const char *origin)
{
    static const struct parsed none = {.number = 0};
    aoticache_config_value *setting = &config->values[name];
    size_t length = setting->text != NULL ? strlen(setting->text) : 0;
    cleanup_free char *words = strdup(text);
    cleanup_free char *all = malloc(length + strlen(text) + 2);
    char *rest = NULL;
    if (words == NULL || all == NULL)
        return AOTICACHE_NO_MEMORY;
    memcpy(all, length > 0 ? setting->text : "", length + 1);
    for (char *word = strtok_r(words, " \t", &rest); word != NULL; word = strtok_r(NULL, " \t", &rest)) {
        aoticache_error detail = {.message = ""};
        const bool is_word = is_key_word(name, word, &detail);
        if (is_word || name == AOTICACHE_CONFIG_revoked_keys) {
            if (length > 0)
                all[length++] = ' ';
            memcpy(all + length, word, strlen(word) + 1);
            length += strlen(word);
        }
        if (!is_word)
            aoticache_config_warn(config, "%s: %s: '%.200s' %s: %s", origin, names[name].name, word,
                                  name == AOTICACHE_CONFIG_revoked_keys
                                      ? "is not valid, and nothing from elsewhere is accepted until it is corrected"
                                      : "is not used",
                                  detail.message);
    }
    return set_value(setting, all, origin, &none);
}

/* Returns whether the user's file or the environment tries to undo a requirement of the machine's file, which is not
 * possible. */
static bool is_taken_back(const aoticache_config *config, aoticache_config_name name, const struct parsed *value)
{
    return name == AOTICACHE_CONFIG_require_signatures && value->number == 0 &&
           aoticache_config_always_requires_signatures(config);
}

bool aoticache_config_always_requires_signatures(const aoticache_config *config)
{
    const aoticache_config_name name = AOTICACHE_CONFIG_require_signatures;
    const char *origin = aoticache_config_get(config, name).origin;
    return aoticache_config_get(config, name).number != 0 &&
           strncmp(origin, AOTICACHE_CONFIG_SYSTEM_FILE ":", strlen(AOTICACHE_CONFIG_SYSTEM_FILE) + 1) == 0;
}

static bool is_of_same_file(const char *origin, const char *other)
{
    const char *colon = strrchr(origin, ':');
    return colon != NULL && strncmp(origin, other, (size_t)(colon - origin) + 1) == 0;
}

/* Adds a remote. The lines of one file add remotes, in order. Another file, or the environment, replaces them all. */
static aoticache_status take_remote(aoticache_config *config, const char *text, const char *origin, bool is_file)
{
    static const struct parsed none = {.number = 0};
    const aoticache_config_value *before = &config->values[AOTICACHE_CONFIG_remote];
    cleanup_free char *joined = NULL;
    aoticache_error error = {.message = ""};
    if (is_file && before->text != NULL && is_of_same_file(before->origin, origin)) {
        if (asprintf(&joined, "%s %s", before->text, text) < 0) {
            joined = NULL;
            return AOTICACHE_NO_MEMORY;
        }
    }
    aoticache_status status = aoticache_remotes_check(text, &error);
    if (status == AOTICACHE_INVALID) {
        aoticache_config_warn(config, "%s: %s; line ignored", origin, error.message);
        return AOTICACHE_OK;
    }
    return status == AOTICACHE_OK
               ? set_value(&config->values[AOTICACHE_CONFIG_remote], joined != NULL ? joined : text, origin, &none)
               : status;
}

/* Returns whether the value has more features than this machine: code for them would be compiled for every miss, but could
 * not run here. */
static bool exceeds_machine(aoticache_config *config, const char *text, const char *origin)
{
    aoticache_cpu_features wanted = {{0}};
    char lacking[256];
    if (strcmp(text, AOTICACHE_CPU_NATIVE) != 0)
        aoticache_cpu_features_parse(text, &wanted, NULL);
    wanted = aoticache_cpu_features_lacking(aoticache_cpu_features_get(), &wanted);
    if (aoticache_cpu_features_count(&wanted) == 0)
        return false;
    aoticache_cpu_features_format(&wanted, lacking, sizeof lacking);
    aoticache_config_warn(config, "%s: cpu: '%.100s' needs more than this machine has, which lacks %s; it stays at %s",
                          origin, text, lacking, aoticache_config_get(config, AOTICACHE_CONFIG_cpu).text);
    return true;
}

aoticache_status aoticache_config_take(aoticache_config *config, aoticache_config_name name, const char *text,
                                       const char *origin, bool is_file)
{
    struct parsed value = {.number = 0};
    char advice[AOTICACHE_UNIT_ADVICE_BYTES];
    if ((name == AOTICACHE_CONFIG_directory || name == AOTICACHE_CONFIG_keys) && is_file)
        return set_directory(config, name, text, origin);
    if (aoticache_config_adds_up(name))
        return take_keys(config, name, text, origin);
    if (name == AOTICACHE_CONFIG_remote)
        return take_remote(config, text, origin, is_file);
    if (values[name].unit != NULL && aoticache_unit_is_missing(text, values[name].unit, advice)) {
        aoticache_config_warn(config, "%s: %s: '%.200s' %s; it stays at %s", origin, names[name].name, text, advice,
                              aoticache_config_get(config, name).text);
        return AOTICACHE_OK;
    }
    if (!values[name].parse(text, &value)) {
        aoticache_config_warn(config, "%s: %s: '%.200s' is not %s; it stays at %s", origin, names[name].name, text,
                              values[name].form, aoticache_config_get(config, name).text);
        return AOTICACHE_OK;
    }
    if (name == AOTICACHE_CONFIG_cpu && exceeds_machine(config, text, origin))
        return AOTICACHE_OK;
    if (is_taken_back(config, name, &value)) {
        aoticache_config_warn(config, "%s: %s stays at true: " AOTICACHE_CONFIG_SYSTEM_FILE " requires it", origin,
                              names[name].name);
        return AOTICACHE_OK;
    }
    /* If it is set again, its origin stays the machine's file. */
    if (name == AOTICACHE_CONFIG_require_signatures && aoticache_config_always_requires_signatures(config))
        return AOTICACHE_OK;
    return set_value(&config->values[name], text, origin, &value);
}

aoticache_status aoticache_config_split_keep(aoticache_config *config)
{
    static const char spaces[] = " \t";
    const char *text = aoticache_config_get(config, AOTICACHE_CONFIG_keep).text;
    config->keep_text = strdup(text);
    config->keep = calloc(strlen(text) / 2 + 2, sizeof *config->keep);
    if (config->keep_text == NULL || config->keep == NULL)
        return AOTICACHE_NO_MEMORY;
    char *rest = NULL;
    size_t count = 0;
    for (char *word = strtok_r(config->keep_text, spaces, &rest); word != NULL; word = strtok_r(NULL, spaces, &rest))
        config->keep[count++] = word;
    return AOTICACHE_OK;
}
