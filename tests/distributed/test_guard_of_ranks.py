"""The guard of 2 and of 4 gloo ranks decides by merged readings, and every rank does the same at the same step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from tests.warm import ranks_finished
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

ROOT = Path(__file__).parents[2]
STEPS, TROUBLE_FROM = 34, 20
CLOCKS = ("time", "c", "s")


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_ranks_write_the_same_actions(tmp_path: Path, ranks: int) -> None:
    folder = tmp_path / "run"
    command = ["-m", "tests.distributed.guarded_ranks", str(folder), str(STEPS), str(TROUBLE_FROM)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = ranks_finished(command, ranks, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    reader = RunReader(folder, complete=True)
    assert reader.ranks == list(range(ranks))
    logs = [
        [{k: v for k, v in row.items() if k not in CLOCKS} for row in reader.rows("actions", rank)]
        for rank in reader.ranks
    ]
    assert logs[0]
    assert all(log == logs[0] for log in logs)
    first = logs[0][0]
    assert first["step"] == first["decided"] + 2
    assert TROUBLE_FROM <= first["decided"] <= TROUBLE_FROM + 10
    assert not any("late" in row or row["failure"] for row in logs[0])
    histories = [json.loads((folder / f"controls.{rank}.json").read_text()) for rank in reader.ranks]
    assert all(history == histories[0] for history in histories)
    assert min(histories[0]) < 1.0
    view = load_view(folder)
    assert all(row["alike"] for row in view.actions)
    assert reader.rows("steps", 0)[-1]["merge"].keys() == {"through"}  # nothing late, missing or lost
