"""A rank that is stopped has a name in every view while the others wait for it, without a next step."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import trimtab
from tests.support import running
from trimtab.alerts import AlertSink, CommandTarget, RunSentry
from trimtab.distributed import MergeOptions
from trimtab.report.run_diagnosis import diagnosis, diagnosis_screen
from trimtab.report.run_view import RunView, load_view
from trimtab.runs import beat_files

ROOT = Path(__file__).parents[2]
CHILD = """
import sys, trimtab
from trimtab.distributed import MergeOptions
with trimtab.open_run(sys.argv[1], rank=1, merge=MergeOptions(ranks=2)) as run:
    run.flush(0, {"reward": 0.5})
    print("flushed", flush=True)
    sys.stdin.readline()
print("closed", flush=True)
sys.stdin.readline()
"""


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_views_and_alerts_name_a_stopped_rank_without_a_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beat_files, "bound", {"rank_stopped_s": 2.0}.__getitem__)
    folder, sent = tmp_path / "run", tmp_path / "sent"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with running([sys.executable, "-c", CHILD, str(folder)], 200, stdin=-1, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "flushed\n"
        run = trimtab.open_run(folder, rank=0, merge=MergeOptions(ranks=2, end_wait_s=0.01))
        run.flush(0, {"reward": 0.5})
        view = RunView(folder)  # as `watch` reads it, again and again
        shell = f"cat >> {sent}; echo >> {sent}"
        sentry = RunSentry(folder, [AlertSink(CommandTarget(["sh", "-c", shell]))], silence_s=3600.0)
        sentry.check()
        assert not sent.exists()
        assert not view.integrity.gaps

        child.send_signal(signal.SIGSTOP)
        until(lambda: view.refresh() and bool(view.integrity.gaps))
        (gap,) = view.integrity.gaps
        assert gap.startswith("rank 1 has given no sign of life for ")
        summary = diagnosis(load_view(folder))
        assert "rank 1 has given no sign of life" in summary["reason"]
        alarmed = diagnosis_screen(summary | {"headline": "UNHEALTHY at step 3"})  # not its headline any more
        assert any("blind now: rank 1 has given no sign of life" in line for line in alarmed)
        sentry.check()
        sentry.check()
        (alert,) = map(json.loads, sent.read_text().splitlines())
        assert (alert["change"], alert["cause"][-6:]) == ("opened", "rank 1")

        child.send_signal(signal.SIGCONT)
        until(lambda: not load_view(folder).integrity.gaps)
        sentry.check()
        assert [json.loads(line)["change"] for line in sent.read_text().splitlines()] == [
            "opened",
            "resolved",
        ]
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "closed\n"
        run.close()


def test_a_beat_that_an_ended_rank_left_behind_names_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs = [trimtab.open_run(folder, rank=rank, merge=MergeOptions(ranks=2)) for rank in (0, 1)]
    for run in runs:
        run.flush(0, {"reward": 0.5})
    runs[1].close()
    (folder / ".beat.r1").write_bytes(b"")  # as one that was killed while it closed
    os.utime(folder / ".beat.r1", (1.0, 1.0))
    until(lambda: beat_files.stopped_ranks(folder).keys() == {1})
    assert not load_view(folder).integrity.gaps
    runs[0].close()
