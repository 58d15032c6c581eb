"""The dispatcher (eager/dispatch/dispatcher.h, dispatch_key.h) by ctypes: every function of the two headers, and a thin
object for each of their types.

FUNCTIONS is the whole binding. missing() compares it with the headers, so that a function which is added only to a
header is noticed. Other languages can bind everything that this file binds without a compiler.
"""
import collections
import ctypes
import os
import re

from holder_host import STATUS, Error, Stack, Value, View

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "eager", "dispatch")
TENSOR, TENSOR_LIST, INT, NONE = 1, 2, 3, 0
LIBRARY_KINDS = {"DEF": 0, "IMPL": 1, "FRAGMENT": 2}
ALIAS_KINDS = {"": 0, "CONSERVATIVE": 1, "FROM_SCHEMA": 2, "PURE_FUNCTION": 3, "CONSERVATIVE (default)": 4}

BOXED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(Stack),
                         ctypes.POINTER(Error))
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
NAME = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_char_p)
KEY = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int32)
BEFORE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(Stack))
AFTER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)

LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class Kernel(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("call", BOXED), ("user", ctypes.c_void_p), ("release", RELEASE),
                ("signature", ctypes.c_char_p), ("debug", ctypes.c_char_p), ("wants_previous", ctypes.c_bool)]


class Mode(ctypes.Structure):
    _fields_ = [("call", BOXED), ("user", ctypes.c_void_p)]


class Observer(ctypes.Structure):
    _fields_ = [("before", BEFORE), ("after", AFTER), ("user", ctypes.c_void_p)]


class Logger(ctypes.Structure):
    _fields_ = [("log", LOG), ("user", ctypes.c_void_p)]


class Local(ctypes.Structure):
    _fields_ = [("included", ctypes.c_uint64), ("excluded", ctypes.c_uint64)]


TYPES = {"v": None, "S": ctypes.c_int, "i": ctypes.c_int32, "I": ctypes.c_uint32, "k": ctypes.c_int32,
         "K": ctypes.c_uint64, "b": ctypes.c_bool, "z": ctypes.c_size_t, "s": ctypes.c_char_p, "p": ctypes.c_void_p,
         "e": ctypes.POINTER(Error), "o": ctypes.POINTER(ctypes.c_void_p), "r": ctypes.POINTER(ctypes.c_int32),
         "t": ctypes.POINTER(Stack), "f": ctypes.POINTER(Kernel), "n": NAME, "y": KEY, "m": ctypes.POINTER(Mode),
         "w": ctypes.POINTER(Observer), "L": ctypes.POINTER(Logger), "g": Local,
         "a": ctypes.POINTER(ctypes.c_char_p),
         "l": ctypes.POINTER(Value), "V": ctypes.POINTER(View)}

