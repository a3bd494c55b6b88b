"""Snapshots in a run folder: round trip, damage, kill -9, resume, and the command."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest

import trimtab
from tests.snapshots.policies import noise, prompts, scores
from tests.support import make_batch, running
from trimtab.cli import app
from trimtab.report.html.run_page import render_html
from trimtab.report.html.run_payload import build_payload
from trimtab.report.run_view import load_view
from trimtab.runs import compress_run
from trimtab.snapshots import Answer, read_snapshots

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egpj"


def written(folder, steps=(0, 2, 4), **answer):
    """A run of five steps with snapshots."""
    rng = np.random.default_rng(0)
    with trimtab.open_run(folder, strict=True, min_tokens=20, min_trajectories=2) as run:
        for step in range(5):
            if step in steps:
                answers = [replace(one, **answer) for one in noise(rng)]
                scored = scores(rng)
                run.snapshot(step, prompts(), lambda _, a=answers: a, lambda s=scored: s)
            run.observe(make_batch(rng, sequences=8, step=step))
            run.flush(step, {"reward": 0.1 * step})
    return folder


def test_a_snapshot_comes_back_as_it_was(tmp_path):
    rng = np.random.default_rng(1)
    answers, scored = noise(rng), scores(rng)
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        run.snapshot(
            7,
            prompts(),
            lambda texts: [replace(a, text=t) for a, t in zip(answers, texts, strict=True)],
            lambda: scored,
        )
    compress_run(tmp_path / "run")
    (one,), problems = read_snapshots(tmp_path / "run")
    assert not problems
    assert (one.step, one.prompts) == (7, prompts())
    assert [answer.text for answer in one.answers] == [prompt.text for prompt in prompts()]
    assert [answer.num_tokens for answer in one.answers] == [answer.num_tokens for answer in answers]
    assert one.scores is not None
    np.testing.assert_allclose(one.scores.logprobs, scored.logprobs, rtol=1e-6)
    np.testing.assert_allclose(one.scores.entropy, scored.entropy, rtol=1e-3)
    np.testing.assert_array_equal(one.scores.post_tool, scored.post_tool)


def test_a_failing_generate_is_recorded_and_training_goes_on(tmp_path):
    with trimtab.open_run(tmp_path / "run") as run:
        run.snapshot(0, ["a"], lambda texts: [])
        run.snapshot(1, ["a"], lambda texts: [3])
        run.snapshot(2, ["a"], lambda texts: ["fine"])
        run.flush(1, {"reward": 1.0})
    stored = read_snapshots(tmp_path / "run")
    assert [one.step for one in stored.snapshots] == [2]
    errors = [row["error"] for row in load_view(tmp_path / "run").errors]
    assert ["1 prompts has 0 answers" in errors[0], "returned int" in errors[1]] == [True, True]


def test_snapshots_that_failed_are_named_by_the_command_and_the_page(tmp_path):
    with trimtab.open_run(tmp_path / "run") as run:
        run.snapshot(0, ["a", "b"], lambda texts: list(texts))
        run.flush(0, {"reward": 0.5})
        run.snapshot(1, ["a", "b"], lambda _: ["one"])
        run.flush(1, {"reward": 0.5})
    with trimtab.open_run(tmp_path / "none") as run:
        run.snapshot(0, ["a", "b"], lambda _: ["one"])
        run.flush(0, {"reward": 0.5})
    words = "taking one failed at least 1 time, last after step 0: RunError: a snapshot of 2 prompts has 1"
    assert f"missing: {words}" in command(tmp_path / "run").output
    assert words in render_html(build_payload([load_view(tmp_path / "run")]))
    assert "taking one failed at least 1 time" in str(command(tmp_path / "none").exception)
    assert "taking one failed at least 1 time" in render_html(build_payload([load_view(tmp_path / "none")]))


def test_global_random_numbers_are_put_back(tmp_path):
    np.random.seed(3)  # noqa: NPY002 (the user's global state)
    expected = np.random.random(2)  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        run.snapshot(0, ["a"], lambda texts: [str(np.random.random()) for _ in texts])  # noqa: NPY002
    np.testing.assert_array_equal(np.random.random(2), expected)  # noqa: NPY002


WRITER = """
import os, sys, time
import trimtab
with trimtab.open_run(sys.argv[1], strict=True) as run:
    for step in range(100):
        def generate(texts):
            os.write(1, f"{step}\\n".encode())
            if step == 3:
                time.sleep(120)
            return texts
        run.snapshot(step, ["a" * 50] * 24, generate)
