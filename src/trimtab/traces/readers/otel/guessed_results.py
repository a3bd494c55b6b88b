"""Results of tool spans that name no call, given to a call by its name.

Later requests, which have the ids, correct them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.traces.core.coerce import as_text
from trimtab.traces.core.read_report import ReadReport

_FROM_SPAN = ("content", "error", "latency_s", "timestamp")


class GuessedResults:
    """Guessed answers, as messages, by the id of the call they were given to."""

    def __init__(self, report: ReadReport) -> None:
        self._report = report
        self._answers: dict[str, dict[str, Any]] = {}
        self._unsure: set[str] = set()  # calls guessed while others of the name were open

    def add(self, call_id: str, answer: dict[str, Any], unsure: bool) -> None:
        """Remember a guess."""
        self._answers[call_id] = answer
        self._unsure |= {call_id} if unsure else set()

    def is_unsure(self, name: str) -> bool:
        """Is there a guess on a call of this name that may belong to another?"""
        return any(self._answers[one]["name"] == name for one in self._unsure & self._answers.keys())

    def settle(self, results: Mapping[str, dict[str, Any]], names: Mapping[str, str]) -> None:
        """Correct guesses by the `results` of a request, by the id of their call.

        `names`: of calls without an answer, by id.

        What a span recorded (text, time, error) goes to the call of its name whose result has this text. A
        call for which no span is left has only what the request has.
        """
        guesses = {k: a for k, a in self._answers.items() if k in results and a["content"] is not None}
        wrong = {k: a for k, a in guesses.items() if not _same_content(a, results[k])}
        for call_id in guesses:
            del self._answers[call_id]
        recorded = {k: {field: answer[field] for field in _FROM_SPAN} for k, answer in wrong.items()}
        names = {**names, **{k: answer["name"] for k, answer in wrong.items()}}
        unmatched = dict(wrong)
        for call_id, result in results.items():
            name = names.get(call_id)
            same_name = ((k, span) for k, span in recorded.items() if wrong[k]["name"] == name)
            source = next((k for k, span in same_name if _same_content(span, result)), None)
            if source is not None:
                wrong.get(call_id, result).update(recorded.pop(source))
                unmatched.pop(call_id, None)
        for call_id, answer in unmatched.items():
            unused, unsure = call_id in recorded, call_id in self._unsure
            if unused and unsure:
                self._report.note(
                    "results of tools' spans without a call's id that no request repeats, left out"
                )
            if not unused or unsure:
                answer |= {**dict.fromkeys(_FROM_SPAN), "error": results[call_id].get("error")}
            answer["content"] = results[call_id].get("content")


def _same_content(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (as_text(one.get("content")) or "").strip() == (as_text(other.get("content")) or "").strip()
