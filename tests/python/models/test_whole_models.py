"""Tests aoticache.compile() and load() against PyTorch: whole models, which are compiled once, and whose weights are
stored once."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import pytest

from torch_scenarios import BUILD, TOP, environment, play

BEGIN = """
import os, sys, threading, time, warnings
import torch, aoticache
class Block(torch.nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, width), torch.nn.Linear(width, width)
        self.norm, self.last = torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 2)
        self.register_buffer("shift", torch.arange(2.0), persistent=False)
    def forward(self, x, *, scale=1.0):
        y = self.norm(self.second(torch.relu(self.first(x))))
        return {"out": self.last(y) * scale + self.shift, "sums": (y.sum(-1), torch.tensor([1.0, 2.0, 3.0]) * x.sum())}
def made(seed):
    torch.manual_seed(seed)
    module = Block().eval()
    for buffer in (module.norm.running_mean, module.norm.running_var):
        buffer.uniform_(0.5, 2)
    return module
X = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
FREE = {"x": {0: torch.export.Dim("rows", max=64)}, "scale": None}
def compiled(module, **more):
    return aoticache.compile(module, (X,), {"scale": 1.5}, dynamic_shapes=FREE, **more)
def same(model, module, x=X):
    with torch.no_grad():
        expected = module(x, scale=1.5)
    for a, b in zip(*(torch.utils._pytree.tree_leaves(one) for one in (model(x, scale=1.5), expected))):
        torch.testing.assert_close(a, b)
def refused(words, call, kind=aoticache.AoticacheError):
    try:
        call()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{error}: no {missing}"
    else:
        raise AssertionError(f"no error with {words}")
def count(kind):
    import subprocess
    tool = os.path.join(os.environ["AOTICACHE_HOME"], "bin", "aoticache")
    said = subprocess.run([tool, "ls", "--kind", kind, "--json"], capture_output=True, text=True, check=True).stdout
    return said.count('"key":')
"""
_directory = tempfile.TemporaryDirectory(prefix="aoticache-models.")
DIRECTORY = _directory.name
CACHE = os.path.join(DIRECTORY, "cache")


def run(text, arguments=(), **more):
    return play(BEGIN + text, arguments, **{"AOTICACHE_DIR": CACHE, **more})


@pytest.mark.quick
def test_a_model_is_compiled_once_and_its_variants_share_it():
    run("""
first = compiled(made(1))
assert first.origin.source == "compiled" and first.origin.compile_seconds > 0.5, first.origin
same(first, made(1)); same(first, made(1), torch.randn(17, 8)); same(first, made(1), torch.randn(8, 17).t())
second = compiled(made(2))
assert second.origin.source == "stored" and second.origin.key == first.origin.key, second.origin
same(second, made(2)); same(first, made(1))
print("done")
""")
    run("""
model = compiled(made(3))
assert model.origin.source == "stored", model.origin
same(model, made(3))
print("done")
""", PATH=DIRECTORY + "/none")  # without a compiler


def test_the_module_s_own_tensors_are_the_weights():
    run("""
module = made(4)
model = compiled(module)
with torch.no_grad():
    module.last.weight.mul_(3); module.norm.running_mean.add_(1)
same(model, module)
print("done")
""")


@pytest.mark.quick
def test_a_name_stands_for_program_and_weights():
    run("""
for seed in range(4):
    model = compiled(made(10 + seed), id=f"tune-{seed}")
    same(model, made(10 + seed))
changed = made(10)
with torch.no_grad():
    changed.last.weight.mul_(2)
same(compiled(changed, id="tune-last"), changed)
assert count("program") == 1 and count("model") == 5, (count("program"), count("model"))
print("done")
""")
    run("""
for seed in range(4):
    loaded = aoticache.load(f"tune-{seed}")
    same(loaded, made(10 + seed)); same(loaded, made(10 + seed), torch.randn(3, 8))
    assert loaded.origin.name == f"tune-{seed}" and loaded.origin.source == "stored"
