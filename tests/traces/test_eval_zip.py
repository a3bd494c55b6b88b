"""Inspect's .eval: the same episodes as of its JSON, and no damage stops the other samples."""

from __future__ import annotations

import json
import zipfile

import pytest

from tests.traces import samples
from tests.traces.make import write_lines
from trimtab.errors import TraceError
from trimtab.traces.native.native_format import dump_episode
from trimtab.traces.read import read_episodes


def write_eval(path, log, head="header.json", method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(head, json.dumps({k: v for k, v in log.items() if k != "samples"}))
        for number, sample in enumerate(log["samples"]):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))
        archive.writestr("summaries.json", "[]")
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("head", ["header.json", "_journal/start.json"])
def test_an_eval_log_has_the_episodes_of_its_json(tmp_path, head, method):
    plain, _ = read_episodes([write_lines(tmp_path / "log.json", [samples.inspect()])])
    write_eval(tmp_path / "evals.eval", samples.inspect(), head, method)
    (tmp_path / "log.json").unlink()
    found, report = read_episodes([tmp_path])
    assert list(report.formats.values()) == ["inspect"]
    assert len(found) == len(plain) == report.num_lines == 2
    for one, other in zip(found, plain, strict=True):
        one.source = other.source = ""
        assert dump_episode(one) == dump_episode(other)


def test_a_damaged_sample_is_counted_and_the_others_are_read(tmp_path):
    path = write_eval(tmp_path / "log.eval", samples.inspect(), method=zipfile.ZIP_STORED)
    raw = path.read_bytes()
    at = raw.index(b"samples/0_epoch_1.json") + 40
    path.write_bytes(raw[:at] + b"#" + raw[at + 1 :])
    found, report = read_episodes([path])
    assert len(found) == 1
    ((file, line, reason),) = report.problems
    assert (file, line) == (str(path), 1)
    assert "samples/0_epoch_1.json" in reason


@pytest.mark.parametrize(
    ("damage", "why"),
    [("cut", "cannot be read as a zip"), ("other", "no Inspect log"), ("head", "is not a JSON object")],
)
def test_a_zip_that_is_no_log_says_so(tmp_path, damage, why):
    path = write_eval(
        tmp_path / "log.eval", samples.inspect(), "readme.txt" if damage == "other" else "header.json"
    )
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:200])
    if damage == "head":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", "[1]")
    with pytest.raises(TraceError, match=why):
        read_episodes([path])
