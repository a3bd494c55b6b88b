"""An episode that begins anew after its end is another one, late and doubled steps are none; alike in one piece and in shards."""

from __future__ import annotations

import json
import random

import pytest

from tests.traces.make import steps, write_lines
from tests.traces.sharding import random_log, same
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.follow import Follower
from trimtab.traces.read import iter_episodes, read_episodes
from trimtab.traces.readers.ptt_steps.restarts import BEGAN_AGAIN

COPIES = "steps that are copies of another, dropped"


def bare(rows):
    return [{name: value for name, value in row.items() if name != "timestamp"} for row in rows]


def unnumbered(rows):
    return [{name: value for name, value in row.items() if name != "step"} for row in rows]


def _found(path):
    same(path)
    episodes, report = read_episodes([path])
    return {e.id: (len(e.calls), e.reward) for e in episodes}, report


def test_a_run_appended_to_a_run_is_as_many_episodes_again(tmp_path):
    runs = [[row for name in "abc" for row in steps(name, calls=run + 1, reward=run / 4, start=9e3 * run)] for run in range(3)]  # fmt: skip
    path = write_lines(tmp_path / "log.jsonl", [row for run in runs for row in run])
    table = same(path)
    assert list(table.ids) == ["a", "b", "c", "a#2", "b#2", "c#2", "a#3", "b#3", "c#3"]
    episodes, report = read_episodes([path])
    assert [e.id for e in episodes] == list(table.ids)
    assert [(len(e.calls), e.reward) for e in episodes[::3]] == [(1, 0.0), (2, 0.25), (3, 0.5)]
    assert [e.source.rpartition(":")[2] for e in episodes[::3]] == ["1", "16", "37"]
    assert report.notes[BEGAN_AGAIN] == 6
    follower = Follower(path, ReadReport())
    follower.poll()
    assert sorted(follower.table().ids) == sorted(table.ids)


@pytest.mark.parametrize(
    ("again", "wanted"),
    [
        (steps("a", start=9e3, reward=0.0), {"a": (2, 1.0), "a#2": (2, 0.0)}),
        (steps("a", start=9e3)[:-1], {"a": (2, 1.0), "a#2": (2, None)}),  # killed before its end
        (bare(steps("a", calls=3, reward=0.0)), {"a": (2, 1.0), "a#2": (3, 0.0)}),  # the first steps are copies
        (steps("a", start=9e3, reward=0.0)[3:], {"a": (2, 1.0), "a#2": (1, 0.0)}),  # taken up in the middle
        ([{**row, "step": row["step"] + 50} for row in steps("a", reward=0.0)], {"a": (2, 1.0), "a#2": (2, 0.0)}),
        ([*steps("a")[2:], *steps("a", start=9e3, reward=0.0)], {"a": (2, 1.0), "a#2": (2, 0.0)}),  # doubled before
        ([*steps("a", start=8e3, reward=0.0), *steps("a")], {"a": (2, 1.0), "a#2": (2, 0.0)}),  # the first once more
    ],
)  # fmt: skip
def test_what_begins_anew(tmp_path, again, wanted):
    first = bare(steps("a")) if "timestamp" not in again[0] else steps("a")
    found, report = _found(write_lines(tmp_path / "log.jsonl", [*first, *steps("z"), *again]))
    assert {name: one for name, one in found.items() if name != "z"} == wanted
    assert report.notes[BEGAN_AGAIN] == 1


def test_without_step_numbers_another_end_tells(tmp_path):
    rows = bare(unnumbered([*steps("a"), *steps("a", calls=3, reward=0.0), *steps("a", calls=0)]))
    found, _ = _found(write_lines(tmp_path / "log.jsonl", rows))
    assert found == {"a": (2, 1.0), "a#2": (3, 0.0), "a#3": (0, 1.0)}


LATE = {"type": "tool_result", "tool": "search", "result": "late", "episode_id": "a", "timestamp": 5e3}


