"""`trimtab stress tools`: can the tools take the load of a run, and what do their failures look like?"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.cli.options import show_verdict
from trimtab.cli.preflight_command import terminated_as_interrupted
from trimtab.cli.stress_commands import stress_app
from trimtab.errors import ToolError


@stress_app.command("tools")
def stress_tools(
    target: Annotated[
        str,
        typer.Argument(
            help="module:function, path/file.py:function, an MCP server's command, or a URL on loopback.",
            show_default=False,
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
    from trimtab.report.tools.tool_stress_verdict import tool_stress_lines

    if html is not None:
        require_page_path(html, ToolError)
    stated = {
        "target": target, "tools": tools or [], "trace": str(trace or ""), "p99_s": p99,
        "error_rate": error_rate, "concurrency": concurrency, "rate": rate, "seconds": seconds,
        "max_concurrency": max_concurrency, "timeout_s": timeout, "calls_per_rollout": calls_per_rollout,
        "rollouts": rollouts, "cost_per_call": cost_per_call, "chaos": chaos or "", "seed": seed,
    }  # fmt: skip
    live = not as_json and sys.stderr.isatty()
    verdict = _verdict(stated, "live" if live else "slow")
    if html is not None:
        write_tool_stress(verdict, html)
        print(f"wrote {html}", file=sys.stderr)
    show_verdict(verdict, tool_stress_lines, as_json)


def _verdict(stated: Mapping[str, Any], progress: str) -> Mapping[str, Any]:
    """The verdict of a test in a process of its own: a tool that exits, crashes or hangs ends no command."""
    import msgspec

    from trimtab.preflight.preflight_file import ToolsSection
    from trimtab.preflight.section_process import SectionRequest, checked_section

    for field, value in stated.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ToolError(f"{_option(field)} {value:g} is not a number; give a finite one")
    try:
        section = msgspec.convert(dict(stated), ToolsSection)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `$.")
        field = at.rstrip("`").partition("[")[0]
        value = stated[field]
        shown = f"{value:g}" if isinstance(value, float) else value
        raise ToolError(f"{_option(field)} {shown} is not valid: {text[:1].lower()}{text[1:]}") from error
    try:
        with terminated_as_interrupted():
            request = SectionRequest("tools", section, progress=progress)
            check = checked_section(request, Path.cwd(), None, _echo)
    except KeyboardInterrupt as error:
        raise ToolError("interrupted; nothing was judged") from error
    if check.result is None:
        raise ToolError(check.evidence)
    return check.result


def _option(field: str) -> str:
    """The option that states a field of the section."""
    return "--" + field.removesuffix("_s").replace("_", "-")


def _echo(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
