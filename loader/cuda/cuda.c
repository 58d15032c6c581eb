/*
 * loader/cuda/cuda: asks the CUDA driver, once per process, for its devices. The driver is opened by name and never
 * closed; the few functions used are declared here according to NVIDIA's CUDA Driver API reference.
 *
 * AOTICACHE_CUDA_DRIVER names a file to open instead of libcuda.so.1: a driver with an unusual path, or a fake one for
 * tests.
 */
#include "base/arguments.h"
#include "loader/cuda/cuda.h"

#include "base/cleanup.h"
#include "base/process/fork_guard.h"
#include "loader/eager_face.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum {
    CUDA_NO_DEVICE = 100,      /* CUDA_ERROR_NO_DEVICE */
    CUDA_ATTRIBUTE_MAJOR = 75, /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
    CUDA_ATTRIBUTE_MINOR = 76,
    MAX_DEVICES = 1024,
};

typedef struct driver_functions {
    int (*init)(unsigned flags);
    int (*get_version)(int *ret_version);
    int (*get_count)(int *ret_count);
    int (*get_device)(int *ret_device, int position);
    int (*get_name)(char *ret_name, int size, int device);
    int (*get_attribute)(int *ret_value, int attribute, int device);
    int (*get_memory)(size_t *ret_bytes, int device);
} driver_functions;

static const char *const symbols[] = {
    "cuInit",          "cuDriverGetVersion",   "cuDeviceGetCount",    "cuDeviceGet",
    "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceTotalMem_v2",
};
_Static_assert(sizeof symbols / sizeof symbols[0] == sizeof(driver_functions) / sizeof(void (*)(void)),
               "one symbol for each function, in order");

/*
 * The results of all calls of the driver, so that a child after a fork needs no driver. They are written once, before
 * any thread reads them.
 */
static struct probe {
    aoticache_cuda cuda;
    aoticache_error error;
    driver_functions driver;
    int (*get_error_string)(int code, const char **ret_text); /* NULL: an old driver has none */
} probe;
static pthread_once_t probe_once = PTHREAD_ONCE_INIT;

static const char *error_text(int code)
{
    const char *text = NULL;
    if (probe.get_error_string != NULL)
        (void)probe.get_error_string(code, &text);
    return text != NULL ? text : "without a message";
}

/* ---- querying the driver, once ---- */

static aoticache_status open_driver(aoticache_error *ret_error)
{
    const char *name = secure_getenv("AOTICACHE_CUDA_DRIVER");
    name = name != NULL && name[0] != '\0' ? name : "libcuda.so.1";
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "there is no CUDA driver: %.400s", dlerror());
    void *found[sizeof symbols / sizeof symbols[0]];
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        found[i] = dlsym(handle, symbols[i]);
        if (found[i] == NULL) {
            dlclose(handle);
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "the CUDA driver %.300s has no function %s",
                                       name, symbols[i]);
        }
    }
    memcpy(&probe.driver, found, sizeof probe.driver);
    void *get_error_string = dlsym(handle, "cuGetErrorString");
    memcpy(&probe.get_error_string, &get_error_string, sizeof get_error_string);
    Dl_info where;
    const char *path = dladdr(found[0], &where) != 0 && where.dli_fname != NULL ? where.dli_fname : name;
    probe.cuda.driver_path = strdup(path);
    return probe.cuda.driver_path != NULL
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the path of the CUDA driver");
}

static aoticache_status fail_call(const char *function, int code, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "the CUDA driver %.300s does not work: %s failed with error %d: %.300s",
                               probe.cuda.driver_path, function, code, error_text(code));
}

/* Starts the driver. Having no device is not a failure. */
static aoticache_status start_driver(aoticache_error *ret_error)
{
    int version = 0, count = 0;
    int code = probe.driver.init(0);
    if (code != 0 && code != CUDA_NO_DEVICE)
        return fail_call("cuInit", code, ret_error);
    bool none = code == CUDA_NO_DEVICE;
    if ((code = probe.driver.get_version(&version)) != 0)
        return fail_call("cuDriverGetVersion", code, ret_error);
    code = none ? 0 : probe.driver.get_count(&count);
    if (code != 0 && code != CUDA_NO_DEVICE)
        return fail_call("cuDeviceGetCount", code, ret_error);
    probe.cuda.driver_version = version;
    probe.cuda.device_count = code != 0 || count < 0 ? 0 : count < MAX_DEVICES ? count : MAX_DEVICES;
    return AOTICACHE_OK;
}

