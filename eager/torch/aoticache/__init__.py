"""aoticache: runs PyTorch's eager operators with compiled kernels from a cache.

```python
import torch, aoticache

aoticache.enable("aten::abs", "aten::add.Tensor")   # names, patterns ("aten::*norm*"), presets ("pointwise", "safe")
y = torch.abs(x)            # a miss: compiled in the background, PyTorch's kernel answers meanwhile
aoticache.wait()            # until the compiles are done
y = torch.abs(x)            # a hit: the compiled kernel, from now on in every process
print(aoticache.stats())
aoticache.disable()         # back to plain PyTorch
```

A worker process compiles each kernel once per machine; the kernel is kept on disk. The work is done in C: the package
calls libaoticache and needs no particular version of Python. `import aoticache` does not import PyTorch; the functions that
need PyTorch do. `aoticache.runtime` runs models on arrays (NumPy's and others) without PyTorch.

Only misuse raises (a name that no operator has, a setting that does not exist). If the machine lacks something, there is
one AoticacheWarning, and PyTorch's own kernels answer.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._api import (
        PRESETS as PRESETS,
        AoticacheError as AoticacheError,
        AoticacheWarning as AoticacheWarning,
        BackgroundModel as BackgroundModel,
        CacheStats as CacheStats,
        CompiledModel as CompiledModel,
        Enabled as Enabled,
        Explanation as Explanation,
        LibraryNotFoundError as LibraryNotFoundError,
        ModelOrigin as ModelOrigin,
        OperatorNotFoundError as OperatorNotFoundError,
        OperatorRefusedError as OperatorRefusedError,
        OperatorStats as OperatorStats,
        PackagedModel as PackagedModel,
        Settings as Settings,
        SettingsError as SettingsError,
        Stats as Stats,
        TorchNotFoundError as TorchNotFoundError,
        compile as compile,
        compile_cache as compile_cache,
        configure as configure,
        disable as disable,
        doctor as doctor,
        enable as enable,
        enabled as enabled,
        explain as explain,
        install_backend as install_backend,
        install_compile_cache as install_compile_cache,
        is_enabled as is_enabled,
        load as load,
        load_package as load_package,
        operators as operators,
        stats as stats,
        uninstall_backend as uninstall_backend,
        uninstall_compile_cache as uninstall_compile_cache,
        wait as wait,
    )

    __version__: str

__all__ = [
    "PRESETS",
    "AoticacheError",
    "AoticacheWarning",
    "BackgroundModel",
    "CacheStats",
    "CompiledModel",
    "Enabled",
    "Explanation",
    "LibraryNotFoundError",
    "ModelOrigin",
    "OperatorNotFoundError",
    "OperatorRefusedError",
    "OperatorStats",
    "PackagedModel",
    "Settings",
    "SettingsError",
    "Stats",
    "TorchNotFoundError",
    "compile",
    "compile_cache",
    "configure",
    "disable",
    "doctor",
    "enable",
    "enabled",
    "explain",
    "install_backend",
    "install_compile_cache",
    "is_enabled",
    "load",
    "load_package",
    "operators",
    "stats",
    "uninstall_backend",
    "uninstall_compile_cache",
    "wait",
]


def __getattr__(name: str) -> Any:
    """
    Imports the rest of the package when one of its names is used for the first time: aoticache.runtime needs none of it, and
    its import should take only a few milliseconds.
    """
    if name == "__version__":
        version: str = import_module("._core.capi", __name__).load().version
        return version
    if not name.startswith("__"):
        api = import_module("._api", __name__)
        if name in __all__:
            globals().update({one: getattr(api, one) for one in __all__})
            return globals()[name]
        if f"{__name__}.{name}" in sys.modules:  # a module or a sub-package that this import has loaded
            return sys.modules[f"{__name__}.{name}"]
    raise AttributeError(f"module 'aoticache' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
