"""A curriculum draws intermediate tasks first, starves none, comes back to failures, and counts groups without gradient."""

from __future__ import annotations

import json
import math
from itertools import islice, pairwise, product

import numpy as np
import pytest

from trimtab.curriculum import Curriculum, CurriculumOptions, expected_waste
from trimtab.errors import CurriculumError


def outcomes(task: int, rng: np.random.Generator, size: int = 8) -> list[float]:
    """Tasks 0, 3, ... always fail, 1, 4, ... succeed half of the time, 2, 5, ... always."""
    return (rng.random(size) < (0.0, 0.5, 1.0)[task % 3]).astype(float).tolist()


def played(curriculum: Curriculum, batches: int, size: int, seed: int = 0) -> list[int]:
    """Every task that was drawn, in order, each answered by its outcomes."""
    rng, drawn = np.random.default_rng(seed), []
    for batch in islice(curriculum.batches(size), batches):
        drawn += [int(task) for task in batch]
        for task in batch:
            curriculum.update([task] * 8, outcomes(int(task), rng))
    return drawn


@pytest.mark.parametrize(("every", "tasks", "size"), [(2, 5, 1), (3, 7, 3), (8, 12, 5), (8, 3, 3)])
def test_every_task_comes_within_the_bound(every, tasks, size):
    curriculum = Curriculum(tasks, seed=1, options=CurriculumOptions(floor_every=every, sharpness=6.0))
    drawn = played(curriculum, batches=6 * every * tasks // size, size=size)
    assert curriculum.max_gap == every * tasks
    for start in range(len(drawn) - curriculum.max_gap + 1):
        assert len(set(drawn[start : start + curriculum.max_gap])) == tasks


def test_without_its_floor_draws_a_solved_task_would_starve():
    """The weights alone leave tasks out for longer than the bound: what keeps it is the floor."""
    curriculum = Curriculum(30, seed=1, options=CurriculumOptions(floor_every=10**6, sharpness=6.0))
    drawn = played(curriculum, batches=200, size=4)
    assert len(set(drawn[-240:])) < 30


def test_intermediate_tasks_come_first():
    drawn = np.array(played(Curriculum(30, seed=3), batches=200, size=4)[400:])
    failed, half, solved = (np.mean(drawn % 3 == kind) for kind in range(3))
    assert half > 0.5
    assert half > 2 * failed
    assert half > 2 * solved


def test_weights_are_the_mean_of_p_times_1_minus_p():
    """Against a sum over a grid of p, with the prior's mean as the success rate of all tasks, shrunk by one."""
    curriculum = Curriculum(2, options=CurriculumOptions(half_life=1e12, sharpness=1.0))
    curriculum.update([0] * 8 + [1] * 2, [1, 1, 0, 0, 0, 0, 0, 0, 1, 0])
    overall = 3.5 / 11
    prior = (3 + overall) / 11
    p = (np.arange(200_000) + 0.5) / 200_000
    for task, (wins, losses) in enumerate([(2, 6), (1, 1)]):
        logs = (prior + wins - 1) * np.log(p) + (1 - prior + losses - 1) * np.log1p(-p)
        density = np.exp(logs - logs.max())
        mean = (density * p * (1 - p)).sum() / density.sum()
        assert curriculum.weights()[task] == pytest.approx(mean, rel=1e-3)


def test_outcomes_fade_and_strata_share_a_prior():
    curriculum = Curriculum(
        4, strata=["hard", "hard", "easy", "easy"], options=CurriculumOptions(half_life=2.0)
    )
    curriculum.draw(2)
    curriculum.update([0] * 8 + [2] * 8, [0.0] * 8 + [1.0] * 8)
    rates = curriculum.success_rates()
    assert rates[0] < rates[1] < 0.1
    assert rates[2] > rates[3] > 0.9
    for _ in range(40):
        curriculum.draw(1)
    assert curriculum.success_rates()[0] == pytest.approx(curriculum.success_rates()[1], abs=1e-4)


def test_a_failed_task_is_due_after_growing_intervals():
    """Of two tasks the weights leave the failed one out; it comes at its dates: 4, 8 and 16 batches later."""
    options = CurriculumOptions(floor_every=1000, revisit_after=4, sharpness=50.0, half_life=1e6)
    curriculum = Curriculum(40, options=options)
    curriculum.num_draws = 2  # past the floor draw
    for task in range(40):
        curriculum.update([task] * 8, [1, 0] * 4 if task else [0] * 8)
    visits = []
    for batch in range(80):
        if batch == 2:  # what is due is saved
            state = json.loads(json.dumps(curriculum.state_dict()))
            curriculum = Curriculum(40, options=options)
            curriculum.load_state_dict(state)
        curriculum.num_draws = 1  # the slot of failures
        if curriculum.draw(1) == [0]:
            visits.append(batch)
            curriculum.update([0] * 8, [0] * 8)
    assert visits[0] == 4
    assert [later - earlier for earlier, later in pairwise(visits)] == [9, 17, 33]


def test_heavy_tails_and_their_tools_are_throttled():
    curriculum = Curriculum(6)
    for task in range(6):
        tool = "" if task < 3 else ("search" if task == 5 else "shell")
        tail = {2: 0.4, 5: 0.1}.get(task, 0.1)
        curriculum.update([task] * 2, [1, 0], tail=[tail] * 2, tool=[tool] * 2)
    assert curriculum.throttled() == {2: pytest.approx(0.5)}  # twice the median is .2
    weights = curriculum.weights()
    assert weights[2] == pytest.approx(weights[0] / 2)
    for tool, task, tail in (("shell", 3, 0.1), ("shell", 4, 0.1), ("web", 1, 0.1), ("search", 0, 0.9)):
        for _ in range(12):
            curriculum.update([task] * 2, [1, 0], tail=[tail] * 2, tool=[tool] * 2)
    factors = curriculum.throttled()
    assert factors[5] < 0.7  # calm itself, but of the tool that task 0 made heavy
    assert 3 not in factors


def test_tails_that_nobody_saw_throttle_nothing():
    curriculum = Curriculum(3)
    curriculum.update([0] * 2 + [1] * 2, [1, 0, 1, 0], tail=[math.nan, math.nan, 0.0, math.nan])
    assert curriculum.throttled() == {}


@pytest.mark.parametrize(("rate", "size"), product((0.0, 0.05, 0.3, 1.0), (1, 2, 8)))
def test_expected_waste_is_the_sum_over_all_outcomes(rate, size):
    total = sum(
        math.prod(rate if win else 1 - rate for win in wins)
        for wins in product((0, 1), repeat=size)
        if len(set(wins)) == 1
    )
    assert expected_waste(rate, size) == pytest.approx(total)


def test_two_thirds_of_the_groups_give_nothing_at_five_percent():
    assert expected_waste(0.05, 8) == pytest.approx(0.663, abs=5e-4)
    with pytest.raises(ValueError, match="a rate in"):
        expected_waste(1.5, 8)


def test_waste_is_counted_and_what_is_not_a_number_is_left_out():
    curriculum = Curriculum(5)
    curriculum.update(
        [0, 0, 1, 1, 2, 2, 3, 3, 4],
        [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, math.nan, 0.2, math.inf],
    )
    waste = curriculum.waste
    assert (waste.num_groups, waste.num_solved, waste.num_failed, waste.num_wasted) == (4, 1, 2, 3)
    assert (waste.num_excluded_rollouts, waste.num_empty_groups) == (2, 1)
    assert waste.wasted_frac == 0.75
    assert math.isnan(Curriculum(1).waste.wasted_frac)


@pytest.mark.parametrize("stop", [0, 1, 17])
def test_a_saved_curriculum_draws_on_bit_for_bit(tmp_path, stop):
    tasks = [f"task {number}" for number in range(13)]

    def fresh() -> Curriculum:
        options = CurriculumOptions(revisit_after=1, floor_every=3)
        return Curriculum(tasks, strata=[number % 4 for number in range(13)], seed=5, options=options)

    def on(curriculum: Curriculum, seed: int, batches: int) -> list[object]:
        rng, drawn = np.random.default_rng(seed), []
        for batch in islice(curriculum.batches(4), batches):
            drawn.append((batch, curriculum.weights().tolist()))
            for task in batch[:3]:  # one outcome is late and never comes
                size = int(rng.integers(1, 9))
                curriculum.update(
                    [task] * size,
                    rng.random(size),
                    tail=rng.random(size),
                    tool=["a" if size % 2 else ""] * size,
                )
        return drawn

    first, second = fresh(), fresh()
    on(first, 1, stop)
    first.save(tmp_path / "state.json")
    second.load(tmp_path / "state.json")
    assert second.state_dict() == first.state_dict() == json.loads(json.dumps(first.state_dict()))
    assert on(second, 2, 30) == on(first, 2, 30)
    first.load(tmp_path / "state.json")  # an older state into one that went on
    assert first.state_dict() == json.loads((tmp_path / "state.json").read_text())


def test_a_rewound_curriculum_has_old_outcomes_and_goes_on_drawing():
    curriculum = Curriculum(6, seed=2)
    played(curriculum, batches=4, size=3)
    then, rates = curriculum.state_dict(), curriculum.success_rates()
    played(curriculum, batches=4, size=3, seed=9)
    draws, waste = curriculum.num_draws, curriculum.waste.num_groups
    curriculum.rewind(then)
    assert (curriculum.num_draws, curriculum.waste.num_groups) == (draws, waste)
    assert np.allclose(curriculum.success_rates(), rates, atol=0.05)
    curriculum.draw(3)
    assert curriculum.num_batches == 9


def test_a_state_that_does_not_fit_changes_nothing():
    curriculum = Curriculum(4, seed=1)
    played(curriculum, batches=3, size=2)
    state = curriculum.state_dict()
    for other in (Curriculum(5, seed=1), Curriculum(4, seed=2), Curriculum(4, strata=[0, 0, 1, 1], seed=1)):
        with pytest.raises(CurriculumError, match="build it with the same tasks, strata, seed and options"):
            curriculum.load_state_dict(other.state_dict())
    broken = {**json.loads(json.dumps(state)), "throttle": {}}
    broken["estimates"]["successes"] = [9.0] * len(broken["rows"])
    with pytest.raises(CurriculumError, match="is not whole"):
        curriculum.load_state_dict(broken)
    assert curriculum.state_dict() == state


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Curriculum(0), "at least one task"),
        (lambda: Curriculum(["a", "a"]), "every id once"),
        (lambda: Curriculum(3, strata=[1]), "one label a task: 3, not 1"),
        (lambda: Curriculum(3).draw(4), "1 to 3 different tasks, not 4"),
        (lambda: Curriculum(3).update([7], [1.0]), "7 is not a task"),
        (lambda: Curriculum(3).update([1], [1.0, 0.0]), "got 1, 2, 2 and 2"),
        (lambda: Curriculum(3).update([1], [1.0], tail=[-1.0]), "at least 0"),
        (lambda: Curriculum(2).update([0, 0], [[1.0], [0.0]]), "one row"),
        (lambda: Curriculum([("a", 1)]), "whole number or a text, not"),
        (lambda: Curriculum(3, seed=-1), "seed is a whole number of at least 0, not -1"),
        (lambda: CurriculumOptions(floor_every=1), "floor_every must be at least 2"),
        (lambda: CurriculumOptions(floor_every=2.5), "and whole, got"),
        (lambda: CurriculumOptions(sharpness=float("inf")), "and finite, got"),
    ],
)
def test_bad_input_is_one_line(build, message):
    with pytest.raises(CurriculumError, match=message):
        build()


def test_an_infinite_tail_is_refused_before_it_spoils_weights_and_save(tmp_path):
    curriculum = Curriculum(3, seed=1)
    with pytest.raises(CurriculumError, match="at least 0 and finite"):
        curriculum.update([0, 1, 2], [1, 0, 1], tail=[0.1, float("inf"), float("inf")])
    assert np.isfinite(curriculum.weights()).all()
    curriculum.save(tmp_path / "state.json")


def test_ids_and_seed_of_numpy_are_saved_and_loaded(tmp_path):
    curriculum, again = Curriculum(np.arange(4), seed=np.int64(3)), Curriculum(4, seed=3)
    curriculum.draw(2)
    curriculum.save(tmp_path / "state.json")
    again.load(tmp_path / "state.json")
    assert again.draw(2) == curriculum.draw(2)


def test_a_state_whose_numbers_overflow_changes_nothing():
    curriculum = Curriculum(3, seed=1)
    state = curriculum.state_dict()
    with pytest.raises(CurriculumError, match="is not whole"):
        curriculum.load_state_dict({**state, "num_draws": float("inf")})
    assert curriculum.state_dict() == state
