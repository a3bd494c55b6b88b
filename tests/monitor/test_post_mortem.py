"""The post-mortem of real processes that crash, are stopped and are killed; forked, so that they spare their imports."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import cli, running
from trimtab.alerts.run_sentry import RunSentry
from trimtab.report.post_mortem import POST_MORTEM, read_post_mortem
from trimtab.report.run_view import load_view

CHILDREN = r"""
import ctypes, json, math, os, signal, sys, time, traceback
import numpy as np
import trimtab, trimtab.report.run_view, trimtab.report.post_mortem
from trimtab.guard.simulated import SimulatedControls
from tests.support import make_batch

class NoLevers(SimulatedControls):
    def levers(self):
        return {}

def write(folder, how):
    rng = np.random.default_rng(0)
    config = {"lr": 1e-6, "hub_token": "hf_abcdefghijkl", "max_tokens": 512, "nested": {"password": 7}}
    words = lambda token: f"<i>{token}\x1b[31m"
    options = dict(config=config, token_text=words, min_tokens=500, min_trajectories=2, strict=True)
    if how == "stop":  # a guard whose trainer has no lever, and no state to go back to
        options |= dict(guard="strict", controls=NoLevers())
    with trimtab.open_run(folder, **options) as run:
        for step in range(8):
            ids = rng.integers(0, 99, (8, 90))
            run.observe(make_batch(rng, sequences=8, step=step, token_ids=ids))
            bad = how in ("nan", "stop") and step > 5
            run.flush(step, {"reward": 0.5, "loss": math.nan if bad else 1.0}, duration_s=1.0)
            if how == "stop" and options["controls"].stopped:
                break
        if how == "phase":
            with run.phase("rollout"):
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB for https://me:pw@host")
        if how == "memory":
            bytearray(2**62)
        if how == "raise":
            raise KeyError("the reward function broke")
        if how == "readonly":
            from trimtab.report.post_mortem import post_mortem_file
            post_mortem_file.os.fsync = full
            raise KeyError("the reward function broke")
        if how == "fork":
            child = os.fork()
            if child == 0:
                time.sleep(60)
            os.kill(child, signal.SIGTERM)
            os.write(1, f"{os.waitpid(child, 0)[1]}\n".encode())
        if how in ("wait", "stuck", "slow"):
            if how == "slow":
                from trimtab.report.post_mortem import post_mortem_file
                post_mortem_file.os.fsync = lambda file: (os.write(1, b"writing\n"), time.sleep(60))
            os.write(1, b"ready\n")
        if how == "stuck":  # in C, where no handler of Python's runs
            lock, c = ctypes.create_string_buffer(64), ctypes.CDLL(None)
            c.pthread_mutex_lock(lock)
            c.pthread_mutex_lock(lock)
        if how in ("wait", "slow"):
            time.sleep(60)

def full(file):
    raise OSError(28, "No space left on device")

