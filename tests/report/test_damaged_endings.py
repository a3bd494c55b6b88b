"""The sentence of how a run ended is never more than its record shows: cut, deleted, unwritten and missing files."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys

import pytest

import trimtab
from tests.monitor.test_full_disk import looped
from tests.support import cli, write_run


def shown(folder):
    return json.loads(cli("diagnose", folder, "--json").stdout)


def ending(folder):
    return shown(folder)["ending"]["text"]


def cut(path, rows):
    """Keep the first rows of a file."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:rows]))


def test_a_cut_record_ended_where_its_end_says(tmp_path):
    """A run of 40 steps whose file of steps was cut to 20 "finished after step 19"."""
    folder = write_run(tmp_path / "run", steps=40)
    assert ending(folder) == "finished after step 39"
    cut(folder / "steps.r0.s0.jsonl", 20)
    assert ending(folder) == "finished after step 39; the record holds its steps up to 19"
    (folder / "steps.r0.s0.jsonl").unlink()
    assert ending(folder) == "finished after step 39; the record holds none of its steps"


@pytest.mark.parametrize("damage", ["deleted", "garbled", "torn"])
def test_an_end_that_cannot_be_read_is_no_kill(tmp_path, damage):
    """A finished run without its file of ends "vanished (kill -9, out of memory, a crash in C)"."""
    folder, code = (
        tmp_path / "run",
        "import sys, trimtab; r = trimtab.open_run(sys.argv[1]); r.flush(0); r.close()",
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=120)
    assert ending(folder) == "finished after step 0"
    path = folder / "end.r0.s0.jsonl"
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes(b"X" + path.read_bytes() if damage == "garbled" else path.read_bytes()[:-9])
    assert re.fullmatch(
        r"stopped after step 0 or later: process \d+ on \S+ is gone, and its end cannot be read",
        ending(folder),
    )
    (folder / "process.r0.s0.txt").unlink()
    assert ending(folder) == "left an end that cannot be read: it still runs, or stopped after step 0"


def test_nan_is_said_up_to_the_last_step_that_was_read(tmp_path):
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(20):
            run.flush(step, {"loss": 1.0 if step < 5 else math.nan, "kl": math.nan if step < 3 else 1.0})
    assert (
        ending(tmp_path / "run")
        == "finished after step 19, with NaN or infinite values since step 5: metrics/loss"
    )
    cut(tmp_path / "run" / "steps.r0.s0.jsonl", 10)
    assert ", with NaN or infinite values from step 5 to 9, the last one read: metrics/loss;" in ending(
        tmp_path / "run"
    )


def test_a_kill_on_a_full_disk_says_both(tmp_path):
    """ "vanished after step 39", and not a word of the writes that had failed since."""
    *_, result = looped(tmp_path / "run", 1_000, "kill")
    text = result["ending"]["text"]
    assert text.startswith("vanished after step 39, the last one it could write: process ")
    assert text.endswith("is gone and could not write how it ended (disk full, or not writable)")
    assert "cannot write its record" in result["reason"]


def test_a_live_run_on_a_full_disk_says_so(tmp_path):
    run = trimtab.open_run(tmp_path / "run")
    run.flush(0)
    run.writer.mark_failed("No space left on device")
    assert re.search(
        r"process \d+ on \S+, which cannot write its record .*, is running, after step 0",
        ending(tmp_path / "run"),
    )
    run.close()
    assert ending(tmp_path / "run") == "finished after step 0"


def test_an_end_names_the_steps_it_could_not_write(tmp_path):
    run = trimtab.open_run(tmp_path / "run")
    run.flush(0)
    commit = os.write
    try:
        os.write = lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        with pytest.warns(RuntimeWarning, match="NOT watched"):
            run.flush(1)
    finally:
        os.write = commit
    run.close()
    assert ending(tmp_path / "run") == "finished after step 1; it could not write step 1"


def two_ranks(folder, monkeypatch, ranks=(0, 1), **open_with):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ranks:
        monkeypatch.setenv("RANK", str(rank))
        write_run(folder, steps=40, seed=rank, **(open_with or {"config": {}}))
    return folder


