/*
 * cache/transfer/refusals: counts and logs refusals of an import: the first refusals of all kinds one by one, and entries
 * without a trusted signature in one line for each signer, with what to do.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/names.h"
#include "cache/transfer/transfer_internal.h"

#define MOST_LOGGED 1000

void aoticache_intake_refuse(aoticache_intake *intake, const char *format, ...)
{
    const aoticache_logger *logger = &intake->cache->directory->logger;
    char line[AOTICACHE_ERROR_MESSAGE_BYTES];
    intake->report->refused++;
    if (intake->logged > MOST_LOGGED)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (intake->logged++ < MOST_LOGGED)
        aoticache_log(logger, AOTICACHE_LOG_WARNING, "refused: %s", line);
    else
        aoticache_log(logger, AOTICACHE_LOG_WARNING, "further refusals are counted but not logged");
}

#define QUOTED_KEY_BYTES 256

/* Returns the refusals of one signer, a new row if there is none yet. NULL: there are rows of too many others. */
static aoticache_untrusted *untrusted_of(aoticache_intake *intake, const aoticache_public_key *signer)
{
    for (size_t i = 0; i < intake->untrusted_count; i++)
        if (memcmp(&intake->untrusted[i].signer, signer, sizeof *signer) == 0)
            return &intake->untrusted[i];
    if (intake->untrusted_count == AOTICACHE_UNTRUSTED_SIGNERS)
        return NULL;
    aoticache_untrusted *row = &intake->untrusted[intake->untrusted_count++];
    *row = (aoticache_untrusted){.signer = *signer};
    return row;
}

void aoticache_intake_refuse_untrusted(aoticache_intake *intake, const aoticache_trust_verdict *verdict,
                                       const aoticache_key *key)
{
    const bool is_unknown =
        verdict->reason == AOTICACHE_TRUST_UNSIGNED || verdict->reason == AOTICACHE_TRUST_UNKNOWN_KEY;
    aoticache_untrusted *row = is_unknown ? untrusted_of(intake, &verdict->key) : NULL;
    intake->report->entries_untrusted++;
    if (row == NULL) {
        aoticache_intake_refuse(intake, "%s%s%s%s", intake->is_remote ? "remote " : "",
                                intake->is_remote ? intake->place : "", intake->is_remote ? ": " : "",
                                verdict->message);
        return;
    }
    intake->report->refused++;
    if (row->count < AOTICACHE_UNTRUSTED_NAMED)
        row->named[row->count] = *key;
    row->count++;
    aoticache_log(&intake->cache->directory->logger, AOTICACHE_LOG_DEBUG, "refused: %s", verdict->message);
}

/* Notes that a signer is logged. Returns false if it was logged before. A signer for whom no slot is left is logged each
 * time. */
static bool is_news(_Atomic uint64_t *told, const char *name)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    hash |= 1; /* a free slot is 0 */
    for (size_t i = 0; i < AOTICACHE_UNTRUSTED_SIGNERS; i++) {
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&told[i], &found, hash))
            return true;
        if (found == hash)
            return false;
    }
    return true;
}

/* Quotes a key as one word of a shell, because its maker chose the name; returns false if it is too long to be typed. */
static bool quote_key(const aoticache_public_key *key, char ret_text[QUOTED_KEY_BYTES])
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
    char text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];
    size_t length = 0;
    aoticache_public_key_format(key, text);
    const char *quote = text[strspn(text, plain)] == '\0' ? "" : "'";
    length += (size_t)snprintf(ret_text, QUOTED_KEY_BYTES, "%s", quote);
    for (const char *c = text; *c != '\0' && length < QUOTED_KEY_BYTES - 6; c++)
        length += (size_t)snprintf(ret_text + length, QUOTED_KEY_BYTES - length, *c == '\'' ? "'\\%c'" : "%c", *c);
    snprintf(ret_text + length, QUOTED_KEY_BYTES - length, "%s", quote);
    return length < QUOTED_KEY_BYTES - 6;
}

/* Describes the signer and how to accept the entries: a command to type. */
static void format_remedy(const aoticache_intake *intake, const aoticache_untrusted *row, char *ret_text, size_t size)
{
    static const aoticache_public_key none;
    const aoticache_public_key *signer = &row->signer;
    const bool is_one = row->count == 1;
    char key[QUOTED_KEY_BYTES];
    if (signer->name[0] == '\0')
        snprintf(ret_text, size, "%s not signed; on the machine that made %s, run: %s", is_one ? "it is" : "they are",
                 is_one ? "it" : "them", intake->is_remote ? "aoticache push --all" : "aoticache key sign --all");
    else if (memcmp(signer->bytes, none.bytes, sizeof none.bytes) != 0 && quote_key(signer, key))
        snprintf(ret_text, size,
                 "signed by '%s', a key that is not trusted here; if its owner may run code here, repeat this after: "
                 "aoticache key trust %s",
                 signer->name, key);
    else
        snprintf(ret_text, size,
                 "signed by '%s', a key that is not trusted here; if its owner may run code here, run 'aoticache key "
                 "public' there and 'aoticache key trust' here with what it prints",
                 signer->name);
}

static void tell(const aoticache_intake *intake, const aoticache_untrusted *row)
{
    char names[AOTICACHE_UNTRUSTED_NAMED * 16] = "", remedy[640];
    size_t length = 0;
    for (size_t i = 0; i < row->count && i < AOTICACHE_UNTRUSTED_NAMED; i++) {
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(&row->named[i], hex);
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%.12s", i > 0 ? ", " : "", hex);
    }
    format_remedy(intake, row, remedy, sizeof remedy);
    aoticache_log(&intake->cache->directory->logger, AOTICACHE_LOG_WARNING, "%s%.200s: %llu %s refused (%s%s): %s",
                  intake->is_remote ? "remote " : "", intake->place, (unsigned long long)row->count,
                  row->count == 1 ? "entry" : "entries", names, row->count > AOTICACHE_UNTRUSTED_NAMED ? ", ..." : "",
                  remedy);
}

void aoticache_intake_tell_untrusted(aoticache_intake *intake)
{
    for (size_t i = 0; i < intake->untrusted_count; i++)
        if (intake->told == NULL || is_news(intake->told, intake->untrusted[i].signer.name))
            tell(intake, &intake->untrusted[i]);
    intake->untrusted_count = 0;
}
