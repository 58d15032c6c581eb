"""Builds the code that Inductor generates as a library of our container: small, without C++, in a fraction of the time.

Inductor's own build (torch._inductor.codecache.AotCodeCompiler) stays in charge. Two of its commands are replaced: the wrapper is
compiled against wrapper.h, without the text of PyTorch's container that each wrapper repeats, and the objects are linked with
libaoticache_runtime.a. The kernels are compiled by PyTorch's command, so their code is the same.

Code that is not supported here is built in PyTorch's way from the beginning: a wrapper that uses a name that wrapper.h lacks, a
device, a form of weights, a version of PyTorch whose build looks different. `Builder.reason` gives the reason.
"""

import contextlib
import hashlib
import os
import re
import subprocess

INTERFACE = os.path.join("_inductor", "codegen", "aoti_runtime", "interface.cpp")
# Headers that declare the functions that a wrapper calls, below torch/include/torch/csrc.
SHIM_DIRECTORIES = ("inductor/aoti_torch/c", "inductor/aoti_torch/generated", "stable/c")
OF_THE_SHIM = re.compile(r"^#include <torch/csrc/(?:%s)/\w+\.h>$" % "|".join(SHIM_DIRECTORIES), re.M)
CALLED = re.compile(r"\b((?:aoti_torch|aoti_record|torch)_\w+)\s*\(")
DECLARED = re.compile(r"^\s*(?:AOTI_TORCH_EXPORT|extern|TORCH_API)?\s*([\w*\s]+?[\s*])((?:aoti_|torch_)\w+)\s*\(([^;{]*?)\)\s*;", re.M | re.S)
UNDEFINED = re.compile(r"undefined reference to [`'\"]([^'\"]+)'")
FROM_TORCH = re.compile(r"^(?:(?:aoti_(?:torch|record)|torch|Sleef)_\w+)$")
# If a check fails in a kernel that owns memory, the memory must be freed. So it throws, and needs the C++ runtime.
CHECKS = re.compile(r"\bAOTI_TORCH_CHECK\b")
OWNS_MEMORY = re.compile(r"\b(?:std::make_unique|std::make_shared|std::unique_ptr|std::vector|std::string|WelfordHelper|"
                         r"CascadeSumHelper)\b")
# Fast in calls, without what -O2 adds for loops, which a wrapper does not have: the library stays below 40 KB.
SMALL = ("-falign-functions=1", "-falign-jumps=1", "-falign-loops=1", "-fno-tree-vectorize", "-fno-reorder-blocks",
         "-fno-reorder-blocks-and-partition", "-fno-partial-inlining", "-fno-ipa-cp")
COMPILE = ("-std=c++17", "-O2", *SMALL, "-fPIC", "-fvisibility=hidden", "-fno-rtti", "-fno-threadsafe-statics",
           "-fno-strict-aliasing", "-fno-plt", "-ffunction-sections", "-fdata-sections", "-w")
WITHOUT_CXX = ("-fno-exceptions", "-fno-asynchronous-unwind-tables")
WITH_CXX = ("-fexceptions", "-DAOTICACHE_WRAPPER_CATCHES")
LINK = ("-shared", "-s", "-nodefaultlibs", "-nostartfiles", "-Wl,--gc-sections", "-Wl,-Bsymbolic", "-Wl,--build-id=none",
        "-Wl,--hash-style=gnu", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack", "-Wl,-z,noseparate-code",
        "-Wl,--warn-unresolved-symbols", "-Wl,--unresolved-symbols=report-all")
