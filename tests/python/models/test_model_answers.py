"""Tests that whole models give PyTorch's answer or a refusal with a message, in every form: compile, load, load_package,
aoticache.runtime on a package and on a stored model, aoticache run-package. Each scenario runs twice, first to fill a cache and
then to be served from it."""
import json
import os
import subprocess
import sys

from torch_scenarios import BUILD, environment, play

BEGIN = """
import os, sys, torch, aoticache, aoticache.runtime
FILL = sys.argv[1] == "fill"
HERE = os.environ["AOTICACHE_DIR"]
def package(name, module, args, kwargs=None, **more):
    path = f"{HERE}-{name}.pt2"
    if not os.path.exists(path):
        with torch.no_grad():
            exported = torch.export.export(module, args, kwargs, **more)
        torch._inductor.aoti_compile_and_package(exported, package_path=path)
    return path
def equal(got, expected):
    leaves = [torch.utils._pytree.tree_flatten(one) for one in (got, expected)]
    assert leaves[0][1] == leaves[1][1], (got, expected)
    for a, b in zip(leaves[0][0], leaves[1][0]):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert type(a) is type(b) and a == b, (got, expected)
def refused(words, call, kinds=(aoticache.AoticacheError, TypeError)):
    try:
        got = call()
    except kinds as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{error}: no {missing}"
    else:
        raise AssertionError(f"answered: {got}")
"""


def twice(directory, text):
    for turn in ("fill", "again"):
        play(BEGIN + text + "\nprint('done')\n", [turn], AOTICACHE_DIR=os.path.join(str(directory), "cache"))


def test_what_is_compiled_in_is_compared(tmp_path):
    twice(tmp_path, """
class Scaled(torch.nn.Module):
    def forward(self, x, n, *, reduce="sum", negate=False):
        y = -(x * n) if negate else x * n
        return y.sum() if reduce == "sum" else y.mean()
x, usual = torch.ones(4), dict(reduce="sum", negate=False)
model = aoticache.compile(Scaled(), (x, 3), usual, id="scaled")
for call, given in ((model, x), (aoticache.load("scaled"), x), (aoticache.runtime.load("scaled"), x.numpy())):
    assert float(call(given, 3, **usual)) == float(call(given, 3, negate=False, reduce="sum")) == 12.0
    refused(["argument 1", "5", "3"], lambda: call(given, 5, **usual))
    for other in (3.0, True, None, "3"):
        refused(["argument 1", "compiled for 3"], lambda: call(given, other, **usual))
    refused(["argument reduce", "'mean'", "'sum'"], lambda: call(given, 3, **dict(usual, reduce="mean")))
    refused(["argument negate", "True", "False"], lambda: call(given, 3, **dict(usual, negate=True)))
    refused([], lambda: call(3, given, **usual), Exception)
    refused(["the model takes 2 arguments"], lambda: call(given, 3))
    refused(["the model takes 2 arguments"], lambda: call(given, **usual))
path = package("scaled", Scaled(), (x, 3), usual)
for loaded, given in ((aoticache.load_package(path), x), (aoticache.runtime.load(path), x.numpy())):
    refused(["3 arguments that are compiled in", "run()"], lambda: loaded(given, 3, **usual))
    assert float(loaded.run([given])[0]) == 12.0
""")


def test_a_dict_means_the_same_in_every_order_of_its_keys(tmp_path):
    twice(tmp_path, """
from collections import OrderedDict
class Two(torch.nn.Module):
    def forward(self, batch, *, more):
        return batch["a"] * 10 + batch["b"] + more["x"]["p"] - more["x"]["q"][0]
a, b = torch.ones(3), torch.full((3,), 2.0)
given, turned = ({"a": a, "b": b}, {"x": {"p": a, "q": [b]}}), ({"b": b, "a": a}, {"x": {"q": [b], "p": a}})
model = Two()
path = package("two", model, (given[0],), {"more": given[1]})
forms = [aoticache.compile(model, (given[0],), {"more": given[1]}, id="two"), aoticache.load("two"), aoticache.load_package(path)]
expected = model(given[0], more=given[1])
for form in forms:
    equal(form(given[0], more=given[1]), expected); equal(form(turned[0], more=turned[1]), expected)
    refused(["argument 0", "['a', 'b']", "['a', 'c']"], lambda: form({"a": a, "c": b}, more=given[1]))
    refused(["argument 0", "dict", "OrderedDict" if False else "one of"], lambda: form(OrderedDict(a=a, b=b), more=given[1]))
    refused(["argument more['x']['q']", "list", "tuple"], lambda: form(given[0], more={"x": {"p": a, "q": (b,)}}))
for what in (path, "two"):
    arrays = torch.utils._pytree.tree_map(torch.Tensor.numpy, turned)
    equal(torch.from_numpy(aoticache.runtime.load(what)(arrays[0], more=arrays[1])), expected)
""")


