"""Differences of two set-ups, and which of them make scores incomparable."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.parity.setup_file import Setup

SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True)
class Difference:
    """One setting that differs. Critical: the scores measure different things. Warning: they shift."""

    field: str
    severity: str
    train: str
    eval: str
    why: str


_GROUP_WHY = {
    "text": ("critical", "the model is asked in other words"),
    "stop": ("critical", "answers end elsewhere"),
    "rules": ("critical", "answers are cut, parsed or scored by another rule"),
    "sampling": ("warning", "the same policy scores differently at another sampling"),
}
_HARMLESS = {
    "num_samples": "more samples change the spread, not the mean",
    "seed": "another seed is another draw",
}


def setup_differences(train: Setup, evaluation: Setup) -> list[Difference]:
    """Return the differences, severest first.

    Example:
        >>> a = Setup("a", fields={("sampling", "temperature"): 1.0})
        >>> b = Setup("b", fields={("sampling", "temperature"): 0.0})
        >>> [(d.field, d.severity) for d in setup_differences(a, b)]
        [('sampling.temperature', 'warning')]
    """
    rows = [*_fields(train, evaluation), *_tools(train, evaluation)]
    for name in sorted({*train.others, *evaluation.others}):
        a, b = train.others.get(name, "unstated"), evaluation.others.get(name, "unstated")
        if not _same(a, b):
            rows.append(Difference(name, "info", shown(a), shown(b), "a setting that is not known here"))
    return sorted(rows, key=lambda row: SEVERITIES.index(row.severity))


def _fields(train: Setup, evaluation: Setup) -> Iterator[Difference]:
    for group, name in sorted({*train.fields, *evaluation.fields}):
        key = (group, name)
        label = f"{group}.{name}"
        if key not in train.fields or key not in evaluation.fields:
            a = train.fields.get(key, "unstated")
            b = evaluation.fields.get(key, "unstated")
            both = train.complete and evaluation.complete
            severity = "info" if name in _HARMLESS or not both else "warning"
            yield Difference(label, severity, shown(a), shown(b), "one side takes a default that may differ")
            continue
        a, b = train.fields[key], evaluation.fields[key]
        if group == "stop":
            a, b = sorted(map(str, _listed(a))), sorted(map(str, _listed(b)))
        if not _same(a, b):
            severity, why = _judged(group, name, a, b)
            yield Difference(label, severity, shown(a), shown(b), why)


def _judged(group: str, name: str, a: Any, b: Any) -> tuple[str, str]:
    if name in _HARMLESS:
        return "info", _HARMLESS[name]
    if group == "limits":
        if _number(b) < _number(a):
            return "critical", "what training allows is cut in evaluation"
        return "warning", "evaluation allows what training cut"
    if group == "text" and isinstance(a, str) and isinstance(b, str) and a.split() == b.split():
        return "warning", "white space only, which changes tokens"
    return _GROUP_WHY[group]


def _tools(train: Setup, evaluation: Setup) -> Iterator[Difference]:
    if train.tools is None and evaluation.tools is None:
        return
    if train.tools is None or evaluation.tools is None:
        a, b = ("unstated" if s.tools is None else f"{len(s.tools)} tools" for s in (train, evaluation))
        severity = "warning" if train.complete and evaluation.complete else "info"
        yield Difference("tools", severity, a, b, "one side does not state its tools")
        return
    ours, theirs = ({t["name"]: t for t in s.tools or ()} for s in (train, evaluation))
    absent, new = [n for n in ours if n not in theirs], [n for n in theirs if n not in ours]
    for name in list(absent):
        twin = next((n for n in new if _alike(ours[name], theirs[n])), None)
        if twin is not None:
            absent.remove(name)
            new.remove(twin)
            yield Difference(f"tools.{name}", "critical", name, twin, "a tool was renamed")
    for name in absent:
        yield Difference(
            f"tools.{name}", "critical", "there", "missing", "a tool that training had is missing"
        )
    for name in new:
        yield Difference(f"tools.{name}", "critical", "missing", "there", "evaluation has a tool more")
    both = [name for name in ours if name in theirs]
    for name in both:
        yield from _tool(name, ours[name], theirs[name])
    if both != [name for name in theirs if name in ours]:
        yield Difference(
            "tools", "info", ", ".join(ours), ", ".join(theirs), "the same tools in another order"
        )


def _alike(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    stated = a["parameters"] is not None or a["description"] is not None
    return stated and _same(a["parameters"], b["parameters"]) and a["description"] == b["description"]


def _tool(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Difference]:
    label = f"tools.{name}"
    if (a["description"] or "").split() != (b["description"] or "").split():
        yield Difference(
            f"{label}.description", "warning", shown(a["description"]), shown(b["description"]),
            "the tool is explained otherwise",
        )  # fmt: skip
    yield from _schema(label, a["parameters"] or {}, b["parameters"] or {})


def _schema(label: str, a: Any, b: Any) -> Iterator[Difference]:
    """Differences of two JSON schemas, property by property."""
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        if not _same(a, b):
            yield Difference(label, "critical", shown(a), shown(b), "calls have another form")
        return
    for key in sorted({*a, *b} - {"title", "$schema", "$id", "examples"}):
        x, y = a.get(key), b.get(key)
        if key == "required":
            x, y = sorted(x or ()), sorted(y or ())
        if _same(x, y):
            continue
        if key in ("properties", "$defs", "definitions"):
            x, y = x or {}, y or {}
            for name in sorted({*x, *y}):
                if name in x and name in y:
                    yield from _schema(f"{label}.{name}", x[name], y[name])
                else:
                    sides = ("there", "missing") if name in x else ("missing", "there")
                    yield Difference(f"{label}.{name}", "critical", *sides, "an argument on one side only")
        elif key == "items":
            yield from _schema(f"{label}.items", x or {}, y or {})
        elif key == "description":
            if str(x or "").split() != str(y or "").split():
                why = "an argument is explained otherwise"
                yield Difference(f"{label}.description", "warning", shown(x), shown(y), why)
        else:
            severity = "warning" if key in ("default", "additionalProperties", "format") else "critical"
            yield Difference(f"{label}.{key}", severity, shown(x), shown(y), "calls have another form")


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def _number(value: Any) -> float:
    """A limit as a number: none, -1 and 0 are no limit."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return math.inf
    return math.inf if number <= 0 else number


def _same(a: Any, b: Any) -> bool:
    """Equal, whatever the order of keys; 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(a, bool) or isinstance(b, bool):
        return type(a) is type(b) and bool(a == b)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return set(a) == set(b) and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def shown(value: Any, room: int = 120) -> str:
    """Return a value in one short line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= room else f"{text[: room - 3]}..."
