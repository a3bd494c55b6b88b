"""Series of ranks as those of one sample: closed forms, and what some or all ranks lack."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trimtab.measure.steps.rank_merge import merge_ranks
from trimtab.measure.steps.step_series import StepSeries
from trimtab.measure.steps.tail_quantiles import Estimates


def series(**values: tuple[float, float, int, int]) -> StepSeries:
    """One step of slice `all`: name -> value, error, tokens, trajectories."""
    columns = {
        name.replace("__", "/"): (("all",), Estimates(*(np.array([one]) for one in numbers)))
        for name, numbers in values.items()
    }
    return StepSeries.of(3, columns)


def test_a_series_without_a_value_on_any_rank() -> None:
    nothing = (math.nan, math.nan, 0, 0)
    parts = [series(total__p95=nothing, reward__mean=(0.5, 0.1, 9, 3)), series(total__p95=nothing)]
    merged = merge_ranks(parts, [0, 1])
    assert merged.get("total/p95") is None
    assert merged.get("reward/mean") == (0.5, 0.1, 9, 3)


def test_means_of_tokens_and_of_trajectories() -> None:
    parts = [
        series(drift__kl_k3=(1.0, 0.1, 300, 10), reward__mean=(1.0, 0.1, 300, 10)),
        series(drift__kl_k3=(5.0, math.nan, 100, 30), reward__mean=(5.0, 0.3, 100, 30)),
    ]
    merged = merge_ranks(parts)
    kl, reward = merged.get("drift/kl_k3"), merged.get("reward/mean")
    assert kl is not None
    assert reward is not None
    assert kl.value == pytest.approx(2.0)
    assert kl.error == pytest.approx(
        0.1 * math.hypot(0.75, 0.25)
    )  # the unknown error counts as the known one
    assert reward.value == pytest.approx(4.0)
    assert reward.error == pytest.approx(math.hypot(0.25 * 0.1, 0.75 * 0.3))
    assert reward[2:] == (400, 40)


def test_ess_equals_that_of_all_weights() -> None:
    rng = np.random.default_rng(0)
    logs = [rng.normal(size=n) for n in (40, 25, 60)]

    def ess(w: np.ndarray) -> float:
        return float(w.sum() ** 2 / (w**2).sum() / w.size)

    parts = [
        series(
            total__sequence_log_mean_weight=(float(np.log(np.exp(x).mean())), 0.1, 500, x.size),
            total__sequence_ess_frac=(ess(np.exp(x)), 0.01, 500, x.size),
        )
        for x in logs
    ]
    merged = merge_ranks(parts)
    pooled = np.exp(np.concatenate(logs))
    fraction, mean = merged.get("total/sequence_ess_frac"), merged.get("total/sequence_log_mean_weight")
    assert fraction is not None
    assert mean is not None
    assert fraction.value == pytest.approx(ess(pooled))
    assert mean.value == pytest.approx(math.log(pooled.mean()))
    assert 0.01 / 3 < fraction.error < 0.02


def test_ranks_have_names_where_they_are_few() -> None:
    parts = [series(mismatch__p95=(float(rank), 0.1, 10, 2)) for rank in range(65)]
    few = merge_ranks(parts[:3], [4, 7, 9])
    assert [few.get("mismatch/p95", f"rank/{rank}") for rank in (4, 7, 9)] == [
        (0.0, 0.1, 10, 2), (1.0, 0.1, 10, 2), (2.0, 0.1, 10, 2)
    ]  # fmt: skip
    assert merge_ranks(parts, range(65)).slices == ("all",)


def test_the_norm_of_the_gradient_is_one_number() -> None:
    parts = [series(gradient__norm=(2.0, 0.1, 1, 1)), series(gradient__norm=(3.0, 0.2, 1, 1))]
    assert merge_ranks(parts).get("gradient/norm") == (2.0, 0.1, 2, 2)


def test_one_rank_alone_is_its_own_series() -> None:
    one = np.array([[0.5]])
    alone = StepSeries(4, ("loss",), ("all",), one, one / 10, np.array([[8]]), np.array([[2]]))
    assert merge_ranks([alone]) is alone
    assert merge_ranks([alone], ranks=(3,)) is alone
