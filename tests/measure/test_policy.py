"""Routes, rare tokens, tool borders, retrieval and gradients against brute force or a closed form."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import trimtab
from tests.measure.policy import cut, rich_batch, rich_columns, routes, values
from trimtab import BatchError, token_batch
from trimtab.catalog import BOUNDARY_TOKENS, MAIN_SLICES, PROB_BANDS
from trimtab.measure.accumulate import observe
from trimtab.measure.all_measures import not_observed, readings_of
from trimtab.measure.policy import expert_agreement as routing
from trimtab.measure.policy import prompt_retrieval as ngrams
from trimtab.measure.policy.gradients import gradient_values, snr, total_variance
from trimtab.measure.policy.input_dependence import Distinguish, distinguish
from trimtab.measure.state.blocks import pack_states, unpack_states
from trimtab.report.run_view import load_view
from trimtab.types import Window

W = Window(0, 0)
TURN_ROWS = ("all", "text", "post_tool", "turn/2-3", "turn/4-7")


def inside(batch, name: str) -> np.ndarray:
    """Gradient tokens of a slice, from first principles: how many results came before?"""
    turn = batch.turn
    chosen = {"all": turn > 0, "text": turn == 1, "post_tool": turn > 1, "turn/2-3": (turn > 1) & (turn < 4),
              "turn/4-7": (turn > 3) & (turn < 8)}[name]  # fmt: skip
    return chosen & batch.loss_mask


def order_statistic(x: np.ndarray, q: float) -> float:
    return float(np.sort(x)[math.ceil(q * x.size) - 1])


# --- routes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TURN_ROWS)
def test_routing_against_python_sets(name):
    batch = rich_batch()
    found = values(batch, name)
    at = np.flatnonzero(inside(batch, name))
    sets = [[(set(a), set(b)) for a, b in zip(batch.routed_experts[i].tolist(), batch.rollout_routed_experts[i].tolist(), strict=True)]
            for i in at]  # fmt: skip
    share = np.array([[len(a & b) / len(a) for a, b in token] for token in sets])
    changed = np.array([any(a != b for a, b in token) for token in sets])
    assert found["routing/agree_frac"].value == pytest.approx(share.mean())
    assert found["routing/same_set_frac"].value == pytest.approx((share == 1).mean())
    assert found["routing/worst_layer_frac"].value == pytest.approx(share.mean(axis=0).min())
    assert f"layer {share.mean(axis=0).argmin()} " in found["routing/worst_layer_frac"].reason
    assert found["routing/any_layer_changed_frac"].value == pytest.approx(changed.mean())
    x = np.abs(batch.old_logprobs - batch.rollout_logprobs)[at]
    for part, which in (("changed", changed), ("same", ~changed)):
        reading = found[f"routing/mismatch_p95_{part}"]
        assert (reading.value, reading.n_tokens) == (
            pytest.approx(order_statistic(x[which], 0.95), rel=0.016),
            which.sum(),
        )


def test_tokens_without_a_route_are_counted_and_a_cap_is_too(monkeypatch):
    columns = rich_columns(np.random.default_rng(3))
    columns["rollout_routed_experts"][::2] = -1
    found = values(token_batch(**columns))["routing/agree_frac"]
    kept = int(columns["loss_mask"][1::2].sum())
    assert found.n_tokens == kept
    assert found.excluded["routing: token without a recorded route"] == columns["loss_mask"].sum() - kept
    monkeypatch.setattr(routing, "MAX_TOKENS", 50)
    capped = values(rich_batch())["routing/agree_frac"]
    assert capped.n_tokens <= 50
    assert capped.n_tokens + capped.excluded["routing: token not sampled"] == rich_batch().loss_mask.sum()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (np.zeros((4, 2, 2), int), "names one expert twice"),
        (np.zeros((4, 2), int), r"expected \(4, 'L', 'K'\)"),
        (np.full((4, 2, 2), 0.5), "whole numbers"),
        (np.array([[[0, 1], [-1, 2]]] * 4), "lacks part of the route"),
        (np.array([[[0, 40_000]]] * 4), "expert indices lie in"),
        (np.array([[[0, 1, 2]]] * 4), "has shape"),
    ],
)
def test_bad_routes_are_refused_in_one_line(bad, says):
    good = np.array([[[0, 1]]] * 4)
    with pytest.raises(BatchError, match=says) as error:
        token_batch(np.ones(4, bool), lengths=[4], routed_experts=good, rollout_routed_experts=bad)
    assert "routed_experts" in str(error.value)
    assert "\n" not in str(error.value)


def test_padded_routes_are_packed_like_every_column():
    rng = np.random.default_rng(0)
    exists = np.array([[True, True, False], [True, True, True]])
    padded = routes(rng, 6).reshape(2, 3, 3, 2)
    batch = token_batch(exists, exists=exists, routed_experts=padded, rollout_routed_experts=padded)
    assert np.array_equal(batch.routed_experts, padded[exists])
    assert values(batch)["routing/agree_frac"].value == 1.0
    assert values(batch)["routing/mismatch_p95_same"].status == "not observed"


def test_routes_reach_the_run_folder_also_when_steps_are_joined(tmp_path):
    with trimtab.open_run(
        tmp_path / "run", strict=True, min_tokens=600, min_trajectories=2, state_every=10
    ) as run:
        for step in range(8):
            columns = rich_columns(np.random.default_rng(step))
            run.observe(**{**columns, "episode_id": np.arange(24) + 100 * step})
            run.flush(step, {"reward": 1.0})
    view = load_view(tmp_path / "run")
    assert view.errors == []
    for key in (
        "routing/agree_frac",
        "mismatch/p95_prob_le_1e-3",
        "distinguish/ngram_retrieval_accuracy",
        "entropy/p95",
    ):
        assert [r.value for r in view.series(key, "all")], key
    assert view.series("entropy/after_tool_jump", "post_tool")
    ((_, states),) = view.stored()
    agree = {r.key: r.value for r in readings_of("all", W, states["all"])}["routing/agree_frac"]
    each = [values(rich_batch(step))["routing/agree_frac"] for step in range(8)]
    total = sum(r.n_tokens for r in each)
    assert agree == pytest.approx(sum(r.value * r.n_tokens for r in each) / total)


# --- rare tokens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAIN_SLICES)
def test_mismatch_by_probability_of_the_sampler(name):
    batch = rich_batch(sequences=60)
    found, mu = values(batch, name), np.exp(batch.rollout_logprobs.astype(float))
    for band, (above, up_to) in PROB_BANDS.items():
        chosen = inside(batch, name) & (mu > above) & (mu <= up_to)
        x = np.abs(batch.old_logprobs - batch.rollout_logprobs)[chosen]
        reading = found[f"mismatch/p95_prob_{band}"]
        assert reading.n_tokens == chosen.sum()
        if chosen.any():
            assert reading.value == pytest.approx(order_statistic(x, 0.95), rel=0.016)
        else:
            assert (reading.status, math.isnan(reading.value)) == ("not observed", True)


# --- entropy at tool borders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["post_tool", "post_tool/search", "post_tool/sql"])
def test_entropy_before_and_after_each_result_by_hand(name):
    batch = rich_batch(5, sequences=40)
    pairs, lone, start = [], 0, 0
    names = rich_columns(np.random.default_rng(5), 40)["tools"]
    for i, length in enumerate(batch.lengths.tolist()):
        own, turn = batch.loss_mask[start : start + length], batch.turn[start : start + length]
        entropy = batch.entropy[start : start + length].astype(float)
        for result in range(2, int(turn.max()) + 1):
            if name != "post_tool" and names[i][result - 2] != name.split("/")[1]:
                continue
            before = entropy[own & (turn == result - 1)][-BOUNDARY_TOKENS:]
            after = entropy[own & (turn == result)][:BOUNDARY_TOKENS]
            if before.size and after.size:
                pairs.append((before.mean(), after.mean()))
            else:
                lone += 1
        start += length
    found = values(batch, name)
    mean = np.mean(pairs, axis=0)
    assert found["entropy/before_call"].value == pytest.approx(mean[0], rel=1e-6)
    assert found["entropy/after_tool"].value == pytest.approx(mean[1], rel=1e-6)
    assert found["entropy/after_tool_jump"].value == pytest.approx(mean[1] - mean[0], rel=1e-5)
    assert found["entropy/after_tool_jump"].n_tokens == len(pairs)
    assert lone > 0
    assert (
        found["entropy/after_tool_jump"].excluded[
            "entropy: tool result without a gradient token on both sides"
        ]
        == lone
    )


def test_a_planted_jump_is_found_and_a_sequence_that_begins_with_a_result_is_left_out():
    mask = np.array([True] * 10 + [False] * 3 + [True] * 20 + [False, True])
    entropy = np.where(np.arange(mask.size) < 10, 0.5, 1.25)
    entropy[:2] = 9.0  # further than eight tokens from the call's end
    entropy[21:] = 7.0  # further than eight from the result
    batch = token_batch(mask, lengths=[33, 2], tool_tokens=~mask, entropy=entropy)
    found = values(batch, "post_tool")["entropy/after_tool_jump"]
    assert (found.value, found.n_tokens, sum(found.excluded.values())) == (0.75, 1, 1)


@pytest.mark.parametrize("name", MAIN_SLICES)
def test_entropy_quantiles(name):
    batch = rich_batch(sequences=40)
    x = batch.entropy[inside(batch, name)]
    for label, q in (("p05", 0.05), ("p95", 0.95)):
        assert values(batch, name)[f"entropy/{label}"].value == pytest.approx(
            order_statistic(x, q), rel=0.016
        )


# --- which prompt does a response answer? ----------------------------------------------------------------------------


def responses(texts: list[list[int]], group: list[int]):
    flat = np.concatenate([np.array(text) for text in texts])
    return token_batch(
        np.ones(flat.size, bool), lengths=[len(t) for t in texts], token_ids=flat, group=np.array(group)
    )


def by_hand(texts: list[list[int]], group: list[int]) -> float:
    """Cosine of centred square roots of pair counts, in plain Python and without hashing."""
    counts = [[tuple(pair) for pair in itertools.pairwise(text)] for text in texts]
    grams = sorted({gram for row in counts for gram in row})
    roots = [[math.sqrt(row.count(gram)) for gram in grams] for row in counts]
    middle = [sum(column) / len(texts) for column in zip(*roots, strict=True)]
    rows = [[x - m for x, m in zip(row, middle, strict=True)] for row in roots]
    hits = []
    for i, mine in enumerate(rows):
        score = {
            j: sum(a * b for a, b in zip(mine, other, strict=True)) / math.hypot(*mine) / math.hypot(*other)
            for j, other in enumerate(rows)
            if j != i
        }
        tied = [j for j, s in score.items() if s > max(score.values()) - 1e-6]
        if group.count(group[i]) > 1:
            hits.append(sum(group[j] == group[i] for j in tied) / len(tied))
    return sum(hits) / len(hits)


def test_ngram_retrieval_by_hand(monkeypatch):
    monkeypatch.setattr(ngrams, "BUCKETS", 1 << 16)  # no collisions among a hundred pairs
    rng = np.random.default_rng(4)
    group = [0, 0, 0, 1, 1, 2, 2, 2, 3]
    topic = rng.integers(0, 12, (4, 6))
    texts = [[*rng.permutation(topic[g]).tolist(), *rng.integers(0, 12, 5).tolist()] for g in group]
    found = values(responses(texts, group))["distinguish/ngram_retrieval_accuracy"]
    assert 0.2 < found.value < 0.9  # neither all nor nothing, so that the comparison says something
    assert found.value == pytest.approx(by_hand(texts, group), abs=1e-6)
    assert found.n_tokens == 8  # the one alone in its group is no query
    assert found.excluded["distinguish: response not compared"] == 1
    assert found.reason == f"chance {(3 * 2 + 2 + 3 * 2) / 8 / 8:.3f}"


def test_identical_templates_retrieve_at_chance_and_distinct_ones_always():
    group = [0] * 4 + [1] * 4 + [2] * 4
    same = values(responses([[1, 2, 3, 4, 5]] * 12, group))["distinguish/ngram_retrieval_accuracy"]
    assert same.value == pytest.approx(3 / 11)
    assert same.reason == "chance 0.273"
    distinct = [
        [10 * g + 1, 10 * g + 2, 10 * g + 3, int(x)] for g, x in zip(group, range(100, 112), strict=True)
    ]
    assert values(responses(distinct, group))["distinguish/ngram_retrieval_accuracy"].value == 1.0


def test_a_random_template_is_near_chance_although_every_response_differs(monkeypatch):
    """Template collapse: high entropy, no dependence on the prompt."""
    monkeypatch.setattr(ngrams, "MAX_SEQUENCES", 64)
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(8), 8).tolist()
    texts = rng.integers(0, 20, (64, 60)).tolist()
    found = values(responses(texts, group))["distinguish/ngram_retrieval_accuracy"]
    assert found.value == pytest.approx(7 / 63, abs=0.1)


def test_more_responses_than_the_cap_are_counted(monkeypatch):
    monkeypatch.setattr(ngrams, "MAX_SEQUENCES", 8)
    found = values(rich_batch())["distinguish/ngram_retrieval_accuracy"]
    assert found.n_tokens + found.excluded["distinguish: response not compared"] == 24
    assert found.n_tokens <= 8


@pytest.mark.parametrize("size", [2, 8, 32])
def test_the_sample_holds_two_or_more_of_several_groups_of_any_size(size):
    group = np.repeat(np.arange(64 // size), size)
    texts = [[100 * g + i for i in range(6)] for g in group.tolist()]
    found = values(responses(texts, group.tolist()))["distinguish/ngram_retrieval_accuracy"]
    each = max(2, ngrams.MAX_SEQUENCES * size // 64)
    assert (found.value, found.n_tokens) == (1.0, ngrams.MAX_SEQUENCES)
    assert found.reason == f"chance {(each - 1) / (ngrams.MAX_SEQUENCES - 1):.3f}"


def test_groups_of_different_steps_are_different_prompts(tmp_path):
    """Group 0 of one step is not group 0 of the next, although both are measured in one call."""
    with trimtab.open_run(tmp_path / "run", strict=True, min_tokens=10**6, state_every=4) as run:
        for step in range(4):
            texts = [[100 * step + 10 * g + i for i in range(6)] for g in (0, 0, 1, 1)]
            run.observe(responses(texts, [0, 0, 1, 1]))
            run.flush(step, {"reward": 1.0})
    ((_, states),) = load_view(tmp_path / "run").stored()
    hits, chance = (states["all"].summaries[f"distinguish_{part}/values"] for part in ("hits", "chance"))
    assert (hits.mean(), hits.count, chance.mean()) == (1.0, 16, pytest.approx(1 / 15))


@pytest.mark.parametrize("span", [False, True])
def test_a_group_split_over_two_micro_batches_is_one_group_to_every_measure(tmp_path, span):
    """Rewards and retrieval read the same number as the same prompt: in a step, and over steps only where declared."""
    with trimtab.open_run(
        tmp_path / "run", strict=True, min_tokens=10**6, state_every=2, groups_span_steps=span
    ) as run:
        for step in range(2):
            for half in range(2):  # of each group, and of each prompt
                part = responses([[10 * g + i for i in range(6)] for g in (0, 1, 0, 1)], [0, 1, 0, 1])
                run.observe(replace(part, reward=np.array([0.0, 1.0, half, 1.0])))
            run.flush(step, {"grad_norm": 1.0})
    ((_, states),) = load_view(tmp_path / "run").stored()
    chance, groups = (
        states["all"].summaries["distinguish_chance/values"],
        states["all"].summaries["reward/groups"],
    )
    mates = 7 if span else 3  # of 15 others, that share the prompt
    assert (chance.count, chance.mean()) == (16, pytest.approx(mates / 15))
    totals = groups.totals()
    assert (totals.groups, totals.zero) == ((2, 1) if span else (4, 2))


def test_matrix_retrieval_and_information_by_hand():
    rng = np.random.default_rng(1)
    scores, own = rng.normal(-2.0, 1.0, (40, 6)), rng.integers(0, 6, 40)
    scores[np.arange(40), own] += 1.0
    found = distinguish(scores, own)
    hits = [
        int(max(range(6), key=lambda j: row[j]) == mine)
        for row, mine in zip(scores.tolist(), own, strict=True)
    ]
    inner = [
        row[mine] - math.log(sum(map(math.exp, row)) / 6)
        for row, mine in zip(scores.tolist(), own, strict=True)
    ]
    assert found.accuracy == pytest.approx(np.mean(hits))
    assert found.information == pytest.approx(np.mean(inner))


def test_retrieval_says_chance_or_why_there_is_none():
    level, own = np.linspace(-3, -1, 12).reshape(3, 4), np.arange(3)
    seen = {v.key: (v.n, v.reason) for v, _ in Distinguish().update(level, own)}
    assert seen["distinguish/retrieval_accuracy"] == (3, "chance 0.25, 4 prompts")
    assert seen["distinguish/mutual_information"] == (3, "")
    none = {v.key: (v.n, v.reason) for v, _ in Distinguish().update(np.full((3, 4), math.nan), own)}
    assert set(none.values()) == {(0, "no response has finite scores")}
    excluded = [counts for _, counts in Distinguish().update(np.full((3, 4), math.nan), own)]
    assert excluded == [{"distinguish: score not finite": 3}] * len(excluded)


def test_a_collapsed_template_gives_chance_and_none_and_perfect_responses_give_log_p():
    level = np.repeat(np.linspace(-3, -1, 12)[:, None], 4, axis=1)
    same = distinguish(level, np.arange(12) % 4)
    assert (same.accuracy, same.information) == (0.25, pytest.approx(0.0, abs=1e-12))
    apart = np.where(np.eye(4, dtype=bool), -1.0, -800.0)
    perfect = distinguish(apart, np.arange(4))
    assert (perfect.accuracy, perfect.information) == (1.0, pytest.approx(math.log(4)))


def test_z_score_runs_on_the_marginals_standard_deviation():
    rng = np.random.default_rng(2)
    state, std = Distinguish(), math.nan
    for step in range(3):
        scores = rng.normal(-2.0, 0.5 + step, (30, 5))
        marginal = np.log(np.exp(scores).mean(axis=1))
        std = marginal.std() if step == 0 else 0.9 * std + 0.1 * marginal.std()
        found = {value.key: value.value for value, _ in state.update(scores, np.zeros(30, int))}
        gain = (scores[:, 0] - marginal).mean()
        assert found["distinguish/mutual_information_z"] == pytest.approx(gain / (std + 1e-3))


def test_cross_scores_reach_the_run_and_bad_rows_are_counted(tmp_path):
    scores = np.where(np.eye(3, dtype=bool), -1.0, -5.0)
    scores[2, 0] = math.nan
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        run.cross_scores(0, scores, np.arange(3))
        run.flush(0, {"reward": 1.0})
        with pytest.raises(BatchError, match="two prompts or more"):
            run.cross_scores(1, scores[:, :1], np.zeros(3, int))
    view = load_view(tmp_path / "run")
    (reading,) = view.series("distinguish/retrieval_accuracy", "all")
    assert (reading.value, reading.n_tokens, reading.reason) == (1.0, 2, "chance 0.333, 3 prompts")
    assert reading.excluded == {"distinguish: score not finite": 1}
    assert view.readings.slices == {"all"}  # a trainer's averages of one step: nothing is judged yet
    assert not view.pipeline.judged()
    assert "cross_scores" not in view.not_observed
    assert "Run.gradients" in view.not_observed["gradient"]


# --- gradients -------------------------------------------------------------------------------------------------------


def test_gradient_readings_against_the_covariance():
    rng = np.random.default_rng(0)
    text, post = rng.normal(0.3, 1.0, (9, 5)), rng.normal(0.0, 3.0, (9, 5))
    found = {(name, value.key): value.value for name, value, _ in
             gradient_values({"text": text, "post_tool": post}, {"text": 30, "post_tool": 10})}  # fmt: skip
    for name, g in (("text", text), ("post_tool", post), ("all", text + post)):
        trace = np.trace(np.cov(g.T))
        square = (g**2).sum(axis=1)
        assert found[name, "gradient/snr"] == pytest.approx((g.mean(axis=0) ** 2).sum() / (trace / 9))
        assert found[name, "gradient/top_trajectory_frac"] == pytest.approx(square.max() / square.sum())
        assert found[name, "gradient/effective_trajectories"] == pytest.approx(
            square.sum() ** 2 / (square**2).sum()
        )
    traces = [np.trace(np.cov(g.T)) for g in (text, post)]
    assert found["post_tool", "gradient/variance_share"] == pytest.approx(traces[1] / sum(traces))
    assert found["post_tool", "gradient/token_share"] == 0.25
    grams = {"text": text @ text.T, "post_tool": post @ post.T, "all": (text + post) @ (text + post).T}
    again = {(name, value.key): value.value for name, value, _ in gradient_values(grams, gram=True)}
    assert again == pytest.approx({key: x for key, x in found.items() if key[1] != "gradient/token_share"})


def test_snr_of_noise_is_one_and_of_equal_gradients_infinite():
    rng = np.random.default_rng(0)
    noise = [rng.normal(size=(32, 200)) for _ in range(100)]
    assert np.mean([snr(g @ g.T) for g in noise]) == pytest.approx(1.0, abs=0.05)
    assert snr(np.ones((4, 4))) == math.inf
    assert math.isnan(snr(np.zeros((4, 4))))
    assert math.isnan(snr(np.ones((1, 1))))
    assert math.isnan(total_variance(1.0, 1.0, 1))
    found = {value.key: value for _, value, _ in gradient_values({"all": np.eye(4)})}
    assert found["gradient/effective_trajectories"].value == pytest.approx(4.0)
    assert found["gradient/snr"].value == pytest.approx(
        1.0
    )  # orthogonal and equal: a mean as large as its noise


def test_gradients_reach_the_run_and_bad_ones_are_counted_or_refused(tmp_path):
    g = np.eye(4)
    g[3, 3] = math.nan
    with trimtab.open_run(tmp_path / "run") as run:
        run.gradients(0, {"text": g, "post_tool": np.ones((4, 4))}, {"text": 5, "post_tool": 5})
        run.flush(0, {"reward": 1.0})
        run.gradients(1, {"text": np.ones(3)})
        run.flush(1, {"reward": 1.0})
    view = load_view(tmp_path / "run")
    (reading,) = view.series("gradient/effective_trajectories", "text")
    assert (reading.value, reading.excluded) == (pytest.approx(3.0), {"gradient: not finite": 1})
    assert "one row a trajectory" in view.errors[0]["error"]
    for bad in ({}, {"text": np.ones((2, 3)), "post_tool": np.ones((3, 3))}):
        with pytest.raises(BatchError):
            list(gradient_values(bad))


# --- all of them -----------------------------------------------------------------------------------------------------


def test_micro_batches_merge_to_the_whole_and_survive_the_disk():
    columns = rich_columns(np.random.default_rng(8), 40)
    whole = observe(token_batch(**columns))
    parts = [observe(token_batch(**cut(columns, rows))) for rows in (slice(0, 12), slice(12, 40))]
    families = ("routing/", "entropy/", "mismatch/p95_prob")
    for name, state in whole.items():
        halves = [part[name] for part in parts if name in part]
        merged = halves[0] if len(halves) == 1 else halves[0].merge(halves[1])
        back = unpack_states(pack_states({name: merged}))[name]
        for made in (merged, back):
            got = {r.key: (r.value, r.excluded) for r in readings_of(name, W, made)}
            for reading in readings_of(name, W, state):
                if reading.key.startswith(families):
                    value, excluded = got[reading.key]
                    assert value == pytest.approx(reading.value, rel=1e-6, abs=1e-9, nan_ok=True), reading.key
                    assert excluded == reading.excluded


def test_what_is_not_given_is_not_measured_and_says_why():
    mask = np.ones(50, bool)
    batch = token_batch(mask, lengths=[25, 25], logprobs=np.full(50, -1.0), ref_logprobs=np.full(50, -1.1),
                        absent={"routed_experts": "a dense model"})  # fmt: skip
    states = observe(batch)
    reasons = not_observed(states)
    assert reasons["routing"] == "no routed_experts: a dense model"
    assert reasons["entropy"] == "no entropy: not given"
    assert reasons["distinguish"] == "no token_ids: not given"
    keys = {r.key for name, state in states.items() for r in readings_of(name, W, state)}
    assert not {key for key in keys if key.startswith(("routing/", "entropy/", "distinguish/", "mismatch/"))}
    assert "routing" not in not_observed(observe(rich_batch()))
