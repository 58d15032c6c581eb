/*
 * Unit tests of eager/compile/worker.c, eager/compile/python.c and eager/compile/worker.py: first with shell scripts in place
 * of Python, which misbehave as no Python would; then worker.py itself with a fake torch; last with PyTorch, if it is
 * installed.
 */
#include "compiler_macros.h"
#include "cache/request/cpu_detect.h"
#include "eager/compile/eager_face.h"
#include "eager/compile/hook_internal.h"
#include "loader/tensor.h"
#include "tests/unit/fixtures/emulator.h"
#include "tests/unit/fixtures/eager_fixture.h"

#include <fcntl.h>
#include <pthread.h>

/* Begins. Files that Python and PyTorch keep for their user and in TMPDIR are private to the test, too. */
static void begin(void)
{
    fixture_begin();
    setenv("HOME", test_directory, 1);
    setenv("TMPDIR", test_directory, 1);
    unsetenv("XDG_CACHE_HOME");
}

TestSuite(worker, .init = begin, .fini = fixture_end, .timeout = 900);

#define VERSION_FILE "__version__ = '9.8.7+cpu'\ndebug = False\n"
#define SHELL "#!/bin/sh\n"
#define HELLO "echo '{\"hello\":1,\"producer\":\"pytorch 9.8.7\",\"python\":\"3.99.0\"}'\n"
/* Reads a request, sets id and directory, makes a library and writes its process number next to it. */
#define ASK                                                                              \
    "read -r request || exit 0\n"                                                        \
    "id=$(echo \"$request\" | sed 's/.*\"id\":\\([0-9]*\\).*/\\1/')\n"                   \
    "directory=$(echo \"$request\" | sed 's/.*\"directory\":\"\\([^\"]*\\)\".*/\\1/')\n" \
    "echo $$ > \"$directory/pid\"\n" FIXTURE_MAKE_KERNEL
#define GOOD \
    "echo '{\"id\":'$id',\"ok\":true,\"files\":[{\"name\":\"k.so\",\"path\":\"kernel.so\"}],\"requirements\":[]}'\n"

/* Makes a fake Python from the script, with packages next to it as Python has them. Returns the program. */
static const char *make_python(const char *script)
{
    make_directory("py");
    make_directory("py/bin");
    make_directory("py/lib");
    make_directory("py/lib/python3.99");
    make_directory("py/lib/python3.99/site-packages");
    make_directory("py/lib/python3.99/site-packages/torch");
    write_file("py/lib/python3.99/site-packages/torch/version.py", VERSION_FILE, 0600);
    write_file("py/pyvenv.cfg", "", 0600);
    return write_script("py/bin/python", script);
}

static aoticache_hook *make_hook(const char *program, uint32_t timeout_seconds)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook;
    aoticache_error error = {.message = ""};
    options.program = program;
    options.timeout_seconds = timeout_seconds;
    cr_assert_eq(aoticache_hook_create_worker(&options, &hook, &error), AOTICACHE_OK, "%s", error.message);
    return hook;
}

static aoticache_status compile_request(aoticache_hook *hook, const aoticache_request *request,
                                        struct delivery *delivery, aoticache_error *error)
{
    static int round;
    char name[32];
    snprintf(name, sizeof name, "work%d-%d", (int)getpid(), round++);
    *delivery = (struct delivery){0};
    *error = (aoticache_error){.message = ""};
    return aoticache_hook_compile(hook, request, make_directory(name), deliver, delivery, error);
}

static aoticache_status compile(aoticache_hook *hook, struct delivery *delivery, aoticache_error *error)
{
    aoticache_request *request = make_abs_request();
    aoticache_status status = compile_request(hook, request, delivery, error);
    aoticache_request_free(request);
    return status;
}

/* Returns the process number that the scripts above write next to their kernel. */
static pid_t worker_of(const struct delivery *delivery)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", delivery->path);
    strcpy(strrchr(path, '/'), "/pid");
    return (pid_t)atoi(read_text(path));
}

/* ---- finding Python and PyTorch ---- */

