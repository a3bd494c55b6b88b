"""The command line: each command calls one public function; bad input is one line and exit code 2."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab._version import __version__
from trimtab.cli import preflight_command, stress_tools_command, trace_commands, trace_data  # noqa: F401  (they add their commands)
from trimtab.cli.audit_commands import audit_app
from trimtab.cli.ending_commands import ending_app
from trimtab.cli.guard_commands import guard_app
from trimtab.cli.options import leave, pairs, show_verdict, traces_app
from trimtab.cli.parity_command import launch_app
from trimtab.cli.sink_commands import sinks_app
from trimtab.cli.snapshots_command import snapshots_app
from trimtab.cli.stress_commands import stress_app
from trimtab.errors import TrimtabError
from trimtab.report.control_characters import escape_controls

if TYPE_CHECKING:
    from trimtab.detect.rules.rule import Rule

__all__ = ["app", "main"]

app = typer.Typer(
    name="trimtab",
    help="Watch RL runs of tool-using agents: tails by slice, alarms, one offline report.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(traces_app, name="traces")
app.add_typer(guard_app, name="guard")
app.add_typer(stress_app, name="stress")
app.add_typer(audit_app, name="audit")
app.registered_commands.extend(launch_app.registered_commands)  # of the top level
app.registered_commands.extend(sinks_app.registered_commands)
app.registered_commands.extend(ending_app.registered_commands)
app.registered_commands.extend(snapshots_app.registered_commands)

RunFolders = Annotated[list[Path], typer.Argument(help="One or more run folders.", show_default=False)]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    del version


@app.command()
def diagnose(
    path: Annotated[
        Path, typer.Argument(help="Run folder, or any trainer's metrics log.", show_default=False)
    ],
    framework: Annotated[
        str | None, typer.Option(help="Whose keys the log has; found by its keys otherwise.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="The log's format; found by its content otherwise.")
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="NAME=KEY",
            help="Read the metric NAME (docs/reference/metric-keys.md) from the log's KEY; repeatable.",
        ),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(help="YAML file of rules to judge by as well (docs/how-to/user-rules.md).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Everything, not only one screen.")
    ] = False,
) -> None:
    """Verdict, alarms and what was not observed, of a run folder or of another trainer's metrics log
    (docs/how-to/metric-logs.md).

    Exit code: 0 healthy, 1 alarms or unhealthy, 2 bad input, blind or not judged yet.
    """
    extra: tuple[Rule, ...] = ()
    if rules is not None:
        from trimtab.detect.user_rules.load import load_rules

        extra = load_rules(rules)
    from trimtab.runs.run_files import holds_rows

    is_run = (path / "run.json").is_file() or holds_rows(path)
    if is_run and framework is None and format is None and not mapping:
        from trimtab.report.post_mortem import post_mortem
        from trimtab.report.run_diagnosis import diagnosis, diagnosis_lines, diagnosis_screen
        from trimtab.report.run_view import load_view

        view = load_view(path, extra)
        result = diagnosis(view, post_mortem(view))
        lines = diagnosis_lines if verbose else diagnosis_screen
    else:
        from trimtab.report.metric_log_diagnosis import (
            diagnose_log,
            log_diagnosis,
            log_diagnosis_lines,
            log_diagnosis_screen,
        )

        result = log_diagnosis(diagnose_log(path, framework, format, pairs(mapping or ()), extra))
        lines = log_diagnosis_lines if verbose else log_diagnosis_screen
    show_verdict(result, lines, as_json)


@app.command()
def report(
    runs: RunFolders,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="Title of the page, else the runs' names.")] = "",
) -> None:
    """Write one offline HTML page about one run, or comparing several."""
    from trimtab.report.html.run_page import write_html
    from trimtab.report.html.run_payload import build_payload
    from trimtab.report.run_view import load_view
    from trimtab.safe_files import require_new

    require_new(output, runs)
    try:
        write_html(build_payload([load_view(run) for run in runs], title), output)
    except OSError as error:
        raise TrimtabError(f"{output} cannot be written: {error.strerror or error}") from error
    print(f"wrote {output}")


@app.command()
def watch(
    runs: RunFolders,
    interval: Annotated[float, typer.Option(help="Seconds between two updates.", min=0.1)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the view once and leave.")] = False,
) -> None:
    """Follow one or more runs live in the terminal; Ctrl-C leaves."""
    from rich.console import Console

    from trimtab.report.run_view import load_view
    from trimtab.report.terminal.snapshot import live_state
    from trimtab.report.terminal.view import follow, render

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


def _plainly(arguments: list[str]) -> None:
    """`diagnose PATH [--json or --verbose]`, the usual call, leaves here: building typer's parsers takes
    longer than to read most logs."""
    if (
        len(arguments) < 2
        or arguments[0] != "diagnose"
        or arguments[1][:1] in ("", "-")
        or arguments[2:] not in ([], ["--json"], ["--verbose"])
    ):
        return
    try:
        diagnose(
            Path(arguments[1]), as_json=arguments[2:] == ["--json"], verbose=arguments[2:] == ["--verbose"]
        )
    except typer.Exit as left:
        sys.exit(left.exit_code)


def main() -> None:
    """Entry point: TrimtabError becomes one line and exit code 2."""
    sys.stdout = sys.stdout or io.StringIO()  # none after `>&-`
    try:
        _plainly(sys.argv[1:])
        app()
    except TrimtabError as error:
        print(f"trimtab: {escape_controls(str(error))}", file=sys.stderr)
        leave(2)
    except SystemExit as left:  # after a closed pipe click and rich exit with 1, which says "alarms"
        unread = isinstance(left.__context__, BrokenPipeError)
        leave(0 if unread or left.code is None else int(left.code))
    except BrokenPipeError:
        leave(0)
    except OSError as error:  # of standard output, as on a full disk, or of a file that names itself
        print(f"trimtab: cannot go on: {escape_controls(str(error))}", file=sys.stderr)
        leave(2)
    except Exception as error:  # never a traceback, and never exit code 1, which says "alarms"
        if os.environ.get("TRIMTAB_TRACEBACK"):
            raise
        print(
            f"trimtab: cannot go on: {escape_controls(f'{type(error).__name__}: {error}')}; a damaged run "
            "folder or a bug of ours (TRIMTAB_TRACEBACK=1 shows where)",
            file=sys.stderr,
        )
        leave(2)
