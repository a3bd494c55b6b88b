"""Files as they really are: compressed, cut off, in the wrong encoding, half JSON. Nothing stops the lines that are right."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zipfile

import pyarrow
import pyarrow.parquet
import pytest

from tests.traces.make import chat, write_lines
from trimtab.errors import TraceError
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import MAX_KEPT, ReadReport
from trimtab.traces.files.find import find_files
from trimtab.traces.files.json_records import iter_records
from trimtab.traces.files.lines import iter_lines
from trimtab.traces.read import read_episodes

ROW = json.dumps({"id": "good", "messages": chat()}).encode()


def _read(path, **options):
    found, report = read_episodes([path], **options)
    return [e.id for e in found], report


def _rows(count: int) -> list[dict]:
    return [{"id": f"e{i}", "messages": chat()} for i in range(count)]


BAD = {
    "not json": (b"{oops", "not JSON: Expecting property name"),
    "not utf-8": (b'{"id": "\xff"}', "not UTF-8 at byte 8"),
    "nul bytes": (b"\0\0\0\0", "not JSON"),
    "an array": (b"[1, 2]", "a JSON list where an object should be"),
    "a string": (b'"text"', "a JSON str"),
    "null": (b"null", "a JSON NoneType"),
    "nested too deep": (b"[" * 100_000, ""),
    "a huge integer": (b'{"id": ' + b"9" * 5_000 + b"}", "not JSON we read"),
    "no messages": (b'{"id": 1}', "no messages"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_line_is_located_and_its_neighbours_are_read(tmp_path, bad):
    line, reason = BAD[bad]
    path = tmp_path / "log.jsonl"
    path.write_bytes(ROW + b"\n" + line + b"\n\n" + ROW.replace(b"good", b"last") + b"\n")
    ids, report = _read(path)
    assert ids == ["good", "last"]
    assert report.num_malformed == 1
    assert report.num_lines == 3
    (problem,) = report.problems
    assert (problem.file, problem.line) == (str(path), 2)
    assert reason in problem.reason
    with pytest.raises(TraceError, match=r"log\.jsonl:2: .*without --strict"):
        _read(path, strict=True)


def test_a_bad_first_line_does_not_make_it_another_format(tmp_path):
    path = tmp_path / "log.jsonl"
    for bad in (b"[1]", b"{", b"garbage", b'{"id": "cut'):
        path.write_bytes(bad + b"\n" + ROW + b"\n")
        ids, report = _read(path)
        assert (ids, report.num_malformed) == (["good"], 1), bad


def test_a_cut_last_line_says_so(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(ROW + b"\n" + ROW[:40])
    ids, report = _read(path)
    assert ids == ["good"]
    assert report.problems[0].reason.startswith("cut off at the end of the file; not JSON")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": "it', "not JSON: Unterminated string starting at character 6"),
        ('{"a": "\t"}', "not JSON: Invalid control character at character 7"),
        ('{"a": }', "not JSON: Expecting value at character 6"),
    ],
)
def test_where_a_text_stops_being_json_is_said_once(text, why):
    with pytest.raises(BadJson, match=f"^{why}$"):
        parse_json(text)


def test_all_malformed_lines_are_counted_and_the_first_hundred_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(ROW + b"\n" + b"x\n" * 250)
    _, report = _read(path)
    assert report.num_malformed == 250
    assert len(report.problems) == MAX_KEPT == 100


def test_byte_order_mark_blank_lines_and_windows_ends(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + ROW + b"\r\n\r\n  \n" + ROW.replace(b"good", b"two") + b"\r\n")
    ids, report = _read(path)
    assert ids == ["good", "two"]
    assert report.num_malformed == 0
    assert report.notes == {"byte-order mark removed": 1}
    path.write_text(ROW.decode(), encoding="utf-16")
    with pytest.raises(TraceError, match="UTF-16; convert it first"):
        _read(path)


def test_nan_and_lone_surrogates_are_read(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"id": "a\\ud800", "reward": NaN, "messages": [{"role": "user", "content": "x"}]}\n')
    (found,), report = read_episodes([path])
    assert found.id == "a\ud800"
    assert found.reward != found.reward
    assert report.num_malformed == 0


def test_a_line_over_the_limit_is_passed_over_and_one_of_100_mb_read(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"a" * 5_000_000 + b"\n" + b"b" * 10 + b"\n" + b"c" * 5_000_000)
    report = ReadReport()
    assert [line[:2] for line in iter_lines(str(path), report, max_bytes=1_000)] == [(2, b"b" * 10)]
    assert [(p.line, p.reason) for p in report.problems] == [
        (1, "line longer than 1,000 bytes"),
        (3, "line longer than 1,000 bytes"),
    ]
    huge = json.dumps({"id": "huge", "messages": [{"role": "user", "content": "x" * 100_000_000}]}).encode()
    path.write_bytes(ROW + b"\n" + huge + b"\n")
    (_, found), report = read_episodes([path])
    assert len(found.turns[0].content) == 100_000_000
    assert report.num_malformed == 0


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_compression_is_told_by_content(tmp_path, kind):
    data = ROW + b"\n"
    packed = gzip.compress(data) if kind == "gz" else pyarrow.compress(data * 2000, "zstd", asbytes=True)
    path = tmp_path / "log.bin"
    path.write_bytes(packed)
    ids, report = _read(path)
    assert ids == ["good"]
    assert report.num_lines == (1 if kind == "gz" else 2000)
    assert report.num_malformed == 0


def test_a_gzip_file_cut_short_gives_what_was_there(tmp_path):
    path = tmp_path / "log.jsonl.gz"
    rows = b"".join(json.dumps(row).encode() + b"\n" for row in _rows(3000))
    packed = gzip.compress(rows, 1)
    path.write_bytes(packed[: len(packed) // 2])
    ids, report = _read(path)
    assert 500 < len(ids) < 2999
    assert report.num_malformed == 1
    assert "cannot be read on from here" in report.problems[0].reason


def test_documents_an_array_a_pretty_one_and_one_object(tmp_path):
    path = tmp_path / "log.json"
    for text in (
        json.dumps(_rows(3)),
        json.dumps(_rows(3), indent=2),
        json.dumps(_rows(3), indent=2) + "\n\n",
    ):
        path.write_text(text)
        ids, report = _read(path)
        assert ids == ["e0", "e1", "e2"]
        assert (report.num_malformed, report.num_lines) == (0, 3)
    path.write_text(json.dumps(_rows(1)[0], indent=2))
    assert _read(path)[0] == ["e0"]


def test_a_damaged_array_gives_its_whole_elements(tmp_path):
    path = tmp_path / "log.json"
    text = json.dumps(_rows(4), indent=2)
    path.write_text(text[: text.index('"e3"') + 40])
    ids, report = _read(path)
    assert ids == ["e0", "e1", "e2"]
    assert report.num_malformed == 1
    path.write_text(text.replace('"id": "e1"', '"id": e1'))
    ids, report = _read(path)
    assert ids == ["e0", "e2", "e3"]
    assert [p.line for p in report.problems] == [2]


def test_files_folders_globs_and_their_absence(tmp_path):
    (tmp_path / "in" / ".hidden").mkdir(parents=True)
    names = ["b.jsonl", "a.json", "c.ndjson.gz", ".hidden/d.jsonl", "notes.txt"]
    for name in names:
        (tmp_path / "in" / name).write_text("")
    inside = [str(tmp_path / "in" / name) for name in ("a.json", "b.jsonl", "c.ndjson.gz")]
    assert find_files([tmp_path / "in"]) == inside
    assert find_files([tmp_path / "in" / "*.jsonl", tmp_path / "in"]) == [inside[1], inside[0], inside[2]]
    assert find_files([tmp_path / "in" / "notes.txt"]) == [str(tmp_path / "in" / "notes.txt")]
    for wrong, why in (
        ([], "no agent log"),
        (["nowhere"], "does not exist"),
        ([tmp_path / "*.x"], "no file"),
        (["\0"], "does not exist"),
    ):
        with pytest.raises(TraceError, match=why):
            find_files(wrong)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="holds no"):
        find_files([tmp_path / "empty"])


def test_standard_input(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(ROW + b"\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    assert _read("-")[0] == ["good"]


def test_nothing_recognised_is_an_error_but_not_beside_a_file_that_is(tmp_path):
    odd = write_lines(tmp_path / "odd.jsonl", [{"a": 1}])
    with pytest.raises(TraceError, match="of no format we know"):
        _read(odd)
    write_lines(tmp_path / "good.jsonl", _rows(1))
    ids, report = _read(tmp_path)
    assert ids == ["e0"]
    assert report.notes["file of no format we know, skipped"] == 1
    (tmp_path / "odd.jsonl").write_text("\n")
    with pytest.raises(TraceError, match="holds no record: it is empty"):
        _read(odd)
    assert _read(tmp_path)[1].notes["file without a record, skipped"] == 1
    odd.write_text("{oops\n")
    with pytest.raises(TraceError, match="holds no record: no line of it can be read"):
        _read(odd)
    with pytest.raises(TraceError, match="unknown format 'x'"):
        _read(odd, format="x")


def test_records_say_where_they_stood(tmp_path):
    path = write_lines(tmp_path / "log.jsonl", _rows(2))
    assert [r.source for r in iter_records(str(path), ReadReport())] == [f"{path}:1", f"{path}:2"]


def test_a_log_without_ids_twice_is_kept_and_counted_as_attempts_may_say_the_same(tmp_path):
    """An id of one's own makes a copy a copy; a place in a file does not."""
    told = "episodes without an id that repeat an earlier one to the letter, kept: attempts may, copies of a file do"
    rows = [{"example_id": i // 2, "prompt": "q", "completion": f"a{i}", "reward": 0.0} for i in range(4)]
    episodes, report = read_episodes([write_lines(tmp_path / "twice.jsonl", rows + rows)])
    assert (len(episodes), report.notes[told]) == (8, 4)
    assert len({episode.id for episode in episodes}) == 8
    other = write_lines(tmp_path / "other.jsonl", rows[:1])
    assert read_episodes([tmp_path / "twice.jsonl", other])[1].notes[told] == 5
    named = [{"id": str(i), "messages": chat(), "reward": 1.0} for i in range(3)]
    episodes, report = read_episodes([write_lines(tmp_path / "named.jsonl", named + named)])
    assert len(episodes) == 3
    assert report.notes == {"episodes that are copies of one already read, dropped": 3}


def _compact(rows):
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def _comma_first(rows):
    return "[\n" + "\n,".join(json.dumps(row) for row in rows) + "\n]\n"


def _glued(rows):
    return "[" + ",\n".join(json.dumps(row) for row in rows) + "]\n"


def _prettier(rows):
    """As prettier writes it: what fits a line is on one."""

    def one(row):
        messages = ",\n".join(f"      {json.dumps(message)}" for message in row["messages"])
        return f'  {{\n    "id": "{row["id"]}",\n    "messages": [\n{messages}\n    ]\n  }}'

    return "[\n" + ",\n".join(map(one, rows)) + "\n]\n"


LAYOUTS = [_compact, _comma_first, _glued, _prettier, json.dumps, lambda rows: json.dumps(rows, indent=2)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1, 2, 3, 25, 49, 50, 51, 60, 120])
def test_an_array_is_read_whole_whatever_its_layout_and_size(tmp_path, layout, size):
    path = tmp_path / "log.json"
    text = layout(_rows(size))
    path.write_text("\n \n" + text)
    ids, report = _read(path)
    assert ids == [f"e{i}" for i in range(size)]
    assert (report.num_malformed, report.num_lines) == (0, size)
    path.write_text(text[: text.rindex(f'"e{size - 1}"') + 30])
    if size > 1:
        ids, report = _read(path)
        assert (ids, report.num_malformed) == ([f"e{i}" for i in range(size - 1)], 1)
        assert report.problems[0].line == size


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [2, 60])
def test_an_array_cut_between_its_elements_is_counted_as_cut(tmp_path, layout, size):
    path = tmp_path / "log.json"
    path.write_text(layout(_rows(size)).rstrip().removesuffix("]"))
    ids, report = _read(path)
    assert (ids, report.num_malformed) == ([f"e{i}" for i in range(size)], 1)
    assert "cut off" in report.problems[0].reason


