"""Our build of Inductor's code (eager/inductor/build.py, as installed in BUILD), for tests that compile libraries.

The same file is in share/aoticache/inductor; it is read from there, so that what is tested is what is installed.
"""
import importlib.util
import os

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
FOLDER = os.path.join(BUILD, "share", "aoticache", "inductor")


def load_module(path=os.path.join(FOLDER, "build.py"), name="aoticache_inductor_build"):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_worker():
    """The compile worker (eager/hook/worker.py), for what it can have Inductor do."""
    return load_module(os.path.join(BUILD, "share", "aoticache", "worker.py"), "aoticache_worker")


def make_builder(torch, **places):
    """A Builder: inside `with builder.active():` Inductor's libraries are built our way, where they can be."""
    return load_module().Builder(torch, places)


def fingerprint():
    """Text that changes when a build may come out otherwise."""
    files = [os.path.join(FOLDER, name) for name in ("build.py", "wrapper.h", "wrapper_std.h", "wrapper_cxx.h")]
    files.append(os.path.join(BUILD, "lib", "libaoticache_runtime.a"))
    return " ".join(f"{os.path.getsize(path)}-{os.stat(path).st_mtime_ns}" for path in files)