begun = time.monotonic()
again = compiled(made(99), id="tune-1")
assert again.origin.export_seconds == 0 and time.monotonic() - begun < 5
same(again, made(99))  # a module that is given brings its own weights
same(aoticache.load("tune-1"), made(11))
same(aoticache.load(again.origin.key), made(11)); same(aoticache.load(again.origin.key[:10]), made(11))
print("done")
""", PATH=DIRECTORY + "/none")


def test_variants_store_what_differs_once():
    # 192 x 192 floats are the only tensor in a separate file: two fine-tunes of the last layer share it.
    said = run("""
import pathlib
objects = pathlib.Path(os.environ["AOTICACHE_DIR"]) / "objects"
def stored():
    return sum(one.stat().st_size for one in objects.rglob("*") if one.is_file())
compiled(made(20), id="base")
before = stored()
variant = made(20)
with torch.no_grad():
    variant.last.weight.mul_(2)
compiled(variant, id="variant")
print("grown by", stored() - before, "done")
""", AOTICACHE_DIR=os.path.join(DIRECTORY, "second"))
    grown = int(said.split("grown by ")[1].split()[0])
    assert 0 < grown < 20_000, grown  # the small tensors, in one file; without the 147,456 bytes of the shared one


def test_a_name_is_replaced_only_on_request():
    run("""
compiled(made(30), id="mine")
other = aoticache.compile(torch.nn.Linear(8, 3), (X,), id="mine-too")
refused(["mine", "another program", "replace=True"],
        lambda: aoticache.compile(torch.nn.Linear(8, 3), (X,), id="mine"))
linear = torch.nn.Linear(8, 3)
model = aoticache.compile(linear, (X,), id="mine", replace=True)
torch.testing.assert_close(model(X), linear(X).detach())
torch.testing.assert_close(aoticache.load("mine")(X), linear(X).detach())
print("done")
""")


def test_weights_from_a_file_and_from_a_mapping():
    run("""
import json, struct
def write(path, tensors):
    header, offset, parts = {}, 0, []
    for name, tensor in tensors.items():
        raw = bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw); parts.append(raw)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
program = compiled(made(40)).origin.key
compiled(made(40), id="from-file")
tuned = made(41)
path = os.path.join(os.environ["AOTICACHE_DIR"], "..", "tuned.safetensors")
floats = {name: value for name, value in tuned.state_dict().items() if value.dtype == torch.float32}
write(path, floats)
same(aoticache.load("from-file", weights=path), tuned)
same(aoticache.load(program, weights={**dict(tuned.named_parameters()), **dict(tuned.named_buffers())}), tuned)
refused(["shift", "no value"], lambda: aoticache.load(program, weights=path))  # no part of a state_dict
refused(["weights have no value", "first.weight"], lambda: aoticache.load(program))
wrong = {**floats, "last.weight": floats["last.weight"].reshape(192, 2)}
write(path, wrong)
refused(["last.weight", "float32[192, 2]", "float32[2, 192]"], lambda: aoticache.load("from-file", weights=path))
refused(["last.weight", "[192, 2]", "[2, 192]"], lambda: aoticache.load("from-file", weights=wrong))
write(path, floats)
with open(path, "r+b") as file:
    file.truncate(os.path.getsize(path) - 100)
refused(["truncated"], lambda: aoticache.load("from-file", weights=path))
refused(["no model named nobody", "from-file"], lambda: aoticache.load("nobody"))
print("done")
""")


def test_new_weights_while_threads_run():
    # Each run has all old weights or all new ones: if all weights equal k, the result determines k.
    run("""
class Sum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.ones(64, 64)) for _ in range(2))
    def forward(self, x):
        return (x @ self.a).sum() + (x @ self.b).sum() * 1000
