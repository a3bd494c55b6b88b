"""The entropy supports: what the arms change, selection by success, figures from records with known answers, the command, and the page."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

pytest.importorskip("torch")

import reproduce.entropy_support as command
from reproduce.collapse_bank.transformer import load_weights
from reproduce.entropy_runs.figures import CORE, SEEDS, STEPS, figures_of, read_records, table_of
from reproduce.entropy_runs.learner import ARMS, KINDS, TARGET, Learner, TaskSelection, prompt_of

from trimtab.lab.database import World
from trimtab.lab.tasks import parse_task

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "entropy.md"


def record(arm, seed, *, entropy, reward, silent=0.5):
    """Four steps, of which the last two count as late; the numbers before differ, so that a wrong half shows."""
    series = {"reward": [0.1] * 4, "entropy": [1.0] * 4, "clipped_high_frac": [0.01] * 4, "bonus": [0.0] * 4}
    rows = [{"step": s, "held_out": 0.1 if s < 3 else reward, "held_out_entropy": 2.0 if s < 3 else entropy} for s in range(5)]  # fmt: skip
    return {"arm": arm, "seed": seed, "steps": 4, **series, "silent_frac": [0.9, 0.9, silent, silent], "held_out": rows}  # fmt: skip


def test_figures_are_late_means_and_paired_intervals(tmp_path):
    """Oracle: scipy's t on logs of ratios and on differences."""
    base, own = [0.1, 0.2, 0.4], [0.15, 0.24, 0.8]
    records = [record("baseline", seed, entropy=base[seed], reward=0.5) for seed in range(3)]
    records += [
        record("bonus", seed, entropy=own[seed], reward=0.5 + 0.1 * seed, silent=0.25) for seed in range(3)
    ]
    store = tmp_path / "records.jsonl"
    store.write_text("".join(f"{json.dumps(row)}\n" for row in reversed(records)))
    figures = figures_of(read_records(store))
    logs = np.log(np.divide(own, base))
    low, high = t.interval(0.95, 2, logs.mean(), logs.std(ddof=1) / math.sqrt(3))
    assert figures["bonus_entropy_ratio"] == pytest.approx(math.exp(logs.mean()), rel=1e-3)
    assert (figures["bonus_entropy_ratio_low"], figures["bonus_entropy_ratio_high"]) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-3)  # fmt: skip
    assert figures["bonus_reward_gain"] == pytest.approx(0.1)
    assert figures["bonus_silent_gain"] == pytest.approx(-0.25)
    assert figures["start_held_out_entropy"] == 2.0
    assert figures["tasks_reward_gain"] is None
    assert "x 1.53" in table_of(records)
    assert figures_of(records[:2] + records[3:5])["bonus_reward_gain_low"] is None  # two seeds


def test_selection_draws_what_is_half_solved_and_starves_nothing():
    own, plain = TaskSelection(KINDS, by_success=True), TaskSelection(KINDS, by_success=False)
    for _ in range(40):
        for kind in KINDS:
            for selection in (own, plain):
                selection.update(kind, {"add": 0.5, "both": 0.0}.get(kind, 1.0))
    weights = dict(zip(KINDS, own.weights(), strict=True))
    assert weights["add"] == pytest.approx(1.1 / (1.1 + 6 * 0.1), abs=1e-3)
    assert weights["both"] == pytest.approx(0.1 / 1.7, abs=1e-3)
    assert plain.weights() == pytest.approx([1 / 7] * 7)
    drawn = own.draw(np.random.default_rng(0), 4000)
    assert drawn.count("add") / 4000 == pytest.approx(weights["add"], abs=0.03)


def test_held_out_prompts_share_no_item_with_those_of_training():
    world = World(3)
    items = {True: set(), False: set()}
    for held_out in (True, False):
        rng = np.random.default_rng(0)
        for kind in KINDS * 60:
            prompt = prompt_of(kind, world, rng, held_out=held_out)
            assert parse_task(prompt, world).kind == kind
            if " of " in prompt:
                items[held_out].add(prompt.rstrip("?").rpartition(" ")[2])
    assert items[True]
    assert not items[True] & items[False]


