/*
 * PyTorch's dispatcher, timed from C: bench_dispatcher.c compiles this with the libtorch of the virtual environment.
 * The kernel is boxed and only pops its two tensors from the stack; one call pushes them and calls.
 */
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <chrono>
#include <memory>
#include <string>
#include <torch/library.h>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

void empty_kernel(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack)
{
    torch::jit::drop(*stack, 2);
}

void leaving_kernel(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *) {}

std::vector<std::unique_ptr<torch::Library>> libraries;
std::vector<c10::OperatorHandle> handles;

double since(std::chrono::steady_clock::time_point begin)
{
    std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    return taken.count();
}

} // namespace

/*
 * Defines operators f0, f1, ... of `space`, each with one kernel for CPU. Returns nanoseconds; negative if something
 * throws.
 */
EXPORTED double torch_register(const char *space, int operators, int leaving)
{
    try {
        std::vector<std::string> names, schemas;
        for (int i = 0; i < operators; i++) {
            names.push_back("f" + std::to_string(i));
            schemas.push_back(names.back() + "(Tensor a, Tensor b) -> ()");
        }
        auto begin = std::chrono::steady_clock::now();
        libraries.push_back(
            std::make_unique<torch::Library>(torch::Library::DEF, space, std::nullopt, __FILE__, __LINE__));
        torch::Library &library = *libraries.back();
        for (int i = 0; i < operators; i++) {
            library.def(schemas[i].c_str());
            library.impl(names[i].c_str(),
                         torch::dispatch(c10::DispatchKey::CPU,
                                         leaving ? torch::CppFunction::makeFromBoxedFunction<&leaving_kernel>()
                                                 : torch::CppFunction::makeFromBoxedFunction<&empty_kernel>()));
        }
        double taken = since(begin);
        handles.clear();
        for (const std::string &name : names)
            handles.push_back(
                c10::Dispatcher::singleton().findSchemaOrThrow((std::string(space) + "::" + name).c_str(), ""));
        return taken;
    } catch (...) {
        return -1;
    }
}

/*
 * Returns the nanoseconds of one call, pushing its arguments included; in turn over the first `operators` of those
 * registered last.
 */
EXPORTED double torch_call(int operators, int calls)
{
    try {
        at::InferenceMode guard; /* tensors without autograd keys: a call reaches the kernel directly */
        const at::Tensor a = at::ones({1}), b = at::ones({1});
        torch::jit::Stack stack;
        stack.reserve(8);
        int next = 0;
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; i++) {
            stack.emplace_back(a);
            stack.emplace_back(b);
            handles[next].callBoxed(stack);
            next = next + 1 == operators ? 0 : next + 1;
        }
        return since(begin) / calls;
    } catch (...) {
        return -1;
    }
}

/* Does the same with a kernel that leaves its arguments: only the call, without counting references. */
EXPORTED double torch_call_leaving(int operators, int calls)
{
    try {
        at::InferenceMode guard;
        const at::Tensor a = at::ones({1}), b = at::ones({1});
        torch::jit::Stack stack{a, b};
        int next = 0;
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; i++) {
            handles[next].callBoxed(stack);
            next = next + 1 == operators ? 0 : next + 1;
        }
        return since(begin) / calls;
    } catch (...) {
        return -1;
    }
}
