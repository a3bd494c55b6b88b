"""Datum records and forward_backward outputs as columns: real records of a run, scored again by another engine.

`data/tinker_records.json` are the first six data of step 0 of `bash .ci/skyrl.sh --run` and what SkyRL 0.3.0 returned for them. The
adapter is zero at step 0, so that the lab agent in transformers scores them too.
"""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trimtab
from trimtab.adapters.tinker import datum_columns, observe, trainer_logprobs
from trimtab.errors import BatchError
from trimtab.lab.model import load_agent
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

RECORDS = Path(__file__).parent / "data" / "tinker_records.json"


@dataclass(frozen=True)
class Tensor:
    """tinker.TensorData as far as a reader of it goes."""

    data: list[Any]

    def to_numpy(self) -> np.ndarray:
        return np.asarray(self.data)


@pytest.fixture
def records():
    return json.loads(RECORDS.read_text())


def split(records):
    return [record["datum"] for record in records], [record["output"] for record in records]


def field(datum, name):
    return datum["loss_fn_inputs"][name]["data"]


def steps(folder):
    return list(RunReader(folder).rows("steps"))


def test_columns_are_the_tokens_from_the_first_sampled_one_on(records):
    data, outputs = split(records)
    columns = datum_columns(data, logprobs=trainer_logprobs(outputs))
    start = 0
    for datum, output, length in zip(data, outputs, columns["lengths"].tolist(), strict=True):
        first = field(datum, "mask").index(1.0)
        own, start = slice(start, start + length), start + length
        assert length == len(field(datum, "mask")) - first
        assert columns["token_ids"][own].tolist() == field(datum, "target_tokens")[first:]
        assert columns["loss_mask"][own].tolist() == [value == 1.0 for value in field(datum, "mask")[first:]]
        assert columns["tool_tokens"][own].tolist() == [
            value == 0.0 for value in field(datum, "mask")[first:]
        ]
        assert columns["rollout_logprobs"][own].tolist() == pytest.approx(field(datum, "logprobs")[first:])
        assert columns["logprobs"][own].tolist() == pytest.approx(output["logprobs"]["data"][first:])
    assert start == columns["loss_mask"].size


def test_another_engine_gives_each_token_the_same_log_probability(records):
    """Transformers on the whole sequence; a shift by one, of targets or of scores, is off by nats."""
    data, outputs = split(records)
    columns = datum_columns(data, logprobs=trainer_logprobs(outputs))
    model, _ = load_agent()
    scores = []
    for datum in data:
        tokens = [*datum["model_input"]["chunks"][0]["tokens"], field(datum, "target_tokens")[-1]]
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, :-1].double()
        own = torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()
        scores += own[field(datum, "mask").index(1.0) :]
    mask = columns["loss_mask"]
    gap = np.abs(columns["logprobs"] - np.array(scores))[mask]
    assert mask.sum() == 80  # tokens
    assert gap.max() < 2e-4
    assert np.abs(columns["rollout_logprobs"] - np.array(scores))[mask].max() < 2e-4
    shifted = np.abs(columns["logprobs"] - np.roll(scores, 1))[mask]
    assert shifted.mean() > 0.5  # what the test would show of a shift


def test_a_step_of_real_records_is_observed(records, tmp_path):
    data, outputs = split(records)
    tools = [[], *([["owner"]] * 5)]
    with trimtab.open_run(tmp_path / "run", strict=True, min_tokens=20, min_trajectories=2) as run:
        observe(
            run, data, outputs, reward=[0.0, 0.0, 1.0, 1.0, 0.0, 1.0], tools=tools, group=[0, 0, 0, 0, 1, 1]
        )  # fmt: skip
        run.flush(0, {"optim/kl_sample_train_v2": 0.25, "skyrl.ai/grad_norm": 0.15})
    row = steps(tmp_path / "run")[0]
    assert {"rollout_logprobs", "old_logprobs", "logprobs", "advantages", "reward"} <= set(row["columns"])
    assert row["slices"]["all"] == {"n_tokens": 80, "n_trajectories": 6}
    after = sum(
        sum(field(datum, "mask")[_first_tool(datum) :]) for datum in data if _first_tool(datum) is not None
    )
    assert row["slices"]["post_tool"]["n_tokens"] == after
    assert row["slices"]["post_tool/owner"]["n_tokens"] == after
    assert "mismatch" not in row["not_observed"]
    assert "identically zero" in row["not_observed"]["staleness"]
    assert "ref_logprobs" in row["not_observed"]["drift"]
    assert row["metrics"]["optim/kl_sample_train_v2"] == 0.25
    view = load_view(tmp_path / "run")
    gaps = [
        theirs - ours
        for datum, output in zip(data, outputs, strict=True)
        for ours, theirs, own in zip(
            field(datum, "logprobs"), output["logprobs"]["data"], field(datum, "mask"), strict=True
        )
        if own
    ]
    mean_k3 = sum(math.expm1(gap) - gap for gap in gaps) / len(gaps)
    [reading] = view.series("kl/rollout_old/k3", "all")
    assert reading.value == pytest.approx(mean_k3, rel=0.05, abs=1e-13)
    assert [r.value for r in view.series("aggregate/mismatch_kl", "all")] == [
        0.25
    ]  # the cookbook's own, read
    assert [r.value for r in view.series("aggregate/grad_norm", "all")] == [0.15]


