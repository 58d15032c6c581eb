"""Real models in a process without PyTorch, beside PyTorch's own runs: makes docs/models.md.

`make models` runs it: each model, small and with random weights of a fixed seed, is compiled by
torch._inductor.aoti_compile_and_package, run by `aoticache run-package`, where PyTorch never is, and compared with the
same package in torch._inductor.aoti_load_package and with eager PyTorch. Models of transformers and torchvision are taken
where these are installed (pip install --target=DIR, PYTHONPATH=DIR) and are said to be missing otherwise. Not a test:
it takes minutes. tests/python/test_models.py runs those that need nothing but PyTorch.

usage: models.py [MODEL...]     (MODEL...: only these, nothing is written)
Environment: BUILD, the build folder.
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import warnings

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
TOOL = os.path.join(BUILD, "bin", "aoticache")
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "models.md")
REPEAT = 25
# What sums in another order differ by over some layers, where the largest element of an output is 1.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


# ---- the models: each gives a module and its inputs ----

def encoder_layer(torch):
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(2, 10, 64),)


def gpt_like(torch):
    """Two blocks with a causal mask: one by nn.MultiheadAttention, one by scaled_dot_product_attention, fewer key heads."""
    nn = torch.nn

    class Grouped(nn.Module):
        def __init__(self, width, heads, groups):
            super().__init__()
            self.heads, self.groups, size = heads, groups, width // heads
            self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * groups * size)
            self.out = nn.Linear(width, width)

        def forward(self, x):
            batch, length, width = x.shape
            query = self.query(x).view(batch, length, self.heads, -1).transpose(1, 2)
            key, value = self.key_value(x).view(batch, length, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(100, 48), nn.Embedding(32, 48)
            self.first, self.second = nn.MultiheadAttention(48, 4, batch_first=True), Grouped(48, 6, 2)
            self.norms = nn.ModuleList(nn.LayerNorm(48) for _ in range(3))
            self.wide, self.narrow, self.head = nn.Linear(48, 96), nn.Linear(96, 48), nn.Linear(48, 100)

        def forward(self, tokens):
            length = tokens.shape[1]
            x = self.tokens(tokens) + self.places(torch.arange(length))
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            y = self.norms[0](x)
            x = x + self.first(y, y, y, attn_mask=later, need_weights=False)[0]
            x = x + self.second(self.norms[1](x))
            x = x + self.narrow(nn.functional.gelu(self.wide(self.norms[2](x))))
            return self.head(x)

    return Model(), (torch.randint(0, 100, (2, 17)),)


def lstm(torch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = torch.nn.Embedding(80, 24)
            self.layers = torch.nn.LSTM(24, 32, 2, batch_first=True, bidirectional=True)
            self.head = torch.nn.Linear(64, 80)

        def forward(self, tokens):
            y, (state, cell) = self.layers(self.tokens(tokens))
            return self.head(y), state, cell

    return Model(), (torch.randint(0, 80, (3, 11)),)


def gru(torch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.layers = torch.nn.Embedding(80, 24), torch.nn.GRU(24, 32, 1, batch_first=True)
            self.head = torch.nn.Linear(32, 80)

        def forward(self, tokens):
            return self.head(self.layers(self.tokens(tokens))[0])

    return Model(), (torch.randint(0, 80, (3, 5)),)


def u_net(torch):
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            def block(inputs, outputs):
                return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())
            self.down, self.bottom, self.up = block(3, 16), block(16, 32), block(32, 16)
            self.rise, self.out = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.Conv2d(16, 2, 1)

        def forward(self, x):
            down = self.down(x)
            low = self.bottom(nn.functional.max_pool2d(down, 2))
            return self.out(self.up(torch.cat([down, self.rise(low)], 1)))

    return Model(), (torch.randn(1, 3, 32, 32),)


def of_transformers(make, inputs, field):
    def build(torch):
        import transformers

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = make(transformers)

            def forward(self, *given):
                return getattr(self.inner(*given), field)

        return Model(), inputs(torch)
    return build


def of_torchvision(make):
    def build(torch):
        # Its operators of its own library, which is built for another PyTorch, are not used by these models.
        kept, torch.library.register_fake = torch.library.register_fake, lambda *_, **__: lambda function: function
        try:
            import torchvision
        finally:
            torch.library.register_fake = kept
        return make(torchvision.models), (torch.randn(1, 3, 64, 64),)
    return build


def without_head(models):
    """A vision transformer's head begins with weights of zero, so that its output would show nothing."""
    model = models.VisionTransformer(image_size=64, patch_size=16, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128)
    model.heads = sys.modules["torch"].nn.Identity()
    return model


