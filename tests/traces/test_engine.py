"""Which engine reads what, and that a log in several files is one log."""

from __future__ import annotations

import pytest

from tests.traces.make import chat, steps, write_lines
from trimtab.errors import TraceError
from trimtab.traces import choose_engine as engine
from trimtab.traces.choose_engine import table_of
from trimtab.traces.core.read_report import ReadReport


def test_large_step_logs_go_to_columns_and_small_ones_do_not(tmp_path, monkeypatch):
    log = write_lines(tmp_path / "s.jsonl", steps("a"))
    chats = write_lines(tmp_path / "m.jsonl", [{"id": "m", "messages": chat()}])
    assert table_of([log], ReadReport()).engine == "records"
    monkeypatch.setattr(engine, "LARGE_BYTES", 1)
    assert table_of([log], ReadReport()).engine == "columns"
    assert table_of([log], ReadReport(), engine="records").engine == "records"
    assert table_of([chats], ReadReport()).engine == "records"
    assert table_of([log], ReadReport(strict=True)).engine == "records"
    assert table_of([log, chats], ReadReport()).engine == "records"
    log.write_bytes(b"\xef\xbb\xbf" + log.read_bytes())
    assert table_of([log], ReadReport()).num_episodes == 1


def test_several_files_are_one_log_and_a_shared_id_goes_to_the_readers(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "LARGE_BYTES", 1)
    one = write_lines(tmp_path / "1.jsonl", steps("a") + steps("b", calls=1))
    write_lines(tmp_path / "2.jsonl", steps("c"))
    report = ReadReport()
    table = table_of([tmp_path], report)
    assert (table.engine, list(table.ids), table.total("calls")) == ("columns", ["a", "b", "c"], 5)
    assert (report.num_lines, len(report.formats)) == (7 + 5 + 7, 2)
    write_lines(tmp_path / "3.jsonl", steps("a", calls=3))
    report = ReadReport()
    table = table_of([tmp_path], report)
    assert (table.engine, table.ids) == ("records", ["a", "b", "c", "a#2"])
    with pytest.raises(TraceError, match="comes in two files"):
        table_of([tmp_path], ReadReport(), engine="columns")
    assert one.exists()


@pytest.mark.parametrize(
    ("name", "format", "why"),
    [
        ("x", None, "unknown engine"),
        ("columns", "tau", "step JSONL only"),
        ("columns", None, "not step JSONL"),
    ],
)
def test_an_engine_that_cannot_be_used_says_why(tmp_path, name, format, why):
    chats = write_lines(tmp_path / "m.jsonl", [{"id": "m", "messages": chat()}])
    with pytest.raises(TraceError, match=why):
        table_of([chats], ReadReport(), format, engine=name)