def _first_tool(datum):
    """Index of the first target that a tool wrote."""
    mask = field(datum, "mask")
    rest = range(mask.index(1.0), len(mask))
    return next((t for t in rest if mask[t] == 0), None)


def test_records_arrays_and_tensors_are_one(records):
    data, outputs = split(records)
    plain = datum_columns(data, logprobs=trainer_logprobs(outputs))
    objects = [
        {
            "model_input": datum["model_input"]["chunks"][0]["tokens"],
            "loss_fn_inputs": {name: Tensor(field(datum, name)) for name in datum["loss_fn_inputs"]},
        }
        for datum in data
    ]
    rows = [torch.tensor(output["logprobs"]["data"], dtype=torch.float64) for output in outputs]
    other = datum_columns(objects, logprobs=trainer_logprobs(rows))
    assert all(np.array_equal(plain[name], other[name]) for name in plain)


def test_a_shift_by_one_is_refused(records):
    data, outputs = split(records)
    wrong = copy.deepcopy(data)
    wrong[1]["loss_fn_inputs"]["target_tokens"]["data"].insert(0, 5)
    wrong[1]["loss_fn_inputs"]["target_tokens"]["data"].pop()
    with pytest.raises(
        BatchError, match=r"datum 1: target_tokens\[\d+\] is .* targets are the input shifted"
    ):
        datum_columns(wrong)
    unshifted = copy.deepcopy(data)
    unshifted[2]["loss_fn_inputs"]["logprobs"]["data"].insert(0, 0.0)
    with pytest.raises(BatchError, match=r"datum 2 has logprobs \(34,\) and 33 target_tokens"):
        datum_columns(unshifted)
    with pytest.raises(BatchError, match=r"datum 0 has logprobs \(33,\) and 17 target_tokens"):
        datum_columns(data, logprobs=trainer_logprobs([outputs[1], *outputs[1:]]))


def test_a_shift_of_the_sampler_that_no_check_sees_is_an_alarm_reading(records, tmp_path):
    """The loop pads with one zero too many: lengths agree, and every ratio belongs to the token before."""
    data, outputs = split(records)
    for datum in data:
        values, first = field(datum, "logprobs"), field(datum, "mask").index(1.0)
        values[first:] = [0.0, *values[first:-1]]
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        observe(run, data, outputs, masks=[field(datum, "mask") for datum in data])
        run.flush(0)
    [value] = [r.value for r in load_view(tmp_path / "run").series("step/mismatch/shifted_frac", "all")]
    assert value > 0.5


def test_without_a_mask_advantages_tell_and_without_those_nothing_does(records):
    data, _ = split(records)
    bare = [
        {**d, "loss_fn_inputs": {k: v for k, v in d["loss_fn_inputs"].items() if k != "mask"}} for d in data
    ]
    with_mask, inferred = datum_columns(data), datum_columns(bare)
    assert np.array_equal(with_mask["loss_mask"], inferred["loss_mask"])
    flat = {"advantages": {"data": [0.0] * 33}}  # so that weights alone tell
    weights = {"weights": {"data": [2.0 * m for m in field(data[3], "mask")]}}
    weighted = {**bare[3], "loss_fn_inputs": {**bare[3]["loss_fn_inputs"], **flat, **weights}}
    assert np.array_equal(datum_columns([data[3]])["loss_mask"], datum_columns([weighted])["loss_mask"])
    bare[3]["loss_fn_inputs"] |= flat
    with pytest.raises(BatchError, match=r"datum 3 has neither mask nor weights .*: give masks=\[\.\.\.\]"):
        datum_columns(bare)
    masks = [field(datum, "mask") for datum in data]
    assert np.array_equal(with_mask["loss_mask"], datum_columns(bare, masks=masks)["loss_mask"])


