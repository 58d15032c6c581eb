"""Runs the scenarios of the runner's test suite with PyTorch's own runner, with ours next to PyTorch, and with ours
alone. Each runs in its own process.

    runner_players.py torch|beside|alone SCENARIOS RESULTS [PEER]

SCENARIOS is a JSON file (test_runner_battery.py makes it): for each model a library and steps. Every step calls one
method of a player. Its answer, ["ok", result] or ["refused"], is written immediately as one line of RESULTS, so that
the answers survive if the process dies. Our players run every model twice, with and without the fast path. "alone" is
a process that never loads libtorch: its tensors use plain memory. PEER: a module built from
tests/bench/peers/runner_fold.cpp, for functions that PyTorch's Python class does not offer.

Tensors are written as described in runner_tensors.py.
"""
import ctypes
import importlib.util
import itertools
import json
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
from c_types import Error
from runner_tensors import ELEMENT_BYTES, PlainTensor, PlainTensors, TorchTensors

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
THREADS, RUNS = 4, 5
pointer, size_t = ctypes.c_void_p, ctypes.c_size_t


class Refused(Exception):
    """Raised if a call refuses; the text is human-readable."""


# ---- players ----

class Player:
    """The part that all players have in common. A subclass provides the tensors and the calls of a runner."""

    def __init__(self, tensors):
        self.tensors, self.managed, self.kept = tensors, [], []

    def describe_run(self, inputs, outputs):
        """Returns the outputs, the inputs after the run, and which outputs share the memory of which inputs."""
        over = []
        described = [self.tensors.describe(one) for one in outputs], [self.tensors.describe(one) for one in inputs]
        for (i, output), (j, given) in itertools.product(enumerate(outputs), enumerate(inputs)):
            offset = self.tensors.address(output) - self.tensors.address(given)
            if described[0][i][3] and 0 <= offset < len(described[1][j][3]) // 2:
                over.append([i, j, offset])
        for one in outputs:
            self.tensors.free(one)
        return *described, over

    def run(self, inputs, how="borrow"):
        """Runs. Checks that afterwards nothing else holds an input that shares no memory with an output, even if the
        run failed."""
        given, over = [self.tensors.make(spec) for spec in inputs], []
        try:
            *described, over = self.describe_run(given, self.call_run(given, how))
            return [*described, over]
        finally:
            self.check_handles(given, over)
            for one in given:
                self.tensors.free(one)

    def check_handles(self, inputs, over):
        for i, one in enumerate(inputs):
            extra = self.tensors.extra_handles(one)
            assert extra == 0 or i in [place[1] for place in over], f"input {i} has {extra} handles too many"

    def run_in_threads(self, inputs):
        """Runs in several threads concurrently; returns one answer if all are the same."""
        answers = []

        def run_many():
            answers.extend(self.attempt("run", {"inputs": inputs}) for _ in range(RUNS))

        threads = [threading.Thread(target=run_many) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        distinct = {json.dumps(answer) for answer in answers}
        return [len(answers), [json.loads(one) for one in sorted(distinct)]]

    def update(self, pairs, inactive=False, partial=False, user_managed=False, from_cpu=False, by_fqn=False,
               sliced=False):
        make = self.tensors.make_slice if sliced else self.tensors.make
        made = [(name, make(spec)) for name, spec in pairs]
        self.call_update(made, inactive, partial, user_managed, from_cpu, by_fqn)
        if user_managed:
            self.managed = made
            self.kept.append(made)  # they use this memory as long as they are the constants
            return
        for _, tensor in made:
            self.tensors.free(tensor)

    def poke(self):
        """Writes to the user's memory: to each element of the constants of the last user-managed update."""
        for _, tensor in self.managed:
            dtype, _, _, data = self.tensors.describe(tensor)
            step = ELEMENT_BYTES[dtype]
            for place in range(step - 1, len(data) // 2, step):
                ctypes.c_uint8.from_address(self.tensors.address(tensor) + place).value ^= 1

    def attempt(self, method, arguments):
        try:
            return ["ok", getattr(self, method)(**arguments)]
        except Refused as error:
            return ["refused", str(error)]


class Reference(Player):
    """Uses torch._C._aoti.AOTIModelContainerRunnerCpu."""

    def check_handles(self, inputs, over):
        pass  # failing runs leave some handles

    def __init__(self, torch, tensors, library, num_models, peer):
        super().__init__(tensors)
        self.runner = torch._C._aoti.AOTIModelContainerRunnerCpu(library, num_models)
        self.peer = peer

    def ask(self, call, *arguments):
        try:
            return call(*arguments)
        except RuntimeError as error:
            raise Refused(str(error)) from None

    def call_run(self, inputs, how):
        return self.ask(self.runner.run, inputs)

    def call_update(self, pairs, inactive, partial, user_managed, from_cpu, by_fqn):
        names = {fqn: name for name, fqn in self.runner.get_constant_names_to_original_fqns().items()}
        tensors = {names.get(name, name) if by_fqn else name: tensor for name, tensor in pairs}
        self.ask(self.runner.update_constant_buffer, tensors, inactive, not partial, user_managed)

    def describe(self):
        return [self.runner.get_call_spec(), sorted(self.runner.get_constant_names_to_original_fqns().items()),
                sorted(self.runner.get_constant_names_to_dtypes().items())]

    def extract(self, inactive):
        found = self.ask(self.runner.extract_constants_map, inactive)
        return [[name, self.tensors.describe(found[name])] for name in sorted(found)]

    def fold(self, inactive):
        self.ask(self.peer.fold_constants, self.runner, inactive)

    def swap(self):
        self.ask(self.runner.swap_constant_buffer)

    def free_inactive(self):
        self.ask(self.runner.free_inactive_constant_buffer)

    def blob(self, path):
        self.ask(self.runner.update_constant_buffer_from_blob, path)

    def close(self):
        del self.runner


class RunnerOptions(ctypes.Structure):
    _fields_ = [("size", size_t), ("device", ctypes.c_char_p), ("num_models", size_t), ("directory", ctypes.c_char_p),
                ("proxy_executor", pointer), ("pool_only", ctypes.c_bool)]


class RunnerInfo(ctypes.Structure):
    _fields_ = [("library", pointer), ("device", ctypes.c_char_p), ("num_inputs", size_t), ("num_outputs", size_t),
                ("num_constants", size_t)]


class RunOptions(ctypes.Structure):
    _fields_ = [("size", size_t), ("stream", pointer), ("proxy_executor", pointer), ("steal_inputs", ctypes.c_bool)]


class UpdateOptions(ctypes.Structure):
    _fields_ = [("size", size_t), ("inactive", ctypes.c_bool), ("partial", ctypes.c_bool),
                ("user_managed", ctypes.c_bool), ("from_cpu", ctypes.c_bool), ("by_fqn", ctypes.c_bool)]


class Entry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("handle", pointer)]


class Constant(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("original_fqn", ctypes.c_char_p), ("dtype", ctypes.c_int32),
                ("type", ctypes.c_int32), ("from_folded", ctypes.c_bool), ("has_bytes", ctypes.c_bool),
                ("bytes", ctypes.c_uint64)]


CONSTANT_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_bool, pointer, ctypes.c_char_p, pointer)


