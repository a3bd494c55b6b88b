"""The fuzzer outside CI does find what it looks for: a planted exception, a lost line; and nothing in two seconds of the real readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduce import fuzz_traces
from trimtab.traces.read import iter_episodes


def test_the_loop_reaches_more_than_its_seeds_and_finds_no_crash(tmp_path):
    found = fuzz_traces.loop(0.0, 60.0, tmp_path / "out", seed=1, least=40)
    assert found["crashes"] == {}
    assert found["inputs"] == 40
    assert found["lines"] >= found["lines_of_seeds"] > 500


def test_a_planted_crash_is_kept_with_its_input(tmp_path, monkeypatch):
    def broken(data: bytes, path: Path) -> None:
        if b"null" in data and len(data) > 40:
            raise KeyError("planted")

    monkeypatch.setattr(fuzz_traces, "seeds", lambda: [b"\0" + b"x" * 60])
    monkeypatch.setattr(fuzz_traces, "one_input", broken)
    found = fuzz_traces.loop(0.0, 20.0, tmp_path / "out", seed=1, least=3_000)
    ((where, kept),) = found["crashes"].items()
    assert where.startswith("KeyError at test_fuzz.py")
    assert b"null" in Path(kept).read_bytes()


def test_a_lost_valid_line_is_a_crash(tmp_path, monkeypatch):
    data = fuzz_traces.seeds()[fuzz_traces.NAMES.index("messages")]
    fuzz_traces.one_input(data, tmp_path / "log.jsonl")
    monkeypatch.setattr(fuzz_traces, "iter_episodes", lambda *a: list(iter_episodes(*a))[:-1])
    with pytest.raises(AssertionError, match="valid line lost: \\['mark-two'\\]"):
        fuzz_traces.one_input(data, tmp_path / "log.jsonl")
