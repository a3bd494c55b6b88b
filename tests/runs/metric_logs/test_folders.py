"""A folder of several runs: the newest is read and named, the others are named on the first screen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.runs.metric_logs.test_binary import event
from trimtab import cli
from trimtab.metric_logs import read_metric_log

WORDLE = Path(__file__).parents[4] / "shared" / "data" / "real-logs" / "grpo-wordle"


def events(folder, number, steps, value=0.5, tags=("train/reward", "train/kl")):
    path = folder / f"events.out.tfevents.{number}.host"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(event(step, tag, value, "float") for step in steps for tag in tags))
    return path


def first_screen(path):
    return CliRunner().invoke(cli.app, ["diagnose", str(path)]).stdout


OTHER = {
    "a run that began where the first began": [range(1, 61), range(1, 41)],
    "a run that logs every tenth step": [range(1, 61), range(10, 200, 10)],
    "a longer run": [range(30), range(90)],
}


@pytest.mark.parametrize("name", OTHER)
def test_event_files_of_two_runs_are_not_merged(tmp_path, name):
    first, second = OTHER[name]
    old, new = events(tmp_path, 1, first, 0.1), events(tmp_path, 2, second, 0.9)
    log = read_metric_log(tmp_path)
    assert log.steps.tolist() == list(second)
    assert (log.source, list(log.excluded)) == (str(new), [f"older runs (name one to read it): {old.name}"])
    screen = first_screen(tmp_path)
    assert new.name in screen
    assert f"left out 1 older run (name one to read it): {old.name}" in screen
    assert read_metric_log(old).steps.tolist() == list(first)


def test_an_event_file_that_goes_on_is_a_resume(tmp_path):
    events(tmp_path, 1, range(60), 0.1)
    events(tmp_path, 2, range(40, 50), 0.5)
    events(tmp_path, 3, range(50, 55), 0.9)
    log = read_metric_log(tmp_path)
    assert (log.steps.tolist(), log.source) == (list(range(55)), str(tmp_path))
    assert list(log.excluded.values()) == [20]


def test_event_files_of_other_tags_are_of_one_run(tmp_path):
    events(tmp_path, 1, range(20), tags=("train/reward",))
    events(tmp_path, 2, range(20), tags=("train/kl",))
    log = read_metric_log(tmp_path)
    assert {name: index.size for name, (index, _) in log.columns.items()} == {"reward": 20, "kl": 20}


def test_run_folders_are_named_the_newer_first(tmp_path):
    for age, name in enumerate(("c", "a", "b")):
        os.utime(events(tmp_path / name, 1, range(20)), (1e9 - age, 1e9 - age))
    log = read_metric_log(tmp_path)
    assert log.source == str(tmp_path / "c" / "events.out.tfevents.1.host")
    assert log.excluded == {"older runs (name one to read it): a, b": 2}


def test_three_real_runs_in_one_folder():
    if not WORDLE.exists():
        pytest.skip("the shared data is not here: ../shared/data/real-logs")
    log = read_metric_log(WORDLE)
    assert (log.steps.size, "1767733342" in log.source, list(log.excluded.values())) == (300, True, [2])