def test_a_turn_left_out_of_the_loss_is_not_a_tool():
    """tinker-cookbook's mask_error_turns: sampled tokens with mask 0 have log-probabilities, a tool's have 0."""
    datum = {
        "model_input": [9, 1, 2, 3, 4, 5],
        "loss_fn_inputs": {
            "target_tokens": [1, 2, 3, 4, 5, 6],
            "logprobs": [0.0, -1.0, -2.0, 0.0, 0.0, -0.5],
            "advantages": [0, 1, 0, 0, 0, 1],
            "mask": [0, 1, 0, 0, 0, 1],
        },
    }
    columns = datum_columns([datum])
    assert columns["tool_tokens"].tolist() == [False, False, True, True, False]
    assert columns["loss_mask"].tolist() == [True, False, False, False, True]


def test_older_rollouts_have_no_old_log_probabilities(records, tmp_path):
    data, outputs = split(records)
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        observe(run, data, outputs, policy_version=[4] * 6, current_version=7)
        run.flush(0)
        observe(run, data, outputs, policy_version=[7, 7, 7, 4, 4, 4], current_version=7)
        run.flush(1)
    stale, mixed = steps(tmp_path / "run")
    assert "old_logprobs" not in stale["columns"]
    assert "older weights" in stale["not_observed"]["mismatch"]
    assert "total" not in stale["not_observed"]
    assert {"mismatch", "total"}.isdisjoint(mixed["not_observed"])
    assert mixed["slices"]["all"]["n_tokens"] == stale["slices"]["all"]["n_tokens"] == 80
    with (
        trimtab.open_run(tmp_path / "other", strict=True) as run,
        pytest.raises(BatchError, match="needs current"),
    ):
        observe(run, data, outputs, policy_version=[4] * 6)


def test_reference_rows_are_those_of_compute_logprobs(records, tmp_path):
    """`compute_logprobs` of the whole sequence has one row more, None for its first token."""
    data, outputs = split(records)
    frozen = [[None, *(value - 0.25 for value in output["logprobs"]["data"])] for output in outputs]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder, rows in ((whole, frozen), (cut, [row[1:] for row in frozen])):
        with trimtab.open_run(folder, strict=True, min_tokens=20, min_trajectories=2) as run:
            observe(run, data, outputs, ref_logprobs=rows)
            run.flush(0)
        [reading] = load_view(folder).series("drift/p95", "all")
        assert reading.value == pytest.approx(0.25, rel=0.02)
        assert reading.reference == "frozen sampling client"
    wrong = "ref_logprobs has 5 rows, but there are 6 data"
    with trimtab.open_run(tmp_path / "bad", strict=True) as run, pytest.raises(BatchError, match=wrong):
        observe(run, data, outputs, ref_logprobs=frozen[:5])


def test_what_a_loop_lacks_is_said(records, tmp_path):
    data, outputs = split(records)
    for datum in data:
        del datum["loss_fn_inputs"]["logprobs"], datum["loss_fn_inputs"]["advantages"]
    unscored = [{"elementwise_loss": output["elementwise_loss"]} for output in outputs]
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        observe(run, data, unscored)
        run.flush(0)
    missing = steps(tmp_path / "run")[0]["not_observed"]
    assert "returned no logprobs" in missing["mismatch"]
    assert (
        "did not pass on those of the sampler" in missing["total"]
        or "returned no logprobs" in missing["total"]
    )
    with pytest.raises(BatchError, match="output 2 of 6 has no logprobs"):
        trainer_logprobs([*outputs[:2], unscored[2], *outputs[3:]])
    mixed = copy.deepcopy(split(records)[0])
    mixed[0]["loss_fn_inputs"]["advantages"] = mixed[0]["loss_fn_inputs"]["mask"]
    with pytest.raises(BatchError, match="some of the data have advantages and some have none"):
        datum_columns(mixed)


def test_a_malformed_datum_does_not_stop_the_loop(records, tmp_path, caplog):
    data, outputs = split(records)
    with trimtab.open_run(tmp_path / "run") as run:
        observe(run, data, outputs[:-1])
        run.flush(0)
        assert run.num_failures == 1
    row = steps(tmp_path / "run")[0]
    assert "logprobs has 5 rows, but there are 6 data" in row["not_observed"]["mismatch"]


def test_no_data_is_no_batch(tmp_path):
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        observe(run, [], [])
        run.flush(0)
    assert steps(tmp_path / "run")[0]["not_observed"]["mismatch"] == "no batch was observed"
