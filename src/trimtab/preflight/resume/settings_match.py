"""Are the settings and the versions of a resume those of the run?"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from trimtab.errors import PreflightError
from trimtab.preflight.resume.check_rows import ResumeCheckRow, row_of, same_setting
from trimtab.preflight.resume.saved_checkpoint import SavedCheckpoint
from trimtab.report.run_view import RunView
from trimtab.runs.secret_masks import masked_settings
from trimtab.safe_files import require_regular

_MAX_BYTES = 16_000_000
_MAX_NAMED = 6
_HARMLESS = (
    "output_dir", "run_name", "logging_", "report_to", "hub_", "push_to_hub", "save_",
    "resume_from_checkpoint", "disable_tqdm", "log_level", "project", "trackio", "eval_", "ddp_timeout",
)  # fmt: skip
"""Beginnings of settings that change nothing of the training."""
_PACKAGES = ("torch", "transformers", "trl", "vllm", "accelerate", "peft", "verl", "numpy")


def load_settings(path: Path | None) -> dict[str, Any]:
    """Return the settings of a YAML or JSON file by their names; nested ones by the last part of theirs.

    Raises:
        PreflightError: no such file, not YAML or JSON, or not a mapping.
    """
    if path is None:
        return {}
    require_regular(path, PreflightError)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise PreflightError(f"{path} is larger than 16 MB; give the file of settings")
        text = path.read_text(encoding="utf-8")
        value = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise PreflightError(f"{path} cannot be read: {' '.join(str(error).split())[:160]}") from error
    if not isinstance(value, Mapping):
        raise PreflightError(f"{path} is not a mapping of settings, as `learning_rate: 1e-6`")
    return dict(_leaves(value, 0))


def _leaves(value: Mapping[Any, Any], depth: int) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping) and depth < 8:
            yield from _leaves(item, depth + 1)
        else:
            yield str(name), item


def settings_row(view: RunView, checkpoint: SavedCheckpoint, settings: Mapping[str, Any]) -> ResumeCheckRow:
    """Which settings differ from those at the save, or, where none were recorded, from the run's?"""
    if not settings:
        return ResumeCheckRow("configuration", "not checked", "give the settings of the resume with --config")
    recorded = checkpoint.row.get("settings") or {}
    if not recorded:
        config = view.reader.header["config"]
        identity = config.get("identity")
        recorded = {**(identity if isinstance(identity, Mapping) else {}), **config}
    shared = [name for name in settings if name in recorded and not name.startswith(_HARMLESS)]
    if not shared:
        return ResumeCheckRow("configuration", "not checked", "the run recorded none of these settings")
    masked = masked_settings(dict(settings))
    faults = [
        f"{name} is {_text(masked[name])} now and was {_text(recorded[name])}"
        for name in shared
        if not same_setting(masked[name], recorded[name])
    ]
    more = [f"and {len(faults) - _MAX_NAMED} more"] if len(faults) > _MAX_NAMED else []
    return row_of(
        "configuration", faults[:_MAX_NAMED] + more, f"{len(shared)} settings are those at the save"
    )


def _text(value: Any) -> str:
    return str(value)[:60]


def versions_row(view: RunView) -> ResumeCheckRow:
    """Which packages are others here than in the process that saved?

    A difference of the third number alone is named and is a go.
    """
    recorded = recorded_versions(view)
    here = {name: text for name in recorded if (text := _installed(name))}
    if not here:
        return ResumeCheckRow("versions", "not checked", "none of the run's packages is installed here")
    differing = {name: f"{name} {recorded[name]} then, {text} here" for name, text in here.items()
                 if text.split("+")[0] != recorded[name].split("+")[0]}  # fmt: skip
    faults = [text for name, text in differing.items() if _minor(here[name]) != _minor(recorded[name])]
    notes = [text for text in differing.values() if text not in faults]
    absent = sorted(recorded.keys() - here.keys())
    fine = "; ".join(
        [f"{len(here) - len(differing)} packages are the same", *notes]
        + ([f"not installed here: {', '.join(absent)}"] if absent else [])
    )
    return row_of("versions", faults, fine)


def recorded_versions(view: RunView) -> dict[str, str]:
    """Return the versions of the run's latest session, as its process wrote them down; else of its first."""
    config = view.reader.header["config"]
    identity = config.get("identity")
    known = dict(identity) if isinstance(identity, Mapping) else {}
    sessions = sorted((session, rank) for rank, session in view.reader.processes)
    if sessions:
        session, rank = sessions[-1]
        known |= view.reader.processes[rank, session].get("about", {})
    packages = known.get("versions")
    versions = {str(k): str(v) for k, v in packages.items()} if isinstance(packages, Mapping) else {}
    versions |= {name: str(config[name]) for name in ("trl", "transformers") if name in config}
    versions |= {"python": str(known["python"])} if known.get("python") else {}
    return {name: text for name, text in versions.items() if name in (*_PACKAGES, "python") and text}


def _installed(name: str) -> str:
    if name == "python":
        return platform.python_version()
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split("+")[0].split(".")[:2])