module = Sum().eval()
model = aoticache.compile(module, (torch.ones(1, 64),), id="swapped", num_runners=2)
one, stop, seen, torn = torch.ones(1, 64), threading.Event(), set(), []
def call():
    while not stop.is_set():
        value = float(model(one)) / 4096
        low, high = round(value % 1000), round(value // 1000)
        (seen.add(low) if low == high else torn.append(value))
threads = [threading.Thread(target=call) for _ in range(3)]
for thread in threads: thread.start()
for k in range(2, 60):
    model.update_weights({"a": torch.full((64, 64), float(k)), "b": torch.full((64, 64), float(k))})
    limit = time.monotonic() + 60
    while k not in seen and time.monotonic() < limit: time.sleep(0)  # a run that began after the update
stop.set()
for thread in threads: thread.join()
assert not torn, torn[:5]
assert float(model(one)) == 59 * 4096 * 1001 and seen >= set(range(2, 60)), (seen, float(model(one)))
before = float(model(one))
refused(["b", "[64, 63]"], lambda: model.update_weights({"a": torch.ones(64, 64), "b": torch.ones(64, 63)}))
refused(["no weight belongs to the model", "c"], lambda: model.update_weights({"c": torch.ones(64, 64)}))
assert float(model(one)) == before
print("done")
""")


def test_frozen_weights_are_part_of_the_key():
    run("""
first, second = (compiled(made(seed), weights="frozen") for seed in (50, 51))
assert first.origin.key != second.origin.key and second.origin.source == "compiled"
same(first, made(50)); same(second, made(51))
assert compiled(made(50), weights="frozen").origin.source == "stored"
model = compiled(made(50), weights="frozen", id="frozen")
same(model, made(50)); same(aoticache.load("frozen"), made(50))
print("done")
""")


def test_in_the_background_the_module_answers_until_the_model_is_there():
    run("""
module = made(60)
linear = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.Tanh())
model = aoticache.compile(linear, (X,), mode="background")
assert isinstance(model, aoticache.BackgroundModel)
first = model(X)
torch.testing.assert_close(first, linear(X).detach())
assert not first.requires_grad
ready = model.wait(120)
assert model.ready and isinstance(ready, aoticache.CompiledModel), model
torch.testing.assert_close(model(X), linear(X).detach())
assert isinstance(aoticache.compile(linear, (X,), mode="background"), aoticache.CompiledModel)  # it is stored
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    bad = aoticache.compile(torch.nn.Tanh(), (X,), mode="background", options={"no_such_option": 1})
    refused(["no_such_option"], lambda: bad.wait(60), Exception)
assert any("no_such_option" in str(one.message) for one in said), said
torch.testing.assert_close(bad(X), torch.tanh(X))
print("done")
""")


def test_many_processes_compile_it_once():
    text = BEGIN + """
linear = torch.nn.Sequential(torch.nn.Linear(8, 7), torch.nn.GELU()).eval()
torch.manual_seed(0)
model = aoticache.compile(linear, (X,))
torch.testing.assert_close(model(X), linear(X).detach())
print(model.origin.source, "done")
"""
    cache = os.path.join(DIRECTORY, "together")
    processes = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", text], env=environment(AOTICACHE_DIR=cache),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(4)]
    said = [process.communicate(timeout=600)[0].split() for process in processes]
    assert all(words[-1:] == ["done"] for words in said), said
    assert sorted(words[-2] for words in said) == ["compiled"] + 3 * ["stored"], said


def test_many_processes_have_the_weights_in_memory_once():
    cache, megabytes = os.path.join(DIRECTORY, "memory"), int(os.environ.get("MODEL_MEGABYTES", "32"))
    said = run(f"""
wide = torch.nn.Linear(2048, {megabytes * 128}).eval()
x = torch.ones(1, 2048)
aoticache.compile(wide, (x,), id="wide")
print("sum", float(wide(x).double().sum()), "done")
""", AOTICACHE_DIR=cache)
    expected = float(said.split("sum ")[1].split()[0])
    words = [sys.executable, os.path.join(TOP, "tests", "python", "models", "model_memory.py"), cache, "wide", "2048"]
    processes = [subprocess.Popen(words, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                 for _ in range(8)]
    try:
        for process in processes:
            assert abs(float(process.stdout.readline()) - expected) < 0.01 * max(1.0, abs(expected))
        total = 0
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
            total += int(process.stdout.readline())
    finally:
        for process in processes:
            process.stdin.close()
            process.wait(60)
    assert 0.9 < total / 1024 / megabytes < 1.1, total
    print(f"# {total / 1024:.1f} MiB in 8 processes, of {megabytes} MiB of weights")


def test_inputs_that_do_not_fit_are_refused_in_words():
    run("""
