"""Called at the end of `import torch` (entry point of the group `torch.backends`): with AOTICACHE_COMPILE_CACHE in the
environment the compile cache is installed, without a change of the program.

A module of its own beside the package, so that programs that do not ask for it pay for reading the variable alone. Nothing
may be raised here: PyTorch would refuse to be imported.
"""

from __future__ import annotations

import os
import warnings

VARIABLE = "AOTICACHE_COMPILE_CACHE"
OFF, ON, ANY = ("", "0", "off", "no", "false"), ("1", "on", "yes", "true"), ("any",)


def autoload() -> None:
    wish = os.environ.get(VARIABLE, "").strip().lower()
    if wish in OFF:
        return
    if wish not in ON + ANY:
        warnings.warn(f"aoticache: {VARIABLE}={wish} means nothing; it may be 1, any or 0", stacklevel=2)
        return
    try:
        import aoticache

        aoticache.install_compile_cache(any_compiler=wish in ANY)
    except Exception as error:  # noqa: BLE001
        warnings.warn(f"aoticache: the compile cache cannot be installed: {error}", stacklevel=2)
