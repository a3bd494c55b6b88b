"""The terminal view says how old it is, what it has not judged, and obeys no text it shows."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from trimtab.report.terminal.view import follow, render

NAN = float("nan")


def state(**changes: Any) -> dict[str, Any]:
    tail = [0.6, 0.7, 1.4, NAN, 7.0]
    history = {"post_tool_p99": tail, "text_p99": [0.6, 0.6, 0.7], "reward": [0.1, 0.2, 0.3]}
    alarm = {
        "rule": "tail_ratio/post_tool",
        "step": 1100,
        "severity": "critical",
        "slice": "post_tool",
        "hidden": True,
    }
    base = {"name": "baseline", "verdict": "alarms", "step": 1640, "updated_s": 12.0, "reward": 0.617, "kl": 0.0182, "entropy": 1.26,
            "text_p99": 0.864, "post_tool_p99": 8.26, "history": history, "alarms": [alarm], "not_observed": [], "notes": []}  # fmt: skip
    return {**base, **changes}


NEW = state(name="new", verdict="not judged yet", step=-1, updated_s=NAN, reward=NAN, kl=None, entropy=NAN, text_p99=NAN,
            post_tool_p99=NAN, history={}, alarms=[])  # fmt: skip


def shown(states: Any, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(render(states))
    return captured.get()


@pytest.mark.parametrize("width", [60, 80, 133, 134, 140, 200])
def test_every_width_shows_verdict_numbers_and_alarms_within_the_line(width: int) -> None:
    text = shown([state(), NEW, state(name="n" * 90)], width)
    for expected in (
        "▲ alarms",
        "… not judged yet",
        "8.26",
        "0.864",
        "0.0182",
        "1,640",
        "12 s ago",
        "1,100",
        "critical",
        "no alarm",
    ):
        assert expected in text
    assert max(cell_len(line) for line in text.splitlines()) <= width


def test_tail_sparklines_share_a_scale_and_mark_what_was_not_finite() -> None:
    lines = shown([state()], 80).splitlines()
    assert "8.26 ▂▂▂×█" in next(line for line in lines if "post_tool p99" in line)
    assert "0.864 ▂▂▂" in next(line for line in lines if "text p99" in line)


def test_silence_and_too_little_data_are_said_out_loud() -> None:
    assert "no new step for 3 min" in shown([state(updated_s=185.0)], 80)
    assert "no new step" not in shown([state(updated_s=170.0)], 80)
    assert "no slice has reached" in shown([{**NEW, "reason": "no slice has reached 2,000 tokens"}], 80)
    assert "no step yet" in shown(NEW, 140)
    assert "No run yet." in shown([], 80)


def test_what_was_not_observed_and_what_failed_is_listed() -> None:
    text = shown(
        [state(not_observed=["mismatch: none", {"what": "k-hat", "why": "no mu"}], notes=["monitor failed"])],
        140,
    )
    assert "not observed in baseline: mismatch: none; k-hat: no mu" in text
    assert "the watch itself: monitor failed" in text


@pytest.mark.parametrize("width", [80, 140])
def test_hostile_text_is_shown_not_obeyed(width: int) -> None:
    evil = "[red]x[/red]\x1b[31m\u202e\r\n[/]"
    alarm = {"rule": evil, "step": 1, "severity": evil, "slice": evil, "hidden": False}
    text = shown([state(name=evil, verdict=evil, notes=[evil], not_observed=[evil], alarms=[alarm])], width)
    assert not set(text) & set("\x1b\u202e\r")
    assert "the watch itself: [red]x[/red]␛[31m\\u202e␍␊[/]" in text


def test_alarms_beyond_the_newest_are_counted() -> None:
    alarms = [
        {"rule": f"rule{k}", "step": k, "severity": "warning", "slice": "text", "hidden": False}
        for k in range(20)
    ]
    text = shown([state(alarms=alarms)], 140)
    assert "rule19" in text
    assert "rule11" not in text
    assert "and 12 earlier" in text


def test_follow_redraws_until_stopped_and_raises_what_load_raises() -> None:
    calls: list[int] = []

    def load() -> list[dict[str, Any]]:
        calls.append(1)
        return [state(step=len(calls), updated_s=math.inf)]

    console = Console(width=80, file=io.StringIO(), force_terminal=True)
    follow(load, 0.001, lambda: len(calls) >= 3, console)
    assert len(calls) == 3
    assert "step 2" in console.file.getvalue()  # type: ignore[attr-defined]

    def broken() -> list[dict[str, Any]]:
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        follow(broken, 0.001, lambda: False, console)
