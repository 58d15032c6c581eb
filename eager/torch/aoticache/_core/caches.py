"""Caches by directory, each opened once in a process, and the logger of the C library."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import threading
from ctypes import byref, c_void_p, sizeof
from typing import Any

from . import capi, errors
from .errors import warn_once

log = errors.logger()
_AS_CONFIGURED = (1 << 32) - 1
_LEVELS = {0: logging.ERROR, 1: logging.WARNING, 2: logging.INFO, 3: logging.DEBUG}


def _sink(level: int, line: str) -> None:
    log.log(_LEVELS.get(level, logging.INFO), "%s", line)
    if level <= 1:
        warn_once(
            "log", f"aoticache: {line} (further messages go to logging.getLogger('aoticache'))", is_logged=True
        )


_log_function: Any = None


def logger() -> capi.Logger:
    """Returns the logger that is passed to the C library everywhere."""
    global _log_function
    if _log_function is None:
        _log_function = capi.make_logger(_sink)
    return capi.Logger(_log_function, None)


class Cache:
    """An open cache; it stays open as long as the process lives."""

    def __init__(self, library: capi.Library, directory: str | None) -> None:
        self.library = library
        self.handle = c_void_p()
        # The C library fills in options that are not set here from configuration files and the environment.
        options = capi.CacheOptions(
            size=sizeof(capi.CacheOptions),
            directory=capi.encode(directory) if directory is not None else None,
            lock_timeout_ms=_AS_CONFIGURED,
            compile_timeout_ms=_AS_CONFIGURED,
            failure_ttl_seconds=_AS_CONFIGURED,
            logger=logger(),
            failure_max_ttl_seconds=86400,
        )
        library.call("aoticache_cache_open", byref(options), byref(self.handle))
        info: capi.CacheInfo = library.get("aoticache_cache_get_info", self.handle)
        self.directory = os.fsdecode(info.directory)
        self.read_only = bool(info.is_read_only)
        if self.read_only:
            warn_once(
                "read-only",
                f"aoticache: the cache {self.directory} cannot be written: kernels that it has are used, new ones are "
                "lost with the process",
            )

    def statistics(self) -> capi.Statistics:
        # Larger than needed: a newer library may append more numbers.
        room = ctypes.create_string_buffer(sizeof(capi.Statistics) + 4096)
        self.library.call("aoticache_cache_get_statistics", self.handle, None, room)
        return capi.Statistics.from_buffer_copy(room)

    def flush(self) -> None:
        error = capi.Error()
        self.library.c.aoticache_cache_flush(self.handle, ctypes.byref(error))

    def at_exit(self) -> None:
        self.library.c.aoticache_cache_at_exit(self.handle)


_caches: dict[str, Cache] = {}
_lock = threading.Lock()


def open_cache(directory: str | None) -> Cache:
    """Returns the cache of a directory; None: the default one. Raises AoticacheError."""
    library = capi.load()
    with _lock:
        key = directory if directory is not None else default_directory(library)
        if key not in _caches:
            _caches[key] = Cache(library, directory)
        return _caches[key]


def default_directory(library: capi.Library) -> str:
    text = ctypes.create_string_buffer(4096)
    library.call("aoticache_cache_default_directory", text, ctypes.c_size_t(len(text)))
    return os.fsdecode(text.value)


@atexit.register  # called after the functions of modules that use caches, which register theirs later
def _at_exit() -> None:
    """Writes uses and counts that are still in memory, and leaves an index that opens fast."""
    for cache in list(_caches.values()):
        cache.at_exit()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
