"""Series through a run: what `open_run` records is what `read_series` gives back, of one rank and of several."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import trimtab
from tests.measure.steps.test_measure_step import make
from trimtab.measure.steps.measure_step import measure_step
from trimtab.measure.steps.series_history import MAX_STEPS
from trimtab.report.series_arrays import read_series
from trimtab.runs import RunReader, compress_run
from trimtab.types import TokenBatch


def step_batches(step: int, rank: int = 0) -> list[TokenBatch]:
    rng = np.random.default_rng([step, rank])
    first = 1_000 * step + 100 * rank
    return [make(rng, 12, first=first), make(rng, 8, first=first + 20)]


def record(folder: Path, steps: range, rank: int = 0) -> trimtab.Run:
    with trimtab.open_run(folder, rank=rank, strict=True, groups_span_steps=True) as run:
        for step in steps:
            for batch in step_batches(step, rank):
                run.observe(batch)
            run.flush(step, {"reward": 0.5, "grad_norm": 1.0 + step})
    return run


def test_a_run_records_every_series_of_every_step(tmp_path: Path) -> None:
    run = record(tmp_path / "run", range(3))
    stored = read_series(tmp_path / "run")
    for step in range(3):
        expected = measure_step(step, step_batches(step), gradient_norm=1.0 + step)
        for name in expected.names:
            for slice_name in expected.slices:
                point = expected.get(name, slice_name)
                if point is None:
                    continue
                arrays = stored[name, slice_name]
                (at,) = np.flatnonzero(arrays.steps == step)
                np.testing.assert_allclose(arrays.values[at], point.value, rtol=1e-6)
                np.testing.assert_allclose(arrays.errors[at], point.error, rtol=1e-6)
                counts = arrays.num_tokens[at], arrays.num_trajectories[at]
                assert counts == (point.num_tokens, point.num_trajectories)
    assert {("total/p95", "post_tool/search"), ("mismatch/sequence_ess_frac", "turn/4-7"), ("staleness/p99", "text"),
            ("reward/mean", "source/math"), ("gradient/norm", "all")} <= stored.keys()  # fmt: skip
    live = run.series.arrays("total/p95", "post_tool")
    np.testing.assert_allclose(live.values, stored["total/p95", "post_tool"].values, rtol=1e-6)
    assert run.series.latest is not None
    assert run.series.latest.step == 2
    assert ("total/p99", "source/web") in run.series.pairs()


def test_a_smoothed_level_has_a_smaller_error_than_a_step(tmp_path: Path) -> None:
    run = record(tmp_path / "run", range(6))
    arrays = run.series.arrays("total/kl_k3")
    smoothed = run.series.smoothed("total/kl_k3", decay=0.5, max_steps=4)
    weights = 0.5 ** np.arange(4)[::-1] / (0.5 ** np.arange(4)).sum()
    assert smoothed.num_steps == 4
    assert smoothed.value == pytest.approx((weights * arrays.values[-4:]).sum())
    assert smoothed.error == pytest.approx(math.sqrt((weights**2 * arrays.errors[-4:] ** 2).sum()))
    assert run.series.smoothed("total/kl_k3", "no such slice").num_steps == 0


def test_ranks_are_one_sample(tmp_path: Path) -> None:
    for rank in range(3):
        record(tmp_path / "run", range(2), rank)
    stored = read_series(tmp_path / "run")
    for step in range(2):
        ranks = [step_batches(step, rank) for rank in range(3)]
        whole = measure_step(step, [batch for batches in ranks for batch in batches])
        parts = [measure_step(step, batches) for batches in ranks]
        for name in whole.names:
            for slice_name in whole.slices:
                point = whole.get(name, slice_name)
                if point is None:
                    continue
                arrays = stored[name, slice_name]
                (at,) = np.flatnonzero(arrays.steps == step)
                counts = arrays.num_tokens[at], arrays.num_trajectories[at]
                assert counts == (point.num_tokens, point.num_trajectories)
                if name.endswith(("/p75", "/p90", "/p95", "/p99")):  # the mean weighted by tokens
                    points = [p for part in parts if (p := part.get(name, slice_name)) is not None]
                    mean = sum(p.num_tokens * p.value for p in points) / point.num_tokens
                    assert arrays.values[at] == pytest.approx(mean, rel=1e-5)
                    continue
                if name.endswith(("_corr", "/shifted_frac")):  # the mean weighted by trajectories
                    points = [p for part in parts if (p := part.get(name, slice_name)) is not None]
                    mean = sum(p.num_trajectories * p.value for p in points) / point.num_trajectories
                    assert arrays.values[at] == pytest.approx(mean, rel=1e-5)
                    continue
                assert arrays.values[at] == pytest.approx(point.value, rel=1e-5), (name, slice_name)
                if name == "total/kl_k3" and slice_name == "all":
                    assert arrays.errors[at] == pytest.approx(point.error, rel=0.25)
                if name == "total/sequence_ess_frac" and slice_name == "all":
                    assert 0.5 * point.error < arrays.errors[at] < 2.5 * point.error


def test_one_sick_rank_shows_in_the_merged_ess(tmp_path: Path) -> None:
    """An average of the ranks' fractions would hide it: seven healthy ranks and one that holds one huge weight."""
    mask, old = np.ones((16, 4), bool), np.full((16, 4), -30.0)
    for rank in range(8):
        new = old + np.random.default_rng(rank).normal(0, 0.01, old.shape)
        if rank == 5:
            new[3] += 5.0
        with trimtab.open_run(tmp_path / "run", rank=rank, strict=True) as run:
            run.observe(loss_mask=mask, logprobs=new, rollout_logprobs=old)
            run.flush(0)
    value = read_series(tmp_path / "run")["total/sequence_ess_frac", "all"].values
    assert value == pytest.approx(1 / 128, rel=0.01)


