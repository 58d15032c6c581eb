#!/usr/bin/env python3
"""Writes vectors.json: statements, their canonical bytes, and the signature of each by the keys of RFC 8032.

It follows docs/signatures.md and RFC 8032, section 5.1, and shares nothing with the C implementation or with libcrypto:
tests/unit/cache/trust/test_trust.c compares. Needs nothing but Python 3.8.

    tests/golden/signatures/make_vectors.py           writes vectors.json next to itself
    tests/golden/signatures/make_vectors.py --check   compares instead; exit status 1 where it differs
"""
import base64
import hashlib
import json
import pathlib
import struct
import sys

# ---- Ed25519 with numbers alone: slow, and plain ----

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)


def recover_x(y, sign):
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P != 0:
        x = x * ROOT_OF_MINUS_ONE % P
    return P - x if x % 2 != sign else x


BASE_Y = 4 * pow(5, -1, P) % P
BASE = (recover_x(BASE_Y, 0), BASE_Y)


def add(a, b):
    (x1, y1), (x2, y2) = a, b
    product = D * x1 * x2 * y1 * y2 % P
    return ((x1 * y2 + x2 * y1) * pow(1 + product, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - product, -1, P) % P)


def multiply(point, number):
    result = (0, 1)
    while number > 0:
        if number & 1:
            result = add(result, point)
        point = add(point, point)
        number >>= 1
    return result


def compress(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def expand(seed):
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little")
    return scalar & ((1 << 254) - 8) | 1 << 254, digest[32:]


def public_key(seed):
    return compress(multiply(BASE, expand(seed)[0]))


def hash_number(*parts):
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % L


def sign(seed, message):
    scalar, prefix = expand(seed)
    nonce = hash_number(prefix, message)
    commitment = compress(multiply(BASE, nonce))
    answer = (nonce + hash_number(commitment, public_key(seed), message) * scalar) % L
    return commitment + answer.to_bytes(32, "little")


# ---- statements: docs/signatures.md ----


def text(value):
    encoded = value.encode()
    return struct.pack("<I", len(encoded)) + encoded


def encode(statement):
    requirements = sorted(statement["requirements"])
    return b"".join([
        b"aoticache statement\0",
        struct.pack("<H", 1),
        bytes.fromhex(statement["key"]),
        struct.pack("<I", len(requirements)),
        b"".join(struct.pack("<H", bit) for bit in requirements),
        text(statement["guard"]),
        bytes.fromhex(statement["artifact"]),
        text(statement["producer"]),
        struct.pack("<q", statement["created_ns"]),
    ])


SEEDS = {
    "rfc8032-1": "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
    "rfc8032-2": "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
    "rfc8032-3": "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
}
KEY = "b08a4660ef2dd158c49a61e1012ac7a7744b90cbfd9d55877025fa505170fb83"
ARTIFACT = hashlib.sha256(b"a manifest").hexdigest()
STATEMENTS = [
    {"key": KEY, "requirements": [], "guard": "", "artifact": ARTIFACT, "producer": "pytorch 2.13.0",
     "created_ns": 1700000000000000000},
    {"key": KEY, "requirements": [64, 0, 127, 5], "guard": "s0 >= 2", "artifact": ARTIFACT, "producer": "",
     "created_ns": -1},
    {"key": "00" * 32, "requirements": list(range(128)), "guard": "größe ≥ 2", "artifact": "ff" * 32,
     "producer": "cc", "created_ns": 2**63 - 1},
]


def form(name, data):
    return name + ":" + base64.b64encode(data).decode()


def make():
    keys = []
    for name, seed in SEEDS.items():
        secret = bytes.fromhex(seed)
        public = public_key(secret)
        fingerprint = "SHA256:" + base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")
        keys.append({"name": name, "seed": seed, "public": form(name, public), "secret": form(name, secret + public),
                     "fingerprint": fingerprint})
    vectors = []
    for statement in STATEMENTS:
        encoded = encode(statement)
        signatures = [form(name, sign(bytes.fromhex(seed), encoded)) for name, seed in SEEDS.items()]
        vectors.append({"statement": statement, "bytes": encoded.hex(), "signatures": signatures})
    # RFC 8032, section 7.1, TEST 1 to 3: that the arithmetic above is right.
    for name, message, signature in RFC:
        assert sign(bytes.fromhex(SEEDS[name]), bytes.fromhex(message)).hex() == signature, name
    return {"keys": keys, "statements": vectors}


RFC = [
    ("rfc8032-1", "", "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
                      "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
    ("rfc8032-2", "72", "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
    ("rfc8032-3", "af82", "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
                          "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"),
]


def main():
    path = pathlib.Path(__file__).with_name("vectors.json")
    written = json.dumps(make(), indent=1, ensure_ascii=False) + "\n"
    if "--check" in sys.argv[1:]:
        sys.exit(0 if path.read_text(encoding="utf-8") == written else f"{path} differs")
    path.write_text(written, encoding="utf-8")


main()