@pytest.mark.parametrize("first", ["[", "[1]", "[1,", '[{"id": "e"},', '[{"id": "cut', "{", "  [ "])
@pytest.mark.parametrize("size", [1, 2, 49, 60])
def test_lines_after_a_malformed_first_one_are_read(tmp_path, first, size):
    path = tmp_path / "log.jsonl"
    path.write_text(first + "\n" + "".join(json.dumps(row) + "\n" for row in _rows(size)))
    ids, report = _read(path)
    if (first, size) != ('[{"id": "e"},', 1):  # an array cut off after its second element is written so too
        assert (ids, report.num_malformed) == ([f"e{i}" for i in range(size)], 1)
        assert report.problems[0].line == 1


def test_one_object_as_prettier_writes_it(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(_prettier(_rows(1)).strip()[1:-1])
    ids, report = _read(path)
    assert (ids, report.num_malformed) == (["e0"], 0)


def test_what_follows_an_array_is_counted(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(_rows(2)) + " and more")
    ids, report = _read(path)
    assert (ids, report.num_malformed) == (["e0", "e1"], 1)


@pytest.mark.parametrize("kind", ["parquet", "eval"])
def test_what_standard_input_cannot_be_read_as_is_said(monkeypatch, tmp_path, kind):
    packed = tmp_path / f"log.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"id": ["a"]}), packed)
    else:
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("header.json", "{}")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed.read_bytes())))
    with pytest.raises(TraceError, match="cannot be read from standard input; write it to a file") as refused:
        _read("-")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: pyarrow.compress(data, "zstd", asbytes=True)])
