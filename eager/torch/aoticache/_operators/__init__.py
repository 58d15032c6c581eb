"""Single operators of PyTorch on the cache: which can be served, which are enabled, and what serves them.

`catalogue` finds operators by name and decides which can be served (`compositions` is a table for it), `session` has what is
enabled in this process, `bridges` finds or compiles the C++ library between PyTorch's dispatcher and the C library, and `plug`
makes AOTI-eager use the cache. `_api`, `_stats` and `_doctor` use this sub-package; it uses only `_core`.
"""

from . import bridges, catalogue, session
from .catalogue import PRESETS, Explanation
from .plug import install_backend, uninstall_backend

__all__ = [
    "PRESETS",
    "Explanation",
    "bridges",
    "catalogue",
    "install_backend",
    "session",
    "uninstall_backend",
]
