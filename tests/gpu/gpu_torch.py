"""What PyTorch does with the cache on a GPU: enabled operators, torch.compile, whole models.

    gpu_torch.py [--device cuda] [--work DIRECTORY] [PART ...]

Each part is played by processes of its own, the later ones with what the first has stored, and PyTorch is asked for every
result. With --device cpu the same is played without a GPU, to try this file itself. Prints "ok - NAME", "not ok - NAME",
"skip - NAME: REASON", and lines of figures that begin with "#".
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
PROGRAMS = os.path.join(TOP, "tests", "python", "compile_cache", "compile_programs.py")
LIMIT = 400  # seconds a process may take
parts = []


def part(function):
    parts.append(function)
    return function


class Failed(Exception):
    """A process that did not end well, with what it said."""


class Context:
    def __init__(self, device, work):
        self.device, self.work = device, work

    def directory(self, name):
        return tempfile.mkdtemp(prefix=f"{name}-", dir=self.work)

    def environment(self, cache, **more):
        """Returns the environment of a machine that has nothing but this cache."""
        variables = {**os.environ, "PYTHONPATH": os.path.join(TOP, "eager", "torch"), "AOTICACHE_HOME": BUILD,
                     "AOTICACHE_DIR": cache, "AOTICACHE_CONFIG": "", "PYTHONDONTWRITEBYTECODE": "1",
                     "TORCHINDUCTOR_CACHE_DIR": self.directory("inductor"), "HOME": self.directory("home"),
                     "DEVICE": self.device, "CC": None, "CXX": None, **more}  # PyTorch has CXX in its keys
        return {name: value for name, value in variables.items() if value is not None}

    def run(self, cache, *words, **more):
        """The report that a process prints in its last line."""
        done = subprocess.run([sys.executable, *words], env=self.environment(cache, **more), capture_output=True,
                              text=True, timeout=LIMIT)
        if done.returncode != 0:
            raise Failed(f"status {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-3500:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def play(self, cache, text, **more):
        return self.run(cache, "-c", textwrap.dedent(text), **more)

    def without_compiler(self):
        return {"PATH": self.directory("path")}


def say(text):
    print(f"# {text}", flush=True)


# ---- operators ----

#: Plays calls of operators, each in several forms; "wait" compiles what is missing, "never" takes what is there.
OPERATORS = """
    import json, os, sys, time
    import torch, aoticache
    device, mode = os.environ["DEVICE"], os.environ["MODE"]
    F = torch.nn.functional

    def numbers(*sizes, dtype=torch.float32):
        generator = torch.Generator().manual_seed(sum(sizes))
        return torch.randn(*sizes, generator=generator).to(device, dtype)

    x, y, w = numbers(33, 130), numbers(33, 130).abs() + 1, numbers(130)
    half = numbers(64, 64, dtype=torch.bfloat16)
    images = numbers(2, 8, 12, 12).to(memory_format=torch.channels_last)
    rows = torch.tensor([3, 0, 32, 3], device=device)
    calls = {
        "aten::abs": lambda: (torch.abs(x), torch.abs(x.t()), torch.abs(half)),
        "aten::add.Tensor": lambda: (x + y, x + 2, torch.add(x, w, alpha=3)),
        "aten::mul.Tensor": lambda: (x * y, half * half),
        "aten::where.self": lambda: torch.where(x > 0, x, y),
        "aten::clamp": lambda: torch.clamp(x, -1, 0.5),
        "aten::gelu": lambda: F.gelu(x),
        "aten::sigmoid": lambda: (torch.sigmoid(x), torch.sigmoid(images)),
        "aten::_softmax": lambda: torch.softmax(x, 1),
        "aten::native_layer_norm": lambda: F.layer_norm(x, (130,), w, w),
        "aten::sum.dim_IntList": lambda: x.sum(1),
        "aten::add_.Tensor": lambda: x.clone().add_(y),
        "aten::relu.out": lambda: torch.ops.aten.relu.out(x, out=torch.empty_like(x)),
        "aten::index_select": lambda: torch.index_select(x, 0, rows),
        "aten::remainder.Tensor": lambda: torch.remainder((x * 9).int(), 7 + (y * 3).int()),
    }
    #: What PyTorch answers, because the data of its arguments is on the device.
    by_data = {"aten::index_select", "aten::remainder.Tensor"} if device != "cpu" else set()

    def flat(value):
        return [value] if isinstance(value, torch.Tensor) else list(value)

    torch.set_grad_enabled(False)
    expected = {name: flat(call()) for name, call in calls.items()}
    begun = time.monotonic()
    enabled = aoticache.enable(*calls, device=device, mode="background" if mode == "compile" else mode,
                               dynamic="never", workers=int(os.environ["WORKERS"]), judge=False)
    assert set(enabled.operators) | set(enabled.pending) == set(calls), enabled
    started = []
    sys.addaudithook(lambda event, arguments: started.append(str(arguments[0]))
                     if event in ("subprocess.Popen", "os.posix_spawn", "os.system") else None)
    if mode == "compile":
        aoticache.wait(LIMIT)
        for _ in range(3):  # the kernels that are missing, one form after the other
            for call in calls.values():
                call()
            aoticache.wait(LIMIT)
    before = {name: aoticache.stats().operators[name].hits for name in calls}
    wrong, values = [], {}
    for name, call in calls.items():
        got = flat(call())
        for one, other in zip(got, expected[name]):
            if one.shape != other.shape or one.stride() != other.stride() or one.dtype != other.dtype:
                wrong.append(f"{name}: {one.dtype} {one.shape} {one.stride()}, not {other.dtype} {other.shape} {other.stride()}")
            elif not torch.allclose(one.double(), other.double(), rtol=1e-5 if one.dtype == torch.float32 else 1e-2, atol=1e-5):
                wrong.append(f"{name}: differs by {(one.double() - other.double()).abs().max()}")
        values[name] = [one.double().sum().item() for one in got]
    statistics = aoticache.stats().operators
    for name in calls:
        hits = statistics[name].hits - before[name]
        if (hits == 0) != (name in by_data):
            wrong.append(f"{name}: {hits} hits, {statistics[name]}")

    # A call goes to the stream that is current: what it reads is made there, after a wait.
    if device != "cpu":
        stream, late = torch.cuda.Stream(), torch.zeros(33, 130, device=device)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(500_000_000)
            late.copy_(x)
            result = torch.abs(late)
        pending = not stream.query()
        torch.cuda.synchronize()
        if not pending or not torch.equal(result, expected["aten::abs"][0]):
            wrong.append("a call on a stream")
        try:
            out = torch.index_select(x, 0, torch.tensor([0, 1], device=device))
        except Exception as error:
            wrong.append(f"index_select: {error}")

    # Gradients, through kernels of the cache.
    torch.set_grad_enabled(True)
    one = x.clone().requires_grad_()
    (torch.sigmoid(one) * y).sum().backward()
    plain = torch.sigmoid(x)
    if not torch.allclose(one.grad, plain * (1 - plain) * y, atol=1e-5):
        wrong.append("a gradient")
    torch.set_grad_enabled(False)

    def nanoseconds(call, count=2000):
        for _ in range(200):
            call()
        if device != "cpu":
            torch.cuda.synchronize()
        begun = time.perf_counter_ns()
        for _ in range(count):
            call()
        if device != "cpu":
            torch.cuda.synchronize()
        return (time.perf_counter_ns() - begun) / count

    timed = {"abs": lambda: torch.abs(x), "add": lambda: x + y, "softmax": lambda: torch.softmax(x, 1),
             "layer_norm": lambda: F.layer_norm(x, (130,), w, w)}
    ours = {name: min(nanoseconds(call) for _ in range(3)) for name, call in timed.items()} if mode == "never" else {}
    total, interface = time.monotonic() - begun, aoticache.stats().interface
    aoticache.disable()
    theirs = {name: min(nanoseconds(call) for _ in range(3)) for name, call in timed.items()} if mode == "never" else {}
    print(json.dumps({"wrong": wrong, "values": values, "started": started, "seconds": total, "interface": interface,
                      "nanoseconds": {name: [ours[name], theirs[name]] for name in ours}}))
