"""Builds the C parts for a wheel, with make, in a separate directory, and maps them to paths in the package.

In the package they have the layout of `make install` below a prefix (lib, bin, share, include), because the library finds its
worker and its shim two directories above itself. Links are left out, because wheels cannot contain them.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "aoticache"
LIBRARIES = (
    "libaoticache.so.0",
    "libaoticache_torchshim.so",
    "libaoticache_cxxbridge.so",
    "libaoticache_runtime.a",
    "aoticache/libtorch_cpu.so",  # kernels written in C are linked against it; it is empty
    "aoticache/proxy_executor.so",  # PyTorch's runner loads it when a model needs its proxy executor
    "aoticache/_runtime.abi3.so",  # the C part of aoticache.runtime, for every Python from 3.10 on
)
PROGRAMS = ("aoticache", "aoticache-gc", "aoticache-stat")
MODULES = "libaoticache_remote_*.so"  # for remotes; those whose libraries are installed
DIRECTORIES = ("share/aoticache", "include/aoticache")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook; hatchling finds it by this name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable":  # the package is used in the source tree, and finds build/lib there
            self._make(root, own_build_directory() or root / "build")
            return
        build = self._build_directory(root)
        self._make(root, build)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"
        for source, target in contents(root, build):
            if not source.is_file():
                raise FileNotFoundError(f"{source} has not been built")
            build_data["force_include"][str(source)] = f"{PACKAGE}/{target}"

    def _build_directory(self, root: Path) -> Path:
        own = own_build_directory()
        if own is not None:
            return own
        if os.access(root, os.W_OK):
            return root / "build" / "wheel"
        return Path(tempfile.mkdtemp(prefix="aoticache-wheel-"))

    def _make(self, root: Path, build: Path) -> None:
        jobs = os.environ.get("AOTICACHE_WHEEL_JOBS") or str(os.cpu_count() or 1)
        # Without debugging information; CFLAGS of the caller are used.
        flags = [f"{name}={os.environ.get(name, '-O2')}" for name in ("CFLAGS", "CXXFLAGS")]
        command = ["make", f"-j{jobs}", f"BUILD={build}", *flags, "all"]
        try:
            subprocess.run(command, cwd=root, check=True)
        except FileNotFoundError as error:
            raise RuntimeError("building aoticache needs make, a C and a C++ compiler (README.md, Building)") from error
        except subprocess.CalledProcessError as error:
            raise RuntimeError(
                f"{' '.join(command)} failed with status {error.returncode}: see README.md, Building, for what it needs"
            ) from error


def own_build_directory() -> Path | None:
    """Returns the build directory that the environment names. Files that are up to date there are not built again."""
    own = os.environ.get("AOTICACHE_WHEEL_BUILD")
    return Path(own).resolve() if own else None


def contents(root: Path, build: Path) -> list[tuple[Path, str]]:
    """Returns files, and their paths below the package."""
    found = [(build / "lib" / name, f"lib/{name}") for name in LIBRARIES]
    found += [(path, f"lib/{path.name}") for path in sorted((build / "lib").glob(MODULES))]
    found += [(build / "bin" / name, f"bin/{name}") for name in PROGRAMS]
    for directory in DIRECTORIES:
        files = sorted(path for path in (build / directory).rglob("*") if path.is_file())
        found += [(path, f"{directory}/{path.relative_to(build / directory)}") for path in files]
    targets = {target for _, target in found}
    # The bridge is compiled on the machine that uses it, against that machine's PyTorch.
    for source, target in [
        ("eager/torch/bridge.cpp", "share/aoticache/bridge.cpp"),
        *((header, f"include/aoticache/{header}") for header in bridge_headers(root)),
    ]:
        if target not in targets:
            found.append((root / source, target))
    return found


def bridge_headers(root: Path) -> list[str]:
    """Returns our headers that bridge.cpp includes, directly or indirectly."""
    seen: list[str] = []
    todo = ["eager/torch/bridge.cpp"]
    while todo:
        for line in (root / todo.pop()).read_text().splitlines():
            if line.startswith('#include "'):
                header = line.split('"')[1]
                if header not in seen:
                    seen.append(header)
                    todo.append(header)
    return seen


def platform_tag() -> str:
    """Returns linux_x86_64, not manylinux: the wheel needs libraries of the system on which it was built."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
