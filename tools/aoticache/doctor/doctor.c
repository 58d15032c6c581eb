/*
 * aoticache doctor: checks everything that can make the cache slow or unusable on this machine, and gives advice.
 *
 * The machine is checked here, the directory and the compilers in separate files. No check creates or changes anything.
 */
#include "base/cleanup.h"
#include "loader/cuda/cuda.h"
#include "tools/aoticache/doctor/doctor_internal.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* ---- processor, kernel, limits ---- */

#define OK AOTICACHE_VERDICT_OK
#define WARN AOTICACHE_VERDICT_WARN
#define FAIL AOTICACHE_VERDICT_FAIL

/* Returns the highest level that the processor reaches; NULL if there are none. */
static const char *cpu_level(const aoticache_cpu_features *have)
{
    const char *reached = NULL;
    for (const char *const *name = aoticache_cpu_levels(); *name != NULL; name++) {
        aoticache_cpu_features level;
        if (aoticache_cpu_features_parse(*name, &level, NULL) == AOTICACHE_OK &&
            aoticache_cpu_features_include(have, &level))
            reached = *name;
    }
    return reached;
}

static void check_cpu(aoticache_doctor *doctor)
{
    const aoticache_cpu_features *have = aoticache_cpu_features_get();
    const char *level = cpu_level(have);
    cleanup_free char *names = aoticache_features_list(have);
    if (doctor->cli->verbose || doctor->cli->json)
        aoticache_doctor_report(doctor, OK, "processor", NULL, "%s: %s", level != NULL ? level : aoticache_cpu_arch(),
                                names);
    else
        aoticache_doctor_report(doctor, OK, "processor", NULL,
                                "%s, %u features that kernels may need (--verbose names them)",
                                level != NULL ? level : aoticache_cpu_arch(), aoticache_cpu_features_count(have));
}

static void report_gpu(aoticache_doctor *doctor, int32_t index, const aoticache_cuda_device *device)
{
    char name[32];
    snprintf(name, sizeof name, "GPU %d", (int)index);
    if (device->problem != NULL)
        aoticache_doctor_report(doctor, WARN, name, "check the output of nvidia-smi", "%s", device->problem);
    else
        aoticache_doctor_report(doctor, OK, name, NULL, "cuda:%d: %s, %s, %.1f GiB", (int)index, device->name,
                                device->arch, (double)device->memory_bytes / (1 << 30));
}

/* Checks the GPUs. Having no GPU is not a fault: most kernels are for the CPU. A driver that fails is a fault. */
static void check_gpus(aoticache_doctor *doctor)
{
    const aoticache_cuda *cuda;
    aoticache_error error;
    aoticache_status status = aoticache_cuda_get(&cuda, &error);
    if (status == AOTICACHE_NOT_FOUND) {
        aoticache_doctor_report(doctor, OK, "CUDA driver", NULL, "none, so no GPU: %s", error.message);
        return;
    }
    if (status != AOTICACHE_OK) {
        aoticache_doctor_report(doctor, WARN, "CUDA driver", "check the output of nvidia-smi", "%s", error.message);
        return;
    }
    aoticache_doctor_report(doctor, OK, "CUDA driver", NULL, "%s, for CUDA %d.%d, %d GPU%s", cuda->driver_path,
                            (int)cuda->driver_version / 1000, (int)cuda->driver_version % 1000 / 10,
                            (int)cuda->device_count, cuda->device_count == 1 ? "" : "s");
    for (int32_t i = 0; i < cuda->device_count; i++)
        report_gpu(doctor, i, &cuda->devices[i]);
}

/*
 * Returns what is missing to load libraries from a sealed copy in memory, which is done without libtorch in the process: it
 * needs memfd_create, sealing, and permission to map it executable (vm.memfd_noexec, some security modules).
 */
static const char *try_memory_file(void)
{
    cleanup_fd int fd = memfd_create("aoticache-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return "memfd_create";
    if (ftruncate(fd, 4096) != 0)
        return "ftruncate";
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return "sealing";
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED)
        return "mapping it executable";
    munmap(mapped, 4096);
    return NULL;
}