model = compiled(made(70))
for bad, words in ((torch.randn(6, 9), ["x", "size of dimension 1 is 9", "8"]), (X.double(), ["float64", "float32"]),
                   (torch.randn(6), ["number of dimensions is 1", "2"]), (torch.randn(65, 8), ["65", "64"])):
    refused(words, lambda: model(bad, scale=1.5))
pair = aoticache.compile(lambda a, b: a + b, (X, X), dynamic_shapes={"a": {0: torch.export.Dim("r")}, "b": {0: torch.export.Dim("r")}})
refused(["(b)", "size of dimension 0 is 4", "6"], lambda: pair(X, torch.randn(4, 8)))
torch.testing.assert_close(pair(X, X), X + X)
torch.testing.assert_close(pair(torch.randn(0, 8), torch.randn(0, 8)), torch.randn(0, 8))
refused(["takes 2 inputs"], lambda: pair.run([X]))
for more, words in (({"weights": "x"}, ["weights is 'x'"]), ({"mode": "x"}, ["mode is 'x'"]), ({"id": ""}, ["id is ''"]),
                    ({"id": "a\\nb"}, ["printable"]), ({"options": {"aot_inductor.package": 0}}, ["cannot be set"])):
    refused(words, lambda: compiled(made(70), **more), aoticache.SettingsError)
refused(["takes a module"], lambda: aoticache.compile(3, (X,)), aoticache.SettingsError)
print("done")
""")


SHOP = """
@torch.library.custom_op("shop::priced", mutates_args=())
def priced(x: torch.Tensor, factor: float, extra: list[int]) -> torch.Tensor:
    if float(x.sum()) == 12345.0: raise ValueError("sold out")
    return x.sum(-1) * factor + sum(extra)
@priced.register_fake
def _(x, factor, extra): return x.new_empty(x.shape[:-1])
"""
BY_NAME = """
class Shop(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 300)
    def forward(self, x):
        return torch.ops.shop.priced(x, 1.0, [3]) * 0.5 + torch.ops.shop.priced(torch.relu(self.first(x)), 2.5, [1, 2]).sin()
class Waves(torch.nn.Module):
    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=8), torch.fft.fft(x).real, torch.fft.fft2(x).abs()
def shop(seed=7):
    torch.manual_seed(seed)
    return Shop().eval()
def equal(model, module, x=X):
    with torch.no_grad():
        torch.testing.assert_close(model(x), module(x))
"""


def test_operators_that_are_called_by_name():
    # Compiled code calls a custom operator, and some FFTs, through PyTorch's proxy executor.
    cache = os.path.join(DIRECTORY, "by-name")
    run(SHOP + BY_NAME + """
equal(aoticache.compile(shop(), (X,), id="shop"), shop())
equal(aoticache.compile(shop(8), (X,)), shop(8))
equal(aoticache.compile(Waves(), (X,), id="waves"), Waves())
tool = os.path.join(os.environ["AOTICACHE_DIR"], "artifacts")
found = [directory for directory, _, files in os.walk(tool) if "model.json" in files]
assert len(found) == 4, [sorted(os.listdir(one)) for one in found]
print("done")
""", AOTICACHE_DIR=cache)
    run(SHOP + BY_NAME + """
model, waves = aoticache.load("shop", num_runners=2), aoticache.load("waves")
equal(model, shop()); equal(waves, Waves())
again = aoticache.compile(shop(9), (X,))
assert again.origin.source == "stored", again.origin
equal(again, shop(9))
wrong = []
def call(seed):
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
    for _ in range(50):
        with torch.no_grad():
            if not torch.allclose(model(x), shop_now(x), atol=1e-5): wrong.append(seed)
shop_now = shop()
threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
bad = X * 0; bad[0, 0] = 12345.0
refused(["sold out"], lambda: model(bad))
equal(model, shop())
del model, waves, again
import gc, glob, tempfile
gc.collect()
assert not glob.glob(os.path.join(tempfile.gettempdir(), "aoticache-executor-*"))
print("done")
""", AOTICACHE_DIR=cache, PATH=DIRECTORY + "/none")
    run("""