PARALLEL = "#pragma omp parallel"
WRAP_PARALLEL = "-Wl,--wrap=GOMP_parallel"
# Symbols of the C++ runtime that kernels refer to, and their replacements in wrapper.h. The first four are in every kernel's
# object, but only kernels that throw or print use them.
INSTEAD_OF_CXX = {
    "without_cxx": ("__gxx_personality_v0", "_Unwind_Resume", "_ZNSt8ios_base4InitC1Ev", "_ZNSt8ios_base4InitD1Ev"),
    "new": ("_Znam", "_Znwm"),
    "new_aligned": ("_ZnwmSt11align_val_t",),
    "delete": ("_ZdaPv", "_ZdlPv", "_ZdlPvm", "_ZdlPvmSt11align_val_t"),
    "out_of_memory": ("_ZSt17__throw_bad_allocv",),
    "too_long": ("_ZSt20__throw_length_errorPKc",),
    "terminate": ("_ZSt9terminatev",),
    "guard_acquire": ("__cxa_guard_acquire",),
    "guard_release": ("__cxa_guard_release",),
}
LINK_WITHOUT_CXX = [f"-Wl,--defsym={name}=aoticache_kernel_{ours}" for ours, names in INSTEAD_OF_CXX.items() for name in names]
EXPORTED = "{{ global: AOTInductor*; aoticache_plain_kernel_v3; {names} local: *; }};\n"
KERNEL_FUNCTION = re.compile(r'^extern "C"\s+void\s+(\w+)\(', re.M)
CXX_NAME = re.compile(r"^(?:_Z|__cxa_|__gxx_|_Unwind_|operator |std::|vtable |typeinfo |VTT )")
KERNELS_HEADER = "#include <torch/csrc/inductor/cpp_prefix.h>"
# PyTorch's own version throws in each kernel, and so makes each kernel need the C++ runtime.
KERNELS_CHECK = """
extern "C" void aoti_torch_check(bool, const char *, const char *, uint32_t, const char *);
#define inductor_cpu_throw_if_integer_div_error(error) \\
    aoti_torch_check((error).load(std::memory_order_acquire) == 0, __func__, "kernel", __LINE__, "ZeroDivisionError")
"""


class NotSupported(Exception):
    """The code cannot be built in our way; the text gives the reason."""


class Places:
    """Our own files, as absolute paths: the directory of headers, libaoticache_runtime.a, the library that is linked for its name.

    By default they are in the installation that this file is part of.
    """

    def __init__(self, include="", runtime="", torch_stub=""):
        here = os.path.dirname(os.path.realpath(__file__))
        root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
        self.wrapper = os.path.join(here, "wrapper.h")
        self.include = include or os.path.join(root, "include", "aoticache")
        self.runtime = runtime or os.path.join(root, "lib", "libaoticache_runtime.a")
        self.torch_stub = torch_stub or os.path.join(root, "lib", "aoticache", "libtorch_cpu.so")

    def check(self):
        beside = (os.path.join(os.path.dirname(self.wrapper), name) for name in ("wrapper_std.h", "wrapper_cxx.h"))
        for path in (self.wrapper, *beside, os.path.join(self.include, "runtime", "kernel.h"), self.runtime, self.torch_stub):
            if not os.path.exists(path):
                raise NotSupported(f"{path} is not installed")


class Declarations:
    """The declarations of PyTorch's C functions, by name, from its headers."""

    def __init__(self, torch):
        self.by_name = {}
        root = os.path.join(os.path.dirname(torch.__file__), "include", "torch", "csrc")
        for directory in SHIM_DIRECTORIES:
            self.read_directory(os.path.join(root, directory))

    def read_directory(self, directory):
        if not os.path.isdir(directory):
            return
        for name in sorted(os.listdir(directory)):
            if name.endswith(".h"):
                with open(os.path.join(directory, name), encoding="utf-8") as file:
                    self.read(file.read())

    def read(self, text):
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
        for result, name, arguments in DECLARED.findall(text):
            result = result.replace("AOTI_TORCH_EXPORT", "").replace("extern", "").strip()
            if result and "return" not in result.split():
                self.by_name.setdefault(name, f"{' '.join(result.split())} {name}({' '.join(arguments.split())});")

    def of(self, text):
        """Returns the declarations that this text needs."""
        names = sorted(set(CALLED.findall(text)))
        return "\n".join(self.by_name[name] for name in names if name in self.by_name)


def own_half(torch, wrapper):
    """Returns the wrapper without the container. Raises NotSupported if it does not look as expected."""
    with open(os.path.join(os.path.dirname(torch.__file__), INTERFACE), encoding="utf-8") as file:
        interface = file.read()
    begin = wrapper.find(interface)
    if begin < 0:
        raise NotSupported("the wrapper does not contain the container's interface as this PyTorch has it")
    own = wrapper[begin + len(interface) :]
    before = wrapper[:begin]
    if re.sub(r"#include <torch/csrc/inductor/aoti_include/(cpu|common)\.h>", "", before).strip():
        raise NotSupported("the wrapper begins with unknown code")
    own = OF_THE_SHIM.sub("", own)
    if "#include" in own:
        raise NotSupported("the wrapper includes other headers")
    return own


