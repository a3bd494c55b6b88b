"""A rule file's grammar (docs/how-to/user-rules.md): from values with lines to rules, everything that cannot be right an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.catalog import READINGS
from trimtab.detect.rules.rule import Make, Rule, Suppression
from trimtab.detect.user_rules.detector_options import DETECTORS, Kind
from trimtab.detect.user_rules.fields import choice, close, fields, is_number, text
from trimtab.detect.user_rules.names import metric_of, name_of, slice_of
from trimtab.detect.user_rules.yaml_nodes import At

_FIELDS = (
    "name", "metric", "slice", "detector", "with", "transform", "floor", "severity", "weight", "what", "why", "advice", "reference",
    "excused_by",
)  # fmt: skip
_SIGNS = {"up": 1, "down": -1, "either": 0}
_SEVERITIES = ("info", "warning", "critical")
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
MAX_WEIGHT = 100.0


@dataclass(frozen=True)
class FileRule(Rule):
    """A rule read from a file; `plain` is what the file says of it, so that a run's header can hold it."""

    plain: Mapping[str, Any] = field(default_factory=dict)


def rules_of(root: At, reference: str) -> tuple[Rule, ...]:
    """All rules of a file; `reference` is their source where they name none."""
    if not isinstance(root.value, dict):
        raise root.error("rules", "the file is no mapping; give a list of rules under `rules:`")
    for name in root.value:
        if name != "rules":
            raise root.error(name, f"unknown field{close(name, ('rules',))}", name)
    listed = root.value.get("rules")
    if listed is None or not isinstance(listed.value, list) or not listed.value:
        raise (listed or root).error(
            "rules", "is no list of rules; write `rules:` and each rule under a dash"
        )
    found: list[Rule] = []
    seen: dict[str, int] = {}
    for item in listed.value:
        rule = _rule(item, reference)
        if rule.name in seen:
            first = f", first in line {seen[rule.name]}" if seen[rule.name] else ""
            raise item.value["name"].error("name", f"{rule.name!r} is given twice{first}; rename one")
        seen[rule.name] = item.value["name"].line
        found.append(rule)
    return tuple(found)


def _rule(item: At, reference: str) -> FileRule:
    fields(item, "rule", _FIELDS, ("name", "metric", "detector", "with"))
    name, key = name_of(item), metric_of(item.value["metric"], "metric")
    kind, sign, options = _detector(item)
    if item.value["detector"].value == "threshold":
        _within(item.value["with"].value["limit"], key, sign)
    where = slice_of(item, key)
    words = {what: text(item, what) for what in ("what", "why", "advice", "reference")}
    weight = item.value.get("weight")
    if weight is not None and not (is_number(weight.value) and 0.0 < weight.value <= MAX_WEIGHT):
        raise weight.error(
            "weight", f"{weight.value!r:.40} is no share; give a number over 0, at most {MAX_WEIGHT:g}"
        )
    transform = choice(item, "transform", ("identity", "log"), "identity")
    if transform == "log" and not kind.log:
        raise item.value["transform"].error("transform", f"{item.value['detector'].value} works on the reading's own scale; use identity")  # fmt: skip
    floor = item.value.get("floor")
    if floor is not None and not (is_number(floor.value) and floor.value >= 0.0 and transform == "log"):
        raise floor.error(
            "floor",
            f"{floor.value!r:.40} cannot be added before a log; give a number of at least 0, with `transform: log`",
        )
    plain = item.plain()
    plain["reference"] = words["reference"] or reference
    return FileRule(
        name=name, key=key, slice=where, kind="tail" if key.split("/")[0] in _TAILS else "aggregate", family="user",
        transform="log" if transform == "log" else "identity", detector=_maker(kind, sign, options),
        severity=choice(item, "severity", _SEVERITIES, "warning"),  # type: ignore[arg-type]
        what=words["what"] or name, why=words["why"] or f"A rule of the user's own on {key}.",
        advice=words["advice"] or "The rule says nothing about what to do: look at this reading around `since`.", not_when="",
        reference=plain["reference"], suppressions=_excuses(item), weight=1.0 if weight is None else float(weight.value),
        floor=0.0 if floor is None else float(floor.value), plain=plain,
    )  # fmt: skip


def _maker(kind: Kind, sign: int, options: dict[str, Any]) -> Make:
    return lambda arl: kind.make(arl=arl, sign=sign, **options)


def _detector(item: At) -> tuple[Kind, int, dict[str, Any]]:
    """Kind, sign and options: only the detector's own, of their types and in range."""
    name = choice(item, "detector", tuple(DETECTORS))
    kind, held = DETECTORS[name], item.value["with"]
    needed = ("direction", *(option for option, of in kind.options.items() if of.required))
    fields(held, "with", ("direction", *kind.options), needed, f" of {name}")
    directions = ("up", "down", "either") if kind.either else ("up", "down")
    sign = _SIGNS[choice(held, "direction", directions, label="with.direction")]
    options: dict[str, Any] = {}
    for option, at in held.value.items():
        if option == "direction":
            continue
        of = kind.options[option]
        wrong = of.wrong(at.value)
        if wrong:
            raise at.error(f"with.{option}", wrong)
        options[option] = of.kind(at.value)
    found = kind.check({**options, "sign": sign})
    if found:
        raise held.value.get(found[0], held).error(f"with.{found[0]}", found[1])
    return kind, sign, options


def _within(limit: At, key: str, sign: int) -> None:
    """A limit that some value of the reading lies beyond, and some does not."""
    low, high = READINGS[key].range
    worst, best = (high, low) if sign > 0 else (low, high)
    side = "above" if sign > 0 else "below"
    span = f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} or more"
    more, less = ("more", "less") if sign > 0 else ("less", "more")
    if sign * (limit.value - worst) >= 0:
        raise limit.error("with.limit", f"{limit.value:g}: {key} is never {side} it, its values are {span}; give {less} than {worst:g}")  # fmt: skip
    if sign * (limit.value - best) < 0:
        raise limit.error("with.limit", f"{limit.value:g}: {key} is always {side} it, its values are {span}; give {best:g} or {more}")  # fmt: skip


def _excuses(item: At) -> tuple[Suppression, ...]:
    held = item.value.get("excused_by")
    if held is None:
        return ()
    if not isinstance(held.value, list):
        raise held.error(
            "excused_by", "is no list; write each excuse under a dash, as - {metric: reward, direction: up}"
        )
    found: list[Suppression] = []
    for one in held.value:
        fields(one, "excused_by", ("metric", "direction"), ("metric", "direction"))
        sign = _SIGNS[choice(one, "direction", ("up", "down"), label="excused_by.direction")]
        found.append(Suppression(metric_of(one.value["metric"], "excused_by.metric"), sign))
    return tuple(found)
