"""The end and the pulse of a record: a full disk, a lost row, a vanished process and a second writer never look well."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time

import numpy as np
import pytest

import trimtab
from tests.support import cli, make_batch, running, write_run
from trimtab.errors import RunError
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

FULL_DISK = """
import os, resource, sys
import numpy as np
import trimtab
from tests.support import make_batch

folder, back = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
with trimtab.open_run(folder) as run:
    for step in range(100):
        if step == 40:  # no write is taken; or the kernel cuts the next row of steps, then refuses
            size = os.path.getsize(f"{folder}/steps.r0.s0.jsonl")
            resource.setrlimit(resource.RLIMIT_FSIZE, (0 if back > 100 else size + 200, hard))
        if step == back:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        run.observe(make_batch(rng, sequences=64, step=step))
        run.flush(step, {"reward": float(rng.random()), "grad_norm": 1.0 if not 45 < step < 60 or back < 100 else float("nan")})
        if step == 50:
            print(run.dead, run.num_failures > 0, flush=True)
    print(run.dead, flush=True)
"""


def verdict(folder):
    found = load_view(folder).verdict
    return found.word, found.reason


def written(folder, code, *arguments):
    """Run a child that writes a run: its lines, and what it said on stderr."""
    command = [sys.executable, "-c", code, str(folder), *map(str, arguments)]
    with running(command, 240) as child:
        out, err = child.communicate()
    assert child.returncode == 0, err
    return out.split(), err


def age(folder, seconds, rank=0):
    """Make a rank's file of steps as old as if nothing had been written for so long."""
    path = next(folder.glob(f"steps.r{rank}.*"))
    os.utime(path, (time.time() - seconds,) * 2)


def unended(folder, steps=40, **kwargs):
    """A calm run whose process was killed."""
    write_run(folder, steps=steps, **kwargs)
    for path in folder.glob("end.*"):
        path.write_text("")
    return folder


def test_a_disk_that_stays_full_is_blind_and_told_to_the_loop(tmp_path):
    """Issue 17.8: every write fails from step 40 on while NaN goes by; the verdict was HEALTHY."""
    out, err = written(tmp_path / "run", FULL_DISK, 1_000)
    assert out == ["True", "True", "True"]
    assert err.count("CANNOT WRITE") == 1
    assert err.count("training is NOT watched") == 1
    word, reason = verdict(tmp_path / "run")
    assert word == "blind"
    assert "rank 0 cannot write its record" in reason
    done = cli("diagnose", tmp_path / "run")
    assert done.returncode == 2
    assert "failed 0 times" not in done.stdout


def test_a_disk_with_room_again_is_watched_again_and_the_loss_stated(tmp_path):
    """Issue 17.10: a short write before ENOSPC glued the next row to the torn half, and the run stayed blind."""
    out, err = written(tmp_path / "run", FULL_DISK, 44)
    assert out == ["False", "True", "False"]
    assert "work again" in err
    assert "lost steps 4" in err
    view = load_view(tmp_path / "run")
    steps = [row["step"] for row in view.steps]
    assert steps[-55:] == list(range(45, 100))
    assert len(steps) >= 96  # a row begun on the full disk took no other with it
    assert view.verdict.word == "healthy"
    assert "rank 0 could not write step" in view.verdict.reason
    assert not list((tmp_path / "run").glob("FAILED*"))
    assert cli("diagnose", tmp_path / "run", "--verbose").stdout.count("rank 0 could not write step") == 1


@pytest.mark.parametrize("kind", ["steps", "readings", "states"])
def test_a_file_cut_at_a_lines_end_is_no_shorter_run(tmp_path, kind):
    """Issue 17.8: fewer rows than the others say were written."""
    folder = write_run(tmp_path / "run", steps=40)
    assert verdict(folder)[0] == "healthy"
    path = folder / f"{kind}.r0.s0.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))
    for end in folder.glob("end.*"):  # and killed: no end says how many steps there were
        end.write_text("")
    word, reason = verdict(folder)
    assert word == "blind"
    assert f"of {kind} lost" in reason


