"""Phases, memory and slow episodes from a live run to its diagnosis: four ranks, one rank, resumes, old folders."""

from __future__ import annotations

import io
import json
import logging
import re

import numpy as np
import pytest
from benchmarks.straggler_jitter import step_times
from rich.console import Console

from tests.support import make_batch
from trimtab import open_run
from trimtab.detect.rules.machine_rules import MACHINE_RULES
from trimtab.report.html.run_page import render_html
from trimtab.report.html.run_payload import build_payload
from trimtab.report.ranks.machine_view import machine_line
from trimtab.report.run_diagnosis import diagnosis, diagnosis_lines, diagnosis_screen
from trimtab.report.run_view import load_view
from trimtab.report.terminal.snapshot import live_state
from trimtab.report.terminal.view import render

MINE = {rule.name for rule in MACHINE_RULES}


def _record(folder, steps, *, start=0, held_s=0.0, tokens=True):
    runs = [open_run(folder, rank=rank) for rank in sorted(steps[0])]
    for step, times in enumerate(steps, start):
        for rank, run in enumerate(runs):
            for phase, seconds in times[rank].items():
                run.add_phase_time(phase, seconds)
            if tokens:
                scores = -np.ones((4, 3))
                run.observe(
                    loss_mask=np.ones((4, 3), bool), logprobs=scores, ref_logprobs=scores - 0.1,
                    episode_id=np.arange(4) + 4 * (rank + 8 * step), episode_s=[1.0, 1.5, 2.0, 2.0 + held_s * (rank == 0)],
                )  # fmt: skip
            run.flush(step, {"reward": 0.5})
    return runs


def _close(runs):
    for run in runs:
        assert run.num_failures == 0
        run.close()


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, "trimtab")


def test_a_slow_rank_of_four_is_in_the_headline_the_table_and_the_verdict(tmp_path) -> None:
    steps = step_times(np.random.default_rng(3), 120, 4, plant=(2, "backward", 30, 1.5))
    _close(_record(tmp_path / "run", steps, held_s=5.0))
    view = load_view(tmp_path / "run")
    alarms = {(alarm.rule, alarm.slice): alarm for alarm in view.alarms if alarm.rule in MINE}
    assert set(alarms) == {
        ("phase_slow", "rank/2/backward"),
        ("straggler", "rank/2"),
        ("slow_episode", "all"),
    }
    assert 28 <= alarms["straggler", "rank/2"].since <= 40
    assert alarms["straggler", "rank/2"].step >= alarms["straggler", "rank/2"].since + 9
    assert alarms["phase_slow", "rank/2/backward"].severity == "info"
    summary = json.loads(json.dumps(diagnosis(view)["machine"]))
    assert [(one["rank"], one["phase"]) for one in summary["slow"]] == [(2, "backward")]
    assert summary["waits"] == ["sync"]
    assert summary["waits_shortest"] == 2
    scores = {row["rank"]: row["score"]["backward"] for row in summary["ranks"]}
    assert scores[2] == pytest.approx(1 / 1.5, abs=0.06)
    assert all(score > 0.9 for rank, score in scores.items() if rank != 2)
    text = "\n".join(diagnosis_lines(diagnosis(view)))
    assert "rank 2 is slow in backward since step" in text
    assert "on rank 0 took 7 s, the median 1.75 s; 5 s a step are spent on the last episode alone" in text
    screen = " ".join(" ".join(diagnosis_screen(diagnosis(view))).split())
    assert "rank 2 is slow in backward" in screen
    assert machine_line(summary).startswith("rank 2 is slow in backward")
    page = render_html(build_payload([view]))
    assert re.search(r"<b>[\d.]+ slow</b>", page)
    assert page.index("rank 2 is slow in backward") < page.index("<th>Rank</th>")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(live_state(view)))
    assert "run: rank 2 is slow in backward" in console.export_text()


def test_alarms_of_one_live_rank_are_those_of_a_replay_also_after_a_resume(tmp_path) -> None:
    steps = step_times(np.random.default_rng(4), 160, 1, plant=(0, "tools", 100, 2.5))
    first = _record(tmp_path / "whole", steps, held_s=9.0)
    live = [(a.rule, a.slice, a.step, a.since) for a in first[0].alarms if a.rule in MINE]
    _close(first)
    assert {rule for rule, *_ in live} == {"phase_slow", "slow_episode"}
    view = load_view(tmp_path / "whole")
    assert [(a.rule, a.slice, a.step, a.since) for a in view.pipeline.alarms if a.rule in MINE] == live
    _close(_record(tmp_path / "parts", steps[:80], held_s=9.0))
    second = _record(tmp_path / "parts", steps[80:], start=80, held_s=9.0)
    assert [a[:3] for a in live] == [(a.rule, a.slice, a.step) for a in second[0].alarms if a.rule in MINE]
    _close(second)


def test_a_view_that_follows_ends_with_what_a_new_one_says_and_waits_for_late_ranks(tmp_path) -> None:
    steps = step_times(np.random.default_rng(12), 60, 4, plant=(1, "forward", 10, 1.5))
    runs = _record(tmp_path / "run", steps[:30], tokens=False)
    view = load_view(tmp_path / "run")
    for step, times in enumerate(steps[30:], 30):
        for rank, run in enumerate(runs):
            for phase, seconds in times[rank].items():
                run.add_phase_time(phase, seconds)
            run.flush(step, {"reward": 0.5})
            if rank == 1 and step % 5 == 0:
                view.refresh()  # two ranks have not written this step
                assert view.machine.judge.stragglers.ranks == [0, 1, 2, 3]
                assert len(view.machine._taken) == step
    view.refresh()
    whole = load_view(tmp_path / "run")
    assert view.machine.rows == whole.machine.rows
    assert view.machine.summary() == whole.machine.summary()
    assert [(one.rank, one.phase) for one in whole.machine.judge.slow] == [(1, "forward")]
    for step in range(60, 75):  # a rank that died is not waited for
        for run in runs[:3]:
            run.add_phase_time("forward", 1.0)
            run.flush(step)
    view.refresh()
    assert len(view.machine._taken) == 75
    for run in runs:
        run.close()


