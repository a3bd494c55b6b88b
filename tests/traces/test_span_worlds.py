"""Runs of agents, with sub-agents and parallel calls, told in spans in any order, come out as they went: each its own episode."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.traces.spans import chat, parts, read, span, tool


class World:
    """Runs side by side in one trace. `truth`: of each conversation its turns, with the calls' results and times."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        flip = [self.rng.random() < 0.5 for _ in range(6)]
        self.agents, self.ids, self.arguments, self.counted, self.alike, overlap = flip
        self.agents |= self.alike  # nothing else tells runs of one question apart
        self.overlap = overlap and (
            self.agents or self.arguments
        )  # nor, side by side, whose a bare result is
        self.truth: list[list[Any]] = []
        self.spans: list[dict[str, Any]] = []
        at = 0.0
        for i in range(self.rng.randint(1, 3)):
            end = self.run(at + 0.01 * i, "root", 0)
            at = at if self.overlap else end + 1
        self.rng.shuffle(self.spans)

    def run(self, start: float, parent: str, depth: int) -> float:
        """One conversation; when it ends."""
        me, at = len(self.truth), start
        turns: list[Any] = [("user", "Where?" if self.alike else f"Question {me}?", [])]
        self.truth.append(turns)
        own = f"agent{me}" if self.agents else parent
        history = [parts("user", turns[0][1])]
        for step in range(self.rng.randint(1, 3)):
            calls = [self.call(me, step, i) for i in range(self.rng.randint(1, 3))]
            said = parts("assistant", *calls)
            self.spans.append(chat("a", at, list(history), [said], id=f"m{me}_{step}", parent=own))
            at += 2.5
            made = {}
            for one in self.rng.sample(calls, len(calls)):
                made[one["id"]], at = self.ran(one, at, f"t{me}_{step}_{one['id']}", own, depth)
            turns.append(("assistant", None, [(c["name"], c["arguments"], *made[c["id"]]) for c in calls]))
            results = [
                {"type": "tool_call_response", "id": c["id"], "response": made[c["id"]][0]} for c in calls
            ]
            history += [said, *(parts("tool", result) for result in results)]
        answer = "Done." if self.alike else f"Answer {me}."
        turns.append(("assistant", answer, []))
        self.spans.append(chat("a", at, list(history), [parts("assistant", answer)], id=f"m{me}", parent=own))
        if self.agents:
            kind = {"gen_ai.operation.name": "invoke_agent"}
            self.spans.append(span("a", start - 0.001, at + 3 - start, id=own, parent=parent, **kind))
        return at + 3

    def call(self, me: int, step: int, i: int) -> dict[str, Any]:
        id = f"c{step}_{i}" if self.counted else f"c{me}_{step}_{i}"
        given = {"at": self.rng.randint(0, 2) if self.agents else self.rng.random()}
        return {"type": "tool_call", "id": id, "name": self.rng.choice("vw"), "arguments": given}

    def ran(self, call: Any, at: float, id: str, parent: str, depth: int) -> tuple[tuple[str, float], float]:
        """A call's result and time, and when the next one starts."""
        end = at + round(self.rng.uniform(0.1, 1), 2)
        if depth < 2 and self.rng.random() < 0.25:
            end = self.run(at + 0.01, id, depth + 1)
        result, took = f"r {self.rng.random():.6f}", round(end - at, 3)
        named: dict[str, Any] = {"gen_ai.tool.call.result": result}
        if self.ids:
            named["gen_ai.tool.call.id"] = call["id"]
        if self.arguments:
            named["gen_ai.tool.call.arguments"] = json.dumps(call["arguments"])
        self.spans.append(tool("a", at, took, call["name"], id=id, parent=parent, **named))
        return (result, took), end + 0.01


@pytest.mark.parametrize("seed", range(60))
def test_every_conversation_comes_out_as_it_went(tmp_path, seed):
    world = World(seed)
    found, report = read(tmp_path, span("a", 0, 9999, id="root", name="eval"), *world.spans)
    turns = [
        [(t.role, t.content, [(c.name, c.arguments, c.result, round(c.latency_s or -1, 3)) for c in t.calls]) for t in e.turns]
        for e in found
    ]  # fmt: skip
    assert sorted(map(repr, turns)) == sorted(map(repr, world.truth))
    assert sum(report.notes.values()) == len(world.truth) - 1