@pytest.mark.parametrize("kind", ["steps", "readings", "states"])
def test_a_changed_digit_and_a_missing_row_are_seen(tmp_path, kind):
    """Issue 17.8: each row has a number and a checksum."""
    folder = write_run(tmp_path / "run", steps=40)
    path = folder / f"{kind}.r0.s0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-3], *lines[-2:]]))
    assert verdict(folder) == ("blind", f"1 row of {kind} lost")
    changed = (
        lines[-2].replace(b'"step":3', b'"step":2')
        if kind != "states"
        else lines[-2].replace(b'"first":3', b'"first":2')
    )
    assert changed != lines[-2]
    path.write_bytes(b"".join([*lines[:-2], changed, lines[-1]]))
    assert verdict(folder) == ("blind", "1 line of the run folder cannot be read")  # it is not lost as well


def test_an_old_damage_does_not_blind_a_run_for_ever(tmp_path):
    """Issue 17.8: a run counts as watched again `damage_steps` whole steps after a damage; the loss is still stated."""
    folder = write_run(tmp_path / "run", steps=60)
    path = folder / "steps.r0.s0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:20], lines[20][:50] + b"\n", *lines[21:]]))
    word, reason = verdict(folder)
    assert word == "healthy"
    assert "missing from the record: 1 line of the run folder cannot be read" in reason


@pytest.mark.parametrize(("num_lost", "word"), [(6, "healthy"), (7, "blind")])
def test_an_old_loss_of_more_than_a_tenth_of_the_steps_blinds_a_run(tmp_path, num_lost, word):
    folder = write_run(tmp_path / "run", steps=60)
    path = folder / "steps.r0.s0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:10], *lines[10 + num_lost :]]))
    assert verdict(folder)[0] == word


def test_a_hung_job_of_four_ranks_is_not_healthy(tmp_path):
    """Issue 17.8: no rank has an end, and none has written for longer than its cadence allows."""
    for rank in range(4):
        unended(tmp_path / "run", rank=rank, config={"ranks": 4}, seed=rank)
    assert verdict(tmp_path / "run")[0] != "blind"  # it may still run
    for rank in range(4):
        age(tmp_path / "run", 3_600, rank)
    word, reason = verdict(tmp_path / "run")
    assert word == "blind"
    assert "the run stopped after step 39 without an end" in reason
    age(tmp_path / "run", 0, 2)
    assert "rank 0, 1, 3 stopped after step 39 without an end" in verdict(tmp_path / "run")[1]


def test_a_killed_run_is_blind_after_a_while_and_a_finished_one_stays_healthy(tmp_path):
    """Issue 17.8: kill -9 leaves no end; a finished run may be as old as it likes."""
    code = FULL_DISK.replace("step == 40", "step == 400").replace('"nan"', '"1"')
    folder = tmp_path / "run"
    with running([sys.executable, "-c", code, str(folder), "1000"], 120, stderr=None) as child:
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert RunReader(folder).end(0) is None
    age(folder, 86_400)
    assert "without an end" in verdict(folder)[1]
    age(folder, -3 * 86_400)  # a clock set back since
    assert "without an end" in verdict(folder)[1]
    done = write_run(tmp_path / "done", steps=40)
    age(done, 86_400)
    assert verdict(done)[0] == "healthy"


def test_a_clock_set_back_hides_no_failure(tmp_path, monkeypatch):
    """Issue 17.8: what came after what is known by the order of rows, not by wall times."""
    rng, folder = np.random.default_rng(0), tmp_path / "run"
    run = trimtab.open_run(folder)
    for step in range(40):
        run.observe(make_batch(rng, sequences=64, step=step))
        run.flush(step, {"reward": 1.0})
    back = time.time() - 3 * 86_400
    monkeypatch.setattr("trimtab.monitor.isolation.time.time", lambda: back)
    run.observe(loss_mask="x")
    monkeypatch.undo()
    assert verdict(folder) == ("blind", "the monitor failed 1 time and did not recover; see errors")
    run.close()


def test_a_deleted_folder_is_noticed_by_flush(tmp_path):
    """Issue 17.13: the loop is warned; the files of a deleted folder take every write."""
    folder = tmp_path / "run"
    run = trimtab.open_run(folder)
    run.flush(0)
    shutil.rmtree(folder)
    with pytest.warns(RuntimeWarning, match="files of the run were deleted"):
        run.flush(1)
    assert run.dead
    run.begin(0)  # opens it anew
    run.close()


