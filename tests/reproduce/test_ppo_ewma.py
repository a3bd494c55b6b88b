"""PPO against PPO-EWMA: the figure of merit on made-up curves against oracles, verdicts, resume, damage, and a real short run."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from reproduce.invariance import arms
from reproduce.invariance.arms import ARMS, CHECKPOINT, FACTORS, Cell, cells_of, settings_of
from reproduce.invariance.claims import coincide, papers_table, signed
from reproduce.invariance.merit import (
    Interval,
    areas,
    curves,
    effect_p,
    gaps,
    interval,
    noise_range,
    noise_scale,
    spread_of_means,
    spreads,
)
from reproduce.invariance.page import BEGIN, END, check_page, write_page
from reproduce.invariance.store import MARK, UNFINISHED, begin, finished, load_bank, state_of, write_run
from reproduce.ppo_ewma import BANK, PAGE, main, page_of, train_all
from scipy import stats

from reproduce import ppo_ewma
from trimtab.errors import RunError

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


@pytest.fixture
def bank(tmp_path):
    """Three seeds of every arm: by construction only PPO-EWMA with the rules is invariant."""
    root = tmp_path / "bank"
    for cell in cells_of(list(ARMS), 3):
        level = LEVELS[cell.arm][FACTORS.index(cell.factor)]
        record(root, cell, level, noise=0.005, cpu=13.0 if cell.arm == "ewma" else 10.0)
    return root


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
        ([at(-0.01, 0.02), at(-0.2, 0.2)], "cannot be told"),
        ([at(-0.01, 0.02), Interval(0.0, None, None, 1)], "cannot be told"),
        ([], "cannot be told"),
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
        (at(-0.04, 0.06), "cannot be told"),
        (Interval(1.0, None, None, 1), "cannot be told"),
        (None, "cannot be told"),
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
    assert verdicts([]) == ["cannot be told"] * 5
    one = [run for run in load_bank(bank) if run["seed"] == 0]
    assert verdicts(one) == ["cannot be told"] * 5


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


def test_the_page_keeps_its_own_words_and_a_bare_call_trains_nothing(bank, tmp_path, monkeypatch, capsys):
    page = tmp_path / "papers.md"
    page.write_text(f"# Papers\n\nbefore\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    monkeypatch.setattr(ppo_ewma, "trainer_of_one", lambda: pytest.fail("nothing is to be trained"))
    monkeypatch.setattr("sys.argv", ["p", "--bank", str(bank), "--page", str(page), "--seeds", "3", "--episodes", str(EPISODES), "--json"])  # fmt: skip
    assert main() == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert figures["ewma_rules_spread"] < 0.02 < 0.3 < figures["ewma_spread"]
    assert (figures["num_runs"], figures["ewma_num_seeds"]) == (30, 3)
    text = page.read_text()
    assert text.startswith("# Papers\n\nbefore\n")
    assert text.endswith(f"{END}\n\nafter\n")
    assert "old" not in text
    assert "(papers/ppo-ewma.png)\n\n*" in text
    assert (tmp_path / "papers" / "ppo-ewma.png").stat().st_size > 5_000


def test_an_empty_bank_claims_nothing(tmp_path):
    figures = write_page(tmp_path / "none", tmp_path / "page.md")
    assert figures == {"num_runs": 0, "noise_scale_episodes": None}
    assert "| same |" not in (tmp_path / "page.md").read_text()


def test_the_recorded_runs_are_all_that_is_wanted_and_small():
    assert all(finished(BANK, cell, arms.EPISODES) for cell in cells_of(list(ARMS), arms.SEEDS))
    assert {path.name for path in BANK.iterdir()} == {cell.name for cell in cells_of(list(ARMS), arms.SEEDS)}
    assert sum(path.stat().st_size for path in BANK.rglob("*")) < 500_000
    for run in load_bank(BANK):  # what is recorded is what this code would run
        assert run["settings"] == settings_of(Cell(run["arm"], run["factor"], run["seed"]))


def with_value(**fields):
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


DAMAGES = {
    "cut": (lambda path: path.write_text(path.read_text()[:50]), "run.json is damaged"),
    "bytes": (lambda path: path.write_bytes(b"\xff\xfe"), "run.json is damaged"),
    "a list": (lambda path: path.write_text("[]"), "has no 'arm' of type str"),
    "no cost": (with_value(cpu_s=None), "has no 'cpu_s' of type float"),
    "arm": (with_value(arm="epo"), "is of arm 'epo' at factor 1.0"),
    "seed": (with_value(seed=7), "is of ppo-x1-s7"),
    "curve": (with_value(curve=[{"episodes": 0, "reward": 0.5}]), "has no reward at each of its 9 evaluations"),
    "reward": (with_value(curve=[{"episodes": CHECKPOINT * k} for k in range(CHECKS + 1)]), "has no reward at each"),
    "length": (with_value(episodes=EPISODES + CHECKPOINT), "has no reward at each of its 10"),
    "no mark": (lambda path: path.rename(path.with_name("other.json")), "is no finished run (it has no run.json)"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_line_and_exit_code_2_and_nothing_is_touched(tmp_path, damage, monkeypatch, capsys):
    bank = tmp_path / "bank"
    record(bank, Cell("ppo", 1.0, 0), 0.8)
    change, says = DAMAGES[damage]
    change(bank / "ppo-x1-s0" / MARK)
    before = {path: path.read_bytes() for path in bank.rglob("*") if path.is_file()}
    monkeypatch.setattr(ppo_ewma, "trainer_of_one", lambda: pytest.fail("nothing is to be trained"))
    monkeypatch.setattr("sys.argv", ["p", "--bank", str(bank), "--arms", "ewma", "--seeds", "1", "--episodes", str(EPISODES)])  # fmt: skip
    assert main() == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err
    assert {path: path.read_bytes() for path in bank.rglob("*") if path.is_file()} == before


def test_bad_input_is_one_line_and_exit_code_2(bank, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "words.md").write_text("my own words")
    cases = {
        f"--bank {tmp_path / 'file'}": "is a file",
        f"--bank {tmp_path / 'none'} --episodes 300": f"must be a multiple of {CHECKPOINT}, got 300",
        f"--bank {bank} --episodes {CHECKPOINT}": f"is of {EPISODES} episodes and {CHECKPOINT} are wanted",
        f"--bank {bank} --page {tmp_path / 'words.md'}": "has not one pair of the marks",
        f"--bank {bank} --page {tmp_path}": "is a folder",
        f"--bank {bank} --page {PAGE}": "give another --page",
    }
    for words, says in cases.items():
        monkeypatch.setattr("sys.argv", ["p", "--seeds", "1", *words.split()])
        assert main() == 2
        err = capsys.readouterr().err
        assert err.startswith("ppo_ewma: ")
        assert err.count("\n") == 1
        assert says in err
    assert (tmp_path / "words.md").read_text() == "my own words"
    for wrong in (["--seeds", "0"], ["--seeds", "x"], ["--arms", "epo"]):
        monkeypatch.setattr("sys.argv", ["p", *wrong])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert wrong[1] in capsys.readouterr().err.splitlines()[-1]
    assert page_of(BANK, None) == PAGE
    assert page_of(bank, None) == tmp_path / "bank-papers.md"
    with pytest.raises(RunError, match="marks"):
        check_page(tmp_path / "words.md")


def test_only_what_is_missing_is_trained_and_a_failure_stops_nothing_else(bank, monkeypatch, capsys):
    """Two runs are taken away and one was stopped: three are trained, of which one fails."""
    for name in ("ppo-x4-s1", "ewma-x0.25-s2"):
        (bank / name / MARK).unlink()
        (bank / name).rmdir()
    stopped = bank / "ewma_rules-x4-s0"
    (stopped / MARK).unlink()
    (stopped / UNFINISHED).write_text("")
    (stopped / "half").write_text("left over")
    trained = []

    def run_one(cell, where, episodes):
        trained.append(cell.name)
        begin(where, cell)
        if cell.arm == "ppo":
            raise ValueError("no\nnumbers")
        record_whole(where, cell, episodes)

    def record_whole(where, cell, episodes):
        assert not (where / cell.name / "half").exists()
        record(where, cell, 0.8, episodes=episodes)

    monkeypatch.setattr(ppo_ewma, "trainer_of_one", lambda: run_one)
    assert train_all(cells_of(list(ARMS), 3), bank, EPISODES) == ["ppo-x4-s1"]
    assert trained == ["ewma_rules-x4-s0", "ppo-x4-s1", "ewma-x0.25-s2"]
    assert "ppo-x4-s1: failed: ValueError: no numbers" in capsys.readouterr().out
    assert state_of(bank / "ppo-x4-s1") == "unfinished"
    assert state_of(stopped) == "finished"
    trained.clear()
    assert train_all(cells_of(list(ARMS), 3), bank, EPISODES) == ["ppo-x4-s1"]
    assert trained == ["ppo-x4-s1"]


def test_ctrl_c_is_one_line_and_leaves_what_can_be_taken_up(tmp_path, monkeypatch, capsys):
    def run_one(cell, where, episodes):
        begin(where, cell)
        raise KeyboardInterrupt

    monkeypatch.setattr(ppo_ewma, "trainer_of_one", lambda: run_one)
    monkeypatch.setattr("sys.argv", ["p", "--bank", str(tmp_path / "bank"), "--seeds", "1"])
    assert main() == 130
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "the same command goes on from there" in err
    assert state_of(tmp_path / "bank" / "ppo-x0.25-s0") == "unfinished"


def test_a_real_run_trains_and_is_recorded(tmp_path, monkeypatch):
    """One iteration of the largest batch through the public path, and the same evaluation whatever was drawn before it."""
    pytest.importorskip("trl", reason="needs the trl extra")
    import torch
    from reproduce.invariance import train

    from trimtab.lab.model import load_agent

    monkeypatch.setattr(train, "EVALUATED", 64)
    kept = {}

    def keep(*args, **kwargs):
        kept["trainer"] = lab_trainer(*args, **kwargs)
        return kept["trainer"]

    lab_trainer = train.lab_trainer
    monkeypatch.setattr(train, "lab_trainer", keep)
    cell = Cell("ewma_rules", 4.0, 3)
    train.run_one(cell, tmp_path, CHECKPOINT)
    assert finished(tmp_path, cell, CHECKPOINT)
    assert {path.name for path in (tmp_path / cell.name).iterdir()} == {MARK}
    (run,) = load_bank(tmp_path)
    start, end = run["curve"]
    assert "grad_square" not in start
    assert end["grad_square"] > 0
    assert run["settings"] == settings_of(cell)
    assert len(run["clipped"]) == 1
    assert 0 < run["clipped"][0] < 1
    trainer = kept["trainer"]
    assert trainer.state.global_step == trainer.average.updates == arms.UPDATES
    assert trainer.average.centre_of_mass == arms.CENTRE_OF_MASS / 4
    assert trainer.args.learning_rate == pytest.approx(2 * arms.LEARNING_RATE)
    evaluate = train.evaluator(3)
    torch.manual_seed(5)
    assert evaluate(load_agent()[0])["reward"] == pytest.approx(start["reward"], abs=1e-4)
    assert evaluate(trainer.model)["reward"] == pytest.approx(end["reward"], abs=1e-4)
    assert evaluate(trainer.model)["correct"] * 0.9 + end["format"] * 0.1 == pytest.approx(
        end["reward"], abs=1e-4
    )
    prompts = [row["prompt"] for row in trainer.train_dataset]
    small = lab_trainer(
        train.LAB, tmp_path / "t", steps=4, seed=3, prompts_per_step=train.CHUNK, generations=arms.GROUP, kind=type(trainer),
        **settings_of(Cell("ppo", 0.25, 3)),
    )  # fmt: skip
    assert prompts == [row["prompt"] for row in small.train_dataset]  # the same tasks in the same order
    assert len(prompts) == CHECKPOINT // arms.GROUP