Test(worker, version_is_found_without_starting_python)
{
    char script[PATH_MAX + 64];
    snprintf(script, sizeof script, SHELL "touch %s/started\n", test_directory);
    aoticache_hook *hook = make_hook(make_python(script), 0);
    cr_assert_str_eq(aoticache_hook_get_info(hook).producer, "pytorch 9.8.7");
    aoticache_request *request = make_abs_request();
    cr_assert_eq(aoticache_hook_set_environment(hook, request, NULL), AOTICACHE_OK);
    cr_assert_str_eq(aoticache_request_get_environment(request, "framework"), "pytorch");
    cr_assert_str_eq(aoticache_request_get_environment(request, "framework_version"), "9.8.7");
    cr_assert_not_null(aoticache_request_get_environment(request, "worker"));
    aoticache_request_free(request);
    aoticache_hook_free(hook);
    cr_assert_neq(access(in_directory("started"), F_OK), 0);
}

Test(worker, python_is_asked_where_the_version_is_not_unique)
{
    const char *program = make_python(SHELL "[ \"$1\" = -c ] && echo 1.2.3+cu999\n");
    make_directory("py/lib/python3.98");
    make_directory("py/lib/python3.98/site-packages");
    make_directory("py/lib/python3.98/site-packages/torch");
    write_file("py/lib/python3.98/site-packages/torch/version.py", "__version__ = \"1.1.1\"\n", 0600);
    aoticache_hook *hook = make_hook(program, 0);
    cr_assert_str_eq(aoticache_hook_get_info(hook).producer, "pytorch 1.2.3");
    aoticache_hook_free(hook);
}

static void check_create(const char *program, aoticache_status expected, const char *word)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook = NULL;
    aoticache_error error = {.message = ""};
    options.program = program;
    cr_assert_eq(aoticache_hook_create_worker(&options, &hook, &error), expected, "%s", error.message);
    cr_assert_not_null(strstr(error.message, word), "%s", error.message);
    cr_assert_null(hook);
}

Test(worker, python_without_pytorch_is_told)
{
    check_create(in_directory("none"), AOTICACHE_NOT_FOUND, in_directory("none"));
    const char *program = write_script("python", SHELL "echo no module named torch >&2; exit 1\n");
    check_create(program, AOTICACHE_UNSUPPORTED, "no module named torch");
    check_create(write_script("silent", SHELL), AOTICACHE_UNSUPPORTED, "does not report the version");
    check_create(write_script("odd", SHELL "echo 'rm -r /'\n"), AOTICACHE_UNSUPPORTED, "does not report the version");
    check_create(write_file("plain", "", 0600), AOTICACHE_DENIED, "plain");
    setenv("AOTICACHE_PYTHON", program, 1);
    check_create(NULL, AOTICACHE_UNSUPPORTED, program);
}

/* ---- a worker that behaves, and its life ---- */

