"""C++ that Inductor compiles: kernels, their Python bindings, and the trials that find out which vector units exist.

`CppBuilder.build()` is the one function that runs the compiler. The key of its output consists of its inputs: digests of the
sources, the command without paths that differ between users and machines, PyTorch's version, and the compiler's identity. The
CPU features that the code uses are a requirement of the entry, so one key may have code for several CPUs.

Each library is stored under two keys: one with the digest of the compiler's program, one with the compiler `any`. If a
compiler is installed, the first key is looked up, because another compiler's code may differ. Otherwise the second is.

Replaced here, in torch._inductor: cpp_builder.CppBuilder.build, cpp_builder.cpp_compiler_search,
cpp_builder._is_intel_compiler, cpp_builder._compiler_version_string (since PyTorch 2.14), cpu_vec_isa.VecISA.check_build,
codecache._precompile_header, codecache.CppCodeCache._load_library.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import sysconfig
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from .._core.errors import AoticacheError, warn_once
from .._core.records import CPP, PROBE, Answer, Question, file_with, write_file
from .state import State, caches_are_disabled, is_below

ANY = "any"
NO_COMPILER = "g++"  # commands are written for this one if there is none
KINDS_OF_OUTPUT = (".so", ".o")
YES, NO = b"yes\n", b"no\n"  # contents of the record of a trial
#: Variables that change the output of the same compiler command.
VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")
_NAME = re.compile(r'extern\s+"C"[^(;{]*?\b(\w+)\s*\(')


class Cpp:
    """The replaced functions and their state."""

    def __init__(self, state: State) -> None:
        from torch._inductor import codecache, cpp_builder, cpu_vec_isa

        self.state = state
        self.headers: dict[str, tuple[Any, ...]] = {}  # headers that are not precompiled yet: the arguments for doing so
        self.served: dict[str, Any] = {}  # files that came from the cache, and what rebuilds them
        self.builder, self.codecache = cpp_builder, codecache
        self._lock = threading.Lock()
        self._trial = threading.local()  # whether this thread is testing a vector unit
        patches = state.patches
        self.search = patches.replace(cpp_builder, "cpp_compiler_search", self.find_compiler)
        self.intel = patches.replace(cpp_builder, "_is_intel_compiler", self.is_intel)
        if hasattr(cpp_builder, "_compiler_version_string"):
            self.version = patches.replace(cpp_builder, "_compiler_version_string", self.find_version)
        self.precompile = patches.replace(codecache, "_precompile_header", self.postpone_header)
        cpp = self
        build = patches.replace(
            cpp_builder.CppBuilder, "build", functools.wraps(cpp_builder.CppBuilder.build)(lambda one: cpp.build(one))
        )
        self.compile = build
        check = cpu_vec_isa.VecISA.check_build
        self.try_out = patches.replace(
            cpu_vec_isa.VecISA, "check_build", functools.wraps(check)(lambda isa, code: cpp.check_build(isa, code))
        )
        load = vars(codecache.CppCodeCache)["_load_library"].__func__
        wrapper = functools.wraps(load)(lambda cls, path, key: cpp.load(cls, path, key))
        patches.replace(codecache.CppCodeCache, "_load_library", classmethod(wrapper))
        self.load_library = load

    # ---- the compiler ----

    def find_compiler(self, search: Sequence[str | None]) -> str:
        """Finds a compiler as PyTorch does, without running it. If there is none, returns a name for commands."""
        for name in search:
            if name is not None and is_here(name):
                return name
        if os.getenv("TORCH_INDUCTOR_INSTALL_GXX"):
            return str(self.search(search))
        return next((name for name in search if name is not None), NO_COMPILER)

    def is_intel(self, compiler: str) -> bool:
        """
        Returns whether it is Intel's compiler. A program with the name of GCC or Clang counts as not Intel's; for other names
        PyTorch's function decides.
        """
        return not family_of(compiler) and is_here(compiler) and bool(self.intel(compiler))

    def find_version(self, compiler: str) -> str:
        """
        Returns a compiler's version text. A compiler whose name says Clang or GCC is not run: PyTorch only looks for these
        names in the text, and for an empty text it uses the compiler's name, which is also what GCC's own text contains.
        """
        family = family_of(compiler)
        if family or not is_here(compiler):
            return "clang version" if family == "clang" else ""
        return str(self.version(compiler))

    # ---- building ----

    def build(self, builder: Any) -> None:
        is_left_out = builder._precompiling or builder._preprocessing or builder._use_relative_path
        if is_left_out or getattr(self._trial, "is_running", False) or caches_are_disabled():
            self.compile_really(builder)
            return
        target = builder.get_target_file_path()
        question = None
        with self.state.guarded(CPP):
            question = self.question_of(builder, target)
        if question is None:
            self.compile_really(builder)
        elif question.environment["compiler"] == ANY:
            self.build_without_compiler(builder, question, target)
        else:
            self.build_once(builder, question, target)

    def question_of(self, builder: Any, target: str) -> Question | None:
        """Returns the question for this build; None: it is not cached."""
        if not target.endswith(KINDS_OF_OUTPUT):
            return None
        command = words_behind(builder)
        sources, words = normalize(command, target)
        environment = self.state.environment()
        variables = [f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)]
        environment["compiler"] = ANY if self.state.any_compiler else compiler_identity(builder._compiler)
        arguments = {
            "name": name_of(command),
            "sources": " ".join(sources),
            "command": digest(" ".join([*words, *variables])),
            "output": os.path.splitext(target)[1],
        }
        return Question(CPP, arguments, environment)

    def build_without_compiler(self, builder: Any, question: Question, target: str) -> None:
        with self.state.guarded(CPP):
            if self.serve(question, builder, target):
                return
        self.state.count_miss(CPP, question.arguments["name"])
        if is_here(builder._compiler):  # any_compiler: this machine has one, and no record of it yet
            self.build_once(builder, question.with_environment(compiler=compiler_identity(builder._compiler)), target)
            return
        warn_once(
            "compile-no-compiler",
            f"aoticache: no C++ compiler here, and the cache {self.state.records.cache.directory} lacks "
            f"what this program needs ({question.arguments['name']}, for this CPU and PyTorch): fill it on a machine with a compiler",
        )
        self.search.__wrapped__((None,))  # raises PyTorch's own error
        self.compile_really(builder)

    def build_once(self, builder: Any, question: Question, target: str) -> None:
        """Compiles it in one process only. Raises the compiler's errors as PyTorch does."""
        error: BaseException | None = None
        answer: Answer | None = None

        def make() -> Answer:
            nonlocal error, answer
            try:
                self.compile_really(builder)
            except BaseException as one:
                error = one
                raise
            answer = Answer(target, self.state.producer, self.requirements(builder), in_manifest=False)
            return answer

        done = False
        with self.state.guarded(CPP):
            try:
                found, is_made = self.state.records.get_or_make(question, make)
            except BaseException as one:
                if one is error:
                    error = one
                    found, is_made = None, False
                else:
                    raise
            if found is not None:
                self.place(found.content, question, builder, target)
                done = True
            if is_made and answer is not None:
                self.state.count_miss(CPP, question.arguments["name"])
                done = True
                self.state.records.put(question.with_environment(compiler=ANY), answer)
                self.state.count_stored(CPP, question.arguments["name"], answer.compile_ns)
                self.state.used.add(question)
        if error is not None:
            raise error
        if not done and not os.path.exists(target):
            self.state.count_miss(CPP, question.arguments["name"], "the cache does not serve it")
            self.compile_really(builder)

    def serve(self, question: Question, builder: Any, target: str) -> bool:
        found = self.state.records.lookup(question)
        if found is None:
            return False
        self.place(found.content, question, builder, target)
        return True

    def place(self, content: bytes, question: Question, builder: Any, target: str) -> None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        write_file(target, content, 0o755 if target.endswith(".so") else 0o644)
        with self._lock:
            self.served[target] = builder
        self.state.count_hit(CPP, question.arguments["name"])
        self.state.used.add(question)

    def requirements(self, builder: Any) -> str:
        """Returns the CPU features that the compiler assumes with these flags, which the code may use."""
        compiler, *more = words_of(builder._compiler)
        worker = load_worker(self.state)
        flags = [word for word in words_behind(builder) if word.startswith("-m")]
        return ",".join(sorted(worker.macros_of(compiler, (*more, *flags))))

    # ---- precompiled headers ----

    def postpone_header(self, header: str, command: str, **options: Any) -> str:
        """
        Returns the header as a plain file. Precompiling runs the compiler several times and helps only compiles, so it is
        deferred to the first compile.
        """
        from torch._inductor.codecache import write

        _, path = write(f"#include <{header}>\n", "h", extra=f"aoticache {command}")
        with self._lock:
            self.headers.setdefault(path, (header, command, options))
        return str(path)

    def compile_really(self, builder: Any) -> None:
        """Compiles as PyTorch does, with the header precompiled."""
        with self._lock:
            found = next(((path, how) for path, how in self.headers.items() if path in builder._include_dirs_args), None)
        if found is not None:
            path, (header, command, options) = found
            with suppress(Exception):  # if it fails, the plain file is read
                really = self.precompile(header, command, **options)
                builder._include_dirs_args = builder._include_dirs_args.replace(path, really)
        self.compile(builder)

    # ---- loading ----

    def load(self, cls: Any, path: str, key: str) -> Any:
        """Loads a library. If one from the cache cannot be loaded here (another libc, no libgomp), compiles it."""
        with self._lock:
            builder = self.served.pop(path, None)
        if builder is None:
            return self.load_library(cls, path, key)
        try:
            return self.load_library(cls, path, key)
        except (ImportError, OSError) as error:
            self.state.count(CPP, "refused")
            warn_once(
                "compile-load",
                f"aoticache: a library of the cache cannot be loaded here ({error}); PyTorch compiles its own",
            )
            if not is_here(builder._compiler):
                raise
            with suppress(OSError):
                os.unlink(path)
            self.compile_really(builder)
            return self.load_library(cls, path, key)

    # ---- vector units ----

    def check_build(self, isa: Any, code: str) -> bool:
        """Returns whether compiler and libtorch support a vector unit. The caller has checked the processor."""
        if caches_are_disabled():
            return bool(self.try_out(isa, code))
        question = None
        with self.state.guarded(PROBE):
            question = self.question_of_probe(isa, code)
            found = self.state.records.lookup(question)
            if found is not None and found.content in (YES, NO):
                self.state.count_hit(PROBE, str(isa))
                self.state.used.add(question)
                return found.content == YES
        self.state.count_miss(PROBE, str(isa))
        if question is None or not is_here(self.builder.get_cpp_compiler()):
            return self.try_really(isa, code)
        return self.try_once(isa, code, question)

    def question_of_probe(self, isa: Any, code: str) -> Question:
        arguments = {"code": digest(code), "flags": isa._arch_flags, "macros": " ".join(isa.build_macro())}
        environment = self.state.environment()
        compiler = self.builder.get_cpp_compiler()
        environment["compiler"] = ANY if self.state.any_compiler else compiler_identity(compiler)
        return Question(PROBE, arguments, environment)

    def try_once(self, isa: Any, code: str, question: Question) -> bool:
        """Runs the trial in one process; the others wait for its result."""
        answer: bool | None = None
        own = question.with_environment(compiler=compiler_identity(self.builder.get_cpp_compiler()))
        with self.state.guarded(PROBE), ExitStack() as files:

            def make() -> Answer:
                nonlocal answer
                answer = self.try_really(isa, code)
                path = files.enter_context(file_with(YES if answer else NO))
                return Answer(path, self.state.producer)

            found, _ = self.state.records.get_or_make(own, make)
            self.state.used.add(own)
            if found is not None:
                return found.content == YES
            path = files.enter_context(file_with(YES if answer else NO))
            self.state.records.put(own.with_environment(compiler=ANY), Answer(path, self.state.producer, compile_ns=1))
            self.state.count(PROBE, "stored")
        return answer if answer is not None else self.try_really(isa, code)

    def try_really(self, isa: Any, code: str) -> bool:
        """Runs PyTorch's trial. Its library is not stored, because only the result is needed."""
        self._trial.is_running = True
        try:
            return bool(self.try_out(isa, code))
        finally:
            self._trial.is_running = False