class Library:
    """Calls libaoticache.so; raises Refused for a status that is not OK."""

    def __init__(self):
        self.c = ctypes.CDLL(os.path.join(BUILD, "lib", "libaoticache.so"))
        self.c.aoticache_runner_get_info.restype = ctypes.POINTER(RunnerInfo)

    def call(self, name, *arguments):
        error = Error()
        status = getattr(self.c, name)(*arguments, ctypes.byref(error))
        if status != 0:
            raise Refused(f"status {status}: {error.message.decode()}")


class Ours(Player):
    """Uses loader/runner/runner.h."""

    def __init__(self, library, tensors, path, num_models, pool_only):
        super().__init__(tensors)
        self.library = library
        opened, self.runner, fd = pointer(), pointer(), os.open(path, os.O_RDONLY)
        library.call("aoticache_library_load_fd", fd, os.fsencode(path), None, ctypes.byref(opened))
        os.close(fd)
        options = RunnerOptions(ctypes.sizeof(RunnerOptions), None, num_models, None, None, pool_only)
        library.call("aoticache_runner_create", opened, ctypes.byref(options), ctypes.byref(self.runner))
        library.c.aoticache_library_unref(opened)
        info = library.c.aoticache_runner_get_info(self.runner).contents
        self.num_outputs, self.num_constants = info.num_outputs, info.num_constants

    def ask(self, name, *arguments):
        self.library.call("aoticache_runner_" + name, self.runner, *arguments)

    def call_run(self, inputs, how):
        """how: the three ways to run; the runner owns stolen handles even if it fails."""
        handles = (pointer * (len(inputs) + 1))(*[self.tensors.handle(one) for one in inputs])
        owned, outputs = list(handles[:len(inputs)]), (pointer * (self.num_outputs + 1))()
        counts = size_t(len(inputs)), outputs, size_t(self.num_outputs)
        try:
            if how == "borrow":
                self.ask("run_with", None, handles, *counts)
            else:
                options = RunOptions(ctypes.sizeof(RunOptions), None, None, how == "steal")
                self.ask("run_with", ctypes.byref(options), handles, *counts)
        finally:
            if how != "steal":
                for handle in owned:
                    self.library.c.aoticache_tensor_free(pointer(handle))
        return [self.tensors.adopt(outputs[i]) for i in range(self.num_outputs)]

    def call_update(self, pairs, inactive, partial, user_managed, from_cpu, by_fqn):
        handles = [self.tensors.handle(tensor) for _, tensor in pairs]
        entries = (Entry * (len(pairs) + 1))(*[Entry(name.encode(), handle)
                                               for (name, _), handle in zip(pairs, handles)])
        options = UpdateOptions(ctypes.sizeof(UpdateOptions), inactive, partial, user_managed, from_cpu, by_fqn)
        try:
            self.ask("update_constants", ctypes.byref(options), entries, size_t(len(pairs)))
        finally:
            for handle in handles:
                self.library.c.aoticache_tensor_free(pointer(handle))

    def constants(self):
        constant = Constant()
        for position in range(self.num_constants):
            self.ask("read_constant", size_t(position), ctypes.byref(constant))
            yield constant

    def describe(self):
        specs = ctypes.c_char_p(), ctypes.c_char_p()
        self.ask("call_spec", ctypes.byref(specs[0]), ctypes.byref(specs[1]))
        names = [(one.name.decode(), one.original_fqn.decode(), one.dtype) for one in self.constants()]
        return [[spec.value.decode() for spec in specs], sorted([name, fqn] for name, fqn, _ in names),
                sorted([name, dtype] for name, _, dtype in names)]

    def constant_facts(self):
        return sorted([one.name.decode(), one.type, one.from_folded,
                       one.bytes if one.has_bytes and not one.from_folded else None] for one in self.constants())

    def blob_bytes(self):
        blob = ctypes.c_uint64()
        self.ask("constants_blob_bytes", ctypes.byref(blob))
        return blob.value

    def extract(self, inactive):
        found = []

        def take(_, fqn, handle):
            found.append([fqn.decode(), PlainTensors(self.library).describe(PlainTensor(handle))])
            return True

        self.ask("extract_constants", ctypes.c_bool(inactive), CONSTANT_FUNCTION(take), None)
        return sorted(found)

    def fold(self, inactive):
        self.ask("fold_constants", ctypes.c_bool(inactive), None)

    def swap(self):
        self.ask("swap_constants")

    def free_inactive(self):
        self.ask("free_inactive_constants")

    def blob(self, path, cut=0):
        with open(path, "rb") as file:
            data = file.read()
        memory = ctypes.create_string_buffer(data, len(data) + 64)
        at = (ctypes.addressof(memory) + 63) & ~63
        ctypes.memmove(at, data, len(data))
        self.ask("update_constants_from_blob", pointer(at), ctypes.c_uint64(len(data) - cut))
        ctypes.memset(at, 0xff, len(data))  # the runner has copied it

    def close(self):
        self.library.c.aoticache_runner_unref(self.runner)


