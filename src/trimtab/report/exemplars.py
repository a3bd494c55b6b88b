"""The worst tokens of a run's latest windows as one row a token; several ranks' are merged like any other state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trimtab.measure.policy.exemplars import EXEMPLAR_RATIOS, EXEMPLAR_SLICES
from trimtab.measure.state.worst_tokens import Worst, WorstToken


def exemplar_table(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a token of the latest window of `text` and of `post_tool`, worst first a ratio.

    `rows` are the run store's `exemplars`, of any number of ranks; what is malformed inside one is left out. `value`,
    `logprob` and `other_logprob` are nats: |log-ratio|, its numerator and its denominator.
    """
    kept = [row for row in rows if row["slice"] in EXEMPLAR_SLICES]
    table: list[dict[str, Any]] = []
    for name in EXEMPLAR_SLICES:
        mine = [row for row in kept if row["slice"] == name]
        if not mine:
            continue
        newest = max(mine, key=lambda row: int(row["last"]))
        latest = [row for row in mine if row["last"] >= newest["first"]]  # other ranks' windows overlap it
        for ratio in EXEMPLAR_RATIOS:
            worst, text = Worst(), {}
            for row in latest:
                for token, words in _tokens(row["tokens"].get(ratio)):
                    worst.update([token])
                    text[token] = words
            table += [_shown(name, ratio, token, text[token], newest) for token in worst.tokens]
    return table


def _tokens(found: Any) -> Iterable[tuple[WorstToken, str | None]]:
    for item in found if isinstance(found, list) else []:
        try:
            value, one, two, episode, position, turn, tool, token, words = item
            made = WorstToken(
                float(value),
                float(one),
                float(two),
                int(episode),
                int(position),
                int(turn),
                str(tool),
                int(token),
            )
        except (TypeError, ValueError):
            continue
        yield made, None if words is None else str(words)


def _shown(name: str, ratio: str, token: WorstToken, text: str | None, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "slice": name,
        "ratio": ratio,
        "value": token.value,
        "logprob": token.numerator,
        "other_logprob": token.denominator,
        "episode": token.episode,
        "position": token.position,
        "turn": token.turn,
        "tool": token.tool,
        "token_id": None if token.token < 0 else token.token,
        "text": text,
        "first": row["first"],
        "last": row["last"],
    }
