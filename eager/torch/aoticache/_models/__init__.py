"""Whole models: compiled once and kept in the cache, stored under a name, or loaded from a package of PyTorch.

`compiled` has `compile()` and `load()`. Their keys are made of the exported graph (`graphs`) and of what the program has
changed in PyTorch (`keys`). `storage` writes and reads entries. `package` runs packages, and is the base of compiled models:
`handles` converts tensors, `proxy_executor` calls the operators that a model calls by name, `classes` finds and imports the
modules that register classes of arguments and results, and `stand_ins` makes results without these. `_api` and `__main__` use
this sub-package; it uses `_core` and `_digests`.
"""

from .compiled import BackgroundModel, CompiledModel, ModelOrigin, compile, load
from .package import PackagedModel, load_package

__all__ = ["BackgroundModel", "CompiledModel", "ModelOrigin", "PackagedModel", "compile", "load", "load_package"]
