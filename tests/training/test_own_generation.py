"""The trainer's own generation: mu is what the sampler drew from, over the turns of TRL's tool loop; routes follow the same turns."""

from __future__ import annotations

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch
from transformers import LlamaForCausalLM, LogitsProcessor, LogitsProcessorList, Qwen3MoeForCausalLM

from tests.adapters.tiny_trl import chat_rows, make_tokenizer, text_rows, tiny_model, tool_call
from tests.training.tiny import COMMON, Spy, loss_mask, moe, ours
from trimtab.errors import ObjectiveError
from trimtab.training import MiniRLConfig, MiniRLTrainer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))[0]


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    return moe(tmp_path_factory.mktemp("moe"))


@torch.no_grad()
def forward(net, inputs):
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    return net(input_ids=ids, attention_mask=attended).logits[:, -inputs["completion_ids"].size(1) - 1 : -1]


@pytest.mark.parametrize("peft", [False, True])
def test_mu_is_the_processed_distribution(model, tmp_path, peft):
    extra = {}
    if peft:  # a fresh adapter changes nothing yet
        library = pytest.importorskip("peft")
        extra["peft_config"] = library.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")
    trainer = ours(model, tmp_path, max_steps=1, temperature=0.7, top_k=20, seed=3, **extra)
    spy = Spy(trainer)
    trainer.train()
    inputs, logps, loss = spy.seen[0]
    logits = forward(LlamaForCausalLM.from_pretrained(model).eval(), inputs) / 0.7
    floor = logits.topk(20).values[..., -1:]
    processed = logits.masked_fill(logits < floor, -torch.inf).log_softmax(-1)
    mu = processed.gather(-1, inputs["completion_ids"][..., None])[..., 0]
    mask = loss_mask(inputs)
    torch.testing.assert_close(inputs["sampling_per_token_logps"][mask], mu[mask], rtol=1e-4, atol=1e-4)
    mismatch = (logps - inputs["sampling_per_token_logps"])[mask]
    assert float(mismatch.max()) < -0.01  # top-k took mass away from the others: mu is above pi everywhere
    weight = (logps - mu).exp().clamp(max=5)
    hand = -(weight * inputs["advantages"][:, None] * logps * mask)[mask].sum() / 4
    assert float(loss) == pytest.approx(float(hand), rel=1e-3, abs=1e-5)


class Script(LogitsProcessor):
    """Makes sampling write a text, through transformers' own loop: 0 for the wanted token, -14 for all others."""

    def __init__(self, texts, width, strength=14.0):
        self.texts, self.width, self.strength = texts, width, strength

    def __call__(self, input_ids, scores):
        at = input_ids.shape[1] - self.width
        scores = scores.clone().fill_(-self.strength)
        for row, text in enumerate(self.texts):
            scores[row, text[min(at, len(text) - 1)]] = 0.0
        return scores


def scripted(net, tokenizer, turn):
    """`turn(row of this call, tool results so far)` is what the row writes; sampling, cache and stopping stay real."""
    inner = net._get_logits_processor

    def processors(*args, **kwargs):
        built = inner(*args, **kwargs)
        prompt = kwargs["input_ids_seq_length"], kwargs["encoder_input_ids"]
        texts = [
            tokenizer(turn(row, tokenizer.decode(ids).count("<tool_response>")), add_special_tokens=False)[
                "input_ids"
            ]
            for row, ids in enumerate(prompt[1].tolist())
        ]
        return LogitsProcessorList([*built, Script(texts, prompt[0])])

    net._get_logits_processor = processors
    return net


def add(a: int, b: int) -> int:
    """Add.

    Args:
        a: first
        b: second
    """
    return a + b


def rewards(completions, **_):
    return [float(i % 3) for i in range(len(completions))]


def with_tools(net, tokenizer, folder, **settings):
    def turn(row, results):
        return tool_call("add", a=1, b=row) if results < 2 and row != 1 else "fin<|im_end|>"

    args = MiniRLConfig(
        **{**COMMON, "output_dir": str(folder), "max_completion_length": 700, "max_steps": 1, **settings}
    )  # fmt: skip
    return MiniRLTrainer(
        scripted(net, tokenizer, turn), rewards, args=args, train_dataset=chat_rows(), processing_class=tokenizer, tools=[add]
    )  # fmt: skip


