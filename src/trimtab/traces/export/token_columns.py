"""Token ids, masks and log-probabilities of an episode as columns of a row: those of all turns, or none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from trimtab.traces.core.episode import Episode

TOKENS = ("token_ids", "token_mask", "token_logprobs")
_OTHER_SIZE = "episodes whose masks or log-probabilities are not as many as their ids: ids left out"


def tokens_of(episode: Episode, dropped: Counter[str] | None = None) -> dict[str, Any]:
    """Return the token columns of an episode: its turns up to the agent's last, end to end.

    `token_mask` is 1 where the log says that the model wrote the token, or without a mask, where the turn is
    the assistant's. `token_logprobs` is null where there is none. Empty when a turn with words has no ids.
    Reasons are counted in `dropped`.

    >>> from trimtab.traces.core.episode import Turn
    >>> turns = [Turn(role="user", token_ids=[1, 2]), Turn(role="assistant", token_ids=[3], logprobs=[-0.5])]
    >>> tokens_of(Episode(id="e", turns=turns))
    {'token_ids': [1, 2, 3], 'token_mask': [0, 0, 1], 'token_logprobs': [None, None, -0.5]}
    """
    dropped = Counter() if dropped is None else dropped
    last = max((i for i, turn in enumerate(episode.turns) if turn.role == "assistant"), default=-1)
    turns = episode.turns[: last + 1]
    if not any(turn.token_ids for turn in turns):
        return {}
    if any(turn.token_ids is None and (turn.content or turn.calls) for turn in turns):
        dropped["episodes with token ids of some turns only: ids left out"] += 1
        return {}
    columns: dict[str, list[Any]] = {name: [] for name in TOKENS}
    for turn in turns:
        ids = turn.token_ids or []
        if any(part is not None and len(part) != len(ids) for part in (turn.mask, turn.logprobs)):
            dropped[_OTHER_SIZE] += 1
            return {}
        mask = turn.mask if turn.mask is not None else [int(turn.role == "assistant")] * len(ids)
        logprobs = turn.logprobs if turn.logprobs is not None else [None] * len(ids)
        columns["token_ids"] += ids
        columns["token_mask"] += mask
        columns["token_logprobs"] += [p if p is not None and math.isfinite(p) else None for p in logprobs]
        lost = (p is not None and not math.isfinite(p) and own for p, own in zip(logprobs, mask, strict=True))
        dropped["log-probabilities that are not finite, written as null"] += sum(lost)
    if all(p is None for p in columns["token_logprobs"]):
        del columns["token_logprobs"]
    return dict(columns)


def add_tokens(rows: Sequence[dict[str, Any]], episodes: Iterable[Episode]) -> dict[str, int]:
    """Add the columns to the rows in place (`chosen_token_ids`, ... to pairs), and return counts for the
    card.

    They are null where an episode has none.
    """
    names = {"episode": "", "chosen_episode": "chosen_", "rejected_episode": "rejected_"}
    cells = [(row, name) for row in rows for name in names if name in row]
    wanted = {row[name] for row, name in cells}
    dropped: Counter[str] = Counter()
    known = {e.id: own for e in episodes if e.id in wanted and (own := tokens_of(e, dropped))}
    columns = [name for name in TOKENS if any(name in own for own in known.values())]
    for row, name in cells:
        for column in columns:
            row[names[name] + column] = known.get(row[name], {}).get(column)
    full = sum(all(row[name] in known for name in names if name in row) for row in rows) if known else 0
    counts = {"rows with token ids": full} if known else {}
    return {**counts, **{what: n for what, n in dropped.items() if n}}
