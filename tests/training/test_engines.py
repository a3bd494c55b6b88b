"""The second engine samples from the rounded weights of now, and says so: mu, routes, and what replay then leaves of the mismatch."""

from __future__ import annotations

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch
from transformers import LlamaForCausalLM, Qwen3MoeForCausalLM

from tests.adapters.tiny_trl import chat_rows, tiny_model
from tests.training.tiny import COMMON, Spy, loss_mask, moe, ours
from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.training import MiniRLConfig, MiniRLTrainer
from trimtab.training.inference_engines import RoundedEngine, rounded


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return moe(tmp_path_factory.mktemp("moe"))


@pytest.mark.parametrize(("to", "worst"), [("bf16", 2**-8), ("fp8", 2**-4), ("int8", None)])
def test_rounding_is_nearest_and_idempotent(to, worst):
    weight = torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(0))
    once = rounded(weight, to)
    torch.testing.assert_close(rounded(once, to), once, rtol=1e-6, atol=1e-7)
    most = weight.abs().amax(-1, keepdim=True)
    bound = 0.5 * most / 127 if worst is None else worst * weight.abs() + most / 448 * 2**-10
    assert ((once - weight).abs() <= bound * 1.001).all()
    assert (once != weight).any()
    assert torch.equal(rounded(weight[0, 0], to), weight[0, 0])
    with pytest.raises(UnsupportedError, match="fp4"):
        rounded(weight, "fp4")


def test_mu_is_that_of_the_rounded_weights_of_each_step(model, tmp_path):
    engine = RoundedEngine("fp8", max_new_tokens=10)
    trainer = ours(
        model,
        tmp_path,
        rollout=engine,
        max_steps=2,
        routing_replay="R3",
        routing_compare=True,
        learning_rate=0.5,
    )
    spy, copies, inner = Spy(trainer), [], engine.synchronise

    def keep(owner):
        inner(owner)
        now = dict(owner.model.named_parameters())
        assert all(
            torch.equal(p, rounded(now[n].detach(), "fp8")) for n, p in engine.model.named_parameters()
        )
        copies.append({n: p.clone() for n, p in engine.model.named_parameters()})

    engine.synchronise = keep
    trainer.train()
    assert len(copies) == 2
    assert any(not torch.equal(copies[0][n], copies[1][n]) for n in copies[0])
    for (inputs, logps, _), weights in zip(spy.seen, copies, strict=True):
        clean = Qwen3MoeForCausalLM.from_pretrained(model).eval()
        clean.load_state_dict(weights)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        width, mask = inputs["completion_ids"].size(1), loss_mask(inputs)
        with torch.no_grad():
            logits = clean(input_ids=ids, attention_mask=attended).logits[:, -width - 1 : -1]
        mu = logits.log_softmax(-1).gather(-1, inputs["completion_ids"][..., None])[..., 0]
        torch.testing.assert_close(inputs["sampling_per_token_logps"][mask], mu[mask], rtol=1e-3, atol=1e-3)
        assert (logps - mu)[mask].abs().max() > 1e-2  # the mismatch is real
    assert trainer.state.log_history[0]["routing/changed_frac"] > 0.02  # and so is that of the routes


def test_other_formats_are_refused_at_construction():
    with pytest.raises(
        UnsupportedError, match=r"bf16, fp8 or int8, not in 'fp4'; GGUF formats are LlamaCppEngine's"
    ):
        RoundedEngine("fp4", max_new_tokens=4)


def test_it_samples_as_the_trainer_is_told_to_from_a_conversation(tmp_path):
    path, tokenizer = tiny_model(tmp_path / "dense")
    args = MiniRLConfig(
        **{
            **COMMON,
            "max_steps": 1,
            "output_dir": str(tmp_path),
            "temperature": 0.5,
            "top_k": 5,
            "max_completion_length": 8,
        }
    )
    engine = RoundedEngine("float32", max_new_tokens=8)
    trainer = MiniRLTrainer(
        path,
        by_length_of_chat,
        args=args,
        train_dataset=chat_rows(),
        processing_class=tokenizer,
        rollout_func=engine,
    )
    spy = Spy(trainer)
    trainer.train()
    inputs = spy.seen[0][0]
    assert tokenizer.decode(inputs["prompt_ids"][0]).endswith("<|im_start|>assistant\n")
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    width, mask = inputs["completion_ids"].size(1), loss_mask(inputs)
    with torch.no_grad():
        net = LlamaForCausalLM.from_pretrained(path).eval()
        logits = net(input_ids=ids, attention_mask=attended).logits[:, -width - 1 : -1] / 0.5
    floor = logits.topk(5).values[..., -1:]
    processed = logits.masked_fill(logits < floor, -torch.inf).log_softmax(-1)
    mu = processed.gather(-1, inputs["completion_ids"][..., None])[..., 0]
    torch.testing.assert_close(inputs["sampling_per_token_logps"][mask], mu[mask], rtol=1e-3, atol=1e-3)
    engine.temperature = 1.0
    with pytest.raises(ObjectiveError, match=r"temperature=1, the trainer scores at 0\.5"):
        engine(["a"], trainer)


def by_length_of_chat(completions, **_):
    return [float(len(turns[0]["content"]) % 3) for turns in completions]


def test_an_adapter_is_refused(model, tmp_path):
    library = pytest.importorskip("peft")
    trainer = ours(
        model, tmp_path, rollout=RoundedEngine(max_new_tokens=4), max_steps=1,
        peft_config=library.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"),
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="merge the adapter"):
        trainer.train()
