"""The MiniRL experiments: task and start, verdicts on series with a known answer, damage, resume, and one real run of two steps."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from reproduce.archives import unpacked
from reproduce.minirl import command
from reproduce.minirl.arms import EXPERIMENTS, OFF, ON
from reproduce.minirl.bank import MARK, WATCHED, finished, folder_of, state_of
from reproduce.minirl.batch import wanted
from reproduce.minirl.claims import load_balancing, off_policy, on_policy
from reproduce.minirl.page import figures_of, marks_of, write_page
from reproduce.minirl.reading import Interval, load_runs, paired, spread
from reproduce.minirl.start import supervise
from reproduce.minirl.task import BASE, HELD_OUT, correct, dataset, demonstration, digits_of, make_tokenizer
from reproduce.minirl.train import run_one, trainer_of
from reproduce.minirl.verdicts import by_collapse, by_sign, no_gain, similar, stable, unless_common
from reproduce.pilot.marks import unfinished_file
from scipy.stats import t

from trimtab.errors import RunError
from trimtab.report.run_view import load_view

STEPS = 60


def result(arm, seed, *, experiment=ON, reward=0.6, fall=None, entropy=0.2, kl=0.002, best=0.7, stale=0.4):
    """A finished run: reward constant with a little noise of the seed, a tenth of it from step `fall` on."""
    rng = np.random.default_rng(seed)
    steps = list(range(1, STEPS + 1, experiment.updates))
    late = [reward * (0.1 if fall is not None and step >= fall else 1.0) + 0.004 * seed for step in steps]
    noise = rng.normal(size=len(steps))
    return {
        "experiment": experiment.name, "arm": arm, "seed": seed, "steps": STEPS, "supervised_steps": 10, "seconds": 1, "verdict": "healthy",
        "config": {"learning_rate": 1e-3}, "alarms": {}, "held_out": {"step": [0, 30, 60], "value": [0.3, best, late[-1]]},
        "series": {
            "reward": {"step": steps, "value": late},
            "entropy": {"step": steps, "value": (entropy + 0.001 * noise).tolist()},
            "grad_norm": {"step": steps, "value": [1.0] * len(steps)},
            "length": {"step": steps, "value": [7.0] * len(steps)},
            "mismatch_kl": {"step": [20, 40, 60], "value": [kl * (1 + 0.02 * seed)] * 3},
            "mismatch_p99": {"step": [20, 40, 60], "value": [0.1] * 3},
            "staleness_p99": {"step": [20, 40, 60], "value": [stale * (1 + 0.02 * seed)] * 3},
        },
    }  # fmt: skip


def write(bank, arm, seed, experiment=ON, **more):
    folder = folder_of(bank, experiment, arm, seed)
    folder.mkdir(parents=True)
    (folder / MARK).write_text(json.dumps(result(arm, seed, experiment=experiment, **more)))
    return folder


@pytest.fixture
def bank(tmp_path):
    """As in the paper: all else is worse than MiniRL, no weight collapses, R3 has the lower KL and no gain; off policy R3 above R2."""
    bank = tmp_path / "bank"
    for seed in range(3):
        write(bank, "minirl", seed)
        write(bank, "no_is", seed, fall=25, entropy=0.05)
        write(bank, "length_norm", seed, reward=0.5)
        write(bank, "r3", seed, reward=0.55, kl=0.001)
        write(bank, "no_clip", seed, OFF, fall=25)
        write(bank, "r2_no_clip", seed, OFF, fall=29)
        write(bank, "clip_r2", seed, OFF, fall=41, stale=0.2)
        write(bank, "clip_r3", seed, OFF, reward=0.62, kl=0.001)
        write(bank, "clip", seed, OFF, reward=0.5)
    write(bank, "scan_0.001", 100)
    return bank


def test_the_task_is_judged_by_its_last_digit_and_held_out_questions_are_never_trained_on():
    rng = np.random.default_rng(0)
    digits = digits_of(rng)
    text, answer = "".join(map(str, digits)) + "=", demonstration(digits, True)
    assert [int(x) for x in answer] == [total % BASE for total in np.cumsum(digits)[1:].tolist()]
    assert correct([text] * 4, [answer, answer[-1], answer + str((int(answer[-1]) + 1) % BASE), ""]) == [1.0, 1.0, 0.0, 0.0]  # fmt: skip
    for held_out in (False, True):
        keys = [int(row[:-1], BASE) % HELD_OUT == 0 for row in dataset(300, 0, held_out=held_out)["prompt"]]
        assert all(keys) if held_out else not any(keys)
    tokenizer = make_tokenizer()
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text)
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == text


def test_the_start_is_one_of_its_seed_and_has_a_million_parameters():
    (one, steps), (two, _), (other, _) = supervise(2, 0), supervise(2, 0), supervise(2, 1)
    assert steps == 2
    pairs = list(zip(one.parameters(), two.parameters(), other.parameters(), strict=True))
    assert all(bool((a == b).all()) for a, b, _ in pairs)
    assert any(bool((a != c).any()) for a, _, c in pairs)
    assert 1e6 <= sum(parameter.numel() for parameter in one.parameters()) <= 5e6


def test_intervals_are_students_over_seeds_and_pairs_share_a_seed(bank):
    """Oracle: scipy's t."""
    values = [0.5, 0.7, 0.9]
    found = spread(values)
    assert (found.low, found.high) == pytest.approx(
        t.interval(0.95, 2, np.mean(values), np.std(values, ddof=1) / math.sqrt(3))
    )
    assert spread([0.5, math.nan, 0.7]) == Interval(pytest.approx(0.6), None, None, 2)
    assert math.isnan(spread([]).mean)
    runs = load_runs(bank, ON)
    gap = paired(runs, "length_norm", "minirl", lambda run: run.score)
    assert (gap.mean, gap.n) == (pytest.approx(-0.1), 3)
    assert gap.high - gap.low < 1e-9  # the seeds' own level cancels
    assert paired([run for run in runs if run.seed < 2], "r3", "minirl", lambda run: run.score).low is None


