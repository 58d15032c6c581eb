"""Compares eager/dispatch/dispatch_key.h with PyTorch's dispatch keys, key sets and thread-local sets.

The test uses torch._C if it offers a function. Functions that only C++ has (the runtime set of an alias key, the
autograd key of a backend) are called in libc10 by their symbols. Environment: BUILD, the build directory.
"""
import ctypes
import os
import random
import re
import warnings

import pytest
import torch

from c_types import Error

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../eager/dispatch/dispatch_key_list.h")
SETS = 4000
NUMBERS = range(160)  # including numbers after the last key
DEVICES = ("cpu cuda mkldnn opengl opencl ideep hip fpga maia xla vulkan metal xpu mps meta hpu ve lazy ipu mtia "
           "privateuseone privateuse1 ort cuda:1 cpu: cpu:-1 CPU jit none").split() + ["", " cpu", "cpu ", "c", "cp"]
UNKNOWN = ("nope cpu cuda autograd CPUTensorId DefaultBackend CatchAll Autocast StartOfDenseBackends "
           "EndOfFunctionalityKeys EndOfDenseBackends InvalidBit CPUBit PrivateUse1_PreAutograd UnknownUnknown "
           "QuantizedUndefined DenseCPU 49 UNKNOWN_TENSOR_TYPE_ID AutogradHIP AutogradCPU2").split()
UNKNOWN += ["", " CPU", "CPU ", "CPU,CUDA", "CPU\nCUDA", "CP\u00dc", "C" * 5000]


pytestmark = pytest.mark.quick


class Local(ctypes.Structure):
    _fields_ = [("included", ctypes.c_uint64), ("excluded", ctypes.c_uint64)]


KEY, SET, BOOL, TEXT = ctypes.c_int32, ctypes.c_uint64, ctypes.c_bool, ctypes.c_char_p
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, KEY)
PARSE = [TEXT, ctypes.POINTER(KEY), ctypes.POINTER(Error)]

# name: result, arguments
FUNCTIONS = {
    "dispatch_key_name": (TEXT, [KEY]), "dispatch_key_parse": (ctypes.c_int, PARSE),
    "dispatch_key_for_device": (ctypes.c_int, PARSE), "dispatch_key_is_alias": (BOOL, [KEY]),
    "dispatch_key_is_runtime": (BOOL, [KEY]), "dispatch_key_is_backend": (BOOL, [KEY]),
    "dispatch_key_in_alias": (BOOL, [KEY, KEY]), "dispatch_key_functionality": (KEY, [KEY]),
    "dispatch_key_of": (KEY, [KEY, ctypes.c_int32]), "dispatch_key_backend": (ctypes.c_int32, [KEY]),
    "dispatch_num_backends": (ctypes.c_int32, []), "dispatch_num_entries": (ctypes.c_int32, []),
    "dispatch_key_entry": (ctypes.c_int32, [KEY]), "dispatch_key_of_entry": (KEY, [ctypes.c_int32]),
    "dispatch_key_autograd_of": (KEY, [KEY]), "key_set_of": (SET, [KEY]), "key_set_full": (SET, []),
    "key_set_full_after": (SET, [KEY]), "key_set_add": (SET, [SET, KEY]), "key_set_remove": (SET, [SET, KEY]),
    "key_set_or": (SET, [SET, SET]), "key_set_and": (SET, [SET, SET]), "key_set_minus": (SET, [SET, SET]),
    "key_set_has": (BOOL, [SET, KEY]), "key_set_highest": (KEY, [SET]), "key_set_entry": (ctypes.c_int32, [SET]),
    "key_set_list": (None, [SET, CALLBACK, ctypes.c_void_p]),
    "key_set_format": (ctypes.c_size_t, [SET, TEXT, ctypes.c_size_t]), "key_set_of_alias": (SET, [KEY]),
    "key_set_backends_of_autograd": (SET, [KEY]), "key_set_autogradother_backends": (SET, []),
    "key_set_of_tensor": (SET, [KEY, BOOL]), "dispatch_get_local": (Local, []),
    "dispatch_set_local": (None, [Local]), "dispatch_include": (None, [KEY, BOOL]),
    "dispatch_exclude": (None, [KEY, BOOL]), "dispatch_add_local": (Local, [SET, SET]),
}
# Inline functions of the header: symbols of tests/helpers/whole/inline_functions.c.
INLINE = ("key_set_has", "key_set_remove", "key_set_full_after", "key_set_highest", "dispatch_include",
          "dispatch_exclude", "dispatch_add_local")