def slim_text(declarations, places, own, plain, parallel):
    """Returns the wrapper's own half, preceded by the declarations that it needs.

    plain: compile it as a kernel that borrows its inputs; impossible if it returns an input. parallel: its kernels have parallel
    loops, which then begin in wrapper.h (WRAP_PARALLEL).
    """
    uses, calls = "#define AOTICACHE_WRAPPER_IS_PLAIN\n" if plain else "", own + ALWAYS_CALLED
    if parallel:
        uses += "#define AOTICACHE_WRAPPER_IS_PARALLEL\n"
    for word, macro, called in OPTIONAL_PARTS:
        if word in own:
            uses, calls = f"{uses}#define AOTICACHE_WRAPPER_USES_{macro}\n", calls + called
    declared = declarations.of(calls)
    handles = sorted(set(re.findall(r"\b(\w+Handle)\b", declared)) - KNOWN_HANDLES)
    opaque = "".join(f"typedef struct {name}Opaque *{name};\n" for name in handles)
    complex_types = "namespace c10 { template <typename T> struct complex; }\n" if "c10::complex" in declared else ""
    return (f'{uses}#include "runtime/abi.h"\n{complex_types}{opaque}extern "C" {{\n{declared}\n}}\n'
            f'#include "{places.wrapper}"\n{own}\n')


def may_be_plain(own):
    """Returns whether the code calls nothing that depends on PyTorch's gradient mode, such as PyTorch's operators."""
    return all(name in PLAIN_CALLS or PLAIN_NUMBER.match(name) for name in CALLED.findall(own))


# Functions that read properties of tensors or create tensors from memory.
PLAIN_CALLS = {f"aoti_torch_{name}" for name in (
    "empty_strided", "delete_tensor_object", "get_data_ptr", "get_dim", "get_numel", "get_sizes", "get_strides",
    "get_storage_offset", "get_device_type", "get_device_index", "get_dtype", "get_layout", "_reinterpret_tensor",
    "new_tensor_handle", "create_tensor_from_blob", "create_tensor_from_blob_v2", "check", "item_float64")}
PLAIN_NUMBER = re.compile(r"aoti_torch_(?:dtype|device_type|layout|memory_format)_\w+$")
KNOWN_HANDLES = {"AtenTensorHandle", "AtenGeneratorHandle", "AOTIProxyExecutorHandle"}
# Functions that wrapper.h itself calls.
ALWAYS_CALLED = " ".join(f"aoti_torch_{name}(" for name in (
    "delete_tensor_object", "get_data_ptr", "get_dim", "get_numel", "get_sizes", "get_strides", "get_storage_offset",
    "_reinterpret_tensor"))
SCALARS = ("float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool", "complex64", "complex128")
# Parts of wrapper.h that few wrappers need: a word in the wrapper, the part's macro, functions that the part calls.
OPTIONAL_PARTS = (
    ("ConstantType::FoldedConstant", "FOLDS", ""),
    ("RAIIC10IValueHandle", "VALUES", " aoti_torch_delete_c10_value_object("),
    ("scalar_to_tensor_handle", "SCALARS", "".join(f" aoti_torch_scalar_to_tensor_{name}(" for name in SCALARS)),
)


def kernel_text(text):
    """Returns the kernels with our function instead of the check that throws in PyTorch's header."""
    places = [match.end() for match in re.finditer(re.escape(KERNELS_HEADER), text)]
    return text[: places[0]] + KERNELS_CHECK + text[places[0] :] if places else text


def name_functions(kernels, wrapper, label):
    """
    Renames the functions of the kernels in both texts after what they compute, for profilers and debuggers, which show the names
    of all libraries of a process together: aten_gelu_1f3a9c02. The number is a digest of the kernels' text. Returns both texts and
    the names.
    """
    found = [name for name in dict.fromkeys(KERNEL_FUNCTION.findall(kernels)) if re.search(rf"\b{name}\b", wrapper)]
    if not label or not found:
        return kernels, wrapper, []
    base = f"{re.sub(r'[^0-9A-Za-z]+', '_', label)}_{hashlib.sha256(kernels.encode()).hexdigest()[:8]}"
    names = {old: base if place == 0 else f"{base}_{place}" for place, old in enumerate(found)}
    replace = re.compile(r"\b(" + "|".join(map(re.escape, found)) + r")\b")
    return *(replace.sub(lambda match: names[match[1]], text) for text in (kernels, wrapper)), list(names.values())


