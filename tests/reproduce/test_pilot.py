"""The pilot's controls against independent oracles, and what is read off a run."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from reproduce.archives import unpacked
from reproduce.pilot.arms import PILOT
from reproduce.pilot.batch import train_all, wanted
from reproduce.pilot.controls import gradient_variance, matched_quantiles
from reproduce.pilot.drift_aware import post_tool, rounded
from reproduce.pilot.evidence import BEGIN, CLAIMS, END, write_evidence
from reproduce.pilot.marks import MARK, finished, folder_of
from reproduce.pilot.reading import collapse_step, load_bank
from reproduce.pilot.summary import figures_of, seed_interval
from reproduce.pilot.tables import table
from reproduce.tail_emergence import BANK, main
from torch.func import functional_call, grad, vmap


def test_gradient_variance_is_the_sample_covariances_trace():
    """Oracle: per-sample gradients by torch.func, then np.cov."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).double()
    x, weight = torch.randn(6, 4, 3, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    post = torch.rand(6, 4) < 0.4
    parameters = dict(model.named_parameters())

    def part(values, row, advantage, chosen):
        logp = torch.log_softmax(functional_call(model, values, (row,)), dim=-1)[:, 0]
        return (advantage * logp * chosen).sum()

    rows = [
        (part(parameters, x[i], weight[i], (~post[i]).double()), part(parameters, x[i], weight[i], post[i].double()))
        for i in range(6)
    ]  # fmt: skip
    got = gradient_variance(rows, list(parameters.values()))
    for name, chosen in (("text", ~post), ("post_tool", post), ("all", torch.ones_like(post))):
        each = vmap(grad(part), in_dims=(None, 0, 0, 0))(parameters, x, weight, chosen.double())
        flat = torch.cat([g.reshape(6, -1) for g in each.values()], dim=1).detach().numpy()
        assert got[name] == pytest.approx(np.trace(np.cov(flat.T)), rel=1e-9)
    assert math.isnan(gradient_variance(rows[:1], list(parameters.values()))["all"])


def test_matched_text_has_the_post_tool_tokens_distribution_of_features():
    """Drift that depends on the position alone: matching takes the difference away, not matching does not."""
    rng = np.random.default_rng(0)
    n = 40_000
    post = rng.random(n) < 0.3
    place = np.where(post, rng.integers(10, 40, n), rng.integers(0, 40, n)).astype(float)
    drift = np.abs(rng.normal(size=n)) * (1 + place)
    got = matched_quantiles(drift, post, [place], (10,))
    assert got["covered"] == 1.0
    assert got["text_p95"] == pytest.approx(got["post_p95"], rel=0.05)
    assert np.quantile(drift[post], 0.95) > 1.05 * np.quantile(drift[~post], 0.95)


def test_post_tool_tokens_without_a_match_are_left_out_on_both_sides():
    post = np.array([True] * 4 + [False] * 4)
    place = np.array([0.0, 0.0, 9.0, 9.0, 0.0, 0.0, 0.0, 0.0])
    got = matched_quantiles(np.arange(8.0), post, [place], (2,), quantiles=(0.5,))
    assert (got["covered"], got["n_post"], got["n_text"]) == (0.5, 2.0, 4.0)
    assert (got["post_p50"], got["text_p50"]) == (0.0, 5.0)
    none = matched_quantiles(np.arange(3.0), np.zeros(3, bool), [np.zeros(3)], (2,))
    assert none["covered"] == 0.0
    assert math.isnan(none["post_p95"])


def test_post_tool_starts_after_the_first_result_and_leaves_tool_and_padding_out():
    batch = {
        "completion_mask": torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]),
        "tool_mask": torch.tensor([[1, 0, 1, 1, 1], [1, 1, 1, 1, 1]]),
    }
    assert post_tool(batch).int().tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 0, 0]]


