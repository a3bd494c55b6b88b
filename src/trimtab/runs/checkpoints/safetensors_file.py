"""The structure of a safetensors file: a cut or overwritten one is named before a trainer loads it.

The file is 8 bytes (length n of the header, little-endian), n bytes of JSON, and the tensors without gaps.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

_MAX_HEADER = 100_000_000
"""Bytes of a header that the format allows."""
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "C64": 64, "U64": 64,
    "I64": 64, "F64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
"""Type of a tensor -> bits of a value; the size of a type that is not listed is not checked."""


def safetensors_fault(path: Path) -> str:
    """Return what is wrong with the structure of a safetensors file; empty where nothing is.

    Args:
        path: the file. Its header is read, not its tensors.

    Returns:
        A clause such as "is cut: its tensors end at byte 1,000 and the file at 900".

    Raises:
        OSError: the file cannot be read.

    Example:
        fault = safetensors_fault(Path("checkpoint-40/model.safetensors"))

    Reference:
        https://huggingface.co/docs/safetensors (format)
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8:
            return f"is cut: it has {size} bytes, less than the length of a header"
        if length > _MAX_HEADER:
            return f"is damaged: its header claims {length:,} bytes"
        if 8 + length > size:
            return f"is cut: its header ends at byte {8 + length:,} and the file at {size:,}"
        data = file.read(length)
    try:
        header = json.loads(data)
    except (ValueError, RecursionError):
        return "is damaged: its header is not JSON"
    if not isinstance(header, dict):
        return "is damaged: its header is not an object"
    return _layout_fault(header, 8 + length, size)


def _layout_fault(header: dict[str, Any], start: int, size: int) -> str:
    """Do the tensors follow each other to the end of the file, each as large as its shape says?"""
    spans = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            begin, end = (int(value) for value in entry["data_offsets"])
            count, kind = math.prod(int(n) for n in entry["shape"]), str(entry["dtype"])
        except (KeyError, TypeError, ValueError):
            return f"is damaged: tensor {name[:60]!r} has no shape, type or span"
        bits = _BITS.get(kind)
        if begin < 0 or (bits is not None and 8 * (end - begin) != bits * count):
            return f"is damaged: tensor {name[:60]!r} has {end - begin:,} bytes, not those of its shape"
        spans.append((begin, end))
    position = 0
    for begin, end in sorted(spans):
        if begin != position:
            return f"is damaged: its tensors do not follow each other at byte {start + position:,}"
        position = end
    if start + position > size:
        return f"is cut: its tensors end at byte {start + position:,} and the file at {size:,}"
    return f"has {size - start - position:,} bytes behind its tensors" if start + position < size else ""
