"""A MiniRLTrainer that samples from llama.cpp: mu of each step is that of the file of that step, and the mismatch is logged."""

from __future__ import annotations

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch

from tests.adapters.tiny_trl import chat_rows
from tests.training.llamacpp.support import loaded, read_back, tiny
from tests.training.test_engines import by_length_of_chat
from tests.training.tiny import COMMON, Spy, loss_mask, moe, ours
from trimtab.errors import UnsupportedError
from trimtab.training import MiniRLConfig, MiniRLTrainer

pytestmark = pytest.mark.llama
NEAR = {"f32": 1e-4, "f16": 3e-2, "q8_0": 0.3}  # nats, at temperature 0.8


@pytest.mark.parametrize("weights", NEAR)
def test_mu_is_that_of_the_file_of_each_step(weights, engine_of, tmp_path):
    path = tiny("llama", tmp_path / "llama")
    engine = engine_of(weights, max_new_tokens=10, cache="f32" if weights == "f32" else "f16")
    trainer = ours(path, tmp_path, rollout=engine, max_steps=2, learning_rate=0.05, temperature=0.8)
    spy, files, inner = Spy(trainer), [], engine.synchronise

    def keep(owner):
        inner(owner)
        files.append(read_back(engine.path, loaded(path)))

    engine.synchronise = keep
    trainer.train()
    assert len(files) == len(spy.seen) == 2
    first, second = (net.model.layers[0].mlp.up_proj.weight for net in files)
    assert not torch.equal(first, second)  # exported again
    for (inputs, logps, _), net in zip(spy.seen, files, strict=True):
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        width, mask = inputs["completion_ids"].size(1), loss_mask(inputs)
        with torch.no_grad():
            logits = net(input_ids=ids, attention_mask=attended).logits[:, -width - 1 : -1] / 0.8
        expected = logits.log_softmax(-1).gather(-1, inputs["completion_ids"][..., None])[..., 0]
        mu = inputs["sampling_per_token_logps"]
        assert float((mu - expected)[mask].abs().max()) < NEAR[weights]
        if weights != "f32":
            assert float((mu - logps)[mask].abs().max()) > 1e-3  # an engine of its own
        assert float(mu[mask].std()) > 0.5
    logged = trainer.state.log_history[0]["trimtab/mismatch/abs_mean"]
    assert logged < 1e-4 if weights == "f32" else 1e-5 < logged < 0.1


def test_a_conversation_and_more_rows_than_one_context_holds(engine_of, tmp_path, monkeypatch):
    from trimtab.training.llamacpp import rollout_engine as module

    monkeypatch.setattr(module, "_ROWS", 3)
    path = tiny("qwen3", tmp_path / "qwen3", max_position_embeddings=1024)
    engine = engine_of("f32", max_new_tokens=8, cache="f32")
    args = MiniRLConfig(
        **{**COMMON, "max_steps": 1, "output_dir": str(tmp_path), "top_k": 5, "max_completion_length": 8}
    )
    trainer = MiniRLTrainer(
        path, by_length_of_chat, args=args, train_dataset=chat_rows(), rollout_func=engine,
    )  # fmt: skip
    spy = Spy(trainer)
    trainer.train()
    inputs = spy.seen[0][0]
    assert trainer.processing_class.decode(inputs["prompt_ids"][0]).endswith("<|im_start|>assistant\n")
    net = loaded(path)
    for row, mask in enumerate(loss_mask(inputs)):
        prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row].bool()]
        ids = inputs["completion_ids"][row][mask]
        with torch.no_grad():
            logits = net(torch.cat([prompt, ids])[None]).logits[0, len(prompt) - 1 : -1]
        cut = logits.masked_fill(logits < logits.topk(5).values[:, -1:], -torch.inf).log_softmax(-1)
        expected = cut.gather(-1, ids[:, None])[:, 0]
        torch.testing.assert_close(
            inputs["sampling_per_token_logps"][row][mask], expected, rtol=0.0, atol=1e-4
        )


def test_mixtures_and_adapters_are_refused(engine_of, tmp_path):
    mixture = ours(
        moe(tmp_path / "moe"), tmp_path, rollout=engine_of(max_new_tokens=2), max_steps=1, routing_replay="R3"
    )
    with pytest.raises(UnsupportedError, match="'qwen3_moe', and returns no routes"):
        mixture.train()
    library = pytest.importorskip("peft")
    path = tiny("llama", tmp_path / "llama")
    config = library.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    adapted = ours(path, tmp_path, rollout=engine_of(max_new_tokens=2), max_steps=1, peft_config=config)
    with pytest.raises(UnsupportedError, match="merge the adapter"):
        adapted.train()
