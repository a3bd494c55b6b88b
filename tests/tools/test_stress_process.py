"""`trimtab stress tools` against tools that exit, hang, print, fail or wait: nothing of it may look like a good result."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support import cli, running
from tests.tools.servers import http_server, wait_until
from trimtab.errors import ToolError
from trimtab.preflight.preflight_file import ToolsSection
from trimtab.preflight.section_checks import tools_check
from trimtab.report.tools.tool_stress_page import render_tool_stress
from trimtab.report.tools.tool_stress_verdict import tool_stress_lines
from trimtab.tools import Executor, Tool, tool, with_options
from trimtab.tools.stress import CallMix, LoadPoint, StressOptions, generated_mix, run_stress, target_health
from trimtab.tools.stress.load_capacity import capacity_of
from trimtab.tools.stress.load_ramp import RAW
from trimtab.tools.stress.phase_progress import Progress
from trimtab.tools.stress.target_health import without_slow
from trimtab.traces.core.tool_call import ToolCall

ROOT = Path(__file__).parents[2]
QUICK = ("--seconds", "0.1", "--max-concurrency", "2")
MODULE = """
import os, sys, time

def zero(x: int) -> str:
    sys.exit(0)

def dies(x: int) -> str:
    os._exit(3)

def hangs(x: int) -> str:
    open("called", "w").close()
    time.sleep(1000)

def noisy(x: int) -> str:
    print("noise of the tool")
    os.write(1, b"raw noise\\n")
    return "a"

CALLS = []

async def later(x: int) -> str:
    CALLS.append(x)
    if len(CALLS) > 3:
        sys.exit(0)
    return "a"

async def picky(zone: str) -> str:
    if zone != "Europe/Berlin":
        raise ValueError(f"no time zone <b>{zone}</b>" + 300 * "x")
    return zone
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bad_tools.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "leaving.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("./bad_tools.py:zero", r"the tool zero, called with "),
        ("bad_tools:later", "ended the process (exit code 0)"),
        ("bad_tools:dies", "bad_tools:dies ended the process of the check (exit code 3)"),
        ("leaving:f", "leaving ended the process (exit code 0), while it was imported"),
    ],
)
def test_a_tool_that_ends_its_process_is_one_line_and_exit_2(target: str, message: str) -> None:
    done = cli("stress", "tools", target, *QUICK, "--error-rate", "0")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert message in done.stderr
    assert "ended the process" in done.stderr


def test_a_tool_that_hangs_ends_the_command_and_the_check(folder: Path) -> None:
    command = [sys.executable, "-m", "trimtab.cli", "stress", "tools", "bad_tools:hangs", "--timeout"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with running([*command, "0.5", *QUICK], 60, env=env) as child:
        out, err = child.communicate(timeout=60)  # without the worker's own end it would take 1000 s
    assert (child.returncode, out) == (2, "")
    assert err == "trimtab: the target does not answer: hangs: timeout: no answer in 0.5 s\n"
    (folder / "called").unlink()
    with running([*command, "500", *QUICK], 60, env=env) as child:
        end = time.monotonic() + 50
        while not (folder / "called").exists() and time.monotonic() < end:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err) == (2, "", "trimtab: interrupted; nothing was judged\n")
    assert (folder / "called").exists()


def test_a_load_test_does_not_outlive_a_command_that_was_killed(folder: Path) -> None:
    (folder / "slow.py").write_text(
        "import os, time\ndef f(x: int) -> str:\n    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(1000)\n"
    )
    command = [sys.executable, "-m", "trimtab.cli", "stress", "tools", "slow:f", "--timeout", "500"]
    pid = folder / "pid"
    with running(command, 60, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}) as child:
        wait_until(lambda: pid.is_file() and bool(pid.read_text()), 50)
        child.kill()
    stat = Path(f"/proc/{pid.read_text()}/stat")
    wait_until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z", 30)


