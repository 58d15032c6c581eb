/*
 * eager/compile/spawn: finds a program and starts it: descriptors, process group, signals, memory limit, and the watcher that
 * ends it when the host is gone. process.c communicates with it afterwards.
 *
 * posix_spawn is used instead of fork, because a fork in a process with many threads and gigabytes of memory is slow, and
 * between fork and exec almost nothing is allowed there.
 */
#include "base/cleanup.h"
#include "base/threads.h"
#include "eager/compile/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

extern char **environ;

#define SYSTEM_PATH "/usr/local/bin:/usr/bin:/bin"

/* Returns the host's environment, or NULL under the condition that makes secure_getenv() return NULL. */
static const char *const *process_environment(void)
{
    static const char *const clean[] = {"PATH=" SYSTEM_PATH, NULL};
    return getauxval(AT_SECURE) != 0 ? clean : (const char *const *)environ;
}

/* ---- finding ---- */

/* Returns whether the path is a program. If not, errno is 0 if the file exists, otherwise the reason. */
static bool is_program(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return false;
    errno = 0;
    if (S_ISREG(status.st_mode) && eaccess(path, X_OK) == 0)
        return true;
    errno = errno == EACCES ? 0 : errno;
    return false;
}

/*
 * Looks in one directory of $PATH, `length` bytes long, for the name. If the directory cannot be searched, *ret_errno gets the
 * reason; it is unchanged if there is no such file.
 */
static bool program_in_directory(const char *directory, size_t length, const char *name, char ret_path[PATH_MAX],
                                 int *ret_errno)
{
    if (length == 0 || directory[0] != '/')
        return false;
    int written = snprintf(ret_path, PATH_MAX, "%.*s/%s", (int)length, directory, name);
    if (written <= 0 || written >= PATH_MAX)
        return false;
    if (is_program(ret_path))
        return true;
    if (errno != 0 && errno != ENOENT && errno != ENOTDIR)
        *ret_errno = errno;
    return false;
}

/* Makes a path absolute, without resolving links: the working directory of program or host may change. */
static aoticache_status absolute_path(const char *path, char ret_path[PATH_MAX], aoticache_error *ret_error)
{
    char here[PATH_MAX];
    if (path[0] != '/' && getcwd(here, sizeof here) == NULL)
        return aoticache_error_set_errno(ret_error, errno, "program %s: cannot determine the current directory", path);
    int length = path[0] == '/' ? snprintf(ret_path, PATH_MAX, "%s", path)
                                : snprintf(ret_path, PATH_MAX, "%s/%s", strcmp(here, "/") == 0 ? "" : here, path);
    if (length < 0 || length >= PATH_MAX)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "program %.200s...: its path is too long", path);
    return AOTICACHE_OK;
}

aoticache_status aoticache_program_find(const char *name, char ret_path[PATH_MAX], aoticache_error *ret_error)
{
    size_t length = strlen(name);
    if (length == 0 || length >= PATH_MAX)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "program: its name has %zu bytes", length);
    if (strchr(name, '/') != NULL) {
        if (is_program(name))
            return absolute_path(name, ret_path, ret_error);
        if (errno == ENOENT || errno == ENOTDIR)
            return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "program %s: it does not exist", name);
        if (errno != 0)
            return aoticache_error_set_errno(ret_error, errno, "program %s: cannot examine it", name);
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "program %s: not an executable file", name);
    }
    const char *directories = secure_getenv("PATH");
    if (directories == NULL || directories[0] == '\0')
        directories = SYSTEM_PATH;
    char path[PATH_MAX];
    int unseen = 0; /* why a directory could not be searched, remembered as in execvp(3) */
    for (const char *directory = directories; *directory != '\0';) {
        size_t directory_length = strcspn(directory, ":");
        if (program_in_directory(directory, directory_length, name, path, &unseen)) {
            memcpy(ret_path, path, strlen(path) + 1);
            return AOTICACHE_OK;
        }
        directory += directory_length + (directory[directory_length] == ':');
    }
    if (unseen != 0)
        return aoticache_error_set_errno(ret_error, unseen, "program %s: cannot search every directory of PATH (%s)",
                                         name, directories);
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "program %s: not in any directory of PATH (%s)", name,
                               directories);
}

