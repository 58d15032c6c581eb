"""Makes long random sequences of calls, the same ones to a container that PyTorch made and to one in C of the same
model, through the exported C interface. After every call the status, the results and the kind of message must be the
same.

Left out, because PyTorch's container has no defined result for it:
- a run or a fold with a buffer that was only partly filled, or freed and not completely filled again: PyTorch's uses
  null or dangling tensors. (A run with a buffer that was never filled, or just freed, fails cleanly, and is included.)
- freeing a buffer whose constants were folded: its next update looks for the data of the constants that were just
  dropped.
- listing a freed buffer: the list still names tensors whose memory has been freed.
- tensors of another size or dtype, or with a storage offset: as many bytes are copied as the storage has, from the
  first element on.
- updates of the inactive buffer while the active one is incomplete, and incomplete user-managed updates of it: missing
  constants are borrowed from the active one.
- new values for constants that tracing made: folding the inactive buffer replaces them by the active one's.
- RunSingleThreaded after Run: it takes the pool's first free model even if there is none. It has its own containers.
- whether a run that fails before it begins takes its inputs: PyTorch's does not, ours does, and sets them to NULL.
- wrong numbers of inputs and outputs: the check throws a C++ exception through the C interface.
In all of these cases ours refuses the call or executes it correctly.
"""
import ctypes
import os
import random
import re
import threading

import pytest
import torch

import host_models

pytestmark = pytest.mark.quick
STEPS = int(os.environ.get("SEQUENCE_STEPS", "1500"))
OUTPUTS = {"affine": 2, "folded": 1}
FLOAT32, CPU = 6, 0
pointer, size_t, int64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64


class Entry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("handle", pointer)]


class Tensors:
    """Handles made with libtorch's own C interface, in memory that this object owns."""

    def __init__(self, torch):
        self.c = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        self.kept = []

    def make(self, values, sizes, transposed=False):
        """Returns a tensor without gaps; transposed: the elements of the first dimension are adjacent."""
        strides = [1] * len(sizes)
        if len(sizes) == 2:
            strides = [1, sizes[0]] if transposed else [sizes[1], 1]
        memory, tensor = (ctypes.c_float * len(values))(*values), pointer()
        status = self.c.aoti_torch_create_tensor_from_blob(
            ctypes.cast(memory, pointer), int64(len(sizes)), (int64 * len(sizes))(*sizes),
            (int64 * len(sizes))(*strides), int64(0), FLOAT32, CPU, ctypes.c_int32(-1), ctypes.byref(tensor))
        assert status == 0
        self.kept.append(memory)
        return tensor, memory

    def read(self, handle):
        """Returns sizes, strides and values."""
        ndim, sizes, strides, data = int64(), ctypes.POINTER(int64)(), ctypes.POINTER(int64)(), pointer()
        for function, place in (("dim", ndim), ("sizes", sizes), ("strides", strides), ("data_ptr", data)):
            assert getattr(self.c, "aoti_torch_get_" + function)(handle, ctypes.byref(place)) == 0
        values = ctypes.cast(data, ctypes.POINTER(ctypes.c_float))
        sizes, strides = sizes[:ndim.value], strides[:ndim.value]
        places = [0]
        for size, stride in zip(sizes, strides):
            places = [place + i * stride for place in places for i in range(size)]
        return tuple(sizes), tuple(strides), tuple(values[place] for place in places)

    def free(self, handle):
        self.c.aoti_torch_delete_tensor_object(handle)


