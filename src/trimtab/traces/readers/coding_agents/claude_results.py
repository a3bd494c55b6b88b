"""The results that end the turns of Claude Code's stream: tokens, cost, time and how they ended.

A stream has one for each prompt, and a file may hold several streams of one session (`--resume` and `>>`).
Tokens and seconds are of the prompt; the cost is of the process so far. Held against streams of Claude Code
2.1.197, of one process with two prompts (`--input-format stream-json`) and of two processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trimtab.traces.core.coerce import as_int, as_label, as_number, as_object, objects_in, sum_known
from trimtab.typing import Json

_SUBTYPES = {"error_during_execution": "error"}


class Outcome(NamedTuple):
    """What a session's results say together; None where none of them does."""

    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    stop: str | None = None


def outcome_of(results: Iterable[Json]) -> Outcome:
    """Return the sum over a session's prompts, and how the last one ended.

    >>> result = {"subtype": "success", "usage": {"output_tokens": 4}, "stop_reason": "end_turn"}
    >>> outcome_of([result, result])
    Outcome(tokens=8, cost=None, seconds=None, stop='end_turn')
    """
    results = list(results)
    if not results:
        return Outcome()
    milliseconds = sum_known(as_number(one.get("duration_ms")) for one in results)
    return Outcome(
        tokens=sum_known(map(_tokens, results)),
        cost=_cost(results),
        seconds=None if milliseconds is None else milliseconds / 1000,
        stop=_stop(results[-1]),
    )


def _tokens(result: Json) -> int | None:
    return as_int(as_object(result.get("usage")).get("output_tokens"))


def _cost(results: list[Json]) -> float | None:
    """The sum of the last costs of each process.

    A process goes on where its tokens of all models hold those before it and its own.
    """
    costs: list[float] = []
    before: int | None = None
    for result in results:
        models = as_object(result.get("modelUsage"))
        total = sum_known(as_int(one.get("outputTokens")) for one in objects_in(list(models.values())))
        cost = as_number(result.get("total_cost_usd"))
        if cost is None:
            continue
        if before is not None and total is not None and total >= before + (_tokens(result) or 0):
            costs[-1] = cost
        else:
            costs.append(cost)
        before = total
    return sum_known(costs)


def _stop(result: Json) -> str | None:
    """Why a prompt ended: its limit or its error, else the stop reason of the last answer."""
    subtype = as_label(result.get("subtype"))
    if subtype in (None, "success"):
        return "error" if result.get("is_error") is True else as_label(result.get("stop_reason"))
    return _SUBTYPES.get(subtype, subtype.removeprefix("error_"))
