"""Tests the Python package alone: its ctypes structs are those of the headers, its source is valid for Python 3.10, its
types are correct, and it can be imported without PyTorch. load_package() gives what torch._inductor.aoti_load_package()
gives."""
import ast
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import package_models

import pytest
from memory_in_use import bytes_per_call
from torch_scenarios import BUILD, TOP, environment, play

PACKAGE = os.path.join(TOP, "eager", "torch", "aoticache")
sys.path.insert(0, os.path.dirname(PACKAGE))
STRUCTS = {"Error": "error", "Logger": "logger", "Device": "device", "Digest": "digest", "CacheOptions": "cache_options",
           "HookOptions": "hook_options", "ContextOptions": "context_options", "HolderCounts": "holder_counts", "ContextCompiles": "context_compiles",
           "BindingOptions": "binding_options", "OperatorOptions": "binding_operator_options",
           "BindingCounts": "binding_counts", "Counters": "counters", "Statistics": "statistics",
           "PackageOptions": "package_options", "ModelOptions": "model_options",
           "ModelReport": "model_report", "PackageReport": "package_report", "RunnerConstant": "constant",
           "UpdateOptions": "update_options", "LibraryDescription": "library_description",
           "TensorMetadata": "tensor_metadata", "Argument": "argument", "Stored": "stored",
           "CpuFeatures": "cpu_features", "File": "file", "Product": "product"}


