"""Planted differences are reported in their field, equal set-ups are equal however written, and scores are tested both ways."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import numpy as np
import pytest
from benchmarks.reward_bank.parity_pairs import BASE, episode_pair, planted, rewritten, written
from scipy import stats
from typer.testing import CliRunner

from trimtab.cli import app
from trimtab.errors import ParityError
from trimtab.parity.parity_verdict import parity_of, read_side
from trimtab.parity.score_equivalence import paired_test
from trimtab.parity.setup_differences import setup_differences
from trimtab.parity.setup_file import Setup, load_setup, setup_of


@pytest.mark.parametrize("name", planted())
def test_a_planted_difference_is_reported_in_its_field(name: str, tmp_path: Path) -> None:
    field, plant = planted()[name]
    data = copy.deepcopy(BASE)
    plant(data)
    changed = written(rewritten(data, random.Random(name)), tmp_path, "eval", as_json=True)
    rows = [row for row in setup_differences(setup_of(BASE, "train"), changed) if row.severity != "info"]
    assert field in {row.field for row in rows}
    assert len(rows) <= 2  # an argument that is renamed is gone and new


@pytest.mark.parametrize("seed", range(20))
def test_equal_setups_are_equal_however_they_are_written(seed: int, tmp_path: Path) -> None:
    same = written(
        rewritten(copy.deepcopy(BASE), random.Random(seed)), tmp_path, "eval", as_json=bool(seed % 2)
    )
    assert setup_differences(setup_of(BASE, "train"), same) == []


def test_a_setting_that_is_stated_twice_stands_as_the_outer_one() -> None:
    setup = setup_of({"temperature": 1.0, "val": {"temperature": 0.0}}, "x")
    assert setup.fields == {("sampling", "temperature"): 1.0}
    assert "val.temperature = 0.0 is passed over" in setup.notes[0]


def test_a_part_of_a_file_is_a_side(tmp_path: Path) -> None:
    file = tmp_path / "verl.yaml"
    file.write_text("rollout: {temperature: 1.0, top_p: 1.0, val_kwargs: {temperature: 0.0, top_p: 1.0}}\n")
    rows = setup_differences(load_setup(f"{file}#rollout"), load_setup(f"{file}#rollout.val_kwargs"))
    assert [(row.field, row.severity) for row in rows] == [("sampling.temperature", "warning")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "neither YAML nor JSON"),
        ("- 1", "not a mapping"),
        ("a: !!python/name:os.system", "neither YAML"),
        ("tools: [{}]", "a tool has no name"),
    ],
)
def test_bad_settings_are_one_line(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ParityError, match=words) as caught:
        load_setup(str(file))
    assert "\n" not in str(caught.value)


def test_the_paired_test_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(0.5, 0.1, 30)
    b = a + rng.normal(0.02, 0.05, 30)
    test = paired_test("score", a, b, margin=0.05, level=0.05)
    interval = stats.ttest_rel(b, a).confidence_interval(0.95)
    assert (test.low, test.high) == pytest.approx((interval.low, interval.high), rel=1e-6)
    p_low = stats.ttest_1samp(b - a, -0.05, alternative="greater").pvalue
    p_high = stats.ttest_1samp(b - a, 0.05, alternative="less").pvalue
    assert (test.state == "equivalent") == (max(p_low, p_high) < 0.05)


def test_at_the_margin_and_under_the_null_the_rates_hold() -> None:
    rng = np.random.default_rng(1)
    passed = differs = 0
    for _ in range(1000):
        noise = rng.normal(0, 0.1, 60)
        zero = np.zeros(60)
        passed += paired_test("x", zero, zero + 0.05 + noise).state == "equivalent"
        differs += paired_test("x", zero, noise).state == "different"
    assert 25 <= passed <= 75
    assert 10 <= differs <= 45


def test_few_or_constant_scores() -> None:
    one = paired_test("x", np.array([0.5]), np.array([0.5]))
    assert one.state == "undecided"
    assert paired_test("x", np.full(4, 0.5), np.full(4, 0.9)).state == "undecided"
    assert paired_test("x", np.full(9, 0.5), np.full(9, 0.9)).state == "different"
    assert paired_test("x", np.full(9, 0.5), np.full(9, 0.5)).state == "equivalent"


def test_episodes_are_compared_task_by_task() -> None:
    rng = np.random.default_rng(0)
    worse = episode_pair(rng, 200, shift=-0.15)
    result = parity_of((Setup("train"), worse[0]), (Setup("eval"), worse[1]))
    assert (result["verdict"], result["scores"]["state"], result["exit_code"]) == (
        "not comparable",
        "different",
        1,
    )
    cut = episode_pair(rng, 200, cut=0.2)
    result = parity_of((Setup("train"), cut[0]), (Setup("eval"), cut[1]))
    assert "cut by a limit" in {row["name"] for row in result["stop_reasons"]}
    few = episode_pair(rng, 10)
    result = parity_of((Setup("train"), few[0]), (Setup("eval"), few[1]))
    assert result["verdict"] == "undecided"
    assert result["scores"]["num_needed"] > 10


def test_the_command(tmp_path: Path) -> None:
    for name, changes in (("train", {}), ("eval", {"system_prompt": "\u001b[2JHello"})):
        (tmp_path / f"{name}.json").write_text(json.dumps({**BASE, **changes}))
    train, evaluation = str(tmp_path / "train.json"), str(tmp_path / "eval.json")
    result = CliRunner().invoke(app, ["parity", train, train])
    assert (result.exit_code, result.stdout.split(":")[0]) == (0, "COMPARABLE")
    result = CliRunner().invoke(app, ["parity", train, evaluation])
    assert result.exit_code == 1
    assert "\u001b" not in result.stdout
    result = CliRunner().invoke(app, ["parity", train, evaluation, "--json"])
    assert json.loads(result.stdout)["differences"][0]["field"] == "text.system_prompt"


def test_logs_are_read_for_a_side(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = [
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": "a"}], "reward": 1.0}
        for i in range(6)
    ]  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    setup, episodes = read_side(str(log))
    assert setup.fields == {("text", "system_prompt"): "Be brief."}
    assert len(episodes) == 6
    with pytest.raises(ParityError, match="neither settings"):
        read_side(str(tmp_path / "absent.jsonl"))
