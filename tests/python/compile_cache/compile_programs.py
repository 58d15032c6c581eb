"""Programs for torch.compile, and a process that runs them and reports which processes it started and the results.

    compile_programs.py [--uninstalled] [--any] [--ready] [--device DEVICE] [--save FILE] [--load FILE] [NAME ...]

Prints one line of JSON: for each program the digest of its results, whether they equal PyTorch's own, how many graphs Dynamo
traced and Inductor lowered, and the seconds and processor seconds of its first call; the same times for setting up; the processes
that were started; the counts of the compile cache; the warnings. Exit status 3: a program raised.

Each program is a function of torch: it returns a function to compile and the arguments of its calls. Programs that use
transformers and torchvision have random weights and need these packages; available() returns those that can run here.
"""
import argparse
import contextlib
import hashlib
import importlib.util
import json
import resource
import sys
import time
import warnings


def once(run):
    """Marks how a compiled function is to be called; without it the function is called with the arguments alone."""
    def mark(function):
        function.run = run
        return function
    return mark


def inference(function):
    """Calls the model as inference programs do."""
    def run(chosen, *arguments):
        return (chosen(*arguments),)

    def without_gradients(torch):
        program, argument_sets = function(torch)
        return once(torch.no_grad()(run))(program), argument_sets
    without_gradients.__name__, without_gradients.__doc__ = function.__name__, function.__doc__
    return without_gradients


def gradients(model, loss):
    """Builds a training step: `loss` and its backward pass are compiled. Returns the loss and the gradients."""
    def run(function, *arguments):
        model.zero_grad()
        value = function(*arguments)
        value.backward()
        return (value.detach(), *(one.grad.clone() for one in model.parameters() if one.grad is not None))
    return once(run)(loss)


# ---- small functions ----

def pointwise(torch):
    return lambda x: torch.sin(x) * 2 + torch.relu(x), [(torch.linspace(-3, 3, 1000),)]


def chain(torch):
    """Forty operations that become one kernel."""
    def function(x, y):
        for number in range(10):
            x = torch.where(x > y, torch.sigmoid(x) * y, torch.tanh(y) + number)
            y = torch.clamp(x * 1.25 - y, -2, 2)
        return x, y
    return function, [(torch.linspace(-3, 3, 4096), torch.linspace(1, -1, 4096))]


def reduction(torch):
    return lambda x: torch.softmax(x, 1).sum(0) + x.mean(), [(torch.arange(6000.0).reshape(60, 100) / 6000,)]


def normalizations(torch):
    """Reductions over both dimensions, followed by other operations."""
    def function(x):
        x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt()
        return torch.logsumexp(x, 0), x.amax(1), x.abs().amin(0), (x * x).mean()
    return function, [(torch.linspace(-1, 1, 6400).reshape(64, 100).sin(),)]


def dynamic(torch):
    """Three lengths: the second compile serves all of them, and one graph gets guards."""
    return lambda x: (x * x + 1).cumsum(0), [(torch.linspace(0, 1, n),) for n in (50, 70, 90)]


def bfloat16(torch):
    x = torch.linspace(-2, 2, 512).to(torch.bfloat16)
    return lambda x: torch.tanh(x) * x + torch.exp(x), [(x,)]


def complex_numbers(torch):
    def function(x, y):
        return (x * y + x.conj()).abs() + torch.view_as_real(x).sum(-1)
    x = torch.complex(torch.linspace(-1, 1, 300), torch.linspace(0, 2, 300))
    return function, [(x, x.flip(0))]


def mapped(torch):
    """vmap over a function of one row that computes a gradient."""
    def row(x, w):
        return torch.func.grad(lambda one: (torch.tanh(one) * w).sum())(x) + x
    return lambda x, w: torch.vmap(row, in_dims=(0, None))(x, w), [
        (torch.linspace(-1, 1, 320).reshape(10, 32), torch.linspace(0, 1, 32))]


