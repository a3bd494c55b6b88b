"""`trimtab snapshots`: what changed in a policy's behaviour, and which checkpoint to keep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.options import show_verdict
from trimtab.errors import RunError

snapshots_app = typer.Typer()


@snapshots_app.command("snapshots")
def snapshots(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    before: Annotated[
        int | None, typer.Option("--from", metavar="STEP", help="Compare with this one; else the first.")
    ] = None,
    after: Annotated[
        int | None, typer.Option("--to", metavar="STEP", help="The other one; else the last.")
    ] = None,
    checkpoints: Annotated[
        str,
        typer.Option(
            metavar="STEPS", help="Checkpoints that exist, as 100,200,300; else those with a snapshot."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show how a policy's answers to fixed prompts changed, and which checkpoint to keep
    (docs/how-to/snapshots.md).

    Exit code: 0, or 2 for bad input.
    """
    from trimtab.report.behaviour.snapshot_lines import snapshot_lines
    from trimtab.report.behaviour.snapshot_summary import snapshot_summary
    from trimtab.report.run_view import load_view

    summary = snapshot_summary(load_view(run), before, after, _steps(checkpoints))
    show_verdict(summary, snapshot_lines, as_json)


def _steps(text: str) -> list[int] | None:
    """Return steps of a list with commas; None for an empty one. RunError for what is none."""
    try:
        return [int(part) for part in text.split(",")] if text.strip() else None
    except ValueError as error:
        raise RunError(f"--checkpoints {text!r} is not a list of steps, as 100,200,300") from error
