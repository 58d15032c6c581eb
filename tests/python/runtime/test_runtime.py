"""Tests aoticache.runtime: packages, stored models and operators in a Python that has not imported PyTorch
(runtime_plays.py). Also compares the extension's declarations of Python's functions with Python's own headers.
"""
import os
import shutil
import subprocess
import sys
import sysconfig

import pytest
import torch

import runtime_plays
from runtime_plays import TOOL, TOP

FEW = ("linear", "several")
PLAYS = ["numpy", "memory", "threads", "after_torch", "before_torch", "fork"]


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Returns a directory with two packages."""
    directory = str(tmp_path_factory.mktemp("runtime"))
    runtime_plays.make_models(torch, directory, FEW)
    return directory


@pytest.fixture(scope="module")
def directory(few):
    """Returns the same directory with all packages."""
    runtime_plays.make_models(torch, few, ("nested", "kinds", "aliases", "writes", "slow"))
    runtime_plays.make_others(torch, few)
    subprocess.run([TOOL, "run", "aten::mul.Tensor", "--hook", "c", "--input", "float32:3x4", "--input", "float32:3x4",
                    "--cache-dir", os.path.join(few, "cache"), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return few


def play(name, directory):
    """Runs a case in a new process, which imports what the case imports."""
    done = subprocess.run([sys.executable, runtime_plays.__file__, name, directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=900)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-3000:]}"


@pytest.mark.quick
def test_import(tmp_path):
    play("import", str(tmp_path))


@pytest.mark.quick
def test_plain(few):
    play("plain", few)


@pytest.mark.parametrize("name", PLAYS)
def test_play(directory, name):
    play(name, directory)


@pytest.mark.quick
def test_declarations():
    """Compares eager/python/stable_abi.h with Python's headers, if these are installed."""
    include = sysconfig.get_path("include")
    if shutil.which("cc") is None or not os.path.exists(os.path.join(include, "Python.h")):
        pytest.skip("there is no Python.h, or no compiler")
    sources = [os.path.join(TOP, "eager", "python", name) for name in ("module.c", "tensor.c", "memory.c", "exchange.c")]
    done = subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-DPy_LIMITED_API=0x030b0000", "-Wall", "-Wextra", "-Werror",
                           "-fsyntax-only", "-I", include, "-I", TOP, "-include", "Python.h", *sources],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
