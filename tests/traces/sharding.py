"""Logs read in one piece and in shards, which must give the same table; and random step logs to try it on."""

from __future__ import annotations

import dataclasses
import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files import shards
from trimtab.traces.files.find import find_files
from trimtab.traces.read import iter_episodes
from trimtab.traces.table.build import tabulate
from trimtab.traces.table.required_files import RequiredFiles
from trimtab.traces.table.types import TraceTable
from trimtab.traces.table_of_logs import tabulate_shards

WORDS = [
    "привет", "Прогноз погоды на завтра", "今日は", "今日の天気はどうですか、晴れでしょうか", "good morning all", "ok 42", "42", "naïve — “quoted”", "日本 and thirty letters more",
    "I'm sorry, but I can't help with that.", "Well. Unfortunately, I cannot assist", "I can't find row 7", "They said I will not help", "Als KI: as an AI language model, nein",
    "x" * 239 + ". I can't help", "I can’t help you, мой друг, " * 20, "a" * 9 + "é",
    "\u0130 CAN'T HELP", "ελληνικά γράμματα", "한국어 텍스트 열 글자 이상입니다", "🚫 🙂", "\U00020000\U00020001",
    "调用 search_documents 工具，再看 Visual Studio Code", "查 \u00e9l\u00e8ve  two\nthree four 了", "Погода: one two, three four", "да one two three",
]  # fmt: skip
ERRORS = ["TimeoutError: 5 s", "HTTP 503", "Error: no row 7", "unknown tool x", "ValueError: bad", ""]


def far(function, jobs):
    """As worker processes do it: what goes there and what comes back travels."""
    for job in jobs:
        yield pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(job)))))


def in_shards(
    paths: Sequence[Path | str], report: ReadReport, size: int = 400, format: str | None = None,
    mapping: dict[str, str] | None = None, required: RequiredFiles | None = None,
) -> TraceTable:  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD_BYTES", size)
        patch.setattr("trimtab.traces.step_shards.SHARD_BYTES", size)
        return tabulate_shards(find_files(paths), report, format, mapping, required, far)


def same(
    *paths: Path | str, sizes: Sequence[int] = (150, 3_000, 10**8), format: str | None = None,
    mapping: dict[str, str] | None = None, patterns: Any = (), files: Sequence[str] = (),
) -> TraceTable:  # fmt: skip
    """The table of the logs, which is the same in one piece and in shards of these sizes, reports included."""

    def required() -> RequiredFiles:
        return RequiredFiles(files, {"read": "path"})

    report = ReadReport(error_patterns=patterns)
    table = tabulate(iter_episodes(paths, report, format, mapping), required())
    for size in sizes:
        other = ReadReport(error_patterns=patterns)
        equal(table, in_shards(paths, other, size, format, mapping, required()))
        for field in ("notes", "num_lines", "num_malformed", "num_episodes", "problems", "cut", "formats", "mapped", "missed", "used"):  # fmt: skip
            assert getattr(other, field) == getattr(report, field), field
    return table


def equal(a: TraceTable, b: TraceTable) -> None:
    for field in dataclasses.fields(TraceTable):
        mine, other = getattr(a, field.name), getattr(b, field.name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, other, err_msg=field.name)
        elif field.name in ("counts", "marks"):
            assert {k: v.tolist() for k, v in mine.items()} == {k: v.tolist() for k, v in other.items()}
        elif field.name in ("tools", "files"):
            assert list(mine) == list(other)
            assert repr(mine) == repr(other), field.name  # nan is nan
        elif field.name == "evidence":
            assert list(mine.items()) == list(other.items())
        else:
            assert mine == other, field.name


def random_log(rng: random.Random, episodes: int, dirt: float, words: bool = False) -> list[dict[str, Any]]:
    """Interleaved episodes with parallel calls, orphans, repeats, loops, parse errors and missing fields."""
    open_now: list[list[dict[str, Any]]] = []
    for number in range(episodes):
        rows: list[dict[str, Any]] = []
        for _ in range(rng.randint(0, 12)):
            kind = rng.choice(
                [
                    "tool_call",
                    "tool_call",
                    "tool_result",
                    "tool_result",
                    "assistant_message",
                    "user_message",
                    "tool_parse_error",
                    "other",
                ]
            )
            row: dict[str, Any] = {
                "type": kind,
                "tool": rng.choice(["a", "b", "c", None, ""]) if "tool" in kind else None,
            }
            if kind == "tool_call":
                row["args"] = rng.choice([{"q": 1}, {"q": 2}, None, "text", [1, 2]])
            if kind == "tool_result":
                row |= {
                    "result": rng.choice(["r", "s", "Error: in text 5", {"x": 1}, None]),
                    "error": rng.choice([None, None, *ERRORS]),
                }
            if "message" in kind:
                row["content"] = rng.choice(["hello", "", " ", None, *(WORDS if words else ())])
            if words and rng.random() < 0.5:
                row["type"] = {
                    "user_message": "user",
                    "assistant_message": "assistant",
                    "other": "system",
                }.get(kind, kind)
                if kind == "other":
                    row["content"] = rng.choice(WORDS)
                if kind == "tool_result":
                    row["result"] = rng.choice(WORDS)
            rows.append(row)
        if rng.random() < 0.2:
            pair = [
                {"type": "tool_call", "tool": "l", "args": {"z": 1}},
                {"type": "tool_result", "tool": "l", "result": "same"},
            ]
            rows += [dict(row) for _ in range(rng.randint(2, 5)) for row in pair]
        if rng.random() < 0.8:
            end = {
                "type": "episode_end",
                "reward": rng.choice([0, 1, 0.5, None]),
                "success": rng.choice([True, False, None]),
                "total_tokens": rng.choice([None, 50]),
                "total_cost": rng.choice([None, 0.25, "0.5"]),
            }
            rows.append(
                end
                | {
                    "metadata": rng.choice(
                        [
                            {},
                            {
                                "task_id": f"t{number % 7}",
                                "group_id": rng.choice([None, f"g{number % 3}"]),
                                "stop_reason": rng.choice(["stop", "max_steps"]),
                            },
                            None,
                        ]
                    )
                }
            )
        if rows and rng.random() < 0.3:
            said = {rng.choice(["task_id", "prompt_id", "group"]): f"r{number % 3}"}
            rows[rng.choice([0, 0, -1])] |= said if rng.random() < 0.5 else {"metadata": said}
        scattered = rng.random() < dirt
        for i, row in enumerate(rows):
            row |= {
                "episode_id": f"e{number}",
                "step": None if scattered and rng.random() < 0.3 else i,
                "timestamp": 1e9 + number + 0.25 * i,
            }
            row["tokens"] = rng.choice([None, 7, 20])
        if rng.random() < dirt and rows:
            rows += [dict(rng.choice(rows)) for _ in range(2)]
            rng.shuffle(rows)
        open_now.append(rows)
    mixed = []
    while open_now := [rows for rows in open_now if rows]:
        mixed.append(rng.choice(open_now[:4]).pop(0))
    return mixed
