"""Runs of compile_programs.py in a fresh machine's state, for the tests of torch.compile on the cache.

One process fills a cache with the usual programs, if there is a compiler, for all tests of a build; they use copies.
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
from torch_scenarios import BUILD, HERE, TOP, environment, python

PROGRAMS = os.path.join(HERE, "compile_programs.py")
_folder = tempfile.TemporaryDirectory(prefix="aoticache-compile-")
FOLDER = _folder.name
FULL = os.path.join(FOLDER, "full")
COMPILER = shutil.which("g++")
TOOL = os.path.join(BUILD, "bin", "aoticache")


def fresh(name):
    """An empty folder of this test."""
    return tempfile.mkdtemp(prefix=f"{name}-", dir=FOLDER)


def start(cache, *words, compiler=False, **more):
    """A process in a fresh machine's state; without `compiler` nothing is on its PATH."""
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
    """Everything came from the cache: no process ran, and the values are the bits of the process that compiled."""
    assert found["started"] == [], found["started"]
    assert all(one["same"] for one in found["programs"].values()), found["programs"]
    expected = {name: value for name, value in digests(filled).items() if name in found["programs"]}
    assert digests(found) == expected
    for kind, counts in found["counts"].items():
        assert kind in but or counts["misses"] == 0, (kind, counts)


filled_report = None


def fixture():
    """The directory of what filled() copies: it has another name if what makes it has changed."""
    digest = hashlib.sha256()
    for path in (__file__, PROGRAMS, os.path.join(BUILD, "lib", "libaoticache.so"),
                 *sorted(glob.glob(os.path.join(TOP, "eager", "torch", "aoticache", "*.py")))):
        with open(path, "rb") as file:
            digest.update(file.read())
    return os.path.join(BUILD, "tests", "compile-cache", digest.hexdigest()[:16])


def fill(folder):
    report = run(os.path.join(folder, "full"), compiler=True)
    assert all(one["same"] for one in report["programs"].values()) and not report["warnings"]
    assert report["counts"]["inductor-cpp"]["stored"] >= 6 and report["counts"]["aotautograd"]["stored"]
    os.makedirs(os.path.join(folder, "archive"), exist_ok=True)
    done = subprocess.run([TOOL, "export", f"{folder}/archive/warm.tar"],
                          env=environment(AOTICACHE_DIR=f"{folder}/full", AOTICACHE_KEYS=f"{folder}/keys"),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(os.path.join(folder, "report.json"), "w") as file:
        json.dump(report, file)


def filled():
    """The full cache, FULL, a copy of this test's; by the process that filled the first one: what it reported."""
    global filled_report
    if filled_report is None:
        folder = fixture()
        with once.lock(folder):
            if not os.path.exists(os.path.join(folder, "report.json")):
                shutil.rmtree(os.path.join(folder, "full"), ignore_errors=True)
                fill(folder)
        for name in ("full", "archive", "keys"):
            shutil.copytree(os.path.join(folder, name), os.path.join(FOLDER, name))
        with open(os.path.join(folder, "report.json")) as file:
            filled_report = json.load(file)
    return filled_report


os.environ.pop("TORCHINDUCTOR_VEC_ISA_OK", None)  # of scripts/run-tests: the cache keeps what a trial of vector units gave
#: No such trial, which would take most of the time of a process that compiles one program.
QUICK = {"TORCHINDUCTOR_VEC_ISA_OK": "1"}
#: For options that no other test compiles with, a precompiled header takes longer than the one compile that uses it. PyTorch
#: has one for all processes that use the same options, below TMPDIR.
PLAIN = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}

if COMPILER is None:
    pytest.skip("there is no g++, so nothing can fill a cache", allow_module_level=True)
