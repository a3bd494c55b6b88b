"""A resume continues with the baseline it had: the detectors are fed what the folder holds of the steps before."""

from __future__ import annotations

import logging

from trimtab.detect.pipeline import Pipeline
from trimtab.measure.sequences.tool_health import ToolHealth, replay_tools
from trimtab.runs import RunReader, RunWriter
from trimtab.runs.serialization import readings_from_row
from trimtab.types import Reading

log = logging.getLogger("trimtab")


def restore(writer: RunWriter, step: int, pipeline: Pipeline, tools: ToolHealth) -> None:
    """Feed `pipeline` and `tools` what this rank wrote of the steps before `step`; a warning when it wrote later ones too."""
    reader, rank = RunReader(writer.folder, complete=True), writer.rank
    if reader.last_step(rank) is None:
        return
    closed: dict[int, list[Reading]] = {}
    for row in reader.rows("readings", rank):
        closed.setdefault(int(row["step"]), []).extend(readings_from_row(row))
    over = [int(row["step"]) for row in reader.rows("steps", rank) if row["step"] >= step]
    if over:
        log.warning(
            "trimtab: %s holds steps up to %d and now starts again at %d; steps %d to %d stay on disk but no view shows "
            "them. Give a new folder if this is another run.", writer.folder, over[-1], step, over[0], over[-1],
        )  # fmt: skip
    before = [row for row in reader.rows("steps", rank) if row["step"] < step]
    replay_tools(tools, before, reader.rows("tools", rank))
    for row in before:
        pipeline.on_step(row["step"], row["nonfinite"], row["columns"])
        pipeline.on_readings(closed.get(row["step"], []))