class Ours:
    """Makes aoticache_NAME available as ours.NAME."""
    def __init__(self):
        library = ctypes.CDLL(os.path.join(BUILD, "tests", "helpers", "libaoticache_whole.so"))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, ("inline_" if name in INLINE else "aoticache_") + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def read(self, function, text):
        """Returns a key or a message."""
        key, error = KEY(-7), Error()
        status = function(text.encode(), ctypes.byref(key), ctypes.byref(error))
        if status == 0:
            return key.value
        assert (status, error.status, key.value) == (2, 2, -7), (text, status, error.message, key.value)
        return error.message.decode()

    def text(self, raw):
        size = self.key_set_format(raw, None, 0)
        buffer = ctypes.create_string_buffer(size + 1)
        assert self.key_set_format(raw, buffer, size + 1) == size
        return buffer.value.decode()

    def dispatch_included(self):
        return self.dispatch_get_local().included

    def dispatch_excluded(self):
        return self.dispatch_get_local().excluded

    def keys(self, raw):
        found = []
        self.key_set_list(raw, CALLBACK(lambda user, key: found.append(key) or True), None)
        return found


class Theirs:
    """PyTorch's functions, with numbers for keys and raw representations for sets."""
    def __init__(self, torch):
        self.c, self.torch = torch._C, torch
        c10 = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
        for name, symbol, result, arguments in (
                ("name", "_ZN3c108toStringENS_11DispatchKeyE", TEXT, 1),
                ("of_alias", "_ZN3c1024getRuntimeDispatchKeySetENS_11DispatchKeyE", SET, 1),
                ("is_backend", "_ZN3c1020isBackendDispatchKeyENS_11DispatchKeyE", BOOL, 1),
                ("autograd_of", "_ZN3c1025getAutogradKeyFromBackendENS_16BackendComponentE", ctypes.c_uint16, 1)):
            function = getattr(c10, symbol)
            function.restype, function.argtypes = result, [ctypes.c_uint16] * arguments
            setattr(self, name, function)

    def key(self, number):
        return self.c.DispatchKey(number)

    def set(self, raw):
        return self.c.DispatchKeySet.from_raw_repr(raw)

    def kept(self):
        """Returns a context that restores this thread's current sets."""
        return self.c._ForceDispatchKeyGuard(self.c._dispatch_tls_local_include_set(),
                                             self.c._dispatch_tls_local_exclude_set())

    def text(self, raw):
        return self.c._dispatch_keyset_to_string(self.set(raw))


def different(name, wanted, found, *about):
    return [] if wanted == found else [f"{name} {about}: {found!r}, PyTorch {wanted!r}"]


# ---- single keys ----

def check_names(ours, theirs):
    wrong = []
    for number in [*NUMBERS, 65535]:
        wrong += different("name", theirs.name(number), ours.dispatch_key_name(number), number)
    wrong += different("name", b"UnknownUnknown", ours.dispatch_key_name(-1), -1)
    members = {name: int(key) for name, key in theirs.c.DispatchKey.__members__.items()
               if not name.startswith(("StartOf", "EndOf"))}
    for name, number in members.items():
        wrong += different("number", name.encode(), ours.dispatch_key_name(number), number)
    return wrong + ([] if len(members) > 120 else ["PyTorch shows too few keys"]), f"{len(members)} keys"


