"""prime-rl's token exports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from trimtab.traces.core.coerce import as_int, as_number
from trimtab.traces.core.episode import Episode, Turn
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.json_records import iter_objects
from trimtab.typing import Json


def is_prime(value: Json) -> bool:
    """prime-rl's token export."""
    return "token_ids" in value and ("inference_logprobs" in value or "trainer_logprobs" in value)


def read_prime(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """`token_exports/step_N/rank_R.jsonl` of prime-rl: tokens without text, one sequence a line."""
    for record, value in iter_objects(records, report):
        episode = token_episode(record, value, report)
        if episode is not None:
            yield episode


def token_episode(record: Record, value: Json, report: ReadReport) -> Episode | None:
    """One sequence of tokens as an episode of one turn; None, and counted, where its tokens are none."""
    ids, logprobs, mask = (value.get(name) for name in ("token_ids", "inference_logprobs", "loss_mask"))
    if not isinstance(ids, list) or not all(isinstance(i, int) for i in ids):
        report.malformed(record.file, record.line, "token_ids are no list of whole numbers")
        return None
    turn = Turn(role="assistant", content=None, token_ids=ids, tokens=len(ids), step=0)
    turn.logprobs = _numbers(logprobs, len(ids))
    turn.mask = [int(bool(m)) for m in mask] if isinstance(mask, list) and len(mask) == len(ids) else None
    turn.log_ratios = _log_ratios(value, turn)
    advantages = _numbers(value.get("advantages"), len(ids))
    return Episode(
        id=record.source, turns=[turn], step=as_int(value.get("step")), tokens=len(ids),
        source=record.source,
        log_ratio_of="trainer / sampler" if turn.log_ratios else None,
        extra={"env_name": value.get("env_name"),
        "advantage": next((a for a in advantages or [] if a), None)},
    )  # fmt: skip


def _log_ratios(value: Json, turn: Turn) -> list[float] | None:
    """Of the tokens that are trained on: the log's own, else the difference of its log-probabilities; NaN
    elsewhere."""
    size = len(turn.token_ids or ())
    ratios = _numbers(value.get("log_importance_ratio"), size)
    trainer = _numbers(value.get("trainer_logprobs"), size)
    if ratios is None and trainer is not None and turn.logprobs is not None:
        ratios = [a - b for a, b in zip(trainer, turn.logprobs, strict=True)]
    if ratios is None or turn.mask is None:
        return ratios
    return [ratio if mine else math.nan for ratio, mine in zip(ratios, turn.mask, strict=True)]


def _numbers(values: Any, size: int) -> list[float] | None:
    """As many numbers as there are tokens; what is none is NaN. None for another list."""
    if not isinstance(values, list) or len(values) != size:
        return None
    return [float("nan") if (number := as_number(v)) is None else number for v in values]
