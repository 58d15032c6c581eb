/*
 * tools/cli/owner: if root starts a tool on the cache of another user, the tool runs as that user. It needs no more rights,
 * and the files are controlled by the owner (or the owner's group), so root must not act on their contents.
 */
#include "base/cleanup.h"
#include "tools/cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Gives lock files to the owner. Earlier collectors that ran as root have left locks owned by root, which the owner cannot
 * open. Only empty files with one name are changed: so no file is given away that was put there for that purpose.
 */
static void give_locks_to_owner(const char *directory, const struct stat *owner)
{
    static const char *const names[] = {"collect.lock", "lock", "gate", "index.sqlite3-gate"};
    cleanup_fd int subdirectory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; subdirectory >= 0 && i < sizeof names / sizeof names[0]; i++) {
        struct stat found;
        cleanup_fd int fd = openat(subdirectory, names[i], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == 0 && found.st_nlink == 1 &&
            found.st_size == 0 && fchown(fd, owner->st_uid, owner->st_gid) != 0)
            return; /* the collection will then report what it cannot open */
    }
}

/* Changes the user. A user without an account gets only the directory's group. */
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
    aoticache_cli_note(cli, "%s belongs to user %ld: continuing as that user", directory, (long)found->st_uid);
    return AOTICACHE_CLI_EXIT_OK;
}
