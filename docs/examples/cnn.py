"""Inference with a small convolutional network: PyTorch as it is, then with its eager operators on the cache.

Convolutions and products of matrices stay PyTorch's own kernels, since its compiler calls these too; what stands between
them is served. The first run compiles, later ones find everything in the cache.

    python docs/examples/cnn.py [--cache-dir DIR] [--size N]
"""

import argparse
import time

import torch

import aoticache

OPERATORS = ("aten::native_group_norm", "aten::silu", "aten::mean.dim", "aten::_softmax", "aten::add.Tensor")


class Block(torch.nn.Module):
    """Convolution, norm, activation, and around them the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = torch.nn.GroupNorm(4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.nn.functional.silu(self.norm(self.convolution(x)))


class Cnn(torch.nn.Module):
    """A stem, two blocks, an average over the image, ten classes."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = torch.nn.Sequential(Block(channels), Block(channels))
        self.head = torch.nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.stem(x)).mean(dim=(2, 3))
        return torch.softmax(self.head(x), dim=-1)


def milliseconds(model: torch.nn.Module, x: torch.Tensor, turns: int = 100) -> float:
    """The best of five measurements of one call."""
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(turns // 5):
            model(x)
        best = min(best, (time.perf_counter() - begin) / (turns // 5))
    return best * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache-dir")
    parser.add_argument("--size", type=int, default=24)
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # so little work is done before other threads have begun
    torch.manual_seed(0)
    model, image = Cnn().eval(), torch.randn(1, 3, arguments.size, arguments.size)
    with torch.inference_mode():
        expected = model(image)
        before = milliseconds(model, image)

        begin = time.perf_counter()
        with aoticache.enabled(*OPERATORS, mode="wait", cache_dir=arguments.cache_dir):
            found = model(image)  # compiles what is missing, and waits for it
            ready = time.perf_counter() - begin
            after = milliseconds(model, image)
            statistics = aoticache.stats()

    torch.testing.assert_close(found, expected)
    print(f"PyTorch {before:.3f} ms, with the cache {after:.3f} ms a call: {after / before:.2f} of the time")
    print(f"ready after {ready:.1f} s, {statistics.total('compiles')} compiled by this process")
    print(statistics)


if __name__ == "__main__":
    main()
