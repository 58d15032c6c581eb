/*
 * eager/compile/python: finds a Python and the version of its PyTorch. A hit in the cache must not pay for the start of a
 * Python, let alone an import of torch (seconds), so the version is read from the package directories.
 */
#include "base/clock.h"
#include "eager/compile/hook_internal.h"
#include "base/cleanup.h"
#include "base/process/home.h"
#include "eager/compile/process.h"

#include <fcntl.h>
#include <glob.h>
#include <string.h>

#define ASK_LIMIT_NS (20 * UINT64_C(1000000000))

/* With -c, Python would search the working directory first; that entry is removed before anything is imported. */
static const char ask_version[] = "import sys\n"
                                  "sys.path = [place for place in sys.path if place]\n"
                                  "import importlib.metadata as m\n"
                                  "try:\n"
                                  "    print(m.version('torch'))\n"
                                  "except m.PackageNotFoundError:\n"
                                  "    print('none')\n";

/* ---- version.py ---- */

/* Copies the characters of a version (PEP 440), up to the local part: "2.13.0", "2.14.0.dev20260101", "2.6.0a0". */
static bool copy_public_version(const char *text, size_t length, char ret_version[AOTICACHE_PYTHON_VERSION_BYTES])
{
    size_t used = 0;
    while (used < length && text[used] != '+') {
        char c = text[used];
        bool fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '.' || c == '!' || c == '-' || c == '_';
        if (!fine || used + 1 >= AOTICACHE_PYTHON_VERSION_BYTES)
            return false;
        ret_version[used] = c;
        used++;
    }
    ret_version[used] = '\0';
    return used > 0 && ret_version[0] >= '0' && ret_version[0] <= '9';
}

/* Reads `__version__ = '2.13.0+cpu'` from a file of at most 64 KiB. */
static bool read_version_file(const char *path, char ret_version[AOTICACHE_PYTHON_VERSION_BYTES])
{
    cleanup_file FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    char line[512];
    for (size_t lines = 0; lines < 256 && fgets(line, sizeof line, file) != NULL; lines++) {
        static const char name[] = "__version__";
        if (strncmp(line, name, sizeof name - 1) != 0)
            continue;
        const char *quote = strpbrk(line, "'\"");
        const char *end = quote != NULL ? strchr(quote + 1, *quote) : NULL;
        if (end != NULL)
            return copy_public_version(quote + 1, (size_t)(end - quote - 1), ret_version);
    }
    return false;
}

/* Returns a variable of Python's environment; NULL if it is not set. */
static const char *read_variable(const char *const *environment, const char *name)
{
    if (environment == NULL)
        return secure_getenv(name);
    size_t length = strlen(name);
    for (size_t i = 0; environment[i] != NULL; i++)
        if (strncmp(environment[i], name, length) == 0 && environment[i][length] == '=')
            return environment[i] + length + 1;
    return NULL;
}

/* ---- package directories ---- */

/* The versions found: one, or several that differ. */
struct findings {
    char version[AOTICACHE_PYTHON_VERSION_BYTES];
    bool found, conflict;
};

static void note_version_file(struct findings *findings, const char *path)
{
    char version[AOTICACHE_PYTHON_VERSION_BYTES];
    if (!read_version_file(path, version))
        return;
    if (findings->found && strcmp(findings->version, version) != 0)
        findings->conflict = true;
    memcpy(findings->version, version, sizeof version);
    findings->found = true;
}

/* Searches the packages below a prefix. prefix: the directory that contains bin/python; "/usr" for /usr/bin/python3. */
static void search_prefix(struct findings *findings, const char *prefix)
{
    static const char *const patterns[] = {"lib/python3*/site-packages", "lib64/python3*/site-packages",
                                           "lib/python3*/dist-packages", "local/lib/python3*/dist-packages"};
    char pattern[PATH_MAX];
    /* If the prefix contains a pattern character of glob(), Python itself is asked. */
    if (strpbrk(prefix, "*?[\\") != NULL)
        return;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        int length = snprintf(pattern, sizeof pattern, "%s/%s/torch/version.py", prefix, patterns[i]);
        if (length < 0 || (size_t)length >= sizeof pattern)
            continue;
        glob_t matches = {0};
        if (glob(pattern, GLOB_NOSORT, NULL, &matches) == 0)
            for (size_t match = 0; match < matches.gl_pathc; match++)
                note_version_file(findings, matches.gl_pathv[match]);
        globfree(&matches);
    }
}

/* Finds the prefix of the program's path as given: the real path of a virtual environment's Python is elsewhere. */
static bool prefix_of(const char *program, char ret_prefix[PATH_MAX])
{
    size_t length = strlen(program);
    if (program[0] != '/' || length >= PATH_MAX)
        return false;
    memcpy(ret_prefix, program, length + 1);
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(ret_prefix, '/');
        if (slash == NULL)
            return false;
        *slash = '\0';
    }
    return true;
}

