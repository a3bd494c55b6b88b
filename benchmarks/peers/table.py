"""How often does each system cry wolf, how much does it find, how late? Pure functions of findings and truth.

A truth is a row of the bench: `{"id", "healthy": bool, "onset": step | null, "steps": [int], "expected_family"?}`. An answer is a
line of `run_peer.py`, ours included: `{"id", "findings": [{"rule", "severity", "step", "families"?}], "seconds"?, "evaluated"?}`.

* An alarm is a finding of severity warning or critical; an info is a note, counted apart. High means critical.
* False alarms: alarms of healthy logs, per 10,000 steps that the system read, with the exact Poisson bound (Garwood 1936). Alarms
  within a log depend on each other, which that bound ignores: the share of healthy logs with an alarm and the bootstrap over logs
  do not.
* Detected: a pathological log with an alarm at or after the onset. One before it is early, counted apart, and is no detection. An
  alarm without a step judges the whole log: it detects, and has no delay. A log whose onset is null is wrong from its first step:
  any alarm detects it, without a delay. A log that a system stopped reading before the onset is left out for it (`unreached`).
* Delay: steps from the onset to the first such alarm, over detected logs only, so read it next to the share detected.
* Named: of the logs detected at a known family, the share with an alarm that speaks for that family.
* The interval of a share is Clopper and Pearson's, since a bootstrap of 20 in 20 has no width; the others are bootstrapped over logs.
* A system that alarms often detects by chance: read what is found next to what is named and to the false alarms. And that of a
  peer that judges prefixes grows with their number: it is the rate at that spacing of checkpoints.
* An answer with an `error`, or none, is a failure: counted, left out of all else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.peers.intervals import bootstrap, poisson_upper, share_interval

__all__ = ["Outcome", "format_table", "outcome", "summarise", "without"]

PER = 10_000
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What one system did on one log. Counts are alarms; `steps` are the healthy steps it read, before the onset or all."""

    healthy: bool
    steps: int
    alarms: int  # false: all of a healthy log, those before the onset of another
    high: int
    notes: int
    detected: bool = False
    reached: bool = True
    delay: int | None = None
    named: bool | None = None


def outcome(answer: Row, truth: Row) -> Outcome:
    """Judge one answer against one truth; see the module for the rules."""
    steps, onset = truth["steps"], truth.get("onset")
    read = steps[: answer.get("evaluated", len(steps))]
    findings = answer["findings"]
    alarms = [f for f in findings if f["severity"] != "info"]
    notes = len(findings) - len(alarms)
    if truth["healthy"]:
        return Outcome(True, len(read), len(alarms), _high(alarms), notes)
    early = [] if onset is None else [f for f in alarms if f["step"] is not None and f["step"] < onset]
    late = [f for f in alarms if f not in early]
    dated = [f["step"] for f in late if f["step"] is not None and onset is not None]
    family = truth.get("expected_family")
    known = family is not None and any("families" in f for f in late)
    return Outcome(
        healthy=False,
        steps=0 if onset is None else sum(step < onset for step in read),
        alarms=len(early),
        high=_high(early),
        notes=notes,
        detected=bool(late),
        reached=onset is None or bool(len(read) and read[-1] >= onset),
        delay=min(dated) - onset if dated else None,
        named=any(family in f.get("families", ()) for f in late) if known else None,
    )


def without(answers: Iterable[Row], *families: str) -> list[dict[str, Any]]:
    """The answers without findings that speak for one of these families, where the truth of a log says nothing about it."""
    return [
        {**a, "findings": [f for f in a["findings"] if not set(families) & set(f.get("families", ()))]}
        if "findings" in a
        else dict(a)
        for a in answers
    ]


def _high(alarms: Iterable[Row]) -> int:
    return sum(alarm["severity"] == "critical" for alarm in alarms)


def _rate(rows: Any) -> float:
    """Alarms per 10,000 steps of rows (alarms, steps)."""
    return float(PER * rows[:, 0].sum() / rows[:, 1].sum())


