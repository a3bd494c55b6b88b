"""trimtab keeps long-running RL runs of tool-using language agents alive.

    import trimtab

    run = trimtab.open_run("runs/exp1")
    run.observe(loss_mask=..., logprobs=..., ref_logprobs=...)
    run.flush(step, metrics={"reward": 0.4})

Importing this loads NumPy and the standard library only; trainers live in `trimtab.adapters`.
"""

from trimtab._version import __version__
from trimtab.capture import token_batch
from trimtab.errors import BatchError, RunError, SummaryError, TrimtabError, UnsupportedError
from trimtab.records import Alarm, Convention, Reading, TokenBatch
from trimtab.traces.tool_call import ToolCall
from trimtab.watch import Run, open_run

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
