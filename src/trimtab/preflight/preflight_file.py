"""The file of a launch check: what each section may state, and the reading of it.

Paths in it are relative to its folder. Unknown fields are refused by name, with the line and the nearest
known one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from trimtab.detect.user_rules.yaml_source import Source, convert, read_yaml
from trimtab.errors import PreflightError

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0.0, le=1e9)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Family = Literal[
    "drift", "mismatch", "total", "staleness", "lagged_drift", "reward", "entropy", "gradient", "routing",
    "tools",
]  # fmt: skip
"""What a dry run may be required to observe."""


class Section(Struct, forbid_unknown_fields=True, kw_only=True):
    """What every section has."""

    limit_s: Positive = 1800.0  # seconds the whole section may take; it is ended then


class ToolsSection(Section, kw_only=True):
    """A target as `trimtab stress tools` takes it, with the objective it must hold."""

    target: Text
    tools: list[str] = []
    trace: str = ""
    p99_s: Positive | None = None
    error_rate: Share | None = None
    concurrency: Annotated[int, Meta(ge=1, le=16384)] = 1
    rate: Positive | None = None
    seconds: Annotated[float, Meta(ge=0.05, le=3600.0)] = 3.0
    max_concurrency: Annotated[int, Meta(ge=1, le=16384)] = 128
    timeout_s: Positive = 30.0
    calls_per_rollout: Positive | None = None
    rollouts: Count = 256
    cost_per_call: Annotated[float, Meta(ge=0.0)] = 0.0
    chaos: str = ""
    seed: int = 0


class RewardSection(Section, kw_only=True):
    """A reward as `trimtab stress reward` takes it."""

    function: Text
    dataset: str = ""
    previous: str = ""  # another revision of it
    completions: str = ""  # logged completions, scored with both revisions
    template: str = ""
    timeout_s: Positive = 20.0


class EnvironmentSection(Section, kw_only=True):
    """An environment as `trimtab stress env` takes it."""

    spec: Text


class ParitySection(Section, kw_only=True):
    """Two sides as `trimtab parity` takes them."""

    train: Text
    eval: Text
    train_traces: str = ""
    eval_traces: str = ""
    margin: Positive = 0.05


class DryRunSection(Section, kw_only=True):
    """A command that trains a few steps, watched by trimtab."""

    command: Annotated[list[Text], Meta(min_length=1)]  # {run} stands for a fresh run folder
    steps: Count  # that it must flush
    run: str = ""  # the run folder it writes; not needed where the command has {run}
    observe: list[Family] | None = None  # what must be observed; None: some log-ratio of tokens
    error_rate: Share | None = None  # of one tool's calls; None: the catalog's tool_failure_frac
    steps_planned: Count | None = None  # of the whole run, for the forecast
    max_hours: Positive | None = None  # that the whole run may take
    env: dict[str, str] = {}
    limit_s: Positive = 600.0


KINDS: Mapping[str, type[Section]] = {
    "tools": ToolsSection, "reward": RewardSection, "environment": EnvironmentSection,
    "parity": ParitySection, "dry_run": DryRunSection,
}  # fmt: skip
"""Sections in the order they are run, one after the other: a load test must not disturb the others."""


class _File(Struct, forbid_unknown_fields=True):
    tools: Any = None
    reward: Any = None
    environment: Any = None
    parity: Any = None
    dry_run: Any = None


@dataclass(frozen=True)
class Preflight:
    """What is to be checked."""

    path: Path
    sections: Mapping[str, tuple[Section, ...]] = field(default_factory=dict)  # of `KINDS`, those stated

    @property
    def folder(self) -> Path:
        """What paths are relative to."""
        return self.path.parent


def load_preflight(path: str | os.PathLike[str]) -> Preflight:
    """Return what a YAML file states.

    Args:
        path: The file. `tools` and `reward` may be lists.

    Returns:
        Its sections, checked field by field; nothing of theirs is opened yet.

    Raises:
        PreflightError: something in it cannot be right; in one line with file, line and field.

    Example:
        >>> load_preflight("preflight.yaml")  # doctest: +SKIP
    """
    data, source = read_yaml(path, PreflightError, f"sections: {', '.join(KINDS)}")
    if not isinstance(data, dict):
        raise source.error((), f"is not a mapping; give {source.content}", "file")
    stated = convert(data, _File, source, of=" of a launch check")
    sections: dict[str, tuple[Section, ...]] = {}
    for name in KINDS:
        value = getattr(stated, name)
        if value is None:
            continue
        several = isinstance(value, list) and name in ("tools", "reward")
        rows = [((name, i), row) for i, row in enumerate(value)] if several else [((name,), value)]
        sections[name] = tuple(_section(name, row, source, where) for where, row in rows)
        if not rows:
            raise source.error((name,), "is empty; give one target or more, or leave it out")
    if not sections:
        raise source.error((), f"nothing to check; give {source.content}", "file")
    return Preflight(Path(path).resolve(), sections)


def _section(name: str, row: Any, source: Source, where: tuple[str | int, ...]) -> Section:
    section = convert(row, KINDS[name], source, where, of=f" of {name}")
    if isinstance(section, ToolsSection) and section.p99_s is None and section.error_rate is None:
        raise source.error(where, "no objective; give p99_s, error_rate or both, else nothing could fail")
    if isinstance(section, RewardSection) and section.completions and not section.previous:
        raise source.error((*where, "completions"), "compares two revisions; give the other as previous")
    if isinstance(section, ParitySection) and bool(section.train_traces) != bool(section.eval_traces):
        raise source.error(where, "train_traces and eval_traces go together: scores are compared by task")
    if isinstance(section, DryRunSection):
        _check_dry_run(section, source, where)
    return section


def _check_dry_run(section: DryRunSection, source: Source, where: tuple[str | int, ...]) -> None:
    placed = any("{run}" in word for word in section.command)
    if not placed and not section.run:
        text = "the run folder is not named; write {run} in a word of the command, or give run"
        raise source.error((*where, "command"), text)
    if placed and section.run:
        raise source.error((*where, "run"), "is named twice; leave it out, or {run} out of the command")
    if section.max_hours is not None and section.steps_planned is None:
        raise source.error((*where, "max_hours"), "needs steps_planned, the steps of the whole run")
