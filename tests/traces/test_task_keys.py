"""Task 0 of one domain is not task 0 of another, in one file or several, and attempts at one task stay one task."""

from __future__ import annotations

import json
import random

import pytest

from tests.traces import samples
from tests.traces.make import chat, tau, write_lines
from trimtab.traces.read import read_episodes


def _tasks(paths):
    found, report = read_episodes(paths)
    assert report.num_malformed == 0
    return [episode.task for episode in found]


def _tau(path, domain, customers=True):
    rows = [
        tau(task, trial, 1.0, [{"role": "system", "content": domain}, *chat(result=str(random.random()))])
        for task in range(4)
        for trial in range(2)
    ]
    for row in rows:
        row["info"]["task"] = {"user_id": f"{domain}_{row['task_id']}"} if customers else {}
    path.write_text(json.dumps(rows))
    return path


@pytest.mark.parametrize("customers", [True, False])
def test_tau_bench_numbers_its_tasks_in_each_domain(tmp_path, customers):
    paths = [_tau(tmp_path / f"{name}.json", name, customers) for name in ("airline", "retail")]
    assert len(set(_tasks(paths))) == 8
    assert not customers or _tasks(paths)[0] == "airline_0/0"
    again = _tau(tmp_path / "other-model.json", "airline", customers)
    assert set(_tasks([again])) == set(_tasks(paths[:1]))  # so that compare pairs them


def test_inspect_samples_count_within_their_eval(tmp_path):
    paths = []
    for name in ("gsm8k", "math"):
        log = samples.inspect()
        log["eval"]["task"] = name
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(log))
    found, report = read_episodes(paths)
    assert [(e.id, e.task) for e in found] == [
        ("gsm8k/1/2", "gsm8k/1"), ("gsm8k/1/3", "gsm8k/1"), ("math/1/2", "math/1"), ("math/1/3", "math/1"),
    ]  # fmt: skip
    assert not report.notes


def test_verifiers_examples_count_within_their_environment(tmp_path):
    row = samples.verifiers()
    named = [row | {"task": name, "answer": i} for i, name in enumerate(("math", "code"))]
    assert _tasks([write_lines(tmp_path / "mixed.jsonl", named)]) == ["math/4", "code/4"]
    bare = {k: v for k, v in row.items() if k != "task"}
    folder = tmp_path / "outputs" / "evals" / "wordle--gpt-4o" / "1f2e"
    folder.mkdir(parents=True)
    assert _tasks([write_lines(folder / "results.jsonl", [bare])]) == ["wordle/4"]
    assert _tasks([write_lines(tmp_path / "results.jsonl", [bare])]) == ["4"]


def test_a_record_that_names_its_domain(tmp_path):
    rows = [{"id": i, "task_id": 0, "domain": name, "messages": chat()} for i, name in enumerate("ab")]
    assert _tasks([write_lines(tmp_path / "a.jsonl", rows)]) == ["a/0", "b/0"]
