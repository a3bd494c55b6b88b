"""The pilot's experiments: what each changes against `constrained`, and how many seeds of it are in the bank.

Tool arms at the base rate and controls were fixed before they were run. The rates of the fast and hot arms were picked after
single unwatched trial runs; the warm arms were added after seed 0 of the others had been seen; the hot arms have more seeds than
the others because the bank was to hold twenty collapses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from trimtab.lab.experiments import ARMS, Arm
from trimtab.lab.ramp import Ramp

__all__ = ["PILOT", "PilotArm"]

STEPS = 140
RISING = Ramp(0.1, 0.6, start=0, span=60)


@dataclass(frozen=True)
class PilotArm:
    """A lab arm and how it is trained. `family` says what a collapse of it would be evidence of.

    `post_tool_kl`: weight of the k3 penalty on tokens after a tool result alone. `sampler_bits`: the rollouts' weights are
    rounded to so many bits a tensor, and nothing corrects for it. `config` overrides GRPOConfig fields. `seeds`: 0 to
    `seeds` - 1 are recorded.
    """

    name: str
    lab: Arm
    family: Literal["tool", "contrast", "control"]
    what: str
    post_tool_kl: float = 0.0
    sampler_bits: int = 0
    steps: int = STEPS
    seeds: int = 3
    config: Mapping[str, Any] = field(default_factory=dict)


def _lab(name: str, alpha: Ramp = RISING) -> Arm:
    return replace(ARMS[name], alpha=alpha)


def _tool(name: str, lab: Arm, what: str, **more: Any) -> PilotArm:
    return PilotArm(name, lab, "tool", what, **more)


def _other(family: Literal["contrast", "control"], name: str, lab: Arm, what: str, **more: Any) -> PilotArm:
    return PilotArm(name, lab, family, what, **more)


FAST, WARM, HOT = {"learning_rate": 1e-3}, {"learning_rate": 1.4e-3}, {"learning_rate": 2e-3}
STALE = {"learning_rate": 1e-3, "num_iterations": 4}
PILOT: dict[str, PilotArm] = {
    arm.name: arm
    for arm in (
        _tool("constrained", _lab("constrained"), "the value alone"),
        _tool("open", _lab("open"), "the value in noise that grows longer and stranger with the absolute step"),
        _tool("open_in_distribution", _lab("open_in_distribution"), "the same lengths, no character unseen in SFT"),
        _tool("open_no_drift", _lab("open_no_drift"), "the value in noise of one kind from the first step on"),
        *(
            _tool(f"open_alpha{round(100 * share):02d}", _lab("open", Ramp.constant(share)), f"open, alpha fixed at {share}")
            for share in (0.05, 0.2, 0.5)
        ),
        _tool("drift_aware", _lab("open"), "open, with a KL penalty on post-tool tokens alone", post_tool_kl=0.1),
        _tool("constrained_fast", _lab("constrained"), "constrained, learning rate 1e-3", config=FAST),
        _tool("open_fast", _lab("open"), "open, learning rate 1e-3", config=FAST),
        _other("control", "text_only", _lab("text_only", Ramp.constant(0.0)), "no tool tasks"),
        _other("control", "frozen", _lab("open"), "open, learning rate 0: only the inputs change", config={"learning_rate": 0.0}),
        _other("contrast", "constrained_warm", _lab("constrained"), "constrained, learning rate 1.4e-3, 200 steps", config=WARM, steps=200),
        _other("contrast", "open_warm", _lab("open"), "open, learning rate 1.4e-3, 200 steps", config=WARM, steps=200),
        _other("contrast", "constrained_hot", _lab("constrained"), "constrained, learning rate 2e-3", config=HOT, seeds=7),
        _other("contrast", "open_hot", _lab("open"), "open, learning rate 2e-3", config=HOT, seeds=7),
        _other("contrast", "open_in_distribution_hot", _lab("open_in_distribution"), "no unseen character, learning rate 2e-3", config=HOT, seeds=5),
        _other("contrast", "text_only_hot", _lab("text_only", Ramp.constant(0.0)), "no tool tasks, learning rate 2e-3", config=HOT),
        _other("contrast", "constrained_stale", _lab("constrained"), "constrained, learning rate 1e-3, four epochs on each batch", config=STALE),
        _other("contrast", "open_stale", _lab("open"), "open, learning rate 1e-3, four epochs on each batch", config=STALE),
        _other("contrast", "low_precision", _lab("constrained"), "constrained, sampler weights rounded to 4 bits, no correction", sampler_bits=4),
    )
}  # fmt: skip
