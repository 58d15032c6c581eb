"""Tests `pip install`: an sdist, the wheel that is built from it and installed into a new virtual environment, outside the
sources, and an editable install.

Environment: BUILD, which has the C parts: if an sdist lacks a file, its make fails nonetheless. PyTorch is that of this
Python.
"""
import glob
import importlib.util
import os
import subprocess
import sys
import tarfile
import zipfile

import pytest

from torch_scenarios import BUILD, CACHE, TOP, python

pytestmark = pytest.mark.skipif(importlib.util.find_spec("hatchling") is None,
                                reason="hatchling is not installed: scripts/install-deps installs it")

CHECK = """
import os, sys, torch, aoticache
assert "/site-packages/" in aoticache.__file__ and aoticache._core.capi.load().path.startswith(os.path.dirname(aoticache.__file__))
x = torch.linspace(-3, 3, 12).reshape(3, 4)
aoticache.enable("aten::abs", "aten::clamp", mode="wait", judge=False)
assert torch.equal(torch.abs(x), x.clone().abs_()) and torch.equal(torch.abs(x), x.clone().abs_())
assert aoticache.stats().operators["aten::abs"].hits >= 1 and aoticache.stats().interface == "bridge"
print("done")
"""


# aoticache.runtime without PyTorch and NumPy, and with NumPy only; on an operator that the tool has compiled, since nothing
# here could make a package. tests/python/runtime/test_runtime.py has everything else.
RUNTIME_CHECK = """
import array, importlib.util, os, sys, time
wanted = sys.argv[1:]
assert [name for name in ("numpy", "torch") if importlib.util.find_spec(name)] == wanted, sys.path
begin = time.process_time()
import aoticache.runtime
assert time.process_time() - begin < 0.25 and "/site-packages/" in aoticache.__file__, time.process_time() - begin
assert "/site-packages/aoticache/lib/" in aoticache.runtime._runtime.__file__
mul = aoticache.runtime.operator("aten::mul.Tensor")
x = memoryview(array.array("f", [1, 2, 3]))
y = mul(x, x)
assert type(y) is aoticache.runtime.Tensor and y.tolist() == [1, 4, 9] and memoryview(y).tolist() == [1, 4, 9]
if wanted:
    import numpy
    x = numpy.array([1, 2, 3], "f")
    assert type(mul(x, x)) is numpy.ndarray and mul(x, x).tolist() == [1, 4, 9] and y.numpy().tolist() == [1, 4, 9]
if os.path.exists("package.pt2"):
    model = aoticache.runtime.load("package.pt2")
    y = model(memoryview(array.array("f", [1, -2, 3])))
    assert y.tolist() == [3, 0, 7], y.tolist()
print("done")
"""


# What the variable installs at `import torch`; without it nothing is installed.
COMPILE_CHECK = """
import os, sys, torch
is_wanted = "AOTICACHE_COMPILE_CACHE" in os.environ
assert ("aoticache" in sys.modules) == is_wanted and "torch._inductor.codecache" not in sys.modules
from torch._inductor import codecache, cpp_builder
assert (cpp_builder.CppBuilder.build.__code__.co_filename == cpp_builder.__file__) == (not is_wanted)
if is_wanted:
    import aoticache
    assert aoticache.uninstall_compile_cache()
    assert cpp_builder.CppBuilder.build.__code__.co_filename == cpp_builder.__file__
print("done")
"""


