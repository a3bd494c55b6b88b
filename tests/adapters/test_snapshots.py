"""Snapshots of real TRL trainers: the callback that transformers calls, and training that is the same bit for bit."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch
from datasets import Dataset
from trl import GRPOTrainer, SFTConfig, SFTTrainer

from tests.adapters.tiny_trl import grpo_config, random_reward, text_rows, tiny_model
from trimtab import UnsupportedError
from trimtab.adapters.snapshots import FixedTranscript, SnapshotOptions, score_transcripts, undisturbed
from trimtab.adapters.snapshots.fixed_transcripts import fixed_set
from trimtab.adapters.trl import watch
from trimtab.report.run_view import load_view
from trimtab.snapshots import compare_snapshots, read_snapshots

TOOL_CHAT = [
    {"role": "user", "content": "What is 2+2?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}],
    },
    {"role": "tool", "content": "4"},
]
OPTIONS = SnapshotOptions(
    every=2,
    max_new_tokens=8,
    prompts=["row 1: ", "row 2: ", TOOL_CHAT],
    reward=lambda _, texts: [len(text) for text in texts],
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


def trained(tiny, folder, snapshots, **changes):
    path, tokenizer = tiny
    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(folder, max_completion_length=8, **{"learning_rate": 1e-2} | changes),
        train_dataset=text_rows(), processing_class=tokenizer,
    )  # fmt: skip
    run = watch(trainer, folder / "run", snapshots=snapshots, reference="off", update_rows=0.0, strict=True)
    return trainer, run


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    """Weights without and with snapshots, and the folder of the run with them."""
    folder = tmp_path_factory.mktemp("runs")
    weights = []
    for name, options in (("without", None), ("with", OPTIONS)):
        trainer, run = trained(tiny, folder / name, options)
        trainer.train()
        run.close()
        weights.append({key: value.clone() for key, value in trainer.model.state_dict().items()})
    return *weights, folder / "with" / "run", trainer


def test_training_is_the_same_bit_for_bit(runs):
    """The rewards are drawn from torch's generator, so one random number more would change the weights."""
    without, with_snapshots, _, _ = runs
    assert all(torch.equal(without[key], with_snapshots[key]) for key in without)


def test_snapshots_are_taken_at_the_start_the_cadence_and_the_end(runs):
    _, _, folder, _ = runs
    stored = read_snapshots(folder)
    assert [one.step for one in stored.snapshots] == [0, 2, 3]
    assert not stored.problems
    first, last = stored.snapshots[0], stored.snapshots[-1]
    assert [prompt.post_tool for prompt in first.prompts] == [False, False, True]
    assert all(answer.reward == len(answer.text) for answer in first.answers)
    assert first.scores.post_tool.any()
    assert compare_snapshots(first, last).drift[0].value > 1e-3
    view = load_view(folder)
    assert sum(row["costs_s"].get("snapshots", 0.0) for row in view.steps) > 0
    assert json.loads((folder / "snapshot_set.json").read_text())["transcripts"]


def test_scores_are_those_of_a_plain_forward(runs):
    """The last snapshot's log-probabilities, against log_softmax of the trained model with no batching."""
    _, _, folder, trainer = runs
    fixed = json.loads((folder / "snapshot_set.json").read_text())
    scores = read_snapshots(folder).snapshots[-1].scores
    expected, entropies = [], []
    with torch.no_grad():
        for row in fixed["transcripts"]:
            logp = trainer.model.eval()(torch.tensor([row["ids"]])).logits[0, :-1].double().log_softmax(-1)
            own = torch.tensor(row["own"][1:])
            expected.append(logp.gather(-1, torch.tensor(row["ids"][1:])[:, None])[:, 0][own])
            entropies.append(-(logp.exp() * logp).sum(-1)[own])
    np.testing.assert_allclose(scores.logprobs, torch.cat(expected).numpy(), atol=1e-4)
    np.testing.assert_allclose(scores.entropy, torch.cat(entropies).numpy(), rtol=2e-3)