""".replace("LIMIT", str(LIMIT))


@part
def operators(context):
    """A process compiles, a second one has hits alone, equal to PyTorch's and to the first one's to the last bit."""
    cache, workers = context.directory("cache"), str(min(8, os.cpu_count() or 1))
    first = context.play(cache, OPERATORS, MODE="compile", WORKERS=workers)
    assert not first["wrong"], first["wrong"]
    second = context.play(cache, OPERATORS, MODE="never", WORKERS="1", **context.without_compiler())
    assert not second["wrong"], second["wrong"]
    assert second["values"] == first["values"]
    assert second["started"] == [], second["started"]
    say(f"operators: compiled in {first['seconds']:.1f} s by {workers} workers, a second process took "
        f"{second['seconds']:.1f} s, by {second['interface']}")
    for name, (ours, theirs) in second["nanoseconds"].items():
        say(f"operators: {name}: {ours / 1000:.2f} us a call, plain PyTorch {theirs / 1000:.2f}, ratio {ours / theirs:.2f}")


# ---- torch.compile ----

COMPILED = ("pointwise", "chain", "reduction", "normalizations", "dynamic", "bfloat16", "indexing", "graph_break",
            "training", "convolutions", "attention", "embedding_training", "optimizer", "transformer")


def is_compiler(words):
    """Triton asks ldconfig where the driver is, and ptxas for its version; Inductor starts a Python that would compile."""
    return not any("ldconfig" in word or "--version" in word or "compile_worker" in word for word in words)


@part
def torch_compile(context):
    """Programs in a fresh machine's state without a compiler, with the cache that another process has filled."""
    cache = context.directory("cache")
    words = (PROGRAMS, "--device", context.device)
    filled = context.run(cache, *words, *COMPILED)
    unlike = [name for name, one in filled["programs"].items() if not one["same"]]
    assert not unlike, f"compiled programs differ from PyTorch's without the compiler: {unlike}"
    warm = context.run(cache, *words, *COMPILED, **context.without_compiler())
    started = [one for one in warm["started"] if is_compiler(one)]
    differ = [name for name in COMPILED if warm["programs"][name]["digest"] != filled["programs"][name]["digest"]]
    for kind, counts in warm["counts"].items():
        say(f"torch.compile: {kind}: {counts}")
    say(f"torch.compile: processes: {warm['started'][:6]}")
    local = {"TORCHINDUCTOR_CACHE_DIR": context.directory("local"), "HOME": context.directory("home")}
    context.run(cache, *words, "--uninstalled", *COMPILED, **local)
    alone = context.run(cache, *words, "--uninstalled", *COMPILED, **local)
    seconds = [sum(one["seconds"] for one in found["programs"].values()) for found in (filled, warm, alone)]
    say("torch.compile: {} programs: cold {:.1f} s, with the cache in an empty machine {:.2f} s, PyTorch's own warm "
        "directories {:.2f} s".format(len(COMPILED), *seconds))
    for name in COMPILED:
        say(f"torch.compile: {name}: {warm['programs'][name]['seconds']:.3f} s, PyTorch's own warm "
            f"{alone['programs'][name]['seconds']:.3f}")
    assert not started, started
    assert set(differ) <= {"indexing"}, f"other bits: {differ}"  # it adds to one place in any order
    assert not warm["warnings"], warm["warnings"]
    missed = {kind: counts["misses"] for kind, counts in warm["counts"].items() if counts["misses"]}
    assert not missed, missed


