"""What is damaged is an error of one line, and is neither trained over nor removed; an interruption can be taken up again."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from reproduce.pilot.batch import SCRIPT, train_all
from reproduce.pilot.evidence import BEGIN, CLAIMS, END, check_page
from reproduce.pilot.marks import MARK, state_of, unfinished_file, write_mark
from reproduce.pilot.reading import load_bank
from reproduce.pilot.train import run_one
from reproduce.tail_emergence import BANK, PAGE, main, page_of

from reproduce import tail_emergence
from tests.reproduce.test_bank import STEPS, write
from tests.support import running
from trimtab.errors import RunError
from trimtab.runs import compress_run

READINGS = "readings.r0.s0.jsonl.gz"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """One sealed run in a bank of its own, to be copied."""
    root = tmp_path_factory.mktemp("recorded")
    compress_run(write(root, "open", 0))
    return root


@pytest.fixture
def bank(recorded, tmp_path):
    return Path(shutil.copytree(recorded, tmp_path / "bank"))


def bytes_of(bank):
    return {path: path.read_bytes() for path in sorted(bank.rglob("*")) if path.is_file()}


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def without(name):
    def change(path):
        mark = json.loads(path.read_text())
        del mark[name]
        path.write_text(json.dumps(mark))

    return change


def with_value(**fields):
    def change(path):
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def fewer_steps(path):
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:-5])))


DAMAGES = {
    "mark": (MARK, cut, "pilot.json is damaged"),
    "mark without steps": (MARK, without("steps"), "pilot.json has no 'steps' of type int"),
    "mark of a list": (MARK, lambda path: path.write_text("[]"), "pilot.json has no 'arm' of type str"),
    "unknown arm": (MARK, with_value(arm="opne"), "names the arm 'opne', which reproduce/pilot/arms.py does not know"),
    "other seed": (MARK, with_value(seed=2), "which belongs in"),
    "no mark": (MARK, Path.unlink, "is no finished run (it has no pilot.json)"),
    "readings": (READINGS, cut, "readings.r0.s0.jsonl.gz"),
    "no readings": (READINGS, Path.unlink, "has no readings"),
    "steps": ("steps.r0.s0.jsonl.gz", fewer_steps, f"has {STEPS - 5} of its {STEPS} steps"),
    "no controls": ("controls.jsonl", Path.unlink, "controls.jsonl cannot be read"),
    "controls": ("controls.jsonl", lambda path: path.write_text('{"step": 1\n'), "controls.jsonl, line 1, is damaged"),
    "controls row": ("controls.jsonl", lambda path: path.write_text('{"step": 1}\n'), "line 1, has no 'n_text'"),
    "no header": ("run.json", Path.unlink, "run.json"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_line_and_exit_code_2_and_nothing_is_touched(bank, damage, monkeypatch, capsys):
    name, change, says = DAMAGES[damage]
    change(bank / "tuning" / "open-s0" / name)
    before = bytes_of(bank)
    monkeypatch.setattr("subprocess.Popen", lambda *args, **kwargs: pytest.fail("nothing is to be trained"))
    steps = ["--steps", str(STEPS), "--arms", "open", "--seeds", "1"]
    monkeypatch.setattr("sys.argv", ["tail_emergence.py", "--bank", str(bank), *steps])
    assert main() == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err
    assert str(bank) in err
    assert bytes_of(bank) == before


@pytest.mark.parametrize("where", ["file", "proc"])
def test_a_bank_that_can_be_none_is_one_line(where, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    bank = "/proc/nope" if where == "proc" else str(tmp_path / "file")
    monkeypatch.setattr("sys.argv", ["t", "--bank", bank, "--page", str(tmp_path / "p.md"), "--arms", "open", "--seeds", "1", "--steps", "2"])  # fmt: skip
    assert main() == 2
    err = capsys.readouterr().err
    assert err.startswith("tail_emergence: ")
    assert err.count("\n") == 1


def test_only_what_this_script_left_unfinished_is_begun_anew(tmp_path):
    folder = tmp_path / "tuning" / "open-s0"
    folder.mkdir(parents=True)
    assert state_of(folder) == "missing"  # an empty folder holds nothing to lose
    (folder / "run.json").write_text("{}")
    with pytest.raises(RunError, match="was not left by this script"):
        state_of(folder)
    with pytest.raises(RunError, match="was not left by this script"):
        run_one(tail_emergence.PILOT["open"], folder, seed=0, steps=2)
    unfinished_file(folder).write_text("")
    assert state_of(folder) == "unfinished"
    assert load_bank(tmp_path) == []  # and is not read
    mark = {"arm": "open", "family": "tool", "seed": 0, "steps": 2, "settings": {"config": {}}}
    write_mark(folder, mark)
    assert state_of(folder) == "finished"
    assert not unfinished_file(folder).exists()
    with pytest.raises(RunError, match="holds a finished run"):
        run_one(tail_emergence.PILOT["open"], folder, seed=0, steps=2)


def test_a_damaged_run_that_is_not_asked_for_stops_the_training_too(bank, monkeypatch):
    cut(bank / "tuning" / "open-s0" / MARK)
    monkeypatch.setattr("subprocess.Popen", lambda *args, **kwargs: pytest.fail("nothing is to be trained"))
    with pytest.raises(RunError, match="damaged"):
        train_all([("constrained", 0)], 2, bank, 1)


def test_another_bank_never_writes_the_repositorys_page(bank, tmp_path, monkeypatch, capsys):
    assert page_of(BANK, None) == PAGE
    assert page_of(bank, None) == tmp_path / "bank-evidence.md"
    page, pictures = PAGE.read_bytes(), bytes_of(PAGE.with_suffix(""))
    base = ["t", "--bank", str(bank), "--arms", "open", "--seeds", "1", "--steps", str(STEPS)]
    monkeypatch.setattr("sys.argv", [*base, "--page", str(PAGE)])
    assert main() == 2
    assert "give another --page" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", base)
    assert main() == 0
    assert (PAGE.read_bytes(), bytes_of(PAGE.with_suffix(""))) == (page, pictures)
    written = (tmp_path / "bank-evidence.md").read_text()
    assert "(bank-evidence/tails.png)" in written
    assert (tmp_path / "bank-evidence" / "tails.png").exists()
    assert " None" not in capsys.readouterr().out  # what is undecided is counted, not listed


@pytest.mark.parametrize("text", ["my own words", f"{BEGIN}\n", f"{CLAIMS[0]}{CLAIMS[1]}{END}{BEGIN}"])
def test_a_page_of_other_words_is_left_alone(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(RunError, match="has not one pair of the marks"):
        check_page(page)
    with pytest.raises(RunError, match="is a folder"):
        check_page(tmp_path)


def test_ctrl_c_is_one_line_and_leaves_what_can_be_taken_up(tmp_path):
    """The real script, stopped while its child trains."""
    bank = tmp_path / "bank"
    command = [sys.executable, str(SCRIPT), "--bank", str(bank), "--arms", "open", "--seeds", "1", "--steps", "40", "--jobs", "1"]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    folder = bank / "tuning" / "open-s0"
    with running(command, env=environment) as run:
        deadline = time.monotonic() + 300
        while not unfinished_file(folder).exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=120)
    assert run.returncode == 130
    assert err.count("\n") == 1
    assert "the same command goes on from there" in err
    assert state_of(folder) == "unfinished"
    assert {path.name for path in (bank / "tuning").iterdir()} <= {"open-s0", "open-s0.unfinished"}
