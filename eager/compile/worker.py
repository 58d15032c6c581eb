#!/usr/bin/env python3
"""The compile worker: a Python process with PyTorch that turns requests into kernel libraries.

Speaks the protocol of docs/hooks.md, one JSON object per line. Started by eager/compile/worker.c, it greets, then answers
requests until its standard input closes or its parent has ended. `worker.py --once` answers one request and exits, and so
serves as a command hook.

Owns: finding the operator, creating example inputs, exporting, compiling with AOTInductor for exact or symbolic shapes,
finding out which CPU features the compiler really used, and private directories for PyTorch's own files, which nobody else can
write to. guards.py determines which shapes a library serves. Knows nothing of keys or of where libraries are stored. Python 3.10
and later, PyTorch 2.6 and later.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import json
import math
import os
import platform
import pwd
import queue
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

PROTOCOL = 1
LIBRARY, MODEL_LIBRARY = "kernel.so", "model.so"
ERROR_HEAD, ERROR_TAIL = 400, 450  # an error has at most 1024 bytes
OF_STORAGES = ("aten::as_strided", "aten::as_strided_copy", "aten::as_strided_scatter")
USUAL_THREADS = 8  # work that is too small for this many threads is not divided

# CPU features that a compiler uses without being asked: architecture, name, the macro that shows it, the option that allows
# it. The same list is in eager/compile/cpu_target.c; a unit test compares them.
FEATURES = (
    ("x86_64", "pni", "__SSE3__", "-msse3"),
    ("x86_64", "ssse3", "__SSSE3__", "-mssse3"),
    ("x86_64", "sse4_1", "__SSE4_1__", "-msse4.1"),
    ("x86_64", "sse4_2", "__SSE4_2__", "-msse4.2"),
    ("x86_64", "sse4a", "__SSE4A__", "-msse4a"),
    ("x86_64", "popcnt", "__POPCNT__", "-mpopcnt"),
    ("x86_64", "cx16", "__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16", "-mcx16"),
    ("x86_64", "lahf_lm", "__LAHF_SAHF__", "-msahf"),
    ("x86_64", "abm", "__LZCNT__", "-mlzcnt"),
    ("x86_64", "movbe", "__MOVBE__", "-mmovbe"),
    ("x86_64", "aes", "__AES__", "-maes"),
    ("x86_64", "pclmulqdq", "__PCLMUL__", "-mpclmul"),
    ("x86_64", "adx", "__ADX__", "-madx"),
    ("x86_64", "bmi1", "__BMI__", "-mbmi"),
    ("x86_64", "bmi2", "__BMI2__", "-mbmi2"),
    ("x86_64", "avx", "__AVX__", "-mavx"),
    ("x86_64", "f16c", "__F16C__", "-mf16c"),
    ("x86_64", "fma", "__FMA__", "-mfma"),
    ("x86_64", "fma4", "__FMA4__", "-mfma4"),
    ("x86_64", "xop", "__XOP__", "-mxop"),
    ("x86_64", "tbm", "__TBM__", "-mtbm"),
    ("x86_64", "avx2", "__AVX2__", "-mavx2"),
    ("x86_64", "avx_vnni", "__AVXVNNI__", "-mavxvnni"),
    ("x86_64", "vaes", "__VAES__", "-mvaes"),
    ("x86_64", "vpclmulqdq", "__VPCLMULQDQ__", "-mvpclmulqdq"),
    ("x86_64", "gfni", "__GFNI__", "-mgfni"),
    ("x86_64", "avx512f", "__AVX512F__", "-mavx512f"),
    ("x86_64", "avx512dq", "__AVX512DQ__", "-mavx512dq"),
    ("x86_64", "avx512cd", "__AVX512CD__", "-mavx512cd"),
    ("x86_64", "avx512bw", "__AVX512BW__", "-mavx512bw"),
    ("x86_64", "avx512vl", "__AVX512VL__", "-mavx512vl"),
    ("x86_64", "avx512ifma", "__AVX512IFMA__", "-mavx512ifma"),
    ("x86_64", "avx512vbmi", "__AVX512VBMI__", "-mavx512vbmi"),
    ("x86_64", "avx512_vbmi2", "__AVX512VBMI2__", "-mavx512vbmi2"),
    ("x86_64", "avx512_vnni", "__AVX512VNNI__", "-mavx512vnni"),
    ("x86_64", "avx512_bitalg", "__AVX512BITALG__", "-mavx512bitalg"),
    ("x86_64", "avx512_vpopcntdq", "__AVX512VPOPCNTDQ__", "-mavx512vpopcntdq"),
    ("x86_64", "avx512_vp2intersect", "__AVX512VP2INTERSECT__", "-mavx512vp2intersect"),
    ("x86_64", "avx512_bf16", "__AVX512BF16__", "-mavx512bf16"),
    ("x86_64", "avx512_fp16", "__AVX512FP16__", "-mavx512fp16"),
    ("x86_64", "amx_tile", "__AMX_TILE__", "-mamx-tile"),
    ("x86_64", "amx_int8", "__AMX_INT8__", "-mamx-int8"),
    ("x86_64", "amx_bf16", "__AMX_BF16__", "-mamx-bf16"),
    ("x86_64", "amx_fp16", "__AMX_FP16__", "-mamx-fp16"),
    ("x86_64", "amx_complex", "__AMX_COMPLEX__", "-mamx-complex"),
    ("x86_64", "3dnowprefetch", "__PRFCHW__", "-mprfchw"),
    ("x86_64", "avx_ifma", "__AVXIFMA__", "-mavxifma"),
    ("x86_64", "avx_vnni_int8", "__AVXVNNIINT8__", "-mavxvnniint8"),
    ("x86_64", "avx_ne_convert", "__AVXNECONVERT__", "-mavxneconvert"),
    ("x86_64", "avx_vnni_int16", "__AVXVNNIINT16__", "-mavxvnniint16"),
    ("x86_64", "cmpccxadd", "__CMPCCXADD__", "-mcmpccxadd"),
    ("x86_64", "apx_f", "__APX_F__", "-mapxf"),
    ("x86_64", "avx10_1", "__AVX10_1__", "-mavx10.1"),
    ("x86_64", "avx10_2", "__AVX10_2__", "-mavx10.2"),
    ("x86_64", "avx512er", "__AVX512ER__", "-mavx512er"),
    ("x86_64", "avx512pf", "__AVX512PF__", "-mavx512pf"),
    ("x86_64", "avx512_4vnniw", "__AVX5124VNNIW__", "-mavx5124vnniw"),
    ("x86_64", "avx512_4fmaps", "__AVX5124FMAPS__", "-mavx5124fmaps"),
    # aarch64: options are suffixes of -march=armv8-a. Features without an option come with a version of the architecture, or with
    # another feature.
    ("aarch64", "atomics", "__ARM_FEATURE_ATOMICS", "+lse"),
    ("aarch64", "crc32", "__ARM_FEATURE_CRC32", "+crc"),
    ("aarch64", "aes", "__ARM_FEATURE_AES", "+aes"),
    ("aarch64", "pmull", "__ARM_FEATURE_AES", "+aes"),
    ("aarch64", "sha1", "__ARM_FEATURE_SHA2", "+sha2"),
    ("aarch64", "sha2", "__ARM_FEATURE_SHA2", "+sha2"),
    ("aarch64", "sha3", "__ARM_FEATURE_SHA3", "+sha3"),
    ("aarch64", "sha512", "__ARM_FEATURE_SHA512", "+sha3"),
    ("aarch64", "sm3", "__ARM_FEATURE_SM3", "+sm4"),
    ("aarch64", "sm4", "__ARM_FEATURE_SM4", "+sm4"),
    ("aarch64", "fphp", "__ARM_FEATURE_FP16_SCALAR_ARITHMETIC", "+fp16"),
    ("aarch64", "asimdhp", "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", "+fp16"),
    ("aarch64", "asimdrdm", "__ARM_FEATURE_QRDMX", ""),
    ("aarch64", "asimddp", "__ARM_FEATURE_DOTPROD", "+dotprod"),
    ("aarch64", "asimdfhm", "__ARM_FEATURE_FP16_FML", "+fp16fml"),
    ("aarch64", "jscvt", "__ARM_FEATURE_JCVT", ""),
    ("aarch64", "fcma", "__ARM_FEATURE_COMPLEX", ""),
    ("aarch64", "lrcpc", "__ARM_FEATURE_COMPLEX", ""),
    ("aarch64", "lrcpc", "__ARM_FEATURE_RCPC", ""),
    ("aarch64", "frint", "__ARM_FEATURE_FRINT", ""),
    ("aarch64", "ilrcpc", "__ARM_FEATURE_FRINT", ""),
    ("aarch64", "flagm", "__ARM_FEATURE_FRINT", ""),
    ("aarch64", "bf16", "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC", "+bf16"),
    ("aarch64", "i8mm", "__ARM_FEATURE_MATMUL_INT8", "+i8mm"),
    ("aarch64", "sve", "__ARM_FEATURE_SVE", "+sve"),
    ("aarch64", "svef32mm", "__ARM_FEATURE_SVE_MATMUL_FP32", "+f32mm"),
    ("aarch64", "svef64mm", "__ARM_FEATURE_SVE_MATMUL_FP64", "+f64mm"),
    ("aarch64", "svebf16", "__ARM_FEATURE_SVE_BF16", ""),
    ("aarch64", "svei8mm", "__ARM_FEATURE_SVE_MATMUL_INT8", ""),
    ("aarch64", "sve2", "__ARM_FEATURE_SVE2", "+sve2"),
    ("aarch64", "sveaes", "__ARM_FEATURE_SVE2_AES", "+sve2-aes"),
    ("aarch64", "svepmull", "__ARM_FEATURE_SVE2_AES", "+sve2-aes"),
    ("aarch64", "svebitperm", "__ARM_FEATURE_SVE2_BITPERM", "+sve2-bitperm"),
    ("aarch64", "svesha3", "__ARM_FEATURE_SVE2_SHA3", "+sve2-sha3"),
    ("aarch64", "svesm4", "__ARM_FEATURE_SVE2_SM4", "+sve2-sm4"),
)


class Unsupported(Exception):
    """The request cannot be served at all. This is not a failed compile, and is not remembered as one."""


class Untrusted(Exception):
    """A directory into which another user could put code."""


# ---- the channel ----


def take_channel():
    """Moves the protocol's descriptors; from now on, everything that is printed goes to standard error."""
    source, sink = os.dup(0), os.dup(1)  # not inherited by child processes
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
    """Reads lines in a separate thread, so that the parent's end is noticed also during a compile.

    Normally that is the end of the input. If a fork of the parent holds the other end of the channel, the input does not end, so
    the parent's process id is checked as well. (PR_SET_PDEATHSIG would watch the thread that started us.)
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
        raise Unsupported(f"this PyTorch has no {what} {name!r}")
    return value


def example_tensor(torch, spec):
    """Creates a tensor with the requested metadata. Its values do not matter: nothing is run with them."""
    if spec["layout"] != "strided":
        raise Unsupported(f"layout {spec['layout']} of an argument: only strided tensors are supported")
    sizes, strides = spec["sizes"], spec["strides"]
    if any(size < 0 for size in sizes) or any(stride < 0 for stride in strides) or len(sizes) != len(strides):
        raise Unsupported(f"sizes {sizes} and strides {strides} are not valid for a tensor")
    extent = 0 if 0 in sizes else 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    dtype = named(torch, spec["dtype"], torch.dtype, "dtype")
    try:
        # Zeros: valid as indices, and large tensors take no memory until they are touched.
        storage = torch.zeros(extent, dtype=dtype, device=spec["device"])
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise Unsupported(f"{spec['dtype']} on {spec['device']}: {error}") from error
    # Not as_strided: PyTorch would also trace the base of a view.
    return torch.empty(0, dtype=dtype, device=spec["device"]).set_(storage.untyped_storage(), 0, sizes, strides)


def constant_tensor(torch, spec):
    tensor = example_tensor(torch, {**spec, "device": "cpu"})
    if tensor.numel() > 0:
        with open(spec["file"], "rb") as file:
            data = bytearray(file.read())
        expected = tensor.numel() * tensor.element_size()
        if len(data) != expected:
            raise ValueError(f"{spec['file']} has {len(data)} bytes, but a constant of {expected} bytes was announced")
        tensor.copy_(torch.frombuffer(data, dtype=tensor.dtype).reshape(tensor.shape))
    return tensor.to(spec["device"])


def plain_value(torch, spec):
    kind, value = spec["kind"], spec.get("value")
    if kind == "none":
        return None
    if kind == "double":
        return float(value)  # "nan", "inf" and "-inf" are texts
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
    raise Unsupported(f"an argument of the unsupported kind {kind!r}")


def make_call(torch, request):
    """Returns a module that calls the operator, and its inputs: the tensors among the arguments, in order."""
    inputs, values, constants, read = [], [], {}, set()

    def place(spec, is_number=False):
        """Returns how to find an argument again: a function of the module and of its inputs."""
        if spec["kind"] == "tensor":
            position = len(inputs)
            inputs.append(example_tensor(torch, spec))
            if is_number:  # which the library reads at run time
                read.add(position)
                return lambda module, tensors: tensors[position].item()
            return lambda module, tensors: tensors[position]
        if spec["kind"] == "constant":
            name = f"constant{len(constants)}"
            constants[name] = constant_tensor(torch, spec)
            return lambda module, tensors: getattr(module, name)
        if spec["kind"] == "list":
            items = [place(item) for item in spec["items"]]
            return lambda module, tensors: [item(module, tensors) for item in items]
        known = [plain_value(torch, spec)]
        values.append(known)
        return lambda module, tensors: known[0]

    operator = find_operator(torch, request["operator"])
    if request["operator"].partition(".")[0] in OF_STORAGES:
        raise Unsupported("it accesses storage beyond its tensors, whose size a library does not know")
    wanted = request.get("environment", {}).get("results")
    if wanted is None:
        refuse_mutation(torch, operator, request)
    elif wanted not in ("new", "all"):
        raise Unsupported(f"results {wanted!r}: expected new or all")
    if isinstance(operator, torch._ops.OpOverloadPacket) and {"results", "numbers"} & set(request.get("environment", {})):
        operator = operator.default  # the pairs name the overload, the arguments do not
    numbers = number_arguments(torch, operator, request)
    places = [
        (spec.get("name", ""), place(spec, (spec.get("name") or position) in numbers))
        for position, spec in enumerate(request["arguments"])
    ]

    forms = load_beside("inductor", "rewrites.py")
    dtype, refusal = forms.rounding_of(torch, request["operator"], inputs, read)
    if refusal:
        raise Unsupported(refusal)
    if dtype is not None:
        for known in values:
            known[0] = rounded(torch, known[0], dtype)
    form = operator if constants else forms.form_of(torch, operator, request["operator"], inputs)

    class Call(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, tensor in constants.items():
                self.register_buffer(name, tensor)

        def forward(self, *tensors):
            positional = [find(self, tensors) for name, find in places if not name]
            keywords = {name: find(self, tensors) for name, find in places if name}
            results = form(*positional, **keywords)
            return new_results(operator, results) if wanted == "new" else results

    call = Call().eval()
    if read:
        refuse_all_but_floats(inputs, read)
    if wanted is not None:
        refuse_resizing(torch, call, inputs)
    return call, tuple(inputs)


def rounded(torch, value, dtype):
    """Rounds a number as PyTorch does for tensors of 16-bit floats; returns other values unchanged."""
    if type(value) not in (int, float):
        return value
    near = torch.tensor(value, dtype=torch.float64).to(dtype).item()
    if math.isinf(near) and not math.isinf(value):
        raise Unsupported(f"{value} does not fit into {dtype}")
    return type(value)(near)


def number_arguments(torch, operator, request):
    """Returns positions and names of the number arguments for which the request has tensors."""
    wanted = request.get("environment", {}).get("numbers")
    if wanted is None:
        return set()
    if wanted != "tensors":
        raise Unsupported(f"numbers {wanted!r}: expected tensors")
    schema = getattr(operator, "default", operator)._schema
    kinds = ("number", "float", "Optional[number]", "Optional[float]")
    numbers = [(at, argument.name) for at, argument in enumerate(schema.arguments) if str(argument.type) in kinds]
    return {key for pair in numbers for key in pair}


def refuse_all_but_floats(inputs, numbers):
    """Refuses integer tensors: a number then decides the dtype of the results, and Inductor loses it for unknown numbers.

    numbers: the positions of the numbers among the inputs.
    """
    for position, tensor in enumerate(inputs):
        if position not in numbers and not tensor.is_floating_point():
            raise Unsupported(f"its numbers must be known: an argument is of {tensor.dtype}")


def new_results(operator, results):
    """For an operator that writes to its arguments: returns the results, without those that are the arguments themselves."""
    returns = operator._schema.returns
    if len(returns) == 1:
        results = (results,)
    return tuple(result for result, said in zip(results or (), returns) if said.alias_info is None)


def refuse_resizing(torch, call, inputs):
    """Refuses "out" tensors of other sizes: PyTorch resizes them, but a library cannot."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # With a shape environment, a number that is read from a tensor is unknown.
    with FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True) as mode, torch.no_grad():
        fakes = [mode.from_tensor(tensor) for tensor in inputs]
        try:
            call(*fakes)
        except Exception as error:
            raise Unsupported(f"cannot be run without data: {describe(error)}") from error
        for before, after in zip(inputs, fakes):
            if before.shape != after.shape or before.stride() != after.stride():
                raise Unsupported(f"it resizes an argument of sizes {list(before.shape)} to {list(after.shape)}")


