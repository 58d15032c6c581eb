"""Fixes Triton's keys on machines without the program `file`.

Triton finds the libraries that it compiles for itself (its driver, its launchers) by a key that contains
platform.architecture(). That runs `file`, and returns another result if there is none. So a cache filled on a machine with `file`
would not serve a slim container, and Triton would need a C compiler there. On Linux the result is known.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

from .imports import after_import

MODULE = "triton.runtime.build"
_is_installed = False


def install() -> None:
    """Replaces the function when Triton is imported. Costs nothing if it is not."""
    global _is_installed
    if not _is_installed and sys.platform == "linux" and sys.maxsize > 2**32:
        _is_installed = True
        after_import(MODULE, replace)


def replace(build: Any) -> None:
    if hasattr(build, "platform_key"):
        build.platform_key = platform_key


def platform_key() -> str:
    """Returns what triton.runtime.build.platform_key() returns on a machine with `file`."""
    return ",".join((platform.machine(), platform.system(), "64bit", "ELF"))
