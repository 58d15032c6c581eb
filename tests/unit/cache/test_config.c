/*
 * Units and the configuration: what is read, what is refused, where values come from, which of them a cache uses.
 */
#include "tests/unit/fixtures/cache_fixture.h"

#include <locale.h>

#include "base/text/units.h"
#include "cache/config/config.h"
#include "cache/config/config_internal.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/cache_internal.h"
#include "cache/request/cpu.h"
#include "cache/request/cpu_detect.h"
#include "tests/unit/fixtures/locale_fixture.h"

static char lines[4096];
static size_t line_count;

static void hear(void *user, aoticache_log_level level, const char *line)
{
    (void)user;
    cr_assert_eq(level, AOTICACHE_LOG_WARNING);
    cr_assert_null(strchr(line, '\n'));
    line_count++;
    snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s\n", line);
}

static void setup(void)
{
    fixture_setup();
    for (aoticache_config_name name = 0; name < AOTICACHE_CONFIG_COUNT; name++)
        unsetenv(aoticache_config_get(NULL, name).variable);
    setenv(AOTICACHE_CONFIG_FILE_VARIABLE, "", 1);
    setenv("HOME", fixture_root, 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("XDG_CONFIG_HOME");
    umask(022);
}

TestSuite(config, .init = setup, .fini = fixture_teardown);
TestSuite(units);

static aoticache_config *read_config(void)
{
    aoticache_config *config = NULL;
    aoticache_error error = {.message = ""};
    lines[0] = '\0';
    line_count = 0;
    cr_assert_eq(aoticache_config_read(NULL, (aoticache_logger){.log = hear}, &config, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(aoticache_config_get_info(config)->problem_count, line_count);
    return config;
}

/* Reads the configuration from a file with this text. */
static aoticache_config *read_text(const char *text)
{
    setenv(AOTICACHE_CONFIG_FILE_VARIABLE, fixture_write("aoticache.conf", text), 1);
    return read_config();
}

/* ---- units ---- */

static uint64_t size_of(const char *text)
{
    uint64_t bytes = 12345;
    return aoticache_size_parse(text, &bytes) ? bytes : UINT64_MAX - 1;
}

Test(units, sizes_have_binary_and_decimal_prefixes)
{
    cr_assert_eq(size_of("0"), 0);
    cr_assert_eq(size_of("512B"), 512);
    cr_assert_eq(size_of("1.5GiB"), 1610612736);
    cr_assert_eq(size_of("10G"), UINT64_C(10) << 30);
    cr_assert_eq(size_of("10 g"), UINT64_C(10) << 30);
    cr_assert_eq(size_of("10GB"), UINT64_C(10000000000));
    cr_assert_eq(size_of("0.1KB"), 100);
    cr_assert_eq(size_of("18446744073709551615B"), UINT64_MAX);
}

Test(units, what_is_no_size_is_refused)
{
    static const char *const wrong[] = {"",
                                        "20",
                                        "1.5",
                                        " 1B",
                                        "1B ",
                                        "-1B",
                                        "+1B",
                                        "1e9B",
                                        "1X",
                                        "1GG",
                                        "G",
                                        ".5G",
                                        "1.",
                                        "1.2.3",
                                        "0x10",
                                        "16E",
                                        "18446744073709551616B",
                                        "99999999999999999999999999999999999999999B"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint64_t bytes = 7;
        cr_assert_not(aoticache_size_parse(wrong[i], &bytes), "%s", wrong[i]);
        cr_assert_eq(bytes, 7);
    }
}

Test(units, ages_shares_and_counts)
{
    uint64_t seconds = 0;
    double share = 0;
    cr_assert(aoticache_age_parse("30d", &seconds) && seconds == 2592000);
    cr_assert(aoticache_age_parse("1.5h", &seconds) && seconds == 5400);
    cr_assert(aoticache_age_parse("0", &seconds) && seconds == 0);
    cr_assert_not(aoticache_age_parse("30", &seconds));
    cr_assert_not(aoticache_age_parse("30 y", &seconds));
    cr_assert(aoticache_share_parse("5%", &share) && share == 0.05);
    cr_assert(aoticache_share_parse("0.5 %", &share) && share == 0.005);
    cr_assert(aoticache_share_parse("100%", &share) && share == 1);
    cr_assert_not(aoticache_share_parse("101%", &share));
    cr_assert_not(aoticache_share_parse("5", &share));
    cr_assert(aoticache_count_parse("18446744073709551615", &seconds) && seconds == UINT64_MAX);
    cr_assert_not(aoticache_count_parse("18446744073709551616", &seconds));
    cr_assert_not(aoticache_count_parse("1k", &seconds));
}

Test(units, a_missing_unit_is_named)
{
    static const struct {
        const char *text, *unit, *advice; /* advice NULL: the unit is not missing */
    } cases[] = {
        {"20", "G", "has no unit (did you mean 20G? 20B for bytes)"},
        {"1.5", "G", "has no unit (did you mean 1.5G? 1.5B for bytes)"},
        {"10737418240", "G", "has no unit (did you mean 10737418240B?)"},
        {"5", "%", "has no unit (did you mean 5% or 5G? 5B for bytes)"},
        {"500", "%", "has no unit (did you mean 500G? 500B for bytes)"},
        {"20", "d", "has no unit (did you mean 20d?)"},
        {"0", "G", NULL},
        {"0.0", "d", NULL},
        {"20G", "G", NULL},
        {"much", "G", NULL},
        {"", "G", NULL},
        {"1.", "G", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char advice[AOTICACHE_UNIT_ADVICE_BYTES] = "";
        cr_assert_eq(aoticache_unit_is_missing(cases[i].text, cases[i].unit, advice), cases[i].advice != NULL, "%s",
                     cases[i].text);
        cr_assert_str_eq(advice, cases[i].advice != NULL ? cases[i].advice : "");
    }
}

Test(units, decimal_point_is_a_point_in_any_locale)
{
    if (!use_decimal_comma())
        cr_skip_test("no locale with a decimal comma is installed");
    cr_assert_eq(size_of("1.5K"), 1536);
}

/* ---- files ---- */

Test(config, nothing_is_set_without_files_and_environment)
{
    aoticache_config *config = read_config();
    cr_assert_eq(line_count, 0);
    for (aoticache_config_name name = 0; name < AOTICACHE_CONFIG_COUNT; name++) {
        cr_assert_str_eq(aoticache_config_get(config, name).origin, "default");
        cr_assert_not(aoticache_config_is_set(config, name));
        cr_assert_not_null(aoticache_config_get(NULL, name).description);
    }
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_failure_ttl).number, 600);
    cr_assert_null(aoticache_config_get(config, AOTICACHE_CONFIG_keep).list[0]);
    cr_assert_eq(aoticache_config_get_info(config)->file_count, 0);
    cr_assert_eq(aoticache_config_get_info(NULL)->file_count, 0);
    cr_assert_str_eq(aoticache_config_get_info(NULL)->key_directory, "");
    aoticache_config_free(config);
}

Test(config, lines_are_read_with_comments_and_spaces)
{
    aoticache_config *config = read_text("# a comment\n\n"
                                         "max_size=10G # the disk is small\r\n"
                                         "  max_entries  =  1000\t\n"
                                         "directory = /srv/a#b\n"
                                         "keep = aten::*  my::op\n"
                                         "min_free = 5%\n"
                                         "policy = cost\n"
                                         "allow_shared = yes\n"
                                         "lock_timeout = 1min\n"
                                         "max_age = 30d");
    cr_assert_eq(line_count, 0, "%s", lines);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_size).number, UINT64_C(10) << 30);
    cr_assert_str_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_size).text, "10G");
    cr_assert_not_null(strstr(aoticache_config_get(config, AOTICACHE_CONFIG_max_size).origin, "aoticache.conf:3"));
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_entries).number, 1000);
    cr_assert_str_eq(aoticache_config_get(config, AOTICACHE_CONFIG_directory).text, "/srv/a#b");
    cr_assert_str_eq(aoticache_config_get(config, AOTICACHE_CONFIG_keep).list[0], "aten::*");
    cr_assert_str_eq(aoticache_config_get(config, AOTICACHE_CONFIG_keep).list[1], "my::op");
    cr_assert_null(aoticache_config_get(config, AOTICACHE_CONFIG_keep).list[2]);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_min_free).share, 0.05);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_min_free).number, 0);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_policy).number, AOTICACHE_COLLECT_COST);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_allow_shared).number, 1);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_lock_timeout).number, 60);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_age).number, 2592000);
    aoticache_config_free(config);
}

