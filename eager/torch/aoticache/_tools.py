"""The C tools as commands of the Python environment that the package is installed in."""

from __future__ import annotations

import os
import sys

from . import _library
from ._errors import AoticacheError


def run(name: str) -> int:
    """Becomes the tool."""
    try:
        program = _library.load().home / "bin" / name
    except AoticacheError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        print(f"{name}: {program}: {error.strerror}", file=sys.stderr)
        return 1


def aoticache() -> int:
    """`aoticache`: what is in the cache, and running it."""
    return run("aoticache")


def aoticache_gc() -> int:
    """`aoticache-gc`: throws away what nobody uses."""
    return run("aoticache-gc")


def aoticache_stat() -> int:
    """`aoticache-stat`: counters of the cache."""
    return run("aoticache-stat")