/* ---- descriptors ---- */

/* The child's and our ends of its three standard channels; -1 if there is none. */
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
 * Moves a descriptor to 3 or above: a host may have closed its standard ones, and dup2 in the child onto 0, 1 and 2 must not
 * replace one that is still needed.
 */
static int move_above_standard(int *fd)
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

/* Makes the input a file in memory: it needs no second writer, raises no SIGPIPE, and /dev/stdin can be opened. */
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
    if (move_above_standard(&channels->child_input) != 0 || move_above_standard(&channels->child_output) != 0 ||
        move_above_standard(&channels->child_messages) != 0 || move_above_standard(&channels->output) != 0 ||
        move_above_standard(&channels->messages) != 0)
        return -1;
    /* This affects only our own ends: O_NONBLOCK belongs to the open file, and the child's ends are other files. */
    if (fcntl(channels->output, F_SETFL, O_NONBLOCK) != 0 || fcntl(channels->messages, F_SETFL, O_NONBLOCK) != 0)
        return -1;
    return 0;
}

/* ---- starting ---- */

/* Closes everything above 2 in the child, also what the host opened without O_CLOEXEC. */
static int add_close_above(posix_spawn_file_actions_t *actions)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    return posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
#else
    /*
     * Without that function, the descriptors that are open at this moment are closed. One that another thread opens meanwhile
     * without O_CLOEXEC stays open in the child.
     */
    cleanup_dir DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL)
        return 0;
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        int fd = atoi(entry->d_name);
        if (fd > STDERR_FILENO && fd != dirfd(directory) && posix_spawn_file_actions_addclose(actions, fd) != 0)
            return ENOMEM;
    }
    return 0;
#endif
}

#if defined(__GLIBC__) && !__GLIBC_PREREQ(2, 29)
#define SPAWN_CHANGES_DIRECTORY false
#define posix_spawn_file_actions_addchdir_np(actions, directory) ENOSYS
#else
#define SPAWN_CHANGES_DIRECTORY true
#endif

static int fill_actions(posix_spawn_file_actions_t *actions, const struct channels *channels, const char *directory)
{
    int result = posix_spawn_file_actions_adddup2(actions, channels->child_input, STDIN_FILENO);
    if (result == 0)
        result = posix_spawn_file_actions_adddup2(actions, channels->child_output, STDOUT_FILENO);
    if (result == 0)
        result = posix_spawn_file_actions_adddup2(actions, channels->child_messages, STDERR_FILENO);
    if (result == 0 && directory != NULL && SPAWN_CHANGES_DIRECTORY)
        result = posix_spawn_file_actions_addchdir_np(actions, directory);
    return result != 0 ? result : add_close_above(actions);
}

/*
 * Sets the attributes. Signals of a terminal stay blocked: until the child has its own group, Ctrl-C reaches it as part of the
 * host's group, and would end a compile for which the host continues to wait.
 */
static int fill_attributes(posix_spawnattr_t *attributes, pid_t group)
{
    sigset_t terminal, all;
    sigemptyset(&terminal);
    sigaddset(&terminal, SIGINT);
    sigaddset(&terminal, SIGQUIT);
    sigaddset(&terminal, SIGTSTP);
    sigfillset(&all);
    int result =
        posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (result == 0)
        result = posix_spawnattr_setpgroup(attributes, group);
    if (result == 0)
        result = posix_spawnattr_setsigmask(attributes, &terminal);
    return result != 0 ? result : posix_spawnattr_setsigdefault(attributes, &all);
}

