"""Record trained runs through `trimtab.open_run` and `Run.snapshot`, as a loop would have; the held-out scores go to a file of their own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import trimtab
from reproduce.collapse_bank.batches import load_batches
from reproduce.collapse_bank.recording import TOOLS, WINDOW, arrays_of, averages_of, probe_batch
from reproduce.collapse_bank.slim_run import DROPPED, slim_run
from trimtab.errors import RunError
from trimtab.lab.probe_bank import probe_bank
from trimtab.lab.tokenizer import CALL_START, decode
from trimtab.monitor import Run
from trimtab.runs import compress_run
from trimtab.snapshots import Answer, TranscriptScores
from trimtab.traces.core.tool_call import ToolCall

__all__ = ["MARK", "read_mark", "record"]

MARK = "held_out.json"


def record(raw: Path, folder: Path) -> None:
    """Write the run folder of `<raw>.json` and `<raw>.npz`; a folder that is there is replaced."""
    stored = json.loads(raw.read_text())
    batches = load_batches(raw.with_suffix(".npz"))
    snapshots = {int(row["step"]): row for row in stored["snapshots"]}
    shutil.rmtree(folder, ignore_errors=True)
    probes = probe_bank()
    with trimtab.open_run(folder, rank=0, strict=True, min_tokens=WINDOW, state_every=10) as run:
        _take(run, snapshots[0])
        for batch in batches.steps:
            if batch.probe_logprobs is not None:
                run.probe(batch.step, probe_batch(probes, batch.probe_logprobs))
            run.observe(**arrays_of(batch))
            for tool, error in zip(batch.calls.tolist(), batch.failed.tolist(), strict=True):
                run.tool_call(ToolCall(name=TOOLS[tool - 1], error="failed" if error else ""))
            if batch.step in snapshots:
                _take(run, snapshots[batch.step])
            run.flush(batch.step, averages_of(batch))
    compress_run(folder)
    slim_run(folder, dropped=(*DROPPED, "tools"))
    mark = {key: batches.identity[key] for key in ("cause", "seed", "fault_step")}
    scores = {str(step): row["held_out"] for step, row in sorted(snapshots.items())}
    (folder / MARK).write_text(
        json.dumps({**mark, "steps": len(batches.steps), "held_out": scores}, indent=1) + "\n"
    )


def read_mark(folder: Path) -> dict[str, Any]:
    """Read the held-out scores of a recorded run; raises RunError for a damaged file."""
    try:
        mark = json.loads((folder / MARK).read_text())
        return {**mark, "held_out": {int(step): row for step, row in mark["held_out"].items()}}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise RunError(f"{folder / MARK} cannot be read: {error}; restore it (git restore)") from error


def _take(run: Run, stored: Mapping[str, Any]) -> None:
    rows = stored["answers"]
    run.snapshot(
        stored["step"],
        [row["prompt"] for row in rows],
        lambda _: [_answer(row) for row in rows],
        lambda: _scores(stored),
    )


def _answer(row: Mapping[str, Any]) -> Answer:
    own: Sequence[int] = row["env_mask"]
    begun = sum(bool(mine) and token == CALL_START for token, mine in zip(row["ids"], own, strict=True))
    return Answer(
        decode(row["ids"]), sum(own), row["stop"], row["reward"], begun, max(0, begun - len(row["called"]))
    )


def _scores(stored: Mapping[str, Any]) -> TranscriptScores:
    bank = probe_bank()
    numbers = (np.array(stored[name], np.float64) for name in ("logprobs", "entropy"))
    logprobs, entropy = numbers
    return TranscriptScores(
        bank.loss_mask.sum(axis=1), logprobs, bank.post_tool[bank.loss_mask], entropy, "lab probe bank"
    )
