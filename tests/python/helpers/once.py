"""Lets one test make what several tests need, while the others wait."""
import contextlib
import fcntl
import os


@contextlib.contextmanager
def lock(directory):
    """Locks the directory; if the process dies, the lock is released."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, ".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
