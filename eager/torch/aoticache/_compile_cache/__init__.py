"""`torch.compile` on the cache: compiled code of Inductor, graphs and results of autotuning are records of `_core.records`.

`installation` replaces functions of PyTorch when its compiler is imported. Only then does it import the modules that serve C++
(`cpp`), graphs (`graphs`, `keys`, `leases`), PyTorch's digest of its sources (`sources`) and saved artifacts
(`portable_artifacts`). `_api`, `_stats` and `_doctor` use this sub-package; it uses `_core` and `_digests`.
"""

from .installation import install, installed, is_installed, is_known, known_versions, missing_function, stats, uninstall

__all__ = ["install", "installed", "is_installed", "is_known", "known_versions", "missing_function", "stats", "uninstall"]