def test_a_rank_that_never_wrote_is_named(tmp_path, monkeypatch):
    """WORLD_SIZE=2 and one rank's record: HEALTHY, and nothing of the other."""
    folder = two_ranks(tmp_path / "run", monkeypatch, ranks=(0,))
    result = shown(folder)
    assert result["not_observed"]["rank 1"].startswith("of 2 processes; nothing was written here")
    assert "not observed: rank 1" in result["headline"]
    assert "rank 1: of 2 processes" in cli("diagnose", folder).stdout


def test_a_given_rank_that_is_the_environments_records_how_many_there_are(tmp_path, monkeypatch):
    folder = two_ranks(tmp_path / "run", monkeypatch, ranks=(0,), rank=0)
    assert "rank 1" in shown(folder)["not_observed"]


def test_a_rank_whose_files_are_gone_is_blind_and_named(tmp_path, monkeypatch):
    folder = two_ranks(tmp_path / "run", monkeypatch)
    assert "rank 1" not in shown(folder)["not_observed"]
    for path in folder.glob("*.r1.*"):
        path.unlink()
    result = shown(folder)
    assert result["headline"].startswith("BLIND: rank 1 opened this folder, and none of its rows is here")
    assert "rank 1" in result["not_observed"]


def test_ranks_of_a_world_are_named_up_to_a_few(tmp_path):
    folder = write_run(tmp_path / "run", steps=3, config={"ranks": 1_000_000})
    assert (
        "999999 of 1000000 ranks have written nothing: 1, 2, 3, 4, 5, 6, 7, 8 and 999991 more"
        in shown(folder)["reason"]
    )


def test_what_ran_is_shown_in_full(tmp_path):
    """Issue 17.17: a plain loop's diagnosis named the host alone."""
    config = {"model_name": "tiny", "lr": 1e-6, "identity": {"git_commit": "0123456789abcdef", "beta": 0.1}}
    folder = write_run(tmp_path / "run", steps=3, config=config)
    identity = shown(folder)["identity"]
    assert (identity["model"], identity["learning_rate"], identity["beta"]) == ("tiny", 1e-6, 0.1)
    assert {"command", "host", "git_commit"} <= identity.keys()
    line = "model tiny, learning rate 1e-06, beta 0.1, git commit 0123456789, host "
    assert line in cli("diagnose", folder).stdout
    full = cli("diagnose", folder, "--verbose").stdout
    for fact in (
        "model: tiny",
        "learning rate: 1e-06",
        "git commit: 0123456789abcdef",
        "host: ",
        "command: ",
        "python: ",
    ):
        assert f"\n  {fact}" in full


@pytest.mark.parametrize("sign", [signal.SIGKILL])
def test_a_kill_with_a_whole_record_stays_a_kill(tmp_path, sign):
    code = f"import os, sys, trimtab; r = trimtab.open_run(sys.argv[1]); r.flush(0); os.kill(os.getpid(), {int(sign)})"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=False, timeout=120)
    assert re.match(
        r"vanished after step 0: process \d+ on \S+ is gone and recorded no end", ending(tmp_path / "run")
    )


@pytest.mark.parametrize("kind", ["steps", "series", "tools", "alarms"])
def test_a_line_that_stands_twice_counts_once_and_is_said(tmp_path, kind):
    """A repeated row of steps doubled its tokens."""
    folder = write_run(tmp_path / "run", steps=40, grow_from=25)
    before = shown(folder)
    path = folder / f"{kind}.r0.s0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[1], *lines[2:]]))
    after = shown(folder)
    assert (after["slices"], after["alarms"]) == (before["slices"], before["alarms"])
    assert after["num_repeated"] == 1
    assert "repeated lines skipped: 1" in cli("diagnose", folder).stdout


def test_rows_without_their_header_are_a_run_folder(tmp_path):
    """ "holds several files (alarms.r0.s0.jsonl, ...); give the one that is the log"."""
    folder = write_run(tmp_path / "run", steps=3)
    (folder / "run.json").unlink()
    done = cli("diagnose", folder)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"trimtab: {folder} holds the rows of a run and no run.json, which is needed to read them\n"
    )