refused(["shop", "shop::priced", "import"], lambda: aoticache.load("shop"))
print("done")
""", AOTICACHE_DIR=cache)


def test_other_sources_and_shapes_of_models():
    run("""
def function(x, y):
    return torch.where(x > y, x.sin(), y) @ torch.ones(8, 2)
model = aoticache.compile(function, (X, X * 0))
torch.testing.assert_close(model(X, X * 0), function(X, X * 0))
program = torch.export.export(made(80), (X,), {"scale": 1.5}, dynamic_shapes=FREE)
same(aoticache.compile(program), made(80))
class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.table.weight
    def forward(self, x):
        return self.head(self.table(x))
tied = Tied().eval()
tokens = torch.tensor([[1, 2, 15]])
torch.testing.assert_close(aoticache.compile(tied, (tokens,), id="tied")(tokens), tied(tokens).detach())
torch.testing.assert_close(aoticache.load("tied")(tokens), tied(tokens).detach())
conv = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval().to(memory_format=torch.channels_last)
image = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
model = aoticache.compile(conv, (image,), id="conv")
for x in (image, image.contiguous()):
    torch.testing.assert_close(model(x), conv(x).detach()); torch.testing.assert_close(aoticache.load("conv")(x), conv(x).detach())
class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1 << 15))
    def forward(self, x):
        self.count.add_(1)
        return x + self.count.sum()
counting = Counting()
model = aoticache.compile(counting, (X,), id="counting")
start = float(counting.count[0])
model(X); model(X)
assert float(counting.count[0]) == start + 2  # the module's own buffer
one, two = aoticache.load("counting"), aoticache.load("counting")
first = one(X)
one(X)
torch.testing.assert_close(two(X), first)  # each has pages of its own; what is stored stays
print("done")
""")


TOOL, GC = os.path.join(BUILD, "bin", "aoticache"), os.path.join(BUILD, "bin", "aoticache-gc")


def tool(*words, status=0, **more):
    done = subprocess.run([TOOL, *words], env=environment(**{"AOTICACHE_DIR": CACHE, "PYTHONWARNINGS": "ignore", **more}),
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_the_command_and_c_run_stored_models_without_pytorch():
    said = run("""
