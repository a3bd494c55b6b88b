"""The episodes a page shows: which of them, and their text, cut where it is long, never silently."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.report.traces.token_colors import tokens_shown
from trimtab.report.traces.trace_diagnosis import TraceDiagnosis
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.read import iter_episodes
from trimtab.traces.table.episode_facts import arguments_text

MAX_EPISODES = 200
MAX_TEXT = 6_000
"""Characters of one message, result or set of arguments on the page."""

MAX_PAGE_TEXT = 12_000_000
"""Characters of all of them: a browser opens that at once."""

_WORST = 20  # episodes chosen for their log-ratios
_TOKEN_BYTES = 16  # of a coloured token, about


def chosen_ids(judged: TraceDiagnosis, limit: int = MAX_EPISODES) -> dict[str, bool]:
    """Ids to show -> is it named by a finding: those first, then those with the largest log-ratios of tokens,
    then the others in the logs' order, failed and solved in turn."""
    evidence = (one for finding in judged.findings for one in finding.measured.evidence)
    known = set(judged.table.ids)
    chosen = dict.fromkeys((one.episode for one in evidence if one.episode in known), True)
    ratio = np.nan_to_num(judged.table.ratio, nan=-1.0)
    worst = np.argsort(-ratio, kind="stable")[: min(_WORST, int((ratio >= 0).sum()))]
    chosen |= {name: chosen.get(name, False) for name in (judged.table.ids[i] for i in worst.tolist())}
    outcomes = list(zip(judged.table.ids, judged.solved.tolist(), strict=True))
    failed, others = ([name for name, value in outcomes if (value == 0) is bad] for bad in (True, False))
    for pair in zip(_padded(failed, len(others)), _padded(others, len(failed)), strict=True):
        for name in pair:
            if name is not None and len(chosen) < limit:
                chosen.setdefault(name, False)
    return dict(list(chosen.items())[:limit])


def _padded(names: list[str], size: int) -> list[str | None]:
    return [*names, *[None] * max(0, size - len(names))]


def shown_episodes(
    judged: TraceDiagnosis,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    decode: Callable[[int], str] | None = None,
) -> list[dict[str, Any]]:
    """The chosen episodes as JSON types, read again from the logs; `decode` as `trace_tokens`."""
    chosen, solved = chosen_ids(judged), dict(zip(judged.table.ids, judged.solved.tolist(), strict=True))
    order = {name: i for i, name in enumerate(chosen)}
    episodes: list[dict[str, Any]] = []
    room = MAX_PAGE_TEXT
    for episode in _again(judged, set(chosen), format, mapping):
        if episode.id not in chosen:
            continue
        shown = _episode(episode, order[episode.id], solved[episode.id], chosen[episode.id], decode)
        room -= _size(shown)
        if room < 0 and episodes:
            break
        episodes.append(shown)
    return sorted(episodes, key=lambda shown: int(shown["key"]))


def _again(
    judged: TraceDiagnosis, ids: set[str], format: str | None, mapping: Mapping[str, str] | None
) -> Iterator[Episode]:
    report = ReadReport(error_patterns=judged.report.error_patterns)
    return iter_episodes(judged.paths, report, format, mapping, ids)


def _episode(
    episode: Episode, key: int, solved: int, named: bool, decode: Callable[[int], str] | None
) -> dict[str, Any]:
    reward, calls, worst = episode.reward, episode.calls, episode.largest_log_ratio
    return {
        "key": key, "id": episode.id[:200], "task": None if episode.task is None else episode.task[:200],
        "reward": reward if reward is None or math.isfinite(reward) else str(reward), "solved": int(solved),
        "named": named,
        "stop": episode.stop_reason, "tokens": episode.tokens, "source": episode.source, "calls": len(calls),
        "failed": sum(bool(call.error) for call in calls),
        "turns": [_turn(turn, decode) for turn in episode.turns],
        "ratio_of": (episode.log_ratio_of or "as the log says")[:80],
        "worst": worst if worst is None else round(worst, 2),
    }  # fmt: skip


def _turn(turn: Turn, decode: Callable[[int], str] | None) -> dict[str, Any]:
    return {
        "role": turn.role[:40], "step": turn.step, "calls": [_call(call) for call in turn.calls],
        "tokens": tokens_shown(turn, decode), **_cut("text", turn.content),
        **_cut("reasoning", turn.reasoning),
    }  # fmt: skip


def _call(call: Call) -> dict[str, Any]:
    return {
        "name": call.name[:200], "latency": None if call.latency_s is None else float(f"{call.latency_s:.3g}"),  # noqa: E501
        "error": call.error[:MAX_TEXT], "error_from": call.error_from, **_cut("args", arguments_text(call)),
        **_cut("result", call.result),
    }  # fmt: skip


def _cut(name: str, text: str | None) -> dict[str, Any]:
    if text is None or len(text) <= MAX_TEXT:
        return {name: text, f"{name}_more": 0}
    return {name: text[:MAX_TEXT], f"{name}_more": len(text) - MAX_TEXT}


def _size(shown: dict[str, Any]) -> int:
    def texts(turn: Mapping[str, Any]) -> Iterable[str | None]:
        yield from (turn["text"], turn["reasoning"])
        for call in turn["calls"]:
            yield from (call["args"], call["result"], call["error"])

    tokens = sum(len(turn["tokens"]["text"]) for turn in shown["turns"] if turn["tokens"])
    return sum(len(text or "") for turn in shown["turns"] for text in texts(turn)) + _TOKEN_BYTES * tokens
