"""Named experiments. Two arms differ in what their name says: same tasks, seed and agent, and the same alpha
where there are tools.

The token limit of an episode follows the outputs: 60 where they are constrained, 150 where they are open and
need the room.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab.errors import TrimtabError
from trimtab.lab.database import World
from trimtab.lab.executed_world import ExecutedWorld
from trimtab.lab.ramp import Ramp
from trimtab.lab.rollout import Limits, RolloutFunc, make_rollout_func
from trimtab.lab.tasks import TaskMix
from trimtab.lab.tool_output import OutputStyle
from trimtab.lab.toolbox import OnToolCall, Toolbox

RISING = Ramp(0.4, 0.9, start=0, span=30)


@dataclass(frozen=True)
class Arm:
    """One experiment: `alpha` is the share of tool tasks at a step, `style` how tools word their answers."""

    name: str
    style: OutputStyle = field(default_factory=OutputStyle)
    alpha: Ramp = RISING
    both: float = 0.15
    limits: Limits = field(default_factory=lambda: Limits(max_tokens=150))


SHORT = Limits(max_tokens=60)
LONGER, STRANGER = Ramp(7, 24, start=0, span=60), Ramp(0.1, 0.8, start=0, span=60)
ARMS = {
    arm.name: arm
    for arm in (
        Arm("constrained", limits=SHORT),
        Arm("open", OutputStyle(open=True, length=LONGER, rare=STRANGER)),
        Arm("open_in_distribution", OutputStyle(open=True, length=LONGER)),
        Arm("open_no_drift", OutputStyle(open=True, length=Ramp.constant(15), rare=Ramp.constant(0.45))),
        Arm("rare_only", OutputStyle(open=True, length=Ramp.constant(7), rare=STRANGER)),
        Arm("text_only", alpha=Ramp.constant(0.0), limits=SHORT),
    )
}
"""`open` drifts: longer noise and more unseen characters; `open_in_distribution` only longer; `rare_only`
only stranger.
"""


@dataclass(frozen=True)
class OpenArm:
    """An arm made concrete for one seed: what a trainer needs."""

    arm: Arm
    world: World
    tasks: TaskMix
    toolbox: Toolbox
    rollout_func: RolloutFunc
    prompts: list[str]  # steps x prompts_per_step, in order: train on them unshuffled


def open_arm(
    name: str | Arm,
    *,
    steps: int,
    prompts_per_step: int = 8,
    seed: int = 0,
    on_tool_call: OnToolCall | None = None,
    service: ExecutedWorld | None = None,
) -> OpenArm:
    """Build world, tasks, tools, prompts and `rollout_func` of an arm; raises TrimtabError for an unknown
    name.

    Arms opened with the same seed share world and prompts, so a difference between them is the tool output's.
    """
    if isinstance(name, str) and name not in ARMS:
        raise TrimtabError(f"no arm called {name!r}; there are {', '.join(ARMS)}")
    arm = ARMS[name] if isinstance(name, str) else name
    world = World(seed)
    tasks = TaskMix(world, seed, arm.alpha, arm.both)
    toolbox = Toolbox(world, arm.style, seed, on_tool_call, service)
    func = make_rollout_func(toolbox, seed=seed, limits=arm.limits)
    return OpenArm(arm, world, tasks, toolbox, func, tasks.prompts(steps, prompts_per_step))
