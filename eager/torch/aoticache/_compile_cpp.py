"""C++ that Inductor compiles: kernels, their Python bindings, and the trials that find out which vector units there are.

`CppBuilder.build()` is the one place where the compiler runs. Its output is found by what went into it: the sources by
their digests, the command without paths that differ between users and machines, PyTorch's version, and what the compiler
is. The CPU features that the code uses are a requirement of the entry, so one key may have code for several CPUs.

Each library is stored under two keys: one names the compiler by the digest of its program, the other says `any`. Where a
compiler is in reach, the first is asked for: another compiler's code may differ. Where there is none, the second.

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

from ._compile_state import State, caches_are_disabled, is_below
from ._errors import AoticacheError, warn_once
from ._records import CPP, PROBE, Answer, Question, file_with, write_file

ANY = "any"
NO_COMPILER = "g++"  # what commands are written for where there is none and PyTorch would look for several
KINDS_OF_OUTPUT = (".so", ".o")
YES, NO = b"yes\n", b"no\n"  # a record of a trial
#: Variables that change what a compiler makes of the same command.
VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")
_NAME = re.compile(r'extern\s+"C"[^(;{]*?\b(\w+)\s*\(')


class Cpp:
    """The replaced functions, and what they remember."""

    def __init__(self, state: State) -> None:
        from torch._inductor import codecache, cpp_builder, cpu_vec_isa

        self.state = state
        self.headers: dict[str, tuple[Any, ...]] = {}  # of a header that is not precompiled yet: how it would be
        self.served: dict[str, Any] = {}  # files that came from the cache, and what builds them anew
        self.builder, self.codecache = cpp_builder, codecache
        self._lock = threading.Lock()
        self._trial = threading.local()  # whether this thread tries out a vector unit
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
        """As PyTorch's function, without running what is found. Where there is none, a name to write commands with."""
        for name in search:
            if name is not None and is_here(name):
                return name
        if os.getenv("TORCH_INDUCTOR_INSTALL_GXX"):
            return str(self.search(search))
        return next((name for name in search if name is not None), NO_COMPILER)

    def is_intel(self, compiler: str) -> bool:
        """A program with a name of GCC's or Clang's is not Intel's; others are asked."""
        return not family_of(compiler) and is_here(compiler) and bool(self.intel(compiler))

    def find_version(self, compiler: str) -> str:
        """
        What a compiler says of itself, where its name does not say whether it is Clang or GCC. PyTorch only looks for their
        names in it; without a text it goes by the compiler's name, which is what GCC's own text has.
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
        """None: this is not cached."""
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
        self.state.count(CPP, "misses")
        if is_here(builder._compiler):  # any_compiler: there is one, and this is not known yet
            self.build_once(builder, question.with_environment(compiler=compiler_identity(builder._compiler)), target)
            return
        warn_once(
            "compile-no-compiler",
            f"aoticache: there is no C++ compiler here, and the cache {self.state.records.cache.directory} has not what "
            f"this program needs ({question.arguments['name']}, for this CPU and PyTorch): fill it on a machine with one",
        )
        self.search.__wrapped__((None,))  # says what PyTorch says
        self.compile_really(builder)

    def build_once(self, builder: Any, question: Question, target: str) -> None:
        """One process compiles it. What the compiler says is raised as PyTorch raises it."""
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
                self.state.count(CPP, "misses")
                done = True
                self.state.records.put(question.with_environment(compiler=ANY), answer)
                self.state.count(CPP, "stored")
                self.state.used.add(question)
        if error is not None:
            raise error
        if not done and not os.path.exists(target):
            self.state.count(CPP, "misses")
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
        self.state.count(CPP, "hits")
        self.state.used.add(question)

    def requirements(self, builder: Any) -> str:
        """What the compiler takes for granted under these flags: the code may use it."""
        compiler, *more = words_of(builder._compiler)
        worker = load_worker(self.state)
        flags = [word for word in words_behind(builder) if word.startswith("-m")]
        return ",".join(sorted(worker.macros_of(compiler, (*more, *flags))))

    # ---- precompiled headers ----

    def postpone_header(self, header: str, command: str, **options: Any) -> str:
        """
        The header as a plain file. Precompiling takes a compiler several runs and serves only compiles: it waits for the
        first one that happens.
        """
        from torch._inductor.codecache import write

        _, path = write(f"#include <{header}>\n", "h", extra=f"aoticache {command}")
        with self._lock:
            self.headers.setdefault(path, (header, command, options))
        return str(path)

    def compile_really(self, builder: Any) -> None:
        """PyTorch's way, with the header precompiled."""
        with self._lock:
            found = next(((path, how) for path, how in self.headers.items() if path in builder._include_dirs_args), None)
        if found is not None:
            path, (header, command, options) = found
            with suppress(Exception):  # without it the plain file is read
                really = self.precompile(header, command, **options)
                builder._include_dirs_args = builder._include_dirs_args.replace(path, really)
        self.compile(builder)

    # ---- loading ----

    def load(self, cls: Any, path: str, key: str) -> Any:
        """What came from the cache and cannot be loaded here (another libc, no libgomp) is compiled here instead."""
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
        """Whether compiler and libtorch know a vector unit. The processor was asked before, and not here."""
        if caches_are_disabled():
            return bool(self.try_out(isa, code))
        question = None
        with self.state.guarded(PROBE):
            question = self.question_of_probe(isa, code)
            found = self.state.records.lookup(question)
            if found is not None and found.content in (YES, NO):
                self.state.count(PROBE, "hits")
                self.state.used.add(question)
                return found.content == YES
        self.state.count(PROBE, "misses")
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
        """One process tries it out; the others wait for its answer."""
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
        """PyTorch's trial. Its library is not stored: nobody needs it once the answer is known."""
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
    """The words of a compiler's name; since PyTorch 2.14 it may have several, as `ccache g++`."""
    from torch._inductor import cpp_builder

    if hasattr(cpp_builder, "_split_compiler_command"):
        with suppress(ValueError):  # an open quotation mark, or nothing
            return list(cpp_builder._split_compiler_command(compiler))
    return [compiler]


