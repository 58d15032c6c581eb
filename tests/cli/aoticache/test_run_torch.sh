#!/usr/bin/env bash
# aoticache run with kernels that PyTorch really compiles, which then run in a C process without PyTorch.
. tests/cli/lib.sh

python=${AOTICACHE_TEST_PYTHON:-$VENV/bin/python}
if ! "$python" -c 'import torch' 2>/dev/null; then
    skip 'PyTorch compiles' "$python has no PyTorch (scripts/install-deps gets it)"
    finish
fi
worker=(--hook worker --python "$python" --json)
# LeakSanitizer's tracer reads the thread-local blocks of unloaded libraries, and crashes ("Tracer caught signal 11") on
# those that PyTorch makes. tests/python/loader/test_loader_leaks.py counts their leaks.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

add=(aoticache run aten::add.Tensor --input float32:2x3=arange --input float32:2x3=10)
try 'PyTorch compiles' 0 "${add[@]}" "${worker[@]}"
member 'compiled' source compiled
member 'the sum' outputs.0.values '[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]'
key=$(field key)
try 'the second process hits' 0 "${add[@]}" "${worker[@]}" --repeat 1000
member 'from the index' source index
holds 'the time of a run is told' [ "$(field run_median_ns)" -gt 0 ]
try 'a machine without Python finds it, too' 0 "${add[@]}" --hook none --json
member 'the same kernel' key "$key"
! is_quick || finish
try 'a keyword argument makes another key' 0 "${add[@]}" --scalar alpha=2 "${worker[@]}"
member 'twice the second' outputs.0.values '[20.0, 21.0, 22.0, 23.0, 24.0, 25.0]'
holds 'another key' [ "$(field key)" != "$key" ]

try 'with weights' 0 aoticache run aten::linear --input float32:2x3=ones --weight float32:4x3=arange --weight float32:4=ones "${worker[@]}"
member 'the product' outputs.0.values '[4.0, 13.0, 22.0, 31.0, 4.0, 13.0, 22.0, 31.0]'
try 'other weights' 0 aoticache run aten::linear --input float32:2x3=ones --weight float32:4x3=ones --weight float32:4=ones "${worker[@]}"
member 'other kernels' outputs.0.values '[4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]'
member 'were compiled' source compiled

try 'a list of dimensions' 0 aoticache run aten::sum.dim_IntList --input float32:2x3=arange --list 1 --bool true "${worker[@]}"
member 'the sums' outputs.0.values '[3.0, 12.0]'
member 'the kept dimension' outputs.0.sizes '[2, 1]'

try 'an operator that PyTorch has not' 5 aoticache run aten::no_such_operator --input float32:2 "${worker[@]}"
says 'is named' 'no_such_operator'
try 'a slip' 5 aoticache run aten::ad --input float32:2 "${worker[@]}"
says 'is told what PyTorch has' 'this PyTorch has no operator aten::ad; did you mean aten::add'
try 'sizes that do not match' 5 aoticache run aten::mm --input float32:2x3 --input float32:2x3 "${worker[@]}"
says 'with what PyTorch says' 'mat1|shape|reduction'
try 'auto takes PyTorch where it is' 0 env AOTICACHE_PYTHON="$python" "${add[@]}" --json
member 'and hits what it compiled' key "$key"
try 'what is stored is sound' 0 aoticache verify
try 'show' 0 aoticache show "$key"
prints 'the producer' '^producer +pytorch '
prints 'it needs no PyTorch to run' '^PyTorch +not needed'

# A holder's refusal of aten::add_ recommends this: with in_place the worker's kernel writes, and the stack is empty.
install_for_examples 'an operator in place'
cat >"$work/add.c" <<'C'
#include <aoticache/dispatch.h>
#include <stdio.h>

int main(void)
{
    float a[] = {1, 2, 3}, b[] = {10, 20, 30};
    const int64_t size = 3;
    aoticache_error error;
    aoticache_context *context;
    aoticache_holder *holder;
    AtenTensorHandle tensors[2];
    aoticache_tensor_view views[2];
    aoticache_value values[3];
    aoticache_stack stack = {values, 2, 3};
    aoticache_context_options shared = AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_holder_options options = AOTICACHE_HOLDER_OPTIONS_INIT;
    options.schema = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)";
    options.device = AOTICACHE_DEVICE_CPU;
    if (aoticache_cache_open(NULL, &shared.cache, &error) || aoticache_hook_create_worker(NULL, &shared.hook, &error) ||
        aoticache_context_create(&shared, &context, &error))
        return puts(error.message), 1;
    if (aoticache_holder_create(context, &options, &holder, &error) != AOTICACHE_UNSUPPORTED)
        return puts("not refused"), 1;
    puts(error.message);
    options.in_place = true;
    if (aoticache_holder_create(context, &options, &holder, &error) ||
        aoticache_tensor_from_blob(a, AOTICACHE_DTYPE_FLOAT32, 1, &size, NULL, &tensors[0], &error) ||
        aoticache_tensor_from_blob(b, AOTICACHE_DTYPE_FLOAT32, 1, &size, NULL, &tensors[1], &error) ||
        aoticache_tensor_get_view(tensors[0], &views[0], &error) || aoticache_tensor_get_view(tensors[1], &views[1], &error))
        return puts(error.message), 1;
    for (int i = 0; i < 2; i++) {
        values[i].kind = AOTICACHE_VALUE_TENSOR;
        values[i].as.tensor = &views[i];
    }
    if (aoticache_holder_push_defaults(holder, 2, &stack, &error) || aoticache_holder_call(holder, 0, &stack, &error))
        return puts(error.message), 1;
    printf("%g %g %g, %zu on the stack\n", a[0], a[1], a[2], stack.count);
    aoticache_holder_unref(holder);
    aoticache_context_free(context);
    aoticache_hook_free(shared.hook);
    aoticache_cache_close(shared.cache);
}
C
compile_example "$work/add.c" "$work/add"
try 'in place, as the refusal says' 0 env AOTICACHE_HOME="$stage" AOTICACHE_PYTHON="$python" "$work/add"
prints 'the refusal' 'set options\.in_place'
prints 'the sum is in the argument' '^11 22 33, 0 on the stack$'
finish
