"""`trimtab preflight`: go or no-go before a launch."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.options import print_all, show_verdict
from trimtab.cli.parity_command import launch_app
from trimtab.errors import PreflightError


@launch_app.command("preflight")
def preflight(
    config: Annotated[
        Path | None, typer.Argument(help="YAML file of what to check.", show_default=False)
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Sections to run: tools, reward, ...; with commas, or repeated.", metavar="NAMES"),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented file and leave.")] = False,
    html: Annotated[Path | None, typer.Option(help="Also write an offline page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Check tools, reward, environment, parity and a watched dry run before a launch
    (docs/how-to/preflight.md).

    Exit code: 0 go, 1 no-go, 2 bad input, undecided or unfinished.
    """
    if example:
        from trimtab.preflight.example_file import EXAMPLE

        print_all(EXAMPLE.rstrip("\n"))
        return
    from trimtab.preflight import load_preflight, run_preflight
    from trimtab.report.html.offline_page import require_page_path
    from trimtab.report.launch.preflight_page import preflight_lines, write_preflight

    if config is None:
        raise PreflightError("no file to check; write one: trimtab preflight --example > preflight.yaml")
    names = [name.strip() for text in only or () for name in text.split(",") if name.strip()]
    if only and not names:
        raise PreflightError("--only names no section; as in --only tools,reward")
    plan = load_preflight(config)
    if html is not None:
        require_page_path(html, PreflightError)
    with terminated_as_interrupted(), _interrupted_in_one_line():
        result = run_preflight(plan, names, None if as_json or not sys.stderr.isatty() else _say)
    if html is not None:
        write_preflight(result, html)
        print(f"wrote {html}", file=sys.stderr)
    show_verdict(result, preflight_lines, as_json)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, as of a job's time limit, end the section that runs and leave a partial verdict."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _interrupted_in_one_line() -> Iterator[None]:
    """Exit with 2 after an interrupt between two sections: 1 would say no-go."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise PreflightError("interrupted between two sections; run the check again") from error


def _say(line: str) -> None:
    print(f"trimtab: {line}", file=sys.stderr)
