"""The mutation score: mutants are the operators' own, a test that bites kills, one that does not lets survive."""

from __future__ import annotations

import ast
import json
import subprocess
from dataclasses import asdict

import pytest
from reproduce.mutants import mutants_of, sample

from reproduce import mutation

SOURCE = '''"""A module."""
import logging

log = logging.getLogger()
LIMIT = 3


def clipped(x: int, flag: bool = True) -> int:
    """Return x, at most 3."""
    if not flag and x > 2:
        raise ValueError("a" + "b")
    log.warning("x is %d", x * 2)
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
    monkeypatch.setattr(mutation, "PRELOADED", ())
    return tmp_path


def test_the_mutants_of_a_function_are_one_of_each_operator():
    mutants = list(mutants_of(SOURCE, "stats/clip.py"))
    assert {(m.line, m.operator, m.old, m.new) for m in mutants} == {
        (10, "boolean", "not flag and x > 2", "((not flag) or (x > 2))"),
        (10, "removed not", "not flag", "(flag)"),
        (10, "comparison", "x > 2", "(x >= 2)"),
        (10, "constant", "2", "3"),
        (13, "swapped min", "min(x + 1, LIMIT)", "max(x + 1, LIMIT)"),
        (13, "arithmetic", "x + 1", "((x) - (1))"),
        (13, "constant", "1", "2"),
    }
    for m in mutants:
        assert m.occurrence == 0
        assert SOURCE.encode()[m.start : m.end].decode() == m.old
        assert m.code[m.column :].startswith(m.old)
        ast.parse(SOURCE[: m.start] + m.new + SOURCE[m.end :])


def test_a_named_expression_or_a_nested_comparison_keeps_its_brackets():
    code = "def f(a, b):\n    if (c := a) is not None:\n        return (a < b) == c\n"
    changed = {m.old: m.new for m in mutants_of(code, "stats/clip.py") if m.operator == "comparison"}
    assert changed["(c := a) is not None"] == "((c := a) is None)"
    assert changed["(a < b) == c"] == "((a < b) != c)"


def test_an_edit_changes_the_mutants_of_its_own_lines_alone(tree):
    file = tree / "src/trimtab/stats/clip.py"
    file.write_text(
        SOURCE + "".join(f"\n\ndef f{i}(x: int) -> int:\n    return x * {i}\n" for i in range(30))
    )
    before = sample(tree, 10, seed=0)
    assert {m.line for m in before} != {m.line for m in sample(tree, 10, seed=1)}
    file.write_text("# one\n# more\n" + file.read_text())
    after = sample(tree, 10, seed=0)
    assert [m.identity for m in after] == [m.identity for m in before]
    assert [m.line for m in after] == [m.line + 2 for m in before]
    file.write_text(file.read_text().replace(before[4].code + "\n", before[4].code + " + 0.5\n"))
    edited = [m.identity for m in sample(tree, 11, seed=0)]
    assert before[4].identity not in edited
    assert [key for key in edited if key in {m.identity for m in before}] == [
        m.identity for i, m in enumerate(before) if i != 4
    ]


def test_lines_of_the_same_code_are_told_apart():
    code = "def f(x):\n    x = x + 1\n    x = x + 1\n    return x\n"
    plus = [m for m in mutants_of(code, "stats/clip.py") if m.operator == "arithmetic"]
    assert {(m.line, m.occurrence) for m in plus} == {(2, 0), (3, 1)}
    assert plus[0].identity != plus[1].identity


def test_the_whole_sample_is_run_recorded_and_not_run_again(tree, capsys):
    assert [m.line for m in sample(tree, 1, seed=0)] == [m.line for m in sample(tree, 2, seed=0)][:1]
    assert mutation.main(["--json", "--seed", "0"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert figures == {
        "num_mutants": 2, "num_survived": 1, "num_equivalent": 0, "killed_frac": 0.5, "killed_frac_without_equivalent": 0.5,
    }  # fmt: skip
    rows = mutation.read_rows(tree / "mutation.jsonl")
    assert {row["line"]: row["killed_by"] for row in rows} == {
        10: "",
        13: "tests/stats/test_clip.py::test_clip",
    }
    assert (tree / "src/trimtab/stats/clip.py").read_text() == SOURCE
    mutation.main(["--json", "--seed", "0"])
    assert len(capsys.readouterr().out.splitlines()) == 1  # the figures alone: nothing was left to run
    file = tree / "src/trimtab/stats/clip.py"
    file.write_text(
        SOURCE.replace('"""A module."""', '"""A module.\n\nWith a longer text.\n"""')
    )  # other numbers of lines
    with (tree / "tests/stats/test_clip.py").open("a") as file:  # a test for the survivor
        file.write("\n\nimport pytest\n\ndef test_raises():\n    assert clipped(0, False) == 1 and clipped(2, False) == 3\n    assert clipped(9) == 3\n    with pytest.raises(ValueError, match='ab'):\n        clipped(3, False)\n")  # fmt: skip
    mutation.main(["--json", "--seed", "0", "--survivors"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]["num_survived"] == 0


def test_a_proven_equivalent_is_counted_apart_and_not_run_again(tree, capsys):
    rows = [{**asdict(m), "outcome": "survived"} for m in sample(tree, 2, seed=0)]
    rows[0]["equivalent"] = "never read"
    assert mutation.figures([*rows, {"outcome": "killed"}, {"outcome": "killed"}]) == {
        "num_mutants": 4, "num_survived": 2, "num_equivalent": 1, "killed_frac": 0.5,
        "killed_frac_without_equivalent": 0.6667,
    }  # fmt: skip
    rows[1]["outcome"] = "killed"
    (tree / "mutation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mutation.main(["--seed", "0", "--survivors"])
    assert capsys.readouterr().out == (
        "2 mutants, 1 survived (1 equivalent): 50.0% killed, 100.0% without the equivalent\n"
    )


def test_a_row_of_a_line_that_has_changed_leaves_the_file(tree, capsys):
    results, clip = tree / "mutation.jsonl", tree / "src/trimtab/stats/clip.py"
    rows = [{**asdict(m), "outcome": "killed"} for m in sample(tree, 2, seed=0)]
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    clip.write_text(SOURCE.replace("x + 1", "1 + x"))
    mutation.main(["--json", "--seed", "0", "--survivors"])
    first, last = capsys.readouterr().out.splitlines()
    assert first == "1 recorded mutants are of lines that have changed: left out"
    assert json.loads(last)["figures"]["num_mutants"] == 1
    assert mutation.read_rows(results) == [row for row in rows if "x + 1" not in row["code"]]


def test_a_test_that_fails_without_a_mutant_is_an_error_of_one_line(tree, capsys):
    (tree / "tests/stats/test_clip.py").write_text("def test_never():\n    assert False\n")
    assert mutation.main(["--quick"]) == 2
    assert capsys.readouterr().err == (
        "error: tests/stats/test_clip.py::test_never fails without a mutant; repair it first, its kills say nothing\n"
    )