def test_a_module_brings_its_own_weights_or_is_refused(tmp_path):
    twice(tmp_path, """
x = torch.ones(2, 4)
def linear(value, bias=False):
    layer = torch.nn.Linear(4, 4, bias=bias).eval()
    for one in layer.parameters():
        torch.nn.init.constant_(one, value)
    return layer
class Pair(torch.nn.Module):
    def __init__(self, second, value, tied=False, scale=1.0, shift=0.0):
        super().__init__()
        self.one, self.second, self.scale, self.shift = linear(1), second, scale, torch.full((4,), shift)
        setattr(self, second, linear(value))
        if tied:
            getattr(self, second).weight = self.one.weight
    def forward(self, x):
        return getattr(self, self.second)(self.one(x)) * self.scale + self.shift
def ask(module, ours=True, **options):
    with torch.no_grad():
        module = module.eval()
        if ours:
            equal(aoticache.compile(module, (x,), **options)(x), module(x))
        else:
            refused([options["id"], "another program", "replace=True"], lambda: aoticache.compile(module, (x,), **options))
ask(linear(1), id="first")
ask(linear(3), id="first")
ask(linear(1), False, id="first", weights="frozen")
ask(linear(1, bias=True), False, id="first")
ask(linear(1), id="second", weights="frozen")
ask(linear(2), False, id="second", weights="frozen")
ask(linear(1), False, id="second")
ask(Pair("two", 1), id="third")
ask(Pair("two", 7), id="third")
ask(Pair("deux", 2), False, id="third")
ask(Pair("two", 1, tied=True), False, id="third")
ask(Pair("two", 1, scale=2.0), False, id="third")
ask(Pair("two", 1, shift=2.0), False, id="third")
ask(Pair("two", 1, tied=True), id="fourth")
ask(Pair("two", 3), False, id="fourth")
ask(torch.nn.Sequential(torch.nn.ReLU()), id="fifth")
ask(torch.nn.Sequential(torch.nn.Tanh()), False, id="fifth")
ask(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)), id="sixth")
training = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).train()
refused(["another program"], lambda: aoticache.compile(training, (x,), id="sixth"))
""")


def test_options_and_passes_of_the_process_are_in_the_key(tmp_path):
    twice(tmp_path, """
import torch._inductor.config as config
class Times(torch.nn.Module):
    def forward(self, x):
        return x * 3.0 + 1
def seven(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.mul.Tensor:
            node.args = (node.args[0], 7.0)
x = torch.ones(8)
if FILL:
    with config.patch(post_grad_custom_post_pass=seven):
        with_pass = aoticache.compile(Times(), (x,))
        equal(with_pass(x), x * 7 + 1)
        aoticache.compile(Times(), (x,), id="with a pass")
    with config.patch({"cpp.simdlen": 1}):
        assert aoticache.compile(Times(), (x,)).origin.source == "compiled"
    equal(aoticache.compile(Times(), (x,))(x), Times()(x))
else:
    plain = aoticache.compile(Times(), (x,))
    equal(plain(x), Times()(x))
    assert plain.origin.source == "stored", plain.origin
    refused(["another program"], lambda: aoticache.compile(Times(), (x,), id="with a pass"))
""")


def test_bodies_that_are_compiled_in_are_in_the_key(tmp_path):
    twice(tmp_path, """
from torch._inductor.decomposition import register_decomposition
from torch._inductor.lowering import lowerings, register_lowering
factor = 2.0 if FILL else 5.0
library = torch.library.Library("mine", "DEF")
for name in ("composite", "decomposed", "lowered"):
    library.define(f"{name}(Tensor x) -> Tensor")
body = lambda x: x * factor + 1
library.impl("composite", body, "CompositeImplicitAutograd")
for name in ("decomposed", "lowered"):
    library.impl(name, body, "CPU")
    torch.library.register_fake(f"mine::{name}", lambda x: torch.empty_like(x), lib=library)
register_decomposition(torch.ops.mine.decomposed.default)(lambda x: x * factor + 1)
aten = torch.ops.aten
register_lowering(torch.ops.mine.lowered.default)(
    lambda x: lowerings[aten.add.Tensor](lowerings[aten.mul.Tensor](x, factor), 1.0))
class Calls(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name
    def forward(self, x):
        return getattr(torch.ops.mine, self.name)(x) * 2
x = torch.ones(8)
for name in ("composite", "decomposed", "lowered"):
    try:
        equal(aoticache.compile(Calls(name), (x,))(x), Calls(name)(x))
    except aoticache.AoticacheError as error:
        assert name == "composite" and "mine::composite" in str(error), error
""")