@pytest.mark.parametrize(
    ("experiment", "fall", "expected"), [(ON, None, None), (ON, 31, 36), (OFF, 29, 33), (ON, 56, None)]
)
def test_a_collapse_is_half_of_the_highest_mean_of_ten_steps(tmp_path, experiment, fall, expected):
    """0.6 falls to 0.06: the mean is at half with 6 low steps of 10 (0.6 - 0.54 x 6 / 10 = 0.276), off policy with 2 low batches of 3."""
    write(tmp_path, "minirl" if experiment is ON else "clip", 0, experiment, fall=fall)
    (run,) = load_runs(tmp_path, experiment)
    assert run.collapsed == expected


def test_verdicts_follow_the_intervals():
    def made(low, high):
        return Interval((low + high) / 2, low, high, 3)

    assert [by_sign(made(*ends), -1) for ends in ((-0.3, -0.1), (0.1, 0.3), (-0.04, 0.2), (-0.2, 0.2))] == [
        "same", "opposite", "not seen", "undecided"
    ]  # fmt: skip
    assert by_sign(made(0.1, 0.3), 1) == "same"
    assert by_sign(Interval(-1.0, None, None, 2), -1) == "undecided"
    assert [no_gain(made(*ends)) for ends in ((-0.1, 0.04), (0.01, 0.1), (-0.1, 0.1))] == [
        "same",
        "opposite",
        "undecided",
    ]
    assert [no_gain(made(*ends), base=0.97) for ends in ((-0.1, 0.0), (0.01, 0.03))] == [
        "cannot be judged",
        "opposite",
    ]
    assert no_gain(made(-0.1, 0.0), base=0.94) == "same"
    assert by_collapse((2, 2), (0, 2)) == "undecided"
    assert by_collapse((3, 3), (1, 3)) == "undecided"
    assert [stable(found) for found in ((0, 3), (1, 3), (3, 3), (0, 2))] == [
        "same",
        "undecided",
        "opposite",
        "undecided",
    ]
    assert [similar(made(*ends)) for ends in ((-0.04, 0.04), (0.06, 0.1), (-0.04, 0.06))] == [
        "same",
        "opposite",
        "undecided",
    ]


