#!/usr/bin/env python3
"""Writes vectors.json: requests, the canonical encoding of each, and its key.

It follows docs/formats/key.md and shares nothing with the C implementation, so that specification, C and this program can be
held against each other: tests/unit/cache/request/test_request_encoding.c builds each request by its calls and compares. Needs
nothing but Python 3.

    tests/golden/key/make_vectors.py           writes vectors.json next to itself
    tests/golden/key/make_vectors.py --check   compares instead; exit status 1 where it differs

A call is [function, name, value]: the function of aoticache_request_* without that prefix. Numbers of more than 53 bits
and doubles are hexadecimal text (the bits of the double), so that no JSON reader rounds them.
"""
import hashlib
import json
import pathlib
import struct
import sys

KINDS = ["none", "tensor", "constant", "int", "double", "bool", "complex", "string", "device", "dtype", "layout",
         "memory_format", "list"]
ELEMENT_SIZES = {0: 1, 1: 1, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 9: 8, 11: 1, 15: 2}
CPU = 0


def bits(value):
    """The bits of a double as hexadecimal text."""
    return struct.pack(">d", value).hex()


def u32(value):
    return struct.pack("<I", value)


def i32(value):
    return struct.pack("<i", value)


def text(value):
    encoded = value.encode()
    return u32(len(encoded)) + encoded


def device(value):
    kind, index = value
    return i32(kind) + i32(-1 if kind == CPU else index)


def double(value):
    number = int(value, 16)
    is_nan = (number >> 52) & 0x7FF == 0x7FF and number & ((1 << 52) - 1) != 0
    return struct.pack("<Q", 0x7FF8000000000000 if is_nan else number)


def contiguous(sizes):
    strides, step = [], 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= max(size, 1)
    return strides


def metadata(value):
    sizes = value["sizes"]
    strides = value["strides"] if value.get("strides") is not None else contiguous(sizes)
    encoded = i32(value["dtype"]) + i32(value.get("layout", 0)) + device(value["device"])
    encoded += bytes([value.get("requires_grad", False)])
    encoded += struct.pack("<Q", int(value.get("dispatch_key_set", "0"), 16)) + u32(len(sizes))
    for extent in sizes + strides:
        encoded += struct.pack("<q", extent)
    return encoded


def payload(kind, value):
    if kind == "none":
        return b""
    if kind == "tensor":
        return metadata(value)
    if kind == "constant":
        return metadata(value) + hashlib.sha256(bytes.fromhex(value["data"])).digest()
    if kind == "int":
        return struct.pack("<q", int(value, 16))
    if kind == "double":
        return double(value)
    if kind == "bool":
        return bytes([value])
    if kind == "complex":
        return double(value[0]) + double(value[1])
    if kind == "string":
        return text(value)
    if kind == "device":
        return device(value)
    return i32(value)


def encode(vector):
    environment, arguments, items = {}, [], None
    for function, name, value in vector["calls"]:
        if function == "set_environment":
            environment[name] = value
        elif function == "begin_list":
            items, list_name = [], name
        elif function == "end_list":
            body = bytes([KINDS.index("list")]) + u32(len(items)) + b"".join(items)
            arguments.append(text(list_name or "") + body)
            items = None
        else:
            kind = function.removeprefix("add_")
            body = bytes([KINDS.index(kind)]) + payload(kind, value)
            if items is not None:
                items.append(body)
            else:
                arguments.append(text(name or "") + body)
    encoded = b"aoticache key\0" + struct.pack("<H", 1) + text(vector["op"]) + device(vector["device"])
    encoded += u32(len(environment))
    for name in sorted(environment, key=str.encode):
        encoded += text(name) + text(environment[name])
    return encoded + u32(len(arguments)) + b"".join(arguments)


def tensor(sizes, dtype=6, **more):
    return {"dtype": dtype, "device": [CPU, -1], "sizes": sizes, **more}


def vector(name, op, calls, on=(CPU, -1), arch="x86_64"):
    return {"name": name, "op": op, "device": list(on), "calls": [["set_environment", "arch", arch], *calls]}


def number(value):
    """An int as hexadecimal text."""
    return hex(value)


