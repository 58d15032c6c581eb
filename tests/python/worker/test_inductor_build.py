"""Tests eager/compile/inductor/, Inductor's code in our container. Each library is built both ways and run in PyTorch's own
runner: same bits, same refusals. Libraries that cannot be built our way are built PyTorch's way, and the reason is reported. Needs
PyTorch and a C++ compiler.

Environment: BUILD; CASES=all builds each operator alone. The whole operator database: make inductor-builds.
"""
import ctypes
import functools
import os
import platform
import re
import shutil
import subprocess
import tempfile
import threading

import pytest
import torch

import memory_in_use
import own_build
from torch_scenarios import python

os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def make_calls(torch):
    """Returns name to (function, inputs as they are compiled for, more inputs to run with, options)."""
    functional = torch.nn.functional
    x, index = torch.randn(8, 33), torch.tensor([3, 0, 7])
    return {
        "abs": (torch.abs, (x,), [(x * 1e30,)]),
        "softmax": (lambda x: torch.softmax(x, 1), (x,), []),
        "layer_norm": (lambda x: functional.layer_norm(x, (33,)), (x,), [(x * 100,)]),
        "addmm": (torch.addmm, (torch.randn(5), x, torch.randn(33, 5)), []),
        "conv2d": (functional.conv2d, (torch.randn(2, 3, 9, 9), torch.randn(4, 3, 3, 3)), []),
        "sort": (lambda x: tuple(torch.sort(x)), (x,), []),
        "svdvals": (lambda x: torch.linalg.svdvals(x), (x,), []),
        "half": (lambda a, b: torch.tanh(a) * b.float(), (x.half(), x.bfloat16()), []),
        "complex": (lambda z: z * z.conj(), (torch.complex(x, x + 1),), []),
        "views": (lambda x: (x[:, 1:] + 1, x.t() * 2), (x,), []),
        "no elements": (lambda x: x.sum(1), (torch.empty(4, 0),), []),
        # The next ones refuse some inputs: by a check in the kernel, in one that owns memory, in one after it, in the first of
        # several.
        "embedding": (functional.embedding, (index, x), [(torch.tensor([3, 8, 7]), x), (torch.tensor([-1, 0, 1]), x)]),
        "embedding and softmax": (lambda i, x: torch.softmax(functional.embedding(i, x), 1), (index, x),
                                  [(torch.tensor([99, 0, 7]), x)]),
        "integer division": (lambda a, b: a // b, (torch.arange(9), torch.arange(9) + 1),
                             [(torch.arange(9), torch.arange(9) - 4)]),
        "several kernels": (several_kernels, (torch.arange(8), x), [(torch.arange(8) + 1, x)]),
    }


def several_kernels(index, x):
    """
    A kernel that may refuse its input, a matrix multiplication outside the kernels, and then kernels with sums and sums of
    squares, which own memory in Inductor's way.
    """
    functional = torch.nn.functional
    y = functional.embedding(index, x) @ x.t()
    return functional.layer_norm(y, (8,)), y.repeat(64, 64).exp().sum(), functional.group_norm(y.repeat(9, 64)[None], 9)


# PyTorch takes nearly as long for each library as for one with all of them, so these share one, unless CASES=all.
TOGETHER = (("softmax", "layer_norm", "addmm", "half", "complex", "views", "no elements"), ("conv2d", "sort", "svdvals"))


def combined(calls):
    """Returns one call that combines several: it takes the inputs of all and returns the results of all."""
    def call(*given):
        results, begun = [], 0
        for function, inputs, _ in calls:
            made = function(*given[begun:begun + len(inputs)])
            results += made if isinstance(made, tuple) else [made]
            begun += len(inputs)
        return tuple(results)

    first = tuple(one.clone() for _, inputs, _ in calls for one in inputs)
    other = tuple(one.clone() for _, inputs, others in calls for one in (others[0] if others else inputs))
    return call, first, [other]


def choose_calls(torch):
    """Returns the calls of make_calls(), some of them combined."""
    calls = make_calls(torch)
    if os.environ.get("CASES") == "all":
        return calls
    for names in TOGETHER:
        calls[", ".join(names)] = combined([calls.pop(name) for name in names])
    return calls


def make_module(torch, call):
    class Module(torch.nn.Module):
        def forward(self, *inputs):
            return call(*inputs)

    return Module()


