"""Rules of the user's own, from a YAML file or as `Rule` objects; they add to the built-in ones and share their budget.

The grammar is docs/how-to/user-rules.md. Nothing in a file is run: a detector is chosen by name, its options are numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trimtab.catalog import READINGS
from trimtab.detect.rules.rule import Rule
from trimtab.detect.user_rules.names import TAKEN, unknown
from trimtab.detect.user_rules.parser import MAX_WEIGHT, FileRule, rules_of
from trimtab.detect.user_rules.yaml_nodes import at_plain, read_yaml
from trimtab.errors import RuleError


def load_rules(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """The rules of a YAML file. RuleError, in one line with file and line, for anything that cannot be right."""
    return rules_of(read_yaml(path), f"user rule, {Path(path).name}")


def resolve(given: str | os.PathLike[str] | Iterable[Rule]) -> tuple[Rule, ...]:
    """What `open_run(rules=...)` takes, a file's path or `Rule` objects, as rules that can stand beside the built-in ones."""
    if isinstance(given, (str, os.PathLike)):
        return load_rules(given)
    if not isinstance(given, Iterable):
        raise RuleError(f"rules=: {given!r:.60} is no list; give Rule objects, or the path of a YAML file")
    rules, seen = tuple(given), set(TAKEN)
    for rule in rules:
        if not isinstance(rule, Rule):
            raise RuleError(f"rules=: {rule!r:.60} is no Rule; give Rule objects, or the path of a YAML file")
        if rule.name in seen:
            raise RuleError(f"rules=: name: {rule.name!r} is taken; give each rule a name of its own")
        if rule.key not in READINGS:
            raise RuleError(f"rules=: {rule.name}: key: {unknown(rule.key)}")
        if not 0.0 < rule.weight <= MAX_WEIGHT:
            raise RuleError(
                f"rules=: {rule.name}: weight: {rule.weight!r} must be over 0, at most {MAX_WEIGHT:g}"
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
    return rules_of(at_plain({"rules": held}, f"{where}: config"), "user rule") if held else ()


def python_weights(config: Mapping[str, Any]) -> dict[str, float]:
    """Name -> weight of the rules a run was watched with that no file holds."""
    held = config.get("python_rules")
    return {
        str(name): float(weight)
        for name, weight in (held.items() if isinstance(held, dict) else ())
        if isinstance(weight, (int, float)) and 0.0 < weight <= MAX_WEIGHT
    }
