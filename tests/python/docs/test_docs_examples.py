"""Runs the Python examples of README.md and docs/pytorch.md as printed, on the installed
PyTorch."""
import os
import re
import subprocess
import sys

from torch_scenarios import TOP, environment, play

# The code that each example assumes: before it and, if it makes a promise, after it.
TENSOR = "import torch\nx = torch.linspace(-2, 2, 7)\n"
PACKAGE = """
import os, tempfile, torch, aoticache
os.chdir(tempfile.mkdtemp())
x, w = torch.ones(2, 3), torch.zeros(4, 3)
class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 3))
    def forward(self, x):
        return x @ self.weight.T
with torch.no_grad():
    torch._inductor.aoti_compile_and_package(torch.export.export(Linear(), (x,)), package_path="model.pt2",
                                             inductor_configs={"aot_inductor.use_runtime_constant_folding": False})
"""
EXAMPLES = {
    "README.md python": (TENSOR, "assert torch.equal(y, x.abs())\n"),
    "docs/pytorch.md enable": (TENSOR, "assert torch.equal(y, x.abs())\n"),
    "docs/pytorch.md package": (PACKAGE, "assert torch.equal(y, torch.full((2, 4), 3.0)) and torch.equal(model(x), torch.zeros(2, 4))\n"),
    "docs/torch-compile.md compile": (TENSOR + "model = torch.nn.ReLU()\n", "assert torch.equal(y, x.relu())\n"),
    "docs/pytorch.md plug": (TENSOR + "import aoticache\n", "assert torch.equal(torch.abs(x), torch.linspace(-2, 2, 7) * x.sign())\n"),
}


def example(named):
    """Returns the block of a document that follows <!-- example: NAME -->."""
    document, name = named.split()
    with open(os.path.join(TOP, document), encoding="utf-8") as file:
        found = re.search(rf"^<!-- example: {name} -->\n```\w*\n(.*?)^```$", file.read(), re.M | re.S)
    assert found, named
    return found.group(1)


def test_examples():
    for named, (before, after) in EXAMPLES.items():
        play(before + example(named) + after + 'print("done")\n')
        print(named)


def test_session():
    """docs/pytorch.md enable-check: the commands after "$ " print the lines below them."""
    for step in ("\n" + example("docs/pytorch.md enable-check")).split("\n$ ")[1:]:
        command, _, expected = step.partition("\n")
        words = [sys.executable, *command.split()[1:]]
        done = subprocess.run(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        assert done.stdout.strip() == expected.strip(), (command, done.stdout)
