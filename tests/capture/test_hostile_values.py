"""Whatever the writer writes, the reader reads: values that a model or a loop may hand over (issue 17.10)."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trimtab
from tests.support import cli

SURROGATE = "\ud800"
TEXTS = st.one_of(
    st.text(st.characters(), max_size=8),
    st.sampled_from(
        ["", SURROGATE, "x" * 70_000, "\U0001f600" * 300, "</script>", "\x00\x1b[31m", "a\nb", "NaN"]
    ),
)
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([10**400, -(10**400), 2**64, np.float32(1.5), True])
)
ANYTHING = st.one_of(st.none(), TEXTS, NUMBERS, st.binary(max_size=3), st.builds(object))
NESTED = st.recursive(
    ANYTHING, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
CALLS = st.builds(
    trimtab.ToolCall, ANYTHING, st.dictionaries(TEXTS, NESTED, max_size=3) | ANYTHING, ANYTHING, ANYTHING, ANYTHING,
    ANYTHING, ANYTHING,
)  # fmt: skip
METRICS = st.dictionaries(
    ANYTHING.filter(lambda key: key is not None) | st.just("reward"), ANYTHING, max_size=4
)
ONES = np.full((4, 6), -1.0)
RESERVED = st.sampled_from(["min_tokens", "rules", "python_rules", "solved_at", "required_tools", "run_id"])


def _batch(names, sources=None):
    mask = np.array([[True, True, False, True, True, True]] * 4)
    return {
        "loss_mask": mask, "logprobs": ONES, "ref_logprobs": ONES - 0.1, "tools": [[name] for name in names],
        "source": sources, "source_names": sources or (), "token_ids": np.arange(24).reshape(4, 6),
    }  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    names=st.lists(TEXTS, min_size=4, max_size=4), calls=st.lists(CALLS, max_size=3), metrics=METRICS, absent=METRICS,
    config=st.dictionaries(RESERVED | ANYTHING, NESTED, max_size=3), text=ANYTHING, duration=ANYTHING,
)  # fmt: skip
def test_whatever_the_writer_writes_the_reader_reads(names, calls, metrics, absent, config, text, duration):
    """Issue 17.10: no failure of the monitor, no malformed row, and every view works."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        opened = trimtab.open_run(
            folder, config=config, token_text=lambda token: text, min_tokens=4, min_trajectories=2
        )
        with opened as run:
            for step in range(12):
                run.observe(**_batch(names, names))
                for call in calls:
                    run.tool_call(call)
                run.flush(step, metrics, absent=absent, duration_s=duration)
        done = cli("diagnose", folder, "--json")
        found = json.loads(done.stdout)
        assert (found["num_failures"], found["last_failure"], found["num_malformed"]) == (0, None, 0)
        assert found["num_steps"] == 12
        assert sum(row["calls"] for row in found["tools"]) == 12 * len(calls)
        page = folder.parent / "page.html"
        assert cli("report", folder, "-o", page).returncode == 0
        page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", [SURROGATE, "x" * 70_000, None, 10**5000], ids=["surrogate", "long", "none", "digits"]
)
def test_one_tool_name_does_not_end_measuring(tmp_path, name):
    """Issue 17.10: the step with the name and those after it are measured, and the change is stated."""
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(40):
            run.observe(**_batch(["search", name if step == 3 else "search"] * 2))
            run.tool_call(trimtab.ToolCall(name if step == 3 else "search", {}, "big", latency_s="slow"))
            run.flush(step, {"reward": 1.0})
    found = json.loads(cli("diagnose", tmp_path / "run", "--json").stdout)
    assert found["num_failures"] == 0
    counts = {row["slice"]: row["n_tokens"] for row in found["slices"]}
    assert counts["all"] == 40 * 4 * 5
    assert found["cleaned"]["tool name"] == 2
    assert found["cleaned"]["tool call name"] == 1
    assert found["cleaned"]["tool call latency"] == found["cleaned"]["tool call result size"] == 40
    shown = cli("diagnose", tmp_path / "run").stdout
    assert "tool call latency cut or replaced: 40" in shown


def test_a_block_that_cannot_be_stored_is_lost_alone(tmp_path):
    """A batch made without `token_batch`, whose notes no encoding has: the steps after its block are stored."""
    with trimtab.open_run(tmp_path / "run", state_every=5) as run:
        for step in range(20):
            arrays = _batch(["search"] * 4)
            batch = trimtab.token_batch(**{**arrays, "source": None, "tool_names": ("search",)})
            run.observe(replace(batch, reference=SURROGATE if step == 2 else "copy"))
            run.flush(step, {"reward": 1.0})
        assert run.num_failures == 1
    rows = [json.loads(line) for line in (tmp_path / "run" / "states.r0.s0.jsonl").read_text().splitlines()]
    assert [(row["first"], row["last"]) for row in rows] == [(5, 9), (10, 14), (15, 19)]
