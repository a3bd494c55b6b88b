"""Incidents: the alarms of one trouble together, with hypotheses of its cause ranked by the evidence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trimtab.catalog import bound
from trimtab.detect.movement import Movement
from trimtab.detect.rules.all_rules import ALIASES, RULES
from trimtab.types import Alarm, Cause, Incident, Severity

_FAMILY = {rule.name: rule.family for rule in RULES}
_FAMILY |= {old: _FAMILY[new] for old, new in ALIASES.items()}


class _Quantity(NamedTuple):
    words: str
    min_rise: str  # bound of the smallest rise that counts


QUANTITIES = {
    "mismatch": _Quantity("the engines' mismatch (p95)", "incident_nats"),
    "staleness": _Quantity("the policy's distance from its sampling weights (p95)", "incident_nats"),
    "lag": _Quantity("the age of rollouts, in policy versions", "incident_lag"),
    "update": _Quantity("the size of an update (p95)", "incident_nats"),
}
"""What hypotheses look at -> in words."""


class _Hypothesis(NamedTuple):
    name: str
    rose: tuple[str, ...] = ()  # quantities that rise with it
    calm: tuple[str, ...] = ()  # quantities that do not rise with it
    families: tuple[str, ...] = ()  # alarms that speak for it
    test: str = ""


_HYPOTHESES = (
    # no calm: a trainer without pi_old of its own, as TRL, reads the age of rollouts as mismatch
    _Hypothesis("stale rollouts", ("lag", "staleness"), (), (),
        "train on fresh rollouts for a few steps: the distance falls at once"),
    _Hypothesis("the engines disagree", ("mismatch",), ("lag",), ("mismatch",),
        "score one batch with both engines at the same weights, and compare token by token"),
    _Hypothesis("updates too large", ("update", "staleness"), ("lag", "mismatch"), ("clip",),
        "halve the learning rate for a few steps: the size of an update falls with it"),
    _Hypothesis("tools or environment", families=("tools",),
        test="call the tools by hand with the arguments of failed calls"),
    _Hypothesis("a proxy of the reward is learnt", families=("hacking", "length", "format"),
        test="read the outputs that earn the most"),
    _Hypothesis("the policy has become one answer", families=("entropy", "repetition"),
        test="sample one prompt many times and count different answers"),
    _Hypothesis("tasks that are all solved, or none", families=("groups",),
        test="look at the mean reward of the groups without variance"),
)  # fmt: skip


def incidents(
    alarms: Iterable[Alarm], movement: Mapping[int, Mapping[str, Movement]] | None = None
) -> list[Incident]:
    """Gather alarms into incidents.

    Args:
        alarms: of one run, notes included; an incident has at least one alarm that is none.
        movement: first step of an incident -> quantity of `QUANTITIES` -> how it moved. See `onsets`.

    Returns:
        Incidents in the order they began. `slice` is the one most alarms are in, `all` where no other is.
    """
    result = []
    for group in _groups(alarms):
        since = _onset(group)
        loud = [alarm for alarm in group if alarm.severity != "info"]
        severity: Severity = "critical" if any(a.severity == "critical" for a in loud) else "warning"
        moved = (movement or {}).get(since, {})
        result.append(Incident(since, _slice(loud), severity, tuple(group), _causes(loud, moved)))
    return result


def onsets(alarms: Iterable[Alarm]) -> list[tuple[int, int]]:
    """Return the first step of each incident and that of its last alarm."""
    return [(_onset(group), max(a.step for a in group)) for group in _groups(alarms)]


def _onset(group: Sequence[Alarm]) -> int:
    """Return the first step of the evidence; an alarm on slow growth may date it long before the first alarm,
    and does not move the onset."""
    first = group[0].since
    return min(a.since for a in group if a.since >= first - bound("incident_gap"))


def _groups(alarms: Iterable[Alarm]) -> list[list[Alarm]]:
    groups: list[list[Alarm]] = []
    for alarm in sorted(alarms, key=lambda a: a.step):
        if groups and alarm.since <= groups[-1][-1].step + bound("incident_gap"):
            groups[-1].append(alarm)
        else:
            groups.append([alarm])
    return [group for group in groups if any(alarm.severity != "info" for alarm in group)]


def _slice(alarms: Sequence[Alarm]) -> str:
    counts = Counter(alarm.slice for alarm in alarms if alarm.slice != "all")
    return counts.most_common(1)[0][0] if counts else "all"


def _causes(alarms: Sequence[Alarm], moved: Mapping[str, Movement]) -> tuple[Cause, ...]:
    causes = []
    for one in _HYPOTHESES:
        speaking = list(dict.fromkeys(a.rule for a in alarms if _FAMILY.get(a.rule) in one.families))
        support = [*(_words(name, moved) for name in one.rose if rose(name, moved)), *speaking]
        against = [_words(name, moved) for name in one.calm if rose(name, moved)]
        against += [_words(name, moved) for name in one.rose if rose(name, moved) is False]
        if support:
            causes.append(Cause(one.name, tuple(support), tuple(against), one.test))
    return tuple(sorted(causes, key=lambda cause: -cause.score))


def rose(name: str, moved: Mapping[str, Movement]) -> bool | None:
    """Has a quantity risen? None where it was not observed.

    >>> rose("lag", {"lag": Movement(1.0, 8.0)}), rose("lag", {"lag": Movement(1.0, 1.5)}), rose("lag", {})
    (True, False, None)
    """
    if name not in moved or math.isnan(moved[name].before) or math.isnan(moved[name].during):
        return None
    before, during = moved[name]
    return during >= bound("incident_rise") * before and during - before >= bound(QUANTITIES[name].min_rise)


def _words(name: str, moved: Mapping[str, Movement]) -> str:
    before, during = moved[name]
    if not rose(name, moved):
        return f"{QUANTITIES[name].words} did not rise: {before:.3g} to {during:.3g}"
    return f"{QUANTITIES[name].words} rose from {before:.3g} to {during:.3g}"
