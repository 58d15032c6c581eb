/*
 * eager/spawn: finding a program and starting it: descriptors, process group, signals. What is said to it and heard
 * from it afterwards is in process.c.
 *
 * posix_spawn is used and not fork, because a fork in a process with many threads and gigabytes of memory is slow, and
 * between fork and exec almost nothing is allowed there.
 */
#include "base/cleanup.h"
#include "eager/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

extern char **environ;

/* ---- finding ---- */

static bool is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* One folder of $PATH, `length` bytes long, and the name behind it. */
static bool program_in_folder(const char *folder, size_t length, const char *name, char ret_path[PATH_MAX])
{
    if (length == 0 || folder[0] != '/')
        return false;
    int written = snprintf(ret_path, PATH_MAX, "%.*s/%s", (int)length, folder, name);
    return written > 0 && written < PATH_MAX && is_program(ret_path);
}

aoticache_status aoticache_program_find(const char *name, char ret_path[PATH_MAX], aoticache_error *ret_error)
{
    size_t length = strlen(name);
    if (length == 0 || length >= PATH_MAX)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "program: its name has %zu bytes", length);
    if (strchr(name, '/') != NULL) {
        if (access(name, F_OK) != 0)
            return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "program %s: there is none", name);
        if (!is_program(name))
            return aoticache_error_set(ret_error, AOTICACHE_DENIED, "program %s: not an executable file", name);
        memcpy(ret_path, name, length + 1);
        return AOTICACHE_OK;
    }
    const char *folders = getenv("PATH");
    if (folders == NULL || folders[0] == '\0')
        folders = "/usr/local/bin:/usr/bin:/bin";
    char path[PATH_MAX];
    for (const char *folder = folders; *folder != '\0';) {
        size_t folder_length = strcspn(folder, ":");
        if (program_in_folder(folder, folder_length, name, path)) {
            memcpy(ret_path, path, strlen(path) + 1);
            return AOTICACHE_OK;
        }
        folder += folder_length + (folder[folder_length] == ':');
    }
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "program %s: in no folder of PATH (%s)", name, folders);
}

/* ---- descriptors ---- */

/* The child's and our ends of its standard three; -1 where there is none. */
struct channels {
    int child_input, child_output, child_messages;
    int output, messages;
};

#define CHANNELS_INIT {-1, -1, -1, -1, -1}

static void channels_close(struct channels *channels)
{
    int *all[] = {&channels->child_input, &channels->child_output, &channels->child_messages, &channels->output,
                  &channels->messages};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        cleanup_fd_release(all[i]);
}

/*
 * Moves a descriptor to 3 or above: a host may have closed its standard ones, and dup2 in the child onto 0, 1 and 2
 * must not run over one that is still needed.
 */
static int move_up(int *fd)
{
    if (*fd > STDERR_FILENO || *fd < 0)
        return *fd < 0 ? -1 : 0;
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (moved < 0)
        return -1;
    close(*fd);
    *fd = moved;
    return 0;
}

/* The input lies in a file in memory: it needs no second writer, raises no SIGPIPE, and /dev/stdin can be opened. */
static int input_file(const aoticache_process_options *options)
{
    cleanup_fd int fd = memfd_create("aoticache-request", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    const char *bytes = options->input;
    for (size_t done = 0; done < options->input_size;) {
        ssize_t written = write(fd, bytes + done, options->input_size - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        done += (size_t)written;
    }
    if (lseek(fd, 0, SEEK_SET) != 0)
        return -1;
    return steal_fd(&fd);
}

static int open_standard(const aoticache_process_options *options, struct channels *channels)
{
    int pair[2];
    if (options->conversation) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            return -1;
        channels->child_input = pair[0];
        channels->output = pair[1];
        channels->child_output = fcntl(pair[0], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        return channels->child_output < 0 ? -1 : 0;
    }
    channels->child_input = input_file(options);
    if (channels->child_input < 0 || pipe2(pair, O_CLOEXEC) != 0)
        return -1;
    channels->output = pair[0];
    channels->child_output = pair[1];
    return 0;
}

static int channels_open(const aoticache_process_options *options, struct channels *channels)
{
    if (open_standard(options, channels) != 0)
        return -1;
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) != 0)
        return -1;
    channels->messages = pair[0];
    channels->child_messages = pair[1];
    if (move_up(&channels->child_input) != 0 || move_up(&channels->child_output) != 0 ||
        move_up(&channels->child_messages) != 0 || move_up(&channels->output) != 0 || move_up(&channels->messages) != 0)
        return -1;
    /* Only our own ends: non-blocking belongs to the open file, and the child's ends are others. */
    if (fcntl(channels->output, F_SETFL, O_NONBLOCK) != 0 || fcntl(channels->messages, F_SETFL, O_NONBLOCK) != 0)
        return -1;
    return 0;
}

/* ---- starting ---- */

/* Everything above 2 is closed in the child, also what the host opened without O_CLOEXEC. */
static int add_close_above(posix_spawn_file_actions_t *actions)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    return posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
#else
    /*
     * Without it: those that are open now. One that another thread opens meanwhile, without O_CLOEXEC, slips through.
     */
    cleanup_dir DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        int fd = atoi(entry->d_name);
        if (fd > STDERR_FILENO && fd != dirfd(folder) && posix_spawn_file_actions_addclose(actions, fd) != 0)
            return ENOMEM;
    }
    return 0;
#endif
}

static int fill_actions(posix_spawn_file_actions_t *actions, const struct channels *channels)
{
    int result = posix_spawn_file_actions_adddup2(actions, channels->child_input, STDIN_FILENO);
    if (result == 0)
        result = posix_spawn_file_actions_adddup2(actions, channels->child_output, STDOUT_FILENO);
    if (result == 0)
        result = posix_spawn_file_actions_adddup2(actions, channels->child_messages, STDERR_FILENO);
    return result != 0 ? result : add_close_above(actions);
}

static int fill_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int result = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                          POSIX_SPAWN_SETSIGDEF);
    if (result == 0)
        result = posix_spawnattr_setpgroup(attributes, 0);
    if (result == 0)
        result = posix_spawnattr_setsigmask(attributes, &none);
    return result != 0 ? result : posix_spawnattr_setsigdefault(attributes, &all);
}

/* Returns 0 or an errno, as posix_spawn does. */
static int spawn(const aoticache_process_options *options, const struct channels *channels, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int result = posix_spawn_file_actions_init(&actions);
    if (result != 0)
        return result;
    result = posix_spawnattr_init(&attributes);
    if (result == 0) {
        result = fill_actions(&actions, channels);
        if (result == 0)
            result = fill_attributes(&attributes);
        if (result == 0)
            result = posix_spawn(ret_pid, options->program, &actions, &attributes,
                                 (char *const *)(uintptr_t)options->arguments, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

aoticache_status aoticache_process_start(const aoticache_process_options *options, aoticache_process *ret_process,
                                         aoticache_error *ret_error)
{
    struct channels channels = CHANNELS_INIT;
    pid_t pid = 0;
    int result = channels_open(options, &channels) == 0 ? spawn(options, &channels, &pid) : errno;
    if (result != 0) {
        channels_close(&channels);
        return aoticache_error_set_errno(ret_error, result, "program %s cannot be started", options->program);
    }
    *ret_process = (aoticache_process){.pid = pid,
                                       .output = steal_fd(&channels.output),
                                       .messages = steal_fd(&channels.messages)};
    channels_close(&channels);
    return AOTICACHE_OK;
}
