"""Results of tools' spans that name no call, given to one by its name: what a later request says under the call's id puts them right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.traces.core.coerce import as_text
from trimtab.traces.core.read_report import ReadReport

_SEEN = ("content", "error", "latency_s", "timestamp")


class Guesses:
    """`answers`: the guessed ones, as messages, by the id of the call they were given to; `unsure`: where others of the name were open."""

    def __init__(self, report: ReadReport) -> None:
        self.report = report
        self.answers: dict[str, dict[str, Any]] = {}
        self.unsure: set[str] = set()

    def add(self, called: str, answer: dict[str, Any], unsure: bool) -> None:
        """Remember a guess; of a call without an id nothing is said later."""
        if called:
            self.answers[called] = answer
            self.unsure |= {called} if unsure else set()

    def of(self, name: str) -> bool:
        """Is a guess on a call of this name open that might be another's?"""
        return any(self.answers[called]["name"] == name for called in self.unsure & self.answers.keys())

    def settle(self, results: Mapping[str, dict[str, Any]], names: Mapping[str, str]) -> None:
        """Put guesses right by `results`, which a request gives, by the id of their call. `names`: of the calls without an answer, by id.

        What a span saw (text, time, error) goes to the call of its name that has this text; a call that no span is left for keeps
        what the request says alone.
        """
        told = {k: a for k, a in self.answers.items() if k in results and a["content"] is not None}
        wrong = {k: a for k, a in told.items() if not _same(a, results[k])}
        for called in told:
            del self.answers[called]
        seen = {k: {field: answer[field] for field in _SEEN} for k, answer in wrong.items()}
        names = {**names, **{k: answer["name"] for k, answer in wrong.items()}}
        unmatched = dict(wrong)
        for called, result in results.items():
            name = names.get(called)
            source = next((k for k, s in seen.items() if wrong[k]["name"] == name and _same(s, result)), None)
            if source is not None:
                wrong.get(called, result).update(seen.pop(source))
                unmatched.pop(called, None)
        for called, answer in unmatched.items():
            own = called in seen
            if own and called in self.unsure:
                self.report.note(
                    "results of tools' spans without a call's id that no request repeats, left out"
                )
            if not own or called in self.unsure:
                answer |= {**dict.fromkeys(_SEEN), "error": results[called].get("error")}
            answer["content"] = results[called].get("content")


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (as_text(one.get("content")) or "").strip() == (as_text(other.get("content")) or "").strip()
