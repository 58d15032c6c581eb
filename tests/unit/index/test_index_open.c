/*
 * index/: opening. New, empty and foreign files, and those of other versions; links; read-only files and directories; the journal.
 */
#include "index/eviction/eviction.h"
#include "index/entries/integrity.h"
#include "tests/unit/fixtures/capabilities.h"
#include "index_fixture.h"

#include <errno.h>
#include <sys/wait.h>

#include "base/syscalls.h"
#include "index/connection/connection_internal.h"

TestSuite(index_open, .init = fixture_make, .fini = fixture_remove, .timeout = 300);

static aoticache_status open_status(bool read_only, aoticache_error *ret_error)
{
    aoticache_index *index = NULL;
    aoticache_status status = fixture_open(read_only, &index, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_index_close(index);
    else
        cr_assert_null(index, "written on failure");
    return status;
}

Test(index_open, new_index_is_private_to_the_user)
{
    struct stat file;
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    cr_assert_eq(stat(fixture_path, &file), 0);
    cr_assert_eq(file.st_mode & 0777, 0600, "mode %o", file.st_mode & 0777);
    char wal[420];
    snprintf(wal, sizeof wal, "%s-wal", fixture_path);
    cr_assert_eq(stat(wal, &file), 0);
    cr_assert_eq(file.st_mode & 0777, 0600, "mode %o", file.st_mode & 0777);
    aoticache_index_close(index);
}

Test(index_open, new_index_is_wal_and_says_nothing)
{
    aoticache_index *index = fixture_must_open();
    cr_assert(index_has_log(index));
    cr_assert_eq(fixture_log_lines, 0, "%s", fixture_log_last);
    cr_assert_str_eq(sqlite3_libversion(), sqlite3_libversion());
    aoticache_index_close(index);
}

Test(index_open, empty_file_is_initialised)
{
    fixture_write("", 0);
    aoticache_index *index = fixture_must_open();
    cr_assert_eq(must_read_totals(index).entries, 0);
    cr_assert(index_has_log(index));
    aoticache_index_close(index);
}

Test(index_open, garbage_is_corrupt_and_kept)
{
    char garbage[8192];
    memset(garbage, 'g', sizeof garbage);
    fixture_write(garbage, sizeof garbage);
    aoticache_error error = {0};
    cr_assert_eq(open_status(false, &error), AOTICACHE_CORRUPT);
    cr_assert_not_null(strstr(error.message, fixture_path), "%s", error.message);
    struct stat file;
    cr_assert_eq(stat(fixture_path, &file), 0);
    cr_assert_eq(file.st_size, (off_t)sizeof garbage);
}

Test(index_open, foreign_application_id_is_corrupt)
{
    fixture_sql("PRAGMA application_id=1234; PRAGMA user_version=1; CREATE TABLE entries(key)");
    aoticache_error error = {0};
    cr_assert_eq(open_status(false, &error), AOTICACHE_CORRUPT);
    cr_assert_not_null(strstr(error.message, "0x000004d2"), "%s", error.message);
}

Test(index_open, foreign_tables_without_numbers_are_corrupt_and_untouched)
{
    fixture_sql("CREATE TABLE theirs(x)");
    aoticache_error error = {0};
    cr_assert_eq(open_status(false, &error), AOTICACHE_CORRUPT);
    sqlite3 *db;
    sqlite3_stmt *statement;
    cr_assert_eq(sqlite3_open(fixture_path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &statement, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_step(statement), SQLITE_ROW);
    cr_assert_str_eq((const char *)sqlite3_column_text(statement, 0), "delete");
    sqlite3_finalize(statement);
    sqlite3_close(db);
}

Test(index_open, foreign_user_version_alone_is_corrupt)
{
    fixture_sql("PRAGMA user_version=1; CREATE TABLE theirs(x)");
    cr_assert_eq(open_status(false, NULL), AOTICACHE_CORRUPT);
}

Test(index_open, other_version_is_unsupported_and_untouched)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_index_close(index);
    fixture_sql("PRAGMA user_version=2");
    for (int read_only = 0; read_only < 2; read_only++) {
        aoticache_error error = {0};
        cr_assert_eq(open_status(read_only, &error), AOTICACHE_UNSUPPORTED);
        cr_assert_not_null(strstr(error.message, "its tables have version 2, and this library reads 1"), "%s",
                           error.message);
        cr_assert_not_null(strstr(error.message, "or delete the file"), "%s", error.message);
    }
    fixture_sql("PRAGMA user_version=1");
    index = fixture_must_open();
    cr_assert_eq(must_read_totals(index).entries, 1);
    aoticache_index_close(index);
}

Test(index_open, numbers_of_a_later_index_are_higher)
{
    sample with;
    int64_t first = 0, second = 0;
    sample_make(&with, 1, 10, 11);
    aoticache_index *index = fixture_must_open();
    for (int i = 0; i < 3; i++)
        cr_assert_eq(aoticache_index_put(index, &with.entry, &first, NULL), AOTICACHE_OK);
    aoticache_index_close(index);
    unlink(fixture_path);
    sleep(1);
    index = fixture_must_open();
    cr_assert_eq(aoticache_index_put(index, &with.entry, &second, NULL), AOTICACHE_OK);
    cr_assert_gt(second, first);
    aoticache_index_close(index);
}

Test(index_open, version_that_cannot_be_is_corrupt)
{
    aoticache_index_close(fixture_must_open());
    fixture_sql("PRAGMA user_version=-5");
    cr_assert_eq(open_status(false, NULL), AOTICACHE_CORRUPT);
    fixture_sql("PRAGMA user_version=0");
    cr_assert_eq(open_status(false, NULL), AOTICACHE_CORRUPT);
}

Test(index_open, missing_directory_is_io)
{
    char path[300];
    snprintf(path, sizeof path, "%s/none/index.sqlite3", fixture_dir);
    aoticache_index_options options = {.path = path};
    aoticache_index *index = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_index_open(&options, &index, &error), AOTICACHE_IO);
    cr_assert_not_null(strstr(error.message, path), "%s", error.message);
    options.path = "";
    cr_assert_eq(aoticache_index_open(&options, &index, &error), AOTICACHE_INVALID);
}

