"""aoticache: PyTorch's eager operators on a cache of compiled kernels.

```python
import torch, aoticache

aoticache.enable("aten::abs", "aten::add.Tensor")   # names, patterns ("aten::*norm*"), presets ("pointwise", "safe")
y = torch.abs(x)            # a miss: compiled in the background, PyTorch's kernel answers meanwhile
aoticache.wait()            # until the compiles are done
y = torch.abs(x)            # a hit: the compiled kernel, and in every process from now on
print(aoticache.stats())
aoticache.disable()         # PyTorch as it was
```

A kernel is compiled once per machine, by a worker process, and kept on disk. The package works in C: it calls
libaoticache and needs no particular version of Python. `import aoticache` does not import PyTorch; what needs it does.
`aoticache.runtime` runs models on NumPy's arrays and others where there is no PyTorch.

Only misuse raises (a name that no operator has, a setting that does not exist). What the machine lacks is told by one
AoticacheWarning, and PyTorch's own kernels answer.
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
    Everything but the modules themselves comes with the first name that is asked for: aoticache.runtime needs none of it,
    and is to be imported in a few milliseconds.
    """
    if name == "__version__":
        version: str = import_module("._library", __name__).load().version
        return version
    if not name.startswith("__"):
        api = import_module("._api", __name__)
        if name in __all__:
            globals().update({one: getattr(api, one) for one in __all__})
            return globals()[name]
        if f"{__name__}.{name}" in sys.modules:  # a module that has come with it
            return sys.modules[f"{__name__}.{name}"]
    raise AttributeError(f"module 'aoticache' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
