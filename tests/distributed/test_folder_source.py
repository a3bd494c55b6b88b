"""The folder's files are followed as they grow, and read once."""

from __future__ import annotations

import os
from pathlib import Path

import trimtab
from tests.distributed.dealt_sequences import OPEN, arrays, metrics, record
from trimtab.distributed import Decision, FolderDecisions, FolderSource, Merger


def step(run: trimtab.Run, number: int, rank: int) -> None:
    run.observe(**arrays(number, rank, 2))
    run.flush(number, metrics(number))


def test_each_step_comes_once_and_whole(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with trimtab.open_run(folder, rank=0, **OPEN), trimtab.open_run(folder, rank=1, **OPEN) as other:
        source = FolderSource(folder, own=0)
        seen = []
        for number in range(6):
            step(other, number, 1)
            seen.append([(s.rank, s.session, s.number, s.step, len(s.blocks)) for s in source.poll()])
            assert list(source.poll()) == []
    assert seen == [[(1, 0, number, number, int(number == 3))] for number in range(6)]
    assert source.num_damaged == 0


def test_a_torn_line_waits_and_a_damaged_one_is_counted(tmp_path: Path) -> None:
    record(str(tmp_path / "run"), 1, 2, 3)
    path = tmp_path / "run" / "steps.r1.s0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:30])
    source = FolderSource(tmp_path / "run", own=0)
    merger = Merger([1])
    (first,) = source.poll()
    assert first.step == 0
    merger.add(first)
    with path.open("ab") as file:
        file.write(lines[1][30:-9] + b"0000000}\n" + lines[2])
    shards = list(source.poll())
    assert [(s.step, s.number) for s in shards] == [(2, 2)]
    assert source.num_damaged == 1
    merger.add_all(shards)
    assert merger.status() == {"lost": 1}


def test_a_step_waits_for_rows_that_are_not_visible_yet(tmp_path: Path) -> None:
    record(str(tmp_path / "run"), 1, 2, 4)
    path = tmp_path / "run" / "states.r1.s0.jsonl"
    data = path.read_bytes()
    path.write_bytes(b"")
    source = FolderSource(tmp_path / "run", own=0)
    assert [s.step for s in source.poll()] == [0, 1, 2]
    path.write_bytes(data)
    (last,) = source.poll()
    assert (last.step, len(last.blocks)) == (3, 1)


def test_a_restarted_rank_is_followed_into_its_new_session(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    source = FolderSource(folder, own=0)
    assert list(source.poll()) == []
    assert "cannot be read" in source.failure()
    for _ in range(2):
        record(str(folder), 1, 2, 2)
    assert [(s.session, s.step) for s in source.poll()] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert source.failure() == ""


def test_a_resumed_reader_begins_behind_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with trimtab.open_run(folder, rank=1, **OPEN) as other:
        for number in range(6):
            step(other, number, 1)
        source = FolderSource(folder, own=0, resumed=True)
        assert list(source.poll()) == []
        step(other, 6, 1)
        step(other, 7, 1)
        shards = list(source.poll())
    assert [(s.step, s.number, len(s.blocks)) for s in shards] == [(6, 0, 0), (7, 1, 1)]


def test_nothing_is_read_twice(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "run"
    with trimtab.open_run(folder, rank=1, **OPEN) as other:
        source = FolderSource(folder, own=0)
        for number in range(20):
            step(other, number, 1)
            list(source.poll())
        before = sum(path.stat().st_size for path in folder.glob("*.r1.*.jsonl"))
        listings = []
        monkeypatch.setattr(os, "listdir", lambda path: listings.append(path) or [])
        read = [t.offset for s in source._sessions.values() for t in (s.steps, *s.others.values())]
    names = ("steps", "series", "tools", "states")
    assert sum(read) == sum((folder / f"{name}.r1.s0.jsonl").stat().st_size for name in names) <= before


def test_decisions_are_read_once_by_every_rank(tmp_path: Path) -> None:
    leader = FolderDecisions(tmp_path, 0, 0, leads=True)
    others = [FolderDecisions(tmp_path, 0, 0, leads=False) for _ in range(2)]
    written = [Decision(0, 3, 5, "a"), Decision(1, 4, 6, "b\n")]
    leader.write(written[0])
    assert [other.poll() for other in others] == [[written[0]]] * 2
    leader.write(written[1])
    assert [other.poll() for other in others] == [[written[1]]] * 2
    assert others[0].poll() == []
    leader.close()
    again = FolderDecisions(tmp_path, 0, 1, leads=True)
    again.write(Decision(0, 9, 11, "c"))
    assert others[0].poll() == [Decision(0, 9, 11, "c")]
    again.close()


def test_decisions_of_an_earlier_life_are_not_applied(tmp_path: Path) -> None:
    leader = FolderDecisions(tmp_path, 0, 0, leads=True)
    leader.write(Decision(0, 3, 5, "old"))
    steps = tmp_path / "steps.r0.s0.jsonl"
    steps.write_text("x\n")
    alone = FolderDecisions(tmp_path, 0, 1, leads=False)  # one rank started again, or all of them
    assert alone.poll() == []
    steps.write_text("x\ny\n")  # the leading rank lives: what it decided holds
    assert alone.poll() == [Decision(0, 3, 5, "old")]
    all_of_them = FolderDecisions(tmp_path, 0, 1, leads=False)
    leader.close()
    FolderDecisions(tmp_path, 0, 1, leads=True).close()
    steps.write_text("x\ny\nz\n")
    assert all_of_them.poll() == []


def test_a_damaged_decision_is_counted_and_not_applied(tmp_path: Path) -> None:
    leader = FolderDecisions(tmp_path, 0, 0, leads=True)
    leader.write(Decision(0, 3, 5, "a"))
    leader.close()
    path = tmp_path / "decisions.s0.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"b"') + b"not json\n")
    other = FolderDecisions(tmp_path, 0, 0, leads=False)
    assert other.poll() == []
    assert other.num_damaged == 2
