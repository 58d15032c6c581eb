/*
 * tools/aoticache/doctor/configuration: checks the configuration for errors, and for limits that do not fit the contents.
 */
#include "base/cleanup.h"
#include "base/files/listing.h"
#include "tools/aoticache/doctor/doctor_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define OK AOTICACHE_VERDICT_OK
#define WARN AOTICACHE_VERDICT_WARN

#define MANY_BYTES ((uint64_t)100 << 20)
#define MANY_FILES 1000
#define MAX_DEPTH 8

/* ---- the files ---- */

static void report_problem(void *user, aoticache_log_level level, const char *line)
{
    (void)level;
    aoticache_doctor_report(user, WARN, "configuration",
                            "correct the line; 'aoticache config' shows the settings in use", "%s", line);
}

static void report_files(aoticache_doctor *doctor, const aoticache_config *config)
{
    const aoticache_config_info *info = aoticache_config_get_info(config);
    bool is_any = false;
    for (size_t i = 0; i < info->file_count; i++) {
        if (strcmp(info->files[i].state, "read") != 0)
            continue;
        aoticache_doctor_report(doctor, OK, "configuration", NULL, "%s", info->files[i].path);
        is_any = true;
    }
    if (!is_any)
        aoticache_doctor_report(doctor, OK, "configuration", NULL, "no file; defaults and the environment");
}

aoticache_config *aoticache_doctor_check_configuration(aoticache_doctor *doctor)
{
    aoticache_config *config = NULL;
    aoticache_logger logger = {.log = report_problem, .user = doctor};
    if (aoticache_config_read(NULL, logger, &config, NULL) != AOTICACHE_OK)
        aoticache_cli_out_of_memory();
    if (aoticache_config_get_info(config)->problem_count == 0)
        report_files(doctor, config);
    return config;
}

/* ---- limits ---- */

static void check_size(aoticache_doctor *doctor, const aoticache_config *config, uint64_t bytes, uint64_t free_bytes)
{
    char have[AOTICACHE_CLI_UNIT_BYTES], room[AOTICACHE_CLI_UNIT_BYTES];
    const aoticache_config_setting setting = aoticache_config_get(config, AOTICACHE_CONFIG_max_size);
    const uint64_t limit = setting.number;
    const char *text = setting.text;
    aoticache_cli_format_bytes(bytes, have);
    aoticache_cli_format_bytes(free_bytes, room);
    if (limit == 0)
        return;
    if (bytes > limit)
        aoticache_doctor_report(doctor, WARN, "max_size",
                                "aoticache-gc removes entries until it is below; or raise max_size",
                                "%s is less than the current %s", text, have);
    else if (limit - bytes > free_bytes)
        aoticache_doctor_report(doctor, WARN, "max_size", "lower max_size, or set min_free",
                                "%s will not be reached: the cache has %s and the file system has %s left", text, have,
                                room);
    else
        aoticache_doctor_report(doctor, OK, "max_size", NULL, "%s of %s", have, text);
}

static void check_free(aoticache_doctor *doctor, const aoticache_config *config, const struct statvfs *information,
                       uint64_t free_bytes)
{
    char room[AOTICACHE_CLI_UNIT_BYTES];
    double all = (double)information->f_blocks * (double)information->f_frsize;
    const aoticache_config_setting setting = aoticache_config_get(config, AOTICACHE_CONFIG_min_free);
    double wanted = (double)setting.number + setting.share * all;
    if (wanted > (double)free_bytes)
        aoticache_doctor_report(doctor, WARN, "min_free", "aoticache-gc frees space, as far as the cache can give it",
                                "%s should be free, %s is", setting.text, aoticache_cli_format_bytes(free_bytes, room));
}

void aoticache_doctor_check_limits(aoticache_doctor *doctor, const aoticache_config *config, const char *path,
                                   const aoticache_statistics *statistics)
{
    struct statvfs information;
    uint64_t max_entries = aoticache_config_get(config, AOTICACHE_CONFIG_max_entries).number;
    if (statvfs(path, &information) == 0) {
        uint64_t free_bytes = (uint64_t)information.f_bavail * (uint64_t)information.f_frsize;
        check_size(doctor, config, statistics->bytes, free_bytes);
        check_free(doctor, config, &information, free_bytes);
    }
    if (max_entries != 0 && statistics->entries > max_entries)
        aoticache_doctor_report(doctor, WARN, "max_entries",
                                "aoticache-gc removes entries until it is below; or raise max_entries",
                                "%" PRIu64 " is less than the current %" PRIu64, max_entries, statistics->entries);
}

/* ---- quarantine ---- */

struct amount {
    uint64_t files, bytes;
};

static void add_up(int parent, const char *name, int depth, struct amount *amount)
{
    if (depth >= MAX_DEPTH)
        return;
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    cleanup_dir DIR *listing = aoticache_listing_open(fd);
    for (const char *item; listing != NULL && (item = aoticache_listing_next(listing)) != NULL;) {
        struct stat found;
        if (fstatat(fd, item, &found, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISDIR(found.st_mode)) {
            add_up(fd, item, depth + 1, amount);
            continue;
        }
        amount->files++;
        amount->bytes += (uint64_t)found.st_blocks * 512;
    }
}

void aoticache_doctor_check_quarantine(aoticache_doctor *doctor, const char *path)
{
    struct amount amount = {.files = 0};
    char bytes[AOTICACHE_CLI_UNIT_BYTES];
    cleanup_free char *quarantine = aoticache_cli_text("%s/quarantine", path);
    add_up(AT_FDCWD, quarantine, 0, &amount);
    if (amount.files == 0)
        return;
    bool is_much = amount.files >= MANY_FILES || amount.bytes >= MANY_BYTES;
    aoticache_doctor_report(doctor, is_much ? WARN : OK, "quarantine",
                            is_much ? "examine its contents and remove them; aoticache-gc removes old files" : NULL,
                            "%" PRIu64 " %s in quarantine, %s", amount.files, amount.files == 1 ? "file" : "files",
                            aoticache_cli_format_bytes(amount.bytes, bytes));
}
