"""Grammar of rule files (docs/how-to/user-rules.md): from data to rules; what cannot be right is an error."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec import field as named

from trimtab.catalog import READINGS
from trimtab.detect.rules.all_rules import RULES, STREAM_RULES
from trimtab.detect.rules.rule import Make, Rule, Suppression
from trimtab.detect.user_rules.detector_options import DETECTORS, SIGNS, Kind
from trimtab.detect.user_rules.yaml_source import Source, Where, close, convert

TAKEN = {rule.name for rule in RULES} | set(STREAM_RULES)
MAX_WEIGHT = 100.0
_SLICES = ("all", "text", "post_tool")
_SLICE_KINDS = ("post_tool/", "phase/", "turn/", "source/", "tool/", "reward/", "file/")
_TAILS = {
    "mismatch",
    "staleness",
    "total",
    "drift",
    "lagged_drift",
    "tail_ratio",
    "ref_logprob",
    "weight_mass",
}
_Text = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"\S")]


class _Suppression(Struct, forbid_unknown_fields=True):
    """An entry of `excused_by`."""

    metric: str
    direction: Literal["up", "down"]


class _Row(Struct, forbid_unknown_fields=True, kw_only=True):
    """A rule of a file; docs/how-to/user-rules.md says what each field means."""

    name: str
    metric: str
    detector: str
    options: dict[str, Any] = named(name="with")
    slice: str = "all"
    transform: Literal["identity", "log"] = "identity"
    floor: Annotated[float, Meta(ge=0.0, le=1e300)] = 0.0
    severity: Literal["info", "warning", "critical"] = "warning"
    weight: Annotated[float, Meta(gt=0.0, le=MAX_WEIGHT)] = 1.0
    what: _Text = ""
    why: _Text = ""
    advice: _Text = ""
    reference: _Text = ""
    excused_by: list[_Suppression] = []


class _File(Struct, forbid_unknown_fields=True):
    rules: Annotated[list[_Row], Meta(min_length=1)]


@dataclass(frozen=True)
class FileRule(Rule):
    """A rule read from a file."""

    plain: Mapping[str, Any] = field(default_factory=dict)  # what the file says of it, for a run's header


def rules_of(data: Any, source: Source, reference: str) -> tuple[Rule, ...]:
    """Return all rules of a file; `reference` is their source where they name none.

    Raises:
        RuleError: something cannot be right; in one line with file, line and field.
    """
    rows = convert(data, _File, source).rules
    seen: dict[str, int] = {}
    for i, row in enumerate(rows):
        if row.name in seen:
            line = source.lines.get(("rules", seen[row.name], "name"))
            first = f", first in line {line}" if line else ""
            raise source.error(("rules", i, "name"), f"{row.name!r} is given twice{first}; rename one")
        seen[row.name] = i
    return tuple(_rule(row, data["rules"][i], source, ("rules", i), reference) for i, row in enumerate(rows))


def _rule(row: _Row, data: Mapping[str, Any], source: Source, at: Where, reference: str) -> FileRule:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", row.name):
        text = f"{row.name!r:.40} is not an identifier; give letters, digits and _, as kl_over_two"
        raise source.error((*at, "name"), text)
    if row.name in TAKEN:
        raise source.error((*at, "name"), f"{row.name!r} is a built-in rule; choose another name")
    key = _key(row.metric, source, (*at, "metric"))
    if row.detector not in DETECTORS:
        raise source.error(
            (*at, "detector"), f"{row.detector!r:.40} is unknown{close(row.detector, DETECTORS)}"
        )
    kind = DETECTORS[row.detector]
    sign, options = _options(row, kind, key, source, (*at, "with"))
    _check_slice(row.slice, key, source, (*at, "slice"))
    if row.transform == "log" and not kind.log:
        text = f"{row.detector} works on the reading's own scale; use identity"
        raise source.error((*at, "transform"), text)
    if "floor" in data and row.transform != "log":
        text = f"{row.floor:g} is added before a log only; write it with `transform: log` or remove it"
        raise source.error((*at, "floor"), text)
    conditions = tuple(
        Suppression(_key(one.metric, source, (*at, "excused_by", i, "metric")), SIGNS[one.direction])
        for i, one in enumerate(row.excused_by)
    )
    what, why, advice, origin = (" ".join(t.split()) for t in (row.what, row.why, row.advice, row.reference))
    return FileRule(
        row.name, key, slice=row.slice, kind="tail" if key.split("/")[0] in _TAILS else "aggregate",
        family="user", transform=row.transform, detector=_maker(kind, sign, options), severity=row.severity,
        what=what or row.name, why=why or f"A user's rule on {key}.", reference=origin or reference,
        suppressions=conditions,
        advice=advice or "The rule does not say what to do: look at this reading around `since`.",
        weight=row.weight, floor=row.floor, plain={**data, "reference": origin or reference},
    )  # fmt: skip


def _maker(kind: Kind, sign: int, options: dict[str, Any]) -> Make:
    return lambda arl: kind.make(arl=arl, sign=sign, **options)


def _options(row: _Row, kind: Kind, key: str, source: Source, at: Where) -> tuple[int, dict[str, Any]]:
    """Return sign and options: only the detector's own, of their types and in range."""
    struct: Any = convert(row.options, kind.struct, source, at, f" of {row.detector}")
    sign = SIGNS[struct.direction]
    options = {name: getattr(struct, name) for name in row.options if name != "direction"}
    problem = kind.check({**options, "sign": sign})
    if problem is None and row.detector == "threshold":
        problem = _outside(options["limit"], key, sign)
    if problem:
        raise source.error((*at, problem[0]), problem[1])
    return sign, options