# The letter of the result, a colon, the letters of the arguments. Names are given without aoticache_.
FUNCTIONS = {
    "dispatcher_create": "S:oe", "dispatcher_free": "v:p", "dispatcher_get": "p:",
    "dispatcher_set_logger": "v:pL",
    "dispatch_struct_size": "z:s",
    "oplib_create": "S:pisssIoe", "oplib_free": "v:p",
    "oplib_def": "S:psie", "oplib_def_kernel": "S:psisfe", "oplib_impl": "S:pssfe", "oplib_fallback": "S:psfe",
    "oplib_impl_for_key": "S:pskfe", "oplib_fallback_for_key": "S:pkfe", "oplib_fall_through_usual": "S:pe",
    "oplib_dispatcher": "p:p", "oplib_namespace": "s:p", "operator_call_previous": "S:pkKte",
    "operator_get_computed_kernel": "S:pkoe", "computed_kernel_call": "S:pKte", "computed_kernel_debug": "s:p",
    "computed_kernel_is_fallthrough": "b:p", "computed_kernel_free": "v:p",
    "operator_schema_text": "S:poe", "oplib_key_name": "s:p",
    "dispatcher_find": "S:psoe", "operator_name": "s:p", "operator_schema": "p:p", "operator_key_set": "K:pt",
    "operator_call": "S:pte", "operator_redispatch": "S:pKte", "operator_call_for_key": "S:pkte",
    "operator_push_arguments": "S:pzalzte", "dispatch_mode_push": "S:me", "dispatch_mode_pop": "v:",
    "dispatch_mode_count": "z:", "dispatcher_observe": "S:pwe", "dispatcher_has_kernel": "b:ps",
    "operator_has_kernel_for_key": "b:pk", "operator_has_kernel_for_any": "b:pK",
    "operator_has_computed_kernel": "b:pk", "operator_is_fallthrough": "b:pk", "dispatcher_has_fallback": "b:pk",
    "dispatcher_find_any": "S:psoe", "operator_dump": "S:poe", "operator_dump_table": "S:poe",
    "operator_check": "S:pe", "dispatcher_check": "S:pe", "dispatcher_list": "S:pbnpe",
    "dispatcher_list_dangling_dumps": "S:pnpe", "dispatcher_list_registrations": "S:psnpe",
    "dispatch_key_name": "s:k", "dispatch_key_parse": "S:sre", "dispatch_key_for_device": "S:sre",
    "dispatch_key_is_alias": "b:k", "dispatch_key_is_runtime": "b:k", "dispatch_key_in_alias": "b:kk",
    "dispatch_key_functionality": "k:k", "dispatch_key_of": "k:ki", "dispatch_key_backend": "i:k",
    "dispatch_num_backends": "i:", "dispatch_num_entries": "i:", "dispatch_key_entry": "i:k",
    "dispatch_key_of_entry": "k:i", "key_set_of": "K:k", "key_set_full": "K:", "key_set_add": "K:Kk",
    "key_set_or": "K:KK", "key_set_and": "K:KK",
    "key_set_minus": "K:KK", "key_set_entry": "i:K",
    "key_set_list": "v:Kyp", "key_set_format": "z:Kpz", "key_set_of_alias": "K:k",
    "key_set_backends_of_autograd": "K:k", "key_set_autogradother_backends": "K:", "dispatch_key_autograd_of": "k:k",
    "dispatch_get_local": "g:", "dispatch_set_local": "v:g", "dispatch_key_is_backend": "b:k",
    "key_set_of_tensor": "K:kb",
}
# Inline functions of the headers that tests call: symbols of tests/helpers/whole/inline_functions.c, named inline_NAME.
INLINE = {"dispatch_include": "v:kb", "dispatch_exclude": "v:kb", "dispatch_add_local": "g:KK"}


