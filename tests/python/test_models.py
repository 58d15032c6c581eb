"""Models of transformers, an LSTM and a convolutional network run without PyTorch, with PyTorch's results.

Those of models.py that need nothing but PyTorch, in one package, since compiling one takes PyTorch nearly as long as
compiling four. Environment: BUILD, the build folder.
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


class Together(torch.nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, *inputs):
        return tuple(result for part, given in zip(self.parts, inputs) for result in models.flat(part(given)))


def main():
    warnings.simplefilter("ignore")
    import torch._inductor.package
    built = {name: models.build(torch, name) for name in models.PLAIN}
    inputs = tuple(given[0] for _, given in built.values())
    module = Together([part for part, _ in built.values()]).eval()
    failed = 0
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = folder + "/models.pt2"
        models.compile_package(torch, module, inputs, path)
        theirs = torch._inductor.aoti_load_package(path)(*inputs)
        ours, _ = models.run_alone(torch, path, inputs, folder)
        begun = 0
        for name, (part, given) in built.items():
            eager = models.flat(part(*given))
            end = begun + len(eager)
            try:
                models.compare(torch, ours[begun:end], theirs[begun:end], eager)
                print("ok - models: %s" % name, flush=True)
            except AssertionError as error:
                failed += 1
                print("not ok - models: %s: %s" % (name, " ".join(str(error).split())[:600]), flush=True)
            begun = end
        assert begun == len(ours), "%d outputs, %d wanted" % (len(ours), begun)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
