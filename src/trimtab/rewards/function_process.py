"""A reward function in a process of its own: a limit on time, and a new process after a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from trimtab.errors import RewardError

LOAD_S = 180.0
"""Seconds that importing the function's module may take: trainers take up to a minute on a busy machine."""


@dataclass(frozen=True)
class Call:
    """What one call of the function gave."""

    rewards: tuple[float | None, ...] = ()
    seconds: float = 0.0
    error: str = ""  # its exception, or what is wrong with its result; empty where it answered
    kind: str = ""  # "exception", "result", "timeout" or "died"


class FunctionProcess:
    """A reward function behind a pipe. Use it as a context manager.

    Args:
        spec: module:function, or path/file.py:function.
        timeout_s: seconds of one call; after them the process is killed and started anew.

    Raises:
        RewardError: the function cannot be loaded.
    """

    def __init__(self, spec: str, timeout_s: float) -> None:
        self.spec, self.timeout_s = spec, timeout_s
        self.conversational = False
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = self._start()

    def __enter__(self) -> FunctionProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._errors.close()

    def call(
        self, prompts: Sequence[Any], completions: Sequence[str], columns: Mapping[str, Sequence[Any]]
    ) -> Call:
        """Call the function on B completions."""
        request = {
            "prompts": list(prompts), "completions": list(completions), "columns": dict(columns),
            "conversational": self.conversational,
        }  # fmt: skip
        line, timed_out = self._exchange(json.dumps(request), self.timeout_s)
        if not line:
            self._stop()
            last = self._last_error()
            self._process = self._start()
            if timed_out:
                return Call(
                    error=f"no answer in {self.timeout_s:g} s", kind="timeout", seconds=self.timeout_s
                )
            return Call(error=f"the process died{last}", kind="died")
        answer = json.loads(line)
        if "error" in answer:
            return Call(error=answer["error"], kind=answer["kind"])
        return Call(tuple(answer["rewards"]), answer["seconds"])

    def _start(self) -> subprocess.Popen[bytes]:
        source = str(Path(__file__).resolve().parents[2])
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH", "")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trimtab.rewards.function_worker", self.spec],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        line, timed_out = self._exchange("", LOAD_S)
        if not line:
            self._stop()
            if timed_out:
                raise RewardError(f"{self.spec} did not load in {LOAD_S:g} s")
            raise RewardError(f"{self.spec} ended its process while it was loaded{self._last_error()}")
        answer = json.loads(line)
        if "error" in answer:
            self._stop()
            text = " ".join(str(answer["error"]).split())
            raise RewardError(text if self.spec in text else f"{self.spec}: {text}")
        return self._process

    def _exchange(self, text: str, seconds: float) -> tuple[bytes, bool]:
        """Send a line and read one; was the process killed for time?"""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(seconds, expire)
        timer.start()
        try:
            if text:
                process.stdin.write(text.encode() + b"\n")
                process.stdin.flush()
            return process.stdout.readline(), expired.is_set()
        except BrokenPipeError:
            return b"", expired.is_set()
        finally:
            timer.cancel()

    def _stop(self) -> None:
        process = self._process
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        process.wait()

    def _last_error(self) -> str:
        """The last line it wrote to standard error, after a colon."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""
