#!/usr/bin/env python3
"""The compile worker: a Python process with PyTorch that turns requests into kernel libraries.

Speaks the protocol of docs/hooks.md, one JSON object per line. Started by eager/worker.c, it greets, then answers
requests until its standard input closes or its parent is gone. `worker.py --once` answers one request and exits, and so
serves as a command hook.

Owns: finding the operator, making example inputs, exporting, compiling with AOTInductor, and finding out which CPU
features the compiler really used. Knows nothing of keys or of where libraries are kept. Python 3.10 and later, PyTorch
2.6 and later.
"""

import contextlib
import json
import os
import platform
import queue
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

PROTOCOL = 1
LIBRARY = "kernel.so"
ERROR_HEAD, ERROR_TAIL = 400, 450  # an error is shown in 1024 bytes

# CPU features that a compiler uses of its own accord: name, the macro that says it may, the option that lets it.
# The same list is in eager/cpu_target.c; a unit test compares them.
FEATURES = (
    ("pni", "__SSE3__", "-msse3"),
    ("ssse3", "__SSSE3__", "-mssse3"),
    ("sse4_1", "__SSE4_1__", "-msse4.1"),
    ("sse4_2", "__SSE4_2__", "-msse4.2"),
    ("sse4a", "__SSE4A__", "-msse4a"),
    ("popcnt", "__POPCNT__", "-mpopcnt"),
    ("cx16", "__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16", "-mcx16"),
    ("lahf_lm", "__LAHF_SAHF__", "-msahf"),
    ("abm", "__LZCNT__", "-mlzcnt"),
    ("movbe", "__MOVBE__", "-mmovbe"),
    ("aes", "__AES__", "-maes"),
    ("pclmulqdq", "__PCLMUL__", "-mpclmul"),
    ("adx", "__ADX__", "-madx"),
    ("bmi1", "__BMI__", "-mbmi"),
    ("bmi2", "__BMI2__", "-mbmi2"),
    ("avx", "__AVX__", "-mavx"),
    ("f16c", "__F16C__", "-mf16c"),
    ("fma", "__FMA__", "-mfma"),
    ("fma4", "__FMA4__", "-mfma4"),
    ("xop", "__XOP__", "-mxop"),
    ("tbm", "__TBM__", "-mtbm"),
    ("avx2", "__AVX2__", "-mavx2"),
    ("avx_vnni", "__AVXVNNI__", "-mavxvnni"),
    ("vaes", "__VAES__", "-mvaes"),
    ("vpclmulqdq", "__VPCLMULQDQ__", "-mvpclmulqdq"),
    ("gfni", "__GFNI__", "-mgfni"),
    ("avx512f", "__AVX512F__", "-mavx512f"),
    ("avx512dq", "__AVX512DQ__", "-mavx512dq"),
    ("avx512cd", "__AVX512CD__", "-mavx512cd"),
    ("avx512bw", "__AVX512BW__", "-mavx512bw"),
    ("avx512vl", "__AVX512VL__", "-mavx512vl"),
    ("avx512ifma", "__AVX512IFMA__", "-mavx512ifma"),
    ("avx512vbmi", "__AVX512VBMI__", "-mavx512vbmi"),
    ("avx512_vbmi2", "__AVX512VBMI2__", "-mavx512vbmi2"),
    ("avx512_vnni", "__AVX512VNNI__", "-mavx512vnni"),
    ("avx512_bitalg", "__AVX512BITALG__", "-mavx512bitalg"),
    ("avx512_vpopcntdq", "__AVX512VPOPCNTDQ__", "-mavx512vpopcntdq"),
    ("avx512_vp2intersect", "__AVX512VP2INTERSECT__", "-mavx512vp2intersect"),
    ("avx512_bf16", "__AVX512BF16__", "-mavx512bf16"),
    ("avx512_fp16", "__AVX512FP16__", "-mavx512fp16"),
    ("amx_tile", "__AMX_TILE__", "-mamx-tile"),
    ("amx_int8", "__AMX_INT8__", "-mamx-int8"),
    ("amx_bf16", "__AMX_BF16__", "-mamx-bf16"),
    ("amx_fp16", "__AMX_FP16__", "-mamx-fp16"),
    ("amx_complex", "__AMX_COMPLEX__", "-mamx-complex"),
    ("3dnowprefetch", "__PRFCHW__", "-mprfchw"),
    ("avx_ifma", "__AVXIFMA__", "-mavxifma"),
    ("avx_vnni_int8", "__AVXVNNIINT8__", "-mavxvnniint8"),
    ("avx_ne_convert", "__AVXNECONVERT__", "-mavxneconvert"),
    ("avx_vnni_int16", "__AVXVNNIINT16__", "-mavxvnniint16"),
    ("cmpccxadd", "__CMPCCXADD__", "-mcmpccxadd"),
    ("apx_f", "__APX_F__", "-mapxf"),
    ("avx10_1", "__AVX10_1__", "-mavx10.1"),
    ("avx10_2", "__AVX10_2__", "-mavx10.2"),
    ("avx512er", "__AVX512ER__", "-mavx512er"),
    ("avx512pf", "__AVX512PF__", "-mavx512pf"),
    ("avx512_4vnniw", "__AVX5124VNNIW__", "-mavx5124vnniw"),
    ("avx512_4fmaps", "__AVX5124FMAPS__", "-mavx5124fmaps"),
    # aarch64: nothing there is switched on by one option each.
    ("atomics", "__ARM_FEATURE_ATOMICS", ""),
    ("crc32", "__ARM_FEATURE_CRC32", ""),
    ("aes", "__ARM_FEATURE_AES", ""),
    ("sha2", "__ARM_FEATURE_SHA2", ""),
    ("fphp", "__ARM_FEATURE_FP16_SCALAR_ARITHMETIC", ""),
    ("asimdhp", "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", ""),
    ("asimdrdm", "__ARM_FEATURE_QRDMX", ""),
    ("asimddp", "__ARM_FEATURE_DOTPROD", ""),
    ("asimdfhm", "__ARM_FEATURE_FP16_FML", ""),
    ("jscvt", "__ARM_FEATURE_JCVT", ""),
    ("fcma", "__ARM_FEATURE_COMPLEX", ""),
    ("frint", "__ARM_FEATURE_FRINT", ""),
    ("lrcpc", "__ARM_FEATURE_RCPC", ""),
    ("bf16", "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC", ""),
    ("i8mm", "__ARM_FEATURE_MATMUL_INT8", ""),
    ("sve", "__ARM_FEATURE_SVE", ""),
    ("sve2", "__ARM_FEATURE_SVE2", ""),
    ("svebf16", "__ARM_FEATURE_SVE_BF16", ""),
    ("svei8mm", "__ARM_FEATURE_SVE_MATMUL_INT8", ""),
)


