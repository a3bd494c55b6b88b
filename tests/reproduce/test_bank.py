"""From run folders to evidence: runs with a known order of events, written by the loop API."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from reproduce.pilot.evidence import BEGIN, END, figures_of, growth_lead, lead_of, write_evidence
from reproduce.pilot.leads import moments, thresholds, widest
from reproduce.pilot.reading import load_bank
from reproduce.pilot.slim import DISJOINT, MAIN_SLICES, slim
from reproduce.pilot.train import MARK, finished

import trimtab
from tests.support import make_batch
from trimtab.report.view import load_view
from trimtab.runs.seal import seal

STEPS = 40
ROOT = Path(__file__).parents[2] / "reproduce" / "bank"


def write(bank, arm, seed, *, tail_from=None, reward_from=None):
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
    settings = {"config": {}, "post_tool_kl": 0.0, "sampler_bits": 0}
    mark = {"arm": arm, "family": "tool", "what": "", "seed": seed, "steps": STEPS, "settings": settings}
    (folder / MARK).write_text(json.dumps(mark))
    quantiles = {"post_p95": 1.0, "text_p95": 0.5, "covered": 0.5}
    row = {"step": 30, "n_text": 60, "n_post": 40, "gradient_variance": {"text": 1.0, "post_tool": 3.0, "all": 4.0},
           "matched_turn": quantiles, "matched_position": quantiles}  # fmt: skip
    (folder / "controls.jsonl").write_text(json.dumps(row) + "\n")
    return folder


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    root = tmp_path_factory.mktemp("bank")
    for seed in range(3):
        write(root, "constrained", seed)
        write(root, "open_hot", seed, tail_from=14, reward_from=27)
    write(root, "open", 0, tail_from=20)
    return root


def test_a_run_is_read_as_it_was_written(bank):
    runs = {(run.arm, run.seed): run for run in load_bank(bank)}
    assert len(runs) == 7
    calm, lost = runs["constrained", 0], runs["open_hot", 1]
    assert (calm.collapsed, calm.healthy) == (None, True)
    assert lost.collapsed in (32, 33)  # ten-step mean at half: the fifth or sixth low step after step 27
    assert calm.late["variance_share"] == 0.75
    assert calm.late["token_share"] == 0.4
    assert calm.late["post_p95"] == pytest.approx(0.05 * 1.96, rel=0.1)  # half-normal


def test_the_first_to_move_is_found_and_the_lead_has_its_sign(bank):
    runs = load_bank(bank)
    healthy = [run for run in runs if run.healthy and run.arm == "constrained"]
    limits = thresholds(healthy)
    for run in runs:
        if run.arm == "open_hot":
            found = moments(run, limits)
            assert 15 <= found["post_tail"] <= 19
            assert found["reward"] in (28, 29)
            assert found["text_tail"] is None
            assert lead_of(run, found, "post_tail") > 0
    for run in healthy:
        assert all(step is None for step in moments(run, widest(healthy)).values())
    grown = next(run for run in runs if run.arm == "open")
    assert growth_lead(grown, moments(grown, widest(healthy)), "post_tail") >= 0


def test_figures_and_page_come_from_the_runs(bank, tmp_path):
    figures = write_evidence(bank, tmp_path)
    assert figures == figures_of(load_bank(bank))
    assert (figures["num_runs"], figures["num_collapsed"], figures["num_open_collapsed"]) == (7, 3, 3)
    assert figures["constrained_tail_ratio"] > 5
    text = (tmp_path / "evidence.md").read_text()
    assert text.index(BEGIN) < text.index("| open_hot | 0 |") < text.index(END)
    for name in ("tails", "cdf", "averages"):
        assert (tmp_path / "evidence" / f"{name}.png").stat().st_size > 5_000


def test_a_slim_sealed_run_reads_the_same_but_for_the_small_slices(tmp_path):
    folder = write(tmp_path, "open", 0, tail_from=20)
    before = load_view(folder)
    slim(folder)
    seal(folder)
    slim(folder)  # twice, sealed: no harm
    after = load_view(folder)
    assert list(map(repr, after.readings)) == [repr(r) for r in before.readings if r.slice in MAIN_SLICES]
    old, new = before.blocks[3][1], after.blocks[3][1]
    assert set(new) == set(DISJOINT)
    assert old["text"].to_bytes() == new["text"].to_bytes()
    merged = new["text"].parts["drift/sketch"].merge(new["post_tool"].parts["drift/sketch"])
    assert merged.count == old["all"].parts["drift/sketch"].count  # nothing is lost with the slice of all tokens
    for mine, theirs in zip(merged.abs_cdf(), old["all"].parts["drift/sketch"].abs_cdf(), strict=True):
        np.testing.assert_allclose(mine, theirs)
    assert finished(folder, STEPS)
    assert not finished(folder, STEPS + 1)
    assert not finished(tmp_path, 1)


def test_the_recorded_bank_is_small_and_as_the_command_would_leave_it(tmp_path):
    everything = [ROOT, *ROOT.rglob("*")]
    assert sum(path.lstat().st_size for path in everything) < 14_800_000
    copy = tmp_path / "run"
    recorded = ROOT / "tuning" / "open-s0"
    shutil.copytree(recorded, copy)
    slim(copy)
    for path in recorded.iterdir():
        assert (copy / path.name).read_bytes() == path.read_bytes(), path.name