def test_compressed_standard_input_is_read(monkeypatch, pack):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(ROW + b"\n"))))
    assert _read("-")[0] == ["good"]


TOOLS = [{"type": "function", "function": {"name": "f"}}]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_mapped_columns_that_are_json_text_are_read(tmp_path, kind):
    turn = [{"role": "user", "content": "[1]"}]
    answer = [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}]  # fmt: skip
    row = {
        "talk": json.dumps(turn + answer),
        "q": json.dumps(turn),
        "a": json.dumps(answer),
        "t": json.dumps(TOOLS),
    }
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    else:
        write_lines(path, [row])
    for mapping in ({"messages": "talk", "tools": "t"}, {"prompt": "q", "completion": "a", "tools": "t"}):
        (found,), report = read_episodes([path], mapping=mapping)
        assert [(t.role, t.content) for t in found.turns] == [("user", "[1]"), ("assistant", None)]
        assert [call.name for call in found.calls] == ["f"]
        assert (found.tools, report.num_malformed) == (TOOLS, 0)


def test_mapped_text_that_is_no_list_of_messages_stays_text(tmp_path):
    texts = ["[1, 2]", '{"a": 1}', "3", "null", "[not json", "plain", "[]", '["a"]']
    path = write_lines(tmp_path / "log.jsonl", [{"q": text, "a": text} for text in texts])
    found, _ = read_episodes([path], mapping={"prompt": "q", "completion": "a"})
    assert [[t.content for t in e.turns] for e in found] == [[text, text] for text in texts]
    path = write_lines(tmp_path / "broken.jsonl", [{"m": "[{broken"}, {"m": json.dumps(chat())}])
    _, report = read_episodes([path], mapping={"messages": "m"})
    assert [p.line for p in report.problems] == [1]


