"""Pages of parity and of environments under exploits, written by their commands."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support import cli
from trimtab.report.launch.environment_page import render_environment

HOSTILE = "</td><script>alert(1)</script>\x1b[31m"


def _sides(folder: Path, train: dict[str, object], evaluation: dict[str, object]) -> tuple[Path, Path]:
    sides = folder / "train.json", folder / "eval.json"
    for path, settings in zip(sides, (train, evaluation), strict=True):
        path.write_text(json.dumps(settings), encoding="utf-8")
    return sides


def _anchors(page: str) -> list[str]:
    return re.findall(r'<section id="([\w-]+)"', page)


def test_parity_writes_a_page_of_its_differences_and_escapes_them(tmp_path: Path) -> None:
    train = {"temperature": 1.0, "max_tokens": 512, "system_prompt": HOSTILE}
    sides = _sides(tmp_path, train, {"temperature": 0.5, "max_tokens": 256, "system_prompt": "be brief"})
    done = cli("parity", *sides, "--html", tmp_path / "parity.html", "--json")
    page = (tmp_path / "parity.html").read_text(encoding="utf-8")
    assert (done.returncode, done.stderr.strip()) == (1, f"wrote {tmp_path / 'parity.html'}")
    rows = re.findall(r"<tr><td data-label.*?</tr>", page, re.S)
    assert len(rows) == len(json.loads(done.stdout)["differences"]) == 3
    assert any("limits.max_tokens" in row and ">512<" in row and ">256<" in row for row in rows)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in page
    assert _anchors(page) == ["differences", "scores", "facts"]


def test_a_comparable_page_says_that_scores_were_not_compared(tmp_path: Path) -> None:
    sides = _sides(tmp_path, {"temperature": 1.0}, {"temperature": 1.0})
    assert cli("parity", *sides, "--html", tmp_path / "p.html").returncode == 0
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "Scores were not compared" in page
    assert "v-healthy" in page


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    sides = _sides(tmp_path, {"temperature": 1.0}, {"temperature": 1.0})
    for target in (tmp_path, tmp_path / "nowhere" / "p.html"):
        done = cli("parity", *sides, "--html", target)
        assert done.returncode == 2
        assert done.stderr.startswith(f"trimtab: {target}")
        assert done.stderr.count("\n") == 1


def test_an_environment_page_sorts_exploits_by_their_outcome() -> None:
    rows = [
        {"exploit": "sys_exit", "what": "It ends.", "gain": 1.0, "reward": 1.0, "ending": HOSTILE},
        {"exploit": "edited_tests", "what": "It edits.", "gain": 0.0, "reward": 0.0, "ending": "exit code 1"},
        {"exploit": "git_history", "what": "It reads.", "gain": float("nan"), "reward": float("nan"), "ending": "no git"},
    ]  # fmt: skip
    result = {
        "environment": "/env", "verdict": "exploitable", "headline": "1 of 3.", "wrong": 0.0, "right": 1.0, "exploits": rows,
    }  # fmt: skip
    page = render_environment(result)
    parts = {
        name: page.split(f'<section id="{name}"')[1].split("</section>")[0]
        for name in ("paid", "refused", "failed")
    }
    assert [re.findall(r'Exploit"><bdi class="mono">(\w+)', part) for part in parts.values()] == [
        ["sys_exit"], ["edited_tests"], ["git_history"],
    ]  # fmt: skip
    assert "100 %" in parts["paid"]
    assert "–" in parts["failed"]
    assert "<script>alert" not in page
    assert "v-unhealthy" in page


def test_an_environment_without_one_exploit_that_acted_is_not_called_sound() -> None:
    row = {
        "exploit": "a",
        "what": "",
        "gain": float("nan"),
        "reward": float("nan"),
        "ending": "it could not act",
    }
    result = {
        "environment": "/env", "verdict": "no exploit seen", "headline": "0 of 1.", "wrong": 0.0, "right": 1.0, "exploits": [row],
    }  # fmt: skip
    page = render_environment(result)
    assert '"verdict v-healthy' not in page
    assert '"verdict v-not-judged-yet' in page


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_stress_env_refuses_a_page_before_it_runs_anything(tmp_path: Path) -> None:
    done = cli("stress", "env", "benchmarks/environments/soft/env.yaml", "--html", tmp_path)
    assert done.returncode == 2
    assert "is a folder" in done.stderr
    assert not done.stdout
