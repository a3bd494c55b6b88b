"""The installed TRL, for a few steps, with real tool calls: fails when a key or signature we rely on is gone.

CI runs this file twice: on the pinned TRL and on the lowest supported one.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch
from transformers import LlamaForCausalLM
from trl import DPOConfig, DPOTrainer, GRPOTrainer, RLOOConfig, RLOOTrainer, SFTConfig, SFTTrainer

from tests.adapters.tiny_trl import (
    chat_rows,
    grpo_config,
    random_reward,
    scripted,
    text_rows,
    tiny_model,
    tool_call,
)
from trimtab import UnsupportedError
from trimtab.adapters.trl import watch
from trimtab.adapters.trl.batch_arrays import clip_range_of
from trimtab.report.run_diagnosis import diagnosis, diagnosis_screen
from trimtab.report.run_view import load_view

SMALL = {"min_tokens": 20, "min_trajectories": 2, "strict": True}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


def captured(run):
    """Every TokenBatch the adapter builds."""
    batches = []
    inner = run.observe

    def observe(batch=None, **arrays):
        from trimtab import token_batch

        made = batch if batch is not None else token_batch(**arrays)
        batches.append(made)
        inner(made)

    run.observe = observe
    return batches


def places(batches):
    """(episode, position) -> (batch, place of the token in it)."""
    return {
        (int(episode), position): (batch, int(start) + position)
        for batch in batches
        for episode, start, length in zip(
            batch.episode_id, np.cumsum(batch.lengths) - batch.lengths, batch.lengths.tolist(), strict=True
        )
        for position in range(length)
    }


def last_row(folder):
    return load_view(folder).steps[-1]


def test_trl_defaults_give_drift_through_our_own_copy(tiny, tmp_path):
    path, tokenizer = tiny
    trainer = GRPOTrainer(
        path,
        random_reward,
        args=grpo_config(tmp_path, learning_rate=1e-2),
        train_dataset=text_rows(),
        processing_class=tokenizer,
    )
    run = watch(trainer, tmp_path / "run", reference_rows=1.0, **SMALL)
    batches = captured(run)
    frozen = copy.deepcopy(trainer.model.state_dict())
    trainer.train()
    assert len(batches) == 3
    assert np.abs(batches[0].logprobs - batches[0].ref_logprobs).max() < 1e-5  # before the first update
    last = batches[-1]
    clean = LlamaForCausalLM.from_pretrained(path)
    assert all(torch.equal(v, frozen[k]) for k, v in clean.state_dict().items() if k in frozen)
    moved = np.abs(last.logprobs - last.ref_logprobs)[last.loss_mask]
    assert moved.max() > 1e-3
    assert last.reference == "trimtab's own copy of the weights at the start"
    assert last.reward is not None
    assert set(last.group.tolist()) == {2}
    row = last_row(tmp_path / "run")
    assert row["step"] == 3
    assert row["costs_s"]["reference"] > 0
    assert math.isfinite(row["metrics"]["grad_norm"])
    assert math.isfinite(row["metrics"]["loss"])
    assert "same policy" in row["not_observed"]["staleness"]
    assert "sampler" in row["not_observed"]["mismatch"]
    worst = load_view(tmp_path / "run").exemplars[-1]["tokens"]["drift"]
    place_of = places(batches)
    assert worst
    for value, theta, ref, episode, position, _, _, token, text in worst:
        batch, place = place_of[episode, position]
        assert token == batch.token_ids[place]
        assert text == tokenizer.decode([token])
        assert (theta, ref) == pytest.approx((batch.logprobs[place], batch.ref_logprobs[place]), rel=1e-5)
        assert value == pytest.approx(abs(theta - ref), rel=1e-4, abs=1e-6)


def test_the_reference_equals_a_clean_model(tiny, tmp_path):
    path, tokenizer = tiny
    trainer = GRPOTrainer(
        path,
        random_reward,
        args=grpo_config(tmp_path, learning_rate=1e-2),
        train_dataset=text_rows(),
        processing_class=tokenizer,
    )
    run = watch(trainer, tmp_path / "run", reference_rows=1.0, **SMALL)
    seen = {}
    inner = trainer._compute_loss

    def keep(model, inputs, *args, **kwargs):
        seen.update(inputs)
        return inner(model, inputs, *args, **kwargs)

    trainer._compute_loss = keep
    batches = captured(run)
    trainer.train()
    ids = torch.cat([seen["prompt_ids"], seen["completion_ids"]], 1)
    mask = torch.cat([seen["prompt_mask"], seen["completion_mask"]], 1)
    width = seen["completion_ids"].size(1)
    with torch.no_grad():
        logits = (
            LlamaForCausalLM.from_pretrained(path)
            .eval()(input_ids=ids, attention_mask=mask)
            .logits[:, -width - 1 : -1]
        )
    oracle = logits.log_softmax(-1).gather(-1, seen["completion_ids"][..., None])[..., 0]
    exists = seen["completion_mask"].bool()
    assert np.allclose(batches[-1].ref_logprobs, oracle[exists].numpy(), atol=1e-5)


def test_rows_keep_their_reward_through_the_shuffle(tiny, tmp_path):
    path, tokenizer = tiny

    def by_length(completions, **_):
        return [float(len(c)) for c in completions]

    trainer = GRPOTrainer(
        path, [by_length, random_reward], args=grpo_config(tmp_path, per_device_train_batch_size=8, max_completion_length=24),
        train_dataset=text_rows(), processing_class=tokenizer,
    )  # fmt: skip
    run = watch(trainer, tmp_path / "run", **SMALL)
    batches, seen = captured(run), []
    inner = trainer._compute_loss

    def keep(model, inputs, *args, **kwargs):
        seen.append(dict(inputs))
        return inner(model, inputs, *args, **kwargs)

    trainer._compute_loss = keep
    trainer.train()
    for batch, inputs in zip(batches, seen, strict=True):
        texts = tokenizer.batch_decode(inputs["completion_ids"], skip_special_tokens=True)
        assert batch.reward_parts["by_length"].tolist() == [float(len(t)) for t in texts]
        total = batch.reward_parts["by_length"] + batch.reward_parts["random_reward"]
        assert np.allclose(batch.reward, total)


def make_tools():
    def add(a: int, b: int) -> int:
        """Add.

        Args:
            a: first
            b: second
        """
        return a + b

    async def search(query: str) -> str:
        """Search.

        Args:
            query: text
        """
        await asyncio.sleep(0.001)
        if query == "boom":
            raise RuntimeError("broke")
        return "found"

    return [add, search]


def test_real_tool_calls_are_recorded_and_slice_the_tokens(tiny, tmp_path):
    path, tokenizer = tiny

    def turn(row, results):
        plan = [
            tool_call("add", a=1, b=2),
            tool_call("search", query="boom" if row % 2 else "q"),
            tool_call("nope", x=1),
        ]
        return plan[results] if results < 3 else "fin<|im_end|>"

    model = scripted(LlamaForCausalLM.from_pretrained(path), tokenizer, turn)
    trainer = GRPOTrainer(
        model, random_reward, args=grpo_config(tmp_path, max_completion_length=900, max_steps=2), train_dataset=chat_rows(),
        processing_class=tokenizer, tools=make_tools(),
    )  # fmt: skip
    run = watch(trainer, tmp_path / "run", reference_rows=1.0, **SMALL)
    batches = captured(run)
    trainer.train()
    view = load_view(tmp_path / "run")
    calls = [row for row in view.tools if row["step"] == 1]
    assert sorted(row["name"] for row in calls) == ["add"] * 4 + ["nope"] * 4 + ["search"] * 4
    errors = {row["name"]: row["error"] for row in calls if row["error"]}
    assert errors == {"search": "RuntimeError: broke", "nope": "unknown tool"}
    add = next(row for row in calls if row["name"] == "add")
    assert add["arguments"] == {"a": 1, "b": 2}
    assert add["result_size"] == 1
    assert 0 <= add["latency_s"] < 5
    assert set(view.slices) >= {
        "text",
        "post_tool",
        "post_tool/add",
        "post_tool/search",
        "post_tool/other",
        "turn/2-3",
        "turn/4-7",
    }
    assert (~batches[0].loss_mask).any()
    assert batches[0].turn[: int(batches[0].lengths[0])].max() == 4


def test_environment_methods_are_tools(tiny, tmp_path):
    path, tokenizer = tiny

    class Shop:
        def reset(self, **_):
            self.cart: list[str] = []

        def put(self, item: str) -> str:
            """Put an item in the cart.

            Args:
                item: the item
            """
            if item == "bad":
                raise ValueError("no such item")
            self.cart.append(item)
            return f"cart={len(self.cart)}"

    def turn(row, results):
        return [tool_call("put", item=f"i{row}"), tool_call("put", item="bad"), "done<|im_end|>"][
            min(results, 2)
        ]

    model = scripted(LlamaForCausalLM.from_pretrained(path), tokenizer, turn)
    trainer = GRPOTrainer(
        model, random_reward, args=grpo_config(tmp_path, max_completion_length=500, max_steps=1), train_dataset=chat_rows(),
        processing_class=tokenizer, environment_factory=Shop,
    )  # fmt: skip
    watch(trainer, tmp_path / "run", **SMALL)
    trainer.train()
    view = load_view(tmp_path / "run")
    assert len(view.tools) == 8
    assert sum(bool(row["error"]) for row in view.tools) == 4
    assert "post_tool/put" in view.slices


def rollout_func(tokenizer):
    def rollout(prompts, trainer):
        out = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": [], "tool_names": []}
        for i, prompt in enumerate(prompts):
            said, tool = tokenizer(f"call {i}")["input_ids"], tokenizer("=42")["input_ids"]
            after = [*tokenizer("ok")["input_ids"], tokenizer.eos_token_id]
            out["prompt_ids"].append(tokenizer(prompt)["input_ids"])
            out["completion_ids"].append(said + tool + after)
            out["env_mask"].append([1] * len(said) + [0] * len(tool) + [1] * len(after))
            out["logprobs"].append([-1.0] * len(said) + [0.0] * len(tool) + [-2.0] * len(after))
            out["tool_names"].append(["calc"])
        return out

    return rollout


def test_rollout_func_gives_mismatch_and_tool_names(tiny, tmp_path):
    path, tokenizer = tiny
    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(tmp_path, max_completion_length=40), train_dataset=text_rows(), processing_class=tokenizer,
        rollout_func=rollout_func(tokenizer),
    )  # fmt: skip
    run = watch(trainer, tmp_path / "run", reference_rows=1.0, probe_every=2, **SMALL)
    batches = captured(run)
    trainer.train()
    batch = batches[0]
    post = (batch.phase > 0) & batch.loss_mask
    assert np.allclose(batch.rollout_logprobs[post], -2.0)
    assert np.allclose(batch.rollout_logprobs[(batch.phase == 0) & batch.loss_mask], -1.0)
    assert np.array_equal(batch.old_logprobs, batch.logprobs)
    view = load_view(tmp_path / "run")
    assert "post_tool/calc" in view.slices
    assert view.series("mismatch/p99", "post_tool")
    assert (tmp_path / "run" / "probes.r0.npz").exists()


def test_rollout_func_says_how_old_its_weights_are(tiny, tmp_path):
    """Rows of weights 0, 1, 2, 3 updates old by turns: the age reaches each token, also after TRL's shuffle."""
    path, tokenizer = tiny
    inner = rollout_func(tokenizer)

    def rollout(prompts, trainer):
        out = inner(prompts, trainer)
        versions = [int(trainer.state.global_step) - i % 4 for i in range(len(prompts))]
        return out | {"policy_version": versions}

    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(tmp_path, max_completion_length=40), train_dataset=text_rows(),
        processing_class=tokenizer, rollout_func=rollout,
    )  # fmt: skip
    run = watch(trainer, tmp_path / "run", **SMALL)
    batches = captured(run)
    trainer.train()
    for step, batch in enumerate(batches, start=1):
        assert batch.current_version == step - 1
        rows = np.repeat(batch.episode_id % 4, batch.lengths)
        assert np.array_equal(batch.current_version - batch.policy_version, rows)
    view = load_view(tmp_path / "run")
    assert "policy_version" not in view.not_observed
    assert view.series("policy_lag/max", "all")[-1].value == 3


