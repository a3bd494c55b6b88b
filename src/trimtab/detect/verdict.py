"""Verdict of a run: one word, and the reason for it in one sentence.

It prevents one mistake: silence read as health. A run is healthy only when tails were observed, judged and
calm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from trimtab.catalog import WINDOW_TOKENS, WINDOW_TRAJECTORIES, bound
from trimtab.detect.coarse_changes import COARSE
from trimtab.traces.core.plural import counted
from trimtab.types import Alarm

Word = Literal["healthy", "alarms", "unhealthy", "blind", "not judged yet"]


@dataclass(frozen=True)
class Verdict:
    """One word on a run, and the reason."""

    # "unhealthy": alarms that agree. "alarms": one or few, which even a healthy run has now and then.
    word: Word
    reason: str

    @property
    def exit_code(self) -> int:
        """For scripts: only a judged, calm run is 0."""
        return {"healthy": 0, "alarms": 1, "unhealthy": 1}.get(self.word, 2)


@dataclass(frozen=True)
class Evidence:
    """What a verdict may rest on."""

    num_steps: int
    observed: frozenset[str]  # ratios seen at least once, e.g. {"drift"}
    not_observed: Mapping[str, str]  # ratio -> why
    num_windows: int  # with `metrics_only`, steps
    judged: tuple[str, ...]  # rules whose baseline is complete
    pending: Mapping[str, int]  # rule -> windows of its baseline so far
    tail_ready: bool
    aggregate_ready: bool
    post_tool_tokens: int
    num_failures: int
    num_failed_steps: int
    last_failed: bool
    unwatched: tuple[str, ...] = ()  # measured ratios that no rule has judged
    gaps: tuple[str, ...] = ()  # why the record may not be whole
    losses: tuple[str, ...] = ()  # what is missing of the record, where it is whole again since
    zero_drift: bool = False  # drift was measured, and 0 everywhere
    metrics_only: bool = False  # a trainer's log of averages was judged, which has no tokens
    readings: tuple[str, ...] = ()  # keys of the readings that rules of `judged` read
    user_rules: tuple[str, ...] = ()  # names of the user's rules
    changes: tuple[str, ...] = ()  # with `metrics_only`: large changes that rules which wait would judge
    no_tokens: str = ""  # with `metrics_only`: why there are no tokens; empty for a metrics log
    unobserved: str = ""  # what some or all steps did not observe, by name
    min_tokens: int = WINDOW_TOKENS
    min_trajectories: int = WINDOW_TRAJECTORIES


def judge(alarms: Iterable[Alarm], evidence: Evidence) -> Verdict:
    """The verdict of a run from its alarms and what they could rest on."""
    every = list(alarms)
    serious = [alarm for alarm in every if alarm.severity != "info"]
    unseen = f"; not observed: {evidence.unobserved}" if evidence.unobserved else ""
    if serious:
        alarmed = _alarmed(serious, len(every) - len(serious))
        return Verdict(alarmed.word, alarmed.reason + unseen)
    blind = _blind(evidence)
    if blind:
        return Verdict("blind", blind)
    waiting = _waiting(evidence)
    if waiting:
        return Verdict("not judged yet", waiting + unseen)
    text = f"no alarm from the {counted(len(evidence.judged), 'rule')} that judged"
    if evidence.metrics_only:
        why = evidence.no_tokens or "a metrics log has no tokens"
        text = f"the averages are calm; the tails were not observed, {why}; {text}"
    elif not evidence.tail_ready:
        text = f"no token was written after a tool result; {text}"
    if evidence.pending:
        text += f"; {collecting(evidence.pending).partition(' (')[0]}"
    if evidence.metrics_only and len(evidence.judged) < len(evidence.pending):
        text += f"; in {counted(evidence.num_steps, 'row')} only large changes would show: {COARSE}"
    if evidence.unwatched:
        text += f"; measured, but watched by no rule so far: {', '.join(evidence.unwatched)}"
    text += "" if evidence.no_tokens else unseen
    if evidence.losses:
        text += f"; missing from the record: {'; '.join(evidence.losses)}"
    return Verdict("healthy", text)


def _alarmed(serious: list[Alarm], num_notes: int) -> Verdict:
    worst = [a for a in serious if a.severity == "critical"] or serious
    cleared = sum(alarm.cleared is not None for alarm in serious)
    text = counted(len(serious), "alarm")
    text += f" ({cleared} cleared)" if cleared else ""
    text += f" and {counted(num_notes, 'note')}" if num_notes else ""
    text += f", first {worst[0].rule} at step {worst[0].step}"
    hidden = next((a for a in serious if a.hidden), None)
    together = agreeing(serious)
    word: Word = "unhealthy" if together else "alarms"
    if together:
        text += f"; together at step {together[0].step}: {', '.join(dict.fromkeys(a.rule for a in together))}"
    return Verdict(word, text + (f" ({averages_words(hidden)})" if hidden else ""))


def averages_words(alarm: Alarm) -> str:
    """Return what the rules on averages had said when a hidden alarm was raised.

    Empty for any other alarm.

    >>> from trimtab.types import Alarm
    >>> alarm = Alarm("r", 30, 9, "critical", "post_tool", (), 1.0, "", "", "", hidden=True, heard=(4, 15))
    >>> averages_words(alarm)
    'no aggregate rule had fired; 4 of 15 could speak by then'
    """
    if not alarm.hidden:
        return ""
    could = f"; {alarm.heard[0]} of {alarm.heard[1]} could speak by then" if alarm.heard else ""
    return f"no aggregate rule had fired{could}"


def agreeing(serious: list[Alarm]) -> list[Alarm]:
    """Return the first alarms above info that stood together and are too many for chance, newest first.

    Rules on one reading count once, and an alarm raised long before does not count. Empty where there are no
    such alarms.
    """
    for alarm in sorted(serious, key=lambda a: a.step):
        if alarm.rule == "nonfinite":  # exact: it needs no second voice
            return [alarm]
        standing = [
            a
            for a in serious
            if alarm.step - bound("agree_steps") <= a.step <= alarm.step
            and (a.cleared is None or a.cleared >= alarm.step)
        ]
        needed = "unhealthy_critical" if any(a.severity == "critical" for a in standing) else "unhealthy"
        if len({(a.readings[0].key if a.readings else a.rule, a.slice) for a in standing}) >= bound(needed):
            return sorted(standing, key=lambda a: -a.step)
    return []


def _blind(evidence: Evidence) -> str:
    """Why nothing can be said however long one waits; empty when something can."""
    if evidence.gaps:
        return "; ".join(evidence.gaps)
    if evidence.num_steps == 0:
        return ""
    if evidence.last_failed:
        return f"the monitor failed{_times(evidence.num_failures)} and did not recover; see errors"
    if evidence.num_failed_steps > bound("failed_frac") * evidence.num_steps:
        return f"the monitor failed at {evidence.num_failed_steps} of {evidence.num_steps} steps; see errors"
    if evidence.metrics_only:
        if evidence.pending or evidence.judged:
            return ""
        no_metric = "the log has none of the metrics that a rule reads"
        return f"{evidence.no_tokens}, and {no_metric}" if evidence.no_tokens else no_metric
    if not evidence.observed:
        names: dict[str, list[str]] = {}
        for name, reason in evidence.not_observed.items():
            if name != "lagged_drift":
                names.setdefault(reason, []).append(name)
        why = "; ".join(f"{', '.join(same)}: {reason}" for reason, same in names.items())
        return f"no log-ratio was observed ({why or 'no token that receives gradient reached the monitor'})"
    if evidence.post_tool_tokens and "drift" in evidence.not_observed:
        return f"drift is never observed, and the tail rules rest on it: {evidence.not_observed['drift']}"
    if evidence.zero_drift:
        return "drift is exactly zero everywhere: policy and reference are one array, or the policy does not change"  # noqa: E501
    return ""


def _times(count: int) -> str:
    return f" {counted(count, 'time')}" if count else ""


_MORE = "more steps are needed; reward, KL, entropy and the gradient's norm help most"


def _waiting(evidence: Evidence) -> str:
    """What a verdict waits for; empty when it waits for nothing."""
    if evidence.num_steps == 0:
        return "no step has been flushed"
    if evidence.num_windows == 0:
        needed = f"{evidence.min_tokens:,} tokens from {evidence.min_trajectories} trajectories"
        return f"no slice has reached {needed}"
    if (
        evidence.metrics_only
        and evidence.aggregate_ready
        and len(evidence.readings) < bound("judged_readings")
    ):
        names = [key.removeprefix("aggregate/") for key in evidence.readings]
        judges = counted(len(evidence.judged), "rule")
        few = f"too few readings could be judged: {', '.join(names)}, by {judges}"
        return f"{few}; {_MORE}"
    own = set(evidence.user_rules)  # rules that need few values must not outvote those that wait
    judged, pending = [r for r in evidence.judged if r not in own], evidence.pending.keys() - own
    short = evidence.num_steps < bound("short_run")
    if evidence.metrics_only and evidence.aggregate_ready and short and len(judged) < len(pending):
        return f"only {counted(len(judged), 'rule')} could judge; {collecting(evidence.pending)}; {_MORE}"
    if evidence.changes and len(judged) < len(pending):
        changed = f"{', '.join(evidence.changes)} in {counted(evidence.num_steps, 'row')}"
        return f"{changed}, and {collecting(evidence.pending)}; {_MORE}"
    tails = evidence.post_tool_tokens and not evidence.tail_ready and not evidence.metrics_only
    if tails or not (evidence.tail_ready or evidence.aggregate_ready):
        which = "rule on the tokens after a tool result" if tails else "rule"
        return f"no {which} has its baseline yet; {collecting(evidence.pending) or 'none has a value'}"
    return ""


_FIRST = ("total_high", "kl_surge", "reward_collapse", "entropy_collapse")
"""Rules that are named before others where not all are."""


def collecting(pending: Mapping[str, int]) -> str:
    """Return how many rules still collect their baselines, and how many values three of them have.

    >>> collecting({"a": 4, "kl_surge": 9, "b": 9, "c": 2}), collecting({})
    ('4 rules still collect their baselines (kl_surge 9 values so far, a 4, b 9)', '')
    """
    names = [*(name for name in _FIRST if name in pending), *(name for name in pending if name not in _FIRST)]
    shown = [f"{name} {pending[name]}" for name in names[1:3]]
    if not names:
        return ""
    shown.insert(0, f"{names[0]} {counted(pending[names[0]], 'value')} so far")
    verb = "collects its baseline" if len(names) == 1 else "collect their baselines"
    return f"{counted(len(names), 'rule')} still {verb} ({', '.join(shown)})"