def custom_operator(torch):
    """The program's own operator, in Python: Inductor compiles the code around it."""
    @torch.library.custom_op("compile_programs::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)
    return lambda x: torch.relu(twice(torch.sin(x))) + x, [(torch.linspace(-3, 3, 500),)]


def indexing(torch):
    """Gathers, scatters, an in-place update of a cloned argument, integers."""
    def function(x, index):
        x = x.clone()
        x[index] += 1
        out = torch.zeros(8, x.shape[1]).index_add(0, index % 8, x.gather(1, index[:, None] % x.shape[1]).expand_as(x))
        return out, x.index_select(0, index).cumsum(1), torch.bincount(index, minlength=40)
    return function, [(torch.linspace(0, 1, 640).reshape(40, 16), torch.arange(40) * 7 % 40)]


def graph_break(torch):
    """Two graphs, since Dynamo cannot trace the code between them."""
    def function(x):
        x = torch.cos(x) * 3
        torch._dynamo.graph_break()
        return torch.sqrt(x.abs() + 1)
    return function, [(torch.linspace(-3, 3, 600),)]


def unseen(torch):
    """For tests of misses: no other test compiles it."""
    return lambda x: torch.cos(x) * 17 - torch.abs(x) / 3, [(torch.linspace(0, 1, 77),)]


def tuned(torch):
    """Inductor times its own matrix multiplications against PyTorch's, and keeps the faster."""
    def function(x, w, b):
        return torch.relu(torch.nn.functional.linear(x, w, b))
    function.mode = "max-autotune"
    x = torch.linspace(-1, 1, 64 * 128).reshape(64, 128)
    return function, [(x, torch.linspace(0, 1, 128 * 96).reshape(96, 128), torch.linspace(0, 1, 96))]


def constant_one(torch, begin=0):
    """Its graph has a constant whose values are not in the C++ code."""
    return lambda x: torch.tanh(x) + torch.arange(begin, begin + 60).to(torch.float32).sum() * torch.tensor(
        [float(begin + number) for number in range(60)]), [(torch.linspace(0, 1, 60),)]


def constant_two(torch):
    return constant_one(torch, 7)


def of_lengths(x):
    """Is at module level, so that Dynamo's records and precompiles can find it again."""
    for number in range(4):
        x = (x * x + number).cumsum(0) / 100
    return x


def named(torch):
    return of_lengths, [(torch.linspace(0, 1, n),) for n in (40, 60, 80)]


# ---- layers ----

def layers(torch):
    """Is called while gradients are recorded, but without a backward pass: PyTorch does not keep AOTAutograd's result."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
    return lambda x: model(x), [(torch.randn(16, 64),)]


def training(torch):
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    x, y = torch.linspace(-1, 1, 128).reshape(8, 16), torch.linspace(0, 1, 32).reshape(8, 4)
    return gradients(model, lambda x, y: torch.nn.functional.mse_loss(model(x), y)), [(x, y)]


@inference
def convolutions(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1)).eval()
    return lambda x: model(x), [(torch.randn(2, 3, 16, 16),)]


def convolution_training(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(392, 5))
    return gradients(model, lambda x, y: nn.functional.cross_entropy(model(x), y)), [
        (torch.randn(4, 3, 16, 16), torch.arange(4))]


@inference
def lstm(torch):
    """A cell unrolled over eight steps, since Dynamo does not compile torch.nn.LSTM itself."""
    cell = torch.nn.LSTMCell(16, 32)

    def function(x):
        state = torch.zeros(x.shape[1], 32), torch.zeros(x.shape[1], 32)
        out = []
        for step in range(x.shape[0]):
            state = cell(x[step], state)
            out.append(state[0])
        return torch.stack(out)
    return function, [(torch.randn(8, 4, 16),)]


def attention(torch):
    def function(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).relu()
    return function, [tuple(torch.randn(2, 4, 16, 32) for _ in range(3))]


def embedding_training(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Embedding(50, 16), nn.LayerNorm(16), nn.Flatten(), nn.Dropout(0.0), nn.Linear(96, 50))
    return gradients(model, lambda x, y: nn.functional.cross_entropy(model(x), y)), [
        (torch.arange(24).reshape(4, 6), torch.arange(4))]


def optimizer(torch):
    """The step of Adam over four parameters."""
    def make():
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        for number, one in enumerate(model.parameters()):
            one.data = torch.linspace(-1, 1, one.numel()).reshape(one.shape)
            one.grad = torch.linspace(1, number, one.numel()).reshape(one.shape)
        return model

    def step(chosen):
        chosen.step()
        return ()

    def run(function):
        model = make()
        function(torch.optim.Adam(model.parameters(), lr=0.01, foreach=True))
        return tuple(one.detach() for one in model.parameters())
    return once(run)(step), [()]


@inference
def transformer(torch):
    nn = torch.nn
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True), 2, enable_nested_tensor=False)
    return lambda x: model(x), [(torch.randn(2, 16, 64),)]


# ---- models of transformers and torchvision ----

@contextlib.contextmanager
def without_fakes(torch):
    """
    Imports of torchvision, which transformers does too, need this: torchvision registers fakes for operators of its library, and
    that library cannot be loaded with PyTorch's CPU wheel.
    """
    own = torch.library.register_fake
    torch.library.register_fake = lambda *_, **__: lambda function: function
    try:
        yield
    finally:
        torch.library.register_fake = own


@inference
def bert(torch):
    with without_fakes(torch):
        from transformers import BertConfig, BertModel
    model = BertModel(BertConfig(vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                 intermediate_size=128, max_position_embeddings=64)).eval()
    return lambda ids: model(input_ids=ids).last_hidden_state, [(torch.arange(32).reshape(2, 16),)]


def gpt2_training(torch):
    with without_fakes(torch):
        from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(vocab_size=200, n_positions=64, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0,
                                       embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0))
    return gradients(model, lambda ids: model(input_ids=ids, labels=ids, use_cache=False).loss), [
        (torch.arange(32).reshape(2, 16),)]


@inference
def llama(torch):
    with without_fakes(torch):
        from transformers import LlamaConfig, LlamaModel
    model = LlamaModel(LlamaConfig(vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                   num_key_value_heads=2, intermediate_size=128, max_position_embeddings=64)).eval()
    return lambda ids: model(input_ids=ids, use_cache=False).last_hidden_state, [(torch.arange(32).reshape(2, 16),)]


@inference
def resnet(torch):
    with without_fakes(torch):
        from torchvision.models import resnet18
    model = resnet18(weights=None, num_classes=10).eval()
    return lambda x: model(x), [(torch.randn(1, 3, 64, 64),)]


@inference
def mobilenet(torch):
    with without_fakes(torch):
        from torchvision.models import mobilenet_v3_small
    model = mobilenet_v3_small(weights=None, num_classes=10).eval()
    return lambda x: model(x), [(torch.randn(1, 3, 64, 64),)]


SMALL = (pointwise, chain, reduction, normalizations, dynamic, bfloat16, complex_numbers, mapped, custom_operator, indexing,
         graph_break, layers, training, convolutions, convolution_training, lstm, attention, embedding_training, optimizer,
         transformer)
OF_PACKAGES = {bert: "transformers", gpt2_training: "transformers", llama: "transformers", resnet: "torchvision",
               mobilenet: "torchvision"}
OTHERS = (unseen, tuned, named, constant_one, constant_two)  # used by single tests
PROGRAMS = {one.__name__: one for one in (*SMALL, *OF_PACKAGES, *OTHERS)}
MEASURED = tuple(one.__name__ for one in (*SMALL, *OF_PACKAGES))
USUAL = ("pointwise", "reduction", "dynamic", "training", "bfloat16")


def missing_package(name):
    """Returns the package that a program needs and that is not installed, or None if it can run."""
    package = OF_PACKAGES.get(PROGRAMS[name])
    return package if package is not None and importlib.util.find_spec(package) is None else None


# ---- running them ----

def results(function, compiled, argument_sets):
    def call(chosen, *arguments):
        value = chosen(*arguments)
        return value if isinstance(value, tuple) else (value,)
    run = getattr(function, "run", call)
    return [run(compiled, *arguments) for arguments in argument_sets]


def digest(values):
    hasher = hashlib.sha256()
    for value in values:
        for one in value:
            one = one.detach().contiguous().cpu()
            one = one.float() if one.is_floating_point() else one
            hasher.update(one.numpy().tobytes())
    return hasher.hexdigest()


def processor(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


class Watch:
    """Counts seconds and processor seconds since it was created, and the part that started processes (compilers) took."""

    def __init__(self):
        self.begun = time.perf_counter()
        self.own, self.started = processor(resource.RUSAGE_SELF), processor(resource.RUSAGE_CHILDREN)

    def read(self):
        started = processor(resource.RUSAGE_CHILDREN) - self.started
        own = processor(resource.RUSAGE_SELF) - self.own
        return {"seconds": time.perf_counter() - self.begun, "processor": own + started, "compiler": started}


def play(torch, name):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(1)
    function, argument_sets = PROGRAMS[name](torch)
    watch, counters = Watch(), torch._dynamo.utils.counters
    got = results(function, torch.compile(function, mode=getattr(function, "mode", None)), argument_sets)
    used = watch.read()
    own = results(function, function, argument_sets)
    loose = {"rtol": 2e-2, "atol": 2e-2} if name == "bfloat16" else {"rtol": 1e-4, "atol": 1e-5}
    same = all(len(x) == len(y) and all(torch.allclose(a, b, **loose) for a, b in zip(x, y)) for x, y in zip(got, own))
    lowered = sum(counters["inductor"][f"fxgraph_cache_{how}"] for how in ("miss", "bypass"))
    return {"digest": digest(got), "same": same, "traced": counters["stats"]["unique_graphs"], "lowered": lowered, **used}


def set_up(torch, options):
    """Does what a program does before its first call: installs the cache, loads artifacts."""
    watch = Watch()
    if not options.uninstalled:
        import aoticache
        aoticache.install_compile_cache(any_compiler=options.any)
    loaded = None
    if options.load:
        with open(options.load, "rb") as file:
            loaded = torch.compiler.load_cache_artifacts(file.read()) is not None
    return {"setup": watch.read(), "loaded": loaded}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--uninstalled", action="store_true")
    parser.add_argument("--any", action="store_true")
    parser.add_argument("--ready", action="store_true", help="import PyTorch's compiler first, outside of what is timed")
    parser.add_argument("--device", help="where the programs' tensors are, PyTorch's default if not given")
    parser.add_argument("--save")
    parser.add_argument("--load")
    parser.add_argument("names", nargs="*", default=USUAL)
    options = parser.parse_args()
    started, said = [], []
    warnings.showwarning = lambda message, category, *_: said.append(f"{category.__name__}: {message}")
    import torch  # whose wheels for CUDA run ldconfig since 2.15
    sys.addaudithook(lambda event, arguments: started.append([str(one) for one in arguments[:2]])
                     if event in ("subprocess.Popen", "os.posix_spawn", "os.system") else None)
    if options.ready:
        import torch._inductor.compile_fx  # noqa: F401
    if options.device:
        torch.set_default_device(options.device)
    report = {"programs": {}, "error": "", **set_up(torch, options)}
    try:
        for name in options.names:
            report["programs"][name] = play(torch, name)
    except Exception as error:
        report["error"] = f"{type(error).__name__}: {error}"
    if options.save:
        with open(options.save, "wb") as file:
            file.write(torch.compiler.save_cache_artifacts()[0])
    counts = {}
    if not options.uninstalled:
        import aoticache
        counts = {kind: vars(count) for kind, count in aoticache.stats().compile.items()}
    print(json.dumps({**report, "started": started, "counts": counts, "warnings": said}))
    return 3 if report["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
