"""The benchmark of agent logs prints its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "benchmarks" / "traces.py"


def test_the_quick_benchmark_prints_its_figures():
    command = [sys.executable, str(BENCH), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    wanted = ("json_loop_ratio", "json_loop_ratio_nasty", "chat_mb_per_s", "peak_mb", "peak_mb_nasty")
    assert min(figures[name] for name in wanted) > 0
    assert "peak_growth_frac" in figures