def build(torch, module, inputs, directory, builder=None, dynamic=None):
    """Returns the path of the library; that of `builder`'s library if one is given."""
    path = os.path.join(directory, "kernel.so")
    with torch.no_grad():
        program = torch.export.export(module, inputs, dynamic_shapes=dynamic, strict=False)
        options = {"aot_inductor.output_path": path}
        if builder is None:
            path = torch._inductor.aot_compile(program.module(), inputs, options=options)
        else:
            with builder.active():
                path = torch._inductor.aot_compile(program.module(), inputs, options=options)
    for name in os.listdir(directory):
        if name.endswith(".wrapper.json"):  # the list of operators that the runner's proxy executor calls
            os.rename(os.path.join(directory, name), os.path.join(directory, "kernel.json"))
    return path


def open_runner(torch, path):
    return torch._C._aoti.AOTIModelContainerRunnerCpu(path, 2)


def answer(runner, inputs):
    """Returns results as (dtype, sizes, strides, bytes), or the significant word of a refusal."""
    try:
        results = runner.run([tensor.clone() for tensor in inputs])
    except RuntimeError as error:
        words = re.findall(r"out of bounds|ZeroDivisionError|unmatched \w+", str(error))
        return words[0] if words else "refused"
    return [(str(one.dtype), list(one.shape), list(one.stride()),
             bytes(one.resolve_conj().contiguous().reshape(-1).view(torch.uint8).tolist()))
            for one in results]


torch.manual_seed(5)
CALLS = choose_calls(torch)


@pytest.fixture(scope="module")
def builder():
    return own_build.make_builder(torch)


@pytest.fixture(scope="module")
def own(builder, tmp_path_factory):
    """Returns a function for our library of a call, built once, and what the builder reported."""
    @functools.cache
    def build_own(name):
        call, inputs, _ = CALLS[name]
        path = build(torch, make_module(torch, call), inputs, str(tmp_path_factory.mktemp("own")), builder)
        return path, builder.report()

    return build_own


@pytest.mark.parametrize("name", CALLS)
def test_results_and_refusals_are_pytorchs(own, tmp_path, name):
    call, inputs, others = CALLS[name]
    path, said = own(name)
    assert said == {"by": "aoticache"}
    other = build(torch, make_module(torch, call), inputs, str(tmp_path))
    assert os.path.getsize(path) <= os.path.getsize(other) / 10
    runners = open_runner(torch, path), open_runner(torch, other)
    for given in [inputs, *others, inputs]:
        got, want = (answer(runner, given) for runner in runners)
        assert got == want, f"{got!s:.200} is not {want!s:.200}"


def libraries_needed(path):
    dynamic = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"Shared library: \[([^]]+)\]", dynamic)


def test_several_kernels(own):
    """They do not load the C++ runtime: that would take a process longer than to load and run a small model."""
    inputs, path = CALLS["several kernels"][1], own("several kernels")[0]
    assert not [name for name in libraries_needed(path) if "stdc++" in name or "gcc_s" in name]
    # Whichever thread comes first makes the state that they keep between runs.
    runner, start, made = open_runner(torch, path), threading.Barrier(2), []

    def play():
        start.wait()
        made.append(runner.run([tensor.clone() for tensor in inputs]))

    threads = [threading.Thread(target=play) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    want = several_kernels(*inputs)
    right = [torch.allclose(got, one, rtol=1e-4, atol=1e-5) for results in made for got, one in zip(results, want)]
    assert right == [True] * 6


def test_a_library_without_cxx(own):
    """A kernel without C++: no C++ runtime, no exports except the interface, nothing that keeps it mapped."""
    path = own("abs")[0]
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True, check=True).stdout
    segments = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
    needed = libraries_needed(path)
    wrong = [name for name in needed if "stdc++" in name or "gcc_s" in name]
    if os.path.getsize(path) > 40 * 1024:
        wrong.append(f"{os.path.getsize(path)} bytes are more than 40 KB: a page more is begun by few bytes")
    if "libtorch_cpu.so" not in needed:
        wrong.append(f"does not name libtorch_cpu.so: {needed}")
    for line in symbols.splitlines():
        words = line.split()
        if len(words) > 7 and words[6] != "UND" and words[3] in ("FUNC", "OBJECT"):
            ours = words[7] == "aoticache_plain_kernel_v3"
            if not (ours or words[7].startswith("AOTInductor")) or words[4] == "UNIQUE":
                wrong.append(line)
    told = subprocess.run([os.path.join(own_build.BUILD, "bin", "aoticache"), "inspect", path], capture_output=True,
                          text=True, check=True).stdout
    if "made by      PyTorch's Inductor, built for our container" not in told:
        wrong.append(told)
    wrong += [line for line in segments.splitlines() if "GNU_STACK" in line and "RWE" in line]
    assert not wrong


