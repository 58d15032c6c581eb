/*
 * PyTorch's C++ runner, timed from C: bench_runner.c compiles this with the libtorch of the virtual environment.
 */
#include <ATen/ATen.h>
#include <chrono>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>

using Runner = torch::inductor::AOTIModelContainerRunnerCpu;

extern "C" __attribute__((visibility("default"))) void *torch_runner_create(const char *path, int single_threaded)
{
    try {
        return new Runner(path, 1, single_threaded != 0);
    } catch (...) {
        return nullptr;
    }
}

/* Returns the nanoseconds of one run, freeing the output included; negative if it throws. */
extern "C" __attribute__((visibility("default"))) double torch_runner_measure(void *runner, int runs)
{
    try {
        const std::vector<at::Tensor> inputs = {at::ones({1})};
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < runs; i++)
            static_cast<Runner *>(runner)->run(inputs);
        std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
        return taken.count() / runs;
    } catch (...) {
        return -1;
    }
}
