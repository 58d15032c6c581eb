"""Adds the state that _digests/surroundings.py finds to PyTorch's keys of graphs, which lack it.

PyTorch computes both keys, that of a graph and that of AOTAutograd's result, from an object that holds everything that must be
equal. Here this object gets one more attribute, so the addition also applies to PyTorch's own cache directory. If something
has no digest, the graph is not cached: the key raises the same exception that PyTorch raises for other such graphs. For
AOTAutograd's key more is refused than for the key of a graph: code that tracing runs is already part of the resulting graph.

Replaced: codecache.FxGraphHashDetails.__init__ of torch._inductor.
"""

from __future__ import annotations

import functools
from typing import Any

from .._core.errors import warn_once
from .._core.records import AUTOGRAD, GRAPH
from .._digests import Operators, check_pytorchs_operators, process_state, registries, results, subclasses
from .state import State


def install(state: State) -> None:
    from torch._inductor.codecache import BypassFxGraphCache, FxGraphHashDetails

    original = FxGraphHashDetails.__init__

    @functools.wraps(original)
    def with_surroundings(details: Any, gm: Any, example_inputs: Any, fx_kwargs: Any, inputs_to_check: Any) -> None:
        original(details, gm, example_inputs, fx_kwargs, inputs_to_check)
        kind = GRAPH if type(details) is FxGraphHashDetails else AUTOGRAD
        try:
            details.aoticache = parts_of(details, gm, example_inputs, kind)
        except Exception as error:  # noqa: BLE001 - mostly NotDigestible; a fault of the cache must not stop the program
            state.count(kind, "refused")
            warn_once(
                f"compile-digest-{kind}",
                f"aoticache: records of {kind} are not used, and PyTorch makes them in every process: {error}",
            )
            raise BypassFxGraphCache(f"aoticache: {error}") from error

    state.patches.replace(FxGraphHashDetails, "__init__", with_surroundings)


def parts_of(details: Any, gm: Any, example_inputs: Any, kind: str) -> list[str]:
    """Returns the parts that are added to a key. Raises NotDigestible."""
    operators = Operators(gm)
    parts = [
        process_state(may_be_for_cpu(example_inputs)),
        registries(getattr(details, "inductor_config", None)),
        operators.schemas(),
    ]
    if kind == GRAPH:
        return [*parts, results(gm)]
    check_pytorchs_operators()
    return [*parts, operators.bodies(), subclasses(example_inputs)]


def may_be_for_cpu(example_inputs: Any) -> bool:
    import torch

    devices = {value.device.type for value in example_inputs if isinstance(value, torch.Tensor)}
    return not devices or "cpu" in devices
