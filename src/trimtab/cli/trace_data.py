"""`trimtab traces export`, `convert` and `show`: logs as data."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.options import (
    ErrorPatterns,
    LogFormat,
    LogMap,
    Logs,
    SolvedAt,
    Strict,
    fields_of,
    plain,
    traces_app,
)
from trimtab.report.control_characters import escape_controls
from trimtab.traces.core.plural import counted, noted


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
    """Write training data in TRL's conversational formats with tool calls, and a data card with it."""
    from trimtab.report.terminal.progress import reading_bar
    from trimtab.traces.export import ExportOptions, export
    from trimtab.traces.export.data_card import card_text

    options = ExportOptions(
        format=format,
        mapping=fields_of(mapping),
        strict=strict,
        error_patterns=tuple(error_pattern or ()),
        tools=tools,
        solved_at=solved_at,
        per_task=per_task,
        match_length=match_length,
        same_prompt=same_prompt,
        keep_tool_faults=keep_tool_faults,
        keep_unscored=keep_unscored,
    )
    with reading_bar(logs, not as_json) as progress:
        card = export(logs, to, output, options, progress).card
    if as_json:
        for warning in card["warnings"]:
            print(f"warning: {escape_controls(warning)}", file=sys.stderr)
    text = card_text(card)
    print(
        json.dumps(plain(card), allow_nan=False)
        if as_json
        else f"wrote {output}\n\n{escape_controls(text, lines=True)}"
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
    from trimtab.report.terminal.progress import reading_bar
    from trimtab.traces.convert import convert

    with reading_bar(logs) as progress:
        report = convert(logs, output, format, fields_of(mapping), strict, progress)
    print(
        f"wrote {counted(report.num_episodes, 'episode')} to {output}; "
        f"{counted(report.num_malformed, 'malformed line')} skipped"
    )
    for note, count in report.notes.items():
        print(f"  note     {escape_controls(noted(count, note))}")


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
    from trimtab.report.traces.show import show

    print("\n".join(show(logs, episode, limit, format, fields_of(mapping), as_json, strict)))
