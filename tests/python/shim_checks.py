"""Runs the test_ functions of a test of the shim twice, in processes of their own: with what the machine has, and with a
search path on which neither the BLAS nor SLEEF can be loaded, so that plain C does the work.
"""
import ctypes
import os
import subprocess
import sys
import tempfile

import test_shim_functions as functions


def load():
    functions.shim = ctypes.CDLL(functions.SHIM)
    functions.shim.torch_exception_get_what_without_backtrace.restype = ctypes.c_char_p


def run_here(subject, tests, label):
    load()
    failed = 0
    for name, test in list(tests.items()):
        if not name.startswith("test_"):
            continue
        functions.torch.manual_seed(0)
        name = "%s: %s (%s)" % (subject, name[5:], label)
        try:
            test()
            print("ok - " + name, flush=True)
        except Exception as error:
            failed += 1
            print("not ok - %s: %s: %s" % (name, type(error).__name__, " ".join(str(error).split())[:600]), flush=True)
    return 1 if failed else 0


def main(subject, file, tests):
    """The exit status. `tests`: the globals of the test, which is run again as `file LABEL`."""
    if not os.path.exists(functions.SHIM):
        print("not ok - %s is not built" % functions.SHIM)
        return 1
    if len(sys.argv) > 1:
        return run_here(subject, tests, sys.argv[1])
    status = subprocess.call([sys.executable, file, "as the machine is"])
    with tempfile.TemporaryDirectory() as folder:
        for name in ("libopenblas.so.0", "libsleef.so.3"):
            open(os.path.join(folder, name), "w").close()
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        status |= subprocess.call([sys.executable, file, "plain C"], env={**os.environ, "LD_LIBRARY_PATH": path})
    return status
