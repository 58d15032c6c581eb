"""The structures of the C interface that many tests pass or receive through ctypes: base/base.h,
base/tensor_view.h."""
import ctypes


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 1024)]


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("device", Device), ("ndim", ctypes.c_int64),
                ("numel", ctypes.c_int64), ("sizes", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("layout", ctypes.c_int32),
                ("requires_grad", ctypes.c_bool), ("dispatch_key_set", ctypes.c_uint64), ("handle", ctypes.c_void_p)]
