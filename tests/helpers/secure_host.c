/*
 * A program that runs with other rights than its caller's: makes hooks and a context, and prints what they found and
 * the environment of their programs. For tests/cli/security/test_secure.sh.
 *
 *   secure_host DIRECTORY     DIRECTORY: a directory for its files, with kernel sources and a script `command`
 *
 * Started by root it takes another real user, so that it is a set-user-ID program after its exec. Exits with 77
 * otherwise.
 */
#include "eager/compile/compile.h"
#include "eager/holder/holder.h"

#include <stdio.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(const char *what, aoticache_status status, const char *text)
{
    printf("%s: %s %s\n", what, aoticache_status_name(status), text);
}

static aoticache_status take(void *user, const aoticache_product *product)
{
    (void)user;
    printf("command said: %s\n", product->output != NULL ? product->output : "");
    return AOTICACHE_OK;
}

static void ask_command(const char *program, const char *directory)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    aoticache_hook *hook = NULL;
    aoticache_request *request = NULL;
    aoticache_device cpu = AOTICACHE_DEVICE_CPU;
    options.program = program;
    aoticache_status status = aoticache_hook_create_command(&options, &hook, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_create("aten::abs", cpu, &request, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_hook_compile(hook, request, directory, take, NULL, &error);
    say("command", status, error.message);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

static void make_hooks(const char *directory)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    aoticache_hook *hook = NULL;
    options.kernels = directory;
    aoticache_status status = aoticache_hook_create_c(&options, &hook, &error);
    say("c", status, status == AOTICACHE_OK ? aoticache_hook_get_info(hook).producer : error.message);
    printf("c program: %s\n", aoticache_hook_get_info(hook).program);
    aoticache_hook_free(hook);
    hook = NULL;
    status = aoticache_hook_create_worker(NULL, &hook, &error);
    say("worker", status, status == AOTICACHE_OK ? aoticache_hook_get_info(hook).producer : error.message);
    printf("worker program: %s\n", aoticache_hook_get_info(hook).program);
    aoticache_hook_free(hook);
}

static void make_eager(const char *subdirectory)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_context_options eager_options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = NULL;
    aoticache_context *eager = NULL;
    char directory[4096];
    snprintf(directory, sizeof directory, "%s/cache", subdirectory);
    options.directory = directory;
    aoticache_status status = aoticache_cache_open(&options, &cache, &error);
    eager_options.cache = cache;
    if (status == AOTICACHE_OK)
        status = aoticache_context_create(&eager_options, &eager, &error);
    say("eager", status, error.message);
    aoticache_context_free(eager);
    aoticache_cache_close(cache);
}

int main(int argc, char **argv)
{
    char program[4096], work[4096];
    if (argc != 2)
        return 2;
    if (getauxval(AT_SECURE) == 0) {
        if (setresuid(65534, 0, 0) != 0)
            return 77;
        execv("/proc/self/exe", argv);
        return 2;
    }
    snprintf(program, sizeof program, "%s/command", argv[1]);
    snprintf(work, sizeof work, "%s/directory", argv[1]);
    if (mkdir(work, 0700) != 0)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    make_hooks(argv[1]);
    ask_command(program, work);
    make_eager(argv[1]);
    return 0;
}
