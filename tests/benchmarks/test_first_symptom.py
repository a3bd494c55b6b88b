"""The benchmark of the first visible symptom: how annotated logs are read, and that the docs say what the table says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import first_symptom

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "agent-log-checks.md"


def _log(*messages, mistake):
    """As Who&When writes it: the task of the manager first, then agents, and a terminal that answers their code."""
    history = [{"role": "user", "name": name, "content": text} for name, text in messages]
    first = {"role": "assistant", "name": "A", "content": "You are given a task."}
    return {
        "mistake_step": str(mistake),
        "mistake_agent": "A",
        "question": "q",
        "is_correct": False,
        "history": [first, *history],
    }


def test_a_failed_block_of_code_is_the_symptom_of_the_message_that_sent_it(tmp_path):
    ok, bad = (
        "exitcode: 0 (execution succeeded)\nCode output: 4",
        "exitcode: 1 (execution failed)\nCode output: x",
    )
    code = "```python\nprint(4)\n```"
    terminal = "Computer_terminal"
    logs = [
        _log(("A", "plan"), ("A", code), (terminal, ok), ("B", code + "b"), (terminal, bad), mistake=4),
        _log(("A", code), (terminal, bad), ("B", "wrong"), ("A", code), mistake=3),
        _log(("A", "fine"), ("B", "wrong"), mistake=1),
    ]
    folder = tmp_path / "Algorithm-Generated"
    folder.mkdir()
    for i, log in enumerate(logs):
        (folder / f"{i}.json").write_text(json.dumps(log))
    rows = first_symptom.read_logs(tmp_path)
    assert [(row["agents"], row["symptom"], row["kind"], row["repeat"]) for row in rows] == [
        ([0, 1, 2, 4], 4, "failed call", -1), ([0, 1, 3, 4], 1, "failed call", 4), ([0, 1, 2], -1, "", -1),
    ]  # fmt: skip
    figures = first_symptom.figures_of([*rows, {**rows[2], "log": "Hand-Crafted/1"}])
    of = {key.removeprefix("symptom_algorithm_"): value for key, value in figures.items()}
    assert (of["top1"], of["with_symptom"], of["before_mistake"]) == (pytest.approx(1 / 3, abs=1e-4), 2, 1)
    assert of["first_step_top1"] == 0
    assert of["random_step_top1"] == pytest.approx((1 / 4 + 1 / 4 + 1 / 3) / 3, abs=1e-4)
    assert (of["with_repeat"], of["repeat_hits"]) == (1, 0)


def test_the_page_says_what_the_table_says():
    figures = first_symptom.figures_of(json.loads(first_symptom.TABLE.read_text()))
    of = {key.removeprefix("symptom_algorithm_"): value for key, value in figures.items()}
    text = " ".join(PAGE.read_text().split())
    hits = round(of["top1"] * of["logs"])
    repeats = of["with_repeat"] + figures["symptom_hand_with_repeat"]
    for sentence in (
        f"Of {of['logs']} failures", f"{of['with_symptom']} have a symptom, and in {hits} it is the mistake",
        f"{100 * of['top1']:.0f} % of all ({100 * of['top1_low']:.0f} to {100 * of['top1_high']:.0f})",
        f"the first step is {100 * of['first_step_top1']:.0f} % and a random step of an agent {100 * of['random_step_top1']:.0f} %",
        f"In {of['before_mistake']} it comes before the mistake, in {of['after_mistake']} after it",
        f"of {repeats} logs that have one, none is the mistake",
    ):  # fmt: skip
        assert sentence in text
    assert of["repeat_hits"] == figures["symptom_hand_repeat_hits"] == 0
