"""Called at the end of `import torch` (entry point of the group `torch.backends`): what the environment asks for happens
without a change of the program. AOTICACHE_ENABLE enables operators, AOTICACHE_COMPILE_CACHE installs the compile cache.

A module of its own beside the package, so that programs that ask for neither pay for reading two variables alone. Nothing
may be raised here: PyTorch would refuse to be imported.
"""

from __future__ import annotations

import os
import warnings

COMPILE_CACHE, ENABLE = "AOTICACHE_COMPILE_CACHE", "AOTICACHE_ENABLE"
OFF, ON, ANY = ("", "0", "off", "no", "false"), ("1", "on", "yes", "true"), ("any",)


def autoload() -> None:
    for install in (serve_triton, install_compile_cache, enable):
        try:
            install()
        except Exception as error:  # noqa: BLE001
            warnings.warn(f"aoticache: {error}", stacklevel=3)


def serve_triton() -> None:
    """Where Triton has been told to ask the cache, before it makes its first key."""
    if os.environ.get("TRITON_CACHE_MANAGER", "").startswith("aoticache."):
        from aoticache import _triton_keys

        _triton_keys.install()


def install_compile_cache() -> None:
    wish = os.environ.get(COMPILE_CACHE, "").strip().lower()
    if wish in OFF:
        return
    if wish not in ON + ANY:
        warnings.warn(f"aoticache: {COMPILE_CACHE}={wish} means nothing; it may be 1, any or 0", stacklevel=3)
        return
    import aoticache

    try:
        aoticache.install_compile_cache(any_compiler=wish in ANY)
    except Exception as error:  # noqa: BLE001
        raise RuntimeError(f"the compile cache cannot be installed: {error}") from error


def enable() -> None:
    """Names, patterns and presets, with commas between them, as for aoticache.enable(). One bad name enables nothing."""
    wish = os.environ.get(ENABLE, "").strip()
    if wish.lower() in OFF:
        return
    names = [name.strip() for name in wish.split(",") if name.strip()]
    import aoticache

    try:
        aoticache.enable(*("safe" if name.lower() in ON else name for name in names))
    except Exception as error:  # noqa: BLE001
        raise RuntimeError(f"{ENABLE}={wish} enables nothing: {error}") from error
