"""Rules of the user's own, from a YAML file or as `Rule` objects; they add to the built-in ones and share their budget.

The grammar is docs/user-rules.md. Nothing in a file is run: a detector is chosen by name, its options are numbers.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.catalog import READINGS
from trimtab.detect.rule import Excuse, Make, Rule
from trimtab.detect.rule_file import At, at_plain, read_yaml
from trimtab.detect.rule_options import DETECTORS, Kind
from trimtab.detect.rules import RULES, STREAM_RULES
from trimtab.errors import RuleError

__all__ = ["FileRule", "header_config", "load_rules", "python_weights", "resolve", "rules_of_header"]

_FIELDS = (
    "name", "metric", "slice", "detector", "with", "transform", "severity", "weight", "what", "why", "advice", "reference",
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
_SLICES = ("all", "text", "post_tool")
_SLICE_KINDS = ("post_tool/", "phase/", "turn/", "source/", "tool/", "reward/", "file/")
_TAKEN = {rule.name for rule in RULES} | set(STREAM_RULES)
_MAX_WEIGHT = 100.0


@dataclass(frozen=True)
class FileRule(Rule):
    """A rule read from a file; `plain` is what the file says of it, so that a run's header can hold it."""

    plain: Mapping[str, Any] = field(default_factory=dict)


