"""The exit of a process that closed nothing: one line at most, never a traceback."""

from __future__ import annotations

import sys

import pytest

from tests.support import running

LOOP = """
import gc, os, shutil, sys
import trimtab

folder, what = sys.argv[1:]
run = trimtab.open_run(folder, strict=what == "strict")
run.flush(0)
if what == "forgotten":
    del run
    gc.collect()
shutil.rmtree(folder)
"""


@pytest.mark.parametrize("what", ["open", "strict", "forgotten"])
def test_a_folder_gone_at_exit_is_one_line(tmp_path, what):
    with running([sys.executable, "-c", LOOP, str(tmp_path / "run"), what], 120) as child:
        _, err = child.communicate()
    assert child.returncode == 0
    assert err.count("\n") == 1, err
    assert "the files of the run were deleted" in err


RAISED = """
import sys, trimtab

class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")

if sys.argv[2] == "block":
    with trimtab.open_run(sys.argv[1]) as run:
        run.flush(0)
        raise Odd
run = trimtab.open_run(sys.argv[1])
run.flush(0)
raise Odd
"""


@pytest.mark.parametrize("where", ["block", "exit"])
def test_an_exception_without_text_stays_the_one_that_was_raised(tmp_path, where):
    with running([sys.executable, "-c", RAISED, str(tmp_path / "run"), where], 120) as child:
        _, err = child.communicate()
    assert "Odd" in err
    assert err.count("Traceback") == 1, err
    assert "atexit" not in err
    assert "Odd: <exception str() failed>" in (tmp_path / "run" / "end.r0.s0.jsonl").read_text()
