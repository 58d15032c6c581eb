"""The C++ bridge: builds the command that compiles it for the installed PyTorch, and gets it from the cache or compiles it.

It is compiled once for each version of PyTorch and kept in the cache like a kernel. Its key consists of its source and of the
properties of PyTorch that it depends on.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
from ctypes import byref, c_size_t, c_void_p
from pathlib import Path

from .._core import caches, capi, library_path
from .._core.errors import AoticacheError
from .._core.pytorch import require_torch
from .._core.settings import Settings

#: Our headers that bridge.cpp includes, below the directory of headers.
HEADERS = ("eager/torch/bridge.h", "eager/value.h", "base/base.h", "base/tensor_view.h")
COMPILERS = ("c++", "g++", "clang++")


class Bridge:
    """A bridge on disk. The file exists as long as this object."""

    def __init__(self, library: capi.Library, path: str, artifact: c_void_p) -> None:
        self.library, self.path, self.artifact = library, path, artifact


def find_source(library: capi.Library) -> tuple[Path, Path]:
    """Returns bridge.cpp and the directory of our headers: of the installation, otherwise of the source tree."""
    places = [(library.home / "share" / "aoticache" / "bridge.cpp", library.home / "include" / "aoticache")]
    top = library_path.source_tree()
    tree = Path(top) if top is not None else None
    if tree is not None:
        places.insert(0, (tree / "eager" / "torch" / "bridge.cpp", tree))
    for source, include in places:
        if source.is_file() and all((include / header).is_file() for header in HEADERS):
            return source, include
    raise AoticacheError(f"bridge.cpp and its headers are not under {places[-1][0].parent}; set AOTICACHE_HOME", "NOT_FOUND")


def find_compiler(settings: Settings) -> str | None:
    """Returns the path of the C++ compiler, or None."""
    wanted = settings.cxx or os.environ.get("CXX")
    if wanted:
        return shutil.which(wanted.split()[0])
    # Empty and relative directories of PATH are skipped, so that no program in the working directory is run.
    return next((path for path in map(shutil.which, COMPILERS) if path and os.path.isabs(path)), None)


def command(compiler: str, include: Path, extra: list[str]) -> list[str]:
    """Returns the compiler with all its options; the caller appends "-o FILE SOURCE"."""
    torch = require_torch()
    root = Path(torch.__file__).resolve().parent
    words = [compiler, *extra, "-std=c++20", "-O2", "-fPIC", "-shared", "-w"]
    words += ["-fvisibility=hidden", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    words.append(f"-I{include}")
    for directory in torch_includes(root):
        words += ["-isystem", directory]
    libraries = str(root / "lib")
    # No rpath: on other machines PyTorch is in another directory. The bridge finds the loaded library by its soname.
    # Never unmapped: PyTorch's dispatcher keeps pointers into it.
    words += [f"-L{libraries}", "-Wl,-z,nodelete", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"]
    return words


def torch_includes(root: Path) -> list[str]:
    """Returns the directories of PyTorch's headers; asks torch.utils.cpp_extension if they are not in the usual one."""
    usual = root / "include"
    if (usual / "ATen" / "ATen.h").is_file():
        return [str(usual)]
    from torch.utils.cpp_extension import include_paths

    return [str(path) for path in include_paths()]


def version_tuple(version: str) -> tuple[int, int, int]:
    """Returns (2, 13, 0) for "2.13.0+cpu" and "2.13.0a0"."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None:
        return 0, 0, 0
    return int(found[1]), int(found[2]), int(found[3] or 0)


def environment(include: Path) -> list[str]:
    """Returns what the bridge's key contains in addition to its source."""
    torch = require_torch()
    digest = hashlib.sha256()
    for header in HEADERS:
        digest.update((include / header).read_bytes())
    pairs = [
        "framework=pytorch",
        f"framework_version={torch.__version__}",
        f"cxx11_abi={int(torch.compiled_with_cxx11_abi())}",
        f"bridge_headers={digest.hexdigest()[:32]}",
        f"libc={_libc()}",
    ]
    commit = getattr(torch.version, "git_version", None)
    if commit:
        pairs.append(f"framework_commit={commit}")
    return pairs


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (OSError, ValueError):
        return "unknown"


def prepare(cache: caches.Cache, settings: Settings, *, compile: bool) -> Bridge:
    """
    Returns the bridge for this PyTorch. compile: whether to compile it (about 30 s) if it is not in the cache. Raises
    AoticacheError: NOT_FOUND if it is not in the cache and may not or cannot be compiled, COMPILE_FAILED with the compiler's
    message.
    """
    library = cache.library
    source, include = find_source(library)
    words = None
    if compile:
        compiler = find_compiler(settings)
        if compiler is None:
            raise AoticacheError("no C++ compiler (c++, g++, clang++ or $CXX)", "NOT_FOUND")
        extra = (settings.cxx or os.environ.get("CXX") or compiler).split()[1:]
        words = capi.strings(command(compiler, include, extra))
    path, artifact = ctypes.create_string_buffer(4096), c_void_p()
    library.call(
        "aoticache_binding_prepare_bridge",
        cache.handle,
        os.fsencode(source),
        words,
        capi.strings(environment(include)),
        path,
        c_size_t(len(path)),
        byref(artifact),
    )
    return Bridge(library, os.fsdecode(path.value), artifact)