# ---- keys ----


def digest(text: str | bytes) -> str:
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")).hexdigest()


@functools.lru_cache(maxsize=64)
def _digest_of_program(path: str, size: int, changed_ns: int) -> str:
    with open(path, "rb") as file:
        return digest(file.read())


def words_of(compiler: str) -> list[str]:
    """Splits a compiler's name into words; since PyTorch 2.14 it may have several, as in `ccache g++`."""
    from torch._inductor import cpp_builder

    if hasattr(cpp_builder, "_split_compiler_command"):
        with suppress(ValueError):  # an unclosed quotation mark, or an empty name
            return list(cpp_builder._split_compiler_command(compiler))
    return [compiler]


def words_behind(builder: Any) -> list[str]:
    """Returns the command without the compiler that it begins with."""
    return shlex.split(builder.get_command_line())[len(words_of(builder._compiler)) :]


def path_of(word: str) -> str:
    return os.path.realpath(shutil.which(word) or word)


def is_here(compiler: str) -> bool:
    return shutil.which(words_of(compiler)[0]) is not None


def family_of(compiler: str) -> str:
    """Returns `clang` or `gcc`, by the name of the program; "" for another name: then the program must be run."""
    for word in words_of(compiler):
        name = os.path.basename(path_of(word))
        found = re.search(r"(clang)|(g\+\+|gcc)", name)
        if found is not None and not word.startswith("-") and "ccache" not in name:
            return "clang" if found[1] or "clang" in name else "gcc"
    return ""