/* Returns the driver's code; *ret_function is the function that returned it. */
static int read_device(int position, aoticache_cuda_device *device, const char **ret_function)
{
    int number = 0, major = 0, minor = 0, code;
    size_t bytes = 0;
    *ret_function = "cuDeviceGet";
    if ((code = probe.driver.get_device(&number, position)) != 0)
        return code;
    *ret_function = "cuDeviceGetName";
    if ((code = probe.driver.get_name(device->name, (int)sizeof device->name, number)) != 0)
        return code;
    device->name[sizeof device->name - 1] = '\0';
    *ret_function = "cuDeviceGetAttribute";
    if ((code = probe.driver.get_attribute(&major, CUDA_ATTRIBUTE_MAJOR, number)) != 0 ||
        (code = probe.driver.get_attribute(&minor, CUDA_ATTRIBUTE_MINOR, number)) != 0)
        return code;
    *ret_function = "cuDeviceTotalMem_v2";
    if ((code = probe.driver.get_memory(&bytes, number)) != 0)
        return code;
    device->major = major;
    device->minor = minor;
    device->memory_bytes = bytes;
    snprintf(device->arch, sizeof device->arch, "sm_%d%d", major, minor);
    return 0;
}

static aoticache_status read_devices(aoticache_error *ret_error)
{
    size_t count = (size_t)probe.cuda.device_count;
    aoticache_cuda_device *devices = calloc(count + 1, sizeof *devices);
    probe.cuda.devices = devices;
    if (devices == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu CUDA devices", count);
    for (size_t i = 0; i < count; i++) {
        const char *function;
        char *problem;
        int code = read_device((int)i, &devices[i], &function);
        if (code == 0)
            continue;
        if (asprintf(&problem, "cannot query CUDA device %zu: %s failed with error %d: %.300s", i, function, code,
                     error_text(code)) < 0)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu CUDA devices", count);
        devices[i].problem = problem;
    }
    return AOTICACHE_OK;
}

static void probe_driver(void)
{
    int saved = errno;
    aoticache_fork_guard_enter();
    aoticache_status status = open_driver(&probe.error);
    aoticache_fork_guard_leave();
    if (status == AOTICACHE_OK)
        status = start_driver(&probe.error);
    if (status == AOTICACHE_OK)
        status = read_devices(&probe.error);
    probe.error.status = status;
    errno = saved;
}

/* ---- results ---- */

aoticache_status aoticache_cuda_get(const aoticache_cuda **ret_cuda, aoticache_error *ret_error)
{
    if (ret_cuda == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_cuda);
    pthread_once(&probe_once, probe_driver);
    if (probe.error.status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, probe.error.status, "%s", probe.error.message);
    *ret_cuda = &probe.cuda;
    return AOTICACHE_OK;
}

aoticache_status aoticache_cuda_device_read(int32_t index, aoticache_cuda_device *ret_device,
                                            aoticache_error *ret_error)
{
    const aoticache_cuda *cuda;
    if (ret_device == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_device);
    aoticache_status status = aoticache_cuda_get(&cuda, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    int32_t position = index == -1 ? 0 : index;
    if (cuda->device_count == 0)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                                   "there is no CUDA device: the driver %.300s, for CUDA %d.%d, finds none",
                                   cuda->driver_path, cuda->driver_version / 1000, cuda->driver_version % 1000 / 10);
    if (position < 0 || position >= cuda->device_count)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                                   "there is no CUDA device %d: this machine has %d, numbered from 0", (int)index,
                                   (int)cuda->device_count);
    const aoticache_cuda_device *device = &cuda->devices[position];
    if (device->problem != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%s", device->problem);
    *ret_device = *device;
    return AOTICACHE_OK;
}
