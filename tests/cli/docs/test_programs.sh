#!/usr/bin/env bash
# The C programs of README.md, of the documents and of docs/examples, compiled as their readers do: as C11 and as C++17, with
# each installed compiler, with warnings as errors, linked to the shared library and to the archive.
. tests/cli/lib.sh

install_for_examples 'programs of the documents'

# Every block of C that has a main() is a program: PAGE.NUMBER.c.
mkdir "$work/programs"
for page in README.md docs/*.md docs/*/*.md; do
    awk -v to="$work/programs/$(basename "$page" .md)" '
        /^```c$/ { on = 1; text = ""; next }
        /^```/ { if (on && text ~ /\nint main\(/) print text >(to "." ++count ".c"); on = 0 }
        on { text = text $0 "\n" }' "$page"
done
cp docs/examples/*.c "$work/programs"
holds 'the programs are found' [ "$(find "$work/programs" -name '*.c' | wc -l)" -ge 9 ]
for known in README.1 binding-author.1 dispatch.1 hooks.1 kernels.1; do
    holds "$known is among them" [ -s "$work/programs/$known.c" ]
done

read -ra flags < <(pkg-config --cflags aoticache)
compiles() { # COMPILER OPTION...: all programs
    if ! command -v "$1" >/dev/null; then
        skip "$1" 'it is not installed'
        return
    fi
    for program in "$work"/programs/*.c; do
        try "${program##*/}: $*" 0 "$@" -Wall -Wextra -Wpedantic -Werror -fsyntax-only "${flags[@]}" "$program"
    done
}
for compiler in gcc clang; do compiles $compiler -std=c11; done
for compiler in g++ clang++; do compiles $compiler -x c++ -std=c++17; done

# A kernel in C++: the header, the macro that exports, and the archive.
cat >"$work/kernel.cpp" <<'CPP'
#include <runtime/kernel.h>

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    const float *x;
    float *y;
    if (aoticache_kernel_data(call, call->inputs[0], &x) != 0 ||
        aoticache_kernel_empty_like(call, 0, call->inputs[0], &y) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    for (int i = 0; i < 3; i++)
        y[i] = 2 * x[i];
    return AOTICACHE_KERNEL_OK;
}

static aoticache_kernel describe()
{
    static const char *const inputs[] = {"x"}, *const outputs[] = {"y"};
    aoticache_kernel described = aoticache_kernel();
    described.size = sizeof described;
    described.device = "cpu";
    described.num_inputs = described.num_outputs = 1;
    described.input_names = inputs;
    described.output_names = outputs;
    described.run = run;
    return described;
}
static const aoticache_kernel kernel = describe();
AOTICACHE_KERNEL_EXPORT(kernel)
CPP
cat >"$work/host.c" <<'C'
#include <aoticache/runner.h>
#include <fcntl.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    float data[] = {1, 2, 3};
    const int64_t size = 3;
    aoticache_error error;
    aoticache_library *library;
    aoticache_runner *runner;
    aoticache_tensor_view y;
    AtenTensorHandle input, output;
    if (argc != 2 || aoticache_library_load_fd(open(argv[1], O_RDONLY), argv[1], NULL, &library, &error) ||
        aoticache_runner_create(library, NULL, &runner, &error) ||
        aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 1, &size, NULL, &input, &error) ||
        aoticache_runner_run(runner, &input, 1, &output, 1, &error) || aoticache_tensor_get_view(output, &y, &error))
        return puts(error.message), 1;
    printf("%g %g %g\n", ((float *)y.data)[0], ((float *)y.data)[1], ((float *)y.data)[2]);
}
C
compile_example "$work/host.c" "$work/host"
for compiler in g++ clang++; do
    command -v $compiler >/dev/null || { skip "a kernel by $compiler" 'it is not installed'; continue; }
    try "a kernel by $compiler" 0 $compiler -std=c++17 -Wall -Wextra -Wpedantic -Werror -O2 -shared -fPIC -fvisibility=hidden \
        "${flags[@]}" "$work/kernel.cpp" -o "$work/kernel.so" -L"$stage/lib" -laoticache_runtime -Wl,--no-as-needed \
        "$stage/lib/aoticache/libtorch_cpu.so"
    try 'it runs' 0 "$work/host" "$work/kernel.so"
    prints 'and computes' '^2 4 6$'
done

# Programs without further requirements run in C++ as in C, and with the library linked statically.
example docs/kernels.md linear >"$work/linear.c"
read -ra shared < <(pkg-config --libs aoticache)
read -ra static < <(pkg-config --static --libs aoticache | sed 's/-laoticache/-l:libaoticache.a/')
export AOTICACHE_HOME=$stage
runs() { # PROGRAM OUTPUT
    local source=$work/programs/$1.c how
    for how in 'gcc -std=c11' 'g++ -std=c++17'; do
        # shellcheck disable=SC2086 # several words
        try "$1: $how, shared" 0 $how "${flags[@]}" -x "$([[ $how = g++* ]] && echo c++ || echo c)" "$source" -x none \
            "${shared[@]}" -Wl,-rpath,"$stage/lib" -o "$work/shared"
        # shellcheck disable=SC2086 # several words
        try "$1: $how, static" 0 $how "${flags[@]}" -x "$([[ $how = g++* ]] && echo c++ || echo c)" "$source" -x none \
            "${static[@]}" -o "$work/static"
        is "$1: the library is inside" 0 "$(ldd "$work/static" | grep -c libaoticache)"
        for program in shared static; do
            try "$1: $how, $program, runs" 0 env -C "$work" "AOTICACHE_DIR=$work/$1" "$work/$program"
            prints 'and prints what the page says' "$2"
        done
    done
}
runs README.1 '^1 3 5$'
runs binding-author.1 '^1 2 3$'
runs binding-author.2 '^2 6 4 8 $'
runs holder '^1 2 3$'
try 'the fallback answers, and a thread compiles' 0 env "AOTICACHE_DIR=$work/fallback" "$work/static"
is 'the fallback answers once' 1 "$(grep -c "^the framework's kernel answers$" "$out")"
prints 'the compiled kernel after it' '^hits 1, compiles 1$'
runs hooks.1 '^16 35$'
finish
