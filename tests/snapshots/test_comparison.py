"""Paired comparisons: known differences, a known null, and scipy as the oracle of the tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.snapshots.policies import REFUSAL, noise, scores, snapshot
from trimtab.snapshots import Answer, compare_snapshots
from trimtab.snapshots.paired_tests import bootstrap_interval, holm, mcnemar, resampled, sign_flip
from trimtab.snapshots.snapshot_comparison import drift_of


def test_mcnemar_is_the_exact_binomial_test_of_the_pairs_that_changed():
    rng = np.random.default_rng(0)
    for n in (1, 5, 24, 60):
        before, after = (rng.integers(0, 2, n).astype(float) for _ in range(2))
        up, down = int((after > before).sum()), int((after < before).sum())
        test = mcnemar(before, after)
        expected = stats.binomtest(up, up + down).pvalue if up + down else 1.0
        assert test.p == pytest.approx(expected)
        assert test.difference == pytest.approx((up - down) / n)
        assert test.low <= test.difference <= test.high


def test_the_interval_of_proportions_covers():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1_000):
        before = rng.random(24) < 0.3
        after = np.where(rng.random(24) < 0.2, True, before)  # a fifth turns on: + 0.7 * 0.2 = 0.14
        test = mcnemar(before.astype(float), after.astype(float))
        covered += test.low <= 0.14 <= test.high
    assert 0.93 <= covered / 1_000 <= 0.995


def test_sign_flips_agree_with_scipy():
    rng = np.random.default_rng(2)
    for n in (6, 11, 40):
        values = rng.normal(0.3, 1.0, n)
        oracle = stats.permutation_test(
            (values, np.zeros(n)),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            n_resamples=20_000,
            vectorized=True,
            rng=3,
        )
        assert sign_flip(values).p == pytest.approx(oracle.pvalue, abs=0.012)


def test_holm_is_that_of_the_literature():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    low, high = bootstrap_interval(np.r_[np.zeros(50), np.ones(50)][:, None])
    assert low == pytest.approx(0.5 - 1.96 * 0.05, abs=0.02)
    assert high == pytest.approx(0.5 + 1.96 * 0.05, abs=0.02)


def test_two_samples_of_one_policy_rarely_differ():
    """At most one comparison in twenty calls anything changed, after Holm; the scores are of one policy too."""
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        compared = compare_snapshots(
            snapshot(0, noise(rng), scores(rng)), snapshot(9, noise(rng), scores(rng))
        )
        alarms += any(change.changed for change in compared.changes)
        assert compared.num_tests >= 15
    assert alarms <= 6  # 40 of 5 %: the 99 % quantile


def test_a_policy_that_refuses_and_drifts_after_tools_is_seen():
    rng = np.random.default_rng(4)
    calm = [Answer(f"It is {i}.", 4, "eos", 1.0) for i in range(24)]
    base = scores(rng)
    broken = [Answer(REFUSAL, 9, "eos", 0.0) if i < 12 else one for i, one in enumerate(calm)]
    moved = type(base)(
        base.lengths, base.logprobs - 2.0 * base.post_tool, base.post_tool, base.entropy, base.name
    )
    compared = compare_snapshots(snapshot(0, calm, base), snapshot(50, broken, moved))
    changed = {(change.trait, change.slice) for change in compared.changes if change.changed}
    assert {("refusal", "all"), ("reward", "all"), ("logprob", "post_tool")} <= changed
    assert ("logprob", "text") not in changed
    drift = {(row.slice, row.statistic): row for row in compared.drift}
    assert drift["post_tool", "p99"].value == pytest.approx(2.0)
    assert drift["text", "mean"].value == 0.0
    assert drift_of(snapshot(0, calm, base), snapshot(50, broken, moved)) == pytest.approx(1.0)
    assert compared.examples[0].traits[0] == "+refusal"


def test_intervals_of_quantiles_are_those_of_resampled_transcripts():
    rng = np.random.default_rng(7)
    groups = [rng.gamma(2.0, 1.0 + 0.2 * i, int(rng.integers(3, 9))) for i in range(12)]
    draws = []
    for _ in range(1_500):
        tokens = np.concatenate([groups[i] for i in rng.integers(0, 12, 12)])
        draws.append(np.quantile(tokens, 0.9, method="inverted_cdf"))
    assert resampled(groups, "quantile", 0.9) == pytest.approx(np.quantile(draws, (0.025, 0.975)), rel=0.1)


def test_other_prompts_and_other_transcripts_are_not_compared():
    rng = np.random.default_rng(5)
    base = scores(rng)
    renamed = type(base)(base.lengths, base.logprobs, base.post_tool, base.entropy, "others")
    compared = compare_snapshots(snapshot(0, noise(rng, 24), base), snapshot(9, noise(rng, 30), renamed))
    assert compared.num_pairs == 24
    assert not compared.drift
    assert len(compared.notes) == 2


def test_scores_that_are_not_finite_are_counted():
    rng = np.random.default_rng(6)
    base = scores(rng)
    broken = base.logprobs.copy()
    broken[3] = np.nan
    other = type(base)(base.lengths, broken, base.post_tool, base.entropy, base.name)
    compared = compare_snapshots(snapshot(0, noise(rng), base), snapshot(9, noise(rng), other))
    assert compared.notes == ("1 of 120 scored tokens are not finite and left out",)
    assert all(np.isfinite(row.value) for row in compared.drift)
