"""Our own versions of the situations in PyTorch's tests of its compile caches, and a process that runs them.

    compile_scenarios.py [--cache] [NAME ...]

With `--cache` the compile cache is installed; without it PyTorch runs alone. Prints one line of JSON: for each scenario the
results of each step, the counts of PyTorch's caches, and the processes that were started. The tests run every scenario twice,
in two processes, with and without the cache, and compare (tests/python/compile_cache/test_compile_scenarios.py).

A scenario is a generator that yields the results of a step, as pairs (compiled result, eager result). A second element of
None means that there is nothing to compare with.
"""
import hashlib
import json
import sys
import warnings

import torch
import torch._inductor.compile_fx
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config

COUNTED = {
    "aot_autograd": ("autograd_cache_hit", "autograd_cache_miss", "autograd_cache_saved", "autograd_cache_bypass",
                     "autograd_cache_guard_miss"),
    "inductor": ("fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass"),
}


def forget():
    """Drops what this process has compiled, but nothing on disk."""
    torch._dynamo.reset()
    torch._inductor.codecache.PyCodeCache.cache_clear()


def twice(function, *argument_sets, **options):
    """Makes two calls, the second after the process has forgotten the first."""
    for _ in range(2):
        compiled = torch.compile(function, **options)
        for arguments in argument_sets:
            yield [(compiled(*arguments), function(*arguments))]
        forget()


def ramp(*sizes, **more):
    count = 1
    for size in sizes:
        count *= size
    return torch.linspace(-1, 1, count, **more).reshape(sizes)


def leaf(*sizes):
    return ramp(*sizes).requires_grad_(True)


def trained(function, *sizes):
    """Returns results and gradients of a function of tensors of these sizes."""
    tensors = [leaf(*one) for one in sizes]
    out = function(*tensors)
    out.sum().backward()
    return (out.detach(), *(one.grad for one in tensors))


# ---- functions and models ----

def a_function():
    yield from twice(lambda x, y: (x * 2, y @ y), (ramp(25), ramp(5, 5)))


def a_function_of_free_sizes():
    yield from twice(lambda x, y: (x.sin() @ y,), (ramp(6, 7), ramp(7, 3)), (ramp(8, 9), ramp(9, 4)), dynamic=True)


def inputs_that_share_memory():
    """If one of the inputs is written, the code differs from that for inputs that do not share memory."""
    def function(x, y):
        x.mul_(2)
        return y + 1
    for shares in (False, True, False):
        results = []
        for one in (torch.compile(function), function):
            x = ramp(25)
            results.append((one(x, x.view(5, 5) if shares else ramp(5, 5)), x))
        yield [tuple(results)]
        forget()


def a_model_of_bfloat16():
    model = torch.nn.Linear(10, 10).to(torch.bfloat16)
    with torch.no_grad():
        yield from twice(model, (ramp(10, 10).to(torch.bfloat16),))


def an_input_that_is_written():
    def function(x):
        x.mul_(2)
        return x + 1, x.view(2, 6)
    for _ in range(2):
        ours, own = ramp(12), ramp(12)
        yield [(torch.compile(function)(ours), function(own)), (ours, own)]
        forget()


def views_that_are_replayed():
    def function(a):
        before = a.detach()
        a.mul_(2)
        return a, before
    with functorch_config.patch(view_replay_for_aliased_outputs=True), torch.autograd._force_original_view_tracking(True):
        for _ in range(2):
            yield [(torch.compile(function)(ramp(2, 3)), function(ramp(2, 3)))]
            forget()


def a_constant_of_a_class():
    """The constant is an input of the graph: other values use the same graph."""
    class Model(torch.nn.Module):
        constant = torch.full((2, 2), 2)

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(ramp(2, 2))

        def forward(self, x):
            return x.sin() + self.weight + Model.constant
    model = Model()
    with torch.no_grad():
        for value in (2, 3):
            Model.constant = torch.full((2, 2), value)
            yield [(torch.compile(model, fullgraph=True)(ramp(2, 2)), model(ramp(2, 2)))]
            forget()


