/*
 * cache/judgements: timing results in the index, and their subjects: the kind of machine, size classes.
 */
#include "base/arguments.h"
#include "cache/judgements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/cleanup.h"
#include "cache/eager_face.h"
#include "cache/cache_internal.h"
#include "index/entries/judgements.h"

#define WAIT_MS 5 /* for other processes: one of the host's calls may be waiting */

/* ---- the kind of machine ---- */

static char machine[128];
static pthread_once_t machine_once = PTHREAD_ONCE_INIT;

/* Returns the part after the colon of a line that begins with `name`; "" for another line. */
static const char *value_of(char *line, const char *name)
{
    char *colon = strncmp(line, name, strlen(name)) == 0 ? strchr(line, ':') : NULL;
    if (colon == NULL)
        return "";
    line[strcspn(line, "\n")] = '\0';
    return colon + 1 + strspn(colon + 1, " \t");
}

/* Reads the model's name on x86; on other architectures the numbers of implementer and part, if the kernel reports them. */
static void read_processor(char *ret_model, char *ret_part, size_t size)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && *ret_model == '\0' && fgets(line, sizeof line, file) != NULL) {
        snprintf(ret_model, size, "%s", value_of(line, "model name"));
        if (*ret_part == '\0')
            snprintf(ret_part, size, "%s", value_of(line, "CPU part"));
    }
    if (file != NULL)
        fclose(file);
}

static void find_machine(void)
{
    char model[96] = "", part[96] = "";
    struct utsname system;
    read_processor(model, part, sizeof model);
    if (model[0] != '\0')
        snprintf(machine, sizeof machine, "%s", model);
    else
        snprintf(machine, sizeof machine, "%.24s%s%s", uname(&system) == 0 ? system.machine : "unknown",
                 part[0] != '\0' ? " part " : "", part);
}

const char *aoticache_machine_name(void)
{
    pthread_once(&machine_once, find_machine);
    return machine;
}

uint32_t aoticache_size_class(uint64_t elements)
{
    uint32_t size_class = 0;
    while (size_class + 1 < AOTICACHE_SIZE_CLASSES && elements >> (2 * (size_class + 2)) != 0)
        size_class++;
    return size_class;
}

/* ---- in the index ---- */

aoticache_status aoticache_cache_put_judgements(aoticache_cache *cache, const aoticache_judgement *judgements,
                                                size_t count, aoticache_error *ret_error)
{
    if (cache == NULL || (judgements == NULL && count > 0))
        return AOTICACHE_REFUSE_NULL(ret_error, cache, judgements);
    aoticache_cache_enter(cache);
    aoticache_status status = aoticache_cache_check_writable(cache, ret_error);
    aoticache_index *index = aoticache_cache_index(cache);
    if (status != AOTICACHE_OK || index == NULL || count == 0)
        return status;
    cleanup_free aoticache_index_judgement *rows = calloc(count, sizeof *rows);
    if (rows == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu judgements", count);
    for (size_t i = 0; i < count; i++)
        rows[i] = (aoticache_index_judgement){.key = judgements[i].key,
                                              .machine = judgements[i].machine,
                                              .threads = judgements[i].threads,
                                              .size = judgements[i].size_class,
                                              .is_slower = judgements[i].is_slower,
                                              .kernel_ns = judgements[i].kernel_ns,
                                              .fallback_ns = judgements[i].fallback_ns,
                                              .judged_ns = judgements[i].judged_ns};
    status = aoticache_index_put_judgements(index, rows, count, WAIT_MS, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        aoticache_cache_count(cache, AOTICACHE_COUNTER_judged, 1);
        aoticache_cache_count(cache, AOTICACHE_COUNTER_judged_slower, judgements[i].is_slower);
    }
    return aoticache_cache_index_result(status, ret_error);
}

void aoticache_cache_note_lost(aoticache_cache *cache, uint64_t calls)
{
    if (cache == NULL || calls == 0)
        return;
    aoticache_cache_enter(cache);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_calls_lost, calls);
}

struct walk {
    aoticache_judgement_fn callback;
    void *user;
};

static bool forward(void *user, const aoticache_index_judgement *row)
{
    const struct walk *walk = user;
    aoticache_judgement judgement = {.key = row->key,
                                     .machine = row->machine,
                                     .is_this_machine = strcmp(row->machine, aoticache_machine_name()) == 0,
                                     .threads = row->threads,
                                     .size_class = row->size,
                                     .is_slower = row->is_slower,
                                     .kernel_ns = row->kernel_ns,
                                     .fallback_ns = row->fallback_ns,
                                     .judged_ns = row->judged_ns};
    return walk->callback(walk->user, &judgement);
}

aoticache_status aoticache_cache_list_judgements(aoticache_cache *cache, const aoticache_key *key,
                                                 aoticache_judgement_fn callback, void *user,
                                                 aoticache_error *ret_error)
{
    struct walk walk = {.callback = callback, .user = user};
    if (cache == NULL || key == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, key, callback);
    aoticache_cache_enter(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index == NULL)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_list_judgements(index, key, forward, &walk, ret_error);
    return aoticache_cache_index_result(status, ret_error);
}
