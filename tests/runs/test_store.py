"""The run store: append-only, readable while written and after kill -9, NaN survives, bad folders get one line."""

from __future__ import annotations

import json
import math

import duckdb
import pandas as pd
import pytest

from trimtab.errors import RunError
from trimtab.runs import RunReader, RunWriter, compress_run, state_block
from trimtab.runs.sink_losses import sink_line

STEP = {"metrics": {"loss": 0.1}, "slices": {}, "columns": [], "nonfinite": {}}


def write(folder, steps, **kwargs):
    with RunWriter(folder, **kwargs) as writer:
        for step in steps:
            writer.commit({"step": step, **STEP})


def test_nan_and_infinities_survive_the_round_trip_and_open_elsewhere(tmp_path):
    values = [1.5, math.nan, math.inf, -math.inf]
    with RunWriter(tmp_path / "run") as writer:
        for step, value in enumerate(values):
            writer.commit({"step": step, "value": value})
    back = [row["value"] for row in RunReader(tmp_path / "run").rows("steps")]
    pattern = str(tmp_path / "run" / "steps.*.jsonl")
    in_duckdb = [
        row[0] for row in duckdb.sql(f"select value from read_json('{pattern}') order by step").fetchall()
    ]
    in_pandas = pd.read_json(tmp_path / "run" / "steps.r0.s0.jsonl", lines=True)["value"].tolist()
    for found in (back, in_duckdb, in_pandas):
        assert [repr(float(v)) for v in found] == [repr(v) for v in values]


def test_a_compressed_run_reads_the_same(tmp_path):
    folder = tmp_path / "run"
    write(folder, range(50))
    names = {path.name for path in folder.iterdir()}
    rows, size = RunReader(folder).rows("steps"), sum(path.stat().st_size for path in folder.iterdir())
    saved = compress_run(folder)
    assert {path.name for path in folder.iterdir()} == {
        name + ".gz" if name.endswith(".jsonl") else name for name in names
    }
    assert saved == size - sum(path.stat().st_size for path in folder.iterdir())
    assert RunReader(folder).rows("steps") == rows
    assert compress_run(folder) == 0


def test_a_resume_appends_and_supersedes_and_never_truncates(tmp_path):
    folder = tmp_path / "run"
    write(folder, range(10))
    before = (folder / "steps.r0.s0.jsonl").read_bytes()
    write(folder, range(6, 12))
    assert (folder / "steps.r0.s0.jsonl").read_bytes() == before
    reader = RunReader(folder)
    assert [row["step"] for row in reader.rows("steps")] == list(range(12))
    assert reader.num_sessions == 2


def test_each_session_is_superseded_by_the_earliest_step_of_all_later_ones(tmp_path):
    """The third session began after the second had: what the second wrote over stays written over."""
    folder = tmp_path / "run"
    for steps in (range(10), range(4, 8), range(7, 12)):
        write(folder, steps)
    reader = RunReader(folder)
    assert [row["step"] for row in reader.rows("steps")] == list(range(12))
    assert [row["step"] for row in reader.superseded("steps")] == [4, 5, 6, 7, 8, 9, 7]
    assert reader.num_superseded == 7


def test_a_torn_last_line_is_counted_and_read_once_it_is_whole(tmp_path):
    folder = tmp_path / "run"
    write(folder, range(4))
    path = folder / "steps.r0.s0.jsonl"
    *first, whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(first))
    with path.open("ab") as file:
        file.write(whole[:20])
    reader = RunReader(folder)
    assert (len(reader.rows("steps")), reader.num_torn, reader.num_malformed) == (3, 1, 0)
    with path.open("ab") as file:
        file.write(whole[20:])
    assert reader.poll() == 1
    assert (len(reader.rows("steps")), reader.num_torn) == (4, 0)


def test_malformed_lines_are_counted_and_skipped(tmp_path):
    folder = tmp_path / "run"
    write(folder, range(2))
    with (folder / "steps.r0.s0.jsonl").open("ab") as file:
        file.write(b'not json\n[1]\n\xff\xfe\n{"step": 5}\n')
    reader = RunReader(folder)
    assert [row["step"] for row in reader.rows("steps")] == [0, 1]
    assert reader.num_malformed == 4  # the last one is a row, but not of this writer: it has no checksum


def test_ranks_write_side_by_side_and_two_writers_never_share_a_file(tmp_path):
    folder = tmp_path / "run"
    writers = [RunWriter(folder, rank=rank) for rank in (0, 1, 0)]
    for i, writer in enumerate(writers):
        writer.commit({"step": i, **STEP})
        writer.close()
    reader = RunReader(folder)
    assert reader.ranks == [0, 1]
    assert sorted(row["step"] for row in reader.rows("steps")) == [0, 1, 2]
    assert len({(w.rank, w.session) for w in writers}) == 3


@pytest.mark.parametrize("case", ["missing", "file", "foreign", "future", "damaged", "not ours"])
def test_bad_folders_get_one_clear_line(tmp_path, case):
    folder = tmp_path / "run"
    if case == "file":
        folder.write_text("x")
    elif case != "missing":
        folder.mkdir()
        text = {"foreign": None, "future": json.dumps({"trimtab_run": 99}), "damaged": "{", "not ours": "[]"}[
            case
        ]
        if text is not None:
            (folder / "run.json").write_text(text)
    with pytest.raises(RunError) as error:
        RunReader(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)
    if case == "future":
        assert "99" in str(error.value)
        assert "upgrade" in str(error.value)


def test_a_writer_refuses_a_folder_of_other_things(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match=r"no run\.json"):
        RunWriter(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["thesis.tex"]


def test_the_state_cadence_grows_with_the_age_of_the_run():
    blocks = sum(1 for step in range(100_000) if (step + 1) % state_block(step) == 0)
    assert 7_000 < blocks < 9_000
    assert state_block(0, 5) == 5


def test_the_end_of_a_run_is_recorded_and_void_when_steps_follow(tmp_path):
    """Issue 17.8: the record has an end, so that a finished run and a killed one differ."""
    writer, folder = RunWriter(tmp_path / "run"), tmp_path / "run"
    writer.commit({"step": 0, **STEP})
    assert RunReader(folder).end(0) is None
    writer.end("exception", {"error": "ValueError: x"})
    writer.end("finished")  # the first word counts
    assert RunReader(folder).end(0)["reason"] == "exception"
    writer.commit({"step": 1, **STEP})
    assert RunReader(folder).end(0) is None
    writer.close()
    end = RunReader(folder).end(0)
    assert (end["reason"], end["step"], end["num_steps"]) == ("closed", 1, 2)


def test_what_a_sink_lost_is_a_sentence_with_its_last_failure():
    lost = {"dropped": 2, "failed": 1, "refused": 0, "stuck_s": 0.0, "failure": "x" * 200}
    full = {**lost, "refused": 1, "stuck_s": 12.4, "failure": ""}
    assert (
        sink_line({"a": lost})
        == f"Sink a lacks 3 steps, last failure: {'x' * 120} (the run folder has them)."
    )
    assert sink_line({"a": full}).startswith(
        "Sink a lacks 3 steps and 1 number it cannot hold, hanging for 12 s ("
    )
    assert sink_line({}) == ""