class Container:
    """A container; every call returns (status, kind of message, result)."""

    def __init__(self, library, tensors, num_outputs, num_models):
        self.c, self.tensors, self.num_outputs = ctypes.CDLL(library), tensors, num_outputs
        self.handle, self.names = pointer(), []
        assert self.c.AOTInductorModelContainerCreateWithDevice(ctypes.byref(self.handle), size_t(num_models), b"cpu",
                                                                None) == 0
        count = size_t()
        self.c.AOTInductorModelContainerGetNumConstants(self.handle, ctypes.byref(count))
        self.names = [self.ask("GetConstantName", i, ctypes.c_char_p)[2] for i in range(count.value)]

    def delete(self):
        return self.call("Delete")

    def kind_of_message(self):
        message = ctypes.c_char_p()
        self.c.AOTInductorGetLastError(ctypes.byref(message))
        words = set(re.findall(rb"[\w.]+", message.value))
        return (message.value != b"", tuple(name for name in self.names if name in words))

    def call(self, name, *arguments):
        status = getattr(self.c, "AOTInductorModelContainer" + name)(self.handle, *arguments)
        return status, self.kind_of_message(), None

    def ask(self, name, position, kind):
        place = kind()
        status, message, _ = self.call(name, size_t(position), ctypes.byref(place))
        return status, message, place.value

    def run(self, values, sizes, single=False):
        inputs, outputs = (pointer * 1)(), (pointer * self.num_outputs)()
        inputs[0], _memory = self.tensors.make(values, sizes)
        self.tensors.kept.pop()
        status, message, _ = self.call("RunSingleThreaded" if single else "Run", inputs, size_t(1), outputs,
                                       size_t(self.num_outputs), None, None)
        taken = inputs[0] is None
        if not taken:
            self.tensors.free(pointer(inputs[0]))
        results = []
        for handle in outputs if status == 0 else ():
            results.append(self.tensors.read(pointer(handle)))
            self.tensors.free(pointer(handle))
        return status, message, (taken or status != 0, results)

    def update(self, kind, pairs, inactive, validate):
        entries = (Entry * max(1, len(pairs)))(*[Entry(name, handle.value) for name, handle in pairs])
        flags = [ctypes.c_bool(inactive), ctypes.c_bool(validate)]
        if kind == "UpdateInactiveConstantBufferPairs":
            flags = []
        return self.call(kind, entries, size_t(len(pairs)), *flags)

    def extract(self, inactive):
        entries, count = ctypes.POINTER(Entry)(), size_t()
        status, message, _ = self.call("ExtractConstantsMapEntries", ctypes.byref(entries), ctypes.byref(count),
                                       ctypes.c_bool(inactive))
        found = [(entries[i].name, self.tensors.read(pointer(entries[i].handle))) for i in range(count.value)]
        return status, message, found


class Buffer:
    """The known state of one of the two buffers."""

    def __init__(self):
        self.state = "never filled"  # later "filled" or "freed"
        self.filled = set()
        self.folded = False  # has folded constants, whether up to date or not


