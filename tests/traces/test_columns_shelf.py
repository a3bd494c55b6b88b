"""What is put on the shelf comes back as it was, and a full disk is one clear line."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

import trimtab.cli
from tests.traces.make import steps, write_lines
from trimtab.errors import TraceError
from trimtab.traces.columnar.spill import Shelf, loaded, stored
from trimtab.traces.table.compact import Names, narrow


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5),
        np.array([np.nan, np.inf, -0.0]),
        np.zeros((3, 0), bool),
        np.array([], np.uint64),
        np.arange(12, dtype=np.int8).reshape(4, 3)[:, ::2],
        np.broadcast_to(np.float16(2.5), 7),
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_arrays_come_back(tmp_path, array):
    shelf = Shelf(tmp_path)
    first, again = shelf.put(np.arange(3)), shelf.put(array)
    back = loaded(again, shelf)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == np.ascontiguousarray(array).tobytes()
    assert loaded(first, shelf).tolist() == [0, 1, 2]
    assert stored(again, shelf) is again
    assert stored(array, None) is array
    assert not list(tmp_path.iterdir())  # nobody else sees the file


def test_short_writes_are_gone_on_with(tmp_path, monkeypatch):
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:3], at))
    shelf = Shelf(tmp_path)
    assert loaded(shelf.put(np.arange(4)), shelf).tolist() == [0, 1, 2, 3]


def _full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "pwrite", _full)
    with pytest.raises(TraceError, match=r"No space left on device.*TMPDIR"):
        Shelf(tmp_path).put(np.arange(3))
    path = write_lines(tmp_path / "log.jsonl", steps("a"))
    monkeypatch.setattr("sys.argv", ["trimtab", "traces", "diagnose", str(path), "--engine", "columns"])
    with pytest.raises(SystemExit) as left:
        trimtab.cli.main()
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("largest", [127, 128, -129])
def test_narrow_columns_hold_what_they_are_given(largest):
    assert narrow(np.array([0, largest])).tolist() == [0, largest]


def test_names_are_those_of_the_list():
    texts = ["a", "", "x" * 300, "日本", "\udc80", "b\0c"]
    names = Names.joined(*Names.packed(texts))
    assert list(names) == texts

    assert names[1:3] == texts[1:3]
    assert names[-1] == texts[-1]
    assert "日本" in names
    assert names.index("x" * 300) == 2
    with pytest.raises(IndexError):
        names[6]
    order = np.array([5, 0, 3])
    assert list(names.taken(order)) == [texts[i] for i in order]
    assert len(Names.joined(*Names.packed([]))) == 0