"""


def test_kill_9_in_the_middle_loses_the_open_snapshot_alone(tmp_path):
    folder = tmp_path / "run"
    with running([sys.executable, "-c", WRITER, str(folder)], 60) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line == "3\n":
                os.kill(child.pid, signal.SIGKILL)
                break
    assert [one.step for one in read_snapshots(folder).snapshots] == [0, 1, 2]
    path = folder / "snapshots.r0.s0.jsonl"
    path.write_bytes(path.read_bytes()[:-40])  # as if killed inside the write
    stored = read_snapshots(folder)
    assert [one.step for one in stored.snapshots] == [0, 1]
    assert "was cut" in stored.problems[0]


def test_a_damaged_row_costs_itself_alone(tmp_path, capsys):
    folder = written(tmp_path / "run")
    path = folder / "snapshots.r0.s0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b'"prompts"', b'"prompt_"') + lines[2])
    stored = read_snapshots(folder)
    assert [one.step for one in stored.snapshots] == [0, 4]
    assert stored.problems


def test_a_resume_takes_back_what_it_supersedes(tmp_path):
    folder = written(tmp_path / "run")
    with trimtab.open_run(folder, strict=True) as run:
        run.flush(3, {"reward": 0.0})
        run.snapshot(3, ["other"], lambda texts: ["new"])
    assert [one.step for one in read_snapshots(folder).snapshots] == [0, 2, 3]


def command(*arguments):
    from typer.testing import CliRunner

    return CliRunner().invoke(app, ["snapshots", *map(str, arguments)])


def test_the_command_shows_and_advises(tmp_path):
    folder = written(tmp_path / "run")
    text = command(folder)
    assert text.exit_code == 0
    assert "3 snapshots, steps 0 to 4; 24 prompts, 10 transcripts" in text.output
    assert "step 0 -> 4 (24 prompts;" in text.output
    assert "Keep the checkpoint of step" in text.output
    data = json.loads(command(folder, "--json", "--from", 2, "--to", 4).output)
    assert (data["comparison"]["before"], data["comparison"]["after"]) == (2, 4)
    assert data["advice"]["step"] in (0, 2, 4)
    assert json.loads(command(folder, "--json", "--checkpoints", "2,3").output)["advice"]["step"] in (2, 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--from", 3), "step 3 has no snapshot; there are those of 0, 2, 4"),
        (("--checkpoints", "9"), "step 9 is not of this run"),
        (("--checkpoints", "a,b"), "is not a list of steps"),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, words):
    folder = written(tmp_path / "run")
    result = command(folder, *arguments)
    assert isinstance(result.exception, trimtab.RunError)  # `main` prints it as one line, exit code 2
    assert words in str(result.exception)


def test_hostile_answers_stay_text(tmp_path):
    folder = written(tmp_path / "run", steps=(0,))
    with trimtab.open_run(folder, strict=True) as run:
        answers = [Answer(HOSTILE, 3, "length") for _ in prompts()]
        run.snapshot(9, prompts(), lambda _: answers)
    output = command(folder).output
    assert "gpj" in output
    assert "\x1b" not in output
    assert "\u202e" not in output
    page = render_html(build_payload([load_view(folder)]))
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert 'id="snapshots"' in page
