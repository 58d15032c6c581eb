"""The C tools: as commands of the Python environment that the package is installed in, and as `python -m aoticache ls`.

A tool that compiles needs a Python with PyTorch for its worker. Unless the environment names one, that is this Python.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from . import capi
from .errors import AoticacheError

#: Commands of `python -m aoticache` that are separate programs; every other one is a command of `aoticache`.
PROGRAMS = {"gc": "aoticache-gc", "stat": "aoticache-stat"}


def is_program(path: str | Path | None) -> bool:
    """Returns true for a compiled program; false for a script such as the calling one, which would start itself for ever."""
    try:
        with open(path or "", "rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(path or "", os.X_OK)
    except OSError:
        return False


def find(name: str) -> str | None:
    """Returns the tool that belongs to the library, otherwise the first in PATH."""
    own = capi.load().home / "bin" / name
    if is_program(own):
        return str(own)
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    places = (shutil.which(name, path=directory) for directory in directories if directory)
    return next((place for place in places if is_program(place)), None)


def lend_python() -> None:
    """Makes the tool's worker run on this Python, if it has PyTorch and the environment names no other one."""
    program = sys.executable or ""
    is_python = os.path.basename(program).startswith(("python", "pypy"))
    if is_python and not os.environ.get("AOTICACHE_PYTHON") and importlib.util.find_spec("torch") is not None:
        os.environ["AOTICACHE_PYTHON"] = program


def run(name: str, words: list[str]) -> int:
    """Replaces this process with the tool; the exit status is the tool's. Returns only if there is no such tool."""
    try:
        program = find(name)
    except AoticacheError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    if program is None:
        home = capi.load().home
        print(f"{name}: {home / 'bin' / name} does not exist, and {name} is not in PATH: install the tools", file=sys.stderr)
        return 1
    lend_python()
    try:
        os.execv(program, [name, *words])
    except OSError as error:
        print(f"{name}: {program}: {error.strerror}", file=sys.stderr)
        return 1


def run_command(command: str, words: list[str]) -> int:
    """Runs `python -m aoticache COMMAND WORD...`."""
    if command in PROGRAMS:
        return run(PROGRAMS[command], words)
    return run("aoticache", [command, *words])


def aoticache() -> int:
    """Runs `aoticache`, which shows and runs what is in the cache."""
    return run("aoticache", sys.argv[1:])


def aoticache_gc() -> int:
    """Runs `aoticache-gc`, which removes unused entries."""
    return run("aoticache-gc", sys.argv[1:])


def aoticache_stat() -> int:
    """Runs `aoticache-stat`, which shows counters of the cache."""
    return run("aoticache-stat", sys.argv[1:])
