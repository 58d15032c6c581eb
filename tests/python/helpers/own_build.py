"""Our build of Inductor's code (eager/compile/inductor/build.py, as installed in BUILD), for tests that compile libraries.

The installed file in share/aoticache/inductor is loaded, so that the tests test what users install.
"""
import importlib.util
import os

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
DIRECTORY = os.path.join(BUILD, "share", "aoticache", "inductor")


def load_module(path=os.path.join(DIRECTORY, "build.py"), name="aoticache_inductor_build"):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_worker():
    """Returns the compile worker (eager/compile/worker.py), which can make Inductor compile."""
    return load_module(os.path.join(BUILD, "share", "aoticache", "worker.py"), "aoticache_worker")


def make_builder(torch, **places):
    """Returns a Builder: inside `with builder.active():` Inductor's libraries are built our way if possible."""
    return load_module().Builder(torch, places)


def fingerprint():
    """Returns a text that changes if a build may give another result."""
    files = [os.path.join(DIRECTORY, name) for name in ("build.py", "wrapper.h", "wrapper_std.h", "wrapper_cxx.h")]
    files.append(os.path.join(BUILD, "lib", "libaoticache_runtime.a"))
    return " ".join(f"{os.path.getsize(path)}-{os.stat(path).st_mtime_ns}" for path in files)
