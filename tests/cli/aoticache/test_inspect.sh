#!/usr/bin/env bash
# aoticache inspect: libraries written in C, libraries and packages that PyTorch made, entries of the cache, and files
# that crash, hang or are not libraries.
. tests/cli/lib.sh
export AOTICACHE_HOME=$BUILD
cc=${CC:-cc}
affine=$BUILD/tests/hosts/affine.so
[ -e "$affine" ] || { skip 'inspect' "$affine is not built (make tests)" && finish; }

# link NAME SOURCE [OPTION]...: makes the kernel affine, with more in it
link() {
    local name=$1 source=$2
    shift 2
    "$cc" -D_GNU_SOURCE -I. -shared -fPIC -w "$source" tests/hosts/kernels/affine.c \
        "$BUILD/lib/libaoticache_runtime.a" -Wl,--no-as-needed "$BUILD/lib/aoticache/libtorch_cpu.so" \
        -Wl,--as-needed -lm "$@" -o "$work/$name" 2>"$err"
}
# constructor NAME BODY: makes affine.so with a constructor that runs BODY
constructor() {
    printf '#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n%s\n' \
        "__attribute__((constructor)) static void begin(void) { $2 }" >"$work/$1.c"
    link "$1.so" "$work/$1.c" || not_ok "link $1" 'the compiler failed'
}
# names PATH: prints an array of strings, or of objects with a name, one per line
names() {
    field "$1" | python3 -c 'import json, sys
for item in json.load(sys.stdin): print(item["name"] if isinstance(item, dict) else item)'
}
exported() { nm -D --defined-only "$1" | awk '$3 ~ /^AOTInductor/ { print $3 }' | sort; }
listed() { sed -n "/define AOTICACHE_ABI_$1_LIST/,/^\$/s/^ *X(\([A-Za-z0-9]*\),.*/\1/p" runtime/abi.h | sort; }
base_count=$(listed BASE | wc -l) newer_count=$(listed NEWER | wc -l)

# ---- a library written in C ----
try 'a library' 0 aoticache inspect "$affine"
says_nothing 'says nothing else'
prints 'the size and digest' "^SHA-256 +$(sha256sum <"$affine" | cut -d' ' -f1)\$"
prints 'the machine' "^machine +$(uname -m)\$"
prints 'who made it' '^made by +a C kernel over libaoticache_runtime; compiled by '
prints 'its interface' "^interface +2\.13, $((base_count + newer_count)) of $((base_count + newer_count)) functions\$"
prints 'what it needs' '^needs +(.*, )?libtorch_cpu\.so, '
prints 'that the shim is enough' '^shim +has all of them$'
prints 'an input' '^input 0 +arg3_1$'
prints 'an output' '^output 1 +output1$'
prints 'a constant' '^constant 0 +fc_weight = fc\.weight, float32, parameter, 192 B$'
prints_not 'no executable stack' 'executable stack'

try 'as JSON' 0 aoticache inspect "$affine" --json
holds 'that is valid' python3 -m json.tool "$out" /dev/null
library=libraries.0
member 'name' $library.name "$affine"
member 'bytes' $library.bytes "$(stat -c %s "$affine")"
member 'no problem' $library.problem null
member 'generation' $library.interface.generation 2.13
member 'producer' $library.made_by.producer aoticache-runtime
member 'nothing is missing' $library.interface.missing '[]'
is 'the functions are those that nm finds' "$(exported "$affine")" \
    "$({ names $library.interface.present && names $library.interface.other; } | sort)"
is 'the needed libraries are those that readelf finds' \
    "$(readelf -dW "$affine" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')" "$(names $library.needed)"
is 'the functions it takes are those that nm finds' \
    "$(nm -D --undefined-only "$affine" | awk '$1 == "U" && $2 ~ /^(aoti_torch_|torch_)/ { print $2 }' | sort)" \
    "$(names $library.symbols)"
