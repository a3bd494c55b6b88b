"""The sizes of episodes against numpy over the values themselves, and where the command shows them."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from tests.report.test_trace_diagnosis import run
from trimtab.measure.traces.sizes import Size, sizes
from trimtab.report.traces.trace_diagnosis import diagnose_traces
from trimtab.report.traces.trace_page import write_traces_html
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.native.episode_writer import TraceWriter
from trimtab.traces.table.build import tabulate

NAN, INF = math.nan, math.inf


def episodes():
    rng = np.random.default_rng(0)
    for i in range(37):
        turns = [Turn(role="user"), *[Turn(role="assistant", calls=[Call(name="t")] * (i % 3))] * (1 + i % 5)]
        yield Episode(
            id=str(i), turns=turns, reward=[None, NAN, INF, float(rng.normal())][i % 4], tokens=[None, int(10**rng.uniform(1, 6))][i % 2],
            cost=float(rng.exponential()) if i % 3 else None,
        )  # fmt: skip


def test_each_size_is_numpy_s_of_the_episodes_that_say_it():
    log = list(episodes())
    found = {row.name: row for row in sizes(tabulate(log))}
    wanted = {
        "reward": [e.reward for e in log if e.reward is not None and math.isfinite(e.reward)],
        "assistant turns": [sum(t.role == "assistant" for t in e.turns) for e in log],
        "tool calls": [len(e.calls) for e in log],
        "tokens": [e.tokens for e in log if e.tokens is not None],
        "cost": [e.cost for e in log if e.cost is not None],
    }
    assert list(found) == list(wanted)  # no episode says how many seconds it took
    for name, values in wanted.items():
        row, q = found[name], np.quantile(values, [0.05, 0.5, 0.95])
        assert row.n == len(values)
        assert (row.mean, row.p5, row.p50, row.p95, row.largest) == pytest.approx(
            (np.mean(values), *q, max(values))
        )
        assert row.total == (None if name == "reward" else pytest.approx(math.fsum(values)))


def test_one_episode_and_none():
    assert list(sizes(tabulate([Episode(id="a", reward=-0.5)]))) == [
        Size("reward", 1, -0.5, -0.5, -0.5, -0.5, -0.5, None), Size("assistant turns", 1, 0, 0, 0, 0, 0, 0), Size("tool calls", 1, 0, 0, 0, 0, 0, 0),
    ]  # fmt: skip
    assert list(sizes(tabulate([]))) == []


def test_the_terminal_the_page_and_json_show_them(tmp_path):
    path = tmp_path / "own.jsonl"
    with TraceWriter(path) as log:
        for i in range(30):
            log.write(
                Episode(id=str(i), turns=[Turn(role="assistant", content="x")], tokens=1_500, cost=0.25)
            )
    _, text = run("diagnose", path, "--verbose")
    row = next(line for line in text.splitlines() if line.startswith("  cost"))
    assert row.split() == ["cost", "30", "0.25", "0.25", "0.25", "0.25", "0.25", "7.5"]
    _, text = run("diagnose", path, "--json")
    assert {r["name"]: r["total"] for r in json.loads(text)["sizes"]}["tokens"] == 45_000
    page = write_traces_html(diagnose_traces([path]), tmp_path / "page.html").read_text()
    assert re.search(r">tokens</td>(<td[^>]*>[\d.k]+</td>)*<td[^>]*>1.5k</td><td[^>]*>45k</td>", page)
