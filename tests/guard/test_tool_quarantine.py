"""Tools whose environment fails are quarantined by their own history, and come back by probation; a kill loses nothing."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trimtab
from tests.guard.troubled_run import Levers
from trimtab.errors import GuardError
from trimtab.guard import Guard, guard_options
from trimtab.guard.policies.quarantine_tool import ToolQuarantineOptions
from trimtab.guard.quarantine.failure_rate import FailureHistory, ReturnTest
from trimtab.guard.quarantine.tool_quarantine import ToolQuarantine, broke_by_environment, count_episodes
from trimtab.report.run_view import load_view
from trimtab.runs.action_rows import action_from_row, action_row, action_text
from trimtab.tools.exclusion import Exclusion
from trimtab.traces.core.tool_call import ToolCall
from trimtab.types import Alarm, Cause, Incident, QuarantineTool, SetLever, Warn

ON = ToolQuarantineOptions(enabled=True)
MASKS, OFFERS = "tool_broken_gradient", "tool_offer"
EPISODES, OUTAGE = 12, range(20, 45)


def calls_at(step: int, *tools: str, rate: float, outage: range = OUTAGE) -> list[ToolCall]:
    """Calls of a step: from the first step of the outage to its last, a share of each tool's calls fails."""
    draws = np.random.default_rng([7, step])
    fails = {name: draws.random(EPISODES) < (rate if step in outage else 0.0) for name in tools}
    return [
        ToolCall(
            name, error="HTTP 503: unavailable" * bool(one), blame="infrastructure" * bool(one), step=step
        )
        for name in tools
        for one in fails[name]
    ]


def judged(steps: int, *tools: str, rate: float = 0.3, quarantine: ToolQuarantine | None = None) -> list[Any]:
    quarantine = quarantine or ToolQuarantine(ON, lambda: {MASKS: ("all",)})
    actions = []
    for step in range(steps):
        for call in calls_at(step, *tools, rate=rate):
            quarantine.note_call(call)
        actions += [(step, action) for action in quarantine.close(step)]
    return actions


def test_an_outage_is_met_in_steps_and_the_tool_comes_back_when_it_works() -> None:
    changes = [(step, one.before, one.after) for step, one in judged(90, "search")]
    assert changes == [
        (21, 1.0, 0.0),  # the second step of the outage
        (31, 0.0, 0.25),
        (33, 0.25, 0.0),  # relapse: twice as long
        (53, 0.0, 0.25),
        (55, 0.25, 1.0),  # 24 episodes without a failure
    ]
    notes = [one.note for _, one in judged(90, "search")]
    assert notes[2].startswith("relapse 1: ")
    assert (
        notes[4]
        == "probation passed: 0 of 24 episodes with it failed by their environment, at most 2.0 % before"
    )


def test_one_bad_step_alone_quarantines_nothing() -> None:
    quarantine = ToolQuarantine(ON, lambda: {MASKS: ("all",)})
    for step in range(60):
        for call in calls_at(step, "search", rate=1.0, outage=range(20, 21)):
            quarantine.note_call(call)
        assert quarantine.close(step) == []


def test_no_entry_while_the_rate_is_that_of_the_history() -> None:
    """2,000 steps of a tool at a constant rate, far more than the bound of 1,000 on the mean time to a false entry."""
    draws = np.random.default_rng(3)
    quarantine = ToolQuarantine(ON, lambda: {MASKS: ("all",)})
    entries = 0
    for step in range(1_000):
        for name, rate in (("a", 0.05), ("b", 0.2)):
            for failed in draws.random(EPISODES) < rate:
                quarantine.note_call(ToolCall(name, blame="infrastructure" * bool(failed)))
        entries += len(quarantine.close(step))
    assert entries == 0
    assert quarantine.tools["b"].history.total > 1_000


def test_a_policy_does_not_take_its_own_tool_away() -> None:
    wrong = ("no such table: users", "TypeError: bad argument", "missing required argument 'path'")
    assert not any(broke_by_environment(ToolCall("sql", error=text), Exclusion()) for text in wrong)
    hung = ToolCall("sql", error="TimeoutError: timed out after 5 s")
    assert not broke_by_environment(hung, Exclusion())
    assert broke_by_environment(hung, Exclusion(kinds=frozenset({"timeout"})))
    assert broke_by_environment(ToolCall("sql", error="ConnectionResetError: connection reset"), Exclusion())
    quarantine = ToolQuarantine(ON, lambda: {MASKS: ("all",)})
    for step in range(40):
        for _ in range(EPISODES):
            error = wrong[0] if step >= 20 else ""
            quarantine.note_call(ToolCall("sql", error=error, blame="policy" * bool(error)))
        assert quarantine.close(step) == []


def test_an_episode_counts_once_however_often_it_tries_again() -> None:
    again = [ToolCall("search", blame="infrastructure", episode_id=4) for _ in range(5)]
    counts = count_episodes([*again, ToolCall("search", episode_id=5), ToolCall("search")], Exclusion())
    assert (counts["search"].failed, counts["search"].total) == (1, 3)