def test_steps_that_a_resume_starts_over_count_once(tmp_path: Path) -> None:
    record(tmp_path / "run", range(4))
    record(tmp_path / "run", range(2, 5))
    assert read_series(tmp_path / "run")["entropy/mean", "all"].steps.tolist() == [0, 1, 2, 3, 4]
    before = read_series(tmp_path / "run")
    compress_run(tmp_path / "run")
    after = read_series(tmp_path / "run")
    assert before.keys() == after.keys()
    np.testing.assert_array_equal(before["total/p95", "text"].values, after["total/p95", "text"].values)


def test_a_folder_without_series_is_read(tmp_path: Path) -> None:
    record(tmp_path / "run", range(2))
    for path in (tmp_path / "run").glob("series.*"):
        path.unlink()
    assert read_series(tmp_path / "run") == {}
    assert len(RunReader(tmp_path / "run").rows("steps")) == 2


def test_a_damaged_row_costs_its_step_alone(tmp_path: Path) -> None:
    record(tmp_path / "run", range(3))
    (path,) = (tmp_path / "run").glob("series.*")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1]["numbers"] = rows[1]["numbers"][:40]
    rows[2]["counts"] = "not base64"
    for row in rows:
        del row["c"], row["q"], row["s"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_series(tmp_path / "run")["total/p95", "all"].steps.tolist() == [0]


def test_the_size_of_updates_is_given_by_the_loop(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mask = np.ones((8, 20), bool)
    mask[:, 8:10] = False
    before = -rng.random(mask.shape) - 2
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step, size in enumerate((0.01, 0.2)):
            run.observe(loss_mask=mask, logprobs=before, tools=[["search"]] * 8)
            after = before + size * rng.choice([-1, 1], mask.shape)
            run.observe_update(before, after, loss_mask=mask, tools=[["search"]] * 8)
            run.observe_update(before[:2], before[:2], of="probes", loss_mask=mask[:2])
            run.flush(step)
        run.observe(loss_mask=mask, logprobs=before)
        run.flush(2)
        assert run.series.latest is not None
        assert run.series.latest.reasons["update"] == "no tokens were scored before and after the update"
    stored = read_series(tmp_path / "run")
    for name in ("all", "text", "post_tool/search"):
        assert stored["update/p95", name].steps.tolist() == [0, 1]
        assert stored["update/p95", name].values == pytest.approx([0.01, 0.2], rel=1e-4)
    assert stored["probe_update/p95", "all"].values.tolist() == [0.0, 0.0]
    assert stored["update/p95", "all"].num_trajectories.tolist() == [8, 8]
    rows = RunReader(tmp_path / "run").rows("steps")
    assert [row["slices"]["all"]["n_tokens"] for row in rows] == [144] * 3  # scored again, not seen again


def test_a_malformed_update_does_not_stop_the_run(tmp_path: Path) -> None:
    mask = np.ones((4, 6), bool)
    with trimtab.open_run(tmp_path / "run") as run:
        run.observe(loss_mask=mask, logprobs=np.full(mask.shape, -1.0), entropy=np.ones(mask.shape))
        run.observe_update(np.full((4, 5), -1.0), np.full((4, 6), -1.0), loss_mask=mask)
        run.flush(0)
    assert run.num_failures == 1
    assert read_series(tmp_path / "run")["entropy/mean", "all"].values.tolist() == [1.0]


def test_a_long_run_keeps_the_last_steps_only(tmp_path: Path) -> None:
    mask = np.ones((2, 3), bool)
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(MAX_STEPS + 10):
            run.observe(loss_mask=mask, logprobs=np.full(mask.shape, -1.0), entropy=np.full(mask.shape, step))
            run.flush(step)
    live, stored = run.series.arrays("entropy/mean"), read_series(tmp_path / "run")["entropy/mean", "all"]
    assert live.steps.tolist() == list(range(10, MAX_STEPS + 10))
    assert stored.values.tolist() == list(range(MAX_STEPS + 10))