Test(config, wrong_lines_are_named_and_the_rest_counts)
{
    aoticache_config *config = read_text("maxsize = 1G\n"
                                         "max_size = much\n"
                                         "nothing at all\n"
                                         "directory = relative\n"
                                         "frobnicate = 1\n"
                                         "max_entries = 5\x01\n"
                                         "max_entries = 6\n"
                                         "min_free = 100%\n");
    cr_assert_eq(line_count, 7, "%s", lines);
    cr_assert_not_null(strstr(lines, "aoticache.conf:1: unknown setting 'maxsize'; did you mean max_size?"));
    cr_assert_not_null(strstr(lines, "aoticache.conf:2: max_size: 'much' is not a size"));
    cr_assert_not_null(strstr(lines, "aoticache.conf:3: 'nothing at all' is not of the form"));
    cr_assert_not_null(strstr(lines, "aoticache.conf:4: directory: 'relative' is neither absolute"));
    cr_assert_not_null(strstr(lines, "aoticache.conf:5: unknown setting 'frobnicate'; 'aoticache config'"));
    cr_assert_not_null(strstr(lines, "aoticache.conf:6: control character"));
    cr_assert_not_null(strstr(lines, "aoticache.conf:8: min_free: '100%' is not a size"));
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_min_free).share, 0);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_entries).number, 6);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_size).number, 0);
    aoticache_config_free(config);
}