def test_mu_and_tool_masks_over_turns(model, tmp_path):
    trainer = with_tools(LlamaForCausalLM.from_pretrained(model), make_tokenizer(), tmp_path)
    spy = Spy(trainer)
    trainer.train()
    inputs = spy.seen[0][0]
    mask, exists = loss_mask(inputs), inputs["completion_mask"].bool()
    assert int((exists & ~mask).sum()) > 0
    row = int((exists & ~mask).sum(1).argmin())  # the one that called no tool
    assert int((exists & ~mask)[row].sum()) == 0
    words = len(trainer.processing_class)
    wanted = -torch.log(torch.tensor(1 + (words - 1) * torch.e**-14))
    logs = inputs["sampling_per_token_logps"]
    torch.testing.assert_close(logs[mask], wanted.expand(int(mask.sum())), rtol=1e-3, atol=1e-5)
    assert (logs[exists & ~mask] == 0).all()
    assert trainer.state.log_history[0]["tools/call_frequency"] == 1.25  # three rows: two, one and two calls
    assert "trimtab/truncated_frac/post_tool" in trainer.state.log_history[0]


def test_r3_over_turns_replays_what_each_turn_sampled(experts, tmp_path):
    net = Qwen3MoeForCausalLM.from_pretrained(experts)
    trainer = with_tools(net, make_tokenizer(), tmp_path, routing_replay="R3", routing_compare=True)
    spy = Spy(trainer)
    trainer.train()
    inputs = spy.seen[0][0]
    clean = Qwen3MoeForCausalLM.from_pretrained(experts).eval()
    natural = []
    for layer in clean.model.layers:
        layer.mlp.gate.register_forward_hook(lambda module, args, out: natural.append(out[2]))
    forward(clean, inputs)
    routes, required = inputs["trimtab_routes"], inputs["trimtab_routes_required"]
    own = torch.stack([n.view(*routes.shape[:2], -1) for n in natural], dim=2)
    agree = (own.sort(-1).values == routes.sort(-1).values.long()).all(-1)[required]
    assert agree.float().mean() > 0.98  # one engine: only ties of rounding differ
    attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1).bool()
    assert int((attended & ~required).sum()) == 4  # the last token of each row was never fed
    assert (routes[~attended] == -1).all()
    assert trainer.state.log_history[0]["routing/changed_frac"] < 0.02


def test_a_generate_that_shows_no_scores_is_refused(model, tmp_path):
    trainer = ours(model, tmp_path, max_steps=1)
    trainer.model.generate = lambda input_ids=None, **_: torch.cat([input_ids, input_ids[:, -3:]], 1)
    with pytest.raises(ObjectiveError, match="not transformers' sampling loop"):
        trainer.train()


@pytest.mark.parametrize("objective", ["minirl", "dapo"])
def test_an_evaluation_scores_its_own_batches_and_touches_no_sums_of_training(model, tmp_path, objective):
    trainer = ours(
        model, tmp_path, objective=objective, max_steps=1, eval_dataset=text_rows(8), per_device_eval_batch_size=4,
        ewma_centre_of_mass=2.0 if objective == "minirl" else None,
    )  # fmt: skip
    seen, inner = [], trainer._compute_loss

    def keep(net, inputs):
        value = inner(net, inputs)
        if not trainer.model.training:
            seen.append((inputs, float(value)))
        return value

    trainer._compute_loss = keep
    trainer.train()
    before = {name: value.clone() for name, value in trainer.accumulator.sums.items()}
    found = trainer.evaluate()
    assert found["eval_loss"] == pytest.approx(sum(loss for _, loss in seen) / len(seen), abs=1e-6)
    assert len(seen) == 8
    assert all(torch.equal(before[name], value) for name, value in trainer.accumulator.sums.items())
    if objective == "dapo":  # on policy the ratio is 1: minus the mean advantage of the tokens
        inputs, loss = seen[0]
        mask = loss_mask(inputs)
        assert loss == pytest.approx(
            -float((inputs["advantages"][:, None] * mask).sum() / mask.sum()), abs=1e-5
        )
