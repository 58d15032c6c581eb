/*
 * tools/aoticache/why/remotes: finds what the configured remotes have for a key that is not in the cache. Nothing is
 * fetched.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/why/why_internal.h"

#include <stdlib.h>
#include <string.h>

/* Returns "builder-1, ci-2"; "" if it is not signed. Lines are name:base64. */
static char *names_of(const char *signatures)
{
    char *names = aoticache_cli_text("%s", "");
    for (const char *line = signatures; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        char *more =
            aoticache_cli_text("%s%s%.*s", names, names[0] != '\0' ? ", " : "", (int)strcspn(line, ":\n"), line);
        free(names);
        names = more;
    }
    return names;
}

static char *text_of(const aoticache_remote_entry *entry, const char *signers, bool fits)
{
    char age[AOTICACHE_CLI_UNIT_BYTES];
    if (entry->status == AOTICACHE_NOT_FOUND)
        return aoticache_cli_text("nothing");
    if (entry->status != AOTICACHE_OK)
        return aoticache_cli_text("%s", entry->message);
    aoticache_cpu_features lacking = aoticache_cpu_features_lacking(aoticache_cpu_features_get(), &entry->requirements);
    cleanup_free char *needs = aoticache_features_text(&entry->requirements);
    cleanup_free char *names = aoticache_features_list(&lacking);
    return aoticache_cli_text(
        "%s for %s, made %s ago, %s%s%s%s", entry->guard[0] != '\0' ? "one for many shapes," : "one", needs,
        aoticache_cli_format_age(entry->created_ns, age), signers[0] != '\0' ? "signed by " : "not signed", signers,
        fits ? "" : "; this CPU lacks ", fits ? "" : names);
}

static bool add(void *user, const aoticache_remote_entry *entry)
{
    aoticache_remote_findings *findings = user;
    aoticache_remote_finding finding = {
        .url = aoticache_cli_text("%s", entry->url),
        .signers = names_of(entry->signatures),
        .artifact = entry->artifact,
        .has_entry = entry->status == AOTICACHE_OK,
        .fits = entry->status == AOTICACHE_OK &&
                aoticache_cpu_features_include(aoticache_cpu_features_get(), &entry->requirements),
    };
    finding.text = text_of(entry, finding.signers, finding.fits);
    findings->items = aoticache_cli_resize(findings->items, findings->count + 1, sizeof *findings->items);
    findings->items[findings->count++] = finding;
    return true;
}

void aoticache_remote_findings_read(const aoticache_cli *cli, const aoticache_key *key,
                                    aoticache_remote_findings *ret_findings)
{
    aoticache_config *config = NULL;
    aoticache_error error = {.message = ""};
    *ret_findings = (aoticache_remote_findings){.count = 0};
    if (aoticache_config_read(NULL, (aoticache_logger){.log = NULL}, &config, NULL) != AOTICACHE_OK)
        aoticache_cli_out_of_memory();
    const char *remotes = aoticache_config_get(config, AOTICACHE_CONFIG_remote).text;
    if (remotes != NULL && remotes[0] != '\0' &&
        aoticache_remotes_query(remotes, key, add, ret_findings, &error) != AOTICACHE_OK)
        aoticache_cli_note(cli, "%s", error.message);
    aoticache_config_free(config);
}

bool aoticache_remote_findings_have_one(const aoticache_remote_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        if (findings->items[i].fits)
            return true;
    return false;
}

void aoticache_remote_findings_print(const aoticache_cli *cli, const aoticache_remote_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const aoticache_remote_finding *one = &findings->items[i];
        /* Messages of failures contain the name of the remote. */
        const bool is_named = strstr(one->text, one->url) != NULL;
        aoticache_cli_print_field(cli, i == 0 ? "remote" : "", "%s%s%s", is_named ? "" : one->url, is_named ? "" : ": ",
                                  one->text);
    }
}

json_t *aoticache_remote_findings_to_json(const aoticache_remote_findings *findings)
{
    json_t *array = aoticache_cli_json_array();
    for (size_t i = 0; i < findings->count; i++) {
        const aoticache_remote_finding *one = &findings->items[i];
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "remote", aoticache_cli_json_text(one->url));
        aoticache_cli_json_set(object, "artifact",
                               one->has_entry ? aoticache_cli_json_digest(&one->artifact) : json_null());
        aoticache_cli_json_set(object, "fits", json_boolean(one->fits));
        aoticache_cli_json_set(object, "signers", aoticache_cli_json_text(one->signers));
        aoticache_cli_json_set(object, "text", aoticache_cli_json_text(one->text));
        aoticache_cli_json_append(array, object);
    }
    return array;
}

void aoticache_remote_findings_free(aoticache_remote_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        free(findings->items[i].url);
        free(findings->items[i].text);
        free(findings->items[i].signers);
    }
    free(findings->items);
}
