"""Trajectories of OpenPipe's ART: Parquet files whose calls are JSON text. The file was written by `Model.log` of openpipe-art 0.5.18, run
once outside this repository: two groups of two trajectories, a search in each, answered with an error in every second one."""

from __future__ import annotations

from pathlib import Path

from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.tool_results import raw_calls
from trimtab.traces.read import read_episodes

FILE = Path(__file__).parent / "fixtures" / "art-trajectories.parquet"


def test_arts_trajectories_have_their_calls_and_results() -> None:
    episodes, report = read_episodes([FILE])
    calls = [call for episode in episodes for turn in episode.turns for call in turn.calls]
    assert [(call.name, call.arguments, call.result) for call in calls] == [
        ("search", {"q": "x"}, "42"), ("search", {"q": "x"}, "Error: timeout"),
    ] * 2  # fmt: skip
    assert [episode.reward for episode in episodes] == [1.0, 0.0, 1.0, 0.0]
    assert [tool["function"]["name"] for tool in episodes[0].tools or []] == ["search"]
    assert not [note for note in report.notes if "no list" in note or "answer no call" in note]


def test_calls_that_are_text_but_no_json_are_counted() -> None:
    report = ReadReport()
    assert raw_calls({"tool_calls": "search("}, report) == []
    assert raw_calls({"tool_calls": '[{"name": "f"}]'}, report) == [{"name": "f"}]
    assert [count for note, count in report.notes.items() if "no list" in note] == [1]