def find_operator(torch, text):
    namespace, _, rest = text.partition("::")
    name, _, overload = rest.partition(".")
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
        # Without an overload the packet chooses one by the arguments, as PyTorch does.
        return getattr(packet, overload) if overload else packet
    except AttributeError:
        near = nearest_operator(torch, text)
        hint = f"; did you mean {near}?" if near else ""
        raise Unsupported(f"this PyTorch has no operator {text}{hint}") from None


def nearest_operator(torch, text):
    """Returns the operator of PyTorch that `text` probably means; None if none is similar."""
    import difflib

    names = set(torch._C._dispatch_get_all_op_names())
    packets = {name.partition(".")[0] for name in names}
    near = difflib.get_close_matches(text, names if "." in text else packets, 5, 0.75)
    if not near:
        return None
    best = max(near, key=lambda name: len(os.path.commonprefix((name, text))))
    return f"{best}.Tensor" if best not in names and f"{best}.Tensor" in names else best


def refuse_mutation(torch, operator, request):
    """Refuses operators that write to inputs or return views of them: a library creates new tensors."""
    overloads = [operator]
    if isinstance(operator, torch._ops.OpOverloadPacket):
        names = [name for name in operator.overloads() if not name.endswith("out")]
        overloads = [getattr(operator, name) for name in (["default"] if "default" in names else names)]
    found = [mutation_of(overload._schema) for overload in overloads]
    # The arguments choose the overload, so a name is refused only if no overload could be served.
    if found and all(found):
        raise Unsupported(f"{request['operator']} {found[0]}: {overloads[0]._schema}")


