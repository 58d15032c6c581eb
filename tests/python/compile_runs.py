"""Runs of compile_programs.py in a fresh machine's state, for the tests of torch.compile on the cache.

One process fills a cache with the usual programs, where there is a compiler; the scenarios use copies.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from torch_scenarios import BUILD, HERE, environment, main

PROGRAMS = os.path.join(HERE, "compile_programs.py")
FOLDER = tempfile.mkdtemp(prefix="aoticache-compile-")
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
    return subprocess.Popen([sys.executable, PROGRAMS, *words], env=variables, stdout=subprocess.PIPE,
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


def filled():
    """The full cache; by the process that filled it: what it reported."""
    global filled_report
    if filled_report is None:
        filled_report = run(FULL, compiler=True)
        assert all(one["same"] for one in filled_report["programs"].values()) and not filled_report["warnings"]
        assert filled_report["counts"]["inductor-cpp"]["stored"] >= 6 and filled_report["counts"]["aotautograd"]["stored"]
        os.mkdir(os.path.join(FOLDER, "archive"))
        done = subprocess.run([TOOL, "export", f"{FOLDER}/archive/warm.tar"],
                              env=environment(AOTICACHE_DIR=FULL, AOTICACHE_KEYS=f"{FOLDER}/keys"),
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return filled_report


os.environ.pop("TORCHINDUCTOR_VEC_ISA_OK", None)  # of scripts/run-tests: the cache keeps what a trial of vector units gave
#: No such trial, which would take most of the time of a process that compiles one program.
QUICK = {"TORCHINDUCTOR_VEC_ISA_OK": "1"}
#: For options that no other test compiles with, a precompiled header takes longer than the one compile that uses it. PyTorch
#: has one for all processes that use the same options, below TMPDIR.
PLAIN = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}


def play_tests(names):
    """Plays the tests of a file, and removes what they left."""
    if COMPILER is None:
        print("skip - there is no g++, so nothing can fill a cache")
        sys.exit(0)
    try:
        main(names)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
