"""The benchmark's two sides agree, and it prints its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "benchmarks" / "traces.py"


def test_the_benchmark_prints_its_figures(tmp_path):
    arguments = [
        sys.executable,
        str(BENCH),
        "--json",
        "--mb",
        "70",
        "--repeat",
        "1",
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=240)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["engine"] == "columns"
    assert figures["peak_mb_5gb"] is None
    assert min(figures[name] for name in ("mb_per_s", "peak_mb", "json_loop_ratio", "episodes")) > 0
    assert figures["peak_mb"] < 600