def check_parsing(ours, theirs):
    wrong, refused = [], 0
    for text in {theirs.name(number).decode() for number in NUMBERS} | set(UNKNOWN):
        wanted, found = theirs.c._parse_dispatch_key(text), ours.read(ours.dispatch_key_parse, text)
        if wanted is not None:
            wrong += different("parse", int(wanted), found, text)
        elif not isinstance(found, str) or len(found.splitlines()) != 1:
            wrong.append(f"{text[:40]!r} is read as {found}, PyTorch refuses it")
        refused += wanted is None
    for text, suggestion in (("cpu", "CPU"), ("AutogradCpu", "AutogradCPU"), ("BackendSelct", "BackendSelect"),
                             ("CompositImplicitAutograd", "CompositeImplicitAutograd"),
                             ("SparseCSRCUDA", "SparseCsrCUDA")):
        found = ours.read(ours.dispatch_key_parse, text)
        if f"did you mean {suggestion}?" not in str(found):
            wrong.append(f"{text}: {found}")
    if "did you mean" in ours.read(ours.dispatch_key_parse, "completely different"):
        wrong.append("a name that is near to none gets a suggestion")
    return wrong, f"{refused} of them refused"


def check_kinds(ours, theirs):
    wrong = different("backends", theirs.c._dispatch_num_backends(), ours.dispatch_num_backends())
    for number in range(156):
        key = theirs.key(number)
        wrong += different("is_alias", theirs.c._dispatch_is_alias_key(key), ours.dispatch_key_is_alias(number), number)
        wrong += different("of", theirs.c.DispatchKeySet(key).raw_repr(), ours.key_set_of(number), number)
        wrong += different("backends of", theirs.c._dispatch_get_backend_keyset_from_autograd(key).raw_repr(),
                           ours.key_set_backends_of_autograd(number), number)
        if number > 0:
            wrong += different("is_backend", theirs.is_backend(number), ours.dispatch_key_is_backend(number), number)
            wrong += different("of_alias", theirs.of_alias(number), ours.key_set_of_alias(number), number)
        for alias in range(1, 156):
            wrong += different("in_alias", theirs.c._dispatch_is_included_in_alias(key, theirs.key(alias)),
                               ours.dispatch_key_in_alias(number, alias), number, alias)
    wrong += different("autogradother", theirs.c._dispatch_autogradother_backends.raw_repr(),
                       ours.key_set_autogradother_backends())
    for name, wanted in theirs.c.DispatchKey.__members__.items():
        if "Of" in name:  # PyTorch's markers between the numbers
            block = re.fullmatch("(?:Start|End)Of(.*)Backends", name)[1]
            functionality = int(theirs.c.DispatchKey.__members__[block])
            wrong += different(name, int(wanted), ours.dispatch_key_of(functionality, 0) - 1 +
                               16 * name.startswith("End"))
    numbers = [number for number in NUMBERS
               if number < 47 or ours.dispatch_key_is_runtime(number) or ours.dispatch_key_is_alias(number)]
    members = theirs.c.DispatchKey.__members__
    wrong += different("list", sorted({int(key) for name, key in members.items() if "StartOf" not in name} - {47}),
                       [key for key in numbers if ours.dispatch_key_name(key).decode() in members])
    wrong += different("keys", (47 + 96 + 6, sorted(set(numbers))), (len(numbers), numbers))
    more, count = check_constants(ours, theirs)
    return wrong + more, f"156 numbers, each pair of them; {count} named sets"


def check_constants(ours, theirs):
    """Compares the sets that have names in the header."""
    with open(LIST, encoding="utf-8") as file:
        found = dict(re.findall(r"#define AOTICACHE_KEY_SET_(\w+) (0x[0-9a-f]+)ULL", file.read()))
    wanted = {"AUTOGRADOTHER_BACKENDS": theirs.c._dispatch_autogradother_backends,
              "AFTER_AUTOGRAD": theirs.c._after_autograd_keyset,
              "AFTER_ADINPLACEORVIEW": theirs.c._after_ADInplaceOrView_keyset,
              "OF_WRAPPED": theirs.c._additional_keys_to_prop_for_wrapper_tensors}
    wanted = {name: keys.raw_repr() for name, keys in wanted.items()}
    for number in range(150, 156):
        wanted[theirs.name(number).decode()] = theirs.of_alias(number)
    return different("constants", wanted, {name: int(text, 16) for name, text in found.items()}), len(found)