class Unsupported(Exception):
    """What is asked for cannot be served at all: no failure of a compile, and not remembered as one."""


# ---- the channel ----


def take_channel():
    """Takes the protocol's descriptors out of everybody's way: what is printed from now on goes to standard error."""
    source, sink = os.dup(0), os.dup(1)  # not inherited by what is started here
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return source, sink


def write_line(sink, message):
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(sink, data) :]


def end_group():
    """Ends this process and the compilers that it started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def read_lines(source, lines, parent):
    """Runs in a thread of its own, so that the parent's end is noticed in the middle of a compile too.

    Normally that shows as the end of the input. Where a fork of the parent holds the other end of the channel it does
    not, so the parent's number is looked at as well. (PR_SET_PDEATHSIG would watch the thread that started us.)
    """
    pending = b""
    while True:
        ready, _, _ = select.select([source], [], [], 1.0)
        if os.getppid() != parent:
            end_group()
        if not ready:
            continue
        try:
            data = os.read(source, 65536)
        except OSError:
            data = b""
        if not data:
            end_group()
        *whole, pending = (pending + data).split(b"\n")
        for line in whole:
            lines.put(line)


# ---- arguments ----


def named(torch, name, kind, what):
    value = getattr(torch, name, None)
    if not isinstance(value, kind):
        raise Unsupported(f"this PyTorch knows no {what} {name!r}")
    return value


def example_tensor(torch, spec):
    """A tensor of the metadata asked for. Its values do not matter: nothing is run with them."""
    if spec["layout"] != "strided":
        raise Unsupported(f"layout {spec['layout']} of an argument: only strided tensors are served")
    sizes, strides = spec["sizes"], spec["strides"]
    if any(size < 0 for size in sizes) or any(stride < 0 for stride in strides) or len(sizes) != len(strides):
        raise Unsupported(f"sizes {sizes} and strides {strides} are of no tensor")
    extent = 0 if 0 in sizes else 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    dtype = named(torch, spec["dtype"], torch.dtype, "dtype")
    try:
        # Zeros: valid as indices, and large ones take no memory before they are touched.
        storage = torch.zeros(extent, dtype=dtype, device=spec["device"])
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise Unsupported(f"{spec['dtype']} on {spec['device']}: {error}") from error
    return storage.as_strided(sizes, strides)


def constant_tensor(torch, spec):
    tensor = example_tensor(torch, {**spec, "device": "cpu"})
    if tensor.numel() > 0:
        with open(spec["file"], "rb") as file:
            data = bytearray(file.read())
        expected = tensor.numel() * tensor.element_size()
        if len(data) != expected:
            raise ValueError(f"{spec['file']} has {len(data)} bytes, a constant of {expected} was announced")
        tensor.copy_(torch.frombuffer(data, dtype=tensor.dtype).reshape(tensor.shape))
    return tensor.to(spec["device"])


def plain_value(torch, spec):
    kind, value = spec["kind"], spec.get("value")
    if kind == "none":
        return None
    if kind == "double":
        return float(value)  # "nan", "inf" and "-inf" come as text
    if kind == "complex":
        return complex(float(value[0]), float(value[1]))
    if kind in ("int", "bool", "string"):
        return value
    if kind == "device":
        return torch.device(value)
    if kind == "dtype":
        return named(torch, value, torch.dtype, "dtype")
    if kind == "layout":
        return named(torch, value, torch.layout, "layout")
    if kind == "memory_format":
        return named(torch, value, torch.memory_format, "memory format")
    raise Unsupported(f"an argument of the kind {kind!r}")


def make_call(torch, request):
    """The module that calls the operator, and its inputs: the tensors among the arguments, in order."""
    inputs, constants = [], {}

    def place(spec):
        """How to find an argument again: a function of the module and of its inputs."""
        if spec["kind"] == "tensor":
            position = len(inputs)
            inputs.append(example_tensor(torch, spec))
            return lambda module, tensors: tensors[position]
        if spec["kind"] == "constant":
            name = f"constant{len(constants)}"
            constants[name] = constant_tensor(torch, spec)
            return lambda module, tensors: getattr(module, name)
        if spec["kind"] == "list":
            items = [place(item) for item in spec["items"]]
            return lambda module, tensors: [item(module, tensors) for item in items]
        value = plain_value(torch, spec)
        return lambda module, tensors: value

    operator = find_operator(torch, request["operator"])
    places = [(spec.get("name", ""), place(spec)) for spec in request["arguments"]]

    class Call(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, tensor in constants.items():
                self.register_buffer(name, tensor)

        def forward(self, *tensors):
            positional = [find(self, tensors) for name, find in places if not name]
            keywords = {name: find(self, tensors) for name, find in places if name}
            return operator(*positional, **keywords)

    return Call().eval(), tuple(inputs)


def find_operator(torch, text):
    namespace, _, rest = text.partition("::")
    name, _, overload = rest.partition(".")
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
        # Without an overload the packet chooses one by the arguments, as PyTorch does.
        return getattr(packet, overload) if overload else packet
    except AttributeError:
        raise Unsupported(f"this PyTorch has no operator {text}") from None


# ---- CPU features ----


def macros_of(compiler, flags):
    """The features that a compiler takes for granted under these flags, by name."""
    key = (compiler, flags)
    if key not in macros_of.known:
        command = [compiler, *flags, "-dM", "-E", "-x", "c++", os.devnull]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        defined = {line.split()[1] for line in text.splitlines() if line.startswith("#define ")}
        macros_of.known[key] = frozenset(name for name, macro, _ in FEATURES if macro in defined)
    return macros_of.known[key]


macros_of.known = {}


def target_flags(cpu_features):
    """What follows -march= for a text as "x86-64-v3" or "avx2,fma": the level, and options for single features."""
    if platform.machine() != "x86_64":
        raise Unsupported(f"compiling for less than this machine ({cpu_features}) on {platform.machine()}")
    options = {name: option for name, _, option in FEATURES if option}
    march, single = "x86-64", []
    for token in filter(None, (token.strip() for token in cpu_features.split(","))):
        if token.startswith("x86-64"):
            march = token
        elif token in options:
            single.append(options[token])
    return " ".join([march, *single])


@contextlib.contextmanager
def compile_for(cpu_features, options):
    """Makes inductor compile for less than this machine. None: for this machine.

    Newer versions of inductor have an option for the compiler's -march, older ones have not; and no version has one for
    the vector instructions in the generated source that takes a set of features. So two functions are replaced.
    """
    from torch._inductor import config, cpp_builder, cpu_vec_isa

    if cpu_features is None:
        yield
        return
    march = target_flags(cpu_features)
    allowed = macros_of(cpp_builder.get_cpp_compiler(), tuple(f"-march={march}".split()))
    names = {option: name for name, _, option in FEATURES}
    all_isas, all_flags = cpu_vec_isa.valid_vec_isa_list, cpp_builder._get_optimization_cflags

    def allowed_isas():
        return [isa for isa in all_isas() if all(names.get(flag) in allowed for flag in isa.build_arch_flags().split())]

    def replace_native(result):
        if isinstance(result, tuple):
            return tuple(replace_native(part) for part in result)
        return [f"march={march}" if flag == "march=native" else flag for flag in result]

    if hasattr(config.cpp, "march"):
        options["cpp.march"] = march
    try:
        cpu_vec_isa.valid_vec_isa_list = allowed_isas
        cpp_builder._get_optimization_cflags = lambda *args, **kwargs: replace_native(all_flags(*args, **kwargs))
        yield
    finally:
        cpu_vec_isa.valid_vec_isa_list, cpp_builder._get_optimization_cflags = all_isas, all_flags


@contextlib.contextmanager
def record_flags(recorded):
    """Notes with which compiler and which -m flags each source was compiled."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    # Trying out which instructions work here compiles too, with flags that the library then may not get: once, before.
    cpu_vec_isa.pick_vec_isa()
    original = cpp_builder.CppBuilder.get_command_line

    def get_command_line(self, *args, **kwargs):
        line = original(self, *args, **kwargs)
        words = shlex.split(line)
        recorded.add((words[0], tuple(word for word in words if word.startswith("-m"))))
        return line

    try:
        cpp_builder.CppBuilder.get_command_line = get_command_line
        yield
    finally:
        cpp_builder.CppBuilder.get_command_line = original