def compiler_identity(compiler: str) -> str:
    """Returns the identity of a compiler, independent of its path: the digest of its program. `any` if there is none."""
    if not is_here(compiler):
        return ANY
    words = words_of(compiler)
    path = path_of(words[0])
    status = os.stat(path)
    name = os.path.basename(path)
    identity = _digest_of_program(path, status.st_size, status.st_mtime_ns)[:32]
    # A program that starts the compiler (such as ccache): the output of the started compiler identifies it.
    if len(words) > 1 or "ccache" in name or status.st_size < 65536:
        from torch._inductor.cpp_builder import get_compiler_version_info

        identity = digest(identity + get_compiler_version_info(compiler))[:32]
    return f"{(family_of(compiler) or name)[:40]} {identity}"


def normalize(command: Sequence[str], target: str) -> tuple[list[str], list[str]]:
    """
    Returns the digests of the sources, and the words after the compiler, normalized so that they are the same on every machine:
    directories of PyTorch and Python are replaced by names, files by their contents.
    """
    sources: list[str] = []
    words: list[str] = []
    places = well_known_directories()
    rest = iter(command)
    for word in rest:
        if word == "-o":
            next(rest, None)
            continue
        if word == "-include":
            words.append(f"-include {content_of(next(rest, ''))}")
            continue
        if word[:2] in ("-I", "-L") and len(word) > 2:
            named = word[:2] + place_of(word[2:], places)
            if named not in words:
                words.append(named)
            continue
        if not word.startswith("-") and os.path.isabs(word) and os.path.isfile(word):
            sources.append(content_of(word))
            continue
        words.append(place_of(word, places))
    return sources, words