Test(config, a_limit_without_a_unit_is_refused)
{
    aoticache_config *config = read_text("max_size = 20\n"
                                         "max_age = 20\n"
                                         "min_free = 5\n"
                                         "failure_ttl = 20\n"
                                         "max_entries = 20\n");
    cr_assert_eq(line_count, 3, "%s", lines);
    cr_assert_not_null(strstr(lines,
                              "aoticache.conf:1: max_size: '20' has no unit (did you mean 20G? 20B for bytes); it "
                              "stays at 0"));
    cr_assert_not_null(strstr(lines, "aoticache.conf:2: max_age: '20' has no unit (did you mean 20d?); it stays at 0"));
    cr_assert_not_null(strstr(lines, "aoticache.conf:3: min_free: '5' has no unit (did you mean 5% or 5G?"));
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_size).number, 0);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_failure_ttl).number, 20);
    aoticache_config_free(config);
    config = read_text("max_size = 0\nmax_age = 0\nmin_free = 0\n");
    cr_assert_eq(line_count, 0, "%s", lines); /* 0 means no limit, and needs no unit */
    aoticache_config_free(config);
}

Test(config, home_is_put_for_a_tilde)
{
    char expected[4300];
    snprintf(expected, sizeof expected, "%s/kernels", fixture_root);
    aoticache_config *config = read_text("directory = ~/kernels\n");
    cr_assert_str_eq(aoticache_config_get(config, AOTICACHE_CONFIG_directory).text, expected);
    aoticache_config_free(config);
    unsetenv("HOME");
    config = read_text("directory = ~/kernels\n");
    cr_assert_eq(line_count, 1);
    aoticache_config_free(config);
}

Test(config, environment_wins_over_the_file)
{
    setenv("AOTICACHE_MAX_SIZE", "5M", 1);
    setenv("AOTICACHE_MAX_ENTRIES", "", 1);
    setenv("AOTICACHE_POLICY", "random", 1);
    aoticache_config *config = read_text("max_size = 10G\nmax_entries = 7\n");
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_size).number, 5 << 20);
    cr_assert_str_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_size).origin, "$AOTICACHE_MAX_SIZE");
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_entries).number, 7);
    cr_assert_eq(line_count, 1);
    cr_assert_not_null(strstr(lines, "$AOTICACHE_POLICY: policy: 'random' is not lru or cost; it stays at lru"));
    aoticache_config_free(config);
}

static void expect_unused(const char *reason)
{
    aoticache_config *config = read_config();
    const aoticache_config_info *info = aoticache_config_get_info(config);
    cr_assert_eq(line_count, 1);
    cr_assert_not_null(strstr(lines, reason), "%s", lines);
    cr_assert_not(aoticache_config_is_set(config, AOTICACHE_CONFIG_max_size));
    cr_assert_gt(info->file_count, 0);
    cr_assert_neq(strcmp(info->files[0].state, "read"), 0);
    aoticache_config_free(config);
}

