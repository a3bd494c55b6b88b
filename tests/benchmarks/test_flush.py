"""The cost of a flush is measured as the script says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_the_benchmark_of_a_flush_runs_as_written():
    script = Path(__file__).parents[2] / "benchmarks" / "flush.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    assert 0 < figures["series_cpu_ms"] < figures["flush_cpu_ms"]
    assert {"flush_many_slices_cpu_ms", "series_many_slices_cpu_ms", "series_ns_per_token"} <= figures.keys()
