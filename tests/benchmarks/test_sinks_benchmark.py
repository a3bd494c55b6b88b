"""The recorded costs of the trackers: printed as committed, named on the page, and recomputed in small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT, RESULTS = ROOT / "benchmarks" / "sinks.py", ROOT / "benchmarks" / "results" / "sinks.json"
for library in ("tensorboard", "mlflow", "wandb", "trackio", "sqlalchemy"):
    pytest.importorskip(library, reason="trackers are in extras")


def figures_of(*options: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options, "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return json.loads(done.stdout.splitlines()[-1])["figures"]


def test_the_committed_figures_are_printed_and_stand_on_the_page() -> None:
    figures = figures_of()
    assert figures == json.loads(RESULTS.read_text())["figures"]
    page = (ROOT / "docs" / "how-to" / "sinks.md").read_text()
    for tracker in ("tensorboard", "wandb", "trackio", "mlflow"):
        for figure in ("rows", "growth_bytes", "rows_per_s"):
            assert f" {figures[f'sink_{figure}_{tracker}']:,} " in page, (figure, tracker)
    assert f"{figures['flush_added_s']} s" in page
    assert f"{figures['flush_added_s_mlflow']} s" in page


def test_a_small_part_is_measured_now() -> None:
    figures = figures_of("--quick", "--sinks", "tensorboard", "--rows", "200")
    assert figures["sink_equal_frac_tensorboard"] == 1.0
    assert figures["sink_rows_tensorboard"] == 200
    assert figures["sink_rows_per_s_tensorboard"] > 0
    assert "flush_added_s" in figures
