"""The peers themselves, where their environment is (`bash benchmarks/peers/setup.sh`); else skipped, with the reason."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from benchmarks.peers.check import prefixed, sample
from benchmarks.peers.client import ask, peers_python, scenarios, versions
from benchmarks.peers.families import RULES
from benchmarks.peers.translate import PEERS, TO_PEER

CANONICAL = {
    "reward": "reward_mean", "zero_std_frac": "zero_var_group_frac", "held_out_reward": "eval_score",
    "clip_frac": "pg_clipfrac", "clip_high_frac": "pg_clipfrac_high", "clip_low_frac": "pg_clipfrac_low",
    "loss": "policy_loss", "learning_rate": "lr", "length": "response_len_mean", "length_max": "response_len_max",
    "truncated_frac": "response_len_clip_ratio", "value_explained_variance": "value_explained_var",
    "step_s": "time_per_step", "tokens_per_s": "throughput",
}  # fmt: skip
"""rldoctor's canonical field of each of ours, where it is called otherwise."""

ASK_NAMES = """
import inspect, json, sys
import rlwatch
from rl_doctor.aliases import resolve
from rl_doctor.detectors import build
from rlprobe.doctor import REGISTRY
from rlprobe.schemas import StepRecord
keys = json.loads(sys.argv[1])
print(json.dumps({
    "rldoctor": {key: resolve(key) for key in keys},
    "rlprobe": list(StepRecord.model_fields),
    "rlwatch": list(inspect.signature(rlwatch.RLWatch.log_step).parameters) if hasattr(rlwatch, "RLWatch")
        else list(inspect.signature(rlwatch.core.RLWatch.log_step).parameters),
    "rules": {"rldoctor": [d.name for d in build()], "rlprobe": [d.id for d in REGISTRY]},
}))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    found = peers_python()
    if found is None:
        pytest.skip("the peers' own environment is not here: bash benchmarks/peers/setup.sh")
    return found


def test_a_missing_environment_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert peers_python("/nowhere/python") is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "/nowhere/python is missing" in said
    assert "setup.sh" in said


def test_the_releases_are_the_pinned_ones(python: Path) -> None:
    pinned = (Path(__file__).parents[2] / "benchmarks/peers/setup.sh").read_text(encoding="utf-8")
    assert all(f"{peer}=={version}" in pinned for peer, version in versions(python).items())


def test_the_peers_know_the_names_and_rules_of_our_tables(python: Path) -> None:
    keys = json.dumps(list(TO_PEER["rldoctor"].values()))
    names = json.loads(subprocess.check_output([str(python), "-c", ASK_NAMES, keys], text=True, timeout=120))
    for ours, theirs in TO_PEER["rldoctor"].items():
        assert names["rldoctor"][theirs] == CANONICAL.get(ours, ours), ours
    assert set(TO_PEER["rlprobe"].values()) <= set(names["rlprobe"])
    assert set(TO_PEER["rlwatch"].values()) <= set(names["rlwatch"])
    for peer, rules in names["rules"].items():
        assert set(rules) == set(RULES[peer])


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_finds_a_kl_that_runs_away_and_says_when(python: Path, peer: str) -> None:
    logs = prefixed(sample(count=2), every=50)
    answers = ask(python, peer, logs)
    assert [a["id"] for a in answers] == [log["id"] for log in logs]
    assert [a["evaluated"] for a in answers] == [300] * 4
    for answer in answers[2:]:
        steps = [f["step"] for f in answer["findings"] if "kl" in f["families"] and f["severity"] != "info"]
        assert any(150 <= step < 300 for step in steps), answer
    assert all(f["severity"] in ("info", "warning", "critical") for a in answers for f in a["findings"])


def test_rldoctor_reads_a_thousand_steps(python: Path) -> None:
    log = sample(count=1, n=1200, onset=1100)[0]
    assert ask(python, "rldoctor", [log])[0]["evaluated"] == 1000


def test_what_a_peer_raises_is_its_answer(python: Path) -> None:
    broken = {"id": "b", "steps": [0, 1], "series": {"kl": [0.1]}}
    assert "ValueError" in ask(python, "rldoctor", [broken])[0]["error"]


def test_the_peers_scenarios_come_in_our_names(python: Path, tmp_path: Path) -> None:
    rows = scenarios(python, tmp_path / "s.jsonl", seeds=1)
    assert len(rows) == 12 + 15
    assert {row["onset"] for row in rows if row["peer"] == "rlprobe" and not row["healthy"]} == {250}
    assert all(len(values) == len(row["steps"]) for row in rows for values in row["series"].values())
    by_id = {row["id"]: row for row in rows}
    assert ["kl_drift", "warning"] in by_id["rldoctor/kl_blowup/0"]["own_findings"]
    assert "kl_positional" in by_id["rlprobe/ref_drift_asymmetry/0"]["unmapped"]