def test_a_bank_like_the_papers_gives_the_papers_verdicts(bank):
    on = [
        claim.verdict
        for claim in on_policy([run for run in load_runs(bank, ON) if run.arm in ON.arms and run.seed < 3])
    ]
    assert on == ["same"] * 6
    runs = load_runs(bank, OFF)
    off = off_policy(runs, load_runs(bank, ON))
    assert [claim.verdict for claim in off] == [
        "same",
        "same",
        "same",
        "same",
        "same",
        "no claim",
        "same",
        "same",
    ]
    assert "x 0.50 (0.50 to 0.50)" in off[6].seen
    assert "3 of 3 collapse" in off[1].seen
    assert "+0.560 (+0.560 to +0.560)" in off[4].seen  # 0.62 less a tenth of 0.6


def test_peaks_from_different_starts_are_not_compared(bank):
    """The first held-out score at a seed is the start's: 0.3 off policy, 0.5 on policy."""
    runs, on = load_runs(bank, OFF), load_runs(bank, ON)
    for run in on:
        run.held_out[1][0] = 0.5
    claim = off_policy(runs, on)[-1]
    assert claim.verdict == "cannot be judged"
    assert claim.seen.endswith("difference unknown: they begin at different starts")
    on[0].held_out[1][0] = 0.3  # one seed shares it: too few
    assert off_policy(runs, on)[-1].verdict == "undecided"


def test_a_bank_without_effects_gives_none(tmp_path):
    for seed in range(3):
        for arm in ("minirl", "no_is", "length_norm", "r3"):
            write(tmp_path, arm, seed)
    runs = load_runs(tmp_path, ON)
    assert [claim.verdict for claim in on_policy(runs)] == [
        "undecided",
        "cannot be judged",
        "cannot be judged",
        "not seen",
        "not seen",
        "same",
    ]
    assert [claim.verdict for claim in on_policy([])] == ["undecided"] * 6


def test_what_nearly_every_arm_earns_is_no_evidence_for_one(tmp_path):
    """0 of 3 collapses of every arm but one tell nothing; where another arm collapses every time, they do."""
    assert unless_common("same", ["same", "undecided"], "opposite") == "cannot be judged"
    assert (
        unless_common("same", ["same", "undecided", "undecided"], "opposite") == "same"
    )  # two of four arms are stable
    assert unless_common("not seen", [], "same") == "not seen"
    clips = ("no_clip", "r2_no_clip", "clip_r2", "clip_r3", "clip")
    for falls, expected in (
        ({}, ["cannot be judged"] * 4),
        ({"no_clip": (0,)}, ["cannot be judged", "undecided", "cannot be judged", "cannot be judged"]),
        ({"no_clip": (0, 1, 2)}, ["same", "same", "not seen", "not seen"]),
        ({"clip_r3": (0, 1, 2)}, ["opposite"] * 4),
    ):
        bank = tmp_path / f"bank-{len(list(tmp_path.iterdir()))}"
        for arm in clips:
            for seed in range(3):
                write(bank, arm, seed, OFF, fall=25 if seed in falls.get(arm, ()) else None)
        assert [claim.verdict for claim in off_policy(load_runs(bank, OFF))][:4] == expected
    alone = tmp_path / "alone"
    for seed in range(3):
        write(alone, "length_norm", seed)
        for arm in ("minirl", "no_is", "r3"):
            write(alone, arm, seed, fall=25)
    assert on_policy(load_runs(alone, ON))[2].verdict == "same"


