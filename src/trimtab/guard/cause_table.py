"""Which policies answer which cause. Names are those of the hypotheses in `detect.incidents`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trimtab.detect.rules.all_rules import RULES
from trimtab.types import Alarm, Incident

UNDECIDED = "undecided"
"""Stands for an incident without a cause that more speaks for than against."""

DEFAULT: tuple[str, ...] = ("learning_rate_backoff",)
"""Answer to an undecided cause, and to one that the table does not know: the remedy that fits the most."""

POLICIES_OF_CAUSE: Mapping[str, tuple[str, ...]] = {
    "stale rollouts": ("bound_staleness", "learning_rate_backoff", "tighten_corrections"),
    "the engines disagree": ("tighten_corrections", "learning_rate_backoff"),
    "another sampling temperature": ("tighten_corrections", "learning_rate_backoff"),
    "log-probabilities shifted by a token": ("tighten_corrections", "learning_rate_backoff"),
    "text encoded again": ("tighten_corrections", "learning_rate_backoff"),
    "a rank with old weights": ("tighten_corrections", "learning_rate_backoff"),
    "another loss mask": ("learning_rate_backoff",),
    "support lost after a tool": (
        "learning_rate_backoff",
        "constrain_tool",
        "kl_cap",
        "tighten_corrections",
    ),
    "updates too large": ("learning_rate_backoff", "tighten_corrections"),
    "tools or environment": ("learning_rate_backoff",),
    "a proxy of the reward is learnt": ("kl_cap", "learning_rate_backoff"),
    "the policy has become one answer": ("kl_cap", "learning_rate_backoff"),
    "tasks are solved": (),
    "tasks are hopeless": (),
}
"""Cause -> policies in the order they are tried; one whose lever the trainer lacks is passed over.

No policy at all means that no lever helps: the guard warns, and neither rolls back nor stops for it.
"""


LEFT_ALONE = frozenset({"plateau", "throughput", "truncation"})
"""Families of rules whose alarms no lever answers: the run learns nothing, or slowly, but is not unstable."""

LEFT_TO_PEOPLE = frozenset({"rank_silent"})
"""Rules on the step stream that no lever answers: a paused rank is not brought back by one."""

_FAMILY = {rule.name: rule.family for rule in RULES}


def open_alarms(incident: Incident, ignored: Collection[str] = ()) -> list[Alarm]:
    """Return the alarms of an incident that are open and that a guard answers.

    Args:
        incident: of a run.
        ignored: names of further rules that are left alone.
    """
    return [
        alarm
        for alarm in incident.alarms
        if alarm.severity != "info" and alarm.cleared is None
        and alarm.rule not in LEFT_TO_PEOPLE.union(ignored) and _FAMILY.get(alarm.rule) not in LEFT_ALONE
    ]  # fmt: skip


def likely_cause(incident: Incident) -> str:
    """Return the first cause that more speaks for than against; `UNDECIDED` where there is none.

    >>> likely_cause(Incident(73, "all", "warning", (), ()))
    'undecided'
    """
    return next((cause.name for cause in incident.causes if cause.score > 0), UNDECIDED)


def policies_for(cause: str, table: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the policies that answer a cause, in the order they are tried.

    >>> policies_for("a cause of next year", POLICIES_OF_CAUSE)
    ('learning_rate_backoff',)
    """
    return table.get(cause, table.get(UNDECIDED, DEFAULT))
