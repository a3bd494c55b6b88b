"""The arms of both experiments: what each changes against MiniRL as the paper gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["EXPERIMENTS", "OFF", "ON", "Arm", "Experiment"]

SEEDS = {"on_policy": 4, "off_policy": 4}
SCAN_SEED = 100  # of the scan of learning rates; no arm is judged on it


@dataclass(frozen=True)
class Arm:
    """`config` overrides MiniRLConfig fields. `seeds`: those that are recorded. A `scan` arm chose the rate and is not judged.

    A `control` stands in the tables and figures, and no claim of the paper is judged on it.
    """

    name: str
    what: str
    config: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    scan: bool = False
    control: bool = False
    max_steps: int | None = None
    """Optimizer steps where they are fewer than the experiment's."""


@dataclass(frozen=True)
class Experiment:
    """`updates`: optimizer steps on each batch of rollouts, the paper's N, each on a mini-batch of the same size. `rate`: of Adam."""

    name: str
    title: str
    updates: int
    rate: float
    steps: int
    arms: Mapping[str, Arm]

    def steps_of(self, arm: str, steps: int | None = None) -> int:
        """Optimizer steps of an arm's runs, where `steps` are asked for; by default the experiment's."""
        wanted = steps or self.steps
        return min(wanted, self.arms[arm].max_steps or wanted)

    @property
    def script(self) -> str:
        """Without its folder."""
        return f"minirl_{self.name}.py"


def _named(seeds: int, *arms: Arm) -> dict[str, Arm]:
    return {
        arm.name: arm if arm.scan or arm.seeds else replace(arm, seeds=tuple(range(seeds))) for arm in arms
    }


def _scan(base: Mapping[str, Any], *rates: float) -> list[Arm]:
    return [
        Arm(f"scan_{rate:g}", f"scan: learning rate {rate:g}", {**base, "learning_rate": rate}, (SCAN_SEED,), scan=True, max_steps=48)
        for rate in rates
    ]  # fmt: skip


OLD = {"router_aux_loss_coef": 0.01}
"""What TRL took from the model's config in the runs of 21 November 2026: the scan, and all off policy. They have another cold start, too."""
NO_CLIP = {"clip": False, **OLD}
ON = Experiment(
    "on_policy", "MiniRL, on policy", updates=1, rate=1e-3, steps=200,
    arms=_named(
        SEEDS["on_policy"],
        Arm("minirl", "MiniRL as the paper gives it"),
        Arm("no_is", "without the weight pi_theta/mu", {"importance": False}),
        Arm("length_norm", "each response divided by its tokens", {"length_norm": True}),
        Arm("r3", "with the sampler's experts replayed (R3)", {"routing_replay": "R3"}),
        Arm(
            "aux_loss", "MiniRL with the router's load-balancing loss, 0.01 times, 48 steps", {"router_aux_loss_coef": 0.01}, (0, 1, 2, 3),
            control=True, max_steps=48,
        ),
        *_scan(OLD, 1e-3, 2e-3),
    ),
)  # fmt: skip
OFF = Experiment(
    "off_policy", "MiniRL, off policy", updates=4, rate=1e-3, steps=48,
    arms=_named(
        SEEDS["off_policy"],
        Arm("no_clip", "no clip, no replay", NO_CLIP),
        Arm("r2_no_clip", "no clip, pi_old's experts replayed (R2)", {**NO_CLIP, "routing_replay": "R2"}),
        Arm("clip_r2", "clip and R2", {"routing_replay": "R2", **OLD}),
        Arm("clip_r3", "clip and the sampler's experts (R3)", {"routing_replay": "R3", **OLD}),
        Arm("clip", "clip, no replay (an arm the paper's text does not show)", OLD),
    ),
)  # fmt: skip
EXPERIMENTS = {experiment.name: experiment for experiment in (ON, OFF)}