/* Searches the user's own packages, which come before the system's, except in a virtual environment. */
static void search_user_site(struct findings *findings, const char *prefix, const char *const *environment)
{
    char path[PATH_MAX];
    const char *home = read_variable(environment, "HOME");
    int length = snprintf(path, sizeof path, "%s/pyvenv.cfg", prefix);
    if (home == NULL || length < 0 || (size_t)length >= sizeof path || access(path, F_OK) == 0)
        return;
    length = snprintf(path, sizeof path, "%s/.local", home);
    if (length > 0 && (size_t)length < sizeof path)
        search_prefix(findings, path);
}

/*
 * Searches each directory of $PYTHONPATH: Python uses the first one that has PyTorch. Empty and relative ones are ignored,
 * because Python is started in the neutral directory.
 */
static bool search_python_path(struct findings *findings, const char *const *environment)
{
    const char *directories = read_variable(environment, "PYTHONPATH");
    char path[PATH_MAX];
    for (const char *directory = directories; directory != NULL && *directory != '\0';) {
        size_t length = strcspn(directory, ":");
        int written = snprintf(path, sizeof path, "%.*s/torch/version.py", (int)length, directory);
        if (directory[0] == '/' && written > 0 && (size_t)written < sizeof path)
            note_version_file(findings, path);
        if (findings->found)
            return true;
        directory += length + (directory[length] == ':');
    }
    return false;
}

static bool find_version(const char *program, const char *const *environment,
                         char ret_version[AOTICACHE_PYTHON_VERSION_BYTES])
{
    struct findings findings = {0};
    char prefix[PATH_MAX];
    if (!search_python_path(&findings, environment)) {
        if (!prefix_of(program, prefix))
            return false;
        search_prefix(&findings, prefix);
        search_user_site(&findings, prefix, environment);
    }
    if (!findings.found || findings.conflict)
        return false;
    memcpy(ret_version, findings.version, sizeof findings.version);
    return true;
}

/* ---- asking Python ---- */

static aoticache_status run_for_version(const char *program, const char *const *environment,
                                        char ret_version[AOTICACHE_PYTHON_VERSION_BYTES], aoticache_error *ret_error)
{
    const char *const arguments[] = {program, "-c", ask_version, NULL};
    aoticache_process_options options = {.program = program,
                                         .arguments = arguments,
                                         .environment = environment,
                                         .directory = AOTICACHE_PROCESS_NEUTRAL_DIRECTORY};
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    aoticache_error error;
    aoticache_status status =
        aoticache_process_run(&options, 4096, aoticache_monotonic_ns() + ASK_LIMIT_NS, &process, &error);
    size_t length = process.bytes != NULL ? strcspn(process.bytes, "\n") : 0;
    if (status == AOTICACHE_OK && length == 4 && memcmp(process.bytes, "none", 4) == 0)
        status = aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                     "Python %.500s has no PyTorch: install it there, or set AOTICACHE_PYTHON to "
                                     "another Python",
                                     program);
    else if (status == AOTICACHE_OK && (length == 0 || !copy_public_version(process.bytes, length, ret_version)))
        status = aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                     "Python %.200s does not report the version of its PyTorch", program);
    else if (status == AOTICACHE_COMPILE_FAILED)
        status = aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                     "Python %.200s cannot report whether it has PyTorch; set AOTICACHE_PYTHON to "
                                     "another Python; %.500s",
                                     program, error.message);
    else if (status != AOTICACHE_OK && ret_error != NULL)
        *ret_error = error;
    aoticache_process_free(&process);
    return status;
}

/* ---- the Python ---- */

static aoticache_status find_program(const char *program, char ret_path[PATH_MAX], aoticache_error *ret_error)
{
    if (program == NULL || program[0] == '\0')
        program = secure_getenv("AOTICACHE_PYTHON");
    if (program != NULL && program[0] != '\0')
        return aoticache_program_find(program, ret_path, ret_error);
    char path[PATH_MAX];
    if (aoticache_home_find("venv/bin/python", path, NULL) == AOTICACHE_OK)
        return aoticache_program_find(path, ret_path, ret_error);
    aoticache_status status = aoticache_program_find("python3", ret_path, ret_error);
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                               "no Python: python3 is not in any directory of PATH; set AOTICACHE_PYTHON");
}

aoticache_status aoticache_python_find(const char *program, const char *const *environment,
                                       aoticache_python *ret_python, aoticache_error *ret_error)
{
    aoticache_python python = {{0}, {0}};
    aoticache_status status = find_program(program, python.path, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!find_version(python.path, environment, python.torch_version))
        status = run_for_version(python.path, environment, python.torch_version, ret_error);
    if (status == AOTICACHE_OK)
        *ret_python = python;
    return status;
}