torch.manual_seed(0)
linear = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()).eval()
x = torch.tensor([[1.0, 2.0, 3.0]])
aoticache.compile(linear, (x,), id="small")
torch.save(linear, "/dev/null")
torch.export.save(torch.export.export(torch.nn.Sequential(torch.nn.Linear(3, 2)).eval(), (x,)), sys.argv[1])
print("expected", *(f"{value:.5g}" for value in linear(x).flatten().tolist()), "done")
""", [os.path.join(DIRECTORY, "program.pt2")])
    expected = [float(word) for word in said.split("expected")[1].split()[:2]]
    listed = json.loads(tool("model", "ls", "--json"))
    assert "small" in [one["name"] for one in listed], listed
    assert "small" in tool("model", "ls")
    shown = json.loads(tool("model", "show", "small", "--tensors", "--json"))
    assert shown["weights"] == 2 and shown["missing"] == 0 and [1 for one in shown["tensors"] if one["sizes"] == [2, 3]], shown
    numbers = os.path.join(DIRECTORY, "x.bin")
    with open(numbers, "wb") as file:
        file.write(struct.pack("<3f", 1, 2, 3))
    result = json.loads(tool("model", "run", "small", "--input", f"float32:1x3=@{numbers}", "--json", "--all-values"))
    values = result["outputs"][0]["values"]
    assert result["name"] == "small" and all(abs(a - b) < 1e-4 for a, b in zip(values, expected)), (result, expected)
    # The example of the documentation, as a user compiles it.
    program = os.path.join(DIRECTORY, "stored_model")
    include = os.path.join(BUILD, "include")
    subprocess.run(["cc", "-std=gnu11", "-O1", "-Werror", "-Wall", f"-I{include}", f"-I{include}/aoticache",
                    os.path.join(TOP, "docs", "examples", "stored_model.c"), "-o", program,
                    f"-L{BUILD}/lib", "-laoticache", f"-Wl,-rpath,{BUILD}/lib"], check=True)
    done = subprocess.run([program, "small", "1", "2", "3"], env=environment(AOTICACHE_DIR=CACHE), check=True,
                          capture_output=True, text=True)
    assert all(abs(float(got) - wanted) < 1e-4 for got, wanted in zip(done.stdout.split(), expected)), (done, expected)
    done = subprocess.run([program, "small", "1", "2"], env=environment(AOTICACHE_DIR=CACHE), capture_output=True, text=True)
    assert done.returncode == 1 and "size of dimension 1 is 2, and must be 3" in done.stderr, done
    # Errors, and removal.
    assert "size of dimension 1 is 4, and must be 3" in tool("model", "run", "small", "--input", "float32:1x4=ones", status=1)
    assert "no model named smal" in tool("model", "run", "smal", "--input", "float32:1x3", status=3)
    assert "did you mean show" in tool("model", "shwo", status=2) and "specify a command" in tool("model", status=2)
    assert "no model named nobody" in tool("model", "rm", "nobody", status=3)
    said = tool("model", "compile", os.path.join(DIRECTORY, "program.pt2"), "--name", "from-program", "--python", sys.executable)
    assert "from-program" in said and "compiled" in said, said
    assert "cannot read" in tool("model", "compile", os.path.join(DIRECTORY, "none.pt2"), status=1)
    tool("model", "run", "from-program", "--input", "float32:1x3=ones")
    assert "are the same" in tool("model", "why", "small", "small")
    said = tool("model", "why", "small", "from-program", status=3)
    assert said.startswith("node ") or "Tanh" in said or "tanh" in said, said
    differs = json.loads(tool("model", "why", "small", "from-program", "--json", status=3))
    assert not differs["same_graph"] and differs["first"]["fact"] != differs["second"]["fact"], differs
    assert "two models" in tool("model", "why", "small", status=2)
    tool("model", "rm", "small", "from-program")
    assert "no model named small" in tool("model", "show", "small", status=3)


def test_a_file_takes_a_model_elsewhere():
    archive, other = os.path.join(DIRECTORY, "one.tar.zst"), os.path.join(DIRECTORY, "another")
    home = {"HOME": os.path.join(DIRECTORY, "home"), "XDG_CONFIG_HOME": ""}
    os.makedirs(home["HOME"], exist_ok=True)
    run("""
model = compiled(made(130), id="to-go", num_runners=2)
model.to_file(sys.argv[1])
refused(["export"], lambda: model.to_file(sys.argv[1] + "/x.tar.zst"))
refused(["cuda"], lambda: aoticache.load("to-go", device="cuda:0"))
refused(["nonsense", "cpu"], lambda: aoticache.load("to-go", device="nonsense"))
same(aoticache.load("to-go", device="cpu", num_runners=3), made(130))
print("done")
""", [archive], **home)
    said = tool("import", archive, AOTICACHE_DIR=other, **home)  # same user, whose key signed it
    assert "imported 1 entry" in said, said
    run('same(aoticache.load("to-go"), made(130)); print("done")', AOTICACHE_DIR=other, PATH=DIRECTORY + "/none")


def sound(cache):
    """Checks the cache: files of a killed process may be left, but nothing may be damaged or missing."""
    done = subprocess.run([TOOL, "verify", "--quiet"], env=environment(AOTICACHE_DIR=cache), capture_output=True, text=True)
    wrong = [line for line in done.stdout.splitlines() if line.split()[0] not in ("unindexed", "foreign")]
    assert done.returncode in (0, 4) and not wrong, (done.returncode, done.stdout, done.stderr)


def test_shared_weights_go_elsewhere_and_away_whole():
    cache, other = os.path.join(DIRECTORY, "shared"), os.path.join(DIRECTORY, "elsewhere")
    archive = os.path.join(DIRECTORY, "models.tar.zst")
    said = run("""
