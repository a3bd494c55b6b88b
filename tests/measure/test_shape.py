"""Tail shape, chi-square, lags and clip shares through the public path, against scipy, closed forms and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.measure.test_readings import W, columns, values
from trimtab import BatchError, token_batch
from trimtab.capture import join_batches
from trimtab.measure.accumulate import observe
from trimtab.measure.all_measures import readings_of
from trimtab.measure.state.blocks import pack_states, unpack_states
from trimtab.measure.tokens.window_shift import WindowShift


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
    for key in [key for key in old["all"].summaries if key.endswith("/rises")]:
        del old["all"].summaries[key]
    before = {r.key: r for r in readings_of("all", W, states["all"])}
    for reading in readings_of("all", W, unpack_states(pack_states(old))["all"]):
        if reading.key in ("mismatch/chi2", "mismatch/hill_w"):
            assert reading.value == pytest.approx(before[reading.key].value, rel=0.05)
            assert math.isnan(reading.low)
            assert math.isfinite(before[reading.key].low)
    mixed = {r.key: r for r in readings_of("all", W, old["all"].merge(states["all"]))}
    assert math.isnan(mixed["mismatch/khat"].low)  # half of the stream has no signs by trajectory
    assert math.isfinite(mixed["mismatch/khat"].value)


def ratios(data):
    return np.exp(np.float32(data["logprobs"]) - np.float32(data["old_logprobs"]), dtype=np.float64)


def test_clip_shares_at_the_trainers_own_range_and_by_sign(rng):
    data = columns(rng)
    advantages = rng.choice([-1.0, 0.0, 1.0], 4000)
    advantages[:10] = np.nan
    found = values(token_batch(**data, advantages=advantages, clip_range=(0.05, 0.1)))
    r = ratios(data)
    judged = np.isfinite(advantages)
    assert found["staleness/clip_high_frac"].value == pytest.approx((r > 1.1).mean(), abs=3e-4)
    assert found["staleness/clip_low_frac"].value == pytest.approx((r < 0.95).mean(), abs=3e-4)
    high, low = found["staleness/clip_active_high_frac"], found["staleness/clip_active_low_frac"]
    assert high.value == pytest.approx(((r > 1.1) & (advantages > 0)).sum() / judged.sum(), abs=3e-4)
    assert low.value == pytest.approx(((r < 0.95) & (advantages < 0)).sum() / judged.sum(), abs=3e-4)
    assert high.n_tokens == judged.sum()
    without = values(token_batch(**data))
    assert without["staleness/clip_high_frac"].value == pytest.approx((r > 1.2).mean(), abs=3e-4)
    assert without["staleness/clip_active_low_frac"].reason == "no advantage was given"
    for bad in (0.0, (0.2, 0.3, 0.4), (1.5, 0.2), math.nan):
        with pytest.raises(BatchError, match="clip_range"):
            token_batch(**data, clip_range=bad)


def test_clip_shares_leave_out_log_ratios_that_are_not_finite(rng):
    data, advantages = columns(rng), np.where(rng.random(4000) < 0.5, 1.0, -1.0)
    data["logprobs"] = np.where(np.arange(4000) % 4 == 0, -math.inf, data["logprobs"])  # below every range
    data["logprobs"][1::8] = math.nan  # on no side
    readings = values(token_batch(**data, advantages=advantages, clip_range=0.1))
    finite = np.isfinite(data["logprobs"])
    r, sign = ratios(data)[finite], advantages[finite]
    for label, outside in (("high", (r > 1.1, sign > 0)), ("low", (r < 0.9, sign < 0))):
        fraction, active = (
            readings[f"staleness/clip_{label}_frac"],
            readings[f"staleness/clip_active_{label}_frac"],
        )
        assert fraction.n_tokens == active.n_tokens == finite.sum()
        assert fraction.value == pytest.approx(outside[0].mean(), abs=5e-4)
        assert active.value == pytest.approx((outside[0] & outside[1]).mean(), abs=5e-4)


def test_active_shares_are_where_the_gradient_of_ppo_vanishes(rng):
    """The gradient of min(r A, clip(r, 1 - e, 1 + e) A) by central differences is 0 on exactly those tokens."""
    data, advantages = columns(rng), rng.normal(size=4000)
    found = values(token_batch(**data, advantages=advantages, clip_range=0.1))
    r, h = ratios(data), 1e-7

    def objective(x):
        return np.minimum(x * advantages, np.clip(x, 0.9, 1.1) * advantages)

    dead = np.abs(objective(r + h) - objective(r - h)) < 1e-12
    active = found["staleness/clip_active_high_frac"].value + found["staleness/clip_active_low_frac"].value
    assert active == pytest.approx(dead.mean(), abs=3e-4)


def test_policy_lag_by_bucket(rng):
    data = columns(rng)
    version = rng.integers(3, 11, 4000)
    data["logprobs"] = data["old_logprobs"] + rng.normal(size=4000) * 0.01 * (1 + 10 - version)
    found = values(token_batch(**data, policy_version=version, current_version=10))
    lags = 10 - version
    x = np.abs(np.float32(data["logprobs"]) - np.float32(data["old_logprobs"]))
    assert found["policy_lag/mean"].value == pytest.approx(lags.mean(), rel=1e-5)
    assert found["policy_lag/max"].value == 7.0
    for key, rows in (
        ("lag_0", lags == 0),
        ("lag_1", lags == 1),
        ("lag_2_3", (lags == 2) | (lags == 3)),
        ("lag_4_up", lags >= 4),
    ):
        part = np.sort(x[rows])
        assert found[f"staleness/{key}_p95"].value == pytest.approx(
            part[math.ceil(0.95 * part.size) - 1], rel=0.032
        )
        assert found[f"staleness/{key}_p95"].n_tokens == rows.sum()
    assert not any(key.startswith("total/lag") for key in found)
    late = values(token_batch(**data, policy_version=version, current_version=9))
    assert late["policy_lag/mean"].excluded == {
        "policy_lag: sampled by a version ahead of the current one": (version > 9).sum()
    }
    assert late["policy_lag/mean"].value == pytest.approx((9 - version)[version <= 9].mean(), rel=1e-5)


def test_lag_of_total_where_only_that_is_observed_and_reasons_where_none_is(rng):
    data = columns(rng)
    del data["old_logprobs"]
    found = values(token_batch(**data, policy_version=np.full(4000, 4), current_version=5))
    assert {key for key in found if "/lag_" in key} == {"total/lag_1_p95"}
    missing = values(
        token_batch(
            **data, policy_version=np.full(4000, 4), absent={"current_version": "the queue does not say"}
        )
    )
    assert missing["policy_lag/mean"].status == "not observed"
    assert missing["policy_lag/mean"].reason == "no current_version: the queue does not say"
    assert "no policy_version" in values(token_batch(**data))["policy_lag/max"].reason


def test_joined_batches_keep_every_token_its_age(rng):
    data, fresh = columns(rng), np.ones(100, bool)
    old, new = (token_batch(**data, policy_version=np.full(4000, 4), current_version=v) for v in (4, 6))
    joined = join_batches([(old, fresh), (new, fresh)])
    assert len(joined) == 1
    found = {r.key: r for r in readings_of("all", W, observe(*joined[0])["all"])}
    assert found["policy_lag/mean"].value == 1.0
    assert found["staleness/lag_0_p95"].n_tokens == found["staleness/lag_2_3_p95"].n_tokens == 4000
    assert len(join_batches([(old, fresh), (token_batch(**data, clip_range=0.3), fresh)])) == 2


def test_a_table_of_tools_that_grows_is_one_table(rng):
    """Names seen later widen the table; what an older table did not know stays `other`."""
    mask = np.ones((30, 9), bool)
    mask[:, 3:5] = False

    def told(tools, names, start):
        ids = np.arange(30) + start
        return token_batch(mask, logprobs=-rng.random((30, 9)), tools=tools, tool_names=names, episode_id=ids)

    first = told([["search"]] * 20 + [["calc"]] * 10, ("search",), 0)
    second = told([["calc"]] * 20 + [["rm"]] * 10, ("search", "calc"), 30)
    flags = np.ones(30, bool)
    (joined, _), *rest = join_batches([(first, flags), (second, flags)])
    assert not rest
    apart = [observe(first), observe(second)]
    together = observe(joined)
    found = {name: together[name].n_tokens for name in together if name.startswith("post_tool/")}
    assert found == {"post_tool/search": 80, "post_tool/calc": 80, "post_tool/other": 80}
    for name in ("post_tool", "text", "all"):
        assert together[name].n_tokens == sum(states[name].n_tokens for states in apart)
    assert len(join_batches([(second, flags), (first, flags)])) == 2


def test_lags_and_clip_shares_survive_the_disk(rng):
    batch = token_batch(**columns(rng), policy_version=np.arange(4000) % 5, current_version=5, clip_range=0.1)
    states = observe(batch)
    before = {r.key: r.value for r in readings_of("all", W, states["all"])}
    after = {r.key: r.value for r in readings_of("all", W, unpack_states(pack_states(states))["all"])}
    for key in before:
        if "lag" in key or "clip" in key:
            assert after[key] == pytest.approx(before[key], nan_ok=True), key


def test_only_the_main_slices_have_tail_indices_and_intervals(rng):
    batch = token_batch(**columns(rng))
    state = observe(batch)["all"]
    main = {r.key: r for r in readings_of("text", W, state, WindowShift())}
    other = {r.key: r for r in readings_of("turn/2-3", W, state, WindowShift())}
    gone = {
        key
        for key in main
        if key.rsplit("/", 1)[1] in ("hill", "gpd_shape", "hill_w", "hill_inverse", "n_eff")
    }
    assert set(main) - set(other) == gone
    for key in other:
        assert other[key].value == pytest.approx(main[key].value, nan_ok=True), key
    assert math.isfinite(main["mismatch/khat"].low)
    assert math.isnan(other["mismatch/khat"].low)