def test_memory_that_grows_under_noise_is_warned_of_live_and_cleared_once_it_stops(
    tmp_path, monkeypatch
) -> None:
    rng, grown = np.random.default_rng(5), iter([*np.linspace(0.3, 0.9, 60), *[0.9] * 100])
    limit = 24 * 2**30

    def grow() -> dict[str, list[int]]:
        used = int(limit * (next(grown) + 0.002 * rng.random()))
        return {"host": [used, used, limit, limit - used]}

    monkeypatch.setattr("trimtab.capture.step_costs.read_memory", grow)
    with open_run(tmp_path / "run", strict=True) as run:
        for step in range(160):
            run.flush(step, {"reward": 0.5})
        (live,) = (alarm for alarm in run.alarms if alarm.rule == "memory_growth")
    assert live.slice == "rank/0/host"
    assert 23 <= live.step < 60
    assert live.cleared is not None
    view = load_view(tmp_path / "run")
    (alarm,) = (alarm for alarm in view.pipeline.alarms if alarm.rule == "memory_growth")
    assert (alarm.step, alarm.since, alarm.cleared) == (live.step, live.since, live.cleared)
    assert "cleared at step" in diagnosis_lines(diagnosis(view))[0]


def test_steps_that_a_resume_supersedes_are_judged_again(tmp_path) -> None:
    steps = step_times(np.random.default_rng(13), 60, 2, plant=(0, "forward", 20, 1.6))
    first = _record(tmp_path / "run", steps, tokens=False)
    view = load_view(tmp_path / "run")
    assert [one.rank for one in view.machine.judge.slow] == [0]
    _close(first)
    _close(_record(tmp_path / "run", step_times(np.random.default_rng(14), 40, 2), start=20, tokens=False))
    view.refresh()
    assert view.machine.judge.slow == []
    assert view.machine.rows == load_view(tmp_path / "run").machine.rows


def test_no_verdict_of_calm_rests_on_the_machine(tmp_path) -> None:
    steps = step_times(np.random.default_rng(5), 60, 2)
    _close(_record(tmp_path / "run", steps, tokens=False))
    view = load_view(tmp_path / "run")
    assert view.verdict.word != "healthy"
    assert not MINE & {*view.evidence.judged, *view.evidence.pending}
    assert {key for row in view.machine.rows for key in row["values"]} >= {
        "phase/slow_ratio",
        "straggler/lost_frac",
    }


def test_a_folder_without_the_fields_and_one_with_damaged_ones_are_read(tmp_path) -> None:
    _close(_record(tmp_path / "run", step_times(np.random.default_rng(6), 40, 2)))
    for path in (tmp_path / "run").glob("steps.*"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for i, row in enumerate(rows):
            for key in ("s", "q", "c"):
                row.pop(key)
            if i % 2:
                row |= {"phases_s": [1, 2], "memory": {"host": "full"}, "episodes": 3, "waits": 1}
            else:
                for key in ("phases_s", "memory", "episodes"):
                    row.pop(key, None)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    view = load_view(tmp_path / "run")
    assert len(view.steps) == 40
    summary = diagnosis(view)["machine"]
    assert (summary["phases"], summary["slow"], summary["memory"], summary["last_episode"]) == (
        [],
        [],
        [],
        "",
    )
    assert machine_line(summary) == ""


def test_memory_of_this_process_is_in_every_row(tmp_path) -> None:
    with open_run(tmp_path / "run") as run:
        for step in range(3):
            with run.phase("rollout"), run.phase("tools"):
                pass
            run.flush(step)
    (row,) = diagnosis(load_view(tmp_path / "run"))["machine"]["memory"]
    assert row["kind"] == "host"
    assert 0 < row["used_bytes"] <= row["peak_bytes"] < row["limit_bytes"]
    rows = [json.loads(line) for line in (tmp_path / "run" / "steps.r0.s0.jsonl").read_text().splitlines()]
    assert all(set(one["phases_s"]) == {"rollout", "tools"} for one in rows)


def test_wrong_episode_seconds_and_phase_seconds_stop_nothing(tmp_path) -> None:
    rng = np.random.default_rng(0)
    with open_run(tmp_path / "run") as run:
        run.observe(make_batch(rng, sequences=4), episode_s=[1.0, 2.0])
        run.add_phase_time("rollout", "soon")
        run.add_phase_time("rollout", 2.0)
        run.observe(make_batch(rng, sequences=4), episode_s=[1.0, 2.0, np.inf, -1.0])
        run.flush(0)
        assert run.num_failures == 1
    row = json.loads((tmp_path / "run" / "steps.r0.s0.jsonl").read_text())
    assert row["phases_s"] == {"rollout": 2.0}
    assert row["cleaned"] == {"phase seconds": 1, "episode_s": 2}
    assert row["episodes"]["num"] == 2
    errors = (tmp_path / "run" / "errors.r0.s0.jsonl").read_text()
    assert "episode_s has 2 values for 4 sequences" in errors