static void check_memory_files(aoticache_doctor *doctor)
{
    const char *failed = try_memory_file();
    if (failed == NULL)
        aoticache_doctor_report(doctor, OK, "memory files", NULL, "memfd_create, seals and executable mappings work");
    else
        aoticache_doctor_report(doctor, FAIL, "memory files",
                                "check sysctl vm.memfd_noexec and the machine's security module (SELinux, seccomp)",
                                "%s failed: %s; PyTorch's libraries cannot be loaded without PyTorch", failed,
                                strerror(errno));
}

static void check_limits(aoticache_doctor *doctor)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    bool few = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < 256;
    aoticache_doctor_report(doctor, few ? WARN : OK, "open files", few ? "raise it: ulimit -n 1024" : NULL,
                            "at most %" PRIu64, (uint64_t)limit.rlim_cur);
}

static void check_machine(aoticache_doctor *doctor)
{
    check_cpu(doctor);
    check_gpus(doctor);
    check_memory_files(doctor);
    check_limits(doctor);
}

/* ---- the command ---- */

static const aoticache_cli_option doctor_options[] = {
    {"python", 0, "PATH", "the Python to look for PyTorch in; default $AOTICACHE_PYTHON, python3",
     AOTICACHE_CLI_TEXT(aoticache_doctor, python)},
    {"cc", 0, "PATH", "the C compiler; default $AOTICACHE_CC, cc", AOTICACHE_CLI_TEXT(aoticache_doctor, cc)},
    {0},
};

static void print_end(aoticache_doctor *doctor)
{
    unsigned warnings = doctor->counts[AOTICACHE_VERDICT_WARN], failures = doctor->counts[AOTICACHE_VERDICT_FAIL];
    if (doctor->checks != NULL) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "version", aoticache_cli_json_text(aoticache_version()));
        aoticache_cli_json_set(object, "ok", json_boolean(failures == 0));
        aoticache_cli_json_set(object, "warnings", json_integer(warnings));
        aoticache_cli_json_set(object, "failures", json_integer(failures));
        aoticache_cli_json_set(object, "checks", doctor->checks);
        aoticache_cli_json_print(object);
    } else if (!doctor->cli->quiet) {
        printf("\n%s", failures > 0 ? "Something is wrong" : warnings > 0 ? "It works" : "All is well");
        if (failures + warnings > 0)
            printf(": %u %s, %u %s", failures, failures == 1 ? "failure" : "failures", warnings,
                   warnings == 1 ? "warning" : "warnings");
        printf(".\n");
    }
}

static int doctor_command(aoticache_cli *cli)
{
    aoticache_doctor doctor = {.cli = cli};
    if (!aoticache_cli_parse(cli, &doctor))
        return cli->exit_code;
    int result = aoticache_cli_look_as_owner(cli); /* so that root gets the findings of the owner */
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    doctor.checks = cli->json ? aoticache_cli_json_array() : NULL;
    aoticache_doctor_report(&doctor, AOTICACHE_VERDICT_OK, "version", NULL, "aoticache %s for %s", aoticache_version(),
                            aoticache_cpu_arch());
    aoticache_doctor_check_directory(&doctor);
    aoticache_doctor_check_remotes(&doctor);
    aoticache_doctor_check_compilers(&doctor);
    check_machine(&doctor);
    print_end(&doctor);
    return doctor.counts[AOTICACHE_VERDICT_FAIL] > 0 ? AOTICACHE_CLI_EXIT_FAILURE : AOTICACHE_CLI_EXIT_OK;
}

const aoticache_command aoticache_command_doctor = {
    .word = "doctor",
    .program =
        {
            .name = "aoticache doctor",
            .help_hint = "aoticache help doctor",
            .usage = "[OPTION]...",
            .summary = "Checks the directory, compilers, PyTorch and the machine, and says what to do.",
            .details = "Nothing is created or changed. The exit code is 1 if a check fails; warnings alone give 0.",
            .options = doctor_options,
        },
    .run = doctor_command,
};
