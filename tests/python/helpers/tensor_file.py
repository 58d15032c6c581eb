"""Reads and writes tensors in the file format of tests/helpers/run_library (its comment describes the
format)."""

import struct

import torch

DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 8: torch.complex32, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
    23: torch.float8_e5m2, 24: torch.float8_e4m3fn,
}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


def write_tensors(path, tensors):
    with open(path, "wb") as file:
        file.write(struct.pack("<q", len(tensors)))
        for tensor in tensors:
            storage = bytes(tensor.untyped_storage().tolist())
            shape = tuple(tensor.shape) + tuple(tensor.stride())
            file.write(struct.pack("<4q", NUMBERS[tensor.dtype], tensor.dim(), tensor.storage_offset(), len(storage)))
            file.write(struct.pack("<%dq" % len(shape), *shape))
            file.write(storage)


def read_tensors(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    (count,), at = struct.unpack_from("<q", data), 8
    tensors = []
    for _ in range(count):
        number, ndim, offset, size = struct.unpack_from("<4q", data, at)
        shape = struct.unpack_from("<%dq" % (2 * ndim), data, at + 32)
        at += 32 + 16 * ndim
        if size == 0:
            tensors.append(torch.empty_strided(shape[:ndim], shape[ndim:], dtype=DTYPES[number]))
        else:
            flat = torch.frombuffer(bytearray(data[at:at + size]), dtype=DTYPES[number])
            tensors.append(flat.as_strided(shape[:ndim], shape[ndim:], offset))
        at += size
    return tensors