def mutation_of(schema):
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            return f"writes to its input {argument.name!r}"
    return "returns a view of its input" if any(value.alias_info is not None for value in schema.returns) else None


# ---- CPU features ----


def macros_of(compiler, flags):
    """Returns the names of the features that a compiler assumes with these flags."""
    key = (compiler, flags)
    if key not in macros_of.known:
        command = [compiler, *flags, "-dM", "-E", "-x", "c++", os.devnull]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        defined = {line.split()[1] for line in text.splitlines() if line.startswith("#define ")}
        macros_of.known[key] = features_of(defined)
    return macros_of.known[key]


def features_of(macros):
    """Returns the features that a compiler with these macros assumes, for the architecture that they name."""
    named = [arch for arch, macro in (("x86_64", "__x86_64__"), ("aarch64", "__aarch64__")) if macro in macros]
    target = named[0] if named else platform.machine()
    return frozenset(name for arch, name, macro, _ in FEATURES if arch == target and macro in macros)


macros_of.known = {}


def target_flags(cpu_features, machine=None):
    """Returns the flags for a text such as "x86-64-v3" or "avx2,fma": -march= with the level, and options for single features."""
    machine = machine or platform.machine()
    if machine not in ("x86_64", "aarch64"):
        raise Unsupported(f"compiling for less than this machine ({cpu_features}) is not supported on {machine}")
    options = {name: option for arch, name, _, option in FEATURES if option and arch == machine}
    tokens = [token for token in (token.strip() for token in cpu_features.split(",")) if token]
    if machine == "aarch64":
        march = next((token for token in tokens if token.startswith("armv")), "armv8-a")
        known = {**{option[1:]: option for option in options.values()}, **options}
        return march + "".join(dict.fromkeys(known[token] for token in tokens if token in known))
    march, single = "x86-64", []
    for token in tokens:
        if token.startswith("x86-64"):
            march = token
        elif token in options:
            single.append(options[token])
    return " ".join([march, *single])


