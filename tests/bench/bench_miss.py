"""Benchmark: the cost of a miss, with Inductor's code built for our container and built PyTorch's way
(eager/compile/inductor/).

- A miss in a warm worker: `abs`, `softmax`, `layer_norm`, `addmm` and a dynamic `add`, each with its own shape, the two
  builds alternately, the median of ROUNDS.
- The first miss of a machine: a worker's start, without files that an earlier one left on the disk. The baseline is
  torch.export and torch._inductor.aot_compile in a new Python, with empty caches too.
- MANY misses of two concurrent workers, elapsed time.
- The size of the library of `abs`, and dlopen, create and delete of it, alternately, in this process instead of a fresh
  C process.

Otherwise both are the same worker, the baseline with a wrong path to libaoticache_runtime.a. Prints one JSON object per
line (scripts/bench collects them). Environment: BUILD; BENCH_LONG: 64 misses instead of 8;
BENCH_QUICK: only the first miss of a machine.
"""
import ctypes
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench_lines import IS_QUICK, left_out

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
ROUNDS = 5
MANY = 64 if os.environ.get("BENCH_LONG") else 8
LOADS = 200


def tensor(*sizes):
    strides, step = [], 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= size
    return {"kind": "tensor", "name": "", "dtype": "float32", "sizes": list(sizes), "strides": strides, "device": "cpu",
            "layout": "strided", "requires_grad": False}


def value(kind, plain):
    return {"kind": kind, "name": "", "value": plain}


def numbers(*plain):
    return {"kind": "list", "name": "", "items": [{"kind": "int", "value": one} for one in plain]}


def calls(n):
    """Returns name to (operator, arguments, environment), with a size that no other `n` has."""
    none = {"kind": "none", "name": ""}
    return {
        "abs": ("aten::abs", [tensor(n, 8)], {}),
        "softmax": ("aten::_softmax", [tensor(n, 8), value("int", 1), value("bool", False)], {}),
        "layer_norm": ("aten::native_layer_norm", [tensor(n, 8), numbers(8), none, none, value("double", 1e-5)], {}),
        "addmm": ("aten::addmm", [tensor(4), tensor(n, 8), tensor(8, 4)], {}),
        "dynamic add": ("aten::add.Tensor", [tensor(n, 8), tensor(n, 8)], {"shapes": "dynamic"}),
    }


class Worker:
    """Starts a worker process; it has sent its greeting when this returns."""

    def __init__(self, own, cache):
        share, lib = os.path.join(BUILD, "share", "aoticache"), os.path.join(BUILD, "lib")
        runtime = os.path.join(lib, "libaoticache_runtime.a" if own else "nowhere.a")
        command = [sys.executable, "-u", os.path.join(share, "worker.py"), "--include",
                   os.path.join(BUILD, "include", "aoticache"), "--runtime", runtime, "--torch-stub",
                   os.path.join(lib, "aoticache", "libtorch_cpu.so")]
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        self.own, self.number, self.subdirectory = own, 0, tempfile.mkdtemp()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        env=environment, start_new_session=True)
        json.loads(self.process.stdout.readline())

    def send(self, call):
        operator, arguments, environment = call
        self.number += 1
        directory = os.path.join(self.subdirectory, str(self.number))
        os.mkdir(directory)
        request = {"protocol": 1, "id": self.number, "operator": operator, "device": "cpu", "arguments": arguments,
                   "environment": environment, "cpu_features": None, "directory": directory}
        self.process.stdin.write((json.dumps(request) + "\n").encode())
        self.process.stdin.flush()

    def receive(self):
        """Returns the path of the library."""
        answer = json.loads(self.process.stdout.readline())
        if not answer["ok"] or (answer["built"]["by"] == "aoticache") != self.own:
            sys.exit(f"bench_miss: {answer}")
        return answer["files"][0]["path"]

    def seconds(self, call):
        begin = time.monotonic()
        self.send(call)
        self.receive()
        return time.monotonic() - begin

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.subdirectory, ignore_errors=True)


def row(name, unit, ours, theirs, target=None):
    ratio = ours / theirs
    print(json.dumps({"name": name, "value": ours, "unit": unit, "peer": "PyTorch's build", "peer_value": theirs,
                      "ratio": ratio, "target": target, "met": None if target is None else ratio <= target}), flush=True)


def first_miss(own):
    """Returns seconds, the worker, and its directory of PyTorch's files, which is warm then."""
    cache = tempfile.mkdtemp()
    begin = time.monotonic()
    worker = Worker(own, cache)
    worker.seconds(calls(2)["abs"])
    return time.monotonic() - begin, worker, cache