def test_the_rates_are_those_of_the_formulas() -> None:
    history = FailureHistory(failed=10, total=100)
    z, n, p = 1.645, 100, 0.1
    wilson = (p + z * z / 200 + z * np.sqrt(p * (1 - p) / n + z * z / 40_000)) / (1 + z * z / n)
    assert history.rate() == pytest.approx(wilson)
    assert history.risen_rate() == pytest.approx(wilson + 0.25 * (1 - wilson))
    assert FailureHistory().rate() == 1.0
    assert not FailureHistory(failed=0, total=20).is_enough
    test = ReturnTest()
    assert [test.update(history, 0, 4) for _ in range(5)] == [None, None, None, None, True]  # 17 are enough


def test_probation_ends_wrongly_once_in_a_hundred_times_at_most() -> None:
    """Wald's bound, on 400 probations of a tool that works as its history, and of one that still fails."""
    history, draws = FailureHistory(failed=20, total=400), np.random.default_rng(5)

    def ends(rate: float) -> list[bool]:
        results = []
        for _ in range(400):
            test, done = ReturnTest(), None
            while done is None:
                done = test.update(history, int(draws.random() < rate), 1)
            results.append(done)
        return results

    assert sum(not one for one in ends(history.rate())) <= 10
    assert sum(ends(history.risen_rate())) <= 10


def test_the_last_tool_is_masked_and_never_withheld() -> None:
    options = ToolQuarantineOptions(enabled=True, mode="withhold")
    levers = {OFFERS: ("all",), MASKS: ("all",)}
    quarantine = ToolQuarantine(options, lambda: levers)
    actions = judged(24, "a", "b", rate=0.9, quarantine=ToolQuarantine(options, lambda: levers))
    assert [(one.tool, one.lever) for _, one in actions] == [("a", OFFERS), ("b", MASKS)]
    assert "b is the last tool that is offered: it is masked, not withheld" in actions[1][1].note
    for step in range(30):  # names that a model made up are not tools, and do not stand for one
        quarantine.note_call(ToolCall(f"serch{step}", error="unknown tool", blame="policy"))
    actions = judged(24, "a", "b", rate=0.9, quarantine=quarantine)
    assert [(one.tool, one.lever) for _, one in actions] == [("a", OFFERS), ("b", MASKS)]
    alone = judged(60, "a", rate=0.9, quarantine=ToolQuarantine(options, lambda: {OFFERS: ("all",)}))
    assert [type(one) for _, one in alone] == [Warn]
    other = judged(
        24, "a", rate=0.9, quarantine=ToolQuarantine(options, lambda: {OFFERS: ("tool/a", "tool/b")})
    )
    assert [one.lever for _, one in other] == [OFFERS]  # b is offered too, though nobody called it


def test_a_trainer_without_the_lever_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("policies:\n  quarantine_tool: {enabled: true, mode: withhold}\n")
    options = guard_options(path)
    with pytest.raises(GuardError) as refused:
        Guard(options, Levers(lr_scale=("all",)))
    assert str(refused.value) == (
        "guard: quarantine_tool with mode withhold needs the lever tool_offer, which this trainer does not offer "
        "(it has lr_scale); offer it, or choose another mode"
    )
    path.write_text("policies:\n  quarantine_tool: {mode: off}\n")
    with pytest.raises(GuardError, match=r"quarantine_tool\.mode"):
        guard_options(path)
    path.write_text("causes: {tools or environment: [quarantine_tool]}\n")
    with pytest.raises(GuardError, match="unknown action 'quarantine_tool'"):
        guard_options(path)


def test_while_a_tool_is_in_quarantine_its_trouble_is_not_answered_by_the_rate() -> None:
    alarm = Alarm("tool_errors_rise", 22, 20, "warning", "tool/a", (), 1.0, "", "", "")
    cause = Cause("tools or environment", ("calls fail",), (), "")
    incident = Incident(20, "tool/a", "warning", (alarm,), (cause,))

    def acted(options: str) -> list[type]:
        guard = Guard(guard_options(options), Levers(lr_scale=("all",), tool_broken_gradient=("all",)))
        done = []
        for step in range(34):
            for call in calls_at(step, "a", rate=0.9):
                guard.note_call(call)
            done += guard.after_step(step, [incident] if step >= 22 else [], step < 22)
        return [type(one) for one in done]

    assert SetLever in acted("recommended")
    path = _policy_file(Path(os.environ.get("TMPDIR", "/tmp")) / f"quarantine-{os.getpid()}.yaml")
    try:
        assert set(acted(str(path))) == {QuarantineTool}
    finally:
        path.unlink()


def test_a_row_tells_what_was_done_and_comes_back_as_the_action() -> None:
    (_, action), *_ = judged(30, "search")
    row = json.loads(json.dumps(action_row(action)))
    assert action_text(row) == "tool search: broken episodes masked, 100 % -> 0 % of groups"
    assert action_row(action_from_row(row)) == row
    assert row["incident"]["cause"] == "tools or environment"


# ---- a run on disk, and its resume


def _policy_file(path: Path) -> Path:
    path.write_text("policies:\n  quarantine_tool: {enabled: true}\n")
    return path


