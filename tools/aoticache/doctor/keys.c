/*
 * tools/aoticache/doctor/keys: checks the keys that this user trusts, and whether signatures can be made and checked.
 */
#include "base/cleanup.h"
#include "tools/aoticache/doctor/doctor_internal.h"

#define OK AOTICACHE_VERDICT_OK
#define WARN AOTICACHE_VERDICT_WARN

/* Checks the user's own key, and those of sign_with. Having none is not a fault: the first export makes one. */
static void check_own_key(aoticache_doctor *doctor, const aoticache_config *config, aoticache_cache *cache)
{
    const char *directory = aoticache_config_get_info(config)->key_directory;
    cleanup_free char *path = aoticache_cli_text("%s/" AOTICACHE_SECRET_KEY_FILE, directory);
    aoticache_secret_key *key = NULL;
    const aoticache_secret_key *const *signers = NULL;
    size_t count = 0;
    aoticache_error error = {.message = ""};
    aoticache_status status =
        directory[0] != '\0' ? aoticache_secret_key_read(path, &key, &error) : AOTICACHE_NOT_FOUND;
    if ((status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND) &&
        aoticache_cache_signers(cache, &signers, &count, &error) != AOTICACHE_OK)
        aoticache_doctor_report(doctor, WARN, "own key", "until this is corrected export, push and key sign fail", "%s",
                                error.message);
    else if (status == AOTICACHE_OK)
        aoticache_doctor_report(doctor, OK, "own key", NULL, "'%s'", aoticache_secret_key_public(key)->name);
    else if (status == AOTICACHE_UNSUPPORTED)
        aoticache_doctor_report(doctor, WARN, "own key", "install OpenSSL's libcrypto", "%s", error.message);
    else if (status != AOTICACHE_NOT_FOUND)
        aoticache_doctor_report(doctor, WARN, "own key", "fix it, or move it away: the next export makes another", "%s",
                                error.message);
    aoticache_secret_key_free(key);
}

struct tally {
    unsigned trusted, revoked;
};

static bool count_key(void *user, const aoticache_public_key *key, aoticache_trust_origin origin, bool is_revoked)
{
    struct tally *tally = user;
    (void)key, (void)origin;
    tally->trusted += !is_revoked;
    tally->revoked += is_revoked;
    return true;
}

static void check_rule(aoticache_doctor *doctor, const aoticache_config *config)
{
    if (aoticache_config_get(config, AOTICACHE_CONFIG_require_signatures).number == 0)
        aoticache_doctor_report(doctor, WARN, "signatures",
                                "set require_signatures = true, and trust the keys you need",
                                "not required: the maker of an archive that you import can run code as you");
}

void aoticache_doctor_check_keys(aoticache_doctor *doctor, const aoticache_config *config, aoticache_cache *cache)
{
    struct tally tally = {0};
    aoticache_error error = {.message = ""};
    check_own_key(doctor, config, cache);
    check_rule(doctor, config);
    if (aoticache_cache_list_trusted(cache, count_key, &tally, &error) != AOTICACHE_OK)
        aoticache_doctor_report(doctor, WARN, "trusted keys",
                                "correct it; until then nothing from elsewhere is accepted", "%s", error.message);
    else if (tally.trusted + tally.revoked > 0)
        aoticache_doctor_report(doctor, OK, "trusted keys", NULL,
                                "%u known, %u of them revoked; 'aoticache key list' shows them",
                                tally.trusted + tally.revoked, tally.revoked);
}
