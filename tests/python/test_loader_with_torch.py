"""The loader and the real PyTorch in one process, in either order.

Two libraries are compiled by AOTInductor, one that names libtorch_cpu.so and one that does not. Each case runs in a
process of its own, because what a process has loaded first is what is tested. Environment: BUILD, the build folder.
"""
import ctypes
import os
import subprocess
import sys
import tempfile

from c_types import Error, View

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
LIBTORCH, SHIM = 0, 1
FLOAT32 = 6


class Loader:
    """The C interface of loader/loader.h; a failure becomes an exception with its message."""

    def __init__(self):
        self.c = ctypes.CDLL(os.path.join(BUILD, "lib", "libaoticache.so"))
        self.c.aoticache_runner_num_inputs.restype = ctypes.c_size_t
        self.c.aoticache_runner_unref.argtypes = self.c.aoticache_library_unref.argtypes = [ctypes.c_void_p]
        self.c.aoticache_tensor_free.argtypes = [ctypes.c_void_p]

    def call(self, name, *arguments):
        error = Error()
        if getattr(self.c, name)(*arguments, ctypes.byref(error)) != 0:
            raise RuntimeError(f"{name}: {error.message.decode()}")

    def load(self, path):
        fd = os.open(path, os.O_RDONLY)
        library = ctypes.c_void_p()
        self.call("aoticache_library_load_fd", fd, os.fsencode(path), ctypes.byref(library))
        os.close(fd)
        runner = ctypes.c_void_p()
        self.call("aoticache_runner_create", library, None, ctypes.byref(runner))
        kind = self.c.aoticache_library_torch_kind(library)
        self.c.aoticache_library_unref(library)
        return runner, kind

    def run(self, runner, address, sizes):
        """The one output for one contiguous float32 input at this address, as a list."""
        tensor, output, view = ctypes.c_void_p(), ctypes.c_void_p(), View()
        self.call("aoticache_tensor_from_blob", ctypes.c_void_p(address), FLOAT32, ctypes.c_int64(len(sizes)),
                  (ctypes.c_int64 * len(sizes))(*sizes), None, ctypes.byref(tensor))
        self.call("aoticache_runner_run", runner, ctypes.byref(tensor), ctypes.c_size_t(1), ctypes.byref(output),
                  ctypes.c_size_t(1))
        self.call("aoticache_tensor_get_view", output, ctypes.byref(view))
        values = list(ctypes.cast(view.data, ctypes.POINTER(ctypes.c_float))[:view.numel])
        self.c.aoticache_tensor_free(output)
        self.c.aoticache_tensor_free(tensor)
        return values


def libtorch_is_mapped():
    with open("/proc/self/maps") as maps:
        return "libtorch" in maps.read()


def check_both_libraries(loader, torch, paths):
    """Runs on PyTorch's own tensors, and compares with PyTorch."""
    model = torch.load(paths["model"], weights_only=False)
    for name, expected in (("abs", torch.abs), ("linear", model)):
        runner, kind = loader.load(paths[name])
        assert kind == LIBTORCH, f"{name}: provider {kind}"
        tensor = torch.randn(2, 4)
        with torch.no_grad():
            wanted = expected(tensor)
        got = torch.tensor(loader.run(runner, tensor.data_ptr(), [2, 4])).reshape(wanted.shape)
        torch.testing.assert_close(got, wanted)
        loader.c.aoticache_runner_unref(runner)


def case_torch_first(paths):
    import torch
    check_both_libraries(Loader(), torch, paths)