def load_rules(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """The rules of a YAML file. RuleError, in one line with file and line, for anything that cannot be right."""
    return _rules(read_yaml(path), f"user rule, {Path(path).name}")


def resolve(given: str | os.PathLike[str] | Iterable[Rule]) -> tuple[Rule, ...]:
    """What `open_run(rules=...)` takes, a file's path or `Rule` objects, as rules that can stand beside the built-in ones."""
    if isinstance(given, (str, os.PathLike)):
        return load_rules(given)
    if not isinstance(given, Iterable):
        raise RuleError(f"rules=: {given!r:.60} is no list; give Rule objects, or the path of a YAML file")
    rules, seen = tuple(given), set(_TAKEN)
    for rule in rules:
        if not isinstance(rule, Rule):
            raise RuleError(f"rules=: {rule!r:.60} is no Rule; give Rule objects, or the path of a YAML file")
        if rule.name in seen:
            raise RuleError(f"rules=: name: {rule.name!r} is taken; give each rule a name of its own")
        if rule.key not in READINGS:
            raise RuleError(f"rules=: {rule.name}: key: {_unknown(rule.key)}")
        if not 0.0 < rule.weight <= _MAX_WEIGHT:
            raise RuleError(
                f"rules=: {rule.name}: weight: {rule.weight!r} must be over 0, at most {_MAX_WEIGHT:g}"
            )
        seen.add(rule.name)
    return rules


def header_config(rules: Iterable[Rule]) -> dict[str, Any]:
    """What a run's header holds of its user's rules: those of files in full, the others' weights."""
    kept = list(rules)
    files = [dict(rule.plain) for rule in kept if isinstance(rule, FileRule)]
    python = {rule.name: rule.weight for rule in kept if not isinstance(rule, FileRule)}
    return ({"rules": files} if files else {}) | ({"python_rules": python} if python else {})


def rules_of_header(config: Mapping[str, Any], where: str) -> tuple[Rule, ...]:
    """The rules of files that a run was watched with; RuleError when its header holds something else."""
    held = config.get("rules")
    return _rules(at_plain({"rules": held}, f"{where}: config"), "user rule") if held else ()


def python_weights(config: Mapping[str, Any]) -> dict[str, float]:
    """Name -> weight of the rules a run was watched with that no file holds."""
    held = config.get("python_rules")
    return {
        str(name): float(weight)
        for name, weight in (held.items() if isinstance(held, dict) else ())
        if isinstance(weight, (int, float)) and 0.0 < weight <= _MAX_WEIGHT
    }


def _rules(root: At, reference: str) -> tuple[Rule, ...]:
    if not isinstance(root.value, dict):
        raise root.error("rules", "the file is no mapping; give a list of rules under `rules:`")
    for name in root.value:
        if name != "rules":
            raise root.error(name, f"unknown field{_close(name, ('rules',))}", name)
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
    _fields(item, "rule", _FIELDS, ("name", "metric", "detector", "with"))
    name, key = _name(item), _metric(item.value["metric"], "metric")
    kind, sign, options = _detector(item)
    where = _slice(item, key)
    words = {what: _text(item, what) for what in ("what", "why", "advice", "reference")}
    weight = item.value.get("weight")
    if weight is not None and not (_is_number(weight.value) and 0.0 < weight.value <= _MAX_WEIGHT):
        raise weight.error(
            "weight", f"{weight.value!r:.40} is no share; give a number over 0, at most {_MAX_WEIGHT:g}"
        )
    transform = _choice(item, "transform", ("identity", "log"), "identity")
    if transform == "log" and not kind.log:
        raise item.value["transform"].error("transform", f"{item.value['detector'].value} works on the reading's own scale; use identity")  # fmt: skip
    plain = item.plain()
    plain["reference"] = words["reference"] or reference
    return FileRule(
        name=name, key=key, slice=where, kind="tail" if key.split("/")[0] in _TAILS else "aggregate", family="user",
        transform="log" if transform == "log" else "identity", detector=_maker(kind, sign, options),
        severity=_choice(item, "severity", _SEVERITIES, "warning"),  # type: ignore[arg-type]
        what=words["what"] or name, why=words["why"] or f"A rule of the user's own on {key}.",
        advice=words["advice"] or "The rule says nothing about what to do: look at this reading around `since`.", not_when="",
        reference=plain["reference"], excuses=_excuses(item), weight=1.0 if weight is None else float(weight.value),
        plain=plain,
    )  # fmt: skip


def _maker(kind: Kind, sign: int, options: dict[str, Any]) -> Make:
    return lambda arl: kind.make(arl=arl, sign=sign, **options)


def _detector(item: At) -> tuple[Kind, int, dict[str, Any]]:
    """Kind, sign and options: only the detector's own, of their types and in range."""
    name = _choice(item, "detector", tuple(DETECTORS))
    kind, held = DETECTORS[name], item.value["with"]
    needed = ("direction", *(option for option, of in kind.options.items() if of.required))
    _fields(held, "with", ("direction", *kind.options), needed, f" of {name}")
    directions = ("up", "down", "either") if kind.either else ("up", "down")
    sign = _SIGNS[_choice(held, "direction", directions, label="with.direction")]
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


def _name(item: At) -> str:
    at = item.value["name"]
    if not isinstance(at.value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", at.value):
        raise at.error(
            "name", f"{at.value!r:.40} is no identifier; give letters, digits and _, as kl_over_two"
        )
    if at.value in _TAKEN:
        raise at.error("name", f"{at.value!r} is a built-in rule; choose another name")
    return at.value


def _metric(at: At, label: str) -> str:
    """The reading's key; `kl` stands for `aggregate/kl`."""
    key = at.value if isinstance(at.value, str) else ""
    key = f"aggregate/{key}" if f"aggregate/{key}" in READINGS else key
    if key not in READINGS:
        raise at.error(label, _unknown(at.value))
    if key in ("nonfinite/count", "silence/steps"):
        raise at.error(label, f"{key} is always watched, by built-in rules; remove this one")
    return key


def _unknown(name: Any) -> str:
    """No such reading, and the closest there are."""
    short = {key.removeprefix("aggregate/"): key for key in READINGS}
    near = difflib.get_close_matches(str(name), [*short, *READINGS], n=6, cutoff=0.5)
    keys = list(dict.fromkeys(short.get(one, one) for one in near))[:3]
    offer = f"did you mean {' or '.join(keys)}?" if keys else "docs/metrics.md lists them all"
    return f"no reading is called {name!r:.60}; {offer}"


def _slice(item: At, key: str) -> str:
    """The slice, which must be one where the reading can be."""
    at = item.value.get("slice", At("all", item.where, item.line))
    name, family = at.value, key.split("/")[0]
    if not isinstance(name, str) or not (name in _SLICES or name.startswith(_SLICE_KINDS)):
        raise at.error("slice", f"no slice is called {name!r:.60}; give all, text, post_tool, or one as post_tool/NAME, tool/NAME, tool/*")  # fmt: skip
    if "*" in name[:-1] or not name.split("/")[-1]:
        raise at.error("slice", f"{name!r:.60} is no slice; a * stands at the end only, as in tool/*")
    if family in ("aggregate", "joint") and name != "all":
        raise at.error("slice", f"{key} is a number of the whole step; use all")
    if family == "tail_ratio" and name != "post_tool":
        raise at.error("slice", f"{key} is measured in post_tool only; write slice: post_tool")
    if family == "reward_part" and not name.startswith("reward/"):
        raise at.error("slice", f"{key} is measured by reward part; write slice: reward/NAME or reward/*")
    return name


def _excuses(item: At) -> tuple[Excuse, ...]:
    held = item.value.get("excused_by")
    if held is None:
        return ()
    if not isinstance(held.value, list):
        raise held.error(
            "excused_by", "is no list; write each excuse under a dash, as - {metric: reward, direction: up}"
        )
    found: list[Excuse] = []
    for one in held.value:
        _fields(one, "excused_by", ("metric", "direction"), ("metric", "direction"))
        sign = _SIGNS[_choice(one, "direction", ("up", "down"), label="excused_by.direction")]
        found.append(Excuse(_metric(one.value["metric"], "excused_by.metric"), sign))
    return tuple(found)


def _fields(at: At, what: str, known: Sequence[str], needed: Sequence[str], of: str = "") -> None:
    """A mapping with known fields only, and with those that it needs."""
    if not isinstance(at.value, dict):
        raise at.error(what, f"is no mapping; give {', '.join(needed)}")
    prefix = "" if what == "rule" else f"{what}."
    for name in at.value:
        if name not in known:
            raise at.error(f"{prefix}{name}"[:60], f"unknown field{of}{_close(name, known)}", name)
    for name in needed:
        if name not in at.value:
            raise at.error(
                f"{prefix}{name}", f"is missing; {what if prefix else 'each rule'} needs {', '.join(needed)}"
            )


def _choice(at: At, name: str, known: Sequence[str], default: str = "", label: str = "") -> str:
    held = at.value.get(name)
    if held is None:
        return default
    if not isinstance(held.value, str) or held.value not in known:
        raise held.error(label or name, f"{held.value!r:.40} is unknown{_close(held.value, known)}")
    return held.value


def _text(at: At, name: str) -> str:
    held = at.value.get(name)
    if held is None:
        return ""
    if not isinstance(held.value, str) or not held.value.strip() or len(held.value) > 500:
        raise held.error(name, "is no text of 1 to 500 characters; quote it")
    return " ".join(held.value.split())


def _close(name: Any, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