Test(worker, stays_alive_between_compiles_and_ends_with_the_hook)
{
    aoticache_hook *hook = make_hook(make_python(SHELL HELLO "while :; do\n" ASK GOOD "done\n"), 0);
    struct delivery first, second;
    aoticache_error error;
    cr_assert_eq(compile(hook, &first, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(compile(hook, &second, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(first.calls, 1);
    cr_assert_str_eq(first.name, "k.so");
    cr_assert_str_eq(first.producer, "pytorch 9.8.7");
    pid_t worker = worker_of(&first);
    cr_assert_eq(worker, worker_of(&second));
    aoticache_hook_free(hook);
    cr_assert(is_gone_soon(worker));
}

Test(worker, refusal_keeps_it_alive)
{
    aoticache_hook *hook = make_hook(make_python(SHELL HELLO ASK "echo '{\"id\":'$id',\"ok\":false,\"error\":\"no\"}'\n"
                                                                 "while :; do\n" ASK GOOD "done\n"),
                                     0);
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_str_eq(error.message, "hook worker: no");
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_hook_free(hook);
}

Test(worker, dead_one_is_started_again)
{
    aoticache_hook *hook = make_hook(make_python(SHELL HELLO "while :; do\n" ASK GOOD "done\n"), 0);
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    pid_t worker = worker_of(&delivery);
    kill(worker, SIGKILL);
    cr_assert(is_gone_soon(worker));
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_neq(worker, worker_of(&delivery));
    aoticache_hook_free(hook);
}

/* Waits for the file with the worker's number, then kills it. */
static void *kill_worker(void *path)
{
    for (int i = 0; i < 3000 && access(path, F_OK) != 0; i++)
        sleep_ms(10);
    kill((pid_t)atoi(read_text(path)), SIGKILL);
    return NULL;
}

Test(worker, death_in_a_compile_fails_it_and_the_next_one_works)
{
    char script[PATH_MAX + 1024];
    snprintf(script, sizeof script,
             SHELL HELLO "if [ ! -e %s/once ]; then read -r request; echo dying >&2\n"
                         "echo $$ > %s/new; mv %s/new %s/once; sleep 300; fi\n",
             test_directory, test_directory, test_directory, test_directory);
    strcat(script, "while :; do\n" ASK GOOD "done\n");
    aoticache_hook *hook = make_hook(make_python(script), 0);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/once", test_directory);
    pthread_t killer;
    cr_assert_eq(pthread_create(&killer, NULL, kill_worker, path), 0);
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_COMPILE_FAILED);
    pthread_join(killer, NULL);
    cr_assert_not_null(strstr(error.message, "signal 9"), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "dying"), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "aten::abs"), "%s", error.message);
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_hook_free(hook);
}

Test(worker, timeout_kills_the_group_and_the_next_one_works)
{
    char script[PATH_MAX + 1024];
    snprintf(script, sizeof script,
             SHELL HELLO "if [ ! -e %s/once ]; then read -r request; sleep 300 & echo $! > %s/once; wait; fi\n",
             test_directory, test_directory);
    strcat(script, "while :; do\n" ASK GOOD "done\n");
    aoticache_hook *hook = make_hook(make_python(script), 3); /* it must be sleeping by then */
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, "longer than 3 s"), "%s", error.message);
    cr_assert(is_gone_soon((pid_t)atoi(read_text(in_directory("once")))));
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_hook_free(hook);
}

/* Errors of a worker, and a word that the message must have. */
static const char *const wrong_scripts[][2] = {
    {SHELL, "exited with status 0"},
    {SHELL "echo no torch today >&2; exit 1\n", "no torch today"},
    {SHELL "echo garbage\nsleep 300\n", "not valid JSON"},
    {SHELL "echo '{\"hello\":2}'\nsleep 300\n", "greeting"},
    {SHELL "echo '{\"hello\":1,\"error\":\"PyTorch cannot be imported\"}'\n", "cannot be imported"},
    {SHELL "echo '{\"hello\":1,\"producer\":\"pytorch 9.8.6\",\"python\":\"3\"}'\nsleep 300\n", "pytorch 9.8.6"},
    {SHELL HELLO ASK "exit 3\n", "exited with status 3"},
    {SHELL HELLO ASK "echo garbage; sleep 300\n", "not valid JSON"},
    {SHELL HELLO ASK "id=99\n" GOOD "sleep 300\n", "id 99"},
    {SHELL HELLO ASK "answer=$(" GOOD ")\nprintf '%s\\n%s\\n' \"$answer\" \"$answer\"\nsleep 300\n",
     "more than one line"},
    {SHELL HELLO ASK "while :; do printf 01234567890123456789012345678901234567890123456789; done\n",
     "more than 1048576 bytes"},
    {SHELL HELLO ASK "rm $directory/kernel.so; ln -s /bin/sh $directory/kernel.so\n" GOOD "sleep 300\n",
     "symbolic link"},
    {SHELL HELLO ASK "printf '{\"id\":'; exit 0\n", "exited with status 0"},
};

Test(worker, wrong_behaviour_fails_and_names_the_worker)
{
    for (size_t i = 0; i < sizeof wrong_scripts / sizeof wrong_scripts[0]; i++) {
        aoticache_hook *hook = make_hook(make_python(wrong_scripts[i][0]), 0);
        struct delivery delivery;
        aoticache_error error;
        cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_COMPILE_FAILED, "%s", wrong_scripts[i][0]);
        cr_assert_eq(error.status, AOTICACHE_COMPILE_FAILED);
        cr_assert_not_null(strstr(error.message, wrong_scripts[i][1]), "%s: %s", wrong_scripts[i][0], error.message);
        cr_assert_not_null(strstr(error.message, "hook worker"), "%s", error.message);
        aoticache_hook_free(hook);
        own_directory_remove(in_directory("py"));
    }
}

