"""Python code as a tool, run by bubblewrap: no network, no host files but the interpreter's, rlimits."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimtab.errors import ToolError
from trimtab.tools.failures import ToolFailure
from trimtab.tools.targets.command import Finished, run_process, signal_name
from trimtab.tools.tool_definition import Arguments, Tool

STARTED = "trimtab-sandbox-started"
SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "Python code; what it prints is the result."}},
    "required": ["code"],
    "additionalProperties": False,
}
_RUNNER = """
import json, os, resource, sys
limits, marker = json.loads(sys.argv[1]), sys.argv[2]
code = sys.stdin.read()
for name, value in limits.items():
    resource.setrlimit(getattr(resource, name), (value, value))
os.write(2, (marker + "\\n").encode())
sys.argv = ["code.py"]
try:
    exec(compile(code, "code.py", "exec"), {"__name__": "__main__"})
except MemoryError:
    os.write(2, b"MemoryError: above the limit\\n")
    os._exit(97)
"""


@dataclass(frozen=True)
class SandboxLimits:
    """Resource limits of one run."""

    cpu_s: int = 10
    memory_bytes: int = 512 * 2**20  # of address space
    file_bytes: int = 16 * 2**20  # of one file
    processes: int = 64
    open_files: int = 64

    def rlimits(self) -> dict[str, int]:
        """Names of the `resource` module -> value."""
        names = ("RLIMIT_CPU", "RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_NPROC", "RLIMIT_NOFILE")
        return dict(zip(names, asdict(self).values(), strict=True))


def sandbox_tool(name: str = "python", *, limits: SandboxLimits | None = None, **options: Any) -> Tool:
    """Return a tool that runs Python code in a fresh sandbox for each call.

    Args:
        name: The tool's name.
        limits: Resource limits of a run.
        options: Fields of `Tool`.

    Returns:
        The tool. Its result is what the code printed; an exception of the code is an error of the tool, a
        sandbox that does not start or is killed is one of the infrastructure.

    Raises:
        ToolError: bubblewrap is not installed.

    Example:
        >>> sandbox_tool().name if shutil.which("bwrap") else "python"
        'python'
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise ToolError("the Python sandbox needs bubblewrap (bwrap): apt install bubblewrap")
    rlimits = (limits or SandboxLimits()).rlimits()
    command = [*sandbox_command(bwrap), interpreter(), "-I", "-c", _RUNNER, json.dumps(rlimits), STARTED]

    async def run(arguments: Arguments) -> str:
        done = await run_process(command, maximum=tool.max_result_chars, text=str(arguments["code"]))
        return _result(done)

    known = {"timeout_s": 30.0, "target": "sandbox", "schema": SCHEMA,
             "description": "Run Python code; what it prints is the result."}  # fmt: skip
    tool = Tool(name=name, run=run, **{**known, **options})
    return tool


def sandbox_command(bwrap: str) -> list[str]:
    """Return the words of bubblewrap: an empty root, the interpreter's folders read-only, no network."""
    words = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/work", "--chdir", "/work"]
    for folder in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", *_interpreter_folders()):
        if Path(folder).exists():
            words += ["--ro-bind", folder, folder]
    return [*words, "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/work", "--"]


def interpreter() -> str:
    """The interpreter itself, without the packages of a virtual environment."""
    return str(Path(sys.base_exec_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")


def _interpreter_folders() -> list[str]:
    prefixes = {sys.base_prefix, sys.base_exec_prefix}
    return sorted(one for one in prefixes if not one.startswith("/usr") or one.startswith("/usr/local"))


def _result(done: Finished) -> str:
    marker = STARTED + "\n"
    if marker not in done.err:
        text = done.err.strip().splitlines()
        raise ToolFailure(
            "infrastructure", "sandbox_died", f"the sandbox did not start: {''.join(text[-1:])}"
        )
    err = done.err.replace(marker, "", 1)
    if done.code == 97 or done.code in (-24, 152, -25, 153):  # MemoryError, SIGXCPU, SIGXFSZ
        raise ToolFailure("tool", "resource_limit", f"above a limit of the sandbox\n{done.out}{err}"[-2000:])
    if done.code in (-9, 137):  # the CPU limit ends with SIGKILL too
        raise ToolFailure("infrastructure", "sandbox_died", f"the sandbox was killed\n{done.out}"[-2000:])
    if done.code < 0 or done.code > 128:
        number = -done.code if done.code < 0 else done.code - 128
        raise ToolFailure(
            "tool", "crash", f"the code ended by {signal_name(number)}\n{done.out}{err}"[-2000:]
        )
    if done.code:
        raise ToolFailure("tool", "code_error", f"{done.out}{err}"[-2000:])
    return done.out