def constants_in_the_graph():
    """The values of constants, small or large, are part of the key."""
    for size, begin in ((8, 0), (8, 1), (9, 0), (9, 1), (9, 0)):
        values = torch.arange(begin, begin + size).tolist()
        function = lambda x, values=values: x * torch.tensor(values)  # noqa: E731
        yield [(torch.compile(function)(ramp(size)), function(ramp(size)))]
        forget()


def random_numbers():
    def function(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(x.shape)
    for _ in range(2):
        torch.manual_seed(3)
        yield [(torch.compile(function)(ramp(64)), None)]
        forget()


def a_vmap():
    function = lambda x, y: torch.vmap(lambda a, b: (a * b + 1).sum(0))(x, y).sum(0)  # noqa: E731
    yield [(trained(torch.compile(function), (25, 2), (25, 2)), trained(function, (25, 2), (25, 2)))]


# ---- free sizes ----

def sizes_that_are_specialized():
    """A dimension is dynamic, and two of its values have specialized code."""
    function = lambda x: x * 5  # noqa: E731
    for _ in range(2):
        compiled = torch.compile(function)
        tensors = [ramp(size) for size in (5, 8, 16)]
        torch._dynamo.mark_dynamic(tensors[0], 0, specialize_on=[lambda n: n == 8, lambda n: n == 16])
        for one in tensors:
            yield [(compiled(one), function(one))]
        forget()


def sizes_that_may_be_free():
    """A second dimension is marked as dynamic, but tracing specializes it again."""
    function = lambda x, y, z: (x + y, z * 2)  # noqa: E731
    for marked in ((0, 2), (0, 1, 2)):
        tensors = [ramp(5), ramp(5), ramp(6)]
        for number in marked:
            torch._dynamo.maybe_mark_dynamic(tensors[number], 0)
        yield [(torch.compile(function)(*tensors), function(*tensors))]
        forget()


def free_sizes_of_a_backward_pass():
    """Forward and backward graph get different symbols for the same sizes."""
    function = lambda x, y: torch.cat((x, x)) * 1 + (x * y).sum()  # noqa: E731
    for size in (5, 7):
        yield [(trained(torch.compile(function, dynamic=True), (size,), (size,)), trained(function, (size,), (size,)))]
        forget()


# ---- gradients ----

def a_backward_pass_that_comes_later():
    """Nothing is stored before the backward pass has run."""
    function = lambda a, b: a.cos() + b  # noqa: E731
    for is_trained in (False, False, True, True):
        compiled = torch.compile(function)
        if is_trained:
            yield [(trained(compiled, (25,), (25,)), trained(function, (25,), (25,)))]
        else:
            yield [(compiled(leaf(25), leaf(25)).detach(), function(leaf(25), leaf(25)).detach())]
        forget()


def gradients_within():
    function = lambda x: torch.autograd.grad((x * x).sum(), x)[0]  # noqa: E731
    yield from twice(function, (leaf(10, 10),))


def an_autograd_function():
    """If the source of an autograd function changes, it counts as another function."""
    def make(factor):
        if factor == 2:
            class Scale(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    ctx.save_for_backward(x)
                    return x * 2

                @staticmethod
                def backward(ctx, gradient):
                    return gradient * ctx.saved_tensors[0].cos() * 2
        else:
            class Scale(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    ctx.save_for_backward(x)
                    return x * 3

                @staticmethod
                def backward(ctx, gradient):
                    return gradient * ctx.saved_tensors[0].sin() * 3
        return Scale.apply
    for allowed in (False, True):
        for factor in (2, 3, 2):
            function = make(factor)
            with functorch_config.patch(autograd_cache_allow_custom_autograd_functions=allowed):
                yield [(trained(torch.compile(lambda x, f=function: f(x)), (5,)), trained(function, (5,)))]
            forget()


def activations_that_are_computed_again():
    from torch.utils.checkpoint import checkpoint
    layer = torch.nn.Linear(6, 6)
    with torch.no_grad():
        layer.weight.copy_(ramp(6, 6))
        layer.bias.copy_(ramp(6))
    function = lambda x: checkpoint(lambda y: torch.relu(layer(y)).sin(), x, use_reentrant=False)  # noqa: E731
    for _ in range(2):
        yield [(trained(torch.compile(function), (4, 6)), trained(function, (4, 6)))]
        forget()


def a_class_of_tensors():
    """A tensor subclass that wraps two tensors, in a joint graph."""
    from torch.testing._internal.two_tensor import TwoTensor

    def function(x):
        y = x.sin()
        return y.expand(y.shape[0], y.shape[0])
    for _ in range(2):
        one = leaf(4)
        out = torch.compile(function)(TwoTensor(one, one.clone()))
        out.sum().backward()
        own = function(leaf(4))
        yield [((out.a.detach(), out.b.detach()), (own.detach(), own.detach()))]
        forget()


def compiled_autograd_with_a_graph_for_predictions():
    function = lambda a, b: (a.cos() + b).sum()  # noqa: E731
    with torch._dynamo.config.patch(compiled_autograd=True):
        yield from twice(function, (ramp(25), ramp(25)))


# ---- other operators ----

def regions_that_are_compiled_once():
    region = torch.compiler.nested_compile_region(lambda x, y: x + y.sin())
    function = lambda x, y: region(x, y) + region(y, x)  # noqa: E731
    yield from twice(function, (ramp(25), ramp(25)))


def a_branch():
    function = lambda x: torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos() * 2, (x,))  # noqa: E731
    yield from twice(function, (ramp(8) + 1,), (ramp(8) - 1,))


# ---- options ----

def no_graph_cache():
    with inductor_config.patch(fx_graph_cache=False):
        yield from twice(lambda x, y: (x * 3, y @ y), (ramp(25), ramp(5, 5)))


def no_autograd_cache():
    with functorch_config.patch(enable_autograd_cache=False):
        yield from twice(lambda x, y: (x * 4, y @ y), (ramp(25), ramp(5, 5)))


def no_caches():
    with inductor_config.patch(force_disable_caches=True):
        yield from twice(lambda x, y: (x * 5, y @ y), (ramp(25), ramp(5, 5)))


def weights_that_are_frozen():
    """Their values become part of the code. Equal values use the same graph, other values another one."""
    for scale in (1, 2, 1):
        model = torch.nn.Linear(6, 6).eval()
        with torch.no_grad(), inductor_config.patch(freezing=True):
            model.weight.copy_(ramp(6, 6) * scale)
            model.bias.copy_(ramp(6))
            yield [(torch.compile(model)(ramp(4, 6)), model(ramp(4, 6)))]
        forget()


def passes_of_ones_own():
    """A custom pass that has its own name is part of the key; one without a name keeps the graph out of the caches."""
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Pass(CustomGraphPass):
        def __init__(self, name):
            self.name = name

        def __call__(self, graph):
            pass

        def uuid(self):
            return self.name
    function = lambda x: x.tanh() * 6  # noqa: E731
    for one in (Pass("one"), Pass("two"), Pass("one"), lambda graph: None):
        with inductor_config.patch(post_grad_custom_post_pass=one):
            yield [(torch.compile(function)(ramp(9)), function(ramp(9)))]
        forget()


def another_option():
    """An option that changes the generated code is part of the key."""
    function = lambda x: (x * 7).sum() + x.prod()  # noqa: E731
    for size in (4096, 8, 4096):
        with inductor_config.patch({"cpp.min_chunk_size": size}):
            yield [(torch.compile(function)(ramp(40)), function(ramp(40)))]
        forget()


def a_region_for_inductor():
    """Inductor compiles one region of a graph; the rest runs eagerly."""
    from torch._dynamo.backends.common import aot_autograd
    from torch.fx import traceback
    from torch.fx.passes.regional_inductor import regional_inductor

    def function(x, y):
        x = torch.sin(x)
        with traceback.annotate({"compile_with_inductor": 0}):
            z = x * y + 1
        return torch.sin(z)
    with functorch_config.patch(bundled_autograd_cache=True):
        backend = aot_autograd(fw_compiler=regional_inductor, bw_compiler=regional_inductor)
        for _ in range(2):
            yield [(torch.compile(function, backend=backend, fullgraph=True)(ramp(10), ramp(10)),
                    function(ramp(10), ramp(10)))]
            forget()


def results_in_one_record():
    """AOTAutograd's results contain the graphs."""
    function = lambda x, y: (x.sin() @ y).relu()  # noqa: E731
    with functorch_config.patch(bundled_autograd_cache=True):
        for _ in range(2):
            yield [(trained(torch.compile(function), (4, 5), (5, 3)), trained(function, (4, 5), (5, 3)))]
            forget()


SCENARIOS = {one.__name__: one for one in (
    a_function, a_function_of_free_sizes, inputs_that_share_memory, a_model_of_bfloat16, an_input_that_is_written,
    views_that_are_replayed, a_constant_of_a_class, constants_in_the_graph, random_numbers, a_vmap,
    sizes_that_are_specialized, sizes_that_may_be_free, free_sizes_of_a_backward_pass, a_backward_pass_that_comes_later,
    gradients_within, an_autograd_function, activations_that_are_computed_again, a_class_of_tensors,
    compiled_autograd_with_a_graph_for_predictions, regions_that_are_compiled_once, a_branch, no_graph_cache,
    no_autograd_cache, no_caches, weights_that_are_frozen, passes_of_ones_own, another_option, a_region_for_inductor,
    results_in_one_record)}


# ---- running them ----

def flat(value):
    """Returns the tensors of a result, with None for missing ones."""
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    return [] if value is None else [tensor for one in value for tensor in flat(one)]


def digest(results):
    hasher = hashlib.sha256()
    for got, _ in results:
        for one in flat(got):
            hasher.update(str(one.shape).encode() + one.float().contiguous().numpy().tobytes())
    return hasher.hexdigest()[:16]


def is_same(results):
    return all(len(flat(got)) == len(flat(own)) and all(
        torch.allclose(a.float(), b.float(), rtol=1e-2 if a.dtype == torch.bfloat16 else 1e-4, atol=1e-5)
        for a, b in zip(flat(got), flat(own))) for got, own in results if own is not None)


def play(scenario, started):
    forget()
    torch.manual_seed(1)
    steps = []
    counters.clear()
    begun = len(started)
    for results in scenario():
        counted = {name: counters[group][name] for group, names in COUNTED.items() for name in names
                   if counters[group][name]}
        steps.append({"digest": digest(results), "same": is_same(results), "counted": counted})
        counters.clear()
    return {"steps": steps, "started": started[begun:]}


def main():
    words = sys.argv[1:]
    started, said = [], []
    sys.addaudithook(lambda event, arguments: started.append([str(one) for one in arguments[:2]])
                     if event in ("subprocess.Popen", "os.posix_spawn", "os.system") else None)
    warnings.showwarning = lambda message, category, *_: said.append(f"{category.__name__}: {message}")
    if "--cache" in words:
        import aoticache
        assert aoticache.install_compile_cache()
    names = [word for word in words if not word.startswith("--")] or list(SCENARIOS)
    found = {}
    for name in names:
        try:
            found[name] = play(SCENARIOS[name], started)
        except Exception as error:  # noqa: BLE001 - the tests also compare exceptions
            found[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps({"scenarios": found, "warnings": said}))


if __name__ == "__main__":
    main()
