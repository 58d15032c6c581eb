"""The scenarios of the runner's test suite (test_runner_battery.py): steps for runner_players.py, written by hand for
each model, and random ones. Both use only calls whose results PyTorch's runner defines; a step that only our runner
executes also has the expected result.
"""
import os
import random

from runner_tensors import ELEMENT_BYTES, span

STEPS = int(os.environ.get("BATTERY_STEPS", "60"))
SEED = int(os.environ.get("BATTERY_SEED", "1"))
CHANGES_CONSTANTS = {"mutation"}  # when run: concurrent runs have no defined result
SEPARATE = {"separate"}
MAPPED = SEPARATE | {"appended"}  # without a blob, a library does not report how long it would be
PARAMETER, BUFFER, TENSOR_CONSTANT, FOLDED = 1, 2, 3, 4
WRONG_WIDTH = 1009
ALIGNMENT = 64  # alignment of constants in a library


class Constants:
    """The constants of a model, and new values for them."""

    def __init__(self, torch, tensors, module, path, has_blob):
        runner = torch._C._aoti.AOTIModelContainerRunnerCpu(path + ".so", 1)
        if has_blob:
            runner.update_constant_buffer_from_blob(path + ".blob")
        self.fqns = runner.get_constant_names_to_original_fqns()
        held = runner.extract_constants_map(False)
        self.old = {name: held[fqn].clone() for name, fqn in sorted(self.fqns.items()) if fqn in held}
        self.folded = len(self.old) < len(self.fqns)
        self.torch, self.tensors, self.module = torch, tensors, module
        self.strides = {name: held[self.fqns[name]].stride() for name in self.old}
        types = {name: kind for name, kind, _, _ in self.facts()}
        self.optional = [name for name in self.old if types[name] in (BUFFER, TENSOR_CONSTANT)]

    def facts(self):
        """Returns what the library should report: name, type, whether folded, and the bytes if it was not folded."""
        types = {**{name: PARAMETER for name, _ in self.module.named_parameters()},
                 **{name: BUFFER for name, _ in self.module.named_buffers()}}
        facts = []
        for name, fqn in sorted(self.fqns.items()):
            old = self.old.get(name)
            if old is None:
                facts.append([name, FOLDED, True, None])
            else:
                used = old.untyped_storage().nbytes()
                facts.append([name, types.get(fqn, TENSOR_CONSTANT), False, -(-used // ALIGNMENT) * ALIGNMENT])
        return facts

    def new(self, seed, names=None, by_fqn=False):
        """Returns pairs of names and values."""
        generator = self.torch.Generator().manual_seed(seed)
        pairs = []
        for name in names if names is not None else list(self.old):
            old = self.old[name]
            number = self.torch.randint(-4, 5, (old.numel(),), generator=generator)
            value = self.torch.empty_strided(old.shape, self.strides[name], dtype=old.dtype)
            value.copy_(number.reshape(old.shape).to(old.dtype))
            pairs.append([self.fqns[name] if by_fqn else name, self.tensors.describe(value)])
        return pairs


class Steps(list):
    def do(self, method, only=None, expect=None, **arguments):
        step = {"method": method, "arguments": arguments}
        self.append({**step, **({"only": only} if only else {}), **({"expect": expect} if expect else {})})


class Author:
    """Writes the steps of one model."""

    def __init__(self, name, inputs, constants, blob):
        self.name, self.inputs, self.constants, self.blob = name, inputs, constants, blob
        self.seed, self.steps = 0, Steps()

    def new(self, names=None, by_fqn=False):
        self.seed += 1
        return self.constants.new(self.seed, names, by_fqn)

    def run(self, how="borrow", which=0):
        self.steps.do("run", inputs=self.inputs[which % len(self.inputs)], how=how)

    def start(self):
        """Writes the steps that must come first."""
        if self.blob:
            self.steps.do("blob_bytes", only="ours", expect=["ok", os.path.getsize(self.blob)])
            self.steps.do("run", only="ours", expect=["refused", "has no value"], inputs=self.inputs[0])
            self.steps.do("blob", only="ours", expect=["refused"], path=self.blob, cut=64)
            self.steps.do("blob", path=self.blob)

    def ask_and_run(self):
        self.steps.do("describe")
        self.steps.do("constant_facts", only="ours", expect=["ok", self.constants.facts()])
        if self.name not in MAPPED:
            self.steps.do("blob_bytes", only="ours", expect=["refused"])
        self.start()
        self.steps.do("extract", inactive=False)
        for which in range(len(self.inputs)):
            for how in ("borrow", "options", "steal"):
                self.run(how, which)
        if self.inputs[0]:
            self.steps.do("run", inputs=self.inputs[0][:-1], how="borrow")
            self.steps.do("run", inputs=self.inputs[0][:-1], how="steal")
        extra = self.inputs[0][:1] or [[6, [1], [1], "00000000"]]
        self.steps.do("run", inputs=self.inputs[0] + extra, how="borrow")
        self.run()
        if self.name not in CHANGES_CONSTANTS:
            self.steps.do("run_in_threads", inputs=self.inputs[0])
        self.run(which=1)
        self.fail_in_a_kernel()

    def fail_in_a_kernel(self):
        """Runs with sizes that do not fit; the message has the reason that PyTorch or the shim gave, with these
        sizes."""
        if self.name != "linear":
            return
        dtype, sizes, _, data = self.inputs[0][0]
        wrong = [dtype, [sizes[0], WRONG_WIDTH], [WRONG_WIDTH, 1], (data * 100)[:8 * sizes[0] * WRONG_WIDTH]]
        for how in ("borrow", "steal"):
            self.steps.do("run", only="ours", expect=["refused", str(WRONG_WIDTH)], inputs=[wrong], how=how)
        self.run()

    def swap_what_was_never_filled(self):
        for _ in range(2):
            self.steps.do("swap")
            self.run()
        self.steps.do("extract", inactive=True)
        for name in self.constants.old:  # the others cannot take a value from the active buffer
            pairs = self.new([name])
            self.alike([("update", {"pairs": pairs, "partial": True})],
                       [("swap", {}), ("update", {"pairs": pairs, "inactive": True, "partial": True}), ("swap", {})])
        self.steps.do("extract", inactive=False)
        self.steps.do("extract", inactive=True)

    def update_active(self):
        names = list(self.constants.old)
        for name in names:
            self.steps.do("update", pairs=self.new([name]), partial=True)
            self.run()
            self.steps.do("update", pairs=self.new([other for other in names if other != name]))
            self.run()
        for options in ({}, {"by_fqn": True}, {"from_cpu": True}, {"partial": True}):
            self.steps.do("update", pairs=self.new(by_fqn="by_fqn" in options), **options)
            self.run()
            self.steps.do("extract", inactive=False)
        self.steps.do("fold", inactive=False)
        self.run(which=1)

    def update_inactive(self):
        self.steps.do("update", pairs=self.new(), inactive=True)
        self.steps.do("extract", inactive=True)
        self.run()
        self.steps.do("swap")
        self.run()
        self.steps.do("update", pairs=self.new(list(self.constants.old)[:1]), inactive=True, partial=True)
        self.steps.do("fold", inactive=True)
        self.run()
        self.steps.do("swap")
        self.run()
        self.steps.do("extract", inactive=False)
        self.steps.do("extract", inactive=True)
        if self.name not in CHANGES_CONSTANTS:
            self.steps.do("run_in_threads", inputs=self.inputs[0])

    def use_the_users_memory(self):
        for inactive in (False, True):
            self.steps.do("update", pairs=self.new(), user_managed=True, inactive=inactive)
            if inactive:
                self.steps.do("swap")
            self.run()
            if not self.constants.folded:  # folded constants keep their values
                self.steps.do("poke")
                self.run()
            self.steps.do("extract", inactive=False)
        for inactive in (False, True):
            self.steps.do("update", pairs=self.new(), inactive=inactive)
        self.run()

    def free(self):
        self.steps.do("free_inactive")
        self.run()
        self.steps.do("swap")
        self.run()
        self.run("steal")
        self.steps.do("swap")
        self.run()
        self.steps.do("update", pairs=self.new(), inactive=True)
        self.steps.do("swap")
        self.run()

    def be_refused(self):
        """Writes updates that only our runner refuses, and checks that they change nothing."""
        pairs = self.new()
        stranger = [["nobody_has_this", pairs[0][1]]]
        name, (dtype, sizes, strides, data) = pairs[-1]
        other_dtype = [[name, [3 if dtype != 3 else 6, [1], [1], "00000000"]]]
        too_large = [[name, [dtype, [100 * max(1, size) for size in sizes], [1] + [0] * (len(sizes) - 1),
                             data * 200]]]
        for refused in (stranger, pairs + stranger, pairs + pairs[:1], other_dtype, too_large, *self.misfits(pairs)):
            for options in ({}, {"partial": True}, {"inactive": True, "partial": True}, {"user_managed": True}):
                self.steps.do("update", only="ours", expect=["refused"], pairs=refused, **options)
        self.run()
        self.steps.do("extract", inactive=False)

    def misfits(self, pairs):
        """Returns lists of pairs in which the last value has as many bytes as its constant, or fewer, and another
        shape."""
        name, (dtype, sizes, strides, data) = pairs[-1]
        element, count = ELEMENT_BYTES[dtype], span(sizes, strides)
        shapes = [([0] + sizes[1:], strides), ([count] + [1] * len(sizes), [1] * (len(sizes) + 1)),
                  ([max(1, sizes[0] // 2)] + sizes[1:], strides), (sizes[:-1] + [2, 1], strides + [1]),
                  ([1] * 10 + sizes, [1] * 10 + strides), (sizes, [0] * len(sizes))]
        if len(sizes) > 1:
            shapes += [([count], [1]), (sizes[::-1], strides), (sizes, strides[::-1])]
        return [pairs[:-1] + [[name, [dtype, one, steps, (data * 100)[:2 * element * span(one, steps)]]]]
                for one, steps in shapes if (one, steps) != (sizes, strides)]

    def alike(self, torch, ours):
        """Writes steps that PyTorch's runner does not survive (ours), and steps with which it reaches the same state
        (torch)."""
        for only, steps in (("torch", torch), ("ours", ours)):
            for method, arguments in steps:
                expect = {} if only == "torch" else {"expect": arguments.pop("expect", ["ok", None])}
                self.steps.do(method, only=only, **expect, **arguments)
        self.run()

    def update_from_slices(self):
        for options in ({}, {"partial": True}, {"inactive": True}, {"from_cpu": True}):
            pairs = self.new()
            self.alike([("update", {"pairs": pairs, **options})],
                       [("update", {"pairs": pairs, "sliced": True, **options})])
            if "inactive" in options:
                self.steps.do("swap")
                self.run()
            self.steps.do("extract", inactive=False)
        pairs = self.new()
        self.alike([("update", {"pairs": pairs})], [("update", {"pairs": pairs, "sliced": True, "user_managed": True})])

    def free_what_was_folded(self):
        """PyTorch's runner frees nothing in these steps; afterwards both have the same constants."""
        for _ in range(2):
            self.steps.do("update", pairs=self.new(), inactive=True)
            self.steps.do("fold", inactive=True)
            self.steps.do("swap")
            self.alike([], [("free_inactive", {}), ("extract", {"inactive": True, "expect": ["ok", []]}),
                            ("fold", {"inactive": True, "expect": ["refused", "has no value"]})])
        pairs = self.new()
        half = len(pairs) // 2
        self.alike([("update", {"pairs": pairs, "inactive": True})],
                   [("update", {"pairs": pairs[half:], "inactive": True, "partial": True}),
                    ("update", {"pairs": pairs[:half], "inactive": True, "partial": True})])
        self.steps.do("update", pairs=pairs, inactive=True)
        self.steps.do("extract", inactive=True)
        self.steps.do("swap")
        self.run()

    def leave_out_what_no_buffer_has(self):
        names, optional = list(self.constants.old), self.constants.optional
        needed = [name for name in names if name not in optional]
        refused = ["refused", "has no value"]
        self.steps.do("update", pairs=self.new())
        one, other = self.new(), self.new(needed)
        self.steps.do("update", pairs=one, inactive=True)
        whole = [pair for pair in one if pair[0] in optional] + other
        if needed and optional:  # omitted ones keep their values if the active buffer has none to copy
            self.alike([("update", {"pairs": other, "partial": True})],
                       [("free_inactive", {}), ("swap", {}),
                        ("update", {"pairs": other, "inactive": True}), ("swap", {})])
            self.steps.do("extract", inactive=False)
            rest = self.new(optional)
            self.alike([("update", {"pairs": whole})],  # so that both have the same values again
                       [("update", {"pairs": whole})])
            self.alike([("update", {"pairs": other + rest})],
                       [("swap", {}), ("update", {"pairs": other}),
                        ("run", {"inputs": self.inputs[0], "expect": refused}),
                        ("extract", {"inactive": False, "expect": ["ok", self.described(other)]}),
                        ("update", {"pairs": rest, "partial": True})])
            self.steps.do("extract", inactive=False)

    def described(self, pairs):
        return sorted([self.constants.fqns[name], spec] for name, spec in pairs)

    def lend_part_of_the_inactive_buffer(self):
        """Constants that are not named become copies of the active buffer's current values."""
        optional = self.constants.optional
        for names in ([name for name in self.constants.old if name not in optional], list(self.constants.old)[:-1]):
            pairs = self.new(names)
            self.steps.do("update", pairs=self.new(), inactive=True)
            self.alike([("update", {"pairs": pairs, "inactive": True, "partial": True})],
                       [("update", {"pairs": pairs, "inactive": True, "partial": True, "user_managed": True})])
            self.steps.do("update", pairs=self.new())
            self.steps.do("extract", inactive=True)
            self.run()
            self.steps.do("swap")
            self.run()

    def give_the_blob_again(self):
        old = [[name, self.constants.tensors.describe(value)] for name, value in self.constants.old.items()]
        for swapped in (False, True):
            self.steps.do("update", pairs=self.new())
            self.run()
            self.alike([("update", {"pairs": old})], [("blob", {"path": self.blob})])
            self.run()
            self.steps.do("extract", inactive=False)
            self.steps.do("update", pairs=self.new(), inactive=True)
            self.steps.do("swap")
            self.run()

    def abuse(self):
        self.update_from_slices()
        self.free_what_was_folded()
        self.leave_out_what_no_buffer_has()
        self.lend_part_of_the_inactive_buffer()
        if self.blob:
            self.give_the_blob_again()

    def without_a_blob(self):
        """Weights are given by name only: the library reports sizes only if it has some."""
        pairs, run = self.new(), ("run", {"inputs": self.inputs[0], "expect": ["refused", "has no value"]})
        for refused in self.misfits(pairs):
            for user_managed in (False, True):
                self.steps.do("update", only="ours", expect=["refused"], pairs=refused, user_managed=user_managed)
                self.steps.do(run[0], only="ours", **run[1])
        self.steps.do("update", pairs=pairs)
        self.run()
        self.steps.do("extract", inactive=False)
        self.steps.do("blob", only="ours", expect=["refused", "before the blob was set"], path=self.blob)
        self.run()
        self.be_refused()
        return self.steps

    def by_hand(self):
        self.ask_and_run()
        if self.constants.old:
            self.swap_what_was_never_filled()
            self.update_active()
            self.update_inactive()
            self.use_the_users_memory()
            self.be_refused()
            if not self.constants.folded:
                self.free()
            self.abuse()
        return self.steps

    def by_chance(self, seed, count):
        """Writes random steps with defined results: it tracks which buffer is complete."""
        chance, names = random.Random(seed), list(self.constants.old)
        whole = {"active": True, "inactive": False}
        self.seed = seed * 1000
        self.start()
        while len(self.steps) < count:
            what = chance.choice(("run", "run", "update", "update", "fold", "swap", "extract", "threads", "free",
                                  "poke"))
            inactive = chance.random() < 0.5
            buffer = "inactive" if inactive else "active"
            if what == "run":
                self.run(chance.choice(("borrow", "steal", "options")), chance.randrange(9))
            elif what == "update":
                full = chance.random() < 0.6
                managed = chance.random() < 0.2 and (full or not inactive)
                some = names if full else chance.sample(names, chance.randrange(len(names) + 1))
                if full or whole[buffer]:
                    self.steps.do("update", pairs=self.new(some), inactive=inactive, partial=not full,
                                  user_managed=managed)
                    whole[buffer] = True
            elif what == "fold" and whole[buffer]:
                self.steps.do("fold", inactive=inactive)
            elif what == "swap" and whole["inactive"]:
                self.steps.do("swap")
            elif what == "extract" and whole[buffer]:
                self.steps.do("extract", inactive=inactive)
            elif what == "threads" and self.name not in CHANGES_CONSTANTS:
                self.steps.do("run_in_threads", inputs=self.inputs[0])
            elif what == "poke":
                self.steps.do("poke")
            elif what == "free" and not self.constants.folded:
                self.steps.do("free_inactive")
                whole["inactive"] = False
        return self.steps


def write_scenarios(torch, tensors, models, paths):
    scenarios = []
    for name, model in models.items():
        blob = paths[name] + ".blob" if name in SEPARATE else None
        constants = Constants(torch, tensors, model.module, paths[name], blob is not None)
        inputs = [[tensors.describe(one) for one in given if isinstance(one, torch.Tensor)] for given in model.inputs]
        plays = [(name, Author(name, inputs, constants, blob).by_hand())]
        if blob:
            plays.append((f"{name}, without a blob", Author(name, inputs, constants, blob).without_a_blob()))
        if constants.old:
            plays += [(f"{name}, seed {seed}", Author(name, inputs, constants, blob).by_chance(seed, STEPS))
                      for seed in (SEED, SEED + 1)]
        scenarios += [{"name": title, "model": name, "library": paths[name] + ".so", "num_models": 1 + (i != 1),
                       "steps": steps} for i, (title, steps) in enumerate(plays)]
    return scenarios
