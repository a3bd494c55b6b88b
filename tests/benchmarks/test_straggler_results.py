"""The committed figures of slow ranks are those that the code gives, and NVIDIA's scores are ours."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from benchmarks.straggler_jitter import PHASES, Jitter, step_times

from benchmarks import ranks_stragglers, straggler_processes


def test_recorded_jobs_come_out_the_same_again() -> None:
    raw = json.loads(ranks_stragglers.RAW.read_text(encoding="utf-8"))
    rows = {part: {row["seed"]: row for row in raw[part]} for part in ("named", "memory")}
    for seed in (750_003, 750_250):
        assert json.loads(json.dumps(ranks_stragglers.planted(seed))) == rows["named"][seed]
    assert ranks_stragglers.memory(730_007) == rows["memory"][730_007]
    assert {len(raw["named"]), len(raw["memory"])} == {500}
    assert sum(row["steps"] for row in raw["healthy"]) == 10_000


def test_figures_meet_what_was_asked_and_the_first_test_is_on_record() -> None:
    figures = ranks_stragglers.figures()
    assert figures["straggler_named_frac"] >= 0.99
    assert figures["straggler_false_per_10k"] == 0
    assert figures["oom_forecast_steps"] >= 20
    first = json.loads((ranks_stragglers.RESULTS / "stragglers_first.json").read_text(encoding="utf-8"))
    assert np.mean([row["named"] for row in first["named"]]) == pytest.approx(0.986)


def test_the_jitter_is_as_uneven_as_its_docstring_says() -> None:
    steps = step_times(np.random.default_rng(0), 1500, 8, Jitter(offset=0.0))
    table = np.array([[[times[rank][phase] for phase in PHASES] for rank in times] for times in steps])
    logs = np.log(table) - np.median(np.log(table), axis=1, keepdims=True)
    middle = np.quantile(logs, [0.16, 0.84], axis=(0, 1))
    spread = (middle[1] - middle[0]) / 2
    assert spread[1:] == pytest.approx(np.full(5, 0.03), abs=0.004)
    assert 0.1 < spread[0] < 0.2  # the rollout, by its lengths
    assert np.mean(logs[:, :, 1:] > 0.3) == pytest.approx(0.008, abs=0.005)  # spikes


def test_scores_of_the_extension_are_ours_on_sections_of_real_processes() -> None:
    cases = json.loads(gzip.decompress(straggler_processes.RAW.read_bytes()))
    differences = [one for case in cases for one in straggler_processes.score_differences(case)]
    assert len(differences) == len(cases) * 6 * 2 * 7 * 4  # reports, kinds, sections, ranks
    assert max(differences) < 1e-6  # the extension's are float32