def used_features(recorded):
    if not recorded:
        raise RuntimeError("the compiler's flags could not be seen, so what the library requires is unknown")
    return sorted(set().union(*(macros_of(compiler, flags) for compiler, flags in recorded)))


# ---- compiling ----


def inductor_options(directory):
    """Of these, the ones that this version has. What changes results is pinned, whatever the environment says."""
    from torch._inductor import config

    wanted = {
        "aot_inductor.output_path": os.path.join(directory, LIBRARY),
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.debug_compile": False,
        "aot_inductor.debug_symbols": False,
        "cpp.enable_unsafe_math_opt_flag": False,
        "cpp.enable_floating_point_contract_flag": "off",
    }
    options = {}
    for name, value in wanted.items():
        group, _, option = name.partition(".")
        present = getattr(getattr(config, group), option, None)
        if present is not None:
            options[name] = bool(value != "off" and value) if isinstance(present, bool) else value
    return options


def unsupported_kinds(torch):
    from torch._dynamo import exc

    names = ("Unsupported", "UserError")
    return (NotImplementedError, *(getattr(exc, name) for name in names if hasattr(exc, name)))


def export(torch, module, inputs):
    try:
        return torch.export.export(module, inputs, strict=False)
    except unsupported_kinds(torch) as error:
        raise Unsupported(f"cannot be exported: {describe(error)}") from error


