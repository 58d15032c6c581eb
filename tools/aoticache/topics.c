/*
 * tools/aoticache/topics: `aoticache help TOPIC`: related commands and settings, for users who know what they want to do but
 * not the names. Every line has at most 79 characters.
 */
#include "tools/aoticache/aoticache_internal.h"

#include <string.h>

static const aoticache_topic topics[] = {
    {"start", "The first kernel, and the second call",
     "  aoticache doctor                 checks what compiling needs\n"
     "  aoticache run aten::abs --input float32:2x3\n"
     "                                   compiles, stores and runs; the second time\n"
     "                                   it only runs\n"
     "  aoticache ls                     what the cache has\n"
     "  aoticache show KEY               everything about one kernel\n"
     "  aoticache-stat                   hits, misses, compiles, time saved\n"
     "\n"
     "Python: `import aoticache; aoticache.enable(\"safe\")` for eager operators, and\n"
     "`aoticache.install_compile_cache()` for torch.compile.\n"},
    {"space", "How large the cache becomes",
     "Without a limit the cache only grows. Limits are the settings max_size,\n"
     "max_entries, max_age and min_free (aoticache config), or options of\n"
     "aoticache-gc.\n"
     "\n"
     "  aoticache du                     what uses the space\n"
     "  aoticache-gc --max-size 10G --dry-run\n"
     "                                   what would be removed\n"
     "  aoticache-gc                     removes it; from cron or a timer\n"
     "  aoticache pin KEY                no collection removes it\n"
     "  aoticache rm KEY                 removes it now\n"},
    {"sharing", "One compile for many machines",
     "  aoticache export FILE            kernels into an archive, signed\n"
     "  aoticache import FILE            adds them, if their signer is trusted\n"
     "  aoticache push, aoticache pull   the same over Redis, HTTP or S3 (remote)\n"
     "  aoticache prefetch FILE          fetches what a list names, before a start\n"
     "  aoticache merge, aoticache copy  between cache directories\n"
     "  aoticache record, aoticache warm a list of the kernels that a program\n"
     "                                   requests, compiled beforehand\n"
     "\n"
     "With the setting `remote` a miss fetches what another machine compiled. With\n"
     "Redis or S3, one machine compiles while the others wait.\n"},
    {"trust", "Whose kernels run here",
     "A kernel is code. A kernel from elsewhere runs only if a key that this\n"
     "machine trusts signed it (require_signatures, trusted_keys).\n"
     "\n"
     "  aoticache key public             this user's own key, for other machines\n"
     "  aoticache key trust KEY          trust it from now on\n"
     "  aoticache key distrust NAME      no longer; removes what only it signed\n"
     "  aoticache key list               whose signatures are trusted\n"
     "  aoticache verify                 checks stored bytes and signatures\n"},
    {"trouble", "When something goes wrong",
     "  aoticache doctor                 directory, compilers, PyTorch, remotes, and\n"
     "                                   what to do\n"
     "  aoticache why REQUEST            why it was a miss: what differs\n"
     "  aoticache ls --failed            compiles that failed, with their messages\n"
     "  aoticache verify --repair        finds damage, and moves it away\n"
     "  aoticache config                 each setting, and where it comes from\n"},
    {"environment", "Variables that programs read",
     "  AOTICACHE_DIR      the cache directory\n"
     "  AOTICACHE_CONFIG   a configuration file in place of the usual ones\n"
     "  AOTICACHE_KEYS     the key directory\n"
     "  AOTICACHE_PYTHON   the Python with PyTorch that compiles\n"
     "  AOTICACHE_CC       the compiler of kernels in C\n"
     "  AOTICACHE_HOME     where the library is installed, if it is not found\n"
     "  AOTICACHE_RECORD   a file for the requests of a program\n"
     "  AOTICACHE_ENABLE, AOTICACHE_COMPILE_CACHE\n"
     "                     in Python: operators, and torch.compile, on the cache\n"
     "\n"
     "Each setting has a variable too: aoticache(1) and aoticache.conf(5).\n"},
};

#define TOPIC_COUNT (sizeof topics / sizeof topics[0])

const aoticache_topic *aoticache_topic_at(size_t index)
{
    return index < TOPIC_COUNT ? &topics[index] : NULL;
}

bool aoticache_topic_print(const char *word)
{
    for (size_t i = 0; i < TOPIC_COUNT; i++) {
        if (strcmp(topics[i].word, word) == 0) {
            printf("%s\n\n%s", topics[i].summary, topics[i].text);
            return true;
        }
    }
    return false;
}
