"""PPO against PPO-EWMA: pages, resume, damaged folders, and a real short run."""

from __future__ import annotations

import json

import pytest
from reproduce.archives import unpacked
from reproduce.invariance import arms
from reproduce.invariance.arms import ARMS, CHECKPOINT, Cell, cells_of, settings_of
from reproduce.invariance.page import BEGIN, END, check_page, write_page
from reproduce.invariance.store import MARK, UNFINISHED, begin, finished, load_bank, state_of
from reproduce.ppo_ewma import BANK, PAGE, main, page_of, train_all

from reproduce import ppo_ewma
from tests.reproduce.test_ppo_ewma import CHECKS, EPISODES, fill, record
from trimtab.errors import RunError


@pytest.fixture
def bank(tmp_path):
    return fill(tmp_path / "bank")


def test_the_page_keeps_its_own_words_and_a_bare_call_trains_nothing(bank, tmp_path, monkeypatch, capsys):
    page = tmp_path / "papers.md"
    page.write_text(f"# Papers\n\nbefore\n\n{BEGIN}\nbygone\n{END}\n\nafter\n")
    monkeypatch.setattr(ppo_ewma, "trainer_of_one", lambda: pytest.fail("nothing is to be trained"))
    monkeypatch.setattr("sys.argv", ["p", "--bank", str(bank), "--page", str(page), "--seeds", "3", "--episodes", str(EPISODES), "--json"])  # fmt: skip
    assert main() == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert figures["ewma_rules_spread"] < 0.02 < 0.3 < figures["ewma_spread"]
    assert (figures["num_runs"], figures["ewma_num_seeds"]) == (30, 3)
    text = page.read_text()
    assert text.startswith("# Papers\n\nbefore\n")
    assert text.endswith(f"{END}\n\nafter\n")
    assert "bygone" not in text
    assert "(papers/ppo-ewma.png)\n\n*" in text
    counts = next(line for line in text.splitlines() if line.startswith("| ppo less ewma_rules |")).split("|")
    assert len(counts) == 2 + 1 + CHECKS
    assert float(counts[-2].split()[0]) == pytest.approx(0.4, abs=0.05)  # 0.8 - 0.4 against nothing
    assert (tmp_path / "papers" / "ppo-ewma.png").stat().st_size > 5_000


def test_an_empty_bank_claims_nothing(tmp_path):
    figures = write_page(tmp_path / "none", tmp_path / "page.md")
    assert figures == {"num_runs": 0, "noise_scale_episodes": None}
    assert "| same |" not in (tmp_path / "page.md").read_text()


def test_the_recorded_runs_are_all_that_is_wanted_and_small():
    bank = unpacked(BANK)
    assert all(finished(bank, cell, arms.EPISODES) for cell in cells_of(list(ARMS), arms.SEEDS))
    assert {path.name for path in bank.iterdir()} == {cell.name for cell in cells_of(list(ARMS), arms.SEEDS)}
    assert sum(path.stat().st_size for path in BANK.iterdir()) < 30_000
    for run in load_bank(bank):  # what is recorded is what this code would run
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
    "norms": (with_value(curve=[{"episodes": CHECKPOINT * k, "reward": 0.5} for k in range(CHECKS + 1)]), "lacks a gradient's norm"),
    "clip": (with_value(clipped=[]), "has no share of clipped tokens before each of its 8"),
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