@pytest.mark.parametrize("indent", ["", " ", "  "])
@pytest.mark.parametrize("broken", [0, 20, 59])
def test_damage_in_an_array_that_begins_behind_its_bracket_costs_one_element(tmp_path, indent, broken):
    rows = [json.dumps({"id": str(i), "messages": chat(), "reward": 1.0}) for i in range(60)]
    rows[broken] = rows[broken].replace('"reward"', '"reward', 1)
    path = tmp_path / "array.json"
    path.write_text("[" + f",\n{indent}".join(rows) + "]\n")
    episodes, report = read_episodes([path], format="messages")
    assert [e.id for e in episodes] == [str(i) for i in range(60) if i != broken]
    assert report.num_malformed == 1


def test_the_first_bad_line_is_named_first_though_lines_are_parsed_ahead_of_their_reader(tmp_path):
    path = tmp_path / "m.jsonl"
    good = json.dumps({"messages": chat(), "reward": 1.0})
    path.write_text(f'{good}\n{{"messages": "oops"}}\nnot json\n{good}\n')
    _, report = read_episodes([path])
    assert [problem.line for problem in report.problems] == [2, 3]
    with pytest.raises(TraceError, match=r"m\.jsonl:2: no messages"):
        read_episodes([path], strict=True)
    path.write_text('not json\n{"messages": "oops"}\n')
    with pytest.raises(TraceError, match=r"m\.jsonl:1: "):
        read_episodes([path], strict=True)