import pathlib
objects = pathlib.Path(os.environ["AOTICACHE_DIR"]) / "objects"
def stored():
    return sum(one.stat().st_size for one in objects.rglob("*") if one.is_file())
def tuned(number):
    module = made(120)
    with torch.no_grad():
        module.first.weight.mul_(number + 1)  # 192 x 8: in the file of small tensors
    return module
compiled(tuned(0), id="tune-0")
one = stored()
for number in range(1, 4):
    compiled(tuned(number), id=f"tune-{number}")
print("one", one, "four", stored(), "done")
""", AOTICACHE_DIR=cache)
    one, four = int(said.split("one ")[1].split()[0]), int(said.split("four ")[1].split()[0])
    assert four - one < 3 * 20_000 < one, (one, four)  # three files of small tensors, and three lists
    check = """
for number in sys.argv[1:]:
    module = made(120)
    with torch.no_grad():
        module.first.weight.mul_(int(number) + 1)
    same(aoticache.load(f"tune-{number}"), module)
print("done")
"""
    tool("export", archive, "--no-sign", "--quiet", AOTICACHE_DIR=cache)
    assert os.path.getsize(archive) < four, (os.path.getsize(archive), four)  # each object once
    # Imports are killed at many moments; the imported part is sound, and the last import completes it.
    for milliseconds in range(0, 40, 2):
        child = subprocess.Popen([TOOL, "import", archive, "--allow-unsigned", "--quiet"],
                                 env=environment(AOTICACHE_DIR=other))
        time.sleep(milliseconds / 1000)
        child.kill()
        child.wait()
        if os.path.isdir(other):
            sound(other)
    tool("import", archive, "--allow-unsigned", "--quiet", AOTICACHE_DIR=other)
    run(check, ["0", "1", "2", "3"], AOTICACHE_DIR=other)
    # Models are removed one by one, their program first; the others keep the tensors that they share.
    tool("rm", "--op", "aoticache::program", AOTICACHE_DIR=other)
    for gone, left in (("0", ["1", "2", "3"]), ("2", ["1", "3"])):
        tool("model", "rm", f"tune-{gone}", AOTICACHE_DIR=other)
        sound(other)
        run(check, left, AOTICACHE_DIR=other)
    # Collections are killed, too.
    for milliseconds in range(0, 20, 2):
        child = subprocess.Popen([GC, "--max-entries", "1", "--scan", "--quiet"], env=environment(AOTICACHE_DIR=other))
        time.sleep(milliseconds / 1000)
        child.kill()
        child.wait()
        sound(other)
    subprocess.run([GC, "--max-entries", "1", "--scan", "--quiet"], env=environment(AOTICACHE_DIR=other), check=True)
    names = [one["name"] for one in json.loads(tool("model", "ls", "--json", AOTICACHE_DIR=other))]
    assert len(names) == 1 and names[0] in ("tune-1", "tune-3"), names
    run(check, [names[0].split("-")[1]], AOTICACHE_DIR=other)
    tool("model", "rm", names[0], AOTICACHE_DIR=other)
    subprocess.run([GC, "--scan", "--quiet"], env=environment(AOTICACHE_DIR=other), check=True)
    left = [os.path.join(path, name) for path, _, found in os.walk(os.path.join(other, "objects")) for name in found]
    assert not left, left  # the cache keeps no tensor that no model uses


def test_damaged_weights_are_never_used():
    run("""
import pathlib
cache = pathlib.Path(os.environ["AOTICACHE_DIR"])
model = compiled(made(90), id="damaged")
directory = next(path.parent for path in cache.glob("artifacts/*/weights-0001"))
path = directory / "weights-0001"
path.chmod(0o600)
data = bytearray(path.read_bytes())
data[1000] ^= 1
path.write_bytes(data)
refused(["damaged or missing"], lambda: aoticache.load("damaged"))
same(compiled(made(90), id="damaged"), made(90))  # and it is made again
same(aoticache.load("damaged"), made(90))
print("done")
""", AOTICACHE_DIR=os.path.join(DIRECTORY, "third"))