@pytest.mark.usefixtures("folder")
def test_what_a_tool_prints_does_not_mix_with_the_result() -> None:
    done = cli("stress", "tools", "bad_tools:noisy", *QUICK, "--json")
    assert json.loads(done.stdout)["verdict"] == "no objective stated"
    assert "noise of the tool" in done.stderr
    assert "raw noise" in done.stderr


@pytest.mark.parametrize(
    "option", ["--calls-per-rollout -5", "--rate 0", "--rate inf", "--seconds inf", "--timeout inf", "--cost-per-call inf"]
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused(option: str) -> None:
    done = cli("stress", "tools", "json:loads", *option.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"trimtab: {option.split()[0]} ")
    assert done.stderr.count("\n") == 1


def test_a_missing_path_names_where_mcp_servers_answer_and_prints_no_page() -> None:
    page = b"<!DOCTYPE html>\n<html><body>Cannot POST /</body></html>"
    with http_server(lambda _: (404, {"content-type": "text/html"}, page)) as url:
        root = url.removesuffix("/tool")
        done = cli("stress", "tools", root, *QUICK)
    assert done.returncode == 2
    assert f"HTTP 404 from {root}; if it is an MCP server, give {root}/mcp" in done.stderr
    assert "<" not in done.stderr
    assert "--trace" not in done.stderr


def point(callers: int, throughput: float, latency: float = 0.1) -> LoadPoint:
    one = LoadPoint("closed", callers, math.nan, throughput=throughput, calls=100, answered=100)
    for _ in range(100):
        one.latency.record(latency)
    return one


def test_a_knee_needs_saturation_and_the_peak_a_level_that_reached_it() -> None:
    linear = {count: point(count, 10.0 * count) for count in (1, 2, 4, 8)}
    shown = capacity_of(linear)
    assert math.isnan(shown.knee)
    assert shown.knee_reason.startswith("not saturated at 8 callers: throughput grew 2.00-fold")
    assert (shown.peak, shown.reached) == (80.0, 8)
    full = linear | {16: point(16, 80.0, 0.2), 32: point(32, 81.0, 0.4)}
    shown = capacity_of(full)
    assert shown.knee == pytest.approx(8.0, rel=0.02)
    assert (shown.reached, shown.knee_reason) == (8, "")
    assert math.isnan(capacity_of({1: point(1, 466.0)}).knee)
    rising = {
        1: point(1, 466.0),
        2: point(2, 600.0),
        4: point(4, 725.0),
        8: point(8, 720.0),
        16: point(16, 722.0),
    }
    assert (
        capacity_of(rising).reached == 4
    )  # by Little's law the knee may be elsewhere; the table has this level


def test_a_target_that_scales_has_no_knee_in_the_headline_and_null_in_json() -> None:
    async def work() -> str:
        await anyio.sleep(0.05)
        return "done"

    async def main() -> Any:
        executor = Executor([tool(work)], options=RAW)
        return await run_stress(executor, CallMix([("work", {})], "t"), StressOptions(0.4, 4))

    result = anyio.run(main)
    assert math.isnan(result.knee)
    row = result.row()
    assert row["reached_concurrency"] == 4
    assert "not saturated at 4 callers" in row["knee_reason"]


@pytest.mark.usefixtures("folder")
def test_refused_drawn_arguments_are_shown_and_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    section = ToolsSection(target="bad_tools:picky", error_rate=0.0, seconds=0.1, max_concurrency=2)

    async def one_good(zone: str) -> str:
        return zone

    draws = iter(range(10**6))
    monkeypatch.setattr(
        "trimtab.tools.stress.call_mix.draw_arguments",
        lambda *_: {"zone": "Europe/Berlin" if next(draws) % 8 else "<i>Nowhere</i>"},
    )
    check = tools_check(section)
    assert check.state == "undecided"
    assert "give real calls with --trace" in check.evidence
    result = check.result
    assert result is not None
    (failure,) = result["failures"]
    assert (failure["tool"], failure["kind"]) == ("picky", "tool/error")
    assert failure["arguments"] == '{"zone": "<i>Nowhere</i>"}'
    assert failure["error"].startswith("ValueError: no time zone <b><i>Nowhere</i></b>xxx")
    assert len(failure["error"]) == 200
    assert failure["count"] == sum(
        sum(row["errors"].values()) for row in (*result["points"], result["open_loop"])
    )
    screen = "\n".join(tool_stress_lines(result))
    assert (
        f'picky tool/error {failure["count"]}, first with {{"zone": "<i>Nowhere</i>"}}: ValueError' in screen
    )
    page = render_tool_stress(result)
    assert "&lt;i&gt;Nowhere" in page
    assert "<i>Nowhere" not in page
    result["points"][0]["errors"] = {}  # refusals that come with load are the tool's own
    result["points"][0]["error_frac"] = 0.0
    from trimtab.report.tools.tool_stress_verdict import missed_by_drawn_arguments

    assert not missed_by_drawn_arguments(result)


def test_the_page_has_the_lines_and_the_digits_of_the_screen() -> None:
    async def work() -> str:
        await anyio.sleep(0.001)
        return "done"

    async def main() -> Any:
        executor = Executor([tool(work)], options=RAW)
        return await run_stress(executor, CallMix([("work", {})], "t"), StressOptions(0.1, 1))

    from trimtab.report.tools.tool_stress_verdict import tool_stress_verdict

    row = anyio.run(main).row()
    row["points"][0]["p50_s"], row["points"][0]["error_frac"] = 0.001234, 0.288
    row["open_loop"] |= {"sent_late_p99_s": 0.5, "p99_s": 0.6}
    verdict = tool_stress_verdict("m:f", {"source": "s", "tools": ["work"], "left_out": ["slow"]}, row)
    page, screen = render_tool_stress(verdict), "\n".join(tool_stress_lines(verdict))
    assert screen.startswith("NO OBJECTIVE STATED  m:f")
    assert "good calls/s, reached with 1 caller, where 28.8 % of the calls failed" in screen
    for text in ("too busy to send calls in time", "1.23 ms", "Left out, as nobody named it"):
        assert text in screen
        assert text in page


def test_a_servers_tool_that_waits_on_purpose_is_left_out_unless_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(target_health, "bound", lambda _: 0.1)

    async def quick() -> str:
        return "a"

    async def waits() -> str:
        await anyio.sleep(30)
        return "b"

    def server_tool(function: Any) -> Tool:
        return with_options(tool(function, idempotent=True), adaptive=True)

    async def main(names: list[str]) -> CallMix:
        tools = [server_tool(quick), server_tool(waits)]
        with anyio.fail_after(20):
            return await without_slow(Executor(tools, options=RAW), generated_mix(tools, names=names))

    mix = anyio.run(main, [])
    assert (mix.names, mix.left_out) == (["quick"], ("waits",))
    assert anyio.run(main, ["quick", "waits"]).names == ["quick", "waits"]


def test_a_long_phase_is_named() -> None:
    lines: list[str] = []
    with Progress(lines.append, live=False, silence_s=0.05) as say:
        say("8 callers")
        end = time.monotonic() + 20
        while not lines and time.monotonic() < end:
            time.sleep(0.01)
    assert lines[0].endswith("s since: 8 callers")
    assert lines[0].startswith("still at work")


def test_exit_in_training_is_a_failed_call_of_the_tool() -> None:
    def leaves() -> str:
        raise SystemExit(0)

    async def main() -> ToolCall:
        return (await Executor([tool(leaves)]).call("leaves")).call

    call = anyio.run(main)
    assert (call.blame, call.kind, call.error) == ("tool", "exit", "exit: ended the process (exit code 0)")
    one = LoadPoint("closed", 1, math.nan)
    one.add(call, 0.1)
    with pytest.raises(ToolError, match=r"the tool leaves, called with \{\}, ended the process"):
        target_health.require_no_exit(one)
