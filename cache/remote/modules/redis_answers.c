/*
 * cache/remote/modules/redis_answers: interprets the errors of a Redis server, with one table. docs/remotes.md describes it;
 * tests/cli/remotes/test_remote_answers.sh tests each row.
 *
 * Sources: "Redis serialization protocol specification" (errors begin with a word in capitals), "Access control list",
 * "Replication", "Redis persistence", "Redis cluster specification"; src/server.c of Redis 7, createSharedObjects(). Before
 * Redis 7 an error inside a script has the word in its middle, after "-".
 */
#include "cache/remote/modules/redis_answers.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define WANTS_PASSWORD "it requires a password: set secret-file= or secret-env="
#define HAS_NO_PASSWORD "it has no password: remove secret-file= or secret-env="
#define NO_RIGHT "this user may not do that (docs/remotes.md has the access list)"
#define OF_A_CLUSTER "it is a node of a cluster: use a single server, or a proxy of the cluster"

static const struct row {
    const char *word;
    aoticache_status status;
    bool connects_anew;
    const char *words;
} rows[] = {
    {"NOAUTH", AOTICACHE_DENIED, false, WANTS_PASSWORD},
    {"unauthenticated", AOTICACHE_DENIED, false, WANTS_PASSWORD}, /* for a large SET */
    {"WRONGPASS", AOTICACHE_DENIED, true, "check user= and secret-file= or secret-env="},
    {"NOPERM", AOTICACHE_DENIED, false, NO_RIGHT},
    {"ERR invalid password", AOTICACHE_DENIED, true, "check secret-file= or secret-env="},
    {"ERR Client sent AUTH", AOTICACHE_DENIED, false, HAS_NO_PASSWORD},
    {"ERR AUTH", AOTICACHE_DENIED, false, HAS_NO_PASSWORD},
    {"The user executing the script can't", AOTICACHE_DENIED, false, NO_RIGHT},
    {"READONLY", AOTICACHE_DENIED, true, "it is a replica, which does not accept writes"},
    {"OOM", AOTICACHE_DENIED, false, "it is out of memory: check maxmemory, and set maxmemory-policy allkeys-lru"},
    {"MISCONF", AOTICACHE_DENIED, false, "it cannot save to its disk, and does not accept writes"},
    {"NOREPLICAS", AOTICACHE_DENIED, false, "it has too few replicas, and does not accept writes"},
    {"MOVED", AOTICACHE_DENIED, false, OF_A_CLUSTER},
    {"CROSSSLOT", AOTICACHE_DENIED, false, OF_A_CLUSTER},
    {"ASK", AOTICACHE_DENIED, false, OF_A_CLUSTER},
    {"CLUSTERDOWN", AOTICACHE_IO, true, "its cluster is down"},
    {"MASTERDOWN", AOTICACHE_IO, true, "it is a replica without its primary"},
    {"LOADING", AOTICACHE_IO, false, "it is loading its data"},
    {"BUSY", AOTICACHE_IO, false, "it is running a script of another client"},
    {"TRYAGAIN", AOTICACHE_IO, false, "try again"},
};

/* Returns whether the text begins with the word, or has it after a "-" or a ": ". */
static bool has_word(const char *text, const char *word)
{
    const size_t length = strlen(word);
    for (const char *found = strstr(text, word); found != NULL; found = strstr(found + 1, word)) {
        if ((found == text || found[-1] == '-' || found[-1] == ' ') && !isalnum((unsigned char)found[length]))
            return true;
    }
    return false;
}

aoticache_status redis_judge_error(const char *text, bool *ret_connects_anew, aoticache_error *ret_error)
{
    *ret_connects_anew = false;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!has_word(text, rows[i].word))
            continue;
        *ret_connects_anew = rows[i].connects_anew;
        return aoticache_error_set(ret_error, rows[i].status, "the server refuses: %s: %s", rows[i].word,
                                   rows[i].words);
    }
    char words[120]; /* the server's words, without characters that would disturb a log line */
    snprintf(words, sizeof words, "%s", text);
    for (char *c = words; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = '?';
    return aoticache_error_set(ret_error, AOTICACHE_DENIED, "unexpected response: %s", words);
}