@contextlib.contextmanager
def any_vector_length(cpu_vec_isa):
    """Keeps Inductor from compiling for one length of SVE vectors.

    Such code computes wrong results on a processor with another length, and no CPU feature expresses the length. Plain loops that
    the C++ compiler vectorizes work with any length. The generated source uses NEON instead.
    """
    all_isas = cpu_vec_isa.valid_vec_isa_list

    def isas_of_any_length():
        found = all_isas()
        kept = [isa for isa in found if "-msve-vector-bits" not in isa.build_arch_flags()]
        return kept if len(kept) == len(found) else [*kept, cpu_vec_isa.VecNEON()]

    if platform.machine() != "aarch64":
        yield
        return
    try:
        cpu_vec_isa.valid_vec_isa_list = isas_of_any_length
        yield
    finally:
        cpu_vec_isa.valid_vec_isa_list = all_isas


@contextlib.contextmanager
def compile_for(cpu_features, options):
    """Makes Inductor compile for less than this machine. None: for this machine.

    Newer versions of Inductor have an option for the compiler's -march; older ones do not. No version has an option for the
    vector instructions in the generated source that takes a set of features. So two functions are replaced.
    """
    from torch._inductor import config, cpp_builder, cpu_vec_isa

    if cpu_features is None:
        with any_vector_length(cpu_vec_isa):
            yield
        return
    march = target_flags(cpu_features)
    allowed = macros_of(cpp_builder.get_cpp_compiler(), tuple(f"-march={march}".split()))
    names = {option: name for _, name, _, option in FEATURES if option}
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


