"""An environment in bubblewrap: the agent's phase with the agent's rights, then the verifier's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.errors import RewardError

ROOT = "/tmp/env"
"""Where the environment lies inside the sandbox."""
_LIMITS = "ulimit -t 120 -f 1000000 -u 4096 2>/dev/null; "


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    output: str
    timed_out: bool = False


def require_bubblewrap() -> None:
    """Do nothing where bubblewrap works; RewardError in one line otherwise."""
    if shutil.which("bwrap") is None:
        raise RewardError(
            "bubblewrap (bwrap) is not installed; exploits run in it only (apt install bubblewrap)"
        )
    done = subprocess.run(["bwrap", *_base(), "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        why = " ".join(done.stderr.split())[:200]
        raise RewardError(f"bubblewrap does not work here ({why}); exploits run in it only")


def agent_phase(trial: Path, workspace: str, visible: Sequence[str], writable: Sequence[str]) -> list[str]:
    """Return the command prefix of the agent's phase: the workspace and `writable` can be written, `visible`
    read, and the rest of the environment is not there."""
    mounts = ["--bind", str(trial / workspace), f"{ROOT}/{workspace}"]
    for flag, paths in (("--ro-bind", visible), ("--bind", writable)):
        for path in paths:
            mounts += [flag, str(trial / path), f"{ROOT}/{path}"]
    return ["bwrap", *_base(), *mounts, "--chdir", f"{ROOT}/{workspace}"]


def verifier_phase(trial: Path, folder: str) -> list[str]:
    """Return the command prefix of the verifier's phase: it sees and may write the whole copy."""
    return ["bwrap", *_base(), "--bind", str(trial), ROOT, "--chdir", f"{ROOT}/{folder}".rstrip("/.")]


def run_phase(prefix: Sequence[str], command: Sequence[str], timeout_s: float, text: str = "") -> Done:
    """Run a command in a phase, with limits on time, memory of files and processes."""
    process = subprocess.Popen(
        [*prefix, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=_environment(),
    )  # fmt: skip
    try:
        output, _ = process.communicate(text.encode(), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Done(-1, "", timed_out=True)
    return Done(process.returncode, output[-100_000:].decode(errors="replace"))


def shell(command: str) -> list[str]:
    """Return a shell command under limits."""
    return ["/bin/sh", "-c", _LIMITS + command]


def python() -> str:
    """Return the interpreter's path where the sandbox sees it."""
    return str(Path(sys.prefix).resolve() / "bin" / "python")


def _base() -> list[str]:
    """Everything read-only, no network, processes of its own, and an empty /tmp."""
    return [
        "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-all",
        "--die-with-parent", "--new-session",
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    folder = str(Path(sys.prefix).resolve() / "bin")
    path = os.pathsep.join([folder, "/usr/local/bin", "/usr/bin", "/bin"])
    return {"PATH": path, "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
