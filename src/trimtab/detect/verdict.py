"""The verdict of a run: one word, and the reason for it in one sentence.

The mistake it prevents: silence read as health. A run is healthy only when tails were observed, judged, and calm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from trimtab.catalog import WINDOW_TOKENS, WINDOW_TRAJECTORIES, bound
from trimtab.records import Alarm

__all__ = ["Evidence", "Verdict", "judge"]

Word = Literal["healthy", "alarms", "blind", "not judged yet"]


@dataclass(frozen=True)
class Verdict:
    """`exit_code`: 0 healthy, 1 alarms, 2 blind or not judged yet (nothing that could be called fine)."""

    word: Word
    reason: str

    @property
    def exit_code(self) -> int:
        """For scripts: only a judged, calm run is 0."""
        return {"healthy": 0, "alarms": 1}.get(self.word, 2)


@dataclass(frozen=True)
class Evidence:
    """What a verdict may rest on. `observed`: ratios seen at least once, e.g. {"drift"}; `not_observed`: ratio -> why."""

    num_steps: int
    observed: frozenset[str]
    not_observed: Mapping[str, str]
    num_windows: int
    tail_ready: bool
    aggregate_ready: bool
    post_tool_tokens: int
    num_failures: int
    last_failed: bool


def judge(alarms: Iterable[Alarm], evidence: Evidence) -> Verdict:
    """The verdict of a run from its alarms and what they could rest on."""
    serious = [alarm for alarm in alarms if alarm.severity != "info"]
    if serious:
        worst = [a for a in serious if a.severity == "critical"] or serious
        hidden = any(a.hidden for a in serious)
        text = f"{len(serious)} alarm{'s' if len(serious) > 1 else ''}, first {worst[0].rule} at step {worst[0].step}"
        return Verdict("alarms", text + (" (hidden: no aggregate rule had fired)" if hidden else ""))
    if evidence.num_steps == 0:
        return Verdict("not judged yet", "no step has been flushed")
    if evidence.last_failed:
        return Verdict(
            "blind", f"the monitor failed {evidence.num_failures} times and did not recover; see errors"
        )
    if not evidence.observed:
        why = "; ".join(f"{name}: {reason}" for name, reason in evidence.not_observed.items())
        return Verdict("blind", f"no log-ratio was observed ({why or 'no batch reached the monitor'})")
    if evidence.num_windows == 0:
        return Verdict(
            "not judged yet",
            f"no slice has reached {WINDOW_TOKENS:,} tokens from {WINDOW_TRAJECTORIES} trajectories",
        )
    if evidence.post_tool_tokens and not evidence.tail_ready:
        return Verdict(
            "not judged yet",
            f"the tail rules are still collecting their baseline of {bound('baseline'):.0f} windows",
        )
    if not (evidence.tail_ready or evidence.aggregate_ready):
        return Verdict(
            "not judged yet", f"no rule has finished its baseline of {bound('baseline'):.0f} windows"
        )
    if not evidence.tail_ready:
        return Verdict("healthy", "no token was written after a tool result; the aggregate rules are calm")
    return Verdict("healthy", "tail and aggregate rules are judged and calm")
