"""The collapse bank: its own transformer and sampler against the library's, faults, events, and that a run can be recorded again."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import reproduce.collapse as command
import torch
from reproduce.archives import unpacked
from reproduce.collapse_bank.batches import KINDS, load_batches
from reproduce.collapse_bank.events import event_of
from reproduce.collapse_bank.figures import PAGE, lower_bound
from reproduce.collapse_bank.loop import STYLE, Loop
from reproduce.collapse_bank.marks import folder_of
from reproduce.collapse_bank.outcomes import Alarmed, Outcome, load_outcomes
from reproduce.collapse_bank.recording import arrays_of, averages_of, record
from reproduce.collapse_bank.regimes import FAULTS, HEALTHY, TEST_SEEDS, TUNING_SEEDS, fault_step
from reproduce.collapse_bank.sampling import FailingToolbox
from reproduce.collapse_bank.training import raw_file, train_seed
from reproduce.collapse_bank.transformer import load_weights, logits_of, quantise, token_logprobs
from scipy.stats import beta

import trimtab
from trimtab.errors import RunError
from trimtab.lab.database import NOTHING, World
from trimtab.lab.model import load_agent
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

STEPS = 6


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def weights():
    return load_weights()


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A healthy run of six steps and two faults that branch from it at step 3."""
    folder = tmp_path_factory.mktemp("raw")
    lines = list(train_seed(folder, ("healthy", "stale_fault", "tool_fault"), 100, STEPS))
    assert len(lines) == 3
    return folder


@pytest.fixture(scope="module")
def healthy(raw):
    return load_batches(raw_file(raw, "healthy", 100, "control"))


