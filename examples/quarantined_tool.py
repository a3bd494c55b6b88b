"""Quarantine a tool in a loop of one's own: `search` is out of order from step 30 to 59, and its episodes leave the batch."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import trimtab
from trimtab.tools.admission import ToolAdmission
from trimtab.tools.exclusion import Exclusion, excluded_advantages
from trimtab.traces.core.tool_call import ToolCall

POLICY = "policies:\n  quarantine_tool: {enabled: true}\n"
GROUPS, SIZE, OUTAGE = 6, 8, range(30, 60)


class ToolControls:
    """The lever of this loop: which groups are trained on although a tool broke the episode. It keeps no states."""

    def __init__(self) -> None:
        self.admission = ToolAdmission()
        self.get, self.set = self.admission.get, self.admission.set

    def levers(self) -> Mapping[str, tuple[str, ...]]:
        return {"tool_broken_gradient": ("all",)}

    def save(self, folder: Path) -> None: ...

    def restore(self, folder: Path) -> None: ...

    def stop(self) -> None: ...


def played(step: int) -> tuple[list[list[ToolCall]], np.ndarray]:
    """The calls of every episode and its reward; a real loop has them from its rollouts."""
    rng = np.random.default_rng(step)
    episodes = []
    for row in range(GROUPS * SIZE):
        down = step in OUTAGE and rng.random() < 0.4
        kind = "HTTP 503: unavailable" if down else ""
        blame = "infrastructure" if down else ""
        episodes.append(
            [ToolCall("search", error=kind, blame=blame, episode_id=row), ToolCall("read", episode_id=row)]
        )
    broken = np.array([any(call.error for call in calls) for calls in episodes])
    return episodes, np.where(broken, 0.0, rng.random(len(episodes)) < 0.7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="runs/quarantined_tool")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    policy = Path(options.folder).with_suffix(".yaml")
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text(POLICY)
    controls, exclusion, group = ToolControls(), Exclusion(), np.repeat(np.arange(GROUPS), SIZE)

    with trimtab.open_run(options.folder, guard=policy, controls=controls) as run:
        for step in range(options.steps):
            episodes, reward = played(step)
            called = [{call.name for call in calls} for calls in episodes]
            broken_by = [{call.name for call in calls if exclusion.breaks(call)} for calls in episodes]
            valid = controls.admission.trained(step, group, called, broken_by)
            advantage = excluded_advantages(reward, group, valid, lambda r, g: r - (np.bincount(g, r) / np.maximum(np.bincount(g), 1))[g])  # fmt: skip
            assert not advantage[~valid].any()  # the update comes here, with these advantages
            for call in (call for calls in episodes for call in calls):
                run.tool_call(call)
            run.flush(step, {"reward": reward.mean()})
    print(f"trimtab diagnose {options.folder}")


if __name__ == "__main__":
    main()