def first_compile():
    """Returns the seconds of a Python process that makes one library with PyTorch alone."""
    program = ("import sys, torch\n"
               "class Abs(torch.nn.Module):\n"
               "    def forward(self, x):\n"
               "        return torch.abs(x)\n"
               "x = torch.zeros(2, 8)\n"
               "with torch.no_grad():\n"
               "    program = torch.export.export(Abs(), (x,), strict=False)\n"
               "    torch._inductor.aot_compile(program.module(), (x,), options={'aot_inductor.output_path': sys.argv[1]})\n")
    with tempfile.TemporaryDirectory() as subdirectory:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": subdirectory, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", program, os.path.join(subdirectory, "kernel.so")], env=environment, check=True,
                       cwd=subdirectory, stderr=subprocess.DEVNULL)
        return time.monotonic() - begin


def many_misses(workers):
    """Measures; each worker gets its next request when it has responded."""
    shapes = iter(range(1000, 1000 + MANY))
    begin, busy = time.monotonic(), {}
    for worker in workers:
        worker.send(calls(next(shapes))["abs"])
        busy[worker.process.stdout.fileno()] = worker
    while busy:
        for ready in select.select(list(busy), [], [])[0]:
            worker = busy.pop(ready)
            worker.receive()
            shape = next(shapes, None)
            if shape is not None:
                worker.send(calls(shape)["abs"])
                busy[ready] = worker
    return time.monotonic() - begin


def load_seconds(path):
    """Measures dlopen, creating and deleting a container. Uses a copy under a new name, since the dynamic linker
    recognises open files."""
    libc = ctypes.CDLL(None)
    libc.dlopen.restype, libc.dlclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    libc.dlsym.restype, libc.dlsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
    copy, container = tempfile.mktemp(suffix=".so"), ctypes.c_void_p()
    shutil.copy(path, copy)
    begin = time.perf_counter()
    handle = libc.dlopen(os.fsencode(copy), os.RTLD_NOW)
    if not handle:
        sys.exit(f"bench_miss: {path} cannot be loaded")
    create = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_char_p)(
        libc.dlsym(handle, b"AOTInductorModelContainerCreateWithDevice"))
    delete = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(libc.dlsym(handle, b"AOTInductorModelContainerDelete"))
    if create(ctypes.byref(container), 1, b"cpu", None) != 0:
        sys.exit(f"bench_miss: no container of {path}")
    seconds = time.perf_counter() - begin
    delete(container)
    libc.dlclose(handle)
    os.unlink(copy)
    return seconds


def compare_libraries(ours, theirs):
    paths = []
    for worker in (ours, theirs):
        worker.send(calls(77)["abs"])
        paths.append(worker.receive())
    row("miss: size of the library of abs", "KB", *(os.path.getsize(path) / 1000 for path in paths), 40 / 359)
    import torch  # noqa: F401  the libraries need its symbols
    times = [[load_seconds(path) for path in paths] for _ in range(LOADS)]
    row("miss: dlopen and create of abs", "us", *(statistics.median(column) * 1e6 for column in zip(*times)), 0.4)


def main():
    if IS_QUICK:
        first, worker, cache = first_miss(True)
        worker.close()
        shutil.rmtree(cache, ignore_errors=True)
        row("miss: the first of a machine, worker start included", "s", first, first_compile(), 0.3)
        left_out("misses in a warm worker, of two workers, and the library that they make", "QUICK=1")
        return
    (first, *_), workers, caches = zip(*(first_miss(own) for own in (True, False)))
    row("miss: the first of a machine, worker start included", "s", first, first_compile(), 0.3)
    for name in calls(1):
        for worker in workers:
            worker.seconds(calls(3)[name])  # work that only the first of a kind does
        pairs = [[worker.seconds(calls(10 + i)[name]) for worker in workers] for i in range(ROUNDS)]
        row(f"miss: {name} in a warm worker", "s", *map(statistics.median, zip(*pairs)), 0.2)
    compare_libraries(*workers)
    elapsed = []
    for worker, cache in zip(workers, caches):
        other = Worker(worker.own, cache)
        other.seconds(calls(4)["abs"])
        elapsed.append(many_misses((worker, other)))
        other.close()
        worker.close()
        shutil.rmtree(cache, ignore_errors=True)
    row(f"miss: {MANY} by two workers, elapsed", "s", *elapsed, 0.2)


if __name__ == "__main__":
    main()