member 'the shim has the first' $library.symbols.0.shim true
member 'PyTorch was not asked' $library.symbols.0.torch null
member 'nor in all' $library.torch null
member 'no executable stack' $library.executable_stack false
member 'no device code' $library.cuda.images '[]'
member 'loaded' $library.loaded.ok true
member 'with the shim' $library.loaded.provider shim
member 'the inputs' $library.loaded.inputs '["arg3_1"]'
member 'the outputs' $library.loaded.outputs '["output0", "output1"]'
member 'four constants' $library.loaded.constants.3.original_fqn _tensor_constant0
member 'their type' $library.loaded.constants.3.type 'tensor constant'
member 'their bytes' $library.loaded.constants.1.bytes 64
member 'no blob: the constants are in the library' $library.loaded.blob_bytes null
holds 'the call specification is JSON itself' python3 -c 'import json, sys
json.loads(json.load(open(sys.argv[1]))["libraries"][0]["loaded"]["in_spec"])' "$out"

try 'every name' 0 aoticache inspect "$affine" --verbose
prints 'a function it takes' '^takes +aoti_torch_'
prints 'a function it has' '^has +AOTInductorModelContainerCreate, '
prints 'the call specification' '^in spec +'
try 'without loading' 0 aoticache inspect "$affine" --no-load --json
member 'nothing is known of its tensors' $library.loaded null
member 'but of its functions' $library.interface.generation 2.13

# ---- the interface of 2.6, and parts of one ----
{ echo '{ global:' && listed BASE | sed 's/$/;/' && echo 'local: *; };'; } >"$work/base.map"
echo >"$work/nothing.c"
if link base.so "$work/nothing.c" -Wl,--version-script="$work/base.map"; then
    try 'a library of 2.6' 0 aoticache inspect "$work/base.so" --json
    member 'is seen as one' $library.interface.generation 2.6
    is 'it lacks the newer ones' "$(listed NEWER)" "$(names $library.interface.missing | sort)"
    member 'it can be loaded' $library.loaded.ok true
    member 'and told of' $library.loaded.inputs '["arg3_1"]'
    member 'but not of its blob' $library.loaded.blob_bytes null
else
    not_ok 'a library of 2.6' 'it cannot be linked'
fi
echo '{ global: AOTInductorModelContainerRun; local: *; };' >"$work/one.map"
link one.so "$work/nothing.c" -Wl,--version-script="$work/one.map"
try 'a library with one function' 1 aoticache inspect "$work/one.so"
prints 'is incomplete' "^interface +incomplete, 1 of $((base_count + newer_count)) functions\$"
prints 'and not loaded' '^not loaded +.*AOTInductorModelContainerDelete'
"$cc" -shared -fPIC "$work/nothing.c" -o "$work/plain.so"
try 'a library with none' 0 aoticache inspect "$work/plain.so" --no-load
prints 'has none' '^interface +none, 0 of '
prints 'was made by somebody' '^made by +unknown'

link stack.so "$work/nothing.c" -Wl,-z,execstack -Wl,-soname,kernel.so 2>/dev/null
try 'an executable stack' 0 aoticache inspect "$work/stack.so" --no-load --json
member 'is remarked' $library.executable_stack true
member 'the soname, too' $library.soname kernel.so
printf '%1000s' >>"$work/stack.so"
try 'bytes behind the end' 0 aoticache inspect "$work/stack.so" --no-load --json
member 'are counted' $library.appended_bytes 1000

