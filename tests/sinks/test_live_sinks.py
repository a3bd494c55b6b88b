"""Sinks of a live run: what one costs, loses and says when it works, fails or hangs."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import pytest

import trimtab
from tests.sinks import readback
from tests.support import cli, running
from trimtab.catalog import bound
from trimtab.errors import SinkError
from trimtab.monitor.run import Run
from trimtab.sinks import SelectedNames, SinkRun, SinkWorker, StepRecord, open_sinks
from trimtab.sinks.row_translation import StoredStep
from trimtab.sinks.sink_worker import failure_text


class Recorder:
    """A sink that remembers; it fails at the steps it is asked to, and waits for `gate` at others."""

    name = "recorder"

    def __init__(self, fails: tuple[int, ...] = (), waits: tuple[int, ...] = ()) -> None:
        self.fails, self.waits, self.gate = fails, waits, threading.Event()
        self.records: list[StepRecord] = []
        self.run: SinkRun | None = None
        self.calls: list[str] = []
        self.threads: set[int] = set()

    def open(self, run: SinkRun) -> None:
        self.calls.append("open")
        self.run = run

    def write(self, record: StepRecord) -> int:
        self.threads.add(threading.get_ident())
        if record.step in self.waits:
            self.gate.wait(60)
        if record.step in self.fails:
            raise ConnectionError(f"no answer at step {record.step}")
        self.records.append(record)
        return 0

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


def loop(run: Run, steps: int) -> None:
    for step in range(steps):
        run.flush(step, {"reward": 0.1 * step, "loss": float("nan") if step == 1 else 1.0 / 3.0})


def end_counts(folder: Path) -> dict:
    return json.loads((folder / "end.r0.s0.jsonl").read_text().splitlines()[-1])["detail"]["sinks"][
        "recorder"
    ]


def test_a_sink_gets_every_number_of_the_store_in_a_thread_of_its_own(tmp_path: Path) -> None:
    sink = Recorder()
    with trimtab.open_run(tmp_path / "run", strict=True, sinks=[sink]) as run:
        loop(run, 4)
    theirs = {(one.step, point.name): point.value for one in sink.records for point in one.points}
    stored = readback.store_numbers(tmp_path / "run")
    assert theirs.keys() == stored.keys()
    assert all(readback.same(theirs[key], stored[key]) for key in stored)
    assert stored[2, "trimtab/metrics/loss"] == 0.3333333  # as the store rounds it
    assert threading.get_ident() not in sink.threads
    assert len(sink.threads) == 1
    assert sink.calls[0] == "open"
    assert sink.calls[-1] == "close"
    assert sink.run is not None
    assert (sink.run.name, sink.run.run_id) == ("run", run.writer.header["run_id"])
    assert [event.title for one in sink.records for event in one.events] == [
        "alarm nonfinite fired (slice metrics/loss, since step 1)",
        "incident opened (slice metrics/loss, since step 1)",
        "the run ended: finished",
    ]
    assert end_counts(tmp_path / "run")["written"] == 4


def test_a_sink_that_fails_is_counted_and_said_and_training_goes_on(tmp_path: Path) -> None:
    sink = Recorder(fails=(1, 2))
    with trimtab.open_run(tmp_path / "run", strict=True, sinks=[sink]) as run:
        loop(run, 5)
    assert [one.step for one in sink.records] == [0, 3, 4, 4]  # the last one tells of the end
    counts = end_counts(tmp_path / "run")
    assert (counts["written"], counts["failed"], counts["dropped"]) == (3, 2, 0)
    diagnosis = json.loads(cli("diagnose", tmp_path / "run", "--json").stdout)
    said = "Sink recorder lacks 2 steps, last failure: ConnectionError: no answer at step 2 (the run folder has them)."
    assert diagnosis["headline"].endswith(said)
    assert diagnosis["num_failures"] == 0  # the monitor itself did not fail
    assert "Sink recorder lacks 2 steps" in cli("diagnose", tmp_path / "run").stdout
    cli("report", tmp_path / "run", "-o", tmp_path / "page.html")
    assert "Sink recorder lacks 2 steps" in (tmp_path / "page.html").read_text()


def test_a_lossless_sink_adds_nothing_to_the_verdict(tmp_path: Path) -> None:
    with trimtab.open_run(tmp_path / "run", sinks=[Recorder()]) as run:
        loop(run, 2)
    assert "ink" not in json.loads(cli("diagnose", tmp_path / "run", "--json").stdout)["headline"]
    assert all(
        "sinks" not in json.loads(line)
        for line in (tmp_path / "run" / "steps.r0.s0.jsonl").read_text().splitlines()
    )


def test_a_sink_that_hangs_loses_its_oldest_steps_and_the_end_waits_to_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"sink_queue": 3.0, "sink_deadline": 0.3}
    for module in ("sink_worker", "sink_feed"):
        monkeypatch.setattr(f"trimtab.sinks.{module}.bound", lambda name: limits.get(name) or bound(name))
    sink = Recorder(waits=(2,))
    run = trimtab.open_run(tmp_path / "run", strict=True, sinks=[sink])
    loop(run, 3)
    while not run._sinks._workers[0]._busy_since or len(sink.records) < 2:  # it hangs in step 2
        time.sleep(0.01)
    for step in range(3, 10):
        run.flush(step, {"reward": 1.0})
    assert run.sink_counts["recorder"].dropped == 4
    row = json.loads((tmp_path / "run" / "steps.r0.s0.jsonl").read_text().splitlines()[-1])
    assert row["sinks"]["recorder"]["dropped"] == 3  # as known when the step was written
    run.end()
    counts = end_counts(tmp_path / "run")
    assert counts["dropped"] == 4 + 3 + 1
    assert counts["failure"] == "did not answer within 0 s"
    assert (
        "Sink recorder lacks 8 steps"
        in json.loads(cli("diagnose", tmp_path / "run", "--json").stdout)["headline"]
    )
    sink.gate.set()
    while run._sinks._workers[0].num_waiting:
        time.sleep(0.01)
    run.close()
    assert [one.step for one in sink.records] == [0, 1, 2, 8, 9, 9]  # and the end
    assert sink.calls[-1] == "close"


HANGS = """
import sys, threading, trimtab
class Hangs:
    name = "hangs"
    def open(self, run): threading.Event().wait()
    def write(self, record): return 0
    def flush(self): pass
    def close(self): pass
