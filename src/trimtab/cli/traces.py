"""`trimtab traces`: agent logs, from logs to diagnosis to training data."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.cli.text import pairs, plain
from trimtab.errors import MetricLogError, TraceError
from trimtab.report.inert import inert
from trimtab.traces.files import spare_logs
from trimtab.traces.wording import counted

__all__ = ["traces_app"]

traces_app = typer.Typer(
    help="Agent logs: from logs to diagnosis to training data (docs/traces.md).", no_args_is_help=True
)

Logs = Annotated[
    list[str], typer.Argument(help="Files, folders or globs; - is standard input.", show_default=False)
]
LogFormat = Annotated[str | None, typer.Option(help="The logs' format; found by their content otherwise.")]
LogMap = Annotated[
    list[str] | None, typer.Option("--map", help="FIELD=JSON.PATH for logs of no known format; repeatable.")
]
ErrorPatterns = Annotated[
    list[str] | None,
    typer.Option("--error-pattern", help="A regular expression of results that report an error; repeatable."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line, exit code 2.")]
SolvedAt = Annotated[float | None, typer.Option(help="An episode with this reward or more is solved.")]
EngineName = Annotated[str, typer.Option(help="auto, records, or columns (DuckDB, for large step JSONL).")]


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
    engine: EngineName = "auto",
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
    every: Annotated[float, typer.Option(help="Seconds between two looks (--follow).", min=0.05)] = 2.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of text; a line each time with --follow.")
    ] = False,
) -> None:
    """Which tools fail, which episodes loop, what separates failed from solved: a verdict with its evidence.

    Exit code: 0 healthy, 1 alarms, 2 bad input, blind or not judged yet.
    """
    from trimtab.report.progress import reading_bar
    from trimtab.report.trace_diagnosis import diagnose_traces, trace_diagnosis
    from trimtab.report.trace_lines import trace_diagnosis_lines
    from trimtab.report.trace_tokens import decoder

    declared = _declared(require or [], key_argument or [], solved_at)
    if tokenizer is not None and html is None:
        raise TraceError("--tokenizer writes the tokens of a page, and there is none; give --html PATH too")
    if html is not None:
        spare_logs(logs, html)
    decode = None if tokenizer is None else decoder(tokenizer)  # before the logs, which may take minutes
    if follow:
        if html is not None or engine == "columns" or ray is not None or len(logs) != 1:
            raise TraceError("--follow takes one file, and neither --html nor --engine columns nor --ray")
        _follow(logs[0], format, _fields(mapping), strict, declared, every, as_json, error_pattern or ())
    with reading_bar(logs, not as_json) as progress:
        judged = diagnose_traces(
            logs, format, _fields(mapping), strict, declared, engine, progress, error_pattern or (), ray
        )
    found = trace_diagnosis(judged)
    if html is not None:
        _write_traces(judged, html, format, _fields(mapping), decode)
    print(json.dumps(plain(found), allow_nan=False) if as_json else "\n".join(trace_diagnosis_lines(found)))
    raise typer.Exit(found["exit_code"])


@traces_app.command("compare")
def compare_logs(
    a: Annotated[str, typer.Argument(help="Logs A: a file, folder or glob.", show_default=False)],
    b: Annotated[str, typer.Argument(help="Logs B.", show_default=False)],
    format: LogFormat = None,
    mapping: LogMap = None,
    strict: Strict = False,
    solved_at: SolvedAt = None,
    engine: EngineName = "auto",
    error_pattern: ErrorPatterns = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """What differs between two sets of logs by more than chance, also among attempts at the same tasks.

    Exit code: 0 no difference found, 1 different, 2 bad input or too few to judge.
    """
    from trimtab.report.progress import reading_bar
    from trimtab.report.trace_compare import compare_lines, compare_traces

    with reading_bar([a, b], not as_json) as progress:
        found = compare_traces(
            [a], [b], format, _fields(mapping), strict, solved_at, engine, progress, error_pattern or ()
        )
    print(json.dumps(plain(found), allow_nan=False) if as_json else "\n".join(compare_lines(found)))
    raise typer.Exit(found["exit_code"])


@traces_app.command("export")
def export_logs(
    logs: Logs,
    to: Annotated[
        str, typer.Option(help="sft, dpo, kto, grpo (prompts) or steps (labels).", show_default=False)
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="A .parquet or .jsonl file; a new folder for datasets.", show_default=False
        ),
    ],
    format: LogFormat = None,
    mapping: LogMap = None,
    strict: Strict = False,
    solved_at: SolvedAt = None,
    per_task: Annotated[int | None, typer.Option(help="Pairs a task, at most (dpo); 4.", min=1)] = None,
    match_length: Annotated[
        bool, typer.Option("--match-length", help="Pair attempts of like size first (dpo).")
    ] = False,
    same_prompt: Annotated[
        bool, typer.Option("--same-prompt", help="Pair only attempts that began with the same words (dpo).")
    ] = False,
    tools: Annotated[
        Path | None, typer.Option(help="A JSON list of tool schemas, for episodes whose log has none.")
    ] = None,
    keep_tool_faults: Annotated[
        bool, typer.Option("--keep-tool-faults", help="Keep episodes a tool's fault failed.")
    ] = False,
    keep_unscored: Annotated[
        bool,
        typer.Option(
            "--keep-unscored", help="Keep episodes of which no outcome is known, as demonstrations (sft)."
        ),
    ] = False,
    error_pattern: ErrorPatterns = None,
    as_json: Annotated[bool, typer.Option("--json", help="The data card as one JSON object.")] = False,
) -> None:
    """Write training data in TRL's conversational formats with tool calls, and a data card beside it."""
    from trimtab.report.progress import reading_bar
    from trimtab.traces.export import export
    from trimtab.traces.export.write import card_text

    with reading_bar(logs, not as_json) as progress:
        made = export(
            logs,
            to,
            output,
            format,
            _fields(mapping),
            solved_at,
            per_task,
            match_length,
            keep_tool_faults,
            progress,
            error_pattern or (),
            same_prompt,
            tools,
            strict,
            keep_unscored,
        )
    if as_json:
        for warning in made.card["warnings"]:
            print(f"warning: {inert(warning)}", file=sys.stderr)
    text = card_text(made.card)
    print(
        json.dumps(plain(made.card), allow_nan=False)
        if as_json
        else f"wrote {output}\n\n{inert(text, lines=True)}"
    )