Test(index_open, directory_instead_of_a_file_is_refused)
{
    aoticache_index_options options = {.path = fixture_dir};
    aoticache_index *index = NULL;
    cr_assert_eq(aoticache_index_open(&options, &index, NULL), AOTICACHE_IO);
}

Test(index_open, link_is_denied)
{
    aoticache_index_close(fixture_must_open());
    char real[420];
    snprintf(real, sizeof real, "%s/real", fixture_dir);
    cr_assert_eq(rename(fixture_path, real), 0);
    cr_assert_eq(symlink(real, fixture_path), 0);
    aoticache_error error = {0};
    cr_assert_eq(open_status(false, &error), AOTICACHE_DENIED, "%s", error.message);
    cr_assert_eq(open_status(true, &error), AOTICACHE_DENIED, "%s", error.message);
    unlink(real);
    cr_assert_neq(open_status(false, &error), AOTICACHE_OK, "a link that leads nowhere is not followed either");
    cr_assert_neq(access(real, F_OK), 0, "and nothing is made at its end");
}

Test(index_open, directory_through_a_link_is_fine)
{
    char link[280];
    snprintf(link, sizeof link, "%s-link", fixture_dir);
    cr_assert_eq(symlink(fixture_dir, link), 0);
    snprintf(fixture_path, sizeof fixture_path, "%s/index.sqlite3", link);
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_index_close(index);
    index = fixture_must_open();
    cr_assert_eq(must_read_totals(index).entries, 1);
    aoticache_index_close(index);
    unlink(link);
}

Test(index_open, relative_path_survives_a_change_of_directory)
{
    cr_assert_eq(chdir(fixture_dir), 0);
    strcpy(fixture_path, "index.sqlite3");
    aoticache_index *index = fixture_must_open();
    cr_assert(mkdir("other", 0700) == 0 && chdir("other") == 0);
    put_numbers(index, 1, 10, 11);
    cr_assert_eq(must_read_totals(index).entries, 1);
    aoticache_index_close(index);
    cr_assert_neq(access("index.sqlite3", F_OK), 0);
    cr_assert(chdir(fixture_dir) == 0 && rmdir("other") == 0 && chdir("/") == 0);
}

Test(index_open, odd_names_are_names)
{
    cr_assert_eq(chdir(fixture_dir), 0);
    strcpy(fixture_path, "file:a?mode=memory#%41");
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_index_close(index);
    cr_assert_eq(access("file:a?mode=memory#%41", F_OK), 0);
}

/* ---- read-only ---- */

