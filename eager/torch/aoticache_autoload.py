"""Called at the end of `import torch` (entry point of the group `torch.backends`): enables what the environment requests,
without a change of the program. AOTICACHE_ENABLE enables operators, AOTICACHE_COMPILE_CACHE installs the compile cache.

A separate module next to the package, so that programs that use neither only pay for reading two variables. Nothing may be
raised here: PyTorch could not be imported then.
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
    """Prepares Triton, if it is configured to use the cache, before it computes its first key."""
    if os.environ.get("TRITON_CACHE_MANAGER", "").startswith("aoticache."):
        from aoticache._core import triton_keys

        triton_keys.install()


def install_compile_cache() -> None:
    wish = os.environ.get(COMPILE_CACHE, "").strip().lower()
    if wish in OFF:
        return
    if wish not in ON + ANY:
        warnings.warn(f"aoticache: {COMPILE_CACHE}={wish} is not valid; it must be 1, any or 0", stacklevel=3)
        return
    import aoticache

    try:
        aoticache.install_compile_cache(any_compiler=wish in ANY)
    except Exception as error:  # noqa: BLE001
        raise RuntimeError(f"the compile cache cannot be installed: {error}") from error


def enable() -> None:
    """Enables names, patterns and presets, separated by commas, as for aoticache.enable(). With a bad name, enables nothing."""
    wish = os.environ.get(ENABLE, "").strip()
    if wish.lower() in OFF:
        return
    names = [name.strip() for name in wish.split(",") if name.strip()]
    import aoticache

    try:
        aoticache.enable(*("safe" if name.lower() in ON else name for name in names))
    except Exception as error:  # noqa: BLE001
        raise RuntimeError(f"{ENABLE}={wish} enables nothing: {error}") from error