Test(worker, unasked_words_end_it_before_the_next_compile)
{
    aoticache_hook *hook =
        make_hook(make_python(SHELL HELLO "while :; do\n" ASK GOOD
                                          "(sleep 0.3; echo '{\"id\":2}'; : > $directory/../said) & \ndone\n"),
                  0);
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    pid_t worker = worker_of(&delivery);
    for (int i = 0; i < 3000 && access(in_directory("said"), F_OK) != 0; i++)
        sleep_ms(10);
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_neq(worker, worker_of(&delivery));
    cr_assert(is_gone_soon(worker));
    aoticache_hook_free(hook);
}

static void *compile_in_thread(void *hook)
{
    struct delivery delivery = {0};
    aoticache_error error;
    aoticache_request *request = make_abs_request();
    char directory[sizeof test_directory + 32];
    snprintf(directory, sizeof directory, "%s/thread-XXXXXX", test_directory);
    cr_assert_not_null(mkdtemp(directory));
    aoticache_status status = aoticache_hook_compile(hook, request, directory, deliver, &delivery, &error);
    aoticache_request_free(request);
    return (void *)(intptr_t)status;
}

Test(worker, threads_take_turns)
{
    aoticache_hook *hook = make_hook(make_python(SHELL HELLO "while :; do\n" ASK "sleep 0.05\n" GOOD "done\n"), 0);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, compile_in_thread, hook), 0);
    for (int i = 0; i < 8; i++) {
        void *status;
        pthread_join(threads[i], &status);
        cr_assert_eq((intptr_t)status, AOTICACHE_OK);
    }
    aoticache_hook_free(hook);
}

/* ---- several workers ---- */

/* Makes a hook of `workers` workers, which record when a compile begins and how many run then. */
static aoticache_hook *make_pool(uint32_t workers, const char *script)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook;
    aoticache_error error = {.message = ""};
    options.program = make_python(script);
    options.workers = workers;
    cr_assert_eq(aoticache_hook_create_worker(&options, &hook, &error), AOTICACHE_OK, "%s", error.message);
    return hook;
}

static void compile_in_threads(aoticache_hook *hook, int count)
{
    pthread_t threads[16];
    for (int i = 0; i < count; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, compile_in_thread, hook), 0);
    for (int i = 0; i < count; i++) {
        void *status;
        pthread_join(threads[i], &status);
        cr_assert_eq((intptr_t)status, AOTICACHE_OK);
    }
}

static size_t count_lines(const char *text)
{
    size_t count = 0;
    for (const char *c = text; *c != '\0'; c++)
        count += *c == '\n';
    return count;
}

/* Each compile waits until three are running, so fewer workers would never end. */
Test(worker, as_many_compile_at_once_as_there_are_workers)
{
    char script[PATH_MAX * 3 + 1024];
    snprintf(script, sizeof script,
             SHELL "echo $$ >> %s/started\n" HELLO "while :; do\n" ASK "echo $$ >> %s/begun\n"
                   "while [ $(wc -l < %s/begun) -lt 3 ]; do sleep 0.02; done\n" GOOD "done\n",
             test_directory, test_directory, test_directory);
    aoticache_hook *hook = make_pool(3, script);
    compile_in_threads(hook, 9);
    cr_assert_eq(count_lines(read_text(in_directory("begun"))), 9);
    cr_assert_eq(count_lines(read_text(in_directory("started"))), 3, "%s", read_text(in_directory("started")));
    int pids[3];
    cr_assert_eq(sscanf(read_text(in_directory("started")), "%d %d %d", &pids[0], &pids[1], &pids[2]), 3);
    aoticache_hook_free(hook);
    for (int i = 0; i < 3; i++)
        cr_assert(is_gone_soon(pids[i]));
}

Test(worker, second_worker_is_only_started_when_it_is_needed)
{
    aoticache_hook *hook = make_pool(4, SHELL HELLO "while :; do\n" ASK GOOD "done\n");
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    pid_t worker = worker_of(&delivery);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
        cr_assert_eq(worker_of(&delivery), worker);
    }
    aoticache_hook_free(hook);
}

