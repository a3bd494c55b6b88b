"""Reward readings against plain Python over the sequences, however batches and ranks split the groups."""

from __future__ import annotations

import math
import statistics
from itertools import groupby

import numpy as np
import pytest

import trimtab
from tests.measure.episodes import episode_batch, on_disk, readings
from trimtab import SummaryError
from trimtab.measure.state.blocks import pack_states, unpack_states
from trimtab.measure.state.reward_groups import MAX_GROUPS, GroupSums
from trimtab.measure.state.slice_state import SliceState
from trimtab.report.run_view import load_view


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def by_group(rewards, groups):
    pairs = sorted(zip(groups, rewards, strict=True))
    return [[r for _, r in rows] for _, rows in groupby(pairs, key=lambda pair: pair[0])]


def test_spread_and_shares_of_groups(rng):
    batch = episode_batch(rng, sequences=400)
    found = readings([[batch]], solved_at=1.0)
    groups = by_group(batch.reward.tolist(), batch.group.tolist())
    assert found["all", "aggregate/reward_std"].value == pytest.approx(
        statistics.fmean(statistics.stdev(g) for g in groups)
    )
    expected = {
        "zero_std_frac": sum(len(set(g)) == 1 for g in groups),
        "solved_all_frac": sum(min(g) >= 1 for g in groups),
        "solved_none_frac": sum(max(g) < 1 for g in groups),
    }
    for name, count in expected.items():
        reading = found["all", f"aggregate/{name}"]
        assert (reading.value, reading.n_tokens) == (pytest.approx(count / 100), 100), name


def test_a_group_split_over_batches_is_one_group(rng):
    batch = episode_batch(rng, sequences=64, group=np.arange(64) % 8)
    rows = np.arange(64).reshape(4, 16)
    split = [
        episode_batch(rng, sequences=16, reward=batch.reward[part], group=batch.group[part], reward_parts={})
        for part in rows
    ]
    whole, parts = readings([[batch]]), readings([split])
    for name in ("reward_std", "zero_std_frac", "extreme_reward_frac", "reward_max"):
        key = ("all", f"aggregate/{name}")
        assert parts[key].value == pytest.approx(whole[key].value), name
    assert parts["all", "aggregate/reward_std"].n_tokens == 8


def test_group_numbers_may_start_over_at_each_step(rng):
    steps = [[episode_batch(rng, sequences=16)] for _ in range(3)]
    assert readings(steps)["all", "aggregate/zero_std_frac"].n_tokens == 12
    joined = readings(steps, groups_span_steps=True)["all", "aggregate/zero_std_frac"]
    assert joined.n_tokens == 4


def test_extremes_length_parts_and_likelihood(rng):
    mask = rng.uniform(size=(200, 30)) < rng.uniform(0.2, 1.0, (200, 1))
    batch = episode_batch(rng, sequences=200, loss_mask=mask, exists=np.ones((200, 30), bool),
                          tool_tokens=np.zeros((200, 30), bool))  # fmt: skip
    found = {key: r.value for (name, key), r in readings([[batch]]).items() if name == "all"}
    reward, length = batch.reward, mask.sum(axis=1)
    assert found["aggregate/extreme_reward_frac"] == pytest.approx(((reward == 0) | (reward == 1)).mean())
    assert found["aggregate/reward_length_corr"] == pytest.approx(np.corrcoef(reward, length)[0, 1])
    assert (found["aggregate/reward_max"], found["aggregate/reward_min"]) == (1.0, 0.0)
    logp = batch.logprobs.reshape(200, 30).astype(float)
    above = [i for i in range(200) if reward[i] > statistics.fmean(reward[batch.group == batch.group[i]])]
    means = [logp[i][mask[i]].mean() for i in above if mask[i].any()]
    assert found["aggregate/correct_logp"] == pytest.approx(statistics.fmean(means), rel=1e-6)
    solved = readings([[batch]], solved_at=0.5)["all", "aggregate/correct_logp"]
    means = [logp[i][mask[i]].mean() for i in range(200) if reward[i] >= 0.5 and mask[i].any()]
    assert solved.value == pytest.approx(statistics.fmean(means), rel=1e-6)


def test_parts_of_the_reward_have_slices_of_their_own(rng):
    batch = episode_batch(rng, reward_parts={"format": np.full(32, 0.25), "answer/x": np.arange(32.0)})
    found = readings([[batch]])
    assert found["reward/format", "reward_part/mean"].value == 0.25
    assert found["reward/answer/x", "reward_part/mean"].value == 15.5


