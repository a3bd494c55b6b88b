"""Rules of users, from a YAML file or as `Rule` objects; they join the built-in ones and their budget.

The grammar is docs/how-to/user-rules.md. Nothing in a file is run: detectors are chosen by name, options are
numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trimtab.catalog import READINGS
from trimtab.detect.rules.rule import Rule
from trimtab.detect.user_rules.grammar import MAX_WEIGHT, TAKEN, FileRule, rules_of, unknown
from trimtab.detect.user_rules.yaml_source import Source, read_yaml
from trimtab.errors import RuleError


def load_rules(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """Return the rules of a YAML file.

    Args:
        path: The file.

    Returns:
        Its rules, in order.

    Raises:
        RuleError: something in it cannot be right; in one line with file and line.

    Example:
        >>> load_rules("rules.yaml")  # doctest: +SKIP
    """
    return rules_of(*read_yaml(path), f"user rule, {Path(path).name}")


def resolve(rules: str | os.PathLike[str] | Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules of `open_run(rules=...)`: a file's path, or `Rule` objects.

    Raises:
        RuleError: one of them cannot join the built-in rules.
    """
    if isinstance(rules, (str, os.PathLike)):
        return load_rules(rules)
    need = "give Rule objects, or the path of a YAML file"
    if not isinstance(rules, Iterable):
        raise RuleError(f"rules=: {rules!r:.60} is not a list; {need}")
    rules, seen = tuple(rules), set(TAKEN)
    for rule in rules:
        if not isinstance(rule, Rule):
            raise RuleError(f"rules=: {rule!r:.60} is not a Rule; {need}")
        if rule.name in seen:
            raise RuleError(f"rules=: name: {rule.name!r} is taken; give each rule a name of its own")
        if rule.key not in READINGS:
            raise RuleError(f"rules=: {rule.name}: key: {unknown(rule.key)}")
        if not 0.0 < rule.weight <= MAX_WEIGHT:
            text = f"weight: {rule.weight!r} must be over 0, at most {MAX_WEIGHT:g}"
            raise RuleError(f"rules=: {rule.name}: {text}")
        seen.add(rule.name)
    return rules


def header_config(rules: Iterable[Rule]) -> dict[str, Any]:
    """Return what a run's header holds of its user's rules: those of files in full, the others' weights."""
    rules = list(rules)
    files = [dict(rule.plain) for rule in rules if isinstance(rule, FileRule)]
    python = {rule.name: rule.weight for rule in rules if not isinstance(rule, FileRule)}
    return ({"rules": files} if files else {}) | ({"python_rules": python} if python else {})


def rules_of_header(config: Mapping[str, Any], where: str) -> tuple[Rule, ...]:
    """Return the rules of files that a run was watched with; RuleError when its header is damaged."""
    rows = config.get("rules")
    return rules_of({"rules": rows}, Source(f"{where}: config"), "user rule") if rows else ()


def python_weights(config: Mapping[str, Any]) -> dict[str, float]:
    """Return name -> weight of the rules a run was watched with that no file holds."""
    weights = config.get("python_rules")
    return {
        str(name): float(weight)
        for name, weight in (weights.items() if isinstance(weights, dict) else ())
        if isinstance(weight, (int, float)) and 0.0 < weight <= MAX_WEIGHT
    }