def test_dynamic_shapes(builder, tmp_path):
    auto = torch.export.Dim.AUTO
    module = make_module(torch, lambda a, b: torch.softmax(a + b, -1))
    shapes = (({0: auto, 1: auto}, {0: auto, 1: auto}),)
    example = torch.randn(6, 20), torch.randn(6, 20)
    runner = open_runner(torch, build(torch, module, example, str(tmp_path), builder, shapes))
    assert builder.used, builder.reason
    for rows, columns in ((6, 20), (2, 3), (31, 65)):
        a, b = torch.randn(rows, columns), torch.randn(rows, columns)
        assert torch.allclose(runner.run([a, b])[0], module(a, b)), f"{rows} x {columns}"


def test_input_checks(builder, tmp_path):
    """AOTI_RUNTIME_CHECK_INPUTS is read when a library runs for the first time, so this needs a new process."""
    path = build(torch, make_module(torch, torch.abs), (torch.randn(4, 5),), str(tmp_path), builder)
    program = ("import sys, torch\n"
               "runner = torch._C._aoti.AOTIModelContainerRunnerCpu(sys.argv[1], 1)\n"
               "for given in (torch.randn(4, 6), torch.randn(5, 4).t(), torch.zeros(4, 5, dtype=torch.int32)):\n"
               "    try:\n"
               "        runner.run([given])\n"
               "        print('ran')\n"
               "    except RuntimeError as error:\n"
               "        print('refused')\n"
               "        print(error, file=sys.stderr)\n"
               "print(runner.run([torch.full((4, 5), -2.0)])[0].sum().item())\n")
    said = {}
    for value in ("1", "0"):
        done = subprocess.run(python("-c", program, path), capture_output=True, text=True,
                              env={**os.environ, "AOTI_RUNTIME_CHECK_INPUTS": value})
        said[value] = done.stdout.split(), done.stderr
    assert said["1"][0] == ["refused"] * 3 + ["40.0"], said["1"]
    for words in ("unmatched dim value at 1, expected: 5, but got: 6", "unmatched stride value", "unmatched dtype"):
        assert words in said["1"][1]
    assert said["0"][0][-1:] == ["40.0"] and "refused" not in said["0"][0], said["0"]


def test_four_threads_of_which_every_second_run_fails(own):
    """Many threads run, with and without failure, concurrently; each run frees what it made."""
    call, (good, x), ((bad, _),) = CALLS["embedding and softmax"]
    runner, wrong = open_runner(torch, own("embedding and softmax")[0]), []
    first = runner.run([good.clone(), x.clone()])[0]
    assert torch.allclose(first, call(good, x))

    def play():
        for _ in range(200):
            if not torch.equal(runner.run([good.clone(), x.clone()])[0], first):
                wrong.append("another result")
            try:
                runner.run([bad.clone(), x.clone()])
                wrong.append("a wrong index is accepted")
            except RuntimeError:
                pass

    threads = [threading.Thread(target=play) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:5]

    def fail():
        try:
            runner.run([bad, x])
        except RuntimeError:
            pass

    leaked = memory_in_use.bytes_per_call(fail, 2000)
    assert leaked < 8, f"{leaked} bytes a run that fails"