@pytest.fixture(scope="module")
def start():
    return load_weights()


def test_each_support_acts_and_nothing_else_differs(start):
    """Two steps from the same batch: the first bonus is 0, so only the arms without selection of tokens share it; then each goes its way."""
    learners = {arm: Learner(start, ARMS[arm], 0) for arm in ("baseline", "bonus", "covariance")}
    assert learners["bonus"].bonus.target == TARGET
    learners["bonus"].bonus.target = 1.0  # above the first step's entropy, so that the bonus begins at once
    rows = {arm: [learner.step(), learner.step()] for arm, learner in learners.items()}
    assert [row["bonus"] for row in rows["bonus"]] == [0.0, 0.005]
    assert rows["bonus"][0] == rows["baseline"][0]

    def moved(arm):
        pairs = zip(learners[arm].weights.values(), learners["baseline"].weights.values(), strict=True)
        return max(float((one - other).abs().max()) for one, other in pairs)  # type: ignore[attr-defined]

    assert moved("bonus") > 1e-5
    assert moved("covariance") > 1e-5
    assert rows["covariance"][0]["reward"] == rows["baseline"][0]["reward"]  # the same rollouts


def test_the_command_goes_on_where_it_stopped_and_a_damaged_store_is_one_line(tmp_path, monkeypatch, capsys):
    store = tmp_path / "records.jsonl"
    trained = []

    def fake(start, arm, seed, *, steps, every):
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append((arm, seed))
        return record(arm, seed, entropy=0.1, reward=0.5)

    monkeypatch.setattr(command, "train", fake)
    arguments = ["--run", "--arms", "baseline", "tasks", "--seeds", "0", "1", "--store", str(store), "--json"]
    assert command.main(arguments) == 130
    assert len(read_records(store)) == 3
    monkeypatch.setattr(command, "train", lambda *a, **k: record(a[1], a[2], entropy=0.1, reward=0.5))
    assert command.main(arguments) == 0
    assert [(r["arm"], r["seed"]) for r in read_records(store)] == [(a, s) for a in ("baseline", "tasks") for s in (0, 1)]  # fmt: skip
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]["num_runs"] == 4
    store.write_text(store.read_text() + '{"arm": "baseline"}\n')
    assert command.main(["--store", str(store)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "line 5, is damaged" in err


def test_the_recorded_runs_are_whole_and_the_page_has_their_table():
    records = read_records(command.STORE)
    recorded = {(row["arm"], row["seed"]) for row in records}
    assert {(arm, seed) for arm in CORE for seed in SEEDS} <= recorded <= {(arm, seed) for arm in ARMS for seed in range(5)}  # fmt: skip
    assert {row["steps"] for row in records} == {STEPS}
    first = {(row["seed"], tuple(row["held_out"][0].items())) for row in records}
    assert len(first) == len(SEEDS)  # arms of a seed begin with the same answers
    text = PAGE.read_text()
    assert table_of(records) in text
    assert re.search(r"python reproduce/entropy_support\.py", text)


def test_the_pages_settings_are_those_of_the_arm(tmp_path, monkeypatch):
    """The page's own lines, as typed: MiniRLConfig takes them, and they are the arm's `bonus`."""
    pytest.importorskip("trl")
    monkeypatch.chdir(tmp_path)
    (lines,) = re.findall(r"```python no-run\n(.*?)```", PAGE.read_text(), re.S)
    names = {}
    exec(lines.replace('output_dir="out",', 'output_dir="out", use_cpu=True, bf16=False,'), names)
    args = names["args"]
    assert (args.bonus_target, args.bonus_rate, args.bonus_highest) == (TARGET, 0.005, ARMS["bonus"].bonus)
    assert args.epsilon == 0.2
