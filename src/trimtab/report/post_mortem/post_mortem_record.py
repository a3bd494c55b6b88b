"""The post-mortem of a run as one record of JSON types, from what its folder holds.

The process that dies and whoever reads its folder later compose it alike. What the policy or a tool wrote is
hostile text: control characters are shown as pictures, and secrets of the configuration are masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trimtab._version import __version__
from trimtab.report.averages import averages_of
from trimtab.report.control_characters import escape_controls
from trimtab.report.post_mortem.bad_ending import BadEnding, bad_ending
from trimtab.report.post_mortem.first_steps import Case, first_steps
from trimtab.report.post_mortem.last_stable import last_stable
from trimtab.report.post_mortem.resource_growth import memory_lines
from trimtab.report.run_incidents import incidents_of
from trimtab.report.run_tables import actions_table, exemplar_table
from trimtab.report.run_view import RunView
from trimtab.runs.secret_masks import masked_settings

Json = dict[str, Any]

FORMAT = 1
_HEADLINE = (
    "drift/p99", "mismatch/p99", "total/p99", "mismatch/token_ess_frac", "total/token_ess_frac",
    "ref_logprob/below_5_frac", "policy_lag/max",
)  # fmt: skip
"""Readings of closed windows that are shown, by slice."""
_SERIES = (
    "total/p99", "mismatch/p99", "total/sequence_ess_frac", "mismatch/sequence_ess_frac", "entropy/mean",
    "gradient/norm", "tools/error_frac",
)  # fmt: skip
"""Series of steps that are shown, by slice."""
_SLICES = ("all", "text", "post_tool")
_MAX_ACTIONS, _MAX_TOKENS, _MAX_CHECKPOINTS = 20, 8, 5
_NOT_SETTINGS = ("identity", "rules", "python_rules")


def post_mortem(view: RunView) -> Json | None:
    """Return the post-mortem of a run that ended badly.

    Args:
        view: the run as its folder stands now.

    Returns:
        `trimtab_post_mortem` (format), `run`, `run_id`, `ending`, `headline`, `last_step`, `last_stable`,
        `incidents`, `actions`, `readings`, `memory`, `versions`, `git`, `identity`, `configuration`,
        `worst_tokens`, `checkpoints`, `try_first`, `verdict` and `gaps`. None where the run finished, runs,
        or is not known to have ended.

    Example:
        record = post_mortem(load_view("runs/exp1"))
        if record is not None: print(record["headline"])
    """
    ending = bad_ending(view)
    if ending is None:
        return None
    config = view.reader.header["config"]
    about = _about(view, ending)
    incidents, actions = incidents_of(view), actions_table(view.actions)
    rows = view.reader.rows("steps", ending.rank)
    stable, averages = last_stable(view), averages_of(view)
    checkpoints = view.reader.rows("checkpoints")
    opened = _open_incidents(view, incidents)
    case = Case(
        str(view.folder), ending, stable, opened, actions, rows, averages, checkpoints, "guard" in config
    )
    record = {
        "trimtab_post_mortem": FORMAT,
        "trimtab_version": __version__,
        "run": str(view.folder),
        "run_id": str(view.reader.header.get("run_id", "")),
        "ending": {
            "kind": ending.kind, "text": ending.text, "rank": ending.rank, "session": ending.session,
            **{name: str(ending.detail.get(name, "")) for name in ("error", "line", "phase", "signal")},
            "nonfinite": list(ending.nonfinite),
        },
        "headline": headline_of(ending, stable.step),
        "verdict": view.verdict.word,
        "last_step": int(view.steps[-1]["step"]) if view.steps else None,
        "last_stable": {"step": stable.step, "why": stable.why},
        "try_first": first_steps(case),
        "incidents": incidents,
        "actions": actions[-_MAX_ACTIONS:],
        "readings": _readings(view, averages),
        "memory": memory_lines(rows),
        "worst_tokens": _worst_tokens(view),
        "checkpoints": _checkpoints(checkpoints),
        **about,
        "configuration": masked_settings({k: v for k, v in config.items() if k not in _NOT_SETTINGS}),
        "gaps": list(view.integrity.gaps),
    }  # fmt: skip
    return {name: _shown(value) for name, value in record.items()}


def headline_of(ending: BadEnding, stable: int | None) -> str:
    """Return the sentence a post-mortem opens with."""
    good = "no step was stable" if stable is None else f"last stable step {stable}"
    return f"{ending.kind.upper()}: {ending.text}; {good}."


def _about(view: RunView, ending: BadEnding) -> Json:
    """Versions, code and identity: of the process that died where it wrote them down, else of the run's
    first."""
    config = view.reader.header["config"]
    recorded = config.get("identity")
    identity = dict(recorded) if isinstance(recorded, Mapping) else {}
    identity |= view.reader.processes.get((ending.rank, ending.session), {}).get("about", {})
    known = identity.pop("versions", None)
    versions = {str(k): str(v) for k, v in known.items()} if isinstance(known, Mapping) else {}
    extra = {name: str(config[name]) for name in ("trl", "transformers") if isinstance(config.get(name), str)}
    python = {"python": str(identity.pop("python"))} if identity.get("python") else {}
    git = {
        name: identity.pop(f"git_{name}", "" if name != "dirty" else None)
        for name in ("commit", "branch", "dirty")
    }
    process = view.reader.processes.get((ending.rank, ending.session), {})
    if process:
        identity |= {"pid": process["pid"], "host": process["host"]}
    return {
        "versions": {**python, **extra, **versions},
        "git": git,
        "identity": {name: masked_settings(value, name) for name, value in identity.items()},
    }


def _open_incidents(view: RunView, incidents: list[Json]) -> list[Json]:
    """Those of which an alarm above info was open at the end."""
    opened = {(a.rule, a.step) for a in view.alarms if a.cleared is None and a.severity != "info"}
    return [one for one in incidents if any((a["rule"], a["step"]) in opened for a in one["alarms"])]


def _readings(view: RunView, averages: Mapping[str, Any]) -> list[Json]:
    """The last value of each headline measure, with the step or the window it is of."""
    rows = [_reading(name, "all", one.step[-1], one.value[-1]) for name, one in averages.items() if one.step]
    seen: set[tuple[str, str]] = set()
    for name in _SLICES:
        for key in _HEADLINE:
            reading = view.readings.latest(key, name)
            if reading is not None and reading.status == "ok":
                interval = {"low": reading.low, "high": reading.high} if math.isfinite(reading.low) else {}
                rows.append(_reading(key, name, reading.step, reading.value) | interval)
                seen.add((key, name))
        for key in _SERIES:
            arrays = view.step_series.get((key, name))
            if arrays is not None and len(arrays.steps) and (key, name) not in seen:
                rows.append(_reading(key, name, int(arrays.steps[-1]), float(arrays.values[-1])))
    return rows


def _reading(name: str, slice_name: str, step: int, value: float) -> Json:
    return {"name": name, "slice": slice_name, "step": step, "value": value, "text": f"{value:.4g}"}


def _worst_tokens(view: RunView) -> list[Json]:
    """The worst tokens of the latest windows in their context, the farthest first."""
    tokens = exemplar_table(view.exemplars)
    fields = (
        "slice",
        "ratio",
        "value",
        "text",
        "token_id",
        "before",
        "after",
        "tool",
        "turn",
        "episode",
        "position",
    )
    ordered = sorted(tokens, key=lambda row: -row["value"] if math.isfinite(row["value"]) else -math.inf)
    return [{name: row[name] for name in fields} for row in ordered[:_MAX_TOKENS]]


def _checkpoints(rows: list[Json]) -> list[Json]:
    """The last checkpoints, each once: its row with hashes follows the one without."""
    last = {(row["step"], row["path"]): row for row in rows}
    names = ("step", "path", "time", "weights")
    return [{name: row.get(name, "") for name in names} for row in [*last.values()][-_MAX_CHECKPOINTS:]]


def _shown(value: Any) -> Any:
    """A copy whose texts hold no control character; numbers stay what they are."""
    if isinstance(value, str):
        return escape_controls(value, lines=True)
    if isinstance(value, Mapping):
        return {escape_controls(name): _shown(item) for name, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, (list, tuple)) else value
