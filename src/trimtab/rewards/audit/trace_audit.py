"""The audit of agent logs: which tasks and patterns a rise of the reward comes from, and what confirms it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from trimtab.errors import RewardError
from trimtab.rewards.audit.enrichment import Enriched, enriched_patterns
from trimtab.rewards.audit.hacking_verdict import EXIT_CODES, SUSPECTED, UNDECIDED, AuditVerdict
from trimtab.rewards.audit.series_audit import AuditSeries, audit_series
from trimtab.rewards.audit.text_patterns import is_sign, patterns_of, written_text
from trimtab.traces.core.episode import Episode
from trimtab.typing import Float64

MIN_EPISODES = 20
_BLOCKS = 10
_SIGN_FRAC, _SIGN_LOG_ODDS = 0.3, math.log(4.0)
"""A sign is suspect by itself in three of ten newly high-scoring completions, at four times the odds."""


def audit_traces(
    episodes: Sequence[Episode], source: str, held_out: str = "", solved_at: float | None = None
) -> dict[str, Any]:
    """Return the audit of episodes: that of their mean rewards by step, with tasks and patterns.

    Args:
        episodes: in the order they were written; those without a reward are counted and left out.
        held_out: a part of the reward that is not trained on; else `success`, where the log has it.
        solved_at: an episode with this reward or more scores high; else the early upper quartile.

    Returns:
        `audit_series`'s result, with `patterns`, `tasks`, `length`, `num_episodes`, `num_unscored`.

    Raises:
        RewardError: fewer than 20 episodes with a finite reward.
    """
    scored = [e for e in episodes if e.reward is not None and math.isfinite(e.reward)]
    if len(scored) < MIN_EPISODES:
        raise RewardError(
            f"{source} has {len(scored)} episodes with a reward; an audit needs {MIN_EPISODES} "
            "(trimtab traces diagnose says what the log holds)"
        )
    blocks = _blocks(scored)
    result = audit_series(_series(blocks, source, held_out))
    third = max(1, len(blocks) // 3)
    early = [e for block in blocks[:third] for e in block]
    late = [e for block in blocks[-third:] for e in block]
    bar = _high(early) if solved_at is None else solved_at
    new = [e for e in late if _reward(e) >= bar]
    rows, tested = _patterns(new, early, [e for e in late if _reward(e) < bar])
    result["patterns"] = [asdict(row) for row in rows]
    result["num_tested"] = tested
    result["high_reward"] = bar
    result["num_new_high"] = len(new)
    result["tasks"] = _tasks(early, late)
    result["length"] = _lengths(early, late, new)
    result["num_episodes"], result["num_unscored"] = len(scored), len(episodes) - len(scored)
    return _with_signs(result, rows)


def _reward(episode: Episode) -> float:
    return float(episode.reward) if episode.reward is not None else math.nan


def _blocks(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """Episodes by step, where the log has eight and more; else ten equal blocks in order."""
    by_step: dict[int, list[Episode]] = defaultdict(list)
    for episode in episodes:
        if episode.step is not None:
            by_step[episode.step].append(episode)
    if len(by_step) >= 8:
        return [by_step[step] for step in sorted(by_step)]
    cuts = np.linspace(0, len(episodes), _BLOCKS + 1).round().astype(int).tolist()
    return [list(episodes[a:b]) for a, b in pairwise(cuts)]


def _series(blocks: Sequence[Sequence[Episode]], source: str, held_out: str) -> AuditSeries:
    steps = np.arange(len(blocks), dtype=np.int64)

    def means(value: Callable[[Episode], float]) -> Float64:
        rows = [[v for e in block if math.isfinite(v := value(e))] for block in blocks]
        return np.array([np.mean(row) if row else np.nan for row in rows], np.float64)

    names = sorted({name for block in blocks for e in block for name in e.reward_parts})
    parts = {
        name: means(lambda e, name=name: float(e.reward_parts.get(name, math.nan)))  # type: ignore[misc]
        for name in names
    }
    success = means(lambda e: math.nan if e.success is None else float(e.success))
    confirming: Float64 | None = None
    name = held_out
    if held_out:
        if held_out not in (*names, "success"):
            listed = ", ".join(names) or "none"
            raise RewardError(f"{source} has no part of the reward called {held_out!r}; it has {listed}")
        confirming = parts.pop(held_out) if held_out in parts else success
    elif _independent(blocks):
        confirming, name = success, "success"
    return AuditSeries(
        source, (steps, means(_reward)), "reward", None if confirming is None else (steps, confirming), name,
        {part: (steps, values) for part, values in parts.items()},
    )  # fmt: skip


def _independent(blocks: Sequence[Sequence[Episode]]) -> bool:
    """Does `success` say more than the reward? Where a bound on the reward gives it, it confirms nothing."""
    solved = [_reward(e) for block in blocks for e in block if e.success]
    failed = [_reward(e) for block in blocks for e in block if e.success is False]
    return bool(solved and failed) and min(solved) <= max(failed)


def _high(early: Sequence[Episode]) -> float:
    """The early upper quartile; where that is the smallest reward, the next larger one."""
    rewards = np.array([_reward(e) for e in early])
    bar = float(np.quantile(rewards, 0.75))
    above = rewards[rewards > rewards.min()]
    if bar > rewards.min():
        return bar
    return float(above.min()) if above.size else bar + 1e-9


def _patterns(
    new: Sequence[Episode], early: Sequence[Episode], low: Sequence[Episode]
) -> tuple[list[Enriched], int]:
    """What newly high-scoring completions hold more often than early ones, and than late low ones."""
    texts = {id(e): frozenset(patterns_of(written_text(e))) for e in (*new, *early, *low)}
    tasks = {e.task for e in new if e.task is not None}
    same = [e for e in early if e.task in tasks]
    reference = same if len(same) >= MIN_EPISODES // 2 else list(early)
    rows, tested = enriched_patterns([texts[id(e)] for e in new], [texts[id(e)] for e in reference])
    if len(low) >= MIN_EPISODES // 2:
        rows = [r for r in rows if sum(r.pattern in texts[id(e)] for e in low) / len(low) < r.frac_new]
    return rows, tested


def _tasks(early: Sequence[Episode], late: Sequence[Episode], limit: int = 5) -> list[dict[str, Any]]:
    """Tasks of both ends by how much they add to the rise."""
    sums: dict[str, list[list[float]]] = defaultdict(lambda: [[], []])
    for end, episodes in enumerate((early, late)):
        for episode in episodes:
            if episode.task is not None:
                sums[episode.task][end].append(_reward(episode))
    both = [(task, np.mean(a), np.mean(b), len(a) + len(b)) for task, (a, b) in sums.items() if a and b]
    both.sort(key=lambda row: -(row[2] - row[1]) * row[3])
    return [
        {"task": task[:200], "before": float(before), "after": float(after), "episodes": count}
        for task, before, after, count in both[:limit]
    ]


def _lengths(early: Sequence[Episode], late: Sequence[Episode], new: Sequence[Episode]) -> dict[str, float]:
    """Median characters at both ends, and the correlation of reward and length late."""

    def sizes(episodes: Sequence[Episode]) -> Float64:
        return np.array([len(written_text(e)) for e in episodes], np.float64)

    rewards, lengths = np.array([_reward(e) for e in late]), sizes(late)
    varies = rewards.size > 2 and np.ptp(rewards) > 0 and np.ptp(lengths) > 0
    return {
        "early": float(np.median(sizes(early))), "late": float(np.median(lengths)),
        "new_high": float(np.median(sizes(new))) if new else math.nan,
        "reward_correlation": float(np.corrcoef(rewards, lengths)[0, 1]) if varies else math.nan,
    }  # fmt: skip


def _with_signs(result: dict[str, Any], rows: Sequence[Enriched]) -> dict[str, Any]:
    """The verdict with the signs of exploits: they turn an undecided rise into a suspicion."""
    signs = [r for r in rows if is_sign(r.pattern) and r.frac_new >= _SIGN_FRAC and r.low > _SIGN_LOG_ODDS]
    for sign in signs:
        name = sign.pattern.removeprefix("sign: ")
        shares = f"{100 * sign.frac_new:.0f} % of newly high-scoring completions, {100 * sign.frac_old:.0f} %"
        result["evidence"].append(f"{name}: {shares} of early ones")
    rose = result["reward"]["low"] > 0
    if signs and rose and result["verdict"] == UNDECIDED:
        name = signs[0].pattern.removeprefix("sign: ")
        text = f"{result['why']} What scores high now {name}."
        verdict = AuditVerdict(SUSPECTED, text)
        result |= {"verdict": verdict.word, "why": verdict.why, "exit_code": EXIT_CODES[SUSPECTED]}
    return result
