"""Two kinds of tensors for the runner's test suite (runner_players.py), with the same methods: make(spec),
handle(tensor), adopt(handle), describe(tensor), address(tensor), free(tensor), extra_handles(tensor). A spec is [dtype,
sizes, strides, hexadecimal bytes from the first element to the last].
"""
import ctypes
import os

from c_types import View

ELEMENT_BYTES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 9: 8, 10: 16, 11: 1, 15: 2}
pointer, int64 = ctypes.c_void_p, ctypes.c_int64


def span(sizes, strides):
    """Returns the number of elements from the first to the last in memory."""
    return 0 if 0 in sizes else 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))


class TorchTensors:
    """PyTorch's tensors, passed as PyTorch's own bindings pass them."""

    def __init__(self, torch, tensor_file):
        self.torch = torch
        self.dtypes, self.numbers = tensor_file.DTYPES, tensor_file.NUMBERS
        api = ctypes.pythonapi
        api.PyCapsule_GetName.restype = ctypes.c_char_p
        api.PyCapsule_GetName.argtypes = [ctypes.py_object]
        api.PyCapsule_GetPointer.restype = pointer
        api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        api.PyCapsule_New.restype = ctypes.py_object
        api.PyCapsule_New.argtypes = [pointer, ctypes.c_char_p, pointer]
        self.api = api

    def make(self, spec):
        number, sizes, strides, data = spec
        if not data:
            return self.torch.empty_strided(sizes, strides, dtype=self.dtypes[number])
        return self.torch.frombuffer(bytearray.fromhex(data), dtype=self.dtypes[number]).as_strided(sizes, strides)

    def make_slice(self, spec):
        """Makes the same tensor as one of several rows of a larger one."""
        one = self.make(spec)
        rows = self.torch.full((5, max(1, span(one.shape, one.stride()))), 77, dtype=self.torch.uint8).to(one.dtype)
        row = rows[3].as_strided(one.shape, one.stride())
        return row.copy_(one)

    def handle(self, tensor):
        capsule = self.torch._C._aoti.unsafe_alloc_void_ptr_from_tensor(tensor)
        return self.api.PyCapsule_GetPointer(capsule, self.api.PyCapsule_GetName(capsule))

    def adopt(self, handle):
        capsule = self.api.PyCapsule_New(handle, None, None)  # despite its name, this function does not take the handle
        return self.torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs([capsule])[0]

    def describe(self, tensor):
        if tensor._is_zerotensor():  # zeros without memory, which PyTorch's gradients may be
            tensor = self.torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).zero_()
        data = self.torch.empty(0, dtype=tensor.dtype)
        if tensor.numel() > 0:
            data = tensor.as_strided((span(tensor.shape, tensor.stride()),), (1,), tensor.storage_offset())
        return [self.numbers[tensor.dtype], list(tensor.shape), list(tensor.stride()),
                bytes(data.contiguous().view(self.torch.uint8).tolist()).hex()]

    def address(self, tensor):
        return tensor.data_ptr()

    def free(self, tensor):
        pass

    def extra_handles(self, tensor):
        """Returns how many others hold the tensor."""
        return tensor._use_count() - 1


class PlainTensor:
    """A handle, with the memory that it uses if we own that; again: makes another equal one."""

    def __init__(self, handle, memory=None, again=None):
        self.handle, self.memory, self.again = handle, memory, again


class PlainTensors:
    """Tensors in memory of this process, made with the loader's own functions."""

    def __init__(self, library):
        self.library = library

    def make(self, spec):
        number, sizes, strides, data = spec
        memory = (ctypes.c_char * (len(data) // 2 + 64))()
        at = (ctypes.addressof(memory) + 63) & ~63  # as aligned as PyTorch's
        ctypes.memmove(at, bytes.fromhex(data), len(data) // 2)
        handle = pointer()
        self.library.call("aoticache_tensor_from_blob", pointer(at), ctypes.c_int32(number), int64(len(sizes)),
                          (int64 * len(sizes))(*sizes), (int64 * len(sizes))(*strides), ctypes.byref(handle))
        return PlainTensor(handle.value, memory)

    make_slice = make  # the loader's functions cannot make one

    def make_slice(self, spec):
        """Makes the same tensor as one of several rows of a larger one. The loader's functions cannot; the shim's
        can."""
        number, sizes, strides, data = spec
        row = span(sizes, strides)
        if row == 0:
            return self.make(spec)
        memory = (ctypes.c_char * (5 * len(data) // 2))(*(77).to_bytes(1, "big") * (5 * len(data) // 2))
        ctypes.memmove(ctypes.addressof(memory) + 3 * len(data) // 2, bytes.fromhex(data), len(data) // 2)
        shim = ctypes.CDLL(os.path.join(os.environ["AOTICACHE_HOME"], "lib", "libaoticache_torchshim.so"))

        def again():
            handle = pointer()
            status = shim.aoti_torch_create_tensor_from_blob(
                memory, int64(len(sizes)), (int64 * len(sizes))(*sizes), (int64 * len(sizes))(*strides),
                int64(3 * row), ctypes.c_int32(number), ctypes.c_int32(0), ctypes.c_int32(0), ctypes.byref(handle))
            assert status == 0
            return handle.value

        return PlainTensor(again(), memory, again)

    def view(self, tensor):
        view = View()
        self.library.call("aoticache_tensor_get_view", pointer(tensor.handle), ctypes.byref(view))
        return view

    def handle(self, tensor):
        """Returns a new handle to the same memory; the caller frees it."""
        if tensor.again:
            return tensor.again()
        view, handle = self.view(tensor), pointer()
        self.library.call("aoticache_tensor_from_blob", pointer(view.data), view.dtype, view.ndim, view.sizes,
                          view.strides, ctypes.byref(handle))
        return handle.value

    def adopt(self, handle):
        return PlainTensor(handle)

    def describe(self, tensor):
        view = self.view(tensor)
        sizes, strides = view.sizes[:view.ndim], view.strides[:view.ndim]
        return [view.dtype, sizes, strides,
                ctypes.string_at(view.data or 0, span(sizes, strides) * ELEMENT_BYTES[view.dtype]).hex()]

    def address(self, tensor):
        return self.view(tensor).data or 0

    def free(self, tensor):
        self.library.c.aoticache_tensor_free(pointer(tensor.handle))

    def extra_handles(self, tensor):
        return 0  # plain memory has no reference count
