"""The mutation score: mutants are the operators' own, a test that bites kills, one that does not lets survive."""

from __future__ import annotations

import ast
import json
import subprocess

import pytest
from reproduce.mutants import mutants_of, sample

from reproduce import mutation

SOURCE = '''"""A module."""
LIMIT = 3


def clipped(x: int, flag: bool = True) -> int:
    """Return x, at most 3."""
    if not flag and x > 2:
        raise ValueError("a" + "b")
    return min(x + 1, LIMIT)
'''
BITES = "from trimtab.stats.clip import clipped\n\ndef test_clip():\n    assert [clipped(x) for x in (1, 2, 3)] == [2, 3, 3]\n"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name, text in {
        "src/trimtab/__init__.py": "", "src/trimtab/stats/__init__.py": "", "src/trimtab/stats/clip.py": SOURCE,
        "tests/__init__.py": "", "tests/stats/__init__.py": "", "tests/stats/test_clip.py": BITES,
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run("git init -q && git add .", shell=True, cwd=tmp_path, check=True)
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    monkeypatch.setattr(mutation, "RESULTS", tmp_path / "mutation.jsonl")
    monkeypatch.setattr(mutation, "_PASSING", set())
    return tmp_path


def test_the_mutants_of_a_function_are_one_of_each_operator():
    mutants = list(mutants_of(SOURCE, "stats/clip.py"))
    assert {(m.line, m.operator, m.old, m.new) for m in mutants} == {
        (7, "boolean", "not flag and x > 2", "((not flag) or (x > 2))"),
        (7, "removed not", "not flag", "(flag)"),
        (7, "comparison", "x > 2", "(x >= 2)"),
        (7, "constant", "2", "3"),
        (9, "swapped min", "min(x + 1, LIMIT)", "max(x + 1, LIMIT)"),
        (9, "arithmetic", "x + 1", "((x) - (1))"),
        (9, "constant", "1", "2"),
    }
    for m in mutants:
        assert SOURCE.encode()[m.start : m.end].decode() == m.old
        assert m.code[m.column :].startswith(m.old)
        ast.parse(SOURCE[: m.start] + m.new + SOURCE[m.end :])


def test_the_whole_sample_is_run_recorded_and_not_run_again(tree, capsys):
    assert [m.line for m in sample(tree, 1, seed=0)] == [m.line for m in sample(tree, 2, seed=0)][:1]
    assert mutation.main(["--json", "--seed", "0"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert figures == {"num_mutants": 2, "num_survived": 1, "killed_frac": 0.5}
    rows = mutation.read_rows(tree / "mutation.jsonl")
    assert {row["line"]: row["killed_by"] for row in rows} == {
        7: "",
        9: "tests/stats/test_clip.py::test_clip",
    }
    assert (tree / "src/trimtab/stats/clip.py").read_text() == SOURCE
    mutation.main(["--json", "--seed", "0"])
    assert len(capsys.readouterr().out.splitlines()) == 1  # the figures alone: nothing was left to run
    with (tree / "tests/stats/test_clip.py").open("a") as file:  # a test for the survivor
        file.write("\n\nimport pytest\n\ndef test_raises():\n    assert clipped(0, False) == 1 and clipped(2, False) == 3\n    assert clipped(9) == 3\n    with pytest.raises(ValueError, match='ab'):\n        clipped(3, False)\n")  # fmt: skip
    mutation.main(["--json", "--seed", "0", "--survivors"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]["num_survived"] == 0


def test_a_test_that_fails_without_a_mutant_is_an_error_of_one_line(tree, capsys):
    (tree / "tests/stats/test_clip.py").write_text("def test_never():\n    assert False\n")
    assert mutation.main(["--quick"]) == 2
    assert capsys.readouterr().err == (
        "error: tests/stats/test_clip.py::test_never fails without a mutant; repair it first, its kills say nothing\n"
    )
