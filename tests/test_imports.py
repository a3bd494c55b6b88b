"""The base install stays light: no torch, transformers or matplotlib behind an import or a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import write_run

HEAVY = ("torch", "transformers", "matplotlib", "pandas", "scipy")
CHECK = f"""
import sys
heavy = [name for name in {HEAVY!r} if name in sys.modules]
assert not heavy, heavy
"""


def _run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_import_is_light() -> None:
    _run("import trimtab\n" + CHECK)


@pytest.mark.parametrize("command", ["diagnose", "report", "watch"])
def test_commands_are_light(tmp_path: Path, command: str) -> None:
    folder = write_run(tmp_path / "run", steps=3)
    extra = {"diagnose": [], "report": ["-o", str(tmp_path / "r.html")], "watch": ["--once"]}[command]
    arguments = ["trimtab", command, str(folder), *extra]
    _run(
        f"import sys\nsys.argv = {arguments!r}\nfrom trimtab.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code in (0, 1, 2, None)\n" + CHECK
    )


@pytest.mark.parametrize("command", ["diagnose", "show", "export"])
def test_commands_on_agent_logs_are_light(tmp_path: Path, command: str) -> None:
    log = Path(__file__).parent / "traces" / "fixtures" / "tau-like.json"
    extra = {
        "diagnose": ["--html", str(tmp_path / "o.html")],
        "show": [],
        "export": ["--to", "dpo", "-o", str(tmp_path / "o.jsonl")],
    }[command]
    arguments = ["trimtab", "traces", command, str(log), *extra]
    _run(
        f"import sys\nsys.argv = {arguments!r}\nfrom trimtab.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code in (0, 1, None), stop.code\n"
        + CHECK
    )
