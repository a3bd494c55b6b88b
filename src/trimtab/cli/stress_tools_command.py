"""`trimtab stress tools`: can the tools take the load of a run, and what do their failures look like?"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.options import show_verdict
from trimtab.cli.stress_commands import stress_app
from trimtab.errors import ToolError


def _stated(value: float | None) -> float:
    return float("nan") if value is None else value


@stress_app.command("tools")
def stress_tools(
    target: Annotated[
        str,
        typer.Argument(
            help="module:function, an MCP server's command, or a URL on loopback.", show_default=False
        ),
    ],
    tools: Annotated[
        list[str] | None, typer.Option("--tool", help="Call only this tool; repeatable.", metavar="NAME")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Take calls from this log of episodes.")] = None,
    p99: Annotated[float | None, typer.Option(help="Objective: p99 latency in seconds.", min=0.0)] = None,
    error_rate: Annotated[
        float | None, typer.Option(help="Objective: fraction of failed calls.", min=0.0, max=1.0)
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Callers that must hold the objective.", min=1)] = 1,
    rate: Annotated[
        float | None, typer.Option(help="Arrivals a second of the open loop, held to the objective too.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Of each level of load.", min=0.05)] = 3.0,
    max_concurrency: Annotated[int, typer.Option(help="Most callers tried.", min=1, max=16384)] = 128,
    timeout: Annotated[float, typer.Option(help="Seconds that one call may take.", min=0.01)] = 30.0,
    calls_per_rollout: Annotated[
        float | None, typer.Option(help="For the forecast; the trace's mean, or 4.")
    ] = None,
    rollouts: Annotated[
        int, typer.Option(help="Rollouts of a training step, for the forecast.", min=1)
    ] = 256,
    cost_per_call: Annotated[float, typer.Option(help="For the forecast, in your currency.", min=0.0)] = 0.0,
    chaos: Annotated[
        str | None,
        typer.Option(help="Faults to inject: MODE=RATE,... or one rate for all modes.", metavar="RATES"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of calls, arrivals and faults.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Also write an offline page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Ramp load on tools: throughput, latency, errors, the knee, and whether an objective holds
    (docs/how-to/stress-tools.md).

    Exit code: 0 no objective or held, 1 missed, 2 bad target.
    """
    from trimtab.report.html.offline_page import require_page_path
    from trimtab.report.tools.tool_stress_page import write_tool_stress
    from trimtab.report.tools.tool_stress_verdict import tool_stress_lines, tool_stress_verdict
    from trimtab.tools.stress.load_ramp import Objective, StressOptions
    from trimtab.tools.stress.target_stress import StressTarget, stress_target

    if rate is not None and not 0 < rate < math.inf:
        raise ToolError(f"--rate {rate:g} is not a number of calls a second above zero")
    if html is not None:
        require_page_path(html, ToolError)
    objective = Objective(_stated(p99), _stated(error_rate), concurrency)
    options = StressOptions(
        seconds, max(max_concurrency, concurrency), _stated(rate), objective, _stated(calls_per_rollout),
        rollouts, cost_per_call, seed,
    )  # fmt: skip
    say = None if as_json or not sys.stderr.isatty() else _say
    named = StressTarget(target, tuple(tools or ()), trace, timeout, chaos)
    mix, measured, faults = stress_target(named, options, say)
    about = {"source": mix.source, "tools": mix.names}
    verdict = tool_stress_verdict(target, about, measured.row(), faults)
    if html is not None:
        write_tool_stress(verdict, html)
        print(f"wrote {html}", file=sys.stderr)
    show_verdict(verdict, tool_stress_lines, as_json)


def _say(line: str) -> None:
    print(f"trimtab: {line}", file=sys.stderr)
