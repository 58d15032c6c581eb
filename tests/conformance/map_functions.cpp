/*
 * A host in C++ that passes its constants in a std::unordered_map<std::string, AtenTensorHandle>, as PyTorch's own
 * runner does: every exported function that takes one, on the kernel library tests/hosts/kernels/affine.c, which is
 * linked into this program together with the shim.
 */
#include "runtime/abi.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

using constant_map = std::unordered_map<std::string, AtenTensorHandle>;

namespace {

constexpr int rows = 2, in = 4, out = 12;
int failures = 0;

void check(bool holds, const char *what)
{
    std::printf("%s - %s\n", holds ? "ok" : "not ok", what);
    failures += holds ? 0 : 1;
}

AOTInductorConstantMapHandle handle_of(constant_map &map)
{
    return reinterpret_cast<AOTInductorConstantMapHandle>(&map);
}

bool says(const char *text)
{
    const char *message = nullptr;
    return AOTInductorGetLastError(&message) == 0 && message != nullptr && std::strstr(message, text) != nullptr;
}

AtenTensorHandle wrap(std::vector<float> &data, std::vector<int64_t> sizes)
{
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;)
        strides[i - 1] = strides[i] * sizes[i];
    AtenTensorHandle tensor = nullptr;
    if (aoti_torch_create_tensor_from_blob(data.data(), static_cast<int64_t>(sizes.size()), sizes.data(),
                                           strides.data(), 0, 6, 0, 0, &tensor) != 0)
        check(false, "a tensor over memory of the test");
    return tensor;
}

/* Constants with one value each: an output is (4 * x * weight + bias) * scale + traced. */
struct constants {
    std::vector<float> weight, bias, scale, traced;
    constant_map map;

    explicit constants(float value) : weight(out * in, value), bias(out, value), scale(out, value), traced(out, value)
    {
        map["fc_weight"] = wrap(weight, {out, in});
        map["fc_bias"] = wrap(bias, {out});
        map["scale"] = wrap(scale, {out});
        map["_tensor_constant0"] = wrap(traced, {out});
    }
    void free_tensors()
    {
        for (auto &entry : map)
            aoti_torch_delete_tensor_object(entry.second);
        map.clear();
    }
};

float expected(float value)
{
    return (4 * value + value) * value + value;
}

/* Returns the first element of the output for an input of ones; -1 if the run fails. `run` takes inputs and outputs. */
template <typename Run> float first_output(Run run)
{
    std::vector<float> x(rows * in, 1);
    AtenTensorHandle input = wrap(x, {rows, in}), outputs[2] = {nullptr, nullptr};
    if (run(&input, outputs) != 0)
        return -1;
    void *data = nullptr;
    aoti_torch_get_data_ptr(outputs[0], &data);
    float first = *static_cast<float *>(data);
    for (AtenTensorHandle output : outputs)
        aoti_torch_delete_tensor_object(output);
    return first;
}

float run_container(AOTInductorModelContainerHandle container)
{
    return first_output([container](AtenTensorHandle *inputs, AtenTensorHandle *outputs) {
        return AOTInductorModelContainerRun(container, inputs, 1, outputs, 2, nullptr, nullptr);
    });
}

float run_model(AOTInductorModelHandle model)
{
    return first_output([model](AtenTensorHandle *inputs, AtenTensorHandle *outputs) {
        return AOTInductorModelRun(model, inputs, outputs);
    });
}

void try_container()
{
    AOTInductorModelContainerHandle container = nullptr;
    check(AOTInductorModelContainerCreateWithDevice(&container, 2, "cpu", nullptr) == 0, "a container");
    constants two(2), three(3), four(4), five(5);
    check(AOTInductorModelContainerUpdateConstantBuffer(container, handle_of(two.map), false, true) == 0 &&
              run_container(container) == expected(2),
          "UpdateConstantBuffer changes the active buffer");
    check(AOTInductorModelContainerUpdateInactiveConstantBuffer(container, handle_of(three.map)) == 0 &&
              run_container(container) == expected(2),
          "UpdateInactiveConstantBuffer leaves the active one alone");
    check(AOTInductorModelContainerSwapConstantBuffer(container) == 0 && run_container(container) == expected(3),
          "and a swap brings it");
    check(AOTInductorModelContainerUpdateConstantBufferFromCpu(container, handle_of(four.map), false, true) == 0 &&
              run_container(container) == expected(4),
          "UpdateConstantBufferFromCpu");
    check(AOTInductorModelContainerUpdateUserManagedConstantBuffer(container, handle_of(five.map), false, true) == 0 &&
              run_container(container) == expected(5),
          "UpdateUserManagedConstantBuffer");
    five.scale.assign(out, 1);
    check(run_container(container) == (4 * 5 + 5) * 1 + 5, "which uses the memory where it is");

    constant_map listed;
    check(AOTInductorModelContainerExtractConstantsMap(container, handle_of(listed), false) == 0 &&
              listed.size() == 4 && listed.count("fc.weight") == 1 && listed.count("scale") == 1,
          "ExtractConstantsMap lists them by their original names");

    constant_map partial = {{"fc_weight", two.map["fc_weight"]}}, wrong = {{"fc_bias", two.map["fc_weight"]}};
    check(AOTInductorModelContainerUpdateConstantBuffer(container, handle_of(partial), false, true) != 0 &&
              says("fc_bias"),
          "a validated update without a parameter is refused and names it");
    check(AOTInductorModelContainerUpdateConstantBuffer(container, handle_of(wrong), false, false) != 0 &&
              says("fc_bias"),
          "a tensor of other sizes is refused");
    check(AOTInductorModelContainerUpdateConstantBuffer(container, nullptr, false, false) != 0 && says("NULL"),
          "no map at all is refused");
    check(run_container(container) == (4 * 5 + 5) * 1 + 5, "and nothing has changed");
    check(AOTInductorModelContainerDelete(container) == 0, "the container is gone");
    for (constants *some : {&two, &three, &four, &five})
        some->free_tensors();
}

/* Tests models, which take the handles of the maps over. */
void try_model()
{
    AOTInductorModelHandle model = nullptr;
    constants two(2), three(3);
    check(AOTInductorModelCreate(&model, handle_of(two.map)) == 0 && run_model(model) == expected(2),
          "AOTInductorModelCreate with a map");
    check(AOTInductorModelUpdateConstantsMap(model, handle_of(three.map)) == 0 && run_model(model) == expected(3),
          "AOTInductorModelUpdateConstantsMap");
    check(AOTInductorModelDelete(model) == 0, "the model is gone");
    model = nullptr;
    check(AOTInductorModelCreate(&model, nullptr) == 0 && run_model(model) != -1,
          "without a map: the library's own weights");
    check(AOTInductorModelDelete(model) == 0, "that model is gone too");
}

} // namespace

int main()
{
    try_container();
    try_model();
    return failures == 0 ? 0 : 1;
}
