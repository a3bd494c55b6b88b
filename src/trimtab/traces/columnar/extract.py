"""A shard of step JSONL to narrow columns by DuckDB: the only pass over the bytes.

What is read off a line here is what `traces.steps` reads off it; a test holds the two together. Texts are hashed where they lie;
only errors, names and what ends an episode come out as text. A line DuckDB reads as nothing is looked at again by `parse_json`:
it is malformed, or (lone surrogates) read after all.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from trimtab.traces.columnar.duckdb_connection import desk
from trimtab.traces.columnar.language import scripts_in
from trimtab.traces.columnar.shards import Shard, lines_of
from trimtab.traces.columnar.sql import (
    BAD,
    MAX_BYTES,
    MESSAGE,
    NEW_TOOL,
    REFUSAL,
    RESULT,
    VOID,
    ids_query,
    rows_query,
)
from trimtab.traces.core.coerce import as_text
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.errors.patterns import starts_as_error
from trimtab.traces.table.language import refuses
from trimtab.typing import Array

_WHOLE = 2.0**53  # from here on no number says which whole one it is
_WORDED = ("content", "result", "error")
_UNUSED = ("new_tool", "err", "words", "reward", "total", "cost", "stop")
_LIST = re.compile(rb'"(?:content|result|error)"\s*:\s*\[\s*\{')
Columns = dict[str, Array]
"""(R,) each: eh, step, kind, tool (code), h, ts, latency, tokens, err (code; of a refusal its words), name, scripts (`columns_words`), and of
ends reward, odd_reward, success, total, cost, task, group, stop; `has_name`, `has_task`, `has_group`: is there one? `told`: a field says that the call failed. `row` counts the shard's lines that are not blank."""


@dataclass
class Rows:
    """A shard's steps. `tools`, `errors`: texts behind the codes. `problems`: line in the shard, and why it was left out."""

    columns: Columns
    tools: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    num_lines: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)


def read_rows(shard: Shard, tools: Sequence[str], numeric_time: bool) -> Rows:
    """The steps of a shard; `tools`: names known so far, others are added behind them."""
    query = partial(rows_query, tools, numeric_time, desk().scripts)
    columns = _run(shard, query)
    if columns is not None and not desk().scripts and columns["has_words"].any():
        desk().scripts = True  # what one shard has, the next will have
        query = partial(rows_query, tools, numeric_time, True)
        columns = _run(shard, query)
    problems: dict[int, tuple[int, str]] = {}
    if columns is None or (columns["kind"] == BAD).any() or columns["parts"].any():
        problems, mended = _second_look(shard, columns)
        columns = columns if mended is None else _run(mended, query)
        assert columns is not None
        for row in np.flatnonzero(columns["kind"] == BAD).tolist():
            problems.setdefault(row, (row + 1, "read by Python's json, but not by DuckDB"))
    lines = columns["kind"].size
    columns["row"] = np.arange(lines)
    if problems:
        kept = columns["kind"] != BAD
        columns = {name: column[kept] for name, column in columns.items()}
    return _coded(columns, list(tools), lines, [problems[row] for row in sorted(problems)])


def _run(shard: Shard, query: Callable[[int], str]) -> Columns | None:
    """The query's columns; None where a line is longer than DuckDB is asked to read. Long ones are tried only when there is one."""
    import duckdb

    for size in MAX_BYTES:
        try:
            return desk().columns(shard, query(size), size)
        except duckdb.Error as error:
            if "maximum_object_size" not in str(error):
                raise
    return None


def _coded(columns: Columns, tools: list[str], lines: int, problems: list[tuple[int, str]]) -> Rows:
    """Texts of errors and of tools not yet known to codes."""
    names, known = columns.pop("new_tool"), dict(zip(tools, range(len(tools)), strict=True))
    for row in np.flatnonzero(columns["tool"] == NEW_TOOL).tolist():
        columns["tool"][row] = known.setdefault(names[row], len(known))
    step = columns["step"]
    step[~((np.abs(step) < _WHOLE) & (step == np.floor(step)))] = np.nan
    columns["odd_reward"] = columns.get("has_reward", True) & ~np.isfinite(columns["reward"])
    worded, wrong = np.flatnonzero(columns["has_words"]), np.flatnonzero(columns["has_err"])
    for name in ("parts", *(f"has_{name}" for name in _UNUSED)):
        columns.pop(name, None)
    kind, texts, errors = columns["kind"], columns["err"], dict[str, int]()
    columns["scripts"] = scripts_in(
        columns.pop("latin"), columns.pop("words"), worded, (kind == MESSAGE) | (kind == VOID)
    )
    columns["err"] = np.full(texts.size, -1, np.int32)
    for row in wrong.tolist():
        if kind[row] == MESSAGE:
            if not refuses(texts[row]):
                continue
            kind[row] = REFUSAL
            columns["err"][row] = errors.setdefault(texts[row], len(errors))
        elif columns["told"][row] or columns["kind"][row] != RESULT or starts_as_error(texts[row]):
            columns["err"][row] = errors.setdefault(texts[row], len(errors))
    return Rows(columns, list(known), list(errors), lines, problems)


def _second_look(shard: Shard, columns: Columns | None) -> tuple[dict[int, tuple[int, str]], Shard | None]:
    """Lines DuckDB made nothing of (None: it read none), and those that may hold content of parts: row -> line and why it is malformed,
    and the shard rewritten if others were among them."""
    problems, lines, mended = dict[int, tuple[int, str]](), list[bytes](), columns is None
    bad, parts = (None, None) if columns is None else (columns["kind"] == BAD, columns["parts"])
    for row, (line, failure) in enumerate(lines_of(shard)):
        text = line.text
        if failure or bad is None or bad[row]:
            why = failure or _reason(line.text, line.ended)
            if why:
                problems[row], text = (line.number, why), b"0"
            else:
                text, mended = _flat(parse_json(text)), True
        elif parts is not None and parts[row] and _LIST.search(text):
            with contextlib.suppress(BadJson):  # what DuckDB reads and Python does not
                text, mended = _flat(parse_json(text)), True
        lines.append(text)
    return problems, shard._replace(data=b"\n".join(lines)) if mended else None


def _flat(step: dict[str, Any]) -> bytes:
    """The line again, with content of parts (a list of typed objects) as the readers' text.

    DuckDB knows such a list as the JSON it was, which is no words: no refusal would begin it, and its keys are Latin letters."""
    flat = {name: as_text(step[name]) for name in _WORDED if isinstance(step.get(name), list)}
    return json.dumps({**step, **flat}, ensure_ascii=False).encode("utf-8", "replace")


def _reason(text: bytes, ended: bool) -> str:
    """Why a line is malformed, in the words of the readers; empty when it is a step after all."""
    try:
        value = parse_json(text)
    except BadJson as error:
        return f"{'' if ended else 'cut off at the end of the file; '}{error}"
    if not isinstance(value, dict):
        return f"a JSON {type(value).__name__} where an object should be"
    if value.get("episode_id") is None:
        return "no episode_id"
    return "" if isinstance(value.get("type"), str) else "no type"


def ids_of(shard: Shard, hashes: Array) -> dict[int, str]:
    """Hash -> id of those of the episodes that the shard has."""
    wanted = set(hashes.tolist())
    found = _run(shard, ids_query)
    if found is None:
        return {}
    pairs = zip(found["eh"].tolist(), found["id"].tolist(), strict=True)
    return {h: str(name) for h, name in pairs if h in wanted}