def content_of(path: str) -> str:
    with open(path, "rb") as file:
        return digest(file.read())


def well_known_directories() -> list[tuple[str, str]]:
    import torch

    paths = sysconfig.get_paths()
    directories = [
        (os.path.dirname(os.path.abspath(torch.__file__)), "<torch>"),
        (paths.get("include", ""), "<python>/include"),
        (sysconfig.get_path("include", scheme="posix_prefix") or "", "<python>/include"),
        (sysconfig.get_config_var("LIBDIR") or "", "<python>/lib"),
    ]
    return [(directory, name) for directory, name in directories if directory]


def place_of(path: str, places: Sequence[tuple[str, str]]) -> str:
    for directory, name in places:
        if is_below(path, directory):
            return name + path[len(directory) :]
    return path


def name_of(command: Sequence[str]) -> str:
    """Returns a kernel's name, human-readable. It follows from the source, so it may be part of the key."""
    for word in command:
        if word.endswith((".cpp", ".cc")) and os.path.isfile(word):
            with open(word, encoding="utf-8", errors="replace") as file:
                found = _NAME.search(file.read())
            return found[1][:200] if found else "source"
    return "link"


_worker: Any = None


def load_worker(state: State) -> Any:
    """Loads the compile worker's file as a module: it maps a compiler's macros to CPU features."""
    global _worker
    if _worker is None:
        path = state.records.library.home / "share" / "aoticache" / "worker.py"
        spec = importlib.util.spec_from_file_location("_aoticache_worker", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise AoticacheError(f"{path} is missing: the requirements of compiled code are unknown", "NOT_FOUND")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _worker = module
    return _worker