Test(config, file_that_others_may_write_is_not_used)
{
    const char *path = fixture_write("aoticache.conf", "max_size = 1G\n");
    setenv(AOTICACHE_CONFIG_FILE_VARIABLE, path, 1);
    cr_assert_eq(chmod(path, 0664), 0);
    expect_unused("can be written by others (mode 0664)");
    cr_assert_eq(chmod(path, 0646), 0);
    expect_unused("can be written by others");
}

Test(config, file_of_another_user_is_not_used)
{
    if (geteuid() != 0)
        cr_skip_test("only root can make a file another's");
    const char *path = fixture_write("aoticache.conf", "max_size = 1G\n");
    setenv(AOTICACHE_CONFIG_FILE_VARIABLE, path, 1);
    cr_assert_eq(chown(path, 12345, 12345), 0);
    expect_unused("belongs to user 12345");
}

Test(config, odd_files_are_not_used)
{
    char path[4400];
    setenv(AOTICACHE_CONFIG_FILE_VARIABLE, fixture_root, 1);
    expect_unused("is not a regular file");
    snprintf(path, sizeof path, "%s/fifo", fixture_root);
    cr_assert_eq(mkfifo(path, 0600), 0);
    setenv(AOTICACHE_CONFIG_FILE_VARIABLE, path, 1);
    expect_unused("is not a regular file");
    snprintf(path, sizeof path, "%s/nothing", fixture_root);
    setenv(AOTICACHE_CONFIG_FILE_VARIABLE, path, 1);
    expect_unused("does not exist");

    char *large = calloc(1, 70001);
    memset(large, '#', 70000);
    setenv(AOTICACHE_CONFIG_FILE_VARIABLE, fixture_write("large", large), 1);
    expect_unused("is larger than");
    free(large);
    const char *with_zero = fixture_write("zero", "max_size = 1G\n");
    int fd = open(with_zero, O_WRONLY | O_APPEND);
    cr_assert_eq(write(fd, "\0x", 2), 2);
    close(fd);
    setenv(AOTICACHE_CONFIG_FILE_VARIABLE, with_zero, 1);
    expect_unused("has a zero byte at 14");
}

Test(config, file_of_the_user_is_found_where_xdg_says)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/.config", fixture_root);
    cr_assert_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/.config/aoticache", fixture_root);
    cr_assert_eq(mkdir(path, 0700), 0);
    fixture_write(".config/aoticache/config", "max_entries = 3\n");
    unsetenv(AOTICACHE_CONFIG_FILE_VARIABLE);
    aoticache_config *config = read_config();
    const aoticache_config_info *info = aoticache_config_get_info(config);
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_entries).number, 3);
    cr_assert_eq(info->file_count, 2);
    cr_assert_str_eq(info->files[0].path, AOTICACHE_CONFIG_SYSTEM_FILE);
    cr_assert_str_eq(info->files[1].state, "read");
    aoticache_config_free(config);
    snprintf(path, sizeof path, "%s/.config", fixture_root);
    setenv("XDG_CONFIG_HOME", path, 1);
    unsetenv("HOME");
    config = read_config();
    cr_assert_eq(aoticache_config_get(config, AOTICACHE_CONFIG_max_entries).number, 3);
    aoticache_config_free(config);
}

