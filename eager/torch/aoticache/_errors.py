"""What the package raises, and how it warns.

Only misuse raises: a name that no operator has, an option that does not exist. What the machine lacks (a compiler, a
directory that can be written, a GPU) never does: the program goes on with PyTorch's own kernels, and one warning of the
class `AoticacheWarning` says why.
"""

from __future__ import annotations

import sys
import threading
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


class AoticacheError(RuntimeError):
    """A function of the C library failed; `status` is the name of its result: "NOT_FOUND", "IO", ..."""

    def __init__(self, message: str, status: str = "INVALID") -> None:
        super().__init__(message)
        self.status = status


class LibraryNotFoundError(AoticacheError, ImportError):
    """libaoticache.so is nowhere; the message lists where it was looked for."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "NOT_FOUND")


class TorchNotFoundError(AoticacheError, ImportError):
    """What was asked for needs PyTorch, which is not installed here."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "NOT_FOUND")


class OperatorNotFoundError(AoticacheError, ValueError):
    """No operator has this name; `suggestions` are the nearest names."""

    def __init__(self, message: str, suggestions: tuple[str, ...] = ()) -> None:
        super().__init__(message, "NOT_FOUND")
        self.suggestions = suggestions


class OperatorRefusedError(AoticacheError, ValueError):
    """The operator exists and cannot be served; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "UNSUPPORTED")


class SettingsError(AoticacheError, ValueError):
    """An option that does not exist, or one that contradicts what is in use."""


class AoticacheWarning(UserWarning):
    """Something is missing, and PyTorch's own kernels answer instead."""


_said: set[str] = set()
_lock = threading.Lock()


def warn_once(topic: str, message: str) -> None:
    """One warning for each topic in a process, at the line outside of the package that led to it."""
    with _lock:
        if topic in _said:
            return
        _said.add(topic)
    warnings.warn(message, AoticacheWarning, stacklevel=_depth_of_caller())


def _depth_of_caller() -> int:
    """The stacklevel, for warn_once(), of the innermost frame that is none of the package's."""
    package = __name__.partition(".")[0]
    frame: FrameType | None = sys._getframe()
    depth = 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, depth = frame.f_back, depth + 1
    return depth


def after_fork() -> None:
    global _lock
    _lock = threading.Lock()


def forget_warnings() -> None:
    """Lets every topic warn again (for tests)."""
    with _lock:
        _said.clear()
