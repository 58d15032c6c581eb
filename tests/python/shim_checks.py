"""The shim (runtime/shim/) for the tests that compare it with PyTorch: as the machine is, and in plain C.

In plain C, neither the BLAS, LAPACK, oneDNN nor SLEEF can be loaded. In this process that is a copy of the shim that looks for
names which no library has; a process of its own gets a search path where those names are empty files.
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
WAYS = (PLAIN, WHOLE)  # in this order: what the second one loads stays in the process
NAMES = "libopenblas.so.0", "liblapack.so.3", "libsleef.so.3", "libdnnl.so.3", "libdnnl.so.2"


def loaded():
    """Which of these libraries the process has."""
    with open("/proc/self/maps") as maps:
        return set(re.findall(r"/(lib(?:openblas|lapack|sleef|dnnl)\.so)", maps.read()))


@contextlib.contextmanager
def path_of(way):
    """The library to load. At the end, checks that the copy has loaded none of the others."""
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


def without_libraries(folder):
    """An environment for a process in which these libraries cannot be loaded; the empty folder gets files."""
    for name in NAMES:
        open(os.path.join(folder, name), "w").close()
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    return {**os.environ, "LD_LIBRARY_PATH": path}


# ---- fixtures ----

def each_way(load, ways=WAYS, autouse=False):
    """A fixture for a module's tests: what load(path) gives for the shim, each way. All tests run one way, then the other."""
    @pytest.fixture(scope="module", params=ways, autouse=autouse)
    def shim(request):
        with path_of(request.param) as path:
            yield load(path)

    return shim


def seeded(number):
    """A fixture: each test begins with the same random numbers."""
    @pytest.fixture(autouse=True)
    def begin():
        torch.manual_seed(number)
        random.seed(number)

    return begin


def skip_unless_all_run(request):
    """For a test that looks at what the others of its module did."""
    chosen = {item.function for item in request.session.items}
    if any(name.startswith("test_") and value not in chosen for name, value in vars(request.module).items()):
        pytest.skip("it needs the other tests of this file")
