"""Faults in mid-run under TRL: what the trainer and the watch see of them, against weights and scores of our own."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch
from transformers import TrainerCallback

from tests.adapters.test_trl_contract import captured
from trimtab.adapters.trl import watch
from trimtab.errors import TrimtabError
from trimtab.lab.model import load_agent
from trimtab.report.run_view import load_view
from trimtab.training.lab_faults import FAULTS, FaultPlan, fault_trainer, quantised
from trimtab.training.minirl.trainer import MiniRLTrainer

AT, STEPS = 3, 5


class Weights(TrainerCallback):
    """The weights after each update, by the number of updates; and the batches that were trained on."""

    def __init__(self, trainer):
        self.model, self.inputs, self.logprobs = trainer.model, [], []
        self.of = {0: self.now()}
        loss = trainer._compute_loss

        def keep(model, inputs, *args, **kwargs):
            self.inputs.append({k: v.clone() for k, v in inputs.items() if isinstance(v, torch.Tensor)})
            return loss(model, inputs, *args, **kwargs)

        trainer._compute_loss = keep
        trainer.add_callback(self)

    def now(self):
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def on_step_end(self, _args, state, _control, **_):
        self.of[int(state.global_step)] = self.now()


def train(folder, fault, kind=None, max_lag=math.inf, **config):
    """Train five steps with a fault at the third; returns weights and inputs, batches of the watch, and the log."""
    plan = FaultPlan(fault, AT, STEPS, 0, config)
    trainer = fault_trainer(folder / f"{fault}.trainer", plan, *([kind] if kind else []))
    trainer.lab_sampler.max_lag = max_lag
    seen = Weights(trainer)
    run = watch(trainer, folder / fault, strict=True)
    batches = captured(run)
    trainer.train()
    return seen, batches, [row for row in trainer.state.log_history if "reward" in row]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    return folder, {fault: train(folder, fault) for fault in FAULTS}


def scores(weights, inputs, late=0):
    """Log-probabilities (B, T) of the completion tokens under some weights; `late` reads them so many positions on."""
    model = load_agent()[0].eval()
    model.load_state_dict(weights)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    with torch.no_grad():
        logits = model(
            input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)
        ).logits
    width = inputs["completion_ids"].shape[1]
    logp = torch.log_softmax(logits, -1)[:, -width - 1 + late : logits.shape[1] - 1 + late]
    return logp.gather(-1, inputs["completion_ids"][..., None])[..., 0]


def own(inputs):
    return (inputs["completion_mask"] * inputs["tool_mask"]) > 0


AGES = {
    "none": [0, 1, 1, 1, 1],
    "quantised": [0, 1, 1, 1, 1],
    "shifted": [0, 1, 1, 1, 1],
    "stale": [0, 1, 2, 3, 4],
    "rate": [0, 1, 1, 1, 1],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_token_comes_from_the_weights_that_its_version_names(runs, fault):
    """Oracle: our own pass of the weights kept after each update. The age is what the watch reads."""
    folder, trained = runs
    seen, batches, _ = trained[fault]
    for step, (inputs, batch, age) in enumerate(zip(seen.inputs, batches, AGES[fault], strict=True), start=1):
        assert set(batch.current_version - batch.policy_version) == {age}
        bits = 4 if fault == "quantised" and step >= AT else 0
        weights = {name: quantised(value, bits) for name, value in seen.of[step - 1 - age].items()}
        mine, sampled = scores(weights, inputs)[own(inputs)], inputs["sampling_per_token_logps"][own(inputs)]
        torch.testing.assert_close(mine, sampled, atol=2e-3, rtol=2e-3)
        if age:
            assert not torch.allclose(
                scores(seen.of[step - 1], inputs)[own(inputs)], sampled, atol=2e-3, rtol=2e-3
            )
    assert load_view(folder / fault).errors == []


def test_until_the_fault_runs_are_equal(runs):
    logs = {
        fault: [(row["reward"], row["grad_norm"]) for row in log] for fault, (_, _, log) in runs[1].items()
    }
    for fault in ("stale", "quantised", "shifted"):
        assert logs[fault][: AT - 1] == logs["none"][: AT - 1]
        assert logs[fault][AT - 1] != logs["none"][AT - 1]
    assert logs["rate"][:AT] == logs["none"][:AT], "a rate shows in the weights after its first update"


def test_a_higher_rate_multiplies_the_update_from_the_fault_on(runs):
    """AdamW without weight decay: the same gradients give a step as many times as long as the rate."""
    fast, plain = (runs[1][fault][0].of for fault in ("rate", "none"))
    for name, before in plain[AT - 1].items():
        assert torch.equal(fast[AT - 1][name], before)
        moved = plain[AT][name] - before
        torch.testing.assert_close(fast[AT][name] - before, FAULTS["rate"].rate * moved, atol=1e-5, rtol=1e-3)
    assert any(not torch.equal(plain[AT][name], before) for name, before in plain[AT - 1].items())


@pytest.mark.parametrize("kind", [None, MiniRLTrainer])
def test_shifted_scores_are_read_one_position_late(runs, tmp_path, kind):
    """The distribution that is read has already seen the token; sampling is not touched."""
    seen, batches, _ = runs[1]["shifted"] if kind is None else train(tmp_path, "shifted", kind)
    for step in (AT - 1, AT):
        inputs, batch = seen.inputs[step - 1], batches[step - 1]
        expected = scores(seen.of[step - 1], inputs, late=int(step == AT))
        inside = own(inputs)
        row, column = np.nonzero(inside.numpy())
        start = np.concatenate([[0], np.cumsum(inputs["completion_mask"].sum(1).numpy())])[:-1]
        torch.testing.assert_close(
            expected[row, column], torch.from_numpy(batch.logprobs[start[row] + column]), atol=2e-3, rtol=2e-3
        )


def test_a_bound_on_the_age_removes_stale_rollouts(runs, tmp_path):
    _, batches, log = train(tmp_path, "stale", max_lag=1)
    assert [int((batch.current_version - batch.policy_version).max()) for batch in batches] == AGES["none"]
    assert [row["reward"] for row in log] == [row["reward"] for row in runs[1]["none"][2]]


def test_four_bits_leave_at_most_fifteen_values_a_matrix():
    weights = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    rounded = quantised(weights, 4)
    assert len(rounded.unique()) <= 15
    assert float((rounded - weights).abs().max()) <= float(weights.abs().max()) / 14 + 1e-6
    assert torch.equal(quantised(weights, 0), weights)
    assert torch.equal(quantised(weights[0], 4), weights[0])


def test_an_unknown_fault_is_refused(tmp_path):
    with pytest.raises(TrimtabError, match="no fault called 'flood'; there are none, stale"):
        fault_trainer(tmp_path, FaultPlan("flood"))