Test(index_open, read_only_without_a_file_is_not_found)
{
    aoticache_error error = {.message = "untouched"};
    cr_assert_eq(open_status(true, &error), AOTICACHE_NOT_FOUND);
    cr_assert_str_eq(error.message, "untouched");
    cr_assert_neq(access(fixture_path, F_OK), 0, "made a file");
    fixture_write("", 0);
    cr_assert_eq(open_status(true, NULL), AOTICACHE_NOT_FOUND);
}

static void check_reads_and_does_not_write(aoticache_index *index)
{
    aoticache_index_hit hit;
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_OK);
    cr_assert_eq(lookup_number(index, 2, &hit, NULL), AOTICACHE_NOT_FOUND);
    cr_assert_eq(must_read_totals(index).entries, 1);
    sample with;
    sample_make(&with, 2, 10, 11);
    aoticache_error error = {0};
    aoticache_digest key = digest_of(1);
    aoticache_index_count count = {"hits", 1};
    cr_assert_eq(index_put(index, &with.entry, &error), AOTICACHE_DENIED, "%s", error.message);
    cr_assert_eq(aoticache_index_remove_key(index, &key, NULL, &error), AOTICACHE_DENIED, "%s", error.message);
    cr_assert_eq(aoticache_index_flush(index, NULL, 0, &count, 1, &error), AOTICACHE_DENIED, "%s", error.message);
    cr_assert_eq(must_read_totals(index).entries, 1);
}

Test(index_open, read_only_reads_and_does_not_write)
{
    aoticache_index *writer = fixture_must_open();
    put_numbers(writer, 1, 10, 11);
    aoticache_index *index = NULL;
    cr_assert_eq(fixture_open(true, &index, NULL), AOTICACHE_OK);
    check_reads_and_does_not_write(index);
    aoticache_index_close(index);
    aoticache_index_close(writer);
    cr_assert_eq(fixture_open(true, &index, NULL), AOTICACHE_OK);
    check_reads_and_does_not_write(index);
    aoticache_index_close(index);
}

/* Runs `body` in a child without capabilities. Returns the child's exit status; assertions do not work across it. */
static int without_capabilities(int (*body)(void))
{
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        if (!give_up_capabilities())
            _exit(99);
        _exit(body());
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "status %x", status);
    return WEXITSTATUS(status);
}

static int read_in_read_only_directory(void)
{
    for (int read_only = 0; read_only < 2; read_only++) {
        aoticache_index *index = NULL;
        aoticache_index_hit hit;
        sample with;
        sample_make(&with, 2, 10, 11);
        if (fixture_open(read_only != 0, &index, NULL) != AOTICACHE_OK)
            return 1;
        if (lookup_number(index, 1, &hit, NULL) != AOTICACHE_OK)
            return 2;
        if (index_put(index, &with.entry, NULL) != AOTICACHE_DENIED)
            return 3;
        aoticache_index_close(index);
    }
    return 0;
}

Test(index_open, read_only_directory_is_read_as_it_is)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_index_close(index);
    cr_assert_eq(chmod(fixture_path, 0444), 0);
    cr_assert_eq(chmod(fixture_dir, 0555), 0);
    int result = without_capabilities(read_in_read_only_directory);
    chmod(fixture_dir, 0700);
    if (result == 99)
        cr_skip_test("capabilities cannot be given up");
    cr_assert_eq(result, 0, "step %d", result);
}

static int open_is_denied(void)
{
    aoticache_index *index = NULL;
    aoticache_status writing = fixture_open(false, &index, NULL);
    aoticache_status reading = fixture_open(true, &index, NULL);
    return writing == AOTICACHE_DENIED && reading == AOTICACHE_DENIED ? 0 : 10 + (int)writing;
}

