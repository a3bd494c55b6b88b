"""A loop in the style of tinker-cookbook's recipes/rl_loop.py, watched with one line a step."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tinker
from tinker import AdamParams, Datum

import trimtab
from reproduce.tinker_lab.episodes import advantages_of, datum, play, rewards_of, whole_sequence
from trimtab.adapters.tinker import observe
from trimtab.lab.database import TOOL_NAMES, World
from trimtab.lab.executed_world import ExecutedWorld
from trimtab.lab.ramp import Ramp
from trimtab.lab.tasks import TaskMix
from trimtab.lab.toolbox import Toolbox

__all__ = ["Plan", "train"]

RECORDED = 6
"""Data of a step that `records.json` has."""


@dataclass(frozen=True)
class Plan:
    """One run. A fault: from step `stale_from` on the sampler keeps that step's weights; `declared`: the loop says so."""

    steps: int = 20
    seed: int = 0
    learning_rate: float = 1e-3
    prompts: int = 4
    group: int = 4
    stale_from: int | None = None
    declared: bool = False


def train(url: str, base_model: str, folder: Path, plan: Plan) -> list[dict[str, Any]]:
    """Train through the server at `url`; the run goes to `folder`. Return one row of numbers a step.

    Beside the folder, `records.json` has the first step's first data and what came back: the adapter is still zero,
    so that any engine can score them.
    """
    service = tinker.ServiceClient(base_url=url, api_key="tml-local")
    client = service.create_lora_training_client(base_model=base_model, rank=8, seed=plan.seed)
    config = {"trainer": "skyrl tinker api", "tinker": tinker.__version__, "plan": plan.__dict__}
    world = World(plan.seed)
    with ExecutedWorld(world) as executor, trimtab.open_run(folder, config=config) as run:
        calls: list[Any] = []
        toolbox = Toolbox(world, seed=plan.seed, on_tool_call=calls.append, service=executor)
        rows = []
        for row, records in _steps(service, client, run, toolbox, plan, calls):
            rows.append(row)
            print(json.dumps(row), flush=True)
            if row["step"] == 0:
                (folder.parent / "records.json").write_text(json.dumps(records))
    return rows


def _steps(
    service: Any, client: Any, run: Any, toolbox: Toolbox, plan: Plan, calls: list[Any]
) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    tasks = TaskMix(toolbox.world, plan.seed, Ramp.constant(0.75))
    sampled_with = 0
    reference = service.create_sampling_client(base_model=client.get_info().model_data.model_name)
    sampler = client.save_weights_and_get_sampling_client()
    for step in range(plan.steps):
        start = time.monotonic()
        if step and (plan.stale_from is None or step < plan.stale_from):
            sampler, sampled_with = client.save_weights_and_get_sampling_client(), step
        elif step == plan.stale_from:
            sampler, sampled_with = _copy(service, client), step
        prompts = [tasks.prompt(step, i // plan.group) for i in range(plan.prompts * plan.group)]
        episodes = play(sampler, prompts, toolbox, step=step, seed=plan.seed)
        rewards = rewards_of(episodes)
        data = [datum(e, a) for e, a in zip(episodes, advantages_of(rewards, plan.group), strict=True)]
        result, optimizer = _update(client, data, plan.learning_rate)
        frozen = [reference.compute_logprobs(whole_sequence(d)) for d in data]
        versions = (
            {"policy_version": [sampled_with] * len(data), "current_version": step} if plan.declared else {}
        )
        observe(
            run, data, result, reward=rewards, group=[i // plan.group for i in range(len(data))],
            tools=[[call.partition(" ")[0] for call in e.called] for e in episodes], tool_names=TOOL_NAMES,
            stop_reason=[e.stop_reason for e in episodes],
            ref_logprobs=[future.result() for future in frozen], reference="base model", **versions,
        )  # fmt: skip
        for call in calls:
            run.tool_call(_tool_call(call, step))
        seconds = time.monotonic() - start
        metrics = {
            "reward": sum(rewards) / len(rewards),
            **(optimizer.metrics or {}),
            **(result.metrics or {}),
        }
        alarms = run.flush(step, metrics, duration_s=seconds)
        row = _row(step, metrics, data, result, sampled_with) | {
            "tool_calls": len(calls), "s": round(seconds, 2), "alarms": [alarm.rule for alarm in alarms],
        }  # fmt: skip
        yield row, [_record(*pair) for pair in zip(data[:RECORDED], result.loss_fn_outputs, strict=False)]
        calls.clear()


def _copy(service: Any, client: Any) -> Any:
    """Return a sampler with a copy of its own of the weights as they are now, as a separate engine would have.

    SkyRL 0.3.0's JAX backend has one adapter for the training and the samplers of a model: a sampler that was not
    refreshed samples from the trained weights all the same, and one of an older checkpoint overwrites them
    (backends/jax.py, load_sampler_weights).
    """
    path = client.save_state("stale").result().path
    return service.create_training_client_from_state(path).save_weights_and_get_sampling_client()


def _update(client: Any, data: list[Datum], learning_rate: float) -> tuple[Any, Any]:
    """Enqueue both requests at once, as the cookbook does; `mask` is the loop's own and is not sent."""
    sent = [
        replace(d, loss_fn_inputs={k: v for k, v in d.loss_fn_inputs.items() if k != "mask"}) for d in data
    ]
    scores = client.forward_backward(sent, "importance_sampling")
    step = client.optim_step(AdamParams(learning_rate=learning_rate, beta1=0.9, beta2=0.95, eps=1e-8))
    return scores.result(), step.result()


def _tool_call(call: Any, step: int) -> trimtab.ToolCall:
    return trimtab.ToolCall(
        call["name"], dict(call["arguments"]), call["result_size"], call["error"] or "", call["latency_s"], step,
        blame=call.get("blame", ""), kind=call.get("kind", ""), attempts=call.get("attempts", 1),
        queued_s=call.get("queued_s", 0.0),
    )  # fmt: skip


def _record(datum: Datum, output: Any) -> dict[str, Any]:
    """Return a datum and its output as JSON, in the API's names."""
    fields = {
        name: {"data": tensor.tolist(), "dtype": tensor.dtype}
        for name, tensor in datum.loss_fn_inputs.items()
    }
    scores = {name: {"data": tensor.tolist(), "dtype": tensor.dtype} for name, tensor in output.items()}
    chunks = [{"tokens": list(chunk.tokens), "type": "encoded_text"} for chunk in datum.model_input.chunks]
    return {"datum": {"model_input": {"chunks": chunks}, "loss_fn_inputs": fields}, "output": scores}


def _row(step: int, metrics: Any, data: list[Datum], result: Any, sampled_with: int) -> dict[str, Any]:
    """Return the step's numbers, worked out without trimtab: |trainer - sampler| log-probability in nats."""
    gaps = [
        abs(float(ours) - float(theirs))
        for d, out in zip(data, result.loss_fn_outputs, strict=True)
        for ours, theirs, own in zip(
            out["logprobs"].tolist(),
            d.loss_fn_inputs["logprobs"].tolist(),
            d.loss_fn_inputs["mask"].tolist(),
            strict=True,
        )
        if own
    ]
    return {
        "step": step, "reward": round(metrics["reward"], 4), "tokens": len(gaps), "sampled_with": sampled_with,
        "abs_gap_mean": float(f"{sum(gaps) / len(gaps):.3g}"), "abs_gap_max": float(f"{max(gaps):.3g}"),
        "grad_norm": float(f"{metrics.get('skyrl.ai/grad_norm', float('nan')):.4g}"),
    }  # fmt: skip
