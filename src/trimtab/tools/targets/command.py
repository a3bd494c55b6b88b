"""Commands as tools: arguments are words of a command line, never of a shell; the result is its output."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.errors import ToolError
from trimtab.tools.extras import library
from trimtab.tools.failures import ToolFailure, text_failure
from trimtab.tools.tool_definition import Arguments, Tool


@dataclass(frozen=True)
class Finished:
    """What a process left: its exit code (negative: the signal), and what it wrote, each cut at the limit."""

    code: int
    out: str
    err: str


def command_tool(name: str, command: Sequence[str], schema: Mapping[str, Any], **options: Any) -> Tool:
    """Return a command as a tool.

    Args:
        name: The tool's name.
        command: Words of the command. `{argument}` in a word is replaced by the call's argument of that name;
            no shell reads them.
        schema: JSON schema of the arguments.
        options: Fields of `Tool`.

    Returns:
        The tool. A non-zero exit code is an error of the tool, a signal one of the infrastructure. A
        timeout or a cancellation kills the process.

    Raises:
        ToolError: An empty command, or one that names an argument the schema lacks.

    Example:
        >>> schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        >>> command_tool("count", ["seq", "{n}"], schema).name
        'count'
    """
    words = [str(word) for word in command]
    if not words:
        raise ToolError(f"tool {name}: the command is empty")
    names = tuple(schema.get("properties", {}))
    for word in words:
        if "{" in word and "}" in word and not any("{" + one + "}" in word for one in names):
            raise ToolError(f"tool {name}: {word!r} names no argument of the schema ({', '.join(names)})")

    async def run(arguments: Arguments) -> str:
        filled = [_filled(word, names, arguments) for word in words]
        done = await run_process(filled, maximum=tool.max_result_chars)
        if done.code < 0:
            text = f"{words[0]} ended by {signal_name(-done.code)}"
            raise ToolFailure("infrastructure", "sandbox_died", text)
        if done.code:
            raise text_failure(f"exit code {done.code}: {(done.err or done.out)[-500:]}", "exit_code")
        return done.out

    tool = Tool(name=name, run=run, schema=schema, **options)
    return tool


async def run_process(command: Sequence[str], *, maximum: int, text: str | None = None) -> Finished:
    """Run a process to its end, in a session of its own.

    Args:
        command: Its words.
        maximum: Characters of each output that are kept; the rest is read and dropped.
        text: Its standard input, none by default.

    Returns:
        Exit code and outputs.

    Raises:
        ToolFailure: It cannot be started.
    """
    anyio = library("anyio")
    stdin = subprocess.PIPE if text is not None else subprocess.DEVNULL
    try:
        process = await anyio.open_process(list(command), stdin=stdin, start_new_session=True)
    except OSError as error:
        raise ToolFailure(
            "infrastructure", "sandbox_died", f"{command[0]} cannot be started: {error}"
        ) from error
    outputs: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}

    async def read(stream: Any, key: str) -> None:
        async for chunk in stream:
            outputs[key] += chunk[: max(4 * maximum - len(outputs[key]), 0)]

    async def write() -> None:
        try:
            await process.stdin.send((text or "").encode())
            await process.stdin.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # it ended without reading

    try:
        async with anyio.create_task_group() as group:
            if text is not None:
                group.start_soon(write)
            group.start_soon(read, process.stdout, "out")
            group.start_soon(read, process.stderr, "err")
        code = await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            kill_group(process.pid, running=process.returncode is None)
            await process.aclose()
    out, err = (outputs[key].decode(errors="replace")[:maximum] for key in ("out", "err"))
    return Finished(code, out, err)


def kill_group(pid: int, *, running: bool) -> None:
    """Kill a process and what it started: it leads a session of its own."""
    if running:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return


def signal_name(number: int) -> str:
    """
    >>> signal_name(9), signal_name(4242)
    ('SIGKILL', 'signal 4242')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _filled(word: str, names: Sequence[str], arguments: Arguments) -> str:
    """Fill in one pass: an argument that holds braces is not read again."""
    pattern = "|".join(re.escape("{" + name + "}") for name in names)
    return re.sub(pattern, lambda hole: str(arguments.get(hole[0][1:-1], "")), word) if pattern else word
