"""Seeded damage: bytes flipped, cut, spliced and overwritten; JSON values, tensors and table columns exchanged for what does not belong."""

from __future__ import annotations

import copy
import gzip
import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BYTES = (
    b"", b"\0", b"\n", b'"', b"\t", b",", b"{", b"[", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n\n", b"nan", b"-1",
    b"1e400", b"9" * 5000, b"[" * 50_000, b'{"a":' * 20_000, b"x" * 200_000, b"\xff" * 8, b"\x00" * 8,
    struct.pack("<Q", 2**60), struct.pack("<I", 2**31 - 1), struct.pack("<q", -1), struct.pack("<f", float("nan")),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 0.5, -0.5, 2**31 - 1, 2**31, 2**63, 10**30, 10**400, 1e308, float("nan"), float("inf"),
    "", "a", "7", "../..", "/etc/passwd", "a\0b", "\ud800", "x" * 100_000, [], {}, [[]], [None], {"a": {}}, [1, 2, 3], ["mean"],
)  # fmt: skip


def mutate_bytes(data: bytes, rng: Random) -> bytes:
    """One to four damages, the beginning, where headers lie, hit half of the time."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        size = len(found)
        reach = min(size, 512) if rng.random() < 0.5 else size
        at = rng.randrange(reach + 1) if size else 0
        match rng.randrange(8):
            case 0:
                for _ in range(rng.choice((1, 2, 8))):
                    if found:
                        found[rng.randrange(max(1, reach))] ^= 1 << rng.randrange(8)
            case 1:
                del found[at:]
            case 2:
                del found[at : at + rng.choice((1, 2, 8, 100))]
            case 3:
                found[at:at] = rng.choice(BYTES)
            case 4:
                piece = rng.choice(BYTES)
                found[at : at + len(piece)] = piece
            case 5:
                start = rng.randrange(size + 1)
                found[at:at] = found[start : start + rng.choice((4, 40, 400))]
            case 6:
                found[at : at + 8] = rng.randbytes(8)
            case _:
                found[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(found)


def mutate_value(value: Any, rng: Random) -> Any:
    """The JSON value with one to three of its nodes exchanged, taken out, doubled or put a level deeper."""
    whole = [copy.deepcopy(value)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        nodes: list[tuple[Any, Any]] = []
        _collect(whole, nodes)
        holder, key = rng.choice(nodes)
        match rng.randrange(8):
            case 0 if holder is not whole:
                del holder[key]
            case 1:
                holder[key] = [holder[key]]
            case 2:
                holder[key] = str(holder[key])[:50]
            case 3 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
                holder[key] = rng.choice(
                    (holder[key] + 1, holder[key] - 1, -holder[key], holder[key] * 10**8, holder[key] // 3)
                )
            case 4:
                other, place = rng.choice(nodes)
                if other is not whole:
                    holder[key] = copy.deepcopy(other[place]) if place in other or isinstance(other, list) else None
            case _:
                holder[key] = copy.deepcopy(rng.choice(VALUES))
    return whole[0]


def _collect(holder: Any, nodes: list[tuple[Any, Any]]) -> None:
    for key in range(len(holder)) if isinstance(holder, list) else list(holder):
        if len(nodes) >= 400:  # of a vocabulary the first tokens do
            return
        nodes.append((holder, key))
        if isinstance(holder[key], dict | list):
            _collect(holder[key], nodes)


def mutate_json(text: bytes, rng: Random) -> bytes:
    """As mutate_value, of a JSON file's text; of JSON lines one line."""
    try:
        return json.dumps(mutate_value(json.loads(text), rng)).encode()
    except ValueError:
        lines = text.split(b"\n")
        i = rng.randrange(len(lines))
        try:
            lines[i] = json.dumps(mutate_value(json.loads(lines[i]), rng)).encode()
        except ValueError:
            lines[i] = mutate_bytes(lines[i], rng)
        return b"\n".join(lines)


def mutate_tensors(path: Path, rng: Random) -> None:
    """A tensor taken out, renamed, cut, of another type or shape, or not finite; or the header changed under the data."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    if rng.random() < 0.5:
        header = json.dumps(mutate_value(json.loads(data[8 : 8 + size]), rng)).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + size :])
        return
    from safetensors.numpy import load, save

    tensors = load(data)
    name = rng.choice(sorted(tensors))
    tensor = tensors.pop(name)
    changes = (
        None, tensor[:1], tensor[:0], tensor[None], tensor.reshape(-1), tensor.astype(np.int64), tensor.astype(np.float16),
        tensor * np.float32("nan"), np.zeros((), np.float32), tensor.astype(bool), np.concatenate([tensor, tensor]),
    )  # fmt: skip
    changed = rng.choice(changes)
    if changed is not None:
        tensors[rng.choice((name, name, name, "other", name + "x"))] = np.ascontiguousarray(changed)
    path.write_bytes(save(tensors))


def mutate_parquet(path: Path, rng: Random) -> None:
    """A column taken out, renamed, or of another type."""
    table = pq.read_table(path)
    i = rng.randrange(table.num_columns)
    name, rows = table.column_names[i], table.num_rows
    others = (
        pa.array([None] * rows), pa.array([None] * rows, pa.string()), pa.array(range(rows)), pa.array([b"\xff\xfe"] * rows),
        pa.array([["a"]] * rows), pa.array([{"a": 1}] * rows), pa.array([float("nan")] * rows), pa.array([[1.0, None]] * rows),
        pa.array([[float(i)] * (i + 1) for i in range(rows)]), pa.array(["a"] * rows).dictionary_encode(), pa.array([""] * rows),
    )  # fmt: skip
    match rng.randrange(4):
        case 0:
            table = table.remove_column(i)
        case 1:
            table = table.slice(0, 0)
        case _:
            table = table.set_column(i, rng.choice((name, name, name, "other")), rng.choice(others))
    pq.write_table(table, path)


def mutate_file(path: Path, rng: Random) -> None:
    """Damages one file in the way of its kind, or as bytes."""
    deep = rng.random() < 0.6
    name = path.name.removesuffix(".gz")
    if path.suffix == ".gz" and deep:
        inner = gzip.decompress(path.read_bytes())
        path.write_bytes(gzip.compress((mutate_json if ".json" in name else mutate_bytes)(inner, rng)))
    elif path.suffix in (".json", ".jsonl") and deep:
        path.write_bytes(mutate_json(path.read_bytes(), rng))
    elif path.suffix == ".safetensors" and deep:
        mutate_tensors(path, rng)
    elif path.suffix == ".parquet" and deep:
        mutate_parquet(path, rng)
    else:
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))