@traces_app.command("convert")
def convert_logs(
    logs: Logs,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The JSONL file to write.", show_default=False)
    ],
    format: LogFormat = None,
    mapping: LogMap = None,
    strict: Strict = False,
) -> None:
    """Write the episodes as trimtab's own JSONL, one a line."""
    from trimtab.report.progress import reading_bar
    from trimtab.traces.convert import convert

    with reading_bar(logs) as progress:
        report = convert(logs, output, format, _fields(mapping), strict, progress)
    print(
        f"wrote {counted(report.num_episodes, 'episode')} to {output}; {counted(report.num_malformed, 'malformed line')} skipped"
    )
    for note, count in report.notes.items():
        print(f"  note     {count:,} {inert(note)}")


@traces_app.command("show")
def show_logs(
    logs: Logs,
    episode: Annotated[
        str | None, typer.Option("--episode", "-e", help="Show this episode; lists them otherwise.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Episodes to list.", min=1)] = 20,
    format: LogFormat = None,
    mapping: LogMap = None,
    strict: Strict = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON lines of the episodes instead of text.")
    ] = False,
) -> None:
    """List the episodes, or print one with its messages, calls, results and errors."""
    from trimtab.report.trace_show import show

    print("\n".join(show(logs, episode, limit, format, _fields(mapping), as_json, strict)))


def _follow(
    path: str,
    format: str | None,
    mapping: dict[str, str],
    strict: bool,
    declared: Any,
    every: float,
    as_json: bool,
    error_patterns: Iterable[str],
) -> None:
    """Until Ctrl-C; the exit code is the last verdict's."""
    from trimtab.report.trace_diagnosis import trace_diagnosis
    from trimtab.report.trace_follow import follow_traces

    last = None
    try:
        states = follow_traces(path, format, mapping, strict, declared, every, error_patterns=error_patterns)
        for state in states:
            last = state.found
            text = [json.dumps(plain(trace_diagnosis(last)), allow_nan=False)] if as_json else state.lines()
            print("\n".join(text), flush=True)
    except KeyboardInterrupt:
        seen = (
            f"{counted(last.table.num_episodes, 'episode')}, {last.verdict.word}"
            if last
            else "no episode had ended"
        )
        print(f"stopped: {seen}", file=sys.stderr)
    raise typer.Exit(last.verdict.exit_code if last else 2)


def _declared(require: list[str], key_arguments: list[str], solved_at: float | None) -> Any:
    from trimtab.measure.declared import Declared

    files = tuple(name.removeprefix("file:") for name in require if name.startswith("file:"))
    keys = dict(text.partition("=")[::2] for text in key_arguments)
    if not all(tool and argument for tool, argument in keys.items()):
        raise TraceError("--key-argument wants TOOL=ARGUMENT, as --key-argument read_file=path")
    if files and not keys:
        raise TraceError(
            f"--require file:{files[0]} needs --key-argument TOOL=ARGUMENT, as read_file=path: nothing names a file otherwise"
        )
    tools = tuple(name for name in require if not name.startswith("file:"))
    return Declared(required_tools=tools, key_arguments=keys, required_files=files, solved_at=solved_at)


def _write_traces(
    judged: Any,
    output: Path,
    format: str | None,
    mapping: dict[str, str],
    decode: Callable[[int], str] | None,
) -> None:
    from trimtab.report.trace_html import write_traces_html

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


def _fields(texts: list[str] | None) -> dict[str, str]:
    try:
        return pairs(texts or ())
    except MetricLogError as error:
        raise TraceError(f"{str(error).partition(',')[0]}, as in --map messages=data.turns") from error