class Refused(Exception):
    """Raised for a status that is not OK. status: its name; message."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


def load():
    library = ctypes.CDLL(os.path.join(BUILD, "tests", "helpers", "libaoticache_whole.so"))
    symbols = {f"aoticache_{name}": types for name, types in FUNCTIONS.items()}
    symbols |= {f"inline_{name}": types for name, types in INLINE.items()}
    for name, types in symbols.items():
        result, _, arguments = types.partition(":")
        function = getattr(library, name, None)
        if function is None:
            continue  # missing() reports it
        function.restype, function.argtypes = TYPES[result], [TYPES[letter] for letter in arguments]
    return library


def missing():
    """Returns functions of the headers that FUNCTIONS lacks; functions in FUNCTIONS that the headers lack; those that
    the library lacks."""
    declared = set()
    for header in ("dispatcher.h", "dispatch_key.h", "eager_face.h", "keys.h", "questions.h"):
        with open(os.path.join(DIRECTORY, header), encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        declared |= set(re.findall(r"AOTICACHE_API[^;(]*?\baoticache_(\w+)\s*\(", text))
    exported = {name for name in FUNCTIONS if hasattr(c, "aoticache_" + name)}
    return sorted(declared - set(FUNCTIONS)), sorted(set(FUNCTIONS) - declared), sorted(set(FUNCTIONS) - exported)


STRUCTS = {"error": Error, "tensor_view": View, "value": Value, "stack": Stack, "boxed_kernel": Kernel,
           "dispatch_mode": Mode, "call_observer": Observer, "dispatch_local": Local}


def wrong_sizes():
    """Returns structures that this file declares with another size than the library: name, bytes here, bytes in the
    library."""
    sizes = {name: (ctypes.sizeof(kind), c.aoticache_dispatch_struct_size(f"aoticache_{name}".encode()))
             for name, kind in STRUCTS.items()}
    return {name: both for name, both in sizes.items() if both[0] != both[1]}


c = load()
c.aoticache_free.restype, c.aoticache_free.argtypes = None, [ctypes.c_void_p]


def call(name, *arguments):
    """Calls a function that returns a status and takes an error last. Raises Refused if the status is not OK."""
    error = Error()
    status = getattr(c, "aoticache_" + name)(*arguments, ctypes.byref(error))
    if status != 0:
        raise Refused(STATUS[status], error.message.decode(errors="replace"))


def text_of(name, handle):
    pointer = ctypes.c_void_p()
    call(name, handle, ctypes.byref(pointer))
    try:
        return ctypes.string_at(pointer).decode()
    finally:
        c.aoticache_free(pointer)


def names_of(name, *arguments):
    found = []

    @NAME
    def callback(_user, text):
        found.append(text.decode())
        return True
    call(name, *arguments, callback, None)
    return found


def encoded(text):
    return None if text is None else text.encode()


def parse_key(name):
    key = ctypes.c_int32()
    call("dispatch_key_parse", name.encode(), ctypes.byref(key))
    return key.value


def key_name(key):
    return c.aoticache_dispatch_key_name(key).decode()


# Includes keys that cannot be parsed; no test uses their names.
NUMBERS = {key_name(number): number for number in range(156, -1, -1)}


class Kernels:
    """Wraps Python functions as kernels. function(operator, keys, stack) -> None; an exception becomes RUN_FAILED.

    All share one C function and differ by user, a number. released: how often release() was called for each.
    """

    def __init__(self):
        self.functions, self.released, self.raised = {}, collections.Counter(), None
        self.call, self.release = BOXED(self._call), RELEASE(self._release)

    def _call(self, user, operator, keys, stack, error):
        try:
            self.functions[user](operator, keys, stack.contents)
            return 0
        except Refused as refused:  # from a nested call: forwarded
            status = STATUS.index(refused.status)
            message = refused.message
        except Exception as exception:  # no exception may pass through C
            self.raised, status, message = exception, STATUS.index("RUN_FAILED"), repr(exception)
        if error:
            error.contents.status, error.contents.message = status, message.encode()[:1000]
        return status

    def _release(self, user):
        self.released[user] += 1

    def make(self, function=None, signature=None, debug=None, fallthrough=False):
        user = len(self.functions) + 1
        self.functions[user] = function
        kernel = Kernel(ctypes.sizeof(Kernel), BOXED() if fallthrough else self.call, user, self.release,
                        encoded(signature), encoded(debug))
        return user, kernel


class Operator:
    def __init__(self, handle):
        self.handle = handle

    def call(self, stack):
        call("operator_call", self.handle, ctypes.byref(stack))

    def redispatch(self, keys, stack):
        call("operator_redispatch", self.handle, keys, ctypes.byref(stack))

    def call_for_key(self, key, stack):
        call("operator_call_for_key", self.handle, key, ctypes.byref(stack))

    def key_set(self, stack):
        return c.aoticache_operator_key_set(self.handle, ctypes.byref(stack))

    def name(self):
        return c.aoticache_operator_name(self.handle).decode()

    def dump(self):
        return text_of("operator_dump", self.handle)

    def dump_table(self):
        return text_of("operator_dump_table", self.handle)

    def check(self):
        call("operator_check", self.handle)

    def has(self, question, argument):
        """question: "has_kernel_for_key", "has_kernel_for_any", "has_computed_kernel" or "is_fallthrough"."""
        return getattr(c, "aoticache_operator_" + question)(self.handle, argument)


class ComputedKernel:
    """The kernel that the operator currently has for the key. Raises Refused if it has none."""

    def __init__(self, operator, key):
        self.handle = ctypes.c_void_p()
        call("operator_get_computed_kernel", operator.handle, key, ctypes.byref(self.handle))

    def call(self, keys, stack):
        call("computed_kernel_call", self.handle, keys, ctypes.byref(stack))

    def free(self):
        c.aoticache_computed_kernel_free(self.handle)


class Oplib:
    def __init__(self, dispatcher, kind, namespace, key, file, line):
        self.handle = ctypes.c_void_p()
        self.arguments = (dispatcher, LIBRARY_KINDS[kind], encoded(namespace), encoded(key), encoded(file), line)
        self.create()

    def create(self):
        call("oplib_create", *self.arguments, ctypes.byref(self.handle))

    def define(self, schema, alias=""):
        call("oplib_def", self.handle, encoded(schema), ALIAS_KINDS.get(alias, 99))

    def define_kernel(self, schema, kernel, key=None, alias=""):
        call("oplib_def_kernel", self.handle, encoded(schema), ALIAS_KINDS.get(alias, 99), encoded(key),
             ctypes.byref(kernel))

    def impl(self, name, kernel, key=None):
        """Registers a kernel. key: a name, a number or None."""
        if isinstance(key, int):
            call("oplib_impl_for_key", self.handle, encoded(name), key, ctypes.byref(kernel))
        else:
            call("oplib_impl", self.handle, encoded(name), encoded(key), ctypes.byref(kernel))

    def fallback(self, kernel, key=None):
        if isinstance(key, int):
            call("oplib_fallback_for_key", self.handle, key, ctypes.byref(kernel))
        else:
            call("oplib_fallback", self.handle, encoded(key), ctypes.byref(kernel))

    def fall_through_usual(self):
        call("oplib_fall_through_usual", self.handle)

    def reset(self):
        """Removes all registrations, as torch.library's reset: afterwards another DEF of its namespace is allowed."""
        c.aoticache_oplib_free(self.handle)
        if self.arguments[1] == LIBRARY_KINDS["DEF"]:
            self.arguments = (self.arguments[0], LIBRARY_KINDS["FRAGMENT"], *self.arguments[2:])
        self.create()

    def free(self):
        c.aoticache_oplib_free(self.handle)
        self.handle = None