Test(index_open, unmerged_wal_in_a_read_only_directory_is_denied)
{
    /* A writer that died leaves its WAL. */
    pid_t child = fork();
    if (child == 0) {
        put_numbers(fixture_must_open(), 1, 10, 11);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
    char name[420];
    snprintf(name, sizeof name, "%s-shm", fixture_path);
    unlink(name);
    snprintf(name, sizeof name, "%s-wal", fixture_path);
    cr_assert_eq(chmod(name, 0444), 0);
    cr_assert_eq(chmod(fixture_path, 0444), 0);
    cr_assert_eq(chmod(fixture_dir, 0555), 0);
    int result = without_capabilities(open_is_denied);
    chmod(fixture_dir, 0700);
    if (result == 99)
        cr_skip_test("capabilities cannot be given up");
    cr_assert_eq(result, 0, "%d", result);
}

Test(index_open, file_without_read_permission_is_denied)
{
    aoticache_index_close(fixture_must_open());
    cr_assert_eq(chmod(fixture_path, 0000), 0);
    cr_assert_eq(chmod(fixture_dir, 0755), 0);
    int result = without_capabilities(open_is_denied);
    if (result == 99)
        cr_skip_test("capabilities cannot be given up");
    cr_assert_eq(result, 0, "%d", result);
}

/* ---- the journal ---- */

static int fail_shm(void *user, const char *call, const char *path)
{
    (void)user;
    size_t length = path == NULL ? 0 : strlen(path);
    bool is_shm = length > 4 && strcmp(path + length - 4, "-shm") == 0;
    return strcmp(call, "open") == 0 && is_shm ? ENOTSUP : 0;
}

Test(index_open, without_shared_memory_a_rollback_journal_is_used)
{
    aoticache_index_syscall_hooks_install();
    aoticache_syscall_hook_set(fail_shm, NULL);
    aoticache_index *index = fixture_must_open();
    cr_assert_eq(fixture_log_lines, 1, "%d: %s", fixture_log_lines, fixture_log_last);
    cr_assert_not_null(strstr(fixture_log_last, "rollback journal"), "%s", fixture_log_last);
    cr_assert_not(index_has_log(index));
    put_numbers(index, 1, 10, 11);
    aoticache_index *second = fixture_must_open();
    aoticache_index_hit hit;
    cr_assert_eq(lookup_number(second, 1, &hit, NULL), AOTICACHE_OK);
    put_numbers(second, 2, 10, 11);
    cr_assert_eq(lookup_number(index, 2, &hit, NULL), AOTICACHE_OK);
    cr_assert_eq(fixture_log_lines, 1, "says it once, when the index is made");
    aoticache_index_close(second);
    aoticache_index_close(index);
}

/* Ends in the middle of a change, part of which is in the index already. */
static void die_while_writing(void)
{
    sqlite3 *db = NULL;
    pid_t child = fork();
    if (child == 0)
        _exit(sqlite3_open(fixture_path, &db) == SQLITE_OK &&
                      sqlite3_exec(db, "BEGIN IMMEDIATE; UPDATE details SET uses = uses + 1", NULL, NULL, NULL) ==
                          SQLITE_OK &&
                      sqlite3_db_cacheflush(db) == SQLITE_OK
                  ? 0
                  : 1);
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}

Test(index_open, change_that_a_dead_process_left_is_undone_for_readers)
{
    char journal[420];
    aoticache_error error = {.message = ""};
    aoticache_index_hit hit;
    aoticache_index *index = NULL;
    snprintf(journal, sizeof journal, "%s-journal", fixture_path);
    aoticache_index_syscall_hooks_install();
    aoticache_syscall_hook_set(fail_shm, NULL);
    index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_index_close(index);
    aoticache_syscall_hook_set(NULL, NULL);

    die_while_writing();
    cr_assert_eq(access(journal, F_OK), 0);
    cr_assert_eq(fixture_open(true, &index, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_neq(access(journal, F_OK), 0);
    cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_OK);

    die_while_writing();
    cr_assert_eq(lookup_number(index, 1, &hit, &error), AOTICACHE_DENIED);
    cr_assert_not_null(strstr(error.message, "left an incomplete change in its journal; run 'aoticache verify'"), "%s",
                       error.message);
    aoticache_index_close(index);
}

Test(index_open, file_systems_without_wal_are_known)
{
    cr_assert_not_null(aoticache_index_filesystem_lacks_wal(0x6969), "NFS");
    cr_assert_not_null(aoticache_index_filesystem_lacks_wal((long)0xff534d42U), "CIFS");
    cr_assert_not_null(aoticache_index_filesystem_lacks_wal((int32_t)0xfe534d42U), "SMB2, as a 32-bit f_type has it");
    cr_assert_not_null(aoticache_index_filesystem_lacks_wal((int32_t)0x9123683eU), "btrfs");
    cr_assert_null(aoticache_index_filesystem_lacks_wal(0xef53), "ext4");
    cr_assert_null(aoticache_index_filesystem_lacks_wal(0x01021994), "tmpfs");
}

Test(index_open, wal_index_on_a_shared_file_system_goes_back_to_a_rollback_journal)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    aoticache_index *other = fixture_must_open();
    index->lacks_wal = aoticache_index_filesystem_lacks_wal(0x6969); /* as statfs reports there */
    aoticache_index_journal_leave_wal(index);                        /* as open does there */
    cr_assert(index_has_log(index), "in use by another connection");
    cr_assert_not_null(strstr(fixture_log_last, "in use"), "%s", fixture_log_last);
    aoticache_index_close(other);
    aoticache_index_journal_leave_wal(index);
    cr_assert_not(index_has_log(index));
    cr_assert_eq(fixture_log_lines, 2);
    aoticache_index_journal_leave_wal(index);
    cr_assert_eq(fixture_log_lines, 2);
    aoticache_index_close(index);
}

Test(index_open, new_index_on_a_shared_file_system_has_a_rollback_journal)
{
    aoticache_index *index = fixture_must_open();
    char mode[16];
    cr_assert_eq(aoticache_index_journal_pragma(index, "DELETE", mode), SQLITE_OK);
    index->lacks_wal = aoticache_index_filesystem_lacks_wal(0x6969); /* as statfs reports there */
    cr_assert_eq(aoticache_index_journal_choose(index, NULL), AOTICACHE_OK);
    cr_assert_not(index_has_log(index));
    cr_assert_eq(fixture_log_lines, 1);
    cr_assert_not_null(strstr(fixture_log_last, "several machines share the file system"), "%s", fixture_log_last);
    index->lacks_wal = NULL;
    cr_assert_eq(aoticache_index_journal_choose(index, NULL), AOTICACHE_OK);
    cr_assert(index_has_log(index));
    aoticache_index_close(index);
}

/* ---- failing system calls ---- */

static int fail_one(void *user, const char *call, const char *path)
{
    const char *const *which = user;
    (void)path;
    return strcmp(call, which[0]) == 0 ? ENOSPC : 0;
}

Test(index_open, full_disk_is_io_and_loses_nothing)
{
    const char *const calls[] = {"write", "pwrite", "fsync", "ftruncate"};
    aoticache_index_syscall_hooks_install();
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 10, 11);
    unsigned failed = 0;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        sample with;
        sample_make(&with, 2, 20, 21);
        aoticache_error error = {0};
        aoticache_syscall_hook_set(fail_one, (void *)&calls[i]);
        aoticache_status status = index_put(index, &with.entry, &error);
        aoticache_syscall_hook_set(NULL, NULL);
        aoticache_index_hit hit;
        if (status == AOTICACHE_OK) {
            cr_assert_eq(aoticache_index_remove_key(index, &with.entry.key, NULL, NULL), AOTICACHE_OK);
            continue; /* this SQLite does not make that call here */
        }
        failed++;
        cr_assert_eq(status, AOTICACHE_IO, "%s: %s: %s", calls[i], aoticache_status_name(status), error.message);
        cr_assert_eq(lookup_number(index, 2, &hit, NULL), AOTICACHE_NOT_FOUND);
        cr_assert_eq(lookup_number(index, 1, &hit, NULL), AOTICACHE_OK);
        cr_assert_not(has_object_number(index, 20));
    }
    cr_assert_geq(failed, 2, "neither writing nor syncing goes through a syscall hook");
    put_numbers(index, 2, 20, 21);
    aoticache_index_close(index);
}

