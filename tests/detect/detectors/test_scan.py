"""A whole series at once gives what the stream gives: the same edges, the same readiness, the same state to go on from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from trimtab.detect.detectors.composite_reading import CompositeReading, Member
from trimtab.detect.detectors.drawdown import Drawdown
from trimtab.detect.detectors.excursion import Excursion
from trimtab.detect.detectors.mean_shift.detector import MeanShift
from trimtab.detect.detectors.outlier import Outlier
from trimtab.detect.detectors.plateau import PlateauExit
from trimtab.detect.detectors.prediction_limit import PredictionLimit
from trimtab.detect.detectors.step_change import StepChange
from trimtab.detect.detectors.threshold import Threshold
from trimtab.detect.detectors.trend_break import TrendBreak
from trimtab.detect.stream_checks import MissingColumn, Nonfinite
from trimtab.stats.array_kernels import row_medians

SCANNERS = {
    "threshold": lambda: Threshold(limit=1.0, confirm=3),
    "threshold below, with a way back": lambda: Threshold(limit=-0.5, sign=-1, confirm=1, back=0.2),
    "threshold whose way back lies beyond it": lambda: Threshold(limit=0.0, confirm=2, back=0.7),
    "growth": lambda: PredictionLimit(arl=50.0),
    "growth down": lambda: PredictionLimit(arl=50.0, sign=-1, baseline=5, confirm=1, min_effect=0.3),
    "excursion": lambda: Excursion(sign=-1, factor=0.5, arl=50.0),
    "excursion up": lambda: Excursion(sign=1, factor=1.5, memory=400, floor=0.1, arl=50.0),
    "excursion after a warm-up": lambda: Excursion(sign=1, factor=3.0, memory=30, warmup=20, arl=50.0),
    "excursion with few blocks": lambda: Excursion(sign=1, factor=1.2, window=4, memory=9, arl=20.0),
    "trend break": lambda: TrendBreak(arl=50.0, min_frac=0.1),
    "trend break down": lambda: TrendBreak(arl=50.0, sign=-1, confirm=1),
    "trend break either way": lambda: TrendBreak(arl=20.0, sign=0, baseline=6, min_effect=0.2),
    "spike": lambda: Outlier(arl=100.0),
    "spike down": lambda: Outlier(arl=50.0, sign=-1, warmup=15, memory=60, quiet=3),
    "spike with a ratio": lambda: Outlier(arl=1e6, ratio=4.0),
    "from best": lambda: Drawdown(sign=-1, arl=50.0),
    "leap": lambda: StepChange(sign=-1, min_frac=0.3, arl=50.0),
    "leap up": lambda: StepChange(sign=1, min_effect=0.4, window=4, memory=60, hold=30, confirm=1, arl=200.0),
    "jump": lambda: PlateauExit(plateau=20, window=5, factor=1.0),
    "jump down": lambda: PlateauExit(sign=-1, plateau=31, window=4, factor=0.5),
}


def series() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(21)
    noise = rng.normal(size=900)
    walk = np.cumsum(0.3 * rng.normal(size=900))
    steps = 0.05 * rng.normal(size=900) + np.repeat(rng.choice([0.0, 1.0, 3.0], 18), 50)
    holed = steps + 2.0
    holed[rng.integers(0, 900, 60)] = math.nan
    holed[rng.integers(0, 900, 20)] = math.inf
    holed[rng.integers(0, 900, 20)] = -math.inf
    return {
        "noise": noise, "walk": walk, "steps": steps, "holed": holed, "positive": np.exp(0.5 * noise + steps),
        "heavy tails": rng.standard_t(1.0, size=900), "huge": 1e12 * rng.standard_t(0.7, size=900),
        "trend": 0.1 * np.arange(900.0) + noise, "rounded": np.round(steps, 1) + 0.0, "counts": rng.poisson(0.3, 900) * 1.0,
        "constant": np.full(300, 0.1), "zero": np.zeros(300), "zero, then one": np.r_[np.zeros(150), 5.0, np.zeros(150)],
        "rare": np.where(rng.random(900) < 0.05, rng.exponential(size=900), 0.0), "flat, then rough": np.r_[np.full(130, 0.7), 1.0 + 0.1 * noise[:200]],
        "mostly one value": np.where(rng.random(600) < 0.3, noise[:600], 2.0), "a wild first value": np.r_[1e6, noise[:120], 3.0 + noise[:60]],
        "all missing": np.full(50, math.nan), "missing at the end": np.r_[noise[:60], math.nan],
        "empty": np.zeros(0), "one": np.ones(1), "falling": np.r_[np.linspace(3, 0, 200), noise[:100] * 0.1],
        "rise from the first value": np.r_[np.linspace(0, 9, 40), np.full(60, 9.0), np.zeros(60), noise[:100]],
    }  # fmt: skip


SERIES = series()


@contextmanager
def naming(name: str) -> Iterator[None]:
    """A failure names the series."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"not so for the series {name!r}") from error