def test_the_routers_loss_is_shown_beside_and_judged_nowhere(bank, tmp_path, monkeypatch):
    """-0.01 of the objective and 0.01 x 3 of the router: every logged loss is above zero, no objective is."""
    assert load_balancing(load_runs(bank, ON)) == []
    monkeypatch.setattr("reproduce.minirl.page.draw", lambda *args: None)
    write_page(ON, bank, tmp_path / "without.md")
    for seed in range(3):
        mark = write(bank, "aux_loss", seed, reward=0.4, fall=25) / MARK
        row = json.loads(mark.read_text())
        parts = {"policy_loss": -0.01, "aux_loss": 3.0, "loss": 0.02}
        row["series"] |= {name: {"step": [1, 2], "value": [value] * 2} for name, value in parts.items()}
        mark.write_text(json.dumps({**row, "config": {"router_aux_loss_coef": 0.01}}))
    (claim,) = load_balancing(load_runs(bank, ON))
    assert claim.verdict == "no claim"
    assert claim.seen.startswith(
        "3 of 3 collapse (steps 30, 30, 30), without it 0 of 3 by step 60; reward of "
    )
    assert "60 steps against MiniRL at the same seeds -0.560 (-0.560 to -0.560); " in claim.seen
    assert (
        "mean objective -0.0100, mean of what is added +0.0300; above zero are 0 % of the objectives and 100 %"
        in claim.seen
    )
    write_page(ON, bank, tmp_path / "with.md")
    without, together = ((tmp_path / name).read_text().splitlines() for name in ("without.md", "with.md"))
    assert without[4:14] == together[4:14]  # the claims of the paper
    assert sum("load-balancing loss, 0.01 times" in line for line in together) == 2


def test_the_page_is_written_between_its_marks_alone(bank, tmp_path, monkeypatch):
    page = tmp_path / "papers.md"
    for experiment in EXPERIMENTS.values():
        figures = write_page(experiment, bank, page)
        assert figures == figures_of(experiment, load_runs(bank, experiment))
        assert (tmp_path / "papers" / f"{experiment.name}.png").stat().st_size > 5_000
    assert figures["clip_r3_score"] == pytest.approx(0.624)
    assert figures["no_clip_num_collapsed"] == 3
    monkeypatch.setattr("reproduce.minirl.page.draw", lambda *args: None)  # seconds each
    begin, end = marks_of(ON)
    own = page.read_text().replace(begin, f"my words\n{begin}") + "\n## PPO-EWMA\n\nother words\n"
    page.write_text(own)
    write_page(ON, bank, page)
    assert page.read_text() == own
    assert own.index(begin) < own.index("| learning rate | seed |") < own.index(end)
    page.write_text(own.replace(end, ""))
    with pytest.raises(RunError, match="has not one pair of the marks"):
        write_page(ON, bank, page)


def changed(**fields):
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