# Operations on an element that take a vector unit a cycle or two; others take about ten times as long. Loads and stores count
# as one operation each, because of the memory access.
QUICK = frozenset(
    "load store reduction store_reduction add sub mul abs neg relu maximum minimum where eq ne lt le gt ge logical_and logical_or "
    "logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor to_dtype to_dtype_bitcast floor ceil trunc round "
    "square sign signbit isnan isinf fma identity masked load_seed".split())
FREE = frozenset("constant output index_expr get_index indirect_indexing set_indirect check_bounds".split())
#: Minimum of such operations in a thread's part, because starting a parallel loop costs 1 us (measured with two threads).
QUICK_OPERATIONS_A_THREAD = 9216
MOST_NODES = 8  # maximum for the graph of one operator


def min_elements_per_thread(minimum):
    """
    Returns the smallest number of elements of a loop for which a thread is worth starting. minimum: Inductor's lower bound,
    which is the same for all loops.
    """
    from torch._inductor.virtualized import V

    try:
        nodes = [one for node in V.graph.scheduler.nodes for one in node.get_nodes()]
    except AttributeError:  # another version, or no scheduler
        return minimum
    counts = [getattr(getattr(node, "_body", None), "op_counts", None) for node in nodes]
    if len(nodes) > MOST_NODES or None in counts:
        return minimum
    operations = sum(count * (1 if name in QUICK else 8)
                     for found in counts for name, count in found.items() if name not in FREE)
    return max(minimum, QUICK_OPERATIONS_A_THREAD // max(operations, 1))


@contextlib.contextmanager
def thread_count_left_open():
    """Makes the decision to use several threads depend only on the work, and not on the machine that compiles.

    With cpp.dynamic_threads Inductor leaves the number of threads to run time, but then makes every loop parallel, even one of six
    elements. So the decision is made as for a fixed number of threads, without that option.
    """
    from torch._inductor import config
    from torch._inductor.codegen import cpp

    original = getattr(cpp.CppKernel, "decide_parallel_depth", None)
    if original is None:
        yield
        return

    def decide(self, max_parallel_depth, threads):
        with config.patch({"cpp.dynamic_threads": False, "cpp.min_chunk_size": min_elements_per_thread(config.cpp.min_chunk_size)}):
            return original(self, max_parallel_depth, USUAL_THREADS)

    try:
        cpp.CppKernel.decide_parallel_depth = decide
        yield
    finally:
        cpp.CppKernel.decide_parallel_depth = original


@contextlib.contextmanager
def record_flags(recorded):
    """Records the compiler and the -m flags with which each source was compiled."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    # The trials of vector instructions also compile, with flags that the library may not use. Run them before recording.
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


# For each vector width for which PyTorch has kernels, a function that their code calls: libtorch_cpu.so contains it if PyTorch
# itself was built for that width.
FUNCTION_OF_WIDTH = {"avx2": "Sleef_expf8_u10", "avx512": "Sleef_expf16_u10"}


def answer_probes(torch):
    """Decides which vector instructions can be used, if that is clear without a trial.

    PyTorch tries each of them in its first compile: it compiles up to 10,000 lines, links them and loads the result in another
    Python, which takes seconds. That finds out whether the compiler supports the instructions, and whether libtorch_cpu.so has
    the functions of that width. Here the compiler is asked for its macros, and the library for one such function. If either
    lacks them, PyTorch runs its trial. Whether the processor has them is checked by PyTorch separately.
    """
    import ctypes

    from torch._inductor import cpp_builder, cpu_vec_isa

    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    try_out = cpu_vec_isa.VecISA.check_build

    def check_build(isa, code):
        function = FUNCTION_OF_WIDTH.get(str(isa).split()[0])
        if platform.machine() != "x86_64" or function is None or ("ATen" in code and not hasattr(library, function)):
            return try_out(isa, code)
        try:
            macros_of(cpp_builder.get_cpp_compiler(), tuple(isa._arch_flags.split()))
            return True
        except subprocess.CalledProcessError:
            return try_out(isa, code)

    cpu_vec_isa.VecISA.check_build = check_build


def used_features(recorded):
    if not recorded:
        raise RuntimeError("the compiler's flags are not known, so the library's requirements are unknown")
    return sorted(set().union(*(macros_of(compiler, flags) for compiler, flags in recorded)))


# ---- compiling ----


@functools.cache
def load_beside(*names):
    """Loads a module from a file in this file's installation. Python's own search for modules could find another one."""
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), *names)
    spec = importlib.util.spec_from_file_location("aoticache_" + "_".join(names).removesuffix(".py"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def corrections():
    """Applies the corrections of eager/compile/inductor/corrections.py to Inductor until the context ends."""
    return load_beside("inductor", "corrections.py").applied()


def own_build(torch, label=""):
    """Makes eager/compile/inductor/build.py build libraries."""
    if own_build.builder is None:
        own_build.builder = load_beside("inductor", "build.py").Builder(torch, own_build.places)
    return own_build.builder.active(label)


own_build.builder, own_build.places = None, {}


def inductor_options(directory):
    """Returns the options that this version has. Options that change results are pinned, whatever the environment says."""
    from torch._inductor import config

    wanted = {
        "aot_inductor.output_path": os.path.join(directory, LIBRARY),
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.debug_compile": False,
        "aot_inductor.debug_symbols": False,
        "cpp.enable_unsafe_math_opt_flag": False,
        "cpp.enable_floating_point_contract_flag": "off",
        # Otherwise the number of this machine's threads is written into the code. With one thread Inductor also omits what keeps
        # the threads of a parallel region from doing the same work, and there may be more threads where the kernel runs.
        "cpp.dynamic_threads": True,
        "cpp.threads": USUAL_THREADS,
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


def dynamic_dimensions(torch, tensor):
    """Keeps sizes 0 and 1 fixed; PyTorch may generalise all others."""
    kinds = torch.export.Dim
    return {place: kinds.AUTO if size >= 2 else kinds.STATIC for place, size in enumerate(tensor.shape)}


def make_guard(torch, program):
    """Returns a text that describes the tensors that a library for symbolic shapes serves."""
    guards = load_beside("guards.py")
    try:
        return guards.make_guard(torch, program)
    except guards.Inexpressible as error:
        raise Unsupported(f"symbolic shapes: {error}") from error


def export(torch, module, inputs, dynamic):
    shapes = (tuple(dynamic_dimensions(torch, tensor) for tensor in inputs),) if dynamic else None
    try:
        return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
    except unsupported_kinds(torch) as error:
        raise Unsupported(f"cannot be exported: {describe(error)}") from error


def compile_library(torch, module, inputs, request):
    """Returns the library's path, the CPU features that it needs, the guard (symbolic shapes), and how it was built."""
    dynamic = request.get("environment", {}).get("shapes") == "dynamic"
    options = inductor_options(request["directory"])
    recorded = set()
    with torch.no_grad(), compile_for(request.get("cpu_features"), options):
        program = export(torch, module, inputs, dynamic)
        if dynamic:
            make_guard(torch, program)  # before the slow part: most inexpressible guards are found here
        with torch._inductor.config.patch({k: v for k, v in options.items() if k == "cpp.march"}):
            with record_flags(recorded), thread_count_left_open(), corrections():
                with own_build(torch, request["operator"]) as build:
                    path = torch._inductor.aot_compile(program.module(), inputs, options=options)
        guard = make_guard(torch, program) if dynamic else None  # again: compiling adds conditions
    return path, used_features(recorded), guard, build.report()


# Files of a model's library that it reads at run time; not sources, objects and metadata.
MODEL_SIDE_FILES = (".cubin", ".hsaco", ".spv", ".blob")


def compile_program(torch, program, directory, label="", options=None, cpu_features=None, frozen=False):
    """Compiles a whole exported program (of torch.export) into files in `directory`, for this process or another.

    The values of parameters and buffers are not part of the library, so the loading program must provide some: the constants are
    returned. frozen: they are compiled in, folded, and laid out as the compiler likes.
    options: options of Inductor, by name; they override those set here.

    Returns a dict with files (the library first), constants (name: tensor), requirements, built (as compile_library()), check (of
    the inputs, as guards.make_check()) and results (as keep_tensors()).
    """
    wanted = inductor_options(directory)
    wanted["aot_inductor.output_path"] = directory
    wanted["aot_inductor.package"] = True
    if frozen:
        wanted["freezing"] = True
    else:
        # Otherwise numbers and short vectors among the weights are written into the code with their current values.
        wanted["always_keep_tensor_constants"] = True
        wanted["aot_inductor.package_constants_in_so"] = False
        wanted["aot_inductor.package_constants_on_disk_format"] = "pickle_weights"
    if hasattr(torch._inductor.config.aot_inductor, "check_lowerbound"):
        wanted["aot_inductor.check_lowerbound"] = False  # it requires 2; the host compares with the export's own ranges
    wanted.update(options or {})
    args, kwargs = program.example_inputs
    module = plain_module(program)
    results = keep_tensors(torch, module)
    recorded = set()
    with torch.no_grad(), compile_for(cpu_features, wanted):
        with torch._inductor.config.patch({k: v for k, v in wanted.items() if k == "cpp.march"}):
            with record_flags(recorded), thread_count_left_open(), corrections(), careful_scatter(), own_build(torch, label) as build:
                made = torch._inductor.aot_compile(module, args, kwargs, options=wanted)
                built = build.report()
    check = model_check(torch, program)  # after the compile, which adds conditions
    paths = [one for one in made if isinstance(one, str)]
    library = next(path for path in paths if path.endswith(".so"))
    files = [{"name": MODEL_LIBRARY, "path": library}]
    for path in paths:
        if path.endswith(MODEL_SIDE_FILES):
            files.append({"name": os.path.basename(path), "path": path})
        elif path == library.removesuffix(".so") + ".json":  # the nodes of the proxy executor
            files.append({"name": MODEL_LIBRARY.removesuffix(".so") + ".json", "path": path})
    constants = {
        name: tensor for one in made if isinstance(one, dict) for name, (tensor, _) in one.items()
    }
    return {"files": files, "constants": constants, "requirements": used_features(recorded), "built": built, "check": check,
            "results": results}


@contextlib.contextmanager
def careful_scatter():
    """Prevents an in-place write of Inductor to a part of a tensor from which it still reads: it drops the clone in
    x[1:] = x[:-1].clone(), and then reads what it has just written (PyTorch's issue 197829)."""
    from torch._inductor.fx_passes import reinplace

    table, name = getattr(reinplace, "inplaceable_ops", {}), getattr(reinplace, "_generalized_scatter", None)
    original = table.get(name)
    if original is None:
        yield
        return

    def check(node):
        target, source = node.args[:2]
        if hasattr(source, "meta") and reinplace.get_node_storage(source) == reinplace.get_node_storage(target):
            return False
        return original.extra_check(node)

    try:
        table[name] = dataclasses.replace(original, extra_check=check)
        yield
    finally:
        table[name] = original


def keep_tensors(torch, module):
    """Removes from a module's results what the code need not compute: constants (None, numbers, texts), and repeated tensors.
    Returns for each result its position among the remaining ones, {"number": position} for a number that depends on sizes, or
    {"value": constant}."""
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    kept, places = [], []
    for value in output.args[0]:
        known = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
        if isinstance(known, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
            if value not in kept:
                kept.append(value)
            place = kept.index(value)
            places.append(place if isinstance(known, torch.Tensor) else {"number": place})
        else:
            places.append({"value": known})
    output.args = (tuple(kept),)
    module.recompile()
    return places


def model_check(torch, program):
    guards = load_beside("guards.py")
    try:
        return guards.make_check(torch, program, plain_module(program))
    except guards.Inexpressible as error:
        raise Unsupported(f"cannot describe the sizes that the model accepts: {error}") from error


def plain_module(program):
    """Returns the program's module without the checks of its guards, which cannot be compiled."""
    try:
        return program.module(check_guards=False)
    except TypeError:  # before PyTorch 2.9 there are none
        return program.module()


def has_odd_strides(tensor):
    """Returns whether a dimension of size 1 or 0 has another stride than in a new contiguous tensor."""
    expected, odd = 1, False
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride())):
        odd = odd or (size < 2 and stride != expected)
        expected *= max(size, 1)
    return odd and tensor.dim() > 1 and tensor.device.type == "cpu"


