"""Every command of docs/tutorial.md runs as the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(bash|python|yaml)\n(.*?)^```", re.S | re.M)


def test_the_tutorial_runs_as_written(tmp_path):
    """Files are saved under the name in their first line, commands run in order, exit codes are those of the page."""
    environment = commands(tmp_path / "bin")
    work = tmp_path / "work"
    work.mkdir()
    ran = 0
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language != "bash":
            name = re.match(r"# (\w+\.\w+)\n", text)
            assert name, f"a block of {language} without a file name: {text[:60]}"
            (work / name[1]).write_text(text, encoding="utf-8")
            continue
        for line in text.splitlines():
            if line.startswith("pip install"):  # .ci/wheel.sh
                continue
            stated = re.search(r"# exit code (\d)$", line)
            done = subprocess.run(
                line, shell=True, cwd=work, env=environment, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == (int(stated[1]) if stated else 0), f"{line}\n{done.stdout}{done.stderr}"
            check(line, done.stdout)
            ran += 1
    assert ran >= 9
    again = "python loop.py && python logs.py && trimtab diagnose runs/tutorial"
    done = subprocess.run(
        again, shell=True, cwd=work, env=environment, capture_output=True, text=True, timeout=300
    )
    assert "1 session" in done.stdout  # what was there is replaced, not added to
    assert len((work / "episodes.jsonl").read_text(encoding="utf-8").splitlines()) == 60
    assert {path.name for path in work.iterdir()} >= {"report.html", "episodes.html", "solved.jsonl"}


def check(line: str, output: str) -> None:
    """What the page says of an output in words."""
    if line.startswith("trimtab diagnose runs/tutorial  #"):
        shown = re.search(
            r"five lines on the run .*\n\n```\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S
        )
        printed = output.splitlines()
        left_out = next(i for i, part in enumerate(printed) if part.startswith("  "))
        begin = printed[:left_out] + printed[left_out + 5 :]
        lines = shown[1].splitlines()
        assert lines == begin[: len(lines)], output
    elif "traces diagnose" in line:
        assert "tool_failing" in output
        assert "price" in output
    elif "--rules" in line:
        assert "kl_over_three_hundredths" in output


def commands(folder: Path) -> dict[str, str]:
    """An environment in which `python` and `trimtab` are this interpreter's."""
    folder.mkdir()
    for name, module in (("python", ""), ("trimtab", "-m trimtab ")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module}"$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