def test_results_that_are_no_tensors(tmp_path):
    twice(tmp_path, """
class Optional(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        return {"y": y, "loss": None, "more": (x.sum(), [x.max(), None]), "rows": x.shape[0], "n": 3, "f": -0.0, "s": "text", "again": y}
class Nones(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        return {"y": y, "loss": None, "more": (x.sum(), [x.max(), None]), "rows": x.shape[0], "again": y}
x, rows = torch.arange(4.0), torch.export.Dim("rows", max=64)
free = ({0: rows},)
for form in (aoticache.compile(Optional(), (x,), dynamic_shapes=free, id="optional"), aoticache.load("optional")):
    equal(form(x), Optional()(x)); equal(form(torch.ones(7)), Optional()(torch.ones(7)))
path = package("nones", Nones(), (x,), dynamic_shapes=free)
equal(aoticache.load_package(path)(x), Nones()(x))
for what in (path, "optional"):
    found = aoticache.runtime.load(what)(x.numpy())
    assert (float(found["y"][3]), found["loss"], found["more"][1][1], found["rows"]) == (4.0, None, None, 4), found
    assert type(found["rows"]) is int and list(found["again"]) == [1.0, 2.0, 3.0, 4.0]
assert found["n"] == 3 and found["s"] == "text" and str(found["f"]) == "-0.0"
import json, subprocess
tool = os.path.join(os.environ["AOTICACHE_HOME"], "bin", "aoticache")
said = json.loads(subprocess.run([tool, "run-package", path, "--json", "--input", "float32:4=ones"], capture_output=True, text=True,
                                 check=True).stdout)["outputs"]
assert said[1] is None and said[0]["values"] == [2.0] * 4, said
assert "output 1: none" in subprocess.run([tool, "run-package", path, "--input", "float32:4=ones"], capture_output=True, text=True,
                                          check=True).stdout
""")


def test_small_batches(tmp_path):
    twice(tmp_path, """
import subprocess
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.ReLU()).eval()
tool = os.path.join(os.environ["AOTICACHE_HOME"], "bin", "aoticache")
def free(least):
    return ({0: torch.export.Dim("batch", min=least, max=64)},)
x = torch.randn(4, 7)
class Squeezed(torch.nn.Module):
    def forward(self, x):
        return x.squeeze(0) * 2
class Most(torch.nn.Module):
    def forward(self, x):
        return x.amax(0)
with torch.no_grad():
    path = package("batch", model, (x,), dynamic_shapes=free(1))
    forms = [aoticache.compile(model, (x,), dynamic_shapes=free(1), id="batch"), aoticache.load("batch"), aoticache.load_package(path)]
    for n in (1, 2, 64):
        for form in forms:
            equal(form(torch.ones(n, 7)), model(torch.ones(n, 7)))
        for what in (path, "batch"):
            equal(torch.from_numpy(aoticache.runtime.load(what)(torch.ones(n, 7).numpy())), model(torch.ones(n, 7)))
        for command in (["run-package", path], ["model", "run", "batch"]):
            subprocess.run([tool, *command, "--input", f"float32:{n}x7=ones"], check=True, capture_output=True)
    for form in forms:
        refused(["65", "64"], lambda: form(torch.ones(65, 7)))
    refused(["is 0", "1..64"], lambda: forms[0](torch.ones(0, 7)))
    for command in (["run-package", path], ["model", "run", "batch"]):
        assert "65" in subprocess.run([tool, *command, "--input", "float32:65x7=ones"], capture_output=True, text=True).stderr
    equal(aoticache.compile(model, (x,), dynamic_shapes=free(0))(torch.ones(0, 7)), model(torch.ones(0, 7)))
    refused(["is 3", "4..64"], lambda: aoticache.compile(model, (torch.randn(5, 7),), dynamic_shapes=free(4))(torch.ones(3, 7)))
    # A size of 1 that changes the shape of a result, and one of 0 that has none, are not what was compiled.
    refused(["is 1", "2..64"], lambda: aoticache.compile(Squeezed(), (x,), dynamic_shapes=free(1))(torch.ones(1, 7)))
    refused(["is 0", "1..64"], lambda: aoticache.compile(Most(), (x,), dynamic_shapes=free(0))(torch.ones(0, 7)))
""")


