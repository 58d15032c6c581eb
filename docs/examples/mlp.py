"""Inference with a small multi-layer perceptron: PyTorch as it is, then with its eager operators on the cache.

The first run compiles (the bridge once for each PyTorch, then each operator for each shape), a minute or two; later
ones, in any process, find everything in the cache.

    python docs/examples/mlp.py [--cache-dir DIR] [--batch N]
"""

import argparse
import time

import torch

import aoticache

OPERATORS = ("aten::gelu", "aten::native_layer_norm", "aten::_softmax", "aten::sigmoid", "aten::mul.Tensor")


class Mlp(torch.nn.Module):
    """Two layers with a gate between, as they stand in many models."""

    def __init__(self, features: int = 32, hidden: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(features)
        self.up, self.gate = torch.nn.Linear(features, hidden), torch.nn.Linear(features, hidden)
        self.down = torch.nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        hidden = torch.nn.functional.gelu(self.up(x)) * torch.sigmoid(self.gate(x))
        return torch.softmax(self.down(hidden), dim=-1)


def microseconds(model: torch.nn.Module, x: torch.Tensor, turns: int = 2000) -> float:
    """The best of five measurements of one call."""
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(turns // 5):
            model(x)
        best = min(best, (time.perf_counter() - begin) / (turns // 5))
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache-dir")
    parser.add_argument("--batch", type=int, default=4)
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # so little work is done before other threads have begun
    torch.manual_seed(0)
    model, x = Mlp().eval(), torch.randn(arguments.batch, 32)
    with torch.inference_mode():
        expected = model(x)
        before = microseconds(model, x)

        begin = time.perf_counter()
        aoticache.enable(*OPERATORS, cache_dir=arguments.cache_dir)  # mode="background": nothing waits
        while True:
            aoticache.wait()
            compiled = aoticache.stats().total("queued")
            model(x)
            if aoticache.wait() and aoticache.stats().total("queued") == compiled:
                break
        ready = time.perf_counter() - begin
        found = model(x)
        after = microseconds(model, x)

    torch.testing.assert_close(found, expected)
    statistics = aoticache.stats()
    print(f"PyTorch {before:.1f} us, with the cache {after:.1f} us a call: {after / before:.2f} of the time")
    print(f"ready after {ready:.1f} s, {statistics.total('compiles')} compiled by this process")
    print(statistics)


if __name__ == "__main__":
    main()
