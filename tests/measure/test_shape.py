"""Tail shape, chi-square, lags and clip shares through the public path, against scipy, closed forms and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.measure.test_readings import W, columns, values
from trimtab import token_batch
from trimtab.measure.observe import observe
from trimtab.measure.pack import pack_states, unpack_states
from trimtab.measure.table import readings_of


@pytest.fixture
def rng():
    return np.random.default_rng(17)


def test_chi2_is_the_closed_form_and_the_exact_plug_in(rng):
    data = columns(rng, n=40_000, s=0.3)
    found = values(token_batch(**data))["mismatch/chi2"]
    w = np.exp(np.float32(data["old_logprobs"]).astype(float) - np.float32(data["rollout_logprobs"]))
    assert found.value == pytest.approx(np.mean(w**2) - 1.0, rel=1e-4)
    assert found.low < math.expm1(2 * 0.3**2) < found.high  # E e^2x of N(0, s^2); here E[w] is e^(s^2/2)
    assert found.n_tokens == 40_000


def test_chi2_survives_weights_beyond_floats(rng):
    mu = np.full(1_000, -900.0)
    batch = token_batch(
        np.ones(1_000, bool), lengths=np.full(50, 20), rollout_logprobs=mu, old_logprobs=np.full(1_000, -1.0)
    )
    found = values(batch)
    assert found["mismatch/chi2"].value == math.inf
    assert found["mismatch/hill"].reason == "equal values"


def test_tail_indices_of_planted_tails(rng):
    """|x| Pareto of index 0.4 in drift; w Pareto of index 0.5 and 1/w bounded in mismatch."""
    n = 20_000
    old = np.full(n, -30.0)
    drift = 0.05 * np.exp(0.4 * rng.exponential(size=n)) * rng.choice([-1.0, 1.0], n)
    batch = token_batch(
        np.ones(n, bool), lengths=np.full(200, 100), rollout_logprobs=old - 0.5 * rng.exponential(size=n), old_logprobs=old,
        logprobs=old, ref_logprobs=old - drift,
    )  # fmt: skip
    found = values(batch)
    assert found["drift/hill"].value == pytest.approx(0.4, rel=0.15)
    assert found["drift/hill"].low < 0.4 < found["drift/hill"].high
    assert found["drift/gpd_shape"].low < 0.4 < found["drift/gpd_shape"].high
    assert found["mismatch/hill_w"].low < 0.5 < found["mismatch/hill_w"].high
    assert found["mismatch/khat"].low < 0.5 < found["mismatch/khat"].high
    assert found["mismatch/hill_inverse"].value < 0.05
    assert found["drift/hill"].high < 0.6
    assert not {"drift/hill_w", "staleness/hill_w", "drift/chi2"} & set(found)


def test_few_tokens_and_zeros_have_reasons(rng):
    batch = token_batch(
        np.ones((4, 5), bool), logprobs=np.full((4, 5), -1.0), ref_logprobs=np.full((4, 5), -1.5)
    )
    assert "25" in values(batch)["drift/hill"].reason
    same = token_batch(
        np.ones((40, 5), bool), logprobs=np.full((40, 5), -1.0), ref_logprobs=np.full((40, 5), -1.0)
    )
    found = values(same)
    assert math.isnan(found["drift/hill"].value)
    assert "above 0" in found["drift/hill"].reason
    assert math.isnan(found["drift/gpd_shape"].value)
    assert found["drift/gpd_shape"].reason == "equal values"
    assert found["drift/hill"].status == "not observed"


def test_states_without_the_new_parts_still_read(rng):
    """A state written before `rises` existed gives the same values, without intervals."""
    states = observe(token_batch(**columns(rng)))
    old = unpack_states(pack_states(states))
    for key in [key for key in old["all"].parts if key.endswith("/rises")]:
        del old["all"].parts[key]
    before = {r.key: r for r in readings_of("all", W, states["all"])}
    for reading in readings_of("all", W, unpack_states(pack_states(old))["all"]):
        if reading.key in ("mismatch/chi2", "mismatch/hill_w"):
            assert reading.value == pytest.approx(before[reading.key].value, rel=0.05)
            assert math.isnan(reading.low)
            assert math.isfinite(before[reading.key].low)
