"""Rebuilds every operator that PyTorch registers, and every fallback, in our dispatcher from PyTorch's dumps. The dump
of ours must read the same, and the computed table must have the same kernel for the same reason in each entry.

Typed kernels are registered with the signature that PyTorch prints, so all of them are checked against their schemas.
Environment: BUILD.
"""
import re

import pytest
import torch

import dispatch_host
import dispatch_players

pytestmark = pytest.mark.quick
C = torch._C
LEFT_OUT = {"_dtensor::mesh_get_process_group"}  # its schema has a type that PyTorch's parser cannot parse either
KERNEL = re.compile(r"(\w+?)(\[alias\])?( \(inactive\))?: (.*?) :: (.*) \[ (.*) \]")
DEFINED = re.compile(r"registered at (.*):(\d+)")
# PyTorch's older interface writes this instead of file and line; ours always writes file and line.
OLDER, OLDER_HERE = "debug: registered by RegisterOperators", "debug: registered at file.py:1"


class Operator:
    """The contents of a dump. kernels: (key, text, signature or None, falls through); for one key the newest first."""

    def __init__(self, dump):
        lines = dump.splitlines()
        self.name = lines[0].removeprefix("name: ")
        self.namespace = self.name.partition("::")[0]
        self.schema = lines[1].removeprefix("schema: ")
        self.file, self.line, self.alias, rest = "file.py", 1, None, lines[2:]
        if self.schema == "(none)":
            self.schema = None
        else:
            lines[2] = OLDER_HERE if lines[2] == OLDER else lines[2]
            self.file, self.line = DEFINED.fullmatch(lines[2].removeprefix("debug: ")).groups()
            self.alias, rest = lines[3].removeprefix("alias analysis kind: "), lines[4:]
        self.kernels = [self.kernel(line) for line in rest]
        self.dump = "\n".join(lines)

    @staticmethod
    def kernel(line):
        key, _alias, _inactive, text, signature, kinds = KERNEL.fullmatch(line).groups()
        return key, text, None if signature == "(none)" else signature, "fallthrough" in kinds


class Builder:
    """Makes libraries, one for each location that registered something."""

    def __init__(self, player):
        self.player, self.libraries, self.kernels = player, {}, 0

    def library(self, operator):
        place = operator.namespace, operator.file, operator.line
        if place not in self.libraries:
            library = self.player.dispatcher.oplib("FRAGMENT", operator.namespace, None, operator.file,
                                                   int(operator.line))
            self.libraries[place] = self.player.libraries[len(self.libraries)] = library
        return self.libraries[place]

    def build(self, operator):
        library = self.library(operator)
        if operator.schema:
            library.define(operator.schema, operator.alias)
        for key, text, signature, falls_through in reversed(operator.kernels):
            self.player.keep(library.impl, operator.name, function=self.player.note(text), signature=signature,
                             debug=text, fallthrough=falls_through, key=dispatch_host.NUMBERS[key])
            self.kernels += 1


def difference(what, theirs, ours):
    """Returns nothing, or the lines that differ."""
    if theirs == ours:
        return []
    lines = [f"{what}: PyTorch has {mine!r}, ours {other!r}"
             for mine, other in zip(theirs.splitlines(), ours.splitlines()) if mine != other]
    return lines[:4] or [f"{what}: {len(theirs)} characters against {len(ours)}"]


@pytest.fixture(scope="module")
def built():
    """Yields PyTorch's operators and a player that has all of them; at the end checks that each kernel was released
    once."""
    if dispatch_players.skip_reason():
        pytest.skip(dispatch_players.skip_reason())
    player = dispatch_players.OwnPlayer()
    fallbacks = dispatch_players.built_in_fallbacks()
    operators = [Operator(C._dispatch_dump(name)) for name in C._dispatch_get_all_op_names()
                 if name not in LEFT_OUT]
    builder = Builder(player)
    for operator in operators:
        builder.build(operator)  # none may be refused
    player.copy_fallbacks(fallbacks)
    print(f"{len(operators)} operators with {builder.kernels} kernels and {len(fallbacks)} fallbacks")
    yield operators, player
    player.close()


def test_dumps(built):
    operators, player = built
    wrong = [line for operator in operators
             for line in difference(operator.name, operator.dump, player.dump(operator.name).rstrip("\n"))]
    assert not wrong, wrong[:20]


def test_tables(built):
    operators, player = built
    wrong = [line for operator in operators
             for line in difference(operator.name, C._dispatch_dump_table(operator.name), player.dump_table(operator.name))]
    assert not wrong, wrong[:20]


def test_lists(built):
    operators, player = built
    names = sorted(operator.name for operator in operators)
    wrong = difference("all names", "\n".join(names), "\n".join(sorted(player.dispatcher.names())))
    for key in sorted({key for operator in operators for key, *_ in operator.kernels}):
        try:
            theirs = C._dispatch_get_registrations_for_dispatch_key(key)
        except RuntimeError:
            continue  # a key without a name in PyTorch's Python
        wrong += difference(f"registrations of {key}", "\n".join(sorted(set(theirs) - LEFT_OUT)),
                            "\n".join(sorted(player.dispatcher.registrations(key))))
    assert not wrong, wrong[:20]


def test_fallbacks(built):
    for number in range(156):
        name = dispatch_host.key_name(number)
        if name in C.DispatchKey.__members__ and dispatch_host.NUMBERS[name] == number:
            theirs = C._dispatch_has_backend_fallback(C.DispatchKey.__members__[name])
            assert theirs == built[1].dispatcher.has_fallback(number), f"{name}: {theirs} in PyTorch"


def test_own_check(built):
    assert built[1].check_all() == "done", built[1].message
