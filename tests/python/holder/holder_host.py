"""Kernel holders (eager/holder/holder.h) by ctypes: operators are called with PyTorch's tensors, or with plain memory
in a process without PyTorch.

All inputs and outputs have a form that JSON can hold, so that one process can record calls and others replay them. A
value is [kind, ...]: ["none"], ["tensor", TENSOR], ["tensors", [TENSOR or null, ...]], ["int", 3], ["ints", [...]],
["double", x], ["doubles", [...]], ["bool", b], ["bools", [...]], ["complex", re, im], ["scalars", [value, ...]],
["string", s], ["device", type, index], ["dtype", n], ["layout", n], ["memory_format", n]. A TENSOR is
runner_tensors.py's [dtype, sizes, strides, hexadecimal bytes], followed by the dispatch key set of the tensor.
"""
import ctypes
import os
import threading

from c_types import Error, View
import runner_tensors

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
MISS = {"wait": 0, "background": 1, "never": 2}
DYNAMIC = {"never": 0, "after": 1, "always": 2}
STATUS = ["OK", "NOT_FOUND", "INVALID", "NO_MEMORY", "IO", "CORRUPT", "LOCKED", "DENIED", "UNSUPPORTED",
          "COMPILE_FAILED", "LOAD_FAILED", "RUN_FAILED", "EXISTS", "MISMATCH"]
CPU_KEY_SET = 635655225345  # the key set of an ordinary tensor: torch._C._dispatch_keys(torch.ones(1)).raw_repr()
ROOM = 16  # stack slots in addition to the arguments, for results
pointer, size_t, int64, uint32, uint64 = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_uint32,
                                          ctypes.c_uint64)


class Content(ctypes.Union):
    _fields_ = [("address", pointer), ("int_value", int64), ("double_value", ctypes.c_double),
                ("bool_value", ctypes.c_bool), ("complex_value", ctypes.c_double * 2), ("string", ctypes.c_char_p),
                ("device", ctypes.c_int32 * 2)]


class Value(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("count", uint32), ("content", Content)]


class Stack(ctypes.Structure):
    _fields_ = [("values", ctypes.POINTER(Value)), ("count", size_t), ("capacity", size_t)]


class CacheOptions(ctypes.Structure):
    _fields_ = [("size", size_t), ("directory", ctypes.c_char_p), ("read_only", ctypes.c_bool),
                ("allow_shared", ctypes.c_bool), ("must_exist", ctypes.c_bool), ("lock_timeout_ms", uint32),
                ("compile_timeout_ms", uint32), ("failure_ttl_seconds", uint32), ("log", pointer),
                ("log_user", pointer), ("failure_max_ttl_seconds", uint32)]


class HookOptions(ctypes.Structure):
    _fields_ = [("size", size_t), ("program", ctypes.c_char_p), ("arguments", pointer), ("kernels", ctypes.c_char_p),
                ("cpu_features", ctypes.c_char_p), ("timeout_seconds", uint32), ("log", pointer), ("log_user", pointer),
                ("memory_limit_bytes", uint64), ("environment", pointer), ("workers", uint32)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("size", size_t), ("cache", pointer), ("hook", pointer), ("miss", ctypes.c_int),
                ("dynamic", ctypes.c_int), ("dynamic_after", uint32), ("threads", uint32), ("queue_length", uint32),
                ("max_loaded", size_t), ("max_loaded_bytes", uint64), ("serve_requires_grad", ctypes.c_bool),
                ("fail_calls", ctypes.c_bool), ("record_file", ctypes.c_char_p), ("log", pointer),
                ("log_user", pointer), ("environment", pointer)]


KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, pointer, uint64, ctypes.POINTER(Stack), ctypes.POINTER(Error))


class HolderOptions(ctypes.Structure):
    _fields_ = [("size", size_t), ("schema", ctypes.c_char_p), ("dispatch_key", ctypes.c_char_p),
                ("device", ctypes.c_int32 * 2), ("fallback", KERNEL), ("fallback_user", pointer),
                ("allow_mutation", ctypes.c_bool)]


class Counts(ctypes.Structure):
    _fields_ = [(name, uint64) for name in ("hits", "hits_dynamic", "loads", "misses", "compiles", "compile_failures",
                                            "fallbacks", "queued", "dropped", "entries", "libraries", "loaded", "calls_lost", "judged",
                                            "judged_slower", "on_trial", "gained_ns", "dynamic_refused")]


