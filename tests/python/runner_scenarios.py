"""What the runner's battery plays (test_runner_battery.py): steps for runner_players.py, written by hand for each
model, and by chance. Both keep to what PyTorch's runner has a defined answer to; a step that only ours plays says what
is to come of it.
"""
import os
import random

STEPS = int(os.environ.get("BATTERY_STEPS", "60"))
SEED = int(os.environ.get("BATTERY_SEED", "1"))
CHANGES_CONSTANTS = {"mutation"}  # by running: runs at the same time have no defined result
SEPARATE = {"separate"}
MAPPED = SEPARATE | {"appended"}  # a library whose weights lie in no blob does not say how long it would be
PARAMETER, BUFFER, TENSOR_CONSTANT, FOLDED = 1, 2, 3, 4
ALIGNMENT = 64  # of constants in a library


class Constants:
    """What a model has, and new values for it."""

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

    def facts(self):
        """What the library should tell: name, type, whether folded, bytes where it was not."""
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
        """Pairs of names and values."""
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
        """Whatever has to be done first."""
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
            for how in ("borrow", "steal", "options", "steal with options"):
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

    def swap_what_was_never_filled(self):
        for _ in range(2):
            self.steps.do("swap")
            self.run()
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
            if not self.constants.folded:  # what was folded stays as it was
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
        """By ours alone; and nothing has changed."""
        pairs = self.new()
        stranger = [["nobody_has_this", pairs[0][1]]]
        name, (dtype, sizes, strides, data) = pairs[-1]
        other_dtype = [[name, [3 if dtype != 3 else 6, [1], [1], "00000000"]]]
        too_large = [[name, [dtype, [100 * max(1, size) for size in sizes], [1] + [0] * (len(sizes) - 1),
                             data * 200]]]
        for refused in (stranger, pairs + stranger, pairs + pairs[:1], other_dtype, too_large):
            for options in ({}, {"partial": True}, {"inactive": True, "partial": True}, {"user_managed": True}):
                self.steps.do("update", only="ours", expect=["refused"], pairs=refused, **options)
        self.run()
        self.steps.do("extract", inactive=False)

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
        return self.steps

    def by_chance(self, seed, count):
        """Keeps to what is defined: knows which buffer is whole."""
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
        if constants.old:
            plays += [(f"{name}, seed {seed}", Author(name, inputs, constants, blob).by_chance(seed, STEPS))
                      for seed in (SEED, SEED + 1)]
        scenarios += [{"name": title, "model": name, "library": paths[name] + ".so", "num_models": 1 + (i != 1),
                       "steps": steps} for i, (title, steps) in enumerate(plays)]
    return scenarios
