"""Faults under TRL: the recorded runs give the page's figures, and a run can be recorded, resumed and packed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import reproduce.trl_faults as command
from reproduce.archives import unpacked
from reproduce.trl_bank.outcomes import figures_of, load_outcomes
from reproduce.trl_bank.recording import ARMS, MARK, finished_runs, folder_of

from trimtab.training.demo import FAULT_STEP, SEED, STEPS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "trl-faults.md"


@pytest.fixture(scope="module")
def outcomes():
    return load_outcomes(unpacked(command.STORE))


def test_every_run_is_recorded_and_equals_its_control_until_the_fault(outcomes):
    rewards = {(one.run.cause, one.run.seed): one.run.rewards for one in outcomes}
    assert set(rewards) == {(arm, seed) for arm, entry in ARMS.items() for seed in entry.seeds}
    assert {len(values) for values in rewards.values()} == {STEPS}
    for (arm, seed), values in rewards.items():
        if arm != "none":
            assert values[: FAULT_STEP - 1] == rewards["none", seed][: FAULT_STEP - 1]
            assert values[FAULT_STEP:] != rewards["none", seed][FAULT_STEP:]


def test_figures_follow_from_the_runs(outcomes):
    """Counted here again: event by its definition, a warning from the fault to 5 steps before the event."""
    figures = figures_of(outcomes)
    for arm in (name for name in ARMS if name != "none"):
        warned = collapses = 0
        for one in (one for one in outcomes if one.run.cause == arm):
            event = lost_at(one.run.rewards)
            if event is not None and event >= FAULT_STEP:
                collapses += 1
                warned += any(FAULT_STEP <= alarm.step <= event - 5 for alarm in one.run.alarms)
        assert (figures[f"{arm}_collapses"], figures[f"{arm}_warned"]) == (collapses, warned)
        assert figures[f"{arm}_runs"] == len(ARMS[arm].seeds)
    assert figures["controls"] == len(ARMS["none"].seeds)


def lost_at(rewards):
    means = np.convolve(rewards, np.ones(8) / 8, "valid")
    for index in range(1, len(means)):
        best = max(means[:index])
        if means[index] < 0.7 * best and max(means[index:]) <= 0.85 * best:
            return index + 8
    return None


def test_the_page_states_these_figures(outcomes):
    figures = figures_of(outcomes)
    text = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", text, re.M))
    for arm in (name for name in ARMS if name != "none"):
        numbers = [int(cell) for cell in rows[arm].split("|")[:3]]
        assert numbers == [figures[f"{arm}_{name}"] for name in ("runs", "collapses", "warned")], arm


def test_the_readme_tells_of_the_demo_s_runs(outcomes):
    """Its caption has the steps of the recorded runs that `make demo` trains."""
    text = " ".join((PAGE.parents[2] / "README.md").read_text(encoding="utf-8").split())
    runs = {one.run.cause: one.run for one in outcomes if one.run.seed == SEED}
    stale = runs["stale"]
    first = next(alarm.step for alarm in stale.alarms if alarm.step >= stale.fault_step)
    assert f"equal until step {FAULT_STEP}." in text
    assert f"First alarm at step {first}, reward lost at step {stale.event}; no alarm in the other." in text
    assert not runs["none"].alarms


def test_quick_prints_flat_figures(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["trl_faults", "--quick", "--json"])
    assert command.main() == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert (figures["stale_runs"], figures["controls"]) == (1, 1)
    assert figures["replay_differs"] == 0


def test_finished_runs_are_packed_and_not_trained_again(tmp_path, monkeypatch):
    """Two finished runs in the raw folder, one run already in the store: all are in the archives, none is left to train."""
    raw, store = tmp_path / "raw", tmp_path / "store"
    source = unpacked(command.STORE)
    monkeypatch.setattr(command, "ARMS", {"stale": ARMS["stale"].__class__("stale", range(2))})
    copy(folder_of(source, "stale", 0), raw)
    command._pack(raw, store)
    copy(folder_of(source, "stale", 1), raw)
    started = []
    monkeypatch.setattr(command, "run_jobs", lambda todo, _: started.extend(todo) or [])
    options = command._parser().parse_args(
        ["--run", "--arms", "stale", "--store", str(store), "--raw", str(raw)]
    )
    assert command._run(options) == 0
    assert started == []
    assert [folder.name for folder in finished_runs(unpacked(store))] == ["stale-s0", "stale-s1"]


def test_a_damaged_mark_is_one_line(tmp_path, monkeypatch, capsys):
    copy(folder_of(unpacked(command.STORE), "stale", 0), tmp_path)
    (tmp_path / "stale-s0" / MARK).write_text('{"arm": "flood"}')
    monkeypatch.setattr("sys.argv", ["trl_faults", "--store", str(tmp_path)])
    assert command.main() == 2
    assert capsys.readouterr().err.count("\n") == 1


def copy(folder, target):
    (target / folder.name).mkdir(parents=True)
    for file in folder.iterdir():
        (target / folder.name / file.name).write_bytes(file.read_bytes())