def test_begin_and_open_run_never_raise_what_a_loop_does_not_expect(tmp_path):
    """Issue 17.13: begin is isolated; open_run on a disk it cannot write is one line."""
    with pytest.raises(RunError, match="cannot be written") as error:
        trimtab.open_run("/proc/trimtab-run")
    assert "\n" not in str(error.value)
    run = trimtab.open_run(tmp_path / "run")
    run.flush(5)
    (tmp_path / "run" / "run.json").write_text("{")
    run.begin(0)
    assert run.dead
    assert run.num_failures == 1


def test_a_run_just_opened_has_stopped_nowhere(tmp_path):
    """Issue 17.13: "rank 0 stopped at step None"."""
    with trimtab.open_run(tmp_path / "run"):
        assert verdict(tmp_path / "run") == ("not judged yet", "no step has been flushed")
        with trimtab.open_run(tmp_path / "run", rank=1):
            assert verdict(tmp_path / "run")[0] == "not judged yet"


def test_a_step_of_a_hundred_quintillion_costs_one_row(tmp_path):
    """Issue 17.13: bounded and counted as malformed, in a run folder and in a metrics log."""
    folder = write_run(tmp_path / "run", steps=3)
    with (folder / "steps.r0.s0.jsonl").open("a") as out:
        out.write('{"step":100000000000000000000}\n')
    assert "malformed lines skipped: 1" in cli("diagnose", folder).stdout
    log = tmp_path / "log.jsonl"
    rows = [{"step": step, "reward": 0.5, "kl": 0.1, "entropy": 1.0} for step in range(60)]
    log.write_text("\n".join(map(json.dumps, [*rows, {"step": 10**20, "reward": 0.5}])))
    done = cli("diagnose", log)
    assert "a bug of ours" not in done.stdout + done.stderr
    assert "steps 0 to 59" in done.stdout


def test_an_alarm_of_a_superseded_session_stays_shown(tmp_path):
    """Issue 17.9: a second session that starts over hides no alarm."""
    folder = write_run(tmp_path / "run", steps=40, grow_from=25)
    before = {(alarm.rule, alarm.step) for alarm in load_view(folder).alarms if alarm.severity != "info"}
    rng = np.random.default_rng(5)
    with trimtab.open_run(folder) as run:
        for step in range(40):
            run.observe(make_batch(rng, sequences=64, step=step))
            run.flush(step, {"reward": 1.0})
    view = load_view(folder)
    assert before <= {(alarm.rule, alarm.step) for alarm in view.alarms}
    assert view.verdict.exit_code == 1


def test_a_run_that_is_written_meanwhile_has_lost_nothing(tmp_path, monkeypatch):
    """A reader took the steps after the other files, so rows of the steps in between counted as lost."""
    rng = np.random.default_rng(0)
    with trimtab.open_run(tmp_path / "run", strict=True) as run:

        def step():
            number = -1 if run.last_step is None else run.last_step
            run.observe(make_batch(rng, sequences=64, step=number + 1))
            run.tool_call(trimtab.ToolCall("search", {"q": "x"}, 12, "", 0.01))
            run.flush(number + 1, {"reward": 0.5 + 0.01 * rng.normal(), "grad_norm": 1.0})

        for _ in range(40):
            step()
        read = RunReader._read

        def step_and_read(reader, *arguments):
            read(reader, *arguments)
            step()

        monkeypatch.setattr(RunReader, "_read", step_and_read)
        view = load_view(tmp_path / "run")
        assert (view.verdict.word, view.integrity.losses) == ("healthy", ())
        view.refresh()
        assert (view.verdict.word, view.integrity.losses) == ("healthy", ())


@pytest.mark.parametrize("kind", ["steps", "series", "tools"])
def test_a_deleted_file_is_a_loss(tmp_path, kind):
    """Only files that were there were looked at: a run without its tool calls was healthy."""
    folder = write_run(tmp_path / "run", steps=40)
    (folder / f"{kind}.r0.s0.jsonl").unlink()
    assert verdict(folder) == ("blind", f"40 rows of {kind} lost")


def test_a_loss_is_said_once(tmp_path):
    """Issue 17.16: the sentence named a lost row, and a line below it again."""
    folder = write_run(tmp_path / "run", steps=60)
    path = folder / "steps.r0.s0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:20], *lines[21:]]))
    for options in ([], ["--verbose"]):
        shown = " ".join(cli("diagnose", folder, *options).stdout.split())
        assert shown.count("1 row of steps lost") == 1