def tokens(torch):
    return (torch.randint(0, 100, (1, 24)),)


PLAIN = {"encoder layers": encoder_layer, "GPT-like": gpt_like, "LSTM": lstm, "U-Net": u_net}
MODELS = {
    **PLAIN, "GRU": gru,
    "ResNet-18": of_torchvision(lambda t: t.resnet18()),
    "MobileNetV3 small": of_torchvision(lambda t: t.mobilenet_v3_small()),
    "ViT": of_torchvision(without_head),
    "BERT": of_transformers(lambda t: t.BertModel(t.BertConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)),
        tokens, "last_hidden_state"),
    "GPT-2": of_transformers(lambda t: t.GPT2LMHeadModel(t.GPT2Config(
        vocab_size=100, n_positions=64, n_embd=64, n_layer=2, n_head=4, use_cache=False)), tokens, "logits"),
    "Llama": of_transformers(lambda t: t.LlamaForCausalLM(t.LlamaConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, use_cache=False)), tokens, "logits"),
    "T5 encoder": of_transformers(lambda t: t.T5EncoderModel(t.T5Config(
        vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)), tokens, "last_hidden_state"),
    "CLIP text tower": of_transformers(lambda t: t.CLIPTextModel(t.CLIPTextConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=32, eos_token_id=99)), tokens, "last_hidden_state"),
}


FROZEN = ", frozen" # behind the name of a model that is compiled with Inductor's `freezing`
TABLE_ROWS = [*MODELS, *[name + FROZEN for name in ("ResNet-18", "MobileNetV3 small", "U-Net", "LSTM", "ViT", "BERT", "GPT-2")]]


# ---- compiling and running ----

def build(torch, name):
    torch.manual_seed(11)
    module, inputs = MODELS[name](torch)
    return module.eval(), inputs


def compile_package(torch, module, inputs, path, freezing=False):
    with torch.no_grad(), torch._inductor.config.patch(freezing=freezing):
        torch._inductor.aoti_compile_and_package(torch.export.export(module, inputs, strict=False), package_path=path)


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def input_words(inputs, folder):
    words = []
    for i, tensor in enumerate(inputs):
        file = os.path.join(folder, "input%d.bin" % i)
        with open(file, "wb") as target:
            target.write(bytes(tensor.contiguous().flatten().view(dtype=sys.modules["torch"].uint8).tolist()))
        sizes = "x".join(str(size) for size in tensor.shape)
        words += ["--input", "%s:%s=@%s" % (str(tensor.dtype).removeprefix("torch."), sizes, file)]
    return words


# A process counts what the one that started it had in memory as its own, so that a small one is put between.
LAUNCHER = """
import os, sys, time
begun = time.monotonic()
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(time.monotonic() - begun, usage.ru_maxrss * 1024, os.waitstatus_to_exitcode(status), file=sys.stderr)
"""


def measured(command, environment=os.environ):
    """(exit status, standard output, standard error, seconds, bytes of resident memory at most), on one thread."""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", LAUNCHER, *command], capture_output=True, text=True,
                          env={**environment, "OMP_NUM_THREADS": "1"}, check=True)
    *messages, last = done.stderr.rstrip("\n").split("\n")
    seconds, memory, code = last.split()
    return int(code), done.stdout, "\n".join(messages), float(seconds), int(memory)


def run_alone(torch, path, inputs, folder, *more, environment=os.environ):
    """The outputs in a process of the tool, in which PyTorch never is, and what `measured` and the tool say."""
    code, out, err, seconds, memory = measured([TOOL, "run-package", path, "--json", "--all-values", "--cache-dir",
                                                os.path.join(folder, "cache"), *more, *input_words(inputs, folder)],
                                               environment)
    if code != 0:
        raise RuntimeError("exit %d: %s" % (code, err.strip()))
    report = json.loads(out)
    outputs = [torch.tensor(o["values"], dtype=getattr(torch, o["dtype"])).reshape(o["sizes"])
               for o in report["outputs"]]
    return outputs, {"seconds": seconds, "memory": memory, "run": report.get("run_median_ns", 0) / 1e9}


def relative(tensors, eager):
    """Each as a part of the largest element of eager PyTorch's: random weights make outputs of 1e-9, too."""
    return [tensor / (wanted.abs().max() or 1) for tensor, wanted in zip(tensors, eager)]