def test_lagged_drift_from_kept_probes(tiny, tmp_path):
    path, tokenizer = tiny
    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(tmp_path, max_completion_length=40, max_steps=4, learning_rate=1e-2),
        train_dataset=text_rows(), processing_class=tokenizer, rollout_func=rollout_func(tokenizer),
    )  # fmt: skip
    watch(trainer, tmp_path / "run", probe_every=2, **SMALL)
    trainer.train()
    lagged = load_view(tmp_path / "run").series("lagged_drift/p99", "post_tool")
    assert [(r.window.first, r.window.last) for r in lagged] == [(3, 4)]
    assert lagged[0].value > 0


@pytest.mark.parametrize("case", ["old", "reference", "peft"])
def test_columns_of_other_settings(tiny, tmp_path, case):
    path, tokenizer = tiny
    changes, extra = (
        {
            "old": {"num_iterations": 2, "max_steps": 4, "epsilon_high": 0.28},
            "reference": {"beta": 0.04},
            "peft": {},
        }[case],
        {},
    )
    if case == "peft":
        peft = pytest.importorskip("peft")
        extra["peft_config"] = peft.LoraConfig(
            r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
        )
    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(tmp_path, learning_rate=1e-2, **changes), train_dataset=text_rows(),
        processing_class=tokenizer, **extra,
    )  # fmt: skip
    run = watch(trainer, tmp_path / "run", reference_rows=1.0, **SMALL)
    batches = captured(run)
    trainer.train()
    last = batches[-1]
    assert last.clip_range == ((0.2, 0.28) if case == "old" else (0.2, 0.2))
    if case == "old":
        assert np.abs(last.logprobs - last.old_logprobs).max() > 1e-4
        assert batches[0].episode_id.tolist() == batches[1].episode_id.tolist() or set(
            batches[0].episode_id
        ) == set(batches[1].episode_id)
        total = sum(row["slices"]["all"]["n_trajectories"] for row in load_view(tmp_path / "run").steps)
        assert total == 8  # two generations of four, each trained on twice
    expected = {"old": "own copy", "reference": "trainer's own", "peft": "adapter switched off"}[case]
    assert expected in last.reference
    assert np.abs(batches[0].logprobs - batches[0].ref_logprobs).max() < 1e-4
    assert np.abs(last.logprobs - last.ref_logprobs).max() > 1e-4


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (0.2, 0.28)),
        ({"loss_type": "cispo"}, None),
        ({"importance_sampling_level": "sequence"}, None),
        ({"epsilon_low": 0.0}, None),
    ],
)
def test_only_a_clip_of_each_tokens_ratio_is_passed_on(changes, expected):
    plain = {
        "loss_type": "dapo", "importance_sampling_level": "token", "epsilon_low": 0.2, "epsilon_high": 0.28,
    }  # fmt: skip
    assert clip_range_of(SimpleNamespace(**{**plain, **changes})) == expected