def check_strides(torch, module, inputs, library):
    """Refuses a library whose results have other strides than PyTorch's.

    Inductor ignores the strides of dimensions of size 1; PyTorch's depend on them in various ways.
    """
    ones = [torch.empty_strided(one.shape, one.stride(), dtype=one.dtype) for one in inputs]
    for one in ones:
        torch.empty(0, dtype=one.dtype).set_(one.untyped_storage()).fill_(1)
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(*ones))
        try:
            found = torch._C._aoti.AOTIModelContainerRunnerCpu(library, 1).run(ones)
        except RuntimeError as error:
            raise Unsupported(f"cannot read the strides of its results: {describe(error)}") from error
    for one, other in zip(found, wanted):
        if one.stride() != other.stride():
            raise Unsupported(f"its result has strides {one.stride()}, but PyTorch's has {other.stride()}")


def remove_intermediates(directory, before, library):
    """Removes new files next to the library: sources and objects. Keeps and returns files that it opens at run time."""
    kept = []
    for name in sorted(set(os.listdir(directory)) - before):
        path = os.path.join(directory, name)
        if path == library:
            continue
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        elif name.endswith((".cubin", ".hsaco", ".spv", ".blob", "extern_nodes.json")):
            kept.append({"name": name, "path": path})
        elif name.endswith(".wrapper.json"):
            # The nodes of the proxy executor; PyTorch's runner looks for this file under the library's name.
            kept.append({"name": LIBRARY.replace(".so", ".json"), "path": path})
        else:
            os.unlink(path)
    return kept


