"""What several tests need is made by one of them, while the others wait."""
import contextlib
import fcntl
import os


@contextlib.contextmanager
def lock(folder):
    """Nobody else has `folder` meanwhile; a process that dies gives it up."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
