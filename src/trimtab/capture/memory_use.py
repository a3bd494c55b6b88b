"""Memory of the process and of its GPU, with the limit and what is left of it.

The limit of a process is the least of its control groups' (v2, else v1) and the machine's. What is left
counts page cache that can be given back as free, as Kubernetes' working set does
(https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_UNLIMITED = 2**60  # control groups of v1 write a number of this size for "no limit"


class MemoryUse(NamedTuple):
    """Bytes of one kind of memory at one step."""

    used: int  # by this process: resident pages, or what its allocator reserves on the GPU
    peak: int  # the most that `used` has been
    limit: int  # of all processes that share it
    available: int  # what is left of the limit, whoever uses the rest


def read_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> dict[str, list[int]]:
    """Return `host` and, where CUDA is in use, `device` as the values of `MemoryUse`.

    Empty where the system does not say. Nothing is imported: `device` is read where torch is loaded and has
    initialised CUDA.
    """
    uses = {"host": host_memory(proc, groups), "device": device_memory()}
    return {kind: list(use) for kind, use in uses.items() if use is not None}


def memory_of(row: Mapping[str, Any]) -> dict[str, MemoryUse]:
    """Return what a row of steps says of memory; a malformed part is left out.

    >>> memory_of({"memory": {"host": [1, 2, 8, 5], "device": [1]}})
    {'host': MemoryUse(used=1, peak=2, limit=8, available=5)}
    """
    memory = row.get("memory")
    if not isinstance(memory, Mapping):
        return {}
    return {
        str(kind): MemoryUse(*(int(value) for value in values))
        for kind, values in memory.items()
        if isinstance(values, (list, tuple)) and len(values) == 4
        and all(isinstance(value, (int, float)) and 0 <= value < 2**63 for value in values)
    }  # fmt: skip


def host_memory(proc: Path, groups: Path) -> MemoryUse | None:
    """Return the memory of this process; None off Linux."""
    status = _fields(proc / "self" / "status")
    machine = _fields(proc / "meminfo")
    if "VmRSS" not in status or "MemTotal" not in machine:
        return None
    used, limit = status["VmRSS"] * 1024, machine["MemTotal"] * 1024
    available = machine.get("MemAvailable", machine.get("MemFree", 0)) * 1024
    for group_limit, group_used in _group_limits(proc, groups):
        limit, available = min(limit, group_limit), min(available, max(group_limit - group_used, 0))
    return MemoryUse(used, max(status.get("VmHWM", 0) * 1024, used), limit, available)


def device_memory() -> MemoryUse | None:
    """Return the memory of the current CUDA device; None where this process does not use one."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_available() or not cuda.is_initialized():
        return None
    free, total = cuda.mem_get_info()
    reserved = int(cuda.memory_reserved())
    unused = reserved - int(cuda.memory_allocated())  # the allocator would give it to the next tensor
    return MemoryUse(reserved, int(cuda.max_memory_reserved()), int(total), int(free) + unused)


def _group_limits(proc: Path, groups: Path) -> list[tuple[int, int]]:
    """Return limit and use of each control group above this process that has a limit."""
    pairs = []
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        v2 = number == "0" and not controllers
        if not v2 and "memory" not in controllers.split(","):
            continue
        root = groups if v2 else groups / "memory"
        names = ("memory.max", "memory.current") if v2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        own = root / path.strip("/")
        for folder in [own, *own.parents]:
            limit, used = (_number(folder / name) for name in names)
            if limit is not None and used is not None and limit < _UNLIMITED:
                stat = _fields(folder / "memory.stat")
                prefix = "" if v2 else "total_"
                cache = stat.get(f"{prefix}inactive_file", 0) + stat.get(f"{prefix}active_file", 0)
                pairs.append((limit, max(used - cache, 0)))
            if folder == root:
                break
    return pairs


def _fields(path: Path) -> dict[str, int]:
    """Return the whole numbers of a file of lines `name value` or `name: value kB`."""
    pairs = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in pairs if len(words) > 1 and words[1].isdecimal()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