def test_the_agent_as_plain_tensors_is_the_library_s(weights):
    """Oracle: transformers' own forward pass."""
    ids = torch.randint(8, 103, (5, 31), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = load_agent()[0](input_ids=ids).logits
        torch.testing.assert_close(logits_of(weights, ids), expected, atol=1e-4, rtol=1e-4)
        logp, entropy = token_logprobs(weights, ids)
    chosen = torch.log_softmax(expected, -1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    torch.testing.assert_close(logp[:, 1:], chosen, atol=1e-4, rtol=1e-4)
    probabilities = torch.softmax(expected[:, :-1], -1)
    oracle = torch.distributions.Categorical(probabilities).entropy()
    torch.testing.assert_close(entropy[:, 1:], oracle, atol=1e-4, rtol=1e-3)


def test_a_shifted_trainer_reads_the_next_position(weights):
    ids = torch.randint(8, 103, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        late, _ = token_logprobs(weights, ids, late=True)
        logp = torch.log_softmax(logits_of(weights, ids), -1)
    for row in range(2):
        for position in range(1, 9):
            assert late[row, position] == pytest.approx(float(logp[row, position, ids[row, position]]))


def test_sampled_log_probabilities_are_those_of_the_sampling_weights(healthy, weights):
    """The first two batches are sampled by the start weights: one update old, in the second step."""
    first, second = healthy.steps[:2]
    for batch in (first, second):
        own = batch.tokens["own"] & np.repeat(
            batch.sequences["scored"], batch.sequences["token_counts"].astype(int)
        )
        assert own.sum() > 50
        np.testing.assert_allclose(
            batch.tokens["rollout_logprobs"][own], batch.tokens["ref_logprobs"][own], atol=2e-5
        )
    own = first.tokens["own"]
    np.testing.assert_allclose(
        first.tokens["logprobs"][own], first.tokens["rollout_logprobs"][own], atol=2e-5
    )
    moved = np.abs(second.tokens["logprobs"] - second.tokens["rollout_logprobs"])[second.tokens["own"]]
    assert moved.max() > 1e-3  # the weights moved once between sampling and training
    assert [int(b.sequences["version"][0]) for b in healthy.steps] == [0, 0, 1, 2, 3, 4]


def test_a_branch_without_a_change_goes_on_as_the_run_does(weights):
    loop = Loop(weights, HEALTHY, 101)
    loop.step()
    same, other = loop.branch(HEALTHY), loop.branch(replace(HEALTHY, shifted=True))
    mine, twin, broken = loop.step(), same.step(), other.step()
    for name, values in mine.tokens.items():
        np.testing.assert_array_equal(values, twin.tokens[name])
    assert mine.numbers["grad_norm"] == twin.numbers["grad_norm"] != broken.numbers["grad_norm"]


def test_a_fault_leaves_what_came_before_it(raw, healthy):
    stale = load_batches(raw_file(raw, "stale_fault", 100, "collapse"))
    onset = stale.identity["fault_step"]
    assert onset == STEPS // 2
    for mine, theirs in zip(healthy.steps[: onset - 1], stale.steps[: onset - 1], strict=True):
        np.testing.assert_array_equal(mine.tokens["logprobs"], theirs.tokens["logprobs"])
    versions = [int(b.sequences["version"][0]) for b in stale.steps]
    assert versions == [0, 0, 1, 2, 2, 2]  # from step 3 on nothing new reaches the trainer for 8 steps


def test_failing_tools_score_nothing(raw):
    run = load_batches(raw_file(raw, "tool_fault", 100, "collapse"))
    before, after = run.steps[0], run.steps[-1]
    called = after.sequences["call_counts"] > 0
    assert not (before.sequences["true_reward"] < 0.9 * before.sequences["correct"] - 1e-6).any()
    assert (after.sequences["true_reward"][~called] >= 0.9 * after.sequences["correct"][~called] - 1e-6).all()
    assert FAULTS["tool_fault"] == {"tool_failures": 0.3}


def test_a_failing_call_tells_the_policy_nothing():
    world = World(100)
    box = FailingToolbox(world, STYLE, 100, fail_fraction=1.0)
    call, asked = {"step": 1, "row": 0, "turn": 1}, f"price {world.items[0]}"
    assert box.answer(asked, **call) == (NOTHING, True)
    assert FailingToolbox(world, STYLE, 100).answer(asked, **call).text != NOTHING


def test_a_quantised_sampler_has_few_levels(weights):
    rounded = quantise(weights, 3)
    assert {value.unique().numel() <= 7 for value in rounded.values() if value.dim() > 1} == {True}
    assert torch.equal(rounded["norm"], weights["norm"])
    assert all(torch.equal(a, weights[name]) for name, a in quantise(weights, 0).items())


def test_the_event_is_a_lasting_fall():
    """Worked by hand: 8-step means of a fall from 1 to 0 are 1, 7/8, 6/8, 5/8: under 70 % at the third low step."""
    assert event_of([1.0] * 20 + [0.0] * 30).step == 23
    assert event_of([1.0] * 20 + [0.0] * 30).best == 1.0
    assert event_of([1.0] * 20 + [0.0] * 10 + [0.9] * 20) is None  # back above 85 %
    assert event_of([1.0] * 20 + [0.0] * 10 + [0.8] * 20).step == 23  # not back above 85 %
    assert event_of([1.0] * 20 + [0.75] * 30) is None
    assert event_of([0.5] * 7) is None
    twice = [1.0] * 20 + [0.0] * 8 + [1.0] * 20 + [0.0] * 20
    assert event_of(twice).step == 51  # the first fall was made good


@pytest.mark.parametrize(("hits", "trials"), [(29, 29), (45, 46), (7, 8), (0, 5)])
def test_the_lower_bound_is_clopper_and_pearson_s(hits, trials):
    oracle = beta.ppf(0.05, hits, trials - hits + 1) if hits else 0.0
    assert lower_bound(hits, trials) == pytest.approx(oracle, abs=1e-9)
    assert lower_bound(0, 0) is None


def outcome(**changes):
    base = {"cause": "stale_fault", "role": "collapse", "seed": 100, "steps": 170, "fault_step": 70, "rewards": (),
            "alarms": (), "event": 100, "learned": True}  # fmt: skip
    return Outcome(**{**base, **changes})


def test_a_warning_counts_from_the_onset_to_five_steps_before_the_event():
    alarms = tuple(Alarmed(step, "rule", "post_tool") for step in (69, 70, 95, 96))
    run = outcome(alarms=alarms)
    assert [alarm.step for alarm in run.warnings] == [70, 95]
    assert [alarm.step for alarm in run.false_alarms] == [69]
    assert (run.lead, run.counts) == (30, True)
    slow = outcome(
        cause="stale_ramp", fault_step=None, alarms=tuple(Alarmed(s, "r", "all") for s in (39, 40))
    )
    assert (slow.lead, [a.step for a in slow.false_alarms]) == (60, [39])
    assert not outcome(learned=False).counts
    assert outcome(role="twin", event=None, alarms=alarms).false_alarms == alarms


def test_a_run_is_recorded_as_it_was_kept(healthy, tmp_path):
    record(healthy, tmp_path / "run")
    rows = RunReader(tmp_path / "run", complete=True).rows("steps")
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    for batch, row in zip(healthy.steps, rows, strict=True):
        assert row["metrics"]["reward"] == pytest.approx(batch.sequences["reward"].mean(), abs=1e-5)
        assert row["slices"]["all"]["n_tokens"] == batch.tokens["own"].sum()
        for kind in np.unique(batch.sequences["kind"]):
            mine = batch.sequences["reward"][batch.sequences["kind"] == kind].mean()
            assert row["metrics"][f"reward/{KINDS[kind]}"] == pytest.approx(mine, abs=1e-5)
    view = load_view(tmp_path / "run")
    assert not view.integrity.losses
    assert not view.integrity.gaps
    assert view.num_failures == 0


def test_columns_reach_the_batch_with_their_slices(healthy):
    batch = healthy.steps[3]
    built = trimtab.token_batch(**arrays_of(batch))
    assert built.num_sequences == 48
    np.testing.assert_array_equal(built.phase[built.loss_mask] > 0, _after_tool(batch)[built.loss_mask])
    averages = averages_of(batch)
    assert 0 <= averages["kl"] < 1
    assert averages["reward"] == pytest.approx(float(batch.sequences["reward"].mean()))
    parts = np.array([built.reward_parts[kind] for kind in KINDS])
    assert (np.isfinite(parts).sum(axis=0) == 1).all()  # every sequence is of one kind
    np.testing.assert_allclose(np.nansum(parts, axis=0), batch.sequences["reward"], atol=1e-6)


def _after_tool(batch):
    """A loop over sequences: True from a sequence's first tool token on."""
    result, start = np.zeros(batch.tokens["own"].size, bool), 0
    for count in batch.sequences["token_counts"].astype(int):
        own = batch.tokens["own"][start : start + count]
        if not own.all():
            result[start + int(np.argmin(own)) : start + count] = True
        start += count
    return result


def test_a_damaged_file_is_one_line(tmp_path):
    (tmp_path / "100.npz").write_bytes(b"no archive")
    with pytest.raises(RunError, match=r"100\.npz cannot be read"):
        load_batches(tmp_path / "100.npz")


def test_test_seeds_wait_for_the_registration(monkeypatch, capsys, tmp_path):
    assert not set(TUNING_SEEDS) & set(TEST_SEEDS)
    assert {60 <= fault_step(seed) <= 80 for seed in (*TUNING_SEEDS, *TEST_SEEDS)} == {True}
    for refused, seed, words in (
        ("test", "200", "wait until docs/early-warning-test.md"),
        ("second", "230", "wait until docs/early-warning-test.md registers them"),
        ("third", "261", "wait until docs/early-warning-third-test.md registers them"),
        ("", "7", "neither a tuning seed"),
    ):
        monkeypatch.setattr(command, "page_is_committed", lambda _, half="test", no=refused: half != no)
        monkeypatch.setattr("sys.argv", ["collapse.py", "--run", "--seeds", seed, "--raw", str(tmp_path)])
        assert command.main() == 2
        assert words in capsys.readouterr().err


def test_tokens_are_recorded_into_archives_and_again(raw, monkeypatch, capsys, tmp_path):
    """The command records what is missing, packs one archive a cause and role, and --rerecord replaces it."""
    store = tmp_path / "store"
    causes = ["healthy", "stale_fault"]
    for asked in (["--rerecord"], ["--rerecord"], []):
        unpacked.cache_clear()
        line = [
            "collapse.py",
            *asked,
            "--causes",
            *causes,
            "--raw",
            str(raw),
            "--store",
            str(store),
            "--json",
        ]
        monkeypatch.setattr("sys.argv", line)
        assert command.main() == 0
        printed = capsys.readouterr().out.splitlines()
        assert sum(text.startswith("recorded") for text in printed) == 2 * bool(asked)
        figures = json.loads(printed[-1])["figures"]
        assert (figures["test_seeds"], figures["tuning_seeds"], figures["warned_frac"]) == (None, 1, None)
        assert {path.name for path in store.glob("*.zip")} == {
            "healthy-control.zip",
            "stale_fault-collapse.zip",
        }
    outcomes = load_outcomes(unpacked(store))
    assert [(run.cause, run.role, run.steps, run.fault_step) for run in outcomes] == [
        ("healthy", "control", STEPS, None),
        ("stale_fault", "collapse", STEPS, STEPS // 2),
    ]
    assert folder_of(tmp_path, "stale_ramp", 200, "twin") == tmp_path / "test" / "stale_ramp-twin-test-s200"
    assert folder_of(tmp_path, "healthy", 246, "control") == tmp_path / "third" / "healthy-control-third-s246"
    second = tmp_path / "second" / "stale_fault-collapse-second-s230"
    assert folder_of(tmp_path, "stale_fault", 230, "collapse") == second


def test_the_page_of_the_registered_test_states_what_was_recorded(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["collapse.py", "--json"])
    assert command.main() == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    rows = dict(re.findall(r"^\| (both[^|]*?) \| (.*) \|$", (command.ROOT / PAGE).read_text("utf-8"), re.M))
    shares = {"both": "warned_frac", "both, ten steps ahead": "warned_10_frac"}
    shares["both, by rules on averages alone"] = "warned_frac_averages"
    for row, name in shares.items():
        collapses, warned = (int(cell.split()[0]) for cell in rows[row].split(" | ")[:2])
        assert (collapses, warned) == (figures["collapses"], round(figures[name] * collapses))
    assert rows["both"].endswith(f" {figures['lead_median']:.0f}")
