"""Triton's keys where a machine lacks the program `file`.

Triton finds the libraries that it compiles for itself (its driver, its launchers) by a key that has
platform.architecture(), which runs `file` and answers something else where there is none. So a cache that a machine with
`file` has filled would not serve a slim container, and Triton would need a C compiler there. On Linux the answer is known.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

from ._imports import after_import

MODULE = "triton.runtime.build"
_is_installed = False


def install() -> None:
    """From now on, as soon as Triton is imported. Costs nothing where it is not."""
    global _is_installed
    if not _is_installed and sys.platform == "linux" and sys.maxsize > 2**32:
        _is_installed = True
        after_import(MODULE, replace)


def replace(build: Any) -> None:
    if hasattr(build, "platform_key"):
        build.platform_key = platform_key


def platform_key() -> str:
    """As triton.runtime.build.platform_key() is where there is `file`."""
    return ",".join((platform.machine(), platform.system(), "64bit", "ELF"))
