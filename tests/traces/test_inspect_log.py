"""Inspect's logs as inspect_ai 0.3.285 writes them: Zstandard inside the zip, scores of several kinds, tools that raise."""

from __future__ import annotations

import json
import math
import struct
import zlib

import pyarrow
import pytest

from tests.traces import samples
from tests.traces.make import write_lines
from trimtab.errors import TraceError
from trimtab.traces.read import read_episodes

ZSTD = 93


def zstd_zip(path, members):
    """A zip whose members are packed with Zstandard, which zipfile cannot write before Python 3.14."""
    body, directory = b"", b""
    for name, value in members.items():
        plain = json.dumps(value).encode()
        packed = pyarrow.compress(plain, codec="zstd", asbytes=True)
        sizes = struct.pack("<HHIIIHH", 0, 0, zlib.crc32(plain), len(packed), len(plain), len(name), 0)
        directory += struct.pack("<4sHHHH", b"PK\1\2", 20, 20, 0, ZSTD) + sizes
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name.encode()
        body += struct.pack("<4sHHH", b"PK\3\4", 20, 0, ZSTD) + sizes + name.encode() + packed
    size = len(members)
    path.write_bytes(
        body
        + directory
        + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, size, size, len(directory), len(body), 0)
    )
    return path


def members():
    log = samples.inspect()
    head = {k: v for k, v in log.items() if k != "samples"}
    return {"header.json": head} | {f"samples/{i}_epoch_1.json": s for i, s in enumerate(log["samples"])}


def read_sample(tmp_path, **fields):
    log = samples.inspect()
    log["samples"] = [{**log["samples"][0], **fields}]
    (found,), report = read_episodes([write_lines(tmp_path / "log.json", [log])])
    return found, report


def test_an_eval_log_packed_with_zstandard_has_the_episodes_of_its_json(tmp_path):
    plain, _ = read_episodes([write_lines(tmp_path / "log.json", [samples.inspect()])])
    found, report = read_episodes([zstd_zip(tmp_path / "log.eval", members())])
    assert [e.id for e in found] == [e.id for e in plain]
    assert [e.reward for e in found] == [1.0, 1.0]
    assert found[0].calls[0].error == "5 s"
    assert report.num_malformed == 0


@pytest.mark.parametrize(("at", "why"), [(0, "no file where"), (60, "samples/0_epoch_1.json")])
def test_a_damaged_zstandard_sample_is_counted_and_the_others_are_read(tmp_path, at, why):
    path = zstd_zip(tmp_path / "log.eval", members())
    raw = bytearray(path.read_bytes())
    place = raw.index(b"samples/0_epoch_1.json") - 30 + at
    raw[place : place + 4] = b"\0\0\0\0"
    path.write_bytes(raw)
    found, report = read_episodes([path])
    assert [e.id for e in found] == ["1/3"]
    assert why in report.problems[0].reason


def test_without_a_decompressor_it_is_said_what_to_install(tmp_path, monkeypatch):
    path = zstd_zip(tmp_path / "log.eval", members())

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("trimtab.traces.files.decompress.importlib.import_module", missing)
    with pytest.raises(TraceError, match="pip install zstandard"):
        read_episodes([path])


def test_scores_of_several_values_are_parts_and_the_first_is_the_reward(tmp_path):
    scores = {
        "rubric": {"value": {"fact": "P", "style": 0.25}},
        "list": {"value": [True, "no"]},
        "words": {"value": "Yes"},
        "text": {"value": "very good"},
    }
    found, report = read_sample(tmp_path, scores=scores)
    parts = {"rubric/fact": 0.5, "rubric/style": 0.25, "list/0": 1.0, "list/1": 0.0, "words": 1.0}
    assert found.reward_parts == parts
    assert found.reward == 0.5
    assert report.notes["scores that are no number, left out"] == 1


def test_a_score_that_is_nan_was_not_given(tmp_path):
    found, report = read_sample(tmp_path, scores={"judge": {"value": math.nan}, "match": {"value": "I"}})
    assert (found.reward, found.reward_parts) == (0.0, {"match": 0.0})
    (note,) = (n for why, n in report.notes.items() if "NaN" in why)
    assert note == 1
    alone, _ = read_sample(tmp_path, scores={"judge": {"value": math.nan}})
    assert alone.reward is None


def test_a_tool_that_raised_failed(tmp_path):
    call = {"id": "c", "function": "crash", "arguments": {}, "type": "function"}
    event = {
        "event": "tool", "id": "c", "function": "crash", "timestamp": "2026-11-22T02:00:00+00:00",
        "completed": "2026-11-22T02:00:01.5+00:00", "failed": True, "result": "",
    }  # fmt: skip
    fields = {"messages": [{"role": "assistant", "content": "", "tool_calls": [call]}], "scores": {}}
    found, _ = read_sample(tmp_path, **fields, events=[event], error={"message": "RuntimeError('boom')"})
    (made,) = found.calls
    assert (made.error, made.error_from, made.latency_s) == ("RuntimeError('boom')", "log", 1.5)
    assert found.stop_reason == "error"
    sound, _ = read_sample(tmp_path, **fields, events=[{**event, "failed": None}])
    assert sound.calls[0].error == ""


def test_arguments_that_inspect_could_not_parse_are_bad_arguments(tmp_path):
    said = 'Error parsing the following tool call arguments:\n\n{"x": 1,,}\n\nError details: no'
    call = {"id": "c", "function": "add", "arguments": {}, "parse_error": said}
    found, _ = read_sample(tmp_path, messages=[{"role": "assistant", "content": "", "tool_calls": [call]}])
    (made,) = found.calls
    assert (made.bad_arguments, made.error_from) == ('{"x": 1,,}', "parse")


def test_what_a_sample_says_of_other_attempts_is_counted(tmp_path):
    _, report = read_sample(tmp_path, error_retries=[{"message": "boom"}] * 2, invalidation={"author": "a"})
    assert sum(n for why, n in report.notes.items() if "made again" in why) == 2
    assert sum(n for why, n in report.notes.items() if "invalid" in why) == 1


@pytest.mark.parametrize("kind", ["json", "eval"])
def test_a_log_without_samples_says_so(tmp_path, kind):
    head = {"version": 2, "status": "success", "plan": {}, "eval": {"model": "m"}}
    path = tmp_path / f"log.{kind}"
    if kind == "eval":
        zstd_zip(path, {"header.json": head})
    else:
        write_lines(path, [head])
    found, report = read_episodes([path])
    assert found == []
    assert list(report.formats.values()) == ["inspect"]
    assert sum(n for why, n in report.notes.items() if "without samples" in why) == 1


def test_a_sample_that_unpacks_to_something_else_is_counted(tmp_path):
    path = zstd_zip(tmp_path / "log.eval", members())
    raw = bytearray(path.read_bytes())
    place = raw.rindex(b"samples/0_epoch_1.json") - 46 + 16  # its CRC-32 in the directory
    raw[place] ^= 1
    path.write_bytes(raw)
    found, report = read_episodes([path])
    assert [e.id for e in found] == ["1/3"]
    assert "CRC-32" in report.problems[0].reason
