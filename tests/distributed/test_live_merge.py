"""A run that merges its ranks while it trains: the same keys at 1 and 4 ranks, silent ranks named, nothing waits."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

import trimtab
from tests.distributed.dealt_sequences import EVERY, OPEN, arrays, metrics, record
from trimtab.distributed import MergeOptions, merger
from trimtab.errors import RunError
from trimtab.report.alarms import alarm_payload
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

STEPS = 5 * EVERY


def step(run: trimtab.Run, number: int, rank: int, ranks: int) -> list[trimtab.Alarm]:
    run.observe(**arrays(number, rank, ranks))
    if number % ranks == rank:  # calls are dealt out too
        run.tool_call(trimtab.ToolCall("search", {"q": "x"}, 12, "" if number % 5 else "timeout", 0.01))
    return run.flush(number, metrics(number))


def open_ranks(folder: Path, ranks: int, **changes: object) -> list[trimtab.Run]:
    merge = MergeOptions(ranks=ranks, **changes)  # type: ignore[arg-type]
    return [trimtab.open_run(folder, rank=rank, merge=merge, strict=True, **OPEN) for rank in range(ranks)]


def close(runs: list[trimtab.Run]) -> None:
    for run in reversed(runs):  # the leading rank last, as it waits for the others' last rows
        run.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Runs of one and of four ranks that merge, in this process, step by step."""
    root = tmp_path_factory.mktemp("live")
    for ranks in (1, 4):
        runs = open_ranks(root / str(ranks), ranks)
        for number in range(STEPS):
            for rank, run in enumerate(runs):
                step(run, number, rank, ranks)
        close(runs)
    return {ranks: root / str(ranks) for ranks in (1, 4)}


def rows(folder: Path) -> dict[tuple[int, str], dict[str, float]]:
    return {(row["step"], row["slice"]): row["values"] for row in RunReader(folder).rows("readings")}


def test_the_same_readings_at_one_rank_and_at_four(folders: dict[int, Path]) -> None:
    one, four = rows(folders[1]), rows(folders[4])
    assert one.keys() == four.keys()
    assert {step for step, _ in one} >= {EVERY * i - 1 for i in range(1, 6)}
    counted = 0
    for key, values in one.items():
        missing = values.keys() ^ four[key].keys()
        assert not missing, (key, missing)
        for name, value in values.items():
            if value is None or "khat" in name or "hill" in name:  # fitted to exact values, or to a histogram
                continue
            assert four[key][name] == pytest.approx(value, rel=2e-3, abs=1e-4, nan_ok=True), (key, name)
            counted += 1
    assert counted > 300


def test_only_the_leading_rank_judges(folders: dict[int, Path]) -> None:
    reader = RunReader(folders[4])
    assert {row["step"] for row in reader.rows("readings", 0)}
    assert [reader.rows("readings", rank) for rank in (1, 2, 3)] == [[]] * 3
    merge = [row["merge"] for row in reader.rows("steps", 0)]
    assert merge[-1] == {"through": STEPS - 3}  # of the poll before; rank 0 flushes first here
    assert all("merge" not in row for row in reader.rows("steps", 1))
    assert reader.header["config"]["merge"]["ranks"] == 4


def test_live_alarms_and_those_of_a_view_are_the_same(tmp_path: Path) -> None:
    folder, ranks = tmp_path / "run", 2
    runs = open_ranks(folder, ranks)
    for number in range(40):
        for rank, run in enumerate(runs):
            mine = arrays(number, rank, ranks)
            if number >= 25:
                mine["logprobs"] = mine["logprobs"] - 1.5 * (mine["rollout_logprobs"] - mine["logprobs"]) ** 2
                mine["rollout_logprobs"] = mine["rollout_logprobs"] * 1.6
            run.observe(**mine)
            run.flush(number, metrics(number))
    close(runs)
    live = {(a.rule, a.slice, a.step) for a in runs[0].alarms}
    assert live
    assert not runs[1].alarms
    view = {(a.rule, a.slice, a.step) for a in load_view(folder).alarms}
    assert live == view


