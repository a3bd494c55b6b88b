"""Every reading against a closed form or an independent oracle, through `observe` and `readings_of`."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import numpy as np
import pytest

from tests.distributed.stragglers.emitted import machine_keys
from tests.measure.episodes import episode_keys
from tests.measure.policy import emitted_keys
from tests.measure.steps.emitted import step_keys
from tests.support import make_batch
from trimtab import BatchError, Convention, token_batch
from trimtab.catalog import METRIC_NAMES, READINGS
from trimtab.catalog.episode_readings import JOINT
from trimtab.detect.derived_readings import KEY as PROXY
from trimtab.detect.detectors.composite_reading import FAMILIES
from trimtab.detect.rules.all_rules import RULES
from trimtab.measure.accumulate import nonfinite_columns, observe
from trimtab.measure.all_measures import not_observed, pair_readings, readings_of
from trimtab.measure.policy.lagged_drift import Probes
from trimtab.measure.sequences.step_aggregates import StepAggregates
from trimtab.measure.state.blocks import pack_states, unpack_states
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.windows import WindowSet
from trimtab.measure.tokens.window_shift import WindowShift
from trimtab.types import Reading, Window

W = Window(0, 0)


def values(batch, name="all") -> dict[str, Reading]:
    return {r.key: r for r in readings_of(name, W, observe(batch)[name])}


def columns(rng, n=4000, s=0.3, length=40):
    """mu, pi_old, pi_theta with normal log-ratios, packed in sequences of `length`."""
    mu = -rng.exponential(1.0, n) - 5.0
    old = mu + s * rng.normal(size=n)
    theta = old + 0.1 * rng.normal(size=n)
    ref = theta - 0.2 * rng.standard_t(3, size=n)
    return {
        "loss_mask": np.ones(n, bool), "lengths": np.full(n // length, length),
        "rollout_logprobs": mu, "old_logprobs": old, "logprobs": theta, "ref_logprobs": np.minimum(ref, 0.0),
    }  # fmt: skip


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def test_every_key_is_in_the_catalog_and_every_rule_reads_an_emitted_key(rng):
    batch = make_batch(rng, sequences=64, mismatch=0.05, old_logprobs=None)
    emitted = {r.key for name, state in observe(batch).items() for r in readings_of(name, W, state)}
    full = token_batch(**columns(rng), advantages=rng.normal(size=4000), entropy=rng.uniform(size=4000))
    emitted |= {r.key for name, state in observe(full).items() for r in readings_of(name, W, state)}
    lags = {"policy_version": np.arange(4000) % 7, "current_version": 6}
    for aged in (
        token_batch(**columns(rng), **lags),
        token_batch(**{**columns(rng), "old_logprobs": None}, **lags),
    ):
        emitted |= {r.key for r in readings_of("all", W, observe(aged)["all"])}
    shift = WindowShift()
    emitted |= {r.key for _ in range(2) for r in readings_of("all", W, observe(full)["all"], shift)}
    states = observe(batch)
    emitted |= {r.key for r in pair_readings(W, states)}
    probes = Probes(observe)
    probes.update(0, batch)
    emitted |= {r.key for r in probes.update(5, batch)}
    aggregates = StepAggregates()
    aggregates.add(0, dict.fromkeys(METRIC_NAMES, 0.5))
    emitted |= {r.key for r in aggregates.apply([], W)}
    emitted |= emitted_keys() | episode_keys(rng)
    emitted |= step_keys(rng)
    emitted |= machine_keys(rng)
    assert emitted <= set(READINGS), emitted - set(READINGS)
    made_by_detectors = {"nonfinite/count", "silence/steps", *JOINT, PROXY}  # detect/pipeline.py
    assert {rule.key for rule in RULES} <= emitted | made_by_detectors
    assert {member.key[0] for members in FAMILIES.values() for member in members} <= emitted
    assert set(READINGS) - emitted == made_by_detectors


def test_tails_against_exact_order_statistics(rng):
    data = columns(rng)
    found = values(token_batch(**data))
    for name, top, bottom in (("mismatch", "old_logprobs", "rollout_logprobs"), ("drift", "logprobs", "ref_logprobs"),
                              ("total", "logprobs", "rollout_logprobs"), ("staleness", "logprobs", "old_logprobs")):  # fmt: skip
        x = np.sort(np.abs(np.float32(data[top]) - np.float32(data[bottom])))
        for label, q in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
            assert found[f"{name}/{label}"].value == pytest.approx(x[math.ceil(q * x.size) - 1], rel=0.016)
        assert found[f"{name}/max"].value == pytest.approx(x[-1], rel=1e-6)
        for tau in (1.5, 2, 3):
            assert found[f"{name}/exceed_{tau:g}"].value == pytest.approx(
                (x > math.log(tau)).mean(), abs=0.01
            )
        assert found[f"{name}/p99"].low <= found[f"{name}/p99"].value <= found[f"{name}/p99"].high


def test_ess_of_raw_weights_closed_form_and_exact(rng):
    data = columns(rng, n=40_000, s=0.3)
    found = values(token_batch(**data))
    w = np.exp(np.float32(data["old_logprobs"]) - np.float32(data["rollout_logprobs"]).astype(np.float64))
    assert found["mismatch/token_ess_frac"].value == pytest.approx(
        w.sum() ** 2 / (w**2).sum() / w.size, rel=1e-4
    )
    assert found["mismatch/token_ess_frac"].value == pytest.approx(math.exp(-(0.3**2)), abs=0.02)
    assert found["mismatch/token_spread"].value == pytest.approx(0.3, abs=0.01)
    per_sequence = np.log(w).reshape(-1, 40).sum(axis=1)
    v = np.exp(per_sequence - per_sequence.max())
    assert found["mismatch/sequence_ess_frac"].value == pytest.approx(
        v.sum() ** 2 / (v**2).sum() / v.size, rel=1e-3
    )
    assert found["mismatch/sequence_length"].value == 40
    assert found["mismatch/second_moment"].value == pytest.approx((w**2).mean(), rel=1e-4)


def test_ess_sees_the_tail_that_clamped_weights_hide():
    """facts/diagnostics.md 2.2: 100k tokens, 50 with weight e^2 to e^8: raw .006, clamped .999."""
    x = np.zeros(100_000)
    x[:50] = np.linspace(2, 8, 50)
    batch = token_batch(np.ones(100_000, bool), lengths=np.array([100_000]), rollout_logprobs=np.full(100_000, -10.0),
                        old_logprobs=-10.0 + x)  # fmt: skip
    assert values(batch)["mismatch/token_ess_frac"].value < 0.01


def test_kl_estimators_direction_and_exact_values(rng):
    data = columns(rng)
    found = values(token_batch(**data))
    x = np.float32(data["old_logprobs"]).astype(float) - np.float32(data["rollout_logprobs"]).astype(float)
    assert found["kl/rollout_old/k1"].value == pytest.approx(-x.mean(), rel=1e-3, abs=1e-5)
    assert found["kl/rollout_old/k3"].value == pytest.approx((np.exp(x) - 1 - x).mean(), rel=1e-3)
    d = np.float32(data["logprobs"]).astype(float) - np.float32(data["ref_logprobs"]).astype(float)
    assert found["kl/theta_ref/k1"].value == pytest.approx(d.mean(), rel=1e-3, abs=1e-5)
    assert found["kl/theta_ref/k3"].value == pytest.approx((np.exp(-d) - 1 + d).mean(), rel=1e-3)
    assert found["drift/second_moment_ref"].value == pytest.approx(np.exp(d).mean(), rel=1e-3)


def test_clip_shares_and_first_order_gap(rng):
    data = columns(rng)
    found = values(token_batch(**data))
    r = np.exp(np.float32(data["logprobs"]).astype(float) - np.float32(data["old_logprobs"]).astype(float))
    assert found["staleness/clip_high_frac"].value == pytest.approx((r > 1.2).mean(), abs=0.004)
    assert found["staleness/clip_low_frac"].value == pytest.approx((r < 0.8).mean(), abs=0.004)
    x = (
        np.float32(data["logprobs"]).astype(float) - np.float32(data["rollout_logprobs"]).astype(float)
    ).reshape(-1, 40)
    gap = np.abs(np.exp(x.sum(axis=1)) - 1 - np.expm1(x).sum(axis=1))
    assert found["total/first_order_gap_mean"].value == pytest.approx(gap.mean(), rel=1e-3)


def test_reference_support_entropy_alpha(rng):
    batch = make_batch(rng, sequences=64)
    found = values(batch)
    ref = batch.ref_logprobs[batch.loss_mask]
    assert found["ref_logprob/below_5_frac"].value == pytest.approx((ref < -5).mean(), abs=0.002)
    assert found["ref_logprob/p01"].value == pytest.approx(
        np.sort(ref)[math.ceil(0.01 * ref.size) - 1], rel=0.016
    )
    assert found["entropy/mean"].value == pytest.approx(batch.entropy[batch.loss_mask].mean(), rel=1e-5)
    assert found["alpha/frac"].value == 0.5


def test_concentration_of_mass(rng):
    n = 1000
    advantages = np.ones(n)
    advantages[:10] = 99.0  # ten tokens hold half of the mass
    batch = token_batch(
        np.ones(n, bool), lengths=np.full(10, 100), logprobs=np.full(n, -1.0), advantages=advantages
    )
    found = values(batch)
    assert found["weight_mass/top_token_frac"].value == pytest.approx(0.5, abs=0.01)
    assert found["weight_mass/top_trajectory_frac"].value == pytest.approx((990 + 90) / 1980, rel=1e-6)
    assert found["weight_mass/top_token_frac"].reference.startswith("w = 1")


def test_only_what_the_table_allows(rng):
    found = values(token_batch(**columns(rng)))
    assert not {"drift/token_ess_frac", "drift/khat", "staleness/khat", "staleness/sequence_ess_frac"} & set(
        found
    )
    assert found["staleness/token_ess_frac"].status == "not observed"  # mismatch of 0.3 is not small
    assert "mismatch is not small" in found["staleness/token_ess_frac"].reason


def test_two_names_of_one_policy_are_not_observed(rng):
    data = columns(rng)
    data["old_logprobs"] = data["logprobs"]
    states = observe(token_batch(**data, same=[("old_logprobs", "logprobs")]))
    assert "identically zero" in not_observed(states)["staleness"]
    assert "staleness/p99" not in {r.key for r in readings_of("all", W, states["all"])}


def test_conventions_must_agree(rng):
    mixed = {"rollout_logprobs": Convention(temperature=0.7), "old_logprobs": Convention()}
    with pytest.raises(BatchError, match="temperature"):
        observe(token_batch(**columns(rng), conventions=mixed))


def test_reference_scored_on_a_sample_of_sequences(rng):
    scored = np.arange(64) % 4 == 0
    whole, part = (
        make_batch(np.random.default_rng(5), sequences=64),
        make_batch(np.random.default_rng(5), sequences=64, ref_scored=scored),
    )
    rows = np.repeat(scored, whole.lengths)[whole.loss_mask]
    x = np.sort(np.abs(whole.logprobs - whole.ref_logprobs)[whole.loss_mask][rows])
    found = values(part)
    assert found["drift/p99"].value == pytest.approx(x[math.ceil(0.99 * x.size) - 1], rel=0.016)
    assert found["drift/p99"].n_tokens == x.size
    assert sum(found["drift/p99"].excluded.values()) == 64 * 80 - x.size
    assert found["drift/p99"].n_trajectories == 16
    assert found["entropy/mean"].n_tokens == 64 * 80


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_values_are_counted_not_hidden(rng, bad):
    logprobs = np.full((4, 20), -1.0)
    logprobs[1, 3] = bad if bad < 0 or math.isnan(bad) else -1.0
    reference = np.full((4, 20), -1.5)
    if bad == math.inf:
        reference[1, 3] = -math.inf  # drift +inf
    batch = token_batch(np.ones((4, 20), bool), logprobs=logprobs, ref_logprobs=reference)
    assert sum(nonfinite_columns(batch).values()) == 1
    found = values(batch)["drift/p99"]
    assert sum(found.excluded.values()) == 1
    assert found.n_tokens == 79
    assert found.value == pytest.approx(0.5, rel=0.016)


def test_empty_and_all_masked_batches_have_no_states():
    assert (
        observe(token_batch(np.zeros((2, 3), bool), exists=np.ones((2, 3), bool), logprobs=np.zeros((2, 3))))
        == {}
    )


def test_one_token_gives_readings_without_invention():
    found = values(
        token_batch(np.ones((1, 1), bool), logprobs=np.array([[-1.0]]), ref_logprobs=np.array([[-2.0]]))
    )
    assert found["drift/p99"].value == pytest.approx(1.0, rel=0.016)
    assert math.isnan(found["drift/p99"].low)


def test_micro_batches_equal_one_batch(rng):
    data = make_batch(rng, sequences=64)
    whole = observe(data)
    half = make_batch(np.random.default_rng(11), sequences=64)
    assert np.array_equal(half.logprobs, data.logprobs)
    cut = int(data.lengths[:32].sum())
    parts = []
    for part, rows in ((slice(0, cut), slice(0, 32)), (slice(cut, None), slice(32, None))):
        parts.append(observe(token_batch(
            data.loss_mask[part], lengths=data.lengths[rows], tool_tokens=~data.loss_mask[part],
            **{c: getattr(data, c)[part] for c in ("logprobs", "ref_logprobs", "advantages", "entropy")},
            reward=data.reward[rows], episode_id=data.episode_id[rows], reference="frozen copy",
        )))  # fmt: skip
    for name in ("all", "text", "post_tool"):
        merged = {r.key: r.value for r in readings_of(name, W, parts[0][name].merge(parts[1][name]))}
        for reading in readings_of(name, W, whole[name]):
            assert merged[reading.key] == pytest.approx(reading.value, rel=1e-6, abs=2e-7, nan_ok=True), (
                reading.key
            )


def test_states_survive_the_disk(rng):
    states = observe(make_batch(rng, sequences=64, mismatch=0.1))
    back = unpack_states(pack_states(states))
    assert set(back) == set(states)
    for name in states:
        before = {r.key: r for r in readings_of(name, W, states[name])}
        for reading in readings_of(name, W, back[name]):
            tolerance = (
                0.15 if "khat" in reading.key or "hill_" in reading.key else 1e-6
            )  # top-k is not kept on disk; k-hat from the histogram
            assert reading.value == pytest.approx(
                before[reading.key].value, rel=tolerance, abs=tolerance, nan_ok=True
            ), reading.key


def test_damaged_states_are_refused(rng):
    from trimtab import SummaryError

    text = pack_states(observe(make_batch(rng)))
    for broken in (text[:-8], "!" + text, text[: len(text) // 2] + "AAAA"):
        with pytest.raises(SummaryError):
            unpack_states(broken)
    with pytest.raises(SummaryError):
        SliceState.from_bytes(b"abc")


def test_states_of_before_bundles_are_still_read(rng):
    """Version 1: no magic, every part framed on its own."""
    state = observe(make_batch(rng, mismatch=0.1))["post_tool"]
    counts = (
        state.n_tokens,
        state.n_trajectories,
        state.n_sequences,
        state.scored_tokens,
        state.scored_trajectories,
    )
    stored = {k: p for k, p in state.summaries.items() if not k.endswith(("/upper", "/lower", "/worst"))}
    notes = "\x1e".join(f"{k}\x1f{v}" for k, v in state.notes.items())
    chunks = [b"told: why\x1f7", notes.encode()]
    for key, part in stored.items():
        chunks += [key.encode(), part.to_bytes()]
    head = struct.pack("<qqqqqdd", *counts, state.top_mass, state.sum_mass)
    old = SliceState.from_bytes(head + b"".join(struct.pack("<I", len(c)) + c for c in chunks))
    new = SliceState.from_bytes(state.to_bytes())
    assert old.summaries == new.summaries == stored
    assert replace(old, excluded={}, summaries={}) == replace(new, excluded={}, summaries={})
    assert old.excluded == {"told: why": 7}
    assert set(SliceState.from_bytes(state.to_bytes(), ["drift/sketch"]).summaries) == {"drift/sketch"}


def test_windows_wait_for_tokens_and_trajectories(rng):
    windows = WindowSet()
    closed_at = []
    for step in range(8):
        closed, pair = windows.add(step, step, observe(make_batch(rng, sequences=8, step=step)))
        closed_at.append(({name for name, _ in closed}, pair.window if pair else None))
    # 8 trajectories, 320 text and 320 post-tool tokens a step: 2,000 tokens and 30 trajectories need 7 steps
    assert closed_at[6][1] == Window(0, 6)
    assert all(pair is None for i, (_, pair) in enumerate(closed_at) if i != 6)
    assert "all" in closed_at[3][0]  # 2,560 tokens, 32 trajectories


def test_many_tokens_of_few_trajectories_close_no_window(rng):
    windows = WindowSet()
    states = [
        observe(make_batch(rng, sequences=15, step=step)) for step in range(3)
    ]  # 80 tokens a trajectory
    steps = [windows.add(step, step, part)[0] for step, part in enumerate(states)]
    assert [{name for name, _ in closed} & {"all"} for closed in steps] == [set(), {"all"}, set()]
    windows = WindowSet(min_tokens=100)
    assert [windows.add(step, step, part)[0] != [] for step, part in enumerate(states)] == [
        False,
        True,
        False,
    ]


def test_a_trajectory_trained_on_twice_is_one(rng):
    states = observe(make_batch(rng, sequences=64), np.zeros(64, bool))
    assert states["text"].n_trajectories == 0
    assert states["text"].n_tokens == 64 * 40


def test_probes_measure_the_policy_and_not_its_inputs(rng):
    batch = make_batch(rng, sequences=16)
    probes = Probes(observe)
    assert probes.update(0, batch) == []
    from dataclasses import replace

    moved = replace(batch, logprobs=batch.logprobs - np.where(batch.phase > 0, 0.5, 0.1).astype(np.float32))
    found = {(r.slice, r.key): r for r in probes.update(10, moved)}
    assert found["text", "lagged_drift/p99"].value == pytest.approx(0.1, rel=0.016)
    assert found["post_tool", "lagged_drift/p99"].value == pytest.approx(0.5, rel=0.016)
    assert found["text", "lagged_drift/p99"].window == Window(1, 10)
    with pytest.raises(BatchError, match="keep them fixed"):
        probes.update(20, make_batch(rng, sequences=8))