# ---- Triton ----

TRITON = """
    import json, sys, time, warnings
    started, said = [], []
    warnings.showwarning = lambda message, *_: said.append(str(message))
    import torch, aoticache_autoload, triton
    import triton.language as tl
    aoticache_autoload.autoload()  # as `import torch` does where the package is installed

    @triton.jit
    def add(x, y, out, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, at < count) + tl.load(y + at, at < count), at < count)

    sys.addaudithook(lambda event, arguments: started.append(str(arguments[1]))
                     if event in ("subprocess.Popen", "os.posix_spawn", "os.system") else None)
    x, y = torch.randn(2, 100003, device="cuda")
    torch.cuda.synchronize()
    begun, same = time.perf_counter(), True
    for block in (64, 128, 256, 512, 1024):
        out = torch.zeros_like(x)
        add[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)
        same = same and torch.equal(out, x + y)
    print(json.dumps({"seconds": time.perf_counter() - begun, "same": same, "started": started, "warnings": said}))
"""


@part
def triton_alone(context):
    """Triton's kernels run from the cache in an empty machine's state, from another directory, without a compiler."""
    if context.device == "cpu":
        print("skip - triton alone: played on the CPU")
        return
    cache, seconds = context.directory("cache"), []
    path = os.path.join(context.work, "kernel.py")
    with open(path, "w") as file:
        file.write(textwrap.dedent(TRITON))
    manager = "aoticache.triton:CacheManager"
    for more in ({}, context.without_compiler()):
        found = context.run(cache, path, TRITON_CACHE_MANAGER=manager, TRITON_CACHE_DIR=context.directory("triton"), **more)
        assert found["same"] and not found["warnings"], found
        seconds.append(found["seconds"])
    started = [one for one in found["started"] if "ldconfig" not in one and "--version" not in one]
    assert not started, started
    own = {"TRITON_CACHE_DIR": context.directory("triton"), "HOME": context.directory("home")}
    for _ in range(2):
        alone = context.run(cache, path, **own)
    say("triton alone: five kernels: cold {:.2f} s, from the cache {:.3f} s, Triton's own warm directory {:.3f} s".format(
        *seconds, alone["seconds"]))


# ---- whole models ----

MODULE = """
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512),
                                              torch.nn.Linear(512, 64))
            self.register_buffer("scale", torch.linspace(0.5, 2, 64))

        def forward(self, x):
            return self.layers(x).softmax(-1) * self.scale
"""

