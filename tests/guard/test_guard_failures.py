"""A failure of the guard never ends training, stands in the record, and is never taken for health."""

from __future__ import annotations

import pytest

from tests.guard.test_guarded_run import actions_of, guarded
from tests.guard.troubled_run import Kept, Levers
from tests.support import cli
from trimtab.report.run_view import load_view


class Broken(Levers):
    """Levers that cannot be turned."""

    def set(self, lever: str, slice_name: str, value: float) -> None:
        raise RuntimeError("the optimizer is gone")


class Deaf(Levers):
    """Levers that cannot even be listed."""

    def levers(self) -> dict[str, tuple[str, ...]]:
        raise RuntimeError("no answer")


class Full(Kept):
    """A ring that cannot write."""

    def keep(self, step: int, verdict: str, controls: Levers) -> None:
        raise OSError("no space left")


def test_an_action_that_fails_is_recorded_as_failed(tmp_path) -> None:
    run = guarded(tmp_path / "run", "update", steps=36, guard="recommended", controls=Broken())
    assert run.num_failures == 1
    rows = actions_of(tmp_path / "run")
    assert [(row["action"], row["failure"]) for row in rows] == [
        ("set_lever", "RuntimeError: the optimizer is gone")
    ]
    assert load_view(tmp_path / "run").verdict.word != "healthy"
    shown = cli("diagnose", tmp_path / "run")
    assert shown.returncode != 0
    assert "1 FAILED" in shown.stdout
    assert "MONITOR FAILED 1 time" in shown.stdout


def test_a_guard_that_cannot_decide_says_so_and_training_goes_on(tmp_path) -> None:
    run = guarded(tmp_path / "run", "update", steps=36, guard="recommended", controls=Deaf())
    assert run.last_step == 35
    assert run.num_failures > 0
    errors = load_view(tmp_path / "run").errors
    assert {row["where"] for row in errors} == {"decide what the guard does"}
    assert cli("diagnose", tmp_path / "run").returncode != 0


def test_a_ring_that_cannot_write_stops_nothing(tmp_path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("states: {every: 10}\n")
    run = guarded(tmp_path / "run", "none", steps=25, guard=policy, controls=Levers(), states=Full())
    assert (run.last_step, run.num_failures) == (24, 2)
    assert load_view(tmp_path / "run").verdict.word != "healthy"


def test_strict_raises_what_fails(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="the optimizer is gone"):
        guarded(tmp_path / "run", "update", strict=True, guard="recommended", controls=Broken())