@pytest.mark.quick
def test_structs_are_those_of_the_headers():
    from aoticache._core import capi
    lines = [*(f'#include "aoticache/{one}.h"' for one in ("admin", "dispatch", "remote", "runner", "torch")), "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    expected = []
    for python, c in STRUCTS.items():
        struct = getattr(capi, python)
        expected.append(_size(struct))
        lines.append(f'printf("%zu\\n", sizeof(aoticache_{c}));')
        for field in struct._fields_:
            place = getattr(struct, field[0])
            expected += [place.offset, place.size]
            lines.append(f'printf("%zu\\n%zu\\n", offsetof(aoticache_{c}, {field[0]}),')
            lines.append(f"       sizeof(((aoticache_{c} *)0)->{field[0]}));")
    with tempfile.TemporaryDirectory() as directory:
        source = os.path.join(directory, "sizes.c")
        with open(source, "w") as file:
            file.write("\n".join([*lines, "return 0; }", ""]))
        subprocess.run(["cc", "-D_GNU_SOURCE", f"-I{TOP}", source, "-o", f"{directory}/sizes"], check=True)
        found = subprocess.run([f"{directory}/sizes"], check=True, capture_output=True, text=True).stdout.split()
    assert [int(one) for one in found] == expected, (found, expected)


def _size(struct):
    import ctypes
    return ctypes.sizeof(struct)


@pytest.mark.quick
def test_version_is_the_header_s():
    import aoticache
    with open(os.path.join(TOP, "base", "base.h")) as file:
        assert re.search(r'#define AOTICACHE_VERSION "(.*)"', file.read())[1] == aoticache.__version__


@pytest.mark.quick
def test_text_is_for_python_3_10():
    paths = [*glob.glob(os.path.join(PACKAGE, "**", "*.py"), recursive=True), os.path.join(TOP, "eager", "torch", "build_hook.py")]
    assert len(paths) > 40
    for path in paths:
        with open(path) as file:
            ast.parse(file.read(), path, feature_version=(3, 10))


def runs(python):
    """Returns whether it runs: a shim of pyenv may exist without its Python."""
    return subprocess.run([python, "-c", "import ctypes"], capture_output=True).returncode == 0


def test_other_pythons_import_it():
    """All that are found; most of them have no PyTorch."""
    found = []
    for minor in range(10, 15):
        places = [f"python3.{minor}", *glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python3"))]
        python = next((one for one in map(shutil.which, places) if one and runs(one)), None)
        if python is None:
            continue
        text = "import sys; sys.modules['torch'] = None; import aoticache; print(aoticache.__version__)"
        done = subprocess.run([python, "-W", "error", "-c", text], env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, f"Python 3.{minor}: {done.stderr}"
        found.append(f"3.{minor}")
    print(f"# imported by Python {', '.join(found)}")


def test_types_hold():
    mypy = os.path.join(os.path.dirname(sys.executable), "mypy")
    if not os.path.exists(mypy):
        pytest.skip("mypy is not installed")
    done = subprocess.run([mypy, "--config-file", os.path.join(TOP, "pyproject.toml"), "--python-version", "3.11",
                           "--cache-dir", os.path.join(BUILD, "mypy-cache"), PACKAGE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.quick
def test_works_without_pytorch():
    said = play("""
        import sys
        sys.modules["torch"] = None
        import aoticache
        assert "PyTorch" in aoticache.doctor()
        for call in (lambda: aoticache.enable("abs"), lambda: aoticache.load_package("x.pt2"), aoticache.operators):
            try:
                call()
            except ImportError as error:
                assert "PyTorch cannot be imported" in str(error), error
            else:
                raise AssertionError("no exception")
        print(aoticache.stats())
        print("done")
    """)
    assert "no operator has been enabled" in said


def test_configuration_holds_here_too():
    with tempfile.TemporaryDirectory() as directory:
        shared, file = os.path.join(directory, "shared"), os.path.join(directory, "settings")
        os.mkdir(shared)
        os.chmod(shared, 0o770)
        with open(file, "w") as settings:
            settings.write("allow_shared = true\nfailure_ttl = 0\nmax_entries = 7\n")
        open_it = """
            import sys
            from aoticache import AoticacheError
            from aoticache._core import caches
            try:
                print(caches.open_cache(sys.argv[1] or None).directory, "done")
            except AoticacheError as error:
                print(error.status, "done")
        """
        assert "DENIED done" in play(open_it, [shared], AOTICACHE_CONFIG="")
        assert f"{shared} done" in play(open_it, [shared], AOTICACHE_CONFIG=file)
        assert f"{shared} done" in play(open_it, [shared], AOTICACHE_CONFIG="", AOTICACHE_ALLOW_SHARED="1")
        with open(file, "a") as settings:
            settings.write(f"directory = {shared}\n")
        assert f"{shared} done" in play(open_it, [""], AOTICACHE_CONFIG=file, AOTICACHE_DIR=None)


@pytest.mark.quick
def test_commands():
    def run(*words):
        done = subprocess.run([sys.executable, "-m", "aoticache", *words], env=environment(), capture_output=True,
                              text=True)
        return done.returncode, done.stdout + done.stderr
    status, said = run("doctor")
    assert status == 0 and "PyTorch" in said and "FAIL" not in said, said
    status, said = run("stats")
    assert status == 0 and "entries" in said, said
    reader, writer = os.pipe()  # it is never read
    os.close(reader)
    unread = subprocess.run([sys.executable, "-m", "aoticache", "stats"], env=environment(), stdout=writer,
                            stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert unread.returncode == -signal.SIGPIPE and "BrokenPipe" not in unread.stderr, (unread.returncode, unread.stderr)
    status, said = run("enable-check", "abs", "aten::add.Tensor")
    assert status == 0 and "aten::abs can be served on cpu" in said, said
    status, said = run("enable-check", "aten::abss")
    assert status == 1 and "did you mean aten::abs" in said and "Traceback" not in said, said


@pytest.mark.quick
def test_tools_are_commands_too():
    """`python -m aoticache WORD...` prints the same and exits with the same status as the tool."""
    with tempfile.TemporaryDirectory() as directory:
        cache = os.path.join(directory, "cache")
        variables = {**environment(AOTICACHE_DIR=cache), "AOTICACHE_HOME": BUILD}
        subprocess.run([sys.executable, "-m", "aoticache", "stats"], env=variables, check=True, capture_output=True)
        for ours, tool, status in [
            (["ls"], ["aoticache", "ls"], 0),
            (["--json", "ls"], ["aoticache", "ls", "--json"], 0),
            (["--cache-dir", cache, "ls", "--json"], ["aoticache", "ls", "--cache-dir", cache, "--json"], 0),
            (["why", "aten::abs", "--input", "float32:2"], ["aoticache", "why", "aten::abs", "--input", "float32:2"], 3),
            (["show", "abcdef"], ["aoticache", "show", "abcdef"], 3),
            (["gc", "--dry-run"], ["aoticache-gc", "--dry-run"], 0),
            (["stat", "--help"], ["aoticache-stat", "--help"], 0),
            (["nothing"], ["aoticache", "nothing"], 2),
        ]:
            program = os.path.join(BUILD, "bin", tool[0])
            expected = subprocess.run([program, *tool[1:]], env={**variables, "AOTICACHE_PYTHON": sys.executable},
                                      capture_output=True, text=True)
            found = subprocess.run([sys.executable, "-m", "aoticache", *ours], env=variables, capture_output=True, text=True)
            assert expected.returncode == status, (tool, expected)
            assert (found.returncode, found.stdout) == (status, expected.stdout), (ours, found, expected)
            assert found.stderr == expected.stderr, (ours, found, expected)
        elsewhere = {**variables, "AOTICACHE_LIBRARY": os.path.join(BUILD, "lib", "libaoticache.so.0"),
                     "AOTICACHE_HOME": directory, "PATH": directory}
        lost = subprocess.run([sys.executable, "-m", "aoticache", "ls"], env=elsewhere, capture_output=True, text=True)
        assert lost.returncode == 1 and "install the tools" in lost.stderr, lost


def test_packages_are_pytorch_s():
    import aoticache
    import torch
    directory = package_models.packages()
    store = os.path.join(BUILD, "torch-package-store")
    shutil.rmtree(store, ignore_errors=True)
    x = torch.linspace(-2, 2, 5 * 64).reshape(5, 64)
    for name in ("embedded", "pickled"):
        path = f"{directory}/{name}.pt2"
        theirs = torch._inductor.aoti_load_package(path)
        first, ours = (aoticache.load_package(path, cache_dir=store) for _ in range(2))
        assert first.origin.added and not ours.origin.added and ours.origin.key == first.origin.key
        for a, b in zip(ours(x), theirs(x), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
        assert type(ours(x)) is type(theirs(x))
        assert ours.get_metadata() == theirs.get_metadata()
        assert sorted(ours.get_constant_fqns()) == sorted(theirs.get_constant_fqns())
        values = {"weight": torch.ones(64, 64), "bias": torch.zeros(64), "offset": torch.ones(64)}
        for model in (ours, theirs):
            model.load_constants(values, check_full_update=True)
        torch.testing.assert_close(ours(x)[0], theirs(x)[0], rtol=0, atol=0)
        torch.testing.assert_close(ours.get_constants()["weight"], torch.ones(64, 64))
        _refuses(lambda: ours.load_constants({"nothing": x}, check_full_update=False), "nothing")
        _refuses(lambda: ours(x, x), "2")


def test_models_by_name_and_bad_packages():
    import aoticache
    import torch
    directory, store = package_models.packages(), os.path.join(BUILD, "torch-package-store")
    x = torch.arange(8.0)
    several = f"{directory}/several.pt2"
    torch.testing.assert_close(aoticache.load_package(several, "thrice", cache_dir=store)(x), x * 3)
    with open(several, "rb") as file:
        twice = aoticache.load_package(file, "twice", cache_dir=store)
    torch.testing.assert_close(twice(x), x * 2)
    theirs = torch._inductor.package.load_package(several, "twice")
    assert twice.get_metadata() == theirs.get_metadata() != {}, "it is kept, and the file is read no more"
    _refuses(lambda: aoticache.load_package(several, "once", cache_dir=store), "once")
    _refuses(lambda: aoticache.load_package(f"{directory}/none.pt2", cache_dir=store), "none.pt2")
    with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
        file.write(b"no archive")
        file.flush()
        _refuses(lambda: aoticache.load_package(file.name, cache_dir=store), file.name)
    counting = aoticache.load_package(f"{directory}/blob.pt2", cache_dir=store)
    module = package_models.define_modules(torch)[1]  # counts, too
    for _ in range(3):
        torch.testing.assert_close(counting(torch.ones(1000)), module(torch.ones(1000)))


def test_handles_do_not_leak():
    import aoticache
    import torch
    model = aoticache.load_package(f"{package_models.packages()}/several.pt2", "twice",
                                   cache_dir=os.path.join(BUILD, "torch-package-store"))
    x = torch.ones(8)
    found = bytes_per_call(lambda: model(x), 20000)
    assert found < 16, f"{found} bytes per call"  # a handle takes 32
    assert sys.getrefcount(x) < 5 and x._use_count() < 4, x._use_count()


def _refuses(call, words):
    try:
        call()
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"nothing was refused: {words}")
