"""The worst tokens against a sort of all of them, through the run folder to the report."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest

import trimtab
from tests.measure.policy import cut, rich_batch, rich_columns
from tests.report.page import Page
from tests.support import write_run
from trimtab import token_batch
from trimtab.measure.accumulate import observe
from trimtab.measure.policy.exemplar_tokens import EXEMPLAR_RATIOS, exemplar_row, largest
from trimtab.measure.state.blocks import pack_states, unpack_states
from trimtab.measure.state.worst_tokens import KEPT, Worst, WorstToken
from trimtab.report.control_characters import escape_controls
from trimtab.report.html.run_page import render_html
from trimtab.report.html.run_payload import build_payload
from trimtab.report.run_diagnosis import diagnosis
from trimtab.report.run_tables import exemplar_table
from trimtab.report.run_view import load_view
from trimtab.types import Window

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e"
PAIRS = {
    "drift": ("logprobs", "ref_logprobs"),
    "mismatch": ("old_logprobs", "rollout_logprobs"),
    "total": ("logprobs", "rollout_logprobs"),
}


def by_sorting(batch, ratio: str, name: str) -> list[tuple]:
    """Every gradient token of the slice, sorted in Python; a token seen twice counts once."""
    one, two = (getattr(batch, column) for column in PAIRS[ratio])
    rows, start = {}, 0
    for i, length in enumerate(batch.lengths.tolist()):
        for position in range(length):
            at = start + position
            late = batch.turn[at] > 1
            if batch.loss_mask[at] and late == (name == "post_tool"):
                tool = ("", *batch.tool_names)[batch.tool[at]]
                value = float(abs(one[at] - two[at]))
                row = (-value, int(batch.episode_id[i]), position, int(batch.turn[at]), tool, int(batch.token_ids[at]),
                       float(one[at]), float(two[at]))  # fmt: skip
                if value > 0:
                    rows[row[1:3]] = min(row, rows.get(row[1:3], row))
        start += length
    return [
        (-v, n, d, e, p, turn, tool, token)
        for v, e, p, turn, tool, token, n, d in sorted(rows.values())[:KEPT]
    ]


@pytest.mark.parametrize("name", ["text", "post_tool"])
@pytest.mark.parametrize("ratio", EXEMPLAR_RATIOS)
def test_the_worst_tokens_are_those_of_a_full_sort(ratio, name):
    batch = rich_batch(sequences=60)
    found = observe(batch)[name].summaries[f"{ratio}/worst"].tokens
    assert [token[:8] for token in found] == by_sorting(batch, ratio, name)


@pytest.mark.parametrize("ties", [False, True])
def test_micro_batches_in_any_order_merge_to_the_whole(ties):
    columns = rich_columns(np.random.default_rng(3), 40)
    if ties:  # coarse values, and a trajectory that comes three times
        columns["rollout_logprobs"] = np.round(columns["rollout_logprobs"])
        columns["old_logprobs"] = np.round(columns["old_logprobs"])
        columns["episode_id"] = np.array([1000] * 3 + list(range(37)))
    whole = token_batch(**columns)
    cuts = [slice(0, 2), slice(2, 15), slice(15, 40)]
    parts = [observe(token_batch(**cut(columns, rows))) for rows in cuts]
    for name in ("text", "post_tool"):
        expected = by_sorting(whole, "mismatch", name)
        for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
            merged = Worst()
            for i in order:
                if name in parts[i]:
                    merged = merged.merge(parts[i][name].summaries["mismatch/worst"])
            assert [token[:8] for token in merged.tokens] == expected
        assert [t[:8] for t in observe(whole)[name].summaries["mismatch/worst"].tokens] == expected


def test_merge_laws():
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(3):
        worst = Worst(3)
        worst.update(
            WorstToken(
                float(rng.integers(1, 4)),
                -1.0,
                -2.0,
                int(rng.integers(0, 3)),
                int(rng.integers(0, 3)),
                1,
                "",
                7,
            )
            for _ in range(6)
        )
        parts.append(worst)
    a, b, c = parts
    before = a.copy()
    assert a.merge(b) == b.merge(a)
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert a.merge(Worst(3)) == a == Worst(3).merge(a) == before


def test_largest_against_a_sort_with_nan_infinity_and_ties():
    rng = np.random.default_rng(0)
    for size in (0, 1, 7, 63, 64, 65, 1000):
        x = np.abs(rng.normal(size=size)).astype(np.float32).round(2)
        x[rng.random(size) < 0.1] = np.nan
        x[rng.random(size) < 0.02] = np.inf
        kept = np.sort(x[x > 0])[::-1]
        found = np.sort(x[largest(x, 8)])[::-1]
        bar = kept[min(8, kept.size) - 1] if kept.size else math.inf
        assert found.tolist() == kept[kept >= bar].tolist()
    assert largest(np.zeros(100, np.float32), 8).size == 0


def test_sequences_the_reference_did_not_score_are_no_exemplars_of_drift():
    batch = rich_batch(ref_scored=np.arange(24) % 2 == 0)
    found = observe(batch)["text"].summaries["drift/worst"].tokens
    assert {token.episode % 2 for token in found} == {0}


def test_states_on_disk_do_not_hold_them():
    back = unpack_states(pack_states(observe(rich_batch())))
    assert not [key for state in back.values() for key in state.summaries if key.endswith("/worst")]


def step_batch(step):
    return rich_batch(step, episode_id=np.arange(24) + 100 * step)


def hostile_run(folder, rank=0, token_text=lambda token: f"{HOSTILE}{token}"):
    config = {"ranks": 1}
    with trimtab.open_run(
        folder, rank=rank, config=config, min_tokens=50, min_trajectories=2, token_text=token_text
    ) as run:
        for step in range(3):
            run.observe(step_batch(step))
            run.flush(step, {"reward": 1.0})
    return folder


def test_exemplars_reach_diagnose_and_the_report_and_are_inert(tmp_path):
    view = load_view(hostile_run(tmp_path / "run"))
    table = json.loads(json.dumps(diagnosis(view)["exemplars"]))
    assert {(row["slice"], row["ratio"]) for row in table} == {
        (s, r) for s in ("text", "post_tool") for r in EXEMPLAR_RATIOS
    }
    assert {row["last"] for row in table} == {2}  # the latest window
    first = next(row for row in table if (row["slice"], row["ratio"]) == ("post_tool", "mismatch"))
    value, one, two, episode, position, turn, tool, token = by_sorting(
        step_batch(2), "mismatch", "post_tool"
    )[0]
    assert first["value"] == pytest.approx(value, rel=1e-6)
    assert (first["logprob"], first["other_logprob"]) == (
        pytest.approx(one, rel=1e-6),
        pytest.approx(two, rel=1e-6),
    )
    assert (first["episode"], first["position"], first["turn"], first["tool"], first["token_id"]) == (
        episode,
        position,
        turn,
        tool,
        token,
    )
    assert first["text"] == f"{HOSTILE}{token}"
    page = Page(render_html(build_payload([view])))
    words = "".join(page.text)
    assert "Worst tokens" in words
    assert escape_controls(f"{HOSTILE}{token}") in words
    assert "img" not in page.tags


def test_ranks_are_merged_and_without_a_decoder_the_id_is_shown(tmp_path):
    hostile_run(tmp_path / "run", 0, token_text=None)
    one = exemplar_table(load_view(tmp_path / "run").exemplars)
    hostile_run(tmp_path / "run", 1, token_text=None)
    view = load_view(tmp_path / "run")
    assert len(view.exemplars) == 12
    both = exemplar_table(view.exemplars)
    assert [(r["episode"], r["position"]) for r in both] == [
        (r["episode"], r["position"]) for r in one
    ]  # the same tokens
    assert all(row["text"] is None for row in both)
    assert f"id {both[0]['token_id']}" in "".join(Page(render_html(build_payload([view]))).text)


def test_a_decoder_that_fails_is_reported_and_loses_only_the_exemplars(tmp_path):
    view = load_view(hostile_run(tmp_path / "run", token_text=lambda token: [][token]))
    assert view.errors[0]["where"] == "write exemplars"
    assert view.exemplars == []
    assert view.series("drift/p95", "text")


def test_a_folder_of_before_has_none_and_still_loads(tmp_path):
    folder = write_run(tmp_path / "run", steps=5)
    for path in folder.glob("exemplars.*"):
        path.unlink()
    old = load_view(folder)
    assert (old.exemplars, diagnosis(old)["exemplars"]) == ([], [])
    assert "Worst tokens" not in "".join(Page(render_html(build_payload([old]))).text)
    shutil.rmtree(folder)


def test_the_text_of_a_row_is_that_of_the_token_and_of_what_stood_around_it():
    batch = rich_batch()
    states = observe(batch)["text"]
    (row,) = exemplar_row("text", Window(0, 2), states, token_text=lambda token: f"<{token}>")
    (bare,) = exemplar_row("text", Window(0, 2), states)
    assert (row["first"], row["last"], row["slice"], bare["context"]) == (0, 2, "text", {})
    assert {t[8] for ratio in EXEMPLAR_RATIOS for t in bare["tokens"][ratio]} == {None}
    start = np.cumsum(batch.lengths) - batch.lengths
    index = {int(e): i for i, e in enumerate(batch.episode_id)}
    for ratio in EXEMPLAR_RATIOS:
        assert len(row["tokens"][ratio]) == len(row["context"][ratio]) > 0
        for token, (before, after) in zip(row["tokens"][ratio], row["context"][ratio], strict=True):
            i, position = index[token[3]], token[4]
            ids = batch.token_ids[start[i] : start[i] + batch.lengths[i]].tolist()
            assert token[8] == f"<{ids[position]}>"
            assert before == "".join(f"<{n}>" for n in ids[max(0, position - 8) : position])
            assert after == "".join(f"<{n}>" for n in ids[position + 1 : position + 9])


def test_damaged_rows_are_left_out():
    row = {
        "step": 0,
        "first": 0,
        "last": 0,
        "slice": "text",
        "tokens": {"drift": [[1], "x", None], "total": 3, "mismatch": {}},
    }
    assert exemplar_table([row, {**row, "slice": "other"}]) == []
    assert (
        exemplar_row("text", Window(0, 0), observe(token_batch(np.ones(3, bool), lengths=[3]))["text"]) == []
    )
