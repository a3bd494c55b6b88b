"""Watch RL runs of tool-using language agents: measure, detect, report, and read logs.

    import trimtab

    run = trimtab.open_run("runs/exp1")
    run.observe(loss_mask=..., logprobs=..., ref_logprobs=...)
    run.flush(step, metrics={"reward": 0.4})

Importing this loads next to nothing: each name brings its module when it is first used, so that a command
pays for what it needs only. Trainers live in `trimtab.adapters`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab import _moved
from trimtab._version import __version__

if TYPE_CHECKING:
    from trimtab.capture import token_batch
    from trimtab.errors import BatchError, RunError, SummaryError, TrimtabError, UnsupportedError
    from trimtab.monitor import Run, open_run
    from trimtab.traces.core.tool_call import ToolCall
    from trimtab.types import Alarm, Convention, Reading, TokenBatch

__all__ = [
    "Alarm",
    "BatchError",
    "Convention",
    "Reading",
    "Run",
    "RunError",
    "SummaryError",
    "TokenBatch",
    "ToolCall",
    "TrimtabError",
    "UnsupportedError",
    "__version__",
    "open_run",
    "token_batch",
]

_moved.install()

_HOME = {
    "token_batch": "trimtab.capture",
    **dict.fromkeys(("BatchError", "RunError", "SummaryError", "TrimtabError", "UnsupportedError"),
    "trimtab.errors"),
    **dict.fromkeys(("Alarm", "Convention", "Reading", "TokenBatch"), "trimtab.types"),
    "ToolCall": "trimtab.traces.core.tool_call",
    **dict.fromkeys(("Run", "open_run"), "trimtab.monitor"),
}  # fmt: skip
"""Public name -> the module that defines it."""


def __getattr__(name: str) -> Any:
    """Return a public name, imported on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'trimtab' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
