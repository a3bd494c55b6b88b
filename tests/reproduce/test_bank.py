"""From run folders to evidence: runs with a known order of events, written by the loop API."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from reproduce.archives import unpacked
from reproduce.pilot.arms import PILOT
from reproduce.pilot.evidence import BEGIN, CLAIMS, END, write_evidence
from reproduce.pilot.first import collapsing, false_alarms, sensitivity, threshold_table
from reproduce.pilot.leads import (
    ANY_RATE,
    QUIET,
    SERIES,
    lead_of,
    limits_of,
    moments,
    null_runs,
    seed_scores,
    steps_judged,
    widest,
)
from reproduce.pilot.marks import CONTROLS, MARK, finished
from reproduce.pilot.slim import DISJOINT, MAIN_SLICES, slim
from reproduce.pilot.summary import collapses, figures_of
from reproduce.pilot.tables import outcomes, overview, power
from scipy.stats import t

import trimtab
from tests.support import make_batch
from trimtab.errors import RunError
from trimtab.measure.state.blocks import unpack_states
from trimtab.report.run_view import load_view
from trimtab.runs import compress_run

STEPS = 40
ROOT = Path(__file__).parents[2] / "reproduce" / "bank"


def write(bank, arm, seed, *, tail_from=None, reward_from=None, rate=None):
    """A finished run of the bank: post-tool drift grows from one step, reward falls to a tenth from another."""
    folder = bank / ("test" if seed % 2 else "tuning") / f"{arm}-s{seed}"
    rng = np.random.default_rng(seed)
    shape = {"sequences": 128, "text": 60, "post": 8}  # averages can only hide what is rare
    with trimtab.open_run(folder, strict=True, min_tokens=1000) as run:
        for step in range(STEPS):
            growth = 1.5 ** max(0, step - tail_from) if tail_from is not None else 1.0
            text = 0.1 * float(np.exp(0.3 * rng.normal()))  # and what is noisy
            post = 0.05 * min(growth, 60.0)
            run.observe(make_batch(rng, step=step, text_scale=text, post_scale=post, **shape))
            fallen = reward_from is not None and step >= reward_from
            reward = (0.08 if fallen else 0.8) + 0.01 * float(rng.normal())
            run.flush(step, {"reward": reward, "grad_norm": 1.0 + 0.05 * float(rng.normal())})
    settings = {
        "config": {} if rate is None else {"learning_rate": rate},
        "post_tool_kl": 0.0,
        "sampler_bits": 0,
    }
    mark = {"arm": arm, "family": "tool", "what": "", "seed": seed, "steps": STEPS, "settings": settings}
    (folder / MARK).write_text(json.dumps(mark))
    quantiles = {"post_p95": 1.0, "text_p95": 0.5, "post_p99": 2.0, "text_p99": 4.0, "covered": 0.5}
    row = {"step": 30, "n_text": 60, "n_post": 40, "gradient_variance": {"text": 1.0, "post_tool": 3.0, "all": 4.0},
           "matched_turn": quantiles, "matched_position": quantiles}  # fmt: skip
    (folder / CONTROLS).write_text(json.dumps(row) + "\n")
    return folder


def test_a_run_is_read_as_it_was_written(runs):
    assert len(runs) == 9
    by = {(run.arm, run.seed): run for run in runs}
    calm, lost = by["constrained", 0], by["open_hot", 1]
    assert (calm.collapsed, calm.healthy) == (None, True)
    assert lost.collapsed in (32, 33)  # ten-step mean at half: the fifth or sixth low step after step 27
    assert calm.late["post_p95"] == pytest.approx(0.05 * 1.96, rel=0.1)  # half-normal


def test_thresholds_are_set_on_quiet_seeds_alone_at_the_prediction_limit(runs):
    """Oracle: scipy's t quantile on the scores of the three constrained seeds."""
    assert {PILOT[arm].lab.style.open for arm in ANY_RATE} == {False}
    assert {PILOT[arm].config.get("num_iterations", 1) for arm in ANY_RATE} == {1}
    assert all("learning_rate" not in PILOT[arm].config for arm in QUIET)
    null = null_runs(runs)
    assert [(run.arm, run.seed) for run in null] == [("constrained", seed) for seed in range(3)]
    assert {run.arm for run in null_runs(runs, ANY_RATE)} == {"constrained", "constrained_fast"}
    for shared, kl_share in ((False, 0.1), (True, 0.025)):
        limits = limits_of(null, shared=shared)
        for name, share in (("post_tail", 0.1), ("kl", kl_share)):
            scores = seed_scores(null, name)
            bound = np.mean(scores) + t.ppf(1 - share, 2) * np.std(scores, ddof=1) * np.sqrt(4 / 3)
            assert limits[name] == pytest.approx(bound, rel=1e-6)
    assert limits_of(null_runs(runs, ANY_RATE))["post_tail"] > 3 * limits["post_tail"]
    assert all(math.isinf(limit) for limit in limits_of(null[:1]).values())


