"""What a row must hold so that readers may rely on it; a row without it counts as malformed.

A row that its checksum vouches for is as its writer wrote it, so only its keys are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.runs.schema import MAX_STEP, MAX_WINDOW_STEPS, REQUIRED

Row = dict[str, Any]

_NUMBER = (int, float)
_INSIDE: dict[str, dict[str, Any]] = {
    "readings": {"values": (int, float, type(None)), "low": _NUMBER, "high": _NUMBER, "n": int, "reasons": str,  # noqa: E501
                 "excluded": dict, "reference": str},
    "steps": {"metrics": _NUMBER, "slices": dict, "not_observed": str, "nonfinite": int, "costs_s": _NUMBER},
}  # fmt: skip
"""Kind -> key of an object -> type of the values in it."""
_EVIDENCE = {"key": str, "value": _NUMBER, "low": _NUMBER, "high": _NUMBER, "n_tokens": int, "n_trajectories": int, "first": int,  # noqa: E501
             "last": int}  # fmt: skip
_VALID_TYPES: set[tuple[Any, ...]] = set()  # of the required keys of a kind, so that each is judged once
_STEPS = ("step", "first", "last", "fired", "since")


def row_is_valid(row: Row, kind: str, complete: bool, vouched: bool) -> bool:
    """Does a row hold what its kind requires? Not `complete`: only its place in the run.

    >>> row_is_valid({"step": 1}, "steps", False, False), row_is_valid({"step": 10**20}, "steps", False, True)
    (True, False)
    """
    position_keys = {"first": int, "last": int} if kind == "states" else {"step": int}
    required = REQUIRED[kind] if complete else position_keys
    types = (kind, complete, *map(type, map(row.get, required)))
    if types not in _VALID_TYPES:
        if not _has(row, required):
            return False
        _VALID_TYPES.add(types)
    for key in _STEPS:
        value = row.get(key)
        if type(value) is int and not -1 <= value <= MAX_STEP:
            return False
    windowed = complete and kind in ("states", "readings", "exemplars")
    if windowed and not 0 <= row["last"] - row["first"] < MAX_WINDOW_STEPS:
        return False
    return vouched or not complete or _inside_is_valid(row, kind)


def _has(row: Any, required: Mapping[str, Any]) -> bool:
    """Has the object these keys with values of these types? A bool is not a number here."""
    return isinstance(row, dict) and all(
        isinstance(row.get(key), kind) and (kind is bool or not isinstance(row[key], bool))
        for key, kind in required.items()
    )


def _inside_is_valid(row: Row, kind: str) -> bool:
    for key, value_type in _INSIDE.get(kind, {}).items():
        if not _has(row[key], dict.fromkeys(row[key], value_type)):
            return False
    if kind == "readings":
        return row["low"].keys() == row["high"].keys() and all(
            map(_counts_are_valid, row["excluded"].values())
        )
    if kind == "steps":
        counts = {"n_tokens": int, "n_trajectories": int}
        return all(_has(slice_counts, counts) for slice_counts in row["slices"].values()) and all(
            isinstance(column, str) for column in row["columns"]
        )
    if kind == "alarms":
        return all(_has(evidence, _EVIDENCE) for evidence in row["evidence"])
    return True


def _counts_are_valid(counts: Mapping[str, Any]) -> bool:
    return _has(counts, dict.fromkeys(counts, int))
