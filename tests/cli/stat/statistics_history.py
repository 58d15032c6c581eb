"""Gives the index of a cache a history: statistics_history.py INDEX [STEP SLOTS]. A day of slots, some operators, latencies: as
a busy machine would count them. With STEP (seconds) and SLOTS only the history is replaced: by SLOTS slots of that length, until
now. The tables are those of index/connection/sql.h."""
import math
import random
import sqlite3
import sys
import time

OPERATORS = ["aten::addmm", "aten::convolution", "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::native_layer_norm",
             "aten::bmm", "aten::gelu", "aten::embedding", "aten::abs", "my_project::a <b> & \"quoted\" operator"]


def number(value):
    """Encodes a number in base 128, the lowest digits first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def bucket_of(ns):
    exponent = ns.bit_length() - 1
    return ns if ns < 8 else (exponent - 2) * 8 + (ns >> (exponent - 3) & 7)


def histogram(draw, middle_ns, spread, count):
    values = [max(1, int(middle_ns * math.exp(draw.gauss(0, spread)))) for _ in range(count)]
    counts = {}
    for value in values:
        counts[bucket_of(value)] = counts.get(bucket_of(value), 0) + 1
    encoded, following = b"", 0
    for bucket in sorted(counts):
        encoded += number(bucket - following) + number(counts[bucket])
        following = bucket + 1
    return sum(values), max(values), encoded


def main(path):
    draw = random.Random(8)
    index = sqlite3.connect(path)
    now = int(time.time())
    created = now - 20 * 3600
    total = {}
    for start in range(created - created % 300, now - 300, 300):
        hour = (start - created) / 3600
        calls = int(900 + 700 * math.sin(hour / 3) + draw.random() * 200)
        misses = int(calls * (0.5 * math.exp(-hour / 2) + (0.2 if 13 < hour < 13.6 else 0.004)))
        slot = {"hits": calls - misses, "hits_loaded": int((calls - misses) * 0.9), "misses": misses,
                "compiles": misses, "compile_ns": int(misses * 6.5e9), "saved_ns": int((calls - misses) * 0.1 * 6.5e9)}
        for name, value in slot.items():
            total[name] = total.get(name, 0) + value
            if value:
                index.execute("INSERT OR REPLACE INTO history VALUES(0, ?, ?, ?)", (start, name, value))
    for name, value in total.items():
        index.execute("INSERT INTO counts VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE SET value = value + ?2", (name, value))
    for name, middle, spread in (("lookup", 90e3, 0.6), ("load", 1.6e6, 0.4), ("compile", 6.5e9, 0.5)):
        index.execute("INSERT OR REPLACE INTO latencies VALUES(3, 0, ?, ?, ?, ?)",
                      (name, *histogram(draw, middle, spread, 4000)))
    for position, op in enumerate(OPERATORS):
        entries = 400 // (position + 1)
        index.execute("INSERT OR REPLACE INTO groups VALUES(0, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                      (op, 90000 // (position + 1), entries * 2, entries * 2, position, entries * int(13e9),
                       entries * int(400e9), entries, entries * 361000))
    index.execute("UPDATE meta SET value = ? WHERE name = 'created_ns'", (created * 10**9,))
    index.commit()


def replace_history(path, step, slots):
    index = sqlite3.connect(path)
    last = int(time.time()) // step * step
    index.execute("DELETE FROM history")
    for start in range(last - (slots - 1) * step, last + 1, step):
        slot = {"hits": 9000, "misses": 300, "compiles": 300, "compile_ns": 300 * 10**9, "saved_ns": 900 * 10**9}
        index.executemany("INSERT INTO history VALUES(?, ?, ?, ?)",
                          [({300: 0, 3600: 1, 86400: 2}[step], start, name, value) for name, value in slot.items()])
    index.execute("UPDATE meta SET value = ? WHERE name = 'created_ns'", ((last - (slots - 1) * step) * 10**9,))
    index.commit()


if len(sys.argv) > 2:
    replace_history(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
else:
    main(sys.argv[1])
