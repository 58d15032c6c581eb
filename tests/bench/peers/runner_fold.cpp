/*
 * Folding, which PyTorch's C++ runner has and its Python class lacks: a Python module in addition to torch's own, for
 * tests/python/loader/test_runner_battery.py, which compiles it.
 */
#include <pybind11/pybind11.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>

using Runner = torch::inductor::AOTIModelContainerRunnerCpu;

PYBIND11_MODULE(runner_fold, module)
{
    module.def("fold_constants", [](Runner &runner, bool inactive) { runner.run_const_fold(inactive); });
}
