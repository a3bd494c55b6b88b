"""One step that the compiled reader would not read, to the same columns: by the words of `traces.steps`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from trimtab.traces.columns_native import Scanner
from trimtab.traces.columns_sql import CALL, END, KINDS, MESSAGE, OTHER, PARSE_ERROR, RESULT, VOID
from trimtab.traces.tool_errors import starts_as_error
from trimtab.traces.values import as_flag, as_int, as_label, as_number, as_text, as_time, first_of

__all__ = ["fields_of"]

Json = Mapping[str, Any]
_NAN = math.nan


def fields_of(scanner: Scanner, value: Json) -> dict[str, Any]:
    """Column -> what the step says; `tool` and `err` as text, "" and None where there is none. It has an id and a type."""
    name, kind = as_label(value["episode_id"]) or "", KINDS.get(value["type"], OTHER)
    if kind == MESSAGE and not (as_text(value.get("content")) or "").strip():
        kind = VOID
    found: dict[str, Any] = {
        "eh": scanner.name_key(name), "name": name, "kind": kind, "tool": as_label(value.get("tool")) or "",
        "step": _or_nan(as_int(value.get("step"))), "ts": _time(value.get("timestamp")),
        "tokens": _or_nan(as_int(value.get("tokens"))),
    }  # fmt: skip
    if kind == CALL:
        found["h"] = scanner.text_key("") if value.get("args") is None else _json_key(scanner, value["args"])
    elif kind == PARSE_ERROR:
        found["h"] = scanner.text_key(as_text(first_of(value, "content", "args")) or "")
        found["err"] = as_text(value.get("error")) or "the call could not be parsed"
    elif kind == RESULT:
        found |= _result(scanner, value)
    elif kind == END:
        found |= _end(value)
    return found


def _json_key(scanner: Scanner, value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return scanner.json_key(text.encode("utf-8", "surrogatepass"))


def _result(scanner: Scanner, value: Json) -> dict[str, Any]:
    given, said = first_of(value, "result", "content"), value.get("error")
    text = as_text(given) or ""
    told = said not in (None, "", False)
    plain = given is None or isinstance(given, (str, list))
    return {
        "h": scanner.text_key(text) if plain else _json_key(scanner, given),
        "told": told,
        "err": (as_text(said) or "error") if told else text if starts_as_error(text) else None,
        "latency": _or_nan(as_number(first_of(value, "latency_s", "duration_s"))),
    }


def _end(value: Json) -> dict[str, Any]:
    metadata, reward = value.get("metadata"), as_number(value.get("reward"))
    merged: Json = {**(metadata if isinstance(metadata, dict) else {}), **value}
    group = as_label(first_of(merged, "group_id", "group"))
    task = as_label(first_of(merged, "task_id", "task", "prompt_id"))
    success = as_flag(value.get("success"))
    return {
        "reward": _or_nan(reward), "odd_reward": reward is not None and not math.isfinite(reward),
        "success": -1 if success is None else int(success), "total": _or_nan(as_int(value.get("total_tokens"))),
        "task": task, "group": group, "stop": as_label(first_of(merged, "stop_reason", "termination_reason")),
    }  # fmt: skip


def _time(value: Any) -> float:
    """As the log has it, milliseconds too; what a text says in seconds."""
    number = as_number(value)
    return _or_nan(as_time(value) if number is None else number)


def _or_nan(number: float | None) -> float:
    return _NAN if number is None else number
