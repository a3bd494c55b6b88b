"""PPO against PPO-EWMA: the figure of merit on made-up curves against oracles, verdicts, resume, damage, and a real short run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reproduce.invariance import arms
from reproduce.invariance.arms import ARMS, CHECKPOINT, FACTORS, Cell, cells_of, settings_of
from reproduce.invariance.claims import coincide, papers_table, signed
from reproduce.invariance.intervals import Interval, effect_p, gaps, interval
from reproduce.invariance.merit import areas, curves, noise_range, noise_scale, spread_of_means, spreads
from reproduce.invariance.store import begin, load_bank, write_run
from scipy import stats

CHECKS = 8
EPISODES = CHECKS * CHECKPOINT


def record(bank, cell, level, *, noise=0.0, cpu=10.0, episodes=EPISODES):
    """A finished run whose reward rises to a level, with noise of its own at each evaluation."""
    begin(bank, cell)
    rng = np.random.default_rng([cell.seed, round(100 * cell.factor), *map(ord, cell.arm)])
    count = episodes // CHECKPOINT
    rows = [
        {"episodes": CHECKPOINT * k, "reward": 0.4 + (level - 0.4) * min(1, k / 2) + noise * rng.normal() * (k > 0), "grad_square": 2 + 8 / cell.factor}
        for k in range(count + 1)
    ]  # fmt: skip
    write_run(bank, cell, episodes, settings_of(cell), rows, [0.02] * count, {"wall_s": 1.0, "cpu_s": cpu})


LEVELS = {
    "ppo": (0.4, 0.8, 0.6),
    "ppo_rules": (0.7, 0.8, 0.6),
    "ewma": (0.3, 0.8, 0.6),
    "ewma_rules": (0.8, 0.8, 0.8),
}


def fill(root):
    """Three seeds of every arm: by construction only PPO-EWMA with the rules is invariant."""
    for cell in cells_of(list(ARMS), 3):
        level = LEVELS[cell.arm][FACTORS.index(cell.factor)]
        record(root, cell, level, noise=0.005, cpu=13.0 if cell.arm == "ewma" else 10.0)
    return root


@pytest.fixture
def bank(tmp_path):
    return fill(tmp_path / "bank")


def test_the_rules_are_applied_to_what_differs_from_factor_one_alone():
    base, small = settings_of(Cell("ewma", 1.0, 0)), settings_of(Cell("ewma_rules", 0.25, 0))
    assert small["learning_rate"] == pytest.approx(base["learning_rate"] / 2)
    assert small["adam_beta1"] ** 4 == pytest.approx(base["adam_beta1"])
    assert small["ewma_centre_of_mass"] == 4 * base["ewma_centre_of_mass"]
    assert small["per_device_train_batch_size"] * 4 == base["per_device_train_batch_size"]
    fixed = settings_of(Cell("ewma", 0.25, 0))
    assert {name for name in base if base[name] != fixed[name]} == {"per_device_train_batch_size"}
    assert settings_of(Cell("ewma_rules", 1.0, 0)) == base
    assert settings_of(Cell("ppo_rules", 4.0, 0))["ewma_centre_of_mass"] is None
    for factor in FACTORS:  # an iteration holds whole groups and ends at each evaluation
        batch = round(arms.BATCH * factor)
        assert batch % arms.GROUP == batch % arms.UPDATES == CHECKPOINT % batch == 0


def test_at_factor_one_the_arms_with_rules_share_the_run_of_those_without():
    cells = cells_of(list(ARMS), 2)
    assert len(cells) == len(set(cells)) == 2 * 10
    assert Cell("ewma_rules", 1.0, 1).recorded == Cell("ewma", 1.0, 1)
    assert Cell("ewma_rules", 4.0, 1).recorded.name == "ewma_rules-x4-s1"
    assert [cell.name for cell in cells_of(["ppo_rules"], 1)] == ["ppo_rules-x0.25-s0", "ppo-x1-s0", "ppo_rules-x4-s0"]  # fmt: skip


def test_spread_and_area_by_hand():
    """One seed, three sizes, a start and two evaluations."""
    values = np.array([[[0.0, 0.2, 0.6], [0.0, 0.4, 0.8], [0.0, 0.1, 0.8]]])
    assert spreads(values) == pytest.approx([(0.3 + 0.2) / 2])
    assert areas(values)[0] == pytest.approx([(0.1 + 0.4) / 2, (0.2 + 0.6) / 2, (0.05 + 0.45) / 2])
    assert math.isnan(noise_range(values))
    assert math.isnan(effect_p(areas(values)))
    opposed = np.concatenate([values, values[:, ::-1]])
    assert spread_of_means(opposed) == pytest.approx((0.25 + 0.1) / 2)


def test_the_noise_range_is_the_range_that_curves_without_an_effect_have():
    """Oracle: simulation. Seeds differ, batch sizes do not."""
    rng = np.random.default_rng(0)
    values = 0.5 + 0.2 * rng.normal(size=(4000, 1, 1)) + 0.05 * rng.normal(size=(4000, 3, 4))
    assert noise_range(values) == pytest.approx(spreads(values).mean(), rel=0.03)
    few = [values[at : at + 4] for at in range(0, 4000, 4)]
    of_means = np.mean([spread_of_means(each) for each in few])
    assert np.mean([noise_range(each, of_means=True) for each in few]) == pytest.approx(of_means, rel=0.08)


def test_p_of_no_effect_is_the_f_test_of_a_two_way_layout():
    """Oracle: the sums of squares by hand, and scipy's F; uniform under no effect."""
    rng = np.random.default_rng(1)
    cells = rng.normal(size=(4, 3)) + np.array([0.0, 0.0, 1.0]) + rng.normal(size=(4, 1))
    between = 4 * ((cells.mean(0) - cells.mean()) ** 2).sum() / 2
    within = (
        ((cells - cells.mean()) ** 2).sum() - 2 * between - 3 * ((cells.mean(1) - cells.mean()) ** 2).sum()
    )
    assert effect_p(cells) == pytest.approx(stats.f.sf(between / (within / 6), 2, 6))
    null = [effect_p(rng.normal(size=(3, 3))) for _ in range(2000)]
    assert np.mean(np.array(null) < 0.05) == pytest.approx(0.05, abs=0.015)
    assert effect_p(np.array([[1.0, 2.0, 3.0]] * 2)) == 0.0
    assert math.isnan(effect_p(np.ones((3, 3))))