class Dispatcher:
    def __init__(self):
        self.handle, self.kernels, self.operators = ctypes.c_void_p(), Kernels(), {}
        call("dispatcher_create", ctypes.byref(self.handle))

    def free(self):
        c.aoticache_dispatcher_free(self.handle)
        self.handle = None

    def oplib(self, kind, namespace, key=None, file="file.py", line=1):
        return Oplib(self.handle, kind, namespace, key, file, line)

    def find(self, name, dangling=True):
        """Finds an operator. Raises Refused on NOT_FOUND."""
        handle = ctypes.c_void_p()
        call("dispatcher_find_any" if dangling else "dispatcher_find", self.handle, encoded(name),
             ctypes.byref(handle))
        return Operator(handle)

    def has_kernel(self, name):
        return c.aoticache_dispatcher_has_kernel(self.handle, encoded(name))

    def has_fallback(self, key):
        return c.aoticache_dispatcher_has_fallback(self.handle, key)

    def names(self, dangling=False):
        return names_of("dispatcher_list", self.handle, dangling)

    def dangling_dumps(self):
        return names_of("dispatcher_list_dangling_dumps", self.handle)

    def registrations(self, key=None):
        return names_of("dispatcher_list_registrations", self.handle, encoded(key))

    def check(self):
        call("dispatcher_check", self.handle)


class Call:
    """A stack with arguments, and the objects that keep them alive. An argument: ("tensor", raw key set), ("tensors",
    [raw key set or None, ...]), ("int", number) or ("none",)."""

    def __init__(self, arguments, room=8):
        self.keep, self.values = [], (Value * (len(arguments) + room))()
        self.stack = Stack(self.values, len(arguments), len(arguments) + room)
        for value, argument in zip(self.values, arguments):
            self.fill(value, *argument)

    def view(self, keys):
        view = View(dispatch_key_set=keys, dtype=6)
        self.keep.append(view)
        return ctypes.addressof(view)

    def fill(self, value, kind, content=None):
        if kind == "tensor":
            value.kind, value.content.address = TENSOR, self.view(content)
        elif kind == "tensors":
            array = (ctypes.c_void_p * max(len(content), 1))(
                *(None if keys is None else self.view(keys) for keys in content))
            self.keep.append(array)
            value.kind, value.count, value.content.address = TENSOR_LIST, len(content), ctypes.addressof(array)
        elif kind == "int":
            value.kind, value.content.int_value = INT, content
        else:
            value.kind = NONE
