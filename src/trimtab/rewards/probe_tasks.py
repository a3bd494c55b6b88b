"""Tasks that a reward is probed on: the user's own rows, or ten small ones with a number as answer."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.errors import RewardError
from trimtab.rewards.function_call import ANSWER_NAMES, COMPLETION_NAMES, PROMPT_NAMES

MAX_TASKS = 12
"""Tasks of one probe: enough that an exploit of one odd row is not read as one of the reward."""
_BUILT_IN = (
    ("A crate holds 17 jars. How many jars are in 3 crates?", "51"),
    ("A train leaves at 9 and needs 14 hours. It is delayed by 5. How long is it under way?", "19"),
    ("Half of 148 guests leave. How many stay?", "74"),
    ("What is the sum of the first 7 odd numbers?", "49"),
    ("A book of 212 pages misses 9 of them. How many are left?", "203"),
    ("How many days have 12 weeks?", "84"),
    ("The product of 8 and 17, less 10, is what?", "126"),
    ("Each of 5 shelves has 7 boxes of 10 pens. How many pens are there?", "350"),
    ("What is the remainder of 100 divided by 83?", "17"),
    ("A square has an area of 841. How long is a side?", "29"),
)


@dataclass(frozen=True)
class ProbeTask:
    """One task."""

    prompt: str
    answer: str
    wrong: tuple[str, ...]  # answers of the same kind that are wrong; neither holds the right one as text
    columns: Mapping[str, Any] = field(default_factory=dict)  # the row as the reward is given it
    completion: str = ""  # what a run wrote, where the row has it


def built_in_tasks() -> list[ProbeTask]:
    """Return ten arithmetic tasks, whose prompts do not hold their answers."""
    return _tasks([{"prompt": prompt, "answer": answer} for prompt, answer in _BUILT_IN])


def load_tasks(path: Path, limit: int = MAX_TASKS) -> list[ProbeTask]:
    """Return tasks of a file of rows: JSON lines, a JSON list, CSV or Parquet.

    Args:
        path: rows with a prompt (prompt, question, problem) and an answer (answer, solution, ...).
        limit: rows to keep, evenly spread over the file; 0 keeps all.

    Raises:
        RewardError: no such file, not one of these formats, or rows without a prompt or an answer.
    """
    rows = _rows(path)
    if limit and len(rows) > limit:
        rows = [rows[i * len(rows) // limit] for i in range(limit)]
    if not rows:
        raise RewardError(f"{path} holds no rows; give JSON lines with a prompt and an answer each")
    tasks = _tasks(rows, str(path))
    if len({task.answer for task in tasks}) < 2:
        raise RewardError(
            f"{path}: every row has the same answer; give rows of two answers at least, to know what is wrong"
        )
    return tasks


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        if path.suffix == ".parquet":
            return _parquet_rows(path)
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".csv":
            return [dict(row) for row in csv.DictReader(text.splitlines())]
        if text.lstrip()[:1] == "[":
            rows = json.loads(text)
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except OSError as error:
        raise RewardError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RewardError(
            f"{path} is not JSON lines, a JSON list, CSV or Parquet of rows: {error}"
        ) from error
    if not all(isinstance(row, dict) for row in rows):
        raise RewardError(f"{path} holds values that are no objects; each row is an object with columns")
    return list(rows)


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    import duckdb

    try:
        with duckdb.connect() as connection:
            cursor = connection.execute("SELECT * FROM read_parquet(?)", [str(path)])
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    except duckdb.Error as error:
        raise RewardError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error


def _tasks(rows: Sequence[dict[str, Any]], where: str = "") -> list[ProbeTask]:
    prompts, answers = [], []
    for number, row in enumerate(rows, 1):
        prompt, answer = _first(row, (*PROMPT_NAMES, "prompts")), _first(row, ANSWER_NAMES)
        if prompt is None or answer is None:
            lacks = "prompt (prompt, question, problem)" if prompt is None else "answer (answer, solution)"
            raise RewardError(f"{where}, row {number} has no {lacks}; it has {', '.join(row) or 'nothing'}")
        prompts.append(_prompt_text(prompt))
        answers.append(answer_text(answer))
    tasks = []
    for i, row in enumerate(rows):
        written = _first(row, COMPLETION_NAMES)
        columns = {k: v for k, v in row.items() if k not in (*PROMPT_NAMES, "prompts", *COMPLETION_NAMES)}
        tasks.append(
            ProbeTask(
                prompts[i], answers[i], wrong_answers(answers[i], answers), columns,
                _prompt_text(written) if written is not None else "",
            )
        )  # fmt: skip
    return tasks


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def answer_text(answer: Any) -> str:
    r"""Return the answer as a model would write it: GSM8K's after its hashes, of a list the first, of a box
    its content.

    >>> answer_text("6 * 7 = 42\n#### 42"), answer_text(["Paris", "paris"])
    ('42', 'Paris')
    >>> answer_text({"target": "4"}), answer_text(3.0)
    ('4', '3')
    >>> answer_text("\\boxed{\\frac{1}{3}}")
    '\\frac{1}{3}'
    """
    if isinstance(answer, Mapping):
        answer = next(iter(answer.values()), "")
    if isinstance(answer, (list, tuple)):
        answer = answer[0] if answer else ""
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    text = str(answer).rpartition("####")[2].strip()
    boxed = re.fullmatch(r"\$?\\boxed\{(.*)\}\$?", text, re.DOTALL)
    return boxed.group(1) if boxed else text


def _prompt_text(prompt: Any) -> str:
    """The text of a prompt, of messages the last."""
    if isinstance(prompt, (list, tuple)):
        contents = [m.get("content") or "" for m in prompt if isinstance(m, Mapping)]
        return str(contents[-1]) if contents else ""
    return str(prompt)


def wrong_answers(answer: str, others: Sequence[str], count: int = 5) -> tuple[str, ...]:
    """Return wrong answers of the kind of `answer`: neighbours of a whole number, else other tasks' answers.

    >>> wrong_answers("42", ["42", "7"])
    ('45', '49', '37', '31', '59')
    >>> wrong_answers("Paris", ["Rome", "Paris", "Paris, France", "Oslo"])
    ('Rome', 'Oslo')
    """
    if re.fullmatch(r"-?\d{1,15}", answer):
        value = int(answer)
        pool = [str(value + step) for step in (3, 7, -5, -11, 17, 29, -37, 61)]
    else:
        pool = list(dict.fromkeys(others))
    gold = answer.strip().lower()
    apart = [other for other in pool if gold not in other.lower() and other.strip().lower() not in gold]
    return tuple(apart[:count]) or (f"not {answer}"[::-1],)