Test(index_open, without_room_for_shared_memory_it_is_read_until_others_write)
{
    const char *call = "ftruncate";
    aoticache_index_hit hit;
    aoticache_error error = {0};
    aoticache_index *reader = NULL;
    aoticache_index_syscall_hooks_install();
    aoticache_index *writer = fixture_must_open();
    put_numbers(writer, 1, 10, 11);
    aoticache_index_close(writer);
    aoticache_syscall_hook_set(fail_one, (void *)&call); /* the first thing that SQLite does with a new -shm file */
    cr_assert_eq(open_status(false, &error), AOTICACHE_IO);
    cr_assert_not_null(strstr(error.message, "the disk is full"), "%s", error.message);
    cr_assert_eq(fixture_open(true, &reader, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(lookup_number(reader, 1, &hit, NULL), AOTICACHE_OK);
    aoticache_syscall_hook_set(NULL, NULL);
    cr_assert_eq(lookup_number(reader, 2, &hit, NULL), AOTICACHE_NOT_FOUND);
    writer = fixture_must_open();
    put_numbers(writer, 2, 20, 21);
    cr_assert_eq(lookup_number(reader, 2, &hit, NULL), AOTICACHE_OK);
    put_numbers(writer, 3, 30, 31);
    cr_assert_eq(lookup_number(reader, 3, &hit, NULL), AOTICACHE_OK);
    aoticache_index_close(writer);
    cr_assert_eq(lookup_number(reader, 3, &hit, NULL), AOTICACHE_OK);
    aoticache_index_close(reader);
}

Test(index_open, failing_to_create_is_io_and_can_be_repeated)
{
    const char *call = "open";
    aoticache_error error = {0};
    aoticache_index_syscall_hooks_install();
    aoticache_syscall_hook_set(fail_one, (void *)&call);
    cr_assert_eq(open_status(false, &error), AOTICACHE_IO, "%s", error.message);
    aoticache_syscall_hook_set(NULL, NULL);
    cr_assert_eq(open_status(false, NULL), AOTICACHE_OK);
}

/* Every change of the disk while an index is made, failed once. */
static int fail_nth(void *user, const char *call, const char *path)
{
    int *left = user;
    (void)call;
    (void)path;
    return --*left == 0 ? EIO : 0;
}

Test(index_open, creation_that_fails_anywhere_can_be_repeated)
{
    aoticache_index_syscall_hooks_install();
    int steps = 1;
    for (bool failed_once = true; failed_once; steps++) {
        int left = steps;
        aoticache_index *index = NULL;
        aoticache_syscall_hook_set(fail_nth, &left);
        aoticache_status status = fixture_open(false, &index, NULL);
        aoticache_index_close(status == AOTICACHE_OK ? index : NULL);
        failed_once = left <= 0;
        aoticache_syscall_hook_set(NULL, NULL);
        cr_assert(status == AOTICACHE_OK || status == AOTICACHE_IO, "step %d: %s", steps,
                  aoticache_status_name(status));
        index = fixture_must_open();
        put_numbers(index, 1, 10, 11);
        cr_assert_eq(index_verify(index, NULL), AOTICACHE_OK);
        aoticache_index_close(index);
        unlink(fixture_path);
    }
    cr_assert_gt(steps, 5);
}

Test(index_open, statuses_of_sqlite_results)
{
    cr_assert_eq(aoticache_index_status_of(SQLITE_OK, 0), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_status_of(SQLITE_BUSY_RECOVERY, 0), AOTICACHE_LOCKED);
    cr_assert_eq(aoticache_index_status_of(SQLITE_LOCKED, 0), AOTICACHE_LOCKED);
    cr_assert_eq(aoticache_index_status_of(SQLITE_PROTOCOL, 0), AOTICACHE_LOCKED);
    cr_assert_eq(aoticache_index_status_of(SQLITE_NOTADB, 0), AOTICACHE_CORRUPT);
    cr_assert_eq(aoticache_index_status_of(SQLITE_CORRUPT_VTAB, 0), AOTICACHE_CORRUPT);
    cr_assert_eq(aoticache_index_status_of(SQLITE_FULL, 0), AOTICACHE_IO);
    cr_assert_eq(aoticache_index_status_of(SQLITE_IOERR_FSYNC, 0), AOTICACHE_IO);
    cr_assert_eq(aoticache_index_status_of(SQLITE_IOERR_FSTAT, EACCES), AOTICACHE_DENIED);
    cr_assert_eq(aoticache_index_status_of(SQLITE_NOMEM, 0), AOTICACHE_NO_MEMORY);
    cr_assert_eq(aoticache_index_status_of(SQLITE_IOERR_NOMEM, 0), AOTICACHE_NO_MEMORY);
    cr_assert_eq(aoticache_index_status_of(SQLITE_READONLY, 0), AOTICACHE_DENIED);
    cr_assert_eq(aoticache_index_status_of(SQLITE_CANTOPEN_SYMLINK, 0), AOTICACHE_DENIED);
    cr_assert_eq(aoticache_index_status_of(SQLITE_CANTOPEN, EACCES), AOTICACHE_DENIED);
    cr_assert_eq(aoticache_index_status_of(SQLITE_CANTOPEN, EMFILE), AOTICACHE_IO);
    cr_assert_eq(aoticache_index_status_of(SQLITE_CANTOPEN, ENOMEM), AOTICACHE_NO_MEMORY);
}
