"""`trimtab traces diagnose` and `compare`: verdicts on logs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.cli.options import (
    ErrorPatterns,
    LogFormat,
    LogMap,
    Logs,
    SolvedAt,
    Strict,
    declared_of,
    fields_of,
    plain,
    print_all,
    show_verdict,
    traces_app,
)
from trimtab.errors import TraceError
from trimtab.traces.core.plural import counted
from trimtab.traces.files.find import spare_logs


@traces_app.command("diagnose")
def diagnose_logs(
    logs: Logs,
    format: LogFormat = None,
    mapping: LogMap = None,
    strict: Strict = False,
    require: Annotated[
        list[str] | None,
        typer.Option(help="A tool that must be used, or file:PATH (see --key-argument); repeatable."),
    ] = None,
    key_argument: Annotated[
        list[str] | None, typer.Option(help="TOOL=ARGUMENT whose values name files; repeatable.")
    ] = None,
    solved_at: SolvedAt = None,
    error_pattern: ErrorPatterns = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Count step JSONL on this Ray cluster: an address, auto, or local.", metavar="ADDRESS"
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write an offline page with an episode viewer.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="A tokenizer.json or its folder: text for the page's tokens, where the log has ids.",
            metavar="PATH",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Diagnose one growing file again as it grows; Ctrl-C ends it.")
    ] = False,
    every: Annotated[float, typer.Option(help="Seconds between two readings (--follow).", min=0.05)] = 2.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of text; a line each time with --follow.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Everything, not only one screen.")
    ] = False,
) -> None:
    """Which tools fail, which episodes loop, what separates failed from solved: a verdict with its evidence.

    Exit code: 0 healthy, 1 alarms, 2 bad input, blind or not judged yet.
    """
    from trimtab.report.terminal.progress import reading_bar
    from trimtab.report.traces.token_colors import decoder
    from trimtab.report.traces.trace_diagnosis import diagnose_traces, trace_diagnosis
    from trimtab.report.traces.trace_lines import trace_diagnosis_lines
    from trimtab.report.traces.trace_screen import trace_screen

    declared = declared_of(require or [], key_argument or [], solved_at)
    if tokenizer is not None and html is None:
        raise TraceError("--tokenizer writes the tokens of a page, and there is none; give --html PATH too")
    if html is not None:
        spare_logs(logs, html)
    decode = None if tokenizer is None else decoder(tokenizer)  # before the logs, which may take minutes
    if follow:
        if html is not None or ray is not None or len(logs) != 1:
            raise TraceError("--follow takes one file, and neither --html nor --ray")
        from trimtab.report.traces.live_diagnosis import follow_traces

        patterns = error_pattern or ()
        states = follow_traces(
            logs[0], format, fields_of(mapping), strict, declared, every, error_patterns=patterns
        )
        _follow(states, as_json)
    with reading_bar(logs, not as_json) as progress:
        judged = diagnose_traces(
            logs, format, fields_of(mapping), strict, declared, progress, error_pattern or (), ray
        )
    result = trace_diagnosis(judged)
    if html is not None:
        _write_page(judged, html, format, fields_of(mapping), decode)
    lines = trace_diagnosis_lines if verbose else trace_screen
    show_verdict(result, lines, as_json)


@traces_app.command("compare")
def compare_logs(
    a: Annotated[str, typer.Argument(help="Logs A: a file, folder or glob.", show_default=False)],
    b: Annotated[str, typer.Argument(help="Logs B.", show_default=False)],
    format: LogFormat = None,
    mapping: LogMap = None,
    strict: Strict = False,
    solved_at: SolvedAt = None,
    error_pattern: ErrorPatterns = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """What differs between two sets of logs by more than chance, also among attempts at the same tasks.

    Exit code: 0 no difference found, 1 different, 2 bad input, blind or too few to judge.
    """
    from trimtab.report.terminal.progress import reading_bar
    from trimtab.report.traces.compare import compare_lines, compare_traces

    with reading_bar([a, b], not as_json) as progress:
        result = compare_traces(
            [a], [b], format, fields_of(mapping), strict, solved_at, progress, error_pattern or ()
        )
    show_verdict(result, compare_lines, as_json)


def _follow(states: Iterable[Any], as_json: bool) -> None:
    """Print each state until Ctrl-C; the exit code is the last verdict's."""
    from trimtab.report.traces.trace_diagnosis import trace_diagnosis

    last = None
    try:
        for state in states:
            last = state.judged
            text = [json.dumps(plain(trace_diagnosis(last)), allow_nan=False)] if as_json else state.lines()
            print_all("\n".join(text))
    except BrokenPipeError:
        pass
    except KeyboardInterrupt:
        seen = (
            f"{counted(last.table.num_episodes, 'episode')}, {last.verdict.word}"
            if last
            else "no episode had ended"
        )
        print(f"stopped: {seen}", file=sys.stderr)
    raise typer.Exit(last.verdict.exit_code if last else 2)


def _write_page(
    judged: Any,
    output: Path,
    format: str | None,
    mapping: dict[str, str],
    decode: Callable[[int], str] | None,
) -> None:
    from trimtab.report.traces.trace_page import write_traces_html

    if "-" in judged.paths:
        raise TraceError(
            "--html reads the logs a second time, which standard input cannot; write them to a file first"
        )
    if output.is_dir():
        raise TraceError(f"{output} is a folder; name the page")
    try:
        write_traces_html(judged, output, format, mapping, decode)
    except OSError as error:
        raise TraceError(f"{output} cannot be written: {error.strerror or error}") from error
    print(f"wrote {output}", file=sys.stderr)
