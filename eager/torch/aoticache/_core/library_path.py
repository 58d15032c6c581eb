"""Finds libaoticache.so. Imports almost nothing, so that aoticache.runtime is imported within milliseconds."""

from __future__ import annotations

import os
from collections.abc import Iterator

SONAME = "libaoticache.so.0"


def source_tree() -> str | None:
    """Returns the top of the source tree that this package is used from; None if it is installed."""
    top = os.path.realpath(__file__)
    for _ in range(5):
        top = os.path.dirname(top)
    return top if os.path.isfile(os.path.join(top, "eager", "torch", "binding.h")) else None


def candidates() -> Iterator[str]:
    """Yields the files to try, in this order; the last one is the library's name for the dynamic linker."""
    own = os.environ.get("AOTICACHE_LIBRARY")
    if own:
        yield own
        return
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "lib", SONAME)
    for variable in ("AOTICACHE_HOME", "BUILD"):
        directory = os.environ.get(variable)
        if directory:
            yield os.path.join(os.path.abspath(directory), "lib", SONAME)
    tree = source_tree()
    if tree is not None:
        yield os.path.join(tree, "build", "lib", SONAME)
    yield SONAME