# What AOTICACHE_ENABLE does at `import torch`, in a program that does not use the package.
ENABLE_CHECK = """
import os, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
wish = os.environ.get("AOTICACHE_ENABLE", "")
said = [str(one.message) for one in caught if "aoticache" in str(one.message)]
assert ("aoticache" in sys.modules) == (wish not in ("", "0")), sys.modules.keys()
x = torch.linspace(-3, 3, 12).reshape(3, 4)
if wish == "abss, neg":
    assert len(said) == 1 and "did you mean aten::abs" in said[0] and "AOTICACHE_ENABLE" in said[0], said
    import aoticache
    assert not aoticache.is_enabled("aten::neg")
elif wish not in ("", "0"):
    import aoticache
    assert not said, said
    assert aoticache.is_enabled("aten::exp") == (wish == "safe")
    assert aoticache.is_enabled("aten::abs") and aoticache.is_enabled("aten::neg")
    torch.abs(x), aoticache.wait()
    assert torch.equal(torch.abs(x), x.clone().abs_())
    assert aoticache.stats().operators["aten::abs"].misses + aoticache.stats().operators["aten::abs"].hits > 0
print("done")
"""


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def environment():
    """Returns the environment without our variables and make's."""
    ours = ("PYTHONPATH", "BUILD", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    variables = {name: value for name, value in os.environ.items()
                 if name not in ours and not name.startswith("AOTICACHE_")}
    return {**variables, "AOTICACHE_DIR": CACHE, "AOTICACHE_CONFIG": "", "AOTICACHE_WHEEL_BUILD": BUILD}


def build_sdist(directory):
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", directory, cwd=TOP, env=environment())
    (sdist,) = glob.glob(os.path.join(directory, "aoticache-*.tar.gz"))
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("pyproject.toml", "PKG-INFO", "Makefile", "eager/torch/build_hook.py", "scripts/link/libaoticache.map",
                 "eager/torch/aoticache/py.typed", "README.md", "LICENSE"):
        assert name in names, f"{name} is not in the sdist"
    odd = [name for name in names if name.startswith(("build/", ".git/")) or name.endswith((".o", ".so", ".pyc"))]
    assert not odd, odd
    return sdist


def pip(*words):
    return run(sys.executable, "-m", "pip", *words, env=environment())


def build_wheel(sdist, directory):
    pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", directory, sdist)
    (wheel,) = glob.glob(os.path.join(directory, "*.whl"))
    return wheel


def make_venv(path):
    run(sys.executable, "-m", "venv", "--without-pip", path)
    return os.path.join(path, "bin", "python")


def lend(venv, package):
    """Gives the virtual environment this Python's package, and the files next to it."""
    (site,) = glob.glob(os.path.join(venv, "lib", "*", "site-packages"))
    with open(os.path.join(site, f"{package}.pth"), "w") as file:
        file.write(os.path.dirname(os.path.dirname(importlib.util.find_spec(package).origin)) + "\n")


def check_contents(wheel):
    assert os.path.basename(wheel).startswith("aoticache-") and "-py3-none-linux_" in wheel, wheel
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = next(archive.read(name).decode() for name in names if name.endswith("METADATA"))
    for name in ("py.typed", "lib/libaoticache.so.0", "lib/libaoticache_torchshim.so", "lib/libaoticache_cxxbridge.so",
                 "lib/aoticache/_runtime.abi3.so", "runtime.py",
                 "share/aoticache/worker.py", "share/aoticache/guards.py", "share/aoticache/inductor/build.py",
                 "share/aoticache/inductor/rewrites.py", "share/aoticache/inductor/corrections.py", "share/aoticache/inductor/wrapper.h",
                 "share/aoticache/inductor/wrapper_std.h", "share/aoticache/inductor/wrapper_cxx.h",
                 "share/aoticache/bridge.cpp", "share/aoticache/kernels/aten_abs.c",
                 "include/aoticache/eager/torch/bridge.h", "include/aoticache/eager/value.h", "bin/aoticache",
                 "bin/aoticache-gc", "bin/aoticache-stat"):
        assert f"aoticache/{name}" in names, f"{name} is not in the wheel"
    package = os.path.join(TOP, "eager", "torch", "aoticache")
    modules = {os.path.relpath(name, package) for name in glob.glob(os.path.join(package, "**", "*.py"), recursive=True)}
    assert "_core/capi.py" in modules and modules == {name.removeprefix("aoticache/") for name in names
                                                      if name.startswith("aoticache/") and name.endswith(".py")
                                                      and not name.startswith(("aoticache/share/", "aoticache/include/"))}
    assert "aoticache_autoload.py" in names
    assert "Requires-Python: >=3.10" in metadata
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert all("extra ==" in line for line in required), required


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("install"))


@pytest.fixture(scope="module")
def wheel(directory):
    return build_wheel(build_sdist(directory), directory)


@pytest.fixture(scope="module")
def bare(wheel, directory):
    """Returns a virtual environment with the wheel, and nothing else."""
    venv = os.path.join(directory, "bare-venv")
    pip("--python", make_venv(venv), "install", "--no-deps", "--no-index", wheel)
    return venv


@pytest.fixture(scope="module")
def installed(wheel, directory):
    """Returns a virtual environment with the wheel and PyTorch."""
    venv = os.path.join(directory, "venv")
    pip("--python", make_venv(venv), "install", "--no-deps", "--no-index", wheel)
    lend(venv, "torch")
    return venv


def program(venv, name="python"):
    return os.path.join(venv, "bin", name)


def test_sdist_and_wheel_have_everything(wheel):
    check_contents(wheel)


def test_doctor_without_pytorch(bare, directory):
    done = subprocess.run([program(bare), "-m", "aoticache", "doctor"], env=environment(), capture_output=True, text=True, cwd=directory)
    assert done.returncode == 1 and "pip install 'aoticache[torch]'" in done.stdout, done.stdout + done.stderr