def _train(folder: Path, policy: Path, steps: range, *, die_at: int = -1) -> tuple[dict[Any, float], Guard]:
    """Steps of a run whose tool fails from step 20 to 44; killed in the middle of step `die_at`."""
    levers = Levers(tool_broken_gradient=("tool/search",), lr_scale=("all",))
    with trimtab.open_run(folder, guard=policy, controls=levers, strict=True) as run:
        for step in steps:
            for number, call in enumerate(calls_at(step, "search", rate=0.6)):
                if step == die_at and number == 6:
                    os.kill(os.getpid(), signal.SIGKILL)
                run.tool_call(call)
            run.flush(step, {"reward": 0.5})
        assert run.guard is not None
        return dict(levers.values), run.guard


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Guard]:
    """A run of 60 steps that nobody interrupted."""
    folder = tmp_path_factory.mktemp("quarantine")
    _, guard = _train(folder / "whole", _policy_file(folder / "p.yaml"), range(60))
    return folder, guard


def _rows(folder: Path) -> list[tuple[int, str, float]]:
    rows = [row for row in load_view(folder).actions if row["action"] == "quarantine_tool"]
    return [(row["step"], row["tool"], row["after"]) for row in rows]


def test_a_kill_in_the_middle_of_a_step_loses_nothing(whole: tuple[Path, Guard]) -> None:
    folder, uninterrupted = whole
    child = multiprocessing.get_context("fork").Process(
        target=_train, args=(folder / "killed", folder / "p.yaml", range(60)), kwargs={"die_at": 27}
    )
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    levers = Levers(tool_broken_gradient=("tool/search",), lr_scale=("all",))
    with trimtab.open_run(folder / "killed", guard=folder / "p.yaml", controls=levers, strict=True):
        assert levers.get(MASKS, "tool/search") == 0.0  # in force before the first step is sampled
    _, resumed = _train(folder / "killed", folder / "p.yaml", range(27, 60))
    assert resumed.quarantine.state_dict() == uninterrupted.quarantine.state_dict()
    repeated = [(27, "search", 0.0)]
    assert sorted(_rows(folder / "killed")) == sorted([*_rows(folder / "whole"), *repeated])
    assert _rows(folder / "whole")[0][0] == 21


def test_a_checkpoint_of_before_the_outage_is_gone_back_to(whole: tuple[Path, Guard]) -> None:
    """The folder holds 40 steps with a quarantine; training goes on from step 15, where there was none."""
    folder, uninterrupted = whole
    values, _ = _train(folder / "back", folder / "p.yaml", range(40))
    assert values[MASKS, "tool/search"] == 0.0
    levers, _ = _train(folder / "back", folder / "p.yaml", range(15, 18))
    assert levers[MASKS, "tool/search"] == 1.0
    _, resumed = _train(folder / "back", folder / "p.yaml", range(18, 60))
    assert resumed.quarantine.state_dict() == uninterrupted.quarantine.state_dict()


def test_a_state_of_the_guard_brings_the_quarantine_along(whole: tuple[Path, Guard]) -> None:
    _, uninterrupted = whole
    guard = Guard(uninterrupted.options, Levers(tool_broken_gradient=("tool/search",)))
    for step in range(30):
        for call in calls_at(step, "search", rate=0.6):
            guard.note_call(call)
        guard.after_step(step, [], True)
    levers = Levers(tool_broken_gradient=("tool/search",))
    other = Guard(uninterrupted.options, levers)
    other.load_state_dict(json.loads(json.dumps(guard.state_dict())))
    assert levers.get(MASKS, "tool/search") == guard.quarantine.tools["search"].fraction(ON) < 1.0
    assert other.quarantine.state_dict() == guard.quarantine.state_dict()
    (again,) = other.after_step(30, [], True)
    assert (again.tool, again.note) == ("search", "in force again after a resume")


def test_the_example_is_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import runpy

    from trimtab.report.run_tables import action_lines

    root = Path(__file__).parents[2]
    monkeypatch.setattr(
        "sys.argv", ["quarantined_tool.py", "--folder", str(tmp_path / "run"), "--steps", "70"]
    )
    runpy.run_path(str(root / "examples" / "quarantined_tool.py"), run_name="__main__")
    page = (root / "docs" / "how-to" / "quarantine.md").read_text()
    lines = [
        line.split(": quarantine_tool")[0].strip()
        for line in action_lines(load_view(tmp_path / "run").actions)
    ]
    assert len(lines) == 5
    assert all(line in page for line in lines)


def test_the_report_and_a_replay_show_it(whole: tuple[Path, Guard]) -> None:
    from tests.support import cli
    from trimtab.report.run_tables import action_lines

    folder, _ = whole
    done = cli("guard", "replay", folder / "whole", "--policy", folder / "p.yaml", "--json")
    replayed = [(row["step"], row["tool"], row["after"]) for row in json.loads(done.stdout)["actions"]]
    assert replayed == _rows(folder / "whole")
    text = "\n".join(action_lines(load_view(folder / "whole").actions))
    assert "tool search: broken episodes masked, 100 % -> 0 % of groups" in text
