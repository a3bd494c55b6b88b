"""Every series of one step against a computation slice by slice and trajectory by trajectory."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.measure.steps.oracle import (
    by_trajectory,
    jackknife,
    kish,
    quantile_error,
    ratio_error,
    sequence_logs,
    tokens_of,
)
from trimtab.capture import token_batch
from trimtab.measure.steps.measure_step import measure_step
from trimtab.types import TokenBatch

TOOLS, SOURCES = ("search", "stock"), ("math", "web")


def make(rng: np.random.Generator, sequences: int, first: int = 0, episodes: int | None = None) -> TokenBatch:
    """Sequences with up to nine tool results, two sources and heavy-tailed ratios."""
    rows, tools = [], []
    for _ in range(sequences):
        turns = int(rng.integers(1, 11))
        rows.append(
            np.concatenate([np.r_[np.ones(int(rng.integers(2, 9))), [0, 0]] for _ in range(turns)])[:-2] > 0
        )
        tools.append([str(rng.choice([*TOOLS, "unknown"])) for _ in range(turns - 1)])
    width = max(row.size for row in rows)
    mask, exists = np.zeros((sequences, width), bool), np.zeros((sequences, width), bool)
    for i, row in enumerate(rows):
        mask[i, : row.size], exists[i, : row.size] = row, True
    scale = np.exp(rng.normal(0, 0.5, (sequences, 1))) * 0.02
    base = -rng.exponential(1.0, mask.shape) - 3
    noise = [np.clip(rng.standard_t(2, mask.shape) * scale, -2.9, 2.9) for _ in range(2)]
    episode = rng.permutation(sequences) if episodes is None else rng.integers(0, episodes, sequences)
    return token_batch(
        mask, exists=exists, tool_tokens=exists & ~mask, tools=tools, tool_names=TOOLS,
        source=[SOURCES[i % 2] for i in range(sequences)], source_names=SOURCES,
        rollout_logprobs=base, old_logprobs=np.minimum(base + noise[0], 0),
        logprobs=np.minimum(base + noise[1], 0), entropy=rng.random(mask.shape),
        reward=rng.integers(0, 2, sequences).astype(float), group=(np.arange(sequences) + first) // 4,
        episode_id=episode + first,
    )  # fmt: skip


@pytest.fixture(scope="module", params=[0, 1, 2])
def batches(request: pytest.FixtureRequest) -> list[TokenBatch]:
    """Two micro-batches, in one case with trajectories of several sequences."""
    rng = np.random.default_rng(request.param)
    return [make(rng, 24, episodes=14 if request.param == 2 else None), make(rng, 8, first=24)]


@pytest.mark.parametrize("name", ["total", "mismatch", "staleness"])
def test_quantiles_are_order_statistics_with_woodruff_errors(batches: list[TokenBatch], name: str) -> None:
    series, slices = measure_step(0, batches), tokens_of(batches)
    assert set(series.slices) == set(slices)
    known = 0
    for slice_name, tokens in slices.items():
        parts = [[abs(t.ratio(name)) for t in part] for part in by_trajectory(tokens)]
        for label, level in (("p95", 0.95), ("p99", 0.99)):
            value, error, above = quantile_error(parts, level)
            point = series.get(f"{name}/{label}", slice_name)
            assert point is not None
            assert point.value == value
            assert point.num_tokens == len(tokens)
            assert point.num_trajectories == len(parts)
            if above >= 3:
                assert point.error == pytest.approx(error, rel=1e-9)
                known += 1
            else:
                assert math.isnan(point.error)
    assert known > 8


@pytest.mark.parametrize("name", ["total", "mismatch"])
def test_ess_and_its_jackknife_match_leaving_out_each_trajectory(
    batches: list[TokenBatch], name: str
) -> None:
    series = measure_step(0, batches)
    for slice_name, tokens in tokens_of(batches).items():
        for unit, parts in (
            ("sequence", sequence_logs(tokens, name)),
            ("token", [[t.ratio(name) for t in part] for part in by_trajectory(tokens)]),
        ):
            logs = [log for part in parts for log in part]
            point, mean = (
                series.get(f"{name}/{unit}_{what}", slice_name) for what in ("ess_frac", "log_mean_weight")
            )
            assert point is not None
            assert mean is not None
            assert point.value == pytest.approx(kish(logs), rel=1e-6)
            assert mean.value == pytest.approx(math.log(np.exp(logs).mean()), abs=1e-6)
            if len(parts) > 2:
                assert point.error == pytest.approx(jackknife(parts, kish), rel=1e-4, abs=1e-9)
                log_mean = jackknife(parts, lambda v: math.log(np.exp(v).mean()))
                assert mean.error == pytest.approx(log_mean, rel=1e-4, abs=1e-9)
    with_staleness = [n for n in series.names if n.startswith("staleness")]
    assert with_staleness == ["staleness/p95", "staleness/p99"]  # its tokens are of mu, not of pi_old


def test_token_means_match_a_ratio_estimator(batches: list[TokenBatch]) -> None:
    series = measure_step(0, batches)
    for slice_name, tokens in tokens_of(batches).items():
        parts = by_trajectory(tokens)
        for name, read in (
            ("entropy/mean", lambda t: float(t.batch.entropy[t.at])),
            ("total/kl_k3", lambda t: math.expm1(t.ratio("total")) - t.ratio("total")),
        ):
            point = series.get(name, slice_name)
            assert point is not None
            if len(parts) > 1:
                value, error = ratio_error([[read(t) for t in part] for part in parts])
                assert (point.value, point.error) == pytest.approx((value, error), rel=1e-6)


def test_rewards_by_slice_take_prompts_as_clusters() -> None:
    batch = make(np.random.default_rng(5), 32)
    series = measure_step(0, [batch], gradient_norm=0.5)
    for slice_name, tokens in tokens_of([batch]).items():
        rows = sorted({token.row for token in tokens})
        groups = sorted({int(batch.group[row]) for row in rows})
        parts = [[float(batch.reward[r]) for r in rows if batch.group[r] == g] for g in groups]
        point = series.get("reward/mean", slice_name)
        assert point is not None
        assert point.num_trajectories == len(rows)
        if len(parts) > 1:
            assert (point.value, point.error) == pytest.approx(ratio_error(parts))
    mixed = [np.ptp(batch.reward[batch.group == g]) > 0 for g in range(8)]
    share = series.get("reward/mixed_groups_frac")
    assert share is not None
    assert (share.value, share.num_trajectories) == (np.mean(mixed), 8)
    sources = [series.get("reward/mean", f"source/{name}") for name in SOURCES]
    mix = series.get("reward/equal_mix")
    assert mix is not None
    assert all(sources)
    assert mix.value == pytest.approx(np.mean([point.value for point in sources if point]))


def test_correct_answers_are_the_best_of_their_group_or_solved() -> None:
    batch = make(np.random.default_rng(6), 32)
    batch = replace(batch, reward=np.where(batch.group == 2, 1.0, batch.reward))
    tokens = tokens_of([batch])["all"]
    means = [float(np.mean([batch.logprobs[t.at] for t in tokens if t.row == row])) for row in range(32)]
    best = [
        row
        for row in range(32)
        if (peers := batch.reward[batch.group == batch.group[row]]).max() > peers.min()
        and batch.reward[row] == peers.max()
    ]
    solved = np.flatnonzero(batch.reward >= 1.0).tolist()
    assert best != solved
    for rows, solved_at in ((best, None), (solved, 1.0)):
        point = measure_step(0, [batch], solved_at=solved_at).get("correct/logprob")
        values = [means[row] for row in rows]
        assert point is not None
        assert point.num_trajectories == len(rows)
        expected = np.mean(values), np.std(values, ddof=1) / math.sqrt(len(rows))
        assert (point.value, point.error) == pytest.approx(expected, rel=1e-6)


def test_a_gradient_norm_needs_a_group_whose_rewards_differ() -> None:
    batch = make(np.random.default_rng(7), 16)
    with_variance = measure_step(0, [batch], gradient_norm=0.25)
    assert with_variance.get("gradient/norm").value == 0.25  # type: ignore[union-attr]
    equal = token_batch(
        batch.loss_mask,
        lengths=batch.lengths,
        logprobs=batch.logprobs,
        reward=batch.group * 1.0,
        group=batch.group,
    )
    without = measure_step(0, [equal], gradient_norm=0.25)
    assert without.get("gradient/norm") is None
    assert without.reasons["gradient"] == "the rewards of no group differ in this step"
    share = without.get("reward/mixed_groups_frac")
    assert share is not None
    assert share.value == 0.0


def test_batches_of_a_step_are_one_sample_however_they_are_cut() -> None:
    rng = np.random.default_rng(8)
    columns = {
        "logprobs": -rng.random((12, 20)) - 1,
        "rollout_logprobs": -rng.random((12, 20)) - 1,
        "reward": rng.random(12),
        "episode_id": np.arange(12),
    }
    mask = rng.random((12, 20)) < 0.8
    mask[:, :2] = True
    mask[:, 6:8] = False
    whole = measure_step(0, [token_batch(mask, exists=np.ones_like(mask), **columns)])
    parts = [
        token_batch(mask[i], exists=np.ones_like(mask[i]), **{k: v[i] for k, v in columns.items()})
        for i in (slice(0, 5), slice(5, 6), slice(6, 12))
    ]
    cut = measure_step(0, parts[::-1])
    assert whole.names == cut.names
    assert whole.slices == cut.slices
    np.testing.assert_allclose(cut.values, whole.values, rtol=1e-9)
    np.testing.assert_allclose(cut.errors, whole.errors, rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(cut.num_tokens, whole.num_tokens)


def test_infinity_is_the_largest_and_nan_is_left_out() -> None:
    mask = np.ones((8, 10), bool)
    old = np.full(mask.shape, -2.0)
    new = old + np.linspace(-0.5, 0.5, 80).reshape(mask.shape)
    new[3, 4], new[5, 6] = -np.inf, np.nan
    series = measure_step(0, [token_batch(mask, logprobs=new, rollout_logprobs=old)])
    p99, p95 = series.get("total/p99"), series.get("total/p95")
    assert p99 is not None
    assert p95 is not None
    assert p99.value == math.inf
    assert math.isnan(p99.error)
    assert p99.num_tokens == 79
    assert math.isfinite(p95.value)
    kl, ess = series.get("total/kl_k3"), series.get("total/sequence_ess_frac")
    assert kl is not None
    assert kl.value == math.inf
    assert ess is not None
    assert ess.num_trajectories == 7
    weights = [0.0 if row == 3 else math.exp((new[row] - old[row]).sum()) for row in range(8) if row != 5]
    assert ess.value == pytest.approx(sum(weights) ** 2 / (7 * sum(w * w for w in weights)), rel=1e-5)


def test_log_weights_of_hundreds_of_nats_do_not_overflow() -> None:
    mask, old = np.ones((4, 100), bool), np.full((4, 100), -20.0)
    new = old + np.array([15.0, 15.0, -15.0, 0.0])[:, None]  # weights of e^1500
    series = measure_step(0, [token_batch(mask, logprobs=new, rollout_logprobs=old)])
    point, mean = series.get("total/sequence_ess_frac"), series.get("total/sequence_log_mean_weight")
    assert point is not None
    assert point.value == pytest.approx(0.5)
    assert mean is not None
    assert mean.value == pytest.approx(1500 + math.log(0.5))


def test_an_absent_column_gives_no_series_and_a_reason() -> None:
    mask = np.ones((3, 4), bool)
    series = measure_step(
        4, [token_batch(mask, logprobs=np.full((3, 4), -1.0), absent={"old_logprobs": "on policy"})]
    )
    assert series.names == ()
    assert series.reasons["mismatch"] == "no old_logprobs: on policy"
    assert series.reasons["reward"] == "no reward in this step"
    assert series.reasons["update"] == "no tokens were scored before and after the update"
    nothing = measure_step(5, [token_batch(np.zeros((2, 3), bool), exists=np.ones((2, 3), bool))])
    assert nothing.names == ()
    assert nothing.reasons["all"] == "no token with gradient in this step"


def test_the_size_of_an_update_is_a_quantile_of_tokens_scored_twice() -> None:
    rng = np.random.default_rng(9)
    mask, before = np.ones((16, 30), bool), -rng.random((16, 30)) - 2
    after = np.minimum(before + rng.standard_t(3, mask.shape) * 0.1, 0.0)
    scored = token_batch(mask, prox_logprobs=before, logprobs=after)
    series = measure_step(0, [], updates={"probe_update": [scored]})
    point = series.get("probe_update/p95")
    moved = np.abs(np.float32(after) - np.float32(before)).ravel()
    assert point is not None
    assert point.value == pytest.approx(np.quantile(moved, 0.95, method="inverted_cdf"))
    assert "update" in series.reasons
    assert "probe_update" not in series.reasons