def test_reference_off_is_blind_where_nothing_else_is_observed(tiny, tmp_path):
    path, tokenizer = tiny
    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(tmp_path), train_dataset=text_rows(), processing_class=tokenizer
    )
    watch(trainer, tmp_path / "run", reference="off", **SMALL)
    trainer.train()
    view = load_view(tmp_path / "run")
    assert view.verdict.word == "blind"
    assert "switched off" in view.verdict.reason


def test_readings_reach_the_trainers_own_log(tiny, tmp_path):
    path, tokenizer = tiny
    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(tmp_path), train_dataset=text_rows(), processing_class=tokenizer
    )
    watch(trainer, tmp_path / "run", reference_rows=1.0, **SMALL)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert "trimtab/text/drift/p99" in logged[-1]
    assert logged[-1]["trimtab/num_alarms"] == 0.0


def test_resume_from_a_checkpoint_continues_the_run(tiny, tmp_path):
    path, tokenizer = tiny
    for steps in (3, 5):
        config = grpo_config(
            tmp_path, max_steps=steps, save_strategy="steps", save_steps=2, learning_rate=1e-2
        )
        trainer = GRPOTrainer(
            path, random_reward, args=config, train_dataset=text_rows(), processing_class=tokenizer
        )
        run = watch(trainer, tmp_path / "run", reference_rows=1.0, **SMALL)
        batches = captured(run)
        trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2") if steps == 5 else None)
    view = load_view(tmp_path / "run")
    assert [row["step"] for row in view.steps] == [1, 2, 3, 4, 5]
    assert [row["session"] for row in view.steps] == [0, 0, 1, 1, 1]
    assert (
        np.abs(batches[0].logprobs - batches[0].ref_logprobs).max() > 1e-3
    )  # the reference is still the start