def plain(state: dict) -> dict:
    """NaN compares equal to itself as text."""
    return {name: repr(value) for name, value in state.items()}


@pytest.mark.parametrize("make", SCANNERS)
def test_a_scan_is_the_stream(make) -> None:
    for name, x in SERIES.items():
        with naming(name):
            check_scan(make, x)


def check_scan(make, x) -> None:
    steps = 3 * np.arange(x.size) + 7
    stream, whole = SCANNERS[make](), SCANNERS[make]()
    answers = [stream.update(int(t), float(v)) for t, v in zip(steps, x, strict=True)]
    edges = [(i, d) for i, d in enumerate(answers) if d.fired or d.cleared]
    assert [(i, repr(d)) for i, d in whole.scan(steps, x)] == [(i, repr(d)) for i, d in edges]
    assert plain(whole.state()) == plain(stream.state())
    if x.size and math.isfinite(x[-1]):
        assert (whole.now.ready, whole.now.active) == (answers[-1].ready, answers[-1].active)
    after = SERIES["steps"][:120]
    again = [repr(whole.update(9_000 + t, float(v))) for t, v in enumerate(after)]
    assert again == [repr(stream.update(9_000 + t, float(v))) for t, v in enumerate(after)]


@pytest.mark.parametrize("make", SCANNERS)
def test_the_series_make_every_scanner_fire_and_clear(make) -> None:
    edges = [d for x in SERIES.values() for _, d in SCANNERS[make]().scan(np.arange(x.size), x)]
    assert sum(d.fired for d in edges) >= 2
    assert any(d.cleared for d in edges)


def test_many_short_random_series() -> None:
    """Every length around the warm-ups, every place of an edge."""
    rng = np.random.default_rng(22)
    for n in range(0, 140, 3):
        x = np.round(rng.normal(size=n), 1) + 0.0 + 4.0 * (np.arange(n) > rng.integers(0, n + 1))
        x[rng.random(n) < 0.05] = math.nan
        for make in SCANNERS.values():
            stream, whole = make(), make()
            edges = [
                (i, d)
                for i, d in ((i, stream.update(i, float(v))) for i, v in enumerate(x))
                if d.fired or d.cleared
            ]
            assert repr(whole.scan(np.arange(n), x)) == repr(edges)
            assert plain(whole.state()) == plain(stream.state())


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_row_medians_are_those_of_numpy(n) -> None:
    rows = np.random.default_rng(n).normal(size=(7, n))
    assert row_medians(rows).tolist() == np.median(rows, axis=1).tolist()


CHANGES = {
    "change": lambda: MeanShift(arl=50.0),
    "change down, carried on": lambda: MeanShift(arl=50.0, sign=-1, lenient=True, min_effect=0.2),
    "change either way": lambda: MeanShift(arl=50.0, sign=0, min_frac=0.05),
    "change of evaluations": lambda: MeanShift(arl=50.0, min_reference=10, scales=(2, 4, 8, 16)),
}