def check_graph(torch, graph, device_type):
    """Raises NotSupported for forms that the container in C does not support, or supports differently."""
    from torch._inductor import config

    options = config.aot_inductor
    if device_type != "cpu":
        raise NotSupported(f"the kernel is for {device_type}")
    if options.package_cpp_only or not options.dynamic_linkage:
        raise NotSupported("sources or a static library were requested")
    # Weights that are only returned (see compile_program() of the worker) do not affect the library's form.
    apart = not options.package_constants_in_so
    if options.package_constants_on_disk_format and not (apart and options.package_constants_on_disk_format == "pickle_weights"):
        raise NotSupported(f"weights on disk as {options.package_constants_on_disk_format}")
    if options.force_mmap_weights:
        raise NotSupported("weights after the library's code")
    constants = [graph.get_original_value_of_constant(name) for name in graph.constants]
    if any(tensor.is_mkldnn or tensor.layout != torch.strided for tensor in constants):
        raise NotSupported("constants in a layout of oneDNN")
    if any(tensor.device.type != "cpu" for tensor in constants):
        raise NotSupported("constants on another device")
    if not apart and sum(tensor.untyped_storage().nbytes() for tensor in constants) > 1_000_000_000:
        raise NotSupported("more than 1 GB of constants")
    if set(graph.mutated_buffers) & set(graph.constants):
        raise NotSupported("the code writes to its own constants")


def start_command(command):
    return subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, errors="replace")


def finish_command(process):
    """Waits for a command and returns its output."""
    said, _ = process.communicate()
    command = process.args
    if process.returncode != 0:
        errors = [line for line in said.splitlines() if "error" in line or "undefined" in line]
        raise NotSupported(f"{os.path.basename(command[0])}: {(errors or said.splitlines() or ['failed'])[0]}"[:300])
    return said


def unknown_symbols(command):
    """Links. Returns the symbols that are in neither our libraries nor PyTorch's C interface."""
    return {name for name in UNDEFINED.findall(finish_command(start_command(command))) if not FROM_TORCH.match(name)}


