"""Loading and unloading leaves nothing: descriptors, mappings, memory; and libraries share no variables.

Libraries are compiled by AOTInductor: one that names libtorch_cpu.so, one that does not, one that maps its weights from
its own file. They are loaded a hundred times in a process without PyTorch, and as private copies in one with PyTorch,
each case in a process of its own. A C program that loads a C kernel library is run under valgrind.
Environment: BUILD, the build folder.
"""
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile

import test_loader_with_torch
from test_loader_with_torch import BUILD, LIBTORCH, SHIM

LIBRARIES = ("abs.so", "unlinked.so", "mapped.so")
WARM_UP, ROUNDS = 10, 100
MEMORY_BYTES = 2 << 20
VALGRIND_ERROR = 9

LOAD_20_TIMES = r"""
#include "loader/runner/runner.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    aoticache_error error = {0};
    for (int i = 0; i < 20 * (argc - 1); i++) {
        aoticache_library *library = NULL;
        aoticache_runner *runner = NULL;
        int fd = open(argv[1 + i % (argc - 1)], O_RDONLY);
        if (aoticache_library_load_fd(fd, "kernel", &library, &error) != AOTICACHE_OK ||
            aoticache_runner_create(library, NULL, &runner, &error) != AOTICACHE_OK) {
            fprintf(stderr, "%s\n", error.message);
            return 1;
        }
        close(fd);
        aoticache_library_unref(library);
        aoticache_runner_unref(runner);
    }
    return 0;
}
"""


class LoadOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("private_copy", ctypes.c_bool)]


class Loader(test_loader_with_torch.Loader):
    """Loads private copies."""

    def load(self, path):
        fd = os.open(path, os.O_RDONLY)
        library, runner = ctypes.c_void_p(), ctypes.c_void_p()
        options = LoadOptions(ctypes.sizeof(LoadOptions), True)
        self.call("aoticache_library_load_fd_with", fd, os.fsencode(path), ctypes.byref(options),
                  ctypes.byref(library))
        os.close(fd)
        self.call("aoticache_runner_create", library, None, ctypes.byref(runner))
        kind = self.c.aoticache_library_torch_kind(library)
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
        values = (ctypes.c_float * 64)(*[-1.0] * 64)
        runner, kind = loader.load(path)
        assert kind == expected_kind, f"provider {kind}"
        result = loader.run(runner, ctypes.addressof(values), [1, 64])
        assert not path.endswith(("abs.so", "unlinked.so")) or result == [1.0] * 64, result
        loader.c.aoticache_runner_unref(runner)


def check_nothing_is_left(loader, folder, expected_kind):
    paths = [os.path.join(folder, name) for name in LIBRARIES]
    for _ in range(WARM_UP):
        load_run_unload(loader, paths, expected_kind)
    before = len(os.listdir("/proc/self/fd")), len(mappings()), resident_bytes()
    for _ in range(ROUNDS):
        load_run_unload(loader, paths, expected_kind)
    after = len(os.listdir("/proc/self/fd")), len(mappings()), resident_bytes()
    print(f"descriptors, mappings, resident bytes: {before} before, {after} after")
    left = [line for line in mappings() if "aoticache-kernel" in line or folder in line]
    assert not left, "\n".join(left)
    assert after[0] == before[0]
    assert after[1] <= before[1] + 2  # the allocator's own
    assert after[2] <= before[2] + MEMORY_BYTES


def case_shim(folder):
    check_nothing_is_left(Loader(), folder, SHIM)
    with open("/proc/self/maps") as maps:
        assert "libtorch_cpu" not in maps.read()


def case_torch(folder):
    import torch  # noqa: F401
    check_nothing_is_left(Loader(), folder, LIBTORCH)


def copies():
    """The loaded copies: inode to (first address, end)."""
    found = {}
    for line in mappings():
        if "aoticache-kernel" in line:
            span, _, _, _, inode = line.split()[:5]
            first, end = (int(part, 16) for part in span.split("-"))
            old = found.get(inode, (first, end))
            found[inode] = min(old[0], first), max(old[1], end)
    return found


def unique_slots(path):
    """Offsets in the library of the pointers to its unique symbols, by name."""
    def readelf(option):
        return subprocess.run(["readelf", "-W", option, path], stdout=subprocess.PIPE, text=True, check=True).stdout

    names = {line.split()[7] for line in readelf("--dyn-syms").splitlines() if " UNIQUE " in line}
    slots = {}
    for line in readelf("-r").splitlines():
        match = re.match(r"([0-9a-f]+)\s+\S+\s+\S*GLOB_DAT?\S*\s+\S+\s+(\S+)", line)
        if match and match.group(2) in names:
            slots[match.group(2)] = int(match.group(1), 16)
    return slots