DAMAGES = {
    "cut": (lambda path: path.write_text(path.read_text()[:50]), "is damaged"),
    "list": (lambda path: path.write_text("[]"), "has no 'arm' of type str"),
    "no series": (changed(series={}), "has no series 'reward'"),
    "short series": (changed(held_out={"step": [1], "value": []}), "has no series 'held_out'"),
    "unknown arm": (changed(arm="minirll"), "reproduce/minirl/arms.py does not know"),
    "other seed": (changed(seed=2), "which belongs in"),
    "removed": (lambda path: path.rename(path.with_name("x.json")), "is no finished run"),
    "fewer steps": (changed(steps=STEPS - 1), f"ended after {STEPS - 1} steps and {STEPS} are wanted"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_line_and_exit_code_2_and_nothing_is_trained(tmp_path, damage, monkeypatch, capsys):
    bank = tmp_path / "bank"
    change, says = DAMAGES[damage]
    folder = write(bank, "minirl", 0)
    change(folder / MARK)
    before = {path: path.read_bytes() for path in sorted(bank.rglob("*")) if path.is_file()}
    monkeypatch.setattr("subprocess.Popen", lambda *args, **kwargs: pytest.fail("nothing is to be trained"))
    arguments = ["--bank", str(bank), "--arms", "minirl", "--seeds", "1", "--steps", str(STEPS)]
    assert command.main(ON, "text", arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("minirl_on_policy: ")
    assert err.count("\n") == 1
    assert says in err
    assert {path: path.read_bytes() for path in sorted(bank.rglob("*")) if path.is_file()} == before


def test_by_default_the_bank_holds_every_run_and_the_bare_command_trains_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", lambda *args, **kwargs: pytest.fail("nothing is to be trained"))
    bank = unpacked(command.BANK)
    for experiment in EXPERIMENTS.values():
        runs = wanted(experiment, list(experiment.arms), None)
        assert all(
            finished(folder_of(bank, experiment, *run), experiment, experiment.steps_of(run[0]))
            for run in runs
        )
        recorded = {mark.parent for mark in (bank / experiment.name).glob(f"*/{MARK}")}
        assert {folder_of(bank, experiment, *run) for run in runs} == recorded
        with pytest.raises(RunError, match="give another --page"):
            command.page_of(tmp_path, command.PAGE)
        assert command.main(experiment, "text", ["--page", str(tmp_path / "page.md")]) == 0
    assert sum(path.stat().st_size for path in command.BANK.glob("*.zip")) < 100_000


def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    assert (
        command.main(OFF, "text", ["--bank", str(tmp_path / "file"), "--page", str(tmp_path / "p.md")]) == 2
    )
    assert capsys.readouterr().err.count("\n") == 1
    for wrong in (["--arms", "nope"], ["--seeds", "0"], ["--steps", "x"]):
        with pytest.raises(SystemExit, match="2"):
            command.main(OFF, "text", wrong)
    monkeypatch.setattr(command, "train_all", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    assert command.main(OFF, "text", ["--bank", str(tmp_path / "b"), "--page", str(tmp_path / "p.md")]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err


def test_arms_say_what_they_change_and_updates_are_mini_batches_of_one_size(tmp_path):
    from reproduce.minirl.start import start_of

    model = start_of(1, tmp_path)
    built = {}
    for experiment, arm in ((ON, "no_is"), (OFF, "clip_r3"), (OFF, "r2_no_clip")):
        built[arm] = trainer_of(experiment, experiment.arms[arm], model, tmp_path / arm, steps=4, seed=0).args
    assert not built["no_is"].importance
    assert built["no_is"].clip
    assert (built["clip_r3"].clip, built["clip_r3"].routing_replay) == (True, "R3")
    assert (built["r2_no_clip"].clip, built["r2_no_clip"].routing_replay) == (False, "R2")
    assert {args.per_device_train_batch_size for args in built.values()} == {64}
    assert [args.generation_batch_size for args in built.values()] == [64, 256, 256]


def test_a_run_that_was_stopped_begins_anew_and_is_recorded_as_the_watch_saw_it(tmp_path, monkeypatch):
    """The real trainer, four steps off policy with R3: two generations' worth of series, and the watch's folder beside."""
    folder = folder_of(tmp_path, OFF, "clip_r3", 0)
    folder.mkdir(parents=True)
    (folder / "rest").write_text("of a run that was stopped")
    with pytest.raises(RunError, match="was not left by this script"):
        run_one(OFF, OFF.arms["clip_r3"], tmp_path, seed=0, steps=4, supervised=1)
    unfinished_file(folder).write_text("")
    assert state_of(folder, OFF) == "unfinished"
    assert load_runs(tmp_path, OFF) == []
    run_one(OFF, OFF.arms["clip_r3"], tmp_path, seed=0, steps=4, supervised=1)
    assert state_of(folder, OFF) == "finished"
    assert not (folder / "rest").exists()
    assert not unfinished_file(folder).exists()
    (run,) = load_runs(tmp_path, OFF)
    view = load_view(folder / WATCHED)
    assert run.series["reward"][0].tolist() == [1.0]  # one generation for four updates
    assert run.series["entropy"][1] == pytest.approx(
        [row["metrics"]["entropy"] for row in view.steps], rel=1e-3
    )
    assert run.series["mismatch_kl"][1].min() > 0  # fp8 against float32
    assert run.held_out[0][0] == 0
    with pytest.raises(RunError, match="holds a finished run"):
        run_one(OFF, OFF.arms["clip_r3"], tmp_path, seed=0, steps=4, supervised=1)
