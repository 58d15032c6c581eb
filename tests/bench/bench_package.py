"""Benchmarks of loading a .pt2 package that was loaded before: ours in a process without PyTorch, ours beside PyTorch,
and torch._inductor.aoti_load_package, each in fresh processes that take turns. Processes with PyTorch have loaded
another package before, so that what is imported and started once is not counted; the one without PyTorch has not. Time
is that of the loading call alone (hashing of the package included), bytes are what the process writes until all is
closed.

Prints one JSON object per line (scripts/bench collects them). Environment: BUILD, the build folder.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import package_host
import package_models

ROUNDS = int(os.environ.get("BENCH_PACKAGE_ROUNDS", "5"))
BIG_ELEMENTS = 16 << 20


def written():
    with open("/proc/self/io") as counters:
        return int(next(line for line in counters if line.startswith("wchar")).split()[1])


def private_kb():
    """What no other process can share: anonymous memory, and pages of files that were written to."""
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty"))


def load_ours(what, directory):
    """what: a package, or the key of one."""
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


def make_big(folder):
    """64 MiB of weights in a file of their own."""
    path = os.path.join(folder, "big.pt2")
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
    print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, "peer": peer,
                      "peer_value": round(peer_value, 3), "ratio": round(ratio, 4), "target": target,
                      "target_is": "ratio", "met": None if target is None else ratio <= target}), flush=True)


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


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("bench_package: no PyTorch, nothing to compare with", file=sys.stderr)
        return
    folder = package_models.packages()
    warm_up = os.path.join(folder, "blob.pt2")
    with tempfile.TemporaryDirectory() as directory:
        # Of a large package the time is SHA-256's, over the package and over its objects; PyTorch verifies nothing.
        for name, path, target in (("1.5 MB", os.path.join(folder, "embedded.pt2"), 1.0),
                                   ("64 MB of weights", make_big(folder), None)):
            tool = os.path.join(package_models.BUILD, "bin", "aoticache")
            added = subprocess.run([tool, "add", "--json", path, warm_up, "--cache-dir", directory], check=True,
                                   stdout=subprocess.PIPE).stdout
            compare(name, path, json.loads(added)[0]["key"], directory, warm_up, target)


if __name__ == "__main__":
    if len(sys.argv) == 5:
        play(*sys.argv[1:])
    else:
        main()