def compare(torch, ours, theirs, eager):
    """PyTorch's own run of the package must meet the tolerance, too: else it is not ours to meet."""
    assert len(ours) == len(theirs) == len(eager), "%d outputs, %d wanted" % (len(ours), len(theirs))
    for a, b, c in zip(*(relative(tensors, eager) for tensors in (ours, theirs, eager))):
        assert float(c.abs().max()) == 1, "an output of zeros shows nothing"
        torch.testing.assert_close(b, c, **TOLERANCE, check_stride=False, msg=lambda m: "PyTorch's own run: " + m)
        torch.testing.assert_close(a, c, **TOLERANCE, check_stride=False)
        torch.testing.assert_close(a, b, **TOLERANCE, check_stride=False)


# ---- the table ----

def largest_difference(ours, theirs):
    return max((float((a - b).abs().max()) for a, b in zip(ours, theirs) if a.numel() > 0), default=0.0)


WITH_PYTORCH = """
import sys, time, torch, torch._inductor.package
inputs = torch.load(sys.argv[2])
model = torch._inductor.aoti_load_package(sys.argv[1])
model(*inputs)
times = []
for _ in range(int(sys.argv[3])):
    begun = time.perf_counter()
    model(*inputs)
    times.append(time.perf_counter() - begun)
print(sorted(times)[len(times) // 2] if times else 0)
"""


def measure(torch, name, folder):
    """A row of the table."""
    module, inputs = build(torch, name.removesuffix(FROZEN))
    path = os.path.join(folder, "model.pt2")
    compile_package(torch, module, inputs, path, freezing=name.endswith(FROZEN))
    with torch.no_grad():
        eager = flat(module(*inputs))
    theirs = flat(torch._inductor.aoti_load_package(path)(*inputs))
    ours, _ = run_alone(torch, path, inputs, folder)  # puts it into the cache
    compare(torch, ours, theirs, eager)
    _, first = run_alone(torch, path, inputs, folder)
    _, many = run_alone(torch, path, inputs, folder, "--repeat", str(REPEAT))
    saved = os.path.join(folder, "inputs.pt")
    torch.save(inputs, saved)
    script = [sys.executable, "-W", "ignore", "-c", WITH_PYTORCH, path, saved]
    _, _, _, seconds, memory = measured(script + ["0"])
    _, out, _, _, _ = measured(script + [str(REPEAT)])
    return ("runs; differs by %.1g at most" % largest_difference(relative(ours, eager), relative(theirs, eager)), many["run"] * 1e3,
            float(out.strip().splitlines()[-1]) * 1e3, first["seconds"] * 1e3, seconds * 1e3, first["memory"] / 2**20,
            memory / 2**20)


def row(torch, name):
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(torch, name, folder)
    except ImportError as error:
        return "| %s | not tried: %s | | | |" % (name, error)
    except Exception as error:
        return "| %s | %s | | | |" % (name, " ".join(str(error).split())[:300].replace("|", "/"))
    return "| %s | %s | %.2f / %.2f | %.0f / %.0f | %.0f / %.0f |" % (name, *found)


HEAD = """# Models that run without PyTorch

Made by `make models` (tests/python/models.py); not edited by hand.

PyTorch %s compiles each model with `aoti_compile_and_package` (small sizes, float32, random weights of a fixed
seed); `aoticache run-package` runs it in a process without PyTorch. The outputs must be those of eager PyTorch and of
`aoti_load_package` within rtol %g and atol %g once their largest element is 1. Numbers are ours / PyTorch's:

- a run: the median of %d;
- the time of a fresh process until the output is there. The package is in our cache; PyTorch's process imports PyTorch and
  loads the package;
- the largest resident memory of that process, 8 MiB at least, which is what measures it.

Both use one thread. The machine had other work: compare the two, not the milliseconds.

*Frozen* models are compiled with Inductor's `freezing`: their weights are laid out for oneDNN by the compile. Ours ran with
OpenBLAS and oneDNN %s on the machine (docs/packages.md says what is without them); PyTorch has its own.

| model | result | run, ms | first output, ms | memory, MiB |
| --- | --- | --- | --- | --- |
"""


def onednn_version():
    for name in ("libdnnl.so.3", "libdnnl.so.2"):
        try:
            version = ctypes.CDLL(name).dnnl_version
        except OSError:
            continue
        version.restype = ctypes.POINTER(ctypes.c_int)
        return "%d.%d.%d" % tuple(version()[:3])
    return "(none)"


def main():
    import torch
    import torch._inductor.package
    warnings.simplefilter("ignore")
    names = sys.argv[1:] or TABLE_ROWS
    rows = []
    for name in names:
        rows.append(row(torch, name))
        print(rows[-1], flush=True)
    if not sys.argv[1:]:
        head = HEAD % (torch.__version__, TOLERANCE["rtol"], TOLERANCE["atol"], REPEAT, onednn_version())
        with open(TABLE, "w") as file:
            file.write(head + "\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