@pytest.mark.parametrize("make", CHANGES)
def test_a_change_scanned_is_the_stream_and_can_go_on(make) -> None:
    """Sums are added up from another origin, so bounds agree to rounding; where the alarms are, they agree exactly."""
    for name, x in SERIES.items():
        with naming(name):
            check_change(make, x)


def check_change(make, x) -> None:
    stream, whole = CHANGES[make](), CHANGES[make]()
    answers = [stream.update(t, float(v)) for t, v in enumerate(x)]
    edges = [(i, d) for i, d in enumerate(answers) if d.fired or d.cleared]
    found = whole.scan(np.arange(x.size), x)
    assert [(i, d.fired, d.since) for i, d in found] == [(i, d.fired, d.since) for i, d in edges]
    scale = np.nanmax(np.abs(x[np.isfinite(x)]), initial=0.0)
    for what in ("bound", "fitted"):
        ours, theirs = ([getattr(d, what) for _, d in one] for one in (found, edges))
        assert ours == pytest.approx(theirs, abs=1e-9 * scale, nan_ok=True)
    assert (whole.num_skipped, whole.num_clipped) == (stream.num_skipped, stream.num_clipped)
    assert (whole.now.ready, whole.active, whole.since) == (stream.is_ready, stream.active, stream.since)
    for t, v in enumerate(SERIES["steps"][:200], x.size):
        one, two = whole.update(t, float(v)), stream.update(t, float(v))
        assert (one.ready, one.active, one.fired, one.since) == (two.ready, two.active, two.fired, two.since)


def test_a_long_change_goes_on_where_the_stream_has_let_go() -> None:
    """Past the point where old values are let go, at several places of the looks' rhythm."""
    rng = np.random.default_rng(23)
    x = 0.02 * np.cumsum(rng.normal(size=3600)) + rng.normal(size=3600) + 2.0 * (np.arange(3600) > 2500)
    for size in (2407, 2800, 3013):
        stream, whole = MeanShift(arl=50.0), MeanShift(arl=50.0)
        for t, v in enumerate(x[:size]):
            stream.update(t, float(v))
        whole.scan(np.arange(size), x[:size])
        rest = [(whole.update(t, float(x[t])), stream.update(t, float(x[t]))) for t in range(size, 3600)]
        assert [(a.fired, a.cleared, a.since) for a, _ in rest] == [
            (b.fired, b.cleared, b.since) for _, b in rest
        ]
        assert any(a.fired for a, _ in rest)


