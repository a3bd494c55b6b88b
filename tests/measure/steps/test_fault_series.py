"""Series that tell faults apart, against arrays whose fault is known."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.capture import token_batch
from trimtab.measure.steps.measure_step import measure_step
from trimtab.measure.steps.opposed_parts import BEFORE, RECENT, opposed_parts
from trimtab.measure.steps.rank_merge import merge_ranks
from trimtab.measure.steps.step_outcomes import estimates
from trimtab.measure.steps.step_series import StepSeries
from trimtab.monitor.series_recorder import SeriesRecorder
from trimtab.traces.core.tool_call import ToolCall

ROWS, LENGTH, WORDS = 40, 12, 30


def policies(seed: int = 0, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sampled tokens of a random policy: log-probabilities at temperature 1, at another one, and the entropy there."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0.0, 2.0, (ROWS, LENGTH, WORDS))
    plain = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    other = logits / temperature - np.log(np.exp(logits / temperature).sum(-1, keepdims=True))
    draws = (np.exp(plain).cumsum(-1) < rng.random((ROWS, LENGTH, 1))).sum(-1)[..., None]
    entropy = -(np.exp(other) * other).sum(-1)
    return np.take_along_axis(plain, draws, -1)[..., 0], np.take_along_axis(other, draws, -1)[..., 0], entropy


def series_of(mu: np.ndarray, old: np.ndarray, **columns: object) -> StepSeries:
    mask = columns.pop("loss_mask", np.ones(mu.shape, bool))
    batch = token_batch(mask, rollout_logprobs=mu, old_logprobs=old, logprobs=old, **columns)  # type: ignore[arg-type]
    return measure_step(0, [batch])


@pytest.mark.parametrize(("temperature", "low", "high"), [(1.3, -1.0, -0.97), (0.8, 0.97, 1.0)])
def test_another_temperature_shows_in_the_correlation_with_surprise(temperature, low, high) -> None:
    mu, old, entropy = policies(temperature=temperature)
    assert low <= series_of(mu, old, entropy=entropy).get("mismatch/temperature_corr").value <= high


def test_noise_of_an_engine_is_no_temperature_and_no_shift() -> None:
    mu, _, entropy = policies()
    old = np.minimum(mu + np.random.default_rng(1).normal(0.0, 0.3, mu.shape), 0.0)
    series = series_of(mu, old, entropy=entropy)
    assert abs(series.get("mismatch/temperature_corr").value) < 0.3
    assert series.get("mismatch/shifted_frac").value == 0.0


@pytest.mark.parametrize("by", [1, -1])
def test_sequences_shifted_by_one_token_are_counted(by) -> None:
    mu, _, _ = policies()
    shifted = mu.copy()
    shifted[:10] = np.roll(mu[:10], by, axis=1)
    assert series_of(shifted, mu).get("mismatch/shifted_frac").value == 1.0  # all that disagree
    shifted[10:20] -= 0.5
    assert series_of(shifted, mu).get("mismatch/shifted_frac").value == 0.5


def test_tokens_that_differ_by_three_nats_are_counted_and_the_rest_stays() -> None:
    mu, _, _ = policies()
    old = mu.copy()
    old[:, 3] -= 4.0
    series = series_of(mu, old)
    assert series.get("mismatch/above_3_frac").value == pytest.approx(1 / LENGTH)
    assert series.get("mismatch/p75").value == 0.0


def test_masks_that_train_results_or_skip_answers_are_counted() -> None:
    tool = np.zeros((4, 8), bool)
    tool[:3, 3:5] = True  # three sequences have a result
    mask = ~tool
    mask[0, 3:5] = True  # its result is trained on
    mask[1, 5:] = False  # its answer is not
    series = measure_step(0, [token_batch(mask, tool_tokens=tool, exists=np.ones((4, 8), bool))])
    assert series.get("mask/result_frac").value == pytest.approx(1 / 3)
    assert series.get("mask/silent_frac").value == pytest.approx(1 / 3)
    assert series.get("mask/silent_frac").num_trajectories == 3


def test_support_and_age_are_those_of_the_tokens_with_gradient() -> None:
    mask = np.ones((3, 4), bool)
    mask[:, 0] = False
    ref = np.full((3, 4), -1.0)
    ref[:, 0], ref[0, 1] = -9.0, -9.0
    series = measure_step(0, [token_batch(
        mask, ref_logprobs=ref, ref_scored=np.array([True, True, False]), policy_version=np.array([[7] * 4, [5] * 4, [5] * 4]),
        current_version=8,
    )])  # fmt: skip
    assert series.get("support/below_5_frac").value == pytest.approx(1 / 6)
    assert series.get("lag/mean").value == pytest.approx(7 / 3)


def test_groups_of_one_reward_are_solved_or_hopeless_and_errors_have_a_tool() -> None:
    reward = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.9, 0.9])
    batch = token_batch(
        np.ones((8, 2), bool),
        reward=reward,
        group=np.repeat(np.arange(4), 2),
        reward_parts={"style": reward / 2},
    )
    calls = [ToolCall("search"), ToolCall("search", error="timeout"), ToolCall("read")]
    recorder = SeriesRecorder(None)
    recorder.add(batch)
    recorder.close(0, None, calls)
    series = recorder.history.latest
    assert series.get("groups/solved_frac").value == 0.5
    assert series.get("groups/hopeless_frac").value == 0.25
    assert series.get("tools/error_frac", "post_tool/search").value == 0.5
    assert series.get("tools/error_frac", "post_tool/read").value == 0.0
    assert series.get("tools/error_frac").value == pytest.approx(1 / 3)
    assert series.get("reward_part/mean", "reward/style").value == pytest.approx(reward.mean() / 2)


def test_a_step_whose_groups_all_fail_is_hopeless_by_the_rewards_seen_before() -> None:
    recorder = SeriesRecorder(None)
    for step, level in enumerate((np.array([0.0, 1.0, 1.0, 1.0]), np.full(4, 0.1))):
        recorder.add(token_batch(np.ones((4, 2), bool), reward=level, group=np.array([0, 0, 1, 1])))
        recorder.close(step, None)
        recorder.next_step()
    assert recorder.history.latest.get("groups/hopeless_frac").value == 1.0
    assert recorder.history.latest.get("groups/solved_frac").value == 0.0


def test_parts_of_the_reward_go_apart_when_one_rises_and_another_falls() -> None:
    def steps(rise: float, fall: float) -> list[StepSeries]:
        levels = [(0.5, 0.5)] * BEFORE + [(0.5 + rise, 0.5 - fall)] * RECENT
        rows = [[("reward/style", a, 0.0, 9), ("reward/correct", b, 0.0, 9)] for a, b in levels]
        return [StepSeries.of(i, {"reward_part/mean": estimates(row)}) for i, row in enumerate(rows)]

    width = 0.02 * (1 / RECENT + 1 / BEFORE) ** 0.5
    assert opposed_parts(steps(0.2, 0.1)) == pytest.approx(0.1 / width)
    assert opposed_parts(steps(0.2, -0.2)) == 0.0
    assert np.isnan(opposed_parts(steps(0.2, 0.1)[-9:]))


def test_merged_ranks_keep_what_each_rank_says() -> None:
    parts = []
    for rank, gap in ((0, 0.0), (3, 0.5)):
        mu, _, _ = policies(rank)
        parts.append(series_of(mu, mu - gap))
    merged = merge_ranks(parts, [0, 3])
    assert merged.get("mismatch/p95", "rank/3").value == pytest.approx(0.5, abs=1e-6)
    assert merged.get("mismatch/p95", "rank/0").value == 0.0
    assert merged.get("mismatch/p95").value == pytest.approx(0.25, abs=1e-6)
    assert merged.get("mismatch/p99", "rank/3") is None
