"""The one run of a real model: what docs/explanation/pilot.md says of it is what its recorded runs say."""

from __future__ import annotations

from pathlib import Path

import pytest
from reproduce.archives import unpacked
from reproduce.smollm2_check import ARMS, RECORDED, compare

from trimtab.report.run_view import load_view

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "pilot.md"


@pytest.fixture(scope="module")
def figures():
    return compare(unpacked(RECORDED), 1)


@pytest.mark.parametrize("arm", ARMS)
def test_the_table_of_the_page_is_that_of_the_recorded_runs(arm, figures):
    found = {name.removeprefix(f"{arm}_").removesuffix("_s0"): value for name, value in figures.items() if name.startswith(arm)}  # fmt: skip
    row = [arm, f"{found['reward_early']:.2f}, {found['reward_late']:.2f}"]
    for name in ("text", "post_tool"):
        row.append(f"{found[f'{name}_p95']:.2f}, {found[f'{name}_p99']:.2f} ({found[f'{name}_tokens']:,})")
    assert f"| {' | '.join(row)} |" in PAGE.read_text().split("## A real instruction-tuned model", 1)[1]


def test_the_runs_have_the_lengths_and_the_wide_window_that_the_page_names(figures):
    views = {arm: load_view(unpacked(RECORDED) / f"{arm}-s0") for arm in ARMS}
    assert {arm: len(view.steps) for arm, view in views.items()} == {"constrained": 62, "open": 49}
    assert figures["steps_s0"] == 49
    last = views["constrained"].series("drift/p99", "post_tool")[-1]
    assert (round(last.value, 1), round(last.low, 1), round(last.high, 1)) == (1.6, 0.4, 2.0)
    assert sum(path.lstat().st_size for path in RECORDED.rglob("*")) < 150_000