def test_a_failing_monitor_never_stops_training_and_never_looks_healthy(tiny, tmp_path, monkeypatch):
    path, tokenizer = tiny
    monkeypatch.setattr("trimtab.monitor.batch_measurement.observe", lambda *_: 1 / 0)
    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(tmp_path), train_dataset=text_rows(), processing_class=tokenizer
    )
    watch(trainer, tmp_path / "run", **{**SMALL, "strict": False})
    assert trainer.train().global_step == 3
    view = load_view(tmp_path / "run")
    assert view.verdict.word == "blind"
    assert view.errors[-1]["error"].startswith("ZeroDivisionError")
    assert "Traceback" in view.errors[-1]["traceback"]


def test_evaluation_is_not_captured(tiny, tmp_path):
    path, tokenizer = tiny
    config = grpo_config(
        tmp_path, eval_strategy="steps", eval_steps=1, max_steps=2, per_device_eval_batch_size=4
    )
    trainer = GRPOTrainer(
        path,
        random_reward,
        args=config,
        train_dataset=text_rows(),
        eval_dataset=text_rows(4),
        processing_class=tokenizer,
    )
    run = watch(trainer, tmp_path / "run", **SMALL)
    batches = captured(run)
    trainer.train()
    assert len(batches) == 2


def test_dpo_gives_chosen_and_rejected_tokens(tiny, tmp_path):
    path, tokenizer = tiny
    from datasets import Dataset

    rows = Dataset.from_list([
        {"prompt": [{"role": "user", "content": f"q{i}"}], "chosen": [{"role": "assistant", "content": f"yes {i}"}],
         "rejected": [{"role": "assistant", "content": f"no no {i}"}]} for i in range(8)
    ])  # fmt: skip
    config = DPOConfig(output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, max_steps=3, logging_steps=1, report_to=[],
                       use_cpu=True, save_strategy="no", bf16=False, disable_tqdm=True, learning_rate=1e-2)  # fmt: skip
    trainer = DPOTrainer(
        LlamaForCausalLM.from_pretrained(path), args=config, train_dataset=rows, processing_class=tokenizer
    )
    run = watch(trainer, tmp_path / "run", **SMALL)
    batches = captured(run)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "logps/chosen" in entry]
    for batch, entry in zip(batches, logged, strict=True):
        sums = np.add.reduceat(batch.logprobs, np.cumsum(batch.lengths) - batch.lengths)
        assert sums[:4].mean() == pytest.approx(entry["logps/chosen"], rel=1e-3)
    assert {"source/chosen", "source/rejected"} <= set(load_view(tmp_path / "run").slices)
    assert load_view(tmp_path / "run").series("drift/p99", "source/chosen")