# ---- libraries that misbehave ----
constructor ill 'raise(SIGILL);'
try 'SIGILL' 1 aoticache inspect "$work/ill.so"
prints 'is told' '^not loaded +loading it failed: killed by SIGILL \(illegal instruction\): built for another CPU\?$'
says 'on standard error, too' "^aoticache inspect: .*ill\.so: loading it failed: killed by SIGILL"
prints 'the rest is shown' '^interface +2\.13'
try 'as JSON' 1 aoticache inspect "$work/ill.so" --json
member 'not ok' $library.loaded.ok false
try 'without loading it is no problem' 0 aoticache inspect "$work/ill.so" --no-load
constructor segv 'volatile int *nowhere = 0; raise(SIGSEGV); *nowhere = 1;'
try 'a crash' 1 aoticache inspect "$work/segv.so"
prints 'is told as one' '^not loaded +loading it failed: '
constructor abort 'fprintf(stderr, "it was all too much\n"); signal(SIGABRT, SIG_DFL); abort();'
try 'giving up' 1 aoticache inspect "$work/abort.so"
prints 'with last words' 'killed by SIGABRT .*; its output: it was all too much$'
constructor quit '_exit(0);'
try 'a process that ends' 1 aoticache inspect "$work/quit.so"
prints 'is no success' '^not loaded +loading it failed: its process ended with status 0 and no response$'
constructor mute 'for (int fd = 3; fd < 64; fd++) close(fd); for (;;) pause();'
try 'a process that closes everything' 1 aoticache inspect "$work/mute.so"
prints 'is not waited for' '^not loaded +loading it failed: the process closed its output but kept running; it was killed$'
constructor loud 'printf("{\"noise\": 1}\n"); fflush(stdout); write(1, "\033[2J", 4);'
try 'a library that prints' 0 aoticache inspect "$work/loud.so" --json
holds 'does not disturb the JSON' python3 -m json.tool "$out" /dev/null
constructor hang "FILE *file = fopen(\"$work/pid\", \"w\"); fprintf(file, \"%d\", (int)getpid()); fclose(file);
    for (;;) pause();"
start=$SECONDS
try 'a library that hangs' 1 aoticache inspect "$work/hang.so" --timeout 4
holds 'is waited for as long as was said' [ $((SECONDS - start)) -lt 40 ]
prints 'and that is told' '^not loaded +loading it failed: no response within 4\.00 s; it was ended'
holds 'its process is gone' [ ! -e "/proc/$(cat "$work/pid")" ]
constructor touch "fclose(fopen(\"$work/touched\", \"w\"));"
try 'nothing of it is run' 0 aoticache inspect "$work/touch.so" --no-load
holds 'with --no-load' [ ! -e "$work/touched" ]
try 'all of it' 0 aoticache inspect "$work/touch.so"
holds 'without' [ -e "$work/touched" ]
try 'the command of the child is not for people' 2 aoticache inspect-child
says 'and says so' 'not a command'

# ---- files that are not libraries ----
head -c 3000 "$affine" >"$work/truncated.so"
try 'a truncated library' 1 aoticache inspect "$work/truncated.so"
says 'what is cut off is said' 'truncated\.so: not a whole shared library: '
try 'as JSON, too' 1 aoticache inspect "$work/truncated.so" --json
holds 'which is valid' python3 -m json.tool "$out" /dev/null
holds 'and has the problem' [ "$(field $library.problem)" != null ]
member 'and the size' $library.bytes 3000
echo 'int main; /* and some more text */' >"$work/text.so"
try 'no library' 1 aoticache inspect "$work/text.so"
says 'what it begins with' 'not a shared library: it begins with 69 6e 74 20'
: >"$work/empty.so"
try 'an empty file' 1 aoticache inspect "$work/empty.so"
python3 - "$affine" "$work/big.so" <<'PYTHON'
import struct, sys
header = bytearray(open(sys.argv[1], "rb").read(64))
header[4:6] = b"\1\2" if header[5] == 1 else b"\1\1"
header[16:20] = struct.pack(">HH" if header[5] == 2 else "<HH", 3, 40)
open(sys.argv[2], "wb").write(header)
PYTHON
try "another machine's" 1 aoticache inspect "$work/big.so"
prints 'the machine is told' '^machine +.*32-bit'
try 'a directory' 2 aoticache inspect "$work"
says 'is called one' 'is a directory, not a library or a package'
mkfifo "$work/pipe"
try 'a pipe' 2 timeout 60 aoticache inspect "$work/pipe"
try 'a file that is not there' 3 aoticache inspect "$work/nothing.so"
says 'is named' "$work/nothing\.so: No such file or directory"
cp "$affine" "$work/secret.so" && chmod 000 "$work/secret.so"
try 'a file that cannot be read' 1 without_capabilities aoticache inspect "$work/secret.so"
says 'is named' 'secret\.so: Permission denied'
printf 'PK\3\4 and no more' >"$work/bad.pt2"
try 'an archive that is none' 1 aoticache inspect "$work/bad.pt2"
says 'is named' 'bad\.pt2'
name=$work/$'rude\033[2J.so'
cp "$affine" "$name"
try 'a name with control characters' 0 aoticache inspect "$name"
holds 'does not reach the terminal as it is' [ "$(grep -c $'\033' "$out")" = 0 ]
try 'no argument' 2 aoticache inspect
try 'two arguments' 2 aoticache inspect "$affine" "$affine"
for option in --timeout=0 --timeout=-1 --timeout=x --timeout=1e9 --torch= --no-load=1 --unknown; do
    run aoticache inspect "$affine" "$option"
    holds "option $option is refused" [ "$status" = 2 -o "$status" = 3 ]