def test_greedy_answers_are_the_likeliest_tokens(runs):
    _, _, folder, trainer = runs
    fixed = json.loads((folder / "snapshot_set.json").read_text())
    answers = read_snapshots(folder).snapshots[-1].answers
    tokenizer = trainer.processing_class
    for ids, answer in zip(fixed["prompt_ids"], answers, strict=True):
        row = list(ids)
        with torch.no_grad():
            for _ in range(answer.num_tokens - (answer.stop_reason == "eos")):
                row.append(int(trainer.model.eval()(torch.tensor([row])).logits[0, -1].argmax()))
        assert answer.text == tokenizer.decode(row[len(ids) :])


def test_any_trainer_and_its_own_prompts(tiny, tmp_path):
    path, tokenizer = tiny
    rows = Dataset.from_list([{"text": f"say {i % 3} no"} for i in range(12)])
    trainer = SFTTrainer(
        path, args=SFTConfig(output_dir=str(tmp_path / "out"), max_steps=2, use_cpu=True, bf16=False, report_to=[]),
        train_dataset=rows, processing_class=tokenizer,
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"give SnapshotOptions\(prompts"):
        fixed_set(trainer, SnapshotOptions())  # it has no column `prompt`
    run = watch(
        trainer,
        tmp_path / "run",
        snapshots=SnapshotOptions(every=1, prompts=["say 0"], max_new_tokens=4),
        strict=True,
    )
    trainer.train()
    run.close()
    assert [one.step for one in read_snapshots(tmp_path / "run").snapshots] == [0, 1, 2]


def test_a_failure_is_recorded_and_training_goes_on(tiny, tmp_path):
    def broken(*_):
        raise ValueError("no reward today")

    trainer, run = trained(
        tiny, tmp_path, SnapshotOptions(every=1, prompts=["a"], max_new_tokens=2, reward=broken), max_steps=1
    )
    run._isolation.strict = False
    trainer.train()
    run.close()
    assert not read_snapshots(tmp_path / "run").snapshots
    assert "no reward today" in load_view(tmp_path / "run").errors[0]["error"]


def test_distinct_prompts_of_the_training_set_and_messages_as_transcripts(tiny, tmp_path):
    trainer, run = trained(tiny, tmp_path, None)
    run.close()
    chat = [*TOOL_CHAT, {"role": "assistant", "content": "It is 4."}]
    fixed = fixed_set(trainer, SnapshotOptions(num_prompts=5, transcripts=[chat]))
    assert [prompt.text for prompt in fixed.prompts] == [f"row {i}: " for i in range(5)]
    call, answer = fixed.transcripts
    tokenizer = trainer.processing_class
    written = [
        tokenizer.decode([t for t, mine in zip(row.ids, row.own, strict=True) if mine])
        for row in (call, answer)
    ]
    assert "<tool_call>" in written[0]
    assert "It is 4." in written[1]
    assert "<tool_response>" not in written[1]
    assert "<tool_response>" in tokenizer.decode(answer.ids)
    assert not any(call.post_tool)
    assert answer.post_tool == answer.own


def test_modes_and_random_numbers_are_put_back():
    layer = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(2, 2))
    layer[1].eval()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    with undisturbed(layer):
        assert not any(child.training for child in layer)
        torch.rand(7)
    assert torch.equal(torch.rand(3), expected)
    assert [child.training for child in layer] == [True, False]


def test_nan_scores_stay_nan():
    class Broken(torch.nn.Module):
        device = torch.device("cpu")

        def forward(self, input_ids, **_):
            return type("Out", (), {"logits": torch.full((*input_ids.shape, 5), torch.nan)})

    row = FixedTranscript((1, 2, 3), (False, True, True), (False, False, True))
    scores = score_transcripts(Broken(), [row])
    assert np.isnan(scores.logprobs).all()
    assert np.isnan(scores.entropy).all()