def check_runtime_keys(ours, theirs):
    """The bits of its set determine a key's functionality and backend."""
    wrong, runtime = [], []
    backends = [theirs.c._parse_dispatch_key(name) for name in
                "CPU CUDA HIP XLA MPS IPU XPU HPU VE Lazy MTIA MAIA PrivateUse1 PrivateUse2 PrivateUse3 Meta".split()]
    for number in NUMBERS:
        raw = theirs.c.DispatchKeySet(theirs.key(number)).raw_repr()
        bits, high = raw & 0xffff, raw >> 16
        wrong += different("functionality", high.bit_length(), ours.dispatch_key_functionality(number), number)
        wrong += different("backend", bits.bit_length() - 1, ours.dispatch_key_backend(number), number)
        wrong += different("autograd_of", theirs.autograd_of(bits.bit_length()), ours.dispatch_key_autograd_of(number),
                           number)
        if bits:
            wrong += different("of", number, ours.dispatch_key_of(high.bit_length(), bits.bit_length() - 1), number)
            wrong += different("backend", int(backends[bits.bit_length() - 1]) - 49, ours.dispatch_key_backend(number),
                               number)
        if number == 0 or (raw and theirs.text(raw) == f"DispatchKeySet({theirs.name(number).decode()})"):
            runtime.append(number)
        wrong += different("is_runtime", number in runtime, ours.dispatch_key_is_runtime(number), number)
    entries = [ours.dispatch_key_entry(number) for number in runtime]
    wrong += different("entries", list(range(ours.dispatch_num_entries())), sorted(entries))
    wrong += different("of_entry", runtime, [ours.dispatch_key_of_entry(entry) for entry in entries])
    wrong += different("order", sorted(runtime, key=lambda n: ours.key_set_of(n)),
                       [ours.dispatch_key_of_entry(entry) for entry in range(ours.dispatch_num_entries())])
    others = (-1, 1, 5, 47, 48, 65, 150, 155, 156, 1 << 20)
    wrong += different("entry", {-1}, {ours.dispatch_key_entry(number) for number in others})
    return wrong + different("count", len(runtime), ours.dispatch_num_entries()), f"{len(runtime)} runtime keys"


def check_devices(ours, theirs):
    wrong, known = [], 0
    for device in DEVICES:
        try:
            wanted = int(theirs.c._parse_dispatch_key(theirs.c._dispatch_key_for_device(device)))
        except RuntimeError:
            wanted = None
        found = ours.read(ours.dispatch_key_for_device, device)
        known += wanted is not None
        wrong += different("device", wanted, None if isinstance(found, str) else found, device, found)
    return wrong + ([] if known >= 15 else ["PyTorch knows too few devices"]), f"{known} of {len(DEVICES)} have a key"


def check_tensors(ours, theirs):
    torch, wrong = theirs.torch, []
    tensors = {"CPU": torch.ones(1), "Meta": torch.ones(1, device="meta"), "SparseCPU": torch.ones(1).to_sparse(),
               "SparseMeta": torch.sparse_coo_tensor(size=(2, 2), device="meta"),
               "SparseCsrCPU": torch.ones(1, 1).to_sparse_csr(),
               "QuantizedCPU": torch.quantize_per_tensor(torch.ones(1), 1.0, 0, torch.quint8),
               "NestedTensorCPU": torch.nested.nested_tensor([torch.ones(1)])}
    if torch.backends.mkldnn.is_available():
        tensors["MkldnnCPU"] = torch.ones(1).to_mkldnn()
    with torch.inference_mode():
        tensors["CPU inference"], tensors["Meta inference"] = torch.ones(1), torch.ones(1, device="meta")
    for name, tensor in tensors.items():
        key = ours.read(ours.dispatch_key_parse, name.split()[0])
        wrong += different("of_tensor", theirs.c._dispatch_keys(tensor).raw_repr(),
                           ours.key_set_of_tensor(key, " " in name), name)
    more, count = check_devices_of_tensors(ours, theirs)
    return wrong + more, f"{len(tensors)} kinds, {count} devices"


def check_devices_of_tensors(ours, theirs):
    """Uses tensors that have only a device: of all devices, including those that this machine lacks."""
    torch, wrong, count = theirs.torch, [], 0
    python = ours.key_set_or(ours.key_set_of(int(theirs.c.DispatchKey.Python)),
                             ours.key_set_of(int(theirs.c.DispatchKey.PythonTLSSnapshot)))

    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise NotImplementedError

    for device in DEVICES:
        key = ours.read(ours.dispatch_key_for_device, device)
        if isinstance(key, int):
            tensor = torch.Tensor._make_wrapper_subclass(Wrapper, (2,), device=device)
            wrong += different("of_tensor", theirs.c._dispatch_keys(tensor).raw_repr(),
                               ours.key_set_of_tensor(key, False) | python, device)
            count += 1
    return wrong, count


