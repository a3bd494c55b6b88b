"""`trimtab guard replay`: what a guard would have done on a recorded run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.options import show_verdict
from trimtab.report.control_characters import escape_controls

if TYPE_CHECKING:
    from trimtab.guard.recorded_run import RecordedStep
    from trimtab.report.run_view import RunView

guard_app = typer.Typer(
    help="The guard: what it would do about a run (docs/how-to/guard.md).", no_args_is_help=True
)

_LEVELS = ("kl", "mismatch_kl")
"""Averages of a run that are levels of `Guard.after_step`."""
_SERIES_LEVELS = {
    "mismatch_kl": "mismatch/kl_k3",
    "ess_frac": "total/sequence_ess_frac",
    "reward": "reward/mean",
}


@guard_app.callback()
def _group() -> None:
    """Keep `replay` a command of its own while it is the only one."""


@guard_app.command()
def replay(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    policy: Annotated[
        str, typer.Option(help="observe, recommended, strict, or a YAML policy file.")
    ] = "recommended",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show what a guard would have done on a recorded run, when and why; levers are simulated.

    Exit code: 0 nothing, 1 it would have acted, 2 bad input.
    """
    from trimtab.guard import guard_options
    from trimtab.guard.recorded_run import replay_guard
    from trimtab.report.run_incidents import incidents_at
    from trimtab.report.run_view import load_view

    options = guard_options(policy)
    view = load_view(run)
    steps = list(_recorded_steps(view))
    rows = replay_guard(options, steps, view.alarms, lambda alarms, step: incidents_at(view, alarms, step))
    acting = [row for row in rows if row["action"] != "warn"]
    result = {
        "run": str(run), "policy": policy, "num_steps": len(steps), "actions": rows,
        "exit_code": 1 if acting else 0,
    }  # fmt: skip
    show_verdict(result, _lines, as_json)


def _recorded_steps(view: RunView) -> Iterator[RecordedStep]:
    """What the guard is shown of each step of a stored run."""
    from trimtab.catalog import bound
    from trimtab.guard.recorded_run import RecordedStep
    from trimtab.report.averages import averages_of
    from trimtab.traces.core.tool_call import ToolCall, call_from_row

    averages = {name: dict(zip(one.step, one.value, strict=True)) for name, one in averages_of(view).items()}
    series = {}
    for name, key in _SERIES_LEVELS.items():
        if (arrays := view.step_series.get((key, "all"))) is not None:
            series[name] = dict(zip(arrays.steps.tolist(), arrays.values.tolist(), strict=True))
    calls: dict[int, list[ToolCall]] = {}
    for row in view.reader.rows("tools"):
        calls.setdefault(int(row["step"]), []).append(call_from_row(row))
    for i, row in enumerate(view.steps):
        step = int(row["step"])
        levels = {key: averages[key][step] for key in _LEVELS if step in averages.get(key, {})}
        levels |= {name: values[step] for name, values in series.items() if step in values}
        levels = {name: value for name, value in levels.items() if not math.isnan(value)}
        yield RecordedStep(
            step, averages.get("grad_norm", {}).get(step), levels, judged=i >= bound("baseline"),
            calls=calls.get(step, ()),
        )  # fmt: skip


def _lines(result: dict[str, Any]) -> list[str]:
    from trimtab.report.run_tables import action_lines

    rows = result["actions"]
    head = f"{result['run']}: {result['num_steps']} steps, guard {result['policy']}; levers are simulated"
    if not rows:
        return [escape_controls(f"{head}. It would have done nothing.")]
    note = "The recorded run cannot answer: what follows the first action assumes that it changed nothing."
    return [escape_controls(line) for line in (head, *action_lines(rows), note)]