def test_a_silent_rank_is_named_and_its_return_clears_the_alarm(tmp_path: Path) -> None:
    runs = open_ranks(tmp_path / "run", 3, lag=2)
    fired = []
    for number in range(18):
        for rank, run in enumerate(runs):
            if rank == 2 and 6 <= number < 12:
                continue
            alarms = step(run, number, rank, 3)
            fired += [(number, rank, a.rule, a.slice, a.since) for a in alarms if a.rule == "rank_silent"]
        time.sleep(0.01)
    close(runs)
    assert len(fired) == 1
    assert 7 <= fired[0][0] <= 11  # 7, or later where this machine was slow for a moment
    assert fired[0][1:] == (0, "rank_silent", "rank/2", 6)
    view = load_view(tmp_path / "run")
    (alarm,) = [a for a in view.alarms if a.rule == "rank_silent"]
    assert (alarm.slice, alarm.severity, alarm.since) == ("rank/2", "warning", 6)
    assert alarm.cleared is not None
    assert alarm_payload(alarm)["what"] == "rank/2 has written nothing since step 6"
    merge = RunReader(tmp_path / "run").rows("steps", 0)[-1]["merge"]
    assert merge["missing"]["2"] >= 4
    assert "silent" not in merge


def test_another_rank_names_the_leading_one(tmp_path: Path) -> None:
    runs = open_ranks(tmp_path / "run", 3, end_wait_s=0.01)
    fired = []
    for number in range(14):
        for rank, run in enumerate(runs):
            if rank > 0 or number < 8:
                alarms = step(run, number, rank, 3)
                fired += [(rank, a.slice, a.since) for a in alarms if a.rule == "rank_silent"]
        time.sleep(0.01)
    close(runs)
    assert fired == [(1, "rank/0", 8)]


