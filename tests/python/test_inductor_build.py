"""eager/inductor/: Inductor's code in our container. Each library is built both ways and run in PyTorch's own runner: same
bits, same refusals. What cannot be built our way is built PyTorch's way, and says why. Needs PyTorch and a C++ compiler.

Environment: BUILD; CASES=all builds each operator alone. The whole operator database: make inductor-builds.
"""
import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading

import memory_in_use
import own_build

HERE = os.path.dirname(os.path.abspath(__file__))
failures = 0


def report(name, wrong):
    global failures
    print("not ok" if wrong else "ok", "-", name, flush=True)
    failures += bool(wrong)
    for line in wrong[:8]:
        print(f"  {line}"[:1000], flush=True)


def make_calls(torch):
    """Name to (function, inputs as they are compiled for, more inputs to run with, options)."""
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
        # The next ones refuse some inputs: by a check in the kernel, one that owns memory, one after it, the first of several.
        "embedding": (functional.embedding, (index, x), [(torch.tensor([3, 8, 7]), x), (torch.tensor([-1, 0, 1]), x)]),
        "embedding and softmax": (lambda i, x: torch.softmax(functional.embedding(i, x), 1), (index, x),
                                  [(torch.tensor([99, 0, 7]), x)]),
        "integer division": (lambda a, b: a // b, (torch.arange(9), torch.arange(9) + 1),
                             [(torch.arange(9), torch.arange(9) - 4)]),
        "several kernels": (several_kernels, (torch.arange(8), x), [(torch.arange(8) + 1, x)]),
    }


def several_kernels(index, x):
    """
    A kernel that may refuse its input, a product that no kernel does, and then kernels with sums of sums and of squares,
    which own memory in Inductor's way.
    """
    functional = __import__("torch").nn.functional
    y = functional.embedding(index, x) @ x.t()
    return functional.layer_norm(y, (8,)), y.repeat(64, 64).exp().sum(), functional.group_norm(y.repeat(9, 64)[None], 9)


# Each library takes PyTorch nearly as long as one with all of them, so that these are in one, unless CASES=all.
TOGETHER = (("softmax", "layer_norm", "addmm", "half", "complex", "views", "no elements"), ("conv2d", "sort", "svdvals"))


def combined(calls):
    """One call of several: it takes the inputs of all and gives the results of all."""
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
    """Those of make_calls(), some of them as one."""
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


def build(torch, module, inputs, folder, builder=None, dynamic=None):
    """The path of the library; of what `builder` makes where there is one."""
    path = os.path.join(folder, "kernel.so")
    with torch.no_grad():
        program = torch.export.export(module, inputs, dynamic_shapes=dynamic, strict=False)
        options = {"aot_inductor.output_path": path}
        if builder is None:
            path = torch._inductor.aot_compile(program.module(), inputs, options=options)
        else:
            with builder.active():
                path = torch._inductor.aot_compile(program.module(), inputs, options=options)
    for name in os.listdir(folder):
        if name.endswith(".wrapper.json"):  # what the runner's proxy executor calls
            os.rename(os.path.join(folder, name), os.path.join(folder, "kernel.json"))
    return path


def open_runner(torch, path):
    return torch._C._aoti.AOTIModelContainerRunnerCpu(path, 2)


def answer(runner, inputs):
    """Results as (dtype, sizes, strides, bytes), or the word that matters of a refusal."""
    try:
        results = runner.run([tensor.clone() for tensor in inputs])
    except RuntimeError as error:
        words = re.findall(r"out of bounds|ZeroDivisionError|unmatched \w+", str(error))
        return words[0] if words else "refused"
    return [(str(one.dtype), list(one.shape), list(one.stride()),
             bytes(one.resolve_conj().contiguous().reshape(-1).view(__import__("torch").uint8).tolist()))
            for one in results]


def check_calls(torch, builder):
    for name, (call, inputs, others) in choose_calls(torch).items():
        with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
            module = make_module(torch, call)
            own = build(torch, module, inputs, ours, builder)
            wrong = [] if builder.report() == {"by": "aoticache"} else [str(builder.report())]
            other = build(torch, module, inputs, theirs)
            if not wrong and os.path.getsize(own) > os.path.getsize(other) / 10:
                wrong.append(f"{os.path.getsize(own)} bytes, PyTorch's has {os.path.getsize(other)}")
            runners = open_runner(torch, own), open_runner(torch, other)
            for given in [inputs, *others, inputs]:
                got, want = (answer(runner, given) for runner in runners)
                if got != want:
                    wrong.append(f"{got!s:.200} is not {want!s:.200}")
        report(f"{name}: PyTorch's results and refusals, {len(others) + 2} runs", wrong)