def case_shim_first(paths):
    loader = Loader()
    values = (ctypes.c_float * 8)(*[-1.5 * i for i in range(8)])
    runners = [loader.load(paths["abs"]), loader.load(paths["linear"])]
    assert [kind for _, kind in runners] == [SHIM, SHIM]
    before = [loader.run(runner, ctypes.addressof(values), [2, 4]) for runner, _ in runners]
    assert before[0] == [1.5 * i for i in range(8)], before[0]
    assert not libtorch_is_mapped()

    import torch
    assert libtorch_is_mapped()
    assert torch.abs(torch.tensor([-3.0])).item() == 3.0
    tensor = torch.tensor(list(values)).reshape(2, 4)
    with torch.no_grad():
        wanted = torch.load(paths["model"], weights_only=False)(tensor)
    torch.testing.assert_close(torch.tensor(before[1]).reshape(2, 3), wanted)
    # What was loaded before still runs, on PyTorch's memory too; what is loaded now gets the shim as well.
    runners.append(loader.load(paths["abs"]))
    assert runners[2][1] == SHIM
    for (runner, _), expected in zip(runners, (before[0], before[1], before[0])):
        assert loader.run(runner, tensor.data_ptr(), [2, 4]) == expected
    # And PyTorch runs the same file with its own loader beside it.
    own = torch._C._aoti.AOTIModelContainerRunnerCpu(paths["abs"], 1)
    torch.testing.assert_close(own.run([tensor])[0], torch.abs(tensor))
    for runner, _ in runners:
        loader.c.aoticache_runner_unref(runner)
    torch.testing.assert_close(own.run([tensor])[0], torch.abs(tensor))


def case_private_copies(paths):
    """On PyTorch's tensors, beside PyTorch's own runner of the same file, and gone when they are unloaded."""
    import torch

    class Options(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("private_copy", ctypes.c_bool)]

    loader, tensor = Loader(), torch.randn(2, 4)
    own = torch._C._aoti.AOTIModelContainerRunnerCpu(paths["abs"], 1)
    fd = os.open(paths["abs"], os.O_RDONLY)
    library, runner = ctypes.c_void_p(), ctypes.c_void_p()
    loader.call("aoticache_library_load_fd_with", fd, b"abs", ctypes.byref(Options(ctypes.sizeof(Options), True)),
                ctypes.byref(library))
    os.close(fd)
    assert loader.c.aoticache_library_torch_kind(library) == LIBTORCH
    loader.call("aoticache_runner_create", library, None, ctypes.byref(runner))
    loader.c.aoticache_library_unref(library)
    for _ in range(2):
        got = torch.tensor(loader.run(runner, tensor.data_ptr(), [2, 4])).reshape(2, 4)
        torch.testing.assert_close(got, torch.abs(tensor))
        torch.testing.assert_close(own.run([tensor])[0], torch.abs(tensor))
    loader.c.aoticache_runner_unref(runner)
    with open("/proc/self/maps") as maps:
        assert "aoticache-kernel" not in maps.read()
    torch.testing.assert_close(own.run([tensor])[0], torch.abs(tensor))


CASES = {"torch first: libraries use its libtorch": case_torch_first,
         "private copies run beside PyTorch's own loader and go": case_private_copies,
         "shim first: PyTorch imported later works, and so do the libraries": case_shim_first}


def compile_library(torch, module, path, link):
    program = torch.export.export(module, (torch.randn(2, 4),))
    torch._inductor.aot_compile(program.module(), (torch.randn(2, 4),), options={
        "aot_inductor.output_path": path, "aot_inductor.enable_line_tables": False, "aot_inductor.link_libtorch": link})


def compile_all(folder):
    import torch

    class Abs(torch.nn.Module):
        def forward(self, x):
            return torch.abs(x)

    paths = {name: os.path.join(folder, file)
             for name, file in (("abs", "abs.so"), ("linear", "linear.so"), ("model", "model.pt"))}
    model = torch.nn.Linear(4, 3)
    torch.save(model, paths["model"])
    compile_library(torch, Abs(), paths["abs"], True)
    compile_library(torch, model, paths["linear"], False)
    return paths


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skip - loader with torch: this Python has no PyTorch")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        compile_all(folder)
        for name in CASES:
            result = subprocess.run([sys.executable, __file__, "--case", name, folder], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, timeout=900)
            print("ok" if result.returncode == 0 else "not ok", "-", name)
            if result.returncode != 0:
                failed += 1
                print(f"  exit {result.returncode}\n  " + "\n  ".join(result.stdout.splitlines()[-15:]))
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--case":
        places = {"abs": "abs.so", "linear": "linear.so", "model": "model.pt"}
        CASES[sys.argv[2]]({key: os.path.join(sys.argv[3], file) for key, file in places.items()})
        sys.exit(0)
    sys.exit(main())