def test_a_restarted_rank_counts_nothing_twice(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    merge = MergeOptions(ranks=2, lag=3)
    leader = trimtab.open_run(folder, rank=0, merge=merge, strict=True, **OPEN)
    other = trimtab.open_run(folder, rank=1, merge=merge, strict=True, **OPEN)
    for number in range(8):
        step(leader, number, 0, 2)
        step(other, number, 1, 2)
    other.writer.close()  # as if it was killed: nothing that waited in memory is written
    again = trimtab.open_run(folder, rank=1, merge=merge, strict=True, **OPEN)
    for number in range(6, 16):
        step(again, number, 1, 2)  # it does 6 and 7 again
        if number >= 8:
            step(leader, number, 0, 2)
    again.close()
    leader.close()
    merged = [leader.series.arrays("reward/mean")]
    assert merged[0].steps.tolist() == list(range(16))
    assert merged[0].num_trajectories.tolist() == [32] * 16
    status = RunReader(folder).rows("steps", 0)[-1]["merge"]
    assert status.get("late", 0) + status.get("superseded", 0) == 2
    (all_rows, *_) = [row for row in RunReader(folder).rows("readings", 0) if row["slice"] == "all"]
    assert all_rows["n_tokens"] % (32 * 60) == 0


def test_a_resumed_job_goes_on_from_its_baseline(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for first, last in ((0, 12), (12, 20)):
        runs = open_ranks(folder, 2)
        for number in range(first, last):
            for rank, run in enumerate(runs):
                step(run, number, rank, 2)
        close(runs)
    steps = sorted({row["step"] for row in RunReader(folder).rows("readings", 0) if row["slice"] == "all"})
    assert steps == [3, 7, 9, 11, 15, 19]  # windows of tokens end with blocks, those of tools every 10 steps
    judged = runs[0].pipeline.seen
    assert max(judged.values()) == 20


def test_workers_outside_the_group_add_up_and_are_not_missed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    worker = trimtab.open_run(folder, rank=1_000_004, merge=MergeOptions(ranks=1), strict=True, **OPEN)
    with trimtab.open_run(folder, rank=0, merge=MergeOptions(ranks=1), strict=True, **OPEN) as run:
        for number in range(8):
            if number < 4:
                step(worker, number, 1, 2)
            step(run, number, 0, 2)
    counts = run.series.arrays("reward/mean").num_trajectories.tolist()
    assert counts == [32] * 4 + [16] * 4
    worker.close()
    gaps = load_view(folder).integrity.gaps
    assert not gaps


def test_the_budget_bounds_what_a_step_spends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merger, "CHUNK", 1)
    folder, ranks = tmp_path / "run", 6
    for rank in range(1, ranks):
        record(str(folder), rank, ranks, EVERY)
    merge = MergeOptions(ranks=ranks, budget_s=1e-6)
    with trimtab.open_run(folder, rank=0, merge=merge, strict=True, **OPEN) as run:
        for number in range(EVERY):
            step(run, number, 0, ranks)
        assert run.series.latest is not None
        assert run.series.latest.step == EVERY - 2  # one of five ranks' states is merged so far
    assert run.series.latest.step == EVERY - 1
    merged = RunReader(folder).rows("readings", 0)
    assert {row["n_tokens"] for row in merged if row["slice"] == "all"} == {32 * 60 * EVERY}


@pytest.mark.parametrize(("merge", "words"), [("fax", "not a way"), (3, "give 'folder'")])
def test_malformed_arguments(tmp_path: Path, merge: object, words: str) -> None:
    with pytest.raises(RunError, match=words):
        trimtab.open_run(tmp_path / "run", merge=merge)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_listed_costs_nothing_and_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import os

    def refuse(*_: object, **__: object) -> list[str]:
        raise OSError(5, "Input/output error")

    runs = open_ranks(tmp_path / "run", 2, end_wait_s=0.01)
    for rank, run in enumerate(runs):
        step(run, 0, rank, 2)
    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(os, "stat", refuse)
    with caplog.at_level(logging.ERROR):
        for number in range(1, 8):
            for rank, run in enumerate(runs):
                step(run, number, rank, 2)
    monkeypatch.undo()
    close(runs)
    merge = RunReader(tmp_path / "run").rows("steps", 0)[-1]["merge"]
    assert "Input/output error" in merge["failure"]
    assert merge["through"] == 5  # files that are known are still followed


def silent_alarms(folder: Path) -> list[tuple[str, bool]]:
    return [(a.slice, a.cleared is None) for a in load_view(folder).alarms if a.rule == "rank_silent"]


def test_a_rank_that_finished_is_not_silent_and_one_that_died_is(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs = open_ranks(folder, 4, lag=2, end_wait_s=0.01)
    fired = []
    for number in range(16):
        for rank, run in enumerate(runs):
            if rank == 0 or number < 5:
                alarms = step(run, number, rank, 4)
                fired += [a.slice for a in alarms if a.rule == "rank_silent"]
            elif number == 5 and rank == 1:
                run.close()
            elif number == 5 and rank == 2:
                run.end("exception", {"error": "ValueError: x"})
        time.sleep(0.01)
    assert sorted(fired) == ["rank/2", "rank/3"]
    assert silent_alarms(folder) == [("rank/2", True), ("rank/3", True)]
    runs[3].close()  # its process ended after all
    step(runs[0], 16, 0, 4)
    assert ("rank/3", False) in silent_alarms(folder)
    status = RunReader(folder).rows("steps", 0)[-1]["merge"]
    assert status["silent"].keys() == {"2", "3"}  # of the step before
    step(runs[0], 17, 0, 4)
    assert RunReader(folder).rows("steps", 0)[-1]["merge"]["silent"].keys() == {"2"}
    runs[2].close()
    runs[0].close()


def test_an_alarm_that_no_rank_was_left_to_clear_is_cleared_in_a_view(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs = open_ranks(folder, 3, lag=2, end_wait_s=0.01)
    for number in range(16):
        for rank, run in enumerate(runs):
            if rank == 0 or number < 5:
                step(run, number, rank, 3)
        time.sleep(0.01)
    assert silent_alarms(folder) == [("rank/1", True), ("rank/2", True)]
    runs[0].writer.close()  # as if it was killed
    runs[1].close()
    for number in range(5, 17):
        step(runs[2], number, 2, 3)
    assert silent_alarms(folder) == [("rank/1", False), ("rank/2", False)]
    runs[2].close()


@pytest.mark.parametrize(
    ("options", "rank", "text"),
    [
        ({"ranks": 4, "leader": 9}, 0, "leader is 9 of 4 ranks, so nobody merges; give a rank from 0 to 3"),
        ({"leader": 1}, 0, "leader is 1 of 1 ranks, so nobody merges; give 0"),
        ({"ranks": 4}, 7, "rank is 7 of 4 ranks, so nobody reads it"),
    ],
)
def test_a_rank_that_nobody_would_read_is_refused(
    tmp_path: Path, options: dict[str, int], rank: int, text: str
) -> None:
    with pytest.raises(RunError, match=text):
        trimtab.open_run(tmp_path / "run", rank=rank, merge=MergeOptions(**options))
    assert not (tmp_path / "run").exists()
