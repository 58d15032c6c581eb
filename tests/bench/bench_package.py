"""Benchmarks of .pt2 packages, in fresh processes that alternate.

Loading a package that was loaded earlier: by our loader in a process without PyTorch, by our loader in a process with
PyTorch, and by torch._inductor.aoti_load_package. Processes with PyTorch have loaded another package first, so that
imports and one-time initialisation are not counted; the one without PyTorch has not. Time is that of the loading call
alone (it hashes the package), bytes are those written by the process until everything is closed.

Starting a program: whole processes, from their start to their end, that load a package and run it once. The package is
in our cache. Each process has its own empty TORCHINDUCTOR_CACHE_DIR, as on a new machine or in a new container:
PyTorch's loader then compiles trial programs to find out what the processor supports
(https://github.com/pytorch/pytorch/issues/191715). A further row has PyTorch's loader with a directory that an earlier
process filled. Processor seconds are those of the process and its children.

Prints one JSON object per line (scripts/bench collects them). Environment: BUILD, the build directory; BENCH_QUICK:
three rounds of starts, no loads; BENCH_PACKAGE_ROUNDS.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench_lines import IS_QUICK, left_out

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import search_path  # noqa: F401
import package_host
import package_models

ROUNDS = int(os.environ.get("BENCH_PACKAGE_ROUNDS", "3" if IS_QUICK else "5"))
BIG_ELEMENTS = 16 << 20
#: Importing torch is most of a start with our loader, which may add a third to it (a twentieth was measured). The time
#: of PyTorch's loader depends on the number of trial programs for this processor, so there the limit is only not to be
#: slower.
IMPORT_LIMIT, PEER_LIMIT = 1.33, 1.0


def written():
    with open("/proc/self/io") as counters:
        return int(next(line for line in counters if line.startswith("wchar")).split()[1])


def private_kb():
    """Returns memory that no other process can share: anonymous memory, and written pages of files."""
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty"))


def load_ours(what, directory):
    """Measures a load. what: a package, or the key of one."""
    host = package_host.Host(directory)
    private = private_kb()
    begun, bytes_before = time.perf_counter(), written()
    runner, report = host.load(what) if os.path.exists(what) else host.load_key(what)
    seconds, count, private = time.perf_counter() - begun, written() - bytes_before, private_kb() - private
    host.unload(runner)
    host.close()
    assert not report.added and report.stored
    return seconds, count, private


def load_theirs(path):
    import torch._inductor
    private = private_kb()
    begun, bytes_before = time.perf_counter(), written()
    runner = torch._inductor.aoti_load_package(path)
    seconds, count, private = time.perf_counter() - begun, written() - bytes_before, private_kb() - private
    del runner
    return seconds, count, private


def play(kind, what, directory, warm_up):
    """One measurement."""
    if kind != "alone":
        import torch  # noqa: F401
        import torch._inductor  # noqa: F401
        load_theirs(warm_up) if kind == "theirs" else load_ours(warm_up, directory)
    seconds, count, private = load_theirs(what) if kind == "theirs" else load_ours(what, directory)
    print(json.dumps([seconds * 1e3, count, private]))


def make_big(subdirectory):
    """Makes a package with 64 MiB of weights in a separate file."""
    path = os.path.join(subdirectory, "big.pt2")
    if not os.path.exists(path):
        import torch

        class Big(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.arange(float(BIG_ELEMENTS)))

            def forward(self, x):
                return x * self.weight

        exported = torch.export.export(Big().eval(), (torch.zeros(BIG_ELEMENTS),))
        torch._inductor.aoti_compile_and_package(
            exported, package_path=path,
            inductor_configs={"aot_inductor.package_constants_on_disk_format": "binary_blob"})
    return path


def row(name, unit, value, peer, peer_value, target):
    ratio = value / peer_value if peer_value else 0.0
    print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, "peer": peer,
                      "peer_value": round(peer_value, 3), "ratio": round(ratio, 5), "target": target,
                      "met": None if target is None else ratio <= target}), flush=True)


def compare(name, path, key, directory, warm_up, target):
    results = {"alone": [], "beside": [], "key": [], "theirs": []}
    for _ in range(ROUNDS):
        for kind, found in results.items():
            words = [kind, key if kind == "key" else path, directory, warm_up]
            answer = subprocess.run([sys.executable, "-W", "ignore", __file__, *words], check=True,
                                    stdout=subprocess.PIPE).stdout
            found.append(json.loads(answer.splitlines()[-1]))
    times = {kind: statistics.median(r[0] for r in found) for kind, found in results.items()}
    counts = {kind: statistics.median(r[1] for r in found) for kind, found in results.items()}
    peer = "aoti_load_package"
    row(f"second load of a package, {name}, without PyTorch", "ms", times["alone"], peer, times["theirs"], target)
    row(f"second load of a package, {name}, beside PyTorch", "ms", times["beside"], peer, times["theirs"], target)
    row(f"second load of a package, {name}, by its key", "ms", times["key"], peer, times["theirs"], target)
    row(f"bytes it writes, {name}", "KB", counts["beside"] / 1e3, peer, counts["theirs"] / 1e3, 0.1)
    if target is None:
        memory = {kind: statistics.median(r[2] for r in found) / 1024 for kind, found in results.items()}
        row(f"memory of its own, {name}", "MiB", memory["alone"], peer, memory["theirs"], 0.1)


# ---- starts ----

TOOL = os.path.join(package_models.BUILD, "bin", "aoticache")
STARTS = {
    "PyTorch": "import sys, torch, torch._inductor\n"
               "model = torch._inductor.aoti_load_package(sys.argv[1])\n"
               "model(torch.ones(4, 64))\n",
    "ours": "import sys, torch, aoticache\n"
            "model = aoticache.load_package(sys.argv[1], cache_dir=sys.argv[2])\n"
            "model(torch.ones(4, 64))\n",
}


def make_small():
    """Returns the path of the package that processes start with; it is compiled once per build directory."""
    subdirectory = os.path.join(package_models.BUILD, "bench-packages")
    path = os.path.join(subdirectory, "start.pt2")
    if not os.path.exists(path):
        import torch
        os.makedirs(subdirectory, exist_ok=True)
        linear = package_models.define_modules(torch)[0]
        exported = package_models.export(torch, linear, (torch.zeros(4, 64),))
        torch._inductor.aoti_compile_and_package(exported, package_path=f"{subdirectory}/new.pt2")
        os.rename(f"{subdirectory}/new.pt2", path)
    return path


def run_whole(command, inductor_directory):
    """Returns (seconds, processor seconds) of a process and its children, from its start to its end."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": inductor_directory,
                   "PYTHONPATH": os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "eager", "torch")}
    environment.pop("TORCHINDUCTOR_VEC_ISA_OK", None)  # it would give PyTorch the result of the trial programs
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"bench_package: {command[0]} ended with {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime


