"""Progress of compiles: a line with a bar on a terminal, while `wait()` waits. Nothing is written if standard error is not a
terminal, and the line is erased at the end.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

FIRST_SECONDS = 0.4  # a shorter wait needs no bar
EVERY_SECONDS = 0.1


@dataclass(frozen=True)
class Compiles:
    """Background compiles of a process."""

    queued: int = 0
    running: int = 0
    #: Number of compiles that have ended since the process began.
    ended: int = 0
    #: The bridge is being compiled, and operators wait for it.
    is_bridge: bool = False

    @property
    def left(self) -> int:
        return self.queued + self.running


class Bar:
    """The bar of one wait. `show()` is called periodically, `clear()` at the end, also after an exception."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream
        self.clock = clock
        self.begin = clock()
        self.shown = 0.0
        self.ended_before: int | None = None
        self.is_there = False

    def show(self, compiles: Compiles) -> None:
        now = self.clock()
        if self.ended_before is None:
            self.ended_before = compiles.ended
        if now - self.begin < FIRST_SECONDS or now - self.shown < EVERY_SECONDS:
            return
        self.shown = now
        self.write("\r\x1b[K" + self.text(compiles, shutil.get_terminal_size().columns))
        self.is_there = True

    def text(self, compiles: Compiles, columns: int) -> str:
        seconds = f"{self.clock() - self.begin:.0f} s"
        if compiles.is_bridge:
            return f"aoticache: compiling the bridge, once for this PyTorch, {seconds}"[: columns - 1]
        done = compiles.ended - (self.ended_before or 0)
        total = done + compiles.left
        words = f"aoticache: {done} of {total} compiles, {seconds}"
        width = min(40, columns - len(words) - 4)
        if width < 5:
            return words[: columns - 1]
        full = width * done // max(1, total)
        return f"{words} [{'#' * full}{'.' * (width - full)}]"

    def clear(self) -> None:
        if self.is_there:
            self.write("\r\x1b[K")
            self.is_there = False

    def write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # the terminal is gone or the stream is closed: the wait continues
            pass


def make_bar(wanted: bool | None) -> Bar | None:
    """Returns a bar if wanted; None: if standard error is a terminal that can return to the beginning of its line."""
    stream = sys.stderr
    if stream is None or wanted is False:
        return None
    if wanted is None:
        try:
            if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
                return None
        except (AttributeError, ValueError):
            return None
    return Bar(stream)
