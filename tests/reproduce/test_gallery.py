"""The gallery's runs load, hold the readings they were made for, and what the page says of rules without a trace is so."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from reproduce.archives import unpacked

from trimtab import open_run
from trimtab.detect.rules.all_rules import RULES
from trimtab.report.run_view import load_view

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "reproduce" / "gallery" / "runs"
LEAST = 10  # values without which docs/draw_detectors.py draws no panel
HELD = {
    "gallery-learn": (
        "clip_saturation", "kl_max_break", "template_collapse_text", "gradient_snr_low", "reward_part_jump", "reward_part_idle",
        "too_hard", "retokenisation",
    ),
    "gallery-tools": ("reward_part_falls", "tool_failures_by_tool", "tool_abandoned", "file_abandoned", "void_turns"),
    "gallery-moe": ("routing_disagreement",),
    "gallery-dpo": ("accuracy_falling",),
    "gallery-sft": ("gap_growing",),
}  # fmt: skip
RULE = {rule.name: rule for rule in RULES}


@pytest.fixture(scope="module")
def views():
    return {path.name: load_view(path) for path in sorted(unpacked(RUNS).iterdir())}


def series(view, rule):
    """Slice -> its values."""
    names = {row["slice"] for row in view.readings.rows}
    found = {
        n: [r.value for r in view.series(rule.key, n) if r.status == "ok"] for n in names if rule.covers(n)
    }
    return {name: values for name, values in found.items() if values}


def test_every_run_is_small_whole_and_made_by_the_script(views):
    made_by = runpy.run_path(str(ROOT / "reproduce" / "record_gallery.py"))["MADE_BY"]
    assert set(views) == set(made_by) == set(HELD)
    assert all(not view.errors and view.reader.num_malformed == 0 and view.steps for view in views.values())
    assert sum(path.stat().st_size for path in RUNS.rglob("*") if path.is_file()) < 1_000_000


@pytest.mark.parametrize(("run", "name"), [(run, name) for run, names in HELD.items() for name in names])
def test_the_reading_is_there(views, run, name):
    found = series(views[run], RULE[name])
    assert max(map(len, found.values())) >= LEAST
    assert np.isfinite(np.concatenate(list(found.values()))).all()


def test_what_was_put_into_the_scripted_runs_is_what_the_readings_say(views):
    tools = series(views["gallery-tools"], RULE["tool_failures_by_tool"])
    assert max(tools["tool/search"][:15]) == 0  # breaks at step 160, windows of ten steps
    assert min(tools["tool/search"][16:]) > 0.5
    assert max(tools["tool/read_file"]) == 0
    assert series(views["gallery-tools"], RULE["tool_abandoned"])["tool/calculate"][-1] > 100
    assert series(views["gallery-tools"], RULE["file_abandoned"])["file/notes.md"][-1] > 100
    right = series(views["gallery-dpo"], RULE["accuracy_falling"])["all"]
    assert np.mean(right[1:140]) > 0.7  # labels are swapped at step 140
    assert np.mean(right[140:]) < 0.3
    assert set(series(views["gallery-learn"], RULE["reward_part_idle"])["reward/answer"]) == {0.0}


@pytest.mark.parametrize(
    ("run", "name", "where", "begins"),
    [
        ("gallery-tools", "tool_failures", "all", 160), ("gallery-tools", "tool_failures_by_tool", "tool/search", 160),
        ("gallery-tools", "void_turns", "all", 240), ("gallery-tools", "tool_abandoned", "tool/calculate", 300),
        ("gallery-tools", "file_abandoned", "file/notes.md", 210), ("gallery-dpo", "accuracy_falling", "all", 140),
        ("gallery-sft", "gap_growing", "all", 10),
    ],
)  # fmt: skip
def test_what_was_put_in_is_told_soon_after_and_not_before(views, run, name, where, begins):
    told = [alarm.step for alarm in views[run].pipeline.alarms if (alarm.rule, alarm.slice) == (name, where)]
    assert begins <= told[0] <= begins + (80 if name == "gap_growing" else 30)


@pytest.mark.parametrize(
    ("name", "key"), [("slowest_rank_high", "slowest_rank_ratio"), ("memory_ratio_high", "memory_ratio")]
)
def test_rules_on_ranks_have_no_reading_but_a_trainers_own(views, tmp_path, name, key):
    page = runpy.run_path(str(ROOT / "docs" / "make_detectors.py"))
    assert f"`{key}`" in page["WITHOUT"][name]
    assert all(not series(view, RULE[name]) for view in views.values())
    run = open_run(tmp_path / "run")
    for step in range(1, 101):
        run.flush(step, {key: 9.0})
    run.close()
    assert name in {alarm.rule for alarm in load_view(tmp_path / "run").alarms}


def test_a_rule_without_a_trace_says_why():
    page = runpy.run_path(str(ROOT / "docs" / "make_detectors.py"))
    traces = json.loads((ROOT / "docs" / "reference" / "rules" / "traces.json").read_text(encoding="utf-8"))
    without = {name for name, trace in traces.items() if trace["status"] == "none"}
    assert without == set(page["WITHOUT"])
    assert "no trace on record" not in (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
