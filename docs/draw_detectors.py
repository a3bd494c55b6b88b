"""The pictures of docs/reference/rules.md: one panel a rule, a recorded trace where there is one. Called by make_detectors.py."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from benchmarks.banks.generated import pathological
from benchmarks.banks.pathologies import PATHOLOGIES
from PIL import Image
from reproduce.archives import unpacked

from trimtab.detect.detectors.composite_reading import FAMILIES, CompositeReading
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rules.all_rules import RULES
from trimtab.detect.rules.rule import Rule
from trimtab.report.run_view import load_view
from trimtab.types import Alarm

__all__ = ["draw"]

ROOT = Path(__file__).resolve().parents[1]
LINE, ALARM, SHADE = "#4c6a92", "#c0504d", "#f0d9c8"
SCRIPTED = {"gallery-tools"}
"""Runs of the gallery whose policy writes what a script says: they show what the script is about."""

Key = tuple[str, str]
Series = tuple[list[int], list[float]]


@dataclass
class Trace:
    """One run's series and alarms. `onset` is -1 in a recorded one."""

    name: str
    series: dict[Key, Series]
    alarms: list[Alarm]
    judged: frozenset[str] = frozenset()
    family: str = ""
    onset: int = -1
    moves: frozenset[Key] = frozenset()
    last: int = field(init=False)

    def __post_init__(self) -> None:
        self.last = max((steps[-1] for steps, _ in self.series.values() if len(steps)), default=0)
        for name, members in FAMILIES.items():
            steps, values = CompositeReading(members).scan(self.series)
            if len(steps):
                self.series[f"joint/{name}", "all"] = steps, values

    def of(self, rule: Rule) -> Iterator[str]:
        """Slices of this trace that the rule speaks of and that have at least ten values."""
        for (key, name), (steps, _) in self.series.items():
            if key == rule.key and rule.covers(name) and len(steps) >= 10:
                yield name

    def moved(self, rule: Rule) -> int:
        """How many of the series behind the rule's reading the generated trouble moves."""
        members = FAMILIES.get(rule.key.removeprefix("joint/"), ())
        behind = {m.key for m in members} if members else {(rule.key, rule.slice)}
        return len(behind & self.moves)


def draw(sets: Mapping[str, tuple[Rule, ...]], folder: Path) -> dict[str, dict[str, Any]]:
    """Draw <set>.png for each set; rule -> what its panel shows."""
    recorded = [
        _recorded(path) for path in sorted((unpacked(ROOT / "reproduce" / "bank") / "tuning").iterdir())
    ]
    gallery = [
        _recorded(path) for path in sorted(unpacked(ROOT / "reproduce" / "gallery" / "runs").iterdir())
    ]
    made = [_generated(log) for log in pathological("tuning", 1, ("high",))]
    found: dict[str, dict[str, Any]] = {}
    for name, rules in sets.items():
        panels = []
        for rule in rules:
            found[rule.name], trace, alarm = _choose(rule, recorded, gallery, made)
            if trace is not None:
                panels.append((rule, found[rule.name], trace, alarm))
        if panels:
            _draw(panels, folder / f"{name}.png")
    return found


def _recorded(folder: Path) -> Trace:
    view = load_view(folder)
    names = {*view.slices, *(row["slice"] for row in view.readings.rows), "all"}
    series: dict[Key, Series] = {}
    for rule in RULES:
        for name in names:
            if rule.covers(name):
                values = [r for r in view.series(rule.key, name) if r.status == "ok"]
                if values:
                    series[rule.key, name] = [r.step for r in values], [r.value for r in values]
    return Trace(folder.name, series, list(view.pipeline.alarms), frozenset(view.pipeline.judged()))


def _generated(log: Any) -> Trace:
    pipeline = Pipeline()
    pipeline.on_log(log.series)
    moves, judged = frozenset(PATHOLOGIES[log.kind].moves), frozenset(pipeline.judged())
    return Trace(log.id, dict(log.series), pipeline.alarms, judged, log.family, log.onset, moves)


Choice = tuple[dict[str, Any], Trace | None, Alarm | None]


def _choose(rule: Rule, recorded: list[Trace], gallery: list[Trace], made: list[Trace]) -> Choice:
    """A run of the bank that has the reading; else what fired: a run of the gallery, a generated log, a run with a scripted policy;
    else one that did not: a generated log, a run of the gallery; else nothing."""
    bank = _of_runs(rule, recorded)
    if bank[1] is not None:
        return bank
    own, generated = (
        _of_runs(rule, [t for t in gallery if t.name not in SCRIPTED], varied=True),
        _of_logs(rule, made),
    )
    shown = _of_runs(rule, gallery, varied=True)
    for choice in (own, shown):
        choice[0]["gallery"] = True
    order = [choice for choice in (own, generated, shown) if choice[2] is not None]
    known = [choice for choice in (generated, shown) if choice[1] is not None]
    return next(iter([*order, *known]), ({"status": "none"}, None, None))


