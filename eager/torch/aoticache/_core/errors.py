"""The exceptions and the warning of the package.

Only misuse raises: a name that no operator has, an option that does not exist. If the machine lacks something (a compiler, a
writable directory, a GPU), nothing is raised: the program continues with PyTorch's own kernels, and one warning of the class
`AoticacheWarning` gives the reason.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from types import FrameType


class AoticacheError(RuntimeError):
    """A function of the C library failed; `status` is the name of its result: "NOT_FOUND", "IO", ..."""

    def __init__(self, message: str, status: str = "INVALID") -> None:
        super().__init__(message)
        self.status = status


class LibraryNotFoundError(AoticacheError, ImportError):
    """libaoticache.so was not found; the message lists the paths that were tried."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "NOT_FOUND")


class TorchNotFoundError(AoticacheError, ImportError):
    """The request needs PyTorch, which is not installed here."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "NOT_FOUND")


class OperatorNotFoundError(AoticacheError, ValueError):
    """No operator has this name; `suggestions` are the nearest names."""

    def __init__(self, message: str, suggestions: tuple[str, ...] = ()) -> None:
        super().__init__(message, "NOT_FOUND")
        self.suggestions = suggestions


class OperatorRefusedError(AoticacheError, ValueError):
    """The operator exists but cannot be served; the message gives the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "UNSUPPORTED")


class SettingsError(AoticacheError, ValueError):
    """An option does not exist, or contradicts the settings in use."""


class AoticacheWarning(UserWarning):
    """Something is missing, and PyTorch's own kernels answer instead."""


_said: set[str] = set()
_lock = threading.Lock()


def logger() -> logging.Logger:
    """Returns the logger of the package and of the C library. PyTorch sets its level and handlers from TORCH_LOGS."""
    import logging  # not when this module is imported, since aoticache.runtime should be imported fast

    log = logging.getLogger("aoticache")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
    return log


def warn_once(topic: str, message: str, *, is_logged: bool = False) -> None:
    """
    Warns once per topic and process, at the line outside of the package that led to it. Logs the message every time, from the
    second time on at level DEBUG. is_logged: the caller has logged it.
    """
    with _lock:
        is_new = topic not in _said
        _said.add(topic)
    if not is_logged:
        log = logger().warning if is_new else logger().debug
        log("%s", message.removeprefix("aoticache: "), stacklevel=2)
    if is_new:
        warnings.warn(message, AoticacheWarning, stacklevel=_depth_of_caller())


def _depth_of_caller() -> int:
    """Returns the stacklevel, for warn_once(), of the innermost frame outside the package."""
    package = __name__.partition(".")[0]
    frame: FrameType | None = sys._getframe()
    depth = 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, depth = frame.f_back, depth + 1
    return depth


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def forget_warnings() -> None:
    """Lets every topic warn again (for tests)."""
    with _lock:
        _said.clear()
