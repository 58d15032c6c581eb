"""What all parts of the package use: the C library, open caches, records, settings, errors.

All parts of the package may use the modules in `__all__`, and these use no other part. Nothing is imported here: the other
parts import the modules that they need, so that `aoticache.runtime`, which needs three, is imported within milliseconds.

The parts, and what they may use (`scripts/check-python-layering` enforces this):

    _core  <-  _digests  <-  _compile_cache, _models
    _core  <-  _operators, aoticache.runtime, aoticache.triton
    _core, _operators, _compile_cache  <-  _stats, _doctor
    all sub-packages, _stats, _doctor  <-  _api, __main__

- `_digests`: the state of a process that changes what PyTorch compiles, as digests for keys
- `_operators`: single operators on the cache: `enable()`, `disable()`, plug mode
- `_compile_cache`: `torch.compile` on the cache
- `_models`: whole models: `compile()`, `load()`, `load_package()`

`__all__` in the `__init__.py` of a sub-package lists what the others may use of it. A name with a leading underscore is used
only in its own module.
"""

__all__ = [
    "caches",
    "capi",
    "errors",
    "imports",
    "library_path",
    "model_inputs",
    "pytorch",
    "records",
    "settings",
    "tools",
    "triton_keys",
]