def _outside(limit: float, key: str, sign: int) -> tuple[str, str] | None:
    """Return what is wrong with a limit that no value of the reading lies beyond, or all do."""
    low, high = READINGS[key].range
    worst, best = (high, low) if sign > 0 else (low, high)
    side, more, less = ("above", "more", "less") if sign > 0 else ("below", "less", "more")
    span = f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} or more"
    if sign * (limit - worst) >= 0:
        return (
            "limit",
            f"{limit:g}: {key} is never {side} it, its values are {span}; give {less} than {worst:g}",
        )
    if sign * (limit - best) < 0:
        return (
            "limit",
            f"{limit:g}: {key} is always {side} it, its values are {span}; give {best:g} or {more}",
        )
    return None


def _key(name: str, source: Source, at: Where) -> str:
    """Return the reading's key; `kl` stands for `aggregate/kl`."""
    key = f"aggregate/{name}" if f"aggregate/{name}" in READINGS else name
    if key not in READINGS:
        raise source.error(at, unknown(name))
    if key in ("nonfinite/count", "silence/steps"):
        raise source.error(at, f"{key} is always watched, by built-in rules; remove this one")
    return key


def unknown(name: Any) -> str:
    """Return a message: there is no such reading, and the closest there are."""
    short = {key.removeprefix("aggregate/"): key for key in READINGS}
    near = difflib.get_close_matches(str(name), [*short, *READINGS], n=6, cutoff=0.5)
    keys = list(dict.fromkeys(short.get(one, one) for one in near))[:3]
    offer = f"did you mean {' or '.join(keys)}?" if keys else "docs/reference/metrics.md lists them all"
    return f"no reading is called {name!r:.60}; {offer}"


def _check_slice(name: str, key: str, source: Source, at: Where) -> None:
    """Raise RuleError for a slice where the reading never is."""
    family = key.split("/")[0]
    if name not in _SLICES and not name.startswith(_SLICE_KINDS):
        offer = "give all, text, post_tool, or one as post_tool/NAME, tool/NAME, tool/*"
        raise source.error(at, f"no slice is called {name!r:.60}; {offer}")
    if "*" in name[:-1] or not name.split("/")[-1]:
        raise source.error(at, f"{name!r:.60} is not a slice; a * stands at the end only, as in tool/*")
    if family in ("aggregate", "joint") and name != "all":
        raise source.error(at, f"{key} is a number of the whole step; use all")
    if family == "tail_ratio" and name != "post_tool":
        raise source.error(at, f"{key} is measured in post_tool only; write slice: post_tool")
    if family == "reward_part" and not name.startswith("reward/"):
        raise source.error(at, f"{key} is measured by reward part; write slice: reward/NAME or reward/*")
