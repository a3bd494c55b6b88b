"""Logs of coding agents and of chats in which a field holds what it never should: a list, an object. No reader may end by it, nor may
the recognition of a format, which sees each record of any log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.registry import FORMATS, find_format
from trimtab.traces.table.episode_facts import facts_of

FIXTURES = Path(__file__).parent / "fixtures"
CODING, CHATS = FIXTURES / "coding_agents", FIXTURES / "multi_agent"
LOGS = [
    CODING / "claude-stream.jsonl", CODING / "claude-errors.jsonl", CODING / "rollout-main.jsonl", CODING / "codex-exec.jsonl",
    CODING / "openhands" / "events.jsonl", CODING / "openhands" / "trajectory.json", CODING / "harbor" / "fix-add__one" / "agent" / "trajectory.json",
    *sorted(CHATS.glob("*.json")), *sorted((CHATS / "ag2-store").glob("*.jsonl")),
]  # fmt: skip


def records_of(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    whole = json.loads(text)
    return whole if isinstance(whole, list) else [whole]


def odd(value, key, replacement, depth):
    """The record with the replacement under each such key, down to a depth."""
    if not isinstance(value, dict):
        return value
    inner = {name: odd(item, key, replacement, depth - 1) for name, item in value.items()} if depth else value
    return {**inner, key: replacement} if key in value else inner


@pytest.mark.parametrize("replacement", [["x"], {"a": 1}], ids=["list", "object"])
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name[-24:])
def test_no_field_that_holds_an_odd_value_stops_a_reader(path, replacement):
    rows = records_of(path)
    name = find_format(rows)
    keys = {key for row in rows for key in row} | {
        key for row in rows for item in row.values() if isinstance(item, dict) for key in item
    }
    for key in sorted(keys):
        changed = [odd(row, key, replacement, 1) if i % 3 == 0 else row for i, row in enumerate(rows)]
        find_format(changed)
        records = [Record(str(path), i, row) for i, row in enumerate(changed, 1)]
        for episode in FORMATS[name].read({})(records, ReadReport()):
            facts_of(episode)
