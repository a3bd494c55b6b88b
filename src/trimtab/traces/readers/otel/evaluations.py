"""Evaluations in spans: a score each, under a name; which of them is the reward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.traces.core.coerce import as_label, as_number, first_of
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport

_REWARDS = ("reward", "score")


def scores_of(attributes: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, float], ...]:
    """Name and score of each evaluation among the attributes of a span and of its events; one without a name is called `score`."""
    found = []
    for one in attributes:
        score = as_number(first_of(one, "gen_ai.evaluation.score.value", "evaluation.score"))
        name = as_label(first_of(one, "gen_ai.evaluation.name", "evaluation.name"))
        if score is not None:
            found.append((name or "score", score))
    return tuple(found)


def reward(episode: Episode, scores: Iterable[tuple[str, float]], report: ReadReport) -> None:
    """Give an episode its parts, the last of each name, and its reward: what is called reward or score, case aside, or the only name there is."""
    parts = dict(scores)
    episode.reward_parts = parts
    named = [score for wanted in _REWARDS for name, score in parts.items() if name.lower() == wanted]
    if named or len(parts) == 1:
        episode.reward = [*named, *parts.values()][0]
    elif parts:
        told = ", ".join(sorted(parts))
        report.note(f"episodes with evaluations of several names ({told}), none reward or score: no reward")