MODEL = """
    import json, os, sys, threading, time
    import torch, aoticache
    device = os.environ["DEVICE"]

    MODULE
    torch.manual_seed(3)
    model = Model().eval().to(device)
    x = torch.randn(17, 256).to(device)
    rows = torch.export.Dim("rows", min=2, max=512)
    torch.set_grad_enabled(False)
    if device != "cpu":
        torch.cuda.synchronize()
    begun = time.monotonic()
    compiled = aoticache.compile(model, (x,), dynamic_shapes=({0: rows},), id="gpu-test", num_runners=4)
    compiled(x).cpu()
    seconds = time.monotonic() - begun
    wrong = []

    def compare(what, ours, module, x):
        if not torch.allclose(ours, module(x), rtol=1e-4, atol=1e-5):
            wrong.append(f"{what}: differs by {(ours - module(x)).abs().max()}")

    for size in (17, 2, 300):
        given = torch.randn(size, 256).to(device)
        compare(f"{size} rows", compiled(given), model, given)
    if device != "cpu":
        stream, late = torch.cuda.Stream(), torch.zeros_like(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(500_000_000)
            late.copy_(x)
            result = compiled(late)
        pending = not stream.query()
        torch.cuda.synchronize()
        if not pending:
            wrong.append("a run on a stream waited for it")
        compare("a run on a stream", result, model, x)

    # New weights while threads run: each result is of the old ones or of the new ones.
    tuned = Model().eval().to(device)
    old, new = model(x), tuned(x)
    torn, stop = [], threading.Event()

    def run():
        with torch.no_grad():
            while not stop.is_set():
                got = compiled(x)
                if not torch.allclose(got, old, atol=1e-5) and not torch.allclose(got, new, atol=1e-5):
                    torn.append(1)
    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    states = [dict(one.state_dict()) for one in (tuned, model, tuned)]
    for state in states:
        compiled.update_weights(state)
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    if torn:
        wrong.append(f"{len(torn)} torn results")
    compare("new weights", compiled(x), tuned, x)
    again = aoticache.load("gpu-test")
    compare("the stored model", again(x), model, x)
    origin = compiled.origin
    print(json.dumps({"wrong": wrong, "source": origin.source, "device": origin.device, "seconds": seconds,
                      "sum": again(x).double().sum().item()}))
"""


#: PyTorch's own way to the first output, with a package that it has made.
PACKAGE = """
    import json, os, time
    import torch, torch._inductor.package
    MODULE
    device, path = os.environ["DEVICE"], os.environ["PACKAGE"]
    torch.set_grad_enabled(False)
    x = torch.randn(17, 256).to(device)
    if not os.path.exists(path):
        rows = torch.export.Dim("rows", min=2, max=512)
        program = torch.export.export(Model().eval().to(device), (x,), dynamic_shapes=({0: rows},))
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    if device != "cpu":
        torch.cuda.synchronize()
    begun = time.monotonic()
    result = torch._inductor.aoti_load_package(path)(x).cpu()
    print(json.dumps({"seconds": time.monotonic() - begun, "finite": result.isfinite().all().item()}))
"""


def with_module(text):
    return text.replace("    MODULE\n", MODULE)


@part
def models(context):
    """A model is compiled once, and a process without a compiler has it at once; streams, new weights, free sizes."""
    cache, package = context.directory("cache"), os.path.join(context.directory("package"), "model.pt2")
    first = context.play(cache, with_module(MODEL))
    assert not first["wrong"], first["wrong"]
    assert first["source"] == "compiled" and first["device"].startswith(context.device), first
    second = context.play(cache, with_module(MODEL), **context.without_compiler())
    assert not second["wrong"], second["wrong"]
    assert second["source"] == "stored" and second["sum"] == first["sum"], second
    say(f"models: the first output: compiled in {first['seconds']:.1f} s, from the cache in {second['seconds'] * 1000:.0f} ms")
    local = {"TORCHINDUCTOR_CACHE_DIR": context.directory("local"), "HOME": context.directory("home")}
    for _ in range(2):  # the second with PyTorch's own warm directories
        plain = context.play(cache, with_module(PACKAGE), PACKAGE=package, **local)
        assert plain["finite"], plain
    say(f"models: the first output by PyTorch's aoti_load_package: {plain['seconds'] * 1000:.0f} ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--work")
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    failed = 0
    work = tempfile.mkdtemp(prefix="aoticache-gpu-torch-", dir=options.work)
    try:
        for function in parts:
            name = f"{function.__name__} on {options.device}".replace("_", " ")
            if options.parts and function.__name__ not in options.parts:
                continue
            try:
                function(Context(options.device, work))
                print(f"ok - {name}", flush=True)
            except (Failed, AssertionError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
                failed += 1
                print(f"not ok - {name}", flush=True)
                say(f"{type(error).__name__}: {error}"[:6000].replace("\n", "\n# "))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