Test(worker, too_many_workers_are_refused)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook = NULL;
    aoticache_error error = {.message = ""};
    options.workers = 1000000;
    cr_assert_eq(aoticache_hook_create_worker(&options, &hook, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "1000000 workers"), "%s", error.message);
}

/* ---- output, and symbolic shapes ---- */

static aoticache_status take_output(void *user, const aoticache_product *product)
{
    snprintf(user, 256, "%s", product->output != NULL ? product->output : "(none)");
    return AOTICACHE_OK;
}

/* Output from its start or from an earlier compile does not belong to this one. */
Test(worker, output_is_of_one_compile)
{
    aoticache_hook *hook = make_hook(
        make_python(SHELL "echo starting >&2\n" HELLO "while :; do\n" ASK "echo compile $id >&2\n" GOOD "done\n"), 0);
    aoticache_request *request = make_abs_request();
    aoticache_error error;
    const char *const expected[] = {"compile 1\n", "compile 2\n"};
    for (int i = 0; i < 2; i++) {
        char said[256] = "", name[16];
        snprintf(name, sizeof name, "said%d", i);
        cr_assert_eq(aoticache_hook_compile(hook, request, make_directory(name), take_output, said, &error),
                     AOTICACHE_OK, "%s", error.message);
        cr_assert_str_eq(said, expected[i]);
    }
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

static aoticache_status take_guard(void *user, const aoticache_product *product)
{
    snprintf(user, 256, "%s", product->guard != NULL ? product->guard : "(none)");
    return AOTICACHE_OK;
}

Test(worker, guard_of_an_answer_is_in_the_product)
{
    aoticache_hook *hook = make_hook(make_python(SHELL HELLO "while :; do\n" ASK "echo '{\"id\":'$id',\"ok\":true,"
                                                             "\"guard\":\"float32[s0,s1]; s0=2..\",\"files\":"
                                                             "[{\"name\":\"k.so\",\"path\":\"kernel.so\"}]}'\ndone\n"),
                                     0);
    cr_assert(aoticache_hook_is_dynamic(hook));
    aoticache_request *request = make_abs_request();
    aoticache_error error;
    char guard[256] = "";
    cr_assert_eq(aoticache_hook_compile(hook, request, make_directory("exact"), take_guard, guard, &error),
                 AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, "exact shapes"), "%s", error.message);
    cr_assert_eq(aoticache_request_set_environment(request, AOTICACHE_SHAPES_NAME, AOTICACHE_SHAPES_DYNAMIC, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(aoticache_hook_compile(hook, request, make_directory("dynamic"), take_guard, guard, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(guard, "float32[s0,s1]; s0=2..");
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

Test(worker, child_of_a_fork_has_one_of_its_own)
{
    aoticache_hook *hook = make_hook(make_python(SHELL HELLO "while :; do\n" ASK GOOD "done\n"), 0);
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    pid_t worker = worker_of(&delivery);
    pid_t child = fork();
    if (child == 0) {
        bool fine = compile(hook, &delivery, &error) == AOTICACHE_OK && worker_of(&delivery) != worker;
        aoticache_hook_free(hook);
        _exit(fine ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert(is_running(worker));
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(worker, worker_of(&delivery));
    aoticache_hook_free(hook);
}

/* ---- worker.py with a torch that only sleeps ---- */

/* Makes a torch whose export starts a process, records both numbers, and does not return. */
static void make_sleeping_torch(void)
{
    char text[PATH_MAX * 2 + 512];
    make_directory("packages");
    make_directory("packages/torch");
    make_directory("packages/torch/_inductor");
    write_file("packages/torch/version.py", "__version__ = '9.8.7'\n", 0600);
    write_file("packages/torch/_inductor/__init__.py", "", 0600);
    snprintf(text, sizeof text,
             "import os, subprocess, time\n"
             "__version__ = '9.8.7'\n"
             "print('noise on standard output')\n"
             "class Ops:\n"
             "    def __getattr__(self, name):\n"
             "        child = subprocess.Popen(['sleep', '300'])\n"
             "        with open('%s/pids.new', 'w') as file:\n"
             "            file.write(f'{os.getpid()} {child.pid}')\n"
             "        os.rename('%s/pids.new', '%s/pids')\n"
             "        time.sleep(300)\n"
             "ops = Ops()\n",
             test_directory, test_directory, test_directory);
    write_file("packages/torch/__init__.py", text, 0600);
    setenv("PYTHONPATH", in_directory("packages"), 1);
}

/*
 * Starts a host in a separate process, in the middle of a compile. held: with a fork that keeps the worker's channel
 * open.
 */
static pid_t start_host(bool held, pid_t *ret_worker, pid_t *ret_compiler)
{
    pid_t host = fork();
    if (host == 0) {
        struct delivery delivery;
        aoticache_error error;
        aoticache_hook *hook = make_hook("python3", 0);
        if (held) {
            pthread_t thread;
            pthread_create(&thread, NULL, compile_in_thread, hook);
            while (access(in_directory("pids"), F_OK) != 0)
                sleep_ms(20);
            if (fork() == 0) {
                write_file("held", "", 0600);
                while (access(in_directory("over"), F_OK) != 0 && access(test_directory, F_OK) == 0)
                    sleep_ms(20);
                _exit(0);
            }
            for (;;)
                pause();
        }
        compile(hook, &delivery, &error);
        _exit(1);
    }
    int worker = 0, compiler = 0;
    for (int i = 0; i < 1500 && access(in_directory("pids"), F_OK) != 0; i++)
        sleep_ms(20);
    cr_assert_eq(sscanf(read_text(in_directory("pids")), "%d %d", &worker, &compiler), 2);
    cr_assert(is_running(worker) && is_running(compiler));
    *ret_worker = worker;
    *ret_compiler = compiler;
    return host;
}

static void check_end_with_host(bool held)
{
    if (system("command -v python3 >/dev/null") != 0)
        cr_skip_test("there is no python3");
    make_sleeping_torch();
    pid_t worker, compiler;
    pid_t host = start_host(held, &worker, &compiler);
    for (int i = 0; held && i < 1500 && access(in_directory("held"), F_OK) != 0; i++)
        sleep_ms(20);
    kill(host, SIGKILL);
    waitpid(host, NULL, 0);
    cr_assert(is_gone_soon(worker));
    cr_assert(is_gone_soon(compiler));
    write_file("over", "", 0600);
}

Test(worker, ends_with_its_host)
{
    check_end_with_host(false);
}

Test(worker, ends_with_its_host_although_a_fork_holds_the_channel)
{
    SKIP_UNDER_EMULATOR(EMULATOR_FORKS_ONE_THREAD);
    check_end_with_host(true);
}

Test(worker, script_has_the_same_list_of_cpu_features)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/share/aoticache/worker.py", getenv("AOTICACHE_HOME"));
    char *text = read_text(path);
    cr_assert_neq(text[0], '\0', "%s", path);
    char *end = strstr(text, "\n)\n");
    cr_assert_not_null(end);
    *end = '\0';
    size_t rows = 0, lines = 0;
    const char *arch, *name, *macro, *option;
    for (; aoticache_cpu_target_row(rows, &arch, &name, &macro, &option); rows++) {
        char row[256];
        snprintf(row, sizeof row, "\n    (\"%s\", \"%s\", \"%s\", \"%s\"),", arch, name, macro, option);
        cr_assert_not_null(strstr(text, row), "worker.py lacks%s", row);
    }
    for (const char *line = strstr(text, "\n    (\""); line != NULL; line = strstr(line + 1, "\n    (\""))
        lines++;
    cr_assert_eq(rows, lines);
}

static void check_features(const char *macros, const char *arch, const char *expected)
{
    char command[PATH_MAX * 4];
    write_file("macros", macros, 0600);
    snprintf(
        command, sizeof command,
        "python3 -c 'import runpy, sys\n"
        "worker = runpy.run_path(sys.argv[1], run_name=\"worker\")\n"
        "macros = {line.split()[1] for line in open(sys.argv[2])}\n"
        "found = worker[\"features_of\"](macros)\n"
        "print(\",\".join(dict.fromkeys(row[1] for row in worker[\"FEATURES\"] if row[1] in found and row[0] == sys.argv[3])))' "
        "%s/share/aoticache/worker.py %s/macros %s > %s/features",
        getenv("AOTICACHE_HOME"), test_directory, arch, test_directory);
    cr_assert_eq(system(command), 0, "%s", command);
    char *found = read_text(in_directory("features"));
    found[strcspn(found, "\n")] = '\0';
    cr_assert_str_eq(found, expected);
}

Test(worker, script_reads_macros_of_the_architecture_that_is_compiled_for)
{
    if (system("command -v python3 >/dev/null") != 0)
        cr_skip_test("there is no python3");
    check_features(AARCH64_MACROS, "aarch64", AARCH64_FEATURES);
    check_features(AARCH64_SVE2_MACROS, "aarch64", AARCH64_SVE2_FEATURES);
    check_features(AARCH64_PLAIN_MACROS, "aarch64", "");
    check_features(X86_64_MACROS, "x86_64", X86_64_FEATURES);
}

Test(worker, script_knows_options_of_both_architectures)
{
    if (system("command -v python3 >/dev/null") != 0)
        cr_skip_test("there is no python3");
    static const char *const cases[][3] = {
        {"x86_64", "x86-64-v3,avx512f", "x86-64-v3 -mavx512f"},
        {"x86_64", "avx2,sve", "x86-64 -mavx2"},
        {"aarch64", "armv8.2-a,fp16,sve, asimddp,asimd", "armv8.2-a+fp16+sve+dotprod"},
        {"aarch64", "fphp,asimdhp,i8mm", "armv8-a+fp16+i8mm"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char command[PATH_MAX * 2];
        snprintf(command, sizeof command,
                 "python3 -c 'import runpy, sys\n"
                 "worker = runpy.run_path(sys.argv[1], run_name=\"worker\")\n"
                 "assert worker[\"target_flags\"](sys.argv[2], sys.argv[3]) == sys.argv[4]' "
                 "%s/share/aoticache/worker.py '%s' %s '%s'",
                 getenv("AOTICACHE_HOME"), cases[i][1], cases[i][0], cases[i][2]);
        cr_expect_eq(system(command), 0, "%s", command);
    }
}

/* A fake of Inductor's list: with SVE of one length it has only that length. */
Test(worker, script_never_compiles_for_one_length_of_vectors)
{
    if (system("command -v python3 >/dev/null") != 0)
        cr_skip_test("there is no python3");
    char command[PATH_MAX * 2];
    snprintf(command, sizeof command,
             "python3 -c 'import runpy, sys, types\n"
             "worker = runpy.run_path(sys.argv[1], run_name=\"worker\")\n"
             "isa = lambda flags: types.SimpleNamespace(build_arch_flags=lambda: flags)\n"
             "neon, wide = isa(\"\"), isa(\"-march=armv8-a+sve+bf16 -msve-vector-bits=256\")\n"
             "fake = types.SimpleNamespace(VecNEON=lambda: neon)\n"
             "worker[\"platform\"].machine = lambda: \"aarch64\"\n"
             "for found in [wide], [neon]:\n"
             "    fake.valid_vec_isa_list = before = lambda: found\n"
             "    with worker[\"any_vector_length\"](fake):\n"
             "        assert fake.valid_vec_isa_list() == [neon]\n"
             "    assert fake.valid_vec_isa_list is before' "
             "%s/share/aoticache/worker.py",
             getenv("AOTICACHE_HOME"));
    cr_assert_eq(system(command), 0, "%s", command);
}

/* ---- PyTorch itself ---- */

/*
 * Keeps files that PyTorch makes once for all processes (its precompiled headers, the machine's instructions) in the
 * build directory.
 */
static void share_directories_of_pytorch(void)
{
    const char *names[][2] = {{"TORCHINDUCTOR_CACHE_DIR", "inductor-cache"}, {"TMPDIR", "inductor-cache/tmp"}};
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX + 32];
        snprintf(path, sizeof path, "%s/%s", build_directory(), names[i][1]);
        bool is_usable = (mkdir(path, 0700) == 0 || errno == EEXIST) && access(path, W_OK) == 0;
        setenv(names[i][0], is_usable ? path : test_directory, 1);
    }
}

static aoticache_hook *make_real_hook(const char *cpu_features)
{
    share_directories_of_pytorch();
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook = NULL;
    aoticache_error error = {.message = ""};
    options.cpu_features = cpu_features;
    if (aoticache_hook_create_worker(&options, &hook, &error) != AOTICACHE_OK)
        cr_skip_test("%s", error.message);
    return hook;
}

static void check_unsupported(aoticache_hook *hook, const char *op, int32_t layout, const char *word)
{
    struct delivery delivery;
    aoticache_error error;
    aoticache_request *request = make_request(op);
    aoticache_tensor_metadata metadata = {.dtype = AOTICACHE_DTYPE_FLOAT32,
                                          .layout = layout,
                                          .device = AOTICACHE_DEVICE_CPU,
                                          .ndim = 1,
                                          .sizes = (const int64_t[]){2}};
    cr_assert_eq(aoticache_request_add_tensor(request, NULL, &metadata, NULL), AOTICACHE_OK);
    cr_assert_eq(compile_request(hook, request, &delivery, &error), AOTICACHE_UNSUPPORTED, "%s", error.message);
    cr_assert_not_null(strstr(error.message, word), "%s", error.message);
    aoticache_request_free(request);
}

/* One process, two compiles: a strided input with a weight and keyword, and a name that is not an operator. */
Test(worker, pytorch_compiles_what_then_runs_here)
{
    aoticache_hook *hook = make_real_hook(NULL);
    check_unsupported(hook, "aten::no_such_operator", AOTICACHE_LAYOUT_STRIDED, "no_such_operator");
    check_unsupported(hook, "aten::abs", AOTICACHE_LAYOUT_SPARSE_COO, "sparse_coo");
    check_unsupported(hook, "aten::abs_", AOTICACHE_LAYOUT_STRIDED, "writes to its input");
    check_unsupported(hook, "aten::detach", AOTICACHE_LAYOUT_STRIDED, "view of its input");

    static const float weight[] = {10, 20, 30};
    static const int64_t sizes[] = {2, 3}, strides[] = {1, 2};
    aoticache_tensor_metadata metadata = {
        .dtype = AOTICACHE_DTYPE_FLOAT32, .device = AOTICACHE_DEVICE_CPU, .ndim = 1, .sizes = (const int64_t[]){3}};
    aoticache_request *request = make_request("aten::add.Tensor");
    add_tensor(request, AOTICACHE_DTYPE_FLOAT32, 2, sizes, strides);
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, weight, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_double(request, "alpha", 0.5, NULL), AOTICACHE_OK);
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile_request(hook, request, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request_free(request);
    cr_assert_str_eq(delivery.producer, aoticache_hook_get_info(hook).producer);
    cr_assert(aoticache_cpu_features_include(aoticache_cpu_features_get(), &delivery.features), "%s",
              delivery.requirements);
    cr_assert_gt(aoticache_cpu_features_count(&delivery.features), 0);

    float data[6] = {1, 2, 3, 4, 5, 6};
    AtenTensorHandle input, output;
    aoticache_tensor_view view;
    aoticache_runner *runner = fixture_load_runner(delivery.path);
    cr_assert_eq(aoticache_runner_num_inputs(runner), 1);
    cr_assert_eq(aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 2, sizes, strides, &input, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(aoticache_runner_run(runner, &input, 1, &output, 1, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_tensor_get_view(output, &view, NULL), AOTICACHE_OK);
    for (int64_t row = 0; row < 2; row++)
        for (int64_t column = 0; column < 3; column++)
            cr_assert_eq(((const float *)view.data)[row * view.strides[0] + column * view.strides[1]],
                         data[row + 2 * column] + 0.5f * weight[column]);
    aoticache_tensor_free(input);
    aoticache_tensor_free(output);
    aoticache_runner_unref(runner);
    aoticache_hook_free(hook);
}

Test(worker, pytorch_can_compile_for_less_than_this_machine)
{
    if (strcmp(aoticache_cpu_arch(), "x86_64") != 0)
        cr_skip_test("levels are of x86-64");
    aoticache_hook *hook = make_real_hook("x86-64-v3");
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile(hook, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_cpu_features level;
    cr_assert_eq(aoticache_cpu_features_parse("x86-64-v3", &level, NULL), AOTICACHE_OK);
    cr_assert(aoticache_cpu_features_include(&level, &delivery.features), "%s", delivery.requirements);
    aoticache_runner_unref(fixture_load_runner(delivery.path));
    aoticache_hook_free(hook);
}
