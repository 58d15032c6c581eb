"""libaoticache as a Python host with PyTorch uses it: what tests/gpu/gpu_battery.py needs of its C interface, by ctypes.

Tensors belong to PyTorch and are passed as its own bindings pass them. Environment: BUILD, the build directory.
"""
import ctypes
import os

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
pointer, size_t = ctypes.c_void_p, ctypes.c_size_t


class Refused(Exception):
    """A status that is not OK, with its message."""


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 1024)]


class Device(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 128), ("major", ctypes.c_int32), ("minor", ctypes.c_int32),
                ("memory_bytes", ctypes.c_uint64), ("arch", ctypes.c_char * 16), ("problem", ctypes.c_char_p)]


class Cuda(ctypes.Structure):
    _fields_ = [("driver_version", ctypes.c_int32), ("device_count", ctypes.c_int32), ("driver_path", ctypes.c_char_p),
                ("devices", ctypes.POINTER(Device))]


class RunnerInfo(ctypes.Structure):
    _fields_ = [("library", pointer), ("device", ctypes.c_char_p), ("num_inputs", size_t), ("num_outputs", size_t),
                ("num_constants", size_t)]


class RunnerOptions(ctypes.Structure):
    _fields_ = [("size", size_t), ("device", ctypes.c_char_p), ("num_models", size_t), ("directory", ctypes.c_char_p),
                ("proxy_executor", pointer), ("pool_only", ctypes.c_bool)]


class RunOptions(ctypes.Structure):
    _fields_ = [("size", size_t), ("stream", pointer), ("proxy_executor", pointer), ("steal_inputs", ctypes.c_bool)]


class UpdateOptions(ctypes.Structure):
    _fields_ = [("size", size_t), ("inactive", ctypes.c_bool), ("partial", ctypes.c_bool),
                ("user_managed", ctypes.c_bool), ("from_cpu", ctypes.c_bool), ("by_fqn", ctypes.c_bool)]


class Entry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("handle", pointer)]


class Loader:
    def __init__(self, torch):
        self.torch, self.c, api = torch, ctypes.CDLL(os.path.join(BUILD, "lib", "libaoticache.so")), ctypes.pythonapi
        self.c.aoticache_runner_get_info.restype = ctypes.POINTER(RunnerInfo)
        api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
        api.PyCapsule_GetPointer.restype = pointer
        api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        api.PyCapsule_New.restype = ctypes.py_object
        api.PyCapsule_New.argtypes = [pointer, ctypes.c_char_p, pointer]
        self.api = api

    def call(self, name, *arguments):
        error = Error()
        if getattr(self.c, name)(*arguments, ctypes.byref(error)) != 0:
            raise Refused(error.message.decode())

    def cuda(self):
        """The driver, and all devices."""
        cuda = ctypes.POINTER(Cuda)()
        self.call("aoticache_cuda_get", ctypes.byref(cuda))
        devices = cuda.contents.devices[:cuda.contents.device_count]
        for device in devices:
            if device.problem:
                raise Refused(device.problem.decode())
        return cuda.contents, devices

    def handle(self, tensor):
        """A new one, the caller's."""
        capsule = self.torch._C._aoti.unsafe_alloc_void_ptr_from_tensor(tensor)
        return self.api.PyCapsule_GetPointer(capsule, self.api.PyCapsule_GetName(capsule))

    def adopt(self, handle):
        capsule = self.api.PyCapsule_New(handle, None, None)  # the function for one tensor does not take its handle
        return self.torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs([capsule])[0]

    def free(self, handle):
        self.c.aoticache_tensor_free(pointer(handle))


class Runner:
    """A runner on a device; on a stream if one is given, otherwise on the device's current one."""

    def __init__(self, loader, path, device, num_models=1, directory=None):
        self.loader, self.runner, library = loader, pointer(), pointer()
        fd = os.open(path, os.O_RDONLY)
        try:
            loader.call("aoticache_library_load_fd", fd, os.fsencode(path), ctypes.byref(library))
        finally:
            os.close(fd)
        options = RunnerOptions(ctypes.sizeof(RunnerOptions), device.encode(), num_models,
                                os.fsencode(directory) if directory else None, None, False)
        try:
            loader.call("aoticache_runner_create", library, ctypes.byref(options), ctypes.byref(self.runner))
        finally:
            loader.c.aoticache_library_unref(library)
        self.num_outputs = loader.c.aoticache_runner_get_info(self.runner).contents.num_outputs

    def run(self, inputs, stream=None):
        handles = (pointer * (len(inputs) + 1))(*[self.loader.handle(one) for one in inputs])
        outputs = (pointer * (self.num_outputs + 1))()
        options = RunOptions(ctypes.sizeof(RunOptions), stream, None, False)
        try:
            self.loader.call("aoticache_runner_run_with", self.runner, ctypes.byref(options), handles,
                             size_t(len(inputs)), outputs, size_t(self.num_outputs))
        finally:
            for i in range(len(inputs)):
                self.loader.free(handles[i])
        return [self.loader.adopt(outputs[i]) for i in range(self.num_outputs)]

    def update(self, tensors, **flags):
        """tensors: by name. flags: those of aoticache_update_options."""
        options = UpdateOptions(ctypes.sizeof(UpdateOptions), **flags)
        handles = [self.loader.handle(tensor) for tensor in tensors.values()]
        pairs = (Entry * len(handles))(*[Entry(name.encode(), handle) for name, handle in zip(tensors, handles)])
        try:
            self.loader.call("aoticache_runner_update_constants", self.runner, ctypes.byref(options), pairs,
                             size_t(len(handles)))
        finally:
            for handle in handles:
                self.loader.free(handle)

    def swap(self):
        self.loader.call("aoticache_runner_swap_constants", self.runner)

    def close(self):
        self.loader.c.aoticache_runner_unref(self.runner)
        self.runner = pointer()