def presence(rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    steps = np.cumsum(rng.choice([1, 1, 1, 2, 7], 400))
    share = {"always": 1.0, "mostly": 0.9, "half": 0.5, "rare": 0.05, "twice": 0.0}
    there = {name: rng.random(400) < p for name, p in share.items()}
    there["every ten"] = np.arange(400) % 10 == 3
    for name in ("mostly", "every ten", "always"):
        for start in rng.integers(0, 400, 3):
            there[name][start : start + 60] = False
    there["twice"][[5, 300]] = True
    return steps, {name: np.flatnonzero(flags) for name, flags in there.items()}


@pytest.mark.parametrize("seed", range(5))
def test_silence_of_a_whole_log_is_that_of_its_steps(seed) -> None:
    steps, arrived = presence(np.random.default_rng(seed))
    stream, sets = MissingColumn(), {name: set(places.tolist()) for name, places in arrived.items()}
    edges = [
        (i, name, decision)
        for i, step in enumerate(steps.tolist())
        for name, decision in stream.update(step, [name for name in sets if i in sets[name]]).items()
    ]
    assert MissingColumn().scan(steps, arrived) == edges
    assert sum(d.fired for _, _, d in edges) >= 3
    assert any(d.cleared for _, _, d in edges)
    assert MissingColumn().scan(steps, {"never": np.zeros(0, np.int64)}) == []


@pytest.mark.parametrize("seed", range(5))
def test_nonfinite_values_of_a_whole_log_are_those_of_its_steps(seed) -> None:
    rng = np.random.default_rng(seed)
    steps, bad = presence(rng)
    bad["never"] = np.zeros(0, np.int64)
    stream, sets = Nonfinite(), {name: set(places.tolist()) for name, places in bad.items()}
    edges = [
        (i, name, decision)
        for i, step in enumerate(steps.tolist())
        for name, decision in stream.update(step, {name: 1 for name in sets if i in sets[name]}).items()
    ]
    found = Nonfinite().scan(steps, bad)
    assert sorted(found, key=repr) == sorted(edges, key=repr)
    assert [i for i, _, _ in found] == sorted(i for i, _, _ in found)
    assert any(d.cleared for _, _, d in edges)


@pytest.mark.parametrize("apart", [False, True])
def test_a_joint_reading_scanned_is_the_stream(apart) -> None:
    """Also where members are missing, are no numbers, start late, never move or go wild."""
    rng = np.random.default_rng(24)
    members = tuple(Member((name, "all"), sign, log) for name, sign, log in (
        ("a", 1, False), ("b", -1, False), ("c", 1, True), ("late", 1, False), ("flat", 1, False), ("few", 1, False)))  # fmt: skip
    steps = np.arange(0, 1200, 2)
    columns = {name: np.exp(rng.normal(size=600)) for name in "abc"} | {"flat": np.ones(600)}
    columns["late"] = np.r_[np.full(50, math.nan), rng.normal(size=550)]
    columns["b"][[100, 200]], columns["c"][[110, 111]] = math.nan, (-1.0, 0.0)
    columns["a"][300:310] = 1e6
    there = {
        name: np.arange(600) if not apart else np.flatnonzero(rng.random(600) < 0.97) for name in columns
    }
    there["few"], columns["few"] = np.arange(5), rng.normal(size=600)
    series = {(name, "all"): (steps[at], columns[name][at]) for name, at in there.items()}
    stream, whole, seen = CompositeReading(members), CompositeReading(members), []
    for i, step in enumerate(steps.tolist()):
        value = stream.update(
            {(n, "all"): float(columns[n][i]) for n in columns if i in set(there[n].tolist())}
        )
        seen += [(step, value)] if math.isfinite(value) else []
    at, values = whole.scan(series)
    assert at.tolist() == [step for step, _ in seen]
    assert values == pytest.approx([value for _, value in seen], rel=1e-12)
    assert list(whole.scale) == list(stream.scale)
    assert np.array(list(whole.scale.values())) == pytest.approx(np.array(list(stream.scale.values())))
    assert whole.num_clipped == stream.num_clipped
    assert whole.num_clipped == (10 if not apart else pytest.approx(10, abs=2))
    assert CompositeReading(members).scan({("a", "all"): series["a", "all"]})[0].size == 0
    assert CompositeReading(members).scan({})[0].size == 0


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 10])
@pytest.mark.parametrize("name", SCANNERS)
def test_a_series_about_as_long_as_the_baseline(name, size):
    stream, whole, values = SCANNERS[name](), SCANNERS[name](), np.linspace(1.0, 2.0, 10)[:size]
    one = [
        (t, d.fired, d.cleared)
        for t, v in enumerate(values.tolist())
        if (d := stream.update(t, v)).fired or d.cleared
    ]
    assert [(t, d.fired, d.cleared) for t, d in whole.scan(np.arange(size), values)] == one
    assert whole.update(size, 5.0) == stream.update(size, 5.0)
    for attribute in ("skipped", "count"):
        assert getattr(whole, attribute, 0) == getattr(stream, attribute, 0), attribute


def test_an_excursion_is_not_ready_before_its_first_window():
    detector = Excursion(sign=1, factor=3.0, warmup=3, window=5)
    ready = [detector.update(t, 1.0).ready for t in range(20)]
    assert not any(ready[:8])  # the first window has nothing to be compared with
    assert all(ready[8:])
