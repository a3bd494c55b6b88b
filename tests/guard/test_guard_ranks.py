"""Two real processes: rank 0 decides, both do the same, and their records differ in their clocks alone."""

from __future__ import annotations

import json
import os
import sys

import pytest

pytest.importorskip("torch")

from tests.support import running
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader


def test_two_ranks_do_the_same(tmp_path) -> None:
    command = [sys.executable, "-m", "tests.guard.ranks", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        running([*command, "0"], env=environment) as first,
        running([*command, "1"], env=environment) as second,
    ):
        for child in (first, second):
            assert child.wait(timeout=280) == 0
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert one["alarms"] > 0 == other["alarms"], "rank 1 saw nothing of the trouble by itself"
    assert one["values"] == other["values"] == [["lr_scale", "all", 0.3]]
    assert one["kept"] == other["kept"]
    assert one["made"] == other["made"]
    assert [step for step, done in enumerate(one["made"]) if not done] == [7]
    reader = RunReader(tmp_path / "run", complete=True)
    rows = [
        [{key: value for key, value in row.items() if key not in ("time", "c", "s")} for row in reader.rows("actions", rank)]
        for rank in (0, 1)
    ]  # fmt: skip
    assert [row["action"] for row in rows[0]] == ["skip_update", "set_lever"]
    assert rows[0] == rows[1]
    assert all(row["alike"] for row in load_view(tmp_path / "run").actions)
