"""The C interface of loader/loader.h by ctypes, and the libraries for its tests. PyTorch compiles them once for each build
directory, version of PyTorch and text of this file. Environment: BUILD, the build directory.
"""
import ctypes
import hashlib
import os
import subprocess
import sys

import once
from c_types import Error, View

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
LIBTORCH, SHIM = 0, 1
FLOAT32 = 6


class LibraryInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("torch_kind", ctypes.c_int)]


class Loader:
    """The C interface of loader/loader.h; a failure becomes an exception with its message."""

    def __init__(self):
        self.c = ctypes.CDLL(os.path.join(BUILD, "lib", "libaoticache.so"))
        self.c.aoticache_library_get_info.restype = ctypes.POINTER(LibraryInfo)
        self.c.aoticache_runner_unref.argtypes = self.c.aoticache_library_unref.argtypes = [ctypes.c_void_p]
        self.c.aoticache_tensor_free.argtypes = [ctypes.c_void_p]

    def call(self, name, *arguments):
        error = Error()
        if getattr(self.c, name)(*arguments, ctypes.byref(error)) != 0:
            raise RuntimeError(f"{name}: {error.message.decode()}")

    def load(self, path):
        fd = os.open(path, os.O_RDONLY)
        library = ctypes.c_void_p()
        self.call("aoticache_library_load_fd", fd, os.fsencode(path), None, ctypes.byref(library))
        os.close(fd)
        runner = ctypes.c_void_p()
        self.call("aoticache_runner_create", library, None, ctypes.byref(runner))
        kind = self.kind_of(library)
        self.c.aoticache_library_unref(library)
        return runner, kind

    def kind_of(self, library):
        return self.c.aoticache_library_get_info(library).contents.torch_kind

    def run(self, runner, address, sizes):
        """Returns the one output for one contiguous float32 input at this address, as a list."""
        tensor, output, view = ctypes.c_void_p(), ctypes.c_void_p(), View()
        self.call("aoticache_tensor_from_blob", ctypes.c_void_p(address), FLOAT32, ctypes.c_int64(len(sizes)),
                  (ctypes.c_int64 * len(sizes))(*sizes), None, ctypes.byref(tensor))
        self.call("aoticache_runner_run_with", runner, None, ctypes.byref(tensor), ctypes.c_size_t(1),
                  ctypes.byref(output), ctypes.c_size_t(1))
        self.call("aoticache_tensor_get_view", output, ctypes.byref(view))
        values = list(ctypes.cast(view.data, ctypes.POINTER(ctypes.c_float))[:view.numel])
        self.c.aoticache_tensor_free(output)
        self.c.aoticache_tensor_free(tensor)
        return values


def libraries(torch):
    """Returns the directory with abs.so, which is linked to libtorch_cpu.so; unlinked.so, the same but not linked; linear.so,
    also not linked, whose module is model.pt; mapped.so, which maps its weights from its own file. Inputs have 2 by 4 elements,
    those of mapped.so 1 by 64."""
    class Abs(torch.nn.Module):
        def forward(self, x):
            return torch.abs(x)

    with open(__file__, "rb") as text:
        version = hashlib.sha256(torch.__version__.encode() + text.read()).hexdigest()[:16]
    directory = os.path.join(BUILD, "test-loader", version)
    with once.lock(directory):
        done = os.path.join(directory, "done")
        if os.path.exists(done):
            return directory
        torch.manual_seed(0)
        small, wide, linear = (torch.randn(2, 4),), (torch.randn(1, 64),), torch.nn.Linear(4, 3)
        torch.save(linear, os.path.join(directory, "model.pt"))
        for name, module, inputs, options in (
                ("abs.so", Abs(), small, {}), ("unlinked.so", Abs(), small, {"aot_inductor.link_libtorch": False}),
                ("linear.so", linear, small, {"aot_inductor.link_libtorch": False}),
                ("mapped.so", torch.nn.Linear(64, 4096), wide, {"aot_inductor.force_mmap_weights": True})):
            torch._inductor.aot_compile(torch.export.export(module, inputs).module(), inputs, options={
                "aot_inductor.output_path": os.path.join(directory, name), "aot_inductor.enable_line_tables": False, **options})
        open(done, "w").close()
    return directory


def play(case, directory):
    """Runs a case of loader_cases.py. Most cases need a process that has not imported PyTorch, so none runs as a fork of a
    process that has."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loader_cases.py")
    done = subprocess.run([sys.executable, program, case, directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=900)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-3000:]}"
    print(done.stdout)
