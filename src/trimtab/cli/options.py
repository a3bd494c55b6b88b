"""Options that commands share, the group `trimtab traces`, and JSON without NaN."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer

from trimtab.errors import MetricLogError, TraceError, TrimtabError

traces_app = typer.Typer(
    help="Agent logs: from logs to diagnosis to training data (docs/how-to/agent-logs.md).",
    no_args_is_help=True,
)

Logs = Annotated[
    list[str], typer.Argument(help="Files, folders or globs; - is standard input.", show_default=False)
]
LogFormat = Annotated[str | None, typer.Option(help="The logs' format; found by their content otherwise.")]
LogMap = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=JSON.PATH", help="For logs of no known format; repeatable."),
]
ErrorPatterns = Annotated[
    list[str] | None,
    typer.Option("--error-pattern", help="A regular expression of results that report an error; repeatable."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line, exit code 2.")]
SolvedAt = Annotated[float | None, typer.Option(help="An episode with this reward or more is solved.")]


def declared_of(require: list[str], key_arguments: list[str], solved_at: float | None) -> Any:
    """What must be used, and from which reward on an episode is solved (`Requirements`). TraceError for what
    names nothing."""
    from trimtab.measure.state.requirements import Requirements

    files = tuple(name.removeprefix("file:") for name in require if name.startswith("file:"))
    keys = dict(text.partition("=")[::2] for text in key_arguments)
    if not all(tool and argument for tool, argument in keys.items()):
        raise TraceError("--key-argument wants TOOL=ARGUMENT, as --key-argument read_file=path")
    if files and not keys:
        raise TraceError(
            f"--require file:{files[0]} needs --key-argument TOOL=ARGUMENT, as read_file=path: nothing "
            f"names a file otherwise"
        )
    tools = tuple(name for name in require if not name.startswith("file:"))
    return Requirements(required_tools=tools, key_arguments=keys, required_files=files, solved_at=solved_at)


def fields_of(texts: list[str] | None) -> dict[str, str]:
    """FIELD=JSON.PATH texts as a dictionary. TraceError for what is none."""
    try:
        return pairs(texts or ())
    except MetricLogError as error:
        raise TraceError(f"{str(error).partition(',')[0]}, as in --map messages=data.turns") from error


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """NAME=KEY texts as a mapping; MetricLogError for one without both, and where one of ours is given
    twice."""
    named: dict[str, str] = {}
    for text in texts:
        ours, _, theirs = text.partition("=")
        if not ours or not theirs:
            raise MetricLogError(f"--map {text!r} is not of the form NAME=KEY, as in --map reward=my/score")
        ours, theirs = ours.strip(), theirs.strip()
        if ours in named:
            raise MetricLogError(
                f"--map {ours} is given twice, for {named[ours]} and for {theirs}; give the key it is to be "
                f"read off"
            )
        named[ours] = theirs
    return named


def show_verdict(result: Mapping[str, Any], lines: Callable[[Any], list[str]], as_json: bool) -> NoReturn:
    """Print a diagnosis and exit with its code, also where its reader has gone (`| head -1`)."""
    with suppress(BrokenPipeError):
        print_all(json.dumps(plain(result), allow_nan=False) if as_json else "\n".join(lines(result)))
    raise typer.Exit(result["exit_code"])


def print_all(text: str) -> None:
    """Print text and flush it. TrimtabError where standard output takes no more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TrimtabError(f"standard output cannot be written: {error.strerror or error}") from error


def leave(code: int) -> NoReturn:
    """Exit with a code, without what standard output does not take any more."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # the interpreter flushes again at its exit
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError) and code != 2:
            text = f"trimtab: standard output cannot be written: {error.strerror or error}"
            print(text, file=sys.stderr)
            code = 2
    sys.exit(code)


def plain(value: Any) -> Any:
    """Strict JSON: what is not finite becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
