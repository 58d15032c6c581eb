"""Every operator that PyTorch registers, and every fallback, rebuilt in our dispatcher from what PyTorch dumps of them:
the dump has to read the same again, and the computed table has to have the same kernel for the same reason everywhere.

Typed kernels are registered with the signature that PyTorch prints, so all of them are checked against their schemas.
Environment: BUILD.
"""
import collections
import re
import sys
import time

import torch

import dispatch_host
import dispatch_players

C = torch._C
KERNEL = re.compile(r"(\w+?)(\[alias\])?( \(inactive\))?: (.*?) :: (.*) \[ (.*) \]")
DEFINED = re.compile(r"registered at (.*):(\d+)")
# What PyTorch's older interface writes in place of file and line; ours always has those.
OLDER, OLDER_HERE = "debug: registered by RegisterOperators", "debug: registered at file.py:1"


class Operator:
    """What a dump says. kernels: (key, text, signature or None, falls through): of one key the newest first."""

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
    """Libraries, one for each place that registered something."""

    def __init__(self, player):
        self.player, self.libraries, self.kernels, self.keys = player, {}, 0, collections.Counter()

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
            self.keys[key] += 1


class Failures:
    def __init__(self):
        self.shown, self.counts = collections.Counter(), collections.Counter()

    def add(self, what, text):
        self.counts[what] += 1
        if self.counts[what] <= 5:
            print(f"not ok - {what}: {text}", flush=True)

    def same(self, what, name, theirs, ours):
        if theirs == ours:
            return
        lines = [f"\n    PyTorch: {mine}\n    ours:    {other}"
                 for mine, other in zip(theirs.splitlines(), ours.splitlines()) if mine != other]
        self.add(what, name + "".join(lines[:4]) if lines else f"{name}: {len(theirs)} characters against {len(ours)}")


def compare_operators(operators, player, failures):
    for operator in operators:
        failures.same("dump", operator.name, operator.dump, player.dump(operator.name).rstrip("\n"))
        failures.same("table", operator.name, C._dispatch_dump_table(operator.name), player.dump_table(operator.name))


def compare_lists(operators, player, failures):
    names = sorted(operator.name for operator in operators)
    failures.same("list of names", "all", "\n".join(names), "\n".join(sorted(player.dispatcher.names())))
    for key in sorted({key for operator in operators for key, *_ in operator.kernels}):
        try:
            theirs = C._dispatch_get_registrations_for_dispatch_key(key)
        except RuntimeError:
            continue  # a key that PyTorch's Python has no name for
        failures.same("registrations", key, "\n".join(sorted(theirs)),
                      "\n".join(sorted(player.dispatcher.registrations(key))))
    for number in range(156):
        name = dispatch_host.key_name(number)
        if name in C.DispatchKey.__members__ and dispatch_host.NUMBERS[name] == number:
            theirs = C._dispatch_has_backend_fallback(C.DispatchKey.__members__[name])
            if theirs != player.dispatcher.has_fallback(number):
                failures.add("has_fallback", f"{name}: {theirs} in PyTorch")


def main():
    if dispatch_players.skip_reason():
        print(f"skip - dispatcher operators: {dispatch_players.skip_reason()}")
        return 77
    begun, failures, player = time.monotonic(), Failures(), dispatch_players.OwnPlayer()
    fallbacks = dispatch_players.built_in_fallbacks()
    operators = [Operator(C._dispatch_dump(name)) for name in C._dispatch_get_all_op_names()]
    builder = Builder(player)
    for operator in operators:
        try:
            builder.build(operator)
        except dispatch_host.Refused as refused:
            failures.add("refused", f"{operator.name}: {refused}")
    player.copy_fallbacks(fallbacks)
    compare_operators(operators, player, failures)
    compare_lists(operators, player, failures)
    if player.check_all() != "done":
        failures.add("check", player.message)
    player.close()
    if failures.counts:
        print(f"not ok - {dict(failures.counts)} differences")
        return 1
    print(f"ok - {len(operators)} operators with {builder.kernels} kernels and {len(fallbacks)} fallbacks have the "
          f"same dumps and tables ({time.monotonic() - begun:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
