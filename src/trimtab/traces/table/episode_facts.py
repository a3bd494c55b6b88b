"""What the checks want to know of one episode: counts, and where each thing happened first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trimtab.traces.core.coerce import sum_known
from trimtab.traces.core.episode import Call, Episode
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.errors.kinds import error_kind_of
from trimtab.traces.errors.unknown_tools import says_unknown_tool
from trimtab.traces.table.first_symptom import NO_SYMPTOM, Symptom, first_symptom, is_void
from trimtab.traces.table.language import MARKS, refuses, switched_turns
from trimtab.traces.table.loops import first_repeat, longest_loop, num_repeats, without_stamps
from trimtab.traces.table.schema_check import misfit, schemas_by_name
from trimtab.traces.table.stop_reasons import is_limit
from trimtab.traces.table.types import COUNTS, NO_NAME, Evidence

EXCERPT = 200
"""Characters of a result in an example; of arguments half as many."""


class CallFacts(NamedTuple):
    """One call as the tool table wants it."""

    name: str
    error: str
    kind: str
    fault: str
    latency_s: float | None
    unknown: bool = False  # no such tool


_ZEROS = dict.fromkeys((*COUNTS, *MARKS), 0)


@dataclass
class EpisodeFacts:
    """`counts`: the columns of `TraceTable.counts`. `evidence`: what -> where it happened first."""

    episode: Episode
    counts: dict[str, int]
    calls: list[CallFacts]
    truncated: int
    tokens: float | None
    first_error: str = ""
    checked: int = 0
    evidence: dict[str, Evidence] = field(default_factory=dict)
    symptom: Symptom = NO_SYMPTOM
    marks: dict[str, int] = field(default_factory=dict)


def facts_of(episode: Episode, wanted: Callable[[str], bool] = bool) -> EpisodeFacts:
    """Return the facts of one episode, with examples of those things that are `wanted`."""
    calls, counts, evidence = episode.calls, dict(_ZEROS), dict[str, Evidence]()

    def seen(what: str, step: int, text: str | Call) -> None:
        counts[what] = counts.get(what, 0) + 1
        if what not in evidence and wanted(what):
            shown = text if isinstance(text, str) else call_text(text)
            evidence[what] = Evidence(episode.id, step, shown, episode.source)

    schemas = schemas_by_name(episode.tools or [])
    # an empty list is a default of many sets
    flat = [_call(call, schemas if episode.tools else None) for call in calls]
    counts["turns"] = sum(turn.role == "assistant" for turn in episode.turns)
    counts["calls"] = len(calls)
    _words(episode, seen)
    first_error = _errors(calls, flat, seen, _cut_off(episode))
    checked = _arguments(calls, flat, schemas, seen)
    keys = _keys(calls)
    counts["repeats"], loop = num_repeats(keys), longest_loop(keys)
    if counts["repeats"] and wanted("repeats"):
        again = calls[first_repeat(keys)]
        evidence["repeats"] = Evidence(episode.id, again.step, call_text(again), episode.source)
    counts["loop_calls"] = loop.calls
    if loop.calls and wanted("loop_calls"):
        call = calls[loop.start]
        text = f"{loop.calls} calls in a block of {loop.period}, from {call_text(call)}"
        evidence["loop_calls"] = Evidence(episode.id, call.step, text, episode.source)
    tokens = (
        episode.tokens if episode.tokens is not None else sum_known(turn.tokens for turn in episode.turns)
    )
    stop = episode.stop_reason
    cut = -1 if stop is None else int(is_limit(stop))
    marks = {name: counts.pop(name) for name in MARKS}
    return EpisodeFacts(
        episode, counts, flat, cut, tokens, first_error, checked, evidence, first_symptom(episode), marks
    )


def call_text(call: Call) -> str:
    """A call in one short line: name, arguments, and what came of it: the error that was counted, else the
    result.

    >>> call_text(Call(name="add", arguments={"a": 1}, result="Error: b"))
    'add({"a": 1}) -> Error: b'
    >>> call_text(Call(name="sh", result="a.txt", error="timed out", error_from="log"))
    'sh() -> timed out'
    """
    inside = arguments_text(call)
    came = call.error or (call.result if call.result is not None else "no result")
    short = inside if len(inside) <= EXCERPT // 2 else f"{inside[: EXCERPT // 2]}…"
    return f"{call.name}({short}) -> {came[:EXCERPT]}"


def arguments_text(call: Call) -> str:
    """The arguments as text. Two calls are identical when their arguments are, to the letter."""
    if call.bad_arguments is not None:
        return call.bad_arguments
    return "" if call.arguments is None else _encode(call.arguments)


_encode = json.JSONEncoder(ensure_ascii=False).encode


def _keys(calls: list[Call]) -> list[Any]:
    """Return keys that are equal where calls are: arguments are written only where name and result are."""
    keys: list[Any] = [(call.name, without_stamps(call.result)) for call in calls]
    if len(set(keys)) == len(keys):
        return keys
    times = Counter(keys)
    pairs = zip(keys, calls, strict=True)
    return [key if times[key] == 1 else (*key, arguments_text(call)) for key, call in pairs]


def _call(call: Call, declared: Mapping[str, Any] | None) -> CallFacts:
    """Unknown is a tool that is not declared; where the log declares none, one of which the error says so."""
    name = call.name or NO_NAME
    if not call.error:
        return CallFacts(name, "", "", "", call.latency_s, declared is not None and call.name not in declared)
    unknown = says_unknown_tool(call.error) if declared is None else call.name not in declared
    fault = "policy" if call.error_from == "parse" else fault_of(call.error)
    return CallFacts(name, call.error, error_kind_of(call.error), fault, call.latency_s, unknown)


def _words(episode: Episode, seen: Any) -> None:
    """Void turns, an empty answer, refusals, changes of script."""
    void, step = False, -1
    for turn in episode.turns:
        if turn.role != "assistant":
            continue
        void, step = is_void(turn), turn.step
        if void:
            seen("void_turns", turn.step, "an assistant turn without text or call")
        elif not turn.calls and refuses(turn.content or ""):
            seen("refusals", turn.step, (turn.content or "")[:EXCERPT])
    if void:
        seen("empty_answers", step, "the last assistant turn is empty")
    for turn, script in switched_turns(episode):
        seen("switches", turn.step, f"{script}: {(turn.content or '')[:EXCERPT]}")


def _cut_off(episode: Episode) -> int:
    """How many of the last calls have no result because a row to train on ends with them."""
    last = episode.turns[-1].calls if episode.turns and episode.for_training else []
    return 0 if any(call.result is not None for call in last) else len(last)


def _errors(calls: list[Call], flat: list[CallFacts], seen: Any, cut_off: int) -> str:
    """Failed, unanswered and unknown; the first error as `tool: kind`."""
    first = ""
    for index, (call, facts) in enumerate(zip(calls, flat, strict=True)):
        if facts.error:
            seen("failed", call.step, call)
            seen(f"failed/{facts.name}", call.step, call)
            first = first or f"{facts.name}: {facts.kind}"
        if facts.fault == "tool":
            seen("tool_faults", call.step, call)
        if call.result is None and not call.error and index < len(calls) - cut_off:
            seen("unanswered", call.step, call)
        if call.bad_arguments is not None:
            seen("bad_arguments", call.step, call)
    return first


def _arguments(calls: list[Call], flat: list[CallFacts], schemas: Mapping[str, Any], seen: Any) -> int:
    """Count unknown tool names and arguments that do not fit; return the number of calls checked against a
    schema."""
    checked = 0
    for call, facts in zip(calls, flat, strict=True):
        if facts.unknown:
            seen("unknown_tools", call.step, call)
        elif schemas.get(call.name) and call.bad_arguments is None:  # of some only the name is known
            checked += 1
            if why := misfit(call.arguments, schemas[call.name]):
                seen("schema_errors", call.step, f"{why} in {call_text(call)}")
    return checked