def describe(error):
    """Returns type and message; for a long one, its beginning and its end, which usually has the compiler's error."""
    text = str(error).strip() or repr(error)
    if len(text) > ERROR_HEAD + ERROR_TAIL:
        text = f"{text[:ERROR_HEAD]}\n[...]\n{text[-ERROR_TAIL:]}"
    return f"{type(error).__name__}: {text}"


def serve(torch, request):
    if request.get("protocol") != PROTOCOL:
        raise Unsupported(f"protocol {request.get('protocol')!r}: this worker supports {PROTOCOL}")
    start = time.monotonic()
    directory = os.path.realpath(request["directory"])
    before = set(os.listdir(directory))
    module, inputs = make_call(torch, request)
    try:
        library, requirements, guard, built = compile_library(torch, module, inputs, request)
    except Unsupported:
        raise
    except Exception as error:
        if "numbers" not in request.get("environment", {}):
            raise
        raise Unsupported(f"its numbers must be known when it is compiled: {describe(error)}") from error
    library = os.path.realpath(library)
    if any(has_odd_strides(tensor) for tensor in inputs):
        check_strides(torch, module, inputs, library)
    files = [{"name": LIBRARY, "path": library}]
    files += remove_intermediates(directory, before, library)
    result = {} if guard is None else {"guard": guard}
    return {
        **result,
        "ok": True,
        "files": files,
        "requirements": requirements,
        "built": built,
        "producer": producer(torch),
        "compile_seconds": round(time.monotonic() - start, 3),
    }


def answer(torch, line):
    """Returns the answer to a request. Never raises: an error becomes the answer."""
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


# ---- directories ----


def private_directory(path, name=None):
    """Returns the directory's real path; creates it if it is missing. PyTorch loads and runs code that it finds there.

    name: the variable that names it, for messages.
    """
    what = f"{name}={path}" if name else path
    if not os.path.isabs(path):
        raise Untrusted(f"{what} is not an absolute path, but a worker has another working directory")
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        path = os.path.realpath(path)  # a link could lead elsewhere the next time
        found = os.stat(path)
    except OSError as error:
        raise Untrusted(f"{what}: {error.strerror}") from error
    if found.st_uid not in (os.geteuid(), 0):
        raise Untrusted(f"{what} belongs to user {found.st_uid}, not to user {os.geteuid()}, who would load code from it;"
                        " use a directory of your own")
    if found.st_mode & 0o022:
        raise Untrusted(f"{what} has mode {found.st_mode & 0o7777:04o}: others could put code there; chmod go-w {path}")
    check_parents(path, what)
    if not os.access(path, os.W_OK | os.X_OK):
        raise Untrusted(f"{what} cannot be written")
    return path


