"""The data of the HTML report, as plain JSON types: what is drawn, separate from how."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from trimtab._version import __version__
from trimtab.measure.all_measures import readings_of
from trimtab.measure.sequences.aggregates import AGGREGATES
from trimtab.measure.state.slice_state import Accumulator, SliceState
from trimtab.report.alarms import alarm_payload, by_severity
from trimtab.report.averages import averages_of
from trimtab.report.behaviour.snapshot_summary import snapshot_section
from trimtab.report.headline import run_headline
from trimtab.report.post_mortem import post_mortem
from trimtab.report.post_mortem.post_mortem_page import post_mortem_view
from trimtab.report.ranks.machine_view import machine_table
from trimtab.report.run_ending import ending_of, identity_facts, identity_line
from trimtab.report.run_incidents import cause_line, incidents_of
from trimtab.report.run_rows import nonfinite_steps
from trimtab.report.run_tables import (
    actions_table,
    cleaned_values,
    exemplar_table,
    guard_line,
    tools_table,
)
from trimtab.report.run_view import RunView
from trimtab.runs.secret_masks import masked_settings
from trimtab.runs.sink_losses import sink_line, sink_losses
from trimtab.traces.core.plural import counted
from trimtab.types import Reading, Window

Json = dict[str, Any]
Blocks = Sequence[tuple[Window, dict[str, SliceState]]]

_MAX_POINTS = 240
_ENOUGH_WINDOWS = 20
_MAX_CDF_POINTS = 160
_WEIGHTS = (
    ("drift/concentration", "concentration (drift)"),
    ("mismatch/token_ess_frac", "token ESS fraction (mismatch)"),
    ("total/token_ess_frac", "token ESS fraction (total)"),
    ("mismatch/sequence_ess_frac", "sequence ESS fraction (mismatch)"),
)
_SUPPORT = (
    ("ref_logprob/below_5_frac", "share of tokens below -5 nats"),
    ("ref_logprob/below_10_frac", "share of tokens below -10 nats"),
    ("ref_logprob/p01", "log pi_ref p01"),
)


def build_payload(views: Sequence[RunView], title: str = "") -> Json:
    """Everything the page shows of one or more runs; without a title their names, and of one its verdict."""
    pairs = dict.fromkeys(pair for view in views for pair in _alarmed_pairs(view))
    runs = [_run(view, list(pairs)) for view in views]
    named = (
        f"{runs[0]['name']}: {runs[0]['headline']}" if len(runs) == 1 else ", ".join(v.name for v in views)
    )
    return {
        "title": title or named,
        "generated": time.strftime("%Y-%m-%d %H:%M:%S"),
        "trimtab_version": __version__,
        "runs": runs,
    }


def _run(view: RunView, alarmed: Sequence[tuple[str, str]]) -> Json:
    steps = view.steps
    main = [name for name in ("text", "post_tool") if name in view.slices]
    return {
        "name": view.name,
        "path": str(view.folder),
        "verdict": view.verdict.word,
        "headline": _headline(view),
        "verdict_reason": view.verdict.reason,
        "ending": ending_of(view.reader, steps)["text"],
        "post_mortem": post_mortem_view(post_mortem(view)),
        "cause": cause_line(incidents_of(view)),
        "identity": identity_line(view.reader.header["config"]),
        "rules_judged": list(view.evidence.judged),
        "rules_pending": dict(view.evidence.pending),
        "first_step": steps[0]["step"] if steps else 0,
        "last_step": steps[-1]["step"] if steps else 0,
        "num_steps": len(steps),
        "num_tokens": view.totals("all")["n_tokens"],
        "num_trajectories": view.totals("all")["n_trajectories"],
        "ranks": len(view.reader.ranks),
        "sessions": view.reader.num_sessions,
        "facts": _facts(view),
        "not_observed": [{"what": what, "why": why} for what, why in sorted(view.not_observed.items())],
        "notes": _notes(view),
        "guard": guard_line(view.actions, view.reader.header["config"]),
        "actions": actions_table(view.actions),
        "alarms": [alarm_payload(alarm, view.user_rules) for alarm in by_severity(view.alarms)],
        "alarmed": _alarmed(view, alarmed),
        "tail": [_tail(view, name, f"drift/{q}") for name in main for q in ("p99", "p95")]
        + [_tail(view, name, "lagged_drift/p95") for name in main],
        "needs": f"{view.min_tokens:,} tokens from {view.min_trajectories} trajectories",
        "cdf": _cdfs(view, main),
        "weights": _sliding(view, main, _WEIGHTS, supporting=True),
        "aggregates": _aggregates(view),
        "support": _sliding(view, main, _SUPPORT),
        "machine": machine_table(view.machine.summary()),
        "tools": tools_table(view.tools),
        "exemplars": exemplar_table(view.exemplars),
        "snapshots": snapshot_section(view),
        "judged": [_judged(view, name) for name in view.slices],
    }


def _headline(view: RunView) -> str:
    """The sentence of the run, and what its sinks lost."""
    steps = [row["step"] for row in view.steps]
    headline = run_headline(view.verdict, view.alarms, steps, view.user_rules, nonfinite_steps(view.steps))
    return f"{headline} {sink_line(sink_losses(view.reader))}".rstrip()


def _line(name: str, quantity: str, readings: Sequence[Reading]) -> Json:
    columns = {"step": [r.step for r in readings], "value": [r.value for r in readings]}
    return {"slice": name, "quantity": quantity, **columns}


def _tail(view: RunView, name: str, key: str) -> Json:
    readings = view.series(key, name)
    line = _line(name, key.replace("_", " ").replace("/", " "), readings)
    ends = ("low", "high", "n_tokens", "n_trajectories")
    return {**line, **{field: [getattr(r, field) for r in readings] for field in ends}}


def _facts(view: RunView) -> list[list[str]]:
    steps, header = view.steps, view.reader.header
    facts = [["run id", str(header.get("run_id", ""))], ["trimtab", str(header.get("trimtab_version", ""))]]
    drift = (reading for name in view.slices for reading in view.series("drift/p95", name))
    references = sorted({reading.reference for reading in drift if reading.reference})
    facts.append(["reference of drift", "; ".join(references) or "none observed"])
    seconds_of = {name: sum(row["costs_s"].get(name, 0.0) for row in steps) for name in _costs(steps)}
    total = sum(row["duration_s"] or 0.0 for row in steps)
    for name, seconds in seconds_of.items():
        share = f", {seconds / total:.1%} of step time" if total else ""
        facts.append([f"time spent: {name}", f"{seconds:.2f} s{share}"])
    facts.append(["torn last lines", str(view.reader.num_torn)])
    facts.append(["malformed lines skipped", str(view.reader.num_malformed)])
    if view.user_rules:
        facts.append(["user rules", ", ".join(rule.name for rule in view.user_rules)])
    config = header.get("config", {})
    settings = masked_settings(
        {key: config[key] for key in config if key not in ("rules", "identity", "guard")}
    )
    facts += identity_facts(config.get("identity"))
    facts += [[key, str(settings[key])] for key in sorted(settings)]
    return facts


def _costs(steps: list[Json]) -> list[str]:
    return sorted({name for row in steps for name in row["costs_s"]})


def _notes(view: RunView) -> list[str]:
    notes = []
    if view.errors:
        last = view.errors[-1]
        notes.append(
            f"The monitor failed {counted(len(view.errors), 'time')} (last in {last['where']} after step "
            f"{last['step']}: {last['error']}); what it measured in those steps is missing here."
        )
    if view.reader.num_malformed:
        count = view.reader.num_malformed
        notes.append(f"{counted(count, 'line')} of the run folder could not be read, skipped.")
    notes += [
        f"{what}: {counted(count, 'value')} cut or replaced, as they cannot be stored."
        for what, count in cleaned_values(view.steps).items()
    ]
    return notes


def _thirds(windows: Sequence[Window]) -> list[tuple[str, int, int]]:
    """Early, middle and late, as first and last step: a fifth of the stored windows each, at least one."""
    count = len(windows)
    if not count:
        return []
    size = max(1, count // 5)
    middle = (count - size) // 2
    spans = (("early", 0, size), ("middle", middle, middle + size), ("late", count - size, count))
    return [(label, windows[start].first, windows[stop - 1].last) for label, start, stop in spans]


def _cdfs(view: RunView, slices: Sequence[str]) -> list[Json]:
    curves: list[Json] = []
    for label, first, last in _thirds(view.stored_windows):
        merged = Accumulator()
        for _, states in view.stored(first, last, slices, ("drift/sketch",)):
            for name, state in states.items():
                merged.add(name, state)
        for name in slices:
            sketch = merged.states[name].summaries.get("drift/sketch") if name in merged.states else None
            if sketch is None or not sketch.count:
                continue
            x, y = sketch.abs_cdf()
            stride = max(1, -(-len(x) // _MAX_CDF_POINTS))
            pick = sorted({*range(0, len(x), stride), len(x) - 1}) if len(x) else []
            curve = {"slice": name, "window": label, "first": first, "last": last, "n_tokens": sketch.count}
            curves.append({**curve, "x": [float(x[i]) for i in pick], "y": [float(y[i]) for i in pick]})
    return curves


def _sliding(
    view: RunView, slices: Sequence[str], wanted: Sequence[tuple[str, str]], supporting: bool = False
) -> list[Json]:
    """Readings of closed windows; of a young run, which has few, over trailing windows that may be judged."""
    closed = [(name, key, label, _judged_series(view, key, name)) for name in slices for key, label in wanted]
    if max((len(series) for *_, series in closed), default=0) >= _ENOUGH_WINDOWS:
        lines = [_line(name, label, series) for name, _, label, series in closed if series]
        return [{**line, "supporting": True} if supporting else line for line in lines]
    curves: dict[tuple[str, str], Json] = {}
    blocks = view.blocks
    for end in range(0, len(blocks), max(1, -(-len(blocks) // _MAX_POINTS))):
        for name in slices:
            window, state = _trailing(view, end, name)
            if state is None:
                continue
            values = {r.key: r.value for r in readings_of(name, window, state) if r.status == "ok"}
            for key, label in wanted:
                if key in values:
                    line = curves.setdefault((name, key), _line(name, label, ()))
                    line["step"].append(window.last)
                    line["value"].append(values[key])
    return [{**line, "supporting": True} if supporting else line for line in curves.values()]


def _judged_series(view: RunView, key: str, name: str) -> list[Reading]:
    series = [reading for reading in view.series(key, name) if reading.status == "ok"]
    return series[:: max(1, -(-len(series) // _MAX_POINTS))]


def _trailing(view: RunView, end: int, name: str) -> tuple[Window, SliceState | None]:
    merged: SliceState | None = None
    blocks = view.blocks
    for i in range(end, -1, -1):
        state = blocks[i][1].get(name)
        if state is not None:
            merged = state if merged is None else merged.merge(state)
        enough = merged and merged.scored_trajectories >= view.min_trajectories
        if merged and enough and merged.scored_tokens >= view.min_tokens:
            return Window(blocks[i][0].first, blocks[end][0].last), merged
    return Window(0, blocks[end][0].last), None


def _aggregates(view: RunView) -> list[Json]:
    curves: list[Json] = [{"name": name, **series._asdict()} for name, series in averages_of(view).items()]
    alpha = view.series("alpha/frac", "all")
    if alpha:
        curves.append({"name": "alpha", "step": [r.step for r in alpha], "value": [r.value for r in alpha]})
    return curves


def _alarmed_pairs(view: RunView) -> list[tuple[str, str]]:
    """Key and slice of the readings that raised an alarm and have no chart elsewhere on the page."""
    drawn = {key for key, _ in (*_WEIGHTS, *_SUPPORT)} | {f"aggregate/{name}" for name in AGGREGATES}
    drawn |= {"drift/p99", "drift/p95", "lagged_drift/p95"}
    read = [(alarm.readings[0].key, alarm.slice) for alarm in view.alarms if alarm.readings]
    return [(key, name) for key, name in read if key not in drawn]


def _alarmed(view: RunView, pairs: Sequence[tuple[str, str]]) -> list[Json]:
    """Series of the readings that raised an alarm in any run of the page, so that runs can be compared."""
    lines = [(key, name, _judged_series(view, key, name)) for key, name in pairs]
    named = [(name, f"{key.removeprefix('aggregate/')} in {name}", series) for key, name, series in lines]
    return [_line(*one) for one in named if one[-1]]


def _judged(view: RunView, name: str) -> Json:
    status = "ok" if name in view.readings.slices else "not judged yet"
    return {"slice": name, "status": status, **view.totals(name)}
