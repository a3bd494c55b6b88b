"""The test of the curriculum: measures of a run, paired intervals, what each arm trains on, and the page against the recordings."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import reproduce.curriculum as command
import torch
from reproduce.collapse_bank.training import start_weights
from reproduce.curriculum_bank.figures import figures_of, load_records, summarise, table_of
from reproduce.curriculum_bank.task_pool import FAMILIES, task_pool
from reproduce.curriculum_bank.training_loop import ARMS, Settings, Trainer, train

from trimtab.errors import RunError


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def record(arm: str, seed: int, late: list[float]) -> dict[str, object]:
    """A run of 900 rollouts, scored at 0, 300 and then every 60."""
    at = [0, 300, *range(600, 600 + 60 * len(late), 60)]
    scores = [0.0, 0.2, *late]
    rows = [{"rollouts": x, "updates": x // 30, "families": [y, y]} for x, y in zip(at, scores, strict=True)]
    return {"arm": arm, "seed": seed, "groups": 100, "wasted_groups": 40, "updates": 25, "empty_updates": 5, "evaluations": rows}  # fmt: skip


def test_a_run_is_summed_up_by_its_last_third():
    late = [0.5, 0.7, 0.6, 0.8, 0.7, 0.9]  # a line with slope .06 a point, and residuals
    summary = summarise(record("uniform", 1, late))
    x = np.arange(6)
    residuals = np.array(late) - np.polyval(np.polyfit(x, late, 1), x)
    assert summary["reward"] == pytest.approx(0.7)
    assert summary["oscillation"] == pytest.approx(np.sqrt((residuals**2).sum() / 4))
    area = 300 * 0.1 + 300 * 0.35 + 60 * (0.6 + 0.65 + 0.7 + 0.75 + 0.8)
    assert summary["area"] == pytest.approx(area / 900)
    assert summary["wasted_groups_frac"] == 0.4
    assert summary["empty_updates_frac"] == 0.2


def test_figures_pair_the_seeds_that_are_complete():
    shapes = {"uniform": 0.0, "dynamic": 0.05, "curriculum": 0.1}
    records = [
        record(arm, seed, [level + extra + 0.01 * wiggle * (1 + 3 * (arm == "uniform")) for wiggle in (1, -1, -1, 1, 1, -1)])
        for arm, extra in shapes.items()
        for seed, level in ((1, 0.5), (2, 0.7), (3, 0.3))
        if (arm, seed) != ("dynamic", 3)
    ]  # fmt: skip
    figures = figures_of(records, command.ARM_NAMES)
    assert figures["num_seeds"] == 2
    assert figures["reward_gain"] == figures["reward_gain_low"] == figures["reward_gain_high"] == 0.1
    assert figures["reward_gain_over_dynamic"] == 0.05
    assert figures["oscillation_ratio"] == pytest.approx(0.25)
    assert figures["wasted_groups_frac"] == 0.4
    assert figures["uniform_reward"] == 0.6
    assert "| curriculum | 0.700 |" in table_of(figures, command.ARM_NAMES)
    assert figures_of(records[:1], command.ARM_NAMES) == {"num_seeds": 0.0}


def test_tasks_to_evaluate_on_are_not_trained_on():
    pool = task_pool(100)
    assert not set(pool.trained) & set(pool.held_out)
    assert len(set(pool.trained)) == len(set(pool.held_out)) == 6 * len(FAMILIES)
    assert pool.trained == task_pool(100).trained != task_pool(101).trained


def test_dynamic_sampling_trains_on_unequal_groups_alone(monkeypatch):
    batches = []
    update = Trainer.update
    monkeypatch.setattr(
        Trainer, "update", lambda self, episodes, rewards: (batches.append(rewards), update(self, episodes, rewards))
    )  # fmt: skip
    settings = Settings(rollouts=48, groups=2, group_size=4, evaluate_early=48, evaluate_late=48)
    run = train("dynamic", 100, start_weights(), settings)
    assert batches
    assert all((np.ptp(rewards, axis=1) > 0).all() and len(rewards) <= 2 for rewards in batches)
    assert run["groups"] == run["rollouts"] / 4 == 12
    assert run["wasted_groups"] > 0
    assert (run["updates"], run["empty_updates"]) == (len(batches), 0)
    assert len(run["evaluations"]) == 2
    assert list(ARMS) == list(command.ARM_NAMES)


def test_unregistered_seeds_and_damaged_records_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["curriculum.py", "--run", "--seeds", "7"])
    assert command.main() == 2
    assert "seed 7 is neither a tuning seed" in capsys.readouterr().err
    monkeypatch.setattr(command, "PAGE", command.ROOT / "docs" / "absent.md")
    monkeypatch.setattr(sys, "argv", ["curriculum.py", "--run", "--seeds", "400"])
    assert command.main() == 2
    assert "is not committed" in capsys.readouterr().err
    (tmp_path / "runs.jsonl").write_text('{"arm": ')
    with pytest.raises(RunError, match="is damaged"):
        load_records(tmp_path / "runs.jsonl")


def test_the_page_has_the_figures_of_the_recordings(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["curriculum.py", "--json"])
    assert command.main() == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    page = (command.ROOT / "docs" / "curriculum-test.md").read_text()
    assert table_of(figures, command.ARM_NAMES) in page
    for name in ("reward_gain", "reward_gain_over_dynamic", "oscillation_ratio"):
        for suffix in ("", "_low", "_high"):
            assert f"{figures[name + suffix]:.3f}" in page, name + suffix