def test_models_run_with_neither_pytorch_nor_numpy_and_with_numpy_alone(bare, directory):
    """Uses a directory with a package that this Python's PyTorch made, since the environment has no PyTorch to make one."""
    variables = {**environment(), "AOTICACHE_DIR": os.path.join(directory, "runtime-cache")}
    make = "import sys, torch, torch._inductor.package as p; m = type('M', (torch.nn.Module,), {'forward': lambda s, x: " \
           "torch.relu(x * 2 + 1)})(); torch._inductor.aoti_compile_and_package(torch.export.export(m, (torch.ones(3),)), " \
           "package_path='package.pt2')"
    inductor = os.path.join(BUILD, "inductor-cache")
    run(*python("-W", "ignore", "-c", make), env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": inductor}, cwd=directory)
    words = ("aten::mul.Tensor", "--hook", "c", "--input", "float32:3", "--input", "float32:3", "--quiet")
    run(program(bare, "aoticache"), "run", *words, env=variables, cwd=directory)
    assert "done" in run(program(bare), "-c", RUNTIME_CHECK, env=variables, cwd=directory)
    numpy = os.path.join(directory, "numpy-alone")
    os.makedirs(numpy)
    place = os.path.dirname(os.path.dirname(importlib.util.find_spec("numpy").origin))
    for name in ("numpy", "numpy.libs"):
        if os.path.exists(os.path.join(place, name)):
            os.symlink(os.path.join(place, name), os.path.join(numpy, name))
    assert "done" in run(program(bare), "-c", RUNTIME_CHECK, "numpy", env={**variables, "PYTHONPATH": numpy}, cwd=directory)


def test_operators_are_served_and_the_tools_are_commands(installed, directory):
    assert "done" in run(program(installed), "-c", CHECK, env=environment(), cwd=directory)
    assert "aten::abs" in run(program(installed, "aoticache"), "ls", env=environment(), cwd=directory)
    assert "FAIL" not in run(program(installed), "-m", "aoticache", "doctor", env=environment(), cwd=directory)


@pytest.mark.parametrize("more", [{}, {"AOTICACHE_COMPILE_CACHE": "1"}], ids=["not set", "set"])
def test_the_variable_installs_the_compile_cache(installed, directory, more):
    assert "done" in run(program(installed), "-c", COMPILE_CHECK, env={**environment(), **more}, cwd=directory)


@pytest.mark.parametrize("wish", [None, "0", "abs, aten::neg", "safe", "abss, neg"])
def test_the_variable_enables_operators(installed, directory, wish):
    more = {"AOTICACHE_ENABLE": wish} if wish is not None else {}
    assert "done" in run(program(installed), "-c", ENABLE_CHECK, env={**environment(), **more}, cwd=directory)


def test_tools_compile_with_this_python(installed, directory):
    """A tool's worker runs on the environment's Python: other Pythons on this machine may have no PyTorch."""
    without = os.path.join(directory, "without")
    os.makedirs(without)
    with open(os.path.join(without, "python3"), "w") as file:
        file.write("#!/bin/sh\nexit 3\n")
    os.chmod(file.name, 0o755)
    variables = {**environment(), "PATH": f"{without}:/usr/bin:/bin", "AOTICACHE_DIR": os.path.join(directory, "tool-cache")}
    words = ("compile", "aten::sinh", "--input", "float32:2x3")  # it has no kernel in C
    (tool,) = glob.glob(os.path.join(installed, "lib", "*", "site-packages", "aoticache", "bin", "aoticache"))
    done = subprocess.run([tool, *words], env=variables, capture_output=True, text=True)
    assert done.returncode != 0, "the tool by itself has found a PyTorch: the test says nothing"
    run(program(installed, "aoticache"), *words, env=variables, cwd=directory)
    assert "aten::sinh" in run(program(installed), "-m", "aoticache", "ls", env=variables, cwd=directory)
    run(program(installed), "-m", "aoticache", "compile", "aten::cosh", "--input", "float32:2x3", env=variables, cwd=directory)
    assert "compiles" in run(program(installed), "-m", "aoticache", "stat", env=variables, cwd=directory).lower()


def test_editable_install_uses_the_sources(directory):
    """The package is used from the sources, with the library that was built."""
    venv = os.path.join(directory, "editable")
    make_venv(venv)
    lend(venv, "hatchling")  # an editable install runs the build backend in the target Python
    pip("--python", program(venv), "install", "--no-build-isolation", "--no-deps", "--no-index", "-e", TOP)
    said = run(program(venv), "-c", "import aoticache; print(aoticache.__file__, aoticache.__version__, aoticache.stats())",
               env={**environment(), "AOTICACHE_HOME": BUILD}, cwd=directory)
    assert said.startswith(os.path.join(TOP, "eager", "torch", "aoticache", "__init__.py")), said
