"""The state of a process that changes what PyTorch compiles, as digests for keys.

`bodies` digests functions, classes and values by their contents, and `surroundings` finds what a program has changed in PyTorch.
`_compile_cache` and `_models` put the digests into their keys. This sub-package uses only `_core`.
"""

from .bodies import Digest, NotDigestible, digest
from .surroundings import (
    Operators,
    check_pytorchs_operators,
    names_of_decompositions,
    process_state,
    registries,
    results,
    subclasses,
)

__all__ = [
    "Digest",
    "NotDigestible",
    "Operators",
    "check_pytorchs_operators",
    "digest",
    "names_of_decompositions",
    "process_state",
    "registries",
    "results",
    "subclasses",
]
