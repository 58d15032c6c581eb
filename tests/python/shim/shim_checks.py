"""Loads the shim (runtime/shim/) for the tests that compare it with PyTorch: with the machine's libraries, and in plain C.

In plain C, none of BLAS, LAPACK, oneDNN and SLEEF can be loaded. Within this process that is a copy of the shim that looks for
library names which do not exist; a separate process gets a search path with empty files of those names.
"""
import contextlib
import os
import random
import re
import tempfile

import pytest
import torch

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
SHIM = os.path.join(BUILD, "lib", "libaoticache_torchshim.so")
PLAIN, WHOLE = "plain C", "as the machine is"
WAYS = (PLAIN, WHOLE)  # in this order, because what the second one loads stays in the process
NAMES = "libopenblas.so.0", "liblapack.so.3", "libsleef.so.3", "libdnnl.so.3", "libdnnl.so.2"


def loaded():
    """Returns which of these libraries the process has loaded."""
    with open("/proc/self/maps") as maps:
        return set(re.findall(r"/(lib(?:openblas|lapack|sleef|dnnl)\.so)", maps.read()))


@contextlib.contextmanager
def path_of(way):
    """Yields the library to load. At the end, checks that the copy has loaded none of the others."""
    if way == WHOLE:
        yield SHIM
        return
    with open(SHIM, "rb") as file, tempfile.NamedTemporaryFile(suffix=".so") as copy:
        text, count = re.subn(rb"lib(?=(?:openblas|lapack|sleef|dnnl)\.so)", b"no-", file.read())
        assert count >= 4, f"{SHIM} has only {count} names of libraries"
        copy.write(text)
        copy.flush()
        before = loaded()
        yield copy.name
        assert loaded() == before, f"the copy of the shim has loaded {loaded() - before}"


def without_libraries(directory):
    """Returns an environment for a process that cannot load these libraries; writes files to the empty directory."""
    for name in NAMES:
        open(os.path.join(directory, name), "w").close()
    path = os.pathsep.join([directory, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    return {**os.environ, "LD_LIBRARY_PATH": path}


# ---- fixtures ----

def each_way(load, ways=WAYS, autouse=False):
    """Returns a fixture for a module's tests: the result of load(path) for the shim, each way. All tests run one way, then the
    other."""
    @pytest.fixture(scope="module", params=ways, autouse=autouse)
    def shim(request):
        with path_of(request.param) as path:
            yield load(path)

    return shim


def seeded(number):
    """Returns a fixture that gives each test the same random numbers."""
    @pytest.fixture(autouse=True)
    def begin():
        torch.manual_seed(number)
        random.seed(number)

    return begin


def skip_unless_all_run(request):
    """For a test that checks what the other tests of its module did."""
    chosen = {item.function for item in request.session.items}
    if any(name.startswith("test_") and value not in chosen for name, value in vars(request.module).items()):
        pytest.skip("it needs the other tests of this file")
