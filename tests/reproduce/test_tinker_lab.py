"""The page on Tinker-style loops says what the recorded runs hold."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE, RECORDED = ROOT / "docs" / "how-to" / "tinker.md", ROOT / "reproduce" / "tinker_lab" / "recorded"


def columns():
    """Label of a row of the page's table -> its two cells."""
    rows = (
        line.strip("|").split("|")
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    )
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in rows if len(cells) == 3}


def recorded(name):
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]


def test_the_page_has_the_numbers_of_the_recordings():
    table = columns()
    for i, name in enumerate(("healthy", "stale")):
        rows = recorded(name)
        early, late = rows[:13], rows[13:]
        means = [statistics.mean(row["reward"] for row in part) for part in (early, late)]
        gaps = [row["abs_gap_mean"] for row in late]
        cells = [cells[i] for cells in table.values()]
        assert (
            f"{len(rows)}, {sum(row['tokens'] for row in rows):,}, {sum(row['tool_calls'] for row in rows)}"
            in cells
        )
        assert f"{means[0]:.2f}, {means[1]:.2f}" in cells
        assert f"at most {max(row['abs_gap_mean'] for row in early):.1e}".replace("e-0", "e-") in cells
        late_text = (
            f"at most {max(gaps):.1e}".replace("e-0", "e-")
            if i == 0
            else f"{min(gaps):.3f} to {max(gaps):.3f}"
        )
        assert late_text in cells
        assert f"{max(row['abs_gap_max'] for row in rows):.2g}".replace("e-0", "e-") in cells
        assert (
            f"{sum(row['s'] for row in rows):.0f}, {statistics.median(row['s'] for row in rows):.1f}" in cells
        )
    assert [(row["step"], row["alarms"]) for row in recorded("stale") if row["alarms"]] == [
        (19, ["mismatch_step_rise"])
    ]
    assert not any(row["alarms"] for row in recorded("healthy"))