def test_what_is_not_there_is_nan_and_counted(rng):
    reward = np.ones(8)
    reward[3] = math.nan
    found = readings([[episode_batch(rng, sequences=8, reward=reward, group=np.arange(8))]])
    std = found["all", "aggregate/reward_std"]
    assert (std.status, std.n_tokens, std.reason) == ("not observed", 0, "no group has two rewards")
    assert math.isnan(std.value)
    assert std.excluded == {"aggregate: reward not finite": 1}
    assert found["all", "aggregate/reward_length_corr"].status == "not observed"
    assert found["all", "aggregate/extreme_reward_frac"].n_tokens == 7
    without = readings([[episode_batch(rng, reward=None, reward_parts={})]])
    assert not any("reward" in key for _, key in without)


def test_a_trajectory_trained_on_twice_counts_once(rng):
    batch = episode_batch(rng, episode_id=np.arange(32))
    from trimtab.measure.sequences.episode_totals import Episodes

    gathered = Episodes()
    gathered.add(batch, np.arange(32) < 8)
    gathered.add(batch, np.zeros(32, bool))
    gathered.close(0)
    gathered.fill({})
    assert gathered.pending.summaries["reward/edges"].count == 8


def sums(rng, step):
    made = GroupSums()
    made.update(step, rng.integers(0, 9, 40), rng.normal(size=40), 0.5)
    return made


def close(a, b):
    assert a.rows.keys() == b.rows.keys()
    for key, row in a.rows.items():
        assert row == pytest.approx(b.rows[key])
    assert a.totals() == pytest.approx(b.totals())


def test_group_sums_obey_the_merge_laws(rng):
    a, b, c = sums(rng, 0), sums(rng, 0), sums(rng, 1)

    def merged(*parts):
        out = GroupSums()
        for part in parts:
            out.absorb(part)
        return out

    close(merged(a, b), merged(b, a))
    close(merged(merged(a, b), c), merged(a, merged(b, c)))
    before = a.copy()
    merged(a, b)
    assert a == before == merged(a) == GroupSums.from_bytes(a.to_bytes())
    state = SliceState(summaries={"reward/groups": merged(a, c)})
    assert unpack_states(pack_states({"all": state}))["all"].summaries == state.summaries
    with pytest.raises(SummaryError):
        SliceState.from_bytes(state.to_bytes()[:-3])


def test_open_groups_are_bounded_and_what_is_closed_early_is_told():
    made, rng = GroupSums(), np.random.default_rng(0)
    count = MAX_GROUPS + 100
    reward = rng.normal(size=2 * count)
    made.update(0, np.repeat(np.arange(count), 2), reward, None)
    assert len(made.rows) == MAX_GROUPS
    totals = made.totals()
    assert (totals.groups, totals.closed_early) == (count, 100)
    exact = reward.reshape(-1, 2).std(axis=1, ddof=1).sum()
    assert totals.sum_std == pytest.approx(exact)
    assert GroupSums.from_bytes(made.to_bytes()) == made


def test_a_run_and_its_merged_ranks_tell_the_same_groups(rng, tmp_path):
    """Each rank holds half of every group; the view merges before it takes a spread."""
    batches = [episode_batch(rng, sequences=64, group=np.arange(64) % 16) for _ in range(4)]
    for rank in range(2):
        half = slice(32 * rank, 32 * rank + 32)
        with trimtab.open_run(
            tmp_path / "run", rank=rank, strict=True, state_every=1, min_tokens=10, min_trajectories=2
        ) as run:
            for step, batch in enumerate(batches):
                run.observe(
                    episode_batch(rng, reward=batch.reward[half], group=batch.group[half], reward_parts={})
                )
                run.flush(step)  # fmt: skip
    whole = load_view(tmp_path / "run").series("aggregate/reward_std", "all")
    for batch, reading in zip(batches, whole, strict=True):
        groups = by_group(batch.reward.tolist(), batch.group.tolist())
        assert reading.value == pytest.approx(statistics.fmean(statistics.stdev(g) for g in groups))


def test_the_trainers_own_number_goes_first(rng, tmp_path):
    with trimtab.open_run(tmp_path / "run", strict=True, min_tokens=10, min_trajectories=2) as run:
        run.observe(episode_batch(rng))
        run.flush(0, {"reward_std": 7.0})
    found = on_disk(tmp_path / "run")
    assert [r.value for r in found["all", "aggregate/reward_std"]] == [7.0]
    assert 0 < found["all", "aggregate/zero_std_frac"][0].value < 1


def test_every_part_of_the_reward_is_on_disk(rng, tmp_path):
    parts = {"format": np.full(32, 0.25), "answer": np.arange(32.0)}
    with trimtab.open_run(tmp_path / "run", strict=True, min_tokens=10, min_trajectories=2) as run:
        run.observe(episode_batch(rng, reward_parts=parts))
        run.flush(0, {"reward": 7.0})
    found = on_disk(tmp_path / "run")
    assert [r.value for r in found["reward/format", "reward_part/mean"]] == [0.25]
    assert [r.value for r in found["reward/answer", "reward_part/mean"]] == [15.5]