def test_sft_gives_step_metrics_and_says_what_it_cannot_give(tiny, tmp_path):
    """Issue 17.5: it was BLIND because "no probe transcripts were scored"."""
    path, tokenizer = tiny
    from datasets import Dataset

    rows = Dataset.from_list([{"text": f"row {i} says hello"} for i in range(8)])
    config = SFTConfig(output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, max_steps=12, logging_steps=1, report_to=[],
                       use_cpu=True, save_strategy="no", bf16=False, disable_tqdm=True)  # fmt: skip
    trainer = SFTTrainer(path, args=config, train_dataset=rows, processing_class=tokenizer)
    watch(trainer, tmp_path / "run", **SMALL)
    trainer.train()
    view = load_view(tmp_path / "run")
    assert len(view.steps) == 12
    assert view.series("aggregate/grad_norm", "all")
    assert view.verdict.word == "not judged yet"
    assert "nothing is sampled" in view.not_observed["mismatch"]
    assert view.not_observed["drift"] == "SFTTrainer has no reference policy (ref_logprobs)"
    assert view.not_observed["reward"] == "SFTTrainer has no reward"
    assert "SFTTrainer trains on given texts" in "\n".join(diagnosis_screen(diagnosis(view)))


def test_rloo_gives_averages_and_says_that_its_tokens_are_not_read(tiny, tmp_path):
    """Issue 17.5: an RLOO run was BLIND for a reason that is not its own."""
    path, tokenizer = tiny
    config = RLOOConfig(output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, num_generations=4, max_completion_length=4,
                        max_steps=2, logging_steps=1, report_to=[], use_cpu=True, save_strategy="no", bf16=False, disable_tqdm=True)  # fmt: skip
    trainer = RLOOTrainer(
        path, random_reward, args=config, train_dataset=text_rows(), processing_class=tokenizer
    )
    watch(trainer, tmp_path / "run", **SMALL)
    trainer.train()
    view = load_view(tmp_path / "run")
    assert view.verdict.word == "not judged yet"
    assert "not those of RLOOTrainer" in view.not_observed["mismatch"]
    assert "probe" not in view.verdict.reason
    assert "reward" not in view.not_observed


def test_what_cannot_be_watched_is_refused_by_name(tiny, tmp_path):
    path, tokenizer = tiny
    with pytest.raises(UnsupportedError, match="got dict"):
        watch({}, tmp_path / "run")
    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(tmp_path), train_dataset=text_rows(), processing_class=tokenizer
    )
    watch(trainer, tmp_path / "run")
    with pytest.raises(UnsupportedError, match="already watched"):
        watch(trainer, tmp_path / "run2")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["trainer"] == "GRPOTrainer"