KINDS = {"none": 0, "tensor": 1, "tensors": 2, "int": 3, "double": 4, "bool": 5, "complex": 6, "string": 7, "device": 8,
         "dtype": 9, "layout": 10, "memory_format": 11, "ints": 12, "doubles": 13, "bools": 14, "scalars": 15,
         "strings": 16, "other": 20}
ITEMS = {"ints": int64, "doubles": ctypes.c_double, "bools": ctypes.c_bool}
OUTPUT, OUTPUT_LIST = 18, 19


class Refused(Exception):
    """Raised for a status that is not OK. The message begins with the name of the status."""


class Host:
    """A cache, a worker that compiles for it, and holders by schema. miss, dynamic: the policies."""

    def __init__(self, directory, miss="wait", dynamic="never", after=4, workers=1, fail_calls=False):
        self.c = ctypes.CDLL(os.path.join(BUILD, "lib", "libaoticache.so"))
        self.free = ctypes.CDLL(None).free
        self.free.argtypes = self.c.aoticache_tensor_free.argtypes = [pointer]
        self.cache, self.hook, self.eager = pointer(), pointer(), pointer()
        self.holders, self.lock, self.keep = {}, threading.Lock(), []
        # The next run does not retry kernels that cannot be compiled.
        options = CacheOptions(ctypes.sizeof(CacheOptions), os.fsencode(directory), False, False, False, 60000, 600000,
                               7 * 86400, None, None, 7 * 86400)
        self.call("aoticache_cache_open", ctypes.byref(options), ctypes.byref(self.cache))
        hook = HookOptions(ctypes.sizeof(HookOptions), timeout_seconds=300, workers=workers)
        self.call("aoticache_hook_create_worker", ctypes.byref(hook), ctypes.byref(self.hook))
        eager = ContextOptions(ctypes.sizeof(ContextOptions), self.cache, self.hook, MISS[miss], DYNAMIC[dynamic], after,
                             fail_calls=fail_calls)
        self.call("aoticache_context_create", ctypes.byref(eager), ctypes.byref(self.eager))

    def call(self, name, *arguments):
        error = Error()
        status = getattr(self.c, name)(*arguments, ctypes.byref(error))
        if status != 0:
            raise Refused(f"{STATUS[status]}: {error.message.decode(errors='replace')}")

    def holder(self, schema, fallback=None):
        """Returns the holder for this schema; a refusal is raised each time."""
        with self.lock:
            if schema not in self.holders:
                self.holders[schema] = Holder(self, schema, fallback)
            return self.holders[schema]

    def close(self):
        for holder in self.holders.values():
            self.c.aoticache_holder_unref(holder.holder)
        self.c.aoticache_context_free(self.eager)
        self.c.aoticache_hook_free(self.hook)
        self.c.aoticache_cache_close(self.cache)


class Tensors:
    """One of runner_tensors.py's two kinds of tensors, with views that are filled as a binding fills them."""

    def __init__(self, host, torch=None, tensor_file=None):
        self.host, self.torch = host, torch
        made = runner_tensors.TorchTensors(torch, tensor_file) if torch else runner_tensors.PlainTensors(host)
        self.make, self.adopt, self.describe = (made.make, made.adopt, made.describe)
        self.handle_of, self.free = made.handle, made.free

    def view(self, tensor, key_set=None):
        """Returns a view, and the handle to free after use."""
        view, handle = View(), self.handle_of(tensor)
        self.host.call("aoticache_tensor_get_view", pointer(handle), ctypes.byref(view))
        view.dispatch_key_set = key_set if key_set is not None else self.key_set(tensor)
        view.requires_grad = bool(self.torch and tensor.requires_grad)
        return view, handle

    def key_set(self, tensor):
        return self.torch._C._dispatch_keys(tensor).raw_repr() if self.torch else CPU_KEY_SET