Test(config, one_file_can_be_checked_alone)
{
    aoticache_config *config = NULL;
    aoticache_error error = {.message = ""};
    aoticache_logger logger = {.log = hear};
    setenv("AOTICACHE_MAX_SIZE", "rubbish", 1);
    lines[0] = '\0';
    const char *path = fixture_write("some.conf", "max_sise = 1G\n");
    cr_assert_eq(aoticache_config_read(path, logger, &config, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_config_get_info(config)->problem_count, 1);
    aoticache_config_free(config);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(aoticache_config_read(path, logger, &config, &error), AOTICACHE_NOT_FOUND);
    cr_assert_eq(aoticache_config_read(fixture_root, logger, &config, &error), AOTICACHE_IO);
    cr_assert_eq(aoticache_config_read("", logger, &config, &error), AOTICACHE_NOT_FOUND);
    cr_assert_eq(aoticache_config_read(path, logger, NULL, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_config_read(NULL, logger, NULL, &error), AOTICACHE_INVALID);
}

/* ---- what a cache uses ---- */

Test(config, apply_fills_what_is_set_and_leaves_the_rest)
{
    aoticache_config *config = read_text("directory = /srv/kernels\nmax_size = 0\nmax_entries = 9\nallow_shared = on\n"
                                         "lock_timeout = 2\nfailure_ttl = 1h\nremember_digests = no\n");
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_config_apply(config, &options);
    cr_assert_str_eq(options.directory, "/srv/kernels");
    cr_assert_eq(options.max_bytes, UINT64_MAX);
    cr_assert_eq(options.max_entries, 9);
    cr_assert(options.allow_shared);
    cr_assert_eq(options.lock_timeout_ms, 2000);
    cr_assert_eq(options.failure_ttl_seconds, 3600);
    cr_assert_eq(options.compile_timeout_ms, AOTICACHE_AS_CONFIGURED); /* not configured */
    cr_assert(options.hash_always);
    cr_assert(options.is_configured);
    aoticache_config_free(config);
}

Test(config, digests_are_remembered_unless_something_says_no)
{
    static const char *const texts[] = {"", "remember_digests = true\n", "remember_digests = maybe\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
        aoticache_config *config = NULL;
        aoticache_config_free(read_text(texts[i]));
        cr_assert_eq(aoticache_config_complete(&options, &config, NULL), AOTICACHE_OK);
        cr_assert_not(options.hash_always, "%s", texts[i]);
        aoticache_config_free(config);
    }
}

/* Checks that a value of cpu is used unchanged, or ignored with one warning that has `reason`. */
static void expect_cpu(const char *value, const char *reason)
{
    char line[128];
    snprintf(line, sizeof line, "cpu = %s\n", value);
    aoticache_config *config = read_text(line);
    cr_assert_eq(line_count, reason != NULL ? 1 : 0, "%s: %s", value, lines);
    cr_assert_str_eq(aoticache_config_get(config, AOTICACHE_CONFIG_cpu).text, reason != NULL ? "native" : value);
    if (reason != NULL)
        cr_assert_not_null(strstr(lines, reason), "%s: %s", value, lines);
    aoticache_config_free(config);
}

Test(config, cpu_is_a_level_of_this_machine_or_features_that_it_has)
{
    const bool is_x86 = strcmp(aoticache_cpu_arch(), "x86_64") == 0;
    if (!is_x86 && strcmp(aoticache_cpu_arch(), "aarch64") != 0)
        cr_skip_test("levels are of x86-64 and aarch64");
    const char *levels = is_x86 ? "native, a level (x86-64, x86-64-v2, x86-64-v3, x86-64-v4) or features"
                                : "native, a level (armv8-a, armv8.1-a to armv8.6-a, armv9-a) or features";
    expect_cpu("native", NULL);
    expect_cpu(is_x86 ? "x86-64" : "armv8-a", NULL);
    expect_cpu(is_x86 ? "armv8-a" : "x86-64", levels);
    expect_cpu("x86-64-v5", levels);
    expect_cpu("x86_64", levels);
    expect_cpu("haswell", levels);
    expect_cpu("native,avx2", levels);
    expect_cpu("avx2,,fma", levels);
    expect_cpu("", levels);
    expect_cpu("avx512_4fmaps", /* only Xeon Phi has it */
               "cpu: 'avx512_4fmaps' needs more than this machine has, which lacks avx512_4fmaps; it stays at native");
    char names[1024];
    aoticache_cpu_features_format(aoticache_cpu_features_get(), names, sizeof names);
    names[strcspn(names, ",")] = '\0'; /* one that this CPU has */
    if (names[0] != '\0')
        expect_cpu(names, NULL);
}

Test(config, apply_keeps_to_the_size_of_an_older_program)
{
    aoticache_config *config = read_text("allow_shared = on\nmax_entries = 9\n");
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.size = offsetof(aoticache_cache_options, max_bytes);
    aoticache_config_apply(config, &options);
    cr_assert(options.allow_shared);
    cr_assert_eq(options.max_entries, 0);
    cr_assert_not(options.is_configured);
    cr_assert_eq(options.size, offsetof(aoticache_cache_options, max_bytes));
    aoticache_config_free(config);
}

Test(config, cache_takes_all_that_is_open)
{
    aoticache_config *config = NULL;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_config_free(read_text("directory = /srv/kernels\nmax_size = 1G\nmax_entries = 9\nallow_shared = on\n"
                                    "lock_timeout = 2\nfailure_ttl = 1h\n"));
    cr_assert_eq(aoticache_config_complete(&options, &config, NULL), AOTICACHE_OK);
    cr_assert_str_eq(options.directory, "/srv/kernels");
    cr_assert_eq(options.max_bytes, 1 << 30);
    cr_assert_eq(options.max_entries, 9);
    cr_assert(options.allow_shared);
    cr_assert_eq(options.lock_timeout_ms, 2000);
    cr_assert_eq(options.failure_ttl_seconds, 3600);
    cr_assert_eq(options.compile_timeout_ms, 600000); /* not configured: the default */
    aoticache_config_free(config);
}

Test(config, what_a_program_says_wins_over_the_configuration)
{
    aoticache_config *config = NULL;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_config_free(read_text("directory = /srv/kernels\nmax_size = 1G\nmax_entries = 9\nlock_timeout = 2\n"
                                    "failure_ttl = 1h\ncompile_timeout = 5\nallow_shared = off\n"));
    options.directory = "/elsewhere";
    options.max_bytes = UINT64_MAX;
    options.max_entries = 4;
    options.allow_shared = true;
    options.lock_timeout_ms = 10000; /* the defaults, but given explicitly */
    options.compile_timeout_ms = 0;
    options.failure_ttl_seconds = 600;
    cr_assert_eq(aoticache_config_complete(&options, &config, NULL), AOTICACHE_OK);
    cr_assert_str_eq(options.directory, "/elsewhere");
    cr_assert_eq(options.max_bytes, UINT64_MAX);
    cr_assert_eq(options.max_entries, 4);
    cr_assert(options.allow_shared);
    cr_assert_eq(options.lock_timeout_ms, 10000);
    cr_assert_eq(options.compile_timeout_ms, 0);
    cr_assert_eq(options.failure_ttl_seconds, 600);
    aoticache_config_free(config);
}

Test(config, nothing_is_read_for_who_has_decided_everything)
{
    aoticache_config *config = NULL;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_config_free(read_text("allow_shared = on\nmax_size = 1G\nlock_timeout = 2\n"));
    options.is_configured = true;
    cr_assert_eq(aoticache_config_complete(&options, &config, NULL), AOTICACHE_OK);
    cr_assert_null(config);
    cr_assert_not(options.allow_shared);
    cr_assert_eq(options.max_bytes, 0);
    cr_assert_eq(options.lock_timeout_ms, 10000);
    cr_assert_eq(options.compile_timeout_ms, 600000);
    cr_assert_eq(options.failure_ttl_seconds, 600);
}

Test(config, directory_of_a_file_comes_after_the_variable_and_before_the_default)
{
    char path[PATH_MAX], text[5000];
    snprintf(text, sizeof text, "directory = %s/configured\n", fixture_root);
    aoticache_config_free(read_text(text));
    cr_assert_eq(aoticache_cache_default_directory(path, sizeof path, NULL), AOTICACHE_OK);
    cr_assert_not_null(strstr(path, "/configured"));
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_cache *cache = fixture_open_with(&options);
    cr_assert_str_eq(aoticache_cache_directory(cache), path);
    aoticache_cache_close(cache);
    setenv("AOTICACHE_DIR", fixture_cache, 1);
    cache = fixture_open_with(&options);
    cr_assert_str_eq(aoticache_cache_directory(cache), fixture_cache);
    aoticache_cache_close(cache);
}

Test(config, no_configuration_is_the_default_one)
{
    cr_assert_eq(aoticache_config_get(NULL, AOTICACHE_CONFIG_max_size).number, 0);
    cr_assert_eq(aoticache_config_get(NULL, AOTICACHE_CONFIG_lock_timeout).number, 10);
    cr_assert_eq(aoticache_config_get(NULL, AOTICACHE_CONFIG_COUNT).number, 0);
    cr_assert_null(aoticache_config_get(NULL, AOTICACHE_CONFIG_COUNT).text);
    cr_assert_str_eq(aoticache_config_get(NULL, AOTICACHE_CONFIG_policy).text, "lru");
    cr_assert_null(aoticache_config_get(NULL, AOTICACHE_CONFIG_keep).list[0]);
    aoticache_config_free(NULL);
}
