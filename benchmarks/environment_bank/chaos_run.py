"""A lab run whose tool `price` meets one mode of chaos from a step on: does it end, is a fault a reward, is the tool named?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from trimtab.lab.database import World
from trimtab.lab.executed_world import ExecutedWorld
from trimtab.lab.experiments import Arm
from trimtab.lab.ramp import Ramp
from trimtab.lab.rollout import Limits
from trimtab.tools.chaos import Chaos
from trimtab.tools.retries import RetryOptions

ARM = Arm("chaos", alpha=Ramp.constant(1.0), limits=Limits(max_tokens=40))
TOOL, FROM_STEP, RATE, PROMPTS, GENERATIONS = "price", 12, 0.7, 6, 4
ATTEMPTS = {"stale": 1}
"""Attempts a call, 2 by default. A second one of a stale call would get the first one's own answer, and nothing would break."""


def chaos_run(mode: str, steps: int = 20, seed: int = 0) -> dict[str, Any]:
    """Train, watch, and count what must not be: broken episodes with a reward or an advantage, wrong values taken for good."""
    from trimtab.report.run_incidents import incidents_at
    from trimtab.report.run_view import load_view
    from trimtab.training.lab_grpo import lab_trainer, watch_lab

    world = World(seed)
    chaos = Chaos({mode: RATE}, seed, latency_s=0.5)
    retry = RetryOptions(attempts=ATTEMPTS.get(mode, 2), initial_s=0.001, jitter_s=0.001)
    calls: list[dict[str, Any]] = []
    counts = {"broken": 0, "rewarded": 0, "moved": 0, "wrong_values": 0, "calls": 0}
    with (
        tempfile.TemporaryDirectory() as folder,
        ExecutedWorld(world, chaos=chaos, tools=(TOOL,), from_step=FROM_STEP, retry=retry) as service,
    ):
        query = service.query

        def checked(tool: str, item: str, *, step: int, row: int) -> Any:
            reply, call = query(tool, item, step=step, row=row)
            counts["calls"] += 1
            counts["wrong_values"] += not call.error and reply != world.query(tool, item)
            return reply, call

        service.query = checked  # type: ignore[method-assign]
        trainer = lab_trainer(
            ARM, Path(folder) / "trainer", steps=steps, seed=seed, prompts_per_step=PROMPTS, generations=GENERATIONS, calls=calls,
            service=service,
        )  # fmt: skip
        rewards_of, generate = trainer._calculate_rewards, trainer._generate_and_score_completions
        last: dict[str, Any] = {}

        def calculate(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            last["valid"] = [row["episode_valid"] for row in inputs]
            last["rewards"] = rewards_of(inputs, *args, **kwargs)
            return last["rewards"]

        def score(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            output = generate(inputs, *args, **kwargs)
            for row, valid in enumerate(last["valid"]):
                counts["broken"] += not valid
                counts["rewarded"] += not valid and not bool(last["rewards"][row].isnan().all())
                counts["moved"] += not valid and (
                    float(output["advantages"][row]) != 0 or bool(output["tool_mask"][row].any())
                )
            return output

        trainer._calculate_rewards, trainer._generate_and_score_completions = calculate, score
        watch_lab(trainer, Path(folder) / "run", calls, strict=True, reference="off")
        trainer.train()
        view = load_view(Path(folder) / "run")
        incidents = incidents_at(view, view.alarms, steps)
        named = [one.slice for one in incidents] + [alarm.slice for one in incidents for alarm in one.alarms]
        finished = int(trainer.state.global_step) == steps
    return {
        "mode": mode, "steps": steps, "finished": finished, **counts, "injected": sum(chaos.injected.values()),
        "named": any(TOOL in name for name in named), "incidents": [f"{one.slice}: {one.causes[0].name if one.causes else '-'}" for one in incidents],
    }  # fmt: skip
