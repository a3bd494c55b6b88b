"""7,000 mutated inputs over the readers: no exception but ours, no lost valid line, whatever is in the line between two good ones."""

from __future__ import annotations

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.traces import samples
from trimtab.errors import TraceError
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.export.prm_steps import step_rows
from trimtab.traces.export.samples import sample_of
from trimtab.traces.export.token_columns import tokens_of
from trimtab.traces.follow import Follower
from trimtab.traces.native.native_format import dump_episode
from trimtab.traces.read import iter_episodes
from trimtab.traces.registry import FORMATS
from trimtab.traces.table.episode_facts import facts_of

RECORD_EXAMPLES, LINE_EXAMPLES = 110, 50
PLACEMENTS = (0, 1, 3, 7, 20)
"""What an example draws is done at so many places, as drawing takes longer than reading: 5 x (110 x 11 + 50 x 5 formats) = 7,300 inputs."""
Keys = tuple[Any, ...]

_QUIET = {
    "deadline": None, "derandomize": True, "database": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
}  # fmt: skip
ODD = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            -1,
            1.5,
            float("nan"),
            float("inf"),
            10**30,
            2**63,
            "",
            "x",
            "[{",
            "{}",
            "\ud800",
            "1e999",
            "NaN",
        ]
    ),
    st.sampled_from([[], {}, [[]], [None], {"a": {}}, [{"role": 1}], {"role": None, "content": []}]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    ),
)
EDITS = st.lists(st.tuples(st.integers(0, 10_000), st.booleans(), ODD), min_size=1, max_size=3)
BYTES = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from(["set", "cut", "insert", "drop", "double"]), st.binary(min_size=1, max_size=4)),
    min_size=1,
    max_size=4,
)  # fmt: skip


def _paths(value: Any, at: Keys = ()) -> list[Keys]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at] + [path for key, item in items for path in _paths(item, (*at, key))]


def edited(record: Any, edits: list[tuple[int, bool, Any]], shift: int = 0) -> Any:
    """Replace or remove what stands at some places of a record."""
    record = copy.deepcopy(record)
    for number, remove, value in edits:
        paths = _paths(record)[1:]
        if not paths:
            return value
        path = paths[(number + shift) % len(paths)]
        place = record
        for key in path[:-1]:
            place = place[key]
        if remove:
            del place[path[-1]]
        else:
            place[path[-1]] = copy.deepcopy(value)
    return record


def damaged(line: bytes, edits: list[tuple[int, str, bytes]], shift: int = 0) -> bytes:
    """Damage a line in some places."""
    for number, how, what in edits:
        at = (number + 31 * shift) % (len(line) + 1)
        line = {
            "set": line[:at] + what + line[at + len(what) :],
            "cut": line[:at],
            "insert": line[:at] + what + line[at:],
            "drop": line[:at] + line[at + len(what) :],
            "double": line[:at] + line,
        }[how]
    return line


def _use(episode: Any) -> None:
    """What the commands do with an episode."""
    dump_episode(episode)
    facts_of(episode)
    sample_of(episode, 1.0)
    tokens_of(episode)
    step_rows([episode], Counter())


@pytest.mark.parametrize("name", samples.RECORDS)
def test_no_mutation_of_a_record_stops_its_reader(name):
    records = samples.RECORDS[name]

    @settings(max_examples=RECORD_EXAMPLES, **_QUIET)
    @given(st.lists(EDITS | st.none(), min_size=len(records), max_size=len(records)))
    def check(edits):
        for shift in PLACEMENTS:
            chosen = [r if e is None else edited(r, e, shift) for r, e in zip(records, edits, strict=True)]
            report = ReadReport()
            try:
                for episode in FORMATS[name].read({})(
                    [Record("f", i, v) for i, v in enumerate(chosen, 1)], report
                ):
                    _use(episode)
            except TraceError:
                assert name == "trimtab"  # a version of the format we do not know

    check()


def _good(name: str, which: str) -> tuple[bytes, str]:
    """A valid line of a format and text that its episode must hold."""
    text, mark = json.dumps(samples.RECORDS[name][0]), f"mark-{which}"
    wanted = {"trimtab": '"?"', "messages": '"Where is x?"', "verifiers": '"Where is x?"', "verl": '"user\\nWhere?"', "trl": '"Where?"'}  # fmt: skip
    assert text.count(wanted[name]) == 1
    return text.replace(wanted[name], json.dumps(mark)).encode(), mark


def _check_neighbours(path: Path, name: str, one: str, two: str) -> None:
    report, growing = ReadReport(), ReadReport()
    try:
        found = [dump_episode(e) for e in iter_episodes([path], report, name)]
    except TraceError:
        assert name == "trimtab"  # a damaged line may say that it is of a later version
        return
    assert any(one in text for text in found)
    assert any(two in text for text in found)
    assert report.num_lines >= 2
    follower = Follower(path, growing, name)
    assert follower.poll() == len(found)
    assert (growing.num_lines, growing.num_malformed) == (report.num_lines, report.num_malformed)


@pytest.mark.parametrize("name", ["trimtab", "messages", "verifiers", "verl", "trl"])
def test_no_damaged_line_costs_its_neighbours(tmp_path, name):
    """The whole way from bytes, and the same while the file grows; the line's bytes may hold newlines of their own."""
    (first, one), (last, two) = _good(name, "one"), _good(name, "two")
    between, path = json.dumps(samples.RECORDS[name][0]).encode(), tmp_path / "log.jsonl"

    @settings(max_examples=LINE_EXAMPLES, **_QUIET)
    @given(BYTES)
    @example([(0, "cut", b"x")])
    @example([(5, "insert", b"\n")])
    def check(edits):
        for shift in PLACEMENTS:
            path.write_bytes(first + b"\n" + damaged(between, edits, shift) + b"\n" + last + b"\n")
            _check_neighbours(path, name, one, two)

    check()