def _of_runs(rule: Rule, runs: list[Trace], varied: bool = False) -> Choice:
    """One where it fired; else the longest of those where its reading exists, or the one of most values unlike each other."""
    having = [trace for trace in runs if any(trace.of(rule))]
    fired = [(t, a) for t in having if (a := _first(t, rule)) is not None]
    if fired:
        trace, alarm = min(fired, key=lambda one: (_suppressed(rule, one[1]), _off(*one), one[0].name))
        note = _note("fired", rule, trace, alarm)
        return note | {"num": len(fired), "of": len(having)}, trace, alarm
    if having:
        known = sum(rule.name in trace.judged for trace in having)
        of = _num_unlike if varied else _num_values
        trace = max(having, key=lambda t: (max(of(t, rule, n) for n in t.of(rule)), t.name))
        note = _note("calm" if known else "short", rule, trace, None)
        if varied:
            note["slice"] = max(trace.of(rule), key=lambda n: of(trace, rule, n))
        return note | {"num": known, "of": len(having)}, trace, None
    return {"status": "none"}, None, None


def _num_values(trace: Trace, rule: Rule, name: str) -> int:
    return len(trace.series[rule.key, name][0])


def _num_unlike(trace: Trace, rule: Rule, name: str) -> int:
    return len(set(trace.series[rule.key, name][1]))


def _of_logs(rule: Rule, made: list[Trace]) -> Choice:
    """One where it fired on what was put in; else one where its reading exists."""
    having = [trace for trace in made if any(trace.of(rule))]
    having.sort(key=lambda t: (t.family != rule.family, -t.moved(rule), t.name))
    fired = [(t, a) for t in having if (a := _first(t, rule)) is not None and t.moved(rule)]
    if fired:
        trace, alarm = min(fired, key=lambda one: _suppressed(rule, one[1]))
        return _note("generated", rule, trace, alarm), trace, alarm
    if having:
        trace = min(having, key=lambda t: (-t.moved(rule), t.family != rule.family, t.name))
        return _note("generated", rule, trace, None), trace, None
    return {"status": "none"}, None, None


def _first(trace: Trace, rule: Rule) -> Alarm | None:
    """The rule's first alarm (in a generated log: after the onset), one that is not suppressed if there is any."""
    where = set(trace.of(rule))
    mine = [a for a in trace.alarms if a.rule == rule.name and a.slice in where and a.step >= trace.onset]
    return min(mine, key=lambda a: (_suppressed(rule, a), a.step), default=None)


def _suppressed(rule: Rule, alarm: Alarm) -> bool:
    return alarm.severity == "info" and rule.severity != "info"


def _off(trace: Trace, alarm: Alarm) -> float:
    """An alarm near the middle shows what came before and after."""
    return round(abs(alarm.step / max(1, trace.last) - 0.4), 3)


def _note(status: str, rule: Rule, trace: Trace, alarm: Alarm | None) -> dict[str, Any]:
    where = alarm.slice if alarm else max(trace.of(rule), key=lambda n: _num_values(trace, rule, n))
    note: dict[str, Any] = {
        "status": status,
        "run": trace.name,
        "slice": where,
        "many": rule.slice.endswith("*"),
    }
    if alarm:
        note |= {"step": alarm.step, "since": alarm.since, "suppressed": _suppressed(rule, alarm)}
    if trace.onset >= 0:
        note["onset"] = trace.onset
    return note


def _draw(panels: list[tuple[Rule, dict[str, Any], Trace, Alarm | None]], path: Path) -> None:
    columns = 3 if len(panels) in (3, 5, 6, 9) else 4
    rows = -(-len(panels) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(12, 2.15 * rows), squeeze=False)
    flat = list(axes.flat)
    for ax in flat[len(panels) :]:
        ax.set_visible(False)
    for ax, (rule, note, trace, alarm) in zip(flat, panels, strict=False):
        steps, values = trace.series[rule.key, note["slice"]]
        if alarm is not None:
            ax.axvspan(alarm.since, alarm.step, color=SHADE, lw=0, zorder=0)
            ax.axvline(alarm.step, color=ALARM, lw=1.1, zorder=3)
        if trace.onset >= 0:
            ax.axvline(trace.onset, color="0.35", lw=0.9, ls=":", zorder=2)
        ax.plot(steps, values, color=LINE, lw=0.9 if len(steps) < 300 else 0.5, zorder=1)
        if rule.transform == "log" and min(values) > 0 and max(values) > 3 * min(values):
            ax.set_yscale("log")
            ax.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        else:
            ax.locator_params(axis="y", nbins=4)
        if ax.get_yscale() == "log" and math.log10(max(values) / min(values)) < 1.6:
            ax.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        ax.locator_params(axis="x", nbins=5)
        ax.margins(x=0.01)
        ax.set_title(rule.name, fontsize=9, loc="left", pad=15, fontweight="bold")
        ax.text(0, 1.03, _under(note), transform=ax.transAxes, fontsize=7.5, color="0.3", va="bottom")
        ax.tick_params(labelsize=7.5, length=2.5)
        ax.spines[["top", "right"]].set_visible(False)
    fig.tight_layout(h_pad=1.1, w_pad=0.9)
    fig.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(fig)
    Image.open(path).convert("RGB").quantize(255).save(path, optimize=True)


def _under(note: dict[str, Any]) -> str:
    """The second line of a panel's title."""
    run = note["run"].removeprefix("tuning-").removesuffix("-high-0")
    run += f", {note['slice']}" if note["many"] else ""
    if note["status"] == "fired":
        return f"{run}{': suppressed' if note['suppressed'] else ''}"
    if note["status"] == "generated":
        word = "" if "step" in note else ", no alarm"
        return f"generated: {run}{', suppressed' if note.get('suppressed') else word}"
    return f"{run}: " + (
        ("calm" if note.get("gallery") else "calm in every recorded run")
        if note["status"] == "calm"
        else "too few values to judge"
    )
