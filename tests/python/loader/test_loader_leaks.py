"""Tests that loading and unloading leaks no descriptors, mappings or memory, and that libraries share no variables.

AOTInductor compiles the libraries: one that is linked to libtorch_cpu.so, one that is not, one that maps its weights
from its own file. They are loaded a hundred times in a process without PyTorch, and as private copies in one with
PyTorch, each case in its own process. A C program that loads a C kernel library is run under valgrind. Environment:
BUILD, the build directory.
"""
import os
import shutil
import subprocess

import pytest
import torch

import loader_host
from loader_host import BUILD

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
        if (aoticache_library_load_fd(fd, "kernel", NULL, &library, &error) != AOTICACHE_OK ||
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


@pytest.mark.parametrize("case", ["nothing_is_left", "nothing_is_left_torch", "own_variables", "own_variables_torch", "shared_weights"])
def test_case(case):
    """In the last case the weights are mapped from the library's file, not copied."""
    if "variables" in case and shutil.which("readelf") is None:
        pytest.skip("there is no readelf")
    loader_host.play(case, loader_host.libraries(torch))


@pytest.mark.skipif(shutil.which("valgrind") is None or shutil.which("cc") is None, reason="there is no valgrind, or no C compiler")
def test_valgrind_finds_no_leaks(tmp_path):
    kernels = [os.path.join(BUILD, "tests", "hosts", name) for name in ("affine.so", "pointwise.so")]
    kernels = [path for path in kernels if os.path.exists(path)]
    if not kernels:
        pytest.skip("the kernel libraries of tests/hosts are not built (make tests)")
    source, program = os.path.join(str(tmp_path), "load.c"), os.path.join(str(tmp_path), "load")
    with open(source, "w") as file:
        file.write(LOAD_20_TIMES)
    subprocess.run(["cc", "-g", "-I", os.path.join(BUILD, "include", "aoticache"), source, "-L",
                    os.path.join(BUILD, "lib"), "-laoticache", "-Wl,-rpath," + os.path.join(BUILD, "lib"), "-o",
                    program], check=True)
    result = subprocess.run(["valgrind", "-q", "--leak-check=full", "--errors-for-leak-kinds=definite",
                             f"--error-exitcode={VALGRIND_ERROR}", program, *kernels], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=900)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-3000:]}"
