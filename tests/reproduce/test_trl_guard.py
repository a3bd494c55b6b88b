"""The guard under TRL: the committed records give the page's figures, and what counts as saved is what was registered."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import reproduce.trl_guard as command
from reproduce.trl_bank.guarded import ARMS, SEEDS, TRAINERS, figures_of, is_saved, read_records, table_of

from trimtab.errors import RunError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trl-guard-test.md"


@pytest.fixture(scope="module")
def records():
    return read_records(command.STORE)


def test_every_registered_run_is_there_and_they_differ_from_the_fault_or_the_first_action_on(records):
    rewards = {(one.trainer, one.arm, one.seed): one.rewards for one in records}
    assert set(rewards) == {(t, arm, seed) for t in TRAINERS for arm in ARMS for seed in SEEDS}
    fault = command.FAULT_STEP
    for one in records:
        assert len(one.rewards) == command.STEPS
        if one.arm == "none":
            healthy = rewards[one.trainer, "healthy", one.seed]
            assert one.rewards[: fault - 1] == healthy[: fault - 1]
        if one.arm == "guard":
            until = one.actions[0]["step"] if one.actions else command.STEPS
            assert one.rewards[:until] == rewards[one.trainer, "none", one.seed][:until]


def test_figures_follow_from_the_records(records):
    figures = figures_of(records)
    for trainer in TRAINERS:
        own = [one for one in records if one.trainer == trainer]
        level = fmean(fmean(one.rewards[90:]) for one in own if one.arm == "healthy")
        for arm in ARMS:
            saved = sum(
                fmean(one.rewards[90:]) >= 0.9 * level for one in own if one.arm == arm and not one.stopped
            )
            assert figures[f"{trainer}_{arm}_at_level"] == saved
        assert figures[f"{trainer}_level"] == pytest.approx(level, abs=5e-4)
    assert figures["monitor_failures"] == 0


def test_a_run_that_was_stopped_is_not_saved(records):
    one = replace(records[0], rewards=(1.0,) * 120, actions=())
    assert is_saved(one, 0.7)
    assert not is_saved(replace(one, actions=({"action": "stop"},)), 0.7)
    assert not is_saved(one, None)


def test_the_page_has_a_row_for_each_run(records):
    rows = re.findall(
        r"^\| (grpo|minirl) \| (\d+) \| ([.\d]+) \| ([.\d]+) \| ([.\d]+) \|", PAGE.read_text(), re.MULTILINE
    )
    ends = {(one.trainer, one.seed, one.arm): one.end for one in records}
    assert {(trainer, int(seed)) for trainer, seed, *_ in rows} == {(t, s) for t in TRAINERS for s in SEEDS}
    for trainer, seed, *values in rows:
        for arm, value in zip(ARMS, values, strict=True):
            assert float(value) == pytest.approx(ends[trainer, int(seed), arm], abs=0.0051)


def test_records_are_packed_once_and_a_damaged_store_is_one_line(records, tmp_path, monkeypatch, capsys):
    store = tmp_path / "store.jsonl"
    store.write_text(command.STORE.read_text())
    command._pack(tmp_path, store)
    assert read_records(store) == records
    assert len(table_of(records).splitlines()) == len(records) + 1
    store.write_text('{"trainer": "grpo"}\n')
    with pytest.raises(RunError, match="is damaged"):
        read_records(store)
    monkeypatch.setattr("sys.argv", ["trl_guard", "--store", str(store)])
    assert command.main() == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_page_is_older_than_the_records():
    def first(path: str) -> int:
        done = subprocess.run(
            ["git", "log", "--diff-filter=A", "--format=%ct", "--", path],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        times = done.stdout.split()
        return int(times[-1]) if times else 0

    page, store = first("docs/trl-guard-test.md"), first("reproduce/trl_bank/guarded.jsonl")
    if not (page and store):
        pytest.skip("no history here")
    assert page < store
    assert json.loads(command.STORE.read_text().splitlines()[0])["steps"] == command.STEPS