class Arguments:
    """The values of one call and everything that they point to."""

    def __init__(self, host, tensors, specs):
        self.host, self.tensors, self.kept, self.handles, self.made = host, tensors, [], [], []
        self.values = (Value * (len(specs) + ROOM + 64))()
        for value, spec in zip(self.values, specs):
            self.fill(value, *spec)

    def keep(self, array):
        self.kept.append(array)
        return ctypes.addressof(array)

    def view_of(self, tensor):
        """tensor: a TENSOR, or a tensor of PyTorch."""
        key_set = None
        if isinstance(tensor, (list, tuple)):
            key_set = tensor[4]
            tensor = self.tensors.make(tensor[:4])
            self.made.append(tensor)
        view, handle = self.tensors.view(tensor, key_set)
        self.handles.append(handle)
        self.kept.append(tensor)
        return self.keep(view)

    def fill(self, value, kind, *content):
        value.kind, inner = KINDS[kind], value.content
        if kind == "tensor":
            inner.address = self.view_of(content[0])
        elif kind == "tensors":
            views = [None if one is None else self.view_of(one) for one in content[0]]
            value.count, inner.address = len(views), self.keep((pointer * (len(views) + 1))(*views))
        elif kind in ITEMS:
            value.count = len(content[0])
            inner.address = self.keep((ITEMS[kind] * (len(content[0]) + 1))(*content[0]))
        elif kind == "scalars":
            value.count, items = len(content[0]), (Value * (len(content[0]) + 1))()
            for item, spec in zip(items, content[0]):
                self.fill(item, *spec)
            inner.address = self.keep(items)
        elif kind == "strings":
            strings = (ctypes.c_char_p * (len(content[0]) + 1))(*[one.encode() for one in content[0]])
            value.count, inner.address = len(content[0]), self.keep(strings)
        else:
            self.fill_single(inner, kind, content)

    def fill_single(self, inner, kind, content):
        if kind == "double":
            inner.double_value = content[0]
        elif kind == "bool":
            inner.bool_value = content[0]
        elif kind in ("complex", "device"):
            target = inner.complex_value if kind == "complex" else inner.device
            target[0], target[1] = content
        elif kind == "string":
            inner.address = self.keep(ctypes.create_string_buffer(content[0].encode()))
        elif kind not in ("none", "other"):
            inner.int_value = content[0]

    def release(self):
        for handle in self.handles:
            self.host.c.aoticache_tensor_free(handle)
        if self.tensors.torch is None:
            for tensor in self.made:
                self.tensors.free(tensor)


class Holder:
    def __init__(self, host, schema, fallback=None):
        """fallback(stack, error) -> status; the arguments are ctypes objects."""
        self.host, self.holder, self.schema = host, pointer(), schema
        kernel = KERNEL(lambda user, key_set, stack, error: fallback(stack, error)) if fallback else KERNEL()
        self.kernel = kernel
        device = (ctypes.c_int32 * 2)(0, -1)
        options = HolderOptions(ctypes.sizeof(HolderOptions), schema.encode(), None, device, kernel)
        host.call("aoticache_holder_create", host.eager, ctypes.byref(options), ctypes.byref(self.holder))

    def __call__(self, tensors, specs):
        """Calls with arguments as values; omitted arguments at the end get their defaults. Returns the results as
        tensors."""
        arguments = Arguments(self.host, tensors, specs)
        stack = Stack(arguments.values, len(specs), len(arguments.values))
        try:
            self.host.call("aoticache_holder_push_defaults", self.holder, size_t(len(specs)), ctypes.byref(stack))
            self.host.call("aoticache_holder_call", self.holder, uint64(CPU_KEY_SET), ctypes.byref(stack))
            found = [tensor for i in range(stack.count) for tensor in self.take(tensors, arguments.values[i])]
            if tensors.torch is None:
                for tensor in found:
                    tensor.memory = arguments  # the tensor may share the memory of an input
            return found
        finally:
            arguments.release()

    def take(self, tensors, value):
        if value.kind == OUTPUT:
            return [tensors.adopt(value.content.address)]
        assert value.kind == OUTPUT_LIST, f"a result is a value of the kind {value.kind}"
        handles = ctypes.cast(value.content.address, ctypes.POINTER(pointer))
        found = [tensors.adopt(handles[i]) for i in range(value.count)]
        self.host.free(value.content.address)
        return found

    def op(self):
        return self.schema.partition("(")[0]

    def counts(self):
        counts = Counts()
        self.host.c.aoticache_holder_get_counts(self.holder, ctypes.byref(counts))
        return {name: getattr(counts, name) for name, _ in Counts._fields_}
