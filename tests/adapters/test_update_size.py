"""The size of one update under TRL: rows just trained on and fixed probes, scored again by the new weights."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("trl")

import torch
from trl import GRPOTrainer

from tests.adapters.test_trl_contract import SMALL, rollout_func
from tests.adapters.tiny_trl import grpo_config, random_reward, text_rows, tiny_model
from trimtab.adapters.trl import watch
from trimtab.report.run_view import load_view
from trimtab.report.series_arrays import read_series


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


def watched(tiny, folder, *, learning_rate=1e-2, steps=4, **options):
    path, tokenizer = tiny
    trainer = GRPOTrainer(
        path, random_reward,
        args=grpo_config(folder, max_completion_length=40, max_steps=steps, learning_rate=learning_rate),
        train_dataset=text_rows(), processing_class=tokenizer, rollout_func=rollout_func(tokenizer),
    )  # fmt: skip
    run = watch(trainer, folder / "run", **(SMALL | options))
    return trainer, run


def test_rows_of_the_batch_are_scored_by_the_weights_after_it(tiny, tmp_path):
    trainer, run = watched(tiny, tmp_path, update_rows=1.0)
    inner, steps = trainer._compute_loss, []

    def keep(model, inputs, *args, **kwargs):
        steps.append(
            {
                key: inputs[key].clone()
                for key in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask")
            }
        )
        return inner(model, inputs, *args, **kwargs)

    before, inner_observe = [], run.observe

    def observe(batch=None, **arrays):
        before.append(arrays["logprobs"])
        inner_observe(batch, **arrays)

    trainer._compute_loss, run.observe = keep, observe
    trainer.train()
    last = steps[-1]
    ids = torch.cat([last["prompt_ids"], last["completion_ids"]], 1)
    mask = torch.cat([last["prompt_mask"], last["completion_mask"]], 1)
    width = last["completion_ids"].size(1)
    with torch.no_grad():
        logits = trainer.model.eval()(input_ids=ids, attention_mask=mask).logits[:, -width - 1 : -1]
    after = logits.log_softmax(-1).gather(-1, last["completion_ids"][..., None])[..., 0].numpy()
    trained = ((last["completion_mask"] > 0) & (last["tool_mask"] > 0)).numpy()
    moved = np.abs(after - before[-1])[trained]
    stored = read_series(tmp_path / "run")
    update = stored["update/p95", "all"]
    assert update.steps.tolist() == [1, 2, 3, 4]
    assert update.num_tokens[-1] == moved.size
    assert update.values[-1] == pytest.approx(np.quantile(moved, 0.95, method="inverted_cdf"), rel=1e-3)
    assert moved.max() > 1e-3
    assert {"text", "post_tool", "post_tool/calc"} <= {
        name for series, name in stored if series == "update/p99"
    }
    costs = load_view(tmp_path / "run").steps[-1]["costs_s"]
    assert costs["update"] > 0


def test_without_an_update_the_size_is_zero(tiny, tmp_path):
    trainer, _ = watched(tiny, tmp_path, update_rows=1.0, learning_rate=0.0, probe_every=1)
    trainer.train()
    stored = read_series(tmp_path / "run")
    assert stored["update/p99", "all"].values.max() < 1e-5
    assert stored["probe_update/p99", "all"].values.max() < 1e-5


def test_probes_are_scored_again_one_step_after(tiny, tmp_path):
    trainer, _ = watched(tiny, tmp_path, steps=6, probe_every=2)
    trainer.train()
    probes = read_series(tmp_path / "run")["probe_update/p95", "post_tool"]
    assert probes.steps.tolist() == [3, 5]  # probes were scored at 2, 4 and 6
    assert probes.values.min() > 0
    assert set(probes.num_trajectories.tolist()) <= set(range(1, 9))
    lagged = load_view(tmp_path / "run").series("lagged_drift/p99", "post_tool")
    assert [(r.window.first, r.window.last) for r in lagged] == [(3, 4), (5, 6)]


def test_why_no_update_is_measured_is_said(tiny, tmp_path):
    trainer, _ = watched(tiny, tmp_path / "off", steps=2, update_rows=0)
    trainer.train()
    assert ("update/p95", "all") not in read_series(tmp_path / "off" / "run")
    row = load_view(tmp_path / "off" / "run").steps[-1]
    assert row["not_observed"]["update"] == "switched off with update_rows=0"
    trainer, _ = watched(tiny, tmp_path / "sample", update_rows=0.25)
    trainer.train()
    sampled = read_series(tmp_path / "sample" / "run")
    assert (
        sampled["update/p95", "all"].num_trajectories.sum()
        <= 0.3 * sampled["mismatch/p95", "all"].num_trajectories.sum()
    )


def test_dropout_is_no_update(tiny, tmp_path):
    path, tokenizer = tiny
    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(tmp_path, max_steps=2), train_dataset=text_rows(), processing_class=tokenizer
    )  # fmt: skip
    trainer.model.model.layers[0].mlp.drop = torch.nn.Dropout(0.1)
    watch(trainer, tmp_path / "run", update_rows=1.0, **SMALL)
    trainer.train()
    assert "dropout" in load_view(tmp_path / "run").steps[-1]["not_observed"]["update"]
    assert ("update/p95", "all") not in read_series(tmp_path / "run")
