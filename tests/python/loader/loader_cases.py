"""Cases of test_loader_with_torch.py and test_loader_leaks.py. Each runs in its own process, because the results depend on
what the process has loaded first, and whether it has PyTorch.

usage: loader_cases.py CASE DIRECTORY       DIRECTORY: what loader_host.libraries() returned
"""
import ctypes
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
from loader_host import LIBTORCH, SHIM, Loader

LIBRARIES = ("abs.so", "unlinked.so", "mapped.so")
WARM_UP, ROUNDS = 10, 100
MEMORY_BYTES = 2 << 20


def paths_of(directory):
    return {name: os.path.join(directory, file) for name, file in (("abs", "abs.so"), ("linear", "linear.so"), ("model", "model.pt"))}


class LoadOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("private_copy", ctypes.c_bool)]


def libtorch_is_mapped():
    with open("/proc/self/maps") as maps:
        return "libtorch" in maps.read()


def check_both_libraries(loader, torch, paths):
    """Runs on PyTorch's own tensors, and compares with PyTorch."""
    model = torch.load(paths["model"], weights_only=False)
    for name, expected in (("abs", torch.abs), ("linear", model)):
        runner, kind = loader.load(paths[name])
        assert kind == LIBTORCH, f"{name}: provider {kind}"
        tensor = torch.randn(2, 4)
        with torch.no_grad():
            wanted = expected(tensor)
        got = torch.tensor(loader.run(runner, tensor.data_ptr(), [2, 4])).reshape(wanted.shape)
        torch.testing.assert_close(got, wanted)
        loader.c.aoticache_runner_unref(runner)


def case_torch_first(directory):
    import torch
    check_both_libraries(Loader(), torch, paths_of(directory))


def case_shim_first(directory):
    loader, paths = Loader(), paths_of(directory)
    values = (ctypes.c_float * 8)(*[-1.5 * i for i in range(8)])
    runners = [loader.load(paths["abs"]), loader.load(paths["linear"])]
    assert [kind for _, kind in runners] == [SHIM, SHIM]
    before = [loader.run(runner, ctypes.addressof(values), [2, 4]) for runner, _ in runners]
    assert before[0] == [1.5 * i for i in range(8)], before[0]
    assert not libtorch_is_mapped()

    import torch
    assert libtorch_is_mapped()
    assert torch.abs(torch.tensor([-3.0])).item() == 3.0
    tensor = torch.tensor(list(values)).reshape(2, 4)
    with torch.no_grad():
        wanted = torch.load(paths["model"], weights_only=False)(tensor)
    torch.testing.assert_close(torch.tensor(before[1]).reshape(2, 3), wanted)
    # The libraries that were loaded earlier still run, also on PyTorch's memory; libraries that are loaded now get the shim
    # as well.
    runners.append(loader.load(paths["abs"]))
    assert runners[2][1] == SHIM
    for (runner, _), expected in zip(runners, (before[0], before[1], before[0])):
        assert loader.run(runner, tensor.data_ptr(), [2, 4]) == expected
    # PyTorch can run the same file with its own loader at the same time.
    own = torch._C._aoti.AOTIModelContainerRunnerCpu(paths["abs"], 1)
    torch.testing.assert_close(own.run([tensor])[0], torch.abs(tensor))
    for runner, _ in runners:
        loader.c.aoticache_runner_unref(runner)
    torch.testing.assert_close(own.run([tensor])[0], torch.abs(tensor))


def case_private_copies(directory):
    """Copies run on PyTorch's tensors, next to PyTorch's own runner of the same file, and are gone when they are
    unloaded."""
    import torch

    loader, paths, tensor = Loader(), paths_of(directory), torch.randn(2, 4)
    own = torch._C._aoti.AOTIModelContainerRunnerCpu(paths["abs"], 1)
    fd = os.open(paths["abs"], os.O_RDONLY)
    library, runner = ctypes.c_void_p(), ctypes.c_void_p()
    loader.call("aoticache_library_load_fd", fd, b"abs", ctypes.byref(LoadOptions(ctypes.sizeof(LoadOptions), True)),
                ctypes.byref(library))
    os.close(fd)
    assert loader.kind_of(library) == LIBTORCH
    loader.call("aoticache_runner_create", library, None, ctypes.byref(runner))
    loader.c.aoticache_library_unref(library)
    for _ in range(2):
        got = torch.tensor(loader.run(runner, tensor.data_ptr(), [2, 4])).reshape(2, 4)
        torch.testing.assert_close(got, torch.abs(tensor))
        torch.testing.assert_close(own.run([tensor])[0], torch.abs(tensor))
    loader.c.aoticache_runner_unref(runner)
    with open("/proc/self/maps") as maps:
        assert "aoticache-kernel" not in maps.read()
    torch.testing.assert_close(own.run([tensor])[0], torch.abs(tensor))


# ---- leaks ----

