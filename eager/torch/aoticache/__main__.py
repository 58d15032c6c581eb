"""`python -m aoticache`: doctor, stats, enable-check, compile-model; every other command is one of the C tools."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import signal
import sys

from . import _doctor, _stats, configure, explain
from ._core import caches, tools
from ._core.errors import AoticacheError


def doctor(arguments: argparse.Namespace) -> int:
    found = list(_doctor.findings())
    if arguments.json:
        print(json.dumps([dataclasses.asdict(finding) for finding in found], indent=2))
    else:
        print(_doctor.report())
    return 0 if all(finding.verdict != _doctor.FAILED for finding in found) else 1


def stats(arguments: argparse.Namespace) -> int:
    found = _stats.cache_stats(caches.open_cache(arguments.cache_dir))
    if arguments.json:
        print(json.dumps(found.to_dict(), indent=2))
        return 0
    for name, value in found.to_dict().items():
        print(f"{name:18} {value:.1f}" if isinstance(value, float) else f"{name:18} {value}")
    return 0


def enable_check(arguments: argparse.Namespace) -> int:
    verdicts = [explain(operator, arguments.device) for operator in arguments.operators]
    if arguments.json:
        print(json.dumps([dataclasses.asdict(verdict) for verdict in verdicts], indent=2))
    else:
        print("\n".join(map(str, verdicts)))
    return 0 if all(verdicts) else 1


def compile_model(arguments: argparse.Namespace) -> int:
    import torch

    from . import _models

    # Reading the file runs none of its code, but custom operators in it must be registered: import their modules first.
    for module in arguments.imports:
        importlib.import_module(module)
    model = _models.compile(
        torch.export.load(arguments.program),
        id=arguments.name,
        weights="frozen" if arguments.frozen else "apart",
        replace=arguments.replace,
        cache_dir=arguments.cache_dir,
    )
    assert isinstance(model, _models.CompiledModel)
    origin = model.origin
    if arguments.json:
        print(json.dumps(dataclasses.asdict(origin), indent=2))
        return 0
    print(f"key         {origin.key}")
    if origin.name:
        print(f"name        {origin.name}")
    print(f"source      {origin.source}")
    print(f"compiled in {origin.compile_seconds:.1f} s")
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m aoticache",
        description="PyTorch on a cache of compiled kernels.",
        epilog="Every other COMMAND is one of the tools, with its own options and exit status: gc and stat are "
        "aoticache-gc and aoticache-stat, and ls, show, why, run, warm and the like are commands of aoticache, which "
        "'python -m aoticache help' lists.",
    )
    parser.add_argument("--cache-dir", help="the cache directory; default $AOTICACHE_DIR, the configuration, ~/.cache/aoticache")
    parser.add_argument("--json", action="store_true", help="print JSON")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("doctor", help="check what is installed and what is missing; exit status 1: a check fails")
    command.set_defaults(run=doctor)
    command = commands.add_parser("stats", help="statistics of the cache, over all processes")
    command.set_defaults(run=stats)
    command = commands.add_parser("enable-check", help="whether operators can be served; exit status 1: not all")
    command.add_argument("operators", nargs="+", metavar="OPERATOR", help='"aten::abs", "aten::add.Tensor"')
    command.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    command.set_defaults(run=enable_check)
    command = commands.add_parser("compile-model", help="compiles what torch.export.save() wrote, for load()")
    command.add_argument("program", metavar="FILE", help="an exported program")
    command.add_argument("--name", help="the name to store program and weights under")
    command.add_argument("--frozen", action="store_true", help="compile the weights in")
    command.add_argument("--replace", action="store_true", help="replace a program that is stored under the name")
    command.add_argument(
        "--import", dest="imports", metavar="MODULE", action="append", default=[], help="a module with custom operators"
    )
    command.set_defaults(run=compile_model)
    return parser


OWN = ("doctor", "stats", "enable-check", "compile-model")


def tool_command(words: list[str]) -> tuple[str, list[str]] | None:
    """Returns the command of a tool and its words, including the options before it; None for a command of this module."""
    before = 0
    while before < len(words) and words[before].startswith("-"):
        if words[before].partition("=")[0] not in ("--json", "--cache-dir"):
            return None
        before += 2 if words[before] == "--cache-dir" else 1
    if before >= len(words) or words[before] in OWN:
        return None
    return words[before], [*words[:before], *words[before + 1 :]]


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    command = tool_command(words)
    if command is not None:
        return tools.run_command(*command)
    arguments = make_parser().parse_args(words)
    try:
        if arguments.cache_dir:
            configure(cache_dir=arguments.cache_dir)
        result = int(arguments.run(arguments))
        sys.stdout.flush()
        return result
    except BrokenPipeError:  # the reader is gone: ends without a message, as the C tools do
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
        return 128 + signal.SIGPIPE
    except AoticacheError as error:
        print(f"aoticache: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