# ---- running ----

def load_module(path):
    """Returns the module, or None without a path: no compiler, no Python headers."""
    if path is None:
        return None
    spec = importlib.util.spec_from_file_location("runner_fold", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_players(kind, peer):
    """Returns functions from a scenario to a player, by variant."""
    if kind == "alone":
        library = Library()
        tensors = PlainTensors(library)
    else:
        import torch
        import tensor_file
        tensors = TorchTensors(torch, tensor_file)
        module = load_module(peer)
    if kind == "torch":
        return {"": lambda one: Reference(torch, tensors, one["library"], one["num_models"], module)}
    library = Library() if kind == "beside" else library
    return {variant: lambda one, pool=pool: Ours(library, tensors, one["library"], one["num_models"], pool)
            for variant, pool in (("fast path", False), ("pool only", True))}


def play(kind, scenarios, results, peer):
    """If a kind ends in "-own", the libraries that our build made are used."""
    if kind.endswith("-own"):
        kind = kind.removesuffix("-own")
        scenarios = [{**one, "library": one["own_library"]} for one in scenarios if one["own_library"]]
    for variant, make in make_players(kind, peer).items():
        for scenario in scenarios:
            player = make(scenario)
            for i, step in enumerate(scenario["steps"]):
                if step.get("only", kind) not in (kind, "ours") or (step.get("only") == "ours" and kind == "torch"):
                    continue
                answer = player.attempt(step["method"], step["arguments"])
                results.write(json.dumps([variant, scenario["name"], i, answer]) + "\n")
                results.flush()
            player.close()


if __name__ == "__main__":
    with open(sys.argv[2]) as source, open(sys.argv[3], "w") as target:
        play(sys.argv[1], json.load(source), target, sys.argv[4] if len(sys.argv) > 4 else None)
    if sys.argv[1].startswith("alone"):
        with open("/proc/self/maps") as maps:
            assert "libtorch" not in maps.read()
