"""Runs compile_programs.py as on a fresh machine, for the tests of torch.compile with the cache.

If there is a compiler, one process fills a cache with the usual programs for all tests of a build. The tests use copies.
"""
import glob
import hashlib
import json
import os
import shutil
import subprocess
import tempfile

import pytest

import once
from torch_scenarios import BUILD, TOP, environment, python

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "compile_programs.py")
_directory = tempfile.TemporaryDirectory(prefix="aoticache-compile-")
DIRECTORY = _directory.name
FULL = os.path.join(DIRECTORY, "full")
COMPILER = shutil.which("g++")
TOOL = os.path.join(BUILD, "bin", "aoticache")


def fresh(name):
    """Returns an empty directory of this test."""
    return tempfile.mkdtemp(prefix=f"{name}-", dir=DIRECTORY)


def start(cache, *words, compiler=False, **more):
    """Starts a process as on a fresh machine. Unless `compiler` is true, its PATH is empty."""
    variables = environment(AOTICACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=fresh("inductor"), HOME=fresh("home"),
                            AOTICACHE_CONFIG="", **more)
    if not compiler:
        variables["PATH"] = fresh("path")
    return subprocess.Popen(python(PROGRAMS, *words), env=variables, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def report(process, status=0):
    said, errors = process.communicate(timeout=600)
    assert process.returncode == status, f"status {process.returncode}, expected {status}\n{said[-2000:]}{errors[-3000:]}"
    return json.loads(said.splitlines()[-1])


def run(cache, *words, status=0, **more):
    return report(start(cache, *words, **more), status)


def copy_of(cache):
    copy = os.path.join(fresh("copy"), "cache")
    shutil.copytree(cache, copy, symlinks=True)
    return copy


def digests(found):
    return {name: one["digest"] for name, one in found["programs"].items()}


def check_warm(found, filled, but=()):
    """Checks that everything came from the cache: no process was started, and the values equal those of the compiling
    process bit for bit."""
    assert found["started"] == [], found["started"]
    assert all(one["same"] for one in found["programs"].values()), found["programs"]
    expected = {name: value for name, value in digests(filled).items() if name in found["programs"]}
    assert digests(found) == expected
    for kind, counts in found["counts"].items():
        assert kind in but or counts["misses"] == 0, (kind, counts)


filled_report = None


def fixture():
    """Returns the directory that filled() copies; its name changes if the files that make it change."""
    digest = hashlib.sha256()
    for path in (__file__, PROGRAMS, os.path.join(BUILD, "lib", "libaoticache.so"),
                 *sorted(glob.glob(os.path.join(TOP, "eager", "torch", "aoticache", "**", "*.py"), recursive=True))):
        with open(path, "rb") as file:
            digest.update(file.read())
    return os.path.join(BUILD, "tests", "compile-cache", digest.hexdigest()[:16])


def fill(directory):
    report = run(os.path.join(directory, "full"), compiler=True)
    assert all(one["same"] for one in report["programs"].values()) and not report["warnings"]
    assert report["counts"]["inductor-cpp"]["stored"] >= 6 and report["counts"]["aotautograd"]["stored"]
    os.makedirs(os.path.join(directory, "archive"), exist_ok=True)
    done = subprocess.run([TOOL, "export", f"{directory}/archive/warm.tar"],
                          env=environment(AOTICACHE_DIR=f"{directory}/full", AOTICACHE_KEYS=f"{directory}/keys"),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(os.path.join(directory, "report.json"), "w") as file:
        json.dump(report, file)


def filled():
    """Copies the filled cache to FULL for this test. Returns what the process that filled it reported."""
    global filled_report
    if filled_report is None:
        directory = fixture()
        with once.lock(directory):
            if not os.path.exists(os.path.join(directory, "report.json")):
                shutil.rmtree(os.path.join(directory, "full"), ignore_errors=True)
                fill(directory)
        for name in ("full", "archive", "keys"):
            shutil.copytree(os.path.join(directory, name), os.path.join(DIRECTORY, name))
        with open(os.path.join(directory, "report.json")) as file:
            filled_report = json.load(file)
    return filled_report


os.environ.pop("TORCHINDUCTOR_VEC_ISA_OK", None)  # set by scripts/run-tests; a trial of vector units is cached
#: Skips that trial, which would take most of the time of a process that compiles one program.
QUICK = {"TORCHINDUCTOR_VEC_ISA_OK": "1"}
#: If no other test compiles with some options, precompiling a header takes longer than the one compile that uses it.
#: PyTorch keeps one for all processes that use the same options, below TMPDIR.
PLAIN = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}

if COMPILER is None:
    pytest.skip("there is no g++, so nothing can fill a cache", allow_module_level=True)