def test_intervals_are_students():
    low, high = stats.t.interval(0.95, 3, loc=2.5, scale=stats.sem([1, 2, 3, 4]))
    found = interval([1, 2, 3, 4])
    assert (found.mean, found.n) == (2.5, 4)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-3)
    assert interval([]) is None
    assert interval([1.0]) == Interval(1.0, None, None, 1)
    cells = np.array([[0.1, 0.2, 0.5], [0.2, 0.25, 0.5], [0.1, 0.3, 0.6]])
    pair = gaps(cells)[0.25, 4.0]
    low, high = stats.t.interval(1 - 0.05 / 3, 2, loc=0.4, scale=stats.sem([0.4, 0.3, 0.5]))
    assert (pair.low, pair.high) == pytest.approx((low, high), abs=1e-3)


def at(low, high):
    return Interval(0.0, low, high, 3)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ([at(-0.01, 0.02), at(-0.04, 0.04)], "same"),
        ([at(0.01, 0.02), at(-0.04, 0.04)], "same"),  # a difference, and a small one
        ([at(-0.01, 0.02), at(0.01, 0.2)], "not seen"),
        ([at(0.001, 0.02), at(-0.06, 0.02)], "undecided"),  # surely small, and perhaps not
        ([at(-0.01, 0.02), at(-0.2, 0.2)], "undecided"),
        ([at(-0.01, 0.02), Interval(0.0, None, None, 1)], "undecided"),
        ([], "undecided"),
    ],
)
def test_curves_coincide_when_every_difference_is_small(found, word):
    assert coincide(found) == word


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (at(0.001, 0.4), "same"),
        (at(-0.4, -0.001), "opposite"),
        (at(-0.04, 0.04), "not seen"),
        (at(-0.04, 0.06), "undecided"),
        (Interval(1.0, None, None, 1), "undecided"),
        (None, "undecided"),
    ],
)
def test_a_difference_needs_an_interval_that_leaves_zero(found, word):
    assert signed(found) == word


def verdicts(runs):
    return [line.rsplit("|", 2)[1].strip() for line in papers_table(runs).splitlines()[2:]]


def test_verdicts_follow_the_curves(bank, tmp_path):
    assert verdicts(load_bank(bank)) == ["same", "same", "same", "not seen", "same"]
    swapped = tmp_path / "swapped"
    other = {"ppo": "ppo", "ppo_rules": "ewma_rules", "ewma": "ewma_rules", "ewma_rules": "ewma"}
    for cell in cells_of(list(ARMS), 3):
        level = LEVELS[other[cell.arm]][FACTORS.index(cell.factor)]
        record(swapped, cell, level, noise=0.005, cpu=7.0 if cell.arm == "ewma" else 10.0)
    assert verdicts(load_bank(swapped)) == ["not seen", "opposite", "opposite", "not seen", "opposite"]
    assert verdicts([]) == ["undecided"] * 5
    one = [run for run in load_bank(bank) if run["seed"] == 0]
    assert verdicts(one) == ["undecided"] * 5


def test_only_seeds_that_every_arm_has_at_every_size_are_compared(bank):
    runs = load_bank(bank)
    assert {arm: values.shape for arm, values in curves(runs).items()} == dict.fromkeys(
        ARMS, (3, 3, CHECKS + 1)
    )
    less = [run for run in runs if (run["arm"], run["factor"], run["seed"]) != ("ewma_rules", 4.0, 1)]
    assert {values.shape[0] for values in curves(less).values()} == {2}
    no_base = [run for run in runs if (run["arm"], run["factor"]) != ("ewma", 1.0)]
    assert set(curves(no_base)) == {"ppo", "ppo_rules"}


def test_the_noise_scale_is_that_of_the_gradients_written(bank):
    """Written: 2 + 8 / factor = |G|^2 + trace / episodes of a step."""
    step = arms.BATCH / arms.UPDATES
    assert noise_scale(load_bank(bank)) == pytest.approx(8 * step / 2)
