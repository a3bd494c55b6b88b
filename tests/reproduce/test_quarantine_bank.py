"""Tool quarantine on the collapse bank's loop: what a fraction does to a step, and what counts as saved."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import reproduce.quarantine as command
import torch
from reproduce.collapse_bank.regimes import HEALTHY
from reproduce.collapse_bank.training import start_weights
from reproduce.guard_bank.lever_loop import LeverLoop
from reproduce.quarantine_bank.arms import ARMS, CAUSES, Steps, train_seed
from reproduce.quarantine_bank.figures import Bank, false_entries, figures_of, load_records, table_of
from reproduce.quarantine_bank.figures import test_records as of_test
from reproduce.quarantine_bank.tool_loop import TOOLS, ToolLoop, calls_of

from trimtab.lab.ramp import Ramp
from trimtab.lab.tasks import TaskMix, parse_task

BROKEN = replace(HEALTHY, tool_failures=0.5, alpha=Ramp.constant(1.0))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def start():
    """The loop after two healthy steps, with a third batch waiting that was sampled from failing tools."""
    loop = ToolLoop(start_weights(), HEALTHY, 101)
    loop.play_step()
    loop = loop.branch(BROKEN)
    loop.play_step()
    return loop


def weights(loop):
    return torch.cat([value.detach().flatten() for value in loop.weights.values()])


def test_with_every_fraction_at_one_it_trains_as_the_lever_loop_does(start):
    plain = LeverLoop(start_weights(), HEALTHY, 101)
    rewards = [plain.train().reward]
    plain = plain.branch(BROKEN)
    rewards.append(plain.train().reward)
    torch.testing.assert_close(weights(start), weights(plain), rtol=0, atol=1e-6)


def test_masked_rows_change_nothing_and_leave_no_vote(start):
    """With broken episodes out, the update is that of the oracle; with all tools out, fewer rows are trained on."""
    masked, oracle, called, plain = (start.branch(BROKEN) for _ in range(4))
    oracle.excludes = True
    for tool in TOOLS:
        masked.admission.set("tool_broken_gradient", f"tool/{tool}", 0.0)
        called.admission.set("tool_gradient", f"tool/{tool}", 0.0)
    one, two, three = masked.play_step(), oracle.play_step(), called.play_step()
    assert torch.equal(weights(masked), weights(oracle))
    assert plain.play_step().masked == 0
    assert not torch.equal(weights(masked), weights(plain))
    broken = {call.episode_id for call in one.calls if call.blame and call.name in TOOLS}
    assert one.masked == len(broken) > 0
    assert two.masked >= one.masked  # it leaves calls of unknown names out too
    assert three.masked == len({call.episode_id for call in three.calls if call.name in TOOLS}) > one.masked
    assert not start.admission.fractions  # branches have fractions of their own


def test_a_withheld_tool_is_in_no_task(start):
    loop = start.branch(HEALTHY)

    def needed():
        tasks = TaskMix(loop._world, loop.draws, HEALTHY.alpha)
        texts = [loop._prompt(tasks, batch, group) for batch in range(40, 60) for group in range(6)]
        return {call.partition(" ")[0] for text in texts for call in parse_task(text, loop._world).calls}

    assert needed() == set(TOOLS)
    loop.admission.set("tool_offer", "tool/price", 0.0)
    assert needed() == set(TOOLS) - {"price"}


def test_calls_carry_the_blame_of_the_outage(start):
    sampled = start._waiting[0]
    calls, uses = calls_of(sampled, 3)
    assert 0.2 < np.mean([call.blame == "infrastructure" for call in calls]) < 0.8
    assert all(use.broken_by <= use.called for use in uses)


def records(scores):
    wanted = [("healthy", "none"), *((cause, arm) for cause in CAUSES for arm in ARMS[cause])]
    return [
        {
            "cause": cause, "arm": arm, "seed": seed, "fault_step": 70, "rewards": [0.5] * 60, "masked": [0] * 60,
            "score": scores.get(arm, 0.8), "actions": [{"step": 73, "action": "quarantine_tool", "tool": "price", "after": 0.0}] if arm == "mask" else [],
        }
        for seed in (400, 401)
        for cause, arm in wanted
    ]  # fmt: skip


def test_saved_is_nine_tenths_of_the_policies_that_met_no_fault():
    rows = records({"mask": 0.73, "withhold": 0.71, "placebo": 0.5})
    for row in rows:
        if row["arm"] == "none" and row["cause"] != "healthy":
            row["score"] = 0.4
    bank = Bank(rows)
    figures = figures_of(bank)
    assert (bank.level, figures["harmed_runs"]) == (pytest.approx(0.8), 2)
    assert (figures["saved_frac_mask"], figures["saved_frac_withhold"], figures["saved_frac_none"]) == (
        1,
        0,
        0,
    )
    assert figures["mask_over_none_p"] == 0.25  # two of two, one-sided
    assert (figures["entry_delay_median"], figures["healthy_touched_frac"]) == (4.0, 0.0)
    assert "tool_fault       mask      2 of 2" in table_of(bank)
    assert figures_of(Bank(rows[:-1]))["test_seeds"] == 1  # a seed that lacks an arm does not count


def test_the_page_says_what_the_recordings_hold():
    bank = Bank(of_test(load_records(command.STORE)))
    page = (command.ROOT / "docs" / "quarantine-test.md").read_text()
    assert len(bank.seeds) >= 4
    for cause in CAUSES:
        for arm in ARMS[cause]:
            runs, hits = bank.of(cause, arm), bank.saved(cause, arm)
            scores = ", ".join(f"{run['score']:.2f}" for run in runs)
            mean = f"{np.mean([run['score'] for run in runs]):.2f}"
            well = f"{sum(bank.hits(cause, arm))} of {len(runs)}"
            assert (
                f"| `{cause}` | `{arm}` | {sum(hits)} of {len(hits)} | {well} | {mean} | {scores} |" in page
            )


def test_bursts_are_what_makes_false_entries():
    assert false_entries(0.05, bursty=False, steps=150)[0] == 0
    assert false_entries(0.2, bursty=True, steps=150, seed=1)[1] == 600


def test_a_seed_that_was_interrupted_goes_on(tmp_path):
    steps = Steps(fault=2, outage=1, horizon=2, evaluated=1)
    lines = list(islice(train_seed(tmp_path, 100, steps), 3))
    assert [line.split(":")[0] for line in lines] == [
        "healthy 100 none",
        "tool_fault 100 none",
        "tool_fault_ends 100 none",
    ]
    assert next(train_seed(tmp_path, 100, steps)).startswith("tool_fault 100 mask")


def test_unknown_seeds_are_refused_in_a_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["quarantine", "--run", "--seeds", "7", "--raw", str(tmp_path)])
    assert command.main() == 2
    error = capsys.readouterr().err
    assert error == "quarantine: seed 7 is neither a tuning seed (100 to 107) nor a test seed (400 to 411)\n"
