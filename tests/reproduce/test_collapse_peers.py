"""The peers' figures: warned in time, false alarms in controls and before the fault, by the terms of the registered test."""

from __future__ import annotations

from reproduce.collapse_bank.outcomes import Alarmed, Outcome
from reproduce.collapse_peers import AVERAGES, figures_of, run_id


def outcome(role: str, seed: int, event: int | None) -> Outcome:
    cause, fault = ("healthy", None) if role == "control" else ("stale_fault", 70)
    ours = (Alarmed(1, "ours", "all"),)
    return Outcome(cause, role, seed, 170, fault, (0.5,) * 170, ours, event, event is not None)


def test_a_peer_is_judged_as_we_are() -> None:
    runs = [
        outcome("collapse", 200, 100), outcome("collapse", 201, 100), outcome("collapse", 202, None),
        outcome("control", 200, None), outcome("control", 201, None),
        outcome("collapse", 100, 100),  # a tuning seed
    ]  # fmt: skip
    late, early = ["kl", "warning", 96], ["kl", "critical", 90]
    said = {"stale_fault-collapse-s200": [early], "stale_fault-collapse-s201": [["kl", "warning", 60], late],
            "healthy-control-s200": [early], "healthy-control-s201": []}  # fmt: skip
    figures = figures_of(runs, {"rldoctor": {**{run_id(run): [] for run in runs}, **said}})
    assert figures["rldoctor_collapses"] == 2
    assert figures["rldoctor_warned_frac"] == 0.5
    assert figures["rldoctor_lead_median"] == 10
    assert figures["rldoctor_false_frac_controls"] == 0.5
    assert figures["rldoctor_false_frac_before"] == 0.5
    assert figures["rlwatch_collapses"] is None


def test_the_peers_are_shown_no_name_that_a_dashboard_lacks() -> None:
    assert set(AVERAGES) == {"reward", "entropy", "kl", "grad_norm", "loss", "length"}