class Builder:
    """Replaces Inductor's build while `active()`; builds with the files that `places` names.

    places: the paths that Places takes. reason: why PyTorch did the last build; None if we did.
    """

    def __init__(self, torch, places):
        self.torch, self.places, self.reason = torch, Places(**places), None
        self.used, self.wrapper, self.declarations = False, None, None
        self.label, self.names, self.parallel = "", [], False

    @contextlib.contextmanager
    def active(self, label=""):
        """Replaces Inductor's build in a context. label: what the kernels compute, "aten::gelu"; used in names of functions."""
        from torch._inductor import codecache

        original = codecache.AotCodeCompiler.compile

        def compile(graph, wrapper_code, kernel_code, nodes, *, device_type, additional_files, **others):
            def build(kernels, files):
                return original(graph, wrapper_code, kernels, nodes, device_type=device_type, additional_files=files,
                                **others)

            try:
                return self.build_ours(build, graph, wrapper_code, kernel_code, device_type, additional_files)
            except Exception as error:
                self.reason = str(error) if isinstance(error, NotSupported) else f"{type(error).__name__}: {error}"[:300]
            return build(kernel_code, additional_files)

        self.reason, self.used, self.label = None, False, label
        try:
            codecache.AotCodeCompiler.compile = compile
            yield self
        finally:
            codecache.AotCodeCompiler.compile = original

    def build_ours(self, build, graph, wrapper, kernels, device_type, files):
        self.places.check()
        check_graph(self.torch, graph, device_type)
        if self.declarations is None:
            self.declarations = Declarations(self.torch)
        kernels, wrapper, self.names = name_functions(kernels, wrapper, self.label)
        self.own_half = own_half(self.torch, wrapper)
        self.plain = not graph.constants and may_be_plain(self.own_half)
        self.has_constants = len(graph.constants) > 0
        self.parallel = PARALLEL in kernels
        self.with_cxx = any(CHECKS.search(one) and OWNS_MEMORY.search(one) for one in kernels.split(KERNELS_HEADER))
        self.wrapper = None
        with self.commands_replaced():
            result = build(kernel_text(kernels), list(files))
        if self.steps != ["compile", "link"]:
            raise NotSupported("this PyTorch builds in different steps")
        self.used = True
        return result

    def report(self):
        """Returns how the last library was built, for the answer to a request."""
        if self.used:
            return {"by": "aoticache"}
        # One line of ASCII, also for other compiler output.
        reason = " ".join((self.reason or "Inductor did not build").split()).encode("ascii", "replace").decode()
        return {"by": "pytorch", "reason": reason[:500]}

    @contextlib.contextmanager
    def commands_replaced(self):
        from torch._inductor import codecache, cpp_builder

        original, precompile = cpp_builder.CppBuilder.build, codecache._precompile_header
        wrapper_header = codecache._get_cpp_wrapper_header
        self.steps = []

        def build(builder, *args, **kwargs):
            target = builder.get_target_file_path()
            command = builder.get_command_line()
            if target.endswith(".wrapper.o"):
                self.start_wrapper(command.split()[0], target)
                self.steps.append("compile")
            elif target.endswith(".so"):
                self.link(command.split(), target)
            else:
                return original(builder, *args, **kwargs)
            return None

        def precompile_kernels_header(header, *args, **kwargs):
            return None if header in self.wrapper_headers else precompile(header, *args, **kwargs)

        self.wrapper_headers = set()

        def note_header(*args, **kwargs):
            header = wrapper_header(*args, **kwargs)
            self.wrapper_headers.add(header)
            return header

        try:
            cpp_builder.CppBuilder.build = build
            codecache._precompile_header = precompile_kernels_header
            codecache._get_cpp_wrapper_header = note_header
            yield
        finally:
            with contextlib.suppress(NotSupported):
                self.finish_wrapper()  # it is still running if something else failed
            cpp_builder.CppBuilder.build = original
            codecache._precompile_header = precompile
            codecache._get_cpp_wrapper_header = wrapper_header

    def start_wrapper(self, compiler, target):
        """Starts compiling the wrapper, concurrently with the kernels; finish_wrapper() waits for it."""
        source = target.removesuffix(".o") + ".slim.cpp"
        with open(source, "w", encoding="utf-8") as file:
            file.write(slim_text(self.declarations, self.places, self.own_half, self.plain, self.parallel))
        self.wrapper = start_command([compiler, *COMPILE, *(WITH_CXX if self.with_cxx else WITHOUT_CXX),
                                      f"-I{self.places.include}", "-c", source, "-o", target])

    def finish_wrapper(self):
        process, self.wrapper = self.wrapper, None
        if process is None:
            return
        try:
            finish_command(process)
            return
        except NotSupported:
            if not self.plain:
                raise
        finally:
            os.unlink(process.args[-3])  # the source
        self.plain = False  # it does more with its inputs than read their properties
        self.start_wrapper(process.args[0], process.args[-1])
        self.finish_wrapper()

    def link(self, words, target):
        objects = [word for word in words if word.endswith(".o") and (self.has_constants or ".weights." not in word)]
        exported = target + ".map"
        with open(exported, "w", encoding="utf-8") as file:
            file.write(EXPORTED.format(names="".join(f"{name}; " for name in self.names)))
        command = [words[0], *LINK, *([WRAP_PARALLEL] if self.parallel else []), f"-Wl,--version-script={exported}", "-o",
                   target, *objects, self.places.runtime,
                   "-Wl,--no-as-needed", self.places.torch_stub, "-Wl,--as-needed", "-lgomp"]
        self.finish_wrapper()
        unknown = set() if self.with_cxx else unknown_symbols([*command, *LINK_WITHOUT_CXX, "-lm", "-lc"])
        if any(map(CXX_NAME.match, unknown)) and not self.with_cxx:
            self.with_cxx = True
            self.start_wrapper(words[0], next(name for name in objects if name.endswith(".wrapper.o")))
            self.finish_wrapper()
        if self.with_cxx:
            unknown = unknown_symbols([*command, "-lstdc++", "-lm", "-lgcc_s", "-lgcc", "-lc"])
        if unknown:
            raise NotSupported(f"the code needs {min(unknown)}, which is not one of PyTorch's C functions")
        os.unlink(exported)
        self.steps.append("link")
