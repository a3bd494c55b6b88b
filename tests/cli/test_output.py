"""Standard output that is closed or full: the verdict's exit code stands, and no traceback is shown."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support import write_run

COMMAND = [sys.executable, "-m", "trimtab"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run folder for each exit code."""
    folder = tmp_path_factory.mktemp("runs")
    made = {0: write_run(folder / "well", steps=40), 1: write_run(folder / "ill", steps=40, grow_from=25)}
    made[2] = write_run(folder / "blind", steps=40)
    (made[2] / "series.r0.s0.jsonl").unlink()
    return made


def left(arguments, stdout):
    """Exit code and stderr of the command with this standard output."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120
    )
    return done.returncode, done.stderr


def closed_pipe():
    """The writing end of a pipe nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("options", [[], ["--json"], ["-v"]])
@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_verdicts_exit_code_survives_a_closed_pipe(runs, code, options):
    """`trimtab diagnose RUN | head -1` exited 0 for a run that was blind or unhealthy."""
    writing = closed_pipe()
    try:
        assert left(["diagnose", runs[code], *options], writing) == (code, "")
    finally:
        os.close(writing)


@pytest.mark.parametrize("options", [[], ["--json"], ["--verbose"], ["-v"]])
def test_a_full_output_is_one_line_and_exit_code_2(runs, options):
    with open("/dev/full", "w") as full:
        code, err = left(["diagnose", runs[0], *options], full)
    assert code == 2
    assert err == "trimtab: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("arguments", [["--version"], ["version"], ["watch", "--once", "RUN"], ["--help"]])
def test_other_commands_leave_with_one_line_too(runs, arguments):
    arguments = [runs[0] if argument == "RUN" else argument for argument in arguments]
    with open("/dev/full", "w") as full:
        code, err = left(arguments, full)
    assert (code, err.count("\n")) == (2, 1), err
    assert "No space left on device" in err
    writing = closed_pipe()
    try:
        assert left(arguments, writing)[0] == 0
    finally:
        os.close(writing)


def test_a_command_without_standard_output_has_its_exit_code(runs):
    command = f"'{sys.executable}' -m trimtab diagnose '{runs[1]}' >&-"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_closed_pipe_keeps_the_code_of_traces_too(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"messages": []}\n')
    writing = closed_pipe()
    try:
        code, err = left(["traces", "diagnose", tmp_path / "log.jsonl"], writing)
    finally:
        os.close(writing)
    assert (code, "Traceback" in err) == (2, False)