def test_inputs_unlike_the_example(tmp_path):
    twice(tmp_path, """
class Add(torch.nn.Module):
    def forward(self, x, y):
        return x + y
x = torch.arange(12.0).reshape(3, 4)
path = package("add", Add(), (x, x))
rows = torch.export.Dim("rows")
free = package("free", Add(), (x, x), dynamic_shapes=({0: rows}, {0: rows}))
call, equally = aoticache.load_package(path), aoticache.load_package(free)
equal(call(x, x), x + x); equal(equally(x[:2], x[:2]), x[:2] * 2)
assert not any(name.startswith("aoticache") for name in call.get_metadata())
for words, y in ((["size of dimension 1 is 2", "4"], torch.arange(6.0).reshape(3, 2)), (["stride"], x.reshape(4, 3).t()),
                 (["float64", "float32"], x.double()), (["dimensions is 1"], torch.ones(3)), (["sparse"], x.to_sparse())):
    refused(["add", *words], lambda: call(x, y))
refused(["argument 1", "size of dimension 0 is 1", "s0 = 3"], lambda: equally(x, x[:1]))
refused(["takes 2 inputs"], lambda: call.run([x]))
for words, y in ((["size of dimension 1"], x[:, :2].contiguous()), (["float64"], x.double())):
    refused(words, lambda: aoticache.runtime.load(path)(x.numpy(), y.numpy()))
z = torch.complex(x, x)
conjugate = package("conjugate", Add(), (z, z.clone()))
equal(aoticache.load_package(conjugate)(z.conj(), z), z.conj() + z)
# One tensor for two arguments is an example, too.
equal(aoticache.compile(Add(), (x, x))(x, x * 2), x * 3)
equal(aoticache.compile(Add(), (x, x), dynamic_shapes=({0: rows}, {0: rows}))(x[:2], x[1:]), x[:2] + x[1:])
""")


def test_a_shift_in_place(tmp_path):
    twice(tmp_path, """
class Shift(torch.nn.Module):
    def forward(self, x):
        y = x * 1.0
        y[1:] = y[:-1].clone()
        return y
class ShiftInput(torch.nn.Module):
    def forward(self, x):
        x[1:] = x[:-1].clone()
        return x + 0
for module in (Shift(), ShiftInput()):
    x = torch.arange(48.0).reshape(3, 16)
    given, expected = x.clone(), x.clone()
    equal(aoticache.compile(module, (x.clone(),))(given), module(expected))
    equal(given, expected)
# A tensor with other strides would be copied, and the copy be changed.
refused(["stride"], lambda: aoticache.compile(ShiftInput(), (x.clone(),))(x.t().contiguous().t()))
""")


def test_a_model_of_an_older_version_is_refused_or_compiled_again(tmp_path):
    twice(tmp_path, """
from aoticache._models import compiled, graphs, storage
if FILL:
    storage.FORMAT = graphs.FORMAT = 1
    compiled.storage.model_question = lambda environment, name, device: storage.Question("model", {"name": name}, environment, device=device)
    aoticache._core.capi.load()
    try:
        aoticache.compile(torch.nn.Tanh(), (torch.ones(3),), id="older")
    except aoticache.AoticacheError:
        pass  # what is written so cannot be opened
else:
    refused(["another version", "compile it again"], lambda: aoticache.load("older"))
    equal(aoticache.compile(torch.nn.Tanh(), (torch.ones(3),), id="older")(torch.ones(3)), torch.ones(3).tanh())
    equal(aoticache.load("older")(torch.ones(3)), torch.ones(3).tanh())
""")


def test_generated_models(tmp_path):
    """Runs a sample; `make long FORMS=python/generated_models` runs more. COUNT: how many."""
    count = os.environ.get("COUNT", "3")
    program = os.path.join(os.path.dirname(__file__), "generated_models.py")
    done = subprocess.run([sys.executable, program, str(tmp_path)], text=True, capture_output=True,
                          env=environment(AOTICACHE_DIR=os.path.join(str(tmp_path), "cache"), COUNT=count, BUILD=BUILD))
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found["counts"])
    assert not found["wrong"], "\n".join(found["wrong"][:20])
    assert all(found["counts"].get(f"{form}, right") for form in ("compile", "load", "runtime, stored")), found