def words_behind(builder: Any) -> list[str]:
    """The command without the compiler that it begins with."""
    return shlex.split(builder.get_command_line())[len(words_of(builder._compiler)) :]


def path_of(word: str) -> str:
    return os.path.realpath(shutil.which(word) or word)


def is_here(compiler: str) -> bool:
    return shutil.which(words_of(compiler)[0]) is not None


def family_of(compiler: str) -> str:
    """`clang` or `gcc`, by the name of the program; empty where it has another name, and has to be asked."""
    for word in words_of(compiler):
        name = os.path.basename(path_of(word))
        found = re.search(r"(clang)|(g\+\+|gcc)", name)
        if found is not None and not word.startswith("-") and "ccache" not in name:
            return "clang" if found[1] or "clang" in name else "gcc"
    return ""


def compiler_identity(compiler: str) -> str:
    """What a compiler is, wherever it lies: the digest of its program. `any` where there is none."""
    if not is_here(compiler):
        return ANY
    words = words_of(compiler)
    path = path_of(words[0])
    status = os.stat(path)
    name = os.path.basename(path)
    identity = _digest_of_program(path, status.st_size, status.st_mtime_ns)[:32]
    # A program that starts the compiler: what it starts says who it is.
    if len(words) > 1 or "ccache" in name or status.st_size < 65536:
        from torch._inductor.cpp_builder import get_compiler_version_info

        identity = digest(identity + get_compiler_version_info(compiler))[:32]
    return f"{(family_of(compiler) or name)[:40]} {identity}"


def normalize(command: Sequence[str], target: str) -> tuple[list[str], list[str]]:
    """
    The digests of the sources, and the words behind the compiler as they are on every machine: with
    names for the folders of PyTorch and Python, with contents in place of files.
    """
    sources: list[str] = []
    words: list[str] = []
    places = well_known_folders()
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


def well_known_folders() -> list[tuple[str, str]]:
    import torch

    paths = sysconfig.get_paths()
    folders = [
        (os.path.dirname(os.path.abspath(torch.__file__)), "<torch>"),
        (paths.get("include", ""), "<python>/include"),
        (sysconfig.get_path("include", scheme="posix_prefix") or "", "<python>/include"),
        (sysconfig.get_config_var("LIBDIR") or "", "<python>/lib"),
    ]
    return [(folder, name) for folder, name in folders if folder]


def place_of(path: str, places: Sequence[tuple[str, str]]) -> str:
    for folder, name in places:
        if is_below(path, folder):
            return name + path[len(folder) :]
    return path


def name_of(command: Sequence[str]) -> str:
    """A kernel's name, for people; it follows from the source, so that it does no harm in the key."""
    for word in command:
        if word.endswith((".cpp", ".cc")) and os.path.isfile(word):
            with open(word, encoding="utf-8", errors="replace") as file:
                found = _NAME.search(file.read())
            return found[1][:200] if found else "source"
    return "link"


_worker: Any = None


def load_worker(state: State) -> Any:
    """The compile worker's file as a module: it knows which CPU features follow from a compiler's macros."""
    global _worker
    if _worker is None:
        path = state.records.library.home / "share" / "aoticache" / "worker.py"
        spec = importlib.util.spec_from_file_location("_aoticache_worker", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise AoticacheError(f"{path} is not there: what compiled code requires is unknown", "NOT_FOUND")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _worker = module
    return _worker