@pytest.mark.parametrize(
    ("rows", "calls", "reward", "copies"),
    [
        (steps("a")[::-1], 2, 1.0, 0),
        ([*steps("a"), *steps("a")], 2, 1.0, 7),
        ([*steps("a"), steps("a", reward=0.0, start=1001.0)[-1]], 2, 0.0, 0),  # the end, corrected
        ([*steps("a")[:1], *steps("a")[3:], *steps("a")[1:3]], 2, 1.0, 0),
        ([*steps("a"), {**LATE, "step": 2}], 2, 1.0, 0),  # of a step of several events
        ([*steps("a"), {**LATE, "type": "other", "step": 99}], 2, 1.0, 0),
        (unnumbered([*steps("a"), {**LATE, "step": 99}]), 2, 1.0, 0),
    ],
)  # fmt: skip
def test_what_is_late_or_doubled_stays(tmp_path, rows, calls, reward, copies):
    found, report = _found(write_lines(tmp_path / "log.jsonl", [*rows, *steps("z")]))
    assert found == {"a": (calls, reward), "z": (2, 1.0)}
    assert (report.notes[COPIES], report.notes[BEGAN_AGAIN]) == (copies, 0)


@pytest.mark.parametrize("seed", range(6))
def test_random_runs_appended_give_the_same_table_in_shards(tmp_path, seed):
    rng, rows = random.Random(seed), list[dict]()
    for run in range(3):
        later = random_log(rng, 30, 0.0 if seed < 3 else 0.3)
        rows += [{**row, "timestamp": row["timestamp"] + 9e4 * run} for row in later]
    table = same(write_lines(tmp_path / "log.jsonl", rows))
    assert sum("#" in name for name in table.ids) > 20


def test_an_id_used_ten_thousand_times_is_read_in_a_moment(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        "".join(json.dumps(row) + "\n" for i in range(10_000) for row in steps("w", 0, start=10.0 * i))
    )
    episodes, _ = read_episodes([path])
    assert len(episodes) == 10_000


def test_the_lines_of_one_that_began_anew_are_found_again_by_its_name(tmp_path):
    """As the page does, of what the columns counted."""
    path = write_lines(tmp_path / "log.jsonl", [*steps("a"), *steps("b"), *steps("a", start=9e3)])
    found = list(iter_episodes([path], ReadReport(), only={"a#2"}))
    assert [e.id for e in found] == ["a", "a#2"]


def _turns(numbers=(0, 1, 2, 3)):
    """An episode whose call is answered late and whose end is corrected after that: steps are turns, hence one number has several."""
    rows = [
        {"type": "user_message", "content": "q"},
        {"type": "tool_call", "tool": "f", "args": {"i": 1}},
        {"type": "assistant_message", "content": "done"},
        {"type": "episode_end", "reward": 0.0},
        {"type": "tool_result", "tool": "f", "result": "r"},
        {"type": "episode_end", "reward": 1.0},
    ]
    places = [*range(4), 1, 3]
    return [
        {"episode_id": "a", **({} if numbers is None else {"step": numbers[at]}), **row}
        for at, row in zip(places, rows, strict=True)
    ]


@pytest.mark.parametrize("numbers", [(0, 1, 2, 3), (0, 0, 0, 0), None])
@pytest.mark.parametrize("late", ["tool_result", "assistant_message"])
def test_a_late_line_before_a_corrected_end_begins_nothing(tmp_path, numbers, late):
    rows = _turns(numbers)
    if late == "assistant_message":
        rows[4] = {**rows[4], "type": late, "content": "as I said"}
    found, report = _found(write_lines(tmp_path / "log.jsonl", rows))
    assert found == {"a": (1, 1.0)}
    assert BEGAN_AGAIN not in report.notes


def test_a_late_result_of_several_parallel_calls_before_a_corrected_end_begins_nothing(tmp_path):
    rows = _turns()
    call, result = rows[1], rows[4]
    rows[2:2] = [{**call, "args": {"i": 2}}, {**result, "result": "r1"}]
    found, report = _found(write_lines(tmp_path / "log.jsonl", rows))
    assert found == {"a": (2, 1.0)}
    assert BEGAN_AGAIN not in report.notes


def test_a_late_result_behind_the_end_before_a_corrected_one_begins_nothing(tmp_path):
    """Each line has a number of its own."""
    rows = [{**row, "step": i} for i, row in enumerate(_turns())]
    found, report = _found(write_lines(tmp_path / "log.jsonl", rows))
    assert found == {"a": (1, 1.0)}
    assert BEGAN_AGAIN not in report.notes
