"""Imports PyTorch when it is needed. No other module of `_core` needs it."""

from __future__ import annotations

from typing import Any

from .errors import TorchNotFoundError


def require_torch() -> Any:
    """Returns PyTorch, or raises an error that says what to do."""
    try:
        import torch
    except ImportError as error:
        raise TorchNotFoundError(
            f"PyTorch cannot be imported ({error}): install it together with aoticache, for instance with "
            "pip install 'aoticache[torch]'"
        ) from error
    return torch
