"""The page of what is supported says what the tree shows: scripts and tests exist, versions are those that run or were read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trimtab.metric_logs import FRAMEWORKS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reference/support.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci/run").read_text(encoding="utf-8")
PATHS = r"`((?:tests|\.ci|src)/[\w./-]+)`"


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


LIVE, LOGS = rows("Live and imported"), rows("Metrics logs")


def named(cells: list[str]) -> list[Path]:
    return [ROOT / name for name in re.findall(PATHS, " ".join(cells))]


def test_all_that_is_named_exists() -> None:
    names = sorted(set(re.findall(PATHS, PAGE)))
    assert len(names) > 20
    assert not [name for name in names if not (ROOT / name).exists()]


@pytest.mark.parametrize("cells", LIVE, ids=lambda cells: cells[0])
def test_pinned_versions_are_those_that_run(cells) -> None:
    """Each `package==version` of a row stands in a script it names, or among the pins of the development environment."""
    scripts = [path for path in named(cells) if path.suffix == ".sh"]
    pins = "\n".join(path.read_text(encoding="utf-8") for path in (*scripts, ROOT / "constraints-dev.txt"))
    for package, version in re.findall(r"`([\w-]+)==([\w.]+)`", cells[2]):
        by_variable = f"{package}==$version" in pins and f"version={version}" in pins
        pin = rf"\b{package}(?:\[[\w,]+\])?=={re.escape(version)}(?![\w.])"
        assert re.search(pin, pins) or by_variable, (package, version)


@pytest.mark.parametrize("cells", LIVE, ids=lambda cells: cells[0])
def test_what_ci_runs_and_what_only_a_hand_runs(cells) -> None:
    how, scripts = cells[1], [path for path in named(cells) if path.suffix == ".sh"]
    if "by hand" in how and "in CI" not in how:
        (script,) = scripts
        assert script.name not in CI
        marked = [path for path in named(cells) if path.suffix != ".sh"]
        assert all(path.relative_to(ROOT).as_posix() in script.read_text(encoding="utf-8") for path in marked)
    elif "in CI" in how:
        assert all(script.name in CI for script in scripts)
        assert named(cells), "what shows it?"


def test_every_key_table_has_its_row_with_its_versions() -> None:
    told = {cells[0].strip("`"): cells[1] for cells in LOGS}
    assert told == {name: framework.versions for name, framework in FRAMEWORKS.items() if name != "ours"}


@pytest.mark.parametrize("cells", LOGS, ids=lambda cells: cells[0])
def test_the_test_of_a_log_names_its_framework(cells) -> None:
    (path,) = named(cells[4:5])
    text = path.read_text(encoding="utf-8")
    assert f'"{cells[0].strip("`")}"' in text or "FRAMEWORKS.values()" in text
    if cells[3].startswith("its own code") and "writers" in text:
        assert (path.parent / "writers").is_dir()