class Sequence:
    """Makes defined calls and compares their results."""

    def __init__(self, model, libraries, tensors, seed, single):
        self.random, self.tensors, self.single, self.step = random.Random(seed), tensors, single, 0
        self.made = {}  # number of calls of each kind
        self.containers = [Container(path, tensors, OUTPUTS[model], 2) for path in libraries]
        self.sizes = host_models.INPUT_SIZES[model]
        reference = self.containers[0]
        self.shapes, self.optional, self.traced = {}, set(), {}
        for fqn, (sizes, _, values) in reference.extract(False)[2]:
            position = next(i for i in range(len(reference.names))
                            if reference.ask("GetConstantOriginalFQN", i, ctypes.c_char_p)[2] == fqn)
            name, kind = reference.names[position], reference.ask("GetConstantType", position, ctypes.c_int32)[2]
            self.shapes[name] = sizes
            if kind != 1:
                self.optional.add(name)
            if kind == 3:
                self.traced[name] = values
        self.has_folded = any(reference.ask("GetConstantFromFolded", i, ctypes.c_bool)[2]
                              for i in range(len(reference.names)))
        self.active, self.inactive = Buffer(), Buffer()
        self.active.state, self.active.filled = "filled", set(self.shapes)

    def whole(self, buffer):
        return buffer.filled == set(self.shapes)

    def both(self, what, call):
        kind = what.split()[0]
        self.made[kind] = self.made.get(kind, 0) + 1
        one, other = (call(container) for container in self.containers)
        assert one == other, f"step {self.step}, {what}:\n  PyTorch's: {one}\n  in C:      {other}"
        return one

    # ---- calls ----

    def input(self):
        count = self.sizes[0] * self.sizes[1]
        return [float(self.random.randint(-9, 9)) for _ in range(count)]

    def run(self):
        if self.active.state == "filled" and not self.whole(self.active):
            return
        values = self.input()
        status, _, _ = self.both("run", lambda c: c.run(values, self.sizes, self.single))
        assert (status == 0) == (self.active.state == "filled")
        if status == 0 and self.has_folded:
            self.active.folded = True

    def pair(self, name):
        """Returns a new value; a matrix sometimes has other strides, which the container must keep."""
        sizes = self.shapes[name]
        count = sizes[0] if len(sizes) == 1 else sizes[0] * sizes[1]
        values = self.traced.get(name) or [float(self.random.randint(-4, 4)) for _ in range(count)]
        return name, self.tensors.make(values, sizes, self.random.random() < 0.3)

    def update(self):
        inactive = self.random.random() < 0.5
        kind = self.random.choice(("UpdateConstantBufferPairs",) * 3 + ("UpdateUserManagedConstantBufferPairs",
                                  "UpdateConstantBufferFromCpuPairs", "UpdateInactiveConstantBufferPairs"))
        inactive |= kind == "UpdateInactiveConstantBufferPairs"
        validate = kind == "UpdateInactiveConstantBufferPairs" or self.random.random() < 0.5
        names = [name for name in self.shapes if self.random.random() < 0.8]
        if self.random.random() < 0.6:
            names = list(self.shapes)
        managed = kind == "UpdateUserManagedConstantBufferPairs"
        if inactive and (not self.whole(self.active) or (managed and len(names) < len(self.shapes))):
            return
        self.random.shuffle(names)
        pairs = [self.pair(name) for name in names]
        status, _, _ = self.both(f"{kind} {names} inactive {inactive} validate {validate}",
                                 lambda c: c.update(kind, [(n, t) for n, (t, _) in pairs], inactive, validate))
        missing = set(self.shapes) - set(names) - self.optional
        assert (status == 0) == (not (validate and missing)), (status, missing)
        if status == 0:
            self.note_update(self.inactive if inactive else self.active, set(names), inactive)
        if managed and status == 0:
            for name, (_, memory) in pairs:
                if name not in self.traced:
                    memory[5] = float(self.random.randint(-4, 4))  # the user's memory, which is still in use

    def note_update(self, buffer, names, inactive):
        buffer.state = "filled"
        buffer.filled |= names | (self.optional if inactive else set())

    def fold(self):
        inactive = self.random.random() < 0.5
        buffer = self.inactive if inactive else self.active
        if self.single or not self.whole(buffer) or not self.whole(self.active):
            return
        status, _, _ = self.both(f"fold inactive {inactive}",
                                 lambda c: c.call("RunConstantFolding", ctypes.c_bool(inactive), None, None))
        assert status == 0
        buffer.folded = self.has_folded

    def swap(self):
        self.both("swap", lambda c: c.call("SwapConstantBuffer"))
        self.active, self.inactive = self.inactive, self.active

    def free(self):
        if self.inactive.folded:
            return
        self.both("free", lambda c: c.call("FreeInactiveConstantBuffer"))
        if self.inactive.state != "never filled":
            self.inactive.state = "freed"
        self.inactive.filled = set()

    def extract(self):
        inactive = self.random.random() < 0.5
        buffer = self.inactive if inactive else self.active
        if buffer.state == "never filled" or self.whole(buffer):
            self.both(f"extract inactive {inactive}", lambda c: c.extract(inactive))

    def ask(self):
        query, kind = self.random.choice((
            ("GetConstantName", ctypes.c_char_p), ("GetConstantOriginalFQN", ctypes.c_char_p),
            ("GetConstantFromFolded", ctypes.c_bool), ("GetConstantType", ctypes.c_int32),
            ("GetConstantDtype", ctypes.c_int32), ("GetConstantDataSize", size_t), ("GetInputName", ctypes.c_char_p),
            ("GetOutputName", ctypes.c_char_p)))
        position = self.random.choice((0, 1, 2, 3, 4, 5, 2**31, 2**63 - 1, 2**64 - 1))
        self.both(f"{query} {position}", lambda c: c.ask(query, position, kind))

    def run_in_threads(self):
        """Four threads run; meanwhile the inactive buffer is filled, which must not change their results."""
        if self.single or self.active.state != "filled" or not self.whole(self.active):
            return
        values = self.input()
        expected = self.both("run", lambda c: c.run(values, self.sizes))
        self.active.folded |= self.has_folded
        wrong = []

        def run_many(container):
            for _ in range(10):
                got = container.run(values, self.sizes)
                if got != expected:
                    wrong.append(got)

        pairs = [self.pair(name) for name in self.shapes]
        for container in self.containers:
            threads = [threading.Thread(target=run_many, args=(container,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for _ in range(5):
                container.update("UpdateConstantBufferPairs", [(n, t) for n, (t, _) in pairs], True, True)
            for thread in threads:
                thread.join()
        self.note_update(self.inactive, set(self.shapes), True)
        assert not wrong, f"step {self.step}: in threads {wrong[0]}, alone {expected}"

    def play(self, steps):
        calls = [self.run] * 8 + [self.update] * 8 + [self.fold] * 2 + [self.swap] * 3 + [self.extract] * 3 + \
                [self.ask] * 3 + [self.free]
        for self.step in range(steps):
            self.random.choice(calls)()
            if self.step % 100 == 99:
                self.run_in_threads()
        self.both("delete", Container.delete)
        assert sum(self.made.values()) > steps / 2, self.made
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.made.items()) if not kind.startswith("Get"))


@pytest.fixture(scope="module")
def paths():
    return host_models.torch_libraries(torch)


@pytest.mark.parametrize("model", OUTPUTS)
@pytest.mark.parametrize("seed, single", [(1, False), (2, False), (3, True)], ids=["seed 1", "seed 2", "seed 3, single-threaded"])
def test_sequence(paths, model, seed, single):
    libraries = paths[model], host_models.c_library(model)
    print(Sequence(model, libraries, Tensors(torch), seed, single).play(STEPS))