def test_rounded_weights_are_on_the_grid_and_come_back_exactly():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with rounded(model, 4):
        steps = model.weight / (before["weight"].abs().max() / 7)
        assert torch.allclose(steps, steps.round(), atol=1e-5)
        assert not torch.equal(model.weight, before["weight"])
        assert torch.equal(model.bias, before["bias"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(RuntimeError, match="boom"), rounded(model, 4):
        raise RuntimeError("boom")
    assert torch.equal(model.weight, before["weight"])


@pytest.mark.parametrize(
    ("reward", "step"),
    [
        ([0.8] * 40, None),
        ([0.8] * 20 + [0.0] * 20, 25),
        ([0.8] * 20 + [0.5] * 30, None),
        ([0.8] * 5 + [0.1] * 30, None),
        ([0.1] * 3, None),
        ([math.nan, 0.8] * 20 + [math.nan, 0.0] * 20, 50),
    ],
)
def test_collapse_is_half_of_the_highest_ten_step_mean(reward, step):
    assert collapse_step(reward) == step


def test_arms_differ_from_constrained_in_what_they_say_and_halves_follow_the_seed(tmp_path):
    assert PILOT["open"].lab.alpha == PILOT["constrained"].lab.alpha == PILOT["frozen"].lab.alpha
    assert PILOT["frozen"].config["learning_rate"] == 0.0
    assert {arm.name for arm in PILOT.values() if arm.post_tool_kl} == {"drift_aware"}
    assert folder_of(tmp_path, "open", 2).parent.name == "tuning"
    assert folder_of(tmp_path, "open", 3).parent.name == "test"


def test_by_default_the_bank_holds_every_run_that_is_wanted_and_no_other(monkeypatch):
    runs = wanted(list(PILOT), None)
    bank = unpacked(BANK)
    assert all(finished(folder_of(bank, *run), PILOT[run[0]].steps) for run in runs)
    assert {folder_of(bank, *run) for run in runs} == {mark.parent for mark in bank.glob(f"*/*/{MARK}")}
    monkeypatch.setattr("subprocess.Popen", lambda *args, **kwargs: pytest.fail("nothing is to be trained"))
    assert train_all(runs, None, bank, 1) == []


def test_seeds_and_arms_say_what_is_trained():
    assert wanted(["open", "frozen"], 2) == [("open", 0), ("frozen", 0), ("open", 1), ("frozen", 1)]
    assert wanted(["open_hot", "open"], None) == [
        *(("open_hot", 0), ("open", 0), ("open_hot", 1), ("open", 1), ("open_hot", 2), ("open", 2)),
        *(("open_hot", seed) for seed in range(3, 7)),
    ]


def test_every_option_has_a_help_text_and_the_bare_command_asks_for_the_banks_own_seeds(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tail_emergence.py", "--help"])
    with pytest.raises(SystemExit):
        main()
    text = " ".join(capsys.readouterr().out.split())
    for option in ("--seeds N seeds 0 to N-1", "--arms NAME [NAME ...] train", "--steps N length", "--bank DIR folder", "--page FILE page",
                   "--jobs N runs", "--quick constrained and open", "--json the last line"):  # fmt: skip
        assert option in text
    asked = []
    monkeypatch.setattr("reproduce.tail_emergence.train_all", lambda runs, *rest: asked.extend(runs) or [])
    monkeypatch.setattr("reproduce.tail_emergence.finish", lambda *args: 0)
    monkeypatch.setattr("sys.argv", ["tail_emergence.py"])
    assert main() == 0
    assert asked == wanted(list(PILOT), None)
    for wrong, says in (("0", "must be at least 1, got 0"), ("x", "must be a whole number, got 'x'")):
        monkeypatch.setattr("sys.argv", ["tail_emergence.py", "--seeds", wrong])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert says in capsys.readouterr().err


def test_intervals_draw_whole_seeds_and_need_three_and_tables_escape_nothing_away():
    assert seed_interval([(0, 1.0), (0, 2.0), (1, 3.0), (1, 4.0)]) == (None, None)
    low, high = seed_interval([(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)])
    assert 1.0 <= low <= high <= 4.0
    # a hundred runs of three seeds know no more than three runs: each draw of one seed alone comes up once in 27
    assert seed_interval([(seed, 10.0 * seed) for seed in range(3)] * 100) == (0.0, 20.0)
    assert table(["a", "b"], [[1, None]]).splitlines()[-1] == "| 1 |  |"


def test_an_empty_bank_claims_nothing_and_a_page_keeps_its_own_words(tmp_path):
    assert load_bank(tmp_path / "none") == []
    figures = figures_of([])
    assert (figures["lead_steps_n"], figures["lead_steps_median"], figures["constrained_tail_ratio"]) == (
        0,
        None,
        None,
    )
    page = tmp_path / "evidence.md"
    page.write_text(f"before\n{CLAIMS[0]}\nold\n{CLAIMS[1]}\nbetween\n{BEGIN}\nbygone\n{END}\nafter\n")
    write_evidence(tmp_path / "none", page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "\nbetween\n" in text
    assert "bygone" not in text
    assert "\nold\n" not in text
    assert "| holds |" not in text