def test_a_parallel_loop(builder):
    """
    A parallel loop gives the same result with one thread, with two, and in threads of a parallel region, where each runs all
    of it, each with one thread.
    """
    def call(x):
        return x.sigmoid() * 3

    x = torch.randn(64, 1024)
    with tempfile.TemporaryDirectory() as directory, torch._inductor.config.patch({"cpp.dynamic_threads": True}):
        path = build(torch, make_module(torch, call), (x,), directory, builder)
        symbols = subprocess.run(["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout
        # Otherwise threads of a region would wait for each other.
        assert "omp_in_parallel" in symbols, "a parallel loop begins without asking for the threads"
        runner, before, wrong = open_runner(torch, path), torch.get_num_threads(), []
        want = runner.run([x])[0]
        runtime = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line))
        body, lock = ctypes.CFUNCTYPE(None, ctypes.c_void_p), threading.Lock()

        def compare(what):
            got = runner.run([x])[0]
            with lock:
                places.append(runtime.omp_get_thread_num())
                if not torch.equal(got, want):
                    wrong.append(f"{what}: {(got != want).sum()} of {got.numel()} numbers differ")

        def in_region(_, threads):
            runtime.omp_set_num_threads(threads)  # for this thread, until the region ends
            compare(f"in a region, {threads} threads")

        try:
            for threads in (1, 2):
                places = []
                torch.set_num_threads(threads)
                compare(f"{threads} threads")
                torch.set_num_threads(2)
                runtime.GOMP_parallel(body(lambda data, threads=threads: in_region(data, threads)), None, 2, 0)
                if sorted(places) != [0, 0, 1]:
                    wrong.append(f"threads {places} ran it, not 0 and both of a region")
        finally:
            torch.set_num_threads(before)
    assert torch.allclose(want, call(x), rtol=1e-5), "not PyTorch's values"
    assert not wrong


def test_dlclose_unmaps_it(own, tmp_path):
    path = shutil.copy(own("abs")[0], tmp_path)  # a runner has loaded the other one
    libc = ctypes.CDLL(None)
    libc.dlopen.restype, libc.dlclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    handle = libc.dlopen(os.fsencode(path), os.RTLD_NOW)
    assert path in open("/proc/self/maps").read()
    libc.dlclose(handle)
    assert path not in open("/proc/self/maps").read()


def replaced_text(*given):
    return SLIM_TEXT(*given) + "new_class one;\n"


MODULE = own_build.load_module()
SLIM_TEXT = MODULE.slim_text
CHANGES = {
    "no runtime library": (dict(runtime=os.path.join(own_build.BUILD, "no", "libaoticache_runtime.a")), {}, "is not installed"),
    "another interface": ({}, {"INTERFACE": os.path.join("_inductor", "config.py")}, "does not contain"),
    "a compiler that fails": ({}, {"COMPILE": ("-fno-such-option",)}, "no-such-option"),
    "a name that the header lacks": ({}, {"slim_text": replaced_text}, "new_class"),
    "a symbol that nobody has": ({}, {"FROM_TORCH": re.compile("^aoti_torch_delete")}, "is not one of"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_falls_back_to_pytorchs_way(monkeypatch, tmp_path, name):
    """Whatever prevents our build, there is a library, PyTorch's, with the reason."""
    places, attributes, words = CHANGES[name]
    for key, value in attributes.items():
        monkeypatch.setattr(MODULE, key, value)
    builder, x = MODULE.Builder(torch, places), torch.randn(7)
    path = build(torch, make_module(torch, torch.abs), (x,), str(tmp_path), builder)
    said = builder.report()
    assert said["by"] == "pytorch" and words in said["reason"], said
    assert torch.equal(open_runner(torch, path).run([x])[0], x.abs())


VALGRIND_ERROR = 9
VALGRINDS_CPU = "x86-64-v3" if platform.machine() == "x86_64" else None


@pytest.fixture(scope="module")
def failing_package(builder, tmp_path_factory):
    def call(x):
        y, z = x.sin() + 1, x.cos() @ x
        return torch.linalg.cholesky(x) * y + z

    path, options = str(tmp_path_factory.mktemp("failing") / "model.pt2"), {}
    program = torch.export.export(make_module(torch, call), (torch.eye(4),))
    # valgrind has no AVX-512
    with torch.no_grad(), builder.active(), own_build.load_worker().compile_for(VALGRINDS_CPU, options):
        torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=options)
    return path


@pytest.mark.parametrize("before", [
    pytest.param([], id="alone"), pytest.param(["valgrind", f"--error-exitcode={VALGRIND_ERROR}", "--quiet"], id="under valgrind", marks=pytest.mark.skipif(
        shutil.which("valgrind") is None, reason="valgrind is not installed"))])
def test_a_run_that_an_operator_ends(failing_package, tmp_path, before):
    """The run drops the tensors on its stack that it has made. Only valgrind sees whether it does."""
    command = [os.path.join(own_build.BUILD, "bin", "aoticache"), "run-package", failing_package, "--cache-dir", str(tmp_path / "cache"),
               "--input", "float32:4x4=zeros"]
    done = subprocess.run([*before, *command], capture_output=True, text=True)
    assert done.returncode == 1 and ("linalg.cholesky" in done.stderr or "proxy_executor" in done.stderr), done.stderr
