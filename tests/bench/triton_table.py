"""Benchmark: Triton's kernels from the cache compared with Triton's own directory (docs/performance.md).

Compiles KERNELS kernels for an H100 (GPUTarget("cuda", 90, 32), which needs no GPU) in one process, and looks all of
them up in others: with Triton's own cache manager and its directory warm, with aoticache.triton and its directory warm,
with aoticache.triton in an empty directory, and both after the directory was moved. Counts the files that each has for
them.

Prints one JSON object per line, as the benchmarks of `make bench` do. If triton is not installed, it reports that and
exits with 0 (PYTHONPATH may have it). By hand: build/venv/bin/python tests/bench/triton_table.py [KERNELS]
"""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
TOOL = os.path.join(BUILD, "bin", "aoticache")
KERNELS = int(sys.argv[1]) if sys.argv[1:] else 200

PLAYER = '''
import hashlib, json, sys, time
import triton, triton.language as tl
from triton.compiler import ASTSource
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
runs, own = [], CUDABackend.make_cubin
CUDABackend.make_cubin = lambda self, *arguments, **more: (runs.append(1), own(self, *arguments, **more))[1]

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr, MORE: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n) + MORE, i < n)

def build(number):
    source = ASTSource(add, {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr", "MORE": "constexpr"},
                       {(3,): 64, (4,): number})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32))
import triton.runtime.cache
triton.runtime.cache.get_cache_manager("0" * 64)  # imports the manager, as every program does once
begun, spent, hasher = time.perf_counter(), time.process_time(), hashlib.sha256()
for number in range(int(sys.argv[1])):
    hasher.update(build(number).asm["cubin"])
print(json.dumps({"seconds": time.perf_counter() - begun, "processor": time.process_time() - spent, "compiled": len(runs),
                  "cubins": hasher.hexdigest()}))
'''


def run(file, directory, cache=""):
    """Looks all kernels up; with a cache through aoticache.triton, otherwise through Triton's own manager."""
    more = filter(None, (os.path.join(TOP, "eager", "torch"), os.environ.get("PYTHONPATH")))
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(more), "AOTICACHE_HOME": BUILD, "AOTICACHE_CONFIG": "",
                 "TRITON_CACHE_DIR": directory}
    variables.pop("TRITON_CACHE_MANAGER", None)
    if cache:
        variables.update(AOTICACHE_DIR=cache, TRITON_CACHE_MANAGER="aoticache.triton:CacheManager")
    done = subprocess.run([sys.executable, "-W", "ignore", file, str(KERNELS)], env=variables, check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def moved(subdirectory, cache):
    """Returns the cache as another machine receives it."""
    archive, other = os.path.join(subdirectory, "kernels.tar"), os.path.join(subdirectory, "other")
    for command, directory in (("export", cache), ("import", other)):
        subprocess.run([TOOL, command, archive], env={**os.environ, "AOTICACHE_DIR": directory, "AOTICACHE_CONFIG": "",
                                                             "AOTICACHE_KEYS": os.path.join(subdirectory, "keys")},
                       check=True, capture_output=True)
    return other


def files_below(subdirectory):
    return sum(len(files) for _, _, files in os.walk(subdirectory))


def report(name, value, peer, peer_value, target=None, unit="s"):
    ratio = value / peer_value if peer_value else 0
    print(json.dumps({"name": name, "value": value, "unit": unit, "peer": peer, "peer_value": peer_value, "ratio": ratio,
                      "target": target, "met": None if target is None else ratio <= target}), flush=True)


def measure(subdirectory):
    file = os.path.join(subdirectory, "kernels.py")
    with open(file, "w") as out:
        out.write(PLAYER)
    own, ours, cache, empty = (os.path.join(subdirectory, name) for name in ("own", "ours", "cache", "empty"))
    first, filled = run(file, own), run(file, ours, cache)
    found = {"Triton, warm": [], "ours, warm": [], "ours, empty": []}
    for number in range(3):
        found["Triton, warm"].append(run(file, own))
        found["ours, warm"].append(run(file, ours, cache))
        found["ours, empty"].append(run(file, f"{empty}{number}", cache))
    for results in found.values():
        assert all(one["compiled"] == 0 and one["cubins"] == first["cubins"] == filled["cubins"] for one in results), results
    best = {name: min(one["processor"] for one in results) for name, results in found.items()}
    title = f"Triton, {KERNELS} kernels asked for again, processor time"
    report(f"{title}, its directory warm", best["ours, warm"], "FileCacheManager", best["Triton, warm"], 1.0)
    report(f"{title}, its directory empty", best["ours, empty"], "FileCacheManager, warm", best["Triton, warm"], 1.0)
    report(f"Triton, {KERNELS} kernels compiled", filled["processor"], "FileCacheManager", first["processor"])
    kernels = files_below(os.path.join(cache, "objects"))
    report(f"Triton, files of {KERNELS} kernels", kernels, "FileCacheManager", files_below(own), 0.125, "files")
    report("Triton, files of the cache itself, however many kernels", files_below(cache) - kernels, "FileCacheManager", 0,
           unit="files")
    os.rename(own, own + "-moved")
    again = run(file, own + "-moved")
    served = run(file, os.path.join(subdirectory, "elsewhere"), moved(subdirectory, cache))
    report("Triton, kernels compiled on another machine, from an archive", served["compiled"],
           "FileCacheManager, its directory moved", again["compiled"], 0.0, "kernels")


def main():
    if importlib.util.find_spec("triton") is None:
        print("skip - triton is not installed for this Python", file=sys.stderr)
        return
    subdirectory = tempfile.mkdtemp(prefix="aoticache-triton-bench-")
    try:
        measure(subdirectory)
    finally:
        shutil.rmtree(subdirectory, ignore_errors=True)


if __name__ == "__main__":
    main()