def compile_library(torch, module, inputs, request):
    """Returns the library's path and the CPU features that it needs."""
    options = inductor_options(request["directory"])
    recorded = set()
    with torch.no_grad(), compile_for(request.get("cpu_features"), options):
        program = export(torch, module, inputs)
        with torch._inductor.config.patch({k: v for k, v in options.items() if k == "cpp.march"}):
            with record_flags(recorded):
                path = torch._inductor.aot_compile(program.module(), inputs, options=options)
    return path, used_features(recorded)


def remove_intermediates(directory, before, library):
    """What has come beside the library: sources and objects go; what it opens when it runs is kept and named."""
    kept = []
    for name in sorted(set(os.listdir(directory)) - before):
        path = os.path.join(directory, name)
        if path == library:
            continue
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        elif name.endswith((".cubin", ".hsaco", ".spv", ".blob", "extern_nodes.json")):
            kept.append({"name": name, "path": path})
        else:
            os.unlink(path)
    return kept


def describe(error):
    """Type and message; of a long one, its beginning and its end, where compilers say what was wrong."""
    text = str(error).strip() or repr(error)
    if len(text) > ERROR_HEAD + ERROR_TAIL:
        text = f"{text[:ERROR_HEAD]}\n[...]\n{text[-ERROR_TAIL:]}"
    return f"{type(error).__name__}: {text}"


