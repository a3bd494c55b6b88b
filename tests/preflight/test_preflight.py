"""`trimtab preflight`: each section's verdict, and that nothing which went wrong looks like a go."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import cli, running
from trimtab.errors import PreflightError
from trimtab.preflight import load_preflight, run_preflight
from trimtab.preflight.bounded_process import Ending
from trimtab.preflight.dry_run_items import step_seconds

ROOT = Path(__file__).parents[2]
SIDE = "temperature: 1.0\nmax_tokens: 64\n"
PARITY = "parity: {train: side.yaml, eval: side.yaml}\n"
WATCHED = """
import sys
import numpy as np
import trimtab
from tests.support import TOOLS, make_batch
rng = np.random.default_rng(0)
with trimtab.open_run(sys.argv[1]) as run:
    for step in range(4):
        {observe}
        for i in range(10):
            run.tool_call(trimtab.ToolCall("search", {{"q": "x"}}, 12, "timeout" if i < {failed} else "", 0.01))
        run.flush(step, {{"reward": {reward}}}, duration_s=0.5)
"""
OBSERVE = "run.observe(make_batch(rng, step=step))"


def config(folder: Path, text: str) -> Path:
    (folder / "side.yaml").write_text(SIDE, encoding="utf-8")
    path = folder / "preflight.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def dry_run(folder: Path, script: str, more: str = "", steps: int = 4) -> dict[str, Any]:
    """The check of a dry run of a script."""
    (folder / "dry.py").write_text(script, encoding="utf-8")
    env = f"{{PYTHONPATH: '{ROOT / 'src'}:{ROOT}'}}"
    text = f"dry_run:\n  command: [python, dry.py, '{{run}}']\n  steps: {steps}\n  env: {env}\n{more}"
    check = run_preflight(load_preflight(config(folder, text)))["checks"][0]
    return dict(check)


def items(check: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["state"] for row in check["result"]["items"]}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


BAD_FILES = {
    "unknown section": ("tols: {}", r":1: tols: unknown field of a launch check; did you mean tools\?"),
    "unknown field": (
        "parity: {train: a, eval: b}\ntools:\n  - target: m:f\n    p99_s: 1\n    concurency: 4\n",
        r":5: tools.concurency: unknown field of tools; did you mean concurrency\?",
    ),
    "no objective": ("tools:\n  target: m:f\n", r":1: tools: no objective; give p99_s, error_rate or both"),
    "not a number": ("tools: {target: m:f, p99_s: fast}", r"tools.p99_s: 'fast' is not valid; give"),
    "missing field": ("parity:\n  train: a\n", r"parity.eval: is missing; give train, eval"),
    "no folder": ("dry_run: {command: [x], steps: 1}", r"dry_run.command: the run folder is not named"),
    "two folders": ("dry_run: {command: ['{run}'], steps: 1, run: r}", r"dry_run.run: is named twice"),
    "no plan": ("dry_run: {command: ['{run}'], steps: 1, max_hours: 3}", r"max_hours: needs steps_planned"),
    "unknown reading": ("dry_run: {command: ['{run}'], steps: 1, observe: [drfit]}", r"did you mean drift\?"),
    "nothing": ("{}", r"nothing to check; give sections: tools, reward"),
    "empty": ("", r"the file is empty; give sections: tools"),
    "a list": ("- a", r"is not a mapping; give sections"),
    "empty list": ("tools: []", r"tools: is empty"),
    "half the traces": ("parity: {train: a, eval: b, train_traces: c}", r"train_traces and eval_traces go together"),
    "no revision": ("reward: {function: f, completions: c}", r"reward.completions: compares two revisions"),
    "a tag": ("tools: {target: !!python/name:os.system x, p99_s: 1}", r"the tag .* is not read"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_cannot_be_right_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PreflightError, match=message) as raised:
        load_preflight(config(tmp_path, text))
    assert "\n" not in str(raised.value)


def test_bad_calls_are_one_line_and_exit_2(tmp_path: Path) -> None:
    good = config(tmp_path, PARITY)
    calls = (
        (), (tmp_path / "nowhere.yaml",), (good, "--only", "party"), (good, "--only", "tools"), (good, "--only", ","),
        (good, "--html", tmp_path),
    )  # fmt: skip
    for arguments in calls:
        done = cli("preflight", *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), arguments
    assert "did you mean parity?" in cli("preflight", good, "--only", "party").stderr
    assert "it has parity" in cli("preflight", good, "--only", "tools").stderr


def test_the_example_is_a_file_that_loads(tmp_path: Path) -> None:
    done = cli("preflight", "--example")
    path = tmp_path / "preflight.yaml"
    path.write_text(done.stdout, encoding="utf-8")
    assert list(load_preflight(path).sections) == ["tools", "reward", "parity", "dry_run"]
    path.write_text(re.sub(r"(?m)^( *)# (?=\w+:|  spec:)", r"\1", done.stdout), encoding="utf-8")
    assert list(load_preflight(path).sections) == ["tools", "reward", "environment", "parity", "dry_run"]


def test_go_only_where_all_is_go_and_partial_where_sections_were_left_out(tmp_path: Path) -> None:
    (tmp_path / "dry.py").write_text(WATCHED.format(observe=OBSERVE, failed=0, reward=0.5), encoding="utf-8")
    env = f"{{PYTHONPATH: '{ROOT / 'src'}:{ROOT}'}}"
    run = f"dry_run: {{command: [python, dry.py, '{{run}}'], steps: 4, steps_planned: 7200, max_hours: 1.5, env: {env}}}"
    path = config(tmp_path, PARITY + run)
    done = cli("preflight", path, "--json", "--html", tmp_path / "page.html")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"], result["exit_code"]) == (0, "go", 0)
    assert [(row["section"], row["state"]) for row in result["checks"]] == [
        ("parity", "go"),
        ("dry_run", "go"),
    ]
    evidence = result["checks"][1]["evidence"]
    assert "4 steps flushed" in evidence
    assert "a step takes 0.5 s" in evidence
    assert "7,200 steps take about 1 h" in evidence
    assert "too short for the rules to judge" in evidence
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "launch v-healthy" in page
    assert len(set(re.findall(r'id="([\w-]+)"', page))) == len(re.findall(r'id="([\w-]+)"', page))
    partial = cli("preflight", path, "--only", "parity")
    assert partial.returncode == 0
    assert partial.stdout.startswith("GO (PARTIAL)")
    assert "Stated and not run: dry_run" in partial.stdout


def test_a_healthy_dry_run_that_would_take_too_long_or_lacks_a_reading(tmp_path: Path) -> None:
    healthy = WATCHED.format(observe=OBSERVE, failed=0, reward=0.5)
    check = dry_run(
        tmp_path, healthy, "  steps_planned: 7200\n  max_hours: 0.9\n  observe: [drift, mismatch, reward]\n"
    )
    states = items(check)
    assert check["state"] == "no-go"
    assert [name for name, state in states.items() if state == "no-go"] == ["readings", "time"]
    assert "mismatch is not observed (no old_logprobs" in check["evidence"]
    assert check["evidence"].endswith("Also: time.")


FAULTY = {
    "raises": ("print('x')\nraise ValueError('boom')\n", "exit code 1 after .*: ValueError: boom"),
    "silent": ("import os; os._exit(3)\n", "exit code 3 after .*, and printed nothing"),
    "killed": ("import os; os.kill(os.getpid(), 9)\n", "signal 9"),
    "no run": ("print('done')\n", "exit code 0 and wrote no run"),
    "few steps": (WATCHED.format(observe=OBSERVE, failed=0, reward=0.5), "4 steps of 9 flushed"),
    "blind": (
        WATCHED.format(observe="run.observe(loss_mask=np.ones((4, 9), bool), reward=np.ones(4))", failed=0, reward=0.5),
        "BLIND: no log-ratio was observed",
    ),
    "averages": (WATCHED.format(observe="pass", failed=0, reward=0.5), r"BLIND: no log-ratio was observed \(.*no batch was observed"),
    "failing tool": (WATCHED.format(observe=OBSERVE, failed=4, reward=0.5), "search fails in 40% of 40 calls; allowed is 20%"),
    "NaN": (WATCHED.format(observe=OBSERVE, failed=0, reward="float('nan')"), "NaN or infinity in metrics/reward, first step 0"),
}  # fmt: skip


@pytest.mark.parametrize(("script", "evidence"), FAULTY.values(), ids=FAULTY)
def test_a_faulty_dry_run_is_no_go_with_its_evidence(tmp_path: Path, script: str, evidence: str) -> None:
    check = dry_run(tmp_path, script, steps=9 if "of 9" in evidence else 4)
    assert check["state"] == "no-go"
    assert re.search(evidence, check["evidence"]), check["evidence"]
    assert "\n" not in check["evidence"]
    assert check["advice"]


def test_a_dry_run_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = """
        import pathlib, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"])
        pathlib.Path("child.pid").write_text(str(child.pid))
        print("waiting for the engine", flush=True)
        time.sleep(300)
    """
    check = dry_run(tmp_path, textwrap.dedent(script), "  limit_s: 1.5\n")
    assert check["state"] == "no-go"
    assert "did not end in 1.5 s and was ended. Its last line: waiting for the engine" in check["evidence"]
    assert not alive(int((tmp_path / "child.pid").read_text()))


def test_a_command_or_a_folder_that_cannot_be_used_is_undecided(tmp_path: Path) -> None:
    text = "dry_run: {command: [no-such-program-here, '{run}'], steps: 1}"
    check = run_preflight(load_preflight(config(tmp_path, text)))["checks"][0]
    assert (check["state"], check["evidence"][:41]) == (
        "undecided",
        "no-such-program-here cannot be started: N",
    )
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.json").write_text("{}", encoding="utf-8")
    text = "dry_run: {command: [python, -c, pass], run: old, steps: 1}"
    check = run_preflight(load_preflight(config(tmp_path, text)))["checks"][0]
    assert check["state"] == "undecided"
    assert "holds an earlier run; delete it" in check["evidence"]


def test_a_section_that_crashes_is_undecided_and_the_others_still_run(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text("import os\nos._exit(7)\n", encoding="utf-8")
    (tmp_path / "leaving.py").write_text("raise SystemExit('bye')\n", encoding="utf-8")
    text = """
        tools:
          - {target: "dying:f", p99_s: 1}
          - {target: "leaving:f", p99_s: 1}
          - {target: "nowhere_at_all:f", p99_s: 1}
          - {target: "http://127.0.0.1:9/tool", p99_s: 1, seconds: 0.05}
        reward: {function: "nowhere.py:f", dataset: absent.jsonl}
    """
    path = config(tmp_path, textwrap.dedent(text) + PARITY)
    done = cli("preflight", path, "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (2, "undecided")
    states = [row["state"] for row in result["checks"]]
    assert states == ["undecided"] * 5 + ["go"]
    evidence = [row["evidence"] for row in result["checks"]]
    assert evidence[0] == "dying:f ended the process of the check (exit code 7)"
    assert evidence[1] == "leaving ended the process (exit code 1): bye, while it was imported"
    assert "nowhere_at_all cannot be imported" in evidence[2]
    assert "127.0.0.1:9" in evidence[3] or "does not answer" in evidence[3]
    assert evidence[4].startswith("absent.jsonl cannot be read")
    assert not [line for line in evidence if "\n" in line]


def test_a_section_beyond_its_limit_is_undecided(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    text = "tools: {target: 'slow:f', p99_s: 1, limit_s: 1}"
    check = run_preflight(load_preflight(config(tmp_path, text)))["checks"][0]
    assert (check["state"], check["evidence"]) == ("undecided", "It did not end in 1 s and was ended.")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_interrupt_leaves_a_page_marked_unfinished(tmp_path: Path, number: int) -> None:
    wait = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(300)"
    path = config(tmp_path, f"{PARITY}dry_run: {{command: [python, -c, \"{wait}\", '{{run}}'], steps: 1}}")
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "trimtab.cli", "preflight", str(path), "--html", str(page)]
    with running(command, 120, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}) as child:
        end = time.monotonic() + 90
        while (
            not ((tmp_path / "pid").is_file() and (tmp_path / "pid").read_text()) and time.monotonic() < end
        ):
            time.sleep(0.05)
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 2, err
    assert out.startswith("UNFINISHED")
    assert "[go] parity" in out
    assert "[NOT RUN] dry_run" in out
    assert "unfinished" in page.read_text(encoding="utf-8").split("</article>")[0].lower()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_text_of_a_run_is_escaped_on_the_page_and_the_screen(tmp_path: Path) -> None:
    hostile = "</pre><script>alert(1)</script>\\x1b[31m"
    (tmp_path / "dry.py").write_text(f"raise ValueError('{hostile}')\n", encoding="utf-8")
    path = config(tmp_path, "dry_run: {command: [python, dry.py, '{run}'], steps: 1}")
    done = cli("preflight", path, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout + page
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 2


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_an_environment_that_pays_exploits_is_no_go(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "benchmarks" / "environments" / "soft", tmp_path / "soft")
    text = "environment: {spec: soft/env.yaml}"
    path = config(tmp_path, text)
    done = cli("preflight", path, "--html", tmp_path / "page.html")
    assert done.returncode == 1
    assert re.search(
        r"exploits got more than a wrong solution. Paid: \w+, \w+, \w+, \w+, \.\.\.", done.stdout
    )
    assert "edited_tests" in (tmp_path / "page.html").read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "soft")
    check = run_preflight(load_preflight(path))["checks"][0]
    assert check["state"] == "undecided"
    assert check["evidence"].startswith("soft/env.yaml cannot be read")


def test_faults_that_look_like_answers_stand_in_the_evidence(tmp_path: Path) -> None:
    tool = "async def search(query: str) -> str:\n    'Search.'\n    return 'a result ' * 20\n"
    (tmp_path / "my_search.py").write_text(tool, encoding="utf-8")
    text = (
        "tools: {target: 'my_search:search', error_rate: 0.5, p99_s: 5, seconds: 0.05, max_concurrency: 2, "
        "chaos: 'truncated=0.2'}"
    )
    check = run_preflight(load_preflight(config(tmp_path, text)))["checks"][0]
    assert check["state"] == "go"
    assert "looked like an answer: give the tool a check_result" in check["evidence"]


def test_parity_without_enough_tasks_is_undecided(tmp_path: Path) -> None:
    for side in ("train", "eval"):
        rows = [
            {"messages": [{"role": "user", "content": f"task {i}"}, {"role": "assistant", "content": "a"}],
             "task_id": str(i), "reward": float(i % 2)}
            for i in range(3)
        ]  # fmt: skip
        (tmp_path / f"{side}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    text = "parity: {train: train.jsonl, eval: eval.jsonl}"
    result = run_preflight(load_preflight(config(tmp_path, text)))
    assert (result["verdict"], result["exit_code"]) == ("undecided", 2)
    assert result["checks"][0]["advice"].startswith("Evaluate more tasks")


def test_the_last_line_is_the_exception_whatever_is_printed_after_it() -> None:
    trace = "Traceback (most recent call last):\n  File 'x'\n"
    chained = (
        f"{trace}KeyError: 'a'\n\nDuring handling ...\n{trace}my.pkg.OddError: b\nException ignored\nbye"
    )
    assert Ending(1, 0.0, output=chained).last_line == "my.pkg.OddError: b"
    assert Ending(1, 0.0, output="one\ntwo\n\n").last_line == "two"
    assert Ending(1, 0.0).last_line == ""


def test_seconds_of_a_step_leave_out_the_first_and_fall_back_on_the_clock() -> None:
    rows = [{"duration_s": s, "time": t} for s, t in ((9.0, 0.0), (1.0, 2.0), (2.0, 5.0))]
    assert step_seconds(rows) == [1.0, 2.0]
    assert step_seconds([{**row, "duration_s": None} for row in rows]) == [2.0, 3.0]
    assert step_seconds(rows[:1]) == []