def test_runs_of_one_seed_count_once(runs):
    """Twins of the quiet runs add no degrees of freedom, and two runs of one seed are too few for a limit."""
    null = null_runs(runs)
    twins = [dataclasses.replace(run, arm="low_precision") for run in null]
    assert limits_of([*null, *twins]) == pytest.approx(limits_of(null))
    assert all(math.isinf(limit) for limit in limits_of([null[0], twins[0]]).values())


def test_the_first_to_move_is_found_and_the_lead_has_its_sign(runs):
    null = null_runs(runs)
    for run in runs:
        if run.arm == "open_hot":
            found = moments(run, widest(null))
            assert 15 <= found["post_tail"] <= 19
            assert found["reward"] in (28, 29)
            assert found["text_tail"] is None
            assert found["post_tail"] < found["kl"] < found["reward"]  # the mean is moved by the tail, later
            assert lead_of(run, found, "post_tail") == found["kl"] - found["post_tail"]
            assert lead_of(run, found, "text_tail") == found["kl"] - run.collapsed  # silent: the collapse
            assert steps_judged(run, "post_tail") <= found["post_tail"]
    for run in null:
        found = moments(run, widest(null))
        assert set(found.values()) == {None}
        assert lead_of(run, found, "post_tail") is None


def test_what_passes_from_the_collapse_on_is_left_out(runs):
    run = next(run for run in runs if run.arm == "open_hot")
    limits = limits_of(null_runs(runs))
    at = moments(run, limits)["post_tail"]
    for collapsed, expected in ((at + 1, at), (at, None), (at - 1, None)):
        earlier = dataclasses.replace(run, collapsed=collapsed)
        assert moments(earlier, limits)["post_tail"] == expected
    none_judged = dataclasses.replace(run, collapsed=1)
    assert steps_judged(none_judged, "post_tail") is None
    late_rule = dataclasses.replace(
        run, first={**dict.fromkeys(run.first), "kl_break": run.collapsed, "reward_drop": run.collapsed - 1}
    )
    rest = null_runs(runs)
    text = collapsing([*rest, late_rule])
    assert f"collapse: reward_drop at {run.collapsed - 1} (open_hot {run.seed})." in text
    assert "collapse: none." in collapsing(rest)


def test_a_frozen_run_that_passes_the_collapse_rule_counts_as_nothing(runs):
    frozen = next(run for run in runs if run.arm == "frozen")
    assert frozen.collapsed is not None
    assert not frozen.healthy
    assert frozen not in collapses(runs)
    figures = figures_of(runs)
    assert (figures["num_collapsed"], figures["num_healthy"], figures["num_frozen_fallen"]) == (3, 5, 1)
    row = next(line for line in outcomes(runs).splitlines() if line.startswith("| frozen"))
    assert "not counted" in row


def test_the_overview_has_every_quantity_and_every_recorded_arm(runs):
    lines = overview(runs).splitlines()
    head = next(line for line in lines if line.startswith("| arm"))
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "arm", "seeds", "reward", "aggregate KL", "grad norm", "entropy", "tail of all tokens", "text tail", "post-tool tail",
        "gradient-variance share against token share",
    ]  # fmt: skip
    rows = {
        cells[0].strip(): cells
        for line in lines
        if line.startswith("| ") and "---" not in line and (cells := line.strip("|").split("|"))
    }
    assert set(rows) == {
        "arm",
        "constrained",
        "constrained_fast",
        "open",
        "open_hot",
        "frozen",
        "*passes in a collapsing run*",
    }
    assert rows["open_hot"][1].strip() == "3"
    assert rows["constrained"][-1].strip() == "0.75 (0.75 to 0.75)<br>0.40 (0.40 to 0.40)"
    for cell in rows["constrained"][2:-1]:
        assert cell.strip().endswith(("<br>never (0/3)", "<br>asleep"))


def test_a_detector_that_sleeps_through_every_collapse_is_not_called_calm(runs):
    """The gradient norm of the made-up runs never moves; the reward falls in all three collapses."""
    strength = {
        name: power(runs, name, limits_of(null_runs(runs))[name])
        for name in ("grad_norm", "reward", "post_tail")
    }
    assert strength == {"grad_norm": (0, 3), "reward": (3, 3), "post_tail": (3, 3)}
    cells = next(line for line in overview(runs).splitlines() if line.startswith("| constrained |")).split(
        "|"
    )
    assert cells[5].strip().endswith("<br>asleep")
    assert cells[3].strip().endswith("<br>never (0/3)")