def compare_starts(directory):
    path = make_small()
    subprocess.run([TOOL, "add", path, "--cache-dir", directory], check=True, stdout=subprocess.DEVNULL)
    python = [sys.executable, "-W", "ignore", "-c"]
    commands = {"import": [*python, "import torch"], "PyTorch": [*python, STARTS["PyTorch"], path],
                "filled": [*python, STARTS["PyTorch"], path],
                "ours": [*python, STARTS["ours"], path, directory],
                "tool": [TOOL, "run-package", path, "--cache-dir", directory, "--input", "float32:4x64=ones"]}
    found = {kind: [] for kind in commands}
    for _ in range(ROUNDS):
        for kind, command in commands.items():
            empty = tempfile.mkdtemp()
            if kind == "filled":  # with files that the previous process left
                shutil.rmtree(empty)
                empty = kept
            found[kind].append(run_whole(command, empty))
            if kind == "PyTorch":
                kept = empty
            else:
                shutil.rmtree(empty)
    for at, what in enumerate(("", ", processor time")):
        times = {kind: statistics.median(both[at] for both in values) for kind, values in found.items()}
        peer, start = "aoti_load_package", "start with a package, Inductor's directory empty"
        row(f"{start}, load_package{what}", "s", times["ours"], peer, times["PyTorch"], PEER_LIMIT)
        row(f"{start}, run-package{what}", "s", times["tool"], peer, times["PyTorch"], PEER_LIMIT)
        row(f"start with a package, load_package{what}", "s", times["ours"], f"{peer}, Inductor's directory filled",
            times["filled"], PEER_LIMIT)
        row(f"start with a package, load_package, beside PyTorch alone{what}", "s", times["ours"], "import torch",
            times["import"], IMPORT_LIMIT if what else None)  # elapsed time depends on how busy the machine is


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        left_out("packages", "there is no PyTorch to compile and to compare with")
        return
    with tempfile.TemporaryDirectory() as directory:
        compare_starts(directory)
    if IS_QUICK:
        left_out("loads of packages of 1.5 MB and 64 MB in a process that runs already", "QUICK=1")
        return
    subdirectory = package_models.packages()
    warm_up = os.path.join(subdirectory, "blob.pt2")
    with tempfile.TemporaryDirectory() as directory:
        # The time of a large package is that of SHA-256, over the package and over its objects; PyTorch verifies
        # nothing.
        for name, path, target in (("1.5 MB", os.path.join(subdirectory, "embedded.pt2"), 1.0),
                                   ("64 MB of weights", make_big(subdirectory), None)):
            added = subprocess.run([TOOL, "add", "--json", path, warm_up, "--cache-dir", directory], check=True,
                                   stdout=subprocess.PIPE).stdout
            compare(name, path, json.loads(added)[0]["key"], directory, warm_up, target)


if __name__ == "__main__":
    if len(sys.argv) == 5:
        play(*sys.argv[1:])
    else:
        main()