def check_own_variables(folder):
    loader, known, libraries = Loader(), {}, []
    for name in LIBRARIES:
        libraries.append(loader.load(os.path.join(folder, name))[0])
        for inode, span in copies().items():
            known.setdefault(inode, (span, name))
    assert len(known) == len(LIBRARIES), known
    checked = 0
    for (first, end), name in known.values():
        for symbol, offset in unique_slots(os.path.join(folder, name)).items():
            target = ctypes.c_uint64.from_address(first + offset).value
            assert first <= target < end, f"{name}: {symbol} is at {target:x}, outside of {first:x}-{end:x}"
            checked += symbol == "inductor_cpu_integer_div_error_flag"
    assert checked == 2, f"{checked} libraries have the flag of integer divisions"  # products alone have none
    for runner in libraries:
        loader.c.aoticache_runner_unref(runner)


def case_own_variables_shim(folder):
    check_own_variables(folder)


def case_own_variables_torch(folder):
    import torch  # noqa: F401
    check_own_variables(folder)


def case_shared_weights(folder):
    """The weights behind the segments are mapped from the file itself, as long as the library lives."""
    loader, path = Loader(), os.path.join(folder, "mapped.so")
    runner, _ = loader.load(path)
    mapped = [line for line in mappings() if line.endswith("mapped.so")]
    assert mapped, "the library's own file is not mapped"
    (first, end), = copies().values()
    assert end - first < os.path.getsize(path), "the copy has the weights too"
    loader.c.aoticache_runner_unref(runner)
    assert not [line for line in mappings() if line.endswith("mapped.so")]


CASES = {"without PyTorch 100 loads and unloads leave nothing": case_shim,
         "with PyTorch 100 private copies leave nothing": case_torch,
         "without PyTorch libraries share no variables": case_own_variables_shim,
         "with PyTorch private copies share no variables": case_own_variables_torch,
         "weights are mapped from the file, not copied": case_shared_weights}


def check_with_valgrind(folder):
    """A reason to skip, or None."""
    if shutil.which("valgrind") is None:
        return "there is no valgrind"
    if shutil.which("cc") is None:
        return "there is no C compiler"
    kernels = [os.path.join(BUILD, "tests", "hosts", name) for name in ("affine.so", "pointwise.so")]
    kernels = [path for path in kernels if os.path.exists(path)]
    if not kernels:
        return "the kernel libraries of tests/hosts are not built (make tests)"
    source, program = os.path.join(folder, "load.c"), os.path.join(folder, "load")
    with open(source, "w") as file:
        file.write(LOAD_20_TIMES)
    subprocess.run(["cc", "-g", "-I", os.path.join(BUILD, "include", "aoticache"), source, "-L",
                    os.path.join(BUILD, "lib"), "-laoticache", "-Wl,-rpath," + os.path.join(BUILD, "lib"), "-o",
                    program], check=True)
    result = subprocess.run(["valgrind", "-q", "--leak-check=full", "--errors-for-leak-kinds=definite",
                             f"--error-exitcode={VALGRIND_ERROR}", program, *kernels], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=900)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-3000:]}"
    return None


def compile_all(folder):
    import torch

    class Abs(torch.nn.Module):
        def forward(self, x):
            return torch.abs(x)

    inputs = (torch.randn(1, 64),)
    for name, module, options in (("abs.so", Abs(), {}),
                                  ("unlinked.so", Abs(), {"aot_inductor.link_libtorch": False}),
                                  ("mapped.so", torch.nn.Linear(64, 4096), {"aot_inductor.force_mmap_weights": True})):
        program = torch.export.export(module, inputs)
        torch._inductor.aot_compile(program.module(), inputs, options={
            "aot_inductor.output_path": os.path.join(folder, name), "aot_inductor.enable_line_tables": False,
            **options})


def run_case(name, folder):
    result = subprocess.run([sys.executable, __file__, "--case", name, folder], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=900)
    print("ok" if result.returncode == 0 else "not ok", "-", name)
    for line in result.stdout.splitlines()[-15:]:
        print(f"  {line}" if result.returncode != 0 else f"  # {line}")
    return result.returncode == 0


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skip - loader leaks: this Python has no PyTorch")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        compile_all(folder)
        for name in CASES:
            if "variables" in name and shutil.which("readelf") is None:
                print(f"skip - {name}: there is no readelf")
                continue
            failed += not run_case(name, folder)
        try:
            reason = check_with_valgrind(folder)
            print(f"skip - valgrind finds no leaks: {reason}" if reason else "ok - valgrind finds no leaks")
        except (AssertionError, subprocess.SubprocessError) as error:
            print(f"not ok - valgrind finds no leaks: {error}")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--case":
        CASES[sys.argv[2]](sys.argv[3])
        sys.exit(0)
    sys.exit(main())
