"""Shape of answers against plain Python over token lists."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from tests.measure.episodes import episode_batch, readings
from trimtab import token_batch
from trimtab.measure.sequences.response_shape import MAX_LOOKED_AT


@pytest.fixture
def rng():
    return np.random.default_rng(4)


def test_lengths_and_stop_reasons(rng):
    lengths = rng.integers(1, 200, 300)
    mask = np.arange(200)[None, :] < lengths[:, None]
    stop = rng.choice(["eos", "length", "MAX_TOKENS"], 300).tolist()
    batch = token_batch(mask, stop_reason=stop)
    found = {key: r.value for (_, key), r in readings([[batch]]).items()}
    assert found["aggregate/length_max"] == lengths.max()
    assert found["length/p95"] == pytest.approx(np.sort(lengths)[math.ceil(0.95 * 300) - 1], rel=0.016)
    assert found["aggregate/truncated_frac"] == sum(s != "eos" for s in stop) / 300
    assert found["aggregate/empty_frac"] == pytest.approx((lengths < 2).mean())
    assert found["aggregate/num_turns"] == 1
    assert "aggregate/no_call_frac" not in found  # nothing says that there are tools
    assert "aggregate/repetition_frac" not in found


def brute_repetition(tokens):
    grams = [tuple(run[i : i + 4]) for run in tokens for i in range(len(run) - 3)]
    return 1 - len(set(grams)) / len(grams) if grams else None


def test_repetition_is_counted_within_turns(rng):
    """Rows of own tokens O and tool tokens T: OOOOOOTTOOOOOOOO."""
    ids = rng.integers(0, 2, (50, 16))
    mask = np.ones((50, 16), bool)
    mask[:, 6:8] = False
    found = readings([[token_batch(mask, token_ids=ids)]])["all", "aggregate/repetition_frac"]
    exact = [brute_repetition([row[:6].tolist(), row[8:].tolist()]) for row in ids]
    assert found.value == pytest.approx(statistics.fmean(exact))
    assert found.n_tokens == 50


def test_repetition_looks_at_a_bounded_number_of_tokens_and_says_so(rng):
    width = MAX_LOOKED_AT // 4
    batch = token_batch(np.ones((6, width), bool), token_ids=np.zeros((6, width), int))
    found = readings([[batch]])["all", "aggregate/repetition_frac"]
    assert found.n_tokens == 4
    assert found.value == pytest.approx(1 - 1 / (width - 3))
    assert found.excluded["aggregate: sequence not looked at for repetition"] == 2


def rows_of(*texts):
    """One letter a token: o own, t tool, x neither (masked), padded by spaces."""
    grid = np.array([list(text) for text in texts])
    return {"loss_mask": grid == "o", "exists": grid != " ", "tool_tokens": grid == "t"}


def test_turns_calls_and_void_turns():
    batch = token_batch(
        **rows_of(
            "oottoott  ",  # two calls, ends with a result: no void turn
            "oottooo   ",  # a call and an answer
            "oottoooooo",  # a call, then cut at the limit: void
            "ooooo     ",  # no call, an answer
            "oottot    ",  # a result, one token, a result: two turns
            "ootto     ",  # a call, then one token: void
        ),
        stop_reason=["tool", "eos", "length", "eos", "length", "eos"],
        tools=[["a", "a"], ["a"], ["a"], [], ["a", "a"], ["a"]],
    )
    found = {key: r for (_, key), r in readings([[batch]]).items()}
    assert found["aggregate/num_turns"].value == pytest.approx((2 + 2 + 2 + 1 + 2 + 2) / 6)
    assert found["aggregate/no_call_frac"].value == pytest.approx(1 / 6)
    assert found["aggregate/void_turn_frac"].value == pytest.approx(2 / 11)
    assert found["aggregate/void_turn_frac"].n_tokens == 11


def test_void_turns_need_stop_reasons():
    found = readings([[token_batch(**rows_of("oottoo", "oooooo"))]])
    assert ("all", "aggregate/void_turn_frac") not in found
    assert found["all", "aggregate/no_call_frac"].value == 0.5


def test_declared_tools_that_nobody_calls(rng):
    batch = episode_batch(rng, tools=[[] for _ in range(32)], tool_names=["search"])
    assert readings([[batch]])["all", "aggregate/no_call_frac"].value == 1.0


def test_masked_sequences_are_left_out_and_counted():
    batch = token_batch(**rows_of("oooo", "xxxx", "o   "), stop_reason=["eos", "masked", "eos"])
    found = {key: r for (_, key), r in readings([[batch]]).items()}
    assert found["aggregate/empty_frac"].value == 0.5
    assert found["aggregate/empty_frac"].excluded == {"aggregate: sequence masked by the trainer": 1}
    assert found["length/p95"].n_tokens == 2


def test_micro_batches_of_a_step_are_one_batch(rng):
    """Also when some lack columns: each measure rests on the sequences that have what it needs."""
    stop = ["eos", "length"] * 16
    batch = episode_batch(rng, stop_reason=stop)
    ids, logps = batch.token_ids.reshape(32, 30), batch.logprobs.reshape(32, 30)
    parts = [
        episode_batch(rng, sequences=8, token_ids=ids[i : i + 8], logprobs=logps[i : i + 8], reward=batch.reward[i : i + 8],
                      reward_parts={}, group=batch.group[i : i + 8], stop_reason=stop[i : i + 8])
        for i in range(0, 32, 8)
    ]  # fmt: skip
    bare = token_batch(np.ones((4, 7), bool), logprobs=np.full((4, 7), -1.0))
    whole, split = readings([[batch]]), readings([[*parts[:2], bare, *parts[2:]]])
    for name in ("truncated_frac", "repetition_frac", "correct_logp", "reward_length_corr", "zero_std_frac"):
        one, two = whole["all", f"aggregate/{name}"], split["all", f"aggregate/{name}"]
        assert (two.value, two.n_tokens) == (pytest.approx(one.value, nan_ok=True), one.n_tokens), name
    assert split["all", "length/p95"].n_tokens == 36