def test_figures_and_page_come_from_the_runs(bank, runs, tmp_path):
    page = tmp_path / "evidence.md"
    figures = write_evidence(bank, page)
    assert figures == figures_of(runs)
    assert (figures["num_runs"], figures["num_open_collapsed"], figures["num_null"]) == (9, 3, 3)
    assert figures["lead_steps_tail_alone_n"] == figures["lead_steps_tail_alone_num_spoke"] == 3
    assert figures["lead_steps_tail_alone_median"] > 0
    assert (
        figures["lead_steps_tail_alone_low"]
        <= figures["lead_steps_tail_alone_median"]
        <= figures["lead_steps_tail_alone_high"]
    )
    assert figures["lead_steps_tail_alone_num_seeds"] == 3
    assert figures["constrained_tail_ratio"] > 5
    assert figures["constrained_tail_ratio_low"] is None  # one pair of seeds has no interval
    two = [run for run in runs if run.arm != "open_hot" or run.seed < 2]
    few = figures_of(two)
    assert (few["lead_steps_tail_alone_n"], few["lead_steps_tail_alone_median"]) == (2, None)
    text = page.read_text()
    assert text.index(CLAIMS[0]) < text.index("| claim |") < text.index(CLAIMS[1]) < text.index(BEGIN)
    assert text.index(BEGIN) < text.index("| open_hot | 0 |") < text.index(END)
    for name in ("tails", "cdf", "averages"):
        assert (tmp_path / "evidence" / f"{name}.png").stat().st_size > 5_000
        assert f"(evidence/{name}.png)\n\n*" in text  # a caption under each
    assert [line.split(" | ")[0][2:] for line in threshold_table(runs).splitlines()[-len(SERIES) :]] == [
        name.replace("_", " ") for name in SERIES
    ]
    assert [line.split(" | ")[1] for line in sensitivity(runs).splitlines()[-12:-8]] == [
        "none", "reward", "entropy", "reward and entropy",
    ]  # fmt: skip
    first = next(line for line in false_alarms(runs).splitlines() if line.startswith("| limit, each | 1 |"))
    assert first.startswith(
        "| limit, each | 1 | 1/1 | 0/1 | 1/1 |"
    )  # the fast run's tail passes; it set no threshold


def test_a_slim_sealed_run_reads_the_same_but_for_the_small_slices(tmp_path):
    folder = write(tmp_path, "open", 0, tail_from=20)
    before = load_view(folder)
    slim(folder)
    compress_run(folder)
    slim(folder)  # twice, sealed: no harm
    after = load_view(folder)
    assert list(map(repr, after.readings)) == [repr(r) for r in before.readings if r.slice in MAIN_SLICES]
    old, new = before.blocks[3][1], after.blocks[3][1]
    assert set(new) == set(DISJOINT)
    assert old["text"].to_bytes() == new["text"].to_bytes()
    merged = new["text"].summaries["drift/sketch"].merge(new["post_tool"].summaries["drift/sketch"])
    assert (
        merged.count == old["all"].summaries["drift/sketch"].count
    )  # nothing is lost with the slice of all tokens
    for mine, theirs in zip(merged.abs_cdf(), old["all"].summaries["drift/sketch"].abs_cdf(), strict=True):
        np.testing.assert_allclose(mine, theirs)
    assert finished(folder, STEPS)
    with pytest.raises(RunError, match=f"ended after {STEPS} steps and {STEPS + 1} are wanted"):
        finished(folder, STEPS + 1)  # never trained over
    assert not finished(tmp_path / "none", 1)


def test_the_recorded_bank_is_small_and_as_the_command_would_leave_it(tmp_path):
    sizes = {path.name: path.stat().st_size for path in ROOT.glob("*.zip")}
    assert max(sizes.values()) < 3_000_000
    assert sum(sizes.values()) < 14_800_000
    copy = tmp_path / "run"
    recorded = unpacked(ROOT) / "tuning" / "open-s0"
    shutil.copytree(recorded, copy)
    slim(copy)
    for path in recorded.iterdir():
        if path.name.startswith(
            "states"
        ):  # the same states; today's packing of small counts is another than the recorded one
            assert _states(copy / path.name) == _states(path)
        else:
            assert (copy / path.name).read_bytes() == path.read_bytes(), path.name


def _states(path):
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return [
        (
            row["first"],
            row["last"],
            {name: state.to_bytes() for name, state in unpack_states(row["states"]).items()},
        )
        for row in rows
    ]