def check_parents(path, what):
    """Refuses a parent that others may write to, without the sticky bit: they could replace our directory."""
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        mode = os.stat(path).st_mode
        if mode & 0o002 and not mode & 0o1000:
            raise Untrusted(f"{what} is in {path}, which everyone may change (mode {mode & 0o7777:04o})")


def temporary_directory():
    """Returns a directory for all workers of this user; if somebody has taken its name, one for this worker."""
    try:
        return private_directory(os.path.join(tempfile.gettempdir(), f"aoticache-worker-{os.geteuid()}"))
    except Untrusted:
        return tempfile.mkdtemp(prefix="aoticache-worker-")


def prepare_directories():
    """Sets the directories for PyTorch's reusable files (trials of instructions, precompiled headers) and for the others.

    By default PyTorch would use names in /tmp that others can predict and create first. Directories set by the user are used.
    """
    if "HOME" not in os.environ:  # otherwise the real user's is used, who may be another one
        with contextlib.suppress(KeyError):
            os.environ["HOME"] = pwd.getpwuid(os.geteuid()).pw_dir
    given = {name: os.environ[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR") if os.environ.get(name)}
    for name, path in given.items():
        os.environ[name] = private_directory(path, name)
    os.environ["TMPDIR"] = tempfile.tempdir = temporary_directory()
    if "TORCHINDUCTOR_CACHE_DIR" in given:
        return
    home = os.environ.get("XDG_CACHE_HOME", "")
    home = home if os.path.isabs(home) else os.path.join(os.environ.get("HOME", ""), ".cache")
    try:
        directory = private_directory(os.path.join(home, "aoticache-worker"))
    except Untrusted as error:
        directory = private_directory(os.path.join(os.environ["TMPDIR"], "inductor"))
        print(f"worker: {error}; PyTorch's files go to {directory}", file=sys.stderr)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = directory


# ---- the process ----


def producer(torch):
    return f"pytorch {torch.__version__.split('+')[0]}"


#: Prefixes of variables that are options of PyTorch's compiler. They are not in keys, so a worker removes them.
OPTIONS = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_", "AOT_INDUCTOR_", "AOTINDUCTOR_")
#: Variables for directories and trials; they do not change what a key means.
NO_OPTIONS = ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_VEC_ISA_OK")


def forget_options():
    for name in list(os.environ):
        if name.startswith(OPTIONS) and name not in NO_OPTIONS:
            del os.environ[name]


def forget_package_logs():
    """Removes this package from TORCH_LOGS: PyTorch refuses the name of a package that Python does not find, as here."""
    names = os.environ.pop("TORCH_LOGS", "").split(",")
    others = [name for name in names if name.strip(" +-").partition(".")[0] != "aoticache"]
    if any(others):
        os.environ["TORCH_LOGS"] = ",".join(others)


def import_torch():
    forget_options()
    forget_package_logs()
    # Inductor's pool of compile processes would load PyTorch again: it is not needed for one source at a time.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    prepare_directories()
    # A worker already compiles for the cache: its whole output is stored, and its operators are PyTorch's own.
    os.environ.pop("AOTICACHE_COMPILE_CACHE", None)
    os.environ.pop("AOTICACHE_ENABLE", None)
    # PyTorch starts Python with -c, which looks for modules in the working directory first.
    os.chdir("/")
    import torch
    import torch._inductor

    with contextlib.suppress(Exception):  # other versions of PyTorch may lack the class: they run all trials
        answer_probes(torch)
    return torch


def run_once():
    line = sys.stdin.buffer.readline()
    _, sink = take_channel()
    try:
        torch = import_torch()
    except Untrusted as error:
        sys.exit(f"worker: {error}")
    write_line(sink, answer(torch, line))


def run_worker():
    parent = os.getppid()
    source, sink = take_channel()
    lines = queue.SimpleQueue()
    threading.Thread(target=read_lines, args=(source, lines, parent), daemon=True).start()
    try:
        torch = import_torch()
    except Untrusted as error:
        write_line(sink, {"hello": PROTOCOL, "error": str(error)})
        os._exit(1)
    except BaseException as error:
        write_line(sink, {"hello": PROTOCOL, "error": f"PyTorch cannot be imported: {describe(error)}"})
        os._exit(1)
    version = ".".join(map(str, sys.version_info[:3]))
    write_line(sink, {"hello": PROTOCOL, "producer": producer(torch), "python": version})
    while True:
        write_line(sink, answer(torch, lines.get()))


if __name__ == "__main__":
    # Nothing may be imported from the directory of this file.
    if sys.path and os.path.realpath(sys.path[0] or ".") == os.path.dirname(os.path.realpath(__file__)):
        del sys.path[0]
    parser = argparse.ArgumentParser(description="Compiles kernels for libaoticache; docs/hooks.md has the protocol.")
    parser.add_argument("--once", action="store_true", help="answer one request, without a greeting, and exit")
    parser.add_argument("--include", default="", help="the directory of libaoticache's headers")
    parser.add_argument("--runtime", default="", help="libaoticache_runtime.a")
    parser.add_argument("--torch-stub", default="", help="the empty libtorch_cpu.so that kernel libraries are linked with")
    options = parser.parse_args()
    own_build.places = {"include": options.include, "runtime": options.runtime, "torch_stub": options.torch_stub}
    run_once() if options.once else run_worker()
