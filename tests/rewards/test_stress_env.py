"""Exploits in bubblewrap: paid by a soft environment, not by its hardened twin; bad environments are one line."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli import app
from trimtab.errors import RewardError
from trimtab.report.rewards.stress_verdict import environment_lines
from trimtab.rewards.environment import sandbox_phases
from trimtab.rewards.environment.environment_stress import load_environment, stress_environment
from trimtab.rewards.environment.sandbox_phases import agent_phase, require_bubblewrap, run_phase, shell
from trimtab.rewards.environment.state_exploits import EXPLOITS

ENVIRONMENTS = Path(__file__).parents[2] / "benchmarks" / "environments"


def works() -> bool:
    try:
        require_bubblewrap()
    except RewardError:
        return False
    return shutil.which("git") is not None


needs_bubblewrap = pytest.mark.skipif(not works(), reason="needs bubblewrap and git")
NAMES = ("edited_tests", "hard_exit", "answer_file", "forged_result")


@needs_bubblewrap
@pytest.mark.parametrize(("twin", "paid", "code"), [("soft", set(NAMES), 1), ("hardened", set(), 0)])
def test_the_soft_environment_pays_and_its_twin_does_not(twin: str, paid: set[str], code: int) -> None:
    result = stress_environment(load_environment(ENVIRONMENTS / twin / "env.yaml"), names=NAMES)
    assert (result["wrong"], result["right"], result["exit_code"]) == (0.0, 1.0, code)
    assert {row["exploit"] for row in result["exploits"] if row["gain"] == 1.0} == paid
    assert all(math.isfinite(row["gain"]) for row in result["exploits"])
    assert ("[critical] edited_tests" in "\n".join(environment_lines(result))) == bool(code)


@needs_bubblewrap
def test_a_checker_of_a_package_pays_what_walks_its_frames(tmp_path: Path) -> None:
    """skyrl-gym's checker for LiveCodeBench, as installed, compares in the solution's process."""
    copy = tmp_path / "env"
    shutil.copytree(ENVIRONMENTS / "packages" / "skyrl_lcb", copy)
    (copy / "checker" / "packages.txt").write_text("")
    names = ("caller_frame", "appended_true", "sys_exit")
    result = stress_environment(load_environment(copy / "env.yaml"), names=names)
    paid = {row["exploit"] for row in result["exploits"] if row["gain"] == 1.0}
    assert paid == {"caller_frame", "appended_true"}


@needs_bubblewrap
def test_the_agent_sees_its_workspace_only(tmp_path: Path) -> None:
    for name in ("work", "hidden", "shown", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    prefix = agent_phase(tmp_path, "work", ["shown"], ["open"])
    done = run_phase(
        prefix,
        shell("ls /tmp/env; cat ../shown/file; echo; echo x > ../shown/file; echo y > ../open/file"),
        20,
    )
    assert done.output.split()[:4] == ["open", "shown", "work", "shown"]
    assert "Read-only" in done.output
    assert (tmp_path / "open" / "file").read_text() == "y\n"
    assert (tmp_path / "shown" / "file").read_text() == "shown"
    outside = run_phase(prefix, shell("touch /etc/planted || touch /var/planted"), 20)
    assert outside.code != 0
    assert run_phase(prefix, shell("sleep 60"), 1).timed_out


def test_without_bubblewrap_it_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_phases.shutil, "which", lambda _name: None)
    with pytest.raises(RewardError, match="bubblewrap \\(bwrap\\) is not installed"):
        require_bubblewrap()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a", "not a mapping"), ("workspace: work", "has no solution"), ("nonsense: 1", "unknown field nonsense"),
        ("workspace: [", "not YAML"),
        ("workspace: ../..\nsolution: a\nwrong: w\nright: r\nverify: x", "not there, or not inside"),
    ],
)  # fmt: skip
def test_a_bad_environment_is_one_line(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text(text)
    with pytest.raises(RewardError, match=words) as caught:
        load_environment(file)
    assert "\n" not in str(caught.value)
    result = CliRunner().invoke(app, ["stress", "env", str(file)])
    assert isinstance(result.exception, RewardError)


@needs_bubblewrap
def test_a_verifier_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for name in ("right.py", "wrong.py"):
        (tmp_path / name).write_text("def f():\n    return 1\n")
    text = "workspace: work\nsolution: s.py\nwrong: wrong.py\nright: right.py\nverify: 'true'\n"
    (tmp_path / "env.yaml").write_text(text)
    with pytest.raises(RewardError, match="does not pay the right solution more"):
        stress_environment(load_environment(tmp_path / "env.yaml"))


def test_every_exploit_says_what_it_does_and_needs_no_package() -> None:
    assert len(EXPLOITS) >= 12
    assert all(one.__doc__ for one in EXPLOITS.values())
    source = Path(sandbox_phases.__file__).with_name("state_exploits.py").read_text()
    done = subprocess.run(
        ["python3", "-I", "-c", source.split("if __name__")[0]], capture_output=True, check=False
    )
    assert done.returncode == 0