/* The program to start: the program itself, or a shell that prepares it. */
struct start {
    const char *program;
    const char *const *arguments;
    const char *const *environment;
    const char *directory; /* NULL: that of the host */
    pid_t group;           /* to join; 0: its own */
};

/* Returns 0 or an errno, as posix_spawn does. */
static int spawn(const struct start *start, const struct channels *channels, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int result = posix_spawn_file_actions_init(&actions);
    if (result != 0)
        return result;
    result = posix_spawnattr_init(&attributes);
    if (result == 0) {
        result = fill_actions(&actions, channels, start->directory);
        if (result == 0)
            result = fill_attributes(&attributes, start->group);
        if (result == 0)
            result =
                posix_spawn(ret_pid, start->program, &actions, &attributes, (char *const *)(uintptr_t)start->arguments,
                            (char *const *)(uintptr_t)start->environment);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

/* ---- the watcher ---- */

/*
 * Kills its own group when process $1 is gone. Checks once a second whether that process exists, is not a zombie, and has the
 * same start time as at first (field 22 of proc(5)'s stat, the 20th after the name). It is a shell, so that it works for any
 * program and needs none of the host's memory. It gets a process id and not a pipe, because a fork of the host would hold the
 * pipe open. (PR_SET_PDEATHSIG would fire when the thread that started it ends.) If /proc is not mounted, it does not watch.
 */
static const char watch[] = "[ -r /proc/self/stat ] || exit 0\n"
                            "[ \"$PPID\" = \"$1\" ] || kill -9 0\n"
                            "set -f\n"
                            "while read -r line < \"/proc/$1/stat\"; do\n"
                            "    set -- \"$1\" ${line##*) }\n"
                            "    case $2 in Z | X) break ;; esac\n"
                            "    [ \"${start:=${21}}\" = \"${21}\" ] || break\n"
                            "    sleep 1 || exit 0\n"
                            "done\n"
                            "kill -9 0\n";

/* Starts the watcher. 0: it cannot be started; the compile continues without, and may outlive a crashed host. */
static pid_t start_watcher(void)
{
    char host[16];
    pid_t pid = 0;
    cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || move_above_standard(&null) != 0)
        return 0;
    snprintf(host, sizeof host, "%d", (int)getpid());
    const char *const arguments[] = {"sh", "-c", watch, "aoticache-watcher", host, NULL};
    struct channels channels = CHANNELS_INIT;
    channels.child_input = channels.child_output = channels.child_messages = null;
    struct start start = {.program = "/bin/sh",
                          .arguments = arguments,
                          .environment = process_environment(),
                          .directory = AOTICACHE_PROCESS_NEUTRAL_DIRECTORY};
    if (spawn(&start, &channels, &pid) != 0)
        return 0;
    setpgid(pid, pid); /* an emulator's vfork is fork: the watcher may not have done it yet, and the program joins it */
    return pid;
}

/* ---- the program ---- */

/*
 * Starts a program through a shell that sets limit and directory and then executes it, with the same process id: posix_spawn
 * cannot set a limit and, in old versions of glibc, not a directory either. A program cannot get more memory than the host's own
 * limit.
 */
static int start_by_shell(const aoticache_process_options *options, const struct start *plain,
                          const struct channels *channels, pid_t *ret_pid)
{
    static const char script[] = "cd \"$1\" || exit 126; limit=$2; shift 2\n"
                                 "[ \"$limit\" = 0 ] || ulimit -d \"$limit\" || exit 126\n"
                                 "exec \"$@\"";
    struct rlimit own;
    uint64_t limit = options->memory_limit_bytes;
    char kibibytes[24];
    size_t count = 0;
    if (getrlimit(RLIMIT_DATA, &own) == 0 && own.rlim_max != RLIM_INFINITY && own.rlim_max < limit)
        limit = own.rlim_max;
    snprintf(kibibytes, sizeof kibibytes, "%llu", (unsigned long long)(limit + 1023) / 1024);
    while (options->arguments[count] != NULL)
        count++;
    const char *directory = plain->directory != NULL ? plain->directory : ".";
    const char *const shell[] = {"sh", "-c", script, "sh", directory, kibibytes, options->program};
    const size_t shell_count = sizeof shell / sizeof shell[0];
    cleanup_free const char **arguments = calloc(shell_count + count + 1, sizeof *arguments);
    if (arguments == NULL)
        return ENOMEM;
    memcpy(arguments, shell, sizeof shell);
    for (size_t i = 1; i < count; i++)
        arguments[shell_count + i - 1] = options->arguments[i];
    struct start start = *plain;
    start.program = "/bin/sh";
    start.arguments = arguments;
    return spawn(&start, channels, ret_pid);
}

static int start_program(const aoticache_process_options *options, const struct channels *channels, pid_t group,
                         pid_t *ret_pid)
{
    struct start start = {.program = options->program,
                          .arguments = options->arguments,
                          .environment = options->environment != NULL ? options->environment : process_environment(),
                          .directory = options->directory,
                          .group = group};
    bool by_shell = options->memory_limit_bytes != 0 || (options->directory != NULL && !SPAWN_CHANGES_DIRECTORY);
    return by_shell ? start_by_shell(options, &start, channels, ret_pid) : spawn(&start, channels, ret_pid);
}

aoticache_status aoticache_process_start(const aoticache_process_options *options, aoticache_process *ret_process,
                                         aoticache_error *ret_error)
{
    struct channels channels = CHANNELS_INIT;
    pid_t pid = 0, watcher = 0;
    int result = aoticache_compiles_are_cancelled() ? ECANCELED : channels_open(options, &channels) == 0 ? 0 : errno;
    /* The watcher is started first, so that the program never runs without it. */
    if (result == 0 && options->ends_with_host)
        watcher = start_watcher();
    if (result == 0)
        result = start_program(options, &channels, watcher, &pid);
    aoticache_process process = {.pid = pid, .watcher = watcher, .output = -1, .messages = -1};
    if (result != 0) {
        aoticache_process_end(&process);
        channels_close(&channels);
        return aoticache_error_set_errno(ret_error, result, "cannot start program %s", options->program);
    }
    process.output = steal_fd(&channels.output);
    process.messages = steal_fd(&channels.messages);
    *ret_process = process;
    channels_close(&channels);
    return AOTICACHE_OK;
}

static aoticache_status explain(aoticache_process *process, const char *program, aoticache_process_event event,
                                aoticache_error *ret_error)
{
    char how[64];
    if (event == AOTICACHE_PROCESS_FAILURE)
        return aoticache_error_set_errno(ret_error, errno, "%.160s was killed", program);
    if (event == AOTICACHE_PROCESS_TIMEOUT)
        snprintf(how, sizeof how, "took too long and was killed");
    else if (event == AOTICACHE_PROCESS_OVERFLOW)
        snprintf(how, sizeof how, "wrote too much and was killed");
    else
        aoticache_process_describe_end(process, how, sizeof how);
    const char *words = aoticache_process_last_words(process, AOTICACHE_ERROR_MESSAGE_BYTES - 256);
    return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "%.160s %s%s%s", program, how,
                               words[0] != '\0' ? ":\n" : "", words);
}

aoticache_status aoticache_process_run(const aoticache_process_options *options, size_t max_bytes, uint64_t deadline_ns,
                                       aoticache_process *ret_process, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_process_start(options, ret_process, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_process_event event = aoticache_process_read_all(ret_process, max_bytes, deadline_ns);
    aoticache_process_end(ret_process);
    bool fine = ret_process->how_code == CLD_EXITED && ret_process->how_status == 0;
    /* If the host ignores SIGCHLD, the status is unknown: then only the output is checked. */
    if (event == AOTICACHE_PROCESS_END && (fine || ret_process->how_code == 0))
        return AOTICACHE_OK;
    return explain(ret_process, options->program, event, ret_error);
}
