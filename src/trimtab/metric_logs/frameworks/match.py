"""Whose log is it, and what do its keys mean? One table a framework, ours last; every other name list derives
from these."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from trimtab.catalog import METRIC_NAMES
from trimtab.errors import MetricLogError
from trimtab.metric_logs.frameworks.agent_keys import AGENT_LIGHTNING, ART
from trimtab.metric_logs.frameworks.areal_keys import AREAL
from trimtab.metric_logs.frameworks.base import Framework
from trimtab.metric_logs.frameworks.other_keys import (
    NEMO_RL,
    OPENRLHF,
    PRIME_RL,
    RLDOCTOR,
    RLPROBE,
    SKYRL,
    SLIME,
    TINKER,
)
from trimtab.metric_logs.frameworks.trl_keys import TRL
from trimtab.metric_logs.frameworks.verl_keys import VERL

OURS = Framework(
    "ours",
    "trimtab's own names, and a few that several trainers share",
    keys={name: (name,) for name in METRIC_NAMES}
    | {
        "reward": ("reward", "rewards/mean"),
        "kl": ("kl", "objective/kl"),
        "entropy": ("entropy", "policy/entropy"),
    },
)

_SUCH_AS = ("reward", "kl", "entropy", "grad_norm", "loss", "length")

FRAMEWORKS: dict[str, Framework] = {
    f.name: f
    for f in (
        TRL, VERL, PRIME_RL, OPENRLHF, SLIME, SKYRL, NEMO_RL, TINKER, AREAL, ART, AGENT_LIGHTNING, RLDOCTOR,
        RLPROBE, OURS,
    )
}  # fmt: skip
"""Every framework whose keys are known; on a tie the earlier one is taken."""


def framework_named(name: str) -> Framework:
    """The framework of a name, in any case; MetricLogError lists the names there are.

    >>> framework_named("verl").keys["policy_kl"], framework_named("TRL").name
    (('actor/ppo_kl',), 'trl')
    """
    framework = FRAMEWORKS.get(name.lower())
    if framework is None:
        raise MetricLogError(f"unknown framework {name!r}; one of {', '.join(FRAMEWORKS)}")
    return framework


def choose(keys: Iterable[str], prefer: str = "") -> tuple[Framework | None, str]:
    """Return the framework that knows most of the keys, and why in words; None when no framework knows any.

    On a tie `prefer`, the framework whose format the log has, then the earlier one of `FRAMEWORKS`.

    >>> choose(["actor/ppo_kl", "critic/score/mean"])[1]
    'verl: it knows 2 of the keys, actor/ppo_kl, critic/score/mean (known to agent-lightning as well)'
    """
    names = list(keys)
    counts = {f.name: len(f.translate(names)[0]) for f in FRAMEWORKS.values()}
    best = max(counts, key=lambda name: (counts[name], name == prefer))
    if not counts[best]:
        return None, "no framework knows any of the keys"
    shown = sorted(FRAMEWORKS[best].translate(names)[0].values())[:4]
    also = [name for name, count in counts.items() if name != best and count == counts[best]]
    known = (
        "all"
        if len(also) == len(FRAMEWORKS) - 1
        else ", ".join("trimtab" if n == "ours" else n for n in also)
    )
    also_known = f" (known to {known} as well)" if also else ""
    return FRAMEWORKS[best], f"{best}: it knows {counts[best]} of the keys, {', '.join(shown)}{also_known}"


def check_mapping(mapping: Mapping[str, str], keys: Iterable[str]) -> None:
    """MetricLogError when a mapping names one of ours that is none, or a key that the log has no number
    under.

    >>> check_mapping({"reward": "score"}, ["score"])
    """
    there = set(keys)
    for ours, theirs in mapping.items():
        if ours not in METRIC_NAMES:
            close = difflib.get_close_matches(ours, METRIC_NAMES, 3)
            names = f"close: {', '.join(close)}" if close else f"{', '.join(_SUCH_AS)} and others are"
            raise MetricLogError(
                f"{ours!r} is not a metric of trimtab's; {names} (docs/reference/metric-keys.md)"
            )
        if theirs not in there:
            close = difflib.get_close_matches(theirs, sorted(there), 3) or sorted(there)[:5]
            raise MetricLogError(
                f"the log has no number under {theirs!r} (for {ours}); it has {', '.join(close) or 'none'}"
            )


def aliases() -> dict[str, tuple[str, ...]]:
    """Return every key that some framework logs a metric under; prefixes, patterns and turned signs aside.

    Returns:
        Our name -> keys, ours first.

    Example:
        >>> "actor/ppo_kl" in aliases()["kl"], "actor/ppo_kl" in aliases()["policy_kl"]
        (False, True)
    """
    names: dict[str, dict[str, None]] = {}
    for framework in reversed(FRAMEWORKS.values()):
        for ours, theirs in framework.keys.items():
            usable = (key for key in theirs if key not in framework.negated)
            names.setdefault(ours, {}).update(dict.fromkeys(usable))
    return {ours: tuple(theirs) for ours, theirs in names.items()}