# ---- sets ----

def random_set(ours, choose):
    """Returns a set of some keys, of many, of those above or below a key, or of parts of these."""
    kind = choose.randrange(6)
    if kind == 0:
        return choose.choice((0, ours.key_set_full(), 0xffff, choose.getrandbits(16), ours.key_set_full() & ~0xffff))
    if kind == 1:
        return ours.key_set_full_after(choose.randrange(156))
    if kind == 2:
        return choose.getrandbits(62) & choose.getrandbits(62)
    raw = choose.choice((0, 0, 0, choose.getrandbits(62)))
    for _ in range(choose.choice((1, 1, 2, 3, 8, 40))):
        raw |= ours.key_set_of(choose.randrange(156)) & ours.key_set_full()
    return raw if kind < 5 else ours.key_set_minus(ours.key_set_full(), raw)


def entry_of(highest, runtime_sets):
    """Returns the position of a set's highest key: how many runtime keys are below it, in the order of their bits."""
    return sum(each < highest for each in runtime_sets)


def set_differences(ours, theirs, a, b, key):
    first, second, torch_key = theirs.set(a), theirs.set(b), theirs.key(key)
    return (different("or", (first | second).raw_repr(), ours.key_set_or(a, b), a, b) +
            different("and", (first & second).raw_repr(), ours.key_set_and(a, b), a, b) +
            different("minus", (first - second).raw_repr(), ours.key_set_minus(a, b), a, b) +
            different("add", first.add(torch_key).raw_repr(), ours.key_set_add(a, key), a, key) +
            different("remove", first.remove(torch_key).raw_repr(), ours.key_set_remove(a, key), a, key) +
            different("has", first.has(torch_key), ours.key_set_has(a, key), a, key) +
            different("highest", int(first.highestPriorityTypeId()), ours.key_set_highest(a), a) +
            different("text", theirs.text(a), ours.text(a), a))


def check_sets(ours, theirs):
    choose, wrong = random.Random(9), []
    runtime = [number for number in range(156) if ours.dispatch_key_is_runtime(number)]
    sets = sorted(ours.key_set_of(number) for number in runtime)
    names = {theirs.name(number).decode(): number for number in runtime}
    highest = set()
    for _ in range(SETS):
        a, b, key = random_set(ours, choose), random_set(ours, choose), choose.randrange(156)
        wrong += set_differences(ours, theirs, a, b, key)
        listed = theirs.text(a)[len("DispatchKeySet("):-1]
        wrong += different("list", [names[each] for each in listed.split(", ")] if listed else [], ours.keys(a), a)
        top = int(theirs.set(a).highestPriorityTypeId())
        if top in runtime:
            highest.add(top)
            wrong += different("entry", entry_of(ours.key_set_of(top), sets), ours.key_set_entry(a), a)
        else:  # a functionality without backend: the position of its first key
            first = ours.dispatch_key_of(ours.dispatch_key_functionality(top), 0)
            wrong += different("entry", ours.dispatch_key_entry(first), ours.key_set_entry(a), a)
    for number in range(156):
        wrong += different("full_after", theirs.c._dispatch_keyset_full_after(theirs.key(number)).raw_repr(),
                           ours.key_set_full_after(number), number)
    wrong += different("full", theirs.c._dispatch_keyset_full().raw_repr(), ours.key_set_full())
    return wrong + ([] if len(highest) > 60 else [f"only {len(highest)} keys were the highest"]), f"{SETS} random sets"


# ---- this thread's sets ----

def local_differences(ours, theirs, about, mask=(1 << 64) - 1):
    return (different("included", theirs.c._dispatch_tls_local_include_set().raw_repr() & mask,
                      ours.dispatch_included() & mask, *about) +
            different("excluded", theirs.c._dispatch_tls_local_exclude_set().raw_repr() & mask,
                      ours.dispatch_excluded() & mask, *about))


