"""Incidents: the alarms of one trouble together, with hypotheses of its cause ranked by the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trimtab.catalog import bound
from trimtab.detect.movement import QUANTITIES, Movement, has_risen
from trimtab.detect.rules.all_rules import ALIASES, RULES
from trimtab.types import Alarm, Cause, Incident, Severity

_FAMILY = {rule.name: rule.family for rule in RULES}
_FAMILY |= {old: _FAMILY[new] for old, new in ALIASES.items()}


class _Hypothesis(NamedTuple):
    name: str
    rose: tuple[str, ...] = ()  # quantities that rise with it
    calm: tuple[str, ...] = ()  # quantities that do not rise with it
    families: tuple[str, ...] = ()  # alarms that speak for it
    test: str = ""
    either: bool = False  # one of `rose` is enough
    needed: bool = False  # it is none unless the first of `rose` did rise
    unseen_only: bool = False  # alarms speak for it only where none of `rose` was observed


_OF_MISMATCH = ("lag", "results", "shifted", "temperature", "rank_mismatch", "sparse")


def _others(*own: str) -> tuple[str, ...]:
    return tuple(name for name in _OF_MISMATCH if name not in own)


_HYPOTHESES = (
    # no calm: a trainer without pi_old of its own, as TRL, reads the age of rollouts as mismatch
    _Hypothesis(
        "stale rollouts",
        ("lag", "staleness"),
        (),
        ("staleness",),
        "train on fresh rollouts for a few steps: the distance falls at once",
        needed=True,
    ),
    _Hypothesis(
        "the engines disagree",
        ("mismatch", "mismatch_bulk"),
        _others(),
        ("mismatch",),
        "score one batch with both engines at the same weights, and compare token by token",
        unseen_only=True,
    ),
    _Hypothesis(
        "another sampling temperature",
        ("temperature", "mismatch_bulk"),
        _others("temperature"),
        (),
        "divide one engine's logits by candidate temperatures: at the right one the mismatch vanishes",
        needed=True,
    ),
    _Hypothesis(
        "log-probabilities shifted by a token",
        ("shifted", "mismatch"),
        _others("shifted"),
        (),
        "compare each log-probability with that of the token before and after it in the other engine",
        needed=True,
    ),
    _Hypothesis(
        "text encoded again",
        ("sparse", "far_tokens"),
        ("mismatch_most", *_others("sparse")),
        (),
        "compare the ids that were sampled with those that are trained on (Run.retokenised)",
        needed=True,
    ),
    _Hypothesis(
        "a rank with old weights",
        ("rank_mismatch",),
        _others("rank_mismatch"),
        ("mismatch",),
        "compare a checksum of the weights of every sampler after a synchronisation",
        needed=True,
    ),
    _Hypothesis(
        "another loss mask",
        ("results", "silent"),
        (),
        ("mask",),
        "print one sequence with its loss mask: which of its tokens are the policy's?",
        either=True,
    ),
    _Hypothesis(
        "support lost after a tool",
        ("support",),
        ("mismatch", "sparse", "lag", "results"),
        ("support",),
        "read outputs of this tool and what follows them; score them with the reference",
    ),
    _Hypothesis(
        "updates too large",
        ("update", "staleness"),
        ("lag", "mismatch", "support"),
        ("clip",),
        "halve the learning rate for a few steps: the size of an update falls with it",
    ),
    _Hypothesis(
        "tools or environment",
        ("errors",),
        (),
        ("tools",),
        test="call the tools by hand with the arguments of failed calls",
    ),
    _Hypothesis(
        "a proxy of the reward is learnt",
        ("opposed",),
        ("errors",),
        ("hacking", "length", "format"),
        test="read the outputs that earn the most",
    ),
    _Hypothesis(
        "the policy has become one answer",
        families=("entropy", "repetition"),
        test="sample one prompt many times and count different answers",
    ),
    _Hypothesis(
        "tasks are solved",
        ("solved",),
        ("hopeless", "errors"),
        ("groups",),
        unseen_only=True,
        test="look at the mean reward of the groups without variance; add harder tasks",
    ),
    _Hypothesis(
        "tasks are hopeless",
        ("hopeless",),
        ("solved", "errors"),
        ("groups",),
        unseen_only=True,
        test="look at the mean reward of the groups without variance; solve some by hand",
    ),
)

CAUSES = tuple(one.name for one in _HYPOTHESES)
"""Names of the hypotheses; the first of an incident is the likeliest of them."""


def evidence_of(cause: str) -> tuple[str, ...]:
    """Return the quantities of `movement.QUANTITIES` that rise with a cause; none for one that is unknown.

    >>> evidence_of("stale rollouts")
    ('lag', 'staleness')
    """
    return next((one.rose for one in _HYPOTHESES if one.name == cause), ())


def incidents(
    alarms: Iterable[Alarm], movement: Mapping[int, Mapping[str, Movement]] | None = None
) -> list[Incident]:
    """Gather alarms into incidents.

    Args:
        alarms: of one run, notes included; an incident has at least one alarm that is none.
        movement: first step of an incident -> quantity of `QUANTITIES` -> how it moved. See `onsets`.

    Returns:
        Incidents in the order they began. `slice` is the tool or rank that the likeliest cause sits in,
        else the one most alarms are in, `all` where no other is.
    """
    result = []
    for group in _groups(alarms):
        loud = [alarm for alarm in group if alarm.severity != "info"]
        since = _onset(loud)
        severity: Severity = "critical" if any(a.severity == "critical" for a in loud) else "warning"
        moved = (movement or {}).get(since, {})
        causes = _causes(loud, moved)
        result.append(Incident(since, _slice(loud, causes, moved), severity, tuple(group), causes))
    return result


def onsets(alarms: Iterable[Alarm]) -> list[tuple[int, int]]:
    """Return the first step of each incident and that of its last alarm above info."""
    spans = [[a for a in group if a.severity != "info"] for group in _groups(alarms)]
    return [(_onset(loud), max(a.step for a in loud)) for loud in spans]


def _onset(loud: Sequence[Alarm]) -> int:
    """Return the first step of the evidence; an alarm on slow growth may date it long before the first alarm,
    and does not move the onset."""
    first = loud[0].since
    return min(a.since for a in loud if a.since >= first - bound("incident_gap"))


def _groups(alarms: Iterable[Alarm]) -> list[list[Alarm]]:
    """Alarms near each other; notes join a trouble, and neither begin one nor make one of two."""
    order, gap = sorted(alarms, key=lambda a: a.step), bound("incident_gap")
    groups: list[list[Alarm]] = []
    for alarm in order:
        if alarm.severity == "info":
            continue
        if groups and alarm.since <= groups[-1][-1].step + gap:
            groups[-1].append(alarm)
        else:
            groups.append([alarm])
    starts = [_onset(group) for group in groups]
    ends = [group[-1].step for group in groups]
    for note in (a for a in order if a.severity == "info"):
        near = [i for i in range(len(groups)) if starts[i] - gap <= note.step and note.since <= ends[i] + gap]
        if near:
            groups[near[-1]].append(note)
    return [sorted(group, key=lambda a: a.step) for group in groups]


def _slice(alarms: Sequence[Alarm], causes: Sequence[Cause], moved: Mapping[str, Movement]) -> str:
    """The tool or rank that the likeliest cause sits in, else the slice most alarms are in."""
    if causes:
        first = next(one for one in _HYPOTHESES if one.name == causes[0].name)
        located = [moved[name].slice for name in first.rose if rose(name, moved) and "/" in moved[name].slice]
        if located:
            return located[0]
    counts = Counter(alarm.slice for alarm in alarms if alarm.slice != "all")
    return counts.most_common(1)[0][0] if counts else "all"


def _causes(alarms: Sequence[Alarm], moved: Mapping[str, Movement]) -> tuple[Cause, ...]:
    causes = []
    for one in _HYPOTHESES:
        verdicts = {name: rose(name, moved) for name in one.rose}
        if one.needed and not verdicts[one.rose[0]]:
            continue
        support = [_words(name, moved) for name, risen in verdicts.items() if risen]
        seen = any(risen is not None for risen in verdicts.values())
        if not (one.unseen_only and seen):
            support += list(dict.fromkeys(a.rule for a in alarms if _FAMILY.get(a.rule) in one.families))
        against = [_words(name, moved) for name in one.calm if rose(name, moved)]
        if not (one.either and any(verdicts.values())):
            against += [_words(name, moved) for name, risen in verdicts.items() if risen is False]
        if support:
            causes.append(Cause(one.name, tuple(support), tuple(against), one.test))
    return tuple(sorted(causes, key=lambda cause: -cause.score))


def rose(name: str, moved: Mapping[str, Movement]) -> bool | None:
    """Has a quantity risen? None where it was not observed.

    >>> rose("lag", {"lag": Movement(1.0, 8.0)}), rose("lag", {"lag": Movement(1.0, 1.5)}), rose("lag", {})
    (True, False, None)
    """
    return has_risen(moved.get(name), name)


def _words(name: str, moved: Mapping[str, Movement]) -> str:
    before, during, where = moved[name]
    inside = "" if where in ("all", "text", "post_tool") else f" ({where})"
    if not rose(name, moved):
        return f"{QUANTITIES[name].words}{inside} did not rise: {before:.3g} to {during:.3g}"
    return f"{QUANTITIES[name].words}{inside} rose from {before:.3g} to {during:.3g}"
