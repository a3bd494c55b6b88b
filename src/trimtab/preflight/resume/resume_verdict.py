"""Go, no-go or undecided of a resume, in one line with its reasons."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.detect.user_rules.yaml_source import close
from trimtab.errors import PreflightError
from trimtab.preflight.launch_verdict import EXIT_CODES
from trimtab.preflight.resume.check_rows import ResumeCheckRow, data_row, run_row, sampler_row, step_row
from trimtab.preflight.resume.file_checks import files_row, weights_row
from trimtab.preflight.resume.saved_checkpoint import saved_checkpoint
from trimtab.preflight.resume.settings_match import load_settings, settings_row, versions_row
from trimtab.report.control_characters import escape_controls
from trimtab.report.run_view import load_view

NEEDED = ("step", "weights")
"""Checks without which a resume is undecided."""
CHECKS = ("run", "step", "data", "configuration", "versions", "weights", "files", "sampler")


@dataclass(frozen=True)
class ResumeOptions:
    """What a resume is to be compared with beside the run."""

    config: Path | None = None  # settings of the resume, YAML or JSON
    sampler_step: int | None = None  # step whose weights the inference engine has now
    sampler_hash: str = ""  # SHA-256 of the weights that it has loaded
    accept: Sequence[str] = ()  # checks whose no-go is wanted


def resume_check(
    run: str | os.PathLike[str], checkpoint: str | os.PathLike[str], options: ResumeOptions | None = None
) -> dict[str, Any]:
    """Compare a checkpoint with the run it is to continue. Nothing is unpickled and nothing is changed.

    Args:
        run: run folder.
        checkpoint: folder of a checkpoint of transformers or TRL, of a loop that called `run.checkpoint`, or
            of a state that a guard kept.
        options: settings and sampler of the resume, and differences that are wanted.

    Returns:
        `verdict` (go, no-go, undecided), `headline` (the one line), `step`, `weights` (their hash now),
        `checks` (`name`, `state`, `reason`, `accepted`) and `exit_code` (0 go, 1 no-go, 2 undecided).

    Raises:
        RunError: the run folder cannot be read.
        PreflightError: no such checkpoint, settings that cannot be read, or `accept` names no check.

    Example:
        result = resume_check("runs/exp1", "out/checkpoint-40")
        if result["verdict"] != "go": raise SystemExit(result["headline"])
    """
    options = options or ResumeOptions()
    for name in options.accept:
        if name not in CHECKS:
            raise PreflightError(f"--accept {name!r:.40} is not a check{close(name, CHECKS)}")
    settings = load_settings(options.config)
    view = load_view(run)
    saved = saved_checkpoint(view, checkpoint)
    weights, digest = weights_row(saved)
    rows = [
        run_row(view),
        step_row(view, saved),
        data_row(saved, settings),
        settings_row(view, saved, settings),
        versions_row(view),
        weights,
        files_row(saved),
        sampler_row(saved, options.sampler_step, options.sampler_hash.lower(), digest),
    ]
    verdict = _verdict(rows, options.accept)
    return {
        "run": str(run), "checkpoint": str(checkpoint), "step": saved.step, "verdict": verdict,
        "headline": _headline(verdict, rows, options.accept, f"{checkpoint}", saved.step),
        "weights": digest, "exit_code": EXIT_CODES[verdict],
        "checks": [
            {**row._asdict(), "accepted": row.state == "no-go" and row.name in options.accept} for row in rows
        ],
    }  # fmt: skip


def _verdict(rows: Sequence[ResumeCheckRow], accept: Sequence[str]) -> str:
    if any(row.state == "no-go" and row.name not in accept for row in rows):
        return "no-go"
    return "undecided" if any(row.state == "not checked" and row.name in NEEDED for row in rows) else "go"


def _headline(
    verdict: str, rows: Sequence[ResumeCheckRow], accept: Sequence[str], checkpoint: str, step: int | None
) -> str:
    """The one line: the verdict, of what, and why."""
    of = f"{checkpoint}" + ("" if step is None else f", step {step}")
    faults = [f"{row.name}: {row.reason}" for row in rows if row.state == "no-go" and row.name not in accept]
    wanted = [
        f"{row.name} (accepted): {row.reason}" for row in rows if row.state == "no-go" and row.name in accept
    ]
    unseen = [row for row in rows if row.state == "not checked"]
    reasons = faults + [f"{row.name}: {row.reason}" for row in unseen if row.name in NEEDED and not faults]
    if not reasons:
        reasons = [
            f"{row.name} {row.reason}"
            for row in rows
            if row.name in ("weights", "data") and row.state == "go"
        ]
    others = [row.name for row in unseen if row.name not in NEEDED or faults]
    tail = f"; not checked: {', '.join(others)}" if others else ""
    return f"{verdict.upper()}: {of}: {'; '.join(reasons + wanted)}{tail}"


def resume_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the verdict in lines: the one, then each check."""
    lines = [result["headline"], ""]
    for row in result["checks"]:
        state = row["state"] if row["state"] == "go" else row["state"].upper()
        accepted = ", accepted" if row["accepted"] else ""
        lines.append(f"  [{state}{accepted}] {row['name']}: {row['reason']}")
    return [escape_controls(line) for line in lines]