def libraries_needed(path):
    dynamic = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"Shared library: \[([^]]+)\]", dynamic)


def check_several_kernels(torch, builder):
    """The C++ runtime is not loaded for them: that would take a process longer than to load and run a small model."""
    _, inputs, _ = make_calls(torch)["several kernels"]
    with tempfile.TemporaryDirectory() as folder:
        path = build(torch, make_module(torch, several_kernels), inputs, folder, builder)
        wrong = [name for name in libraries_needed(path) if "stdc++" in name or "gcc_s" in name]
        report("several kernels need no C++ runtime", wrong)
        # What they keep from run to run is made by whichever thread comes first.
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
        report("two threads run them for the first time", [] if right == [True] * 6 else [str(right)])


def check_library(torch, builder):
    """A kernel without C++: no C++ runtime, nothing exported but the interface, nothing that keeps it mapped."""
    with tempfile.TemporaryDirectory() as folder:
        path = build(torch, make_module(torch, torch.abs), (torch.randn(8, 33),), folder, builder)
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
        report(f"a library needs {len(needed)} others, {os.path.getsize(path)} bytes", wrong)


def check_dynamic(torch, builder):
    auto = torch.export.Dim.AUTO
    with tempfile.TemporaryDirectory() as folder:
        module = make_module(torch, lambda a, b: torch.softmax(a + b, -1))
        shapes = (({0: auto, 1: auto}, {0: auto, 1: auto}),)
        example = torch.randn(6, 20), torch.randn(6, 20)
        runner = open_runner(torch, build(torch, module, example, folder, builder, shapes))
        wrong = [] if builder.used else [builder.reason]
        for rows, columns in ((6, 20), (2, 3), (31, 65)):
            a, b = torch.randn(rows, columns), torch.randn(rows, columns)
            if not torch.allclose(runner.run([a, b])[0], module(a, b)):
                wrong.append(f"{rows} x {columns}")
        report("dynamic shapes", wrong)


def check_input_checks(torch, builder):
    """AOTI_RUNTIME_CHECK_INPUTS is read when a library runs for the first time, so in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = build(torch, make_module(torch, torch.abs), (torch.randn(4, 5),), folder, builder)
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
            done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True,
                                  env={**os.environ, "AOTI_RUNTIME_CHECK_INPUTS": value})
            said[value] = done.stdout.split(), done.stderr
    wrong = [] if said["1"][0] == ["refused"] * 3 + ["40.0"] else [str(said["1"])]
    for words in ("unmatched dim value at 1, expected: 5, but got: 6", "unmatched stride value", "unmatched dtype"):
        if words not in said["1"][1]:
            wrong.append(f"{words} is not in {said['1'][1]}")
    if said["0"][0][-1:] != ["40.0"] or "refused" in said["0"][0]:
        wrong.append(str(said["0"]))
    report("AOTI_RUNTIME_CHECK_INPUTS", wrong)


def check_threads(torch, builder):
    """Runs and failing runs of many threads at once; each frees what it made."""
    x, good, bad = torch.randn(8, 33), torch.tensor([3, 0, 7]), torch.tensor([3, 8, 7])
    call = make_calls(torch)["embedding and softmax"][0]
    with tempfile.TemporaryDirectory() as folder:
        runner = open_runner(torch, build(torch, make_module(torch, call), (good, x), folder, builder))
        want, wrong = call(good, x), []

        def play():
            for _ in range(200):
                if not torch.equal(runner.run([good.clone(), x.clone()])[0], first):
                    wrong.append("another result")
                try:
                    runner.run([bad.clone(), x.clone()])
                    wrong.append("a wrong index is accepted")
                except RuntimeError:
                    pass

        first = runner.run([good.clone(), x.clone()])[0]
        if not torch.allclose(first, want):
            wrong.append("the result")
        threads = [threading.Thread(target=play) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report("four threads, every second run fails", wrong)

        def fail():
            try:
                runner.run([bad, x])
            except RuntimeError:
                pass

        leaked = memory_in_use.bytes_per_call(fail, 2000)
        report(f"a run that fails leaks nothing ({leaked:.1f} bytes)", [] if leaked < 8 else [f"{leaked} bytes a run"])


def check_parallel(torch, builder):
    """
    A parallel loop gives the same with one thread, with two, and in threads of a parallel region, where each runs all of it:
    there, too, with one thread of their own.
    """
    def call(x):
        return x.sigmoid() * 3

    x = torch.randn(64, 1024)
    with tempfile.TemporaryDirectory() as folder, torch._inductor.config.patch({"cpp.dynamic_threads": True}):
        path = build(torch, make_module(torch, call), (x,), folder, builder)
        symbols = subprocess.run(["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout
        wrong = [] if "omp_in_parallel" in symbols else ["a parallel loop begins without asking for the threads"]
        report("a parallel loop asks first for the number of threads", wrong)
        if wrong:
            return  # threads of a region would wait for each other
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
            runtime.omp_set_num_threads(threads)  # of this thread, for as long as the region lasts
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
        if not torch.allclose(want, call(x), rtol=1e-5):
            wrong.append("not PyTorch's values")
    report("a parallel loop, with one thread, two, and within a region", wrong)


def check_unload(torch, builder):
    """Loaded and closed again, the library is not mapped any more."""
    with tempfile.TemporaryDirectory() as folder:
        path = build(torch, make_module(torch, torch.abs), (torch.randn(8, 33),), folder, builder)
        libc = ctypes.CDLL(None)
        libc.dlopen.restype, libc.dlclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        handle = libc.dlopen(os.fsencode(path), os.RTLD_NOW)
        loaded = path in open("/proc/self/maps").read()
        libc.dlclose(handle)
        left = path in open("/proc/self/maps").read()
        report("dlclose() unmaps it", [] if loaded and not left else [f"loaded {loaded}, left {left}"])


def check_fallbacks(torch):
    """Whatever is in the way, there is a library, PyTorch's, with the reason."""
    module = own_build.load_module()
    missing = os.path.join(own_build.BUILD, "no", "libaoticache_runtime.a")
    changes = {
        "no runtime library": (dict(runtime=missing), {}, "is not installed"),
        "another interface": ({}, {"INTERFACE": os.path.join("_inductor", "config.py")}, "does not contain"),
        "a compiler that fails": ({}, {"COMPILE": ("-fno-such-option",)}, "no-such-option"),
        "a name that the header lacks": ({}, {"slim_text": lambda *given: module_text(*given) + "new_class one;\n"},
                                         "new_class"),
        "a symbol that nobody has": ({}, {"FROM_TORCH": re.compile("^aoti_torch_delete")}, "is in none of"),
    }
    x, module_text = torch.randn(7), module.slim_text
    for name, (places, globals_, words) in changes.items():
        before = {key: getattr(module, key) for key in globals_}
        for key, value in globals_.items():
            setattr(module, key, value)
        builder = module.Builder(torch, places)
        with tempfile.TemporaryDirectory() as folder:
            path = build(torch, make_module(torch, torch.abs), (x,), folder, builder)
            said = builder.report()
            wrong = [] if said["by"] == "pytorch" and words in said["reason"] else [str(said)]
            if not torch.equal(open_runner(torch, path).run([x])[0], x.abs()):
                wrong.append("the result")
        for key, value in before.items():
            setattr(module, key, value)
        report(f"{name}: built PyTorch's way", wrong)


