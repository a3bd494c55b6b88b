"""The lab behind the executor: right answers, faults seen for what they are, broken episodes marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trimtab.lab.agent_episode import Episode, script
from trimtab.lab.database import World
from trimtab.lab.executed_world import ExecutedWorld
from trimtab.lab.ramp import Ramp
from trimtab.lab.tasks import TaskMix, parse_task
from trimtab.lab.toolbox import Toolbox
from trimtab.tools.chaos import MODES, Chaos


def test_without_faults_it_answers_as_the_world_does() -> None:
    world = World(seed=0, items=50)
    with ExecutedWorld(world) as service:
        for tool, item in (
            ("price", world.items[0]),
            ("owner", world.items[3]),
            ("stock", "nobody"),
            ("drop", "x"),
        ):
            assert service.query(tool, item, step=0, row=0)[0] == world.query(tool, item)


@pytest.mark.parametrize("mode", MODES)
def test_no_fault_passes_for_an_answer(mode: str) -> None:
    world = World(seed=0, items=50)
    chaos = Chaos({mode: 0.6}, seed=2, latency_s=0.2)
    failed = 0
    with ExecutedWorld(world, chaos=chaos, tools=("price",), from_step=5) as service:
        for number in range(40):
            item = world.items[number]
            reply, call = service.query("price", item, step=number, row=number)
            if call.error:
                failed += 1
                assert number >= 5
                assert not service.exclusion.valid([call])
            else:
                assert reply == world.query("price", item)
        assert not service.query("stock", world.items[0], step=40, row=0)[1].error
    assert sum(chaos.injected.values()) > 10
    assert failed > 0 or mode == "stale"  # the second attempt gets the first one's answer


def test_a_broken_call_marks_its_episode_and_is_reported() -> None:
    world, seen = World(seed=0), []
    prompts = TaskMix(world, 0, Ramp.constant(1.0), 0.0).prompts(1, 12)

    def play(service: Any) -> list[Episode]:
        box = Toolbox(world, seed=0, on_tool_call=seen.append, service=service)
        return [
            script(Episode(parse_task(text, world), box, 0, row), np.random.default_rng(row))
            for row, text in enumerate(prompts)
        ]

    with ExecutedWorld(world, chaos=Chaos({"dropped": 1.0}), tools=("price",)) as service:
        episodes = play(service)
    broken = [any(call.startswith("price") for call in one.called) for one in episodes]
    assert 0 < sum(broken) < len(broken)
    assert [not one.valid for one in episodes] == broken
    fates = {(call["name"], call["blame"], call["kind"], call["attempts"]) for call in seen}
    assert ("price", "infrastructure", "dropped", 2) in fates
    assert {fate[1:] for fate in fates if fate[0] != "price"} <= {("", "", 1)}
    assert all(one.valid for one in play(None))