def requests():
    yield vector("one tensor", "aten::abs", [["add_tensor", None, tensor([2])]])
    yield vector("no arguments", "test::nothing", [])
    yield vector("two tensors and a keyword", "aten::add.Tensor", [
        ["add_tensor", None, tensor([2, 3], dispatch_key_set="8000000000000001")],
        ["add_tensor", None, tensor([2, 3], dispatch_key_set="ffffffffffffffff", requires_grad=True)],
        ["add_int", "alpha", number(1)]])
    yield vector("strides as given", "aten::mm", [
        ["add_tensor", None, tensor([3, 2], strides=[1, 3])],
        ["add_tensor", None, tensor([2, 1], strides=[1, 77])]])
    yield vector("strides that are the contiguous ones", "aten::mm", [
        ["add_tensor", None, tensor([3, 2], strides=[2, 1])]])
    yield vector("sizes of zero and no dimensions", "aten::cat", [
        ["begin_list", None, None],
        ["add_tensor", None, tensor([2, 0, 3])],
        ["add_tensor", None, tensor([])],
        ["add_tensor", None, tensor([0], strides=[0])],
        ["end_list", None, None],
        ["add_int", None, number(-1)]])
    yield vector("cpu with index 0 is cpu", "aten::zeros", [
        ["begin_list", "size", None], ["end_list", None, None],
        ["add_device", "device", [CPU, 0]],
        ["add_tensor", "like", {"dtype": 6, "device": [CPU, 0], "sizes": [1]}]], on=(CPU, 0))
    yield vector("cuda with and without index", "aten::copy_", [
        ["add_tensor", None, {"dtype": 5, "device": [1, 0], "sizes": [8, 8]}],
        ["add_tensor", None, {"dtype": 15, "device": [1, 3], "sizes": [8, 8]}],
        ["add_device", None, [1, -1]], ["add_device", None, [14, 0]]], on=(1, -1))
    yield vector("a constant", "aten::linear", [
        ["add_tensor", None, tensor([4, 2])],
        ["add_constant", None, tensor([1, 2], data="0000803f000000c0")],
        ["add_constant", None, tensor([0], dtype=7, data="")],
        ["add_none", None, None]])
    yield vector("every scalar", "test::scalars", [
        ["add_none", None, None],
        ["add_int", None, number(0)], ["add_int", None, number(2**63 - 1)], ["add_int", None, number(-2**63)],
        ["add_bool", None, True], ["add_bool", None, False],
        ["add_double", None, bits(1.5)], ["add_double", None, bits(0.0)], ["add_double", None, bits(-0.0)],
        ["add_double", None, bits(float("inf"))], ["add_double", None, bits(5e-324)],
        ["add_complex", None, [bits(-1.0), bits(2.5)]],
        ["add_string", None, ""], ["add_string", None, "na\u00efve \U0001f600 \"quoted\"\n"],
        ["add_dtype", None, 15], ["add_layout", None, 2], ["add_memory_format", None, 2]])
    yield vector("every NaN is one", "test::nan", [
        ["add_double", None, "7ff8000000000000"], ["add_double", None, "fff8000000000000"],
        ["add_double", None, "7ff0000000000001"], ["add_double", None, "ffffffffffffffff"],
        ["add_complex", None, ["7ff800000000beef", "7ff4000000000000"]]])
    yield vector("lists of everything", "test::lists", [
        ["begin_list", None, None],
        ["add_int", None, number(3)], ["add_int", None, number(-4)],
        ["end_list", None, None],
        ["begin_list", "mixed", None],
        ["add_none", None, None], ["add_tensor", None, tensor([5], dtype=4)],
        ["add_constant", None, tensor([2], dtype=0, data="0a0b")], ["add_double", None, bits(0.1)],
        ["add_bool", None, True], ["add_complex", None, [bits(0.0), bits(1.0)]], ["add_string", None, "mean"],
        ["add_device", None, [CPU, -1]], ["add_dtype", None, 11], ["add_layout", None, 0],
        ["add_memory_format", None, 0],
        ["end_list", None, None],
        ["begin_list", "empty", None], ["end_list", None, None],
        ["add_string", "last", "x"]])
    yield vector("environment is sorted by bytes, the last value counts", "aten::relu", [
        ["set_environment", "torch", "2.12.0"], ["set_environment", "abi", "\u00fc"], ["set_environment", "Z", ""],
        ["set_environment", "a.b-c_d", "1"], ["set_environment", "torch", "2.13.0"],
        ["add_tensor", None, tensor([1, 2, 3, 4], layout=1)]], arch="aarch64")
    yield vector("64 dimensions", "test::deep", [["add_tensor", None, tensor([1] * 63 + [2], dtype=9)]])


def main():
    vectors = []
    for request in requests():
        encoded = encode(request)
        vectors.append({**request, "encoding": encoded.hex(), "key": hashlib.sha256(encoded).hexdigest()})
    for request in vectors:
        for function, _, value in request["calls"]:
            if function == "add_constant":
                count = ELEMENT_SIZES[value["dtype"]]
                for size in value["sizes"]:
                    count *= size
                assert 2 * count == len(value["data"]), request["name"]
    written = json.dumps({"version": 1, "vectors": vectors}, indent=1) + "\n"
    path = pathlib.Path(__file__).with_name("vectors.json")
    if "--check" in sys.argv[1:]:
        if path.read_text() != written:
            sys.exit(f"{path} is not what this program writes")
    else:
        path.write_text(written)


if __name__ == "__main__":
    main()
