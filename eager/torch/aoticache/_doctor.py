"""Reports what is installed and what is missing: `python -m aoticache doctor`. Works without PyTorch and the library."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from . import _compile_cache
from ._core import caches, capi
from ._core.errors import AoticacheError
from ._core.settings import current_settings
from ._operators import bridges, session

OK, MISSING, FAILED = "ok", "note", "FAIL"


@dataclass(frozen=True)
class Finding:
    """One line of the report. FAILED: nothing can be served; MISSING: less can be served."""

    verdict: str
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict:4}  {self.what:14} {self.text}"


def findings() -> Iterator[Finding]:
    yield Finding(OK, "Python", f"{platform.python_version()} ({sys.executable or 'embedded'}) on {platform.machine()}")
    try:
        library = capi.load()
    except AoticacheError as error:
        yield Finding(FAILED, "library", str(error))
        return
    yield Finding(OK, "library", f"{library.version} ({library.path})")
    if not library.has_binding():
        yield Finding(FAILED, "library", "it has no binding for PyTorch: it is an older version")
    yield from _check_files(library)
    yield from _check_cache()
    yield from _check_torch(library)


def _check_files(library: capi.Library) -> Iterator[Finding]:
    worker = library.home / "share" / "aoticache" / "worker.py"
    if worker.is_file():
        yield Finding(OK, "worker", str(worker))
    else:
        yield Finding(FAILED, "worker", f"{worker} is missing: nothing can be compiled; set AOTICACHE_HOME")


def _check_cache() -> Iterator[Finding]:
    try:
        cache = caches.open_cache(current_settings().cache_dir)
    except AoticacheError as error:
        yield Finding(FAILED, "cache", str(error))
        return
    free = shutil.disk_usage(cache.directory).free
    text = f"{cache.directory}, {free / 1e9:.1f} GB free"
    if cache.read_only:
        yield Finding(MISSING, "cache", f"{text}; it cannot be written: compiled kernels are lost when the process ends")
    else:
        yield Finding(OK, "cache", text)


def _check_torch(library: capi.Library) -> Iterator[Finding]:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        yield Finding(FAILED, "PyTorch", "it is not installed for this Python: pip install 'aoticache[torch]'")
        return
    if bridges.version_tuple(version) < session.LEAST_TORCH:
        yield Finding(FAILED, "PyTorch", f"{version}; operators can be enabled from 2.10 on, packages load")
        return
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - a broken installation fails in many ways
        yield Finding(FAILED, "PyTorch", f"{version} is installed, but cannot be imported: {error}")
        return
    gpu = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU"
    yield Finding(OK, "PyTorch", f"{torch.__version__}, {gpu}, {torch.get_num_threads()} threads")
    if bridges.version_tuple(version) < (2, 12, 0):
        yield Finding(MISSING, "plug mode", f"AOTI-eager of PyTorch {version} has no backends; 2.12 has")
    yield from _check_compile_cache(version)
    yield from _check_bridge()


def _check_compile_cache(version: str) -> Iterator[Finding]:
    if not _compile_cache.is_known(version):
        known = ", ".join(_compile_cache.known_versions())
        yield Finding(MISSING, "torch.compile", f"PyTorch {version} compiles without the cache; the compile cache supports {known}")
        return
    if _compile_cache.is_installed():
        yield Finding(OK, "torch.compile", "the compile cache is installed")
    elif (missing := _compile_cache.missing_function()) is not None:
        yield Finding(MISSING, "torch.compile", f"this PyTorch compiles without the cache: it has no {missing}")
    else:
        how = "aoticache.install_compile_cache(), or AOTICACHE_COMPILE_CACHE=1 with the package installed"
        yield Finding(OK, "torch.compile", f"it can be served: {how}")


def _check_bridge() -> Iterator[Finding]:
    settings = current_settings()
    compiler = bridges.find_compiler(settings)
    try:
        cache = caches.open_cache(settings.cache_dir)
        bridges.prepare(cache, settings, compile=False)
        yield Finding(OK, "bridge", "in the cache for this PyTorch")
    except AoticacheError as error:
        if error.status != "NOT_FOUND" or "cache has no bridge" not in str(error):
            yield Finding(FAILED, "bridge", str(error))
        elif compiler is None:
            yield Finding(
                FAILED,
                "bridge",
                "not in the cache, and no C++ compiler (c++, g++, clang++ or $CXX): no operator can be enabled; install "
                "a compiler, or fill the cache on a machine that has one",
            )
        else:
            yield Finding(OK, "bridge", "not in the cache yet; the first enable() compiles it, some 30 s, once")
    if compiler is None:
        yield Finding(FAILED, "C++ compiler", "none (c++, g++, clang++ or $CXX): kernels cannot be compiled here")
    else:
        yield Finding(OK, "C++ compiler", compiler)


def report() -> str:
    lines = [str(finding) for finding in findings()]
    for variable in ("COMPILE_CACHE", "DIR", "ENABLE", "HOME", "LIBRARY", "PYTHON", "RECORD"):
        value = os.environ.get(f"AOTICACHE_{variable}")
        if value:
            lines.append(f"      AOTICACHE_{variable}={value}")
    return "\n".join(lines)


def is_healthy() -> bool:
    return all(finding.verdict != FAILED for finding in findings())