def _false(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """False alarms of some healthy stretches; rates are None of no steps."""
    steps = sum(o.steps for o in outcomes)
    found: dict[str, Any] = {"logs": len(outcomes), "steps": steps}
    for name, counts in (("any", [o.alarms for o in outcomes]), ("high", [o.high for o in outcomes])):
        total = sum(counts)
        found[name] = total
        found[f"{name}_rate"] = PER * total / steps if steps else None
        found[f"{name}_upper"] = PER * poisson_upper(total) / steps if steps else None
    rows = [(o.alarms, o.steps) for o in outcomes if o.steps]
    found["any_bootstrap"] = bootstrap(rows, _rate)
    found["logs_with_alarm"] = sum(o.alarms > 0 for o in outcomes)
    return found


def summarise(answers: Iterable[Row], truths: Iterable[Row]) -> dict[str, Any]:
    """Every figure of one system over some logs: `false` (healthy logs), `early` (before the onset), detection, delay, speed."""
    rows = {answer["id"]: answer for answer in answers}
    pairs = [(rows.get(truth["id"], {"error": "no answer"}), truth) for truth in truths]
    kept = [(answer, truth) for answer, truth in pairs if "error" not in answer]
    outcomes = [outcome(answer, truth) for answer, truth in kept]
    sick = [o for o in outcomes if not o.healthy and o.reached]
    delays = [o.delay for o in sick if o.delay is not None]
    hits, named = sum(o.detected for o in sick), [o.named for o in sick if o.named is not None]
    seconds = [answer["seconds"] for answer, _ in kept if "seconds" in answer]
    return {
        "failures": len(pairs) - len(kept),
        "false": _false([o for o in outcomes if o.healthy]),
        "notes": sum(o.notes for o in outcomes if o.healthy),
        "early": _false([o for o in outcomes if not o.healthy and o.steps]),
        "unreached": sum(not o.reached for o in outcomes),
        "pathological": len(sick),
        "detected": hits,
        "detected_interval": share_interval(hits, len(sick)),
        "detected_bootstrap": bootstrap([[o.detected] for o in sick], np.mean),
        "named": (sum(named), len(named)),
        "delays": len(delays),
        "delay": tuple(float(q) for q in np.quantile(delays, [0.5, 0.25, 0.75])) if delays else None,
        "delay_bootstrap": bootstrap([[d] for d in delays], np.median),
        "seconds_per_1000_steps": 1000 * sum(seconds) / max(1, _read(kept)) if seconds else None,
    }


def _read(kept: Iterable[tuple[Row, Row]]) -> int:
    """Steps read in all, of the answers that tell their seconds."""
    return sum(a.get("evaluated", len(t["steps"])) for a, t in kept if "seconds" in a)


_HEAD = f"{'system':<12}{'false/10k':>10}{'<=95%':>8}{'high':>8}{'<=95%':>8}{'logs hit':>10}{'notes':>7}{'early/10k':>11}{'found':>9}{'95%':>15}{'named':>9}{'delay':>8}{'IQR':>14}{'95%':>14}{'s/1k':>8}"


def format_table(summaries: Mapping[str, Row]) -> str:
    """A line a system of `summarise`'s figures; `-` where there is nothing to count."""
    lines = [_HEAD, "-" * len(_HEAD)]
    for system, s in summaries.items():
        false, early, delay = s["false"], s["early"], s["delay"]
        low, high = s["detected_interval"]
        cells = [
            (_number(false["any_rate"]), 10), (_number(false["any_upper"]), 8),
            (_number(false["high_rate"]), 8), (_number(false["high_upper"]), 8),
            (f"{false['logs_with_alarm']}/{false['logs']}", 10), (str(s["notes"]), 7),
            (_number(early["any_rate"]), 11),
            (f"{s['detected']}/{s['pathological']}", 9), (f"{low:.2f}..{high:.2f}", 15),
            (f"{s['named'][0]}/{s['named'][1]}" if s["named"][1] else "-", 9),
            (_number(delay and delay[0]), 8), (f"{delay[1]:.0f}..{delay[2]:.0f}" if delay else "-", 14),
            ("{:.0f}..{:.0f}".format(*s["delay_bootstrap"]) if delay else "-", 14),
            (_number(s["seconds_per_1000_steps"], 3), 8),
        ]  # fmt: skip
        lines.append(f"{system:<12}" + "".join(f"{text:>{width}}" for text, width in cells))
        if s["failures"] or s["unreached"]:
            lines.append(
                f"{'':<12}{s['failures']} failures, {s['unreached']} logs not read as far as the onset"
            )
    return "\n".join(lines)


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
