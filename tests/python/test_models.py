"""Small models run without PyTorch, with PyTorch's results: eight of the thirty of real_models.py, and three of PyTorch alone.

Four of them come from transformers; where it is not installed they are left out, which is said. All are in one package,
since compiling one takes PyTorch nearly as long as compiling four: compiled as they are, and frozen; with the libraries
that make the shim faster, and without. Environment: BUILD, the build folder.
"""
import sys
import tempfile
import warnings

try:
    import torch
except ImportError:
    print("skip - models: this Python has no PyTorch")
    sys.exit(77)

import models
from test_shim_blas import without_libraries


OF_PYTORCH = (*models.PLAIN, "LSTM language model", "GRU", "recommendation")
OF_TRANSFORMERS = "BERT", "GPT-2", "Llama", "T5 encoder"


class Together(torch.nn.Module):
    def __init__(self, built):
        super().__init__()
        self.parts = torch.nn.ModuleList(part for part, _ in built)
        self.counts = [len(given) for _, given in built]

    def forward(self, *inputs):
        results, begun = [], 0
        for part, count in zip(self.parts, self.counts):
            results += models.flat(part(*inputs[begun:begun + count]))
            begun += count
        return tuple(results)


def build_all():
    """Name to module and inputs."""
    built = {name: models.build(torch, name) for name in OF_PYTORCH}
    try:
        built.update({name: models.build(torch, name) for name in OF_TRANSFORMERS})
    except ImportError as error:
        print("skip - models: %s: %s" % (", ".join(OF_TRANSFORMERS), error), flush=True)
    return built


def check(built, ours, theirs, label):
    """Prints a line for each model; returns how many are wrong."""
    failed = begun = 0
    for name, (part, given) in built.items():
        eager = models.flat(part(*given))
        end = begun + len(eager)
        try:
            models.compare(torch, ours[begun:end], theirs[begun:end], eager)
            print("ok - models: %s%s" % (name, label), flush=True)
        except AssertionError as error:
            failed += 1
            print("not ok - models: %s%s: %s" % (name, label, " ".join(str(error).split())[:600]), flush=True)
        begun = end
    assert begun == len(ours), "%d outputs, %d wanted" % (len(ours), begun)
    return failed


def main():
    warnings.simplefilter("ignore")
    import torch._inductor.package
    built = build_all()
    inputs = tuple(tensor for _, given in built.values() for tensor in given)
    module = Together(built.values()).eval()
    failed = 0
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as empty, torch.no_grad():
        bare = without_libraries(empty)
        for label, freezing in (("", False), (", frozen", True)):
            path = folder + "/models%d.pt2" % freezing
            models.compile_package(torch, module, inputs, path, freezing)
            theirs = torch._inductor.aoti_load_package(path)(*inputs)
            ours, _ = models.run_alone(torch, path, inputs, folder)
            failed += check(built, ours, theirs, label)
            ours, _ = models.run_alone(torch, path, inputs, folder, environment=bare)
            failed += check(built, ours, theirs, label + ", without BLAS and oneDNN")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
