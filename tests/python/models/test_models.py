"""Tests that small models run without PyTorch and give PyTorch's results: eight of the thirty of real_models.py, and three that
need only PyTorch. docs/results/models.md is made from the recorded results.

Four models come from transformers. If it is not installed, they are skipped. All models are in one package, since compiling one
takes PyTorch nearly as long as compiling four. The package is compiled as it is and frozen, and run with and without the
libraries that make the shim faster. Environment: BUILD, the build directory.
"""
import importlib.util
import os
import sys

import pytest
import torch
import torch._inductor.package

import models
import shim_checks

needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
OF_PYTORCH = (*models.PLAIN, "LSTM language model", "GRU", "recommendation")
OF_TRANSFORMERS = "BERT", "GPT-2", "Llama", "T5 encoder"


@pytest.mark.quick
def test_document():
    sys.path.append(os.path.join(models.HERE, "..", "..", "bench"))
    import model_times
    with open(models.TABLE) as file:
        assert file.read() == model_times.whole_document(), "docs/results/models.md is not what the recorded figures make: model_times.py --render"


class Together(torch.nn.Module):
    def __init__(self, built):
        super().__init__()
        self.parts = torch.nn.ModuleList(part for part, _, _ in built)
        self.counts = [len(given) for _, given, _ in built]

    def forward(self, *inputs):
        results, begun = [], 0
        for part, count in zip(self.parts, self.counts):
            results += models.flat(part(*inputs[begun:begun + count]))
            begun += count
        return tuple(results)


@pytest.fixture(scope="module")
def built():
    """Returns name to module, inputs and results of eager PyTorch."""
    names = [*OF_PYTORCH, *(OF_TRANSFORMERS if importlib.util.find_spec("transformers") else ())]
    with torch.no_grad():
        made = {name: models.build(torch, name) for name in names}
        return {name: (part, given, models.flat(part(*given))) for name, (part, given) in made.items()}


@pytest.fixture(scope="module", params=["as it is", "frozen"])
def package(request, built, tmp_path_factory):
    """Returns the package with all models, and the results of PyTorch's loader."""
    inputs = tuple(tensor for _, given, _ in built.values() for tensor in given)
    path = str(tmp_path_factory.mktemp("package") / "models.pt2")
    with torch.no_grad():
        models.compile_package(torch, Together(built.values()).eval(), inputs, path, request.param == "frozen")
        return path, inputs, torch._inductor.aoti_load_package(path)(*inputs)


@pytest.fixture(scope="module", params=["with libraries", "without BLAS and oneDNN"])
def ours(request, package, tmp_path_factory):
    """Returns the results of a process without PyTorch."""
    bare = shim_checks.without_libraries(str(tmp_path_factory.mktemp("empty")))
    path, inputs, _ = package
    return models.run_alone(torch, path, inputs, str(tmp_path_factory.mktemp("run")),
                            environment=bare if request.param.startswith("without") else os.environ)[0]


@pytest.mark.parametrize("name", [*OF_PYTORCH, *(pytest.param(name, marks=needs_transformers) for name in OF_TRANSFORMERS)])
def test_model(built, package, ours, name):
    begun = 0
    for one, (_, _, eager) in built.items():
        if one == name:
            models.compare(torch, ours[begun:begun + len(eager)], package[2][begun:begun + len(eager)], eager)
        begun += len(eager)
    assert begun == len(ours), "%d outputs, %d wanted" % (len(ours), begun)
