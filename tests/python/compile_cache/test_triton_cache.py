"""Tests Triton's kernels in the cache (aoticache.triton): one record for each kernel, also with another directory, compiled
once for several processes. Compiles for an H100, which needs no GPU. Skipped if triton is not installed."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from torch_scenarios import BUILD, environment

pytest.importorskip("triton", reason="triton is not installed for this Python")
sys.path.insert(0, environment()["PYTHONPATH"])
_directory = tempfile.TemporaryDirectory(prefix="aoticache-triton-")
DIRECTORY = _directory.name
KERNEL = '''
import hashlib, json, sys, warnings
said = []
warnings.showwarning = lambda message, *_: said.append(str(message)) if "aoticache" in str(message) else None
import triton, triton.language as tl
from triton.compiler import ASTSource
from triton.backends.compiler import GPUTarget
runs = []
from triton.backends.nvidia.compiler import CUDABackend
own = CUDABackend.make_cubin
CUDABackend.make_cubin = lambda self, *arguments, **more: (runs.append(1), own(self, *arguments, **more))[1]

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n) + 1, i < n)

@triton.jit
def broken(x):
    tl.store(x, tl.load(x).there_is_no_such_thing())

def build(fn=add, block=64, arch=90):
    source = ASTSource(fn, {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {(3,): block}) if fn is add else \\
        ASTSource(fn, {"x": "*fp32"}, {})
    return triton.compile(source, target=GPUTarget("cuda", arch, 32))
if "broken" in sys.argv:
    for _ in range(2):
        try:
            build(broken)
        except Exception as error:
            failed = type(error).__name__
kernel = build(arch=80 if "ampere" in sys.argv else 90)
import aoticache.triton
print(json.dumps({"cubin": hashlib.sha256(kernel.asm["cubin"]).hexdigest(), "runs": len(runs), "said": said,
                  "name": kernel.metadata.name, "counts": vars(aoticache.triton.counts)}))
'''


def start(cache, *words, directory=None):
    file = os.path.join(DIRECTORY, "kernel.py")
    if not os.path.exists(file):  # cubins of Triton 3.8 contain the time of their source's last change
        with open(file, "w") as out:
            out.write(KERNEL)
    more = os.environ.get("PYTHONPATH", "")
    variables = environment(AOTICACHE_DIR=cache, TRITON_CACHE_DIR=directory or tempfile.mkdtemp(dir=DIRECTORY),
                            TRITON_CACHE_MANAGER="aoticache.triton:CacheManager", AOTICACHE_CONFIG="")
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (variables["PYTHONPATH"], more)))
    return subprocess.Popen([sys.executable, file, *words], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def report(process):
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(said.splitlines()[-1])


def run(cache, *words, **more):
    return report(start(cache, *words, **more))


def entries(cache):
    done = subprocess.run([os.path.join(BUILD, "bin", "aoticache"), "ls", "--json", "--kind", "triton"],
                          env=environment(AOTICACHE_DIR=cache), capture_output=True, text=True)
    return json.loads(done.stdout)["entries"] if done.returncode == 0 else []


def test_another_directory_compiles_nothing():
    cache = os.path.join(DIRECTORY, "cache")
    first, again = run(cache), run(cache)
    assert first["runs"] == 1 and again["runs"] == 0 and first["cubin"] == again["cubin"]
    assert again["name"] == "add" and again["counts"]["hits"] == 1 and not first["said"] + again["said"]
    assert len(entries(cache)) == 1, entries(cache)


def objects(cache):
    return [os.path.join(subdirectory, name) for subdirectory, _, names in os.walk(os.path.join(cache, "objects")) for name in names]


def test_another_architecture_is_another_kernel():
    cache = os.path.join(DIRECTORY, "architectures")
    one, other = run(cache), run(cache, "ampere")
    assert one["runs"] == other["runs"] == 1 and one["cubin"] != other["cubin"] and len(entries(cache)) == 2
    assert len(objects(cache)) == 2, objects(cache)  # one file for each kernel


def test_a_directory_that_was_moved():
    cache, directory = os.path.join(DIRECTORY, "moved"), os.path.join(DIRECTORY, "before")
    run(cache, directory=directory)
    os.rename(directory, directory + "-after")
    assert run(cache, directory=directory + "-after")["runs"] == 0


def test_processes_at_once_compile_once():
    cache = os.path.join(DIRECTORY, "at-once")
    found = [report(one) for one in [start(cache) for _ in range(4)]]
    assert sum(one["runs"] for one in found) == 1 and len({one["cubin"] for one in found}) == 1, found


def test_a_compile_that_fails_frees_its_lease():
    found = run(os.path.join(DIRECTORY, "broken"), "broken")
    assert found["runs"] == 1 and not found["said"], found


def test_damaged_records_are_compiled_again():
    cache = os.path.join(DIRECTORY, "damaged")
    first = run(cache)
    (path,) = objects(cache)
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        file.write(b"something else")
    again = run(cache)
    assert again["runs"] == 1 and again["cubin"] == first["cubin"]


PLATFORM = """
import os, sys
if "installed" in sys.argv:
    import torch, aoticache
    aoticache.install_compile_cache()
    print(os.environ["TRITON_CACHE_MANAGER"])
    aoticache.uninstall_compile_cache()
    assert "TRITON_CACHE_MANAGER" not in os.environ
elif "variable" in sys.argv:
    os.environ["TRITON_CACHE_MANAGER"] = "aoticache.triton:CacheManager"
    import aoticache_autoload
    aoticache_autoload.autoload()
from triton.runtime.build import platform_key
print(platform_key())
"""


def platform_key(*words, **more):
    variables = environment(AOTICACHE_DIR=os.path.join(DIRECTORY, "platform"), AOTICACHE_CONFIG="",
                            TRITON_CACHE_MANAGER=None, **more)
    added = os.environ.get("PYTHONPATH", "")
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (variables["PYTHONPATH"], added)))
    done = subprocess.run([sys.executable, "-c", PLATFORM, *words], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_machine_without_the_program_file_has_the_same_keys():
    nothing = tempfile.mkdtemp(dir=DIRECTORY)
    if shutil.which("file") is None:
        pytest.skip("there is no program file here to compare with")
    own = platform_key()
    assert platform_key(PATH=nothing) != own, "Triton does not ask it any more"
    assert platform_key("variable", PATH=nothing) == own
    assert platform_key("installed", PATH=nothing) == ["aoticache.triton:CacheManager", *own]


def test_records_are_checked():
    from aoticache import triton
    files = {"a.cubin": b"\x00\n1", "a.json": b"{}", "empty": b""}
    packed = triton.pack(files)
    assert triton.unpack(packed) == files
    for wrong in (b"", packed[1:], packed[:-1], packed + b"x", triton.pack({"../a": b"x"}), triton.pack({"..": b"x"})):
        try:
            triton.unpack(wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)
