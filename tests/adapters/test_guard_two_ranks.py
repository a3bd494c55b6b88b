"""Two real processes under TRL, trouble on rank 0 alone: both do the same, and go back to the same weights."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

from tests.adapters.test_two_ranks import ENVIRONMENT, ROOT
from tests.adapters.tiny_trl import tiny_model
from tests.warm import ranks_finished
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

CLOCKS = ("time", "c", "s")


def test_two_ranks_are_rolled_back_alike(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")[0]
    command = ["-m", "tests.adapters.guarded_ranks", model, str(tmp_path)]
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    done = ranks_finished(command, 2, {**ENVIRONMENT, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-3000:]
    one, other = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert one["world"] == other["world"] == 2
    reader = RunReader(tmp_path / "run", complete=True)
    rows = [
        [{key: row[key] for key in row if key not in CLOCKS} for row in reader.rows("actions", rank)]
        for rank in (0, 1)
    ]
    assert rows[0] == rows[1]
    (rollback,) = (row for row in rows[0] if row["action"] == "rollback")
    assert rollback["failure"] == ""
    assert (one["after"], one["before"]) == (other["after"], other["before"])
    step, to_step = rollback["step"], rollback["to_step"]
    assert one["before"][str(step + 1)] == one["after"][str(to_step)]
    assert one["after"][str(step)] != one["after"][str(to_step)]
    assert [restore["to_step"] for restore in one["restores"]] == [to_step]
    assert [{**restore, "seed": 0} for restore in one["restores"]] == [
        {**restore, "seed": 0} for restore in other["restores"]
    ]
    assert all(row["alike"] for row in load_view(tmp_path / "run").actions)