done
try 'help' 0 aoticache help inspect
prints 'warns that code is run' 'runs its code'

# ---- entries of the cache ----
try 'a key where there is no cache' 7 aoticache inspect 0123abcd
for size in 2 3; do
    run aoticache compile aten::abs --input float32:$size --hook c --json
    [ "$status" = 0 ] || { not_ok "compile $size" 'needed for the rest' && finish; }
done
key=$(field key) digest=$(field entry.library)
try 'a key' 0 aoticache inspect "${key:0:12}"
prints 'its library' "^library +$digest\$"
prints 'its kernel' '^kernel +aten::abs\(float32\[3\]\) on cpu$'
prints 'what it needs of the CPU' '^CPU needs +'
prints 'its outputs' '^output 0 '
try 'a library of the cache' 0 aoticache inspect "$digest" --json
member 'the key' $library.entry.key "$key"
member 'the digest is that of the library' $library.sha256 "$digest"
try 'a prefix of nothing' 3 aoticache inspect ffffffffffffffff0000
try 'a prefix that is too short' 2 aoticache inspect ab
cp "$affine" "$work/abcd"
cd "$work" || exit 1
try 'a file whose name is a key' 0 aoticache inspect abcd
cd "$OLDPWD" || exit 1
kernel "$work/same" aten_abs.c <tests/hosts/kernels/pointwise.c
for size in 5 6; do
    run aoticache compile aten::abs --input float32:$size --hook c --kernels "$work/same" --json
done
try 'a prefix of two keys' 2 aoticache inspect "$(field entry.library)"
says 'is called ambiguous' 'is ambiguous'
damage "$(object_path "$digest")"
try 'a damaged library' 1 aoticache inspect "$key"
says 'is not loaded' "$digest"

# ---- what PyTorch makes ----
python=${AOTICACHE_TEST_PYTHON:-$VENV/bin/python}
if ! "$python" -c 'import torch' 2>/dev/null; then
    skip 'what PyTorch makes' "$python has no PyTorch (scripts/install-deps gets it)"
    finish
