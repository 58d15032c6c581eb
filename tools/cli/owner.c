/*
 * tools/cli/owner: a tool that root starts on the cache of another user works as that user. It needs no more rights, and what
 * the files say is the word of the owner (or of the owner's group), which root must not act upon.
 */
#include "base/cleanup.h"
#include "cache/config/config.h"
#include "tools/cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Collectors that stayed root have left locks of root's own, which the owner cannot open. Empty files, of one name: so
 * nothing is given away that was put there for it.
 */
static void give_locks_to_owner(const char *directory, const struct stat *owner)
{
    static const char *const names[] = {"collect.lock", "lock", "gate", "index.sqlite3-gate"};
    cleanup_fd int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; folder >= 0 && i < sizeof names / sizeof names[0]; i++) {
        struct stat found;
        cleanup_fd int fd = openat(folder, names[i], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == 0 && found.st_nlink == 1 &&
            found.st_size == 0 && fchown(fd, owner->st_uid, owner->st_gid) != 0)
            return; /* then the collection says what it cannot open */
    }
}

/* A user without an account has the directory's group and no other. */
static bool become_owner(const struct stat *directory)
{
    const struct passwd *account = getpwuid(directory->st_uid);
    const gid_t group = account != NULL ? account->pw_gid : directory->st_gid;
    return (account != NULL ? initgroups(account->pw_name, group) : setgroups(1, &group)) == 0 &&
           setresgid(group, group, group) == 0 &&
           setresuid(directory->st_uid, directory->st_uid, directory->st_uid) == 0;
}

int aoticache_cli_become_owner(const aoticache_cli *cli, const char *directory, const struct stat *found)
{
    give_locks_to_owner(directory, found);
    if (!become_owner(found))
        return aoticache_cli_error(cli, "cannot become user %ld, who owns %s: %s; run it as that user",
                                   (long)found->st_uid, directory, strerror(errno));
    aoticache_cli_note(cli, "%s belongs to user %ld: going on as that user", directory, (long)found->st_uid);
    return AOTICACHE_CLI_EXIT_OK;
}

/* The configuration and the keys are those of the owner from here on, and the directory stays the one that root means. */
static int take_environment_of_owner(const aoticache_cli *cli, const char *directory, const struct stat *found)
{
    const struct passwd *account = getpwuid(found->st_uid);
    const int result = account != NULL ? setenv("HOME", account->pw_dir, 1) : unsetenv("HOME");
    if (result != 0 || setenv("AOTICACHE_DIR", directory, 1) != 0 || unsetenv("XDG_CONFIG_HOME") != 0)
        return aoticache_cli_error(cli, "cannot change the environment: %s", strerror(errno));
    aoticache_cli_forget_config();
    return AOTICACHE_CLI_EXIT_OK;
}

int aoticache_cli_look_as_owner(const aoticache_cli *cli)
{
    struct stat found;
    char directory[PATH_MAX];
    aoticache_config *config = NULL;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    if (geteuid() != 0)
        return AOTICACHE_CLI_EXIT_OK;
    /* Without a logger: what is wrong in it is said when it is read for use. */
    if (aoticache_config_read((aoticache_logger){.log = NULL}, &config, NULL) != AOTICACHE_OK)
        aoticache_cli_out_of_memory();
    aoticache_config_apply(config, &options);
    const char *named = cli->directory != NULL ? cli->directory : options.directory;
    const bool is_known = named != NULL
                              ? snprintf(directory, sizeof directory, "%s", named) < (int)sizeof directory
                              : aoticache_cache_default_directory(directory, sizeof directory, NULL) == AOTICACHE_OK;
    const bool stays = cli->allow_shared || options.allow_shared || !is_known || stat(directory, &found) != 0 ||
                       !S_ISDIR(found.st_mode) || found.st_uid == 0;
    aoticache_config_free(config);
    if (stays)
        return AOTICACHE_CLI_EXIT_OK;
    int result = aoticache_cli_become_owner(cli, directory, &found);
    return result == AOTICACHE_CLI_EXIT_OK ? take_environment_of_owner(cli, directory, &found) : result;
}
