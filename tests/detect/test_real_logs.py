"""What real logs of other projects taught: in the small, made up here; and the logs themselves where they lie beside the project."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trimtab
from trimtab.report.metric_log_diagnosis import LogDiagnosis, diagnose_log
from trimtab.report.run_view import load_view

LOGS = Path(__file__).parents[3] / "shared" / "data" / "real-logs"
LOUD = ("warning", "critical")


def diagnose(folder: Path, **columns: object) -> LogDiagnosis:
    size = max(len(values) for values in columns.values())  # type: ignore[arg-type]
    rows = [
        {"step": t, **{name.replace("__", "/"): float(v[t]) for name, v in columns.items()}}
        for t in range(size)
    ]  # type: ignore[index]
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return diagnose_log(path)


def loud(diagnosis: LogDiagnosis) -> dict[str, int]:
    return {alarm.rule: alarm.step for alarm in reversed(diagnosis.alarms) if alarm.severity in LOUD}


def calm(size: int, seed: int = 0) -> np.ndarray:
    return 1.0 + 0.02 * np.random.default_rng(seed).normal(size=size)


def test_a_gradient_of_groups_without_variance_is_no_past_of_a_surge(tmp_path) -> None:
    flat = np.random.default_rng(1).random(250) < 0.5
    found = diagnose(
        tmp_path, reward=0.5 * calm(250), entropy=calm(250, 2), grad_norm=np.where(flat, 0.01, 0.5) * calm(250, 3),
        reward_std=np.where(flat, 0.0, 0.4),
    )  # fmt: skip
    assert loud(found) == {}
    assert found.left_out["grad_norm_surge"] == flat.sum()  # and it is counted


def test_a_watched_run_counts_the_steps_whose_gradient_it_leaves_out(tmp_path) -> None:
    with trimtab.open_run(tmp_path / "run", rank=0) as run:
        for step in range(20):
            run.flush(
                step,
                {
                    "reward": 0.5,
                    "grad_norm": 0.01 if step % 2 else 0.5,
                    "reward_std": 0.0 if step % 2 else 0.4,
                },
            )
    readings = load_view(tmp_path / "run").series("aggregate/grad_norm", "all")
    assert sum(one.excluded.get("no group of rewards varied", 0) for one in readings) == 10
    assert {one.value for one in readings if not one.excluded} == {0.5}


def test_a_gradient_that_alternates_between_two_levels_is_no_surge_and_eightfold_is(tmp_path) -> None:
    rng = np.random.default_rng(4)
    norm = np.where(rng.random(300) < np.linspace(0.2, 0.6, 300), 4.0, 0.15) * calm(300, 5)
    assert "grad_norm_surge" not in loud(diagnose(tmp_path, reward=0.5 * calm(300), grad_norm=norm))
    norm[200:] *= 60.0
    assert 200 <= loud(diagnose(tmp_path, reward=0.5 * calm(300), grad_norm=norm))["grad_norm_surge"] <= 206


def test_a_reward_that_stands_at_zero_does_not_collapse(tmp_path) -> None:
    rng = np.random.default_rng(6)
    reward = np.where(rng.random(90) < 0.3, -0.2 * rng.random(90), 0.0)
    assert "reward_collapse" not in loud(diagnose(tmp_path, reward=reward, entropy=calm(90)))


def test_a_policy_that_dies_within_ten_steps_is_said_so_whatever_its_past_and_its_reward(tmp_path) -> None:
    entropy = np.exp(np.random.default_rng(7).normal(0.0, 0.8, 120))  # a noisy past
    entropy[60:] = 0.002
    rising = np.linspace(0.2, 0.8, 120)
    assert 60 <= loud(diagnose(tmp_path, reward=rising, entropy=entropy))["entropy_dead"] <= 65


def test_a_proxy_that_rises_beside_a_part_that_is_hardly_earned(tmp_path) -> None:
    rng, size = np.random.default_rng(8), 35
    judge = 0.2 + 0.3 * np.clip((np.arange(size) - 10) / 20, 0, 1) + 0.01 * rng.normal(size=size)
    tests = 0.004 * rng.random(size)
    parts = {
        "reward__g": judge,
        "reward__f": tests,
        "policy__entropy": 2.5 * calm(size),
        "reward__mean": judge + tests,
    }
    seen = loud(diagnose(tmp_path, **parts))
    assert seen.keys() == {"proxy_rise"}
    assert 15 <= seen["proxy_rise"] <= 25
    both = {**parts, "reward__f": tests + judge - 0.2}  # what is meant rises with it
    assert loud(diagnose(tmp_path, **both)) == {}


@pytest.mark.parametrize(("size", "word"), [(15, "not judged yet"), (20, "healthy"), (35, "healthy")])
def test_a_log_of_twenty_rows_has_a_verdict_that_says_how_coarse_it_is(tmp_path, size, word) -> None:
    found = diagnose(tmp_path, reward=0.5 * calm(size), entropy=calm(size, 1), kl=0.01 * calm(size, 2))
    assert found.verdict.word == word
    if word == "healthy":
        assert f"in {size} rows only large changes would show" in found.verdict.reason


def test_a_short_log_that_falls_apart_is_not_called_healthy(tmp_path) -> None:
    ramp = np.linspace(0, 1, 30)
    found = diagnose(
        tmp_path,
        reward=0.82 - 0.41 * ramp,
        kl=0.001 * 650.0**ramp,
        entropy=2.0 * 0.09**ramp,
        grad_norm=calm(30),
    )
    assert found.verdict.word != "healthy"
    for words in ("the reward fell from 0.7", "entropy fell from 1.", "KL rose from 0.00"):
        assert words in found.verdict.reason


REAL = {
    "grpo-wordle/events.out.tfevents.1767733342.lara_TUF.21148.0": {"entropy_dead": 77},
    "reward-hacking-entropy/rl-leetcode__meta-llama__Llama-3.2-3B__f_g__Easy.jsonl": {"proxy_rise": 25},
    "reward-hacking-entropy/rl-leetcode__meta-llama__Llama-3.2-3B__f_g__Hard.jsonl": {"proxy_rise": 25},
    "reward-hacking-entropy/rl-leetcode__meta-llama__Llama-3.2-3B__g__Medium.jsonl": {"proxy_rise": 25},
}


@pytest.mark.parametrize("name", [name for name, due in REAL.items() if due])
def test_real_troubles_are_seen_in_time(name) -> None:
    path = LOGS / name
    if not path.exists():
        pytest.skip("the shared data is not here: ../shared/data/real-logs")
    seen = loud(diagnose_log(path))
    assert all(seen[rule] <= step for rule, step in REAL[name].items())


def test_no_real_log_of_the_tuning_folder_is_falsely_critical() -> None:
    if not LOGS.exists():
        pytest.skip("the shared data is not here: ../shared/data/real-logs")
    files = [*LOGS.glob("*/*.jsonl"), *LOGS.glob("*/trainer_state.json"), *LOGS.glob("*/events.*")]
    critical = {
        (path.name, alarm.rule)
        for path in files
        for alarm in diagnose_log(path).alarms
        if alarm.severity == "critical"
    }
    assert {rule for _, rule in critical} == {"entropy_dead"}
    assert len(critical) == 1  # the policy that did die
    words = {path.name: diagnose_log(path).verdict.word for path in files}
    short = [name for name, word in words.items() if word == "not judged yet"]
    assert len(short) == 2, short  # of 10 and 11 rows