fi
export BUILD
cat >"$work/make.py" <<'PYTHON'
import hashlib, os, sys
sys.path.insert(0, "tests/python")
import search_path
import host_models
import torch
print(host_models.torch_libraries(torch)["affine"])
print(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
if os.environ["TEST_QUICK"]:
    sys.exit()
directory = os.path.join(host_models.MODELS, "tests", "inspect-" + torch.__version__)
os.makedirs(directory, exist_ok=True)
package, mapped, proxy = (os.path.join(directory, name) for name in ("affine.pt2", "mapped.pt2", "cholesky.so"))
for path, mmap in (package, False), (mapped, True):
    if os.path.exists(path):
        continue
    program = torch.export.export(host_models.make_models(torch)["affine"][0], (torch.ones(2, 4),))
    options = {"aot_inductor.enable_line_tables": False, "aot_inductor.force_mmap_weights": mmap}
    made = torch._inductor.aoti_compile_and_package(program, package_path=f"{path}.{os.getpid()}.pt2",
                                                    inductor_configs=options)
    os.rename(made, path)
if not os.path.exists(proxy):
    class Cholesky(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.cholesky(x)
    example = (torch.eye(4),)
    made = torch._inductor.aot_compile(torch.export.export(Cholesky(), example).module(), example, options={
        "aot_inductor.output_path": f"{proxy}.{os.getpid()}.so", "aot_inductor.enable_line_tables": False})
    os.rename(made, proxy)
print(package)
print(mapped)
print(proxy)
PYTHON
TEST_QUICK=${TEST_QUICK:-} "$python" "$work/make.py" >"$work/made" 2>"$err" || { not_ok 'PyTorch compiles' 'it failed' && finish; }
{ read -r made && read -r libtorch; read -r package; read -r mapped; read -r proxy; } < <(grep '^/' "$work/made")

try "a library of PyTorch's" 0 aoticache inspect "$made" --torch "$libtorch" --json
member 'who made it' $library.made_by.producer pytorch
holds 'the compiler' grep -q "$(readelf -p .comment "$made" | sed -n 's/.*\] *//p' | head -n 1 | cut -c1-12)" "$out"
is 'the functions are those that nm finds' "$(exported "$made")" \
    "$({ names $library.interface.present && names $library.interface.other; } | sort)"
member 'the generation' $library.interface.generation 2.13
member 'libtorch has all it takes' $library.torch.lacks '[]'
member 'the shim, too' $library.shim_lacks '[]'
member 'loaded' $library.loaded.ok true
member 'the inputs' $library.loaded.inputs '["arg3_1"]'
is 'unique symbols as nm counts them' "$(nm -D "$made" | grep -c ' u ')" "$(field $library.unique_symbols)"
stack=$(readelf -lW "$made" | grep -q 'GNU_STACK.* RWE ' && echo true || echo false)
is 'an executable stack as readelf sees it' "$stack" "$(field $library.executable_stack)"
is 'the constants of the model' '_tensor_constant0 fc.bias fc.weight scale' \
    "$(field $library.loaded.constants | python3 -c 'import json, sys
print(*sorted(constant["original_fqn"] for constant in json.load(sys.stdin)))')"
! is_quick || finish
try 'a library that calls operators through PyTorch' 1 aoticache inspect "$proxy" --torch "$libtorch"
prints 'its operators' 'proxy executor: aten::linalg_cholesky_ex'
prints 'what the shim lacks' '^shim lacks +aoti_torch_proxy_executor_call_function$'
prints 'PyTorch has it' '^--torch +has all of them$'
prints 'so it is not loaded' '^not loaded +.*run it in a process with PyTorch'
try 'a PyTorch that is none' 1 aoticache inspect "$made" --no-load --torch "$work/text.so"
says 'is named' 'text\.so: not a shared library'

try 'a package' 0 aoticache inspect "$package"
prints 'its model' '^model +model$'
prints 'its device' '^device +cpu$'
prints 'its library' '^library +[a-z0-9]+\.wrapper\.so, [0-9.]+ [KM]iB$'
prints 'its metadata' '^metadata +AOTI_DEVICE_KEY = cpu$'
prints 'the inputs of the library' '^input 0 +arg3_1$'
try 'as JSON' 0 aoticache inspect "$package" --json
holds 'which is valid' python3 -m json.tool "$out" /dev/null
member 'the first part is the library' models.0.parts.0.kind library
member 'its outputs' models.0.library.loaded.outputs '["output0", "output1"]'
is 'the digest is that of the file in the archive' "$(python3 - "$package" <<'PYTHON'
import hashlib, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
print(hashlib.sha256(archive.read([name for name in archive.namelist() if name.endswith(".so")][0])).hexdigest())
PYTHON
)" "$(field models.0.library.sha256)"

try 'a package whose library maps its weights' 0 aoticache inspect "$mapped" --json
member 'its library finds itself' models.0.library.finds_itself true
holds 'the weights are behind its end' [ "$(field models.0.library.appended_bytes)" -ge 384 ]
member 'it is loaded' models.0.library.loaded.ok true
holds 'the blob has all of them' [ "$(field models.0.library.loaded.blob_bytes)" -ge 336 ]
finish
