"""Packages through the C interface (eager/model/package/package.h), by ctypes, in a process with or without PyTorch."""
import ctypes
import os

from c_types import Error, View

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
FLOAT32 = 6
pointer, size_t = ctypes.c_void_p, ctypes.c_size_t


class Options(ctypes.Structure):
    _fields_ = [("size", size_t), ("model", ctypes.c_char_p), ("device", ctypes.c_char_p), ("num_models", size_t),
                ("proxy_executor", pointer)]


class Report(ctypes.Structure):
    _fields_ = [("key", ctypes.c_uint8 * 32), ("model", ctypes.c_char * 256), ("device", ctypes.c_char * 32),
                ("added", ctypes.c_bool), ("stored", ctypes.c_bool), ("bytes", ctypes.c_uint64),
                ("digest_ns", ctypes.c_uint64), ("add_ns", ctypes.c_uint64), ("load_ns", ctypes.c_uint64)]


class RunnerInfo(ctypes.Structure):
    _fields_ = [("library", pointer), ("device", ctypes.c_char_p), ("num_inputs", size_t), ("num_outputs", size_t),
                ("num_constants", size_t)]


class Host:
    """One cache."""

    def __init__(self, directory):
        self.c = ctypes.CDLL(os.path.join(BUILD, "lib", "libaoticache.so"))
        self.c.aoticache_runner_get_info.restype = ctypes.POINTER(RunnerInfo)
        self.c.aoticache_runner_get_info.argtypes = self.c.aoticache_runner_unref.argtypes = [pointer]
        self.c.aoticache_tensor_free.argtypes = self.c.aoticache_cache_close.argtypes = [pointer]
        self.cache = pointer()
        os.environ["AOTICACHE_DIR"] = directory
        self.call("aoticache_cache_open", None, ctypes.byref(self.cache))

    def call(self, name, *arguments):
        error = Error()
        if getattr(self.c, name)(*arguments, ctypes.byref(error)) != 0:
            raise RuntimeError(f"{name}: {error.message.decode()}")

    def close(self):
        self.c.aoticache_cache_close(self.cache)

    def load(self, path, model=None):
        runner, report = pointer(), Report()
        options = Options(ctypes.sizeof(Options), os.fsencode(model) if model else None)
        self.call("aoticache_package_load", self.cache, os.fsencode(path), ctypes.byref(options), ctypes.byref(runner),
                  ctypes.byref(report))
        return runner, report

    def load_key(self, key):
        """Loads the package with this key. key: hexadecimal."""
        runner, report = pointer(), Report()
        self.call("aoticache_package_load_key", self.cache, (ctypes.c_uint8 * 32)(*bytes.fromhex(key)), None,
                  ctypes.byref(runner), ctypes.byref(report))
        return runner, report

    def run(self, runner, address, sizes):
        """Returns the outputs for one contiguous float32 input at this address, as lists."""
        tensor, count = pointer(), self.c.aoticache_runner_get_info(runner).contents.num_outputs
        outputs = (pointer * count)()
        self.call("aoticache_tensor_from_blob", pointer(address), FLOAT32, ctypes.c_int64(len(sizes)),
                  (ctypes.c_int64 * len(sizes))(*sizes), None, ctypes.byref(tensor))
        self.call("aoticache_runner_run_with", runner, None, ctypes.byref(tensor), size_t(1), outputs, size_t(count))
        values = []
        for output in outputs:
            view = View()
            self.call("aoticache_tensor_get_view", pointer(output), ctypes.byref(view))
            values.append(list(ctypes.cast(view.data, ctypes.POINTER(ctypes.c_float))[:view.numel]))
            self.c.aoticache_tensor_free(output)
        self.c.aoticache_tensor_free(tensor)
        return values

    def unload(self, runner):
        self.c.aoticache_runner_unref(runner)
