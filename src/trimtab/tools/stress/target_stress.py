"""A stress test of a target by its name: its tools opened without limits of ours, with faults where asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.tools.chaos import SILENT, Chaos, parse_rates, with_chaos
from trimtab.tools.executor import Executor
from trimtab.tools.extras import library
from trimtab.tools.stress.call_mix import CallMix, generated_mix, trace_mix
from trimtab.tools.stress.load_ramp import RAW, StressOptions, StressResult, run_stress
from trimtab.tools.stress.target_health import without_slow
from trimtab.tools.targets import resolve_target
from trimtab.tools.tool_definition import Tool, with_options

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class StressTarget:
    """What is called, and with which calls."""

    target: str  # module:function, an MCP server's command, or a URL on loopback
    tools: tuple[str, ...] = ()  # call only these
    trace: Path | None = None  # take calls from this log of episodes
    timeout_s: float = 30.0  # of one call
    chaos: str | None = None  # MODE=RATE,... or one rate for all modes


def stress_target(
    named: StressTarget, options: StressOptions, say: Callable[[str], None] | None = None
) -> tuple[CallMix, StressResult, dict[str, Any] | None]:
    """Stress a target.

    Args:
        named: the target and its calls.
        options: times, bounds, objective.
        say: takes a line about each level.

    Returns:
        The mix of calls, the result, and the faults injected where there was chaos.

    Raises:
        ToolError: nothing there, or nothing that answers.
    """
    faults = Chaos(parse_rates(named.chaos), options.seed) if named.chaos is not None else None
    tools, sources = resolve_target(named.target)

    def bare(one: Tool) -> Tool:
        """The tool without limits of ours, with its faults."""
        plain = with_options(one, timeout_s=named.timeout_s, adaptive=False, limit=None, cache=False)
        return plain if faults is None else with_chaos(plain, faults)

    async def main() -> tuple[CallMix, StressResult]:
        if say is not None:
            say(f"opening {named.target}")
        async with Executor(tools, sources=sources) as first:
            opened = first.tools
            if named.trace is not None:
                mix = trace_mix(named.trace, opened, names=named.tools)
            else:
                mix = generated_mix(opened, names=named.tools, seed=options.seed)
            executor: Executor = Executor([bare(one) for one in opened], options=RAW)
            mix = await without_slow(executor, mix, options.seed, say)
            return mix, await run_stress(executor, mix, options, say)

    mix, result = library("anyio").run(main)
    return mix, result, _chaos_row(faults, result)


def _chaos_row(faults: Chaos | None, result: StressResult) -> dict[str, Any] | None:
    if faults is None:
        return None
    injected = {f"{tool} {mode}": count for (tool, mode), count in faults.injected.items()}
    failed = sum(sum(point.errors.values()) for point in (*result.closed, result.opened))
    loud = sum(count for (_, mode), count in faults.injected.items() if mode not in (*SILENT, "latency"))
    spoiled = sum(count for (_, mode), count in faults.injected.items() if mode in SILENT)
    silent = max(spoiled - max(failed - loud, 0), 0)
    return {"rates": faults.rates, "seed": faults.seed, "injected": injected, "silent": silent}