def step(ours, theirs, choose):
    key, on, which = choose.randrange(1, 150), choose.random() < 0.6, choose.choice(("include", "exclude"))
    getattr(ours, "dispatch_" + which)(key, on)
    getattr(theirs.c, f"_dispatch_tls_set_dispatch_key_{which}d")(theirs.key(key), on)
    return which, key, on


def check_thread_local(ours, theirs):
    choose, wrong = random.Random(10), local_differences(ours, theirs, ["default"])
    for _ in range(500):
        with theirs.kept():
            before = ours.dispatch_included(), ours.dispatch_excluded()
            for _ in range(choose.randrange(12)):
                about = step(ours, theirs, choose)
                wrong += local_differences(ours, theirs, about)
                key = theirs.key(about[1])
                wrong += different("is included", theirs.c._dispatch_tls_is_dispatch_key_included(key),
                                   ours.key_set_has(ours.dispatch_included(), about[1]), about)
                wrong += different("is excluded", theirs.c._dispatch_tls_is_dispatch_key_excluded(key),
                                   ours.key_set_has(ours.dispatch_excluded(), about[1]), about)
        ours.dispatch_set_local(Local(*before))
        wrong += local_differences(ours, theirs, ["afterwards"])
    return wrong, "500 sequences"


def begin(ours, theirs, choose):
    """Begins a guard of any kind in both. Also returns whether PyTorch's guard will lose a backend that was set, and the sets
    that end ours."""
    key, kind = choose.randrange(1, 150), choose.choice(("include", "exclude", "force"))
    backends = ours.key_set_of(key) & 0xffff
    if kind == "force":
        include, exclude = random_set(ours, choose), random_set(ours, choose)
        before = ours.dispatch_get_local()
        ours.dispatch_set_local(Local(include, exclude))
        entered = theirs.c._ForceDispatchKeyGuard(theirs.set(include), theirs.set(exclude))
        return (kind, include, exclude), entered, False, before
    if kind == "include":
        loses = ours.dispatch_included() & backends != 0
        before = ours.dispatch_add_local(ours.key_set_of(key), 0)
        return (kind, key), theirs.c._IncludeDispatchKeyGuard(theirs.key(key)), loses, before
    loses = ours.dispatch_excluded() & backends != 0
    before = ours.dispatch_add_local(0, ours.key_set_of(key))
    return (kind, key), theirs.c._ExcludeDispatchKeyGuard(theirs.c.DispatchKeySet(theirs.key(key))), loses, before


def check_guards(ours, theirs):
    """Nests guards; ours always restore exactly the earlier state, PyTorch's lose backends in the cases that begin()
    reports."""
    choose, wrong, lost = random.Random(11), [], 0

    def mask_of(exact):
        return (1 << 64) - 1 if exact else (1 << 64) - 1 & ~0xffff

    def nest(depth, exact):
        nonlocal wrong, lost
        before = ours.dispatch_included(), ours.dispatch_excluded()
        about, entered, loses, local = begin(ours, theirs, choose)
        inside = exact or about[0] == "force"
        with entered:
            wrong += local_differences(ours, theirs, [*about, depth], mask_of(inside))
            if depth > 0:
                inside = nest(depth - 1, inside)
        ours.dispatch_set_local(local)
        wrong += different("back", before, (ours.dispatch_included(), ours.dispatch_excluded()), *about)
        lost += loses
        exact = exact if about[0] == "force" else inside and not loses
        wrong += local_differences(ours, theirs, ["after", *about], mask_of(exact))
        return exact

    for _ in range(300):
        with theirs.kept():
            nest(4, True)
    return wrong + local_differences(ours, theirs, ["in the end"]), f"300 nests of five, PyTorch's lost {lost} backends"


@pytest.fixture(scope="module")
def both():
    return Ours(), Theirs(torch)


@pytest.mark.parametrize("check", [check_names, check_parsing, check_kinds, check_runtime_keys, check_devices, check_tensors, check_sets,
                                   check_thread_local, check_guards], ids=lambda check: check.__name__.removeprefix("check_"))
def test_keys(both, check):
    warnings.simplefilter("ignore")  # layouts that PyTorch calls a prototype
    wrong, what = check(*both)
    print(what)
    assert not wrong, wrong[:20]
