"""Ctrl-C in one line, also while the libraries load, which takes seconds; imports nothing that is slow."""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["said", "say_interrupted"]


def said(script: str) -> str:
    """The line."""
    return f"{script}: interrupted; what is finished is kept, the same command goes on from there"


def say_interrupted(script: str) -> None:
    """From now on a Ctrl-C that nobody catches prints the line and no traceback."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print(said(script), file=sys.stderr)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = hook
