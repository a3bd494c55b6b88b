"""Records of arms: one small JSON file a run, packed into one archive a cause; those of test seeds apart.

Unpacked: <cause>-s<seed>/<arm>.json for tuning seeds, <cause>-test-s<seed>/<arm>.json and <cause>-second-s<seed>/<arm>.json for those of tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reproduce.archives import pack, unpacked
from reproduce.guard_bank.causes import CAUSES, HALVES, arms_of, half_of
from trimtab.errors import RunError

__all__ = ["Record", "arm_file", "fill_raw", "load_arms", "pack_arms", "read_arm", "write_arm"]

Record = dict[str, Any]
FIELDS: dict[str, type | tuple[type, ...]] = {
    "cause": str, "arm": str, "seed": int, "fault_step": int, "rewards": list, "actions": list,
    "stopped": (int, type(None)), "ended_early": bool, "skipped": int, "dropped": int, "cpu_s": float, "notes": dict,
}  # fmt: skip
RESTORE = "restore it (git restore), or run the arm again"


def arm_file(folder: Path, cause: str, seed: int, arm: str) -> Path:
    """Return where the record of an arm is."""
    return folder / f"{cause}{_behind(half_of(seed))}-s{seed}" / f"{arm}.json"


def _behind(half: str) -> str:
    return "" if half == "tuning" else f"-{half}"


def write_arm(path: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.part")
    half.write_text(json.dumps(record, separators=(",", ":")) + "\n")
    half.replace(path)


def read_arm(path: Path) -> Record:
    """Read a record; raises RunError for one that is missing or damaged."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}; {RESTORE}") from error
    for name, kind in FIELDS.items():
        if not isinstance(record, dict) or not isinstance(record.get(name, ...), kind):
            raise RunError(f"{path} has no {name!r}; {RESTORE}")
    if record["arm"] not in arms_of(record["cause"]):
        raise RunError(
            f"{path} names the arm {record['arm']!r} of {record['cause']}, which has none; {RESTORE}"
        )
    return dict(record)


def load_arms(store: Path) -> list[Record]:
    """Read all records of a store of archives."""
    if not any(store.glob("*.zip")):
        return []
    return [read_arm(path) for path in sorted(unpacked(store).glob("*/*.json"))]


def fill_raw(store: Path, raw: Path) -> None:
    """Copy records that are in the store and not in `raw`, so that a run goes on where an earlier one was packed."""
    for record in load_arms(store):
        path = arm_file(raw, record["cause"], record["seed"], record["arm"])
        if not path.exists():
            write_arm(path, record)


def pack_arms(raw: Path, store: Path, seeds: Iterable[int]) -> list[Path]:
    """Pack the records of these seeds into one archive a cause and half; archives hold these seeds alone afterwards."""
    chosen, written = sorted(set(seeds)), []
    for cause in ("healthy", *CAUSES):
        for half in ("tuning", *HALVES):
            files = [
                file
                for seed in chosen
                if half_of(seed) == half
                for file in sorted(arm_file(raw, cause, seed, "none").parent.glob("*.json"))
            ]
            if files:
                written.append(store / f"{cause}{_behind(half)}.zip")
                pack(raw, files, written[-1])
    return written