VALGRIND_ERROR = 9
VALGRINDS_CPU = "x86-64-v3" if platform.machine() == "x86_64" else None


def check_failing_run(torch, builder):
    """A run that an operator ends drops the tensors that it has made while they are on its stack. Only valgrind sees that."""
    def call(x):
        y, z = x.sin() + 1, x.cos() @ x
        return torch.linalg.cholesky(x) * y + z

    tool = os.path.join(own_build.BUILD, "bin", "aoticache")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pt2")
        program = torch.export.export(make_module(torch, call), (torch.eye(4),))
        options = {}
        # valgrind has no AVX-512
        with torch.no_grad(), builder.active(), own_build.load_worker().compile_for(VALGRINDS_CPU, options):
            torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=options)
        command = [tool, "run-package", path, "--cache-dir", os.path.join(folder, "cache"), "--input", "float32:4x4=zeros"]
        valgrind = shutil.which("valgrind")
        for name, before in (("", []), (" under valgrind", [valgrind, f"--error-exitcode={VALGRIND_ERROR}", "--quiet"])):
            if before and valgrind is None:
                print("skip - a run that fails, under valgrind: it is not installed")
                continue
            done = subprocess.run([*before, *command], capture_output=True, text=True)
            is_told = "linalg.cholesky" in done.stderr or "proxy_executor" in done.stderr
            report("a run that an operator ends" + name, [] if done.returncode == 1 and is_told else
                   [f"status {done.returncode}", *done.stderr.splitlines()])


def main():
    try:
        import torch
    except ImportError:
        print("skip - Inductor's code in our container: this Python has no PyTorch")
        return 77
    torch.manual_seed(5)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    builder = own_build.make_builder(torch)
    check_calls(torch, builder)
    check_library(torch, builder)
    check_several_kernels(torch, builder)
    check_dynamic(torch, builder)
    check_input_checks(torch, builder)
    check_threads(torch, builder)
    check_parallel(torch, builder)
    check_unload(torch, builder)
    check_failing_run(torch, builder)
    check_fallbacks(torch)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