import trimtab.sinks.sink_feed as feed
bound = feed.bound
import trimtab.sinks.sink_worker as worker
feed.bound = worker.bound = lambda name: 0.5 if name in ("sink_deadline", "sink_open") else bound(name)
run = trimtab.open_run(sys.argv[1], sinks=[Hangs()])
run.flush(0, {"reward": 1.0})
if sys.argv[2] == "close":
    run.close()
"""


@pytest.mark.parametrize("how", ["close", "exit"])
def test_a_sink_that_hangs_for_ever_does_not_keep_the_process(tmp_path: Path, how: str) -> None:
    with running([sys.executable, "-c", HANGS, str(tmp_path / "run"), how], 60) as child:
        out, err = child.communicate(timeout=60)
    assert child.returncode == 0, out + err
    end = json.loads((tmp_path / "run" / "end.r0.s0.jsonl").read_text())
    assert end["reason"] == ("finished" if how == "close" else "exited")
    assert end["detail"]["sinks"]["hangs"]["dropped"] == 1
    assert err.count("Sink hangs lacks 1 step, last failure: did not answer within 0 s (the run folder") == 1


class SlowRecorder(Recorder):
    """Opens and writes more slowly than the deadline of the end allows in all."""

    name = "tensorboard"

    def open(self, run: SinkRun) -> None:
        time.sleep(0.6)
        super().open(run)

    def write(self, record: StepRecord) -> int:
        time.sleep(0.15)
        return super().write(record)


@pytest.mark.parametrize("limit", ["enough", "short"])
def test_the_end_waits_for_a_sink_that_opens_or_goes_on_and_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: str
) -> None:
    limits = {
        "sink_deadline": 0.4,
        "sink_open": 30.0,
        "sink_deadline_max": 60.0 if limit == "enough" else 0.5,
    }
    for module in ("sink_worker", "sink_feed"):
        monkeypatch.setattr(f"trimtab.sinks.{module}.bound", lambda name: limits.get(name) or bound(name))
    sink = SlowRecorder()
    with trimtab.open_run(tmp_path / "run", strict=True, sinks=[sink]) as run:
        loop(run, 6)
    lines = [one.getMessage() for one in caplog.records if "ink tensorboard" in one.getMessage()]
    if limit == "enough":
        assert [one.step for one in sink.records] == [0, 1, 2, 3, 4, 5, 5]
        assert lines == []
    else:
        (line,) = lines
        assert line.startswith("trimtab: Sink tensorboard lacks 6 steps, last failure: did not answer")
        assert f"`trimtab export {tmp_path / 'run'} --to tensorboard -o TARGET` writes them" in line


def test_a_page_of_a_server_is_one_line_without_credentials() -> None:
    page = "".join(f"<p>line {i}</p>\n" for i in range(40))
    text = failure_text(OSError(f"http://me:hunter2@host/api failed\n{page}"))
    assert text.startswith("OSError: http://host/api failed <p>line 0</p> <p>line 1</p>")
    assert (len(text), "\n" in text, "hunter2" in text) == (200, False, False)


def test_a_failure_is_logged_as_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Server(Recorder):
        def write(self, record: StepRecord) -> int:
            raise ConnectionError("502\n<html>\n<body>\n")

    with trimtab.open_run(tmp_path / "run", strict=True, sinks=[Server()]) as run:
        loop(run, 1)
    lines = [one.getMessage() for one in caplog.records if "recorder failed" in one.getMessage()]
    assert lines == ["trimtab: sink recorder failed: ConnectionError: 502 <html> <body>"]


def test_no_sinks_may_be_none(tmp_path: Path) -> None:
    with trimtab.open_run(tmp_path / "run", strict=True, sinks=None) as run:
        loop(run, 1)
    assert open_sinks(None) == ()


def test_a_sink_that_cannot_open_is_tried_again(tmp_path: Path) -> None:
    class LateSink(Recorder):
        def open(self, run: SinkRun) -> None:
            super().open(run)
            if len(self.calls) < 3:
                raise OSError("refused")

    sink = LateSink()
    with trimtab.open_run(tmp_path / "run", strict=True, sinks=[sink]) as run:
        loop(run, 4)
    assert sink.calls.count("open") == 3
    assert [one.step for one in sink.records] == [2, 3, 3]
    assert end_counts(tmp_path / "run")["failed"] == 2


def test_a_full_queue_drops_the_oldest(tmp_path: Path) -> None:
    sink = Recorder(waits=(0,))
    worker = SinkWorker(sink, SinkRun("id", "run", tmp_path, {}), capacity=2)
    worker.put(StoredStep(0, ()))
    while worker.num_waiting != 1 or not worker._busy_since:
        time.sleep(0.005)
    for step in range(1, 6):
        worker.put(StoredStep(step, ()))
    sink.gate.set()
    assert worker.request(last=True).wait(30)
    assert [one.step for one in sink.records] == [0, 4, 5]
    assert (worker.counts().dropped, worker.counts().written) == (3, 3)
    assert sink.calls == ["open", "close"]


def test_only_rank_0_feeds_sinks(tmp_path: Path) -> None:
    sink = Recorder()
    with trimtab.open_run(tmp_path / "run", rank=1, sinks=[sink]) as run:
        loop(run, 2)
    assert not sink.records


def test_a_second_session_goes_on_with_the_same_sinks(tmp_path: Path) -> None:
    sink = Recorder()
    with trimtab.open_run(tmp_path / "run", strict=True, sinks=[sink]) as run:
        loop(run, 3)
        run.begin(2)
        run.flush(2, {"reward": 5.0})
    rewards = [(one.step, p.value) for one in sink.records for p in one.points if p.key == "reward"]
    assert rewards == [(0, 0.0), (1, 0.1), (2, 0.2), (2, 5.0)]


def test_selected_names_hand_on_what_fits(tmp_path: Path) -> None:
    sink = Recorder()
    with trimtab.open_run(
        tmp_path / "run", strict=True, sinks=[SelectedNames(sink, ["trimtab/metrics/r*"])]
    ) as run:
        loop(run, 2)
    assert {point.name for one in sink.records for point in one.points} == {"trimtab/metrics/reward"}


@pytest.mark.parametrize(
    ("sinks", "text"),
    [
        (
            ["grafana"],
            "unknown sink 'grafana'; one of wandb, tensorboard, mlflow, trackio, or an object with its methods",
        ),
        (["tensorboard:"], "sink 'tensorboard:' names no target after the colon, as tensorboard:tb"),
        ("tensorboard", "sinks is a list, as sinks=['tensorboard']"),
        ([3], "int is not a sink: it needs a name, open, write, flush and close (trimtab.sinks.Sink)"),
        (["tensorboard:a", "tensorboard:b"], "two sinks are called 'tensorboard': give each its own `name`"),
    ],
)
def test_what_is_no_sink_is_refused_in_one_line(tmp_path: Path, sinks: list, text: str) -> None:
    with pytest.raises(SinkError) as failure:
        trimtab.open_run(tmp_path / "run", sinks=sinks)
    assert str(failure.value) == text
    assert not (tmp_path / "run").exists()


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.sinks.tracker_libraries.find_spec", lambda name: None)
    with pytest.raises(SinkError, match=r"wandb is not installed: pip install 'trimtab\[wandb\]'"):
        open_sinks(["wandb"])