class PrivateLoader(Loader):
    """Loads private copies."""

    def load(self, path):
        fd = os.open(path, os.O_RDONLY)
        library, runner = ctypes.c_void_p(), ctypes.c_void_p()
        options = LoadOptions(ctypes.sizeof(LoadOptions), True)
        self.call("aoticache_library_load_fd", fd, os.fsencode(path), ctypes.byref(options),
                  ctypes.byref(library))
        os.close(fd)
        self.call("aoticache_runner_create", library, None, ctypes.byref(runner))
        kind = self.kind_of(library)
        self.c.aoticache_library_unref(library)
        return runner, kind


def mappings():
    with open("/proc/self/maps") as maps:
        return maps.read().splitlines()


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def load_run_unload(loader, paths, expected_kind):
    for path in paths:
        sizes = [1, 64] if path.endswith("mapped.so") else [2, 4]
        count = sizes[0] * sizes[1]
        values = (ctypes.c_float * count)(*[-1.0] * count)
        runner, kind = loader.load(path)
        assert kind == expected_kind, f"provider {kind}"
        result = loader.run(runner, ctypes.addressof(values), sizes)
        assert path.endswith("mapped.so") or result == [1.0] * count, result
        loader.c.aoticache_runner_unref(runner)


def check_nothing_is_left(loader, directory, expected_kind):
    paths = [os.path.join(directory, name) for name in LIBRARIES]
    for _ in range(WARM_UP):
        load_run_unload(loader, paths, expected_kind)
    before = len(os.listdir("/proc/self/fd")), len(mappings()), resident_bytes()
    for _ in range(ROUNDS):
        load_run_unload(loader, paths, expected_kind)
    after = len(os.listdir("/proc/self/fd")), len(mappings()), resident_bytes()
    print(f"descriptors, mappings, resident bytes: {before} before, {after} after")
    left = [line for line in mappings() if "aoticache-kernel" in line or directory in line]
    assert not left, "\n".join(left)
    assert after[0] == before[0]
    assert after[1] <= before[1] + 2  # the allocator's own mappings
    assert after[2] <= before[2] + MEMORY_BYTES


def case_nothing_is_left(directory):
    check_nothing_is_left(PrivateLoader(), directory, SHIM)
    with open("/proc/self/maps") as maps:
        assert "libtorch_cpu" not in maps.read()


def case_nothing_is_left_torch(directory):
    import torch  # noqa: F401
    check_nothing_is_left(PrivateLoader(), directory, LIBTORCH)


def copies():
    """Returns the loaded copies: inode to (first address, end)."""
    found = {}
    for line in mappings():
        if "aoticache-kernel" in line:
            span, _, _, _, inode = line.split()[:5]
            first, end = (int(part, 16) for part in span.split("-"))
            old = found.get(inode, (first, end))
            found[inode] = min(old[0], first), max(old[1], end)
    return found


def unique_slots(path):
    """Returns the offsets in the library of the pointers to its unique symbols, by name."""
    def readelf(option):
        return subprocess.run(["readelf", "-W", option, path], stdout=subprocess.PIPE, text=True, check=True).stdout

    names = {line.split()[7] for line in readelf("--dyn-syms").splitlines() if " UNIQUE " in line}
    slots = {}
    for line in readelf("-r").splitlines():
        match = re.match(r"([0-9a-f]+)\s+\S+\s+\S*GLOB_DAT?\S*\s+\S+\s+(\S+)", line)
        if match and match.group(2) in names:
            slots[match.group(2)] = int(match.group(1), 16)
    return slots


def check_own_variables(directory):
    loader, known, libraries = PrivateLoader(), {}, []
    for name in LIBRARIES:
        libraries.append(loader.load(os.path.join(directory, name))[0])
        for inode, span in copies().items():
            known.setdefault(inode, (span, name))
    assert len(known) == len(LIBRARIES), known
    checked = 0
    for (first, end), name in known.values():
        for symbol, offset in unique_slots(os.path.join(directory, name)).items():
            target = ctypes.c_uint64.from_address(first + offset).value
            assert first <= target < end, f"{name}: {symbol} is at {target:x}, outside of {first:x}-{end:x}"
            checked += symbol == "inductor_cpu_integer_div_error_flag"
    assert checked == 2, f"{checked} libraries have the flag of integer divisions"  # libraries that only multiply have none
    for runner in libraries:
        loader.c.aoticache_runner_unref(runner)


def case_own_variables(directory):
    check_own_variables(directory)


def case_own_variables_torch(directory):
    import torch  # noqa: F401
    check_own_variables(directory)


def case_shared_weights(directory):
    """The weights after the segments are mapped from the file itself, as long as the library is loaded."""
    loader, path = PrivateLoader(), os.path.join(directory, "mapped.so")
    runner, _ = loader.load(path)
    mapped = [line for line in mappings() if line.endswith("mapped.so")]
    assert mapped, "the library's own file is not mapped"
    (first, end), = copies().values()
    assert end - first < os.path.getsize(path), "the copy has the weights too"
    loader.c.aoticache_runner_unref(runner)
    assert not [line for line in mappings() if line.endswith("mapped.so")]


if __name__ == "__main__":
    globals()["case_" + sys.argv[1]](sys.argv[2])