def serve(torch, request):
    if request.get("protocol") != PROTOCOL:
        raise Unsupported(f"protocol {request.get('protocol')!r}: this worker speaks {PROTOCOL}")
    start = time.monotonic()
    directory = os.path.realpath(request["directory"])
    before = set(os.listdir(directory))
    module, inputs = make_call(torch, request)
    library, requirements = compile_library(torch, module, inputs, request)
    library = os.path.realpath(library)
    files = [{"name": LIBRARY, "path": library}]
    files += remove_intermediates(directory, before, library)
    return {
        "ok": True,
        "files": files,
        "requirements": requirements,
        "producer": producer(torch),
        "compile_seconds": round(time.monotonic() - start, 3),
    }


def answer(torch, line):
    """Never raises: whatever goes wrong is the answer."""
    number = None
    try:
        request = json.loads(line)
        number = request["id"]
        result = serve(torch, request)
    except Unsupported as error:
        result = {"ok": False, "unsupported": True, "error": str(error)}
    except BaseException as error:  # a compiler may raise anything, SystemExit too
        result = {"ok": False, "unsupported": False, "error": describe(error)}
    finally:
        with contextlib.suppress(Exception):
            torch._dynamo.reset()
    return {"id": number, **result}


# ---- the process ----


def producer(torch):
    return f"pytorch {torch.__version__.split('+')[0]}"


def import_torch():
    # Inductor's pool of compile processes would be a second set of PyTorch's: one source at a time needs none.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    import torch
    import torch._inductor

    return torch


def run_once():
    line = sys.stdin.buffer.readline()
    _, sink = take_channel()
    write_line(sink, answer(import_torch(), line))


def run_worker():
    parent = os.getppid()
    source, sink = take_channel()
    lines = queue.SimpleQueue()
    threading.Thread(target=read_lines, args=(source, lines, parent), daemon=True).start()
    try:
        torch = import_torch()
    except BaseException as error:
        write_line(sink, {"hello": PROTOCOL, "error": f"PyTorch cannot be imported: {describe(error)}"})
        os._exit(1)
    version = ".".join(map(str, sys.version_info[:3]))
    write_line(sink, {"hello": PROTOCOL, "producer": producer(torch), "python": version})
    while True:
        write_line(sink, answer(torch, lines.get()))


if __name__ == "__main__":
    # The folder of this file is no place to import from.
    if sys.path and os.path.realpath(sys.path[0] or ".") == os.path.dirname(os.path.realpath(__file__)):
        del sys.path[0]
    run_once() if "--once" in sys.argv[1:] else run_worker()
