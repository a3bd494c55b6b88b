"""The command line. Each command calls one public function; bad input is one line on stderr and exit code 2."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from trimtab._version import __version__
from trimtab.errors import TrimtabError
from trimtab.report.diagnosis import diagnosis, diagnosis_lines
from trimtab.report.inert import inert
from trimtab.report.view import load_view

__all__ = ["app", "main"]

app = typer.Typer(
    name="trimtab",
    help="Watch RL runs of tool-using agents: tails by slice, alarms with a stated false-alarm rate, one offline report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

RunFolder = Annotated[Path, typer.Argument(help="Folder of a watched run.", show_default=False)]
RunFolders = Annotated[list[Path], typer.Argument(help="One or more run folders.", show_default=False)]


@app.command()
def diagnose(
    run: RunFolder,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Verdict, alarms and what was not observed. Exit code: 0 healthy, 1 alarms, 2 bad input, blind or not judged yet."""
    found = diagnosis(load_view(run))
    print(json.dumps(found) if as_json else "\n".join(diagnosis_lines(found)))
    raise typer.Exit(found["exit_code"])


@app.command()
def report(
    runs: RunFolders,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "trimtab report",
) -> None:
    """Write one offline HTML page about one run, or comparing several."""
    from trimtab.report.html import write_html
    from trimtab.report.payload import build_payload

    try:
        write_html(build_payload([load_view(run) for run in runs], title), output)
    except OSError as error:
        raise TrimtabError(f"{output} cannot be written: {error.strerror or error}") from error
    print(f"wrote {output}")


@app.command()
def watch(
    runs: RunFolders,
    interval: Annotated[float, typer.Option(help="Seconds between looks.", min=0.1)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the view once and leave.")] = False,
) -> None:
    """Follow one or more runs live in the terminal; Ctrl-C leaves."""
    from rich.console import Console

    from trimtab.report.live import live_state
    from trimtab.report.terminal import follow, render

    views = [load_view(run) for run in runs]

    def load() -> list[dict[str, object]]:
        for view in views:
            view.refresh()
        return [live_state(view) for view in views]

    if once:
        Console().print(render(load()))
        return
    with contextlib.suppress(KeyboardInterrupt):
        follow(load, interval, lambda: False)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Entry point: TrimtabError becomes one line and exit code 2."""
    try:
        app()
    except TrimtabError as error:
        print(f"trimtab: {inert(str(error))}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