for line in sys.stdin:  # each is a process of its own
    pid = os.fork()
    if pid == 0:
        try:
            write(*line.split())
        except BaseException as error:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.write(1, f"pid {pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.write(1, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())
"""


class Child:
    """One life of a forked process: what it printed, and how it ended."""

    def __init__(self, parent: subprocess.Popen[str], folder: Path, how: str) -> None:
        assert parent.stdin is not None
        assert parent.stdout is not None
        self.parent, self.folder, self.lines, self.code = parent, folder, [], None
        parent.stdin.write(f"{folder} {how}\n")
        parent.stdin.flush()
        self.pid = int(parent.stdout.readline().split()[1])

    def until(self, word: str) -> None:
        while not self.lines or self.lines[-1] != word:
            self.lines.append(self.parent.stdout.readline().strip())  # type: ignore[union-attr]
            assert not self.lines[-1].startswith("ended"), self.lines

    def end(self, number: int | None = None) -> int:
        if number is not None:
            os.kill(self.pid, number)
        while not (self.lines and self.lines[-1].startswith("ended")):
            self.lines.append(self.parent.stdout.readline().strip())  # type: ignore[union-attr]
        return int(self.lines[-1].split()[1])

    @property
    def record(self) -> dict[str, Any]:
        record = read_post_mortem(self.folder)
        assert record is not None
        return record


@pytest.fixture(scope="module")
def parent():
    command = [sys.executable, "-c", CHILDREN]
    with running(command, 120, stdin=subprocess.PIPE) as child:
        yield child
        child.stdin.close()
        assert "Error in" not in child.stderr.read()


@pytest.fixture
def life(parent, tmp_path):
    return lambda how: Child(parent, tmp_path / how, how)


def test_a_crash_leaves_a_record_of_what_was_and_what_to_try(life):
    child = life("phase")
    assert child.end() == 1
    record = child.record
    assert record["written_by"] == "process"
    assert record["ending"]["kind"] == "out of memory"
    assert record["ending"]["phase"] == "rollout"
    assert "CUDA out of memory" in record["ending"]["error"]
    assert (record["last_step"], record["last_stable"]["step"]) == (7, 7)
    assert record["configuration"]["hub_token"] == "***"
    assert record["configuration"]["nested"] == {"password": "***"}
    assert record["configuration"]["max_tokens"] == 512
    first = record["try_first"][0]
    assert "generate fewer or shorter answers" in first["do"]
    assert "left from phase rollout" in first["because"]
    assert {"reward", "loss"} <= {one["name"] for one in record["readings"]}
    assert record["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record["worst_tokens"][0]["text"].startswith("<i>")
    text = (child.folder / POST_MORTEM).read_text()
    assert not [secret for secret in ("abcdefghijkl", "pw@host", "\\u001b") if secret in text]


@pytest.mark.parametrize(
    ("how", "kind", "first"),
    [
        ("raise", "exception", "read the error"),
        ("memory", "out of memory", "lower what the step holds"),
        ("nan", "not finite", "read the worst tokens"),
        ("stop", "stopped by the guard", "find the cause before resuming"),
    ],
)
def test_each_end_has_its_kind_and_its_first_advice(life, how, kind, first):
    child = life(how)
    assert child.end() == (0 if how in ("nan", "stop") else 1)
    assert child.record["ending"]["kind"] == kind
    assert child.record["try_first"][0]["do"].startswith(first)
    assert child.record["last_stable"]["step"] == (5 if how in ("nan", "stop") else 7)
    shown = cli("postmortem", child.folder)
    assert shown.returncode == 1
    assert shown.stdout.startswith("POST-MORTEM of")


def test_a_run_that_finished_has_none(life):
    child = life("finish")
    assert child.end() == 0
    assert not (child.folder / POST_MORTEM).exists()
    shown = cli("postmortem", child.folder)
    assert (shown.returncode, "finished after step 7" in shown.stdout) == (0, True)
    assert not (child.folder / POST_MORTEM).exists()


def test_sigterm_is_recorded_and_still_kills_by_the_signal(life):
    child = life("wait")
    child.until("ready")
    assert child.end(signal.SIGTERM) == -signal.SIGTERM
    assert child.record["written_by"] == "process"
    assert "by SIGTERM" in child.record["headline"]


def test_sigterm_ends_a_process_that_hangs_in_c(life):
    child = life("stuck")
    child.until("ready")
    time.sleep(0.5)  # until it is in C
    assert child.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert "by SIGTERM" in child.record["headline"]


def test_sigterm_to_a_forked_child_is_not_the_runs(life):
    child = life("fork")
    assert child.end() == 0
    assert child.lines[0] == str(int(signal.SIGTERM))
    assert len((child.folder / "process.r0.s0.txt").read_text().splitlines()) == 1
    assert not (child.folder / POST_MORTEM).exists()


def test_kill_9_is_composed_by_the_reader(life):
    child = life("wait")
    child.until("ready")
    assert child.end(signal.SIGKILL) == -signal.SIGKILL
    assert not (child.folder / POST_MORTEM).exists()
    shown = cli("postmortem", child.folder, "--json")
    assert shown.returncode == 1
    record = json.loads(shown.stdout)
    assert record["ending"]["kind"] == "killed"
    assert record["last_step"] == 7
    assert child.record["written_by"] == "reader"
    assert cli("postmortem", child.folder).stderr == ""  # the file that is there says so already


def test_the_sentry_of_alerts_composes_it_too(life):
    child = life("wait")
    child.until("ready")
    child.end(signal.SIGKILL)
    sentry = RunSentry(child.folder, [])
    sentry.check()
    assert sentry.is_over
    assert (child.record["written_by"], child.record["ending"]["kind"]) == ("reader", "killed")


def test_kill_9_while_it_is_written_leaves_the_old_record(life):
    child = life("slow")
    old = '{"trimtab_post_mortem": 1, "run_id": "of before"}'
    child.until("ready")
    (child.folder / POST_MORTEM).write_text(old)
    os.kill(child.pid, signal.SIGTERM)
    child.until("writing")
    assert child.end(signal.SIGKILL) == -signal.SIGKILL
    assert (child.folder / POST_MORTEM).read_text() == old
    assert [row["step"] for row in load_view(child.folder).steps] == list(range(8))
    assert cli("postmortem", child.folder).returncode == 1
    assert "by SIGTERM" in child.record["headline"]


def test_a_record_that_cannot_be_written_replaces_no_exception(life, parent):
    child = life("readonly")
    assert child.end() == 1
    row = json.loads((child.folder / "end.r0.s0.jsonl").read_text())
    assert row["detail"]["error"] == "KeyError: 'the reward function broke'"
    assert not (child.folder / POST_MORTEM).exists()
    assert not [name for name in os.listdir(child.folder) if name.endswith(".tmp")]


def test_the_page_and_the_diagnosis_open_with_it(life, tmp_path):
    child = life("raise")
    child.end()
    screen = cli("diagnose", child.folder).stdout.splitlines()
    assert screen[0].startswith("POST-MORTEM, EXCEPTION: ended after step 7 by an exception, KeyError")
    assert any(line.startswith("  try first: ") for line in screen[:3])
    assert len(screen) <= 25
    assert json.loads(cli("diagnose", child.folder, "--json").stdout)["post_mortem"]["last_step"] == 7
    assert cli("report", child.folder, "-o", tmp_path / "page.html").returncode == 0
    page = (tmp_path / "page.html").read_text()
    head = page[page.index('id="post-mortem"') : page.index('class="verdicts')]
    assert "What to try first" in head
    assert "<b>&lt;i&gt;" in re.sub(r"<bdi>|</bdi>", "", head)
    assert "<i>" not in head
    assert "\x1b" not in page


def test_a_resumed_run_that_goes_well_has_no_head(life, parent, tmp_path):
    child = life("raise")
    child.end()
    again = Child(parent, child.folder, "finish")
    assert again.end() == 0
    assert "POST-MORTEM" not in cli("diagnose", child.folder).stdout
    assert cli("postmortem", child.folder).returncode == 0


def test_bad_input_is_one_line(tmp_path):
    shown = cli("postmortem", tmp_path)
    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)
    assert "is not a run folder" in shown.stderr
